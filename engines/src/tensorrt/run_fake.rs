//! A TensorRT that is not there, on a GPU that is not there.

use super::run_calls::{ContextCalls, PlanCalls, PlanTensor, Reason, Refusal, RunCalls};
use crate::cuda::RawStream;
use crate::cuda::fake::{FakeCudaCalls, FakeMemory, FakeWork};
use crate::error::Result as EngineResult;
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::{ElementType, Tensor};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Compute = dyn Fn(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> EngineResult<()> + Send + Sync;

/// A library that knows one plan, whose network is a closure.
///
/// It holds its callers to what TensorRT demands: addresses at multiples of 256, shapes within the profile, every tensor
/// placed before a run, no capture in the first run after a change of shapes, and no launch of a graph that was captured
/// before one. What it finds is in [`misuse`](Self::misuse), besides what the GPU's [`races`](FakeCudaCalls::races)
/// report.
pub(super) struct FakeRunCalls {
    network: Arc<FakeNetwork>,
}

pub(super) struct FakeNetwork {
    cuda: Arc<FakeCudaCalls>,
    plan: Vec<u8>,
    pub(super) tensors: Vec<PlanTensor>,
    specs: Vec<TensorSpec>,
    compute: Box<Compute>,
    duration: u64,
    label: String,
    can_be_captured: bool,
    starts: bool,
    misuse: Mutex<Vec<String>>,
    pub(super) counts: Counts,
}

/// How often what was called.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) deserialized: AtomicUsize,
    pub(super) contexts: AtomicUsize,
    pub(super) shapes: AtomicUsize,
    pub(super) addresses: AtomicUsize,
    pub(super) enqueued: AtomicUsize,
    /// Contexts and plans that have been dropped.
    pub(super) dropped: AtomicUsize,
}

impl Counts {
    pub(super) fn read(&self) -> [usize; 3] {
        [&self.shapes, &self.addresses, &self.enqueued].map(|count| count.load(Ordering::Relaxed))
    }
}

impl FakeRunCalls {
    /// The plan of a network, whose named dimensions may have the sizes of `ranges`.
    pub(super) fn new(
        cuda: &Arc<FakeCudaCalls>,
        plan: &[u8],
        spec: &EngineSpec,
        ranges: &BTreeMap<&str, [i64; 2]>,
        compute: impl Fn(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> EngineResult<()>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let describe = |spec: &TensorSpec, is_input: bool| {
            let size = |dim: &Dim, bound: Option<usize>| match dim {
                Dim::Fixed(size) => *size as i64,
                Dim::Named(name) => bound.map_or(-1, |bound| ranges[name.as_str()][bound]),
            };
            let sizes = |bound| spec.shape.iter().map(|dim| size(dim, bound)).collect();
            PlanTensor {
                name: spec.name.clone(),
                is_input,
                data_type: data_type(spec.element_type),
                is_on_host: false,
                is_linear: true,
                sizes: sizes(None),
                range: is_input.then(|| [sizes(Some(0)), sizes(Some(1))]),
            }
        };
        let inputs = spec.inputs.iter().map(|input| describe(input, true));
        let outputs = spec.outputs.iter().map(|output| describe(output, false));
        let network = FakeNetwork {
            cuda: Arc::clone(cuda),
            plan: plan.to_vec(),
            tensors: inputs.chain(outputs).collect(),
            specs: spec.inputs.iter().chain(&spec.outputs).cloned().collect(),
            compute: Box::new(compute),
            duration: 100,
            label: "network".to_owned(),
            can_be_captured: true,
            starts: true,
            misuse: Mutex::default(),
            counts: Counts::default(),
        };
        Self { network: Arc::new(network) }
    }

    fn changed(mut self, change: impl FnOnce(&mut FakeNetwork)) -> Self {
        change(Arc::get_mut(&mut self.network).expect("nobody has it yet"));
        self
    }

    /// What a run is called on the GPU's timeline, and how long it takes.
    pub(super) fn with_duration(self, label: &str, duration: u64) -> Self {
        self.changed(|network| (network.label, network.duration) = (label.to_owned(), duration))
    }

    /// A network that cannot be captured, which it says or does not say.
    pub(super) fn without_captures(self) -> Self {
        self.changed(|network| network.can_be_captured = false)
    }

    /// A library that does not start, as without a driver.
    pub(super) fn without_start(self) -> Self {
        self.changed(|network| network.starts = false)
    }

    /// Has the plan describe its tensors in another way.
    pub(super) fn with_tensors(self, change: impl FnOnce(&mut Vec<PlanTensor>)) -> Self {
        self.changed(|network| change(&mut network.tensors))
    }

    pub(super) fn network(&self) -> Arc<FakeNetwork> {
        Arc::clone(&self.network)
    }
}

impl FakeNetwork {
    /// Everything that TensorRT would not have stood, one line each.
    pub(super) fn misuse(&self) -> Vec<String> {
        self.misuse.lock().expect("no test panics with it").clone()
    }

