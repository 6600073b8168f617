//! Elements that lie on a device.

use crate::device::{Device, DeviceBuffer};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{ElementType, Tensor, TensorData, element_count};
use std::fmt;
use std::sync::Arc;

/// Elements on a device: a piece of a buffer that others may share.
#[derive(Clone)]
pub struct OnDevice {
    device: Arc<dyn Device>,
    element_type: ElementType,
    /// None until there is something to hold.
    buffer: Option<Arc<dyn DeviceBuffer>>,
    /// In bytes.
    offset: usize,
    /// In elements.
    pub(super) len: usize,
}

impl OnDevice {
    pub(super) fn element_type(&self) -> ElementType {
        self.element_type
    }

    pub(super) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// In elements.
    pub(super) fn capacity(&self) -> usize {
        let bytes = self.buffer.as_ref().map_or(0, |buffer| buffer.capacity() - self.offset);
        bytes / self.element_type.size()
    }

    /// Room for so many elements, which nobody else sees.
    pub(super) fn reset(&mut self, element_type: ElementType, len: usize) -> Result<()> {
        let bytes = len.checked_mul(element_type.size()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(|| {
            let message = format!(
                "tensor of {element_type}: {} cannot hold {len} elements at once",
                self.device.name()
            );
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        (self.element_type, self.len) = (element_type, len);
        let fits = self.buffer.as_mut().is_some_and(|buffer| {
            self.offset == 0 && buffer.capacity() >= bytes && Arc::get_mut(buffer).is_some()
        });
        if !fits && bytes > 0 {
            self.buffer = None;
            self.offset = 0;
            self.buffer = Some(self.device.allocate(bytes)?);
        }
        Ok(())
    }
}

impl PartialEq for OnDevice {
    /// Whether they are the same elements, not whether they are equal, which only the device could say.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.buffer, &other.buffer) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => Arc::ptr_eq(&self.device, &other.device),
            _ => false,
        };
        same && (self.element_type, self.offset, self.len) == (other.element_type, other.offset, other.len)
    }
}

impl fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnDevice({}, {} of {})", self.device.name(), self.len, self.element_type)
    }
}

/// The piece of a device's memory that a tensor's elements fill.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSlice<'t> {
    /// The memory, which others may share.
    pub buffer: &'t Arc<dyn DeviceBuffer>,
    /// Where the tensor begins in it, in bytes.
    pub offset: usize,
    /// How much of it the tensor fills, in bytes.
    pub bytes: usize,
}

impl DeviceSlice<'_> {
    /// Where the tensor begins, as the device counts.
    pub fn address(&self) -> u64 {
        self.buffer.address() + self.offset as u64
    }
}

impl Tensor {
    /// A tensor of `f32` without elements (shape `[0]`) that keeps what it is given on a device.
    ///
    /// As an engine's output it stays there; [`reset_to`](Self::reset_to) grows it there. Clones and
    /// [rows](Self::row) share the memory, and one that is written to gets memory of its own, without what was in it.
    pub fn on(device: Arc<dyn Device>) -> Self {
        let data = OnDevice { device, element_type: ElementType::F32, buffer: None, offset: 0, len: 0 };
        Self { shape: vec![0], data: TensorData::OnDevice(data) }
    }

