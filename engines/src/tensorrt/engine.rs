//! Plans that run.

use super::cache_file;
use super::calls::run::{Context, LoadedPlan};
use super::description::{Description, Remedy};
use super::graphs::{Action, Graphs};
use crate::cuda::{CudaBuffer, CudaDevice, CudaStream, Download, StreamPriority};
use crate::device::Device;
use crate::engine::Engine;
use crate::spec::{EngineSpec, check_residence, check_run, input_named, position};
use crate::tensor::{DeviceSlice, Tensor};
use ocelli_error::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The alignment that TensorRT requires of addresses, in bytes.
const ALIGNMENT: u64 = 256;

/// A plan that TensorRT runs on a GPU.
///
/// Inputs and outputs on the engine's [device](Engine::device) are read and written in place; those in host memory are
/// copied through page-locked memory, with one wait for all outputs. Each engine enqueues on a stream of its own, so two
/// engines run concurrently where their tensors allow it. Repeated runs with the same shapes and addresses are
/// captured as CUDA graphs.
///
/// A run allocates device memory only for sizes that it has not seen before. Outputs that are not requested are computed as
/// well.
pub struct TensorRtEngine {
    shared: Arc<Shared>,
    // Dropped in this order, after a wait for the stream: the graphs, the context that they were captured in, and the memory
    // that both use. The context keeps the plan alive.
    graphs: Graphs,
    context: Context,
    /// One for each tensor of the plan.
    slots: Vec<Slot>,
    /// The addresses of this run, by position in the plan.
    addresses: Vec<u64>,
    /// The addresses that are set in the context; 0 for none.
    bound: Vec<u64>,
    /// One for each output.
    downloads: Vec<Download>,
    stream: CudaStream,
    /// The size of the file of compiled kernels, and whether a run may have compiled more.
    kernel_bytes: usize,
    has_new_kernels: bool,
}

/// The name of the file of compiled kernels in messages.
const KERNEL_CACHE: &str = "cache of compiled kernels";

/// The state that the engines of one plan share.
pub(super) struct Shared {
    pub(super) text: String,
    pub(super) plan: Arc<LoadedPlan>,
    pub(super) description: Description,
    pub(super) tensors: usize,
    pub(super) device: Arc<CudaDevice>,
    pub(super) with_graphs: bool,
    /// The file of compiled kernels.
    pub(super) kernel_cache: Option<PathBuf>,
    pub(super) remedy: Option<Remedy>,
}

/// The state of one of the plan's tensors.
#[derive(Default)]
struct Slot {
    /// The shape that is set in the context; `None` before the first run and after a failure.
    shape: Option<Vec<usize>>,
    /// The engine's own memory for the tensor, used if the caller's is not on the device or not aligned.
    own: Option<CudaBuffer>,
}

impl TensorRtEngine {
    pub(super) fn of(shared: Arc<Shared>) -> Result<Self> {
        shared.device.bind_to_thread()?;
        let known = shared.known_kernels();
        let context = Context::new(&shared.plan, shared.with_graphs, &known).map_err(|reason| {
            let bytes = shared.plan.context_bytes();
            let message =
                format!("{}: cannot create an execution context of {bytes} bytes: {reason}", shared.text);
            Error::execution(message)
        })?;
        let (context, accepts_kernels) = context;
        if let (false, Some(path)) = (accepts_kernels, &shared.kernel_cache) {
            let path = path.display();
            tracing::warn!(%path, "{KERNEL_CACHE}: it is of another GPU, driver or TensorRT, and is replaced");
        }
        Ok(Self {
            graphs: Graphs::new(shared.with_graphs),
            context,
            slots: (0..shared.tensors).map(|_| Slot::default()).collect(),
            addresses: vec![0; shared.tensors],
            bound: vec![0; shared.tensors],
            downloads: shared.description.outputs.iter().map(|_| Download::default()).collect(),
            stream: CudaStream::new(&shared.device, StreamPriority::Normal)?,
            kernel_bytes: if accepts_kernels { known.len() } else { 0 },
            has_new_kernels: true,
            shared,
        })
    }

    /// Sets the shapes of the inputs that have changed, and reads those of the outputs.
    fn set_shapes(&mut self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let Self { shared, graphs, context, slots, has_new_kernels, .. } = self;
        let Description { spec, inputs: of_inputs, outputs: of_outputs, .. } = &shared.description;
        let mut changed = false;
        for (spec, &at) in spec.inputs.iter().zip(of_inputs) {
            let (shape, known) = (input_named(inputs, &spec.name).shape(), &mut slots[at].shape);
            if known.as_deref() == Some(shape) {
                continue;
            }
            changed = true;
            let mut sizes = known.take().unwrap_or_default();
            context.set_input_shape(at, shape).map_err(|reason| {
                let message = format!("input `{}`: TensorRT refuses shape {shape:?}: {reason}", spec.name);
                Error::invalid_argument(message)
            })?;
            sizes.clear();
            sizes.extend_from_slice(shape);
            *known = Some(sizes);
        }
        if !changed && of_outputs.iter().all(|&at| slots[at].shape.is_some()) {
            return Ok(());
        }
        graphs.forget();
        *has_new_kernels = true;
        for (spec, &at) in spec.outputs.iter().zip(of_outputs) {
            // If this fails, the shape stays `None`, so that the next run reads it again.
            let mut sizes = slots[at].shape.take().unwrap_or_default();
            context.shape_into(at, &mut sizes).map_err(|reason| {
                let message =
                    format!("output `{}`: its shape is unknown before the run: {reason}", spec.name);
                Error::invalid_data(message)
            })?;
            slots[at].shape = Some(sizes);
        }
        Ok(())
    }

