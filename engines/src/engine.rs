//! The trait that everything which runs a network implements.

use crate::device::Device;
use crate::error::Result;
use crate::spec::EngineSpec;
use crate::tensor::Tensor;
use std::sync::Arc;

/// Something that runs one network: named tensors in, named tensors out.
///
/// An implementor owes three methods. [`check_run`](crate::spec::check_run) does the checking, so that every engine
/// reports the same misuse in the same words, and [`conformance`](crate::conformance) says whether it is done well.
///
/// An engine is `Send` and runs for one caller at a time; for two at once, make two.
pub trait Engine: Send {
    /// The inputs and outputs: names, element types, shapes with named dynamic axes.
    fn spec(&self) -> &EngineSpec;

    /// Where it runs, for people: `ONNX Runtime 1.31.1, CPU, 2 threads`.
    fn description(&self) -> &str;

    /// Where outputs can stay and inputs can lie besides the host's memory; nowhere by default.
    ///
    /// A caller that wants an output to stay there hands in a tensor made [on it](Tensor::on).
    fn device(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Runs once.
    ///
    /// `inputs` holds every input of the specification, in any order. `outputs` names the outputs that are wanted,
    /// any subset in any order; each tensor is given its type and shape in place, which allocates nothing once the
    /// tensor has grown. Nothing that no named output needs has to be computed. Outputs in the host's memory are there
    /// when it returns; those on a device may still be computed, and whoever reads them waits for that by itself.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where a name, a type or a shape differs from the
    /// specification, before anything runs and with the outputs untouched;
    /// [`Execution`](crate::ErrorKind::Execution) if the run itself fails, after which the outputs hold no meaning
    /// and the engine can be used again.
    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()>;
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    fn device(&self) -> Option<Arc<dyn Device>> {
        (**self).device()
    }

    fn spec(&self) -> &EngineSpec {
        (**self).spec()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        (**self).run(inputs, outputs)
    }
}
