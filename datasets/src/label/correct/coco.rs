//! Corrections of data sets that have `annotations.json` alone.

use ocelli::{BoundingBox, Error, ErrorKind, Mask, Result};

use super::{CHANGED, CorrectedSet, Labels, NOT_LABELLED, SetImage, journal_path, of_gallery, refusal};
use crate::label::formats::yolo;
use crate::label::formats::yolo_line::{clipped, is_same};
use crate::label::store::{Book, Journal};
use crate::label::{ImageFile, Instance, LabelledInstance, Record};

/// Refuses files that another program changed.
pub(super) fn check(book: &Book) -> Result<()> {
    let Some(path) = book.changed_whole_file()? else { return Ok(()) };
    let why = "another program changed it, so it cannot be corrected here; correct it there, or move it away and label again \
               to get the file that was written";
    Err(of_gallery(ErrorKind::InvalidArgument, &path, why))
}

impl CorrectedSet {
    /// The record of an image and its labels as they are in `annotations.json`, or will be.
    pub(super) fn coco_labels(
        &self,
        book: &Book,
        journal: &Journal,
        image: &SetImage,
    ) -> Result<(Record, Labels)> {
        let found = book.in_coco(journal, &image.name)?;
        let (record, is_corrected) = found.ok_or_else(|| refusal(image, NOT_LABELLED))?;
        let instance = |(number, one): (usize, &Instance)| {
            let bbox = BoundingBox::from(one.bbox);
            let polygon = record.mask(one).and_then(|mask| yolo::polygon(&mask));
            LabelledInstance { line: Some(number), class: one.class, bbox, polygon, mask: None }
        };
        let instances = record.instances.iter().enumerate().map(instance).collect();
        let text = serde_json::to_string(&(record.width, record.height, &record.instances))
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        let labels = Labels { version: self.version(image, &text), is_corrected, instances, added: 0 };
        Ok((record, labels))
    }

    /// `self` is the data set as it is now.
    pub(super) fn save_in_coco(
        &self,
        mut book: Book,
        image: &SetImage,
        version: &str,
        instances: &[LabelledInstance],
    ) -> Result<Labels> {
        check(&book)?;
        let (journal, settings) = Journal::open_existing(&journal_path(&self.root))?;
        let (record, labels) = self.coco_labels(&book, &journal, image)?;
        if labels.version != version {
            return Err(refusal(image, CHANGED));
        }
        let before: Vec<_> = labels.instances.iter().map(|one| (one.class, one.bbox)).collect();
        self.check(image, instances, &before)?;
        let has_masks = settings.get("masks").and_then(serde_json::Value::as_bool).unwrap_or(false)
            || record.instances.iter().any(|one| one.mask.is_some());
        let instances =
            instances.iter().map(|one| changed(&record, one, has_masks)).collect::<Result<_>>()?;
        let images = self.images.iter().map(|image| ImageFile {
            path: image.source.clone(),
            name: image.name.clone(),
            frame: None,
        });
        book.save_in_coco(&record, instances, &journal, images)?;
        self.coco_labels(&book, &journal, image).map(|(_, labels)| labels)
    }
}

/// An instance as the person wants it: what was not changed keeps its digits, its mask and its score. A mask moves with its
/// box, that of a new box is a rectangle, and what a person drew is certain.
fn changed(record: &Record, wanted: &LabelledInstance, has_masks: bool) -> Result<Instance> {
    let size = (record.width, record.height);
    let bbox = clipped(&wanted.bbox, size).to_xyxy();
    let mask_of =
        |bitmap: Vec<u8>| Mask::from_bitmap(&bitmap, size.0, size.1).map(|mask| mask.counts().to_owned());
    let before = wanted.line.and_then(|line| record.instances.get(line));
    if let (Some(before), None) = (before, &wanted.mask)
        && is_same(&BoundingBox::from(before.bbox), &wanted.bbox)
    {
        let score = if before.class == wanted.class { before.score } else { 1.0 };
        return Ok(Instance { class: wanted.class, score, ..before.clone() });
    }
    let known = before.and_then(|before| Some((record.mask(before)?, before.bbox)));
    let mask = match (&wanted.mask, known) {
        (Some(mask), _) => Some(mask.counts().to_owned()),
        (None, Some((mask, from))) => Some(mask_of(moved(&mask.to_bitmap(), size, from, bbox))?),
        (None, None) => has_masks.then(|| mask_of(moved(&[], size, bbox, bbox))).transpose()?,
    };
    let track = before.and_then(|before| before.track);
    Ok(Instance { class: wanted.class, score: 1.0, bbox, mask, track })
}

/// The pixels whose middle is in a box; at least one.
fn pixels_in(start: f32, end: f32, side: u32) -> std::ops::Range<u32> {
    let first = ((start - 0.5).ceil().max(0.0) as u32).min(side - 1);
    first..((end - 0.5).ceil().max(0.0) as u32).clamp(first + 1, side)
}

/// A bitmap [y, x] whose part in the box `from` is scaled into the box `to`; without a bitmap, the whole box.
fn moved(bitmap: &[u8], (width, height): (u32, u32), from: [f32; 4], to: [f32; 4]) -> Vec<u8> {
    let mut out = vec![0; width as usize * height as usize];
    let source = |at: u32, axis: usize, side: u32| {
        let share = (at as f32 + 0.5 - to[axis]) / (to[axis + 2] - to[axis]).max(1e-6);
        let place = from[axis] + share * (from[axis + 2] - from[axis]);
        (place.max(0.0) as u32).min(side - 1) as usize
    };
    for y in pixels_in(to[1], to[3], height) {
        let row = source(y, 1, height) * width as usize;
        for x in pixels_in(to[0], to[2], width) {
            let value = bitmap.get(row + source(x, 0, width)).copied().unwrap_or(1);
            out[y as usize * width as usize + x as usize] = value;
        }
    }
    out
}

#[cfg(test)]
mod tests;
