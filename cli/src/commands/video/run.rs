//! A run: its options, what it draws and counts, and how it ends.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use image::RgbImage;
use ocelli::atomic_file::write_atomically;
use ocelli::draw::{Annotator, Overlay, OverlayOptions};
use ocelli::source::{FeedState, SeveralStates};
use ocelli::{
    Cancellation, locked,
    pipeline::{FrameOutcome, RunSummary, StatsRecorder},
    source::SourceInfo,
};
use serde_json::json;

use super::VideoArgs;
use super::sinks::Sinks;
use super::summary::{Counts, source_line, stage_table};
use super::zones::Counting;
use crate::output::{is_stdout, write_pretty_json};
use crate::{Progress, interrupted, print, status};

/// A run over a source.
pub(super) struct VideoRun<'a> {
    pub(super) args: &'a VideoArgs,
    pub(super) info: SourceInfo,
    pub(super) engine: String,
    pub(super) classes: usize,
    pub(super) stats: StatsRecorder,
    pub(super) counts: Arc<Mutex<Counts>>,
    /// The states of several sources.
    pub(super) states: Option<SeveralStates>,
    pub(super) counting: Option<Counting>,
}

impl VideoRun<'_> {
    /// Draws results into images.
    pub(super) fn drawing(
        &self,
    ) -> impl FnMut(&mut RgbImage, &FrameOutcome) -> ocelli::Result<()> + Send + use<> {
        let sinks = &self.args.sinks;
        let options =
            OverlayOptions { tracks: self.args.has_tracks(), trail_frames: sinks.trails.unwrap_or(0) };
        let mut overlay = Overlay::new(Annotator::new(), options);
        let zones = self.counting.as_ref().filter(|_| sinks.draw_zones).map(Counting::apart);
        let annotator = Annotator::new();
        move |image, outcome| {
            if let Some(zones) = &zones {
                zones.draw(&annotator, image, outcome)?;
            }
            overlay.draw(image, outcome)
        }
    }

    /// Counts and reports the frames that were written: on a bar for a source of known length, else in a status line.
    pub(super) fn observer(&self) -> impl FnMut(&FrameOutcome) + Send + use<> {
        let (counts, stats, live) = (Arc::clone(&self.counts), self.stats.clone(), self.info.live);
        let progress = match self.info.frame_count {
            Some(frames) if !live => Progress::new(frames),
            _ => Progress::waiting(),
        };
        let (mut first, mut updated) = (Some(progress.first_image()), None::<Instant>);
        move |outcome| {
            locked(&counts).add(outcome);
            drop(first.take());
            progress.step();
            if updated.is_some_and(|updated| updated.elapsed() < REFRESH) {
                return;
            }
            updated = Some(Instant::now());
            let stats = stats.snapshot();
            let mut line = format!("{:.1} FPS", stats.fps_now);
            if live {
                let latency = stats.latency_ms.p50;
                line = format!(
                    "frame {}, {line}, {} dropped, latency {latency:.0} ms",
                    stats.frames_out, stats.frames_dropped
                );
            } else if stats.frames_dropped > 0 {
                line = format!("{line}, {} dropped", stats.frames_dropped);
            }
            progress.message(&line);
        }
    }

    /// Reports how a run has ended. Finished frames are summarized even after an error.
    pub(super) fn conclude(
        &self,
        end: anyhow::Result<RunSummary>,
        sinks: &Sinks<'_>,
        cancellation: &Cancellation,
    ) -> anyhow::Result<()> {
        let end = end.and_then(|run| self.check_any_frame(&run));
        let summarized = self.summarize(sinks, cancellation, end.as_ref().err());
        end.and(summarized)?;
        interrupted()?;
        self.check_sources()
    }

    /// Reports that the source provided no frame, which is an error if a result was asked for.
    fn check_any_frame(&self, run: &RunSummary) -> anyhow::Result<()> {
        if run.stats.frames_in > 0 || run.cancelled {
            return Ok(());
        }
        let start = self.args.source.start;
        let why = start.map_or("it is empty", |_| "it ends before --start");
        let why = format!("no frame was read, {}: {why}", self.info.name);
        if self.args.sinks.is_empty() && self.args.stats.is_none() {
            status(&why);
            return Ok(());
        }
        anyhow::bail!("{why}; no result was written");
    }

    /// Reports the sources that failed, which is an error with `--strict`.
    fn check_sources(&self) -> anyhow::Result<()> {
        let states = self.states.as_ref().map(SeveralStates::snapshot).unwrap_or_default();
        let failed = states.iter().filter(|state| state.error.is_some()).count();
        if failed > 0 && self.args.strict {
            anyhow::bail!("{failed} of {} sources failed: see above", states.len());
        }
        Ok(())
    }

    /// Prints the tables and writes the file of `--stats`.
    fn summarize(
        &self,
        sinks: &Sinks<'_>,
        cancellation: &Cancellation,
        error: Option<&anyhow::Error>,
    ) -> anyhow::Result<()> {
        let stats = self.stats.snapshot();
        let counts = locked(&self.counts);
        if stats.frames_out > 0 && !sinks.stdout && !self.args.stats.as_deref().is_some_and(is_stdout) {
            if counts.is_empty() {
                status("nothing was detected");
            } else {
                print(|out| out.write_all(counts.table(self.args.has_tracks()).as_bytes()))?;
            }
            let tables = self.counting.as_ref().map(Counting::tables).unwrap_or_default();
            print(|out| out.write_all(tables.as_bytes()))?;
        }
        if stats.frames_out > 0 {
            status(stage_table(&stats));
            if self.args.when_moving.is_some() {
                let share = 100.0 * counts.still_frames as f64 / stats.frames_out as f64;
                let skipped = counts.still_frames;
                status(format!("without motion: {skipped} frames, {share:.0} %, kept their detections"));
            }
        }
        let states = self.states.as_ref().map(SeveralStates::snapshot).unwrap_or_default();
        for state in &states {
            status(source_line(state));
        }
        if let Some(path) = &self.args.stats {
            let mut report = json!({
                "video": self.info.name,
                "size": self.info.size,
                "frame_rate": self.info.frame_rate,
                "engine": self.engine,
                "classes": self.classes,
            });
            if !states.is_empty() {
                let source = |state: &FeedState| {
                    let FeedState { name, frames, dropped, error, .. } = state;
                    json!({"name": name, "frames": frames, "dropped": dropped, "error": error})
                };
                report["sources"] = states.iter().map(source).collect();
            }
            if self.args.when_moving.is_some() {
                report["frames_without_motion"] = counts.still_frames.into();
            }
            report["cancelled"] = cancellation.is_cancelled().into();
            report["error"] = error.map(ToString::to_string).into();
            for (name, value) in serde_json::to_value(&stats)?.as_object().into_iter().flatten() {
                report[name] = value.clone();
            }
            if is_stdout(path) {
                print(|out| write_pretty_json(out, &report))?;
            } else {
                write_atomically(path, |file| write_pretty_json(file, &report))?;
            }
        }
        if error.is_none() {
            let written = |path: &Path| status(format!("→ {}", path.display()));
            let stats = self.args.stats.as_deref();
            let files = self.args.sinks.outputs().map(|(_, path)| path).chain(stats);
            files.filter(|path| !is_stdout(path) && path.exists()).for_each(written);
            if self.args.sinks.is_empty() {
                status("hint: write the annotated video with -o out.mp4, or show it with --display");
            }
        }
        Ok(())
    }
}

/// Time between two updates of the message.
const REFRESH: Duration = Duration::from_millis(200);
