//! The labels of a data set in a person's hands: where those of an image are, whose they are, and how they are saved.

use std::path::Path;

use crate::label::store::placer::as_corrected;
use crate::label::store::write::place_whole_files;
use crate::label::store::{COCO_FILE, Event, Journal, Owner, Placer, SavedLabels, State, label_files};
use crate::label::{DataSetOptions, Format, ImageFile, ImageSet, Instance, Record, disk};
use ocelli::{Error, Result, classes::ClassMap};

/// A data set whose labels are looked up, or saved for a person if its state is open to write.
pub(in crate::label) struct Book {
    placer: Placer,
}

/// A label file of YOLO's.
pub(in crate::label) struct LabelFile {
    /// The path below the data set.
    pub file: String,
    pub format: Format,
    pub owner: Owner,
    /// Its text, followed by the lines that are proposed for it. A file that was removed has no labels.
    pub text: String,
    /// The number of lines that are proposed.
    pub added: usize,
}

impl Book {
    /// `splits` says which images are on record as for validation or not.
    pub fn new<'a>(
        state: State,
        options: &DataSetOptions,
        classes: &[String],
        splits: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Self {
        let classes = ClassMap::from_names(classes);
        let mut placer = Placer::new(state, options, &ImageSet::default(), &classes);
        splits.into_iter().for_each(|(name, validation)| placer.prefer(name, validation));
        Self { placer }
    }

    /// `true` if the labels are in `annotations.json` alone.
    pub fn is_coco(&self) -> bool {
        let options = &self.placer.options;
        options.yolo_folders().is_empty() && options.has(Format::Coco)
    }

    /// The label files of an image; the first is the one that is shown.
    pub fn label_files(&mut self, name: &str) -> Result<Vec<LabelFile>> {
        let placer = &mut self.placer;
        placer.corrections(name)?;
        let validation = placer.is_validation(name);
        let read = |path: &Path| {
            let text = disk::if_there(std::fs::read_to_string(path)).map(Option::unwrap_or_default);
            text.map_err(|e| Error::io("cannot read the labels", path, e))
        };
        let of_yolo = label_files(&placer.options, name, validation).into_iter();
        let of_yolo = of_yolo.filter(|(_, format)| *format != Format::Voc);
        let bound = |(file, format): (String, Format)| {
            let mut text = read(&placer.state.root.join(&file))?;
            let proposed = placer.proposal_for(&file).map_or(Ok(String::new()), |path| read(&path))?;
            if !proposed.is_empty() && !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let added = proposed.lines().filter(|line| !line.trim().is_empty()).count();
            Ok(LabelFile { owner: placer.state.owner(&file)?, text: text + &proposed, file, format, added })
        };
        of_yolo.map(bound).collect()
    }

    /// The files, of any format, in which a person changed the labels of an image.
    pub fn corrected_files(&mut self, name: &str) -> Result<Vec<String>> {
        let corrections = self.placer.corrections(name)?.into_iter();
        Ok(corrections.filter_map(|one| Some(one.label.rsplit_once(' ')?.0.to_owned())).collect())
    }

    /// The name of an image in `annotations.json`.
    pub fn coco_name(&self, record: &Record) -> String {
        self.placer.coco_name(record)
    }

    /// Writes the label files of an image for a person: all of them, or none if the disk is full. What was proposed for them is
    /// in them, or was refused.
    pub fn save(&mut self, name: &str, files: Vec<(String, Format, String)>) -> Result<()> {
        let placer = &mut self.placer;
        let proposals: Vec<_> = files.iter().filter_map(|(file, ..)| placer.proposal_for(file)).collect();
        let mut meant = Vec::with_capacity(files.len());
        let mut saved = placer.state.saved.get(name).cloned();
        if let Some(saved) = &mut saved {
            // As they are, the files are later than what is saved for COCO's files.
            let is_file =
                |label: &String| files.iter().any(|(file, ..)| label.starts_with(&format!("{file} ")));
            saved.older.retain(|label| !is_file(label));
        }
        for (file, format, text) in files {
            placer.create_folder_of(&placer.state.root.join(&file))?;
            meant.push((file, placer.meaning(Some(format)), text));
        }
        placer.state.write_for_person(meant)?;
        if let Some(saved) = saved {
            placer.state.append(Event::Saved(vec![saved]))?;
        }
        proposals.iter().for_each(|proposal| drop(disk::remove(proposal)));
        self.note_checked(name);
        Ok(())
    }

    /// Notes that the person saw the image that the labels are beside now: they are not those of an earlier one any more.
    fn note_checked(&mut self, name: &str) {
        let removed = self.placer.removed_labels(name);
        self.placer.state.change_image(name, |known| {
            known.outdated_labels.retain(|label| removed.contains(label));
        });
        // The labels are saved. If this cannot be written, runs go on to name the image.
        drop(self.placer.state.save_images());
    }

    /// The record that an image has in all files that a person did not correct, or will have; `None` if it is not labelled. Files
    /// that are not followed are added to `unclear`.
    pub fn corrected(
        &mut self,
        journal: &Journal,
        name: &str,
        unclear: &mut Vec<String>,
    ) -> Result<Option<Record>> {
        self.placer.corrections(name)?;
        Ok(journal.labelled(name)?.map(|record| as_corrected(&self.placer, record, unclear)))
    }

    /// `true` if a person saved the labels of an image in `annotations.json`.
    pub fn is_saved(&self, name: &str) -> bool {
        self.placer.state.saved.contains_key(name)
    }

    /// Saves what a person made of the instances of an image, and writes COCO's files again, with those of `images` that they
    /// have.
    pub fn save_in_coco(
        &mut self,
        record: &Record,
        instances: Vec<Instance>,
        journal: &Journal,
        images: impl Iterator<Item = ImageFile>,
    ) -> Result<()> {
        let (name, width, height) = (record.name.clone(), record.width, record.height);
        let classes = self.placer.classes.all;
        // The label files that were corrected before are on record before, too.
        let older = self.placer.labels_of_corrections(&name)?;
        let saved = SavedLabels { name, width, height, classes, instances, is_merged: false, older };
        journal.splits().for_each(|(name, validation)| self.placer.prefer(name, validation));
        self.placer.place_saved(vec![saved.clone()], journal)?;
        // The record comes first: after a stop, the next run writes COCO's files from it.
        self.placer.state.append(Event::Saved(vec![saved]))?;
        self.note_checked(&record.name);
        self.write_whole_files(journal, images)
    }

    /// Writes COCO's files again, with those of `images` that they have.
    pub fn write_whole_files(
        &mut self,
        journal: &Journal,
        images: impl Iterator<Item = ImageFile>,
    ) -> Result<()> {
        // A run that has not ended yet writes the file.
        if !self.placer.state.root.join(COCO_FILE).is_file() {
            return Ok(());
        }
        let mut files = Vec::new();
        for image in images {
            // The last run may have removed it with its source.
            if self.placer.state.images.get(&image.name).is_none_or(|known| !known.is_removed) {
                self.placer.corrections(&image.name)?;
                files.push(image);
            }
        }
        place_whole_files(journal, &ImageSet::from_named(files), &mut self.placer).map(drop)
    }
}
