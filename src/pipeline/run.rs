//! A stream from its source to its sinks.

use std::io;
use std::sync::Arc;
use std::thread::{Builder as ThreadBuilder, Scope};
use std::time::Instant;

use super::FramePolicy;
use super::builder::{Observer, PipelineBuilder, RunSummary};
use super::control::{Control, Job, Pools};
use super::queue::Queue;
use super::stages::{Shared, Stages};
use super::stats::Stage;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::sink::{Pictures, Sink};
use crate::source::Source;

/// Stages with a queue before them.
const QUEUES: usize = 5;

/// What every thread of a run looks at.
struct Run {
    control: Control,
    shared: Shared,
    policy: FramePolicy,
    max_frames: Option<u64>,
}

/// The queues before preprocessing, backbone, encoder-decoder, drawing and sinks.
struct Queues([Queue<Job>; QUEUES]);

pub(super) fn run(
    mut builder: PipelineBuilder,
    source: impl Source,
    sinks: &mut [Box<dyn Sink + '_>],
) -> Result<RunSummary> {
    let info = source.info();
    let policy = builder.policy.unwrap_or(match info.live {
        true => FramePolicy::Latest,
        false => FramePolicy::All,
    });
    let frame_rate = builder.frame_rate.or(info.frame_rate.filter(|rate| rate.is_finite() && *rate > 0.0));
    let pictures = sinks.iter().map(Sink::pictures).fold(Pictures::default(), |all, one| Pictures {
        clean: all.clean || one.clean,
        annotated: all.annotated || one.annotated,
    });
    let depth = builder.depth(policy);
    // In each queue and in each stage, and twice a picture that is drawn into.
    let pools = Arc::new(Pools::new(2 * (depth + 1) * (QUEUES + 1)));
    let stats = builder.stats.clone();
    let shared = Shared { pools, stats: stats.clone() };
    let control = Control::new(builder.cancellation.clone());
    let run = Run { control, shared: shared.clone(), policy, max_frames: builder.max_frames };
    let sequential = builder.sequential;
    let mut observer = builder.observer.take();
    let stages = Stages::new(builder, frame_rate, pictures, &shared)?;

    let mut output = Output { sinks, observer: &mut observer, run: &run };
    if sequential {
        run.one_thread(source, stages, &mut output);
        output.finish();
    } else if let Err(error) = run.threads(source, stages, depth, &mut output) {
        run.control
            .fail(Error::new(ErrorKind::Io, format!("cannot start a thread: {error}")).with_source(error));
    }
    stats.end();
    let stats = stats.snapshot();
    tracing::debug!(
        frames = stats.frames_out,
        dropped = stats.frames_dropped,
        fps = stats.fps,
        latency_p50_ms = stats.latency_ms.p50,
        latency_p99_ms = stats.latency_ms.p99,
        "the loop has ended"
    );
    match run.control.error() {
        Some(error) => Err(error),
        None => Ok(RunSummary { cancelled: run.control.cancellation.is_cancelled(), stats }),
    }
}

impl Run {
    /// Everything in turn.
    fn one_thread(&self, mut source: impl Source, mut stages: Stages, output: &mut Output<'_, '_>) {
        let mut frames = 0;
        while let Some(mut job) = self.read(&mut source, &mut frames) {
            let control = &self.control;
            let done = control
                .guard(Stage::Preprocess, || stages.preprocess.run_picture(&mut job, false))
                .and_then(|()| control.guard(Stage::Backbone, || stages.backbone.run(&mut job)))
                .and_then(|()| control.guard(Stage::Decode, || stages.decode.run(&mut job)))
                .and_then(|()| control.guard(Stage::Draw, || stages.draw.run(&mut job)))
                .and_then(|()| output.take(job));
            if let Err(error) = done {
                control.fail(error);
                break;
            }
        }
    }

    /// Each stage on a thread of its own, the sinks on this one.
    fn threads(
        &self,
        source: impl Source,
        stages: Stages,
        depth: usize,
        output: &mut Output<'_, '_>,
    ) -> io::Result<()> {
        let first = match self.policy {
            FramePolicy::All => depth,
            FramePolicy::Latest => 1,
        };
        let stats = &self.shared.stats;
        let queue = |stage, capacity| Queue::before(stage, capacity, stats);
        let queues = Queues([
            queue(Stage::Preprocess, first),
            queue(Stage::Backbone, depth),
            queue(Stage::Decode, depth),
            queue(Stage::Draw, depth),
            queue(Stage::Sinks, depth),
        ]);
        let queues = &queues;
        std::thread::scope(|scope| {
            let started = self.start(scope, source, stages, queues);
            if started.is_err() {
                queues.close();
            }
            while let Some(job) = queues.0[4].pop() {
                if let Err(error) = output.take(job) {
                    self.control.fail(error);
                    queues.close();
                    break;
                }
            }
            // Before the threads are waited for: a source may take its time to come back.
            output.finish();
            started
        })
    }

    fn start<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        mut source: impl Source + 'scope,
        stages: Stages,
        queues: &'env Queues,
    ) -> io::Result<()> {
        let Stages { mut preprocess, mut backbone, mut decode, mut draw } = stages;
        let thread = |stage: Stage| ThreadBuilder::new().name(format!("ocelli-{stage}"));
        thread(Stage::Source).spawn_scoped(scope, move || self.source_thread(&mut source, queues))?;
        thread(Stage::Preprocess).spawn_scoped(scope, move || {
            let is_latest = self.policy == FramePolicy::Latest;
            self.stage_thread(Stage::Preprocess, 0, queues, |job| {
                let is_replacing = is_latest && queues.0[1].is_full() && queues.0[1].any(|job| job.detect);
                preprocess.run_picture(job, is_replacing)
            });
        })?;
        thread(Stage::Backbone).spawn_scoped(scope, move || {
            self.stage_thread(Stage::Backbone, 1, queues, |job| backbone.run(job));
        })?;
        thread(Stage::Decode).spawn_scoped(scope, move || {
            self.stage_thread(Stage::Decode, 2, queues, |job| decode.run(job));
        })?;
        thread(Stage::Draw).spawn_scoped(scope, move || {
            self.stage_thread(Stage::Draw, 3, queues, |job| draw.run(job));
        })?;
        Ok(())
    }

    fn source_thread(&self, source: &mut impl Source, queues: &Queues) {
        let mut frames = 0;
        while let Some(job) = self.read(source, &mut frames) {
            if !self.hand_on(job, &queues.0[0], self.policy) {
                break;
            }
        }
        queues.0[0].close();
    }

    /// Takes frames from the queue at `position` to the next one.
    fn stage_thread(
        &self,
        stage: Stage,
        position: usize,
        queues: &Queues,
        mut work: impl FnMut(&mut Job) -> Result<()>,
    ) {
        let (input, output) = (&queues.0[position], &queues.0[position + 1]);
        // The newest frame counts up to the backbone; what it has seen is worth its while.
        let policy = if stage == Stage::Preprocess { self.policy } else { FramePolicy::All };
        while let Some(mut job) = input.pop() {
            if stage != Stage::Draw && self.control.is_stopping() {
                self.shared.pools.recycle(job);
                continue;
            }
            if let Err(error) = self.control.guard(stage, || work(&mut job)) {
                self.control.fail(error);
                // Nothing more comes through here; what is behind goes on to its end.
                queues.0[..=position].iter().for_each(Queue::close);
                break;
            }
            if !self.hand_on(job, output, policy) {
                break;
            }
        }
        input.close();
        output.close();
    }

    /// Whether the queue took the frame; it does not where what comes after has ended.
    fn hand_on(&self, job: Job, queue: &Queue<Job>, policy: FramePolicy) -> bool {
        match policy {
            FramePolicy::All => {
                queue.push(job, || true).map_err(|job| self.shared.pools.recycle(job)).is_ok()
            }
            FramePolicy::Latest => match queue.push_latest(job) {
                Ok(None) => true,
                Ok(Some(replaced)) => {
                    self.shared.stats.dropped();
                    self.shared.pools.recycle(replaced);
                    true
                }
                Err(job) => {
                    self.shared.pools.recycle(job);
                    false
                }
            },
        }
    }

    /// The source's next frame; none at its end, where it fails, and when nobody wants more.
    fn read(&self, source: &mut impl Source, frames: &mut u64) -> Option<Job> {
        if self.control.is_stopping() || self.max_frames.is_some_and(|most| *frames >= most) {
            return None;
        }
        let mut frame = Frame { image: self.shared.pools.pictures.take(), ..Frame::default() };
        let start = Instant::now();
        match self.control.guard(Stage::Source, || source.read_into(&mut frame)) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) if error.kind() == ErrorKind::Cancelled && self.control.is_stopping() => return None,
            Err(error) => {
                self.control.fail(error);
                return None;
            }
        }
        *frames += 1;
        let entered = Instant::now();
        self.shared.stats.stage(Stage::Source, entered.duration_since(start));
        self.shared.stats.frame_in(entered);
        let size = (frame.image.width(), frame.image.height());
        let mut job = self.shared.pools.job(frame.index, frame.time, size, entered);
        job.picture = Some(frame.image);
        Some(job)
    }
}

