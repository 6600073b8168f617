//! `bench halves`: the time of the two halves of a detector on an engine, each alone and both at once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ocelli::Image;
use ocelli::engines::Tensor;
use ocelli::export::contract::{Manifest, Precision, Target};
use ocelli::preprocess::{PreprocessConfig, Preprocessor};
use ocelli_benchmarks::EXAMPLE_CLASSES;
use ocelli_benchmarks::agreement::{Agreement, Reference, detections};
use ocelli_benchmarks::halves::{Halves, ImageHalf, Outputs, PromptHalf, TextFeatures};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_benchmarks::nvidia::memory_used_mib;
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, DetectorArgs, LogArgs, interrupted};
use ocelli_verify::scenes::MovingScene;
use serde::Serialize;

use super::lines::Lines;

/// Minimum number of measured runs.
const MIN_RUNS: usize = 3;
/// Default number of classes decoded at once.
const CLASS_CHUNK: usize = 16;

/// Measures the image half and the prompt half of a detector and writes JSON lines, one per number of classes.
///
/// Inputs and features stay on the engine's device; a time ends when the boxes are in host memory. `together` runs the
/// image half of a frame beside the prompt half of the previous one, on two threads: the upper bound of a pipeline. Text
/// features are noise, the image is drawn. Peak memory is that of the whole process so far, GPU memory that of all
/// processes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of classes
    #[arg(long, num_args = 1.., default_values_t = [1, 2, 4, 8, 16, 80], value_name = "N")]
    class_counts: Vec<usize>,
    /// Maximum number of measured runs per line
    #[arg(long, default_value_t = 50, value_name = "N")]
    runs: usize,
    /// Warm-up runs
    #[arg(long, default_value_t = 5, value_name = "N")]
    warm_up: usize,
    /// Maximum time per measurement, after at least three runs
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Read inputs from this file and compare the outputs with its own
    #[arg(long, value_name = "FILE", conflicts_with = "write_reference")]
    reference: Option<PathBuf>,
    /// Write inputs and outputs to this file, for --reference
    #[arg(long, value_name = "FILE")]
    write_reference: Option<PathBuf>,
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
    target: Target,
    classes: usize,
    class_chunk: usize,
    backbone_ms: Quantiles,
    encoder_decoder_ms: Quantiles,
    /// Both halves at once.
    together_fps: f64,
    together_n: usize,
    /// Per frame.
    to_device_bytes: u64,
    to_host_bytes: u64,
    load_ms: f64,
    /// From the start of the program to the first boxes.
    first_ms: f64,
    detections: usize,
    agreement: Option<Agreement>,
    peak_memory_mib: f64,
    gpu_memory_mib: Option<f64>,
    gpu_memory_before_mib: Option<f64>,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let limit = check(args)?;
    let gpu_memory_before_mib = memory_used_mib();
    let class_chunk = args.detector.class_chunk.unwrap_or(CLASS_CHUNK);
    let builder = cli::detector(args.detector.options()?)?.with_class_chunk(class_chunk);
    let (detector, _) = cli::load(builder)?;
    let (model, factory) = (detector.model(), detector.engine_factory());
    let manifest = model.manifest();
    let (pixels, text, reference) = match &args.reference {
        Some(path) => {
            let reference = Reference::read(path)?;
            (reference.pixels.clone(), reference.text.clone(), Some(reference))
        }
        None => {
            let max = args.class_counts.iter().max().expect("checked above");
            (drawn(manifest)?, TextFeatures::noise(manifest, *max), None)
        }
    };

    let loading = Instant::now();
    let image = ImageHalf::load(model, factory)?;
    let prompt = PromptHalf::load(model, factory)?;
    let load_ms = milliseconds(loading);
    let mut halves = Halves { image, prompt };
    halves.image.set_pixels(&pixels)?;
    let mut features = halves.features();
    halves.image.run_into(&mut features)?;
    halves.prompt.set_prompts(manifest, &text, &features.image_prompt, args.class_counts[0], class_chunk)?;
    halves.prompt.run(&features.fpn_2)?;
    let first_ms = milliseconds(start);

    let backbone_ms = measure(args, limit, || {
        halves.image.run_into(&mut features)?;
        Ok(features.fpn_2.wait()?)
    })?;
    let mut fpn_2 = Tensor::empty();
    features.fpn_2.copy_to_host_into(&mut fpn_2)?;
    let lines = Lines::new("halves", args.output.as_deref())?;
    for &classes in &args.class_counts {
        halves.prompt.set_prompts(manifest, &text, &features.image_prompt, classes, class_chunk)?;
        let mut outputs = Outputs::default();
        let encoder_decoder_ms = measure(args, limit, || {
            outputs.clone_from(halves.prompt.run(&features.fpn_2)?);
            Ok(())
        })?;
        let together = halves.together(args.warm_up, args.runs, limit, || Ok(interrupted()?))?;
        let agreement = reference.as_ref().map(|r| r.compare(fpn_2.as_f32()?, &outputs)).transpose()?;
        lines.write(&Line {
            program: "bench halves",
            engine: detector.engine(),
            imgsz: manifest.imgsz,
            precision: manifest.precision,
            target: manifest.target,
            classes,
            class_chunk,
            backbone_ms,
            encoder_decoder_ms,
            together_fps: together.fps,
            together_n: together.n,
            to_device_bytes: together.transferred.to_device,
            to_host_bytes: together.transferred.to_host,
            load_ms,
            first_ms,
            detections: detections(&outputs)?,
            agreement,
            peak_memory_mib: peak_memory_mib(),
            gpu_memory_mib: memory_used_mib(),
            gpu_memory_before_mib,
            machine: &lines.machine,
        })?;
        if let Some(path) = &args.write_reference {
            let fpn_2 = fpn_2.as_f32()?.to_vec();
            let (pixels, text) = (pixels.clone(), text.clone());
            Reference { pixels, text, fpn_2, outputs }.write(path)?;
        }
    }
    Ok(())
}

