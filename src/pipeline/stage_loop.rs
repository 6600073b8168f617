//! The loop that moves frames from stage to stage, and what its threads share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::Duration;

use super::gate::Gate;
use super::job::{Buffers, Job};
use super::queue::Queue;
use super::stats::StatsRecorder;
use crate::cancellation::{CancelHook, Cancellation};
use crate::threads::{Stage, cannot_start_thread, guard, locked};
use ocelli_error::{Error, Result};

/// A stage and its work. It takes a frame, or the end of the stream, and adds those that leave it to a list, with an error
/// as well.
pub(super) struct StageWork {
    stage: Stage,
    work: Box<dyn FnMut(Option<Job>, &mut Vec<Job>) -> Result<()> + Send>,
    /// Empty between two frames.
    done: Vec<Job>,
}

impl StageWork {
    pub(super) fn new(
        stage: Stage,
        work: impl FnMut(Option<Job>, &mut Vec<Job>) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { stage, work: Box::new(work), done: Vec::new() }
    }

    /// A stage that each frame leaves at once.
    pub(super) fn each(stage: Stage, mut work: impl FnMut(&mut Job) -> Result<()> + Send + 'static) -> Self {
        Self::new(stage, move |job, done| {
            let Some(mut job) = job else { return Ok(()) };
            work(&mut job)?;
            done.push(job);
            Ok(())
        })
    }
}

