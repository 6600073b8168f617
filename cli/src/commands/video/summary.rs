//! The tables at the end of a run, and the file of `--stats`.

use std::collections::{BTreeMap, BTreeSet};

use ocelli::pipeline::{FrameOutcome, PipelineStats, Quantiles};
use ocelli::source::FeedState;
use ocelli_datasets::table::{columns, row};

use crate::output::count;

/// Detections and tracks of each class.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    classes: BTreeMap<usize, ClassCounts>,
    /// Frames on which the detector did not run because nothing moved.
    pub still_frames: u64,
}

#[derive(Clone, Debug, Default)]
struct ClassCounts {
    label: String,
    frames: u64,
    detections: u64,
    /// By source and id.
    tracks: BTreeSet<(usize, u64)>,
    best: f32,
}

impl Counts {
    /// Adds a frame.
    pub fn add(&mut self, outcome: &FrameOutcome) {
        self.still_frames += u64::from(outcome.still);
        let mut seen = BTreeSet::new();
        for detection in &outcome.detections {
            let class = self.class(detection.class_id, &detection.label);
            class.detections += 1;
            class.frames += u64::from(seen.insert(detection.class_id));
            class.best = class.best.max(detection.score);
        }
        for track in &outcome.tracks {
            let class =
                self.class(track.class_id, outcome.labels.get(track.class_id).map_or("", |label| label));
            let source = outcome.origin.as_ref().map_or(0, |origin| origin.number);
            class.tracks.insert((source, track.id));
        }
    }

    fn class(&mut self, id: usize, label: &str) -> &mut ClassCounts {
        let new = || ClassCounts { label: label.to_owned(), ..ClassCounts::default() };
        self.classes.entry(id).or_insert_with(new)
    }

    /// `true` if nothing was detected.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// A table with a line per detected class.
    pub fn table(&self, tracked: bool) -> String {
        let mut classes: Vec<&ClassCounts> = self.classes.values().collect();
        classes.sort_by(|a, b| b.detections.cmp(&a.detections).then_with(|| a.label.cmp(&b.label)));
        let with_tracks = |tracks: String| tracked.then_some(tracks);
        let cells = |first: [String; 2], tracks: String, best: String| {
            first.into_iter().chain(with_tracks(tracks)).chain([best])
        };
        let heading = cells(["detections", "frames"].map(Into::into), "tracks".into(), "best".into());
        let mut rows = vec![row("label", heading)];
        rows.extend(classes.into_iter().map(|class| {
            let ClassCounts { label, frames, detections, tracks, best } = class;
            let counts = [detections, frames].map(u64::to_string);
            row(label, cells(counts, tracks.len().to_string(), format!("{best:.2}")))
        }));
        columns(&rows, 1)
    }
}

/// The times of each stage.
pub fn stage_table(stats: &PipelineStats) -> String {
    let times = |name: &str, ms: Quantiles| format!("{name:10} {:8.1} {:8.1} {:8.1}", ms.p50, ms.p90, ms.p99);
    let mut lines = vec!["stage        p50 ms   p90 ms   p99 ms     busy  queue before it".to_owned()];
    lines.extend(stats.stages.iter().map(|stage| {
        let queue = stage.queue.map_or_else(String::new, |queue| {
            format!("  {:.1} of {} frames, max {}", queue.mean, queue.capacity, queue.max)
        });
        format!("{} {:7.0}%{queue}", times(&stage.stage.to_string(), stage.ms), 100.0 * stage.busy)
    }));
    lines.push(times("end to end", stats.latency_ms));
    lines.push(times("in queues", stats.queued_ms));
    lines.push(format!(
        "{} in {:.1} s, {:.1} FPS; detected in {}; {} dropped",
        count(stats.frames_out, "frame"),
        stats.elapsed_s,
        stats.fps,
        stats.frames_detected,
        stats.frames_dropped
    ));
    lines.join("\n")
}

/// The line of one of several sources.
pub fn source_line(state: &FeedState) -> String {
    let FeedState { name, frames, dropped, error, .. } = state;
    let failed = error.as_ref().map_or_else(String::new, |error| format!("; failed: {error}"));
    format!("{name}: {frames} frames, {dropped} dropped{failed}")
}
