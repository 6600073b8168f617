//! Pipelines: frames are pushed, results received or passed to a callback.

use std::ffi::{c_char, c_int, c_void};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use ocelli::{
    Cancellation, DetectorBuilder, Error, ErrorKind, Pipeline, Result, cannot_start_thread,
    masklets::MaskletOptions,
    options::PipelineOptions,
    pipeline::{FramePolicy, Latency},
};

use crate::frame::{self, ocelli_frame};
use crate::handle::Registry;
use crate::options::{builders, count, ocelli_detector_options};
use crate::prompts::{self, ocelli_prompts};
use crate::results::{self, ocelli_result};
use crate::sized;
use crate::status::ocelli_status::{OCELLI_ENDED, OCELLI_NOT_READY, OCELLI_OK};
use crate::status::{done, entry, invalid, ocelli_status, record};
use crate::text::{check_place, chosen, place, write_if_wanted};
use crate::tracker::{self, ocelli_tracker_options};

/// A detector and a tracker that work on several frames at a time, on threads of their own. Any thread may push frames, and
/// any receive results.
pub struct ocelli_pipeline(());

static PIPELINES: Registry<ocelli_pipeline, OpenPipeline> = Registry::new("pipeline");

struct OpenPipeline {
    pipeline: Arc<Pipeline>,
    cancellation: Cancellation,
    /// The thread that calls back, until it was joined.
    delivery: Mutex<Option<JoinHandle<()>>>,
    delivery_id: Option<ThreadId>,
}

/// What happens with a frame when the pipeline is busy.
#[repr(C)]
pub enum ocelli_policy {
    /// `ocelli_pipeline_push` waits: no frame is lost. For files.
    OCELLI_ALL = 0,
    /// The frame that has waited longest is dropped. For cameras.
    OCELLI_LATEST = 1,
}

/// The trade between a frame's time in queues and frames per second.
#[repr(C)]
pub enum ocelli_latency {
    /// Queues between all stages.
    OCELLI_THROUGHPUT = 0,
    /// As many frames at a time as keep the slowest stage busy.
    OCELLI_BALANCED = 1,
    /// One frame at a time.
    OCELLI_LOW = 2,
}

/// Called with each result, in order, on a thread of the library.
///
/// `status` is `OCELLI_OK` with a result, which belongs to the caller until the function returns: do not free it. The last
/// call has no result: its status is `OCELLI_ENDED` once the pipeline was closed and all results were passed on, or that of
/// the error that ended the pipeline, whose text `ocelli_last_error` has in this call. No exception may leave the function.
pub type ocelli_result_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, status: ocelli_status, result: *const ocelli_result)>;

/// Options of a pipeline. `ocelli_pipeline_options_init` sets the defaults, in brackets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_pipeline_options {
    /// sizeof(ocelli_pipeline_options).
    pub struct_size: usize,
    /// Options of the tracker (null: there is none).
    pub tracker: *const ocelli_tracker_options,
    /// Called with each result, instead of `ocelli_pipeline_receive` (null).
    pub callback: ocelli_result_callback,
    /// Passed to the callback (null).
    pub user_data: *mut c_void,
    /// The detector runs on every n-th frame, the tracker on all (1).
    pub detect_every: u64,
    /// The frame rate that the tracker expects, in frames per second; 0 takes it from the time stamps (0).
    pub frame_rate: f64,
    /// An ocelli_policy (OCELLI_ALL).
    pub policy: u32,
    /// An ocelli_latency (OCELLI_THROUGHPUT).
    pub latency: u32,
    /// Frames that wait between two stages; 0 for the default (0).
    pub queue_depth: u32,
    /// The most classes that are decoded for a frame, in turns; 0 for all (0).
    pub class_budget: u32,
    /// 1 to follow objects with masks by the model's memory of them, without `tracker`; the model has to have a tracker. Each object
    /// is a detection with a mask and a track. Objects start at a score of 0.7, or of the detector's `confidence`, and results leave
    /// 14 frames late (0).
    pub memory: u32,
    /// With `memory`: 1 if every result leaves at once. `ocelli_result_json` of a later frame names objects that turn out to be
    /// false, `retracted` (0).
    pub no_hotstart: u32,
    /// With `memory`: the most objects of a class at a time; 0 for the model's own, which is 10000 of SAM 3 and 16 of SAM 3.1 (0).
    pub max_objects: u32,
    /// Zero.
    pub reserved: u32,
}

