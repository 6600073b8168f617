//! Average precision as COCO defines it, computed by `hotcoco`, whose figures are identical to those of pycocotools.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use hotcoco::COCOeval;
use hotcoco::params::IouType;
use hotcoco::types::Annotation;
use serde::Serialize;

use super::{Predictions, Truth};
use ocelli::{Error, ErrorKind, Result};

/// The overlap that decides whether a detection matches an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// IoU of the boxes (COCO's `bbox`).
    Boxes,
    /// IoU of the masks (COCO's `segm`).
    Masks,
}

/// Average precision and recall, 0 to 1; `None` if there are no instances to detect.
///
/// `ap` and `ar…` are means over the IoU thresholds 0.50, 0.55 … 0.95 and over the classes. Small instances have less than 32²
/// pixels, large ones more than 96².
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Average precision.
    pub ap: Option<f64>,
    /// At an IoU threshold of 0.50.
    pub ap50: Option<f64>,
    /// At an IoU threshold of 0.75.
    pub ap75: Option<f64>,
    /// For small instances.
    pub ap_small: Option<f64>,
    /// For medium instances.
    pub ap_medium: Option<f64>,
    /// For large instances.
    pub ap_large: Option<f64>,
    /// Recall with the best detection of each class and image.
    pub ar1: Option<f64>,
    /// Recall with the best ten.
    pub ar10: Option<f64>,
    /// Recall with the best hundred.
    pub ar100: Option<f64>,
    /// Recall for small instances.
    pub ar_small: Option<f64>,
    /// Recall for medium instances.
    pub ar_medium: Option<f64>,
    /// Recall for large instances.
    pub ar_large: Option<f64>,
    /// The figures of each class that has instances, in the order of the categories.
    pub per_class: Vec<ClassAccuracy>,
}

/// Average precision of one class; see [`Accuracy`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassAccuracy {
    /// The category's id.
    pub category_id: u64,
    /// The category's name.
    pub name: String,
    /// Number of instances, without crowds.
    #[serde(rename = "things")]
    pub instances: usize,
    /// Average precision.
    pub ap: Option<f64>,
    /// At an IoU threshold of 0.50.
    pub ap50: Option<f64>,
    /// At an IoU threshold of 0.75.
    pub ap75: Option<f64>,
    /// For small instances.
    pub ap_small: Option<f64>,
    /// For medium instances.
    pub ap_medium: Option<f64>,
    /// For large instances.
    pub ap_large: Option<f64>,
    /// Recall with the best hundred detections of each image.
    pub ar100: Option<f64>,
}

/// Average precision of `predictions` over some images and all categories of `truth`.
///
/// With [`Overlap::Masks`], the area of a detection is that of its mask, as in results files without boxes.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if a mask is needed and missing, or cannot be drawn because the size of its image is unknown.
pub fn average_precision(
    truth: &Truth,
    predictions: &Predictions,
    image_ids: &[u64],
    overlap: Overlap,
) -> Result<Accuracy> {
    let invalid = |e: hotcoco::Error| {
        Error::new(ErrorKind::InvalidData, format!("average precision: {e}")).with_source(e)
    };
    let mut found = best_of_each(predictions);
    let kind = match overlap {
        Overlap::Boxes => IouType::Bbox,
        Overlap::Masks => {
            if let Some(why) = &truth.unreadable {
                let message = format!("average precision of masks: {why}");
                return Err(Error::new(ErrorKind::InvalidData, message));
            }
            if found.iter().any(|one| one.segmentation.is_none()) {
                let message = "average precision of masks: there are detections without a mask";
                return Err(Error::new(ErrorKind::InvalidData, message));
            }
            // With a box, pycocotools would use the area of the box.
            found.iter_mut().for_each(|one| one.bbox = None);
            IouType::Segm
        }
    };
    let found = truth.coco.load_res_anns(found).map_err(invalid)?;
    let mut evaluation = COCOeval::new(truth.coco.clone(), found, kind);
    evaluation.params.img_ids = image_ids.to_vec();
    evaluation.evaluate().map_err(invalid)?;
    evaluation.accumulate();
    // Computes the figures; `summarize` would print them, too.
    evaluation.summarize_lines();
    let stats = evaluation.stats().unwrap_or_default();
    let stat = |index: usize| stats.get(index).copied().and_then(figure);
    Ok(Accuracy {
        ap: stat(0),
        ap50: stat(1),
        ap75: stat(2),
        ap_small: stat(3),
        ap_medium: stat(4),
        ap_large: stat(5),
        ar1: stat(6),
        ar10: stat(7),
        ar100: stat(8),
        ar_small: stat(9),
        ar_medium: stat(10),
        ar_large: stat(11),
        per_class: per_class(truth, &evaluation, image_ids),
    })
}

