//! `--benchmark`: the speed of each engine on this machine, one stage at a time and pipelined.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ocelli::classes::ClassMap;
use ocelli::pipeline::{PipelineStats, Stage, StatsRecorder};
use ocelli::{Cancellation, EngineKind, Pipeline, Prompts, locked};
use ocelli_datasets::table::{columns, row};

use super::{SourceArgs, VideoArgs, options};
use crate::{detector, interrupted, load, print, status};

/// Frames before the measurement.
const WARM_UP: u64 = 10;
/// Frames that are measured.
const FRAMES: u64 = 60;
/// It compiles a model for minutes, so it runs only when named.
const SLOW_TO_START: &str = "tensorrt";

struct Times {
    fps: f64,
    stats: PipelineStats,
}

impl Times {
    fn median(&self, stage: Stage) -> f64 {
        self.stats.stages.iter().find(|one| one.stage == stage).map_or(0.0, |one| one.ms.p50)
    }
}

/// Measures the named engine, or each that starts, on the first frames of the source.
pub fn run(
    args: &VideoArgs,
    classes: &ClassMap,
    prompts: &Prompts,
    source: &SourceArgs,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let model = &args.detector.model;
    let names: Vec<&str> = if model.engine != "auto" || model.trt.is_some() {
        vec![model.engine.as_str()]
    } else {
        let all = EngineKind::NAMES.into_iter();
        all.filter(|name| !["auto", SLOW_TO_START].contains(name)).collect()
    };
    let warm_up = args.dart.warmup.unwrap_or(WARM_UP);
    let frames = source.max_frames.unwrap_or(FRAMES).max(2);
    let source = SourceArgs { max_frames: Some(warm_up + frames), ..source.clone() };
    let mut rows = Vec::new();
    for name in &names {
        let mut asked = args.detector.clone();
        (*name).clone_into(&mut asked.model.engine);
        let measure = |sequential: bool| -> anyhow::Result<(String, Times)> {
            let (mut detector, loading) = load(detector(options(args, asked.options()?, classes)?)?)?;
            let embedded = detector.prepare(prompts)?;
            drop(loading);
            let engine = detector.engine().to_owned();
            let stats = StatsRecorder::new();
            let ends = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&ends);
            let labels: Vec<&str> = classes.names().collect();
            let newest = Some(false).filter(|_| args.policy.is_none());
            let opened = source.open(&labels, newest, cancellation)?;
            Pipeline::builder_embedded(detector, embedded)
                .with_sequential(sequential)
                .with_cancellation(cancellation.clone())
                .with_stats(stats.clone())
                .with_observer(move |_| {
                    locked(&noted).push(Instant::now());
                })
                .run(opened.source, &mut [])?;
            interrupted()?;
            let ends = locked(&ends);
            let fps = frames_per_second(&ends, warm_up as usize)?;
            Ok((engine, Times { fps, stats: stats.snapshot() }))
        };
        let measured =
            measure(true).and_then(|(engine, sequential)| Ok((engine, [sequential, measure(false)?.1])));
        match measured {
            Ok(row) => rows.push(row),
            Err(error) if names.len() == 1 || cancellation.is_cancelled() => return Err(error),
            Err(error) => status(format!("{name} is not measured: {error}")),
        }
    }
    let table = table(&rows, frames, prompts.len());
    print(|out| out.write_all(table.as_bytes()))
}

/// The frames per second after the first ones.
fn frames_per_second(ends: &[Instant], warm_up: usize) -> anyhow::Result<f64> {
    match ends.get(warm_up..) {
        Some([first, .., last]) => {
            Ok((ends.len() - warm_up - 1) as f64 / last.duration_since(*first).as_secs_f64().max(1e-9))
        }
        _ => anyhow::bail!(
            "--benchmark: the source has {} frames, expected at least {} (--warmup {warm_up}, and two to measure)",
            ends.len(),
            warm_up + 2
        ),
    }
}

/// The table of engines with their times, one stage at a time and pipelined.
fn table(measured: &[(String, [Times; 2])], frames: u64, classes: usize) -> String {
    let mut rows =
        vec![row("engine", ["backbone ms", "decode ms", "sequential FPS", "pipelined FPS", "gain"])];
    rows.extend(measured.iter().map(|(engine, [sequential, pipelined])| {
        let stages = [Stage::Backbone, Stage::Decode].map(|stage| sequential.median(stage));
        let numbers = stages.into_iter().chain([sequential.fps, pipelined.fps]);
        let gain = format!("{:.2}x", pipelined.fps / sequential.fps);
        row(engine, numbers.map(|number| format!("{number:.1}")).chain([gain]))
    }));
    let classes = if classes == 1 { "1 class".to_owned() } else { format!("{classes} classes") };
    columns(&rows, 1) + &format!("{frames} frames, {classes}; times of stages are medians\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn warm_up_frames_do_not_count() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ends = [at(0), at(1000), at(1100), at(1200), at(1300)];
        let fps = frames_per_second(&ends, 1).expect("there are enough");
        assert!((fps - 10.0).abs() < 1e-6, "{fps}");
        let error = frames_per_second(&ends, 4).expect_err("one frame is no interval");
        assert!(error.to_string().contains("5 frames, expected at least 6"), "{error}");
    }
}
