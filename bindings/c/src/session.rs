//! Videos in which objects are found, followed, corrected and removed.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use ocelli::masklets::{Click, RunDirection, SessionSource, TrackedFrame, VideoSession, VideoSessionOptions};
use ocelli::source::InputOptions;
use ocelli::{BoundingBox, Mask, Result};

use crate::frame::{self, ocelli_frame};
use crate::handle::Registry;
use crate::options::{builders, ocelli_detector_options};
use crate::results::{self, ocelli_result};
use crate::sized;
use crate::status::ocelli_status::{OCELLI_ENDED, OCELLI_OK};
use crate::status::{done, entry, filled, invalid, ocelli_status, value};
use crate::text::{chosen, optional_path, optional_text, place, text, values, write_if_wanted};

/// A video in which objects are found, followed, corrected and removed, by SAM 3's memory tracker. Calls from several threads
/// are done one after the other.
///
/// Its results have a detection with a mask for each object, and a track whose `id` is the object's number, the same in all
/// frames; the other fields of a track say nothing. `index` of their info is the number of the frame. An object's score is
/// that of the detection that started it, 1 if it was clicked.
pub struct ocelli_session(());

static SESSIONS: Registry<ocelli_session, Mutex<OpenSession>> = Registry::new("session");

struct OpenSession {
    session: VideoSession,
    /// The text that was asked for.
    label: Arc<str>,
}

/// How a video file is opened. Zero all but the size and `stream`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_input_options {
    /// sizeof(ocelli_input_options).
    pub struct_size: usize,
    /// Options of FFmpeg's protocols, containers and decoders, each a string KEY=VALUE.
    pub ffmpeg_options: *const *const c_char,
    /// How many `ffmpeg_options` there are.
    pub ffmpeg_option_count: usize,
    /// FFmpeg's name of the hardware that decodes, such as "cuda", or "auto" for the first that works; null for the CPU.
    pub hwaccel: *const c_char,
    /// The number of the stream among the video streams, from 0; below 0 for the one that players choose.
    pub stream: i64,
}

sized::versioned!(ocelli_input_options);

impl ocelli_input_options {
    const DEFAULT: Self = Self { stream: -1, ..sized::zeroed() };
}

/// Where a run goes.
#[repr(C)]
pub enum ocelli_direction {
    /// To the end of the video.
    OCELLI_FORWARD = 0,
    /// To its start, from the frame before the first one.
    OCELLI_BACKWARD = 1,
    /// Forward, then backward.
    OCELLI_BOTH = 2,
}

use ocelli_direction::*;

/// Creates a session on a video file, or on a folder of images of one size. Free it with `ocelli_session_free`.
///
/// `options` are those of a detector; its model has to have a tracker. `masks` has no effect, and `confidence` replaces both
/// thresholds: of detections that start objects, 0.7, and of those that keep them, 0.5.
///
/// Pointers: `options` points to a struct whose size is set; `path` is a string; `session` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_create(
    options: *const ocelli_detector_options,
    path: *const c_char,
    session: *mut *mut ocelli_session,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    unsafe { ocelli_session_create_with(options, path, std::ptr::null(), session) }
}

/// As `ocelli_session_create`, on another video stream of a file, or with options of FFmpeg; a folder has none.
///
/// Pointers: as for `ocelli_session_create`; `input` is null, or points to a struct whose size is set and whose `ffmpeg_options` are as
/// many strings as `ffmpeg_option_count` says, and `hwaccel` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_create_with(
    options: *const ocelli_detector_options,
    path: *const c_char,
    input: *const ocelli_input_options,
    session: *mut *mut ocelli_session,
) -> ocelli_status {
    let source = || {
        // SAFETY: the caller passes a string.
        let path = unsafe { optional_path(path, "path") }?;
        let path = path.ok_or_else(|| invalid("path is null: expected a string"))?;
        // SAFETY: the caller's promise.
        SessionSource::open_with(path, unsafe { input_options(input) }?)
    };
    // SAFETY: the caller's promise.
    unsafe { create(options, source, session) }
}

/// # Safety
/// As for `ocelli_session_create_with`.
unsafe fn input_options(input: *const ocelli_input_options) -> Result<InputOptions> {
    // SAFETY: the caller's promise.
    let input = unsafe { sized::read_if_given(input, ocelli_input_options::DEFAULT) }?;
    let (from, count) = (input.ffmpeg_options, input.ffmpeg_option_count);
    // SAFETY: the caller's promise.
    let given = unsafe { values(from, count, "ffmpeg_options") }?.iter();
    let ffmpeg = given.map(|option| {
        // SAFETY: the caller's promise.
        let option = unsafe { text(*option, "ffmpeg_options") }?;
        InputOptions::parse_ffmpeg(option).map_err(|why| invalid(format!("ffmpeg_options, {why}")))
    });
    // No file has as many.
    let stream = (input.stream >= 0).then(|| u32::try_from(input.stream).unwrap_or(u32::MAX));
    // SAFETY: the caller's promise.
    let hwaccel = unsafe { optional_text(input.hwaccel, "hwaccel") }?.map(str::to_owned);
    Ok(InputOptions { stream, ffmpeg: ffmpeg.collect::<Result<_>>()?, hwaccel })
}

