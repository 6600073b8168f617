//! Labels that a person corrected in a data set of `ocelli label`, in place of those that COCO's file has.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use hotcoco::types::{Annotation, Category, Dataset, Image, Segmentation};
use ocelli::{Error, ErrorKind, Mask, Result};
use serde_json::json;

use super::annotations;
use crate::label::{
    AllLabels, ImageLabels, LabelledInstance, all_labels, data_set_around, images_of, segmentation,
};
use crate::table::some;

/// A box is the same if no edge is further away: YOLO's files have six decimals.
const SAME: f64 = 0.05;
/// Files that a message names.
const NAMED: usize = 3;

/// Takes the labels of the images that a person corrected in other files from these, if `path` is COCO's file of a data set of
/// `ocelli label`. Returns what was done.
pub(super) fn correct(dataset: &mut Dataset, path: &Path) -> Result<Option<String>> {
    let is_in = |root: &PathBuf| {
        let folder = path.canonicalize().map(|path| path.parent().map(Path::to_owned));
        folder.is_ok_and(|folder| folder.is_some() && root.canonicalize().ok() == folder)
    };
    let Some(root) = data_set_around(path).filter(is_in) else { return Ok(None) };
    let Some(mut all) = all_labels(&root)? else { return Ok(None) };
    check_elsewhere(&mut all, path)?;
    let corrected: Vec<_> = all.images.iter().filter(|image| image.labels.is_corrected).collect();
    if corrected.is_empty() {
        return Ok(None);
    }
    let (found, _) = images_of(dataset.images.iter(), &all.names, false)
        .map_err(|why| unreadable(ErrorKind::Mismatch, path, why))?;
    let named = all.names.iter().zip(found).filter_map(|((name, _), image)| Some((name.as_str(), image?.id)));
    let ids: HashMap<&str, u64> = named.collect();
    let mut categories = Vec::new();
    for name in &all.classes {
        let known = dataset.categories.iter().find(|one| one.name == *name).map(|one| one.id);
        let free = || dataset.categories.iter().map(|one| one.id).max().unwrap_or_default() + 1;
        let id = known.unwrap_or_else(free);
        if known.is_none() {
            dataset.categories.push(category(id, name.clone()));
        }
        categories.push(id);
    }
    let (mut replaced, mut files) = (Vec::new(), Vec::new());
    let corrected: HashMap<u64, &ImageLabels> =
        corrected.into_iter().filter_map(|image| Some((*ids.get(&*image.set_name)?, image))).collect();
    let mut former: BTreeMap<u64, Vec<Annotation>> = corrected.keys().map(|id| (*id, Vec::new())).collect();
    for one in dataset.annotations.extract_if(.., |one| corrected.contains_key(&one.image_id)) {
        former.entry(one.image_id).or_default().push(one);
    }
    for (id, mut before) in former {
        let image = corrected[&id];
        let mut is_other = before.len() != image.labels.instances.len();
        for instance in &image.labels.instances {
            let category_id = categories[instance.class];
            let own = annotation(instance, id, category_id);
            let is_same = |known: &Annotation| {
                let edges = known.bbox.zip(own.bbox);
                known.category_id == category_id
                    && edges.is_some_and(|(a, b)| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= SAME))
            };
            let has_it = |known: &Annotation| instance.mask.as_ref().is_none_or(|mask| has_mask(known, mask));
            let exact = before.iter().position(|known| is_same(known) && has_it(known));
            is_other |= exact.is_none();
            let at = exact.or_else(|| before.iter().position(is_same));
            let known = at.map(|at| before.swap_remove(at));
            replaced.push(match known {
                // A person changed its mask alone, or the file has none.
                Some(known)
                    if instance.mask.is_some() && (exact.is_none() || known.segmentation.is_none()) =>
                {
                    Annotation { segmentation: own.segmentation, area: own.area, ..known }
                }
                known => known.unwrap_or(own),
            });
        }
        files.extend(is_other.then_some(&*image.label_file));
    }
    dataset.annotations.append(&mut replaced);
    annotations::number_annotations(dataset);
    let (path, count) = (path.display(), files.len());
    let note = || {
        let files = some(&files, NAMED);
        format!("{path}: the labels of {count} images are those that a person corrected in {files}")
    };
    Ok((count > 0).then(note))
}

/// `true` if an annotation has this mask, by its pixels or in the outline that is written for it, or none.
fn has_mask(known: &Annotation, mask: &Mask) -> bool {
    let Some(own) = &known.segmentation else { return true };
    let rle = own.to_rle(mask.height(), mask.width());
    let pixels = rle.ok().and_then(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h).ok());
    pixels.as_ref() == Some(mask)
        || matches!(own, Segmentation::Polygon(rings) if json!(rings) == segmentation(mask, true))
}

/// The data set as its label files are now.
pub(super) fn data_set(mut all: AllLabels, root: &Path, path: &Path) -> Result<Dataset> {
    check_elsewhere(&mut all, path)?;
    if all.has_boxes {
        // Those of images whose other files were corrected.
        all.images.iter_mut().flat_map(|image| &mut image.labels.instances).for_each(|one| one.mask = None);
    }
    let mut dataset = Dataset {
        categories: (0..).zip(&all.classes).map(|(id, name)| category(id, name.clone())).collect(),
        ..Dataset::default()
    };
    for (id, image) in (1..).zip(&all.images) {
        let file_name = image.path.strip_prefix(root).unwrap_or(&image.path).to_string_lossy().into_owned();
        dataset.images.push(self::image(id, file_name, image.size));
        let instances = image.labels.instances.iter();
        dataset.annotations.extend(instances.map(|instance| annotation(instance, id, instance.class as u64)));
    }
    Ok(dataset)
}

/// The error for annotations that cannot be read.
pub(super) fn unreadable(kind: ErrorKind, path: &Path, why: impl fmt::Display) -> Error {
    Error::new(kind, format!("cannot read the annotations, {}: {why}", path.display()))
}

pub(super) fn image(id: u64, file_name: String, (width, height): (u32, u32)) -> Image {
    Image { id, file_name, width, height, ..Image::default() }
}

pub(super) fn category(id: u64, name: String) -> Category {
    Category { id, name, ..Category::default() }
}

/// The instance of a label file.
pub(super) fn annotation(instance: &LabelledInstance, image_id: u64, category_id: u64) -> Annotation {
    let polygon = instance.polygon.as_ref();
    let polygon = polygon.map(|points| points.as_flattened().iter().map(|value| f64::from(*value)).collect());
    let polygon = polygon.map(|polygon| Segmentation::Polygon(vec![polygon]));
    let segmentation = instance.mask.as_ref().map(annotations::run_lengths).or(polygon);
    let area = instance.mask.as_ref().map(|mask| mask.area() as f64);
    let bbox = Some(instance.bbox.to_ltwh().map(f64::from));
    Annotation { image_id, category_id, bbox, area, segmentation, ..Annotation::default() }
}

fn check_elsewhere(all: &mut AllLabels, path: &Path) -> Result<()> {
    if all.elsewhere.is_empty() {
        return all.unread.take().map_or(Ok(()), Err);
    }
    let files: Vec<&str> = all.elsewhere.iter().map(String::as_str).collect();
    let why = format!(
        "a person corrected labels in {}, which it does not follow; make the files of an image say the same, or correct one of them",
        some(&files, NAMED)
    );
    Err(unreadable(ErrorKind::Mismatch, path, why))
}