/// The state that the threads of a pipeline share: its queues, its buffers, and why it ended.
pub(super) struct StageLoop {
    /// The queues in the order in which a frame passes them. Of several devices each has its own before the backbone, and its
    /// own before the decoder.
    pub(super) queues: Vec<Queue<Job>>,
    pub(super) buffers: Buffers,
    pub(super) stats: StatsRecorder,
    /// Limits the frames in flight from a stage on to what keeps the slowest of these stages busy.
    pub(super) gate: Option<(Stage, Arc<Gate>)>,
    /// The GPU that frames of a source may stay on.
    pub(super) gpu: Option<usize>,
    devices: usize,
    /// Puts frames back in order before they are tracked.
    in_order: bool,
    /// The decoders that have not ended.
    decoders: AtomicUsize,
    /// The places in the order of frames that were dropped after they had one.
    dropped: Mutex<BTreeSet<u64>>,
    pub(super) cancellation: Cancellation,
    abandoned: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// Puts the frames of several devices back in order.
#[derive(Default)]
struct InOrder {
    next: u64,
    /// Those that came before their turn.
    early: BTreeMap<u64, Job>,
}

impl InOrder {
    /// The next frame, waiting for it; `None` once it can no longer come. What was dropped is left out.
    fn pop(&mut self, input: &Queue<Job>, dropped: &Mutex<BTreeSet<u64>>) -> Option<Job> {
        let mut has_ended = false;
        loop {
            while locked(dropped).remove(&self.next) {
                self.next += 1;
            }
            if let Some(job) = self.early.remove(&self.next) {
                self.next += 1;
                return Some(job);
            }
            // A frame is noted as dropped when the one in its place may be here already.
            let is_next_dropped = || locked(dropped).contains(&self.next);
            match input.pop_timeout(Duration::MAX, || !is_next_dropped()) {
                Some(job) => _ = self.early.insert(job.turn, job),
                None if has_ended => return None,
                None => has_ended = input.is_ended(),
            }
        }
    }
}

impl StageLoop {
    /// A loop that keeps at most `buffers` buffers of each kind.
    pub(super) fn new(
        queues: Vec<Queue<Job>>,
        buffers: usize,
        devices: usize,
        stats: StatsRecorder,
        cancellation: Cancellation,
    ) -> Self {
        stats.devices(devices);
        Self {
            in_order: queues.iter().any(|queue| queue.stage() == Some(Stage::Track)),
            queues,
            buffers: Buffers::new(buffers, devices),
            stats,
            gate: None,
            gpu: None,
            devices,
            decoders: AtomicUsize::new(devices),
            dropped: Mutex::default(),
            cancellation,
            abandoned: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Starts a thread for each stage: the first takes frames from the first queue, the second from the second, and so on.
    pub(super) fn start(self: &Arc<Self>, stages: Vec<StageWork>) -> Result<Vec<JoinHandle<()>>> {
        let mut threads = Vec::with_capacity(stages.len());
        for (position, work) in stages.into_iter().enumerate() {
            let (this, thread) = (self.clone(), ThreadBuilder::new().name(format!("ocelli-{}", work.stage)));
            match thread.spawn(move || this.run_stage(position, work)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.close();
                    join(threads);
                    return Err(cannot_start_thread(error));
                }
            }
        }
        Ok(threads)
    }

    /// Runs a stage until no more frames arrive or no more are taken.
    fn run_stage(&self, position: usize, StageWork { stage, mut work, mut done }: StageWork) {
        let (input, outputs) = (&self.queues[position], &self.queues[self.outputs(stage, position)]);
        let is_closed = || outputs.iter().any(Queue::is_closed);
        let mut order = InOrder::default();
        loop {
            let mut ticket = None;
            if let Some((_, gate)) = self.gate.as_ref().filter(|(gated, _)| *gated == stage) {
                ticket = gate
                    .enter(|| self.stats.frames_to_keep_busy(stage), || !self.is_stopping() && !is_closed());
                if ticket.is_none() && is_closed() {
                    break;
                }
            }
            let next = if stage == Stage::Track { order.pop(input, &self.dropped) } else { input.pop() };
            let next = match next {
                Some(job) if self.is_stopping() && !self.is_decoded(input) => {
                    self.buffers.recycle(job);
                    continue;
                }
                Some(mut job) => {
                    job.taken();
                    job.ticket = job.ticket.take().or(ticket);
                    Some(job)
                }
                None => None,
            };
            let mut has_ended = next.is_none();
            let worked = guard(stage, || work(next, &mut done));
            // The gate's limit depends on the times of the stages.
            self.gate.iter().for_each(|(_, gate)| gate.wake());
            if let Err(error) = worked {
                self.fail(error);
                // Earlier stages stop; later ones finish the frames that they have.
                self.queues[..=position].iter().for_each(Queue::close);
                has_ended = true;
            }
            for job in done.drain(..) {
                let output = &outputs[job.device.min(outputs.len() - 1)];
                has_ended |= !self.pass_on(job, output);
            }
            if has_ended {
                break;
            }
        }
        input.close();
        // The gate is left when no more frames are taken.
        self.wake();
        let is_last = stage != Stage::Decode || self.decoders.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last {
            outputs.iter().for_each(Queue::close);
        }
    }

    /// The queues that a stage passes frames to: one for each device from preprocessing, and one from all decoders.
    fn outputs(&self, stage: Stage, position: usize) -> Range<usize> {
        let devices = self.devices;
        match stage {
            Stage::Preprocess => position + 1..position + 1 + devices,
            Stage::Backbone => position + devices..position + devices + 1,
            // The first queue behind those of the decoders.
            Stage::Decode if devices > 1 => {
                let of_decoders = |queue: &Queue<Job>| queue.stage() == Some(Stage::Decode);
                let next = self.queues.iter().rposition(of_decoders).unwrap_or(position) + 1;
                next..next + 1
            }
            _ => position + 1..position + 2,
        }
    }

    /// Runs all stages on one frame, or on the end of the stream, on this thread. `leave` gets the frames that leave the last
    /// one.
    pub(super) fn run_in_turn(
        stages: &mut [StageWork],
        job: Option<Job>,
        leave: &mut dyn FnMut(Job) -> Result<()>,
    ) -> Result<()> {
        let Some((first, others)) = stages.split_first_mut() else { return job.map_or(Ok(()), leave) };
        let is_end = job.is_none();
        let mut done = std::mem::take(&mut first.done);
        let worked = guard(first.stage, || (first.work)(job, &mut done));
        done.drain(..).try_for_each(|job| Self::run_in_turn(others, Some(job), leave))?;
        first.done = done;
        worked?;
        if is_end { Self::run_in_turn(others, None, leave) } else { Ok(()) }
    }

    /// Adds a frame to a queue; `false` if the queue takes no more.
    pub(super) fn pass_on(&self, mut job: Job, queue: &Queue<Job>) -> bool {
        if queue.stage().is_none() {
            // Recorded before the result can be received, so that its receiver finds it in the statistics.
            job.outcome.times.total = job.age().as_secs_f64() * 1e3;
            self.record_out(&job);
            // A result that nobody has received yet does not hold up the next frame.
            job.ticket = None;
        }
        job.wait();
        match queue.push(job, || !self.is_stopping() || self.is_decoded(queue)) {
            Ok(None) => true,
            Ok(Some(dropped)) => {
                match queue.stage() {
                    Some(Stage::Backbone) if self.in_order => {
                        locked(&self.dropped).insert(dropped.turn);
                        let track = |queue: &&Queue<Job>| queue.stage() == Some(Stage::Track);
                        self.queues.iter().find(track).inspect(|queue| queue.wake());
                        self.stats.frame_dropped();
                    }
                    Some(_) => self.stats.frame_dropped(),
                    None => self.stats.result_dropped(),
                }
                self.buffers.recycle(dropped);
                true
            }
            Err(job) => {
                self.buffers.recycle(job);
                false
            }
        }
    }

    /// `true` if the frames in this queue are decoded and on their way to sinks, which get them even after cancellation.
    fn is_decoded(&self, queue: &Queue<Job>) -> bool {
        matches!(queue.stage(), Some(Stage::Track | Stage::Draw | Stage::Sinks))
    }

    /// The frame that this device was going to compute and the next frame would replace: its source's place among several, and
    /// whether it was to be searched.
    pub(super) fn would_replace(&self, device: usize) -> Option<(usize, bool)> {
        let queue = self.queues.iter().filter(|queue| queue.stage() == Some(Stage::Backbone)).nth(device)?;
        queue.would_replace(|job| {
            job.pixels.is_some().then(|| (job.outcome.source_number(), job.outcome.detected))
        })
    }

    /// Records a finished frame.
    pub(super) fn record_out(&self, job: &Job) {
        let outcome = &job.outcome;
        self.stats.frame_out(job.age(), job.waited, outcome.detected, outcome.detections.len());
        tracing::debug!(
            frame = outcome.index,
            detections = outcome.detections.len(),
            tracks = outcome.tracks.len(),
            ms = outcome.times.total,
            "frame"
        );
    }

    /// `true` if frames that are not decoded yet are of no use any more.
    pub(super) fn is_stopping(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) || self.cancellation.is_cancelled()
    }

