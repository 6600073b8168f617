//! Labels that a person corrected in a data set of `ocelli label`, in place of those that COCO's file has.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use hotcoco::types::{Annotation, Category, Dataset, Image, Segmentation};
use ocelli::{Error, ErrorKind, Result};

use crate::label::{AllLabels, LabelledInstance, all_labels, data_set_around, is_changed};
use crate::table::some;

/// A box is the same if no edge is further away: YOLO's files have six decimals.
const SAME: f64 = 0.05;
/// Files that a message names.
const NAMED: usize = 3;

/// Takes the labels of the images whose label files a person corrected from these files, if `path` is COCO's file of a data
/// set of `ocelli label`. Returns what was done.
pub(super) fn correct(dataset: &mut Dataset, path: &Path) -> Result<Option<String>> {
    let is_in = |root: &PathBuf| {
        let folder = path.canonicalize().map(|path| path.parent().map(Path::to_owned));
        folder.is_ok_and(|folder| folder.is_some() && root.canonicalize().ok() == folder)
    };
    let Some(root) = data_set_around(path).filter(is_in) else { return Ok(None) };
    let Some(all) = all_labels(&root)? else { return Ok(None) };
    check_elsewhere(&all, path)?;
    let corrected: Vec<_> = all.images.iter().filter(|image| image.labels.is_corrected).collect();
    if corrected.is_empty() {
        return Ok(None);
    }
    let files: Vec<&str> = corrected.iter().map(|image| &*image.label_file).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_changed(&root, &name)? {
        let why = format!(
            "a person changed it, and label files as well ({}); evaluate against one of them: move {name} away, or name its copy \
             in another folder",
            some(&files, NAMED)
        );
        return Err(unreadable(ErrorKind::Mismatch, path, why));
    }
    let of_name = |name: &String| dataset.categories.iter().find(|one| one.name == *name).map(|one| one.id);
    let categories: Vec<u64> =
        (1..).zip(&all.classes).map(|(id, name)| of_name(name).unwrap_or(id)).collect();
    let ids: HashMap<&str, u64> = dataset.images.iter().map(|image| (&*image.file_name, image.id)).collect();
    let mut replaced = Vec::new();
    for image in &corrected {
        let Some(id) = ids.get(&*image.name).copied() else { continue };
        let before: Vec<Annotation> =
            dataset.annotations.extract_if(.., |annotation| annotation.image_id == id).collect();
        for instance in &image.labels.instances {
            let category_id = categories[instance.class];
            let own = annotation(instance, id, category_id);
            let is_same = |known: &&Annotation| {
                known.category_id == category_id
                    && known
                        .bbox
                        .zip(own.bbox)
                        .is_some_and(|(a, b)| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= SAME))
            };
            replaced.push(before.iter().find(is_same).cloned().unwrap_or(own));
        }
    }
    dataset.annotations.append(&mut replaced);
    number(dataset);
    let (path, count, files) = (path.display(), files.len(), some(&files, NAMED));
    Ok(Some(format!("{path}: the labels of {count} images are those that a person corrected in {files}")))
}

/// The data set as its label files are now.
pub(super) fn data_set(all: &AllLabels, root: &Path, path: &Path) -> Result<Dataset> {
    check_elsewhere(all, path)?;
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

/// Numbers the annotations from 1.
pub(super) fn number(dataset: &mut Dataset) {
    (1..).zip(&mut dataset.annotations).for_each(|(id, annotation)| annotation.id = id);
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
    let segmentation = polygon.map(|polygon| Segmentation::Polygon(vec![polygon]));
    let bbox = Some(instance.bbox.to_ltwh().map(f64::from));
    Annotation { image_id, category_id, bbox, segmentation, ..Annotation::default() }
}

fn check_elsewhere(all: &AllLabels, path: &Path) -> Result<()> {
    if all.elsewhere.is_empty() {
        return Ok(());
    }
    let files: Vec<&str> = all.elsewhere.iter().map(String::as_str).collect();
    let why = format!(
        "a person corrected labels in {}, which it does not follow; make the files of an image say the same, or correct one of them",
        some(&files, NAMED)
    );
    Err(unreadable(ErrorKind::Mismatch, path, why))
}