/// Checks the arguments; returns the maximum time per measurement.
fn check(args: &Arguments) -> anyhow::Result<Duration> {
    if args.runs == 0 || args.class_counts.contains(&0) {
        return Err(cli::usage("--runs, --class-counts: expected at least 1"));
    }
    if args.write_reference.is_some() && args.class_counts.len() > 1 {
        return Err(cli::usage("--write-reference: expected a single number of --class-counts"));
    }
    Duration::try_from_secs_f64(args.seconds)
        .map_err(|e| cli::usage(format!("--seconds is {}: expected a number of seconds: {e}", args.seconds)))
}

/// An image of 1280 × 720.
pub fn drawn_image() -> anyhow::Result<Image> {
    Ok(MovingScene::new(1, &EXAMPLE_CLASSES[..4], 1280, 720, 1, 30.0)?.image(0))
}

/// The model's input for a drawn image, `[1, 3, S, S]`.
pub fn drawn(manifest: &Manifest) -> anyhow::Result<Tensor> {
    let image = drawn_image()?;
    let mut config = PreprocessConfig::new(manifest.imgsz);
    config.mean = manifest.preprocessing.mean;
    config.std = manifest.preprocessing.std;
    let mut pixels = Tensor::zeros::<f32>(&[1, 3, manifest.imgsz, manifest.imgsz]);
    Preprocessor::new(config)?.run_into(&image, pixels.as_mut_slice::<f32>()?)?;
    Ok(pixels)
}

/// Runs `once` until `--runs` or the time limit is reached.
fn measure(
    args: &Arguments,
    limit: Duration,
    mut once: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Quantiles> {
    let warm_up = Instant::now();
    for _ in 0..args.warm_up {
        interrupted()?;
        once()?;
        if warm_up.elapsed() > limit {
            break;
        }
    }
    let (started, mut times) = (Instant::now(), Vec::with_capacity(args.runs));
    while times.len() < args.runs && (times.len() < MIN_RUNS || started.elapsed() < limit) {
        interrupted()?;
        let start = Instant::now();
        once()?;
        times.push(milliseconds(start));
    }
    Ok(Quantiles::of(times))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
