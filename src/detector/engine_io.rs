//! Tensors between engines: on the device that two engines share, otherwise in host memory.

use std::borrow::Cow;

use ocelli_engines::{Device, Dim, Engine, Tensor};

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
pub(super) fn is_readable_on(tensor: &Tensor, device: Option<&Device>) -> bool {
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
