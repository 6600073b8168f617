//! Reads the source on a thread of its own, so that a source that waits for its next frame cannot hold up the end of a run.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder as ThreadBuilder;
use std::time::{Duration, Instant, SystemTime};

use super::FramePolicy;
use super::job::Job;
use super::queue::Queue;
use super::stage_loop::StageLoop;
use crate::cancellation::CancelHook;
use crate::frame::Frame;
use crate::source::Source;
use crate::threads::{Stage, cannot_start_thread, guard};
use ocelli_error::{ErrorKind, Result};

/// The time that a run which has ended waits for a read that has not.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread of a source.
pub(super) struct Reader {
    /// Asks for a frame; unused if the thread passes its frames to the first stage.
    ask: SyncSender<()>,
    /// The frames that were asked for. It is closed when the thread ends.
    frames: Arc<Queue<Job>>,
    shared: Arc<StageLoop>,
    _woken: CancelHook,
}

/// Closes a queue at the end of a thread, however it ends.
struct Closing(Arc<Queue<Job>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Reader {
    /// Starts a thread that reads a frame when it is asked for one.
    pub(super) fn start(mut source: impl Source + 'static, shared: Arc<StageLoop>) -> Result<Self> {
        let (ask, asked) = sync_channel(1);
        Self::spawn(ask, shared, move |shared, frames| {
            while asked.recv().is_ok() {
                let Some(job) = read(&mut source, shared) else { break };
                if frames.push(job, || true).is_err() {
                    break;
                }
            }
        })
    }

    fn spawn(
        ask: SyncSender<()>,
        shared: Arc<StageLoop>,
        run: impl FnOnce(&Arc<StageLoop>, &Queue<Job>) + Send + 'static,
    ) -> Result<Self> {
        let frames = Arc::new(Queue::new(1, FramePolicy::All));
        let thread = ThreadBuilder::new().name(format!("ocelli-{}", Stage::Source));
        let (on_thread, closing) = (shared.clone(), Closing(frames.clone()));
        thread.spawn(move || run(&on_thread, &closing.0)).map_err(cannot_start_thread)?;
        let waiting = frames.clone();
        let woken = shared.cancellation.on_cancel(move || waiting.wake());
        Ok(Self { ask, frames, shared, _woken: woken })
    }

    /// The next frame; `None` at the end of the stream, after an error, and when the run is cancelled.
    pub(super) fn next(&self) -> Option<Job> {
        self.ask.send(()).ok()?;
        self.frames.pop_timeout(Duration::MAX, || !self.shared.is_stopping())
    }

    /// Waits a moment for the source to be closed. A read that is still waiting then goes on without this run: its thread
    /// ends, and drops the source, when the read returns.
    pub(super) fn end(self) {
        let Self { ask, frames, .. } = self;
        drop(ask);
        let deadline = Instant::now() + PATIENCE;
        while !frames.is_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if frames.pop_timeout(left, || true).is_none() && left.is_zero() {
                tracing::debug!("the source still waits for a frame and is left behind");
                frames.close();
            }
        }
    }
}

/// Starts a thread that passes the frames of a source to the first stage.
pub(super) fn run_reader(mut source: impl Source + 'static, shared: Arc<StageLoop>) -> Result<Reader> {
    Reader::spawn(sync_channel(1).0, shared, move |shared, _| {
        let first = &shared.queues[0];
        let keeps_newest = source.info().keeps_newest;
        loop {
            if keeps_newest {
                // A frame that is read now would be older when there is room.
                first.wait_for_room(|| !shared.is_stopping());
            }
            let Some(job) = read(&mut source, shared) else { break };
            if !shared.pass_on(job, first) {
                break;
            }
        }
        first.close();
    })
}

/// Reads the next frame; `None` at the end of the stream, after an error, and when the run has ended.
fn read(source: &mut impl Source, shared: &StageLoop) -> Option<Job> {
    let has_ended = || shared.is_stopping() || shared.queues.first().is_some_and(Queue::is_closed);
    if has_ended() {
        return None;
    }
    let mut frame = Frame { image: shared.buffers.images.take(), gpu: shared.gpu, ..Frame::default() };
    let start = Instant::now();
    let found = guard(Stage::Source, || source.read_into(&mut frame));
    if has_ended() {
        // Nobody waits for this frame any more.
        return None;
    }
    match found {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) if error.kind() == ErrorKind::Cancelled && shared.is_stopping() => return None,
        Err(error) => {
            shared.fail(error);
            return None;
        }
    }
    let entered = Instant::now();
    shared.stats.stage(Stage::Source, entered.duration_since(start));
    shared.stats.frame_in(entered);
    let mut job = shared.buffers.job(frame.index, frame.time, frame.size(), entered);
    (job.image, job.on_gpu) = (Some(frame.image), frame.on_gpu);
    let is_live = source.info().live && frame.origin.is_none();
    job.outcome.captured = frame.captured.or_else(|| is_live.then(SystemTime::now));
    (job.outcome.file, job.outcome.origin) = (frame.file, frame.origin);
    Some(job)
}
