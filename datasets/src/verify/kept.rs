//! Whether the same things are found.

use std::sync::Arc;

use ocelli_export::contract::tensor;

use super::inputs::Input;
use super::passes::Heads;
use super::{DetectionReport, Failure, Limits};
use crate::scenes::vocabulary;
use ocelli::ModelGraph;
use ocelli::Result;
use ocelli::postprocess::{Candidate, PostProcessor, RawOutputs};

/// How near an overlap may be to the threshold of suppression for a rounding to decide.
const BORDERLINE_IOU: f32 = 0.05;

/// Queries that count where no score is near the threshold, of all classes of an input.
const SUREST: usize = 10;

/// Scores, boxes and what is kept, over all inputs.
pub(super) struct KeptComparison {
    post: PostProcessor,
    limits: Limits,
    report: DetectionReport,
    failures: Vec<Failure>,
}

/// Where the largest difference of something is.
#[derive(Default)]
struct Worst {
    difference: f32,
    class: usize,
    query: usize,
}

impl Worst {
    fn take(&mut self, difference: f32, class: usize, query: usize) {
        if difference > self.difference {
            *self = Self { difference, class, query };
        }
    }
}

/// One side of an input.
struct Side<'s> {
    boxes: &'s [f32],
    /// `[class, query]`
    scores: Vec<f32>,
    kept: Vec<Candidate>,
}

impl KeptComparison {
    pub(super) fn new(post: PostProcessor, limits: Limits) -> Self {
        let score_threshold = post.options().score_threshold;
        Self {
            post,
            limits,
            report: DetectionReport { score_threshold, ..DetectionReport::default() },
            failures: Vec::new(),
        }
    }

    /// Takes one input; all numbers are finite.
    pub(super) fn add(&mut self, input: &Input, expected: &Heads, found: &Heads) -> Result<()> {
        let labels: Vec<Arc<str>> = input.phrases.iter().map(|&phrase| vocabulary()[phrase].into()).collect();
        let (expected, found) = (self.side(input, &labels, expected)?, self.side(input, &labels, found)?);
        self.compare_queries(input, &labels, &expected, &found);
        if input.drawn {
            self.compare_kept(input, &labels, &expected, &found);
        }
        Ok(())
    }

