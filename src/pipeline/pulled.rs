//! A pipeline that pulls frames from a source and writes results to sinks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::gate::Gate;
use super::job::Job;
use super::options::PipelineOptions;
use super::queue::Queue;
use super::reader::{Reader, run_reader};
use super::stage_loop::{StageLoop, StageWork, join};
use super::stages::{DrawStage, Drawing, Loaded, into_stages, queues_of, work_of};
use super::stats::{PipelineStats, StatsRecorder};
use super::{FramePolicy, Latency};
use crate::cancellation::Cancellation;
use crate::draw::Redaction;
use crate::outcome::FrameOutcome;
use crate::sink::{Images, Sink};
use crate::source::Source;
use crate::threads::{Stage, guard};
use ocelli_error::Result;

/// The settings of a run.
pub(super) struct Run {
    pub(super) options: PipelineOptions,
    pub(super) redaction: Option<Redaction>,
    pub(super) drawing: Drawing,
    pub(super) observer: Option<Observer>,
    pub(super) cancellation: Cancellation,
    pub(super) stats: StatsRecorder,
}

/// Called for each frame that all sinks have written.
pub(super) type Observer = Box<dyn FnMut(&FrameOutcome) + Send>;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunSummary {
    /// `true` if the run was [cancelled](crate::Cancellation) before the source ended. The output is complete up to the last
    /// frame that was written.
    pub cancelled: bool,
    /// The same statistics that the [`StatsRecorder`] holds.
    pub stats: PipelineStats,
}

