//! What devices count: the bytes that are copied, and the buffers that are allocated.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The bytes that were copied between a device and the host since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes from the host to the device.
    pub to_device: u64,
    /// Bytes from the device to the host.
    pub to_host: u64,
}

/// The counts of a device since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) to_device: AtomicU64,
    pub(crate) to_host: AtomicU64,
    pub(crate) allocations: AtomicUsize,
}

impl Counts {
    pub(crate) fn transferred(&self) -> Transferred {
        let [to_device, to_host] =
            [&self.to_device, &self.to_host].map(|bytes| bytes.load(Ordering::Relaxed));
        Transferred { to_device, to_host }
    }
}
