//! SA-Co: images with a text prompt each, annotated by one or several people, and COCO results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hotcoco::primitives::sim::bbox_iou_pair;
use hotcoco::types::Annotation;
use serde::Deserialize;
use serde_json::Value;

use ocelli::{ErrorKind, Mask, Result};

use super::cgf1::{Case, LEAST_SCORE};
use super::layout::{invalid, json, mismatch, wrong_entry};
use super::vis::{is_true, mask};
use super::{CgF1, VideoReport};
use crate::eval::{Predictions, Truth};

/// The fields that COCO's files do not have.
#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
}

#[derive(Deserialize)]
struct Image {
    id: u64,
    #[serde(default)]
    is_instance_exhaustive: Value,
}

/// An object or a prediction.
struct Instance {
    bbox: Option<[f64; 4]>,
    mask: Option<Mask>,
}

/// The instances of each image.
type Instances = BTreeMap<u64, Vec<Instance>>;

/// Evaluates results by the annotations of one person, or by those of several, of which the best counts in each image.
pub(super) fn evaluate(truth_files: &[PathBuf], predictions: &Path) -> Result<VideoReport> {
    let images = |path: &PathBuf| json(path).map(|file: File| file.images);
    let of_files = truth_files.iter().map(images).collect::<Result<Vec<_>>>()?;
    let is_incomplete = |image: &&Image| !is_true(&image.is_instance_exhaustive);
    let incomplete: BTreeSet<u64> =
        of_files.iter().flatten().filter(is_incomplete).map(|image| image.id).collect();
    let ids = |images: &[Image]| images.iter().map(|image| image.id).collect::<BTreeSet<_>>();
    let wanted = &ids(&of_files[0]) - &incomplete;
    if wanted.is_empty() {
        let why = "no image has \"is_instance_exhaustive\": there is nothing to compare with";
        return Err(invalid(&truth_files[0], why));
    }
    let truths = truth_files.iter().map(|path| Truth::open(path)).collect::<Result<Vec<_>>>()?;
    let sizes = truths[0].images().iter().map(|image| (image.id, (image.width, image.height))).collect();
    let found = Predictions::open(predictions, &truths[0])?.0;
    let has_mask = |one: &Annotation| one.segmentation.is_some();
    let mut have_masks = found.iter().all(has_mask);
    let counts = |one: &Annotation| one.score.is_some_and(|score| score >= LEAST_SCORE);
    let found = instances(predictions, &found, counts, &sizes)?;
    let mut objects = Vec::with_capacity(truths.len());
    for ((path, images), truth) in truth_files.iter().zip(&of_files).zip(&truths) {
        if let Some(id) = wanted.difference(&ids(images)).next() {
            let first = truth_files[0].display();
            return Err(mismatch(path, format!("it has no image {id}, which {first} has")));
        }
        if let Some(why) = &truth.unreadable {
            return Err(invalid(path, why));
        }
        let annotations = &truth.coco.dataset.annotations;
        have_masks &= annotations.iter().all(has_mask);
        objects.push(instances(path, annotations, |one| !one.iscrowd, &sizes)?);
    }
    let figures = |overlap: fn(&Instance, &Instance) -> Result<f64>| -> Result<CgF1> {
        let cases =
            wanted.iter().map(|id| case(*id, &objects, &found, overlap)).collect::<Result<Vec<_>>>()?;
        Ok(CgF1::of(&cases))
    };
    // IoU of boxes, as pycocotools computes it.
    let of_boxes = |found: &Instance, object: &Instance| {
        let overlap = found.bbox.zip(object.bbox).map(|(a, b)| bbox_iou_pair(a, b, false));
        Ok(overlap.filter(|overlap| overlap.is_finite()).unwrap_or(0.0))
    };
    let of_masks = |found: &Instance, object: &Instance| {
        found.mask.as_ref().zip(object.mask.as_ref()).map_or(Ok(0.0), |(found, object)| found.iou(object))
    };
    let cgf1_bbox = Some(figures(of_boxes)?);
    let cgf1_segm = if have_masks { Some(figures(of_masks)?) } else { None };
    Ok(VideoReport { cgf1_bbox, cgf1_segm, ..VideoReport::default() })
}

/// The case of one image, with the annotations that agree most with the predictions.
fn case(
    id: u64,
    objects: &[Instances],
    found: &Instances,
    overlap: fn(&Instance, &Instance) -> Result<f64>,
) -> Result<Case> {
    let found = found.get(&id).map_or(&[][..], Vec::as_slice);
    let case = |objects: &Instances| {
        let objects = objects.get(&id).map_or(&[][..], Vec::as_slice);
        let overlaps = found.iter().flat_map(|one| objects.iter().map(move |object| overlap(one, object)));
        Ok(Case::new(&overlaps.collect::<Result<Vec<_>>>()?, found.len(), objects.len()))
    };
    let cases = objects.iter().map(case).collect::<Result<_>>()?;
    Ok(Case::best(cases).expect("there is at least one file of ground truth"))
}

/// The instances of each image that count, in the order of `sam3`: by category, then by place in the file.
fn instances(
    path: &Path,
    all: &[Annotation],
    counts: impl Fn(&Annotation) -> bool,
    sizes: &BTreeMap<u64, (u32, u32)>,
) -> Result<Instances> {
    let mut counted: Vec<_> = all.iter().enumerate().filter(|(_, one)| counts(one)).collect();
    counted.sort_by_key(|(_, one)| one.category_id);
    let mut instances = Instances::new();
    for (place, one) in counted {
        // What another annotator has in addition does not count.
        let Some(&(width, height)) = sizes.get(&one.image_id) else { continue };
        let mask = mask(one.segmentation.as_ref(), width, height).map_err(|why| {
            wrong_entry(ErrorKind::InvalidData, path, place, &format!("segmentation: {why}"))
        })?;
        let of_mask = || {
            let bbox = mask.as_ref()?.bounding_box();
            Some(bbox.map_or([0.0; 4], |bbox| bbox.to_ltwh().map(f64::from)))
        };
        let bbox = one.bbox.or_else(of_mask);
        instances.entry(one.image_id).or_default().push(Instance { bbox, mask });
    }
    Ok(instances)
}