    fn report(&self, what: String) {
        self.misuse.lock().expect("no test panics with it").push(what);
    }
}

fn data_type(element_type: ElementType) -> i32 {
    match element_type {
        ElementType::F32 => 0,
        ElementType::F16 => 1,
        ElementType::I32 => 3,
        ElementType::Bool => 4,
        ElementType::U8 => 5,
        ElementType::I64 => 8,
    }
}

impl RunCalls for FakeRunCalls {
    fn library(&self) -> String {
        "fake TensorRT 1.0.0".to_owned()
    }

    fn deserialize(&self, plan: &[u8]) -> Result<Arc<dyn PlanCalls>, Refusal> {
        let known = &self.network.plan;
        if plan == known && self.network.starts {
            self.network.counts.deserialized.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::new(FakePlan { network: Arc::clone(&self.network) }));
        }
        if !self.network.starts {
            return Err(Refusal::Library("CUDA initialization failure with error: 35".to_owned()));
        }
        // TensorRT's own words.
        Err(Refusal::Plan(if known.starts_with(plan) {
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion plan.header.size == blobSize failed.)".to_owned()
        } else {
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion \
             stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match.)"
                .to_owned()
        }))
    }
}

impl fmt::Debug for FakeRunCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeRunCalls")
    }
}

struct FakePlan {
    network: Arc<FakeNetwork>,
}

impl PlanCalls for FakePlan {
    fn tensors(&self) -> Result<Vec<PlanTensor>, Reason> {
        Ok(self.network.tensors.clone())
    }

    fn context_bytes(&self) -> u64 {
        1 << 20
    }

    fn create_context(self: Arc<Self>, _is_captured: bool) -> Result<Box<dyn ContextCalls>, Reason> {
        self.network.counts.contexts.fetch_add(1, Ordering::Relaxed);
        let tensors = self.network.tensors.len();
        Ok(Box::new(FakeContext {
            plan: self,
            shapes: vec![None; tensors],
            addresses: vec![0; tensors],
            generation: Arc::default(),
            is_warm: false,
        }))
    }
}

