//! `bench memory`: time and memory of the memory tracker at the released size, beside the modules of `transformers`.

mod worker;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;
use ocelli::atomic_file::write_atomically;
use ocelli::export::contract::{Precision, Target};
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli_benchmarks::contestant::{Answer, Contestant};
use ocelli_benchmarks::machine::Machine;
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted, status};
use ocelli_tests::random_weights;
use serde::Serialize;

use super::lines::Lines;

/// The tokens do not matter: the text encoder is exported and never runs.
const TOKENIZER: &[u8] = include_bytes!("../../../../src/builtin/tokenizer.json");
const PEER: &str = include_str!("../../../memory/peer.py");
/// The peer's format that others are compared with.
const REFERENCE: &str = "float32";
const CHECKPOINT: &str = "checkpoint";
const INPUTS: &str = "inputs.safetensors";

/// An engine and the number format that it computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setup {
    Onnxruntime,
    Openvino,
    OpenvinoBf16,
    Embedded,
    Cuda,
    CudaFp16,
}

impl Setup {
    fn target(self) -> Target {
        match self {
            Self::Onnxruntime | Self::Cuda | Self::CudaFp16 => Target::OnnxRuntime,
            Self::Openvino | Self::OpenvinoBf16 | Self::Embedded => Target::TensorRt,
        }
    }

    /// The number format of the graphs.
    fn exported(self) -> Precision {
        if self == Self::CudaFp16 { Precision::Fp16 } else { Precision::Fp32 }
    }

    fn name(self) -> String {
        self.to_possible_value().expect("no engine is skipped").get_name().to_owned()
    }

    fn graphs(self, work: &Path) -> PathBuf {
        let half = if self.exported().is_half() { "-fp16" } else { "" };
        work.join(format!("graphs-{:?}{half}", self.target()).to_lowercase())
    }
}

/// Measures the memory tracker at the released size with random weights and writes JSON lines, one per measurement.
///
/// Engines, and with --peer torch in f32 and bf16, run in processes of their own and take turns, run by run, so that a machine that slows down
/// slows all. `features` runs once a frame, `step` tracks objects by their memories, `encode` makes new memories. Peak memory
/// is that of the process so far; numbers of memories ascend, and each number of objects has new processes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Engines
    #[arg(long, value_enum, num_args = 1.., default_values = ["onnxruntime", "openvino"])]
    engines: Vec<Setup>,
    /// Numbers of objects
    #[arg(long, num_args = 1.., default_values_t = [1, 6], value_name = "N")]
    objects: Vec<usize>,
    /// Numbers of memories of each object, ascending
    #[arg(long, num_args = 1.., default_values_t = [2, 7, 10], value_name = "N")]
    memories: Vec<usize>,
    /// Measured runs
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// Warm-up runs
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: usize,
    /// Threads of each engine
    #[arg(long, default_value_t = 2, value_name = "N")]
    threads: usize,
    /// Python with the packages of benchmarks/full_size/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Number formats of the peer
    #[arg(long, num_args = 1.., default_values = ["float32"], value_parser = ["float32", "bfloat16"], value_name = "FORMAT")]
    peer_dtypes: Vec<String>,
    /// The device of the peer
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda"], value_name = "NAME")]
    peer_device: String,
    /// Folder for the checkpoint and the graphs, 0.8 GB; they are made if missing
    #[arg(long, default_value = "target/bench_memory", value_name = "DIR")]
    work: PathBuf,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Answer the commands on stdin with this engine
    #[arg(long, value_enum, hide = true)]
    worker: Option<Setup>,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    engine: &'a str,
    part: &'a str,
    objects: usize,
    memories: usize,
    ms: Quantiles,
    /// The median divided by that of the peer in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_peer: Option<f64>,
    /// Of all cores together: what other work on the machine changes little.
    cpu_ms: Quantiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_of_peer: Option<f64>,
    peak_memory_mib: f64,
    /// The peak memory divided by that of the peer in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_of_peer: Option<f64>,
    /// The largest difference of an object score from the peer's in f32, divided by the largest score.
    #[serde(skip_serializing_if = "Option::is_none")]
    score_difference: Option<f64>,
    threads: usize,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if let Some(setup) = args.worker {
        return worker::run(setup, &setup.graphs(&args.work), &args.work.join(INPUTS), args.threads);
    }
    let ascend = args.memories.windows(2).all(|pair| pair[0] < pair[1]);
    if args.runs == 0 || args.objects.contains(&0) || args.memories.contains(&0) || !ascend {
        let message = "--runs, --objects, --memories: expected at least 1, and memories in ascending order";
        return Err(cli::usage(message));
    }
    prepare(args)?;
    let lines = Lines::new("memory", args.output.as_deref())?;
    for &objects in &args.objects {
        let mut all = contestants(args)?;
        measure(args, &lines, &mut all, "features".to_owned(), [0, 0])?;
        for &memories in &args.memories {
            measure(args, &lines, &mut all, format!("step {objects} {memories}"), [objects, memories])?;
        }
        measure(args, &lines, &mut all, format!("encode {objects}"), [objects, 0])?;
    }
    Ok(())
}

