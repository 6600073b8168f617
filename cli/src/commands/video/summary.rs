//! The tables at the end of a run, and the file of `--stats`.

use std::collections::{BTreeMap, BTreeSet};

use ocelli::pipeline::{FrameOutcome, PipelineStats, Quantiles};
use ocelli::source::FeedState;
use ocelli::tracking::Track;
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

/// How one of several sources has done.
pub fn source_line(state: &FeedState) -> String {
    let FeedState { name, frames, dropped, error, .. } = state;
    let failed = error.as_ref().map_or_else(String::new, |error| format!("; failed: {error}"));
    format!("{name}: {frames} frames, {dropped} dropped{failed}")
}

/// The least overlap of two boxes of one object.
const LEAST_IOU: f32 = 0.5;

/// `--memory --track`: what the memory tracker and ByteTrack make of the same detections.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    memory: Side,
    boxes: Side,
    /// Boxes that both have.
    common: u64,
}

/// One of the trackers.
#[derive(Clone, Debug, Default)]
struct Side {
    /// Frames by id.
    frames: BTreeMap<u64, u64>,
    /// The id that each track of the other tracker had here when it was seen last.
    partners: BTreeMap<u64, u64>,
    /// How often the id of a track of the other tracker changed.
    changes: u64,
}

impl Side {
    fn add(&mut self, tracks: &[Track]) {
        tracks.iter().for_each(|track| *self.frames.entry(track.id).or_default() += 1);
    }

    fn pair(&mut self, own: u64, other: u64) {
        let last = self.partners.insert(other, own);
        self.changes += u64::from(last.is_some_and(|last| last != own));
    }

    fn boxes(&self) -> u64 {
        self.frames.values().sum()
    }
}

impl Comparison {
    /// Adds a frame.
    pub fn add(&mut self, outcome: &FrameOutcome) {
        self.memory.add(&outcome.tracks);
        self.boxes.add(&outcome.compared);
        let mut pairs: Vec<(f32, u64, u64)> = Vec::new();
        for track in &outcome.tracks {
            let same_class = outcome.compared.iter().filter(|other| other.class_id == track.class_id);
            pairs.extend(same_class.map(|other| (track.bbox.iou(&other.bbox), track.id, other.id)));
        }
        pairs.retain(|(iou, ..)| *iou >= LEAST_IOU);
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut seen, mut seen_boxes) = (Vec::new(), Vec::new());
        for (_, id, other) in pairs {
            if seen.contains(&id) || seen_boxes.contains(&other) {
                continue;
            }
            seen.push(id);
            seen_boxes.push(other);
            self.common += 1;
            self.memory.pair(id, other);
            self.boxes.pair(other, id);
        }
    }

    /// A line for each count, a column for each tracker.
    pub fn table(&self) -> String {
        let both = |of: fn(&Side) -> String| [of(&self.memory), of(&self.boxes)];
        let mean_frames =
            |side: &Side| format!("{:.1}", side.boxes() as f64 / side.frames.len().max(1) as f64);
        let rows = [
            row("comparison", ["memory", "ByteTrack"]),
            row("tracks", both(|side| side.frames.len().to_string())),
            row("frames a track, mean", both(mean_frames)),
            row("boxes", both(|side| side.boxes().to_string())),
            row("boxes of both, IoU 0.5", [self.common, self.common].map(|count| count.to_string())),
            // A track of one tracker whose box goes to another id of the other tracker.
            row("changes of identity", both(|side| side.changes.to_string())),
        ];
        columns(&rows, 1)
    }
}

#[cfg(test)]
mod tests {
    use ocelli::tracking::{BoundingBox, TrackState};

    use super::*;

    fn tracks(boxes: &[(u64, usize, f32)]) -> Vec<Track> {
        let track = |&(id, class_id, left): &(u64, usize, f32)| Track {
            id,
            class_id,
            score: 0.5,
            bbox: BoundingBox::new(left, 0.0, left + 10.0, 10.0),
            age_frames: 1.0,
            hits: 1,
            state: TrackState::Tracked,
            velocity: [0.0; 2],
            frames_since_seen: 0.0,
            detection: None,
        };
        boxes.iter().map(track).collect()
    }

    #[test]
    fn changes_of_identity_are_counted_for_each_tracker() {
        let mut comparison = Comparison::default();
        let frames: [(&[(u64, usize, f32)], &[(u64, usize, f32)]); 5] = [
            (&[(1, 0, 0.0), (2, 1, 50.0)], &[(1, 0, 1.0), (2, 1, 50.0)]),
            // Another class, and too far.
            (&[(1, 0, 0.0), (2, 1, 50.0)], &[(3, 0, 50.0), (1, 0, 6.0)]),
            // Object 1 goes on as another track, and the track of object 2 as another object.
            (&[(1, 0, 0.0), (5, 1, 50.0)], &[(4, 0, 0.0), (2, 1, 50.0)]),
            (&[(1, 0, 0.0)], &[(4, 0, 0.0)]),
            (&[(1, 0, 0.0)], &[(4, 0, 0.0)]),
        ];
        for (memory, boxes) in frames {
            let mut outcome = FrameOutcome::default();
            (outcome.tracks, outcome.compared) = (tracks(memory), tracks(boxes));
            comparison.add(&outcome);
        }
        let table = comparison.table();
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().rev().take(2).collect()).collect();
        assert_eq!(
            rows,
            [["ByteTrack", "memory"], ["4", "3"], ["2.0", "2.7"], ["8", "8"], ["6", "6"], ["1", "1"]],
            "{table}"
        );
    }
}
