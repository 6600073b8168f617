//! SA-Co: images with a text prompt each, annotated by one or several people, and COCO results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hotcoco::primitives::sim::bbox_iou_pair;
use hotcoco::types::Segmentation;
use serde::Deserialize;
use serde_json::Value;

use ocelli::{Error, ErrorKind, Mask, Result};

use super::cgf1::{Case, LEAST_SCORE};
use super::layout::{invalid, json, mismatch, wrong_entry};
use super::vis::{is_true, mask};
use super::{CgF1, VideoReport};

#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
    #[serde(default)]
    annotations: Vec<Record>,
    #[serde(default)]
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Category {
    id: u64,
}

#[derive(Deserialize)]
struct Image {
    id: u64,
    width: u32,
    height: u32,
    #[serde(default)]
    is_instance_exhaustive: Value,
}

#[derive(Deserialize)]
struct Record {
    image_id: u64,
    category_id: u64,
    score: Option<f64>,
    #[serde(default)]
    iscrowd: Value,
    bbox: Option<[f64; 4]>,
    segmentation: Option<Segmentation>,
}

/// An object or a prediction.
struct Instance {
    category: u64,
    bbox: Option<[f64; 4]>,
    mask: Option<Mask>,
}

/// The instances of each image.
type Instances = BTreeMap<u64, Vec<Instance>>;

/// Evaluates results by the annotations of one person, or by those of several, of which the best counts in each image.
pub(super) fn evaluate(truth: &[PathBuf], predictions: &Path) -> Result<VideoReport> {
    let files = truth.iter().map(|path| json::<File>(path)).collect::<Result<Vec<_>>>()?;
    let Some(first) = files.first() else {
        return Err(Error::invalid_argument("no ground truth"));
    };
    let incomplete: BTreeSet<u64> = files
        .iter()
        .flat_map(|file| &file.images)
        .filter(|image| !is_true(&image.is_instance_exhaustive))
        .map(|image| image.id)
        .collect();
    let wanted: BTreeSet<u64> =
        first.images.iter().map(|image| image.id).filter(|id| !incomplete.contains(id)).collect();
    if wanted.is_empty() {
        let why = "no image has \"is_instance_exhaustive\": there is nothing to compare with";
        return Err(invalid(&truth[0], why));
    }
    let sizes: BTreeMap<u64, (u32, u32)> =
        first.images.iter().map(|image| (image.id, (image.width, image.height))).collect();
    let categories: BTreeSet<u64> = first.categories.iter().map(|category| category.id).collect();
    let records: Vec<Record> = json(predictions)?;
    let has_masks = records.iter().all(|record| record.segmentation.is_some());
    let has_boxes = records.iter().all(|record| record.bbox.is_some() || record.segmentation.is_some());
    if !has_boxes {
        return Err(invalid(predictions, "there are results with neither bbox nor segmentation"));
    }
    if let Some(place) = records.iter().position(|record| !record.score.is_some_and(f64::is_finite)) {
        return Err(wrong_entry(ErrorKind::InvalidData, predictions, place, "it has no score"));
    }
    let counts = |one: &Record| one.score.is_some_and(|score| score >= LEAST_SCORE);
    let found = instances(predictions, records, counts, &sizes, &categories)?;
    let mut objects = Vec::new();
    let mut have_masks = has_masks;
    for (path, file) in truth.iter().zip(files) {
        let ids: BTreeSet<u64> = file.images.iter().map(|image| image.id).collect();
        if let Some(id) = wanted.difference(&ids).next() {
            return Err(mismatch(path, format!("it has no image {id}, which {} has", truth[0].display())));
        }
        have_masks &= file.annotations.iter().all(|record| record.segmentation.is_some());
        let counts = |one: &Record| !is_true(&one.iscrowd);
        objects.push(instances(path, file.annotations, counts, &sizes, &categories)?);
    }
    let figures = |overlap: fn(&Instance, &Instance) -> Result<f64>| -> Result<CgF1> {
        let cases =
            wanted.iter().map(|id| case(*id, &objects, &found, overlap)).collect::<Result<Vec<_>>>()?;
        Ok(CgF1::of(&cases))
    };
    let cgf1_bbox = Some(figures(|found, object| Ok(box_overlap(found, object)))?);
    let cgf1_segm = if have_masks { Some(figures(mask_overlap)?) } else { None };
    Ok(VideoReport { cgf1_bbox, cgf1_segm, ..VideoReport::default() })
}

/// The case of one image, with the annotations that agree most with the predictions.
fn case(
    id: u64,
    objects: &[Instances],
    found: &Instances,
    overlap: fn(&Instance, &Instance) -> Result<f64>,
) -> Result<Case> {
    let of = |instances: &'_ Instances| instances.get(&id).map_or(0, Vec::len);
    let mut cases = Vec::with_capacity(objects.len());
    for objects in objects {
        let mut overlaps = Vec::new();
        for one in found.get(&id).into_iter().flatten() {
            for object in objects.get(&id).into_iter().flatten() {
                overlaps.push(overlap(one, object)?);
            }
        }
        cases.push(Case::new(&overlaps, of(found), of(objects)));
    }
    Ok(Case::best(cases).expect("there is at least one file of ground truth"))
}

/// The instances of each image that count, in the order of `sam3`: by category, then by place in the file.
fn instances(
    path: &Path,
    records: Vec<Record>,
    counts: impl Fn(&Record) -> bool,
    sizes: &BTreeMap<u64, (u32, u32)>,
    categories: &BTreeSet<u64>,
) -> Result<Instances> {
    let mut instances = Instances::new();
    for (place, record) in records.into_iter().enumerate().filter(|(_, record)| counts(record)) {
        let wrong = |kind, why: String| wrong_entry(kind, path, place, &why);
        let unknown =
            |what: &str, id| wrong(ErrorKind::Mismatch, format!("the ground truth has no {what} {id}"));
        let size = sizes.get(&record.image_id);
        let &(width, height) = size.ok_or_else(|| unknown("image", record.image_id))?;
        if !categories.contains(&record.category_id) {
            return Err(unknown("category", record.category_id));
        }
        let mask = mask(record.segmentation.as_ref(), width, height)
            .map_err(|why| wrong(ErrorKind::InvalidData, format!("segmentation: {why}")))?;
        let of_mask = || {
            let bbox = mask.as_ref()?.bounding_box();
            Some(bbox.map_or([0.0; 4], |bbox| bbox.to_ltwh().map(f64::from)))
        };
        let (category, bbox) = (record.category_id, record.bbox.or_else(of_mask));
        instances.entry(record.image_id).or_default().push(Instance { category, bbox, mask });
    }
    instances.values_mut().for_each(|list| list.sort_by_key(|one| one.category));
    Ok(instances)
}

fn mask_overlap(found: &Instance, object: &Instance) -> Result<f64> {
    match (&found.mask, &object.mask) {
        (Some(found), Some(object)) => found.iou(object),
        _ => Ok(0.0),
    }
}

/// IoU of boxes, as pycocotools computes it.
fn box_overlap(found: &Instance, object: &Instance) -> f64 {
    let overlap = found.bbox.zip(object.bbox).map(|(a, b)| bbox_iou_pair(a, b, false));
    overlap.filter(|overlap| overlap.is_finite()).unwrap_or(0.0)
}
