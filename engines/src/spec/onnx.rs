//! The inputs and outputs of an ONNX file, for engines that do not keep the names of dimensions.

use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::ElementType;
use ocelli_onnx::schema::{DimensionValue, GraphProto, ValueInfoProto, data_type};
use std::collections::HashSet;

/// The specification of a graph, or one line that says why an engine cannot have it.
pub(crate) fn spec(graph: &GraphProto) -> Result<EngineSpec, String> {
    if graph.input.is_empty() && graph.output.is_empty() {
        return Err("it has no inputs and no outputs".to_owned());
    }
    let weights: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
    let inputs = graph.input.iter().filter(|input| !weights.contains(input.name.as_str()));
    Ok(EngineSpec {
        inputs: inputs.map(|input| tensor("input", input)).collect::<Result<_, _>>()?,
        outputs: graph.output.iter().map(|output| tensor("output", output)).collect::<Result<_, _>>()?,
    })
}

fn tensor(side: &str, value: &ValueInfoProto) -> Result<TensorSpec, String> {
    let name = &value.name;
    let Some(tensor) = value.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref()) else {
        return Err(format!("{side} `{name}` is not a tensor"));
    };
    let element_type = match tensor.elem_type {
        data_type::FLOAT => ElementType::F32,
        data_type::FLOAT16 => ElementType::F16,
        data_type::INT64 => ElementType::I64,
        data_type::INT32 => ElementType::I32,
        data_type::UINT8 => ElementType::U8,
        data_type::BOOL => ElementType::Bool,
        other => {
            return Err(format!(
                "{side} `{name}` has ONNX's element type {other}, expected f32, f16, i64, i32, u8 or bool"
            ));
        }
    };
    if tensor.shape.is_none() {
        return Err(format!("{side} `{name}` has no shape"));
    }
    let dims = value.dims().enumerate().map(|(axis, dim)| match dim {
        Some(DimensionValue::DimValue(size)) if *size >= 0 => Dim::Fixed(*size as usize),
        Some(DimensionValue::DimParam(own)) if !own.is_empty() => Dim::named(own),
        // Each dimension without a name is independent of the others.
        _ => Dim::Named(format!("{name}.{axis}")),
    });
    Ok(TensorSpec::new(name, element_type, dims))
}
