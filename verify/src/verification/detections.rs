//! Compares scores, boxes and detections.

use std::sync::Arc;

use ocelli::{Detection, Result, model::ModelGraph, postprocess::PostProcessOptions};
use ocelli_export::contract::tensor;

use super::{DetectionReport, Failure, Input, Limits, Pass, Pixels};

/// The largest distance of an overlap from the suppression threshold at which a rounding error may decide.
const BORDERLINE_IOU: f32 = 0.05;

/// Queries that count if no score is near the threshold: those with the highest scores, of all classes of an input.
const BEST_QUERIES: usize = 10;

/// The detections of two models, in pairs of the same ones.
pub(crate) struct Matching<'d> {
    /// Of the first, of the second, and their overlap.
    pub pairs: Vec<(&'d Detection, &'d Detection, f32)>,
    /// Those of the first without a match.
    pub first: Vec<&'d Detection>,
    /// Those of the second without a match.
    pub second: Vec<&'d Detection>,
}

/// Matches the detections of two models: repeatedly the two of one class that overlap most, by at least `min_iou`.
pub(crate) fn match_detections<'d>(
    first: &'d [Detection],
    second: &'d [Detection],
    min_iou: f32,
) -> Matching<'d> {
    let (mut first, mut second) = (Vec::from_iter(first), Vec::from_iter(second));
    let mut pairs = Vec::new();
    loop {
        let mut best: Option<(f32, usize, usize)> = None;
        for (i, a) in first.iter().enumerate() {
            for (j, b) in second.iter().enumerate().filter(|(_, b)| b.class_id == a.class_id) {
                let iou = a.bbox.iou(&b.bbox);
                if iou >= min_iou && best.is_none_or(|(most, ..)| iou > most) {
                    best = Some((iou, i, j));
                }
            }
        }
        let Some((iou, i, j)) = best else { break };
        pairs.push((first.swap_remove(i), second.swap_remove(j), iou));
    }
    Matching { pairs, first, second }
}

/// Collects how scores, boxes and detections compare, over all inputs.
pub(super) struct DetectionComparison {
    post: PostProcessOptions,
    limits: Limits,
    pub(super) report: DetectionReport,
    pub(super) failures: Vec<Failure>,
}

/// A largest difference, and where it is.
#[derive(Default)]
struct Worst {
    difference: f32,
    class: usize,
    query: usize,
}

impl Worst {
    fn add(&mut self, difference: f32, class: usize, query: usize) {
        if difference > self.difference {
            *self = Self { difference, class, query };
        }
    }
}

/// One side of an input.
struct Side<'s> {
    /// `[class, query, xyxy]`.
    boxes: &'s [f32],
    /// `[class, query]`.
    scores: Vec<f32>,
    detections: &'s [Detection],
}

impl<'s> Side<'s> {
    fn of(pass: &'s Pass, classes: usize) -> Result<Self> {
        let (logits, boxes) = (pass.values(tensor::LOGITS)?, pass.values(tensor::BOXES)?);
        let presence = pass.values(tensor::PRESENCE)?;
        let queries = logits.len() / classes;
        let sigmoid = |logit: f32| 1.0 / (1.0 + (-logit).exp());
        let score = |(index, &logit)| sigmoid(logit) * sigmoid(presence[index / queries]);
        let scores = logits.iter().enumerate().map(score).collect();
        Ok(Self { boxes, scores, detections: &pass.detections })
    }
}

impl DetectionComparison {
    pub(super) fn new(post: PostProcessOptions, limits: Limits) -> Self {
        let report = DetectionReport { confidence: post.confidence, ..DetectionReport::default() };
        Self { post, limits, report, failures: Vec::new() }
    }

    /// Compares both sides of one input. All values have to be finite.
    pub(super) fn add(&mut self, input: &Input, expected: &Pass, found: &Pass) -> Result<()> {
        let labels = input.prompts.labels();
        let (expected, found) = (Side::of(expected, input.classes)?, Side::of(found, input.classes)?);
        self.compare_queries(input, &labels, &expected, &found);
        if matches!(input.pixels, Pixels::Scene(_)) {
            self.compare_detections(input, &labels, &expected, &found);
        }
        Ok(())
    }

