//! Results of an image or a frame: detections, masks, tracks.

use std::ffi::{CString, c_char};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ocelli::masklets::TrackedFrame;
use ocelli::report::FrameReport;
use ocelli::tracking::masklets::LogitMask;
use ocelli::tracking::{Track, TrackState};
use ocelli::{Detection, Detections, Error, ErrorKind, Mask, Result, pipeline::FrameOutcome, refuse};

use crate::handle::Registry;
use crate::sized;
use crate::status::{done, invalid, ocelli_status, value};
use crate::text::{c_string, check_place};

/// What was found in an image. Strings that it returns are valid until it is freed.
pub struct ocelli_result(());

static RESULTS: Registry<ocelli_result, StoredResult> = Registry::new("result");

/// A result, and its strings as C has them.
struct StoredResult {
    outcome: FrameOutcome,
    /// By class.
    labels: Vec<CString>,
    /// The runs of each detection's mask.
    counts: Vec<Option<CString>>,
    /// The logits that refine each detection's mask, if it is an answer to clicks.
    logits: Vec<LogitMask>,
    json: OnceLock<CString>,
}

/// An image or a frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_result_info {
    /// sizeof(ocelli_result_info).
    pub struct_size: usize,
    /// The frame's number in its pipeline, from 0.
    pub index: u64,
    /// The frame's own time stamp.
    pub timestamp_ns: u64,
    /// Milliseconds spent on the names; near zero when they are known.
    pub text_ms: f64,
    /// Milliseconds from pixels to the model's input.
    pub preprocess_ms: f64,
    /// Milliseconds in the image backbone.
    pub backbone_ms: f64,
    /// Milliseconds in the encoder-decoder, over all classes.
    pub decode_ms: f64,
    /// Milliseconds for the masks.
    pub masks_ms: f64,
    /// Milliseconds from start to finish, including time spent waiting between stages.
    pub total_ms: f64,
    /// Width of the image in pixels.
    pub width: u32,
    /// Height of the image in pixels.
    pub height: u32,
    /// 1 if the detector ran on this frame.
    pub detected: u32,
    /// Zero.
    pub reserved: u32,
}

/// An instance of a class in an image.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_detection {
    /// sizeof(ocelli_detection).
    pub struct_size: usize,
    /// The name of the class.
    pub label: *const c_char,
    /// The pixels of the instance in COCO's compressed run-length encoding; null without masks.
    pub mask_counts: *const c_char,
    /// The number of the class in the prompts, from 0.
    pub class_id: usize,
    /// Left edge in pixels of the image.
    pub x1: f32,
    /// Top edge.
    pub y1: f32,
    /// Right edge.
    pub x2: f32,
    /// Bottom edge.
    pub y2: f32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Width of the mask in pixels, which is that of the image; 0 without one.
    pub mask_width: u32,
    /// Height of the mask in pixels.
    pub mask_height: u32,
    /// Zero.
    pub reserved: u32,
}

/// The state of a track.
#[repr(C)]
pub enum ocelli_track_state {
    /// Detected in this frame.
    OCELLI_TRACKED = 0,
    /// Not detected in this frame: its box is predicted.
    OCELLI_LOST = 1,
    /// Not confirmed yet.
    OCELLI_TENTATIVE = 2,
}

/// An object over time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_track {
    /// sizeof(ocelli_track).
    pub struct_size: usize,
    /// The name of the class; empty if the tracker does not know it.
    pub label: *const c_char,
    /// The number of the class, by majority of its detections.
    pub class_id: usize,
    /// The number of its detection in this frame; SIZE_MAX if it was not detected.
    pub detection: usize,
    /// The number of the track, from 1, the same in all frames; of an object of a session its number, from 0.
    pub id: u64,
    /// Left edge in pixels; the box may extend beyond the image.
    pub x1: f32,
    /// Top edge.
    pub y1: f32,
    /// Right edge.
    pub x2: f32,
    /// Bottom edge.
    pub y2: f32,
    /// Confidence, 0 to 1, smoothed.
    pub score: f32,
    /// Pixels per frame to the right.
    pub velocity_x: f32,
    /// Pixels per frame downwards.
    pub velocity_y: f32,
    /// Frames since its first detection.
    pub age_frames: f32,
    /// Frames since its last detection.
    pub frames_since_seen: f32,
    /// In how many frames it was detected.
    pub hits: u32,
    /// An ocelli_track_state.
    pub state: u32,
    /// Zero.
    pub reserved: u32,
}

sized::versioned!(ocelli_result_info, ocelli_detection, ocelli_track);

/// A result of a pipeline.
pub(crate) fn add(outcome: FrameOutcome) -> *mut ocelli_result {
    add_with(outcome, Vec::new())
}

