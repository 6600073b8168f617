//! Trackers, for the boxes of any detector.

use std::sync::Mutex;

use ocelli::tracking::{ByteTracker, ByteTrackerOptions, MatchClasses, TrackerDetection};
use ocelli::{BoundingBox, Result};

use crate::handle::Registry;
use crate::options::unless_negative;
use crate::results::{self, ocelli_result};
use crate::sized;
use crate::status::{done, filled, ocelli_status};
use crate::text::{place, values};

/// A tracker.
pub struct ocelli_tracker(());

static TRACKERS: Registry<ocelli_tracker, Mutex<ByteTracker>> = Registry::new("tracker");

/// Options of a tracker. `ocelli_tracker_options_init` sets the defaults, in brackets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_tracker_options {
    /// sizeof(ocelli_tracker_options).
    pub struct_size: usize,
    /// Detections with at least this score are matched first and can start tracks (0.5).
    pub track_threshold: f32,
    /// Detections with at least this score can continue tracks; below 0 for 0.1, or less if track_threshold is less (-1).
    pub low_threshold: f32,
    /// The least score that starts a track; below 0 for 0.05 above track_threshold (-1).
    pub new_track_threshold: f32,
    /// Least IoU of a track with a detection of high score (0.5).
    pub match_iou: f32,
    /// Least IoU of a track with a detection of low score (0.4).
    pub low_match_iou: f32,
    /// Least IoU of a lost track with a detection of high score (0.5).
    pub lost_match_iou: f32,
    /// A track that starts with at least this score is reported at once; below 0 for 0.8, or none if min_hits is set (-1).
    pub sure_threshold: f32,
    /// The number of consecutive detections that confirms a track; 0 for 2, or 1 with a score of sure_threshold (0).
    pub min_hits: u32,
    /// The most frames between two detections of a track, at least 1 (30).
    pub max_time_lost: u32,
    /// For how many frames a lost track is still reported, at its predicted place (0).
    pub coast_frames: u32,
    /// 1 if a track may take a detection of another class (0).
    pub match_any_class: u32,
    /// Zero.
    pub reserved: u32,
}

sized::versioned!(ocelli_tracker_options);

impl ocelli_tracker_options {
    fn defaults() -> Self {
        let options = ByteTrackerOptions::default();
        Self {
            track_threshold: options.track_threshold,
            low_threshold: -1.0,
            new_track_threshold: -1.0,
            match_iou: options.match_iou,
            low_match_iou: options.low_match_iou,
            lost_match_iou: options.lost_match_iou,
            sure_threshold: -1.0,
            max_time_lost: options.max_time_lost,
            coast_frames: options.coast_frames,
            match_any_class: u32::from(options.match_classes == MatchClasses::Any),
            ..sized::zeroed()
        }
    }
}

/// Sets the defaults. Pass sizeof(ocelli_tracker_options).
///
/// Pointers: `options` points to `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_tracker_options_init(
    options: *mut ocelli_tracker_options,
    struct_size: usize,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { sized::start(options, struct_size, &ocelli_tracker_options::defaults()) })
}

/// The options of the library; null for the defaults.
///
/// # Errors
/// `InvalidArgument` for a wrong size and for options out of range.
///
/// # Safety
/// `from` is null or points to a struct whose size is set.
pub(crate) unsafe fn options(from: *const ocelli_tracker_options) -> Result<ByteTrackerOptions> {
    let mut options = ByteTrackerOptions::default();
    // SAFETY: the caller's promise.
    let given = unsafe { sized::read_if_given(from, ocelli_tracker_options::defaults()) }?;
    options.track_threshold = given.track_threshold;
    options.low_threshold = unless_negative(given.low_threshold);
    options.new_track_threshold = unless_negative(given.new_track_threshold);
    (options.match_iou, options.low_match_iou) = (given.match_iou, given.low_match_iou);
    options.lost_match_iou = given.lost_match_iou;
    options.sure_threshold = unless_negative(given.sure_threshold);
    options.min_hits = (given.min_hits != 0).then_some(given.min_hits);
    options.max_time_lost = given.max_time_lost;
    options.coast_frames = given.coast_frames;
    if given.match_any_class != 0 {
        options.match_classes = MatchClasses::Any;
    }
    options.validate()?;
    Ok(options)
}

/// Creates a tracker. `options` may be null for the defaults. Free the tracker with `ocelli_tracker_free`.
///
/// Pointers: `options` is null or points to a struct whose size is set; `tracker` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_tracker_create(
    options: *const ocelli_tracker_options,
    tracker: *mut *mut ocelli_tracker,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(tracker, "tracker") }, || {
        // SAFETY: the caller's promise.
        let options = unsafe { self::options(options) }?;
        Ok(TRACKERS.add(Mutex::new(ByteTracker::new(options)?)))
    })
}

