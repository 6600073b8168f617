//! Detectors.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

use ocelli::{Detector, Result};

use crate::frame::{self, ocelli_frame};
use crate::handle::Registry;
use crate::options::{builder, ocelli_detector_options};
use crate::prompts::{self, ocelli_prompts};
use crate::results::{self, ocelli_result};
use crate::status::{done, filled, ocelli_status, value};
use crate::text::{c_string, place};

/// A detector. Calls from several threads are done one after the other.
pub struct ocelli_detector(());

static DETECTORS: Registry<ocelli_detector, OpenDetector> = Registry::new("detector");

struct OpenDetector {
    detector: Mutex<Detector>,
    engine: CString,
    model: CString,
}

/// Creates a detector: opens the model, which exports a checkpoint once, and loads the engine's library.
///
/// `options` may be null for the defaults. Free the detector with `ocelli_detector_free`.
///
/// Pointers: `options` is null or points to a struct whose size is set; `detector` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_create(
    options: *const ocelli_detector_options,
    detector: *mut *mut ocelli_detector,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(detector, "detector") }, || {
        // SAFETY: the caller's promise.
        let built = unsafe { builder(options) }?.build()?;
        let engine = c_string(built.engine());
        let model = c_string(&built.model().folder().to_string_lossy());
        Ok(DETECTORS.add(OpenDetector { detector: Mutex::new(built), engine, model }))
    })
}

/// Detects in an image.
///
/// The highest score comes first, in pixels of the image. Free the result with `ocelli_result_free`.
///
/// Pointers: `frame` points to a struct whose size is set and whose `data` has `data_size` bytes that nobody writes to meanwhile;
/// `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_detect(
    detector: *mut ocelli_detector,
    frame: *const ocelli_frame,
    prompts: *const ocelli_prompts,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(result, "result") }, || {
        let prompts = prompts::find(prompts)?;
        // SAFETY: the caller's promise.
        let view = unsafe { frame::view(frame) }?;
        let found = with(detector, |detector| detector.detect(view, &prompts))?;
        let size = (view.width, view.height);
        Ok(results::of_detections(found, Vec::new(), prompts.labels().into(), view.timestamp, size))
    })
}

/// Loads the engines and encodes the names, so that the first image does not wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_detector_prepare(
    detector: *mut ocelli_detector,
    prompts: *const ocelli_prompts,
) -> ocelli_status {
    done(|| {
        let prompts = prompts::find(prompts)?;
        with(detector, |detector| detector.prepare(&prompts).map(drop))
    })
}

/// Changes the score above which detections are kept, 0 to 1.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_detector_set_confidence(
    detector: *mut ocelli_detector,
    confidence: f32,
) -> ocelli_status {
    done(|| with(detector, |detector| detector.set_confidence(confidence)))
}

/// A description of the engine, valid until the detector is freed; null after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_detector_engine(detector: *const ocelli_detector) -> *const c_char {
    value(std::ptr::null(), || DETECTORS.find(detector).map(|open| open.engine.as_ptr()))
}

/// The folder of the exported model, valid until the detector is freed; null after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_detector_model(detector: *const ocelli_detector) -> *const c_char {
    value(std::ptr::null(), || DETECTORS.find(detector).map(|open| open.model.as_ptr()))
}

/// Frees a detector; does nothing with a null pointer. A detection that runs on another thread is finished.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_detector_free(detector: *mut ocelli_detector) -> ocelli_status {
    done(|| DETECTORS.remove(detector).map(drop))
}

/// Works with an open detector, one caller at a time.
pub(crate) fn with<T>(
    detector: *const ocelli_detector,
    work: impl FnOnce(&mut Detector) -> Result<T>,
) -> Result<T> {
    let open = DETECTORS.find(detector)?;
    work(&mut open.detector.lock().unwrap_or_else(PoisonError::into_inner))
}
