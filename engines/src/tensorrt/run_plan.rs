//! What a plan takes and gives: the names of its dimensions and the sizes they may have.

use super::run_calls::PlanTensor;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::{ElementType, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to do about a size that a plan was not built for, as words: of the dimension and the size.
pub(super) type Remedy = Arc<dyn Fn(&str, usize) -> String + Send + Sync>;

/// The names of dynamic dimensions, by tensor and axis.
pub(super) type DimensionNames = BTreeMap<(String, usize), String>;

/// A plan's tensors as an engine states them.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) spec: EngineSpec,
    /// The position in the plan of each of the specification's inputs, and of each of its outputs.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// The least and the greatest sizes of each of the specification's inputs.
    ranges: Vec<[Vec<usize>; 2]>,
}

impl Description {
    /// Of a plan, whose dynamic dimensions have no names; `stated` has them, in its order, or `names`.
    pub(super) fn of(
        tensors: &[PlanTensor],
        stated: Option<&EngineSpec>,
        names: &DimensionNames,
    ) -> Result<Self, String> {
        let [inputs, outputs] = [true, false].map(|is_input| -> Result<Vec<_>, String> {
            let side = if is_input { "input" } else { "output" };
            let own: Vec<_> =
                tensors.iter().enumerate().filter(|(_, tensor)| tensor.is_input == is_input).collect();
            let Some(stated) = stated else {
                return own
                    .into_iter()
                    .map(|(at, tensor)| Ok((at, specify(side, tensor, None, names)?)))
                    .collect();
            };
            let stated = if is_input { &stated.inputs } else { &stated.outputs };
            if let Some((_, more)) =
                own.iter().find(|(_, own)| !stated.iter().any(|spec| spec.name == own.name))
            {
                return Err(format!("{side} `{}` is not one that was expected", more.name));
            }
            let matching = stated.iter().map(|spec| {
                let found = own.iter().find(|(_, tensor)| tensor.name == spec.name);
                let (at, tensor) = found.ok_or_else(|| format!("{side} `{}` is missing", spec.name))?;
                Ok((*at, specify(side, tensor, Some(spec), names)?))
            });
            matching.collect()
        });
        let ((inputs, input_specs), (outputs, output_specs)): ((Vec<_>, _), (Vec<_>, _)) =
            (inputs?.into_iter().unzip(), outputs?.into_iter().unzip());
        let ranges = inputs.iter().map(|at| range(&tensors[*at])).collect();
        Ok(Self { spec: EngineSpec { inputs: input_specs, outputs: output_specs }, inputs, outputs, ranges })
    }

