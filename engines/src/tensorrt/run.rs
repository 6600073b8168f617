//! Plans that run.

use super::TensorRt;
use super::run_calls::{ContextCalls, PlanCalls};
use super::run_graphs::{Graphs, Way};
use super::run_loader::TensorRtLoader;
use super::run_plan::{Description, Remedy};
use crate::cuda::{CudaBuffer, CudaDevice, CudaStream, Download, StreamPriority};
use crate::device::{Device, DeviceBuffer};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::DimensionRange;
use crate::spec::{EngineSpec, check_residence, check_run};
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Addresses begin at multiples of this, in bytes.
const ALIGNMENT: u64 = 256;

/// A plan that TensorRT runs on a GPU.
///
/// Inputs and outputs on the engine's [device](Engine::device) are read and written where they are; those of the host's
/// memory go through page-locked memory, and the host waits once for all outputs. Runs are enqueued on a stream of the
/// engine's own: two engines run beside each other, in the order that their tensors ask for. Runs that come again with
/// the same shapes and addresses are captured as CUDA graphs.
///
/// A run makes no memory on the device once its sizes have been seen. Outputs that are not asked for are computed, too.
pub struct TensorRtEngine {
    shared: Arc<Shared>,
    /// Dropped in this order, after a wait: captured runs, what they run in, and the memory it works on.
    graphs: Graphs,
    context: Box<dyn ContextCalls>,
    /// One for each tensor of the plan.
    slots: Vec<Slot>,
    /// The addresses of this run, by the plan's positions.
    addresses: Vec<u64>,
    downloads: Vec<Download>,
    stream: CudaStream,
}

/// What engines of one plan share.
pub(super) struct Shared {
    pub(super) text: String,
    /// The weights.
    pub(super) plan: Arc<dyn PlanCalls>,
    pub(super) description: Description,
    pub(super) tensors: usize,
    pub(super) device: Arc<CudaDevice>,
    pub(super) priority: StreamPriority,
    pub(super) with_graphs: bool,
    pub(super) remedy: Option<Remedy>,
}

/// What the engine knows of one of the plan's tensors.
#[derive(Default)]
struct Slot {
    /// Whether the shape is what the context has.
    is_known: bool,
    shape: Vec<i64>,
    /// The same, as tensors count.
    sizes: Vec<usize>,
    /// What the context was told; 0 for nothing.
    address: u64,
    /// The engine's own memory for the tensor, where the caller's does not serve.
    own: Option<CudaBuffer>,
}

impl TensorRtEngine {
    /// Puts a plan on a device; [`loader`](Self::loader) for those who have more to say.
    ///
    /// # Errors
    /// As [`TensorRtLoader::load`]; [`ErrorKind::Unavailable`] if the library cannot run plans.
    pub fn load(tensorrt: &TensorRt, device: &Arc<CudaDevice>, plan: &[u8]) -> Result<Self> {
        Self::loader(tensorrt, device)?.load(plan)
    }

    /// Begins to load a plan.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the library cannot run plans.
    pub fn loader(tensorrt: &TensorRt, device: &Arc<CudaDevice>) -> Result<TensorRtLoader> {
        Ok(TensorRtLoader::new(super::calls_of(tensorrt)?, device))
    }

    /// An engine of the same plan for use beside this one: it shares the weights, and has a stream and working memory of
    /// its own.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device has no room for it.
    pub fn another_context(&self) -> Result<Self> {
        Self::of(Arc::clone(&self.shared))
    }

    pub(super) fn of(shared: Arc<Shared>) -> Result<Self> {
        shared.device.bind_to_thread()?;
        let context = Arc::clone(&shared.plan).create_context(shared.with_graphs).map_err(|reason| {
            let bytes = shared.plan.context_bytes();
            let message = format!("{}: a context of {bytes} bytes cannot be made: {reason}", shared.text);
            Error::new(ErrorKind::Execution, message)
        })?;
        Ok(Self {
            graphs: if shared.with_graphs { Graphs::default() } else { Graphs::never() },
            context,
            slots: (0..shared.tensors).map(|_| Slot::default()).collect(),
            addresses: vec![0; shared.tensors],
            downloads: shared.description.outputs.iter().map(|_| Download::default()).collect(),
            stream: CudaStream::new(&shared.device, shared.priority)?,
            shared,
        })
    }

