//! An engine without a network, for the tests of what stands on engines.

mod device;
mod kernels;

pub use device::{FakeBuffer, FakeDevice};
pub use kernels::HostKernels;

use crate::device::Device;
use crate::engine::Engine;
use crate::error::Result;
use crate::spec::{EngineSpec, check_outputs, check_residence, check_run};
use crate::tensor::Tensor;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Compute = dyn FnMut(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> Result<()> + Send;

/// An engine whose results are a closure's.
///
/// It checks its caller as the real ones do, and the closure too: an output of another type or shape than the
/// specification's is an error.
pub struct FakeEngine {
    spec: EngineSpec,
    description: String,
    compute: Box<Compute>,
    delay: Duration,
    runs: Arc<AtomicUsize>,
    device: Option<Arc<FakeDevice>>,
}

impl FakeEngine {
    /// An engine of this specification; the closure is given what [`Engine::run`] is given, after the checks.
    pub fn new(
        spec: EngineSpec,
        compute: impl FnMut(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> Result<()> + Send + 'static,
    ) -> Self {
        Self {
            spec,
            description: "fake".to_owned(),
            compute: Box::new(compute),
            delay: Duration::ZERO,
            runs: Arc::default(),
            device: None,
        }
    }

    /// An engine of this specification that answers zeros; a dynamic dimension that no input has is zero long.
    pub fn zeros(spec: EngineSpec) -> Self {
        let known = spec.clone();
        Self::new(spec, move |inputs, outputs| {
            let bindings = crate::spec::check_inputs(&known, inputs)?;
            for (name, tensor) in outputs.iter_mut() {
                let spec = known.output(name).expect("the engine checked the names");
                let size = |dim: &crate::Dim| match dim {
                    crate::Dim::Fixed(size) => *size,
                    crate::Dim::Named(dim) => bindings.size(dim).unwrap_or(0),
                };
                let shape: Vec<_> = spec.shape.iter().map(size).collect();
                **tensor = Tensor::empty();
                tensor.reset_to(spec.element_type, &shape)?;
            }
            Ok(())
        })
    }

    /// What [`Engine::description`] says; `fake` unless set.
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// How long each run takes at least, for tests of pipelines.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Has the engine work on this device: the closure is still given tensors of the host's memory; what lies on the
    /// device is not counted as crossing, what the caller brings and wants in the host's memory is.
    pub fn with_device(mut self, device: Arc<FakeDevice>) -> Self {
        self.device = Some(device);
        self
    }

    /// The number of runs that reached the closure, readable after the engine has been handed over.
    pub fn run_counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.runs)
    }
}

impl Engine for FakeEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn device(&self) -> Option<Arc<dyn Device>> {
        self.device.clone().map(|device| device as Arc<dyn Device>)
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let bindings = check_run(&self.spec, inputs, outputs)?;
        check_residence(self.device.as_ref().map(|device| device.kind()), inputs, outputs)?;
        self.runs.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        if let Some(device) = &self.device {
            device::compute(device, &mut *self.compute, inputs, outputs)?;
        } else {
            (self.compute)(inputs, outputs)?;
        }
        check_outputs(&self.spec, &bindings, outputs)
    }
}

impl fmt::Debug for FakeEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeEngine({})", self.description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dim, ElementType, ErrorKind, TensorSpec};

    fn spec() -> EngineSpec {
        EngineSpec {
            inputs: vec![TensorSpec::new("x", ElementType::F32, [Dim::named("n"), Dim::Fixed(2)])],
            outputs: vec![TensorSpec::new("y", ElementType::F32, [Dim::named("n")])],
        }
    }

    #[test]
    fn zeros_have_the_shapes_of_the_specification() {
        let mut engine = FakeEngine::zeros(spec());
        let mut y = Tensor::i64(&[1], vec![7]).expect("fits");
        engine.run(&[("x", &Tensor::zeros_f32(&[3, 2]))], &mut [("y", &mut y)]).expect("it runs");
        assert_eq!(y, Tensor::zeros_f32(&[3]));
    }

    #[test]
    fn a_closure_that_answers_another_shape_is_found_out() {
        let mut engine = FakeEngine::new(spec(), |_, outputs| {
            outputs[0].1.reset_f32(&[4]);
            Ok(())
        });
        let counter = engine.run_counter();
        let error = engine
            .run(&[("x", &Tensor::zeros_f32(&[3, 2]))], &mut [("y", &mut Tensor::empty())])
            .expect_err("four are not three");
        assert_eq!(error.kind(), ErrorKind::Execution);
        assert_eq!(error.to_string(), "output `y`, dimension 0: `n` is 3 in the inputs, got 4");
        assert_eq!(counter.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn misuse_does_not_reach_the_closure() {
        let mut engine = FakeEngine::zeros(spec());
        let counter = engine.run_counter();
        let outcome = engine.run(&[], &mut [("y", &mut Tensor::empty())]);
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
        assert_eq!(counter.load(Ordering::Relaxed), 0);
    }
}
