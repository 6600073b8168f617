//! Detections and tracks between Rust and Python's arrays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use ocelli::report::{DetectionRecord, FrameReport};
use ocelli::tracking::{Track, TrackState};
use ocelli::{BoundingBox, Detection, Mask, StageTimes, pipeline::FrameOutcome, source::Origin};
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};

/// Boxes [n, xyxy], scores [n], class ids [n], labels, masks (COCO's counts, width and height), and milliseconds by stage.
pub(crate) type FoundArrays<'py> = (
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i64>>,
    Vec<String>,
    Option<Vec<(String, u32, u32)>>,
    BTreeMap<&'static str, f64>,
);

/// Id, class, score, box, age in frames, hits, state, velocity, frames since it was seen, index of its detection.
pub(crate) type TrackParts =
    (u64, usize, f32, [f32; 4], f32, u32, &'static str, [f32; 2], f32, Option<usize>);

/// The detections of one image as arrays.
pub(crate) fn found_arrays<'py>(
    py: Python<'py>,
    items: &[Detection],
    times: &StageTimes,
) -> PyResult<FoundArrays<'py>> {
    let boxes: Vec<f32> = items.iter().flat_map(|item| item.bbox.to_xyxy()).collect();
    let scores: Vec<f32> = items.iter().map(|item| item.score).collect();
    let classes: Vec<i64> = items.iter().map(|item| item.class_id as i64).collect();
    let labels = items.iter().map(|item| item.label.to_string()).collect();
    let counts = |mask: &Mask| (mask.counts().to_owned(), mask.width(), mask.height());
    let masks: Vec<_> = items.iter().filter_map(|item| item.mask.as_ref().map(counts)).collect();
    let masks = Some(masks).filter(|masks| !masks.is_empty());
    let times = times.by_stage().into();
    let boxes = boxes.into_pyarray(py).reshape([items.len(), 4])?;
    Ok((boxes, scores.into_pyarray(py), classes.into_pyarray(py), labels, masks, times))
}

/// A track as plain values.
pub(crate) fn track_parts(track: &Track) -> TrackParts {
    let state = match track.state {
        TrackState::Tentative => "tentative",
        TrackState::Lost => "lost",
        _ => "tracked",
    };
    (
        track.id,
        track.class_id,
        track.score,
        track.bbox.to_xyxy(),
        track.age_frames,
        track.hits,
        state,
        track.velocity,
        track.frames_since_seen,
        track.detection,
    )
}

/// The detections of a result, as Python passes them back.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Rows {
    class_id: Vec<usize>,
    class_name: Vec<String>,
    confidence: Vec<f32>,
    xyxy: Vec<[f32; 4]>,
    masks: Option<Vec<(String, u32, u32)>>,
}

impl Rows {
    /// The detections.
    ///
    /// # Errors
    /// `InvalidArgument` for lists of different lengths, `InvalidData` for a corrupt mask.
    pub(crate) fn detections(self, py: Python<'_>) -> PyResult<Vec<Detection>> {
        let n = self.xyxy.len();
        let lengths = [self.class_id.len(), self.class_name.len(), self.confidence.len()];
        if lengths != [n; 3] || self.masks.as_ref().is_some_and(|masks| masks.len() != n) {
            return Err(invalid(py, "detections have arrays of different lengths"));
        }
        let mut masks = self.masks.map(Vec::into_iter);
        let rows = self.class_id.into_iter().zip(self.class_name).zip(self.confidence).zip(self.xyxy);
        rows.map(|(((class_id, label), score), xyxy)| {
            let mask = masks.as_mut().and_then(Iterator::next);
            let mask = mask.map(|(counts, width, height)| Mask::from_counts(counts, width, height));
            let mask = mask.transpose().or_raise(py)?;
            Ok(Detection { class_id, label: label.into(), score, bbox: BoundingBox::from(xyxy), mask })
        })
        .collect()
    }
}

/// A track as Python passes it back: id, class, score, box, state, index of its detection.
pub(crate) type TrackRow = (u64, usize, f32, [f32; 4], String, Option<usize>);

