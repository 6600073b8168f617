//! `ocelli.Tracker`.

use std::sync::{Mutex, PoisonError};

use ocelli::BoundingBox;
use ocelli::tracking::{ByteTracker, TrackerDetection};
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};
use crate::options::form;
use crate::results::to_json;

/// A tracker.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct Tracker(Mutex<ByteTracker>);

#[pymethods]
impl Tracker {
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        let tracker = ByteTracker::new(form(py, options)?).or_raise(py)?;
        Ok(Self(Mutex::new(tracker)))
    }

    /// The tracks after a frame, those that are reported, as JSON.
    fn update(
        &self,
        py: Python<'_>,
        class_id: Vec<usize>,
        confidence: Vec<f32>,
        xyxy: Vec<[f32; 4]>,
        frames: f32,
    ) -> PyResult<String> {
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
        let tracks = py.detach(|| {
            let mut tracker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            tracker.update(&detections, frames).to_vec()
        });
        to_json(py, &tracks)
    }

    /// Forgets all tracks; ids start at 1 again.
    fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reset();
    }
}
