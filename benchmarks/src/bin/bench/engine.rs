//! `bench engine`: the effect of ONNX Runtime options on one exported graph.

use std::path::PathBuf;
use std::time::Instant;

use clap::ValueEnum;
use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine, OptimizationLevel};
use ocelli::engines::{Dim, ElementType, Engine, Tensor};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted};
use serde::Serialize;

use super::lines::Lines;

/// Graph optimization level.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Disabled,
    Basic,
    Extended,
    All,
}

/// Runs one graph on noise with the given engine options and writes a line of JSON.
///
/// Peak memory is that of the process, so run the program once per combination of options.
#[derive(clap::Args)]
pub struct Arguments {
    /// ONNX file
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// Size of every dynamic dimension
    #[arg(long, default_value_t = 1, value_name = "N")]
    free: usize,
    /// Threads per operator; 0 is one per physical core
    #[arg(long, default_value_t = 0, value_name = "N")]
    threads: usize,
    /// Graph optimization level
    #[arg(long, value_enum, default_value = "all")]
    optimization: Level,
    /// Do not prepack weights
    #[arg(long)]
    no_prepacking: bool,
    /// Disable the memory arena
    #[arg(long)]
    no_arena: bool,
    /// Disable memory planning
    #[arg(long)]
    no_pattern: bool,
    /// Let idle threads spin
    #[arg(long)]
    spinning: bool,
    /// Measured runs
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// ONNX Runtime library [default: searched]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    graph: &'a PathBuf,
    options: String,
    engine: &'a str,
    load_ms: f64,
    first_ms: f64,
    run_ms: Quantiles,
    peak_memory_mib: f64,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.runs == 0 || args.free == 0 {
        return Err(cli::usage("--runs, --free: expected at least 1"));
    }
    let builder = OnnxRuntimeEngine::builder(&OnnxRuntime::load(args.onnxruntime.as_deref())?)
        .with_threads(args.threads)
        .with_optimization(match args.optimization {
            Level::Disabled => OptimizationLevel::Disabled,
            Level::Basic => OptimizationLevel::Basic,
            Level::Extended => OptimizationLevel::Extended,
            Level::All => OptimizationLevel::All,
        })
        .with_prepacking(!args.no_prepacking)
        .with_memory_arena(!args.no_arena)
        .with_memory_pattern(!args.no_pattern)
        .with_spinning(args.spinning);
    let start = Instant::now();
    let mut engine = builder.build_from_file(&args.graph)?;
    let load_ms = milliseconds(start);

    let names = |specs: &[ocelli::engines::TensorSpec]| -> Vec<String> {
        specs.iter().map(|spec| spec.name.clone()).collect()
    };
    let (inputs, outputs) = (names(&engine.spec().inputs), names(&engine.spec().outputs));
    let values =
        engine.spec().inputs.iter().map(|spec| noise(spec, args.free)).collect::<Result<Vec<_>, _>>()?;
    let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(String::as_str).zip(&values).collect();
    let mut results = vec![Tensor::empty(); outputs.len()];
    let mut times = Vec::with_capacity(args.runs + 1);
    for _ in 0..=args.runs {
        interrupted()?;
        let start = Instant::now();
        let mut results_by_name: Vec<(&str, &mut Tensor)> =
            outputs.iter().map(String::as_str).zip(&mut results).collect();
        engine.run(&inputs, &mut results_by_name)?;
        times.push(milliseconds(start));
    }
    let first_ms = times.remove(0);
    let lines = Lines::new("engine", None)?;
    let line = Line {
        program: "bench engine",
        graph: &args.graph,
        options: options(args),
        engine: engine.description(),
        load_ms,
        first_ms,
        run_ms: Quantiles::of(times),
        peak_memory_mib: peak_memory_mib(),
        machine: &lines.machine,
    };
    lines.write(&line)
}

/// The options that differ from the defaults.
fn options(args: &Arguments) -> String {
    let mut options = vec![format!("{:?}", args.optimization).to_lowercase()];
    options.extend((args.threads > 0).then(|| format!("threads {}", args.threads)));
    let flags = [
        (args.no_prepacking, "no prepacking"),
        (args.no_arena, "no arena"),
        (args.no_pattern, "no pattern"),
        (args.spinning, "spinning"),
    ];
    options.extend(flags.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned()));
    options.join(", ")
}

/// An input: pseudorandom numbers in −1..1, or ones for integers.
fn noise(spec: &ocelli::engines::TensorSpec, free: usize) -> anyhow::Result<Tensor> {
    let size = |dim: &Dim| if let Dim::Fixed(n) = dim { *n } else { free };
    let shape: Vec<usize> = spec.shape.iter().map(size).collect();
    let count: usize = shape.iter().product();
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    Ok(match spec.element_type {
        ElementType::F32 => Tensor::f32(&shape, (0..count).map(|_| next()).collect())?,
        ElementType::I64 => Tensor::i64(&shape, vec![1; count])?,
        other => anyhow::bail!("input {}: element type {other} is unsupported", spec.name),
    })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
