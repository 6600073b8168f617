//! The masks of an image: the folder of its PNGs is one label file.
//!
//! From the first mask on that a person changed, removed or added, all of them are the person's, and nothing is written to the
//! folder or removed from it: the number in a name would mean another instance. What a mask is about is known by its pixels.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ocelli::Result;

use super::corrected::texts;
use super::{Correction, Placer};
use crate::label::formats::mask_files::{class_of, decoded, mask_text};
use crate::label::formats::yolo_line::Line;
use crate::label::hash::hash_of_bytes;
use crate::label::store::files::aside_path;
use crate::label::store::journal::classes_at;
use crate::label::store::layout::masks_folder;
use crate::label::store::{ClassHashes, Meaning, State, journal_path, label_files, part_path};
use crate::label::{DataSetOptions, Format, ImageSet, Record};

impl State {
    /// The masks in a folder, by path: those on record, there or not, and those that a person added.
    pub fn masks_in(&self, folder: &str) -> BTreeSet<String> {
        let known = self.files.range(folder.to_owned()..).map(|(file, _)| file);
        let known = known.take_while(|file| file.starts_with(folder));
        let known =
            known.filter(|file| !file[folder.len()..].contains('/') && self.is_recorded(file)).cloned();
        let there = pngs(self.root.join(folder)).filter(|name| class_of(name).is_some());
        let there = there.map(|name| format!("{folder}{name}"));
        known.chain(there).collect()
    }

    /// Notes label files of an image that were moved to a split. If one was, others that are missing were removed before.
    pub fn see_moves(&mut self, options: &DataSetOptions, name: &str, validation: bool) -> Result<()> {
        let [files, others] = [validation, !validation].map(|split| label_files(options, name, split));
        let root = self.root.clone();
        let pairs = files.iter().zip(&others).map(|((file, _), (other, _))| (file, other));
        let missing = pairs.filter(|(_, other)| !root.join(other).exists());
        let is_moved = |file: &str, other: &str| root.join(file).exists() && self.is_recorded(other);
        if missing.clone().any(|(file, other)| is_moved(file, other)) {
            missing.clone().try_for_each(|(file, other)| self.note_moved(file, other, true))?;
        }
        Ok(())
    }

    /// Makes all masks of an image in a split the person's if one of them is, and returns this for each split. Those that were moved or
    /// copied from the other one are as they were there, and those that were added are on record with this meaning from now on.
    pub fn see_masks(&mut self, name: &str, meaning: Meaning) -> Result<[bool; 2]> {
        let [train, val] = [false, true].map(|split| masks_folder(name, split));
        for (folder, other) in [(&train, &val), (&val, &train)] {
            let mut former = self.masks_in(other);
            former.retain(|file| self.is_recorded(file));
            let are_moved = pngs(self.root.join(folder)).next().is_some()
                && !self.masks_in(folder).iter().any(|file| self.is_recorded(file))
                && !former.iter().any(|file| self.root.join(file).exists());
            for file in former {
                self.note_moved(&file.replacen(other, folder, 1), &file, are_moved)?;
            }
        }
        let [train, val] = [train, val].map(|folder| self.masks_in(&folder));
        Ok([self.see_together(&train, meaning)?, self.see_together(&val, meaning)?])
    }

    /// Notes whose all files are of these images and those that are known, before any are removed or classes mean something else: if it
    /// is new, or was written with other formats or classes.
    pub fn see_all(
        &mut self,
        images: &ImageSet,
        options: &DataSetOptions,
        classes: &ClassHashes,
        is_new: bool,
    ) -> Result<()> {
        let written =
            classes_at(&journal_path(&self.root)).map(|classes| ClassHashes::new(classes.names()).all);
        let before = self.contents.as_ref().map_or(options, |contents| &contents.options).clone();
        if !is_new && before.formats == options.formats && written == Some(classes.all) {
            return Ok(());
        }
        let named = images.files().iter().map(|file| file.name.clone());
        let names: BTreeSet<String> = self.images.keys().cloned().chain(named).collect();
        let meaning = Meaning { format: Some(Format::Masks), classes: written.unwrap_or(classes.all) };
        let has_masks = options.has(Format::Masks)
            || self.files.values().any(|one| one.meaning.format == meaning.format && one.hash.is_some());
        for name in names {
            for options in [options, &before] {
                self.see_moves(options, &name, false)?;
                self.see_moves(options, &name, true)?;
            }
            if has_masks {
                self.see_masks(&name, meaning)?;
            }
        }
        self.commit()
    }
}

