//! Plans that run on a GPU that is not there.

use super::run::TensorRtEngine;
use super::run_fake::{FakeNetwork, FakeRunCalls};
use super::run_loader::TensorRtLoader;
use crate::conformance::{self, Tolerance};
use crate::cuda::CudaDevice;
use crate::cuda::fake::{FakeCudaCalls, Live, Span};
use crate::device::{Device, Transferred};
use crate::engine::Engine;
use crate::error::Result;
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::{ElementType, Tensor};
use half::f16;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const PLAN: &[u8] = b"a plan of the fake's";

/// A GPU, and TensorRT on it.
pub(super) struct Machine {
    pub(super) cuda: Arc<FakeCudaCalls>,
    pub(super) device: Arc<CudaDevice>,
}

impl Machine {
    pub(super) fn new() -> Self {
        let cuda = FakeCudaCalls::new();
        let device = CudaDevice::open_with(cuda.clone(), 0).expect("there is one");
        Self { cuda, device }
    }

    /// `y = 2 x + 1` of `[n, 4]`, n from 0 to 64.
    pub(super) fn doubling(&self) -> FakeRunCalls {
        FakeRunCalls::new(
            &self.cuda,
            PLAN,
            &doubling(),
            &BTreeMap::from([("n", [0, 64])]),
            |inputs, outputs| {
                let x = inputs[0].1;
                let y = outputs[0].1.reset_f32(x.shape());
                y.iter_mut().zip(x.as_f32()?).for_each(|(y, x)| *y = 2.0 * x + 1.0);
                Ok(())
            },
        )
    }

    pub(super) fn loader(&self, calls: FakeRunCalls) -> TensorRtLoader {
        TensorRtLoader::new(Arc::new(calls), &self.device).with_spec(doubling())
    }

    pub(super) fn engine(&self, calls: FakeRunCalls) -> (TensorRtEngine, Arc<FakeNetwork>) {
        let network = calls.network();
        (self.loader(calls).load(PLAN).expect("it is the plan"), network)
    }

    fn tensor(&self, values: &[f32]) -> Tensor {
        let mut tensor = Tensor::on(self.device.clone());
        tensor.copy_from_host(&rows(values)).expect("it is copied");
        tensor
    }

    fn on_device(&self) -> Tensor {
        Tensor::on(self.device.clone())
    }

    fn made(&self) -> [usize; 4] {
        ["cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuStreamCreate"].map(|call| self.cuda.calls(call))
    }

    fn is_sound(&self, networks: &[&FakeNetwork]) {
        assert_eq!(self.cuda.races(), Vec::<String>::new());
        for network in networks {
            assert_eq!(network.misuse(), Vec::<String>::new());
        }
    }
}

pub(super) fn doubling() -> EngineSpec {
    let shape = || [Dim::named("n"), Dim::Fixed(4)];
    EngineSpec {
        inputs: vec![TensorSpec::new("x", ElementType::F32, shape())],
        outputs: vec![TensorSpec::new("y", ElementType::F32, shape())],
    }
}

pub(super) fn rows(values: &[f32]) -> Tensor {
    Tensor::f32(&[values.len() / 4, 4], values.to_vec()).expect("rows of four")
}

pub(super) fn run(engine: &mut TensorRtEngine, x: &Tensor, y: &mut Tensor) -> Result<()> {
    engine.run(&[("x", x)], &mut [("y", y)])
}

pub(super) fn values(tensor: &Tensor) -> Vec<f32> {
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host).expect("it is copied");
    host.as_f32().expect("f32").to_vec()
}

#[test]
fn the_suite_of_all_engines_passes() {
    let machine = Machine::new();
    let spec = conformance::spec_following_shapes();
    let ranges = BTreeMap::from([("rows", [0, 64]), ("tokens", [0, 64])]);
    let mut networks = Vec::new();
    let outcome = conformance::check_following_shapes(
        || {
            let compute = conformance::tests::compute;
            let calls = FakeRunCalls::new(&machine.cuda, PLAN, &spec, &ranges, compute);
            networks.push(calls.network());
            TensorRtLoader::new(Arc::new(calls), &machine.device).with_spec(spec.clone()).load(PLAN)
        },
        Tolerance::F32,
    );
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
    machine.is_sound(&networks.iter().map(|network| &**network).collect::<Vec<_>>());
}