sized::versioned!(ocelli_pipeline_options, before memory);

impl ocelli_pipeline_options {
    const DEFAULT: Self = Self { detect_every: 1, ..sized::zeroed() };

    /// The options in the form of the library; those of the tracker by memory are known with the model.
    ///
    /// # Safety
    /// `tracker` is null or points to a struct whose size is set.
    unsafe fn form(&self) -> Result<PipelineOptions> {
        let policies = [
            (ocelli_policy::OCELLI_ALL as u32, FramePolicy::All),
            (ocelli_policy::OCELLI_LATEST as u32, FramePolicy::Latest),
        ];
        let policy = chosen("policy", self.policy, &policies, "OCELLI_ALL or OCELLI_LATEST")?;
        let latencies = [
            (ocelli_latency::OCELLI_THROUGHPUT as u32, Latency::Throughput),
            (ocelli_latency::OCELLI_BALANCED as u32, Latency::Balanced),
            (ocelli_latency::OCELLI_LOW as u32, Latency::Low),
        ];
        let expected = "OCELLI_THROUGHPUT, OCELLI_BALANCED or OCELLI_LOW";
        let latency = chosen("latency", self.latency, &latencies, expected)?;
        // SAFETY: the caller's promise.
        let tracker = unsafe { tracker::options(self.tracker) }?;
        if self.memory == 0 && (self.no_hotstart != 0 || self.max_objects != 0) {
            return Err(invalid("no_hotstart and max_objects are options of memory: set memory as well"));
        }
        Ok(PipelineOptions {
            tracker: Some(tracker).filter(|_| !self.tracker.is_null()),
            memory: (self.memory != 0).then(MaskletOptions::default),
            policy: Some(policy),
            latency: Some(latency),
            detect_every: Some(self.detect_every),
            queue_depth: count(self.queue_depth),
            class_budget: count(self.class_budget),
            // NaN and numbers below 0 are refused.
            frame_rate: Some(self.frame_rate).filter(|rate| *rate != 0.0),
            ..PipelineOptions::default()
        })
    }
}

/// Sets the defaults. Pass sizeof(ocelli_pipeline_options).
///
/// Pointers: `options` points to `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_options_init(
    options: *mut ocelli_pipeline_options,
    struct_size: usize,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { sized::start(options, struct_size, &ocelli_pipeline_options::DEFAULT) })
}

/// Creates a detector, one on each device that the options name, and starts a pipeline: frames go to the devices in turn, and
/// results come in order.
///
/// `detector` and `options` may be null for the defaults. Free the pipeline with `ocelli_pipeline_free`.
///
/// Pointers: `detector` and `options` are null or point to structs whose sizes are set; `pipeline` points to a handle to write. The
/// callback may be called, with `user_data`, on another thread, once the handle is written and until the pipeline is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_create(
    detector: *const ocelli_detector_options,
    prompts: *const ocelli_prompts,
    options: *const ocelli_pipeline_options,
    pipeline: *mut *mut ocelli_pipeline,
) -> ocelli_status {
    done(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { place(pipeline, "pipeline") }?;
        let prompts = prompts::find(prompts)?;
        // SAFETY: the caller's promise.
        let given = unsafe { sized::read_if_given(options, ocelli_pipeline_options::DEFAULT) }?;
        // SAFETY: the caller's promise.
        let mut form = unsafe { given.form() }?;
        // SAFETY: the caller's promise.
        let builders = unsafe { builders(detector) }?;
        form.check(builders[0].options(), builders.len(), true)?;
        let (memory, confidence) = (form.memory.is_some(), builders[0].options().confidence);
        let build = |builder: DetectorBuilder| builder.with_options(|all| all.masks |= memory).build();
        let mut detectors = builders.into_iter().map(build).collect::<Result<Vec<_>>>()?;
        let defaults = detectors[0].model().masklet_options();
        let (holds_back, most) = (given.no_hotstart == 0, count(given.max_objects));
        form.memory = memory.then(|| defaults.with_settings(confidence, holds_back, most));
        let cancellation = Cancellation::new();
        let builder = Pipeline::builder(detectors.remove(0), prompts)
            .with_options(|all| *all = form)
            .with_more_devices(detectors)
            .with_cancellation(cancellation.clone());
        let started = Arc::new(builder.build()?);
        let callback = given.callback.map(|function| Callback { function, user_data: given.user_data });
        // Dropped once the handle is written, which the callback may use.
        let (_unwritten, written) = channel();
        let delivery = callback.map(|callback| deliver(started.clone(), callback, written)).transpose()?;
        let delivery_id = delivery.as_ref().map(|thread| thread.thread().id());
        let delivery = Mutex::new(delivery);
        place.write(PIPELINES.add(OpenPipeline { pipeline: started, cancellation, delivery, delivery_id }));
        Ok(())
    })
}