    /// Chooses the address of every tensor for this run, and copies inputs that cannot be read in place.
    fn place(&mut self, inputs: &[(&str, &Tensor)], outputs: &[(&str, &mut Tensor)]) -> Result<()> {
        let Self { shared, slots, addresses, stream, .. } = self;
        let Description { spec, inputs: of_inputs, outputs: of_outputs, .. } = &shared.description;
        for (spec, &at) in spec.inputs.iter().zip(of_inputs) {
            let tensor = input_named(inputs, &spec.name);
            if let Some(slice) = in_place(tensor) {
                addresses[at] = slice.address();
                continue;
            }
            let bytes = tensor.len() * spec.element_type.size();
            let own = slots[at].own(&shared.device, bytes)?;
            addresses[at] = own.address();
            match tensor.device_slice() {
                _ if bytes == 0 => {}
                Some(slice) => copy_row(stream, &slice, own)?,
                None => stream.copy_to_device(own, 0, tensor.bytes()?)?,
            }
        }
        for (spec, &at) in spec.outputs.iter().zip(of_outputs) {
            let requested = outputs.iter().find(|(name, _)| *name == spec.name);
            addresses[at] = match requested.and_then(|(_, tensor)| on_device(tensor)) {
                Some(slice) => slice.address(),
                None => {
                    let elements: usize = slots[at].shape.iter().flatten().product();
                    slots[at].own(&shared.device, elements * spec.element_type.size())?.address()
                }
            };
        }
        Ok(())
    }

    /// Enqueues the run, in order with all other work on its tensors.
    fn enqueue(&mut self, inputs: &[(&str, &Tensor)], outputs: &[(&str, &mut Tensor)]) -> Result<()> {
        let Self { shared, graphs, context, slots, addresses, bound, stream, .. } = self;
        let (slots, addresses) = (&*slots, &*addresses);
        // Only the engine's own memory that this run uses has to be waited for.
        let own = |&at: &usize| slots[at].own.as_ref().filter(|own| own.address() == addresses[at]);
        let reads = inputs.iter().filter_map(|(_, tensor)| in_place(tensor)?.buffer.as_cuda());
        let writes = outputs.iter().filter_map(|(_, tensor)| on_device(tensor)?.buffer.as_cuda());
        let outcome = stream.enqueue(
            reads.chain(shared.description.inputs.iter().filter_map(own)),
            writes.chain(shared.description.outputs.iter().filter_map(own)),
            |_| launch(graphs, context, bound, addresses, stream),
        );
        if outcome.is_err() {
            // It is unknown which addresses are set now.
            bound.fill(0);
        }
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Execution => Error::execution(format!("{}: the run failed: {error}", shared.text)),
            _ => error,
        })
    }

    /// Copies the outputs that are requested in host memory, with one wait.
    fn fetch(&mut self, outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let Self { shared, slots, stream, downloads, .. } = self;
        let is_on_host = |tensor: &Tensor| tensor.device().is_none() && !tensor.is_empty();
        if !outputs.iter().any(|(_, tensor)| is_on_host(tensor)) {
            return Ok(());
        }
        for (name, tensor) in outputs.iter().filter(|(_, tensor)| is_on_host(tensor)) {
            let index = position(&shared.description.spec.outputs, name);
            let own = slots[shared.description.outputs[index]].own.as_ref().expect("it was placed there");
            stream.download(own, 0, tensor.len() * tensor.element_type().size(), &mut downloads[index])?;
        }
        stream.wait()?;
        for (name, tensor) in outputs.iter_mut().filter(|(_, tensor)| is_on_host(tensor)) {
            let download = &mut downloads[position(&shared.description.spec.outputs, name)];
            download.set_finished();
            tensor.fill_bytes(|bytes| download.finish_into(bytes))?;
        }
        Ok(())
    }

    /// Writes the file of compiled kernels if there are more than it has.
    fn save_kernels(&mut self) {
        let Some(path) = &self.shared.kernel_cache else { return };
        let Some(kernels) = self.context.kernels().filter(|kernels| kernels.len() != self.kernel_bytes)
        else {
            return;
        };
        self.kernel_bytes = kernels.len();
        if let Err(error) = cache_file::write(KERNEL_CACHE, path, &kernels) {
            tracing::warn!(%error, "the next process compiles kernels again");
        }
    }
}