/// The names of PNGs in a folder.
fn pngs(folder: PathBuf) -> impl Iterator<Item = String> {
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there = there.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    let names = there.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.') && name.to_lowercase().ends_with(".png"))
}

impl Placer {
    /// The corrections of an image's masks, each with its folder, whatever the name of the image is. What is missing in the other split is
    /// no correction.
    pub(super) fn corrected_masks(
        &mut self,
        name: &str,
        validation: bool,
    ) -> Result<Vec<(Correction, (String, Format))>> {
        let mut corrected = Vec::new();
        if !self.options.has(Format::Masks) {
            return Ok(corrected);
        }
        let seen = self.state.see_masks(name, self.meaning(Some(Format::Masks)))?;
        for split in [validation, !validation].into_iter().filter(|split| seen[usize::from(*split)]) {
            let folder = masks_folder(name, split);
            let is_there = split == validation || self.state.root.join(&folder).is_dir();
            // No other file has this hash.
            let (mut content, mut is_merged) = (String::from("masks\n"), true);
            for file in self.state.masks_in(&folder) {
                is_merged &= self.state.is_merged(&file)?;
                let hash = self.state.on_disk(&file)?;
                content.extend(hash.map(|hash| format!("{} {hash}\n", &file[folder.len()..])));
            }
            let label = format!("{folder} {}", hash_of_bytes(content));
            corrected.extend(is_there.then_some((Correction { label, is_merged }, (folder, Format::Masks))));
        }
        Ok(corrected)
    }

    /// The masks in the folder of an image, in the order of the record's instances.
    ///
    /// # Errors
    /// What follows the name of the folder in a message: why no file can follow it.
    pub(super) fn mask_lines(&self, folder: &str, record: &Record) -> Result<Vec<Line>, String> {
        if !self.state.root.join(folder).is_dir() {
            return Err(": it was removed".into());
        }
        let own = masks_folder(&record.name, self.is_validation(&record.name));
        if folder != own && !self.state.masks_in(&own).is_empty() {
            return Err(format!(": its image has masks in {own}"));
        }
        let mut found: Vec<_> = texts(self, record, Format::Masks).into_iter().map(Some).collect();
        let mut lines = Vec::new();
        let files = self.state.masks_in(folder).into_iter().map(|file| self.state.root.join(file));
        if files.flat_map(|path| [part_path(&path), aside_path(&path)]).any(|path| path.exists()) {
            return Err(": a run was stopped while it wrote to it; run it again".into());
        }
        let folder = self.state.root.join(folder);
        for name in pngs(folder.clone()).collect::<BTreeSet<_>>() {
            let bytes = std::fs::read(folder.join(&name)).map_err(|e| format!("{name}: {e}"))?;
            let class = class_of(&name).and_then(|class| self.file_names.iter().position(|own| own == class));
            let such = &self.file_names[0];
            let class = class
                .ok_or_else(|| format!("{name}: expected a class and a number, such as {such}-7.png"))?;
            let mask =
                decoded(&bytes, (record.width, record.height)).map_err(|why| format!("{name}: {why}"))?;
            let text = mask_text(class, &mask);
            let at =
                found.iter().position(|found| found.as_ref() == Some(&text)).inspect(|at| found[*at] = None);
            // Without pixels, there is no instance, unless it was found so.
            if at.is_some() || mask.area() > 0 {
                let bbox = mask.bounding_box().unwrap_or_default();
                let line =
                    Line { text, class, bbox, polygon: None, mask: Some(mask), score: None, track: None };
                lines.push((at.unwrap_or(usize::MAX), line));
            }
        }
        lines.sort_by_key(|(at, _)| *at);
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }
}
