//! The inputs and outputs of a plan: the names of their dimensions and the sizes that these may have.

use super::calls::run::PlanTensor;
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::Tensor;
use ocelli_error::{Result, refuse};
use std::collections::BTreeMap;

/// The advice about a size that a plan was not built for, given the name of the dimension and the size.
pub(super) type Remedy = Box<dyn Fn(&str, usize) -> String + Send + Sync>;

/// The names of dynamic dimensions, by tensor and axis.
pub(super) type DimensionNames = BTreeMap<(String, usize), String>;

#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) spec: EngineSpec,
    /// The positions in the plan of the specification's inputs, and of its outputs.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// The smallest and the largest sizes of each input.
    ranges: Vec<[Vec<usize>; 2]>,
}

impl Description {
    /// Describes a plan. Its dynamic dimensions get the names in `names`, or `tensor.axis`.
    pub(super) fn of(tensors: &[PlanTensor], names: &DimensionNames) -> Self {
        let side = |is_input: bool| {
            let own = tensors.iter().enumerate().filter(move |(_, tensor)| tensor.is_input == is_input);
            own.map(|(at, tensor)| (at, specify(tensor, names))).unzip()
        };
        let ((inputs, input_specs), (outputs, output_specs)): ((Vec<_>, _), _) = (side(true), side(false));
        let ranges = inputs.iter().map(|at| range(&tensors[*at])).collect();
        Self { spec: EngineSpec { inputs: input_specs, outputs: output_specs }, inputs, outputs, ranges }
    }

    /// Checks that the plan was built for the sizes of the inputs.
    pub(super) fn check_sizes(&self, inputs: &[(&str, &Tensor)], remedy: Option<&Remedy>) -> Result<()> {
        for (spec, [min, max]) in self.spec.inputs.iter().zip(&self.ranges) {
            let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == spec.name) else { continue };
            for (axis, &size) in tensor.shape().iter().enumerate() {
                let (min, max) = (min[axis], max[axis]);
                if (min..=max).contains(&size) {
                    continue;
                }
                let name = match &spec.shape[axis] {
                    Dim::Named(name) => name.as_str(),
                    Dim::Fixed(_) => "this dimension",
                };
                let remedy = match remedy {
                    Some(remedy) => remedy(name, size),
                    None => format!("build it for sizes up to {}", size.max(max)),
                };
                refuse!(
                    "input `{}`, dimension {axis}: `{name}` is {size}, the plan was built for {min} to {max}; {remedy}",
                    spec.name
                );
            }
        }
        Ok(())
    }
}

/// The smallest and the largest sizes of an input.
fn range(tensor: &PlanTensor) -> [Vec<usize>; 2] {
    let sizes = |sizes: &[i64]| sizes.iter().map(|&size| usize::try_from(size).unwrap_or_default()).collect();
    match &tensor.range {
        Some([min, max]) => [sizes(min), sizes(max)],
        None => [sizes(&tensor.sizes), sizes(&tensor.sizes)],
    }
}

fn specify(tensor: &PlanTensor, names: &DimensionNames) -> TensorSpec {
    let name = &tensor.name;
    let dims = tensor.sizes.iter().enumerate().map(|(axis, &size)| match usize::try_from(size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => match names.get(&(name.clone(), axis)) {
            Some(given) => Dim::named(given.clone()),
            None => Dim::named(format!("{name}.{axis}")),
        },
    });
    TensorSpec::new(name.clone(), tensor.element_type, dims)
}

/// The meaning of TensorRT's reason for refusing a plan.
pub(super) fn meaning(reason: &str) -> &'static str {
    let known = [
        ("magicTag", "it is not a plan of this TensorRT"),
        ("blobSize", "it has the wrong length"),
        ("bufferSize >= minBufferSize", "it is truncated, or not a plan"),
        ("kSERIALIZATION_VERSION", "another version of TensorRT built it"),
        ("ersion tag does not match", "another version of TensorRT built it"),
        ("incompatible device", "it was built for another kind of GPU"),
        ("unsupported compute capability", "it was built for another kind of GPU"),
        ("OutOfMemory", "the GPU has too little memory for it"),
        ("out of memory", "the GPU has too little memory for it"),
        ("driver version is insufficient", "NVIDIA's driver is missing, or too old for this TensorRT"),
    ];
    let found = known.iter().find(|(part, _)| reason.contains(part));
    found.map_or("TensorRT refuses it", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests;
