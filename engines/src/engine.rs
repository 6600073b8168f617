//! The trait of everything that runs a neural network.

use crate::device::Device;
use crate::spec::EngineSpec;
use crate::tensor::Tensor;
use ocelli_error::Result;

/// Something that runs one network: named tensors in, named tensors out.
///
/// There are three required methods. Call [`check_run`](crate::spec::check_run) first in [`run`](Self::run), so that every
/// engine reports misuse in the same way.
///
/// An engine is `Send` and runs for one caller at a time. For concurrent runs, create several.
pub trait Engine: Send {
    /// The inputs and outputs: names, element types, shapes with named dynamic axes.
    fn spec(&self) -> &EngineSpec;

    /// The library and the hardware, for display: `ONNX Runtime 1.31.1, CPU, 2 threads`.
    fn description(&self) -> &str;

    /// The device on which inputs and outputs may be, besides host memory; `None` by default.
    ///
    /// To leave an output there, pass a tensor that was created [on the device](Tensor::on).
    fn device(&self) -> Option<Device> {
        None
    }

    /// Runs the network once.
    ///
    /// `inputs` has every input of the specification, in any order. `outputs` names the wanted outputs, any subset in any
    /// order; the engine may skip work that none of them needs. Each output tensor gets its type and shape, and reuses
    /// its memory. Outputs in host memory are complete when this returns. Outputs on a device may still be computed;
    /// everything that reads them later waits for them.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a name, type or shape differs from the specification;
    /// nothing has run then, and the outputs are unchanged. [`Execution`](crate::ErrorKind::Execution) if the run fails;
    /// the contents of the outputs are unspecified then, and the engine stays usable.
    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()>;
}
