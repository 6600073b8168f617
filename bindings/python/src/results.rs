//! Detections and tracks between Rust and Python's arrays.

use std::collections::BTreeMap;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use ocelli::report::FrameReport;
use ocelli::{Detection, Mask, StageTimes};
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};
use crate::options::form;

/// Boxes [n, xyxy], scores [n], class ids [n], labels, masks (COCO's counts, width and height), and milliseconds by stage.
pub(crate) type FoundArrays<'py> = (
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i64>>,
    Vec<String>,
    Option<Vec<(String, u32, u32)>>,
    BTreeMap<&'static str, f64>,
);

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

/// The detections in the JSON form of the programs, from the same with all digits.
#[pyfunction]
pub(crate) fn detections_json(py: Python<'_>, records: &str) -> PyResult<String> {
    to_json(py, &form::<Vec<Detection>>(py, records)?)
}

/// A frame of a video in the JSON form of the programs, from the same with all digits.
#[pyfunction]
pub(crate) fn frame_json(py: Python<'_>, report: &str) -> PyResult<String> {
    to_json(py, &form::<FrameReport>(py, report)?)
}

/// Results as JSON.
///
/// # Errors
/// `InvalidArgument` for what has no JSON form.
pub(crate) fn to_json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|failure| invalid(py, &format!("there is no JSON form: {failure}")))
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
