//! `bench devices`: the frames per second of the pipeline on one to several devices, simulated from the times of its stages.

use std::path::PathBuf;
use std::sync::Arc;

use ocelli::pipeline::StatsRecorder;
use ocelli::sink::Sink;
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Pipeline, Prompts};
use ocelli_benchmarks::EXAMPLE_CLASSES;
use ocelli_benchmarks::drawn_video::{Discard, DrawnVideo};
use ocelli_benchmarks::machine::Machine;
use ocelli_cli::{self as cli, DetectorArgs, LogArgs, interrupted};
use ocelli_tests::devices::{Simulated, StageMs, simulate};
use serde::Serialize;

use super::lines::Lines;

const FRAME_RATE: f64 = 30.0;

/// Simulates the pipeline on several devices, and writes JSON lines, one for each number of devices.
///
/// The times of the stages are measured on this machine, on one device, one frame at a time: the mean in a drawn video, with tracker
/// and drawing. Reading a frame of it is a copy; nothing is encoded. Devices that share cores or memory are slower than
/// simulated.
#[derive(clap::Args)]
pub struct Arguments {
    /// Take these times, in milliseconds, and measure nothing: preprocess=2,backbone=15,decode=8. The stages are source,
    /// preprocess, backbone, decode, track, draw and sinks; others take no time
    #[arg(long, value_name = "STAGE=MS,...")]
    stage_ms: Option<StageMs>,
    /// Most devices
    #[arg(long, default_value_t = 8, value_name = "N")]
    most: usize,
    /// Capacity of the queue before each stage
    #[arg(long, default_value_t = 2, value_name = "N")]
    queue_depth: usize,
    /// Number of classes to detect, and in the video
    #[arg(long, default_value_t = 4, value_name = "N")]
    classes: usize,
    /// Width and height of the video in pixels
    #[arg(long, num_args = 2, default_values_t = [640, 480], value_names = ["WIDTH", "HEIGHT"])]
    size: Vec<u32>,
    /// Measured frames
    #[arg(long, default_value_t = 60, value_name = "N")]
    frames: u64,
    /// Warm-up frames
    #[arg(long, default_value_t = 10, value_name = "N")]
    warm_up: u64,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    detector: DetectorArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    /// That was measured.
    engine: Option<&'a str>,
    stage_ms: &'a StageMs,
    queue_depth: usize,
    #[serde(flatten)]
    simulated: Simulated,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    for (flag, value) in [("--most", args.most), ("--queue-depth", args.queue_depth)] {
        if value == 0 {
            return Err(cli::usage(format!("{flag} is 0: expected at least 1")));
        }
    }
    let lines = Lines::new("devices", args.output.as_deref())?;
    let (engine, times) = match args.stage_ms {
        Some(times) => (None, times),
        None => {
            let (engine, times) = measure(args)?;
            (Some(engine), times)
        }
    };
    for devices in 1..=args.most {
        lines.write(&Line {
            program: "bench devices",
            engine: engine.as_deref(),
            stage_ms: &times,
            queue_depth: args.queue_depth,
            simulated: simulate(&times, devices, args.queue_depth),
            machine: &lines.machine,
        })?;
    }
    Ok(())
}

/// The engine, and the mean time of a frame in each stage.
fn measure(args: &Arguments) -> anyhow::Result<(String, StageMs)> {
    let classes =
        EXAMPLE_CLASSES.get(..args.classes).filter(|classes| !classes.is_empty()).ok_or_else(|| {
            cli::usage(format!("--classes is {}: expected 1 to {}", args.classes, EXAMPLE_CLASSES.len()))
        })?;
    let frames = args.warm_up + args.frames;
    let video = Arc::new(DrawnVideo::new(classes, (args.size[0], args.size[1]), frames, FRAME_RATE)?);
    let (detector, _) = cli::load(cli::detector(args.detector.options()?)?)?;
    let engine = detector.engine().to_owned();
    let stats = StatsRecorder::new();
    let (recorder, warm_up) = (stats.clone(), args.warm_up);
    Pipeline::builder(detector, Prompts::new(classes.iter().copied())?)
        .with_tracker(ByteTrackerOptions::default())
        .with_sequential(true)
        .with_stats(stats.clone())
        .with_observer(move |outcome| {
            if outcome.index + 1 == warm_up {
                recorder.restart();
            }
        })
        .run(video.play(), &mut [Box::new(Discard) as Box<dyn Sink>])?;
    interrupted()?;
    let mut times = StageMs::default();
    for stage in stats.snapshot().stages {
        if let Some(time) = times.stage(&stage.stage.to_string()) {
            *time = stage.ms.mean;
        }
    }
    Ok((engine, times))
}
