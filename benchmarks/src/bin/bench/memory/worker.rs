//! The graphs of a memory tracker on one engine: reads commands from stdin and answers each with a line of JSON.

mod buckets;
mod objects;

use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use ocelli::engines::{Device, Engine, Tensor};
use ocelli::export::contract::Precision;
use ocelli::{Detector, EngineKind, ModelSource, options::PrecisionChoice};
use ocelli_benchmarks::contestant::{Answer, Greeting};
use ocelli_benchmarks::machine::{cpu_ms, peak_memory_mib};
use ocelli_cli::print;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde::Serialize;

use super::{Network, Setup};
use buckets::Buckets;
use objects::Objects;

/// P, D and the channels of the backbone, at the released size.
const GRID: usize = 72;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
/// Pointers of an object.
const POINTERS: usize = 16;
/// The row of the table of times for conditioning frames.
const CONDITIONING: i64 = 6;

/// The parts of a tracker; each returns its milliseconds, and those of all cores.
trait Parts {
    /// Once a frame.
    fn features(&mut self) -> anyhow::Result<(f64, f64)>;
    /// Tracks objects by so many memories.
    fn step(&mut self, objects: usize, memories: usize) -> anyhow::Result<(f64, f64)>;
    /// Makes the memories of objects.
    fn encode(&mut self, objects: usize) -> anyhow::Result<(f64, f64)>;
    /// The object scores of the last step.
    fn scores(&self) -> &Tensor;
}

/// What both trackers are given. As in a video, what the graphs exchange stays on the device of those that have one.
struct Given {
    hidden: Tensor,
    bank: Tensor,
    slots: Vec<i64>,
    times: Vec<i64>,
    pointers: Tensor,
    offsets: Tensor,
    masks: Tensor,
}

impl Given {
    fn new(tensors: &SafeTensors<'_>, device: Option<&Device>) -> anyhow::Result<Self> {
        Ok(Self {
            hidden: on(device, floats(tensors, "hidden")?)?,
            bank: on(device, floats(tensors, "bank")?)?,
            slots: integers(tensors, "slots")?,
            times: integers(tensors, "times")?,
            pointers: floats(tensors, "pointers")?,
            offsets: floats(tensors, "offsets")?,
            masks: floats(tensors, "masks")?,
        })
    }

    /// The first rows and columns of a table of the objects, or of buckets of them.
    fn table(&self, table: &[i64], rows: usize, columns: usize) -> anyhow::Result<Tensor> {
        let most = table.len() / self.pointers.shape()[0];
        let numbers = table.chunks_exact(most).take(rows).flat_map(|row| &row[..columns]);
        Ok(Tensor::i64(&[rows, columns], numbers.copied().collect())?)
    }
}

/// The inputs of a network, made for a number of objects and of memories.
#[derive(Default)]
struct Inputs {
    tensors: Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
    random: u32,
}

