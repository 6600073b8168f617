//! The tracker's graphs on one engine: reads commands from stdin and answers each with a line of JSON.

use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use ocelli::engines::{Device, Engine, Tensor};
use ocelli::export::contract::{Precision, file, tensor};
use ocelli::{Detector, EngineKind, ModelSource, options::PrecisionChoice};
use ocelli_benchmarks::contestant::{Answer, Greeting};
use ocelli_benchmarks::machine::{cpu_ms, peak_memory_mib};
use ocelli_cli::print;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde::Serialize;

use super::Setup;

/// P, D, the width of a memory, and the channels of the backbone, at the released size.
const GRID: usize = 72;
const WIDTH: usize = 256;
const MEMORY: usize = 64;
const HIDDEN: usize = 1024;
/// Pointers of an object.
const POINTERS: usize = 16;
/// The row of the table of times for conditioning frames.
const CONDITIONING: i64 = 6;

/// Writes the inputs of all parts, for so many objects and memories of each: noise as large as real features.
pub fn write_inputs(path: &Path, objects: usize, memories: usize) -> anyhow::Result<()> {
    let (tokens, side) = (GRID * GRID, 4 * GRID);
    let mut state = 0x9e37_79b9_u32;
    let mut noise = |count: usize, size: f32| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            size * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        (0..count).flat_map(|_| next().to_le_bytes()).collect()
    };
    let integers =
        |numbers: Vec<i64>| -> Vec<u8> { numbers.into_iter().flat_map(i64::to_le_bytes).collect() };
    // The first memories of an object are those of conditioning frames where there are more than the six others.
    let time = |place: usize| {
        let conditioning = memories.saturating_sub(CONDITIONING as usize).max(1);
        if place < conditioning { CONDITIONING } else { (place - conditioning) as i64 }
    };
    let places = || (0..objects).flat_map(|_| 0..memories);
    let slots = (0..(objects * memories) as i64).collect();
    let offsets = (0..objects).flat_map(|_| (1..=POINTERS).map(|ago| ago as f32 / 15.0));
    let tensors = [
        ("hidden", Dtype::F32, vec![1, HIDDEN, GRID, GRID], noise(HIDDEN * tokens, 1.5)),
        (
            "bank",
            Dtype::F32,
            vec![objects * memories, tokens, MEMORY],
            noise(objects * memories * tokens * MEMORY, 1.5),
        ),
        ("slots", Dtype::I64, vec![objects, memories], integers(slots)),
        ("times", Dtype::I64, vec![objects, memories], integers(places().map(time).collect())),
        ("pointers", Dtype::F32, vec![objects, POINTERS, WIDTH], noise(objects * POINTERS * WIDTH, 1.5)),
        ("offsets", Dtype::F32, vec![objects, POINTERS], offsets.flat_map(f32::to_le_bytes).collect()),
        ("masks", Dtype::F32, vec![objects, side, side], noise(objects * side * side, 8.0)),
    ];
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| Ok((*name, TensorView::new(*dtype, shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    serialize_to_file(views, None, path)
        .with_context(|| format!("cannot write the inputs, {}", path.display()))
}

/// The inputs, and what `features` computes of them.
struct Worker {
    features: Box<dyn Engine>,
    step: Box<dyn Engine>,
    encoder: Box<dyn Engine>,
    hidden: Tensor,
    bank: Tensor,
    slots: Vec<i64>,
    times: Vec<i64>,
    pointers: Tensor,
    offsets: Tensor,
    masks: Tensor,
    of_frame: [Tensor; 5],
    of_objects: [Tensor; 4],
    memory: Tensor,
}

/// Answers the commands on stdin until it ends.
pub fn run(setup: Setup, graphs: &Path, inputs: &Path, threads: usize) -> anyhow::Result<()> {
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
    let load = |graph| detector.model().load_graph(detector.engine_factory(), graph);
    let (features, step, encoder) =
        (load(file::TRACK_FEATURES)?, load(file::TRACK_STEP)?, load(file::MEMORY_ENCODER)?);
    reply(&Greeting { name: format!("{}, {precision}", detector.engine()) })?;

    let bytes =
        std::fs::read(inputs).with_context(|| format!("cannot read the inputs, {}", inputs.display()))?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    // As in a video, what the graphs exchange stays on the device of those that have one.
    let device = step.device();
    let there = |host: Tensor| on(device.as_ref(), host);
    let empty = || device.clone().map_or_else(Tensor::empty, Tensor::on);
    let mut worker = Worker {
        features,
        step,
        encoder,
        hidden: there(floats(&tensors, "hidden")?)?,
        bank: there(floats(&tensors, "bank")?)?,
        slots: integers(&tensors, "slots")?,
        times: integers(&tensors, "times")?,
        pointers: floats(&tensors, "pointers")?,
        offsets: floats(&tensors, "offsets")?,
        masks: floats(&tensors, "masks")?,
        of_frame: std::array::from_fn(|_| empty()),
        of_objects: std::array::from_fn(|_| empty()),
        memory: empty(),
    };
    drop(bytes);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>()?;
        let (ms, cpu_ms) = match (name, numbers.as_slice()) {
            ("features", []) => worker.features()?,
            ("step", &[objects, memories]) => worker.step(objects, memories)?,
            ("encode", &[objects]) => worker.encode(objects)?,
            _ => bail!("{line}: no such command"),
        };
        let mut scores = Tensor::empty();
        if name == "step" {
            worker.of_objects[1].copy_to_host_into(&mut scores)?;
        }
        let scores = scores.as_f32()?.to_vec();
        reply(&Answer { ms, cpu_ms, peak_memory_mib: peak_memory_mib(), scores })?;
    }
    Ok(())
}

impl Worker {
    fn features(&mut self) -> anyhow::Result<(f64, f64)> {
        let [fine, middle, pixel, memory_pixel, query] = &mut self.of_frame;
        let mut outputs = [
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::PIXEL, pixel),
            (tensor::MEMORY_PIXEL, memory_pixel),
            (tensor::QUERY_0, query),
        ];
        timed(&mut self.features, &[(tensor::HIDDEN, &self.hidden)], &mut outputs)
    }

    fn step(&mut self, objects: usize, memories: usize) -> anyhow::Result<(f64, f64)> {
        let most = self.slots.len() / self.pointers.shape()[0];
        let rows = |numbers: &[i64]| -> anyhow::Result<Tensor> {
            let rows = numbers.chunks_exact(most).take(objects).flat_map(|row| &row[..memories]);
            Ok(Tensor::i64(&[objects, memories], rows.copied().collect())?)
        };
        let (slots, times) = (rows(&self.slots)?, rows(&self.times)?);
        let (pointers, offsets) = (first(&self.pointers, objects)?, first(&self.offsets, objects)?);
        let [fine, middle, .., query] = &self.of_frame;
        let inputs = [
            (tensor::QUERY_0, query),
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::BANK, &self.bank),
            (tensor::SLOTS, &slots),
            (tensor::SLOT_TIMES, &times),
            (tensor::POINTERS, &pointers),
            (tensor::POINTER_OFFSETS, &offsets),
        ];
        let [masks, score, iou, pointer] = &mut self.of_objects;
        let mut outputs = [
            (tensor::MASKS, masks),
            (tensor::OBJECT_SCORE, score),
            (tensor::IOU, iou),
            (tensor::POINTER, pointer),
        ];
        timed(&mut self.step, &inputs, &mut outputs)
    }

    fn encode(&mut self, objects: usize) -> anyhow::Result<(f64, f64)> {
        let masks = on(self.encoder.device().as_ref(), first(&self.masks, objects)?)?;
        let flags = |flag: bool| Tensor::new(&[objects], vec![flag; objects]);
        let (keep, present, binary) = (flags(true)?, flags(true)?, flags(false)?);
        let prompts = Tensor::zeros::<f32>(&[1, 16 * GRID, 16 * GRID]);
        let inputs = [
            (tensor::MEMORY_PIXEL, &self.of_frame[3]),
            (tensor::MASKS, &masks),
            (tensor::KEEP, &keep),
            (tensor::PRESENT, &present),
            (tensor::BINARY, &binary),
            (tensor::PROMPTS, &prompts),
        ];
        timed(&mut self.encoder, &inputs, &mut [(tensor::MEMORY, &mut self.memory)])
    }
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
