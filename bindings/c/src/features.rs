//! The features of an image, to search it again with other prompts.

use std::time::Duration;

use ocelli::stages::ImageFeatures;

use crate::detector::{self, ocelli_detector};
use crate::frame::{self, ocelli_frame};
use crate::handle::Registry;
use crate::prompts::{self, ocelli_prompts};
use crate::results::{self, ocelli_result};
use crate::status::{done, filled, ocelli_status};
use crate::text::place;

/// The features of an image. The detector that made them may be freed before.
pub struct ocelli_features(());

pub(crate) static FEATURES: Registry<ocelli_features, (ImageFeatures, Duration)> = Registry::new("features");

/// Computes the features of an image: the costly part, which does not depend on the prompts.
///
/// Free them with `ocelli_features_free`.
///
/// Pointers: as those of `ocelli_detector_detect`; `features` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_encode(
    detector: *mut ocelli_detector,
    frame: *const ocelli_frame,
    features: *mut *mut ocelli_features,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(features, "features") }, || {
        // SAFETY: the caller's promise.
        let view = unsafe { frame::view(frame) }?;
        let encoded = detector::with(detector, |detector| detector.encode(view))?;
        Ok(FEATURES.add((encoded, view.timestamp)))
    })
}

/// As `ocelli_detector_detect`, in an image whose features this detector has computed.
///
/// Pointers: `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_detect_features(
    detector: *mut ocelli_detector,
    features: *const ocelli_features,
    prompts: *const ocelli_prompts,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(result, "result") }, || {
        let encoded = FEATURES.find(features)?;
        let (features, time) = &*encoded;
        let prompts = prompts::find(prompts)?;
        let found = detector::with(detector, |detector| detector.detect_features(features, &prompts))?;
        Ok(results::of_detections(found, Vec::new(), prompts.labels().into(), *time, features.size()))
    })
}

/// Frees features; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_features_free(features: *mut ocelli_features) -> ocelli_status {
    done(|| FEATURES.remove(features).map(drop))
}
