//! Copies between host memory and that of a device.

use ocelli_engines::{Device, Tensor};

/// A copy of a tensor on a device.
pub(crate) fn copied(device: &(impl Clone + Into<Device>), host: &Tensor) -> Tensor {
    let mut tensor = Tensor::on(device.clone());
    tensor.copy_from_host(host).expect("it is copied");
    tensor
}

/// A copy of a tensor in host memory.
pub(crate) fn on_host(tensor: &Tensor) -> Tensor {
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host).expect("it is copied");
    host
}
