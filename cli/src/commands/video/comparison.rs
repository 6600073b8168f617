//! `--memory --track`: what the memory tracker and ByteTrack make of the same detections.

use std::collections::BTreeMap;

use ocelli::pipeline::FrameOutcome;
use ocelli::tracking::Track;
use ocelli_datasets::table::{columns, row};

/// The least overlap of two boxes of one object.
const LEAST_IOU: f32 = 0.5;

/// Counts of two trackers.
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

    fn mean_frames(&self) -> f64 {
        self.boxes() as f64 / self.frames.len().max(1) as f64
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
        let rows = [
            row("comparison", ["memory", "ByteTrack"]),
            row("tracks", both(|side| side.frames.len().to_string())),
            row("frames a track, mean", both(|side| format!("{:.1}", side.mean_frames()))),
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