    fn side<'s>(&mut self, input: &Input, labels: &[Arc<str>], heads: &'s Heads) -> Result<Side<'s>> {
        let (logits, boxes) = (heads.logits.as_f32()?, heads.boxes.as_f32()?);
        let presence = heads.presence.as_f32()?;
        let raw = RawOutputs { first_class_id: 0, labels, logits, boxes, presence: Some(presence) };
        let mut kept = Vec::new();
        self.post.run_into(&raw, input.size.0, input.size.1, &mut kept)?;
        let queries = logits.len() / labels.len();
        let sigmoid = |logit: f32| 1.0 / (1.0 + (-logit).exp());
        let score = |(place, &logit)| sigmoid(logit) * sigmoid(presence[place / queries]);
        Ok(Side { boxes, scores: logits.iter().enumerate().map(score).collect(), kept })
    }

    /// Scores of all queries, boxes of those that matter.
    fn compare_queries(&mut self, input: &Input, labels: &[Arc<str>], ours: &Side<'_>, theirs: &Side<'_>) {
        let queries = ours.scores.len() / labels.len();
        let near = self.report.score_threshold - self.limits.max_score_difference;
        let mut counted: Vec<usize> = (0..ours.scores.len())
            .filter(|&place| ours.scores[place] > near || theirs.scores[place] > near)
            .collect();
        if counted.is_empty() {
            counted = (0..ours.scores.len()).collect();
            counted.sort_by(|&a, &b| ours.scores[b].total_cmp(&ours.scores[a]).then(a.cmp(&b)));
            counted.truncate(SUREST);
        }
        let (mut score, mut edge) = (Worst::default(), Worst::default());
        for (place, (a, b)) in ours.scores.iter().zip(&theirs.scores).enumerate() {
            score.take((a - b).abs(), place / queries, place % queries);
        }
        for &place in &counted {
            let edges = |side: &Side<'_>| -> [f32; 4] { std::array::from_fn(|i| side.boxes[place * 4 + i]) };
            let pairs = edges(ours).into_iter().zip(edges(theirs));
            let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            edge.take(difference, place / queries, place % queries);
        }
        self.report.compared_queries += counted.len();
        let limits = self.limits;
        let report = &mut self.report;
        if score.difference > report.largest_score_difference {
            report.largest_score_difference = score.difference;
            report.worst_score_input.clone_from(&input.name);
        }
        if edge.difference > report.largest_box_difference {
            report.largest_box_difference = edge.difference;
            report.worst_box_input.clone_from(&input.name);
        }
        if score.difference > limits.max_score_difference {
            let (label, query, by, most) =
                (&labels[score.class], score.query, score.difference, limits.max_score_difference);
            let why =
                format!("a score differs by {by:.4} (\"{label}\", query {query}); at most {most} is allowed");
            self.fail(input, tensor::LOGITS, why);
        }
        if edge.difference > limits.max_box_difference {
            let (label, query, by, most) =
                (&labels[edge.class], edge.query, edge.difference, limits.max_box_difference);
            let why = format!(
                "an edge of a box differs by {by:.4} of the side (\"{label}\", query {query}); at most {most} is allowed"
            );
            self.fail(input, tensor::BOXES, why);
        }
    }

    /// Each detection of one side has a partner on the other, or is borderline.
    fn compare_kept(&mut self, input: &Input, labels: &[Arc<str>], ours: &Side<'_>, theirs: &Side<'_>) {
        self.report.kept_by_reference += ours.kept.len();
        self.report.kept_by_candidate += theirs.kept.len();
        let (mut left, mut right) = (Vec::from_iter(&ours.kept), Vec::from_iter(&theirs.kept));
        let (mut left_matched, mut right_matched) = (Vec::new(), Vec::new());
        // Again and again the two of one class that overlap most.
        loop {
            let mut best: Option<(f32, usize, usize)> = None;
            for (i, a) in left.iter().enumerate() {
                for (j, b) in right.iter().enumerate().filter(|(_, b)| b.class_id == a.class_id) {
                    let iou = a.bbox.iou(&b.bbox);
                    if iou >= self.limits.min_iou && best.is_none_or(|(most, ..)| iou > most) {
                        best = Some((iou, i, j));
                    }
                }
            }
            let Some((_, i, j)) = best else { break };
            left_matched.push(left.swap_remove(i));
            right_matched.push(right.swap_remove(j));
            self.report.matched += 1;
        }
        for (alone, others, who, other) in [
            (left, &right_matched, "the reference", "the candidate"),
            (right, &left_matched, "the candidate", "the reference"),
        ] {
            for one in alone {
                if self.is_borderline(one, others) {
                    self.report.borderline += 1;
                    continue;
                }
                let (label, [x1, y1, x2, y2]) = (&labels[one.class_id], one.bbox.to_xyxy());
                let why = format!(
                    "{who} keeps \"{label}\" {:.3} at {x1:.0},{y1:.0},{x2:.0},{y2:.0}; {other} does not",
                    one.score
                );
                self.fail(input, "detections", why);
            }
        }
    }

    /// `others` are those that both sides keep: one of them may have suppressed it on the other side by a hair.
    fn is_borderline(&self, one: &Candidate, others: &[&Candidate]) -> bool {
        if one.score - self.report.score_threshold <= self.limits.max_score_difference {
            return true;
        }
        let Some(suppression) = self.post.options().nms_iou else { return false };
        let mut same = others.iter().filter(|other| other.class_id == one.class_id);
        same.any(|other| (other.bbox.iou(&one.bbox) - suppression).abs() <= BORDERLINE_IOU)
    }

    fn fail(&mut self, input: &Input, output: &str, why: String) {
        let failure = Failure {
            graph: ModelGraph::EncoderDecoder,
            output: output.into(),
            input: input.name.clone(),
            why,
        };
        self.failures.push(failure);
    }

    pub(super) fn finish(self) -> (DetectionReport, Vec<Failure>) {
        (self.report, self.failures)
    }
}