impl Inputs {
    /// Noise, as large as real features.
    fn noise(&mut self, name: &'static str, shape: &[usize], size: f32) {
        let mut next = || {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            size * ((self.random >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        let bytes = (0..shape.iter().product()).flat_map(|_| next().to_le_bytes()).collect();
        self.tensors.push((name, Dtype::F32, shape.to_vec(), bytes));
    }

    fn integers(&mut self, name: &'static str, shape: &[usize], numbers: impl IntoIterator<Item = i64>) {
        let bytes = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
        self.tensors.push((name, Dtype::I64, shape.to_vec(), bytes));
    }

    /// The times of memories, and how long ago their pointers are: of so many objects, or buckets of them.
    fn times(&mut self, rows: usize, memories: usize) {
        // The first memories are those of conditioning frames where there are more than the six others.
        let conditioning = memories.saturating_sub(CONDITIONING as usize).max(1);
        let time =
            |place: usize| if place < conditioning { CONDITIONING } else { (place - conditioning) as i64 };
        self.integers("times", &[rows, memories], (0..rows).flat_map(|_| (0..memories).map(time)));
        let offsets = (0..rows).flat_map(|_| (1..=POINTERS).map(|ago| ago as f32 / 15.0));
        let bytes = offsets.flat_map(f32::to_le_bytes).collect();
        self.tensors.push(("offsets", Dtype::F32, vec![rows, POINTERS], bytes));
    }
}

/// Writes the inputs of all parts of a network, for so many objects and memories of each.
pub fn write_inputs(network: Network, path: &Path, objects: usize, memories: usize) -> anyhow::Result<()> {
    let mut inputs = Inputs { random: 0x9e37_79b9, ..Inputs::default() };
    inputs.noise("hidden", &[1, HIDDEN, GRID, GRID], 1.5);
    inputs.noise("masks", &[objects, 4 * GRID, 4 * GRID], 8.0);
    match network {
        Network::Sam3 => objects::add_inputs(&mut inputs, objects, memories),
        Network::Sam31 => buckets::add_inputs(&mut inputs, objects, memories),
    }
    let views = inputs.tensors.iter();
    let views =
        views.map(|(name, dtype, shape, bytes)| Ok((*name, TensorView::new(*dtype, shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    serialize_to_file(views, None, path)
        .with_context(|| format!("cannot write the inputs, {}", path.display()))
}

/// Answers the commands on stdin until it ends.
pub fn run(
    network: Network,
    setup: Setup,
    graphs: &Path,
    inputs: &Path,
    threads: usize,
) -> anyhow::Result<()> {
    let (kind, precision) = match setup {
        Setup::Onnxruntime => (EngineKind::Cpu, Precision::Fp32),
        Setup::Openvino => ("openvino".parse()?, Precision::Fp32),
        Setup::OpenvinoBf16 => ("openvino".parse()?, Precision::Bf16),
        Setup::Embedded => (EngineKind::Embedded, Precision::Fp32),
        Setup::Cuda => ("cuda".parse()?, Precision::Fp32),
        Setup::CudaFp16 => ("cuda".parse()?, Precision::Fp16),
    };
    let builder = Detector::builder().with_model(ModelSource::Folder(graphs.to_owned())).with_engine(kind);
    let builder = builder.with_options(|options| options.precision = Some(PrecisionChoice::Of(precision)));
    let detector = builder.with_threads(threads).build()?;
    let bytes =
        std::fs::read(inputs).with_context(|| format!("cannot read the inputs, {}", inputs.display()))?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    let mut parts: Box<dyn Parts> = match network {
        Network::Sam3 => Box::new(Objects::new(&detector, &tensors)?),
        Network::Sam31 => Box::new(Buckets::new(&detector, &tensors)?),
    };
    drop(bytes);
    reply(&Greeting { name: format!("{}, {precision}", detector.engine()) })?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>()?;
        let (ms, cpu_ms) = match (name, numbers.as_slice()) {
            ("features", []) => parts.features()?,
            ("step", &[objects, memories]) => parts.step(objects, memories)?,
            ("encode", &[objects]) => parts.encode(objects)?,
            _ => bail!("{line}: no such command"),
        };
        let mut scores = Tensor::empty();
        if name == "step" {
            parts.scores().copy_to_host_into(&mut scores)?;
        }
        let scores = scores.as_f32()?.to_vec();
        reply(&Answer { ms, cpu_ms, peak_memory_mib: peak_memory_mib(), scores })?;
    }
    Ok(())
}

/// The engine of a graph.
fn load(detector: &Detector, graph: &str) -> anyhow::Result<Box<dyn Engine>> {
    Ok(detector.model().load_graph(detector.engine_factory(), graph)?)
}

/// Tensors on a device, or in host memory without one.
fn outputs<const N: usize>(device: Option<&Device>) -> [Tensor; N] {
    std::array::from_fn(|_| device.cloned().map_or_else(Tensor::empty, Tensor::on))
}

/// A tensor in the memory of a device, or in host memory without one.
fn on(device: Option<&Device>, host: Tensor) -> anyhow::Result<Tensor> {
    let Some(device) = device else { return Ok(host) };
    let mut there = Tensor::on(device.clone());
    there.copy_from_host(&host)?;
    Ok(there)
}

/// Runs a graph; milliseconds, and those of all cores.
fn timed(
    engine: &mut Box<dyn Engine>,
    inputs: &[(&str, &Tensor)],
    outputs: &mut [(&str, &mut Tensor)],
) -> anyhow::Result<(f64, f64)> {
    let (start, cpu) = (Instant::now(), cpu_ms());
    engine.run(inputs, outputs)?;
    outputs.iter().try_for_each(|(_, output)| output.wait())?;
    Ok((start.elapsed().as_secs_f64() * 1e3, cpu_ms() - cpu))
}

/// The first rows of a tensor.
fn first(tensor: &Tensor, rows: usize) -> anyhow::Result<Tensor> {
    let mut shape = tensor.shape().to_vec();
    shape[0] = rows;
    let count = shape.iter().product::<usize>();
    Ok(Tensor::f32(&shape, tensor.as_f32()?[..count].to_vec())?)
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> anyhow::Result<Tensor> {
    let view = tensors.tensor(name)?;
    let numbers =
        view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    Ok(Tensor::f32(view.shape(), numbers.collect())?)
}

fn integers(tensors: &SafeTensors<'_>, name: &str) -> anyhow::Result<Vec<i64>> {
    let view = tensors.tensor(name)?;
    let numbers = view.data().chunks_exact(8).map(|bytes| bytes.try_into().map(i64::from_le_bytes));
    Ok(numbers.collect::<Result<_, _>>()?)
}

fn reply(message: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    print(|out| {
        writeln!(out, "{text}")?;
        out.flush()
    })
}
