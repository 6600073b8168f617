//! What a loop says of itself: where the time goes, what waits, what was dropped.

mod histogram;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use histogram::Histogram;

/// The stages of the loop, in the order in which a frame walks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Reading, and for files decoding, the frame.
    Source,
    /// Pixels to the backbone's input.
    Preprocess,
    /// The image backbone.
    Backbone,
    /// Encoder-decoder, thresholds, suppression, masks.
    Decode,
    /// The tracker; on the thread of [`Decode`](Self::Decode).
    Track,
    /// Drawing, where a sink asks for it.
    Draw,
    /// All sinks together.
    Sinks,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 7] =
        [Self::Source, Self::Preprocess, Self::Backbone, Self::Decode, Self::Track, Self::Draw, Self::Sinks];

    /// Its name in statistics: `backbone`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Preprocess => "preprocess",
            Self::Backbone => "backbone",
            Self::Decode => "decode",
            Self::Track => "track",
            Self::Draw => "draw",
            Self::Sinks => "sinks",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Durations of one kind in milliseconds; quantiles are within 3 % of the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
    /// The longest.
    pub max: f64,
}

/// One stage's work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageStats {
    /// Which.
    pub stage: Stage,
    /// How long a frame took in it, waiting not counted.
    #[serde(flatten)]
    pub ms: Quantiles,
    /// Which part of the time it was at work, 0 to 1: the slowest stage is near 1.
    pub busy: f64,
    /// What waits before it; nothing for a stage without a queue.
    pub queue: Option<QueueStats>,
}

/// What waits before a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueStats {
    /// Frames that wait now.
    pub depth: usize,
    /// How many waited when a frame was added, that one included, in the mean.
    pub mean: f64,
    /// The most that ever waited.
    pub max: usize,
    /// How many may wait.
    pub capacity: usize,
}

/// What a loop has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PipelineStats {
    /// Frames that came in.
    pub frames_in: u64,
    /// Frames that left, with their results.
    pub frames_out: u64,
    /// Frames that the detector looked at.
    pub frames_detected: u64,
    /// Frames, or results, that newer ones took the place of.
    pub frames_dropped: u64,
    /// Everything found in all frames.
    pub detections: u64,
    /// Since the first frame came in; until the last one left, where the loop has ended.
    pub elapsed_s: f64,
    /// Frames that left a second, over all of that time.
    pub fps: f64,
    /// Frames that left a second, over the last few.
    pub fps_now: f64,
    /// From a frame's coming in (it was read, or pushed) to its leaving (all sinks have it, or it can be taken).
    pub latency_ms: Quantiles,
    /// The stages that had something to do, in order.
    pub stages: Vec<StageStats>,
}

/// How many moments of leaving `fps_now` looks at.
const RECENT: usize = 32;

/// Counts and times of one loop: given to [`PipelineBuilder::with_stats`](super::PipelineBuilder::with_stats), it can
/// be read while the loop runs and after, however it ended. Clones share their contents; its size is fixed.
#[derive(Clone, Default)]
pub struct StatsRecorder(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    first_in: Option<Instant>,
    ended: Option<Instant>,
    frames_in: u64,
    frames_out: u64,
    frames_detected: u64,
    frames_dropped: u64,
    detections: u64,
    latency: Histogram,
    stages: [Histogram; Stage::ALL.len()],
    queues: [Option<QueueRecord>; Stage::ALL.len()],
    /// When the last frames left, as a ring.
    recent: [Option<Instant>; RECENT],
    /// Where the next one goes.
    next_recent: usize,
}

#[derive(Clone, Copy, Default)]
struct QueueRecord {
    depth: usize,
    added: u64,
    sum: u64,
    max: usize,
    capacity: usize,
}

impl StatsRecorder {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What has happened so far.
    pub fn snapshot(&self) -> PipelineStats {
        let records = self.lock();
        let until = records.ended.unwrap_or_else(Instant::now);
        let elapsed =
            records.first_in.map_or(Duration::ZERO, |first| until.duration_since(first)).as_secs_f64();
        let per_second = |frames: f64, seconds: f64| if seconds > 0.0 { frames / seconds } else { 0.0 };
        let (mut earliest, mut latest, mut recent) = (None, None, 0);
        for moment in records.recent.iter().flatten() {
            earliest = Some(earliest.map_or(*moment, |e: Instant| e.min(*moment)));
            latest = Some(latest.map_or(*moment, |l: Instant| l.max(*moment)));
            recent += 1;
        }
        let fps_now = match (earliest, latest) {
            (Some(earliest), Some(latest)) => {
                per_second(f64::from(recent - 1), latest.duration_since(earliest).as_secs_f64())
            }
            _ => 0.0,
        };
        let stages = Stage::ALL.into_iter().filter(|&stage| records.stages[stage as usize].count() > 0);
        let stages = stages.map(|stage| {
            let histogram = &records.stages[stage as usize];
            let queue = records.queues[stage as usize].map(|queue| QueueStats {
                depth: queue.depth,
                mean: if queue.added > 0 { queue.sum as f64 / queue.added as f64 } else { 0.0 },
                max: queue.max,
                capacity: queue.capacity,
            });
            let busy = per_second(histogram.sum_ms() / 1e3, elapsed).min(1.0);
            StageStats { stage, ms: histogram.quantiles(), busy, queue }
        });
        PipelineStats {
            frames_in: records.frames_in,
            frames_out: records.frames_out,
            frames_detected: records.frames_detected,
            frames_dropped: records.frames_dropped,
            detections: records.detections,
            elapsed_s: elapsed,
            fps: per_second(records.frames_out as f64, elapsed),
            fps_now,
            latency_ms: records.latency.quantiles(),
            stages: stages.collect(),
        }
    }

