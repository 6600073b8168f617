//! Plans that do not load, sizes that do not fit, runs that fail: what is said, and what goes on.

use super::run::TensorRtEngine;
use super::run_fake::FakeRunCalls;
use super::run_loader::TensorRtLoader;
use super::run_tests::{Machine, PLAN, doubling, rows, run, values};
use crate::cuda::CudaDevice;
use crate::cuda::fake::FakeCudaCalls;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::{ElementType, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_plan_that_does_not_load_says_why_in_one_line() {
    let machine = Machine::new();
    let folder = tempfile::tempdir().expect("there is a place");
    let missing = folder.path().join("missing.engine");
    let damaged = folder.path().join("damaged.engine");
    std::fs::write(&damaged, &PLAN[..8]).expect("it is written");
    let load = |plan: &[u8]| machine.loader(machine.doubling()).load(plan);
    let with_spec = |change: fn(&mut EngineSpec)| {
        let mut spec = doubling();
        change(&mut spec);
        machine.loader(machine.doubling()).with_spec(spec).load(PLAN)
    };
    let with_tensors = |change: fn(&mut Vec<super::run_calls::PlanTensor>)| {
        machine.loader(machine.doubling().with_tensors(change)).load(PLAN)
    };
    let version = "cannot load the plan: another version of TensorRT built it; a plan runs with the fake TensorRT \
                   1.0.0 and on the kind of GPU that it was built for, and here is the fake GPU (CUDA device 0) of \
                   compute capability 8.9; TensorRT says: IRuntime::deserializeCudaEngine: Error Code 1: Serialization \
                   (Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match.)";
    let cases: [(&str, Result<TensorRtEngine>, &str); 13] = [
        ("nothing", load(b""), "cannot load the plan: it is empty"),
        ("another version's", load(b"other"), version),
        ("cut off", load(&PLAN[..5]), "it is cut off"),
        (
            "a missing file",
            machine.loader(machine.doubling()).load_file(&missing),
            "missing.engine: No such file or directory (os error 2)",
        ),
        (
            "a damaged file",
            machine.loader(machine.doubling()).load_file(&damaged),
            "damaged.engine: it is cut off, or longer than it should be; ",
        ),
        (
            "another type",
            with_spec(|spec| spec.inputs[0].element_type = ElementType::F16),
            "input: expected x: f16[n, 4], the plan has x: f32[x.0, 4]",
        ),
        (
            "another size",
            with_spec(|spec| spec.outputs[0].shape[1] = Dim::Fixed(5)),
            "output: expected y: f32[n, 5], the plan has y: f32[y.0, 4]",
        ),
        ("another rank", with_spec(|spec| spec.inputs[0].shape.truncate(1)), "input: expected x: f32[n]"),
        (
            "a missing input",
            with_spec(|spec| spec.inputs[0].name = "z".into()),
            "input `x` is not one that was expected",
        ),
        (
            "a missing output",
            with_spec(|spec| spec.outputs.push(TensorSpec::new("z", ElementType::F32, []))),
            "output `z` is missing",
        ),
        (
            "a strange type",
            with_tensors(|tensors| tensors[0].data_type = 7),
            "input `x` holds elements of type 7, which no tensor here can",
        ),
        (
            "a shape",
            with_tensors(|tensors| tensors[0].is_on_host = true),
            "input `x` is a shape in the host's memory",
        ),
        (
            "a strange layout",
            with_tensors(|tensors| tensors[1].is_linear = false),
            "output `y` does not lie row by row",
        ),
    ];
    let mut wrong = Vec::new();
    for (case, outcome, told) in cases {
        let fits = outcome.as_ref().is_err_and(|error| {
            let text = error.to_string();
            error.kind() == ErrorKind::InvalidModel && text.lines().count() == 1 && text.contains(told)
        });
        if !fits {
            wrong.push(format!("{case}: {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(machine.cuda.live().streams, 2, "those of the device alone");
}

#[test]
fn a_library_that_does_not_start_is_unavailable() {
    let machine = Machine::new();
    let error = machine.loader(machine.doubling().without_start()).load(PLAN).expect_err("it does not start");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(
        error.to_string(),
        "fake TensorRT 1.0.0 does not start: CUDA initialization failure with error: 35"
    );
}

#[test]
fn a_plan_without_names_has_names_of_its_own() {
    let machine = Machine::new();
    let calls = machine.doubling();
    let engine = TensorRtLoader::new(Arc::new(calls), &machine.device).load(PLAN).expect("it is the plan");
    assert_eq!(engine.spec().inputs[0].to_string(), "x: f32[x.0, 4]");
    assert_eq!(engine.spec().outputs[0].to_string(), "y: f32[y.0, 4]");
}

#[test]
fn a_shape_that_depends_on_the_data_is_refused() {
    let machine = Machine::new();
    let mut spec = doubling();
    spec.outputs[0].shape[0] = Dim::named("found");
    let calls =
        FakeRunCalls::new(&machine.cuda, PLAN, &spec, &BTreeMap::from([("n", [0, 64])]), |_, _| Ok(()));
    let mut engine = TensorRtLoader::new(Arc::new(calls), &machine.device)
        .with_spec(spec)
        .load(PLAN)
        .expect("it is the plan");
    let mut y = rows(&[9.0; 4]);
    for _ in 0..2 {
        let error = run(&mut engine, &rows(&[1.0; 4]), &mut y).expect_err("nobody knows how long `y` is");
        assert_eq!(error.kind(), ErrorKind::InvalidModel);
        assert_eq!(
            error.to_string(),
            "output `y`: its shape is not known before the run: it depends on the data, which is not supported"
        );
    }
    assert_eq!(y, rows(&[9.0; 4]));
}

#[test]
fn a_run_that_fails_is_told_and_the_next_one_runs() {
    let mut wrong = Vec::new();
    for (call, after) in [
        ("work", 0),
        ("cuMemcpyHtoDAsync", 0),
        ("cuMemcpyDtoHAsync", 0),
        ("cuStreamSynchronize", 0),
        ("cuGraphLaunch", 2),
        ("cuMemAlloc", 0),
    ] {
        let machine = Machine::new();
        let (mut engine, network) = machine.engine(machine.doubling());
        machine.cuda.fail(call, after, 1, 719);
        let (x, mut y) = (rows(&[1.0; 4]), Tensor::empty());
        let outcomes: Vec<_> = (0..8).map(|_| run(&mut engine, &x, &mut y)).collect();
        let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        let told = |error: &&Error| {
            error.kind() == ErrorKind::Execution && error.to_string().contains("it was told to fail")
        };
        if failed.len() != 1 || !failed.iter().all(told) || values(&y) != [3.0; 4] {
            wrong.push(format!("{call}: {failed:?}, {y:?}"));
        }
        wrong.extend(machine.cuda.races());
        wrong.extend(network.misuse());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tensors_of_another_gpu_are_refused() {
    let cuda = FakeCudaCalls::with_devices(2, 1 << 20);
    let [device, other] =
        [0, 1].map(|ordinal| CudaDevice::open_with(cuda.clone(), ordinal).expect("there are two"));
    let machine = Machine { cuda, device };
    let (mut engine, _) = machine.engine(machine.doubling());
    let mut there = Tensor::on(other.clone());
    there.copy_from_host(&rows(&[1.0; 4])).expect("it is copied");
    let error = run(&mut engine, &there, &mut Tensor::empty()).expect_err("it lies on the other");
    assert_eq!(
        error.to_string(),
        "input `x` lies on the fake GPU (CUDA device 1): this engine works in CUDA device 0"
    );
    let error = run(&mut engine, &rows(&[1.0; 4]), &mut Tensor::on(other)).expect_err("it lies on the other");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn sizes_outside_the_profile_are_named_with_the_remedy() {
    let machine = Machine::new();
    let loader = machine.loader(machine.doubling());
    let remedy = |dimension: &str, size: usize| format!("build it with --max-{dimension} {size}");
    let mut engine = loader.with_remedy(remedy).load(PLAN).expect("it is the plan");
    let mut y = rows(&[9.0; 4]);
    let error = run(&mut engine, &Tensor::zeros_f32(&[65, 4]), &mut y).expect_err("64 is the most");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        error.to_string(),
        "input `x`, dimension 0: `n` is 65, the plan was built for 0 to 64; build it with --max-n 65"
    );
    assert_eq!(y, rows(&[9.0; 4]));
    assert_eq!(engine.dimensions()["n"].max, 64);
    run(&mut engine, &Tensor::zeros_f32(&[64, 4]), &mut y).expect("that fits");

    let (mut engine, _) = machine.engine(machine.doubling());
    let error = run(&mut engine, &Tensor::zeros_f32(&[70, 4]), &mut y).expect_err("64 is the most");
    assert!(error.to_string().ends_with("; build it for sizes up to 70"), "{error}");
}