/// Makes what is missing in the work folder; inputs are written anew.
fn prepare(args: &Arguments) -> anyhow::Result<()> {
    let checkpoint = args.work.join(CHECKPOINT);
    std::fs::create_dir_all(&checkpoint)
        .with_context(|| format!("cannot create the folder, {}", checkpoint.display()))?;
    if !checkpoint.join("config.json").exists() {
        status(&args.log, "random weights");
        write_atomically(&checkpoint.join("tokenizer.json"), |file| file.write_all(TOKENIZER))?;
        random_weights::write_tracker(&checkpoint)?;
    }
    for setup in &args.engines {
        let graphs = setup.graphs(&args.work);
        if !graphs.exists() {
            status(&args.log, &format!("export, {}", graphs.display()));
            let options = ExportOptions {
                target: setup.target(),
                precision: setup.exported(),
                ..ExportOptions::default()
            };
            export(&Checkpoint::open(&checkpoint)?, &options, &graphs, |_| Ok(()))?;
        }
    }
    let most = |numbers: &[usize]| numbers.iter().copied().max().unwrap_or(1);
    worker::write_inputs(&args.work.join(INPUTS), most(&args.objects), most(&args.memories))
}

/// The peer in f32, if it takes part, is the first.
fn contestants(args: &Arguments) -> anyhow::Result<Vec<Contestant>> {
    let (mut all, threads) = (Vec::new(), args.threads.to_string());
    let mut dtypes: Vec<&String> = args.peer.iter().flat_map(|_| &args.peer_dtypes).collect();
    dtypes.sort_by_key(|dtype| *dtype != REFERENCE);
    for (python, dtype) in args.peer.iter().cycle().zip(dtypes) {
        let files = [args.work.join(CHECKPOINT).join("model.safetensors"), args.work.join(INPUTS)];
        let mut command = Command::new(python);
        command.args(["-c", PEER]).args(files).args([dtype, &threads, &args.peer_device]);
        all.push(Contestant::start(&mut command, &python.display().to_string())?);
    }
    for setup in &args.engines {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["memory", "--quiet", "--worker", &setup.name(), "--threads", &threads, "--work"]);
        all.push(Contestant::start(command.arg(&args.work), &setup.name())?);
    }
    Ok(all)
}

/// Runs a command on all contestants in turn, and writes a line for each.
fn measure(
    args: &Arguments,
    lines: &Lines,
    all: &mut [Contestant],
    command: String,
    [objects, memories]: [usize; 2],
) -> anyhow::Result<()> {
    let mut times = vec![Vec::with_capacity(args.runs); all.len()];
    let mut last = vec![Answer::default(); all.len()];
    for run in 0..args.warm_up + args.runs {
        for (index, contestant) in all.iter_mut().enumerate() {
            interrupted()?;
            last[index] = contestant.run(&command)?;
            if run >= args.warm_up {
                times[index].push([last[index].ms, last[index].cpu_ms]);
            }
        }
    }
    let of = |times: &[[f64; 2]], which: usize| Quantiles::of(times.iter().map(|both| both[which]).collect());
    let quantiles: Vec<_> = times.iter().map(|times| [of(times, 0), of(times, 1)]).collect();
    let has_reference = args.peer.is_some() && args.peer_dtypes.iter().any(|dtype| dtype == REFERENCE);
    for (index, ((contestant, [ms, cpu_ms]), answer)) in all.iter().zip(&quantiles).zip(&last).enumerate() {
        let peer = (has_reference && index > 0).then(|| (&quantiles[0], &last[0]));
        lines.write(&Line {
            program: "bench memory",
            engine: &contestant.name,
            part: command.split(' ').next().unwrap_or_default(),
            objects,
            memories,
            ms: *ms,
            of_peer: peer.map(|(peer, _)| ms.p50 / peer[0].p50),
            cpu_ms: *cpu_ms,
            cpu_of_peer: peer.map(|(peer, _)| cpu_ms.p50 / peer[1].p50),
            peak_memory_mib: answer.peak_memory_mib,
            memory_of_peer: peer.map(|(_, peer)| answer.peak_memory_mib / peer.peak_memory_mib),
            score_difference: peer.and_then(|(_, peer)| answer.score_difference(peer)),
            threads: args.threads,
            machine: &lines.machine,
        })?;
    }
    Ok(())
}
