//! `bench detect`: the time of each stage of detection, for increasing numbers of classes.

use std::path::PathBuf;
use std::time::Instant;

use ocelli::export::contract::Precision;
use ocelli::{DetectorBuilder, Image, Prompts, StageTimes, stages::Screening};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, DetectorArgs, LogArgs, interrupted};
use serde::Serialize;

use super::lines::Lines;

/// Measures each stage of detection and writes JSON lines, one per number of classes.
///
/// Peak memory is that of the whole process so far: for the memory of one number of classes, measure it alone.
#[derive(clap::Args)]
pub struct Arguments {
    /// Image [default: noise of 1280 × 720]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Numbers of classes
    #[arg(long, num_args = 1.., default_values_t = [1, 4, 16, 80], value_name = "N")]
    class_counts: Vec<usize>,
    /// Measured runs per number of classes
    #[arg(long, default_value_t = 20, value_name = "N")]
    runs: usize,
    /// Warm-up runs
    #[arg(long, default_value_t = 2, value_name = "N")]
    warm_up: usize,
    /// Predict masks as well
    #[arg(long)]
    masks: bool,
    /// Rule out all classes but the N with the highest scores of a coarse first pass, `--screen` of the other programs
    #[arg(long, value_name = "N")]
    screen_pass: Option<usize>,
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
    engine: &'a str,
    imgsz: usize,
    precision: Precision,
    classes: usize,
    class_chunk: Option<usize>,
    /// Classes that the first pass leaves, more than asked for if they have the same score; null without one.
    screen_pass: Option<usize>,
    masks: bool,
    start_ms: f64,
    total_ms: Quantiles,
    preprocess_ms: Quantiles,
    backbone_ms: Quantiles,
    decode_ms: Quantiles,
    masks_ms: Quantiles,
    detections: usize,
    peak_memory_mib: f64,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.runs == 0 {
        return Err(cli::usage("--runs is 0: expected at least 1"));
    }
    let image = match &args.image {
        Some(path) => Image::open(path)?,
        None => noise(1280, 720)?,
    };
    let lines = Lines::new("detect", args.output.as_deref())?;
    let mut start = Instant::now();
    let builder = cli::detector(args.detector.options()?)?.with_masks(args.masks);
    let (mut detector, _) = cli::load(builder.clone())?;
    for &classes in &args.class_counts {
        let prompts = Prompts::new((0..classes).map(|i| format!("thing number {i}")))?;
        let mut screen_pass = None;
        if let Some(passed) = args.screen_pass {
            drop(detector);
            let (threshold, all) = threshold(builder.clone(), &image, &prompts, passed)?;
            screen_pass = Some(all);
            start = Instant::now();
            detector = screened(builder.clone(), threshold).build()?;
        }
        detector.prepare(&prompts)?;
        let start_ms = start.elapsed().as_secs_f64() * 1e3;
        for _ in 0..args.warm_up {
            interrupted()?;
            detector.detect(&image, &prompts)?;
        }
        let mut times = Vec::with_capacity(args.runs);
        let mut detections = 0;
        for _ in 0..args.runs {
            interrupted()?;
            let found = detector.detect(&image, &prompts)?;
            detections = found.items.len();
            times.push(found.times);
        }
        let quantiles = |stage: fn(&StageTimes) -> f64| Quantiles::of(times.iter().map(stage).collect());
        let line = Line {
            program: "bench detect",
            engine: detector.engine(),
            imgsz: detector.model().manifest().imgsz,
            precision: detector.model().manifest().precision,
            classes,
            class_chunk: args.detector.class_chunk,
            screen_pass,
            masks: args.masks,
            start_ms,
            total_ms: quantiles(|t| t.total),
            preprocess_ms: quantiles(|t| t.preprocess),
            backbone_ms: quantiles(|t| t.backbone),
            decode_ms: quantiles(|t| t.decode),
            masks_ms: quantiles(|t| t.masks),
            detections,
            peak_memory_mib: peak_memory_mib(),
            machine: &lines.machine,
        };
        lines.write(&line)?;
    }
    Ok(())
}

fn screened(builder: DetectorBuilder, threshold: f32) -> DetectorBuilder {
    builder.with_options(|options| options.screening = Some(Screening::At(threshold)))
}

/// The threshold of the first pass that `passed` classes of an image reach, and how many reach it.
fn threshold(
    builder: DetectorBuilder,
    image: &Image,
    prompts: &Prompts,
    passed: usize,
) -> anyhow::Result<(f32, usize)> {
    let mut detector = screened(builder, 0.0).build()?;
    let prompts = detector.prepare(prompts)?;
    let features = detector.encode(image)?;
    let mut decoder = detector.into_stages().decoder;
    let scores = decoder.screen_scores(&features, &prompts, &mut StageTimes::default())?;
    let mut scores: Vec<f32> = scores.into_iter().flatten().collect();
    scores.sort_by(|one, other| other.total_cmp(one));
    match passed.checked_sub(1).and_then(|last| scores.get(last)) {
        Some(&threshold) => Ok((threshold, scores.iter().filter(|score| **score >= threshold).count())),
        None => Err(cli::usage(format!("--screen-pass is {passed}: expected 1 to the number of classes"))),
    }
}

/// Random pixels, so that no content makes the run cheaper.
fn noise(width: u32, height: u32) -> ocelli::Result<Image> {
    let mut state = 0x9e37_79b9_u32;
    let pixels = (0..width as usize * height as usize * 3).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    });
    Image::from_rgb8(width, height, pixels.collect())
}
