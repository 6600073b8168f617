//! Where tensors lie between the graphs: on the device that the engines share, in the host's memory otherwise.

use std::sync::Arc;

use ocelli_engines::{Device, Tensor};

use crate::error::Result;

/// A device, or none for the host's memory.
pub(super) type Place = Option<Arc<dyn Device>>;

/// Whether both are the same memory.
pub(super) fn same(one: &Place, other: &Place) -> bool {
    one.as_ref().map(|device| device.kind()) == other.as_ref().map(|device| device.kind())
}

/// Has a tensor lie there from now on; what it holds is lost where that is news.
pub(super) fn keep_at(tensor: &mut Tensor, place: &Place) {
    if !same(&tensor.device().cloned(), place) {
        *tensor = place.clone().map_or_else(Tensor::empty, Tensor::on);
    }
}

/// Whether an engine that works there can read a tensor: the host's memory is open to all.
pub(super) fn is_in_reach(tensor: &Tensor, place: &Place) -> bool {
    let own = tensor.device().cloned();
    own.is_none() || same(&own, place)
}

/// The tensor, or a copy in the host's memory where it is out of an engine's reach.
pub(super) fn brought(tensor: Tensor, place: &Place) -> Result<Tensor> {
    if is_in_reach(&tensor, place) {
        return Ok(tensor);
    }
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host)?;
    Ok(host)
}

/// Copies of an image's tensors in the host's memory, for engines that cannot reach the device that they lie on; the
/// buffers go round.
pub(super) struct Copies<const N: usize> {
    tensors: [Tensor; N],
    /// Of the image at hand.
    is_made: [bool; N],
    is_told: bool,
}

impl<const N: usize> Default for Copies<N> {
    fn default() -> Self {
        Self { tensors: std::array::from_fn(|_| Tensor::empty()), is_made: [false; N], is_told: false }
    }
}

impl<const N: usize> Copies<N> {
    /// Another image.
    pub(super) fn begin(&mut self) {
        self.is_made = [false; N];
    }

    /// Makes the copy where it is needed and not there yet.
    pub(super) fn make(&mut self, which: usize, tensor: &Tensor, place: &Place) -> Result<()> {
        let Some(device) = tensor.device().filter(|_| !is_in_reach(tensor, place) && !self.is_made[which])
        else {
            return Ok(());
        };
        if !self.is_told {
            let other = place.as_ref().map_or("the processor", |place| place.name());
            tracing::info!(
                "one engine works on {}, the next on {other}: features pass through the host's memory",
                device.name()
            );
            self.is_told = true;
        }
        tensor.copy_to_host_into(&mut self.tensors[which])?;
        self.is_made[which] = true;
        Ok(())
    }

    /// The tensor, or the copy that was [made](Self::make).
    pub(super) fn of<'t>(&'t self, which: usize, tensor: &'t Tensor, place: &Place) -> &'t Tensor {
        if is_in_reach(tensor, place) { tensor } else { &self.tensors[which] }
    }
}