    /// The working memory that each context takes on the device, besides the weights that they share, in bytes.
    pub fn context_bytes(&self) -> u64 {
        self.shared.plan.context_bytes()
    }

    /// The sizes that the named dimensions may have; `optimal` is the greatest, since a plan that runs does not say.
    pub fn dimensions(&self) -> BTreeMap<String, DimensionRange> {
        let ranges = self.shared.description.dimensions();
        let mut dimensions = BTreeMap::new();
        for (name, min, max) in ranges {
            let range =
                dimensions.entry(name.to_owned()).or_insert(DimensionRange { min, optimal: max, max });
            range.min = range.min.max(min);
            range.max = range.max.min(max);
            range.optimal = range.max;
        }
        dimensions
    }

    fn failed(&self, what: &str, reason: &str) -> Error {
        Error::new(ErrorKind::Execution, format!("{}: {what}: {reason}", self.shared.text))
    }

    /// Tells the context the shapes of the inputs where they have changed, and asks for those of the outputs.
    fn set_shapes(&mut self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let description = &shared.description;
        let mut changed = false;
        for (spec, &at) in description.spec.inputs.iter().zip(&description.inputs) {
            let shape = tensor_of(inputs, &spec.name).shape();
            let slot = &mut self.slots[at];
            if slot.is_known && slot.sizes == shape {
                continue;
            }
            changed = true;
            slot.is_known = false;
            slot.shape.clear();
            slot.shape.extend(shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)));
            if let Err(reason) = self.context.set_input_shape(at, &slot.shape) {
                let message =
                    format!("input `{}`: the plan refuses the shape {shape:?}: {reason}", spec.name);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            slot.sizes.clear();
            slot.sizes.extend_from_slice(shape);
            slot.is_known = true;
        }
        if !changed && description.outputs.iter().all(|&at| self.slots[at].is_known) {
            return Ok(());
        }
        self.graphs.forget();
        // If this stops half-way, all are asked for again in the next run.
        description.outputs.iter().for_each(|&at| self.slots[at].is_known = false);
        for (spec, &at) in description.spec.outputs.iter().zip(&description.outputs) {
            let Slot { is_known, shape, sizes, .. } = &mut self.slots[at];
            let asked = self.context.shape_into(at, shape);
            sizes.clear();
            sizes.extend(shape.iter().map_while(|&size| usize::try_from(size).ok()));
            let problem = match asked {
                Err(reason) => reason,
                Ok(()) if sizes.len() < shape.len() => {
                    "it depends on the data, which is not supported".to_owned()
                }
                Ok(()) => {
                    *is_known = true;
                    continue;
                }
            };
            let message = format!("output `{}`: its shape is not known before the run: {problem}", spec.name);
            return Err(Error::new(ErrorKind::InvalidModel, message));
        }
        Ok(())
    }

    /// Finds the place of every tensor for this run, and brings there what lies elsewhere.
    fn place(&mut self, inputs: &[(&str, &Tensor)], outputs: &[(&str, &mut Tensor)]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let description = &shared.description;
        for (spec, &at) in description.spec.inputs.iter().zip(&description.inputs) {
            let tensor = tensor_of(inputs, &spec.name);
            let bytes = tensor.len() * spec.element_type.size();
            let slice = tensor.device_slice().filter(|_| bytes > 0);
            if let Some(slice) = slice.filter(|slice| slice.address().is_multiple_of(ALIGNMENT)) {
                self.addresses[at] = slice.address();
                continue;
            }
            let own = self.slots[at].own(&shared.device, bytes)?;
            self.addresses[at] = own.address();
            match slice {
                Some(slice) => copy_row(&self.stream, &slice, own)?,
                None if bytes > 0 => self.stream.copy_to_device(own, 0, tensor.bytes()?)?,
                None => {}
            }
        }
        for (spec, &at) in description.spec.outputs.iter().zip(&description.outputs) {
            let asked = outputs.iter().find(|(name, _)| *name == spec.name);
            let slice = asked.and_then(|(_, tensor)| tensor.device_slice().filter(|_| !tensor.is_empty()));
            self.addresses[at] = match slice {
                Some(slice) => slice.address(),
                None => {
                    let elements: usize = self.slots[at].sizes.iter().product();
                    self.slots[at].own(&shared.device, elements * spec.element_type.size())?.address()
                }
            };
        }
        Ok(())
    }

    /// Enqueues the run, in order with everything that is enqueued on its tensors.
    fn enqueue(&mut self, inputs: &[(&str, &Tensor)], outputs: &[(&str, &mut Tensor)]) -> Result<()> {
        let Self { shared, graphs, context, slots, addresses, stream, .. } = self;
        let description = &shared.description;
        let given = |tensor: &Tensor| -> Option<DeviceBuffer> {
            let slice = tensor.device_slice().filter(|_| !tensor.is_empty())?;
            slice.address().is_multiple_of(ALIGNMENT).then(|| slice.buffer.clone())
        };
        let read: Vec<_> = inputs.iter().filter_map(|(_, tensor)| given(tensor)).collect();
        let written: Vec<_> = outputs.iter().filter_map(|(_, tensor)| given(tensor)).collect();
        let mut bound: Vec<u64> = slots.iter().map(|slot| slot.address).collect();
        // Memory of the engine's own that this run does not use is not of its order.
        let own = |positions: &'_ [usize]| {
            let used = positions
                .iter()
                .filter_map(|&at| slots[at].own.as_ref().filter(|own| own.address() == addresses[at]));
            used.collect::<Vec<_>>()
        };
        let (own_inputs, own_outputs) = (own(&description.inputs), own(&description.outputs));
        let reads = read.iter().filter_map(|buffer| buffer.as_cuda()).chain(own_inputs);
        let writes = written.iter().filter_map(|buffer| buffer.as_cuda()).chain(own_outputs);
        let outcome =
            stream.enqueue(reads, writes, |_| launch(graphs, &mut **context, &mut bound, addresses, stream));
        for (slot, address) in slots.iter_mut().zip(bound) {
            // After a failure nobody knows what the context remembers.
            slot.address = if outcome.is_ok() { address } else { 0 };
        }
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Execution => self.failed("the run failed", &error.to_string()),
            _ => error,
        })
    }

    /// Fetches what is wanted in the host's memory, and waits once.
    fn fetch(&mut self, outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let Self { shared, slots, stream, downloads, .. } = self;
        let description = &shared.description;
        let mut waits = false;
        let position = |name: &str| {
            let found = description.spec.outputs.iter().position(|spec| spec.name == name);
            found.expect("the names were checked")
        };
        let is_wanted = |tensor: &Tensor| tensor.device().is_none() && !tensor.is_empty();
        for (name, tensor) in outputs.iter().filter(|(_, tensor)| is_wanted(tensor)) {
            let index = position(name);
            let own = slots[description.outputs[index]].own.as_ref().expect("it was placed there");
            let bytes = tensor.len() * tensor.element_type().size();
            stream.download(own, 0, bytes, &mut downloads[index])?;
            waits = true;
        }
        if waits {
            stream.wait()?;
        }
        for (name, tensor) in outputs.iter_mut().filter(|(_, tensor)| is_wanted(tensor)) {
            let download = &mut downloads[position(name)];
            download.set_finished();
            tensor.fill_bytes(|bytes| download.finish_into(bytes))?;
        }
        Ok(())
    }
}

