//! `bench engine`: the effect of ONNX Runtime options on one exported graph.

use std::path::PathBuf;
use std::time::Instant;

use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine};
use ocelli::engines::{Dim, ElementType, Engine, Tensor};
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted};
use serde::Serialize;

use super::lines::Lines;

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
    /// Disable the memory arena
    #[arg(long)]
    no_arena: bool,
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
        .with_memory_arena(!args.no_arena);
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
    let threads = (args.threads > 0).then(|| format!("threads {}", args.threads));
    threads.into_iter().chain(args.no_arena.then(|| "no arena".to_owned())).collect::<Vec<_>>().join(", ")
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
