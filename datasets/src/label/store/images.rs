//! Runs recognise the images of a data set across restarts by what is known about each: its name, its file, and the file that
//! its labels describe.
//!
//! An image is the file at a path. Its name does not say which image it is: two cameras have equal names. This is the one place
//! that decides whether a file that was found is an image of the data set, one that was moved, or another one.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ocelli::{Result, image::has_unsupported_extension};

use crate::label::images::{free_name, split_extension};
use crate::label::source::{content_of, is_readable, is_same};
use crate::label::store::Journal;
use crate::label::store::layout::{COPIES, copy_name};
use crate::label::store::placer::is_copy_of;
use crate::label::store::state::{Event, KnownImage, State};
use crate::label::{ImageFile, ImageSet, identity};

impl State {
    /// Writes what changed to the log.
    pub fn save_images(&mut self) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let changed =
            self.changed.iter().filter_map(|name| Some((name.clone(), self.images.get(name)?.clone())));
        self.append(Event::Images(changed.collect()))?;
        self.changed.clear();
        Ok(())
    }

    /// Notes which files the images in the journal had, and their contents. If there is no record of them yet, as in data sets of early versions, they
    /// are those of the journal.
    pub fn note_journal(&mut self, journal: &Journal) -> Result<()> {
        if self.images.is_empty() {
            for (name, entry) in &journal.entries {
                let file = ImageFile { path: journal.read(entry)?.source, name: name.clone(), frame: None };
                self.add_image(&file, entry.described.unwrap_or(entry.identity));
            }
        }
        for (name, entry) in &journal.entries {
            self.change_image(name, |image| {
                if image.content.is_none() && Some(image.identity) == entry.described {
                    image.content.clone_from(&entry.content);
                }
                for identity in entry.earlier.iter().chain(&entry.described) {
                    if *identity != image.identity && !image.earlier.contains(identity) {
                        image.earlier.push(*identity);
                    }
                }
            });
        }
        Ok(())
    }

    /// `true` if a copy has one of the files that an image had, or one of `others`.
    pub fn is_image_of<'a>(
        &'a self,
        copy: &Path,
        name: &str,
        others: impl IntoIterator<Item = &'a (u64, u64)>,
    ) -> bool {
        let known = self.images.get(name).into_iter();
        let known = known.flat_map(|known| known.earlier.iter().chain([&known.identity]));
        known.chain(others).any(|identity| is_copy_of(copy, name, *identity))
    }

    /// Notes the content of an image whose file is at its source.
    pub fn note_content(&mut self, name: &str, path: &Path) {
        let is_there = |image: &KnownImage| image.identity != (0, 0) && identity(path) == image.identity;
        if self.images.get(name).is_some_and(|image| image.content.is_none() && is_there(image)) {
            let content = content_of(path);
            self.change_image(name, |image| image.content = content.filter(|_| is_there(image)));
        }
    }

    /// Ends the notes about images that a restart leaves out. Returns those that are not in the data set.
    pub fn take_left_out(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let noted = self.images.iter_mut();
        let noted = noted.filter_map(|(name, image)| std::mem::take(&mut image.is_left_out).then_some(name));
        let noted: Vec<String> = noted.cloned().collect();
        self.changed.extend(noted.iter().cloned());
        noted.into_iter().filter(|name| !is_there(name)).collect()
    }

    /// Changes what is known about an image.
    pub fn change_image(&mut self, name: &str, change: impl FnOnce(&mut KnownImage)) {
        let Some(image) = self.images.get_mut(name) else { return };
        let before = image.clone();
        change(image);
        if *image != before {
            self.changed.insert(name.to_owned());
        }
    }

    /// Adds an image, or changes where it is.
    pub fn add_image(&mut self, file: &ImageFile, identity: (u64, u64)) {
        let source = file.path.to_string_lossy();
        let new = || KnownImage { identity, ..KnownImage::default() };
        let image = self.images.entry(file.name.clone()).or_insert_with(new);
        if image.source != source {
            image.source = source.into_owned();
            self.changed.insert(file.name.clone());
        }
    }

    /// Names the images that were found, which have the sizes and times of `identity`. One that is known by its path keeps its
    /// name, whatever its content is now. One that was moved does, too: the file has the same name, size, time and content. All
    /// other images are new, and those whose names are taken get a number, even if the image that had the name is gone: what a
    /// person made of its labels is not about them. The name of an image that a person put into the data set is taken.
    pub fn name_images(&mut self, found: ImageSet, identity: impl Fn(&ImageFile) -> (u64, u64)) -> ImageSet {
        let mut files: Vec<ImageFile> = found.files().to_vec();
        let by_source: HashMap<&str, &String> =
            self.images.iter().map(|(name, image)| (image.source.as_str(), name)).collect();
        let mut used: HashSet<String> = HashSet::new();
        let mut new: Vec<usize> = Vec::new();
        for (at, file) in files.iter_mut().enumerate() {
            // It gets no label file.
            if has_unsupported_extension(&file.path) {
                continue;
            }
            match by_source.get(&*file.path.to_string_lossy()) {
                Some(name) => {
                    file.name = (*name).clone();
                    used.insert(file.name.clone());
                }
                None => new.push(at),
            }
        }
        let mut by_file: HashMap<&str, Vec<&String>> = HashMap::new();
        for (name, image) in self.images.iter().filter(|(name, _)| !used.contains(*name)) {
            by_file.entry(file_name(&image.source)).or_default().push(name);
        }
        new.retain(|at| {
            let file = &mut files[*at];
            let path = file.path.to_string_lossy();
            let Some(candidates) = by_file.get(file_name(&path)) else { return true };
            let now = identity(file);
            let is_moved = |name: &&&String| {
                !used.contains(**name)
                    && self.images[**name].identity == now
                    && now != (0, 0)
                    && self.has_content_of(name, &file.path)
            };
            let by_name = candidates.iter().find(|name| ***name == file.name).filter(is_moved);
            let Some(name) = by_name.or_else(|| candidates.iter().find(is_moved)) else { return true };
            file.name = (*name).clone();
            used.insert(file.name.clone());
            false
        });
        let key = |name: &str| split_extension(name).0.to_lowercase();
        let mut taken: HashSet<String> = self.images.keys().map(|name| key(name)).collect();
        // Where no image has a name, a first run was stopped, or the names are lost: files on record are then of these images.
        if !new.is_empty() && (!taken.is_empty() || self.is_empty()) {
            for folder in COPIES {
                add_stems(&self.root.join(folder), "", &mut taken);
            }
        }
        for at in new {
            let file = &mut files[at];
            let own = file.name.clone();
            let (stem, extension) = split_extension(&own);
            file.name = free_name(stem, extension, |name| taken.insert(key(name)));
        }
        let mut named: HashMap<&str, &str> = HashMap::new();
        for (file, found) in files.iter().zip(found.files()) {
            if !has_unsupported_extension(&file.path) {
                let is_known = self.images.contains_key(&file.name);
                self.add_image(file, if is_known { (0, 0) } else { identity(file) });
                named.insert(&file.name, &found.name);
            }
        }
        for (name, image) in &mut self.images {
            let found = named.get(name.as_str()).copied();
            if image.found.as_deref() != found {
                image.found = found.map(str::to_owned);
                self.changed.insert(name.clone());
            }
        }
        ImageSet::from_named(files)
    }

    /// `true` if a file of the size and time of an image that was elsewhere has its content, too: that of the former file, on
    /// record, or of the copies in the data set, whichever there is. If there is none, it counts as the same.
    fn has_content_of(&self, name: &str, path: &Path) -> bool {
        let image = &self.images[name];
        if is_readable(Path::new(&image.source)) {
            return is_same(Path::new(&image.source), path);
        }
        let Some(now) = content_of(path) else { return true };
        let is_copy = |path: &PathBuf| {
            let is_file = path.symlink_metadata().is_ok_and(|there| there.is_file());
            is_file && image.identity.0 == identity(path).0 && is_copy_of(path, name, image.identity)
        };
        let mut copies =
            COPIES.iter().map(|folder| self.root.join(folder).join(copy_name(name))).filter(is_copy);
        match &image.content {
            Some(content) => *content == now,
            None => copies.all(|copy| content_of(&copy).as_ref() == Some(&now)),
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', std::path::MAIN_SEPARATOR]).next().unwrap_or(path)
}

/// Adds the names below a folder without extensions, in lower case.
fn add_stems(folder: &Path, above: &str, stems: &mut HashSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_stems(&entry.path(), &format!("{name}/"), stems);
        } else {
            stems.insert(split_extension(&name).0.to_lowercase());
        }
    }
}
