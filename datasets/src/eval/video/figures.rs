//! The figures of tracks, and of masks.

use serde::Serialize;

/// Figures of tracks, as TrackEval computes them. Figures with decimals are 0 to 1; MOTA can be negative.
///
/// HOTA and its parts are means over the least overlaps 0.05, 0.10 … 0.95; the others are at 0.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TrackFigures {
    /// Higher order tracking accuracy: the geometric mean of `det_a` and `ass_a` at each level.
    pub hota: f64,
    /// Accuracy of detection.
    pub det_a: f64,
    /// Accuracy of association.
    pub ass_a: f64,
    /// Recall of detection.
    pub det_re: f64,
    /// Precision of detection.
    pub det_pr: f64,
    /// Recall of association.
    pub ass_re: f64,
    /// Precision of association.
    pub ass_pr: f64,
    /// Mean overlap of matches; 1 at levels without one.
    pub loc_a: f64,
    /// 1 minus misses, false positives and identity switches for each object.
    pub mota: f64,
    /// Mean overlap of the matches at 0.5.
    pub motp: f64,
    /// F1 of identities.
    pub idf1: f64,
    /// Recall of identities.
    pub idr: f64,
    /// Precision of identities.
    pub idp: f64,
    /// Boxes or masks of objects.
    pub objects: u64,
    /// Boxes or masks of tracks.
    pub tracked: u64,
    /// Objects that were found.
    pub true_positives: u64,
    /// Tracks without an object.
    pub false_positives: u64,
    /// Objects without a track.
    pub false_negatives: u64,
    /// Objects whose track's id changed.
    pub id_switches: u64,
    /// Objects that are tracked in more than 80 % of their frames.
    pub mostly_tracked: u64,
    /// Objects in between.
    pub partly_tracked: u64,
    /// Objects that are tracked in less than 20 % of their frames.
    pub mostly_lost: u64,
    /// Number of times that an object was lost and found again.
    pub fragmentations: u64,
}

/// J and F, 0 to 1, each the mean over all objects of all sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct JAndFFigures {
    /// The mean of `j_mean` and `f_mean`.
    pub j_and_f: f64,
    /// Mean IoU over the frames.
    pub j_mean: f64,
    /// The share of frames with an IoU above 0.5.
    pub j_recall: f64,
    /// Mean IoU in the first quarter of the frames minus that in the last.
    pub j_decay: f64,
    /// Mean F of boundaries over the frames.
    pub f_mean: f64,
    /// The share of frames with an F above 0.5.
    pub f_recall: f64,
    /// Mean F in the first quarter of the frames minus that in the last.
    pub f_decay: f64,
}

/// J and F of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectJAndF {
    /// The name of its sequence.
    pub sequence: String,
    /// Its number in the ground truth.
    pub object: u16,
    /// The figures.
    #[serde(flatten)]
    pub figures: JAndFFigures,
}

/// J and F of one of DAVIS' tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JAndF {
    /// Means over all objects.
    #[serde(flatten)]
    pub figures: JAndFFigures,
    /// Each object.
    pub objects: Vec<ObjectJAndF>,
}

impl JAndFFigures {
    /// The figures in their order.
    pub(super) fn row(&self) -> [f64; 7] {
        let Self { j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay } = *self;
        [j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay]
    }
}

impl From<[f64; 7]> for JAndFFigures {
    fn from([j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay]: [f64; 7]) -> Self {
        Self { j_and_f, j_mean, j_recall, j_decay, f_mean, f_recall, f_decay }
    }
}