fn add_with(outcome: FrameOutcome, logits: Vec<LogitMask>) -> *mut ocelli_result {
    let labels = outcome.labels.iter().map(|label| c_string(label)).collect();
    let counts = |detection: &Detection| detection.mask.as_ref().map(|mask| c_string(mask.counts()));
    let counts = outcome.detections.iter().map(counts).collect();
    RESULTS.add(StoredResult { outcome, labels, counts, logits, json: OnceLock::new() })
}

/// A result of a detector, with the logits of each detection if it answers clicks.
pub(crate) fn of_detections(
    found: Detections,
    logits: Vec<LogitMask>,
    labels: Arc<[Arc<str>]>,
    time: Duration,
    size: (u32, u32),
) -> *mut ocelli_result {
    let mut outcome = FrameOutcome::default();
    (outcome.time, outcome.size, outcome.detected) = (time, size, true);
    (outcome.times, outcome.detections, outcome.labels) = (found.times, found.items, labels);
    add_with(outcome, logits)
}

/// The logits of an answer to clicks.
///
/// # Errors
/// `InvalidArgument` for a handle that is not open, another result, and an index that there is not.
pub(crate) fn logits(result: *const ocelli_result, index: usize) -> Result<LogitMask> {
    let found = RESULTS.find(result)?;
    if found.logits.is_empty() {
        return Err(invalid("result has no masks of ocelli_detector_segment: expected one of its results"));
    }
    at(&found.logits, index, "detections").cloned()
}

/// A result of a tracker.
pub(crate) fn of_tracks(tracks: &[Track], labels: Arc<[Arc<str>]>) -> *mut ocelli_result {
    let mut outcome = FrameOutcome::default();
    (outcome.tracks, outcome.labels) = (tracks.to_vec(), labels);
    add(outcome)
}

/// A frame of a session: a detection and a track for each object.
pub(crate) fn of_frame(found: TrackedFrame, label: &Arc<str>, size: (u32, u32)) -> *mut ocelli_result {
    let outcome = found.into_outcome([label.clone()].into(), size);
    let mut outcome = outcome.expect("a session has one class, and this is its label");
    // Here objects are counted from 0, as the session counts them.
    outcome.tracks.iter_mut().for_each(|track| track.id -= 1);
    add(outcome)
}

/// The detections of a result, and the labels of its classes.
///
/// # Errors
/// `InvalidArgument` for a handle that is not open.
pub(crate) fn detections(result: *const ocelli_result) -> Result<(Vec<Detection>, Arc<[Arc<str>]>)> {
    let found = RESULTS.find(result)?;
    Ok((found.outcome.detections.clone(), found.outcome.labels.clone()))
}

/// Describes the frame. Set `info->struct_size` before.
///
/// Pointers: `info` points to a struct whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_result_get_info(
    result: *const ocelli_result,
    info: *mut ocelli_result_info,
) -> ocelli_status {
    done(|| {
        let found = RESULTS.find(result)?;
        let FrameOutcome { index, time, size, detected, times, .. } = &found.outcome;
        let described = ocelli_result_info {
            index: *index,
            timestamp_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            text_ms: times.text,
            preprocess_ms: times.preprocess,
            backbone_ms: times.backbone,
            decode_ms: times.decode,
            masks_ms: times.masks,
            total_ms: times.total,
            width: size.0,
            height: size.1,
            detected: u32::from(*detected),
            ..sized::zeroed()
        };
        // SAFETY: the caller's promise.
        unsafe { sized::write(info, &described) }
    })
}

/// How many detections there are; 0 after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_result_detection_count(result: *const ocelli_result) -> usize {
    value(0, || RESULTS.find(result).map(|found| found.outcome.detections.len()))
}

/// A detection; the highest score comes first. Set `detection->struct_size` before.
///
/// Pointers: `detection` points to a struct whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_result_get_detection(
    result: *const ocelli_result,
    index: usize,
    detection: *mut ocelli_detection,
) -> ocelli_status {
    done(|| {
        let found = RESULTS.find(result)?;
        let one = at(&found.outcome.detections, index, "detections")?;
        let counts = found.counts.get(index).and_then(Option::as_ref);
        let described = ocelli_detection {
            label: found.label(one.class_id),
            mask_counts: counts.map_or(std::ptr::null(), |counts| counts.as_ptr()),
            class_id: one.class_id,
            x1: one.bbox.x1,
            y1: one.bbox.y1,
            x2: one.bbox.x2,
            y2: one.bbox.y2,
            score: one.score,
            mask_width: one.mask.as_ref().map_or(0, Mask::width),
            mask_height: one.mask.as_ref().map_or(0, Mask::height),
            ..sized::zeroed()
        };
        // SAFETY: the caller's promise.
        unsafe { sized::write(detection, &described) }
    })
}

