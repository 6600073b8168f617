//! Targets and whether they were reached.

use serde_json::Value;

use super::{Run, line, number, of};

/// Image size and number of classes of the targets.
const IMGSZ: u64 = 1008;
const CLASSES: u64 = 4;
/// Maximum time per frame, pipelined.
const FRAME_MS: f64 = 16.0;
/// Minimum speed relative to the compiled peer.
const TIMES_COMPILED: f64 = 2.0;
/// Minimum share of the throughput of both halves.
const SHARE_OF_HALVES: f64 = 0.95;
/// Maximum bytes copied to the host per frame.
const TO_HOST_BYTES: f64 = 64.0 * 1024.0;

/// The measurement of a target, and whether it was reached.
type Outcome = Option<(String, bool)>;

pub(super) fn write(run: &Run, out: &mut String) {
    let best = best(run);
    let label = best.as_ref().map(|(label, _)| label.as_str());
    let rows: [(&str, Outcome); 4] = [
        (
            "4 classes at 1008 px in at most 16 ms a frame (60 FPS), pipelined",
            best.as_ref().map(|(label, fps)| {
                let ms = 1000.0 / fps;
                (format!("{ms:.1} ms, {fps:.1} FPS ({label})"), ms <= FRAME_MS)
            }),
        ),
        ("at least twice as fast as `torch.compile`, frame by frame", compiled(run)),
        (
            "pipelined at least 0.95 of the throughput of the two halves",
            label.and_then(|label| share(run, label)),
        ),
        ("at most 64 KiB per frame copied to the host", label.and_then(|label| back(run, label))),
    ];
    line(out, "\n## Targets\n\n| target | measured | |\n|---|---|---|");
    for (target, outcome) in rows {
        let (measured, verdict) = match outcome {
            Some((measured, true)) => (measured, "reached"),
            Some((measured, false)) => (measured, "**not reached**"),
            None => ("–".into(), "not measured"),
        };
        line(out, &format!("| {target} | {measured} | {verdict} |"));
    }
}

/// Engines on the GPU.
fn engines(run: &Run) -> impl Iterator<Item = &String> {
    // The targets are those of the released model.
    let is_full = run.plan.model == "full";
    run.plan.engines.iter().filter(move |label| is_full && !label.starts_with("cpu"))
}

/// The fastest engine, pipelined, and its slowest round.
fn best(run: &Run) -> Option<(String, f64)> {
    let slowest = |label: &String| {
        let fps = pipelined(run, label).filter_map(|line| number(&line["fps"]));
        fps.min_by(f64::total_cmp).map(|fps| (label.clone(), fps))
    };
    engines(run).filter_map(slowest).max_by(|one, other| one.1.total_cmp(&other.1))
}

fn pipelined<'r>(run: &'r Run, label: &'r str) -> impl Iterator<Item = &'r Value> {
    of(&run.video, label, IMGSZ, CLASSES).filter(|line| line["mode"] == "pipelined")
}

fn compiled(run: &Run) -> Outcome {
    let slowest = |label: &String| {
        let times =
            of(&run.detect, label, IMGSZ, CLASSES).filter_map(|line| number(&line["total_ms"]["p50"]));
        times.max_by(f64::total_cmp).map(|ms| (label.clone(), ms))
    };
    let (ours, ours_ms) = engines(run).filter_map(slowest).min_by(|one, other| one.1.total_cmp(&other.1))?;
    let fastest = |label: &String| {
        let times = of(&run.peers, label, IMGSZ, CLASSES).filter_map(|line| number(&line["total"]["p50_ms"]));
        times.min_by(f64::total_cmp).map(|ms| (label.clone(), ms))
    };
    let compiled = run.plan.peers.iter().filter(|label| label.starts_with("compile"));
    let (theirs, theirs_ms) = compiled.filter_map(fastest).min_by(|one, other| one.1.total_cmp(&other.1))?;
    let times = theirs_ms / ours_ms;
    let text = format!("{times:.2} times: {ours_ms:.1} ms ({ours}), {theirs_ms:.1} ms ({theirs})");
    Some((text, times >= TIMES_COMPILED))
}

fn share(run: &Run, label: &str) -> Outcome {
    let fps = pipelined(run, label).filter_map(|line| number(&line["fps"])).min_by(f64::total_cmp)?;
    let bound = of(&run.halves, label, IMGSZ, CLASSES).filter_map(|line| number(&line["together_fps"]));
    let bound = bound.max_by(f64::total_cmp)?;
    let share = fps / bound;
    Some((format!("{share:.2}: {fps:.1} of {bound:.1} FPS ({label})"), share >= SHARE_OF_HALVES))
}

fn back(run: &Run, label: &str) -> Outcome {
    let bytes = pipelined(run, label).filter_map(|line| number(&line["to_host_bytes"]));
    let bytes = bytes.max_by(f64::total_cmp)?;
    Some((format!("{:.1} KiB ({label})", bytes / 1024.0), bytes <= TO_HOST_BYTES))
}
