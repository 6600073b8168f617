//! Tensors whose elements are on a device.

use crate::device::{Device, DeviceBuffer};
use crate::tensor::{Element, ElementType, Tensor, TensorData, element_count};
use ocelli_error::{Error, Result, refuse};

/// Elements on a device: a range of a buffer that other tensors may share.
#[derive(Clone)]
pub struct OnDevice {
    device: Device,
    pub(super) element_type: ElementType,
    /// `None` until there are elements.
    buffer: Option<DeviceBuffer>,
    /// In bytes.
    offset: usize,
    /// In elements.
    pub(super) len: usize,
}

impl OnDevice {
    /// In elements.
    pub(super) fn capacity(&self) -> usize {
        let bytes = self.buffer.as_ref().map_or(0, |buffer| buffer.capacity() - self.offset);
        bytes / self.element_type.size()
    }

    /// Makes space for this many elements that no other tensor shares.
    pub(super) fn reset(&mut self, element_type: ElementType, len: usize) -> Result<()> {
        let bytes = len.checked_mul(element_type.size()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(|| {
            let message =
                format!("tensor of {element_type}: {len} elements are too many for {}", self.device.name());
            Error::invalid_argument(message)
        })?;
        (self.element_type, self.len) = (element_type, len);
        let fits = self
            .buffer
            .as_mut()
            .is_some_and(|buffer| self.offset == 0 && buffer.capacity() >= bytes && buffer.is_unshared());
        if !fits && bytes > 0 {
            self.buffer = None;
            self.offset = 0;
            self.buffer = Some(self.device.allocate(bytes)?);
        }
        Ok(())
    }
}

impl PartialEq for OnDevice {
    /// `true` if both are the same elements in memory. Only the device could compare their values.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.buffer, &other.buffer) {
            (Some(one), Some(other)) => one.address() == other.address(),
            (None, None) => true,
            _ => false,
        };
        same && self.device == other.device
            && (self.element_type, self.offset, self.len) == (other.element_type, other.offset, other.len)
    }
}

debug_as!(OnDevice, it => "OnDevice({}, {} of {})", it.device.name(), it.len, it.element_type);

/// The memory of a tensor that is on a device.
#[derive(Clone, Copy)]
pub struct DeviceSlice<'t> {
    /// The buffer, which other tensors may share.
    pub(crate) buffer: &'t DeviceBuffer,
    /// The start of the tensor in the buffer, in bytes.
    pub offset: usize,
    /// The size of the tensor in bytes.
    pub bytes: usize,
}

impl DeviceSlice<'_> {
    /// The address of the first element on the device.
    pub fn address(&self) -> u64 {
        self.buffer.address() + self.offset as u64
    }
}

impl Tensor {
    /// An empty tensor of `f32` (shape `[0]`) whose memory will be on a device.
    ///
    /// An engine that is given it as an output leaves the result there, and [`reset_to`](Self::reset_to) allocates there.
    /// Clones and [rows](Self::row) share the memory; resetting one of them gives it memory of its own, with unspecified
    /// contents.
    pub fn on(device: impl Into<Device>) -> Self {
        let device = device.into();
        let data = OnDevice { device, element_type: ElementType::F32, buffer: None, offset: 0, len: 0 };
        Self { shape: vec![0], data: TensorData::OnDevice(data) }
    }

    /// The device that the elements are on; `None` for host memory.
    pub fn device(&self) -> Option<&Device> {
        match &self.data {
            TensorData::OnDevice(data) => Some(&data.device),
            _ => None,
        }
    }

