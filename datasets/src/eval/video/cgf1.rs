//! cgF1 of SA-Co: localisation and classification of text prompts. Carion et al., "SAM 3: Segment Anything with Concepts",
//! 2025; computed as by `CGF1Eval` of `sam3`.
//!
//! A case is a text prompt in an image or in a video. Predictions count from a score of 0.5 on.

use serde::Serialize;

use super::tracks::assign;
use super::vis_ap::{LEVELS, level};

/// The lowest score that counts.
pub(super) const LEAST_SCORE: f64 = 0.5;

/// Matches of one text prompt in one image or video.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    objects: usize,
    found: usize,
    hits: [usize; LEVELS],
}

impl Case {
    /// `overlaps` are those of predictions that count and of objects that are no crowds. // [prediction, object]
    pub(super) fn new(overlaps: &[f64], found: usize, objects: usize) -> Self {
        let pairs = assign(overlaps, found, objects);
        let of_pairs: Vec<f64> =
            pairs.into_iter().map(|(row, column)| overlaps[row * objects + column]).collect();
        let hits = std::array::from_fn(|at| of_pairs.iter().filter(|overlap| **overlap >= level(at)).count());
        Self { objects, found, hits }
    }

    fn is_empty(&self) -> bool {
        self.objects == 0 && self.found == 0
    }

    /// F1 at each level.
    fn f1(&self) -> [f64; LEVELS] {
        self.hits.map(|hits| f1(ratio(hits, self.found), ratio(hits, self.objects)))
    }

    /// Of several annotators' cases the one that the predictions agree with most.
    pub(super) fn best(cases: Vec<Self>) -> Option<Self> {
        let score = |case: &Self| case.f1().iter().sum::<f64>() / LEVELS as f64;
        cases.into_iter().reduce(|best, case| {
            // Nothing found where nothing is, is perfect.
            let is_better = case.is_empty() || (!best.is_empty() && score(&case) > score(&best));
            if is_better { case } else { best }
        })
    }
}

/// The figures of SA-Co, 0 to 1; IL_MCC and cgF1 can be negative.
///
/// `…50` and `…75` are at one least IoU; the others are means over 0.50, 0.55 … 0.95.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CgF1 {
    /// Number of text prompts in images or videos.
    pub cases: usize,
    /// Those that show what the prompt names.
    pub positive_cases: usize,
    /// `positive_micro_f1` × `il_mcc`.
    pub cgf1: f64,
    /// At an IoU of 0.5.
    pub cgf1_50: f64,
    /// At an IoU of 0.75.
    pub cgf1_75: f64,
    /// Matthews correlation of whether something is found with whether there is something.
    pub il_mcc: f64,
    /// F1 over all instances of the cases that show what is named.
    pub positive_micro_f1: f64,
    /// At an IoU of 0.5.
    pub positive_micro_f1_50: f64,
    /// At an IoU of 0.75.
    pub positive_micro_f1_75: f64,
    /// Its precision.
    pub positive_micro_precision: f64,
    /// Mean F1 of the cases that show what is named and in which something is found; `None` without one.
    pub positive_macro_f1: Option<f64>,
    /// F1 over all instances of all cases.
    pub f1: f64,
    /// Its precision.
    pub precision: f64,
    /// Its recall.
    pub recall: f64,
    /// Precision of whether there is something.
    pub il_precision: f64,
    /// Recall of whether there is something.
    pub il_recall: f64,
    /// F1 of whether there is something.
    pub il_f1: f64,
    /// The share of cases without what is named in which something is found.
    pub il_fpr: f64,
}

/// The constants that avoid a division by zero are those of `sam3`.
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / (whole as f64 + 1e-4)
}

fn f1(precision: f64, recall: f64) -> f64 {
    2.0 * precision * recall / (precision + recall + 1e-4)
}

impl CgF1 {
    /// The figures of some cases.
    pub(super) fn of(cases: &[Case]) -> Self {
        let count = |of: fn(&Case) -> bool| cases.iter().filter(|case| of(case)).count();
        let hits = count(|case| case.objects > 0 && case.found > 0);
        let alarms = count(|case| case.objects == 0 && case.found > 0);
        let misses = count(|case| case.objects > 0 && case.found == 0);
        let rejections = count(Case::is_empty);
        let il = |part: usize, whole: usize| part as f64 / (whole as f64 + 1e-6);
        let (il_recall, il_precision) = (il(hits, hits + misses), il(hits, hits + alarms));
        let product = [hits + alarms, hits + misses, rejections + alarms, rejections + misses]
            .iter()
            .fold(1.0, |product, &count| product * count as f64);
        let agreement = hits as f64 * rejections as f64 - alarms as f64 * misses as f64;
        let il_mcc = agreement / (product.sqrt() + 1e-6);

        let positive: Vec<&Case> = cases.iter().filter(|case| case.objects > 0).collect();
        let objects: usize = positive.iter().map(|case| case.objects).sum();
        let found: usize = cases.iter().map(|case| case.found).sum();
        let found_in_positive: usize = positive.iter().map(|case| case.found).sum();
        let of_hits = |of: &dyn Fn(usize) -> f64| -> [f64; LEVELS] {
            std::array::from_fn(|at| of(positive.iter().map(|case| case.hits[at]).sum()))
        };
        let recall = of_hits(&|hits| ratio(hits, objects));
        let micro = of_hits(&|hits| f1(ratio(hits, found_in_positive), ratio(hits, objects)));
        let mean = |values: [f64; LEVELS]| values.iter().sum::<f64>() / LEVELS as f64;
        let macro_f1: f64 = positive.iter().filter(|case| case.found > 0).map(|case| mean(case.f1())).sum();
        Self {
            cases: cases.len(),
            positive_cases: positive.len(),
            cgf1: mean(micro.map(|value| value * il_mcc)),
            cgf1_50: micro[0] * il_mcc,
            cgf1_75: micro[5] * il_mcc,
            il_mcc,
            positive_micro_f1: mean(micro),
            positive_micro_f1_50: micro[0],
            positive_micro_f1_75: micro[5],
            positive_micro_precision: mean(of_hits(&|hits| ratio(hits, found_in_positive))),
            positive_macro_f1: (hits > 0).then(|| macro_f1 / hits as f64),
            f1: mean(of_hits(&|hits| f1(ratio(hits, found), ratio(hits, objects)))),
            precision: mean(of_hits(&|hits| ratio(hits, found))),
            recall: mean(recall),
            il_precision,
            il_recall,
            il_f1: 2.0 * il_precision * il_recall / (il_precision + il_recall + 1e-6),
            il_fpr: il(alarms, alarms + rejections),
        }
    }
}
