//! The loop inside another program.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::{Duration, Instant};

use super::FramePolicy;
use super::builder::PipelineBuilder;
use super::control::{Control, Job, Pools};
use super::queue::{Popped, Queue};
use super::stages::{BackboneStage, DecodeStage, PreprocessStage, Shared, Stages};
use super::stats::{PipelineStats, Stage};
use crate::error::{Error, ErrorKind, Result};
use crate::frame_view::FrameView;
use crate::sink::{FrameOutcome, Pictures};

/// A loop that frames are pushed into and results are taken out of.
///
/// It can be shared: every method takes `&self`, so one thread may push and another take (`Pipeline` is `Send` and
/// `Sync`). Several loops in one process know nothing of each other. Nothing is printed; what goes wrong in a stage is
/// returned by the next call.
///
/// With [`FramePolicy::All`](super::FramePolicy::All) nothing is lost and everything is bounded, so a caller that pushes
/// without ever taking results will wait for ever; with [`FramePolicy::Latest`](super::FramePolicy::Latest) newer frames
/// take the place of older ones, and newer results that of results nobody took.
///
/// Dropping it ends it: what is being computed is waited for, what waits is forgotten.
pub struct Pipeline {
    front: Mutex<Front>,
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

/// What works on the thread that pushes.
struct Front {
    next_index: u64,
    preprocess: PreprocessStage,
    /// The other stages, where everything happens on that thread.
    others: Option<(BackboneStage, DecodeStage)>,
}

/// What all threads share.
struct Inner {
    control: Control,
    shared: Shared,
    policy: FramePolicy,
    preprocessed: Queue<Job>,
    encoded: Queue<Job>,
    results: Queue<FrameOutcome>,
}

impl Pipeline {
    pub(super) fn start(builder: PipelineBuilder) -> Result<Self> {
        let policy = builder.policy.unwrap_or_default();
        let depth = builder.depth(policy);
        let stats = builder.stats.clone();
        let inner = Arc::new(Inner {
            control: Control::new(builder.cancellation.clone()),
            shared: Shared { pools: Arc::new(Pools::new(4 * (depth + 1))), stats: stats.clone() },
            policy,
            preprocessed: Queue::before(Stage::Backbone, depth, &stats),
            encoded: Queue::before(Stage::Decode, depth, &stats),
            results: Queue::new(depth),
        });
        let (sequential, frame_rate) = (builder.sequential, builder.frame_rate);
        let stages = Stages::new(builder, frame_rate, Pictures::default(), &inner.shared)?;
        let Stages { preprocess, mut backbone, mut decode, .. } = stages;
        let pipeline = |others| Self {
            front: Mutex::new(Front { next_index: 0, preprocess, others }),
            inner: inner.clone(),
            threads: Vec::new(),
        };
        if sequential {
            return Ok(pipeline(Some((backbone, decode))));
        }
        let mut pipeline = pipeline(None);
        pipeline.spawn(Stage::Backbone, move |inner| {
            inner.stage_thread(
                Stage::Backbone,
                &inner.preprocessed,
                |job| backbone.run(job),
                |job| inner.encoded.push(job, || true).map_err(|job| inner.shared.pools.recycle(job)).is_ok(),
            );
            inner.encoded.close();
        })?;
        pipeline.spawn(Stage::Decode, move |inner| {
            inner.stage_thread(
                Stage::Decode,
                &inner.encoded,
                |job| decode.run(job),
                |job| inner.give_out(job),
            );
            inner.results.close();
        })?;
        Ok(pipeline)
    }

