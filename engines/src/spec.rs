//! The inputs and outputs of an engine, and the checks that follow from them.

pub(crate) mod onnx;

use crate::device::Device;
use crate::tensor::{ElementType, Tensor};
use ocelli_error::{Error, ErrorKind, Result, display_as};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The size of one dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// Any size; dimensions with the same name have the same size in one run (ONNX's `dim_param`).
    Named(String),
}

impl Dim {
    /// A dynamic dimension with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// The sizes that a dynamic dimension may have: from `min` to `max`, with kernels chosen for `optimal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimensionRange {
    /// The smallest size.
    pub min: usize,
    /// The most frequent size.
    pub optimal: usize,
    /// The largest size.
    pub max: usize,
}

/// The name, element type and shape of one input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name in [`Engine::run`](crate::Engine::run).
    pub name: String,
    /// The type of the elements.
    pub element_type: ElementType,
    /// The dimensions, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorSpec {
    /// Describes a tensor.
    pub fn new(
        name: impl Into<String>,
        element_type: ElementType,
        shape: impl IntoIterator<Item = Dim>,
    ) -> Self {
        Self { name: name.into(), element_type, shape: shape.into_iter().collect() }
    }
}

// `name: f32[classes, 32, 256]`
display_as!(TensorSpec, it => "{}: {}{}", it.name, it.element_type, shape_text(&it.shape));

/// The inputs and outputs of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineSpec {
    /// Every run needs all of them.
    pub inputs: Vec<TensorSpec>,
    /// A run computes any subset of them.
    pub outputs: Vec<TensorSpec>,
}

impl EngineSpec {
    /// The input with this name.
    pub fn input(&self, name: &str) -> Option<&TensorSpec> {
        self.inputs.iter().find(|spec| spec.name == name)
    }

    /// The output with this name.
    pub fn output(&self, name: &str) -> Option<&TensorSpec> {
        self.outputs.iter().find(|spec| spec.name == name)
    }
}

/// The sizes of the named dimensions in one run, as its inputs have them.
#[derive(Debug, Clone, Default)]
pub struct Bindings<'s> {
    sizes: Vec<Binding<'s>>,
}

#[derive(Debug, Clone)]
struct Binding<'s> {
    dim: &'s str,
    size: usize,
    /// The first input with this dimension, for the message if another input contradicts it.
    input: &'s str,
}

impl<'s> Bindings<'s> {
    /// The size of a named dimension, if an input has it.
    pub fn size(&self, dim: &str) -> Option<usize> {
        self.sizes.iter().find(|binding| binding.dim == dim).map(|binding| binding.size)
    }

    /// The shape of a tensor in this run, if inputs have all of its dynamic dimensions.
    pub fn shape_of(&self, spec: &TensorSpec) -> Option<Vec<usize>> {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Named(name) => self.size(name),
        };
        spec.shape.iter().map(size).collect()
    }

    /// Adds the sizes of one input's named dimensions, which must agree with those of earlier inputs.
    fn bind(&mut self, spec: &'s TensorSpec, shape: &[usize]) -> Result<()> {
        for (axis, (dim, &size)) in spec.shape.iter().zip(shape).enumerate() {
            let Dim::Named(dim) = dim else { continue };
            match self.sizes.iter().find(|binding| binding.dim == dim) {
                Some(known) if known.size != size => {
                    return Err(misuse(format!(
                        "input `{}`, dimension {axis}: `{dim}` is {} in `{}`, got {size} (shape {shape:?})",
                        spec.name, known.size, known.input
                    )));
                }
                Some(_) => {}
                None => self.sizes.push(Binding { dim, size, input: &spec.name }),
            }
        }
        Ok(())
    }
}

/// Checks the arguments of a run, and returns the sizes of its named dimensions.
///
/// Call it first in [`Engine::run`](crate::Engine::run).
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if an input is unknown, missing or named twice, has another element type, rank or
/// size than the specification, if two inputs differ in a dimension of the same name, if an output is unknown or
/// named twice, or if there are no outputs. The message names the tensor, what was expected and what was passed.
pub fn check_run<'s>(
    spec: &'s EngineSpec,
    inputs: &[(&str, &Tensor)],
    outputs: &[(&str, &mut Tensor)],
) -> Result<Bindings<'s>> {
    let bindings = check_inputs(spec, inputs)?;
    if outputs.is_empty() {
        return Err(misuse(format!(
            "no output is requested: expected one or more of {}",
            names(&spec.outputs)
        )));
    }
    check_names("output", "requested", &spec.outputs, outputs)?;
    Ok(bindings)
}