pub(super) fn run(
    Run { options, redaction, drawing, observer, cancellation, stats }: Run,
    loaded: Loaded,
    source: impl Source + 'static,
    sinks: &mut [Box<dyn Sink + '_>],
) -> Result<RunSummary> {
    let (info, low_memory) = (source.info(), loaded.low_memory);
    let drops = info.live && !info.keeps_newest;
    let policy = options.policy.unwrap_or(if drops { FramePolicy::Latest } else { FramePolicy::All });
    let frame_rate = options.frame_rate.or(info.frame_rate.filter(|rate| rate.is_finite() && *rate > 0.0));
    let images = sinks.iter().map(|sink| sink.images()).fold(Images::default(), |all, one| all | one);
    let draws = images != Images::default();

    let latency = options.latency.unwrap_or(if info.live { Latency::Balanced } else { Latency::Throughput });
    let in_turn = options.sequential || low_memory || latency == Latency::Low;
    let depth = options.depth(policy, latency);
    let first = if policy == FramePolicy::Latest { 1 } else { depth };
    let devices = loaded.devices.len();
    // The place of a frame in the order is then fixed when it is preprocessed.
    let in_order = devices > 1 || loaded.memory.is_some();
    let queue = |stage, capacity, policy| Queue::before(stage, capacity, policy, &stats);
    let mut queues = Vec::new();
    if in_turn {
        // The newest frame waits for its turn; other frames are read when it is theirs.
        if policy == FramePolicy::Latest && !options.sequential && !low_memory {
            queues.push(queue(Stage::Preprocess, 1, policy));
        }
    } else {
        // Only frames that the backbone has not seen are dropped: later ones have cost too much.
        queues.push(queue(Stage::Preprocess, first, policy));
        let policy = if in_order { FramePolicy::All } else { policy };
        queues.extend(queues_of(devices, in_order, (depth, policy), &stats));
        if draws {
            queues.push(queue(Stage::Draw, depth, FramePolicy::All));
        }
        queues.push(queue(Stage::Sinks, depth, FramePolicy::All));
    }
    // Frames in every queue and every stage, each with a second image to draw into.
    let buffers = 2 * (depth + 1) * (queues.len() + 1);
    let mut shared = StageLoop::new(queues, buffers, devices, stats, cancellation);
    // Before the backbone the newest frame replaces older ones for as long as there is no room.
    let drops_late = policy == FramePolicy::Latest && !in_order;
    let gated = if drops_late { Stage::Backbone } else { Stage::Preprocess };
    shared.gate = (latency == Latency::Balanced && !in_turn).then(|| (gated, Gate::new()));
    shared.gpu = loaded.gpu(&options);
    let shared = Arc::new(shared);
    let _woken = shared.wake_on_cancel();

    let (mut preprocess, on_devices, track) = into_stages(loaded, &options, frame_rate, draws, &shared);
    let draw = draws.then(|| DrawStage { drawing, images, redaction, shared: shared.clone() });
    let mut output = Output { sinks, observer, shared: &shared };
    let mut stages = vec![StageWork::each(Stage::Preprocess, move |job| preprocess.run_image(job))];
    stages.extend(work_of(on_devices, track, low_memory));
    if let Some(mut draw) = draw {
        stages.push(StageWork::each(Stage::Draw, move |job| draw.run(job)));
    }
    if in_turn {
        run_in_turn(source, stages, &mut output);
    } else {
        run_threads(source, stages, &mut output);
    }
    summary(&shared)
}

/// The result of a run that has ended.
fn summary(shared: &StageLoop) -> Result<RunSummary> {
    shared.stats.end();
    let stats = shared.stats.snapshot();
    tracing::debug!(
        frames = stats.frames_out,
        dropped = stats.frames_dropped,
        fps = stats.fps,
        latency_p50_ms = stats.latency_ms.p50,
        latency_p99_ms = stats.latency_ms.p99,
        "the pipeline has ended"
    );
    match shared.error() {
        Some(error) => Err(error),
        None => Ok(RunSummary { cancelled: shared.cancellation.is_cancelled(), stats }),
    }
}

/// Processes and writes one frame after the other on this thread. If there is a queue, another thread reads into it without a
/// pause, and the newest frame is next.
fn run_in_turn(source: impl Source + 'static, mut stages: Vec<StageWork>, output: &mut Output<'_, '_>) {
    let shared = output.shared;
    let own = shared.clone();
    let reader = if own.queues.is_empty() { Reader::start(source, own) } else { run_reader(source, own) };
    let reader = reader.map_err(|error| shared.fail(error)).ok();
    let mut is_end = false;
    while let Some(reader) = &reader
        && !is_end
    {
        let newest = |newest: &Queue<Job>| newest.pop_timeout(Duration::MAX, || !shared.is_stopping());
        let mut job = shared.queues.first().map_or_else(|| reader.next(), newest);
        job = job.filter(|_| !shared.is_stopping());
        job.iter_mut().for_each(Job::taken);
        is_end = job.is_none();
        if let Err(error) = StageLoop::run_in_turn(&mut stages, job, &mut |job| output.write(job)) {
            shared.fail(error);
            is_end = true;
        }
    }
    shared.queues.first().inspect(|newest| newest.close());
    output.finish();
    reader.into_iter().for_each(Reader::end);
}

/// Runs the source and each stage on a thread of its own, and the sinks on this one.
fn run_threads(source: impl Source + 'static, stages: Vec<StageWork>, output: &mut Output<'_, '_>) {
    let shared = output.shared;
    let [first, .., last] = shared.queues.as_slice() else {
        unreachable!("there is a queue before each stage")
    };
    let fail = |error| {
        shared.fail(error);
        shared.close();
    };
    let threads = shared.start(stages).unwrap_or_else(|error| {
        fail(error);
        Vec::new()
    });
    let reader = run_reader(source, shared.clone()).map_err(fail).ok();
    loop {
        let Some(mut job) = last.pop_timeout(Duration::MAX, || !shared.is_stopping() || first.is_closed())
        else {
            if last.is_ended() {
                break;
            }
            // Cancelled: a source that waits for its next frame cannot close the first queue.
            first.close();
            continue;
        };
        job.taken();
        if let Err(error) = output.write(job) {
            fail(error);
            break;
        }
    }
    // Before anything that may take its time.
    output.finish();
    join(threads);
    reader.into_iter().for_each(Reader::end);
}

/// The sinks and the observer.
struct Output<'r, 's> {
    sinks: &'r mut [Box<dyn Sink + 's>],
    observer: Option<Observer>,
    shared: &'r Arc<StageLoop>,
}

impl Output<'_, '_> {
    fn write(&mut self, mut job: Job) -> Result<()> {
        let start = Instant::now();
        job.outcome.times.total = job.age().as_secs_f64() * 1e3;
        for sink in self.sinks.iter_mut() {
            guard(Stage::Sinks, || sink.write(&job.outcome))?;
        }
        self.shared.stats.stage(Stage::Sinks, start.elapsed());
        self.shared.record_out(&job);
        if let Some(observer) = &mut self.observer {
            guard(Stage::Sinks, || {
                observer(&job.outcome);
                Ok(())
            })?;
        }
        self.shared.buffers.recycle(job);
        Ok(())
    }

    fn finish(&mut self) {
        // What a sink waits for at its end is not time per frame.
        self.shared.stats.end();
        for sink in self.sinks.iter_mut() {
            if let Err(error) = guard(Stage::Sinks, || sink.finish()) {
                self.shared.fail(error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