    /// The device that the elements lie on; none for the host's memory.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.data {
            TensorData::OnDevice(data) => Some(data.device()),
            _ => None,
        }
    }

    /// The device's memory that the elements fill; none for a tensor of the host's, and for one without elements that
    /// has never had any.
    pub fn device_slice(&self) -> Option<DeviceSlice<'_>> {
        let TensorData::OnDevice(data) = &self.data else { return None };
        let bytes = data.len * data.element_type.size();
        data.buffer.as_ref().map(|buffer| DeviceSlice { buffer, offset: data.offset, bytes })
    }

    /// Copies the elements into a tensor of the host's, which takes their type and shape.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where what was to fill the tensor failed, or the device is lost;
    /// [`ErrorKind::InvalidArgument`] if `host` lies on a device itself.
    pub fn copy_to_host_into(&self, host: &mut Self) -> Result<()> {
        host.refuse_device()?;
        host.reset_to(self.element_type(), self.shape())?;
        if self.is_empty() {
            return Ok(());
        }
        host.fill_bytes(|bytes| match self.device_slice() {
            Some(slice) => slice.buffer.copy_to_host(slice.offset, bytes),
            None => {
                bytes.copy_from_slice(self.bytes()?);
                Ok(())
            }
        })
    }

    /// Takes type, shape and elements of a tensor of the host's over, wherever this one lies.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost or full; [`ErrorKind::InvalidArgument`] if `host` lies on a
    /// device itself.
    pub fn copy_from_host(&mut self, host: &Self) -> Result<()> {
        let bytes = host.bytes()?;
        self.reset_to(host.element_type(), host.shape())?;
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(slice) = self.device_slice() {
            return slice.buffer.copy_from_host(slice.offset, bytes);
        }
        self.fill_bytes(|own| {
            own.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// One entry of the outermost axis, as a batch of one (the axis stays, with length 1): shared where the tensor lies
    /// on a device, copied where it is the host's.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such entry.
    pub fn row(&self, row: usize) -> Result<Self> {
        if self.shape.first().is_none_or(|&rows| row >= rows) {
            let message = format!("tensor of shape {:?}: there is no row {row}", self.shape);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let mut shape = self.shape.clone();
        shape[0] = 1;
        let len = element_count(&shape).expect("it is less than what is held");
        if let TensorData::OnDevice(data) = &self.data {
            let mut data = data.clone();
            data.offset += row * len * data.element_type.size();
            data.len = len;
            return Ok(Self { shape, data: TensorData::OnDevice(data) });
        }
        let mut copy = Self::empty();
        copy.reset_to(self.element_type(), &shape)?;
        let bytes = len * self.element_type().size();
        let source = &self.bytes()?[row * bytes..][..bytes];
        copy.fill_bytes(|own| {
            own.copy_from_slice(source);
            Ok(())
        })?;
        Ok(copy)
    }

    /// Copies `count` elements of another tensor of the same type, from its element `from` on, to this one's from `to`
    /// on, wherever the two lie: on one device the device does it, and nothing crosses.
    ///
    /// Whoever shares this tensor's memory ([rows](Self::row), clones) sees what is written.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the types differ, an element is beyond its tensor, or the two lie on different
    /// devices; [`ErrorKind::Execution`] where a device is lost.
    pub fn copy_elements(&mut self, to: usize, source: &Self, from: usize, count: usize) -> Result<()> {
        let fits =
            |tensor: &Self, start: usize| start.checked_add(count).is_some_and(|end| end <= tensor.len());
        if self.element_type() != source.element_type() || !fits(self, to) || !fits(source, from) {
            let message =
                format!("cannot copy {count} elements from {from} of {source:?} to {to} of {self:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let size = self.element_type().size();
        let (to, from, bytes) = (to * size, from * size, count * size);
        if bytes == 0 {
            return Ok(());
        }
        match (self.device_slice(), source.device_slice()) {
            (Some(own), Some(other)) => {
                own.buffer.copy_from_device(own.offset + to, &**other.buffer, other.offset + from, bytes)
            }
            (Some(own), None) => {
                own.buffer.copy_from_host(own.offset + to, &source.bytes()?[from..][..bytes])
            }
            (None, Some(other)) => {
                self.fill_bytes(|own| other.buffer.copy_to_host(other.offset + from, &mut own[to..][..bytes]))
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

    /// Waits until the elements are there; at once for the host's.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where what was to fill the tensor failed.
    pub fn wait(&self) -> Result<()> {
        self.device_slice().map_or(Ok(()), |slice| slice.buffer.wait())
    }

    /// Waits until nothing on the device reads or writes the elements; at once for the host's.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where some of it failed.
    pub fn wait_idle(&self) -> Result<()> {
        self.device_slice().map_or(Ok(()), |slice| slice.buffer.wait_idle())
    }

    pub(super) fn refuse_device(&self) -> Result<()> {
        match self.device() {
            None => Ok(()),
            Some(device) => {
                let (shape, device) = (&self.shape, device.name());
                let message =
                    format!("tensor of shape {shape:?}: it lies on {device}, not in the host's memory");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}
