//! Average precision as COCO defines it, computed by `hotcoco`, whose figures are identical to those of pycocotools.

use std::collections::HashMap;
use std::ops::Range;

use hotcoco::params::IouType;
use hotcoco::types::Annotation;
use hotcoco::{AccumulatedEval, COCOeval};
use serde::Serialize;

use super::{Predictions, Truth};
use ocelli::{Error, Result};

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
/// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if a mask is needed and missing, or cannot be drawn because
/// the size of its image is unknown.
pub fn average_precision(
    truth: &Truth,
    predictions: &Predictions,
    image_ids: &[u64],
    overlap: Overlap,
) -> Result<Accuracy> {
    let invalid = |e: hotcoco::Error| Error::invalid_data(format!("average precision: {e}")).with_source(e);
    let mut found = best_of_each(predictions);
    let kind = match overlap {
        Overlap::Boxes => IouType::Bbox,
        Overlap::Masks => {
            if let Some(why) = &truth.unreadable {
                return Err(Error::invalid_data(format!("average precision of masks: {why}")));
            }
            if found.iter().any(|one| one.segmentation.is_none()) {
                let message = "average precision of masks: there are detections without a mask";
                return Err(Error::invalid_data(message));
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
    Ok(evaluation.accumulated().map(|arrays| figures(truth, arrays, image_ids)).unwrap_or_default())
}

/// Detections of a class in an image that count, as in COCO's evaluation.
const MOST: usize = 100;

/// The best detections of each class and image, in their order: the others do not count, but their overlaps would be computed.
fn best_of_each(predictions: &Predictions) -> Vec<Annotation> {
    let all = &predictions.0;
    let score = |at: usize| all[at].score.unwrap_or_default();
    let mut places: Vec<usize> = (0..all.len()).collect();
    // Of equal scores the first ones stay.
    places.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
    let mut counts: HashMap<(u64, u64), usize> = HashMap::new();
    places.retain(|&at| {
        let count = counts.entry((all[at].image_id, all[at].category_id)).or_default();
        *count += 1;
        *count <= MOST
    });
    places.sort_unstable();
    places.into_iter().map(|at| all[at].clone()).collect()
}

/// Indices on the axis of areas.
const ALL: usize = 0;
const SMALL: usize = 1;
const MEDIUM: usize = 2;
const LARGE: usize = 3;

impl Accuracy {
    /// From the names and instances of classes, each with its place among `all` of them; the mean precision of some classes, at
    /// some of the ten IoU thresholds and an area; and the mean recall of some classes, of an area with at most 1, 10 or 100
    /// detections; by index.
    pub(super) fn new(
        classes: impl Iterator<Item = (usize, ClassAccuracy)>,
        all: Range<usize>,
        precision: impl Fn(&Range<usize>, Range<usize>, usize) -> Option<f64>,
        recall: impl Fn(&Range<usize>, usize, usize) -> Option<f64>,
    ) -> Self {
        let precisions = |of: &Range<usize>| {
            [(0..10, ALL), (0..1, ALL), (5..6, ALL), (0..10, SMALL), (0..10, MEDIUM), (0..10, LARGE)]
                .map(|(levels, area)| precision(of, levels, area))
        };
        let with_figures = |(place, mut class): (usize, ClassAccuracy)| {
            let of = place..place + 1;
            [class.ap, class.ap50, class.ap75, class.ap_small, class.ap_medium, class.ap_large] =
                precisions(&of);
            class.ar100 = recall(&of, ALL, 2);
            class
        };
        let mut sum = Self { per_class: classes.map(with_figures).collect(), ..Self::default() };
        [sum.ap, sum.ap50, sum.ap75, sum.ap_small, sum.ap_medium, sum.ap_large] = precisions(&all);
        let of_most = [(ALL, 0), (ALL, 1), (ALL, 2), (SMALL, 2), (MEDIUM, 2), (LARGE, 2)];
        [sum.ar1, sum.ar10, sum.ar100, sum.ar_small, sum.ar_medium, sum.ar_large] =
            of_most.map(|(area, most)| recall(&all, area, most));
        sum
    }

    /// The figures of a table's row: AP, AP50, AP75, small, medium, large, AR1, AR10 and AR100.
    pub(super) fn row(&self) -> [Option<f64>; 9] {
        let Self { ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1, ar10, ar100, .. } = *self;
        [ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1, ar10, ar100]
    }
}

impl ClassAccuracy {
    /// The class of a category, without figures.
    pub(super) fn of(category_id: u64, name: &str, instances: usize) -> Self {
        Self { category_id, name: name.to_owned(), instances, ..Self::default() }
    }

    /// The figures of a table's row, as [`Accuracy::row`] has them.
    pub(super) fn row(&self) -> [Option<f64>; 9] {
        let Self { ap, ap50, ap75, ap_small, ap_medium, ap_large, ar100, .. } = *self;
        [ap, ap50, ap75, ap_small, ap_medium, ap_large, None, None, ar100]
    }
}

/// The mean of some values, if there are any.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn figures(truth: &Truth, arrays: &AccumulatedEval, image_ids: &[u64]) -> Accuracy {
    let shape = arrays.shape;
    // COCO writes -1 for what has no instances.
    let is_known = |value: &f64| *value >= 0.0;
    let precision = |classes: &Range<usize>, levels: Range<usize>, area: usize| {
        let places = levels.flat_map(|t| (0..shape.r).map(move |r| (t, r)));
        let places = places.flat_map(|(t, r)| classes.clone().map(move |k| (t, r, k)));
        let place = |(t, r, k)| arrays.precision[shape.precision_idx(t, r, k, area, shape.m - 1)];
        mean(places.map(place).filter(is_known))
    };
    let recall = |classes: &Range<usize>, area: usize, most: usize| {
        let places = (0..shape.t).flat_map(|t| classes.clone().map(move |k| (t, k)));
        mean(places.map(|(t, k)| arrays.recall[shape.recall_idx(t, k, area, most)]).filter(is_known))
    };
    let mut instances = HashMap::<u64, usize>::new();
    for id in image_ids {
        for annotation in truth.annotations(*id).filter(|annotation| !annotation.iscrowd) {
            *instances.entry(annotation.category_id).or_default() += 1;
        }
    }
    let classes = truth.categories().iter().filter_map(|category| {
        let (id, count) = (category.id, *instances.get(&category.id)?);
        let place = arrays.cat_ids.iter().position(|known| *known == id)?;
        Some((place, ClassAccuracy::of(id, &category.name, count)))
    });
    Accuracy::new(classes, 0..shape.k, precision, recall)
}

/// Blocks of images that are left out in turn.
const BLOCKS: usize = 20;
/// The 0.975 quantile of Student's t distribution with 19 degrees of freedom.
const QUANTILE: f64 = 2.093;

/// The 95 % confidence interval of the average precision of `second` minus that of `first`, paired: both saw the same images.
/// `None` with fewer than twenty images, or without instances in some of them.
///
/// Average precision is no mean over images, so the error is that of the delete-a-block jackknife (Shao and Tu, *The
/// Jackknife and Bootstrap*, 1995, section 2.3): a twentieth of the images is left out in turn.
///
/// # Errors
/// Those of [`average_precision`].
pub fn difference_interval(
    truth: &Truth,
    [first, second]: [&Predictions; 2],
    image_ids: &[u64],
    overlap: Overlap,
) -> Result<Option<[f64; 2]>> {
    if image_ids.len() < BLOCKS {
        return Ok(None);
    }
    let difference = |ids: &[u64]| -> Result<Option<f64>> {
        let ap = |found: &Predictions| {
            Ok(average_precision(truth, &found.clone().of_images(ids), ids, overlap)?.ap)
        };
        Ok(ap(second)?.zip(ap(first)?).map(|(second, first)| second - first))
    };
    let Some(whole) = difference(image_ids)? else { return Ok(None) };
    let mut partial = Vec::with_capacity(BLOCKS);
    for block in 0..BLOCKS {
        let rest = image_ids.iter().enumerate().filter(|(index, _)| index % BLOCKS != block);
        let Some(value) = difference(&rest.map(|(_, id)| *id).collect::<Vec<_>>())? else { return Ok(None) };
        partial.push(value);
    }
    let blocks = BLOCKS as f64;
    let mean = partial.iter().sum::<f64>() / blocks;
    let squares: f64 = partial.iter().map(|value| (value - mean).powi(2)).sum();
    let margin = QUANTILE * ((blocks - 1.0) / blocks * squares).sqrt();
    Ok(Some([whole - margin, whole + margin]))
}
