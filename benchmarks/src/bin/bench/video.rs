//! `bench video`: the throughput of the pipeline, sequential and pipelined, for increasing numbers of classes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocelli::engines::Transferred;
use ocelli::pipeline::{Quantiles, StageStats};
use ocelli::sink::Sink;
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{
    Cancellation, Pipeline, PipelineBuilder, Prompts,
    options::PipelineOptions,
    pipeline::{FrameOutcome, StatsRecorder},
};
use ocelli_benchmarks::EXAMPLE_CLASSES;
use ocelli_benchmarks::drawn_video::{Discard, DrawnVideo, Found};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib, resident_memory_mib};
use ocelli_benchmarks::nvidia::{Transfers, memory_used_mib};
use ocelli_cli::{self as cli, DetectorArgs, LogArgs, interrupted};
use ocelli_verify::scenes::{MovingScene, vocabulary};
use serde::Serialize;

use super::lines::Lines;

const FRAME_RATE: f64 = 30.0;

/// Measures the pipeline on a drawn video, including tracker and drawing, and writes JSON lines: for each number of
/// classes one sequential and one pipelined.
///
/// The video is drawn beforehand, so reading a frame is a copy; nothing is encoded. Peak memory is that of the whole
/// process so far. Recall is that of instances of which at least a quarter is visible, at an IoU of 0.5.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of classes to detect
    #[arg(long, num_args = 1.., default_values_t = [1, 2, 4, 8, 16, 80], value_name = "N")]
    class_counts: Vec<usize>,
    /// Number of classes in the video
    #[arg(long, default_value_t = 4, value_name = "N")]
    drawn: usize,
    /// Width and height of the video in pixels
    #[arg(long, num_args = 2, default_values_t = [640, 480], value_names = ["WIDTH", "HEIGHT"])]
    size: Vec<u32>,
    /// Measured frames per line
    #[arg(long, default_value_t = 60, value_name = "N")]
    frames: u64,
    /// Warm-up frames
    #[arg(long, default_value_t = 10, value_name = "N")]
    warm_up: u64,
    /// Class budgets per frame; 0 is no limit
    #[arg(long, num_args = 1.., default_values_t = [0], value_name = "K")]
    class_budget: Vec<usize>,
    /// Detect in every Nth frame
    #[arg(long, default_value_t = 1, value_name = "N")]
    detect_every: u64,
    /// Capacity of the queue before each stage [default: 2]
    #[arg(long, value_name = "N")]
    queue_depth: Option<usize>,
    /// Run for this time instead and report memory every ten seconds
    #[arg(long, value_name = "MINUTES")]
    soak: Option<f64>,
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
    mode: &'static str,
    engine: &'a str,
    imgsz: usize,
    size: [u32; 2],
    classes: usize,
    class_chunk: Option<usize>,
    class_budget: Option<usize>,
    detect_every: u64,
    n: usize,
    fps: f64,
    /// Time between consecutive output frames.
    frame_ms: ocelli_benchmarks::quantiles::Quantiles,
    latency_ms: Quantiles,
    stages: Vec<StageStats>,
    detections: usize,
    visible: usize,
    recall_detections: f64,
    recall_tracks: f64,
    /// From the start of loading to the detections of the first frame.
    first_ms: f64,
    /// Copied between host and GPU, per frame.
    to_device_bytes: Option<u64>,
    to_host_bytes: Option<u64>,
    peak_memory_mib: f64,
    /// Of all processes.
    gpu_memory_mib: Option<f64>,
    machine: &'a Machine,
}

#[derive(Serialize)]
struct SoakLine<'a> {
    program: &'static str,
    mode: &'static str,
    engine: &'a str,
    classes: usize,
    elapsed_s: f64,
    frames: u64,
    fps_now: f64,
    resident_memory_mib: f64,
    peak_memory_mib: f64,
    machine: &'a Machine,
}

