//! One model in ONNX Runtime.

use super::call;
use super::device_tensors::DeviceTensors;
use super::webgpu::{self, ReleasedAlone};
use crate::device::Device;
use crate::engine::Engine;
use crate::spec::{
    Dim, EngineSpec, TensorSpec, check_inputs, check_outputs, check_residence, check_run, position,
};
use crate::tensor::{ElementType, Tensor, with_element};
use ocelli_error::{Error, Result};
use ort::session::RunOptions;
use ort::value::{DynValue, DynValueRef, DynValueRefMut, Outlet, TensorRef, TensorRefMut, ValueType};
use std::ffi::{CStr, CString};

/// A model that ONNX Runtime runs.
///
/// Inputs are read in place. An output whose shape follows from the inputs (each of its named dimensions is one of an
/// input) is written into the caller's tensor; an output whose shape depends on the data is copied once. Outputs that a
/// run does not request are not fetched, and nodes that only they need may be skipped. With a
/// [device](super::OnnxRuntimeBuilder::with_device), tensors on it are read and written there.
pub struct OnnxRuntimeEngine {
    session: ReleasedAlone,
    options: RunOptions,
    spec: EngineSpec,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    device: Option<DeviceTensors>,
    model: String,
    description: String,
}

impl OnnxRuntimeEngine {
    pub(super) fn new(
        session: ReleasedAlone,
        device: Option<DeviceTensors>,
        fixed_dimensions: &[(String, usize)],
        model: String,
        description: String,
    ) -> Result<Self> {
        let fixed = |mut spec: TensorSpec| {
            for dim in &mut spec.shape {
                let size =
                    fixed_dimensions.iter().find(|(name, _)| matches!(dim, Dim::Named(own) if own == name));
                if let Some((_, size)) = size {
                    *dim = Dim::Fixed(*size);
                }
            }
            spec
        };
        let specs = |side: &str, outlets: &[Outlet]| -> Result<Vec<TensorSpec>> {
            let specs = outlets.iter().map(|outlet| tensor_spec(side, outlet).map(fixed));
            specs
                .collect::<Result<_, String>>()
                .map_err(|reason| Error::invalid_data(format!("cannot use the model, {model}: {reason}")))
        };
        let inputs = specs("input", session.inputs())?;
        let outputs = specs("output", session.outputs())?;
        let names = |specs: &[TensorSpec]| -> Vec<CString> {
            let names = specs.iter().map(|spec| CString::new(spec.name.as_str()));
            names.map(|name| name.expect("ort read it up to its null byte")).collect()
        };
        let options = RunOptions::new().map_err(|error| {
            Error::unavailable(format!("cannot load the model, {model}: {}", error.message()))
        })?;
        Ok(Self {
            input_names: names(&inputs),
            output_names: names(&outputs),
            spec: EngineSpec { inputs, outputs },
            session,
            options,
            device,
            model,
            description,
        })
    }

    /// A run of an engine with a device, after the checks.
    fn run_on_device(
        &mut self,
        inputs: &[(&str, &Tensor)],
        outputs: &mut [(&str, &mut Tensor)],
    ) -> Result<()> {
        let Self { session, options, spec, input_names, output_names, device, model, .. } = self;
        let device = device.as_mut().expect("`run` calls this only for an engine with a device");
        let bindings = check_inputs(spec, inputs)?;
        let output_names: Vec<_> =
            outputs.iter().map(|(name, _)| c_name(&spec.outputs, output_names, name)).collect();
        let staged = device.stage(spec, &bindings, inputs, outputs)?;
        let input_names = inputs.iter().map(|(name, _)| c_name(&spec.inputs, input_names, name));
        let views: Vec<_> = input_names.zip(staged.inputs.iter().map(|value| value.view())).collect();
        let mut values = staged.outputs;
        let views_of_outputs = values.iter_mut().map(|value| value.as_mut().map(|value| value.view_mut()));
        let mut slots: Vec<_> = output_names.into_iter().zip(views_of_outputs).collect();
        let produced = run_in_turn(session, options, model, &views, &mut slots)?;
        drop((views, slots));
        for ((name, tensor), value) in outputs.iter_mut().zip(produced) {
            match value {
                None => device.fetch(spec, name, tensor)?,
                // Its shape was unknown before the run, so that ONNX Runtime has put it in host memory.
                Some(value) => {
                    let element_type = spec.outputs[position(&spec.outputs, name)].element_type;
                    let mut host = Tensor::empty();
                    copy(&value, element_type, &mut host).map_err(|error| execution(model, &error))?;
                    tensor.copy_from_host(&host)?;
                }
            }
        }
        check_outputs(spec, &bindings, outputs)
    }
}

impl Engine for OnnxRuntimeEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn device(&self) -> Option<Device> {
        self.device.as_ref().map(|tensors| tensors.device.clone())
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        check_run(&self.spec, inputs, outputs)?;
        let device = self.device.as_ref().map(|tensors| &tensors.device);
        check_residence(device, inputs, outputs)?;
        if self.device.is_some() {
            return self.run_on_device(inputs, outputs);
        }

