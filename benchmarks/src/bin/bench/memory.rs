//! `bench memory`: time and memory of the memory trackers at the released size, beside torch.

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
/// The peer's format that others are compared with.
const REFERENCE: &str = "float32";

/// A memory tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    #[value(name = "sam3")]
    Sam3,
    #[value(name = "sam3.1")]
    Sam31,
}

impl Network {
    fn name(self) -> String {
        self.to_possible_value().expect("no network is skipped").get_name().to_owned()
    }

    /// The checkpoint: the folder of `transformers`, or Meta's file.
    fn checkpoint(self, work: &Path) -> PathBuf {
        match self {
            Self::Sam3 => work.join("checkpoint"),
            Self::Sam31 => work.join("checkpoint-3.1").join("sam3.1_multiplex.safetensors"),
        }
    }

    /// The file of the weights.
    fn weights(self, work: &Path) -> PathBuf {
        match self {
            Self::Sam3 => self.checkpoint(work).join("model.safetensors"),
            Self::Sam31 => self.checkpoint(work),
        }
    }

    fn inputs(self, work: &Path) -> PathBuf {
        work.join(format!("inputs-{}.safetensors", self.name()))
    }

    /// The program of the peer.
    fn peer(self) -> &'static str {
        match self {
            Self::Sam3 => {
                concat!(include_str!("../../../memory/peer.py"), include_str!("../../../memory/answer.py"))
            }
            Self::Sam31 => concat!(
                include_str!("../../../../tests/golden/checkpoints/multiplex_model.py"),
                include_str!("../../../memory/multiplex_peer.py"),
                include_str!("../../../memory/answer.py")
            ),
        }
    }
}

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

    fn graphs(self, network: Network, work: &Path) -> PathBuf {
        let half = if self.exported().is_half() { "-fp16" } else { "" };
        work.join(format!("graphs-{}-{:?}{half}", network.name(), self.target()).to_lowercase())
    }
}

/// Measures the memory trackers at the released size with random weights and writes JSON lines, one per measurement.
///
/// Engines, and with --peer torch in f32 and bf16, run in processes of their own and take turns, run by run, so that a machine that slows down
/// slows all. `features` runs once a frame, `step` tracks objects by their memories, `encode` makes new memories. Peak memory
/// is that of the process so far; numbers of memories ascend, and each number of objects has new processes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Trackers
    #[arg(long, value_enum, num_args = 1.., default_values = ["sam3", "sam3.1"])]
    networks: Vec<Network>,
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
    /// Folder for the checkpoint and the graphs, 0.8 GB for each tracker; they are made if missing
    #[arg(long, default_value = "target/bench_memory", value_name = "DIR")]
    work: PathBuf,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Answer the commands on stdin with this engine
    #[arg(long, value_enum, hide = true)]
    worker: Option<Setup>,
    /// The tracker of the worker
    #[arg(long, value_enum, hide = true, default_value = "sam3")]
    network: Network,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    network: &'a str,
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
        let (graphs, inputs) = (setup.graphs(args.network, &args.work), args.network.inputs(&args.work));
        return worker::run(args.network, setup, &graphs, &inputs, args.threads);
    }
    let ascend = args.memories.windows(2).all(|pair| pair[0] < pair[1]);
    if args.runs == 0 || args.objects.contains(&0) || args.memories.contains(&0) || !ascend {
        let message = "--runs, --objects, --memories: expected at least 1, and memories in ascending order";
        return Err(cli::usage(message));
    }
    args.networks.iter().try_for_each(|network| prepare(args, *network))?;
    let lines = Lines::new("memory", args.output.as_deref())?;
    for (&objects, &network) in
        args.objects.iter().flat_map(|objects| args.networks.iter().map(move |network| (objects, network)))
    {
        let mut all = contestants(args, network)?;
        let mut part = |command: String, sizes| measure(args, network, &lines, &mut all, &command, sizes);
        part("features".to_owned(), [0, 0])?;
        for &memories in &args.memories {
            part(format!("step {objects} {memories}"), [objects, memories])?;
        }
        part(format!("encode {objects}"), [objects, 0])?;
    }
    Ok(())
}

/// Makes what is missing in the work folder; inputs are written anew.
fn prepare(args: &Arguments, network: Network) -> anyhow::Result<()> {
    let (checkpoint, weights) = (network.checkpoint(&args.work), network.weights(&args.work));
    let folder = weights.parent().expect("it is in the work folder");
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder, {}", folder.display()))?;
    // What is written last.
    let mark = if network == Network::Sam3 { folder.join("config.json") } else { weights.clone() };
    if !mark.exists() {
        status(format!("random weights, {}", network.name()));
        write_atomically(&folder.join("tokenizer.json"), |file| file.write_all(TOKENIZER))?;
        match network {
            Network::Sam3 => random_weights::write_tracker(folder).map(drop)?,
            Network::Sam31 => random_weights::write_multiplex(&weights)?,
        }
    }
    for setup in &args.engines {
        let graphs = setup.graphs(network, &args.work);
        if !graphs.exists() {
            status(format!("export, {}", graphs.display()));
            let options = ExportOptions {
                target: setup.target(),
                precision: setup.exported(),
                ..ExportOptions::default()
            };
            export(&Checkpoint::open(&checkpoint)?, &options, &graphs, |_| Ok(()))?;
        }
    }
    let most = |numbers: &[usize]| numbers.iter().copied().max().unwrap_or(1);
    worker::write_inputs(network, &network.inputs(&args.work), most(&args.objects), most(&args.memories))
}

/// The peer in f32, if it takes part, is the first.
fn contestants(args: &Arguments, network: Network) -> anyhow::Result<Vec<Contestant>> {
    let (mut all, threads) = (Vec::new(), args.threads.to_string());
    let mut dtypes: Vec<&String> = args.peer.iter().flat_map(|_| &args.peer_dtypes).collect();
    dtypes.sort_by_key(|dtype| *dtype != REFERENCE);
    for (python, dtype) in args.peer.iter().cycle().zip(dtypes) {
        let files = [network.weights(&args.work), network.inputs(&args.work)];
        let mut command = Command::new(python);
        command.args(["-c", network.peer()]).args(files).args([dtype, &threads, &args.peer_device]);
        all.push(Contestant::start(&mut command, &python.display().to_string())?);
    }
    for setup in &args.engines {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["memory", "--quiet", "--worker", &setup.name(), "--network", &network.name()]);
        command.args(["--threads", &threads, "--work"]);
        all.push(Contestant::start(command.arg(&args.work), &setup.name())?);
    }
    Ok(all)
}

/// Runs a command on all contestants in turn, and writes a line for each.
fn measure(
    args: &Arguments,
    network: Network,
    lines: &Lines,
    all: &mut [Contestant],
    command: &str,
    [objects, memories]: [usize; 2],
) -> anyhow::Result<()> {
    let mut times = vec![Vec::with_capacity(args.runs); all.len()];
    let mut last = vec![Answer::default(); all.len()];
    for run in 0..args.warm_up + args.runs {
        for (index, contestant) in all.iter_mut().enumerate() {
            interrupted()?;
            last[index] = contestant.run(command)?;
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
            network: &network.name(),
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
