//! Which compiler makes the kernels around the model.

use std::sync::Arc;

use ocelli_engines::cuda::{CudaCompiler, CudaDevice};
use ocelli_engines::kernels::KernelCompiler;
use ocelli_engines::{Device, DeviceKind};

use crate::cache::cache_folder;
use crate::error::Result;

/// The compiler for a device; none for a kind of device that runs no kernels of ours.
pub(crate) fn compiler_for(device: &Arc<dyn Device>) -> Result<Option<Arc<dyn KernelCompiler>>> {
    let DeviceKind::Cuda { ordinal } = device.kind() else { return Ok(Arc::clone(device).kernel_compiler()) };
    let compiler = CudaCompiler::new(&CudaDevice::open(ordinal)?)?;
    Ok(Some(Arc::new(match cache_folder() {
        Ok(folder) => compiler.with_cache(folder.join("kernels")),
        // Without a cache they are compiled each time.
        Err(_) => compiler,
    })))
}
