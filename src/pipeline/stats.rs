//! Statistics of a pipeline: where the time goes, how long the queues are, what was dropped.

mod histogram;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::threads::{Stage, locked};
use histogram::Histogram;

/// The distribution of a duration, in milliseconds. Quantiles are accurate to 3 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// Number of measurements.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Statistics of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageStats {
    /// The stage.
    pub stage: Stage,
    /// Time per frame, without waiting.
    #[serde(flatten)]
    pub ms: Quantiles,
    /// The fraction of the time that the stage was working, 0 to 1, the mean of its devices; near 1 for the slowest stage.
    pub busy: f64,
    /// The queue before the stage, if it has one; of several devices, that of the one that a frame was added for.
    pub queue: Option<QueueStats>,
}

/// Statistics of the queue before a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// Frames waiting now.
    pub depth: usize,
    /// Mean number of waiting frames when a frame was added, including that frame.
    pub mean: f64,
    /// The most frames that ever waited.
    pub max: usize,
    /// The number of frames that may wait.
    pub capacity: usize,
}

/// Statistics of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PipelineStats {
    /// Frames that entered.
    pub frames_in: u64,
    /// Frames that left, with their results.
    pub frames_out: u64,
    /// Frames that the detector ran on.
    pub frames_detected: u64,
    /// Frames and results that were dropped in favour of newer ones.
    pub frames_dropped: u64,
    /// Detections in all frames.
    pub detections: u64,
    /// Time since the first frame entered; stops when the pipeline ends.
    pub elapsed_s: f64,
    /// Frames that left per second, over the whole time.
    pub fps: f64,
    /// Frames that left per second, over the last few frames.
    pub fps_now: f64,
    /// From when a frame entered (it was read or pushed) to when it left (all sinks have written it, or it can be
    /// received).
    pub latency_ms: Quantiles,
    /// The part of it that a frame waits for stages that work on other frames.
    pub queued_ms: Quantiles,
    /// The stages that did any work, in order.
    pub stages: Vec<StageStats>,
}

/// The number of the last frames that `fps_now` covers.
const RECENT: usize = 32;

