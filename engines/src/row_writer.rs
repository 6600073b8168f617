//! Writes rows of one tensor into another, on the device where both are.

#[cfg(not(target_family = "wasm"))]
mod merge;

use crate::tensor::Tensor;
use ocelli_error::Result;

/// Writes rows into tensors, with what it needs for that on a device.
///
/// On a device with [addresses](crate::Device::has_addresses) a row is copied to its place. WebGPU's tensors begin where their
/// buffers do, so that there a small graph writes a second buffer, which takes the place of the first.
#[derive(Default)]
pub struct RowWriter {
    #[cfg(not(target_family = "wasm"))]
    rounds: bool,
    #[cfg(not(target_family = "wasm"))]
    merge: Option<merge::RowMerge>,
}

impl RowWriter {
    /// A writer that rounds rows to the nearest bfloat16 where a graph writes them; elsewhere they are written as they are.
    #[must_use]
    pub fn rounding() -> Self {
        Self {
            #[cfg(not(target_family = "wasm"))]
            rounds: true,
            ..Self::default()
        }
    }

    /// Copies rows of `source` `[B, …]` to rows of `target` `[S, …]`: each `(to, from)`, every `to` at most once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the rows differ in size or type, or there is no
    /// such row; [`ErrorKind::Execution`](crate::ErrorKind::Execution) if the device fails.
    pub fn write(&mut self, target: &mut Tensor, source: &Tensor, rows: &[(usize, usize)]) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(device) = target.device().filter(|_| source.device() == target.device())
            && let Some(webgpu) = device.as_webgpu()
        {
            let merge = match &mut self.merge {
                Some(merge) => merge,
                none => none.insert(merge::RowMerge::new(webgpu, self.rounds)?),
            };
            return merge.write(target, source, rows);
        }
        let count = target.shape().iter().skip(1).product();
        rows.iter().try_for_each(|&(to, from)| target.copy_elements(to * count, source, from * count, count))
    }
}
