//! Plans on a GPU, with the TensorRT that `OCELLI_TENSORRT` names.
#![allow(clippy::print_stderr, reason = "the tests report measurements")]

use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::cuda::CudaDevice;
use ocelli_engines::tensorrt::{
    ComputeCapability, DimensionRange, Plan, PlanRequest, Product, TensorRt, TensorRtBuilder, TensorRtEngine,
};
use ocelli_engines::{Dim, Engine, EngineSpec, ErrorKind, Result, Tensor};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

fn tensorrt() -> TensorRt {
    TensorRt::load(None).expect("OCELLI_TENSORRT names a library")
}

fn device() -> Arc<CudaDevice> {
    CudaDevice::open(0).expect("there is a GPU")
}

/// The suite's network without `positions`.
fn network() -> Vec<u8> {
    use crate::models::{F32, I64, Model};
    let model = Model {
        nodes: &[
            ("Add", &["a", "b"], "sum"),
            ("MatMul", &["a", "weights"], "product"),
            ("Add", &["ids", "ids"], "doubled"),
        ],
        inputs: &[("a", F32, "rows 3"), ("b", F32, "rows 3"), ("ids", I64, "rows tokens")],
        outputs: &[("sum", F32, "rows 3"), ("product", F32, "rows 4"), ("doubled", I64, "rows tokens")],
    };
    model.encode()
}

/// The plan of the suite's network for this machine's GPU.
fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| build(&tensorrt(), device().compute_capability()))
}

/// Builds the suite's network; TensorRT proper always builds for this machine's GPU.
fn build(tensorrt: &TensorRt, (major, minor): (u32, u32)) -> Plan {
    let folder = tempfile::tempdir().expect("there is a place");
    let onnx = folder.path().join("network.onnx");
    std::fs::write(&onnx, network()).expect("it is written");
    let range = DimensionRange { min: 0, optimal: 8, max: 64 };
    let dimensions = ["rows", "tokens"].map(|name| (name.to_owned(), range)).into();
    let targets = match tensorrt.product() {
        Product::TensorRtForRtx => vec![ComputeCapability::new(major, minor)],
        _ => Vec::new(),
    };
    let request = PlanRequest { targets, dimensions, ..PlanRequest::default() };
    TensorRtBuilder::new(tensorrt, request).build(&onnx).expect("it is built")
}

fn engine(with_graphs: bool) -> Result<TensorRtEngine> {
    let mut loader = TensorRtEngine::loader(&tensorrt(), &device()).with_graphs(with_graphs);
    let EngineSpec { inputs, outputs } = conformance::spec_known_shapes();
    for tensor in inputs.iter().chain(&outputs) {
        for (axis, size) in tensor.shape.iter().enumerate() {
            if let Dim::Named(name) = size {
                loader = loader.with_dimension_name(&tensor.name, axis, name);
            }
        }
    }
    loader.load(&plan().bytes)
}

struct Inputs([Tensor; 3]);

impl Inputs {
    fn of(rows: usize, seed: f32) -> Self {
        let floats = |scale: f32| {
            Tensor::f32(&[rows, 3], (0..rows * 3).map(|at| seed + scale * at as f32).collect()).expect("fits")
        };
        let ids = Tensor::i64(&[rows, 5], (0..rows as i64 * 5).map(|at| at + seed as i64).collect());
        Self([floats(0.25), floats(-0.5), ids.expect("fits")])
    }

    fn list(&self) -> [(&str, &Tensor); 3] {
        [("a", &self.0[0]), ("b", &self.0[1]), ("ids", &self.0[2])]
    }
}

/// The three outputs of a run, in host memory.
fn answer(engine: &mut TensorRtEngine, inputs: &Inputs) -> [Tensor; 3] {
    let [mut sum, mut product, mut doubled] = [(); 3].map(|()| Tensor::empty());
    let mut outputs = [("sum", &mut sum), ("product", &mut product), ("doubled", &mut doubled)];
    engine.run(&inputs.list(), &mut outputs).expect("it runs");
    [sum, product, doubled]
}

