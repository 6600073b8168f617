//! Engines whose outputs are recorded on their way to the detector's stages.

use std::sync::{Arc, Mutex};

use ocelli::{locked, model::ModelGraph};
use ocelli_engines::{Device, Engine, EngineSpec, Result, Tensor};
use ocelli_export::contract::tensor;

/// A logit, or a presence, whose sigmoid is 1.
const CERTAIN: f32 = 40.0;

/// One output of one run, in host memory.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) tensor: Tensor,
}

/// The outputs of a detector's engines. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Recording(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    outputs: Vec<Recorded>,
    forced_queries: Option<usize>,
}

impl Recording {
    /// The same engine, with its outputs recorded.
    pub(super) fn engine(&self, graph: ModelGraph, engine: Box<dyn Engine>) -> Box<dyn Engine> {
        Box::new(RecordedEngine { graph, engine, recording: self.clone() })
    }

    /// Makes the decoder keep the first queries of each class, as many as `queries`, and no others, whatever their scores are.
    /// The mask head is then given the same queries on both sides.
    pub(super) fn force_queries(&self, queries: Option<usize>) {
        locked(&self.0).forced_queries = queries;
    }

    /// Everything that was recorded since the last call.
    pub(super) fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut locked(&self.0).outputs)
    }
}

struct RecordedEngine {
    graph: ModelGraph,
    engine: Box<dyn Engine>,
    recording: Recording,
}

impl Engine for RecordedEngine {
    fn spec(&self) -> &EngineSpec {
        self.engine.spec()
    }

    fn description(&self) -> &str {
        self.engine.description()
    }

    fn device(&self) -> Option<Device> {
        self.engine.device()
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        self.engine.run(inputs, outputs)?;
        // The features are large, and `ImageFeatures` has them.
        if self.graph.is_backbone() {
            return Ok(());
        }
        let mut state = locked(&self.recording.0);
        for (name, output) in outputs.iter_mut() {
            let mut tensor = Tensor::empty();
            output.copy_to_host_into(&mut tensor)?;
            if let Some(queries) = state.forced_queries
                && let Some(forced) = forced(name, tensor.shape(), queries)
            {
                output.copy_from_host(&forced)?;
            }
            state.outputs.push(Recorded { name: (*name).to_owned(), tensor });
        }
        Ok(())
    }
}

/// An output of the encoder-decoder by which the first `queries` of each class are kept: they are certain, and their boxes
/// do not overlap.
fn forced(name: &str, shape: &[usize], queries: usize) -> Option<Tensor> {
    let mut forced = Tensor::empty();
    let all = shape.get(1).copied().unwrap_or(1).max(1);
    match name {
        tensor::LOGITS => {
            for (index, logit) in forced.reset_f32(shape).iter_mut().enumerate() {
                *logit = if index % all < queries { CERTAIN } else { -CERTAIN };
            }
        }
        tensor::BOXES => {
            for (index, edges) in forced.reset_f32(shape).chunks_exact_mut(4).enumerate() {
                let left = (index % all) as f32 / all as f32;
                edges.copy_from_slice(&[left, 0.0, left + 0.5 / all as f32, 1.0]);
            }
        }
        tensor::PRESENCE => forced.reset_f32(shape).fill(CERTAIN),
        _ => return None,
    }
    Some(forced)
}
