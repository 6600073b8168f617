//! Tensors between the graphs: on the device that two engines share, in host memory otherwise.

use ocelli_engines::{Device, Tensor};

use ocelli_error::Result;

/// Moves a tensor to a device, or to host memory without one. Its elements are discarded if it was elsewhere.
pub(super) fn move_to(tensor: &mut Tensor, device: Option<&Device>) {
    if tensor.device() != device {
        *tensor = device.cloned().map_or_else(Tensor::empty, Tensor::on);
    }
}

/// Whether an engine on `device` can read a tensor: every engine reads host memory.
fn is_readable_on(tensor: &Tensor, device: Option<&Device>) -> bool {
    tensor.device().is_none() || tensor.device() == device
}

/// The tensor, or a copy in host memory if an engine on `device` cannot read it.
pub(super) fn make_readable_on(device: Option<&Device>, tensor: Tensor) -> Result<Tensor> {
    if is_readable_on(&tensor, device) {
        return Ok(tensor);
    }
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host)?;
    Ok(host)
}

/// Copies of one image's tensors in host memory, for engines that cannot read the device that the tensors are on. The
/// buffers are reused for the next image.
pub(super) struct HostCopies<const N: usize> {
    tensors: [Tensor; N],
    /// Which of them have been copied for this image.
    is_copied: [bool; N],
    is_logged: bool,
}

impl<const N: usize> Default for HostCopies<N> {
    fn default() -> Self {
        Self { tensors: std::array::from_fn(|_| Tensor::empty()), is_copied: [false; N], is_logged: false }
    }
}

impl<const N: usize> HostCopies<N> {
    /// Starts the next image.
    pub(super) fn begin(&mut self) {
        self.is_copied = [false; N];
    }

    /// Copies a tensor unless an engine on `device` can read it, or it has been copied for this image.
    pub(super) fn copy_for(&mut self, device: Option<&Device>, which: usize, tensor: &Tensor) -> Result<()> {
        let unreadable = tensor.device().filter(|_| !is_readable_on(tensor, device));
        let Some(source) = unreadable.filter(|_| !self.is_copied[which]) else { return Ok(()) };
        if !self.is_logged {
            let target = device.map_or("the CPU", Device::name);
            tracing::info!(
                "one engine runs on {}, the next on {target}: features are copied through host memory",
                source.name()
            );
            self.is_logged = true;
        }
        tensor.copy_to_host_into(&mut self.tensors[which])?;
        self.is_copied[which] = true;
        Ok(())
    }

    /// The tensor if an engine on `device` can read it, otherwise its [copy](Self::copy_for).
    pub(super) fn readable_on<'t>(
        &'t self,
        device: Option<&Device>,
        which: usize,
        tensor: &'t Tensor,
    ) -> &'t Tensor {
        if is_readable_on(tensor, device) { tensor } else { &self.tensors[which] }
    }
}