/// Creates a session on a video that begins with this frame; `ocelli_session_push` appends others, which stay in memory.
///
/// `options` as for `ocelli_session_create`.
///
/// Pointers: `options` points to a struct whose size is set; `first` as for `ocelli_detector_detect`; `session` points to a handle to
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_create_pushed(
    options: *const ocelli_detector_options,
    first: *const ocelli_frame,
    session: *mut *mut ocelli_session,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    let source = || Ok(SessionSource::pushed(unsafe { frame::view(first) }?.to_image()?));
    // SAFETY: the caller's promise.
    unsafe { create(options, source, session) }
}

/// # Safety
/// As for `ocelli_session_create`.
unsafe fn create(
    options: *const ocelli_detector_options,
    source: impl FnOnce() -> Result<SessionSource>,
    session: *mut *mut ocelli_session,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(session, "session") }, || {
        // SAFETY: the caller's promise.
        let builders = unsafe { builders(options) }?;
        let confidence = builders[0].options().confidence;
        // What needs no model first.
        let source = source()?;
        let built = builders.into_iter().map(|builder| builder.with_masks(true).build());
        let mut detectors = built.collect::<Result<Vec<_>>>()?;
        let detector = detectors.remove(0);
        let mut given = VideoSessionOptions::new(&detector);
        given.masklets = given.masklets.with_settings(confidence, true, None);
        let mut opened = VideoSession::new(detector, source, given)?;
        detectors.iter().try_for_each(|other| opened.add_device(other))?;
        Ok(SESSIONS.add(Mutex::new(OpenSession { session: opened, label: "object".into() })))
    })
}

/// Appends a frame to a video of `ocelli_session_create_pushed`. A run goes on over it when it is asked for again.
///
/// `index` receives the number of the frame; it may be null.
///
/// Pointers: `frame` as for `ocelli_detector_detect`; `index` is null or points to a number to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_push(
    session: *mut ocelli_session,
    frame: *const ocelli_frame,
    index: *mut usize,
) -> ocelli_status {
    done(|| {
        // SAFETY: the caller's promise.
        let image = unsafe { frame::view(frame) }?.to_image()?;
        let pushed = SESSIONS.with(session, |open| open.session.push(image))?;
        // SAFETY: the caller's promise.
        unsafe { write_if_wanted(index, pushed) };
        Ok(())
    })
}

/// The number of frames; 0 after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_frame_count(session: *const ocelli_session) -> usize {
    value(0, || SESSIONS.with(session, |open| Ok(open.session.frame_count())))
}

/// A number that no object of this session ever had; 0 after an error.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_next_object(session: *const ocelli_session) -> u32 {
    value(0, || SESSIONS.with(session, |open| Ok(open.session.next_object())))
}

/// Starts over: finds the objects that a text describes on a frame. Runs look for them in every frame.
///
/// Free the result with `ocelli_result_free`.
///
/// Pointers: `text` is a string; `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_add_text(
    session: *mut ocelli_session,
    frame: usize,
    text: *const c_char,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller passes a string.
    let phrase = unsafe { self::text(text, "text") };
    let work = |open: &mut OpenSession| {
        let phrase = phrase?;
        let found = open.session.add_text(frame, phrase)?;
        open.label = phrase.into();
        Ok(found)
    };
    // SAFETY: the caller's promise.
    unsafe { find(session, result, work) }
}

/// Starts over: finds what is in a box of this frame, in pixels, and objects like it. Runs follow them without looking for others.
///
/// Free the result with `ocelli_result_free`.
///
/// Pointers: `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_add_box(
    session: *mut ocelli_session,
    frame: usize,
    x1: f32,
    y1: f32,
    x2: f32,
    y2: f32,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    let work = |open: &mut OpenSession| {
        let found = open.session.add_box(frame, BoundingBox::new(x1, y1, x2, y2))?;
        open.label = "object".into();
        Ok(found)
    };
    // SAFETY: the caller's promise.
    unsafe { find(session, result, work) }
}

