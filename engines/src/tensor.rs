//! Tensors, in host memory or on a device: the inputs and outputs of engines.

mod on_device;

use half::f16;
use ocelli_error::{Error, Result, display_as, refuse};
use std::fmt;

pub use on_device::{DeviceSlice, OnDevice};

/// The type of a tensor's elements.
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
    /// A boolean, one byte.
    Bool,
}

/// Evaluates an expression with `$T` as the Rust type of an element type.
macro_rules! with_element {
    ($element_type:expr, $T:ident => $value:expr) => {{
        macro_rules! typed {
            ($rust:ty) => {{
                type $T = $rust;
                $value
            }};
        }
        match $element_type {
            ElementType::F32 => typed!(f32),
            ElementType::F16 => typed!(half::f16),
            ElementType::I64 => typed!(i64),
            ElementType::I32 => typed!(i32),
            ElementType::U8 => typed!(u8),
            ElementType::Bool => typed!(bool),
        }
    }};
}
#[cfg(not(target_family = "wasm"))]
pub(crate) use with_element;

impl ElementType {
    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        with_element!(self, T => size_of::<T>())
    }
}

// `f32`, `u8`, `bool`
display_as!(ElementType, it => "{}", format!("{it:?}").to_lowercase());

mod sealed {
    use super::TensorData;

    /// Maps a Rust type to its variant of `TensorData`. Private, so that the set of types is closed.
    pub trait Variant: bytemuck::NoUninit {
        fn wrap(data: Vec<Self>) -> TensorData;
        fn project(data: &TensorData) -> Option<&Vec<Self>>;
        fn project_mut(data: &mut TensorData) -> Option<&mut Vec<Self>>;
    }
}

/// A Rust type that a [`Tensor`] can hold: `f32`, [`half::f16`], `i64`, `i32`, `u8` or `bool`.
pub trait Element: sealed::Variant + Copy + Default + fmt::Debug + 'static {
    /// The corresponding element type.
    const TYPE: ElementType;
}

// `pub` because the sealed supertrait of a public trait names it. The module is private, so it cannot be reached.
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

/// One expression of elements in host memory, whatever their type, and another one of those on a device.
macro_rules! of_any {
    ($data:expr, $host:ident => $of_host:expr, $device:pat => $of_device:expr $(,)?) => {
        match $data {
            TensorData::F32($host) => $of_host,
            TensorData::F16($host) => $of_host,
            TensorData::I64($host) => $of_host,
            TensorData::I32($host) => $of_host,
            TensorData::U8($host) => $of_host,
            TensorData::Bool($host) => $of_host,
            TensorData::OnDevice($device) => $of_device,
        }
    };
}

/// An owned tensor: contiguous, row-major, in host memory unless it was created [on a device](Tensor::on).
///
/// A tensor is also a reusable buffer: [`reset`](Tensor::reset) changes its shape and keeps its memory, so a tensor that
/// an engine fills repeatedly stops allocating once it has reached its largest size.
///
/// A dimension may be zero; a shape without dimensions is a scalar with one element.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: TensorData,
}

impl Tensor {
    /// An empty tensor of `f32` (shape `[0]`), for an engine to fill.
    pub fn empty() -> Self {
        Self { shape: vec![0], data: TensorData::F32(Vec::new()) }
    }

    /// A tensor of this shape that takes ownership of `data`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the shape does not have as many elements
    /// as `data`.
    pub fn new<T: Element>(shape: &[usize], data: Vec<T>) -> Result<Self> {
        if element_count(shape) != Some(data.len()) {
            refuse!(
                "tensor of {}: shape {shape:?} has {} elements, the data {}",
                T::TYPE,
                element_count(shape).map_or("too many".to_owned(), |count| count.to_string()),
                data.len()
            );
        }
        Ok(Self { shape: shape.to_vec(), data: T::wrap(data) })
    }

    /// A tensor of `f32`; see [`Tensor::new`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the shape does not have as many elements
    /// as `data`.
    pub fn f32(shape: &[usize], data: Vec<f32>) -> Result<Self> {
        Self::new(shape, data)
    }

    /// A tensor of `i64`; see [`Tensor::new`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the shape does not have as many elements
    /// as `data`.
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

    /// The sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the elements.
    pub fn element_type(&self) -> ElementType {
        fn type_of<T: Element>(_: &[T]) -> ElementType {
            T::TYPE
        }
        of_any!(&self.data, data => type_of(data), data => data.element_type)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        of_any!(&self.data, data => data.len(), data => data.len)
    }

    /// `true` if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of elements that fit without reallocating.
    pub fn capacity(&self) -> usize {
        of_any!(&self.data, data => data.capacity(), data => data.capacity())
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the elements have another type, or are on
    /// a device.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        T::project(&self.data).map(Vec::as_slice).ok_or_else(|| self.wrong_type::<T>())
    }