#[test]
#[ignore = "needs an NVIDIA GPU and TensorRT"]
fn the_conformance_suite_passes() {
    // TensorRT multiplies matrices of `f32` in TF32.
    let tolerance = Tolerance { absolute: 2e-2, relative: 2e-3 };
    let outcome = conformance::check_known_shapes(|| engine(true), tolerance);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// `true` if two tensors are equal up to the rounding of products.
fn are_near(one: &Tensor, other: &Tensor) -> bool {
    match (one.as_f32(), other.as_f32()) {
        (Ok(one), Ok(other)) => {
            let near = |(one, other): (&f32, &f32)| (one - other).abs() <= 2e-2 + 2e-3 * one.abs();
            one.len() == other.len() && one.iter().zip(other).all(near)
        }
        _ => one == other,
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU and TensorRT"]
fn graphs_give_the_same_bits_as_enqueued_runs() {
    let (mut plain, mut captured) = (engine(false).expect("it loads"), engine(true).expect("it loads"));
    let device = device();
    let mut failures = Vec::new();
    // The first two runs of a shape are enqueued, later ones are launched as graphs.
    for rows in [1, 8, 64, 8] {
        let inputs = Inputs::of(rows, 3.0);
        let first = answer(&mut captured, &inputs);
        let others = (1..8).filter(|_| answer(&mut captured, &inputs) != first).count();
        if others > 0 {
            failures.push(format!("{rows} rows: {others} of 7 runs have other bits than the first"));
        }
    }
    let mut outputs = [(); 3].map(|()| Tensor::on(device.clone()));
    for round in 0..60 {
        // Shapes change sometimes, addresses alternate, and data differs in every round.
        let inputs = Inputs::of(1 + round / 20, round as f32);
        let expected = answer(&mut plain, &inputs);
        let there = &mut outputs[round % 3];
        captured.run(&inputs.list(), &mut [("product", there)]).expect("it runs");
        let mut product = Tensor::empty();
        there.copy_to_host_into(&mut product).expect("it is copied");
        let answer = answer(&mut captured, &inputs);
        let near = answer.iter().zip(&expected).all(|(one, other)| are_near(one, other));
        if !near || !are_near(&product, &expected[1]) {
            failures.push(format!("round {round}: expected {expected:?}, got {answer:?} and {product:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for (name, engine) in [("plain", &mut plain), ("captured", &mut captured)] {
        let inputs = Inputs::of(4, 1.0);
        let mut times: Vec<_> = (0..300)
            .map(|_| {
                let begin = Instant::now();
                answer(engine, &inputs);
                begin.elapsed()
            })
            .collect();
        times.sort();
        eprintln!("{name}: median {:?}", times[times.len() / 2]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU and TensorRT"]
fn tensors_stay_on_the_device_between_engines() {
    let (mut first, mut second) = (engine(true).expect("it loads"), engine(true).expect("it loads"));
    let device = device();
    let mut between = Tensor::on(device.clone());
    let mut failures = Vec::new();
    for round in 0..500 {
        let inputs = Inputs::of(9, round as f32);
        first.run(&inputs.list(), &mut [("sum", &mut between)]).expect("it runs");
        let before = device.transferred();
        let mut sum = Tensor::empty();
        // Rows are 12 bytes apart, so that most are not aligned.
        let row = between.row(round % 9).expect("there are nine");
        let zeros = Tensor::zeros::<f32>(&[1, 3]);
        let ids = Tensor::zeros::<i64>(&[1, 1]);
        second.run(&[("a", &row), ("b", &zeros), ("ids", &ids)], &mut [("sum", &mut sum)]).expect("it runs");
        let after = device.transferred();
        let [a, b, _] = &inputs.0;
        let (a, b) = (a.as_f32().expect("f32"), b.as_f32().expect("f32"));
        let expected: Vec<f32> = (0..3).map(|at| a[round % 9 * 3 + at] + b[round % 9 * 3 + at]).collect();
        if sum.as_f32().expect("f32") != expected || after.to_host - before.to_host != 12 {
            failures.push(format!("round {round}: {sum:?}, {before:?}, {after:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU and TensorRT"]
fn corrupt_plans_and_unsupported_sizes_are_refused_in_one_line() {
    let (tensorrt, device) = (tensorrt(), device());
    let whole = &plan().bytes;
    let mut changed = whole.to_vec();
    changed[..16].fill(0x5A);
    let cases = [
        ("half of a plan", &whole[..whole.len() / 2]),
        ("the first bytes of a plan", &whole[..20]),
        ("a changed plan", &changed),
    ];
    let mut wrong = Vec::new();
    for (case, bytes) in cases {
        match TensorRtEngine::loader(&tensorrt, &device).load(bytes) {
            Err(error)
                if error.kind() == ErrorKind::InvalidData && error.to_string().lines().count() == 1 =>
            {
                eprintln!("{case}: {error}");
            }
            other => wrong.push(format!("{case}: {other:?}")),
        }
    }
    let mut engine = engine(true).expect("it loads");
    let inputs = Inputs::of(65, 0.0);
    match engine.run(&inputs.list(), &mut [("sum", &mut Tensor::empty())]) {
        Err(error) if error.to_string().contains("`rows` is 65, the plan was built for 0 to 64") => {}
        other => wrong.push(format!("65 rows: {other:?}")),
    }
    answer(&mut engine, &Inputs::of(64, 0.0));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
