//! Compares the outputs of the graphs, value by value.

use ocelli::{Detection, Error, Result, model::ModelGraph, stages::ImageFeatures};
use ocelli_engines::Tensor;
use ocelli_export::contract::tensor;

use super::{Failure, Limits, OutputReport};

/// An output of a graph, for one input.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) graph: ModelGraph,
    pub(super) name: &'static str,
    pub(super) tensor: Tensor,
}

/// The outputs of one side for one input.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) features: ImageFeatures,
    /// In the order in which they were computed, all classes of the input together.
    pub(super) outputs: Vec<Output>,
    pub(super) detections: Vec<Detection>,
}

impl Pass {
    /// Everything that is compared, in the order in which it was computed.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (ModelGraph, &'static str, &Tensor)> {
        let features = self.features.tensors().map(|(name, tensor)| (ModelGraph::Backbone, name, tensor));
        features.chain(self.outputs.iter().map(|output| (output.graph, output.name, &output.tensor)))
    }

    /// An output of the graphs behind the backbone.
    pub(super) fn values(&self, name: &str) -> Result<&[f32]> {
        let output = self
            .outputs
            .iter()
            .find(|output| output.name == name)
            .ok_or_else(|| Error::execution(format!("encoder-decoder: it did not return {name}")))?;
        output.tensor.as_f32()
    }
}

/// `true` if every element is finite. A tensor that is not `f32` is not.
pub(super) fn is_finite(tensor: &Tensor) -> bool {
    values(tensor)
        .is_some_and(|tensor| tensor.as_f32().is_ok_and(|v| v.iter().all(|value| value.is_finite())))
}

/// A copy in host memory, if the values are `f32` and can be copied.
fn values(tensor: &Tensor) -> Option<Tensor> {
    let mut host = Tensor::empty();
    tensor.copy_to_host_into(&mut host).ok()?;
    host.as_f32().is_ok().then_some(host)
}

/// The cosine of the angle between two vectors, in 64 bits: 1 if both are zero, 0 if one of them is.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a), f64::from(b));
        dot += a * b;
        aa += a * a;
        bb += b * b;
    }
    match (aa > 0.0, bb > 0.0) {
        (false, false) => 1.0,
        // Two square roots, because the product of the squares can overflow.
        (true, true) => dot / (aa.sqrt() * bb.sqrt()),
        _ => 0.0,
    }
}

/// Collects how each output compares, over all inputs.
pub(super) struct OutputComparison {
    limits: Limits,
    pub(super) outputs: Vec<OutputReport>,
    pub(super) failures: Vec<Failure>,
}

impl OutputComparison {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, outputs: Vec::new(), failures: Vec::new() }
    }

    /// Compares all outputs for one input. Returns whether all values of the candidate are finite.
    pub(super) fn add_pass(&mut self, input: &str, expected: &Pass, found: &Pass) -> bool {
        let mut is_finite = true;
        for (graph, name, expected) in expected.tensors() {
            match found.tensors().find(|(_, other, _)| *other == name) {
                Some((_, _, found)) => is_finite &= self.add(input, graph, name, expected, found),
                None => {
                    let why = "it was not returned".into();
                    self.failures.push(Failure { graph, output: name.into(), input: input.into(), why });
                    is_finite = false;
                }
            }
        }
        is_finite
    }

    /// Compares one output for one input. Returns whether all values of the candidate are finite.
    pub(super) fn add(
        &mut self,
        input: &str,
        graph: ModelGraph,
        name: &str,
        expected: &Tensor,
        found: &Tensor,
    ) -> bool {
        let failure = |why: String| Failure { graph, output: name.into(), input: input.into(), why };
        let (Some(expected), Some(found)) = (values(expected), values(found)) else {
            self.failures.push(failure("its values are not 32-bit floating point, or cannot be read".into()));
            return false;
        };
        if expected.shape() != found.shape() {
            let (expected, found) = (expected.shape(), found.shape());
            self.failures.push(failure(format!("its shape is {found:?}, expected {expected:?}")));
            return false;
        }
        let [ours, theirs] =
            [&expected, &found].map(|tensor| tensor.as_f32().expect("checked when it was copied"));
        let bad = theirs.iter().filter(|value| !value.is_finite()).count();
        if bad > 0 {
            let all = theirs.len();
            self.failures.push(failure(format!("{bad} of {all} values are infinite or NaN")));
        }
        // Boxes and presence have limits of their own, on differences.
        let limited = ![tensor::BOXES, tensor::PRESENCE].contains(&name);
        let cosine = if bad > 0 { f64::NAN } else { cosine(ours, theirs) };
        if bad == 0 && limited && cosine < self.limits.min_cosine {
            let least = self.limits.min_cosine;
            self.failures.push(failure(format!("the cosine is {cosine:.6}, expected at least {least}")));
        }
        let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let magnitude = ours.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        let known = self.outputs.iter().position(|row| row.graph == graph && row.output == name);
        let index = known.unwrap_or_else(|| {
            self.outputs.push(OutputReport {
                graph,
                output: name.into(),
                cosine: 1.0,
                worst_input: input.into(),
                largest_difference: 0.0,
                largest_value: 0.0,
                limited,
                finite: true,
            });
            self.outputs.len() - 1
        });
        let row = &mut self.outputs[index];
        row.finite &= bad == 0;
        row.largest_difference = row.largest_difference.max(difference);
        row.largest_value = row.largest_value.max(magnitude);
        // The first input that is not finite stays the worst.
        if !row.cosine.is_nan() && (cosine.is_nan() || cosine < row.cosine) {
            row.cosine = cosine;
            row.worst_input = input.into();
        }
        bad == 0
    }
}
