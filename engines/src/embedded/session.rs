//! One model in the embedded engine.

use super::values::{self, Converted};
use crate::engine::Engine;
use crate::model_file::unusable;
use crate::spec::{EngineSpec, TensorSpec, check_outputs, check_residence, check_run, input_named, position};
use crate::tensor::Tensor;
use ocelli_error::{Error, Result};
use rten::{Model, NodeId, RunOptions, ThreadPool, ValueOrView};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A model that runs inside the program, on the CPU; [the module](super) says in which types.
pub struct EmbeddedEngine {
    model: Model,
    spec: EngineSpec,
    /// In the order of the specification.
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    converted: Vec<Converted>,
    pool: Arc<ThreadPool>,
    name: String,
    description: String,
}

impl EmbeddedEngine {
    pub(super) fn new(
        model: Model,
        spec: EngineSpec,
        pool: Arc<ThreadPool>,
        threads: usize,
        name: String,
    ) -> Result<Self> {
        let nodes = |specs: &[TensorSpec]| -> Result<Vec<NodeId>> {
            let nodes = specs.iter().map(|spec| model.node_id(&spec.name));
            nodes.collect::<Result<_, _>>().map_err(|error| unusable(&name, &error.to_string()))
        };
        let (inputs, outputs) = (nodes(&spec.inputs)?, nodes(&spec.outputs)?);
        let converted = inputs.iter().map(|_| Converted::default()).collect();
        let description = super::description(threads);
        Ok(Self { model, inputs, outputs, converted, spec, pool, name, description })
    }
}

impl Engine for EmbeddedEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let Self { model, spec, inputs: input_nodes, outputs: output_nodes, converted, pool, name, .. } =
            self;
        let bindings = check_run(spec, inputs, outputs)?;
        check_residence(None, inputs, outputs)?;
        let mut given: Vec<(NodeId, ValueOrView<'_>)> = Vec::with_capacity(inputs.len());
        for ((expected, node), converted) in spec.inputs.iter().zip(&*input_nodes).zip(converted) {
            let tensor = input_named(inputs, &expected.name);
            given.push((*node, values::view(&expected.name, tensor, converted)?.into()));
        }
        let wanted: Vec<usize> = outputs.iter().map(|(name, _)| position(&spec.outputs, name)).collect();
        let nodes: Vec<NodeId> = wanted.iter().map(|&at| output_nodes[at]).collect();

        let failed = |reason: &str| {
            let reason = reason.replace('\n', " ");
            Error::execution(format!("cannot run the model, {name}: {reason}"))
        };
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(pool)));
        // A panic leaves nothing half done: a run owns its intermediate values.
        let values = catch_unwind(AssertUnwindSafe(|| model.run(given, &nodes, Some(options))))
            .map_err(|_| failed("an operator panicked"))?
            .map_err(|error| failed(&error.to_string()))?;
        for (((name, tensor), value), at) in outputs.iter_mut().zip(values).zip(wanted) {
            values::copy(&value, spec.outputs[at].element_type, tensor)
                .map_err(|reason| failed(&format!("output `{name}`: {reason}")))?;
        }
        check_outputs(spec, &bindings, outputs)
    }
}

debug_as!(EmbeddedEngine, it => "EmbeddedEngine({}: {})", it.description, it.name);
