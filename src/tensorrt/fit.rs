//! An engine file can be of any model: it must have the inputs and outputs of the model's graph; engines of DART are adapted to them.

use std::path::Path;

use ocelli_engines::{Dim, Engine, TensorSpec};
use ocelli_export::contract::{Manifest, Prompting, tensor};

use super::dart::{DartBackbone, DartEncoderDecoder};
use crate::model::ModelGraph;
use ocelli_error::{Error, Result};

/// An engine with the names and shapes of an exported model's graph.
pub struct Fitted {
    /// The engine, adapted if it is one of DART's.
    pub engine: Box<dyn Engine>,
    /// `true` if it is one of DART's.
    pub of_dart: bool,
    /// The most classes that it takes at once, if the engine itself says so.
    pub max_classes: Option<usize>,
}

/// A tensor of a graph: its name and its sizes, `None` where they vary.
type Expected = (&'static str, Vec<Option<usize>>);

/// The inputs and outputs that a model's graph has at least.
fn expected(graph: ModelGraph, manifest: &Manifest) -> (Vec<Expected>, Vec<Expected>) {
    let known = |size: usize| Some(size);
    let (side, grid, width) = (manifest.imgsz, manifest.grid(), manifest.model_width);
    let (queries, length) = (manifest.num_queries, manifest.context_length);
    let pixels = (tensor::PIXEL_VALUES, [1, 3, side, side].map(known).to_vec());
    let level = |index: usize, times: usize| {
        (tensor::FPN[index], [1, width, times * grid, times * grid].map(known).to_vec())
    };
    let mut features = vec![level(2, 1)];
    if manifest.prompting == Prompting::Official {
        features.push((tensor::IMAGE_PROMPT, [1, 1, width].map(known).to_vec()));
    }
    // The mask head takes one class at a time.
    let classes = known(1).filter(|_| graph == ModelGraph::MaskHead);
    let prompt_features = (tensor::PROMPT_FEATURES, vec![classes, None, known(width)]);
    let prompt_mask = (tensor::PROMPT_MASK, vec![classes, None]);
    let tokens = (tensor::TOKENS, vec![known(grid * grid), None]);
    let logits = (tensor::LOGITS, vec![None, known(queries)]);
    let presence = (tensor::PRESENCE, vec![None, known(1)]);
    match graph {
        ModelGraph::Backbone => (vec![pixels], features),
        ModelGraph::BackboneFirst => (vec![pixels], vec![tokens]),
        ModelGraph::BackboneSecond => (vec![tokens], features),
        ModelGraph::TextEncoder => {
            let words = |name| (name, vec![None, known(length)]);
            let features = (tensor::TEXT_FEATURES, vec![None, known(length), known(width)]);
            (vec![words(tensor::INPUT_IDS), words(tensor::ATTENTION_MASK)], vec![features])
        }
        ModelGraph::ExemplarEncoder => {
            let boxes = (tensor::BOXES, vec![known(1), None, known(4)]);
            let labels = (tensor::BOX_LABELS, vec![known(1), None]);
            let features = (tensor::EXEMPLAR_FEATURES, vec![known(1), None, known(width)]);
            (vec![level(2, 1), boxes, labels], vec![features])
        }
        ModelGraph::EncoderDecoder => {
            let boxes = (tensor::BOXES, vec![None, known(queries), known(4)]);
            (vec![level(2, 1), prompt_features, prompt_mask], vec![logits, boxes, presence])
        }
        ModelGraph::Screen => (vec![level(2, 1), prompt_features, prompt_mask], vec![logits, presence]),
        ModelGraph::MaskHead => {
            let encoded = (tensor::ENCODED, [1, grid * grid, width].map(known).to_vec());
            let queries = (tensor::QUERIES, vec![known(1), None, known(width)]);
            let inputs = vec![level(0, 4), level(1, 2), encoded, prompt_features, prompt_mask, queries];
            let side = known(4 * grid);
            let masks = (tensor::MASKS, vec![known(1), None, side, side]);
            (inputs, vec![masks, (tensor::SEMANTIC, vec![known(1), known(1), side, side])])
        }
    }
}

fn fits(found: &TensorSpec, expected: &[Option<usize>]) -> bool {
    let same = |(found, expected): (&Dim, &Option<usize>)| match (found, expected) {
        (Dim::Fixed(found), Some(expected)) => found == expected,
        _ => true,
    };
    found.shape.len() == expected.len() && found.shape.iter().zip(expected).all(same)
}

/// Checks an engine's tensors against those of a model's graph, and adapts it if it is one of DART's.
///
/// # Errors
/// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if it is another graph or one of another model; the message names
/// the first tensor.
pub fn fit(engine: Box<dyn Engine>, graph: ModelGraph, manifest: &Manifest, path: &Path) -> Result<Fitted> {
    let refuse = |why: String| {
        Error::mismatch(format!(
            "engine {}: {why}; it is not a {graph} of a model of {} px and width {}",
            path.display(),
            manifest.imgsz,
            manifest.model_width
        ))
    };
    let spec = engine.spec();
    let (inputs, outputs) = expected(graph, manifest);
    let named = inputs.iter().all(|(name, _)| spec.input(name).is_some());
    if !named && graph == ModelGraph::EncoderDecoder && DartEncoderDecoder::fits(spec) {
        let adapted = DartEncoderDecoder::new(engine, manifest).map_err(|e| refuse(e.to_string()))?;
        let max_classes = Some(adapted.max_classes());
        return Ok(Fitted { engine: Box::new(adapted), of_dart: true, max_classes });
    }
    let by_name = named && spec.output(tensor::FPN[2]).is_some();
    if graph == ModelGraph::Backbone && !by_name && DartBackbone::fits(spec, manifest) {
        let adapted = DartBackbone::new(engine, manifest).map_err(|e| refuse(e.to_string()))?;
        return Ok(Fitted { engine: Box::new(adapted), of_dart: true, max_classes: None });
    }
    for (is_input, tensors) in [(true, inputs), (false, outputs)] {
        let side = if is_input { "input" } else { "output" };
        for (name, shape) in tensors {
            let found = if is_input { spec.input(name) } else { spec.output(name) };
            match found {
                Some(found) if fits(found, &shape) => {}
                Some(found) => {
                    let sizes = shape.iter().map(|size| size.map_or("any".into(), |size| size.to_string()));
                    let sizes = sizes.collect::<Vec<_>>().join(", ");
                    return Err(refuse(format!("its {side} is {found}, the model needs [{sizes}]")));
                }
                None => {
                    let all = if is_input { &spec.inputs } else { &spec.outputs };
                    let all = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    return Err(refuse(format!("it has no {side} `{name}`, but {all}")));
                }
            }
        }
    }
    Ok(Fitted { engine, of_dart: false, max_classes: None })
}

#[cfg(test)]
mod tests;