    /// A thread that fails to start takes those before it with it, as the pipeline is dropped.
    fn spawn(&mut self, stage: Stage, work: impl FnOnce(&Inner) + Send + 'static) -> Result<()> {
        let inner = self.inner.clone();
        let thread = ThreadBuilder::new().name(format!("ocelli-{stage}")).spawn(move || work(&inner));
        let thread = thread
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start a thread: {e}")).with_source(e))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Takes in a frame and gives its number, counted from 0. It is preprocessed on the calling thread, straight from
    /// the caller's memory; when this returns, the memory is the caller's again.
    ///
    /// With [`FramePolicy::All`] it waits for room.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a frame whose bytes are too few, and after [`close`](Self::close);
    /// [`ErrorKind::Cancelled`]; the error that ended the loop.
    pub fn push(&self, frame: FrameView<'_>) -> Result<u64> {
        let mut front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
        self.push_into(&mut front, frame)
    }

    /// As [`push`](Self::push), but never waits: none where there is no room, or while another thread pushes.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn try_push(&self, frame: FrameView<'_>) -> Result<Option<u64>> {
        let mut front = match self.front.try_lock() {
            Ok(front) => front,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let inner = &self.inner;
        let is_full = match front.others {
            Some(_) => inner.results.is_full(),
            None => inner.preprocessed.is_full(),
        };
        // Nobody else adds while this thread holds the front: room that is there now will be there.
        if inner.policy == FramePolicy::All && is_full && !inner.preprocessed.is_closed() {
            return Ok(None);
        }
        self.push_into(&mut front, frame).map(Some)
    }

    fn push_into(&self, front: &mut Front, frame: FrameView<'_>) -> Result<u64> {
        let inner = &*self.inner;
        inner.check()?;
        frame.check()?;
        let entered = Instant::now();
        let index = front.next_index;
        front.next_index += 1;
        inner.shared.stats.frame_in(entered);
        let mut job = inner.shared.pools.job(index, frame.timestamp, (frame.width, frame.height), entered);
        let is_replacing = inner.policy == FramePolicy::Latest
            && inner.preprocessed.is_full()
            && inner.preprocessed.any(|job| job.detect);
        let control = &inner.control;
        let mut done =
            control.guard(Stage::Preprocess, || front.preprocess.run(&mut job, frame, is_replacing));
        if let Some((backbone, decode)) = &mut front.others {
            done = done
                .and_then(|()| control.guard(Stage::Backbone, || backbone.run(&mut job)))
                .and_then(|()| control.guard(Stage::Decode, || decode.run(&mut job)));
        }
        if let Err(error) = done {
            control.fail(error);
            inner.close_all();
            return Err(control.error().expect("it was just put there"));
        }
        let taken = match &front.others {
            Some(_) => inner.give_out(job),
            None => inner.hand_on(job),
        };
        if !taken {
            inner.check()?;
        }
        Ok(index)
    }

    /// The next frame's results, in the order in which the frames were pushed, or none where there are none now.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`]; the error that ended the loop, once the results before it have been taken.
    pub fn try_recv(&self) -> Result<Option<FrameOutcome>> {
        self.recv_timeout(Duration::ZERO)
    }

    /// As [`try_recv`](Self::try_recv), and waits for at most `timeout`. It comes back at once when the loop has
    /// [ended](Self::is_ended).
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<FrameOutcome>> {
        let control = &self.inner.control;
        match self.inner.results.pop_timeout(timeout, || !control.is_stopping()) {
            Popped::Item(outcome) => Ok(Some(outcome)),
            Popped::Nothing if control.is_stopping() => Err(cancelled()),
            Popped::Nothing => Ok(None),
            Popped::Ended => match control.error() {
                Some(error) => Err(error),
                None if control.is_stopping() => Err(cancelled()),
                None => Ok(None),
            },
        }
    }

    /// As [`try_recv`](Self::try_recv), and waits; none when the loop was [closed](Self::close) and everything was
    /// taken.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn recv(&self) -> Result<Option<FrameOutcome>> {
        self.recv_timeout(Duration::MAX)
    }

    /// There will be no more frames: those pushed so far are finished, and the loop ends when they were taken.
    pub fn close(&self) {
        self.inner.preprocessed.close();
        if self.threads.is_empty() {
            self.inner.results.close();
        }
    }