/// Updates the tracks with the boxes of a frame, and returns those that are reported: `ocelli_result_track_count` and
/// `ocelli_result_get_track` of the result, which has no detections. Free it with `ocelli_result_free`.
///
/// `boxes` has four numbers for each detection: left, top, right, bottom. `frames` is the time since the last call: 1 for the
/// next frame of a video, else the elapsed time times the frame rate. Call it for every frame, even without detections.
///
/// Pointers: `boxes` points to 4 x `count` numbers, `scores` and `class_ids` to `count`; `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_tracker_update(
    tracker: *mut ocelli_tracker,
    boxes: *const f32,
    scores: *const f32,
    class_ids: *const usize,
    count: usize,
    frames: f32,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(result, "result") }, || {
        // SAFETY: the caller passes as many numbers.
        let (boxes, scores, class_ids) = unsafe {
            (
                values(boxes.cast::<[f32; 4]>(), count, "boxes")?,
                values(scores, count, "scores")?,
                values(class_ids, count, "class_ids")?,
            )
        };
        let rows = boxes.iter().zip(scores).zip(class_ids);
        let detections = rows.map(|((&edges, &score), &class_id)| TrackerDetection {
            bbox: BoundingBox::from(edges),
            score,
            class_id,
        });
        let detections: Vec<_> = detections.collect();
        TRACKERS
            .with(tracker, |tracker| Ok(results::of_tracks(tracker.update(&detections, frames), [].into())))
    })
}

/// As `ocelli_tracker_update`, with the detections of a result. The tracks have the labels of its classes.
///
/// Pointers: `tracks` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_tracker_update_with(
    tracker: *mut ocelli_tracker,
    detections: *const ocelli_result,
    frames: f32,
    tracks: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(tracks, "tracks") }, || {
        let (found, labels) = results::detections(detections)?;
        let found: Vec<_> = found.iter().map(TrackerDetection::from).collect();
        TRACKERS.with(tracker, |tracker| Ok(results::of_tracks(tracker.update(&found, frames), labels)))
    })
}

/// Forgets all tracks; their numbers start at 1 again.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_tracker_reset(tracker: *mut ocelli_tracker) -> ocelli_status {
    done(|| {
        TRACKERS.with(tracker, |tracker| {
            tracker.reset();
            Ok(())
        })
    })
}

/// Frees a tracker; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_tracker_free(tracker: *mut ocelli_tracker) -> ocelli_status {
    done(|| TRACKERS.remove(tracker).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_what_they_mean_in_the_library() {
        type Given = fn(&mut ocelli_tracker_options);
        type Meant = fn(&mut ByteTrackerOptions);
        let cases: &[(&str, Given, Meant)] = &[
            ("nothing", |_| (), |_| ()),
            ("track_threshold", |o| o.track_threshold = 0.05, |o| o.track_threshold = 0.05),
            ("low_threshold", |o| o.low_threshold = 0.3, |o| o.low_threshold = Some(0.3)),
            ("new_track_threshold", |o| o.new_track_threshold = 0.2, |o| o.new_track_threshold = Some(0.2)),
            ("min_hits", |o| o.min_hits = 2, |o| o.min_hits = Some(2)),
            ("sure_threshold", |o| o.sure_threshold = 0.9, |o| o.sure_threshold = Some(0.9)),
            ("match_iou", |o| o.match_iou = 0.2, |o| o.match_iou = 0.2),
            ("low_match_iou", |o| o.low_match_iou = 0.2, |o| o.low_match_iou = 0.2),
            ("lost_match_iou", |o| o.lost_match_iou = 0.2, |o| o.lost_match_iou = 0.2),
            ("max_time_lost", |o| o.max_time_lost = 9, |o| o.max_time_lost = 9),
            ("coast_frames", |o| o.coast_frames = 3, |o| o.coast_frames = 3),
            ("match_any_class", |o| o.match_any_class = 1, |o| o.match_classes = MatchClasses::Any),
        ];
        let mut failures = Vec::new();
        for (what, given, meant) in cases {
            let (mut from, mut expected) =
                (ocelli_tracker_options::defaults(), ByteTrackerOptions::default());
            from.struct_size = size_of::<ocelli_tracker_options>();
            given(&mut from);
            meant(&mut expected);
            // SAFETY: it is a struct whose size is set.
            let found = unsafe { options(&from) };
            if !matches!(&found, Ok(found) if *found == expected) {
                failures.push(format!("{what}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
