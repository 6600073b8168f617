//! `bench-preprocess`: the time from an image to the backbone's input, on the CPU and on a GPU.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use ocelli::engines::Tensor;
use ocelli::engines::cuda::CudaDevice;
use ocelli::preprocess::{DevicePreprocessor, PreprocessConfig, Preprocessor};
use ocelli::{ErrorKind, FrameView, PixelFormat};
use ocelli_benchmarks::machine::Machine;
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted, print};
use serde::Serialize;

/// Measures preprocessing image by image and writes a JSON line for each size, format and place.
///
/// On a GPU the time includes the upload of the image, and ends when the tensor is complete. Without a GPU the line gives
/// the reason.
#[derive(Parser)]
#[command(name = "bench-preprocess", version)]
struct Arguments {
    /// Image sizes
    #[arg(long, num_args = 1.., default_values_t = [Size(640, 480), Size(1920, 1080), Size(3840, 2160)], value_name = "WxH")]
    sizes: Vec<Size>,
    /// Pixel formats
    #[arg(long, num_args = 1.., default_values_t = [Format::Bgr8, Format::Nv12], value_name = "FORMAT")]
    formats: Vec<Format>,
    /// Side of the square input in pixels
    #[arg(long, default_value_t = 1008, value_name = "PIXELS")]
    imgsz: usize,
    /// Where to run
    #[arg(long, num_args = 1.., default_values_t = [Place::Cpu, Place::Cuda], value_name = "PLACE")]
    places: Vec<Place>,
    /// Measured images of each kind
    #[arg(long, default_value_t = 200, value_name = "N")]
    runs: usize,
    /// Images before the measurement starts
    #[arg(long, default_value_t = 10, value_name = "N")]
    warm_up: usize,
    /// Also append the lines to a file in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Width and height.
#[derive(Clone, Copy)]
struct Size(u32, u32);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=16_384).contains(side));
        let (width, height) = text.split_once('x').ok_or("expected WIDTHxHEIGHT")?;
        side(width).zip(side(height)).map(|(w, h)| Self(w, h)).ok_or("expected sides from 1 to 16384".into())
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.0, self.1)
    }
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Rgb8,
    Bgr8,
    Gray8,
    Nv12,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Place {
    Cpu,
    Cuda,
}

macro_rules! display_as_value {
    ($($of:ty),+) => {$(
        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = self.to_possible_value().expect("no value is skipped");
                f.write_str(value.get_name())
            }
        }
    )+};
}
display_as_value!(Format, Place);

impl Format {
    fn pixel_format(self) -> PixelFormat {
        match self {
            Self::Rgb8 => PixelFormat::Rgb8,
            Self::Bgr8 => PixelFormat::Bgr8,
            Self::Gray8 => PixelFormat::Gray8,
            Self::Nv12 => PixelFormat::Nv12,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    place: Place,
    /// The GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    width: u32,
    height: u32,
    format: Format,
    imgsz: usize,
    /// `null` if not measured.
    total_ms: Option<Quantiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_to_device: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<&'a str>,
    machine: &'a Machine,
}

/// A preprocessor on a device.
enum Stage {
    Cpu(Box<Preprocessor>, Vec<f32>),
    Cuda(Arc<CudaDevice>, Box<DevicePreprocessor>, Tensor),
    /// No GPU, and the reason.
    Missing(String),
}

fn main() -> ExitCode {
    let args: Arguments = cli::parse();
    cli::run::<Arguments>(&args.log, || run(&args))
}

fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.runs == 0 {
        return Err(cli::usage("--runs is 0: expected at least 1"));
    }
    let config = PreprocessConfig::new(args.imgsz);
    let machine = Machine::here();
    let mut file = match &args.output {
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            let path = folder.join("bench-preprocess.jsonl");
            Some(std::fs::File::options().create(true).append(true).open(path)?)
        }
        None => None,
    };
    for &place in &args.places {
        let mut stage = stage(place, config)?;
        for &Size(width, height) in &args.sizes {
            for &format in &args.formats {
                let (total_ms, bytes_to_device) = measure(args, &mut stage, (width, height), format)?;
                let line = Line {
                    program: "bench-preprocess",
                    place,
                    device: if let Stage::Cuda(device, ..) = &stage { Some(device.name()) } else { None },
                    width,
                    height,
                    format,
                    imgsz: args.imgsz,
                    total_ms,
                    bytes_to_device,
                    not_measured: if let Stage::Missing(why) = &stage { Some(why) } else { None },
                    machine: &machine,
                };
                let text = serde_json::to_string(&line)?;
                print(|out| writeln!(out, "{text}"))?;
                if let Some(file) = &mut file {
                    writeln!(file, "{text}")?;
                }
            }
        }
    }
    Ok(())
}

fn stage(place: Place, config: PreprocessConfig) -> anyhow::Result<Stage> {
    if matches!(place, Place::Cpu) {
        let preprocessor = Preprocessor::new(config)?;
        let out = vec![0.0; preprocessor.output_len()];
        return Ok(Stage::Cpu(Box::new(preprocessor), out));
    }
    let made = || -> ocelli::Result<Stage> {
        let device = CudaDevice::open(0)?;
        let preprocessor = DevicePreprocessor::new(&device, config)?;
        Ok(Stage::Cuda(device, Box::new(preprocessor), Tensor::empty()))
    };
    match made() {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Stage::Missing(error.to_string())),
        made => Ok(made?),
    }
}

/// The times, and the bytes copied to the device per image.
fn measure(
    args: &Arguments,
    stage: &mut Stage,
    (width, height): (u32, u32),
    format: Format,
) -> anyhow::Result<(Option<Quantiles>, Option<u64>)> {
    let (row, rows) = match format {
        Format::Rgb8 | Format::Bgr8 => (width as usize * 3, height as usize),
        Format::Gray8 => (width as usize, height as usize),
        Format::Nv12 => ((width as usize).next_multiple_of(2), (height + height.div_ceil(2)) as usize),
    };
    // Several, so that none stays in the CPU cache.
    let images: Vec<Vec<u8>> = (0..4).map(|seed| noise(seed, row * rows)).collect();
    let mut times = Vec::with_capacity(args.runs);
    let mut copied = None;
    for (run, data) in images.iter().cycle().take(args.warm_up + args.runs).enumerate() {
        interrupted()?;
        let (timestamp, format) = (Duration::ZERO, format.pixel_format());
        let frame = FrameView { data, width, height, stride: row, format, timestamp };
        let start = Instant::now();
        match stage {
            Stage::Cpu(preprocessor, out) => preprocessor.run_into(frame, out)?,
            Stage::Cuda(device, preprocessor, pixels) => {
                let before = device.transferred().to_device;
                preprocessor.run_into(frame, pixels)?;
                pixels.wait()?;
                copied = Some(device.transferred().to_device - before);
            }
            Stage::Missing(_) => return Ok((None, None)),
        }
        if run >= args.warm_up {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok((Some(Quantiles::of(times)), copied))
}

/// Random bytes, so that no content makes the run cheaper.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9 ^ (seed + 1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
