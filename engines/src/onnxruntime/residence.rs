//! Runs whose tensors lie on a device.
//!
//! ONNX Runtime is given addresses on the device for every input and output, so that it copies nothing by itself: what a
//! caller brings or wants in the host's memory passes through tensors of the engine's own there, which go round.

use super::call;
use super::provider::ExecutionProvider;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Bindings, EngineSpec, TensorSpec};
use crate::tensor::Tensor;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::value::DynValueRefMut;

/// A device, and the engine's own tensors there.
pub(super) struct Residence {
    device: Device,
    memory: MemoryInfo<'static>,
    /// By their position in the specification; empty where callers' own lie on the device.
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// ONNX Runtime's views of the tensors of one run, in the order in which they were named.
pub(super) struct Values<'t> {
    pub(super) inputs: Vec<DynValueRefMut<'t>>,
    /// None where the shape is known only after the run.
    pub(super) outputs: Vec<Option<DynValueRefMut<'t>>>,
}

impl Residence {
    pub(super) fn new(device: Device, provider: &ExecutionProvider) -> Result<Self> {
        let ordinal = device.cuda_ordinal().filter(|_| device.cuda_ordinal() == provider.cuda_ordinal());
        let Some(ordinal) = ordinal else {
            let message =
                format!("{provider} cannot use the memory of {}: pass its own device", device.name());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let memory =
            MemoryInfo::new(AllocationDevice::CUDA, ordinal, AllocatorType::Device, MemoryType::Default);
        let memory = memory.map_err(|error| {
            let message = format!("{provider}, {}: {}", device.name(), error.message());
            Error::new(ErrorKind::Unavailable, message)
        })?;
        Ok(Self { device, memory, inputs: Vec::new(), outputs: Vec::new() })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Has everything that a run reads and writes lie on the device, done with by everybody else.
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
        let mut values = Values { inputs: Vec::with_capacity(inputs.len()), outputs: Vec::new() };
        for (name, tensor) in inputs {
            let there =
                if tensor.device().is_some() { *tensor } else { &own_inputs[position(&spec.inputs, name)] };
            there.wait()?;
            values.inputs.push(value(memory, there)?);
        }
        for (name, tensor) in outputs.iter_mut() {
            let at = position(&spec.outputs, name);
            let Some(shape) = bindings.shape_of(&spec.outputs[at]) else {
                values.outputs.push(None);
                continue;
            };
            let there = if tensor.device().is_some() { &mut **tensor } else { &mut own_outputs[at] };
            there.reset_to(spec.outputs[at].element_type, &shape)?;
            there.wait_idle()?;
            values.outputs.push(Some(value(memory, there)?));
        }
        Ok(values)
    }

    /// Copies back what a caller wants in the host's memory.
    pub(super) fn fetch(&self, spec: &EngineSpec, name: &str, output: &mut Tensor) -> Result<()> {
        match output.device() {
            Some(_) => Ok(()),
            None => self.outputs[position(&spec.outputs, name)].copy_to_host_into(output),
        }
    }
}

fn position(specs: &[TensorSpec], name: &str) -> usize {
    specs.iter().position(|spec| spec.name == name).expect("check_run knows every name")
}

/// ONNX Runtime's view of a tensor on the residence's device that [`Residence::stage`] has waited for.
fn value<'t>(memory: &MemoryInfo<'static>, tensor: &Tensor) -> Result<DynValueRefMut<'t>> {
    // Where there is no element there may be no memory: any address that is aligned does, and is not looked at.
    let address = tensor.device_slice().map_or(64, |slice| slice.address());
    // SAFETY: `check_residence` saw that the tensor lies where `memory` says, and the device promises memory for its type
    // and shape at its address. The tensor, the caller's or the engine's own, is borrowed by `stage` for as long as the
    // view lives, exclusively where it is an output. What others enqueued to write an input is over since `wait`, what
    // they enqueued to read or write an output since `wait_idle`; ONNX Runtime is done when the run returns.
    let value = unsafe { call::value_at(memory, address, tensor.element_type(), tensor.shape()) };
    value.map_err(|error| {
        let message = format!("tensor of shape {:?}: {}", tensor.shape(), error.message());
        Error::new(ErrorKind::Execution, message)
    })
}