/// The part of [`check_run`] that checks the inputs.
pub(crate) fn check_inputs<'s>(spec: &'s EngineSpec, inputs: &[(&str, &Tensor)]) -> Result<Bindings<'s>> {
    check_names("input", "passed", &spec.inputs, inputs)?;
    let mut bindings = Bindings::default();
    for expected in &spec.inputs {
        let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == expected.name) else {
            return Err(misuse(format!("input `{}` is missing: expected {expected}", expected.name)));
        };
        check_tensor("input", expected, tensor, ErrorKind::InvalidArgument)?;
        bindings.bind(expected, tensor.shape())?;
    }
    Ok(bindings)
}

/// Checks that every tensor has a name of the specification, and no two have the same.
fn check_names<T>(side: &str, given: &str, specs: &[TensorSpec], tensors: &[(&str, T)]) -> Result<()> {
    for (position, (name, _)) in tensors.iter().enumerate() {
        if specs.iter().all(|spec| spec.name != *name) {
            let known = names(specs);
            return Err(misuse(format!("{side} `{name}` does not exist: expected one of {known}")));
        }
        if tensors[..position].iter().any(|(earlier, _)| earlier == name) {
            return Err(misuse(format!("{side} `{name}` is {given} twice")));
        }
    }
    Ok(())
}

/// Checks the outputs of an engine against its specification, for engines whose results may have a wrong shape.
///
/// # Errors
/// [`ErrorKind::Execution`] if an output has another element type, rank or size than the specification and the
/// inputs say.
pub(crate) fn check_outputs(
    spec: &EngineSpec,
    bindings: &Bindings<'_>,
    outputs: &[(&str, &mut Tensor)],
) -> Result<()> {
    for (name, tensor) in outputs {
        let Some(expected) = spec.output(name) else { continue };
        check_tensor("output", expected, tensor, ErrorKind::Execution)?;
        for (axis, (dim, &size)) in expected.shape.iter().zip(tensor.shape()).enumerate() {
            if let Dim::Named(dim) = dim
                && let Some(bound) = bindings.size(dim)
                && bound != size
            {
                return Err(Error::execution(format!(
                    "output `{name}`, dimension {axis}: `{dim}` is {bound} in the inputs, got {size}"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that every tensor is in memory that an engine can use: in host memory, or on the engine's own device.
///
/// Call it in [`Engine::run`](crate::Engine::run) after [`check_run`].
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if a tensor is on another device; the message names both.
pub fn check_residence(
    device: Option<&Device>,
    inputs: &[(&str, &Tensor)],
    outputs: &[(&str, &mut Tensor)],
) -> Result<()> {
    let inputs = inputs.iter().map(|(name, tensor)| ("input", name, &**tensor));
    let outputs = outputs.iter().map(|(name, tensor)| ("output", name, &**tensor));
    for (side, name, tensor) in inputs.chain(outputs) {
        if let Some(other) = tensor.device().filter(|other| Some(*other) != device) {
            let own = device.map_or("host memory", Device::name);
            return Err(misuse(format!("{side} `{name}`: expected {own}, it is on {}", other.name())));
        }
    }
    Ok(())
}

fn check_tensor(side: &str, expected: &TensorSpec, tensor: &Tensor, kind: ErrorKind) -> Result<()> {
    let name = &expected.name;
    if tensor.element_type() != expected.element_type {
        let message =
            format!("{side} `{name}`: expected {}, got {}", expected.element_type, tensor.element_type());
        return Err(Error::new(kind, message));
    }
    let fits = |(dim, &size): (&Dim, &usize)| !matches!(dim, Dim::Fixed(fixed) if *fixed != size);
    if tensor.shape().len() != expected.shape.len() || !expected.shape.iter().zip(tensor.shape()).all(fits) {
        let message = format!(
            "{side} `{name}`: expected shape {}, got {:?}",
            shape_text(&expected.shape),
            tensor.shape()
        );
        return Err(Error::new(kind, message));
    }
    Ok(())
}

/// The tensor of this name among the inputs that [`check_run`] has checked.
pub(crate) fn input_named<'t>(inputs: &[(&str, &'t Tensor)], name: &str) -> &'t Tensor {
    inputs.iter().find(|(own, _)| *own == name).expect("`check_run` found every input").1
}

/// The position of a name that [`check_run`] has checked.
pub(crate) fn position(specs: &[TensorSpec], name: &str) -> usize {
    specs.iter().position(|spec| spec.name == name).expect("`check_run` knows every name")
}

fn misuse(message: String) -> Error {
    Error::invalid_argument(message)
}

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<_> = specs.iter().map(|spec| format!("`{}`", spec.name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn shape_text(shape: &[Dim]) -> String {
    let sizes: Vec<_> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

#[cfg(test)]
mod tests;