#[test]
fn what_stays_on_the_device_goes_from_engine_to_engine() {
    let machine = Machine::new();
    let ((mut first, one), (mut second, two)) =
        (machine.engine(machine.doubling()), machine.engine(machine.doubling()));
    let (x, mut between, mut y) =
        (machine.tensor(&[1.0, 2.0, 3.0, 4.0]), machine.on_device(), Tensor::empty());
    for round in 0..10 {
        run(&mut first, &x, &mut between).expect("it runs");
        run(&mut second, &between, &mut y).expect("it runs");
        assert_eq!(y.as_f32().expect("it is the host's"), [7.0, 11.0, 15.0, 19.0], "round {round}");
    }
    assert_eq!(between.shape(), [1, 4]);
    assert_eq!(machine.device.transferred(), Transferred { to_device: 16, to_host: 160 });
    assert!(first.device().is_some_and(|device| device.kind() == machine.device.kind()));
    assert_eq!(first.description(), "fake TensorRT 1.0.0, the fake GPU (CUDA device 0)");
    machine.is_sound(&[&one, &two]);
}

#[test]
fn a_steady_state_is_one_launch_and_one_wait() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let (x, mut y) = (rows(&[1.0; 8]), Tensor::empty());
    let mut states = Vec::new();
    let counted = |call| machine.cuda.calls(call);
    for _ in 0..40 {
        run(&mut engine, &x, &mut y).expect("it runs");
        let calls = ["cuGraphLaunch", "cuStreamSynchronize", "cuStreamBeginCapture"].map(counted);
        states.push((machine.made(), network.counts.read(), calls));
    }
    // Two runs are enqueued; the third is captured, enqueued once more for that, and launched.
    assert_eq!(states[1].1, [1, 2, 2]);
    assert_eq!(states[39].1, [1, 2, 3]);
    let (made, _, [launches, waits, captures]) = states[9];
    assert_eq!(states[39].0, made);
    assert_eq!(states[39].2, [launches + 30, waits + 30, captures]);
    assert_eq!((launches, captures), (8, 1));
    assert_eq!(counted("cuEventSynchronize"), 0);
    machine.is_sound(&[&network]);
}

#[test]
fn runs_are_captured_for_each_set_of_addresses_up_to_eight() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let x = machine.tensor(&[3.0; 4]);
    let mut outputs: Vec<_> = (0..11).map(|_| machine.on_device()).collect();
    let mut rounds = |outputs: &mut [Tensor]| {
        for _ in 0..4 {
            for y in &mut *outputs {
                run(&mut engine, &x, y).expect("it runs");
                assert_eq!(values(y), [7.0; 4]);
            }
        }
        (machine.cuda.live().graphs, machine.cuda.calls("cuGraphLaunch"))
    };
    assert_eq!(rounds(&mut outputs[..2]), (2, 4));
    assert_eq!(rounds(&mut outputs[..8]), (8, 4 + 8 + 6 * 2));
    // Eleven in turn are more than are remembered: each is forgotten before it comes again.
    let (graphs, launches) = rounds(&mut outputs);
    assert!(graphs <= 8 && launches <= 24 + 8, "{graphs} graphs, {launches} launches");
    machine.is_sound(&[&network]);
}

#[test]
fn a_change_of_shapes_forgets_what_was_captured() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let mut y = Tensor::empty();
    let mut graphs = Vec::new();
    for rows_of in [1, 3, 1, 0, 3] {
        let x = Tensor::zeros_f32(&[rows_of, 4]);
        for _ in 0..4 {
            run(&mut engine, &x, &mut y).expect("it runs");
            assert_eq!(y, Tensor::f32(&[rows_of, 4], vec![1.0; rows_of * 4]).expect("fits"));
        }
        graphs.push(machine.cuda.live().graphs);
    }
    assert_eq!(graphs, [1, 1, 1, 0, 1]);
    machine.is_sound(&[&network]);
}