struct Callback {
    function: unsafe extern "C" fn(*mut c_void, ocelli_status, *const ocelli_result),
    user_data: *mut c_void,
}

// SAFETY: that the function may be called with this pointer on another thread is the caller's promise to
// `ocelli_pipeline_create`.
unsafe impl Send for Callback {}

impl Callback {
    fn call(&self, status: ocelli_status, result: *const ocelli_result) {
        // SAFETY: the caller's promise to `ocelli_pipeline_create`.
        unsafe { (self.function)(self.user_data, status, result) }
    }
}

/// Starts the thread that passes results to the callback until the pipeline ends, once the sender of `start` is gone.
fn deliver(pipeline: Arc<Pipeline>, callback: Callback, start: Receiver<()>) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("ocelli-callback".into());
    let started = thread.spawn(move || {
        let _gone = start.recv();
        loop {
            match pipeline.recv() {
                Ok(Some(outcome)) => {
                    let result = results::add(outcome);
                    callback.call(OCELLI_OK, result);
                    results::ocelli_result_free(result);
                }
                Ok(None) => return callback.call(OCELLI_ENDED, std::ptr::null()),
                Err(error) => return callback.call(record(&error), std::ptr::null()),
            }
        }
    });
    started.map_err(cannot_start_thread)
}

/// Pushes a frame, which is read during this call alone. With `OCELLI_ALL` it waits for room.
///
/// `index` receives the number of the frame, from 0; it may be null.
///
/// Pointers: As for `ocelli_detector_detect`; `index` is null or points to a number to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_push(
    pipeline: *mut ocelli_pipeline,
    frame: *const ocelli_frame,
    index: *mut u64,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    unsafe { push(pipeline, frame, index, |pipeline, view| pipeline.push(view).map(Some)) }
}

/// As `ocelli_pipeline_push`, but never waits: `OCELLI_NOT_READY` if there is no room.
///
/// Pointers: As for `ocelli_pipeline_push`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_try_push(
    pipeline: *mut ocelli_pipeline,
    frame: *const ocelli_frame,
    index: *mut u64,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    unsafe { push(pipeline, frame, index, Pipeline::try_push) }
}

/// # Safety
/// As for `ocelli_pipeline_push`.
unsafe fn push(
    pipeline: *mut ocelli_pipeline,
    frame: *const ocelli_frame,
    index: *mut u64,
    push: impl FnOnce(&Pipeline, ocelli::FrameView<'_>) -> Result<Option<u64>>,
) -> ocelli_status {
    entry(|| {
        let open = PIPELINES.find(pipeline)?;
        // SAFETY: the caller's promise.
        let view = unsafe { frame::view(frame) }?;
        let Some(pushed) = push(&open.pipeline, view)? else {
            return Ok(OCELLI_NOT_READY);
        };
        // SAFETY: the caller's promise.
        unsafe { write_if_wanted(index, pushed) };
        Ok(OCELLI_OK)
    })
}

/// Receives the next result, in the order of the frames.
///
/// It waits for `timeout_ms` milliseconds: 0 not at all, below 0 without end. `OCELLI_NOT_READY` if there was no result in
/// this time, `OCELLI_ENDED` once the pipeline was closed and all results were received. Free the result with
/// `ocelli_result_free`.
///
/// Pointers: `result` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_receive(
    pipeline: *mut ocelli_pipeline,
    timeout_ms: c_int,
    result: *mut *mut ocelli_result,
) -> ocelli_status {
    entry(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { place(result, "result") }?;
        let open = PIPELINES.find(pipeline)?;
        if open.has_callback() {
            return Err(invalid("the pipeline has a callback, which gets all results"));
        }
        let timeout = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        let Some(outcome) = open.pipeline.recv_timeout(timeout)? else {
            return Ok(if open.pipeline.is_ended() { OCELLI_ENDED } else { OCELLI_NOT_READY });
        };
        place.write(results::add(outcome));
        Ok(OCELLI_OK)
    })
}