    /// Checks that the inputs have sizes that the plan was built for.
    pub(super) fn check_sizes(&self, inputs: &[(&str, &Tensor)], remedy: Option<&Remedy>) -> Result<()> {
        for (spec, [least, most]) in self.spec.inputs.iter().zip(&self.ranges) {
            let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == spec.name) else { continue };
            for (axis, &size) in tensor.shape().iter().enumerate() {
                let (least, most) = (least[axis], most[axis]);
                if (least..=most).contains(&size) {
                    continue;
                }
                let name = match &spec.shape[axis] {
                    Dim::Named(name) => name.as_str(),
                    Dim::Fixed(_) => "this dimension",
                };
                let input = &spec.name;
                let what = format!(
                    "input `{input}`, dimension {axis}: `{name}` is {size}, the plan was built for {least} to {most}"
                );
                let message = match remedy {
                    Some(remedy) => format!("{what}; {}", remedy(name, size)),
                    None => format!("{what}; build it for sizes up to {}", size.max(most)),
                };
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        Ok(())
    }

    /// The least and the greatest size of each named dimension.
    pub(super) fn dimensions(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.spec.inputs.iter().zip(&self.ranges).flat_map(|(spec, [least, most])| {
            spec.shape.iter().zip(least.iter().zip(most)).filter_map(|(dim, (&least, &most))| match dim {
                Dim::Named(name) => Some((name.as_str(), least, most)),
                Dim::Fixed(_) => None,
            })
        })
    }
}

/// The sizes of an input that is not dynamic are its least and its greatest.
fn range(tensor: &PlanTensor) -> [Vec<usize>; 2] {
    let sizes = |sizes: &[i64]| sizes.iter().map(|&size| usize::try_from(size).unwrap_or_default()).collect();
    match &tensor.range {
        Some([least, most]) => [sizes(least), sizes(most)],
        None => [sizes(&tensor.sizes), sizes(&tensor.sizes)],
    }
}

fn specify(
    side: &str,
    tensor: &PlanTensor,
    stated: Option<&TensorSpec>,
    names: &DimensionNames,
) -> Result<TensorSpec, String> {
    let name = &tensor.name;
    let element_type = element_type(tensor.data_type).ok_or_else(|| {
        format!("{side} `{name}` holds elements of type {}, which no tensor here can", tensor.data_type)
    })?;
    if tensor.is_on_host {
        return Err(format!("{side} `{name}` is a shape in the host's memory, which is not supported"));
    }
    if !tensor.is_linear {
        return Err(format!("{side} `{name}` does not lie row by row, which is not supported"));
    }
    let ranges_fit = tensor.range.iter().flatten().all(|range| range.len() == tensor.sizes.len());
    if !ranges_fit {
        return Err(format!("{side} `{name}` has a profile of another rank"));
    }
    let own = |axis: usize, size: i64| match usize::try_from(size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => match names.get(&(name.clone(), axis)) {
            Some(given) => Dim::named(given.clone()),
            None => Dim::named(format!("{name}.{axis}")),
        },
    };
    let plain = TensorSpec::new(
        name.clone(),
        element_type,
        tensor.sizes.iter().enumerate().map(|(axis, &size)| own(axis, size)),
    );
    let Some(stated) = stated else { return Ok(plain) };
    let fits = |(stated, own): (&Dim, &Dim)| match (stated, own) {
        (Dim::Fixed(stated), Dim::Fixed(own)) => stated == own,
        _ => true,
    };
    let same_rank = stated.shape.len() == plain.shape.len();
    if stated.element_type != element_type || !same_rank || !stated.shape.iter().zip(&plain.shape).all(fits) {
        return Err(format!("{side}: expected {stated}, the plan has {plain}"));
    }
    // What the plan fixes is fixed, and what is stated to be fixed may not vary.
    let merge = |(stated, own): (&Dim, Dim)| match (stated, own) {
        (_, Dim::Fixed(size)) => Dim::Fixed(size),
        (stated, Dim::Named(_)) => stated.clone(),
    };
    let shape = stated.shape.iter().zip(plain.shape).map(merge);
    Ok(TensorSpec::new(name.clone(), element_type, shape))
}

/// The element type of a number of `nvinfer1::DataType`.
fn element_type(data_type: i32) -> Option<ElementType> {
    Some(match data_type {
        0 => ElementType::F32,
        1 => ElementType::F16,
        3 => ElementType::I32,
        4 => ElementType::Bool,
        5 => ElementType::U8,
        8 => ElementType::I64,
        _ => return None,
    })
}

/// What TensorRT means by its words about a plan that it does not take.
pub(super) fn plain_words(reason: &str) -> &'static str {
    let known = [
        ("magicTag", "it is no plan of this TensorRT"),
        ("blobSize", "it is cut off, or longer than it should be"),
        ("bufferSize >= minBufferSize", "it is cut off, or no plan"),
        ("kSERIALIZATION_VERSION", "another version of TensorRT built it"),
        ("ersion tag does not match", "another version of TensorRT built it"),
        ("incompatible device", "it was built for another kind of GPU"),
        ("unsupported compute capability", "it was built for another kind of GPU"),
        ("OutOfMemory", "the GPU has too little memory for it"),
        ("out of memory", "the GPU has too little memory for it"),
        ("driver version is insufficient", "NVIDIA's driver is missing, or too old for this TensorRT"),
    ];
    let found = known.iter().find(|(words, _)| reason.contains(words));
    found.map_or("TensorRT does not take it", |(_, meaning)| meaning)
}