/// Writes a detection's mask: one byte for each pixel of the image, row by row, `inside` in the mask and 0 elsewhere.
///
/// `stride` is the number of bytes from the start of one row to the next; 0 if rows follow each other. Bytes between rows
/// are left as they are.
///
/// Pointers: `pixels` points to `pixels_size` bytes that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_result_get_mask(
    result: *const ocelli_result,
    index: usize,
    pixels: *mut u8,
    pixels_size: usize,
    stride: usize,
    inside: u8,
) -> ocelli_status {
    done(|| {
        let found = RESULTS.find(result)?;
        let one = at(&found.outcome.detections, index, "detections")?;
        let Some(mask) = &one.mask else {
            refuse!("detection {index} has no mask: set masks in the options of the detector");
        };
        check_place(pixels, "pixels")?;
        let (width, height) = (mask.width() as usize, mask.height() as usize);
        let stride = if stride == 0 { width } else { stride };
        let needed = stride.checked_mul(height - 1).and_then(|bytes| bytes.checked_add(width));
        let needed = needed.filter(|&needed| stride >= width && needed <= pixels_size);
        let Some(needed) = needed.filter(|&needed| isize::try_from(needed).is_ok()) else {
            refuse!("mask of {width}x{height}: a stride of {stride} and {pixels_size} bytes are too few");
        };
        // SAFETY: not null, and `needed` bytes are among the `pixels_size` bytes of the caller. They are written before they
        // are read, row by row.
        let write_row = |start: usize| unsafe { pixels.add(start).write_bytes(0, width) };
        (0..height).for_each(|y| write_row(y * stride));
        for span in mask.spans() {
            for y in span.top..span.bottom {
                let place = y as usize * stride + span.x as usize;
                debug_assert!(place < needed, "a mask's spans are inside of it");
                // SAFETY: row and column are those of the mask, so the place is below `needed`.
                unsafe { pixels.add(place).write(inside) };
            }
        }
        Ok(())
    })
}

/// How many tracks there are; 0 after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_result_track_count(result: *const ocelli_result) -> usize {
    value(0, || RESULTS.find(result).map(|found| found.outcome.tracks.len()))
}

/// A track; the oldest comes first. Set `track->struct_size` before.
///
/// Pointers: `track` points to a struct whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_result_get_track(
    result: *const ocelli_result,
    index: usize,
    track: *mut ocelli_track,
) -> ocelli_status {
    done(|| {
        let found = RESULTS.find(result)?;
        let one = at(&found.outcome.tracks, index, "tracks")?;
        let state = match one.state {
            TrackState::Lost => ocelli_track_state::OCELLI_LOST,
            TrackState::Tentative => ocelli_track_state::OCELLI_TENTATIVE,
            _ => ocelli_track_state::OCELLI_TRACKED,
        };
        let described = ocelli_track {
            label: found.label(one.class_id),
            class_id: one.class_id,
            detection: one.detection.unwrap_or(usize::MAX),
            id: one.id,
            x1: one.bbox.x1,
            y1: one.bbox.y1,
            x2: one.bbox.x2,
            y2: one.bbox.y2,
            score: one.score,
            velocity_x: one.velocity[0],
            velocity_y: one.velocity[1],
            age_frames: one.age_frames,
            frames_since_seen: one.frames_since_seen,
            hits: one.hits,
            state: state as u32,
            ..sized::zeroed()
        };
        // SAFETY: the caller's promise.
        unsafe { sized::write(track, &described) }
    })
}

/// The result as a line of JSON, in the form of `ocelli video --jsonl`; null after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_result_json(result: *const ocelli_result) -> *const c_char {
    value(std::ptr::null(), || {
        let found = RESULTS.find(result)?;
        if let Some(json) = found.json.get() {
            return Ok(json.as_ptr());
        }
        let json = serde_json::to_string(&FrameReport::from(&found.outcome)).map_err(|failure| {
            Error::new(ErrorKind::Internal, format!("the result has no JSON form: {failure}"))
        })?;
        Ok(found.json.get_or_init(|| c_string(&json)).as_ptr())
    })
}

/// Frees a result; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_result_free(result: *mut ocelli_result) -> ocelli_status {
    done(|| RESULTS.remove(result).map(drop))
}

impl StoredResult {
    fn label(&self, class_id: usize) -> *const c_char {
        self.labels.get(class_id).map_or(c"".as_ptr(), |label| label.as_ptr())
    }
}

fn at<'a, T>(items: &'a [T], index: usize, what: &str) -> Result<&'a T> {
    items.get(index).ok_or_else(|| invalid(format!("index is {index}: there are {} {what}", items.len())))
}
