//! The caller's tensors as values of `rten`, and back.

use crate::tensor::{Element, ElementType, Tensor};
use half::f16;
use half::slice::HalfFloatSliceExt;
use ocelli_error::{Error, Result};
use rten::{Value, ValueView};
use rten_tensor::{AsView, Layout, TensorView};

/// Converted elements of one input, kept between runs.
#[derive(Debug, Default)]
pub(super) struct Converted {
    floats: Vec<f32>,
    integers: Vec<i32>,
}

/// A tensor as `rten` computes with it: in place where the type is the same, else converted.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for an integer beyond 32 bits.
pub(super) fn view<'v>(
    name: &str,
    tensor: &'v Tensor,
    converted: &'v mut Converted,
) -> Result<ValueView<'v>> {
    let shape = tensor.shape();
    let view = match tensor.element_type() {
        ElementType::F32 => value(shape, tensor.as_slice::<f32>()?),
        ElementType::I32 => value(shape, tensor.as_slice::<i32>()?),
        ElementType::U8 => value(shape, tensor.as_slice::<u8>()?),
        ElementType::F16 => {
            let halves = tensor.as_slice::<f16>()?;
            converted.floats.resize(halves.len(), 0.0);
            halves.convert_to_f32_slice(&mut converted.floats);
            value(shape, &converted.floats)
        }
        ElementType::I64 => {
            converted.integers.clear();
            for &long in tensor.as_slice::<i64>()? {
                let integer = i32::try_from(long).map_err(|_| {
                    let message =
                        format!("input `{name}`: {long} does not fit the embedded engine's 32-bit integers");
                    Error::invalid_argument(message)
                })?;
                converted.integers.push(integer);
            }
            value(shape, &converted.integers)
        }
        ElementType::Bool => {
            converted.integers.clear();
            converted.integers.extend(tensor.as_slice::<bool>()?.iter().map(|&flag| i32::from(flag)));
            value(shape, &converted.integers)
        }
    };
    Ok(view)
}

fn value<'v, T>(shape: &[usize], data: &'v [T]) -> ValueView<'v>
where
    ValueView<'v>: From<TensorView<'v, T>>,
{
    TensorView::from_data(shape, data).into()
}

/// Copies a value into the caller's tensor, as the type of the specification.
///
/// # Errors
/// One line if the value has a type that is not computed as this one.
pub(super) fn copy(value: &Value, element_type: ElementType, tensor: &mut Tensor) -> Result<(), String> {
    match (value, element_type) {
        (Value::FloatTensor(value), ElementType::F32) => copy_as(&value.view(), tensor, |value: f32| value),
        (Value::FloatTensor(value), ElementType::F16) => copy_as(&value.view(), tensor, f16::from_f32),
        (Value::Int32Tensor(value), ElementType::I64) => copy_as(&value.view(), tensor, i64::from),
        (Value::Int32Tensor(value), ElementType::I32) => copy_as(&value.view(), tensor, |value: i32| value),
        (Value::Int32Tensor(value), ElementType::Bool) => {
            copy_as(&value.view(), tensor, |value: i32| value != 0);
        }
        (Value::UInt8Tensor(value), ElementType::U8) => copy_as(&value.view(), tensor, |value: u8| value),
        (value, expected) => return Err(format!("expected {expected}, got {}", value.dtype())),
    }
    Ok(())
}

fn copy_as<T: Copy, U: Element>(value: &TensorView<'_, T>, tensor: &mut Tensor, convert: impl Fn(T) -> U) {
    let elements = tensor.reset::<U>(value.shape());
    match value.data() {
        Some(data) => elements.iter_mut().zip(data).for_each(|(to, from)| *to = convert(*from)),
        // A transposed view: the iterator goes through it row by row.
        None => elements.iter_mut().zip(value.iter()).for_each(|(to, from)| *to = convert(*from)),
    }
}
