//! `bench-appearance`: tracks of drawn look-alikes, with and without what they look like, as MOTChallenge files.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use ocelli::sink::{MotFile, Sink};
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Detector, Pipeline, Prompts};
use ocelli_cli::{self as cli, LogArgs};
use ocelli_datasets::scenes::MovingScene;

/// Tracks drawn objects of one class, each in a colour of its own, that cross, turn and pass behind pillars.
///
/// For each seed DIR gets truth-SEED.txt, overlap-SEED.txt (the tracker's defaults) and appearance-SEED.txt.
/// benchmarks/tracking/appearance.py scores them.
#[derive(Parser)]
#[command(name = "bench-appearance", version)]
struct Arguments {
    /// Seeds of the videos
    #[arg(long, num_args = 1.., default_values_t = [200, 201, 202, 203, 204, 205], value_name = "N")]
    seeds: Vec<u64>,
    /// Frames of each video
    #[arg(long, default_value_t = 300, value_name = "N")]
    frames: u64,
    /// Frames per second of the videos
    #[arg(long, default_value_t = 15.0, value_name = "FPS")]
    fps: f64,
    /// Pillars in front of the objects
    #[arg(long, default_value_t = 2, value_name = "N")]
    pillars: u32,
    /// Class of the objects
    #[arg(long, default_value = "dog", value_name = "NAME")]
    class: String,
    /// Weight of what an object looks like, relative to how near it is [default: the library's]
    #[arg(long, value_name = "WEIGHT")]
    weight: Option<f32>,
    /// Folder of the results
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args: Arguments = cli::parse();
    cli::run::<Arguments>(&args.log, || run(&args))
}

fn run(args: &Arguments) -> anyhow::Result<()> {
    fs::create_dir_all(&args.output).with_context(|| format!("cannot create {}", args.output.display()))?;
    let mut options = ByteTrackerOptions::default();
    options.appearance_weight = args.weight.unwrap_or(options.appearance_weight);
    for &seed in &args.seeds {
        let scene = || -> anyhow::Result<MovingScene> {
            let scene = MovingScene::new(seed, &[&args.class], 640, 360, args.frames, args.fps)?;
            Ok(scene.with_colours(seed).with_pillars(args.pillars))
        };
        let path = args.output.join(format!("truth-{seed}.txt"));
        scene()?.write_truth(&path.display().to_string(), BufWriter::new(File::create(&path)?))?;
        for (name, appearance) in [("overlap", false), ("appearance", true)] {
            let detector = Detector::builder().build()?;
            let prompts = Prompts::new([args.class.as_str()])?;
            let mut pipeline = Pipeline::builder(detector, prompts).with_tracker(options);
            if appearance {
                pipeline = pipeline.with_appearance();
            }
            let path = args.output.join(format!("{name}-{seed}.txt"));
            let tracks = MotFile::create(&path, true)?;
            pipeline.run(scene()?, &mut [Box::new(tracks) as Box<dyn Sink>])?;
        }
    }
    Ok(())
}