        let Self { session, options, spec, input_names, output_names, model, .. } = self;
        let bindings = check_inputs(spec, inputs)?;
        let failed = |error: ort::Error| execution(model, &error);
        let mut views = Vec::with_capacity(inputs.len());
        for (name, tensor) in inputs {
            views.push((c_name(&spec.inputs, input_names, name), view(tensor).map_err(failed)?));
        }
        let mut slots = Vec::with_capacity(outputs.len());
        for (name, tensor) in outputs.iter_mut() {
            let output = &spec.outputs[position(&spec.outputs, name)];
            let slot = match bindings.shape_of(output) {
                Some(shape) => {
                    tensor.reset_to(output.element_type, &shape)?;
                    Some(view_mut(tensor).map_err(failed)?)
                }
                None => None,
            };
            slots.push((c_name(&spec.outputs, output_names, name), slot));
        }
        let produced = run_in_turn(session, options, model, &views, &mut slots)?;
        drop(slots);
        for ((name, tensor), value) in outputs.iter_mut().zip(produced) {
            let output = &spec.outputs[position(&spec.outputs, name)];
            if let Some(value) = value {
                copy(&value, output.element_type, tensor).map_err(failed)?;
            }
        }
        check_outputs(spec, &bindings, outputs)
    }
}

debug_as!(OnnxRuntimeEngine, it => "OnnxRuntimeEngine({}: {})", it.description, it.model);

/// Runs the session. Sessions of WebGPU take turns on their device, whose errors are in the log alone.
fn run_in_turn(
    session: &mut ReleasedAlone,
    options: &RunOptions,
    model: &str,
    inputs: &[(&CStr, DynValueRef<'_>)],
    outputs: &mut [(&CStr, Option<DynValueRefMut<'_>>)],
) -> Result<Vec<Option<DynValue>>> {
    let turn = session.turn();
    if turn.is_some() {
        // Of a run that failed, or of a model that was loaded or released.
        let _ = webgpu::take_error();
    }
    let outcome = call::run(session, options, inputs, outputs);
    if turn.is_some()
        && let Some(reason) = webgpu::take_error()
    {
        return Err(Error::execution(format!("cannot run the model, {model}: {reason}")));
    }
    outcome.map_err(|error| execution(model, &error))
}

fn execution(model: &str, reason: &ort::Error) -> Error {
    let reason = reason.message();
    // The CUDA provider loads cuDNN when the first operator needs it.
    let lacks_cudnn =
        ["cuDNN is not available", "cuDNN is unavailable"].iter().any(|text| reason.contains(text));
    let remedy = if lacks_cudnn {
        "; install cuDNN 9 (the package nvidia-cudnn-cu13 has it) and put its folder into LD_LIBRARY_PATH"
    } else {
        ""
    };
    Error::execution(format!("cannot run the model, {model}: {reason}{remedy}"))
}

fn c_name<'n>(specs: &[TensorSpec], names: &'n [CString], name: &str) -> &'n CStr {
    &names[position(specs, name)]
}

fn tensor_spec(side: &str, outlet: &Outlet) -> Result<TensorSpec, String> {
    let name = outlet.name();
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(format!("{side} `{name}` is a {}, expected a tensor", outlet.dtype()));
    };
    let Some((element_type, _)) = call::ELEMENT_TYPES.into_iter().find(|(_, theirs)| theirs == ty) else {
        return Err(format!("{side} `{name}` holds {ty}, expected f32, f16, i64, i32, u8 or bool"));
    };
    let dims = shape.iter().enumerate().map(|(axis, size)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => match dimension_symbols.get(axis).filter(|symbol| !symbol.is_empty()) {
            Some(symbol) => Dim::Named(symbol.clone()),
            // Each dimension without a name is independent of the others.
            None => Dim::Named(format!("{name}.{axis}")),
        },
    });
    Ok(TensorSpec::new(name, element_type, dims))
}

fn view(tensor: &Tensor) -> ort::Result<DynValueRef<'_>> {
    with_element!(tensor.element_type(), T => {
        let data = tensor.as_slice::<T>().map_err(|error| ort::Error::new(error.to_string()))?;
        Ok(TensorRef::from_array_view((tensor.shape().to_vec(), data))?.into_dyn())
    })
}

fn view_mut(tensor: &mut Tensor) -> ort::Result<DynValueRefMut<'_>> {
    let shape = tensor.shape().to_vec();
    with_element!(tensor.element_type(), T => {
        let data = tensor.as_mut_slice::<T>().map_err(|error| ort::Error::new(error.to_string()))?;
        Ok(TensorRefMut::from_array_view_mut((shape, data))?.into_dyn())
    })
}

/// Copies a value that ONNX Runtime owns.
fn copy(value: &DynValue, element_type: ElementType, tensor: &mut Tensor) -> ort::Result<()> {
    with_element!(element_type, T => {
        let (shape, data) = value.try_extract_tensor::<T>()?;
        let shape: Vec<usize> = shape.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
        tensor.reset::<T>(&shape).copy_from_slice(data);
        Ok(())
    })
}