#[test]
fn what_cannot_be_captured_is_enqueued() {
    let mut wrong = Vec::new();
    type Prepare = fn(&Machine) -> FakeRunCalls;
    let cases: [(&str, Prepare, usize); 3] = [
        ("TensorRT says so", |machine| machine.doubling().without_captures(), 0),
        (
            "the capture fails",
            |machine| {
                machine.cuda.fail("cuStreamEndCapture", 0, usize::MAX, 901);
                machine.doubling()
            },
            1,
        ),
        (
            "the run fails while it is captured",
            |machine| {
                machine.cuda.fail("work", 2, 1, 900);
                machine.doubling()
            },
            1,
        ),
    ];
    for (case, prepare, captures) in cases {
        let machine = Machine::new();
        let (mut engine, network) = machine.engine(prepare(&machine));
        let (x, mut y) = (rows(&[1.0; 4]), Tensor::empty());
        for _ in 0..8 {
            if let Err(error) = run(&mut engine, &x, &mut y) {
                wrong.push(format!("{case}: {error}"));
            }
        }
        let counted = [machine.cuda.calls("cuGraphLaunch"), machine.cuda.calls("cuStreamBeginCapture")];
        if values(&y) != [3.0; 4] || counted != [0, captures] {
            wrong.push(format!("{case}: {counted:?}"));
        }
        wrong.extend(machine.cuda.races());
        wrong.extend(network.misuse());
    }
    let machine = Machine::new();
    let mut engine =
        machine.loader(machine.doubling()).with_graphs(false).load(PLAN).expect("it is the plan");
    for _ in 0..8 {
        run(&mut engine, &rows(&[1.0; 4]), &mut Tensor::empty()).expect("it runs");
    }
    if machine.cuda.calls("cuStreamBeginCapture") > 0 {
        wrong.push("captured although it should not be".to_owned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_next_frame_overlaps_this_one_and_no_frame_its_own() {
    let machine = Machine::new();
    let (mut backbone, one) = machine.engine(machine.doubling().with_duration("backbone", 100));
    let (mut decoder, two) = machine.engine(machine.doubling().with_duration("decoder", 90));
    // Two sets of features go round.
    let mut features = [machine.on_device(), machine.on_device()];
    let mut answers = Vec::new();
    for frame in 0..6 {
        let x = machine.tensor(&[frame as f32; 4]);
        let between = &mut features[frame % 2];
        run(&mut backbone, &x, between).expect("it runs");
        let mut y = machine.on_device();
        run(&mut decoder, between, &mut y).expect("it runs");
        answers.push(y);
    }
    for (frame, answer) in answers.iter().enumerate() {
        assert_eq!(values(answer), [4.0 * frame as f32 + 3.0; 4]);
    }
    let timeline = machine.cuda.timeline();
    let spans = |label: &str| timeline.iter().filter(|span| span.label == label).collect::<Vec<&Span>>();
    let (backbones, decoders) = (spans("backbone"), spans("decoder"));
    assert_eq!((backbones.len(), decoders.len()), (6, 6));
    for frame in 0..6 {
        assert!(decoders[frame].start >= backbones[frame].end, "frame {frame} is decoded too early");
        if frame + 1 < 6 {
            assert!(backbones[frame + 1].overlaps(decoders[frame]), "frame {frame} is waited for");
        }
    }
    // Six backbones one after another, and the last decoder.
    assert!(decoders[5].end < 6 * 100 + 90 + 10, "{timeline:#?}");
    assert_eq!(one.counts.contexts.load(Ordering::Relaxed), 1);
    machine.is_sound(&[&one, &two]);
}

#[test]
fn engines_of_one_plan_share_it_and_run_on_threads_of_their_own() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let siblings = [(); 3].map(|()| engine.another_context().expect("there is room"));
    let single: Vec<_> = (0..30)
        .map(|round| {
            let mut y = Tensor::empty();
            run(&mut engine, &rows(&[round as f32; 4]), &mut y).expect("it runs");
            values(&y)
        })
        .collect();
    let threads = siblings.map(|mut sibling| {
        std::thread::spawn(move || {
            let mut y = Tensor::empty();
            let answers = (0..30).map(|round| {
                run(&mut sibling, &rows(&[round as f32; 4]), &mut y).expect("it runs");
                values(&y)
            });
            answers.collect::<Vec<_>>()
        })
    });
    for thread in threads {
        assert_eq!(thread.join().expect("it did not panic"), single);
    }
    let counts = [&network.counts.deserialized, &network.counts.contexts];
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 4]);
    assert_eq!(engine.context_bytes(), 1 << 20);
    machine.is_sound(&[&network]);
}

#[test]
fn rows_that_begin_anywhere_are_inputs_too() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let whole = machine.tensor(&(0..40).map(|value| value as f32).collect::<Vec<_>>());
    let mut y = machine.on_device();
    for row in 0..10 {
        let begin = row as f32 * 8.0;
        run(&mut engine, &whole.row(row).expect("there are ten"), &mut y).expect("it runs");
        assert_eq!(values(&y), [1.0, 3.0, 5.0, 7.0].map(|value| value + begin), "row {row}");
    }
    machine.is_sound(&[&network]);
}