/// Records the statistics of a pipeline. Pass a clone to
/// [`PipelineBuilder::with_stats`](super::PipelineBuilder::with_stats) and read it at any time, also after the pipeline
/// has ended. Clones share their contents, whose size is fixed.
#[derive(Clone, Default)]
pub struct StatsRecorder(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    first_in: Option<Instant>,
    ended: Option<Instant>,
    /// Devices of the detector; 0 is one.
    devices: usize,
    /// The counts; the other fields of the statistics are computed from what follows.
    counts: PipelineStats,
    latency: Histogram,
    queued: Histogram,
    /// The time of each stage in milliseconds, smoothed over the last frames.
    recent_ms: [f64; Stage::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    queues: [Option<QueueRecord>; Stage::ALL.len()],
    /// The times when the last frames left.
    recent: VecDeque<Instant>,
}

#[derive(Clone, Copy)]
struct QueueRecord {
    stats: QueueStats,
    added: u64,
    sum: u64,
}

impl QueueRecord {
    fn new(capacity: usize, depth: usize) -> Self {
        Self { stats: QueueStats { capacity, depth, ..QueueStats::default() }, added: 0, sum: 0 }
    }
}

impl StatsRecorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// The statistics so far.
    pub fn snapshot(&self) -> PipelineStats {
        let records = locked(&self.0);
        let until = records.ended.unwrap_or_else(Instant::now);
        let elapsed = records.first_in.map_or(0.0, |first| until.duration_since(first).as_secs_f64());
        let per_second = |count: f64, seconds: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let recent = &records.recent;
        let fps_now = recent.front().zip(recent.back()).map_or(0.0, |(first, last)| {
            per_second((recent.len() - 1) as f64, last.duration_since(*first).as_secs_f64())
        });
        let stages = Stage::ALL.into_iter().filter(|&stage| records.stages[stage as usize].count > 0);
        let stages = stages.map(|stage| {
            let histogram = &records.stages[stage as usize];
            let busy = histogram.sum_ms / 1e3 / stage.parallel(records.devices);
            let busy = per_second(busy, elapsed).min(1.0);
            let queue = records.queues[stage as usize].map(|queue| queue.stats);
            StageStats { stage, ms: histogram.quantiles(), busy, queue }
        });
        PipelineStats {
            elapsed_s: elapsed,
            fps: per_second(records.counts.frames_out as f64, elapsed),
            fps_now,
            latency_ms: records.latency.quantiles(),
            queued_ms: records.queued.quantiles(),
            stages: stages.collect(),
            ..records.counts.clone()
        }
    }

    /// Starts over, to exclude a warm-up from the statistics. Frames in flight count as leaving, but not as entering.
    pub fn restart(&self) {
        let mut records = locked(&self.0);
        let restart = |queue: QueueRecord| QueueRecord::new(queue.stats.capacity, queue.stats.depth);
        let queues = records.queues.map(|queue| queue.map(restart));
        *records = Records { queues, devices: records.devices, ..Records::default() };
    }

    pub(crate) fn frame_in(&self, at: Instant) {
        let mut records = locked(&self.0);
        records.first_in.get_or_insert(at);
        records.counts.frames_in += 1;
    }

    pub(crate) fn stage(&self, stage: Stage, took: Duration) {
        let mut records = locked(&self.0);
        records.stages[stage as usize].add(took);
        let (recent, ms) = (&mut records.recent_ms[stage as usize], took.as_secs_f64() * 1e3);
        *recent = if *recent > 0.0 { 0.8 * *recent + 0.2 * ms } else { ms };
        drop(records);
        tracing::trace!(%stage, ms = took.as_secs_f64() * 1e3, "stage");
    }

    pub(crate) fn devices(&self, devices: usize) {
        locked(&self.0).devices = devices;
    }

    pub(super) fn queue(&self, stage: Stage, capacity: usize) {
        locked(&self.0).queues[stage as usize] = Some(QueueRecord::new(capacity, 0));
    }

    pub(super) fn queued(&self, stage: Stage, depth: usize) {
        if let Some(queue) = &mut locked(&self.0).queues[stage as usize] {
            queue.added += 1;
            queue.sum += depth as u64;
            queue.stats.depth = depth;
            queue.stats.max = queue.stats.max.max(depth);
            queue.stats.mean = queue.sum as f64 / queue.added as f64;
        }
    }

    pub(super) fn unqueued(&self, stage: Stage, depth: usize) {
        if let Some(queue) = &mut locked(&self.0).queues[stage as usize] {
            queue.stats.depth = depth;
        }
    }

    pub(super) fn frame_dropped(&self) {
        locked(&self.0).counts.frames_dropped += 1;
    }

    /// A result was dropped before it was received; it had been recorded as leaving.
    pub(super) fn result_dropped(&self) {
        let mut records = locked(&self.0);
        records.counts.frames_dropped += 1;
        records.counts.frames_out -= 1;
    }

    pub(crate) fn frame_out(&self, age: Duration, waited: Duration, detected: bool, detections: usize) {
        let mut records = locked(&self.0);
        if records.recent.len() == RECENT {
            records.recent.pop_front();
        }
        records.recent.push_back(Instant::now());
        records.counts.frames_out += 1;
        records.counts.frames_detected += u64::from(detected);
        records.counts.detections += detections as u64;
        records.latency.add(age);
        records.queued.add(waited);
    }

    /// Number of frames in flight that keep the slowest stage busy, of those from `first` on: the times of all over its own,
    /// rounded up. Several devices share the frames of their stages.
    pub(super) fn frames_to_keep_busy(&self, first: Stage) -> usize {
        let records = locked(&self.0);
        let stages = Stage::ALL[first as usize..].iter().zip(&records.recent_ms[first as usize..]);
        let slowest =
            stages.fold(0.0, |most: f64, (stage, ms)| most.max(ms / stage.parallel(records.devices)));
        let sum: f64 = records.recent_ms[first as usize..].iter().sum();
        if slowest > 0.0 { (sum / slowest).ceil() as usize } else { records.devices.max(1) }
    }

    pub(crate) fn end(&self) {
        locked(&self.0).ended.get_or_insert_with(Instant::now);
    }
}

debug_as!(StatsRecorder, it => "StatsRecorder({:?})", it.snapshot());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_counts_what_was_recorded() {
        let stats = StatsRecorder::new();
        assert_eq!(stats.snapshot(), PipelineStats::default());
        let start = Instant::now();
        stats.queue(Stage::Backbone, 2);
        for depth in [1, 2] {
            stats.frame_in(start);
            stats.queued(Stage::Backbone, depth);
            stats.stage(Stage::Backbone, Duration::from_millis(20));
            stats.frame_out(start.elapsed(), Duration::ZERO, depth == 1, 3);
        }
        stats.unqueued(Stage::Backbone, 0);
        stats.frame_dropped();
        stats.end();
        let seen = stats.snapshot();
        assert_eq!((seen.frames_in, seen.frames_out, seen.frames_detected), (2, 2, 1));
        assert_eq!((seen.frames_dropped, seen.detections, seen.latency_ms.n), (1, 6, 2));
        assert_eq!(seen.stages.len(), 1, "only the backbone did any work");
        let backbone = &seen.stages[0];
        assert_eq!(backbone.queue, Some(QueueStats { depth: 0, mean: 1.5, max: 2, capacity: 2 }));
        assert!((backbone.ms.p50 / 20.0 - 1.0).abs() < 0.03, "{:?}", backbone.ms);
        assert_eq!(stats.snapshot(), seen, "the clock stops when the pipeline ends");
        stats.restart();
        assert_eq!(stats.snapshot(), PipelineStats::default());
        stats.stage(Stage::Backbone, Duration::from_millis(1));
        let queue = stats.snapshot().stages[0].queue.expect("the queue survives a restart");
        assert_eq!((queue.max, queue.capacity), (0, 2));
    }
}
