//! Tensors between engines: on the device that two engines share, otherwise in host memory.

use std::borrow::Cow;

use ocelli_engines::{Device, Dim, Engine, Tensor};

use super::features::ImageFeatures;
use ocelli_error::Result;

/// The size of an input's axis if the engine has fixed it.
pub(super) fn fixed_size(engine: &dyn Engine, input: &str, axis: usize) -> Option<usize> {
    match engine.spec().input(input)?.shape.get(axis)? {
        Dim::Fixed(size) => Some(*size),
        Dim::Named(_) => None,
    }
}

/// Moves a tensor to a device, or to host memory without one. Its elements are discarded if it was elsewhere.
pub(crate) fn move_to(tensor: &mut Tensor, device: Option<&Device>) {
    if tensor.device() != device {
        *tensor = device.cloned().map_or_else(Tensor::empty, Tensor::on);
    }
}

/// `true` if an engine on `device` can read a tensor: every engine reads host memory.
fn is_readable_on(tensor: &Tensor, device: Option<&Device>) -> bool {
    tensor.device().is_none() || tensor.device() == device
}

/// The tensor, or a copy in host memory if an engine on `device` cannot read it.
pub(crate) fn readable_on<'t>(device: Option<&Device>, tensor: Cow<'t, Tensor>) -> Result<Cow<'t, Tensor>> {
    if is_readable_on(&tensor, device) {
        return Ok(tensor);
    }
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host)?;
    Ok(Cow::Owned(host))
}

/// Copies of one image's features in host memory, for engines that cannot read the device that the features are on. The
/// buffers are reused for the next image.
#[derive(Default)]
pub(super) struct HostCopies {
    tensors: [Tensor; 4],
    /// Set for those that have been copied for this image.
    is_copied: [bool; 4],
    is_logged: bool,
}

impl HostCopies {
    /// Starts the next image.
    pub(super) fn begin(&mut self) {
        self.is_copied = [false; 4];
    }

    /// Copies the features with these indices, except those that an engine on `device` can read and those that have been
    /// copied for this image.
    pub(super) fn copy_for(
        &mut self,
        device: Option<&Device>,
        features: &ImageFeatures,
        indices: &[usize],
    ) -> Result<()> {
        for &index in indices {
            let tensor = &features.tensors[index];
            let unreadable = tensor.device().filter(|_| !is_readable_on(tensor, device));
            let Some(source) = unreadable.filter(|_| !self.is_copied[index]) else { continue };
            if !self.is_logged {
                let target = device.map_or("the CPU", Device::name);
                tracing::info!(
                    "one engine runs on {}, the next on {target}: features are copied through host memory",
                    source.name()
                );
                self.is_logged = true;
            }
            tensor.copy_to_host_into(&mut self.tensors[index])?;
            self.is_copied[index] = true;
        }
        Ok(())
    }

    /// A feature if an engine on `device` can read it, otherwise its [copy](Self::copy_for).
    pub(super) fn readable_on<'t>(
        &'t self,
        device: Option<&Device>,
        features: &'t ImageFeatures,
        index: usize,
    ) -> &'t Tensor {
        let tensor = &features.tensors[index];
        if is_readable_on(tensor, device) { tensor } else { &self.tensors[index] }
    }
}
