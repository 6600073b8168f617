//! What came of a verification.

use std::io::{self, Write};

use serde::Serialize;

use super::{Limits, VerificationSummary};
use ocelli::ModelGraph;

/// Failures that a table shows; the others are counted.
const SHOWN: usize = 12;

/// How one output compares, over all inputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputReport {
    /// The graph that returns it; a backbone cut in two counts as one.
    pub graph: ModelGraph,
    /// Its name.
    pub output: String,
    /// The least cosine of any input; no number where the candidate returned some that are none.
    pub cosine: f64,
    /// The input that has it.
    pub worst_input: String,
    /// The largest difference of two numbers of any input.
    pub largest_difference: f32,
    /// The largest number of the reference, to see what a difference means.
    pub largest_value: f32,
    /// Whether the cosine has a limit; boxes and presence have others.
    pub limited: bool,
    /// Whether all numbers of the candidate are some.
    pub finite: bool,
}

/// How scores, boxes and detections compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DetectionReport {
    /// Above it a detection is kept.
    pub score_threshold: f32,
    /// Detections of the reference in the drawn scenes.
    pub kept_by_reference: usize,
    /// Detections of the candidate in the drawn scenes.
    pub kept_by_candidate: usize,
    /// Pairs of them.
    pub matched: usize,
    /// Detections without a partner where a rounding decides.
    pub borderline: usize,
    /// Queries whose boxes were compared, over all inputs.
    pub compared_queries: usize,
    /// The largest difference of a box's edge, as a share of the image's side.
    pub largest_box_difference: f32,
    /// The input that has it.
    pub worst_box_input: String,
    /// The largest difference of a score.
    pub largest_score_difference: f32,
    /// The input that has it.
    pub worst_score_input: String,
}

/// A reason to refuse the candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The graph that returned it. Behind a wrong output others are wrong too; failures are in the order of the graphs.
    pub graph: ModelGraph,
    /// The output's name, or `detections`.
    pub output: String,
    /// The input: `scene 3`.
    pub input: String,
    /// What is wrong.
    pub why: String,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerificationReport {
    /// What the reference ran on.
    pub reference: String,
    /// What the candidate ran on.
    pub candidate: String,
    /// Which graphs are the candidate's own.
    pub graphs: Vec<ModelGraph>,
    /// How far it may be off.
    pub limits: Limits,
    /// Of the random numbers and the scenes.
    pub seed: u64,
    /// Inputs of random pixels.
    pub random_inputs: usize,
    /// Drawn scenes.
    pub scenes: usize,
    /// Output by output, in the order of the graphs.
    pub outputs: Vec<OutputReport>,
    /// Scores, boxes, detections.
    pub detections: DetectionReport,
    /// Why it is refused; empty where it is accepted.
    pub failures: Vec<Failure>,
}

impl VerificationReport {
    /// Whether nothing speaks against the candidate.
    pub fn accepted(&self) -> bool {
        self.failures.is_empty()
    }

    /// The result in a sentence: that it is accepted, or the first reason why not.
    pub fn verdict(&self) -> String {
        match self.failures.as_slice() {
            [] => {
                let least = self.outputs.iter().filter(|output| output.limited).map(|output| output.cosine);
                let least = least.fold(1.0, f64::min);
                let found = &self.detections;
                let kept = match found.kept_by_reference {
                    0 => "no detection to compare (the reference keeps none)".into(),
                    count => format!("{} of {count} detections found again", found.matched),
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

    /// What goes into a sidecar.
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

    /// Writes the report for people.
    ///
    /// ```text
    /// graph             output         cosine      difference  of      worst input
    /// backbone          fpn_2          0.99999998  0.0012      11.3    scene 3
    /// encoder_decoder   logits         0.99999999  0.0004      9.1     random input 0
    /// detections        21 kept by the reference, 21 by the candidate, 21 the same, 0 borderline
    /// boxes             within 0.00002 of the side (scene 1), 34 queries compared
    /// scores            within 0.00001 (scene 1)
    /// accepted: …
    /// ```
    ///
    /// # Errors
    /// Where `writer` fails.
    pub fn write_table(&self, mut writer: impl Write) -> io::Result<()> {
        writeln!(
            writer,
            "{:<17} {:<18} {:<11} {:<11} {:<8} worst input",
            "graph", "output", "cosine", "difference", "of"
        )?;
        for row in &self.outputs {
            let cosine = if row.finite { format!("{:.8}", row.cosine) } else { "not finite".into() };
            writeln!(
                writer,
                "{:<17} {:<18} {:<11} {:<11} {:<8} {}",
                row.graph.name(),
                row.output,
                cosine,
                format!("{:.3e}", row.largest_difference),
                format!("{:.3}", row.largest_value),
                row.worst_input
            )?;
        }
        let found = &self.detections;
        writeln!(
            writer,
            "{:<17} {} kept by the reference, {} by the candidate, {} the same, {} borderline",
            "detections", found.kept_by_reference, found.kept_by_candidate, found.matched, found.borderline
        )?;
        let at = |input: &str| if input.is_empty() { String::new() } else { format!(" ({input})") };
        writeln!(
            writer,
            "{:<17} within {:.6} of the side{}, {} queries compared",
            "boxes",
            found.largest_box_difference,
            at(&found.worst_box_input),
            found.compared_queries
        )?;
        writeln!(
            writer,
            "{:<17} within {:.6}{}",
            "scores",
            found.largest_score_difference,
            at(&found.worst_score_input)
        )?;
        for failure in self.failures.iter().take(SHOWN) {
            writeln!(
                writer,
                "refused           {}, {}, {}: {}",
                failure.graph, failure.output, failure.input, failure.why
            )?;
        }
        if self.failures.len() > SHOWN {
            writeln!(writer, "                  … and {} more", self.failures.len() - SHOWN)?;
        }
        writeln!(writer, "{}", self.verdict())
    }
}