    /// Compares the scores of all queries, and the boxes of those that matter.
    fn compare_queries(&mut self, input: &Input, labels: &[Arc<str>], ours: &Side<'_>, theirs: &Side<'_>) {
        let queries = ours.scores.len() / input.classes;
        let near = self.report.confidence - self.limits.max_score_difference;
        let mut counted: Vec<usize> = (0..ours.scores.len())
            .filter(|&index| ours.scores[index] > near || theirs.scores[index] > near)
            .collect();
        if counted.is_empty() {
            counted = (0..ours.scores.len()).collect();
            counted.sort_by(|&a, &b| ours.scores[b].total_cmp(&ours.scores[a]).then(a.cmp(&b)));
            counted.truncate(BEST_QUERIES);
        }
        let (mut score, mut edge) = (Worst::default(), Worst::default());
        for (index, (a, b)) in ours.scores.iter().zip(&theirs.scores).enumerate() {
            score.add((a - b).abs(), index / queries, index % queries);
        }
        for &index in &counted {
            let edges = |side: &Side<'_>| -> [f32; 4] { std::array::from_fn(|i| side.boxes[index * 4 + i]) };
            let pairs = edges(ours).into_iter().zip(edges(theirs));
            let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            edge.add(difference, index / queries, index % queries);
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
        let worst = [
            ("a score", score, "", limits.max_score_difference, tensor::LOGITS),
            ("an edge of a box", edge, " of the side", limits.max_box_difference, tensor::BOXES),
        ];
        for (what, Worst { difference, class, query }, unit, most, output) in worst {
            if difference > most {
                let label = &labels[class];
                self.fail(input, output, format!(
                    "{what} differs by {difference:.4}{unit} (\"{label}\", query {query}), expected at most {most}"
                ));
            }
        }
    }

    /// Matches the detections of both sides. One without a match is borderline, or a failure.
    fn compare_detections(&mut self, input: &Input, labels: &[Arc<str>], ours: &Side<'_>, theirs: &Side<'_>) {
        self.report.kept_by_reference += ours.detections.len();
        self.report.kept_by_candidate += theirs.detections.len();
        let Matching { pairs, first, second } =
            match_detections(ours.detections, theirs.detections, self.limits.min_iou);
        self.report.matched += pairs.len();
        let (left_matched, right_matched): (Vec<_>, Vec<_>) =
            pairs.into_iter().map(|(ours, theirs, _)| (ours, theirs)).unzip();
        for (unmatched, others, side, other_side) in [
            (first, &right_matched, "the reference", "the candidate"),
            (second, &left_matched, "the candidate", "the reference"),
        ] {
            for detection in unmatched {
                if self.is_borderline(detection, others) {
                    self.report.borderline += 1;
                    continue;
                }
                let (label, [x1, y1, x2, y2]) = (&labels[detection.class_id], detection.bbox.to_xyxy());
                self.fail(input, "detections", format!(
                    "{side} keeps \"{label}\" {:.3} at {x1:.0},{y1:.0},{x2:.0},{y2:.0}; {other_side} does not",
                    detection.score
                ));
            }
        }
    }

    /// `matched` are those that both sides keep: one of them may have suppressed the detection on the other side only.
    fn is_borderline(&self, detection: &Detection, matched: &[&Detection]) -> bool {
        if detection.score - self.report.confidence <= self.limits.max_score_difference {
            return true;
        }
        let Some(suppression) = self.post.nms else { return false };
        let mut same_class = matched.iter().filter(|other| other.class_id == detection.class_id);
        same_class.any(|other| (other.bbox.iou(&detection.bbox) - suppression).abs() <= BORDERLINE_IOU)
    }

    fn fail(&mut self, input: &Input, output: &str, why: String) {
        let (graph, output, input) = (ModelGraph::EncoderDecoder, output.into(), input.name.clone());
        self.failures.push(Failure { graph, output, input, why });
    }
}
