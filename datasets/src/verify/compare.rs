//! Numbers beside numbers.

use ocelli_engines::Tensor;
use ocelli_export::contract::tensor;

use super::{Failure, Limits, Output, OutputReport};

/// Whether every element is a number; a tensor that is not of `f32`, or not the host's, is none.
pub(super) fn is_finite(tensor: &Tensor) -> bool {
    tensor.as_f32().is_ok_and(|values| values.iter().all(|value| value.is_finite()))
}

/// The cosine of the angle between two vectors, in 64 bits: 1 where both are zero, 0 where one is.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a), f64::from(b));
        dot += a * b;
        aa += a * a;
        bb += b * b;
    }
    match (aa > 0.0, bb > 0.0) {
        (false, false) => 1.0,
        // Two roots, because the product of the squares can overflow.
        (true, true) => dot / (aa.sqrt() * bb.sqrt()),
        _ => 0.0,
    }
}

/// Output by output, over all inputs.
pub(super) struct OutputComparison {
    limits: Limits,
    outputs: Vec<OutputReport>,
    failures: Vec<Failure>,
}

impl OutputComparison {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, outputs: Vec::new(), failures: Vec::new() }
    }

    /// Takes one output of one input; whether all of the candidate's are numbers.
    pub(super) fn add(&mut self, input: &str, expected: &Output<'_>, found: &Output<'_>) -> bool {
        let (graph, name) = (expected.graph, expected.name);
        let refuse = |why: String| Failure { graph, output: name.into(), input: input.into(), why };
        let (Ok(ours), Ok(theirs)) = (expected.tensor.as_f32(), found.tensor.as_f32()) else {
            self.failures.push(refuse("it is not in 32-bit floating point in the host's memory".into()));
            return false;
        };
        if expected.tensor.shape() != found.tensor.shape() {
            let (expected, found) = (expected.tensor.shape(), found.tensor.shape());
            self.failures.push(refuse(format!("its shape is {found:?}, expected {expected:?}")));
            return false;
        }
        let bad = theirs.iter().filter(|value| !value.is_finite()).count();
        if bad > 0 {
            let all = theirs.len();
            self.failures.push(refuse(format!("{bad} of {all} numbers are infinite or none")));
        }
        // Boxes and presence are judged by how far they are, not by where they point.
        let limited = ![tensor::BOXES, tensor::PRESENCE].contains(&name);
        let cosine = if bad > 0 { f64::NAN } else { cosine(ours, theirs) };
        if bad == 0 && limited && cosine < self.limits.min_cosine {
            let least = self.limits.min_cosine;
            self.failures.push(refuse(format!("the cosine is {cosine:.6}; at least {least} is asked for")));
        }
        let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let magnitude = ours.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        let row = match self.outputs.iter_mut().find(|row| row.graph == graph && row.output == name) {
            Some(row) => row,
            None => {
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
                self.outputs.last_mut().expect("it was pushed just now")
            }
        };
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

    pub(super) fn finish(self) -> (Vec<OutputReport>, Vec<Failure>) {
        (self.outputs, self.failures)
    }
}
