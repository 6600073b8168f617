//! The result of a verification.

use std::io::{self, Write};

use serde::Serialize;

use super::{Limits, VerificationSummary};
use ocelli::model::ModelGraph;

/// Failures that the table lists. The others are counted.
const SHOWN: usize = 12;

/// The comparison of one output, over all inputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputReport {
    /// The graph that returns it. A backbone in two parts counts as one.
    pub graph: ModelGraph,
    /// Its name.
    pub output: String,
    /// The smallest cosine of any input; NaN if the candidate returned values that are not finite.
    pub cosine: f64,
    /// The input with the smallest cosine.
    pub worst_input: String,
    /// The largest difference between two values, over all inputs.
    pub largest_difference: f32,
    /// The largest magnitude of the reference, for scale.
    pub largest_value: f32,
    /// `true` if the cosine has a limit. Boxes and presence have limits on differences instead.
    pub limited: bool,
    /// `true` if all values of the candidate are finite.
    pub finite: bool,
}

/// The comparison of scores, boxes and detections.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DetectionReport {
    /// Detections above this score are kept.
    pub confidence: f32,
    /// Detections of the reference in the drawn scenes.
    pub kept_by_reference: usize,
    /// Detections of the candidate in the drawn scenes.
    pub kept_by_candidate: usize,
    /// Matched pairs.
    pub matched: usize,
    /// Detections without a match where rounding decides.
    pub borderline: usize,
    /// Queries whose boxes were compared, over all inputs.
    pub compared_queries: usize,
    /// The largest difference between two edges of boxes, as a share of the image's side.
    pub largest_box_difference: f32,
    /// The input with the largest box difference.
    pub worst_box_input: String,
    /// The largest difference between two scores.
    pub largest_score_difference: f32,
    /// The input with the largest score difference.
    pub worst_score_input: String,
}

/// A reason to refuse the candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The graph that returned it. A wrong output makes later ones wrong; failures are in the order of the graphs.
    pub graph: ModelGraph,
    /// The output's name, or `detections`.
    pub output: String,
    /// The input: `scene 3`.
    pub input: String,
    /// The fault, in words.
    pub why: String,
}

/// The result of comparing a candidate with the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerificationReport {
    /// The engine that ran the reference.
    pub reference: String,
    /// The engine that ran the candidate.
    pub candidate: String,
    /// The graphs that the candidate replaces.
    pub graphs: Vec<ModelGraph>,
    /// The limits of the candidate's differences from the reference.
    pub limits: Limits,
    /// Seed of the random pixels and the scenes.
    pub seed: u64,
    /// Number of inputs of random pixels.
    pub random_inputs: usize,
    /// Number of drawn scenes.
    pub scenes: usize,
    /// The outputs, in the order of the graphs.
    pub outputs: Vec<OutputReport>,
    /// Scores, boxes and detections.
    pub detections: DetectionReport,
    /// The reasons to refuse the candidate; empty if it is accepted.
    pub failures: Vec<Failure>,
}

impl VerificationReport {
    /// `true` if there is no reason to refuse the candidate.
    pub fn accepted(&self) -> bool {
        self.failures.is_empty()
    }

    /// All of it as JSON, with `accepted`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(self).expect("a report is plain data");
        json["accepted"] = self.accepted().into();
        json
    }

    /// The result in one sentence: accepted, or the first reason why not.
    pub fn verdict(&self) -> String {
        match self.failures.as_slice() {
            [] => {
                let least = self.outputs.iter().filter(|output| output.limited).map(|output| output.cosine);
                let least = least.fold(1.0, f64::min);
                let found = &self.detections;
                let kept = match found.kept_by_reference {
                    0 => "no detection to compare (the reference keeps none)".into(),
                    count => format!("{} of {count} detections matched", found.matched),
                };
                format!(
                    "accepted: cosine at least {least:.6}, boxes within {:.5} of the side, scores within {:.5}, {kept}",
                    found.largest_box_difference, found.largest_score_difference
                )
            }
            [first, rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    count => format!(" (and {count} more)"),
                };
                format!("refused: {}, {}, {}: {}{more}", first.graph, first.output, first.input, first.why)
            }
        }
    }

    /// The summary for the sidecar of an engine.
    pub fn summary(&self) -> VerificationSummary {
        let of = |output: &OutputReport| (output.output.clone(), output.cosine);
        VerificationSummary {
            reference: self.reference.clone(),
            candidate: self.candidate.clone(),
            cosine: self.outputs.iter().map(of).collect(),
            box_difference: self.detections.largest_box_difference,
            score_difference: self.detections.largest_score_difference,
            kept: self.detections.matched,
            borderline: self.detections.borderline,
            scenes: self.scenes,
            random_inputs: self.random_inputs,
            seed: self.seed,
            limits: self.limits,
        }
    }

    /// Writes the report as a table.
    ///
    /// ```text
    /// graph             output         cosine      difference  of      worst input
    /// backbone          fpn_2          0.99999998  0.0012      11.3    scene 3
    /// encoder_decoder   logits         0.99999999  0.0004      9.1     random input 0
    /// detections        21 kept by the reference, 21 by the candidate, 21 matched, 0 borderline
    /// boxes             within 0.00002 of the side (scene 1), 34 queries compared
    /// scores            within 0.00001 (scene 1)
    /// accepted: …
    /// ```
    ///
    /// # Errors
    /// Errors of `writer`.
    pub fn write_table(&self, mut writer: impl Write) -> io::Result<()> {
        let mut line = |name: &str, text: String| writeln!(writer, "{name:<17} {text}");
        let row = |output: &str, [cosine, difference, of]: [&str; 3], worst: &str| {
            format!("{output:<18} {cosine:<11} {difference:<11} {of:<8} {worst}")
        };
        line("graph", row("output", ["cosine", "difference", "of"], "worst input"))?;
        for output in &self.outputs {
            let cosine = if output.finite { format!("{:.8}", output.cosine) } else { "not finite".into() };
            let difference = format!("{:.3e}", output.largest_difference);
            let numbers = [cosine.as_str(), &difference, &format!("{:.3}", output.largest_value)];
            line(output.graph.name(), row(&output.output, numbers, &output.worst_input))?;
        }
        let found = &self.detections;
        let (ours, theirs) = (found.kept_by_reference, found.kept_by_candidate);
        let kept = format!("{ours} kept by the reference, {theirs} by the candidate");
        line("detections", format!("{kept}, {} matched, {} borderline", found.matched, found.borderline))?;
        let at = |input: &str| if input.is_empty() { String::new() } else { format!(" ({input})") };
        let (most, place) = (found.largest_box_difference, at(&found.worst_box_input));
        let queries = found.compared_queries;
        line("boxes", format!("within {most:.6} of the side{place}, {queries} queries compared"))?;
        let (most, place) = (found.largest_score_difference, at(&found.worst_score_input));
        line("scores", format!("within {most:.6}{place}"))?;
        for Failure { graph, output, input, why } in self.failures.iter().take(SHOWN) {
            line("refused", format!("{graph}, {output}, {input}: {why}"))?;
        }
        if self.failures.len() > SHOWN {
            line("", format!("… and {} more", self.failures.len() - SHOWN))?;
        }
        writeln!(writer, "{}", self.verdict())
    }
}