/// Measurements of the frames after the warm-up.
#[derive(Default)]
struct Measured {
    first: Option<Instant>,
    moments: Vec<Instant>,
    copied_before: Option<Transferred>,
    copied_after: Option<Transferred>,
    gpu_memory_mib: Option<f64>,
    found: Found,
    detections: usize,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.frames < 2 {
        return Err(cli::usage(format!("--frames is {}: expected at least 2", args.frames)));
    }
    let named = classes_in_order();
    let drawn = named.get(..args.drawn).filter(|drawn| !drawn.is_empty());
    let drawn = drawn
        .ok_or_else(|| cli::usage(format!("--drawn is {}: expected 1 to {}", args.drawn, named.len())))?;
    let lines = Lines::new("video", args.output.as_deref())?;
    if let Some(minutes) = args.soak {
        return soak(args, drawn, minutes, &lines);
    }
    let frames = args.warm_up + args.frames;
    let video = Arc::new(DrawnVideo::new(drawn, (args.size[0], args.size[1]), frames, FRAME_RATE)?);
    for &classes in &args.class_counts {
        for &budget in &args.class_budget {
            for sequential in [true, false] {
                measure(args, &named, classes, Some(budget).filter(|&k| k > 0), sequential, &video, &lines)?;
            }
        }
    }
    Ok(())
}

fn measure(
    args: &Arguments,
    named: &[&'static str],
    classes: usize,
    class_budget: Option<usize>,
    sequential: bool,
    video: &Arc<DrawnVideo>,
    lines: &Lines,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let transfers = Transfers::watch();
    let (builder, engine, imgsz) = builder(args, named, classes, class_budget)?;
    let (measured, stats, cancellation) =
        (Arc::new(Mutex::new(Measured::default())), StatsRecorder::new(), Cancellation::new());
    let observer = {
        let (measured, stats, cancellation) = (measured.clone(), stats.clone(), cancellation.clone());
        let (video, warm_up) = (video.clone(), args.warm_up);
        let frames = args.warm_up + args.frames;
        move |outcome: &FrameOutcome| {
            if interrupted().is_err() {
                cancellation.cancel();
            }
            let mut measured = measured.lock().expect("no thread panics while holding it");
            measured.first.get_or_insert_with(Instant::now);
            if outcome.index + 1 == warm_up {
                stats.restart();
                measured.copied_before = transfers.total();
            }
            // The first measured frame begins when the last warm-up frame ends.
            if outcome.index + 1 >= warm_up {
                measured.moments.push(Instant::now());
            }
            if outcome.index >= warm_up {
                measured.found.add(video.compare(outcome, classes));
                measured.detections += outcome.detections.len();
                measured.copied_after = transfers.total();
            }
            // While the engines are loaded; the query takes longer than a frame.
            if outcome.index + 1 == frames {
                measured.gpu_memory_mib = memory_used_mib();
            }
        }
    };
    builder
        .with_sequential(sequential)
        .with_stats(stats.clone())
        .with_cancellation(cancellation)
        .with_observer(observer)
        .run(video.play(), &mut [Box::new(Discard) as Box<dyn Sink>])?;
    interrupted()?;
    let (measured, stats) = (measured.lock().expect("no thread panics while holding it"), stats.snapshot());
    let gaps = measured.moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3);
    let frame_ms = ocelli_benchmarks::quantiles::Quantiles::of(gaps.collect());
    let whole = measured.moments[measured.moments.len() - 1] - measured.moments[0];
    // About as many frames are in flight at the start of the count as at its end.
    let copied = |bytes: fn(Transferred) -> u64| {
        let (before, after) = (measured.copied_before.map(bytes)?, measured.copied_after.map(bytes)?);
        Some((after - before) / frame_ms.n.max(1) as u64)
    };
    let recall = |found: usize| found as f64 / measured.found.visible.max(1) as f64;
    lines.write(&Line {
        program: "bench video",
        mode: if sequential { "sequential" } else { "pipelined" },
        engine: &engine,
        imgsz,
        size: [args.size[0], args.size[1]],
        classes,
        class_chunk: args.detector.class_chunk,
        class_budget,
        detect_every: args.detect_every,
        n: frame_ms.n,
        fps: frame_ms.n as f64 / whole.as_secs_f64(),
        frame_ms,
        latency_ms: stats.latency_ms,
        stages: stats.stages,
        detections: measured.detections,
        visible: measured.found.visible,
        recall_detections: recall(measured.found.detected),
        recall_tracks: recall(measured.found.tracked),
        first_ms: measured.first.map_or(0.0, |first| (first - start).as_secs_f64() * 1e3),
        to_device_bytes: copied(|one| one.to_device),
        to_host_bytes: copied(|one| one.to_host),
        gpu_memory_mib: measured.gpu_memory_mib,
        peak_memory_mib: peak_memory_mib(),
        machine: &lines.machine,
    })
}

