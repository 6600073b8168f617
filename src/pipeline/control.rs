//! What all threads of a loop share: whether to go on, what went wrong, and what goes round.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ocelli_engines::Tensor;

use super::stats::Stage;
use crate::cancellation::Cancellation;
use crate::detector::ImageFeatures;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::image::Image;
use crate::sink::FrameOutcome;

/// How results are drawn into a picture.
pub(super) type Drawing = Box<dyn FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send>;

/// A frame on its way, with what the stages so far have made of it.
pub(super) struct Job {
    /// When it came in.
    pub(super) entered: Instant,
    /// Whether the detector looks at it.
    pub(super) detect: bool,
    /// Its picture, as long as a stage needs it.
    pub(super) picture: Option<Image>,
    /// The backbone's input.
    pub(super) pixels: Option<Tensor>,
    pub(super) features: Option<ImageFeatures>,
    pub(super) outcome: FrameOutcome,
}

/// Buffers that are not in use; they grow to what the largest frame needs, and are as many as are in use at once.
pub(super) struct Pools {
    pub(super) pictures: Pool<Image>,
    pub(super) pixels: Pool<Tensor>,
    pub(super) features: Pool<ImageFeatures>,
    pub(super) outcomes: Pool<FrameOutcome>,
}

/// Buffers of one kind.
pub(super) struct Pool<T> {
    free: Mutex<Vec<T>>,
    make: fn() -> T,
    most: usize,
}

impl<T> Pool<T> {
    fn new(most: usize, make: fn() -> T) -> Self {
        Self { free: Mutex::new(Vec::with_capacity(most)), make, most }
    }

    pub(super) fn take(&self) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(self.make)
    }

    pub(super) fn give(&self, buffer: T) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            free.push(buffer);
        }
    }
}

impl Pools {
    /// Pools that keep at most so many buffers of each kind.
    pub(super) fn new(most: usize) -> Self {
        Self {
            pictures: Pool::new(most, || Frame::default().image),
            pixels: Pool::new(most, Tensor::empty),
            features: Pool::new(most, ImageFeatures::default),
            outcomes: Pool::new(most, FrameOutcome::default),
        }
    }

    /// A frame that has just come in.
    pub(super) fn job(&self, index: u64, time: Duration, size: (u32, u32), entered: Instant) -> Job {
        let mut outcome = self.outcomes.take();
        (outcome.index, outcome.time, outcome.size) = (index, time, size);
        outcome.times = Default::default();
        outcome.detected = false;
        outcome.detections.clear();
        outcome.tracks.clear();
        Job { entered, detect: false, picture: None, pixels: None, features: None, outcome }
    }

    /// Takes everything of a frame that is done with, or dropped.
    pub(super) fn recycle(&self, job: Job) {
        job.picture.into_iter().for_each(|picture| self.pictures.give(picture));
        job.pixels.into_iter().for_each(|pixels| self.pixels.give(pixels));
        job.features.into_iter().for_each(|features| self.features.give(features));
        self.recycle_outcome(job.outcome);
    }

    pub(super) fn recycle_outcome(&self, mut outcome: FrameOutcome) {
        outcome.clean.take().into_iter().for_each(|picture| self.pictures.give(picture));
        outcome.annotated.take().into_iter().for_each(|picture| self.pictures.give(picture));
        self.outcomes.give(outcome);
    }
}

/// Whether to go on, and what went wrong.
pub(super) struct Control {
    pub(super) cancellation: Cancellation,
    abandoned: AtomicBool,
    failure: Mutex<Failure>,
}

enum Failure {
    None,
    New(Error),
    /// It was returned once; errors cannot be copied.
    Told(ErrorKind, String),
}

impl Control {
    pub(super) fn new(cancellation: Cancellation) -> Self {
        Self { cancellation, abandoned: AtomicBool::new(false), failure: Mutex::new(Failure::None) }
    }

    /// Whether nobody wants results of what has not been decoded yet.
    pub(super) fn is_stopping(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) || self.cancellation.is_cancelled()
    }

    /// Nobody is left who wants results.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Keeps the first error.
    pub(super) fn fail(&self, error: Error) {
        tracing::debug!("the loop ends: {error}");
        let mut failure = self.failure();
        if matches!(*failure, Failure::None) {
            *failure = Failure::New(error);
        }
    }

    /// The error that ended the loop, where one did.
    pub(super) fn error(&self) -> Option<Error> {
        let mut failure = self.failure();
        match std::mem::replace(&mut *failure, Failure::None) {
            Failure::None => None,
            Failure::New(error) => {
                *failure = Failure::Told(error.kind(), error.to_string());
                Some(error)
            }
            Failure::Told(kind, message) => {
                let again = Error::new(kind, format!("the loop has ended before: {message}"));
                *failure = Failure::Told(kind, message);
                Some(again)
            }
        }
    }

    /// Runs a stage's work; a panic is an error that says which stage it was.
    pub(super) fn guard<T>(&self, stage: Stage, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // What a panic may have left half done is not used again: the stage ends with it.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let message = format!("stage {stage}: it panicked: {}", panic_text(&*panic));
            Err(Error::new(ErrorKind::Engine, message))
        })
    }

    fn failure(&self) -> MutexGuard<'_, Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
