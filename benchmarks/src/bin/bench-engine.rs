//! `bench-engine`: what the options of ONNX Runtime are worth for one exported graph.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine, OptimizationLevel};
use ocelli::engines::{Dim, ElementType, Engine, Tensor};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted, print};
use serde::Serialize;

/// How much the graph is rewritten.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Disabled,
    Basic,
    Extended,
    All,
}

/// Runs one graph on noise with some of the engine's options, and writes a line of JSON.
///
/// Peak memory is the process's, so each combination of options needs a call of its own.
#[derive(Parser)]
#[command(name = "bench-engine", version)]
struct Arguments {
    /// An ONNX file
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// Size of every dimension that is free in the file
    #[arg(long, default_value_t = 1, value_name = "N")]
    free: usize,
    /// Threads that work on one operator together; 0 is one for each physical core
    #[arg(long, default_value_t = 0, value_name = "N")]
    threads: usize,
    /// How much the graph is rewritten
    #[arg(long, value_enum, default_value = "all")]
    optimization: Level,
    /// Keep weights as they are in the file
    #[arg(long)]
    no_prepacking: bool,
    /// Give memory back after every operator
    #[arg(long)]
    no_arena: bool,
    /// Plan no memory ahead
    #[arg(long)]
    no_pattern: bool,
    /// Keep waiting threads busy
    #[arg(long)]
    spinning: bool,
    /// Measured runs
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// ONNX Runtime's library [default: searched for]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
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
    machine: Machine,
}

fn main() -> ExitCode {
    let args = Arguments::parse();
    cli::run(&args.log, || run(&args))
}

fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.runs == 0 || args.free == 0 {
        return Err(cli::usage("--runs and --free: at least one of each"));
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
        let mut wanted: Vec<(&str, &mut Tensor)> =
            outputs.iter().map(String::as_str).zip(&mut results).collect();
        engine.run(&inputs, &mut wanted)?;
        times.push(milliseconds(start));
    }
    let first_ms = times.remove(0);
    let line = Line {
        program: "bench-engine",
        graph: &args.graph,
        options: options(args),
        engine: engine.description(),
        load_ms,
        first_ms,
        run_ms: Quantiles::of(times),
        peak_memory_mib: peak_memory_mib(),
        machine: Machine::here(),
    };
    let text = serde_json::to_string(&line)?;
    print(|out| writeln!(out, "{text}"))
}

/// What differs from the defaults, in words.
fn options(args: &Arguments) -> String {
    let mut words = vec![format!("{:?}", args.optimization).to_lowercase()];
    words.extend((args.threads > 0).then(|| format!("threads {}", args.threads)));
    let flags = [
        (args.no_prepacking, "no prepacking"),
        (args.no_arena, "no arena"),
        (args.no_pattern, "no pattern"),
        (args.spinning, "spinning"),
    ];
    words.extend(flags.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned()));
    words.join(", ")
}

/// An input: numbers in −1..1 that repeat late, or ones where whole numbers are wanted.
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
        other => anyhow::bail!("input {}: no noise of type {other}", spec.name),
    })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