    /// Whether no more results will come, and none wait.
    pub fn is_ended(&self) -> bool {
        self.inner.results.is_ended()
    }

    /// Counts and times so far.
    pub fn stats(&self) -> PipelineStats {
        self.inner.shared.stats.snapshot()
    }

    /// Gives an outcome's memory back, to be filled again; optional.
    pub fn recycle(&self, outcome: FrameOutcome) {
        self.inner.shared.pools.recycle_outcome(outcome);
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.inner.control.abandon();
        self.inner.close_all();
        for thread in self.threads.drain(..) {
            // What a stage panicked with was caught where it happened.
            drop(thread.join());
        }
        self.inner.shared.stats.end();
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("Pipeline")
            .field("frames_in", &stats.frames_in)
            .field("frames_out", &stats.frames_out)
            .field("frames_dropped", &stats.frames_dropped)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Whether frames can still be pushed.
    fn check(&self) -> Result<()> {
        if let Some(error) = self.control.error() {
            return Err(error);
        }
        if self.control.is_stopping() {
            return Err(cancelled());
        }
        if self.preprocessed.is_closed() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the loop was closed: it takes no more frames",
            ));
        }
        Ok(())
    }

    fn close_all(&self) {
        self.preprocessed.close();
        self.encoded.close();
        self.results.close();
    }

    fn stage_thread(
        &self,
        stage: Stage,
        input: &Queue<Job>,
        mut work: impl FnMut(&mut Job) -> Result<()>,
        hand_on: impl Fn(Job) -> bool,
    ) {
        while let Some(mut job) = input.pop() {
            if self.control.is_stopping() {
                self.shared.pools.recycle(job);
                continue;
            }
            if let Err(error) = self.control.guard(stage, || work(&mut job)) {
                self.control.fail(error);
                self.preprocessed.close();
                break;
            }
            if !hand_on(job) {
                break;
            }
        }
        input.close();
    }

    /// A preprocessed frame to the backbone's queue; whether it was taken.
    fn hand_on(&self, job: Job) -> bool {
        let refused = match self.policy {
            FramePolicy::All => self.preprocessed.push(job, || !self.control.is_stopping()),
            FramePolicy::Latest => self.preprocessed.push_latest(job).map(|replaced| {
                if let Some(replaced) = replaced {
                    self.shared.stats.dropped();
                    self.shared.pools.recycle(replaced);
                }
            }),
        };
        refused.map_err(|job| self.shared.pools.recycle(job)).is_ok()
    }

    /// A finished frame to whoever takes results; whether there is anyone.
    fn give_out(&self, mut job: Job) -> bool {
        let mut outcome = std::mem::take(&mut job.outcome);
        outcome.times.total = job.entered.elapsed().as_secs_f64() * 1e3;
        let (detected, detections) = (outcome.detected, outcome.detections.len());
        tracing::debug!(frame = outcome.index, detections, tracks = outcome.tracks.len(), "frame");
        // Before anyone can take it, so that whoever did finds it counted.
        self.shared.stats.frame_out(job.entered, detected, detections);
        let refused = match self.policy {
            FramePolicy::All => self.results.push(outcome, || !self.control.is_stopping()),
            FramePolicy::Latest => self.results.push_latest(outcome).map(|replaced| {
                if let Some(replaced) = replaced {
                    self.shared.stats.result_dropped();
                    self.shared.pools.recycle_outcome(replaced);
                }
            }),
        };
        refused.map_err(|outcome| self.shared.pools.recycle_outcome(outcome)).is_ok()
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the loop was cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stated in the documentation; a field that is neither would take it back silently.
    #[test]
    fn a_pipeline_can_be_moved_and_shared() {
        fn is_send_and_sync<T: Send + Sync + 'static>() {}
        is_send_and_sync::<Pipeline>();
        is_send_and_sync::<crate::StatsRecorder>();
        fn is_send<T: Send>() {}
        is_send::<PipelineBuilder>();
        is_send::<FrameOutcome>();
    }
}