/// Marks the end of the stream: frames that were pushed are finished, no more are accepted.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_pipeline_close(pipeline: *mut ocelli_pipeline) -> ocelli_status {
    done(|| {
        PIPELINES.find(pipeline)?.pipeline.close();
        Ok(())
    })
}

/// Waits until the callback was called for the last time. Close the pipeline before.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_pipeline_wait(pipeline: *mut ocelli_pipeline) -> ocelli_status {
    done(|| {
        let open = PIPELINES.find(pipeline)?;
        if !open.has_callback() {
            return Err(invalid("the pipeline has no callback: receive its results"));
        }
        open.join()
    })
}

/// Statistics so far as JSON, in the form of `ocelli video --stats`: frames, time spent in each stage, queues.
///
/// `text` receives as much as fits into `text_size` bytes, with a NUL at its end. `needed` receives how many bytes all of it
/// needs, with the NUL; it may be null.
///
/// Pointers: `text` points to `text_size` bytes, and may be null if there are none; `needed` is null or points to a number to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_pipeline_stats(
    pipeline: *const ocelli_pipeline,
    text: *mut c_char,
    text_size: usize,
    needed: *mut usize,
) -> ocelli_status {
    done(|| {
        let stats = PIPELINES.find(pipeline)?.pipeline.stats();
        let json = serde_json::to_string(&stats).map_err(|failure| {
            Error::new(ErrorKind::Internal, format!("the statistics have no JSON form: {failure}"))
        })?;
        if text_size > 0 {
            check_place(text, "text")?;
            let fits = json.len().min(text_size - 1);
            // SAFETY: not null, and at least `fits` + 1 bytes of the caller.
            unsafe {
                std::ptr::copy_nonoverlapping(json.as_ptr(), text.cast::<u8>(), fits);
                text.add(fits).write(0);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { write_if_wanted(needed, json.len() + 1) };
        Ok(())
    })
}

/// Stops a pipeline and frees it; does nothing with a null pointer. Frames and results that wait are dropped, and calls that
/// wait on other threads return `OCELLI_CANCELLED`. The callback is not called again once this returns, unless it is the
/// callback that frees the pipeline.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_pipeline_free(pipeline: *mut ocelli_pipeline) -> ocelli_status {
    done(|| {
        if let Some(open) = PIPELINES.remove(pipeline)? {
            open.cancellation.cancel();
            open.pipeline.close();
            open.join()?;
        }
        Ok(())
    })
}

impl OpenPipeline {
    fn has_callback(&self) -> bool {
        self.delivery_id.is_some()
    }

    /// Waits for the thread that calls back, unless it is this one.
    fn join(&self) -> Result<()> {
        if self.delivery_id == Some(std::thread::current().id()) {
            return Ok(());
        }
        let mut delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        match delivery.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(Error::new(ErrorKind::Internal, "the thread that calls back has panicked")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use ocelli::{Detector, Prompts};

    use super::*;

    static CALLED: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn called(_: *mut c_void, status: ocelli_status, _: *const ocelli_result) {
        assert_eq!(status as u32, OCELLI_ENDED as u32);
        CALLED.store(true, Ordering::SeqCst);
    }

    #[test]
    fn the_callback_waits_for_the_handle() {
        let detector = Detector::builder().build().expect("the built-in model is there");
        let prompts = Prompts::new(["dog"]).expect("it is a class");
        let pipeline = Arc::new(Pipeline::builder(detector, prompts).build().expect("it starts"));
        pipeline.close();
        let (unwritten, written) = channel();
        let callback = Callback { function: called, user_data: std::ptr::null_mut() };
        let thread = deliver(pipeline, callback, written).expect("a thread starts");
        std::thread::sleep(Duration::from_millis(300));
        assert!(!CALLED.load(Ordering::SeqCst), "the caller does not have the handle yet");
        drop(unwritten);
        thread.join().expect("it does not panic");
        assert!(CALLED.load(Ordering::SeqCst));
    }
}
