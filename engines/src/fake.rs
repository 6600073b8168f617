//! An engine that runs a closure, for tests of code that uses engines.

use crate::engine::Engine;
use crate::spec::{EngineSpec, check_outputs, check_residence, check_run};
use crate::tensor::Tensor;
use ocelli_error::Result;
use std::time::Duration;

type Compute = dyn FnMut(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> Result<()> + Send;

/// An engine that computes with a closure.
///
/// It checks its arguments like every engine. It also checks the closure: an output whose type or shape differs from the
/// specification is an error.
pub struct FakeEngine {
    spec: EngineSpec,
    compute: Box<Compute>,
    delay: Duration,
}

impl FakeEngine {
    /// An engine with this specification. The closure gets the arguments of [`Engine::run`] after they were checked.
    pub fn new(
        spec: EngineSpec,
        compute: impl FnMut(&[(&str, &Tensor)], &mut [(&str, &mut Tensor)]) -> Result<()> + Send + 'static,
    ) -> Self {
        Self { spec, compute: Box::new(compute), delay: Duration::ZERO }
    }

    /// An engine with this specification that returns zeros. A dynamic dimension that no input has is 0.
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

    /// Sets the minimum duration of each run.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

impl Engine for FakeEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        "fake"
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let bindings = check_run(&self.spec, inputs, outputs)?;
        check_residence(None, inputs, outputs)?;
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        (self.compute)(inputs, outputs)?;
        check_outputs(&self.spec, &bindings, outputs)
    }
}

debug_as!(FakeEngine, _it => "FakeEngine");

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
        engine.run(&[("x", &Tensor::zeros::<f32>(&[3, 2]))], &mut [("y", &mut y)]).expect("it runs");
        assert_eq!(y, Tensor::zeros::<f32>(&[3]));
    }

    #[test]
    fn a_closure_that_returns_another_shape_is_an_error() {
        let mut engine = FakeEngine::new(spec(), |_, outputs| {
            outputs[0].1.reset_f32(&[4]);
            Ok(())
        });
        let error = engine
            .run(&[("x", &Tensor::zeros::<f32>(&[3, 2]))], &mut [("y", &mut Tensor::empty())])
            .expect_err("four are not three");
        assert_eq!(error.kind(), ErrorKind::Execution);
        assert_eq!(error.to_string(), "output `y`, dimension 0: `n` is 3 in the inputs, got 4");
    }

    #[test]
    fn misuse_does_not_reach_the_closure() {
        let mut engine = FakeEngine::new(spec(), |_, _| panic!("the closure was called"));
        let outcome = engine.run(&[], &mut [("y", &mut Tensor::empty())]);
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
    }
}
