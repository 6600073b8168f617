//! A pipeline that the caller pushes frames into.

use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::gate::Gate;
use super::job::Job;
use super::preprocess::{Pixels, PreprocessStage};
use super::pulled::Run;
use super::queue::Queue;
use super::stage_loop::{StageLoop, StageWork, join};
use super::stages::{Loaded, into_stages, queues_of, work_of};
use super::stats::PipelineStats;
use super::{FramePolicy, Latency};
use crate::cancellation::CancelHook;
use crate::frame_view::FrameView;
use crate::outcome::FrameOutcome;
use crate::threads::{Stage, guard, locked};
use ocelli_error::{Error, Result};

/// A pipeline that the caller pushes frames into and receives results from.
///
/// All methods take `&self` and `Pipeline` is `Send` and `Sync`, so one thread can push while another receives. Several
/// pipelines in one process are independent. An error in a stage is returned by the next call.
///
/// With [`FramePolicy::All`] no frame is lost and all queues are bounded, so a caller that pushes without receiving
/// eventually blocks. With [`FramePolicy::Latest`] newer frames replace older ones, and newer results replace results
/// that nobody has received. With several [devices](super::PipelineBuilder::with_more_devices) frames go to them in turn, and
/// each device keeps the newest of its own.
///
/// Dropping a pipeline ends it: it waits for stages that are running, and discards the frames in its queues.
pub struct Pipeline {
    front: Mutex<Front>,
    shared: Arc<StageLoop>,
    /// Each has one of the first queues.
    devices: usize,
    threads: Vec<JoinHandle<()>>,
    _woken: CancelHook,
}

/// The part that runs on the thread that pushes.
struct Front {
    next_index: u64,
    preprocess: PreprocessStage,
    /// The other stages of a pipeline that works on one frame at a time, which run on this thread too.
    others: Vec<StageWork>,
}

impl Pipeline {
    pub(super) fn start(Run { options, cancellation, stats, .. }: Run, loaded: Loaded) -> Result<Self> {
        let policy = options.policy.unwrap_or_default();
        let latency = options.latency.unwrap_or_default();
        let depth = options.depth(policy, latency);
        // With the latest policy, the newest frame waits for its turn while the caller pushes others.
        let newest_in_turn = latency == Latency::Low && policy == FramePolicy::Latest && !options.sequential;
        let in_turn = options.sequential || (latency == Latency::Low && !newest_in_turn);
        let devices = loaded.devices.len();
        let in_order = devices > 1 || loaded.memory.is_some();
        if in_turn && in_order {
            let message = "memory: its results come later than their frames, and need threads: leave out sequential and \
                           latency low";
            return Err(Error::invalid_argument(message).about("memory"));
        }
        let mut queues = Vec::new();
        if newest_in_turn {
            queues.push(Queue::before(Stage::Backbone, 1, policy, &stats));
        } else if !in_turn {
            queues = queues_of(devices, in_order, (depth, policy), &stats);
        }
        // The results.
        queues.push(Queue::new(depth, policy));
        let mut shared = StageLoop::new(queues, 4 * (depth + 1), devices, stats, cancellation);
        // A device that waits for its turn would hold up the others at a gate: with several the queues alone limit the frames.
        let is_gated = latency == Latency::Balanced && !in_turn && !in_order;
        shared.gate = is_gated.then(|| (Stage::Backbone, Gate::new()));
        let shared = Arc::new(shared);

        let (preprocess, on_devices, track) =
            into_stages(loaded, &options, options.frame_rate, false, &shared);
        let mut others = work_of(on_devices, track, false);
        if newest_in_turn {
            let mut each = std::mem::take(&mut others);
            others.push(StageWork::new(Stage::Backbone, move |job, done| {
                StageLoop::run_in_turn(&mut each, job, &mut |job| {
                    done.push(job);
                    Ok(())
                })
            }));
        }
        let woken = shared.wake_on_cancel();
        let threads = if in_turn { Vec::new() } else { shared.start(std::mem::take(&mut others))? };
        let front = Mutex::new(Front { next_index: 0, preprocess, others });
        Ok(Self { front, shared, devices, threads, _woken: woken })
    }

    /// Pushes a frame and returns its index, counted from 0. The frame is preprocessed on the calling thread, directly
    /// from the caller's memory, which can be reused as soon as this returns.
    ///
    /// With [`FramePolicy::All`] this waits for room.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the frame's buffer is too short, and after
    /// [`close`](Self::close); [`Cancelled`](crate::ErrorKind::Cancelled); the error that ended the pipeline.
    pub fn push(&self, frame: FrameView<'_>) -> Result<u64> {
        let mut front = locked(&self.front);
        self.push_into(&mut front, frame)
    }