impl Drop for FakePlan {
    fn drop(&mut self) {
        self.network.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct FakeContext {
    plan: Arc<FakePlan>,
    /// Of inputs, where they were said.
    shapes: Vec<Option<Vec<i64>>>,
    addresses: Vec<u64>,
    /// How often the shapes changed: a graph of earlier shapes must not be launched.
    generation: Arc<AtomicUsize>,
    /// Whether a run was enqueued, not captured, since the shapes changed.
    is_warm: bool,
}

impl FakeContext {
    /// The shape of a tensor; -1 where a dimension is not an input's.
    fn shape(&self, at: usize) -> Result<Vec<i64>, Reason> {
        let network = &self.plan.network;
        let size = |dim: &Dim| -> Result<i64, Reason> {
            let Dim::Named(name) = dim else {
                let Dim::Fixed(size) = dim else { unreachable!() };
                return Ok(*size as i64);
            };
            for (at, spec) in network.specs.iter().enumerate().filter(|(at, _)| network.tensors[*at].is_input)
            {
                let axis = spec.shape.iter().position(|own| matches!(own, Dim::Named(own) if own == name));
                if let Some(axis) = axis {
                    let shape = self.shapes[at].as_ref().ok_or("an input has no shape")?;
                    return Ok(shape[axis]);
                }
            }
            Ok(-1)
        };
        network.specs[at].shape.iter().map(size).collect()
    }
}

impl ContextCalls for FakeContext {
    fn set_input_shape(&mut self, tensor: usize, shape: &[i64]) -> Result<(), Reason> {
        let network = &self.plan.network;
        network.counts.shapes.fetch_add(1, Ordering::Relaxed);
        let Some([least, most]) = &network.tensors[tensor].range else {
            return Err("not an input".to_owned());
        };
        let fits = |(size, (least, most)): (&i64, (&i64, &i64))| (least..=most).contains(&size);
        if shape.len() != least.len() || !shape.iter().zip(least.iter().zip(most)).all(fits) {
            network.report(format!(
                "{} is given a shape outside the profile: {shape:?}",
                network.tensors[tensor].name
            ));
            return Err("outside the profile".to_owned());
        }
        self.shapes[tensor] = Some(shape.to_vec());
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.is_warm = false;
        Ok(())
    }

    fn shape_into(&self, tensor: usize, shape: &mut Vec<i64>) -> Result<(), Reason> {
        *shape = self.shape(tensor)?;
        Ok(())
    }

    unsafe fn set_address(&mut self, tensor: usize, address: u64) -> Result<(), Reason> {
        let network = &self.plan.network;
        network.counts.addresses.fetch_add(1, Ordering::Relaxed);
        if address == 0 || !address.is_multiple_of(256) {
            network.report(format!("{} is placed at {address:#x}", network.tensors[tensor].name));
        }
        self.addresses[tensor] = address;
        Ok(())
    }

    fn can_be_captured(&self, _stream: RawStream) -> bool {
        self.plan.network.can_be_captured
    }

    unsafe fn enqueue(&mut self, stream: RawStream) -> Result<(), Reason> {
        let network = Arc::clone(&self.plan.network);
        network.counts.enqueued.fetch_add(1, Ordering::Relaxed);
        let captures = network.cuda.is_being_captured(stream);
        if captures && !self.is_warm {
            network.report("a capture in the first run after a change of shapes".to_owned());
        }
        self.is_warm = true;
        let mut places = Vec::new();
        for (at, spec) in network.specs.iter().enumerate() {
            let shape = self.shape(at)?;
            let address = self.addresses[at];
            if address == 0 {
                return Err(format!("{} has no address", spec.name));
            }
            let shape: Vec<usize> = shape
                .iter()
                .map(|&size| usize::try_from(size).map_err(|_| "a shape is not known".to_owned()))
                .collect::<Result<_, _>>()?;
            let bytes = shape.iter().product::<usize>() * spec.element_type.size();
            places.push((at, address, shape, bytes));
        }
        let range = |inputs: bool| {
            let side = places.iter().filter(|(at, ..)| network.tensors[*at].is_input == inputs);
            side.map(|(_, address, _, bytes)| (*address, *bytes)).collect::<Vec<_>>()
        };
        let (reads, writes) = (range(true), range(false));
        let (counter, generation) = (Arc::clone(&self.generation), self.generation.load(Ordering::Relaxed));
        let (label, duration, cuda) = (network.label.clone(), network.duration, Arc::clone(&network.cuda));
        let run = move |memory: &mut FakeMemory| {
            if captures && counter.load(Ordering::Relaxed) != generation {
                network.report("a graph of earlier shapes is launched".to_owned());
            }
            compute(&network, &places, memory);
        };
        let work = FakeWork { label, reads, writes, duration, run: Arc::new(run) };
        cuda.enqueue_work(stream, work).map_err(|error| error.to_string())
    }
}

fn compute(network: &FakeNetwork, places: &[(usize, u64, Vec<usize>, usize)], memory: &mut FakeMemory) {
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for (at, address, shape, bytes) in places {
        let spec = &network.specs[*at];
        let mut tensor = Tensor::empty();
        tensor.reset_to(spec.element_type, shape).expect("it is small");
        if network.tensors[*at].is_input {
            if *bytes > 0 {
                let fill = |own: &mut [u8]| {
                    own.copy_from_slice(memory.bytes(*address, *bytes));
                    Ok(())
                };
                tensor.fill_bytes(fill).expect("it is the host's");
            }
            inputs.push((spec.name.as_str(), tensor));
        } else {
            outputs.push((spec.name.as_str(), tensor, *address));
        }
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let mut borrowed: Vec<_> = outputs.iter_mut().map(|(name, tensor, _)| (*name, tensor)).collect();
    (network.compute)(&inputs, &mut borrowed).expect("the network computes");
    for (_, tensor, address) in &outputs {
        let bytes = tensor.bytes().expect("it is the host's");
        if !bytes.is_empty() {
            memory.bytes_mut(*address, bytes.len()).copy_from_slice(bytes);
        }
    }
}

impl Drop for FakeContext {
    fn drop(&mut self) {
        self.plan.network.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