    /// The elements, row-major, mutably.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the elements have another type, or are on
    /// a device.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if self.element_type() != T::TYPE || self.device().is_some() {
            return Err(self.wrong_type::<T>());
        }
        Ok(T::project_mut(&mut self.data).expect("its type was compared above"))
    }

    /// The elements of a tensor of `f32`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the elements have another type, or are on
    /// a device.
    pub fn as_f32(&self) -> Result<&[f32]> {
        self.as_slice()
    }

    /// Changes type and shape and returns the elements to fill.
    ///
    /// Memory is reused while the type stays the same. The elements have unspecified values (zeros or former elements), so
    /// fill all of them. A tensor on a device moves to host memory.
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

    /// [`Tensor::reset`] to a type known at run time, for shapes that may be too large. A tensor on a device stays there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the shape is too large for memory;
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the device has no memory left.
    pub fn reset_to(&mut self, element_type: ElementType, shape: &[usize]) -> Result<()> {
        if let TensorData::OnDevice(data) = &mut self.data {
            data.reset(element_type, element_count(shape).unwrap_or(usize::MAX))?;
            self.shape.clear();
            self.shape.extend_from_slice(shape);
            return Ok(());
        }
        with_element!(element_type, T => self.try_reset::<T>(shape))
    }

    fn try_reset<T: Element>(&mut self, shape: &[usize]) -> Result<()> {
        let too_large = || {
            Error::invalid_argument(format!("tensor of {}: not enough memory for shape {shape:?}", T::TYPE))
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
        self.require_host_memory()?;
        Ok(of_any!(&self.data, data => bytemuck::cast_slice(data), _ => unreachable!("refused above")))
    }

    /// The elements as bytes, mutably; for `bool`, of which not every byte is valid, an error.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        match self.data {
            TensorData::F32(ref mut data) => Ok(bytemuck::cast_slice_mut(data)),
            TensorData::F16(ref mut data) => Ok(bytemuck::cast_slice_mut(data)),
            TensorData::I64(ref mut data) => Ok(bytemuck::cast_slice_mut(data)),
            TensorData::I32(ref mut data) => Ok(bytemuck::cast_slice_mut(data)),
            TensorData::U8(ref mut data) => Ok(data),
            TensorData::Bool(_) | TensorData::OnDevice(_) => Err(self.wrong_type::<u8>()),
        }
    }

    /// Lets a function fill the elements as bytes.
    pub(crate) fn fill_bytes(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let TensorData::Bool(data) = &mut self.data else { return fill(self.bytes_mut()?) };
        // Not every byte is a valid bool.
        let mut bytes: Vec<u8> = data.iter().map(|&value| value.into()).collect();
        fill(&mut bytes)?;
        data.iter_mut().zip(bytes).for_each(|(value, byte)| *value = byte != 0);
        Ok(())
    }

    fn wrong_type<T: Element>(&self) -> Error {
        if let Err(error) = self.require_host_memory() {
            return error;
        }
        Error::invalid_argument(format!(
            "tensor of shape {:?}: expected elements of {}, got {}",
            self.shape,
            T::TYPE,
            self.element_type()
        ))
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

/// The number of elements of a shape, unless it overflows.
fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn data_must_match_the_shape() {
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
    fn resetting_reuses_the_memory() {
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
    fn elements_are_readable_as_their_own_type_only() {
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
            assert_eq!(error.to_string(), format!("tensor of i64: not enough memory for shape {shape:?}"));
        }
    }

    #[test]
    fn reading_another_type_names_both_types() {
        let error = Tensor::i64(&[2], vec![1, 2]).expect("fits").as_f32().expect_err("it holds i64");
        assert_eq!(error.to_string(), "tensor of shape [2]: expected elements of f32, got i64");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn elements_are_copied_within_bounds() {
        let source = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("fits");
        let mut target = Tensor::f32(&[4], vec![9.0; 4]).expect("fits");
        target.copy_elements(1, &source, 2, 2).expect("it fits");
        assert_eq!(target.as_f32().expect("f32"), [9.0, 3.0, 4.0, 9.0]);
        let mut flags = Tensor::new(&[3], vec![true; 3]).expect("fits");
        flags.copy_elements(1, &Tensor::zeros::<bool>(&[1]), 0, 1).expect("it fits");
        assert_eq!(flags.as_slice::<bool>().expect("bool"), [true, false, true]);
        for (to, count) in [(3, 2), (5, 0), (usize::MAX, 2)] {
            let error = target.copy_elements(to, &source, 0, count).expect_err("the target has four");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let error = target.copy_elements(0, &Tensor::zeros::<i64>(&[4]), 0, 1).expect_err("i64 is not f32");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_row_in_host_memory_is_a_copy() {
        let tensor = Tensor::f32(&[3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("fits");
        let row = tensor.row(1).expect("there are three");
        assert_eq!(row, Tensor::f32(&[1, 2], vec![2.0, 3.0]).expect("fits"));
        for tensor in [&tensor, &Tensor::zeros::<f32>(&[])] {
            assert_eq!(tensor.row(3).expect_err("out of bounds").kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn a_slice_must_match_the_shape() {
        let mut tensor = Tensor::empty();
        tensor.copy_from_slice(&[2, 1], &[7_u8, 8]).expect("it fits");
        assert_eq!(tensor, Tensor::new(&[2, 1], vec![7_u8, 8]).expect("fits"));
        let error = tensor.copy_from_slice(&[3], &[7_u8, 8]).expect_err("three are not two");
        assert_eq!(error.to_string(), "tensor of shape [3]: the slice has 2 elements");
    }
}
