//! Corrections of data sets that have `annotations.json` alone.

use ocelli::{Error, ErrorKind, Result};

use super::{CHANGED, CorrectedSet, Labels, NOT_LABELLED, SetImage, journal_path, refusal};
use crate::label::formats::changed::changed;
use crate::label::formats::yolo;
use crate::label::store::{Book, Journal};
use crate::label::{ImageFile, Instance, LabelledInstance, Record};

/// The instances of a record, each with its place among them.
pub(super) fn instances_of(record: &Record) -> Vec<LabelledInstance> {
    let instance = |(number, one): (usize, &Instance)| {
        let polygon = record.mask(one).and_then(|mask| yolo::polygon(&mask));
        LabelledInstance { line: Some(number), class: one.class, bbox: one.bbox.into(), polygon, mask: None }
    };
    record.instances.iter().enumerate().map(instance).collect()
}

impl CorrectedSet {
    /// The record of an image and its labels as they are in `annotations.json`, or will be.
    pub(super) fn coco_labels(
        &self,
        book: &mut Book,
        journal: &Journal,
        image: &SetImage,
    ) -> Result<(Record, Labels)> {
        let record = book.corrected(journal, &image.name, &mut Vec::new())?;
        let record = record.ok_or_else(|| refusal(image, NOT_LABELLED))?;
        let (instances, is_corrected) = (instances_of(&record), book.is_saved(&image.name));
        let text = serde_json::to_string(&(record.width, record.height, &record.instances))
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        let labels = Labels { version: self.version(image, &text), is_corrected, instances, added: 0 };
        Ok((record, labels))
    }

    pub(super) fn image_files(&self) -> impl Iterator<Item = ImageFile> {
        let file = |image: &SetImage| ImageFile {
            path: image.source.clone(),
            name: image.name.clone(),
            frame: None,
        };
        self.images.iter().map(file)
    }

    /// `self` is the data set as it is now.
    pub(super) fn save_in_coco(
        &self,
        mut book: Book,
        image: &SetImage,
        version: &str,
        instances: &[LabelledInstance],
    ) -> Result<Labels> {
        let (journal, settings) = Journal::open_existing(&journal_path(&self.root))?;
        let (record, labels) = self.coco_labels(&mut book, &journal, image)?;
        if labels.version != version {
            return Err(refusal(image, CHANGED));
        }
        let before: Vec<_> = labels.instances.iter().map(|one| (one.class, one.bbox)).collect();
        self.check(image, instances, &before)?;
        let has_masks = settings.get("masks").and_then(serde_json::Value::as_bool).unwrap_or(false)
            || record.instances.iter().any(|one| one.mask.is_some());
        let instances = instances.iter().map(|one| changed(&record, one, has_masks)).collect();
        book.save_in_coco(&record, instances, &journal, self.image_files())?;
        self.coco_labels(&mut book, &journal, image).map(|(_, labels)| labels)
    }
}

#[cfg(test)]
mod tests;