impl Slot {
    /// Memory of at least this many bytes, and of some: what has no elements needs a place as well.
    fn own(&mut self, device: &CudaDevice, bytes: usize) -> Result<&CudaBuffer> {
        if self.own.as_ref().is_none_or(|own| own.capacity() < bytes) {
            self.own = None;
            self.own = Some(device.allocate_buffer(bytes)?);
        }
        Ok(self.own.as_ref().expect("it was made above"))
    }
}

fn tensor_of<'t>(inputs: &[(&str, &'t Tensor)], name: &str) -> &'t Tensor {
    inputs.iter().find(|(own, _)| *own == name).expect("the names were checked").1
}

/// Brings a row that begins where no tensor may to memory of the engine's own.
fn copy_row(stream: &CudaStream, slice: &crate::tensor::DeviceSlice<'_>, own: &CudaBuffer) -> Result<()> {
    let source = CudaBuffer::of(slice).expect("only this device's tensors get past the check of residence");
    stream.copy_on_device((own, 0), (source, slice.offset), slice.bytes)
}

/// Enqueues one run, as a whole where it was captured.
#[allow(unsafe_code)]
fn launch(
    graphs: &mut Graphs,
    context: &mut dyn ContextCalls,
    bound: &mut [u64],
    addresses: &[u64],
    stream: &CudaStream,
) -> Result<()> {
    let refused = |reason| Error::new(ErrorKind::Execution, reason);
    let way = graphs.way(addresses);
    if let Way::Launch(graph) = way {
        // SAFETY: the graph was captured with these addresses, whose memory the caller's order holds.
        return unsafe { graph.launch(stream) };
    }
    let captures = matches!(way, Way::Capture);
    for (at, (bound, &address)) in bound.iter_mut().zip(addresses).enumerate().filter(|(_, (a, b))| *a != *b)
    {
        // SAFETY: it is memory of the tensor's size, at a multiple of 256, which the caller's order holds.
        unsafe { context.set_address(at, address) }.map_err(refused)?;
        *bound = address;
    }
    if captures && !context.can_be_captured(stream.raw()) {
        graphs.give_up(None);
    } else if captures {
        let captured = stream.capture(|raw| {
            // SAFETY: every address was set; what is enqueued runs when it is launched, in the caller's order.
            unsafe { context.enqueue(raw) }.map_err(refused)
        });
        match captured {
            // SAFETY: as above.
            Ok(graph) => return unsafe { graphs.keep(graph).launch(stream) },
            Err(error) => graphs.give_up(Some(&error)),
        }
    }
    // SAFETY: every address was set, and the memory and the order of work on it are the caller's.
    unsafe { context.enqueue(stream.raw()) }.map_err(refused)
}

