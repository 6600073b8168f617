//! `ocelli.Tracker`, and the tracker of `ocelli.Video`.

use std::sync::{Mutex, PoisonError};

use ocelli::BoundingBox;
use ocelli::tracking::{ByteTracker, ByteTrackerOptions, TrackerDetection};
use pyo3::prelude::*;

use crate::error::{OrRaise, exception, invalid};
use crate::results::{TrackParts, track_parts};

/// The keyword arguments of `ocelli.Tracker`; those that are not given have the tracker's defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TrackerOptions {
    track_threshold: Option<f32>,
    low_threshold: Option<f32>,
    new_track_threshold: Option<f32>,
    match_iou: Option<f32>,
    low_match_iou: Option<f32>,
    lost_match_iou: Option<f32>,
    min_hits: Option<u32>,
    sure_threshold: Option<f32>,
    max_time_lost: Option<u32>,
    coast_frames: Option<u32>,
    match_classes: String,
}

impl TrackerOptions {
    /// The options of a tracker.
    ///
    /// # Errors
    /// `InvalidArgument` for a number out of its range.
    pub(crate) fn options(&self, py: Python<'_>) -> PyResult<ByteTrackerOptions> {
        let mut options = ByteTrackerOptions::default();
        options.track_threshold = self.track_threshold.unwrap_or(options.track_threshold);
        options.low_threshold = self.low_threshold;
        options.new_track_threshold = self.new_track_threshold;
        options.match_iou = self.match_iou.unwrap_or(options.match_iou);
        options.low_match_iou = self.low_match_iou.unwrap_or(options.low_match_iou);
        options.lost_match_iou = self.lost_match_iou.unwrap_or(options.lost_match_iou);
        options.min_hits = self.min_hits;
        options.sure_threshold = self.sure_threshold;
        options.max_time_lost = self.max_time_lost.unwrap_or(options.max_time_lost);
        options.coast_frames = self.coast_frames.unwrap_or(options.coast_frames);
        options.match_classes = self.match_classes.parse().or_raise(py)?;
        options.validate().map_err(|error| exception(py, &error))?;
        Ok(options)
    }
}

/// A tracker.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct Tracker(Mutex<ByteTracker>);

#[pymethods]
impl Tracker {
    #[new]
    fn new(py: Python<'_>, options: TrackerOptions) -> PyResult<Self> {
        let tracker = ByteTracker::new(options.options(py)?).or_raise(py)?;
        Ok(Self(Mutex::new(tracker)))
    }

    /// The tracks after a frame: those that are reported.
    fn update(
        &self,
        py: Python<'_>,
        class_id: Vec<usize>,
        confidence: Vec<f32>,
        xyxy: Vec<[f32; 4]>,
        frames: f32,
    ) -> PyResult<Vec<TrackParts>> {
        if class_id.len() != xyxy.len() || confidence.len() != xyxy.len() {
            return Err(invalid(py, "detections have arrays of different lengths"));
        }
        let rows = class_id.into_iter().zip(confidence).zip(xyxy);
        let detections: Vec<TrackerDetection> = rows
            .map(|((class_id, score), xyxy)| TrackerDetection {
                bbox: BoundingBox::from(xyxy),
                score,
                class_id,
            })
            .collect();
        Ok(py.detach(|| {
            let mut tracker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            tracker.update(&detections, frames).iter().map(track_parts).collect()
        }))
    }

    /// Forgets all tracks; ids start at 1 again.
    fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reset();
    }
}
