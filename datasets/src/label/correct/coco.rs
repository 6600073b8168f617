//! Corrections of data sets that have `annotations.json` alone.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;

use ocelli::{BoundingBox, Error, ErrorKind, Mask, Result};
use serde::Deserialize;

use super::{
    CHANGED, CorrectedSet, Labels, NOT_LABELLED, Placer, SetImage, journal_path, of_gallery, refusal,
};
use crate::label::formats::yolo;
use crate::label::formats::yolo_line::{clipped, is_same};
use crate::label::images::{ImageFile, ImageSet};
use crate::label::record::{Instance, LabelledInstance, Record};
use crate::label::store::files::Owner;
use crate::label::store::journal::Journal;
use crate::label::store::layout::{COCO_FILE, whole_files};
use crate::label::store::saved::SavedLabels;
use crate::label::store::write::place_whole_files;

/// The part of `annotations.json` that says which images it has.
#[derive(Deserialize)]
struct ImageNames {
    images: Vec<ImageName>,
}

#[derive(Deserialize)]
struct ImageName {
    file_name: String,
}

impl Placer {
    /// Refuses files that another program changed: they cannot be written, and what the journal has is not what is in them.
    pub(super) fn check_coco(&self) -> Result<()> {
        for (file, format) in whole_files() {
            let path = self.root.join(file);
            if self.options.has(format) && path.is_file() && self.state.owner(file)? == Owner::Person {
                let why = "another program changed it, so it cannot be corrected here; correct it there, or move it away and \
                           label again to get the file that was written";
                return Err(of_gallery(ErrorKind::InvalidArgument, &path, why));
            }
        }
        Ok(())
    }

    /// The labels of an image as they are in `annotations.json`, or will be.
    fn record(&self, journal: &Journal, image: &SetImage) -> Result<Record> {
        let record = journal.labelled(&image.name)?.ok_or_else(|| refusal(image, NOT_LABELLED))?;
        Ok(self.state.with_saved(record, &self.classes))
    }

    pub(super) fn labels_in_coco(&self, set: &CorrectedSet, image: &SetImage) -> Result<Labels> {
        let (journal, _) = Journal::open_existing(&journal_path(&self.root))?;
        self.coco_labels(set, image, &self.record(&journal, image)?)
    }

    fn coco_labels(&self, set: &CorrectedSet, image: &SetImage, record: &Record) -> Result<Labels> {
        let instance = |(number, one): (usize, &Instance)| {
            let bbox = BoundingBox::from(one.bbox);
            let polygon = record.mask(one).and_then(|mask| yolo::polygon(&mask));
            LabelledInstance { line: Some(number), class: one.class, bbox, polygon, mask: None }
        };
        Ok(Labels {
            version: version_of(set, image, record)?,
            is_corrected: self.state.saved.contains_key(&record.name),
            instances: record.instances.iter().enumerate().map(instance).collect(),
            added: 0,
        })
    }

    /// The images that `annotations.json` has; `None` if there is no such file.
    fn images_in_coco(&self) -> Result<Option<HashSet<String>>> {
        let path = self.root.join(COCO_FILE);
        if path.exists() && !path.is_file() {
            return Ok(None);
        }
        let file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|e| Error::io("cannot read", &path, e))?,
        };
        let names: ImageNames = serde_json::from_reader(BufReader::new(file))
            .map_err(|e| Error::invalid_data(format!("cannot read {}: {e}", path.display())))?;
        Ok(Some(names.images.into_iter().map(|image| image.file_name).collect()))
    }

    /// Writes COCO's files again, with the images that they have.
    fn write_coco(&mut self, journal: &Journal, set: &CorrectedSet) -> Result<()> {
        // A run that has not ended yet writes the file.
        let Some(in_coco) = self.images_in_coco()? else { return Ok(()) };
        journal.splits().for_each(|(name, validation)| self.prefer(name, validation));
        let mut files = Vec::new();
        for image in set.images() {
            self.settle(&image.name)?;
            let record = journal.labelled(&image.name)?;
            if record.is_some_and(|record| in_coco.contains(&self.coco_name(&record))) {
                files.push(ImageFile { path: image.source.clone(), name: image.name.clone(), frame: None });
            }
        }
        place_whole_files(journal, &ImageSet::from_named(files), self).map(drop)
    }
}

impl CorrectedSet {
    /// `self` is the data set as it is now.
    pub(super) fn save_in_coco(
        &self,
        mut placer: Placer,
        image: &SetImage,
        version: &str,
        instances: &[LabelledInstance],
    ) -> Result<Labels> {
        placer.check_coco()?;
        let (journal, settings) = Journal::open_existing(&journal_path(&self.root))?;
        let record = placer.record(&journal, image)?;
        if version_of(self, image, &record)? != version {
            return Err(refusal(image, CHANGED));
        }
        let before: Vec<_> =
            record.instances.iter().map(|one| (one.class, BoundingBox::from(one.bbox))).collect();
        self.check(image, instances, &before)?;
        let has_masks = settings.get("masks").and_then(serde_json::Value::as_bool).unwrap_or(false)
            || record.instances.iter().any(|one| one.mask.is_some());
        let saved = SavedLabels {
            name: image.name.clone(),
            width: record.width,
            height: record.height,
            classes: placer.classes.all,
            instances: instances.iter().map(|one| changed(&record, one, has_masks)).collect::<Result<_>>()?,
            is_merged: false,
        };
        // The record comes first: after a stop, the next run writes the file from it.
        placer.state.save_labels(vec![saved])?;
        placer.note_checked(image);
        placer.write_coco(&journal, self)?;
        placer.coco_labels(self, image, &placer.record(&journal, image)?)
    }
}

fn version_of(set: &CorrectedSet, image: &SetImage, record: &Record) -> Result<String> {
    let text = serde_json::to_string(&(record.width, record.height, &record.instances));
    text.map(|text| set.version(image, &text)).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
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
