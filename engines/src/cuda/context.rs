//! The parts that all buffers and streams of one device share.

use super::staging::StagingPool;
use super::usage;
use crate::transferred::Counts;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use ocelli_error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reciprocal of the share of the device's memory that is kept for reuse when buffers are freed.
const CACHED_SHARE: usize = 4;

pub(super) type Mark = usage::Mark<Arc<CudaEvent>>;
pub(super) type Usage = usage::Usage<Arc<CudaEvent>>;

/// A device's primary context, with the pools that belong to it.
pub(super) struct Context {
    pub(super) cuda: Arc<CudaContext>,
    /// `NVIDIA H200 (CUDA device 0)`
    pub(super) name: String,
    /// The stream on which memory is allocated and freed.
    pub(super) memory: Arc<CudaStream>,
    pub(super) memory_number: u64,
    pub(super) staging: StagingPool,
    pub(super) counts: Counts,
}

impl Context {
    pub(super) fn new(ordinal: usize) -> Result<Self, DriverError> {
        let cuda = CudaContext::new(ordinal)?;
        // SAFETY: cudarc's own buffers are not used; ours keep their order through `Usage`.
        unsafe { cuda.disable_event_tracking() };
        if cuda.has_async_alloc() {
            let mut cached = (cuda.total_mem()? / CACHED_SHARE) as u64;
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            // SAFETY: the device exists, its default pool lives as long, and the attribute is a 64-bit integer.
            unsafe {
                let pool = result::device::get_default_mem_pool(cuda.cu_device())?;
                result::mem_pool::set_attribute(pool, attribute, (&raw mut cached).cast())?;
            }
        }
        Ok(Self {
            name: format!("{} (CUDA device {ordinal})", cuda.name()?),
            memory: cuda.new_stream()?,
            memory_number: next_stream_number(),
            cuda,
            staging: StagingPool::default(),
            counts: Counts::default(),
        })
    }
}

debug_as!(Context, it => "{}", it.name);

/// Numbers streams for the life of the process; the driver's handles are reused.
pub(super) fn next_stream_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