#[test]
fn dynamic_dimensions_have_the_names_they_are_given() {
    let machine = Machine::new();
    let loader = || TensorRtLoader::new(Arc::new(machine.doubling()), &machine.device);
    let text = |engine: &TensorRtEngine| {
        let spec = engine.spec();
        format!("{}, {}", spec.inputs[0], spec.outputs[0])
    };
    let named = loader()
        .with_dimension_name("x", 0, "rows")
        .with_dimension_name("y", 0, "rows")
        .with_dimension_name("x", 1, "fixed in the plan")
        .with_dimension_name("z", 0, "in no plan")
        .with_remedy(|name, size| format!("--max-{name} {size}"));
    let mut named = named.load(PLAN).expect("it is the plan");
    assert_eq!(text(&named), "x: f32[rows, 4], y: f32[rows, 4]");
    let mut y = rows(&[9.0; 4]);
    run(&mut named, &Tensor::zeros_f32(&[3, 4]), &mut y).expect("it runs");
    assert_eq!(y.shape(), [3, 4]);
    let error = run(&mut named, &Tensor::zeros_f32(&[65, 4]), &mut y).expect_err("64 is the most");
    assert!(
        error.to_string().ends_with("`rows` is 65, the plan was built for 0 to 64; --max-rows 65"),
        "{error}"
    );
    assert_eq!(text(&loader().load(PLAN).expect("it is the plan")), "x: f32[x.0, 4], y: f32[y.0, 4]");
}

#[test]
fn every_type_goes_in_and_comes_out() {
    let machine = Machine::new();
    let mut bools = Tensor::zeros::<bool>(&[3]);
    bools.as_mut_slice::<bool>().expect("bool")[1] = true;
    let tensors = [
        Tensor::f32(&[2], vec![1.5, f32::INFINITY]).expect("fits"),
        Tensor::new(&[2], vec![f16::from_f32(0.5), f16::MAX]).expect("fits"),
        Tensor::i64(&[2], vec![i64::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![i32::MIN, 7]).expect("fits"),
        Tensor::new(&[2], vec![0_u8, 255]).expect("fits"),
        bools,
        Tensor::f32(&[], vec![4.0]).expect("fits"),
    ];
    let mut wrong = Vec::new();
    for tensor in tensors {
        let shape: Vec<_> = tensor.shape().iter().map(|&size| Dim::Fixed(size)).collect();
        let spec = EngineSpec {
            inputs: vec![TensorSpec::new("x", tensor.element_type(), shape.clone())],
            outputs: vec![TensorSpec::new("y", tensor.element_type(), shape)],
        };
        let calls = FakeRunCalls::new(&machine.cuda, PLAN, &spec, &BTreeMap::new(), |inputs, outputs| {
            *outputs[0].1 = inputs[0].1.clone();
            Ok(())
        });
        let network = calls.network();
        let mut engine =
            TensorRtLoader::new(Arc::new(calls), &machine.device).load(PLAN).expect("it is the plan");
        let (mut there, mut y, mut kept) = (machine.on_device(), Tensor::empty(), Tensor::empty());
        for _ in 0..4 {
            engine.run(&[("x", &tensor)], &mut [("y", &mut y)]).expect("it runs");
            engine.run(&[("x", &tensor)], &mut [("y", &mut there)]).expect("it runs");
        }
        there.copy_to_host_into(&mut kept).expect("it is copied");
        if y != tensor || kept != tensor {
            wrong.push(format!("{tensor:?}: came out as {y:?} and {kept:?}"));
        }
        if machine.cuda.calls("cuGraphLaunch") == 0 {
            wrong.push(format!("{tensor:?}: never captured"));
        }
        wrong.extend(network.misuse());
    }
    wrong.extend(machine.cuda.races());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn everything_is_given_back_while_work_is_enqueued() {
    let machine = Machine::new();
    let (mut engine, network) = machine.engine(machine.doubling());
    let sibling = engine.another_context().expect("there is room");
    let (x, mut y) = (machine.tensor(&[1.0; 4]), machine.on_device());
    for _ in 0..5 {
        run(&mut engine, &x, &mut y).expect("it runs");
    }
    let Machine { cuda, device } = machine;
    drop(device);
    drop((x, y));
    drop(engine);
    assert_eq!(network.counts.dropped.load(Ordering::Relaxed), 1, "the context alone");
    drop(sibling);
    assert_eq!(network.counts.dropped.load(Ordering::Relaxed), 3);
    assert_eq!(cuda.live(), Live::default());
    assert_eq!(cuda.races(), Vec::<String>::new());
}
