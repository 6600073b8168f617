//! Objects that are shown by clicks, boxes and masks, and their masks.

use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use ocelli::tracking::masklets::LogitMask;
use ocelli::{BoundingBox, Mask, ObjectMask, ObjectPrompt};
use pyo3::prelude::*;

use crate::error::OrRaise;

/// A label, points (x, y, whether they are on the object), a box, and the mask's counts, width and height, or its logits.
pub(crate) type ObjectParts<'py> = (
    String,
    Vec<(f32, f32, bool)>,
    Option<[f32; 4]>,
    Option<(String, u32, u32)>,
    Option<PyReadonlyArray2<'py, f32>>,
);

/// Counts, width and height of the mask, predicted IoU, object score, logits.
pub(crate) type MaskParts<'py> = ((String, u32, u32), f32, f32, Bound<'py, PyArray2<f32>>);

/// The objects in order.
///
/// # Errors
/// `InvalidData` for a corrupt mask.
pub(crate) fn objects(py: Python<'_>, parts: Vec<ObjectParts<'_>>) -> PyResult<Vec<ObjectPrompt>> {
    let object = |(label, points, bbox, mask, logits): ObjectParts<'_>| {
        let mut object = ObjectPrompt::new(label);
        for (x, y, positive) in points {
            object = object.with_point(x, y, positive);
        }
        if let Some(edges) = bbox {
            object = object.with_box(BoundingBox::from(edges));
        }
        if let Some((counts, width, height)) = mask {
            object = object.with_mask(Mask::from_counts(counts, width, height)?);
        }
        if let Some(logits) = logits {
            let values = logits.as_array().iter().copied().collect();
            object = object.with_logits(LogitMask::new(logits.shape()[1], logits.shape()[0], values)?);
        }
        Ok(object)
    };
    parts.into_iter().map(object).collect::<ocelli::Result<_>>().or_raise(py)
}

/// The mask of an object.
pub(crate) fn mask_parts<'py>(py: Python<'py>, found: &ObjectMask) -> PyResult<MaskParts<'py>> {
    let mask = (found.mask.counts().to_owned(), found.mask.width(), found.mask.height());
    let sides = [found.logits.height(), found.logits.width()];
    let logits = found.logits.values().to_vec().into_pyarray(py).reshape(sides)?;
    Ok((mask, found.predicted_iou, found.object_score, logits))
}