/// Runs the pipeline on an endless drawn video for a given time.
fn soak(args: &Arguments, drawn: &[&str], minutes: f64, lines: &Lines) -> anyhow::Result<()> {
    let named = classes_in_order();
    let classes = args.class_counts[0];
    let budget = args.class_budget[0];
    let (builder, engine, _) = builder(args, &named, classes, Some(budget).filter(|&k| k > 0))?;
    let length = Duration::try_from_secs_f64(minutes * 60.0)
        .map_err(|e| cli::usage(format!("--soak is {minutes}: expected a number of minutes: {e}")))?;
    let scene = MovingScene::new(1, drawn, args.size[0], args.size[1], u64::MAX, FRAME_RATE)?;
    let (stats, cancellation) = (StatsRecorder::new(), Cancellation::new());
    let (recorder, stop) = (stats.clone(), cancellation.clone());
    let (start, mut next) = (Instant::now(), Duration::ZERO);
    let (sender, receiver) = std::sync::mpsc::channel();
    let pipeline_thread = std::thread::spawn(move || {
        builder
            .with_stats(stats)
            .with_cancellation(cancellation)
            .with_observer(move |_| {
                let elapsed = start.elapsed();
                if elapsed >= next {
                    next += Duration::from_secs(10);
                    // The receiver is dropped only after a failed write.
                    let _ = sender.send(elapsed);
                }
                if elapsed >= length || interrupted().is_err() {
                    stop.cancel();
                }
            })
            .run(scene, &mut [Box::new(Discard) as Box<dyn Sink>])
    });
    for elapsed in receiver {
        let stats = recorder.snapshot();
        lines.write(&SoakLine {
            program: "bench video",
            mode: "soak",
            engine: &engine,
            classes,
            elapsed_s: elapsed.as_secs_f64(),
            frames: stats.frames_out,
            fps_now: stats.fps_now,
            resident_memory_mib: resident_memory_mib(),
            peak_memory_mib: peak_memory_mib(),
            machine: &lines.machine,
        })?;
    }
    pipeline_thread.join().map_err(|_| anyhow::anyhow!("the pipeline panicked"))??;
    Ok(interrupted()?)
}

/// A pipeline without its source, the name of its engine, and the side of the model's input.
fn builder(
    args: &Arguments,
    named: &[&'static str],
    classes: usize,
    class_budget: Option<usize>,
) -> anyhow::Result<(PipelineBuilder, String, usize)> {
    let more = (named.len()..classes).map(|i| format!("thing number {i}"));
    let prompts = Prompts::new(named.iter().map(|name| (*name).to_owned()).chain(more).take(classes))?;
    let (detector, _) = cli::load(cli::detector(args.detector.options()?)?)?;
    let (engine, imgsz) = (detector.engine().to_owned(), detector.model().manifest().imgsz);
    let options = PipelineOptions {
        tracker: Some(ByteTrackerOptions::default()),
        detect_every: Some(args.detect_every),
        queue_depth: args.queue_depth,
        class_budget,
        ..PipelineOptions::default()
    };
    let builder = Pipeline::builder(detector, prompts).with_options(|all| *all = options);
    Ok((builder, engine, imgsz))
}

/// The classes of the built-in model, the best ones first.
fn classes_in_order() -> Vec<&'static str> {
    let others = vocabulary().iter().filter(|name| !EXAMPLE_CLASSES.contains(name));
    EXAMPLE_CLASSES.iter().chain(others).copied().collect()
}
