//! What is said while frames go by.

use std::time::{Duration, Instant};

use crate::{LogArgs, Progress};
use ocelli::{SourceInfo, StatsRecorder};

/// From one change of the words to the next.
const REFRESH: Duration = Duration::from_millis(200);

/// A bar with frames per second where the end is known, else a status line.
pub struct LiveProgress {
    progress: Progress,
    stats: StatsRecorder,
    live: bool,
    said: Option<Instant>,
}

impl LiveProgress {
    /// Shows how a stream goes on; hidden with `--quiet`, and where stderr is no terminal.
    pub fn new(log: &LogArgs, info: &SourceInfo, stats: &StatsRecorder) -> Self {
        let progress = match info.frame_count {
            Some(frames) if !info.live => Progress::new(log, frames),
            _ => Progress::waiting(log),
        };
        Self { progress, stats: stats.clone(), live: info.live, said: None }
    }

    /// One frame is done.
    pub fn frame(&mut self) {
        self.progress.step();
        if self.said.is_some_and(|said| said.elapsed() < REFRESH) {
            return;
        }
        self.said = Some(Instant::now());
        let stats = self.stats.snapshot();
        let mut line = format!("{:.1} FPS", stats.fps_now);
        if self.live {
            let latency = stats.latency_ms.p50;
            line = format!(
                "frame {}, {line}, {} dropped, {latency:.0} ms late",
                stats.frames_out, stats.frames_dropped
            );
        } else if stats.frames_dropped > 0 {
            line = format!("{line}, {} dropped", stats.frames_dropped);
        }
        self.progress.message(&line);
    }
}