/// Detections of a class in an image that count, as in COCO's evaluation.
const MOST: usize = 100;

/// The best detections of each class and image, in their order: the others do not count, but their overlaps would be computed.
fn best_of_each(predictions: &Predictions) -> Vec<Annotation> {
    let mut groups: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (at, one) in predictions.0.iter().enumerate() {
        groups.entry((one.image_id, one.category_id)).or_default().push(at);
    }
    let mut left_out: HashSet<usize> = HashSet::new();
    for group in groups.values_mut().filter(|group| group.len() > MOST) {
        let score = |at: usize| predictions.0[at].score.unwrap_or_default();
        // Of equal scores the first ones stay.
        group.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap_or(Ordering::Equal));
        left_out.extend(group[MOST..].iter().copied());
    }
    let kept = predictions.0.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
    kept.map(|(_, one)| one.clone()).collect()
}

/// COCO writes -1 for figures without instances.
fn figure(value: f64) -> Option<f64> {
    (value >= 0.0).then_some(value)
}

/// Indices on the axes of hotcoco's arrays: IoU thresholds and areas.
const AT_50: std::ops::Range<usize> = 0..1;
const AT_75: std::ops::Range<usize> = 5..6;
const ALL: usize = 0;
const SMALL: usize = 1;
const MEDIUM: usize = 2;
const LARGE: usize = 3;

fn per_class(truth: &Truth, evaluation: &COCOeval, image_ids: &[u64]) -> Vec<ClassAccuracy> {
    let Some(arrays) = evaluation.accumulated() else { return Vec::new() };
    let shape = arrays.shape;
    let most = shape.m - 1;
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let known: Vec<f64> = values.filter(|value| *value >= 0.0).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let precision = |overlaps: std::ops::Range<usize>, k: usize, area: usize| {
        let indices = overlaps.flat_map(|t| (0..shape.r).map(move |r| (t, r)));
        mean(&mut indices.map(|(t, r)| arrays.precision[shape.precision_idx(t, r, k, area, most)]))
    };
    let mut instances = HashMap::<u64, usize>::new();
    for id in image_ids {
        for annotation in truth.annotations(*id).filter(|annotation| !annotation.iscrowd) {
            *instances.entry(annotation.category_id).or_default() += 1;
        }
    }
    let rows = arrays.cat_ids.iter().enumerate().filter_map(|(k, &category_id)| {
        Some(ClassAccuracy {
            category_id,
            name: truth.category_name(category_id).to_owned(),
            instances: *instances.get(&category_id)?,
            ap: precision(0..shape.t, k, ALL),
            ap50: precision(AT_50, k, ALL),
            ap75: precision(AT_75, k, ALL),
            ap_small: precision(0..shape.t, k, SMALL),
            ap_medium: precision(0..shape.t, k, MEDIUM),
            ap_large: precision(0..shape.t, k, LARGE),
            ar100: mean(&mut (0..shape.t).map(|t| arrays.recall[shape.recall_idx(t, k, ALL, most)])),
        })
    });
    let mut rows: Vec<ClassAccuracy> = rows.collect();
    let index = |row: &ClassAccuracy| truth.categories().iter().position(|c| c.id == row.category_id);
    rows.sort_by_key(index);
    rows
}