    /// The device memory of the elements; `None` for a tensor in host memory, and for one that has never had elements.
    pub fn device_slice(&self) -> Option<DeviceSlice<'_>> {
        self.on_device().map(|(_, slice)| slice)
    }

    fn on_device(&self) -> Option<(&Device, DeviceSlice<'_>)> {
        let TensorData::OnDevice(data) = &self.data else { return None };
        let buffer = data.buffer.as_ref()?;
        let bytes = data.len * data.element_type.size();
        Some((&data.device, DeviceSlice { buffer, offset: data.offset, bytes }))
    }

    /// Copies type, shape and elements to a tensor in host memory, and waits for them.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the work that wrote this tensor failed;
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if `host` is on a device itself.
    pub fn copy_to_host_into(&self, host: &mut Self) -> Result<()> {
        host.require_host_memory()?;
        host.reset_to(self.element_type(), self.shape())?;
        host.copy_elements(0, self, 0, self.len())
    }

    /// Copies type, shape and elements from a tensor in host memory. This tensor stays where it is.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the device fails or has no memory left;
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if `host` is on a device itself.
    pub fn copy_from_host(&mut self, host: &Self) -> Result<()> {
        let bytes = host.bytes()?;
        self.copy_from_bytes(host.element_type(), host.shape(), bytes)
    }

    /// Copies elements of this shape from a slice in host memory. This tensor stays where it is.
    ///
    /// # Errors
    /// As [`copy_from_host`](Self::copy_from_host), and
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the shape does not have as many elements
    /// as the slice.
    pub fn copy_from_slice<T: Element>(&mut self, shape: &[usize], elements: &[T]) -> Result<()> {
        if element_count(shape) != Some(elements.len()) {
            refuse!("tensor of shape {shape:?}: the slice has {} elements", elements.len());
        }
        self.copy_from_bytes(T::TYPE, shape, bytemuck::cast_slice(elements))
    }

    fn copy_from_bytes(&mut self, element_type: ElementType, shape: &[usize], bytes: &[u8]) -> Result<()> {
        self.reset_to(element_type, shape)?;
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(slice) = self.device_slice() {
            // It has the buffer for itself, from its start.
            return slice.buffer.fill(bytes);
        }
        self.fill_bytes(|own| {
            own.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// One entry of the outermost axis as a batch of one: the axis stays, with length 1. On a device the row shares this
    /// tensor's memory; in host memory it is a copy, and on WebGPU every row but the first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such row.
    pub fn row(&self, row: usize) -> Result<Self> {
        if self.shape.first().is_none_or(|&rows| row >= rows) {
            refuse!("tensor of shape {:?}: there is no row {row}", self.shape);
        }
        let mut shape = self.shape.clone();
        shape[0] = 1;
        let len = element_count(&shape).expect("it is less than what is held");
        if let TensorData::OnDevice(data) = &self.data
            && (row == 0 || data.device.has_addresses())
        {
            let mut data = data.clone();
            data.offset += row * len * data.element_type.size();
            data.len = len;
            return Ok(Self { shape, data: TensorData::OnDevice(data) });
        }
        let mut copy = self.device().map_or_else(Self::empty, |device| Self::on(device.clone()));
        copy.reset_to(self.element_type(), &shape)?;
        copy.copy_elements(0, self, row * len, len)?;
        Ok(copy)
    }

    /// Copies `count` elements from another tensor of the same type, starting at its element `from`, to this one, starting
    /// at element `to`. Between tensors on one device, the device copies. Tensors that share this one's memory see the
    /// change.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the types differ, a range is out of
    /// bounds, or the tensors are on different devices; [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if a
    /// device fails.
    pub fn copy_elements(&mut self, to: usize, source: &Self, from: usize, count: usize) -> Result<()> {
        let fits =
            |tensor: &Self, start: usize| start.checked_add(count).is_some_and(|end| end <= tensor.len());
        if self.element_type() != source.element_type() || !fits(self, to) || !fits(source, from) {
            refuse!("cannot copy {count} elements from {from} of {source:?} to {to} of {self:?}");
        }
        let size = self.element_type().size();
        let (to, from, bytes) = (to * size, from * size, count * size);
        if bytes == 0 {
            return Ok(());
        }
        match (self.on_device(), source.on_device()) {
            (Some((own, target)), Some((other, source))) if own == other => {
                target.buffer.copy_from(target.offset + to, source.buffer, source.offset + from, bytes)
            }
            (Some((own, _)), Some((other, _))) => {
                refuse!("cannot copy elements from {} to {}", other.name(), own.name())
            }
            (Some((_, slice)), None) => {
                slice.buffer.write(slice.offset + to, &source.bytes()?[from..][..bytes])
            }
            (None, Some((_, slice))) => {
                self.fill_bytes(|own| slice.buffer.read(slice.offset + from, &mut own[to..][..bytes]))
            }
            (None, None) => {
                let source = &source.bytes()?[from..][..bytes];
                self.fill_bytes(|own| {
                    own[to..][..bytes].copy_from_slice(source);
                    Ok(())
                })
            }
        }
    }

    /// Waits until the elements have been written. In host memory they always have.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the work that wrote them failed.
    pub fn wait(&self) -> Result<()> {
        self.device_slice().map_or(Ok(()), |slice| slice.buffer.wait())
    }

    /// Waits until no enqueued work reads or writes the elements.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if some of it failed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.device_slice().map_or(Ok(()), |slice| slice.buffer.wait_idle())
    }

    pub(super) fn require_host_memory(&self) -> Result<()> {
        let Some(device) = self.device() else { return Ok(()) };
        let (shape, device) = (&self.shape, device.name());
        refuse!("tensor of shape {shape:?}: expected host memory, it is on {device}")
    }
}
