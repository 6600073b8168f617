//! One model in ONNX Runtime.

use super::options::OnnxRuntimeBuilder;
use super::residence::Residence;
use super::{OnnxRuntime, call};
use crate::device::Device;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dim, EngineSpec, TensorSpec, check_inputs, check_outputs, check_residence, check_run};
use crate::tensor::{Element, ElementType, Tensor, TensorData};
use half::f16;
use ort::session::{RunOptions, Session};
use ort::value::{
    DynValue, DynValueRef, DynValueRefMut, Outlet, PrimitiveTensorElementType, TensorElementType, TensorRef,
    TensorRefMut, ValueType,
};
use std::ffi::{CStr, CString};
use std::fmt;

/// A model that ONNX Runtime runs.
///
/// Inputs are read where they are. An output whose shape follows from the inputs (all its named dimensions are an
/// input's) is written straight into the caller's tensor; one that depends on the data is copied once. Outputs that
/// are not asked for are not fetched, and what only they need may not be computed. With a
/// [device](OnnxRuntimeBuilder::with_device), tensors that lie there are read and written there.
pub struct OnnxRuntimeEngine {
    session: Session,
    options: RunOptions,
    spec: EngineSpec,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    residence: Option<Residence>,
    model: String,
    description: String,
}

impl OnnxRuntimeEngine {
    /// Begins to make an engine.
    pub fn builder(runtime: &OnnxRuntime) -> OnnxRuntimeBuilder {
        OnnxRuntimeBuilder::new(runtime)
    }

    pub(super) fn new(
        session: Session,
        options: RunOptions,
        residence: Option<Residence>,
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
            specs.collect::<Result<_, String>>().map_err(|reason| {
                Error::new(ErrorKind::InvalidModel, format!("cannot use the model, {model}: {reason}"))
            })
        };
        let inputs = specs("input", session.inputs())?;
        let outputs = specs("output", session.outputs())?;
        let names = |specs: &[TensorSpec]| -> Vec<CString> {
            let names = specs.iter().map(|spec| CString::new(spec.name.as_str()));
            names.map(|name| name.expect("ort read it up to its null byte")).collect()
        };
        Ok(Self {
            input_names: names(&inputs),
            output_names: names(&outputs),
            spec: EngineSpec { inputs, outputs },
            session,
            options,
            residence,
            model,
            description,
        })
    }

    fn failed(&self, reason: &ort::Error) -> Error {
        execution(&self.model, reason)
    }

    /// The run of an engine with a device, after the checks.
    fn run_on_device(
        &mut self,
        inputs: &[(&str, &Tensor)],
        outputs: &mut [(&str, &mut Tensor)],
    ) -> Result<()> {
        let Self { session, options, spec, input_names, output_names, residence, model, .. } = self;
        let residence = residence.as_mut().expect("the caller saw it");
        let bindings = check_inputs(spec, inputs)?;
        let output_names: Vec<_> =
            outputs.iter().map(|(name, _)| c_name(&spec.outputs, output_names, name)).collect();
        let staged = residence.stage(spec, &bindings, inputs, outputs)?;
        let input_names = inputs.iter().map(|(name, _)| c_name(&spec.inputs, input_names, name));
        let views: Vec<_> = input_names.zip(staged.inputs.iter().map(|value| value.view())).collect();
        let mut slots: Vec<_> = output_names.into_iter().zip(staged.outputs).collect();
        let produced = call::run(session, options, &views, &mut slots);
        let produced = produced.map_err(|error| execution(model, &error))?;
        drop((views, slots));
        for ((name, tensor), value) in outputs.iter_mut().zip(produced) {
            match value {
                None => residence.fetch(spec, name, tensor)?,
                // Its shape was not known before, and ONNX Runtime has left it in the host's memory.
                Some(value) => {
                    let element_type = spec.output(name).expect("check_run knows every output").element_type;
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
        self.residence.as_ref().map(|residence| residence.device().clone())
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let bindings = check_run(&self.spec, inputs, outputs)?;
        let device = self.residence.as_ref().map(Residence::device);
        check_residence(device, inputs, outputs)?;
        if self.residence.is_some() {
            return self.run_on_device(inputs, outputs);
        }

        let mut views = Vec::with_capacity(inputs.len());
        for (name, tensor) in inputs {
            let name = c_name(&self.spec.inputs, &self.input_names, name);
            views.push((name, view(tensor).map_err(|error| self.failed(&error))?));
        }

        let mut slots = Vec::with_capacity(outputs.len());
        for (name, tensor) in outputs.iter_mut() {
            let spec = self.spec.output(name).expect("check_run knows every output");
            let slot = match bindings.shape_of(spec) {
                Some(shape) => {
                    tensor.reset_to(spec.element_type, &shape)?;
                    Some(view_mut(tensor).map_err(|error| self.failed(&error))?)
                }
                None => None,
            };
            slots.push((c_name(&self.spec.outputs, &self.output_names, name), slot));
        }

        let produced = call::run(&mut self.session, &self.options, &views, &mut slots);
        let produced = produced.map_err(|error| execution(&self.model, &error))?;
        drop(slots);
        for ((name, tensor), value) in outputs.iter_mut().zip(produced) {
            let spec = self.spec.output(name).expect("check_run knows every output");
            if let Some(value) = value {
                copy(&value, spec.element_type, tensor).map_err(|error| execution(&self.model, &error))?;
            }
        }
        check_outputs(&self.spec, &bindings, outputs)
    }
}

impl fmt::Debug for OnnxRuntimeEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnnxRuntimeEngine({}: {})", self.description, self.model)
    }
}