    /// Begins anew, as if nothing had happened yet: what was measured while everything warmed up does not count. Frames
    /// on their way then are counted when they leave, though not as having come in.
    pub fn restart(&self) {
        let mut records = self.lock();
        let queues = records.queues.map(|queue| {
            queue.map(|QueueRecord { depth, capacity, .. }| QueueRecord {
                depth,
                capacity,
                ..QueueRecord::default()
            })
        });
        *records = Records { queues, ..Records::default() };
    }

    /// A poisoned lock is taken all the same: the numbers are good after each single write.
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn frame_in(&self, at: Instant) {
        let mut records = self.lock();
        records.first_in.get_or_insert(at);
        records.frames_in += 1;
    }

    pub(super) fn stage(&self, stage: Stage, took: Duration) {
        self.lock().stages[stage as usize].add(took);
        tracing::trace!(stage = stage.name(), ms = took.as_secs_f64() * 1e3, "stage");
    }

    pub(super) fn queue(&self, stage: Stage, capacity: usize) {
        self.lock().queues[stage as usize] = Some(QueueRecord { capacity, ..QueueRecord::default() });
    }

    pub(super) fn queued(&self, stage: Stage, depth: usize) {
        if let Some(queue) = &mut self.lock().queues[stage as usize] {
            queue.depth = depth;
            queue.added += 1;
            queue.sum += depth as u64;
            queue.max = queue.max.max(depth);
        }
    }

    pub(super) fn unqueued(&self, stage: Stage, depth: usize) {
        if let Some(queue) = &mut self.lock().queues[stage as usize] {
            queue.depth = depth;
        }
    }

    pub(super) fn dropped(&self) {
        self.lock().frames_dropped += 1;
    }

    /// A frame had left, but nobody took its results in time.
    pub(super) fn result_dropped(&self) {
        let mut records = self.lock();
        records.frames_dropped += 1;
        records.frames_out -= 1;
    }

    pub(super) fn frame_out(&self, entered: Instant, detected: bool, detections: usize) {
        let now = Instant::now();
        let latency = now.duration_since(entered);
        let mut records = self.lock();
        let next = records.next_recent;
        records.recent[next] = Some(now);
        records.next_recent = (next + 1) % RECENT;
        records.frames_out += 1;
        records.frames_detected += u64::from(detected);
        records.detections += detections as u64;
        records.latency.add(latency);
    }

    pub(super) fn end(&self) {
        self.lock().ended.get_or_insert_with(Instant::now);
    }
}

impl fmt::Debug for StatsRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatsRecorder").field(&self.snapshot()).finish()
    }
}

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
            stats.frame_out(start, depth == 1, 3);
        }
        stats.unqueued(Stage::Backbone, 0);
        stats.dropped();
        stats.end();
        let seen = stats.snapshot();
        assert_eq!((seen.frames_in, seen.frames_out, seen.frames_detected), (2, 2, 1));
        assert_eq!((seen.frames_dropped, seen.detections, seen.latency_ms.n), (1, 6, 2));
        assert_eq!(seen.stages.len(), 1, "only the backbone had something to do");
        let backbone = &seen.stages[0];
        assert_eq!(backbone.queue, Some(QueueStats { depth: 0, mean: 1.5, max: 2, capacity: 2 }));
        assert!((backbone.ms.p50 / 20.0 - 1.0).abs() < 0.03, "{:?}", backbone.ms);
        assert_eq!(stats.snapshot(), seen, "the clock stands once the loop has ended");
        stats.restart();
        assert_eq!(stats.snapshot(), PipelineStats::default());
        stats.stage(Stage::Backbone, Duration::from_millis(1));
        let queue = stats.snapshot().stages[0].queue.expect("it is still there");
        assert_eq!((queue.max, queue.capacity), (0, 2));
    }
}