impl Queues {
    fn close(&self) {
        self.0.iter().for_each(Queue::close);
    }
}

/// The end of the way: sinks and observer.
struct Output<'r, 's> {
    sinks: &'r mut [Box<dyn Sink + 's>],
    observer: &'r mut Option<Observer>,
    run: &'r Run,
}

impl Output<'_, '_> {
    fn take(&mut self, mut job: Job) -> Result<()> {
        let Run { control, shared, .. } = self.run;
        let start = Instant::now();
        let outcome = &mut job.outcome;
        outcome.times.total = start.duration_since(job.entered).as_secs_f64() * 1e3;
        let outcome = &job.outcome;
        for sink in self.sinks.iter_mut() {
            control.guard(Stage::Sinks, || sink.write(outcome))?;
        }
        shared.stats.stage(Stage::Sinks, start.elapsed());
        shared.stats.frame_out(job.entered, outcome.detected, outcome.detections.len());
        tracing::debug!(
            frame = outcome.index,
            detections = outcome.detections.len(),
            tracks = outcome.tracks.len(),
            ms = outcome.times.total,
            "frame"
        );
        if let Some(observer) = self.observer {
            control.guard(Stage::Sinks, || {
                observer(outcome);
                Ok(())
            })?;
        }
        shared.pools.recycle(job);
        Ok(())
    }

    fn finish(&mut self) {
        for sink in self.sinks.iter_mut() {
            if let Err(error) = self.run.control.guard(Stage::Sinks, || sink.finish()) {
                self.run.control.fail(error);
            }
        }
    }
}