impl Shared {
    /// The content of the file of compiled kernels; empty if there is none.
    fn known_kernels(&self) -> Vec<u8> {
        let read = self.kernel_cache.as_ref().map(|path| cache_file::read(KERNEL_CACHE, path));
        read.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|error| {
            tracing::warn!(%error, "kernels are compiled again");
            Vec::new()
        })
    }
}

impl Slot {
    /// Memory of at least this many bytes; even a tensor without elements needs an address.
    fn own(&mut self, device: &CudaDevice, bytes: usize) -> Result<&CudaBuffer> {
        if self.own.as_ref().is_none_or(|own| own.capacity() < bytes) {
            // The old memory is freed first: both may not fit.
            self.own = None;
        }
        Ok(match &mut self.own {
            Some(own) => own,
            none => none.insert(device.allocate_buffer(bytes)?),
        })
    }
}

fn on_device(tensor: &Tensor) -> Option<DeviceSlice<'_>> {
    tensor.device_slice().filter(|_| !tensor.is_empty())
}

/// The memory of an input, if it is aligned. Rows may begin anywhere; outputs are always aligned.
fn in_place(tensor: &Tensor) -> Option<DeviceSlice<'_>> {
    on_device(tensor).filter(|slice| slice.address().is_multiple_of(ALIGNMENT))
}

/// Copies a row that is not aligned to the engine's own memory.
fn copy_row(stream: &CudaStream, slice: &DeviceSlice<'_>, own: &CudaBuffer) -> Result<()> {
    let source = slice.buffer.as_cuda().expect("`check_residence` admits only tensors of this device");
    stream.copy_on_device((own, 0), (source, slice.offset), slice.bytes)
}

/// Enqueues one run, or launches its graph. `bound` are the addresses that are set in the context.
#[allow(unsafe_code)]
fn launch(
    graphs: &mut Graphs,
    context: &mut Context,
    bound: &mut [u64],
    addresses: &[u64],
    stream: &CudaStream,
) -> Result<()> {
    let action = graphs.next(addresses);
    if let Action::Launch(graph) = action {
        // SAFETY: the graph was captured with these addresses, and the caller orders this with other work on their memory.
        return unsafe { graph.launch(stream) };
    }
    let captures = matches!(action, Action::Capture);
    for (at, (bound, &address)) in bound.iter_mut().zip(addresses).enumerate().filter(|(_, (a, b))| *a != *b)
    {
        // SAFETY: it is aligned memory of the tensor's size, and the caller orders this with other work on it.
        unsafe { context.set_address(at, address) }.map_err(Error::execution)?;
        *bound = address;
    }
    if captures && !context.can_be_captured(stream.raw()) {
        graphs.turn_off(None);
    } else if captures {
        let captured = stream.capture(|raw| {
            // SAFETY: every address is set; what is captured runs when it is launched, in the caller's order.
            unsafe { context.enqueue(raw) }.map_err(Error::execution)
        });
        match captured {
            // SAFETY: as above.
            Ok(graph) => return unsafe { graphs.keep(graph).launch(stream) },
            Err(error) => graphs.turn_off(Some(&error)),
        }
    }
    // SAFETY: every address is set, and the caller orders this with other work on their memory.
    unsafe { context.enqueue(stream.raw()) }.map_err(Error::execution)
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
        let Description { spec, outputs: of_outputs, .. } = &shared.description;
        check_run(spec, inputs, outputs)?;
        check_residence(Some(&shared.device.clone().into()), inputs, outputs)?;
        shared.description.check_sizes(inputs, shared.remedy.as_ref())?;
        shared.device.bind_to_thread()?;
        self.set_shapes(inputs)?;
        for (name, tensor) in outputs.iter_mut() {
            let index = position(&shared.description.spec.outputs, name);
            let sizes = self.slots[of_outputs[index]].shape.as_deref().expect("`set_shapes` read it");
            tensor.reset_to(spec.outputs[index].element_type, sizes)?;
        }
        if outputs.iter().all(|(_, tensor)| tensor.is_empty()) {
            return Ok(());
        }
        self.place(inputs, outputs)?;
        self.enqueue(inputs, outputs)?;
        self.fetch(outputs)?;
        if std::mem::take(&mut self.has_new_kernels) {
            self.save_kernels();
        }
        Ok(())
    }
}

impl Drop for TensorRtEngine {
    fn drop(&mut self) {
        if let Err(error) = self.stream.wait() {
            tracing::debug!(%error, "work that a TensorRT engine had enqueued failed");
        }
        // Some kernels are compiled beside the runs.
        self.save_kernels();
    }
}

debug_as!(TensorRtEngine, it => "TensorRtEngine({})", it.shared.text);
