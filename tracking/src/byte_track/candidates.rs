//! The detections of a frame by score.

use crate::bounding_box::suppress;
use crate::byte_track::ByteTrackerOptions;
use crate::track::TrackerDetection;

/// The side of the track threshold on which a score is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Score {
    High,
    Low,
}

/// The valid detections as indices, highest score first, without those that are matched.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// By score; equal scores in input order.
    order: Vec<usize>,
    /// The number of high scores in `order`.
    high_count: usize,
    /// Set for a detection, by its index, that is matched.
    taken: Vec<bool>,
}

impl Candidates {
    pub(crate) fn sort(&mut self, detections: &[TrackerDetection], options: &ByteTrackerOptions) {
        self.taken.clear();
        self.taken.resize(detections.len(), false);
        self.order.clear();
        let low = options.low_threshold();
        self.order.extend((0..detections.len()).filter(|&index| {
            let TrackerDetection { bbox, score, .. } = &detections[index];
            score.is_finite() && *score >= low && bbox.is_finite() && bbox.has_area()
        }));
        self.order
            .sort_unstable_by(|&a, &b| detections[b].score.total_cmp(&detections[a].score).then(a.cmp(&b)));
        if let Some(most) = options.nms_iou {
            suppress(&mut self.order, most, |&index| detections[index].bbox);
        }
        self.high_count =
            self.order.partition_point(|&index| detections[index].score >= options.track_threshold);
    }

    /// The unmatched detections of high or of low score.
    pub(crate) fn left(&self, score: Score) -> impl Iterator<Item = usize> {
        let (high, low) = self.order.split_at(self.high_count);
        let half = match score {
            Score::High => high,
            Score::Low => low,
        };
        half.iter().copied().filter(|&index| !self.taken[index])
    }

    pub(crate) fn take(&mut self, index: usize) {
        self.taken[index] = true;
    }
}
