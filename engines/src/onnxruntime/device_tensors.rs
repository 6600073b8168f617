//! Runs whose tensors are on a device.
//!
//! ONNX Runtime receives a device address for every input and output, so that it copies nothing itself. Tensors that the
//! caller has in host memory are copied to and from device tensors that the engine owns and reuses.

use super::call::{self, Memory};
use super::provider::ExecutionProvider;
use crate::device::Device;
use crate::spec::{Bindings, EngineSpec, position};
use crate::tensor::Tensor;
use ocelli_error::{Error, Result, refuse};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::value::DynValue;
use std::marker::PhantomData;
use std::sync::Arc;

/// A device, and the engine's own tensors there.
pub(super) struct DeviceTensors {
    pub(super) device: Device,
    memory: Arc<Memory>,
    /// By position in the specification; empty if the caller's tensor is on the device.
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// ONNX Runtime's views of the tensors of one run, in the order of the call.
pub(super) struct Values<'t> {
    pub(super) inputs: Vec<DynValue>,
    /// `None` if the shape is known only after the run.
    pub(super) outputs: Vec<Option<DynValue>>,
    /// The values borrow the tensors' memory.
    borrowed: PhantomData<&'t mut Tensor>,
}

impl DeviceTensors {
    pub(super) fn new(device: Device, provider: &ExecutionProvider) -> Result<Self> {
        let memory = match (device.as_webgpu(), provider) {
            (Some(webgpu), ExecutionProvider::WebGpu(_)) => Arc::clone(&webgpu.memory),
            _ => Arc::new(Memory::owned(cuda_memory(&device, provider)?)),
        };
        Ok(Self { device, memory, inputs: Vec::new(), outputs: Vec::new() })
    }

    /// Prepares the inputs and outputs of a run on the device, and waits until no other work uses them.
    pub(super) fn stage<'t>(
        &'t mut self,
        spec: &EngineSpec,
        bindings: &Bindings<'_>,
        inputs: &'t [(&str, &Tensor)],
        outputs: &'t mut [(&str, &mut Tensor)],
    ) -> Result<Values<'t>> {
        let Self { device, memory, inputs: own_inputs, outputs: own_outputs } = self;
        own_inputs.resize_with(spec.inputs.len(), || Tensor::on(device.clone()));
        own_outputs.resize_with(spec.outputs.len(), || Tensor::on(device.clone()));
        for (name, tensor) in inputs.iter().filter(|(_, tensor)| tensor.device().is_none()) {
            own_inputs[position(&spec.inputs, name)].copy_from_host(tensor)?;
        }
        let mut values =
            Values { inputs: Vec::with_capacity(inputs.len()), outputs: Vec::new(), borrowed: PhantomData };
        for (name, tensor) in inputs {
            let on_device =
                if tensor.device().is_some() { *tensor } else { &own_inputs[position(&spec.inputs, name)] };
            on_device.wait()?;
            values.inputs.push(value(memory, on_device)?);
        }
        for (name, tensor) in outputs.iter_mut() {
            let at = position(&spec.outputs, name);
            let Some(shape) = bindings.shape_of(&spec.outputs[at]) else {
                values.outputs.push(None);
                continue;
            };
            let on_device = if tensor.device().is_some() { &mut **tensor } else { &mut own_outputs[at] };
            on_device.reset_to(spec.outputs[at].element_type, &shape)?;
            on_device.wait_idle()?;
            values.outputs.push(Some(value(memory, on_device)?));
        }
        Ok(values)
    }

    /// Copies an output to the caller's tensor if that is in host memory.
    pub(super) fn fetch(&self, spec: &EngineSpec, name: &str, output: &mut Tensor) -> Result<()> {
        match output.device() {
            Some(_) => Ok(()),
            None => self.outputs[position(&spec.outputs, name)].copy_to_host_into(output),
        }
    }
}

/// The memory of the GPU that the provider runs on.
fn cuda_memory(device: &Device, provider: &ExecutionProvider) -> Result<MemoryInfo<'static>> {
    let ordinal = device.cuda_ordinal().filter(|_| device.cuda_ordinal() == provider.cuda_ordinal());
    let Some(ordinal) = ordinal else {
        refuse!(
            "{provider} cannot access the memory of {}: expected the device that it runs on",
            device.name()
        );
    };
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    MemoryInfo::new(AllocationDevice::CUDA, ordinal, AllocatorType::Device, MemoryType::Default)
        .map_err(|error| Error::unavailable(format!("{provider}, {}: {}", device.name(), error.message())))
}

/// ONNX Runtime's view of a tensor on the device that [`DeviceTensors::stage`] has waited for.
fn value(memory: &Memory, tensor: &Tensor) -> Result<DynValue> {
    // A tensor without elements may have no memory; any aligned address does, and is never read.
    let address = tensor.device_slice().map_or(64, |slice| slice.address());
    // SAFETY: `check_residence` has compared the tensor's device with the engine's, and the device promises memory for
    // type and shape at the address. `stage` borrows the tensor, the caller's or the engine's own, for as long as the view
    // lives, exclusively if it is an output. Work that others enqueued to write an input has ended since `wait`, work
    // that reads or writes an output since `wait_idle`; ONNX Runtime has finished when the run returns.
    let value = unsafe { call::value_at(memory, address, tensor.element_type(), tensor.shape()) };
    value.map_err(|error| {
        Error::execution(format!("tensor of shape {:?}: {}", tensor.shape(), error.message()))
    })
}
