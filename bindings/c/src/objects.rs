//! Objects that are shown by clicks, boxes and masks.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use ocelli::{BoundingBox, Detections, Detector, Mask, ObjectPrompt, Result};

use crate::detector::{self, ocelli_detector};
use crate::features::{FEATURES, ocelli_features};
use crate::handle::Registry;
use crate::results::{self, ocelli_result};
use crate::status::{done, filled, invalid, ocelli_status};
use crate::text::{optional_text, place, values};

/// Objects in an image that are shown by clicks, boxes and masks, not named. An object is known by its number, from 0.
pub struct ocelli_objects(());

static OBJECTS: Registry<ocelli_objects, Mutex<Vec<ObjectPrompt>>> = Registry::new("objects");

/// Creates an empty list of objects. Free it with `ocelli_objects_free`.
///
/// Pointers: `objects` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_objects_create(objects: *mut *mut ocelli_objects) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(objects, "objects") }, || Ok(OBJECTS.add(Mutex::default())))
}

/// Adds an object, which the functions below describe: it needs a point on it, a box or a mask. `label` is its name in results;
/// null for "object".
///
/// Pointers: `label` is a string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_objects_add(
    objects: *mut ocelli_objects,
    label: *const c_char,
) -> ocelli_status {
    done(|| {
        // SAFETY: the caller passes a string or null.
        let label = unsafe { optional_text(label, "label") }?.unwrap_or("object");
        OBJECTS.with(objects, |objects| {
            objects.push(ObjectPrompt::new(label));
            Ok(())
        })
    })
}

/// Adds a click to an object, in pixels of the image. `positive` is 1 for a point on the object, 0 for one that is not.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_objects_add_point(
    objects: *mut ocelli_objects,
    object: usize,
    x: f32,
    y: f32,
    positive: c_int,
) -> ocelli_status {
    done(|| change(objects, object, |prompt| prompt.with_point(x, y, positive != 0)))
}

/// Sets the box around an object, in pixels of the image.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_objects_set_box(
    objects: *mut ocelli_objects,
    object: usize,
    x1: f32,
    y1: f32,
    x2: f32,
    y2: f32,
) -> ocelli_status {
    done(|| change(objects, object, |prompt| prompt.with_box(BoundingBox::new(x1, y1, x2, y2))))
}

/// Sets a rough mask of an object: a byte for each pixel of the image, row by row, 0 outside.
///
/// Pointers: `pixels` points to `width` times `height` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_objects_set_mask(
    objects: *mut ocelli_objects,
    object: usize,
    pixels: *const u8,
    width: u32,
    height: u32,
) -> ocelli_status {
    done(|| {
        let count = width as usize * height as usize;
        // SAFETY: the caller passes as many bytes.
        let pixels = unsafe { values(pixels, count, "pixels") }?;
        let mask = Mask::from_bitmap(pixels, width, height)?;
        change(objects, object, |prompt| prompt.with_mask(mask))
    })
}

/// Refines the answer of `ocelli_detector_segment` that is detection `index` of `result`: the clicks of the object are the
/// earlier ones and new ones.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_objects_refine(
    objects: *mut ocelli_objects,
    object: usize,
    result: *const ocelli_result,
    index: usize,
) -> ocelli_status {
    done(|| {
        let logits = results::logits(result, index)?;
        change(objects, object, |prompt| prompt.with_logits(logits))
    })
}

fn change(
    objects: *const ocelli_objects,
    object: usize,
    change: impl FnOnce(ObjectPrompt) -> ObjectPrompt,
) -> Result<()> {
    OBJECTS.with(objects, |objects| {
        let count = objects.len();
        let prompt = objects
            .get_mut(object)
            .ok_or_else(|| invalid(format!("object is {object}: there are {count} objects")))?;
        *prompt = change(prompt.clone());
        Ok(())
    })
}

/// Finds the masks of objects in an image whose features this detector has computed.
///
/// The model needs a tracker, as Meta's sam3.pt and facebook/sam3 have; set `masks` in the options if the detector exports a
/// checkpoint. The result has a detection for each object, in order: `class_id` is the object's number, `score` how well the
/// mask is expected to fit. Objects whose mask has no pixels are left out. With `multimask` 1, it has three for each object.
///
/// Pointers: `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_segment(
    detector: *mut ocelli_detector,
    features: *const ocelli_features,
    objects: *const ocelli_objects,
    multimask: c_int,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(result, "result") }, || {
        let encoded = FEATURES.find(features)?;
        let (features, time) = &*encoded;
        let objects = OBJECTS.with(objects, |objects| Ok(objects.clone()))?;
        let segment = |detector: &mut Detector| detector.segment_each(features, &objects, multimask != 0);
        let found = detector::with(detector, segment)?;
        let (mut items, mut logits) = (Vec::new(), Vec::new());
        for (index, (object, masks)) in objects.iter().zip(found).enumerate() {
            for mask in masks {
                let Some(item) = mask.to_detection(index, object.label().clone()) else { continue };
                items.push(item);
                logits.push(mask.logits);
            }
        }
        let found = Detections { items, ..Detections::default() };
        let labels: Arc<[Arc<str>]> = objects.iter().map(|object| object.label().clone()).collect();
        Ok(results::of_detections(found, logits, labels, *time, features.size()))
    })
}

/// Frees objects; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_objects_free(objects: *mut ocelli_objects) -> ocelli_status {
    done(|| OBJECTS.remove(objects).map(drop))
}