fn execution(model: &str, reason: &ort::Error) -> Error {
    let reason = reason.message();
    // CUDA's provider loads it when the first operator needs it.
    let lacks_cudnn =
        ["cuDNN is not available", "cuDNN is unavailable"].iter().any(|text| reason.contains(text));
    let remedy = if lacks_cudnn {
        "; install cuDNN 9 (the package nvidia-cudnn-cu13 has it) and put its folder into LD_LIBRARY_PATH"
    } else {
        ""
    };
    Error::new(ErrorKind::Execution, format!("cannot run the model, {model}: {reason}{remedy}"))
}

fn c_name<'n>(specs: &[TensorSpec], names: &'n [CString], name: &str) -> &'n CStr {
    let position = specs.iter().position(|spec| spec.name == name);
    &names[position.expect("check_run knows every name")]
}

fn tensor_spec(side: &str, outlet: &Outlet) -> Result<TensorSpec, String> {
    let name = outlet.name();
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(format!("{side} `{name}` is a {}, expected a tensor", outlet.dtype()));
    };
    let element_type = match ty {
        TensorElementType::Float32 => ElementType::F32,
        TensorElementType::Float16 => ElementType::F16,
        TensorElementType::Int64 => ElementType::I64,
        TensorElementType::Int32 => ElementType::I32,
        TensorElementType::Uint8 => ElementType::U8,
        TensorElementType::Bool => ElementType::Bool,
        other => {
            return Err(format!("{side} `{name}` holds {other}, expected f32, f16, i64, i32, u8 or bool"));
        }
    };
    let dims = shape.iter().enumerate().map(|(axis, size)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => match dimension_symbols.get(axis).filter(|symbol| !symbol.is_empty()) {
            Some(symbol) => Dim::Named(symbol.clone()),
            // Nameless dimensions have nothing to do with each other.
            None => Dim::Named(format!("{name}.{axis}")),
        },
    });
    Ok(TensorSpec::new(name, element_type, dims))
}

fn view(tensor: &Tensor) -> ort::Result<DynValueRef<'_>> {
    fn typed<'t, T: Element + PrimitiveTensorElementType>(
        shape: &[usize],
        data: &'t [T],
    ) -> ort::Result<DynValueRef<'t>> {
        Ok(TensorRef::from_array_view((shape.to_vec(), data))?.into_dyn())
    }
    let shape = tensor.shape();
    match tensor.data() {
        TensorData::F32(data) => typed(shape, data),
        TensorData::F16(data) => typed(shape, data),
        TensorData::I64(data) => typed(shape, data),
        TensorData::I32(data) => typed(shape, data),
        TensorData::U8(data) => typed(shape, data),
        TensorData::Bool(data) => typed(shape, data),
        TensorData::OnDevice(_) => Err(ort::Error::new("the tensor is on a device")),
    }
}

fn view_mut(tensor: &mut Tensor) -> ort::Result<DynValueRefMut<'_>> {
    fn typed<'t, T: Element + PrimitiveTensorElementType>(
        shape: &[usize],
        data: &'t mut [T],
    ) -> ort::Result<DynValueRefMut<'t>> {
        Ok(TensorRefMut::from_array_view_mut((shape.to_vec(), data))?.into_dyn())
    }
    match tensor.parts_mut() {
        (shape, TensorData::F32(data)) => typed(shape, data),
        (shape, TensorData::F16(data)) => typed(shape, data),
        (shape, TensorData::I64(data)) => typed(shape, data),
        (shape, TensorData::I32(data)) => typed(shape, data),
        (shape, TensorData::U8(data)) => typed(shape, data),
        (shape, TensorData::Bool(data)) => typed(shape, data),
        (_, TensorData::OnDevice(_)) => Err(ort::Error::new("the tensor is on a device")),
    }
}

/// Takes over a value of ONNX Runtime's own.
fn copy(value: &DynValue, element_type: ElementType, tensor: &mut Tensor) -> ort::Result<()> {
    fn typed<T: Element + PrimitiveTensorElementType>(
        value: &DynValue,
        tensor: &mut Tensor,
    ) -> ort::Result<()> {
        let (shape, data) = value.try_extract_tensor::<T>()?;
        let shape: Vec<usize> = shape.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
        tensor.reset::<T>(&shape).copy_from_slice(data);
        Ok(())
    }
    match element_type {
        ElementType::F32 => typed::<f32>(value, tensor),
        ElementType::F16 => typed::<f16>(value, tensor),
        ElementType::I64 => typed::<i64>(value, tensor),
        ElementType::I32 => typed::<i32>(value, tensor),
        ElementType::U8 => typed::<u8>(value, tensor),
        ElementType::Bool => typed::<bool>(value, tensor),
    }
}
