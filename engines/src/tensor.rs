//! Tensors, in the host's memory or on a device: what goes into an engine and what comes out.

mod on_device;

use crate::error::{Error, ErrorKind, Result};
use half::f16;
use std::fmt;

pub use on_device::{DeviceSlice, OnDevice};

/// What one element of a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point (IEEE 754 binary16).
    F16,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 8-bit unsigned integer.
    U8,
    /// True or false, a byte each.
    Bool,
}

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U8 => "u8",
            Self::Bool => "bool",
        })
    }
}

mod sealed {
    use super::TensorData;

    /// The way from a Rust type to its variant of `TensorData`; private, so that the set of types stays closed.
    pub trait Variant: Sized {
        fn wrap(data: Vec<Self>) -> TensorData;
        fn project(data: &TensorData) -> Option<&Vec<Self>>;
        fn project_mut(data: &mut TensorData) -> Option<&mut Vec<Self>>;
    }
}

/// A Rust type that a [`Tensor`] can hold: `f32`, [`half::f16`], `i64`, `i32`, `u8` or `bool`.
pub trait Element: sealed::Variant + Copy + Default + fmt::Debug + 'static {
    /// The same type as a value.
    const TYPE: ElementType;
}

// `pub` because a public trait's (sealed) supertrait names it; the module is private, so no one else can.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    F32(Vec<f32>),
    F16(Vec<f16>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
    OnDevice(OnDevice),
}

macro_rules! element {
    ($($rust:ty => $variant:ident),+ $(,)?) => {$(
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
        }

        impl sealed::Variant for $rust {
            fn wrap(data: Vec<Self>) -> TensorData {
                TensorData::$variant(data)
            }

            fn project(data: &TensorData) -> Option<&Vec<Self>> {
                if let TensorData::$variant(data) = data { Some(data) } else { None }
            }

            fn project_mut(data: &mut TensorData) -> Option<&mut Vec<Self>> {
                if let TensorData::$variant(data) = data { Some(data) } else { None }
            }
        }
    )+};
}
element!(f32 => F32, f16 => F16, i64 => I64, i32 => I32, u8 => U8, bool => Bool);

/// An owned tensor: contiguous, row-major, in the host's memory unless it was made [on a device](Tensor::on).
///
/// A tensor is also a buffer that goes round: [`reset`](Tensor::reset) gives it a new shape and keeps its memory, so
/// a tensor that an engine fills again and again allocates until it has once been as large as it gets.
///
/// A dimension may be zero; a shape without dimensions is a scalar with one element.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: TensorData,
}

impl Tensor {
    /// A tensor of `f32` without elements (shape `[0]`): the buffer to hand to an engine for it to fill.
    pub fn empty() -> Self {
        Self { shape: vec![0], data: TensorData::F32(Vec::new()) }
    }

