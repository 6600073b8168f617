//! The tables at the end of a run, and the file of `--stats`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ocelli::pipeline::{FrameOutcome, PipelineStats};
use ocelli::source::FeedState;
use ocelli_datasets::table::{columns, row};
use serde::Serialize;

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
            let class = self.classes.entry(detection.class_id).or_default();
            if class.label.is_empty() {
                class.label = detection.label.to_string();
            }
            class.detections += 1;
            class.frames += u64::from(seen.insert(detection.class_id));
            class.best = class.best.max(detection.score);
        }
        for track in &outcome.tracks {
            let class = self.classes.entry(track.class_id).or_default();
            if class.label.is_empty() {
                class.label =
                    outcome.labels.get(track.class_id).map_or_else(String::new, ToString::to_string);
            }
            let source = outcome.origin.as_ref().map_or(0, |origin| origin.number);
            class.tracks.insert((source, track.id));
        }
    }

    /// Whether nothing was detected.
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
    let mut text = String::new();
    put(&mut text, format_args!("stage        p50 ms   p90 ms   p99 ms     busy  queue before it"));
    for stage in &stats.stages {
        let queue = stage.queue.map_or_else(String::new, |queue| {
            format!("  {:.1} of {} frames, max {}", queue.mean, queue.capacity, queue.max)
        });
        let (name, ms) = (stage.stage.name(), stage.ms);
        put(
            &mut text,
            format_args!(
                "{name:10} {:8.1} {:8.1} {:8.1} {:7.0}%{queue}",
                ms.p50,
                ms.p90,
                ms.p99,
                100.0 * stage.busy
            ),
        );
    }
    let latency = stats.latency_ms;
    put(
        &mut text,
        format_args!("{:10} {:8.1} {:8.1} {:8.1}", "end to end", latency.p50, latency.p90, latency.p99),
    );
    let queued = stats.queued_ms;
    put(
        &mut text,
        format_args!("{:10} {:8.1} {:8.1} {:8.1}", "in queues", queued.p50, queued.p90, queued.p99),
    );
    let frames = |n: u64| if n == 1 { "1 frame".to_owned() } else { format!("{n} frames") };
    put(
        &mut text,
        format_args!(
            "{} in {:.1} s, {:.1} FPS; detected in {}; {} dropped",
            frames(stats.frames_out),
            stats.elapsed_s,
            stats.fps,
            stats.frames_detected,
            stats.frames_dropped
        ),
    );
    text
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}

/// One of several sources.
#[derive(Debug, Serialize)]
pub struct SourceReport {
    name: String,
    frames: u64,
    dropped: u64,
    error: Option<String>,
}

impl From<&FeedState> for SourceReport {
    fn from(state: &FeedState) -> Self {
        let FeedState { name, frames, dropped, error, .. } = state.clone();
        Self { name, frames, dropped, error }
    }
}

/// How one of several sources has done.
pub fn source_line(state: &FeedState) -> String {
    let FeedState { name, frames, dropped, error, .. } = state;
    let failed = error.as_ref().map_or_else(String::new, |error| format!("; failed: {error}"));
    format!("{name}: {frames} frames, {dropped} dropped{failed}")
}

/// What `--stats` writes.
#[derive(Debug, Serialize)]
pub struct RunReport<'a> {
    /// Name of the source.
    pub video: &'a str,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    /// Frames per second of the source.
    pub frame_rate: Option<f64>,
    /// Name of the engine.
    pub engine: &'a str,
    /// Number of classes.
    pub classes: usize,
    /// Several sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceReport>,
    /// Frames without motion, on which the detector did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_without_motion: Option<u64>,
    /// Whether the run was cancelled.
    pub cancelled: bool,
    /// The error that ended the run, if any.
    pub error: Option<String>,
    /// Counts and times.
    #[serde(flatten)]
    pub stats: &'a PipelineStats,
}