/// Clicks on an object of a frame: one that is tracked is refined, another one is added under this number.
///
/// `points` has x and y of each click, in pixels; `positive` has 1 for a click on the object and 0 for one beside it, or is null
/// if all are on it. With a text or a box, the frame has to have been shown. More clicks on the same frame refine the mask that it
/// has by then. Free the result with `ocelli_result_free`.
///
/// Pointers: `points` points to 2 x `count` numbers; `positive` is null or points to `count` numbers; `result` points to a handle to
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_add_points(
    session: *mut ocelli_session,
    object: u32,
    frame: usize,
    points: *const f32,
    positive: *const c_int,
    count: usize,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller passes as many numbers.
    let points = unsafe { values(points.cast::<[f32; 2]>(), count, "points") };
    // SAFETY: the caller passes as many numbers.
    let labels = (!positive.is_null()).then(|| unsafe { values(positive, count, "positive") }).transpose();
    let work = |open: &mut OpenSession| {
        let (points, labels) = (points?, labels?);
        let (width, height) = open.session.size();
        let click = |(index, [x, y]): (usize, &[f32; 2])| Click {
            x: x / width as f32,
            y: y / height as f32,
            is_foreground: labels.is_none_or(|labels| labels[index] != 0),
        };
        let clicks: Vec<Click> = points.iter().enumerate().map(click).collect();
        open.session.add_points(object, frame, &clicks)
    };
    // SAFETY: the caller's promise.
    unsafe { find(session, result, work) }
}

/// Adds an object by its mask on a frame, where the next run shows this mask: a byte for each pixel of the video, row by row, 0
/// outside. With a text or a box, the frame has to have been shown.
///
/// Free the result with `ocelli_result_free`.
///
/// Pointers: `pixels` points to `width` times `height` bytes; `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_add_mask(
    session: *mut ocelli_session,
    object: u32,
    frame: usize,
    pixels: *const u8,
    width: u32,
    height: u32,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    // SAFETY: the caller passes as many bytes.
    let pixels = unsafe { values(pixels, width as usize * height as usize, "pixels") };
    let work = |open: &mut OpenSession| {
        open.session.add_mask(object, frame, &Mask::from_bitmap(pixels?, width, height)?)
    };
    // SAFETY: the caller's promise.
    unsafe { find(session, result, work) }
}

/// Plans a run over the frames, in place of a run that has not ended: `ocelli_session_next` returns them.
///
/// `direction` is an ocelli_direction. The run begins at frame `start`, below 0 at the first one with results, and passes over at
/// most `max_frames` more frames each way, below 0 to the end of the video.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_propagate(
    session: *mut ocelli_session,
    direction: u32,
    start: i64,
    max_frames: i64,
) -> ocelli_status {
    done(|| {
        let directions = [
            (OCELLI_FORWARD as u32, RunDirection::Forward),
            (OCELLI_BACKWARD as u32, RunDirection::Backward),
            (OCELLI_BOTH as u32, RunDirection::Both),
        ];
        let expected = "OCELLI_FORWARD, OCELLI_BACKWARD or OCELLI_BOTH";
        let direction = chosen("direction", direction, &directions, expected)?;
        let [start, max_frames] = [start, max_frames].map(|number| usize::try_from(number).ok());
        SESSIONS.with(session, |open| open.session.propagate(direction, start, max_frames).map(drop))
    })
}

/// The next frame of the run: with a text 14 frames late, so that objects that turn out to be false are never shown.
///
/// `OCELLI_ENDED` at the end of the run, and if there is none. After an error the run has ended; the frames that were held back
/// come before it. Free the result with `ocelli_result_free`.
///
/// Pointers: `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_session_next(
    session: *mut ocelli_session,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    entry(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { place(result, "result") }?;
        let next = |open: &mut OpenSession| {
            let found = open.session.next_frame().transpose()?;
            Ok(found.map(|found| open.result(found)))
        };
        let Some(created) = SESSIONS.with(session, next)? else { return Ok(OCELLI_ENDED) };
        place.write(created);
        Ok(OCELLI_OK)
    })
}

/// Removes an object from all frames; its number is not used again.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_remove(session: *mut ocelli_session, object: u32) -> ocelli_status {
    done(|| SESSIONS.with(session, |open| open.session.remove(object)))
}

/// Forgets what was asked for, all objects and all results.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_reset(session: *mut ocelli_session) -> ocelli_status {
    let reset = |open: &mut OpenSession| {
        open.label = "object".into();
        open.session.reset()
    };
    done(|| SESSIONS.with(session, reset))
}

/// Frees a session; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_session_free(session: *mut ocelli_session) -> ocelli_status {
    done(|| SESSIONS.remove(session).map(drop))
}

/// # Safety
/// `result` is null or points to a handle to write.
unsafe fn find(
    session: *mut ocelli_session,
    result: *mut *mut ocelli_result,
    work: impl FnOnce(&mut OpenSession) -> Result<TrackedFrame>,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(result, "result") }, || {
        SESSIONS.with(session, |open| work(open).map(|found| open.result(found)))
    })
}

impl OpenSession {
    fn result(&self, found: TrackedFrame) -> *mut ocelli_result {
        let (width, height) = self.session.size();
        results::of_frame(found, &self.label, (width as u32, height as u32))
    }
}
