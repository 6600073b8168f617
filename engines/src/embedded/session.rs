//! One model in the embedded engine.

use super::builder::EmbeddedBuilder;
use super::values::{self, Converted};
use crate::engine::Engine;
use crate::spec::{EngineSpec, TensorSpec, check_outputs, check_residence, check_run};
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
    /// Configures an engine.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::default()
    }

    pub(super) fn new(
        model: Model,
        spec: EngineSpec,
        pool: Arc<ThreadPool>,
        threads: usize,
        name: String,
    ) -> Result<Self> {
        let nodes = |specs: &[TensorSpec]| -> Result<Vec<NodeId>> {
            let nodes = specs.iter().map(|spec| model.node_id(&spec.name));
            nodes
                .collect::<Result<_, _>>()
                .map_err(|error| Error::invalid_data(format!("cannot load the model, {name}: {error}")))
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
            let (_, tensor) =
                inputs.iter().find(|(name, _)| *name == expected.name).expect("check_run found every input");
            given.push((*node, values::view(&expected.name, tensor, converted)?.into()));
        }
        let wanted: Vec<(usize, NodeId)> = outputs
            .iter()
            .map(|(name, _)| {
                let position = spec.outputs.iter().position(|spec| spec.name == *name);
                let position = position.expect("check_run knows every output");
                (position, output_nodes[position])
            })
            .collect();
        let nodes: Vec<NodeId> = wanted.iter().map(|(_, node)| *node).collect();

        let failed = |reason: &str| {
            let reason = reason.replace('\n', " ");
            Error::execution(format!("cannot run the model, {name}: {reason}"))
        };
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(pool)));
        // A panic leaves nothing half done: a run owns its intermediate values.
        let values = catch_unwind(AssertUnwindSafe(|| model.run(given, &nodes, Some(options))))
            .map_err(|_| failed("an operator panicked"))?
            .map_err(|error| failed(&error.to_string()))?;
        for (((name, tensor), value), (position, _)) in outputs.iter_mut().zip(values).zip(wanted) {
            let element_type = spec.outputs[position].element_type;
            values::copy(&value, element_type, tensor)
                .map_err(|reason| failed(&format!("output `{name}`: {reason}")))?;
        }
        check_outputs(spec, &bindings, outputs)
    }
}

debug_as!(EmbeddedEngine, it => "EmbeddedEngine({}: {})", it.description, it.name);