    /// Stops because the owner of the pipeline is being dropped.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Closes all queues.
    pub(super) fn close(&self) {
        self.queues.iter().for_each(Queue::close);
        self.wake();
    }

    /// Threads that wait look again whether they should.
    fn wake(&self) {
        self.queues.iter().for_each(Queue::wake);
        self.gate.iter().for_each(|(_, gate)| gate.wake());
    }

    /// Wakes the threads that wait once the token is cancelled.
    pub(super) fn wake_on_cancel(self: &Arc<Self>) -> CancelHook {
        let this = Arc::downgrade(self);
        self.cancellation.on_cancel(move || this.upgrade().iter().for_each(|this| this.wake()))
    }

    /// Records why the pipeline ends; the first error counts.
    pub(super) fn fail(&self, error: Error) {
        tracing::debug!("the pipeline fails: {error}");
        locked(&self.failure).get_or_insert(error);
    }

    /// The error that ended the pipeline. Only the first call returns its [`source`](std::error::Error::source), which
    /// cannot be cloned.
    pub(super) fn error(&self) -> Option<Error> {
        let mut failure = locked(&self.failure);
        let error = failure.take()?;
        *failure = Some(Error::new(error.kind(), error.to_string()));
        Some(error)
    }
}

pub(super) fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // Panics were caught and reported where they happened.
        drop(thread.join());
    }
}