impl Engine for TensorRtEngine {
    fn spec(&self) -> &EngineSpec {
        &self.shared.description.spec
    }

    fn description(&self) -> &str {
        &self.shared.text
    }

    fn device(&self) -> Option<Device> {
        Some(self.shared.device.clone().into())
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        check_run(&shared.description.spec, inputs, outputs)?;
        check_residence(Some(&shared.device.clone().into()), inputs, outputs)?;
        shared.description.check_sizes(inputs, shared.remedy.as_ref())?;
        shared.device.bind_to_thread()?;
        self.set_shapes(inputs)?;
        for (name, tensor) in outputs.iter_mut() {
            let spec = shared.description.spec.outputs.iter().position(|spec| spec.name == *name);
            let index = spec.expect("the names were checked");
            let sizes = &self.slots[shared.description.outputs[index]].sizes;
            tensor.reset_to(shared.description.spec.outputs[index].element_type, sizes)?;
        }
        if outputs.iter().all(|(_, tensor)| tensor.is_empty()) {
            return Ok(());
        }
        self.place(inputs, outputs)?;
        self.enqueue(inputs, outputs)?;
        self.fetch(outputs)
    }
}

impl Drop for TensorRtEngine {
    fn drop(&mut self) {
        if let Err(error) = self.stream.wait() {
            tracing::debug!(%error, "what a TensorRT engine had enqueued failed");
        }
    }
}

impl fmt::Debug for TensorRtEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorRtEngine({})", self.shared.text)
    }
}