    /// A tensor of this shape that takes over `data`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the shape does not have as many elements as `data`.
    pub fn new<T: Element>(shape: &[usize], data: Vec<T>) -> Result<Self> {
        if element_count(shape) != Some(data.len()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "tensor of {}: shape {shape:?} takes {}, the data has {}",
                    T::TYPE,
                    element_count(shape)
                        .map_or("more than memory holds".to_owned(), |count| count.to_string()),
                    data.len()
                ),
            ));
        }
        Ok(Self { shape: shape.to_vec(), data: T::wrap(data) })
    }

    /// A tensor of `f32`; see [`Tensor::new`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the shape does not have as many elements as `data`.
    pub fn f32(shape: &[usize], data: Vec<f32>) -> Result<Self> {
        Self::new(shape, data)
    }

    /// A tensor of `i64`; see [`Tensor::new`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the shape does not have as many elements as `data`.
    pub fn i64(shape: &[usize], data: Vec<i64>) -> Result<Self> {
        Self::new(shape, data)
    }

    /// A tensor of zeros (`false` for `bool`).
    ///
    /// # Panics
    /// If the shape has more elements than memory can hold, as `Vec` does.
    pub fn zeros<T: Element>(shape: &[usize]) -> Self {
        let mut tensor = Self { shape: Vec::new(), data: T::wrap(Vec::new()) };
        tensor.reset::<T>(shape);
        tensor
    }

    /// A tensor of `f32` zeros; see [`Tensor::zeros`].
    ///
    /// # Panics
    /// If the shape has more elements than memory can hold, as `Vec` does.
    pub fn zeros_f32(shape: &[usize]) -> Self {
        Self::zeros::<f32>(shape)
    }

    /// The sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// What the elements are.
    pub fn element_type(&self) -> ElementType {
        match &self.data {
            TensorData::F32(_) => ElementType::F32,
            TensorData::F16(_) => ElementType::F16,
            TensorData::I64(_) => ElementType::I64,
            TensorData::I32(_) => ElementType::I32,
            TensorData::U8(_) => ElementType::U8,
            TensorData::Bool(_) => ElementType::Bool,
            TensorData::OnDevice(data) => data.element_type(),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            TensorData::F32(data) => data.len(),
            TensorData::F16(data) => data.len(),
            TensorData::I64(data) => data.len(),
            TensorData::I32(data) => data.len(),
            TensorData::U8(data) => data.len(),
            TensorData::Bool(data) => data.len(),
            TensorData::OnDevice(data) => data.len,
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of elements that fit without another allocation.
    pub fn capacity(&self) -> usize {
        match &self.data {
            TensorData::F32(data) => data.capacity(),
            TensorData::F16(data) => data.capacity(),
            TensorData::I64(data) => data.capacity(),
            TensorData::I32(data) => data.capacity(),
            TensorData::U8(data) => data.capacity(),
            TensorData::Bool(data) => data.capacity(),
            TensorData::OnDevice(data) => data.capacity(),
        }
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type, or lies on a device.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        T::project(&self.data).map(Vec::as_slice).ok_or_else(|| self.holds_another::<T>())
    }

    /// The elements, row-major, to be changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type, or lies on a device.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if self.element_type() != T::TYPE || self.device().is_some() {
            return Err(self.holds_another::<T>());
        }
        Ok(T::project_mut(&mut self.data).expect("its type was compared above"))
    }

    /// The elements of a tensor of `f32`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type.
    pub fn as_f32(&self) -> Result<&[f32]> {
        self.as_slice()
    }

    /// The elements of a tensor of `f32`, to be changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type.
    pub fn as_f32_mut(&mut self) -> Result<&mut [f32]> {
        self.as_mut_slice()
    }

    /// The elements of a tensor of `i64`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type.
    pub fn as_i64(&self) -> Result<&[i64]> {
        self.as_slice()
    }

    /// The elements of a tensor of `i64`, to be changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor holds another type.
    pub fn as_i64_mut(&mut self) -> Result<&mut [i64]> {
        self.as_mut_slice()
    }

    /// Gives the tensor this type and shape and returns the elements to fill.
    ///
    /// Memory is kept as long as the type stays. What the elements hold afterwards is unspecified (zeros or what was
    /// there): fill all of them. A tensor on a device becomes one of the host's.
    ///
    /// # Panics
    /// If the shape has more elements than memory can hold, as `Vec` does.
    pub fn reset<T: Element>(&mut self, shape: &[usize]) -> &mut [T] {
        let count = element_count(shape).unwrap_or(usize::MAX);
        if T::project(&self.data).is_none() {
            self.data = T::wrap(Vec::new());
        }
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        let data = T::project_mut(&mut self.data).expect("the data was given this type above");
        data.resize(count, T::default());
        data
    }

    /// [`Tensor::reset`] to `f32`.
    ///
    /// # Panics
    /// If the shape has more elements than memory can hold, as `Vec` does.
    pub fn reset_f32(&mut self, shape: &[usize]) -> &mut [f32] {
        self.reset(shape)
    }

    /// [`Tensor::reset`] to `i64`.
    ///
    /// # Panics
    /// If the shape has more elements than memory can hold, as `Vec` does.
    pub fn reset_i64(&mut self, shape: &[usize]) -> &mut [i64] {
        self.reset(shape)
    }

    /// [`Tensor::reset`] to a type known only while running, for shapes that may be too large. A tensor on a device stays
    /// there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no memory for the shape;
    /// [`ErrorKind::Execution`] if the device has none.
    pub fn reset_to(&mut self, element_type: ElementType, shape: &[usize]) -> Result<()> {
        if let TensorData::OnDevice(data) = &mut self.data {
            data.reset(element_type, element_count(shape).unwrap_or(usize::MAX))?;
            self.shape.clear();
            self.shape.extend_from_slice(shape);
            return Ok(());
        }
        match element_type {
            ElementType::F32 => self.try_reset::<f32>(shape),
            ElementType::F16 => self.try_reset::<f16>(shape),
            ElementType::I64 => self.try_reset::<i64>(shape),
            ElementType::I32 => self.try_reset::<i32>(shape),
            ElementType::U8 => self.try_reset::<u8>(shape),
            ElementType::Bool => self.try_reset::<bool>(shape),
        }
    }

    fn try_reset<T: Element>(&mut self, shape: &[usize]) -> Result<()> {
        let too_large = || {
            let message = format!("tensor of {}: there is no memory for shape {shape:?}", T::TYPE);
            Error::new(ErrorKind::InvalidArgument, message)
        };
        let count = element_count(shape).ok_or_else(too_large)?;
        if T::project(&self.data).is_none() {
            self.reset::<T>(&[0]);
        }
        let data = T::project_mut(&mut self.data).expect("the data was given this type above");
        data.try_reserve_exact(count.saturating_sub(data.len())).map_err(|_| too_large())?;
        self.reset::<T>(shape);
        Ok(())
    }

    /// The elements as bytes.
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        self.refuse_device()?;
        Ok(match &self.data {
            TensorData::F32(data) => bytemuck::cast_slice(data),
            TensorData::F16(data) => bytemuck::cast_slice(data),
            TensorData::I64(data) => bytemuck::cast_slice(data),
            TensorData::I32(data) => bytemuck::cast_slice(data),
            TensorData::U8(data) => data,
            TensorData::Bool(data) => bytemuck::cast_slice(data),
            TensorData::OnDevice(_) => unreachable!("refused above"),
        })
    }

    /// Has the elements, as bytes, filled in by somebody.
    pub(crate) fn fill_bytes(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        self.refuse_device()?;
        match &mut self.data {
            TensorData::F32(data) => fill(bytemuck::cast_slice_mut(data)),
            TensorData::F16(data) => fill(bytemuck::cast_slice_mut(data)),
            TensorData::I64(data) => fill(bytemuck::cast_slice_mut(data)),
            TensorData::I32(data) => fill(bytemuck::cast_slice_mut(data)),
            TensorData::U8(data) => fill(data),
            TensorData::Bool(data) => {
                // Not every byte is a bool; what is not filled in stays.
                let mut bytes: Vec<u8> = data.iter().map(|&value| value.into()).collect();
                fill(&mut bytes)?;
                data.iter_mut().zip(bytes).for_each(|(value, byte)| *value = byte != 0);
                Ok(())
            }
            TensorData::OnDevice(_) => unreachable!("refused above"),
        }
    }

    fn holds_another<T: Element>(&self) -> Error {
        if let Err(error) = self.refuse_device() {
            return error;
        }
        let message = format!(
            "tensor of shape {:?}: expected elements of {}, it holds {}",
            self.shape,
            T::TYPE,
            self.element_type()
        );
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

impl Default for Tensor {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Tensor {
    /// Type and shape; the elements of a feature map would fill screens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>{:?}", self.element_type(), self.shape)?;
        self.device().map_or(Ok(()), |device| write!(f, " on {}", device.name()))
    }
}

/// The number of elements of a shape, if it can be counted.
fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_must_fill_the_shape() {
        let huge = [usize::MAX, 2];
        let cases: [(&[usize], usize, bool); 8] = [
            (&[], 1, true),
            (&[], 0, false),
            (&[0], 0, true),
            (&[1, 0, 4], 0, true),
            (&[2, 3], 6, true),
            (&[2, 3], 5, false),
            (&[2, 3], 7, false),
            (&huge, 0, false),
        ];
        let wrong: Vec<_> = cases
            .iter()
            .filter(|(shape, count, fits)| Tensor::f32(shape, vec![0.0; *count]).is_ok() != *fits)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_buffer_that_goes_round_stays_where_it_is() {
        let mut tensor = Tensor::empty();
        tensor.reset_f32(&[4, 6]).fill(1.0);
        let (address, capacity) = (tensor.as_f32().expect("f32").as_ptr(), tensor.capacity());
        for shape in [&[2, 3][..], &[0], &[24], &[], &[4, 6]] {
            tensor.reset_f32(shape);
            assert_eq!(tensor.shape(), shape);
            assert_eq!(tensor.len(), shape.iter().product::<usize>());
            assert_eq!((tensor.as_f32().expect("f32").as_ptr(), tensor.capacity()), (address, capacity));
        }
    }

    #[test]
    fn every_type_can_be_held_and_asked_for() {
        let mut tensor = Tensor::empty();
        let types = [
            ElementType::F32,
            ElementType::F16,
            ElementType::I64,
            ElementType::I32,
            ElementType::U8,
            ElementType::Bool,
        ];
        for element_type in types {
            tensor.reset_to(element_type, &[2, 2]).expect("four elements fit");
            assert_eq!((tensor.element_type(), tensor.len()), (element_type, 4));
            let readable = [
                tensor.as_slice::<f32>().is_ok(),
                tensor.as_slice::<f16>().is_ok(),
                tensor.as_slice::<i64>().is_ok(),
                tensor.as_slice::<i32>().is_ok(),
                tensor.as_slice::<u8>().is_ok(),
                tensor.as_slice::<bool>().is_ok(),
            ];
            let expected = types.map(|other| other == element_type);
            assert_eq!(readable, expected, "{element_type}");
        }
    }

    #[test]
    fn a_shape_beyond_memory_is_an_error() {
        for shape in [&[usize::MAX, 2][..], &[usize::MAX], &[1 << 40, 1 << 20], &[usize::MAX, 2, 0]] {
            let error =
                Tensor::empty().reset_to(ElementType::I64, shape).expect_err("no memory is that large");
            assert_eq!(error.to_string(), format!("tensor of i64: there is no memory for shape {shape:?}"));
        }
    }

    #[test]
    fn asking_for_another_type_says_both() {
        let error = Tensor::i64(&[2], vec![1, 2]).expect("fits").as_f32().expect_err("it holds i64");
        assert_eq!(error.to_string(), "tensor of shape [2]: expected elements of f32, it holds i64");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
