//! Progress while frames are processed.

use std::time::{Duration, Instant};

use ocelli::{pipeline::StatsRecorder, source::SourceInfo};

use crate::progress::FirstImage;
use crate::{LogArgs, Progress};

/// Time between two updates of the message.
const REFRESH: Duration = Duration::from_millis(200);

/// A bar with frames per second for a source of known length, else a status line.
pub struct LiveProgress {
    progress: Progress,
    /// Until the first frame is written.
    first: Option<FirstImage>,
    stats: StatsRecorder,
    live: bool,
    updated: Option<Instant>,
}

impl LiveProgress {
    /// Hidden with `--quiet`; if stderr is not a terminal, a line now and then.
    pub fn new(log: &LogArgs, info: &SourceInfo, stats: &StatsRecorder) -> Self {
        let progress = match info.frame_count {
            Some(frames) if !info.live => Progress::new(log, frames),
            _ => Progress::waiting(log),
        };
        let first = Some(progress.first_image());
        Self { progress, first, stats: stats.clone(), live: info.live, updated: None }
    }

    /// Advances by one frame.
    pub fn frame(&mut self) {
        self.first = None;
        self.progress.step();
        if self.updated.is_some_and(|updated| updated.elapsed() < REFRESH) {
            return;
        }
        self.updated = Some(Instant::now());
        let stats = self.stats.snapshot();
        let mut line = format!("{:.1} FPS", stats.fps_now);
        if self.live {
            let latency = stats.latency_ms.p50;
            line = format!(
                "frame {}, {line}, {} dropped, latency {latency:.0} ms",
                stats.frames_out, stats.frames_dropped
            );
        } else if stats.frames_dropped > 0 {
            line = format!("{line}, {} dropped", stats.frames_dropped);
        }
        self.progress.message(&line);
    }
}
