//! Objects followed through a video: ten-frame sessions on small random models, against the modules of `transformers` and an
//! independent model of the life cycle. `tests/golden/parity/make_sessions.py` makes the goldens.

mod buckets;
mod refusals;
mod replay;
mod runs;
mod sessions;

use ocelli::export::ExportOptions;
use ocelli::export::contract::Target;

use crate::parity::each_case;
use crate::parity::exported::Runner;
use crate::parity::golden::Golden;
use crate::parity::report::Report;
use replay::{Loop, Replay};

pub const NAMES: [&str; 2] = ["tracker", "tracker_odd"];

fn replay_all(report: &mut Report, mode: Loop) {
    for golden in NAMES.map(Golden::of_session) {
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| Replay::new(&golden, runner, &options)?.run(report, mode));
        }
    }
}

/// Every step starts from the reference's memories and pointers.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_step_of_a_session() {
    let mut report = Report::default();
    replay_all(&mut report, Loop::Open);
    report.finish("every step of a session");
}

/// Objects on two devices are those of the reference.
#[test]
fn sessions_on_two_devices() {
    let mut report = Report::default();
    for golden in NAMES.map(Golden::of_session) {
        report.check(golden.name, |report| replay::embedded(&golden)?.run_on(2, report, Loop::Closed));
    }
    report.finish("sessions on two devices");
}

/// Every step starts from what the steps before it left.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn whole_sessions() {
    let mut report = Report::with_tolerance(1e-3);
    replay_all(&mut report, Loop::Closed);
    report.finish("whole sessions");
}

/// On a device the memories stay there: `memory_encoder` writes them, and what tracking copies back are masks, scores, IoU and
/// pointers. The limit is the error of sine and cosine that WebGPU allows.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn webgpu_keeps_memories_on_the_device() {
    let mut report = Report::with_tolerance(1e-3);
    let golden = Golden::of_session("tracker");
    let options = ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
    report.check("tracker on webgpu".to_owned(), |report| {
        let replay = Replay::new(&golden, Runner::WebGpu, &options)?;
        report.expect("the memories are on the device", replay.keeps_memories_on_a_device()?);
        replay.run(report, Loop::Closed)
    });
    report.finish("memories on WebGPU");
}

/// The goldens have what the tests above need to mean something.
#[test]
fn sessions_exercise_the_tracker() {
    for golden in NAMES.map(Golden::of_session) {
        let scores: Vec<f32> = golden
            .with_prefix("")
            .filter(|(name, _)| name.ends_with(".object_score"))
            .map(|(_, score)| crate::parity::golden::f32s(score)[0])
            .collect();
        let (present, absent) =
            (scores.iter().filter(|s| **s > 0.0).count(), scores.iter().filter(|s| **s < 0.0).count());
        assert!(present >= 5 && absent >= 5, "{}: {present} present, {absent} absent", golden.name);
        let steps = golden.value("steps").as_array().expect("the script writes steps");
        let lists = |key: &str| {
            steps.iter().flat_map(|step| step[key].as_array().expect("a list")).collect::<Vec<_>>()
        };
        assert_eq!((steps.len(), lists("born").len()), (11, 4), "{}", golden.name);
        let most = |place: usize| lists("batches").iter().filter_map(|batch| batch[place].as_u64()).max();
        assert!(most(0) == Some(2) && most(1) == Some(7) && most(2) >= Some(7), "{}", golden.name);
    }
}