    /// As [`push`](Self::push), but never waits: returns `None` if there is no room, or if another thread is pushing.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the frame's buffer is too short, and after
    /// [`close`](Self::close); [`Cancelled`](crate::ErrorKind::Cancelled); the error that ended the pipeline.
    pub fn try_push(&self, frame: FrameView<'_>) -> Result<Option<u64>> {
        let mut front = match self.front.try_lock() {
            Ok(front) => front,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        // Only the thread that holds the front adds frames, so room cannot disappear before the frame is added.
        if self.shared.queues[front.preprocess.device].would_block() {
            return Ok(None);
        }
        self.push_into(&mut front, frame).map(Some)
    }

    fn push_into(&self, front: &mut Front, frame: FrameView<'_>) -> Result<u64> {
        let shared = &*self.shared;
        self.check_open()?;
        frame.check()?;
        let entered = Instant::now();
        let index = front.next_index;
        front.next_index += 1;
        shared.stats.frame_in(entered);
        let mut job = shared.buffers.job(index, frame.timestamp, (frame.width, frame.height), entered);
        let Front { preprocess, others, .. } = front;
        let mut is_taken = true;
        let done =
            guard(Stage::Preprocess, || preprocess.run(&mut job, &Pixels::View(frame))).and_then(|()| {
                StageLoop::run_in_turn(others, Some(job), &mut |job| {
                    let queue = &shared.queues[job.device];
                    is_taken &= shared.pass_on(job, queue);
                    Ok(())
                })
            });
        if let Err(error) = done {
            shared.fail(error);
            self.close();
            return Err(shared.error().expect("the failure was just recorded"));
        }
        if !is_taken {
            self.check_open()?;
        }
        Ok(index)
    }

    fn check_open(&self) -> Result<()> {
        if let Some(error) = self.shared.error() {
            return Err(error);
        }
        if self.shared.is_stopping() {
            return Err(cancelled());
        }
        if self.shared.queues[0].is_closed() {
            return Err(Error::invalid_argument("cannot push a frame: the pipeline was closed"));
        }
        Ok(())
    }

    /// Returns the next frame's results, in the order in which the frames were pushed, or `None` if none are ready.
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorKind::Cancelled); the error that ended the pipeline, once all earlier results have been
    /// received.
    pub fn try_recv(&self) -> Result<Option<FrameOutcome>> {
        self.recv_timeout(Duration::ZERO)
    }

    /// As [`try_recv`](Self::try_recv), but waits up to `timeout`. Returns immediately if the pipeline has
    /// [ended](Self::is_ended).
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorKind::Cancelled); the error that ended the pipeline, once all earlier results have been
    /// received.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<FrameOutcome>> {
        let shared = &self.shared;
        if let Some(job) = self.results().pop_timeout(timeout, || !shared.is_stopping()) {
            return Ok(Some(job.outcome));
        }
        if self.is_ended()
            && let Some(error) = shared.error()
        {
            return Err(error);
        }
        if shared.is_stopping() { Err(cancelled()) } else { Ok(None) }
    }

    /// As [`try_recv`](Self::try_recv), but waits. Returns `None` once the pipeline was [closed](Self::close) and all
    /// results have been received.
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorKind::Cancelled); the error that ended the pipeline, once all earlier results have been
    /// received.
    pub fn recv(&self) -> Result<Option<FrameOutcome>> {
        self.recv_timeout(Duration::MAX)
    }

    /// Signals the end of the stream: frames that were pushed are finished, then the pipeline ends.
    pub fn close(&self) {
        self.shared.queues[..self.devices].iter().for_each(Queue::close);
    }

    /// `true` if the pipeline has ended and all results have been received.
    pub fn is_ended(&self) -> bool {
        self.results().is_ended()
    }

    /// Statistics so far.
    pub fn stats(&self) -> PipelineStats {
        self.shared.stats.snapshot()
    }

    /// Returns an outcome's buffers for reuse; optional.
    pub fn recycle(&self, outcome: FrameOutcome) {
        self.shared.buffers.recycle_outcome(outcome);
    }

    fn results(&self) -> &Queue<Job> {
        self.shared.queues.last().expect("the results have a queue")
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shared.abandon();
        join(std::mem::take(&mut self.threads));
        self.shared.stats.end();
    }
}

debug_as!(Pipeline, it => "Pipeline {{ stats: {:?}, .. }}", it.stats());

fn cancelled() -> Error {
    Error::cancelled("the pipeline was cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promised in the documentation; a field that is not `Send` and `Sync` would silently break it.
    #[test]
    fn a_pipeline_can_be_moved_and_shared() {
        fn is_send_and_sync<T: Send + Sync + 'static>() {}
        is_send_and_sync::<Pipeline>();
        is_send_and_sync::<crate::pipeline::StatsRecorder>();
        fn is_send<T: Send>() {}
        is_send::<crate::PipelineBuilder>();
        is_send::<FrameOutcome>();
    }
}