/// The track of a row; what reports and pictures do not show is left at zero.
pub(crate) fn track((id, class_id, score, xyxy, state, detection): TrackRow) -> Track {
    let state = match state.as_str() {
        "lost" => TrackState::Lost,
        "tentative" => TrackState::Tentative,
        _ => TrackState::Tracked,
    };
    Track {
        id,
        class_id,
        score,
        bbox: BoundingBox::from(xyxy),
        age_frames: 0.0,
        hits: 1,
        state,
        velocity: [0.0; 2],
        frames_since_seen: 0.0,
        detection,
    }
}

/// The detections in the JSON form of the programs.
#[pyfunction]
pub(crate) fn detections_json(py: Python<'_>, rows: Rows) -> PyResult<String> {
    let detections = rows.detections(py)?;
    let records: Vec<DetectionRecord> = detections.iter().map(Into::into).collect();
    to_json(py, &records)
}

/// The origin of a frame, as Python passes it: the name of its source, its picture file, and when it was taken, in seconds
/// since 1970-01-01 00:00 UTC.
pub(crate) type OriginRow = (Option<String>, Option<PathBuf>, Option<f64>);

/// A frame of a video in the JSON form of the programs.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "Python passes the fields of a frame")]
pub(crate) fn frame_json(
    py: Python<'_>,
    index: u64,
    time_s: f64,
    size: (u32, u32),
    detected: bool,
    rows: Rows,
    tracks: Vec<TrackRow>,
    labels: Vec<String>,
    origin: OriginRow,
    retracted: Vec<u64>,
) -> PyResult<String> {
    let (source, file, wall_time) = origin;
    let seconds = |name: &str, number: f64| {
        Duration::try_from_secs_f64(number)
            .map_err(|_| invalid(py, &format!("{name} is {number}: expected seconds of at least 0")))
    };
    let time = seconds("time", time_s)?;
    let since = wall_time.map(|wall_time| seconds("wall_time", wall_time)).transpose()?;
    let mut outcome = FrameOutcome::default();
    (outcome.index, outcome.time, outcome.size, outcome.detected) = (index, time, size, detected);
    outcome.detections = rows.detections(py)?;
    outcome.tracks = tracks.into_iter().map(track).collect();
    outcome.labels = labels.into_iter().map(Into::into).collect();
    outcome.retracted = retracted;
    outcome.origin = source.map(|name| Origin { number: 0, name: name.into(), frame_rate: None });
    outcome.file = file.map(Into::into);
    outcome.captured = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    to_json(py, &FrameReport::from(&outcome))
}

fn to_json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|failure| invalid(py, &format!("detections have no JSON form: {failure}")))
}

/// The pixels of a mask, [height, width]: 1 inside.
#[pyfunction]
pub(crate) fn mask_to_array<'py>(
    py: Python<'py>,
    counts: String,
    width: u32,
    height: u32,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let bitmap =
        py.detach(|| Mask::from_counts(counts, width, height).map(|mask| mask.to_bitmap())).or_raise(py)?;
    bitmap.into_pyarray(py).reshape([height as usize, width as usize])
}

/// COCO's counts of a bitmap, [height, width]; a pixel is inside unless it is 0.
#[pyfunction]
pub(crate) fn mask_from_array(
    py: Python<'_>,
    bitmap: PyReadonlyArray2<'_, u8>,
) -> PyResult<(String, u32, u32)> {
    let (height, width) = (bitmap.shape()[0], bitmap.shape()[1]);
    let too_large = || invalid(py, "mask is larger than 4294967295 pixels to a side");
    let width = u32::try_from(width).map_err(|_| too_large())?;
    let height = u32::try_from(height).map_err(|_| too_large())?;
    let pixels: Vec<u8> = bitmap.as_array().iter().copied().collect();
    let mask = py.detach(|| Mask::from_bitmap(&pixels, width, height)).or_raise(py)?;
    Ok((mask.counts().to_owned(), width, height))
}

/// The number of pixels in a mask.
#[pyfunction]
pub(crate) fn mask_area(py: Python<'_>, counts: String, width: u32, height: u32) -> PyResult<u64> {
    Ok(Mask::from_counts(counts, width, height).or_raise(py)?.area())
}
