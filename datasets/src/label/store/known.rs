//! What is known about every image of a data set, across restarts: its name, its file, and the picture that its labels describe.
//!
//! An image is the file at a path. Its name does not say which image it is: two cameras have equal names. This is the one place
//! that decides whether a file that was found is an image of the data set, one that was moved, or another one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use ocelli::image::has_unsupported_extension;
use ocelli::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::label::images::{ImageFile, ImageSet, split_extension};
use crate::label::record::{check_name, identity};
use crate::label::source::{content_of, is_readable, is_same};
use crate::label::store::disk;
use crate::label::store::folder::STATE_FOLDER;
use crate::label::store::journal::Journal;
use crate::label::store::placer::{COPIES, copy_name, is_copy_of};

/// The version of the format.
const FORMAT: u32 = 1;

/// An image of the data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownImage {
    /// The path of its file when it was last named.
    pub source: String,
    /// Size and time of the picture that its label files and its copy describe, as the last finished run left them.
    pub identity: (u64, u64),
    /// Size and time of earlier pictures: a copy of one of them was not edited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<(u64, u64)>,
    /// Its labels that were corrected for an earlier picture, as the placer names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outdated_labels: Vec<String>,
    /// A hash of the content of that picture; `None` until it was seen at its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Its name in a data set without a history, if the last run named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Whether its labels were removed because its file is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// Whether a restart with other classes leaves it out, and no run has said so yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_left_out: bool,
}

impl KnownImage {
    /// Notes that the picture has this size and time now.
    pub fn describe(&mut self, picture: (u64, u64)) {
        if self.identity != picture {
            if !self.earlier.contains(&self.identity) {
                self.earlier.push(self.identity);
            }
            (self.identity, self.content) = (picture, None);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Content {
    ocelli_label_images: u32,
    images: BTreeMap<String, KnownImage>,
}

/// The images by name.
#[derive(Debug, Default)]
pub(crate) struct KnownImages {
    path: PathBuf,
    images: BTreeMap<String, KnownImage>,
    is_changed: bool,
}

impl KnownImages {
    /// Reads what is known about the images of a data set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt.
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(STATE_FOLDER).join("images.json");
        let corrupt = |why: &str| {
            let message = format!(
                "corrupt record of images, {}: {why}; restore it, label into another output folder, or restart with \
                 discard_corrections",
                path.display()
            );
            Error::new(ErrorKind::InvalidData, message).about("discard_corrections")
        };
        let bytes = match std::fs::read(&path) {
            Err(e) if e.kind() == NotFound => return Ok(Self { path, ..Self::default() }),
            bytes => bytes.map_err(|e| Error::io("cannot read the record of images", &path, e))?,
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|e| corrupt(&e.to_string()))?;
        if content.ocelli_label_images != FORMAT {
            return Err(corrupt("it is of another version"));
        }
        for name in content.images.keys() {
            check_name(name).map_err(|why| corrupt(&why))?;
        }
        Ok(Self { path, images: content.images, is_changed: false })
    }

    /// A record of a data set about whose images nothing is known.
    pub fn empty(root: &Path) -> Self {
        Self { path: root.join(STATE_FOLDER).join("images.json"), ..Self::default() }
    }

    /// Writes what changed.
    pub fn save(&mut self) -> Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let content = Content { ocelli_label_images: FORMAT, images: std::mem::take(&mut self.images) };
        let written = disk::replace(&self.path, |file| Ok(serde_json::to_writer(file, &content)?));
        self.images = content.images;
        self.is_changed = written.is_err();
        written
    }

    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The names of the images.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.images.keys()
    }

    /// Whether it was noted which images the last run named: earlier versions did not.
    pub fn has_found(&self) -> bool {
        self.images.values().any(|image| image.found.is_some())
    }

    /// Notes the contents of images that are in the journal.
    pub fn note_contents(&mut self, journal: &Journal) {
        for (name, entry) in journal.entries().filter(|(_, entry)| entry.content.is_some()) {
            self.change(name, |image| {
                if image.content.is_none() && Some(image.identity) == entry.described {
                    image.content.clone_from(&entry.content);
                }
            });
        }
    }

    /// Notes the content of an image whose picture is at its source.
    pub fn note_content(&mut self, name: &str, path: &Path) {
        let is_there = |image: &KnownImage| image.identity != (0, 0) && identity(path) == image.identity;
        if self.images.get(name).is_some_and(|image| image.content.is_none() && is_there(image)) {
            let content = content_of(path);
            self.change(name, |image| image.content = content.filter(|_| is_there(image)));
        }
    }

    /// Ends the notes about images that a restart leaves out. Returns those that are not in the data set.
    pub fn take_left_out(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let mut noted = Vec::new();
        for (name, image) in &mut self.images {
            if std::mem::take(&mut image.is_left_out) {
                noted.push(name.clone());
            }
        }
        self.is_changed |= !noted.is_empty();
        noted.into_iter().filter(|name| !is_there(name)).collect()
    }

    pub fn get(&self, name: &str) -> Option<&KnownImage> {
        self.images.get(name)
    }

    /// Changes what is known about an image.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut KnownImage)) {
        let Some(image) = self.images.get_mut(name) else { return };
        let before = image.clone();
        change(image);
        self.is_changed |= *image != before;
    }

    /// Adds an image, or changes where it is.
    pub fn add(&mut self, file: &ImageFile, identity: (u64, u64)) {
        let source = file.path.to_string_lossy().into_owned();
        match self.images.get_mut(&file.name) {
            Some(known) if known.source == source => return,
            Some(known) => known.source = source,
            None => {
                let image = KnownImage { source, identity, ..KnownImage::default() };
                self.images.insert(file.name.clone(), image);
            }
        }
        self.is_changed = true;
    }

    /// Names the images that were found, which have the sizes and times of `identity`. One that is known by its path keeps its
    /// name, whatever its content is now. One that was moved does, too: the file has the same name, size, time and content. All
    /// other images are new, and those whose names are taken get a number, even if the image that had the name is gone: what a
    /// person made of its labels is not about them. The name of a picture that a person put into the data set is taken.
    pub fn name(&mut self, found: ImageSet, identity: impl Fn(&ImageFile) -> (u64, u64)) -> ImageSet {
        let mut files: Vec<ImageFile> = found.files().to_vec();
        let root = self.path.parent().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
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
                    && self.has_content_of(name, &file.path, &root)
            };
            let by_name = candidates.iter().find(|name| ***name == file.name).filter(is_moved);
            let Some(name) = by_name.or_else(|| candidates.iter().find(is_moved)) else { return true };
            file.name = (*name).clone();
            used.insert(file.name.clone());
            false
        });
        let key = |name: &str| split_extension(name).0.to_lowercase();
        let mut taken: HashSet<String> = self.images.keys().map(|name| key(name)).collect();
        if !new.is_empty() && !taken.is_empty() {
            for folder in COPIES {
                add_stems(&root.join(folder), "", &mut taken);
            }
        }
        for at in new {
            let file = &mut files[at];
            let own = file.name.clone();
            let (stem, extension) = split_extension(&own);
            let mut number = 1;
            while !taken.insert(key(&file.name)) {
                number += 1;
                file.name = format!("{stem}-{number}{extension}");
            }
        }
        let mut named: HashMap<&str, &str> = HashMap::new();
        for (file, found) in files.iter().zip(found.files()) {
            if !has_unsupported_extension(&file.path) {
                let is_known = self.images.contains_key(&file.name);
                self.add(file, if is_known { (0, 0) } else { identity(file) });
                named.insert(&file.name, &found.name);
            }
        }
        for (name, image) in &mut self.images {
            let found = named.get(name.as_str()).copied();
            if image.found.as_deref() != found {
                (image.found, self.is_changed) = (found.map(str::to_owned), true);
            }
        }
        ImageSet::from_named(files)
    }

    /// Whether a file of the size and time of an image that was elsewhere has its content, too: that of the former file, on
    /// record, or of the copies in the data set, whichever there is. If there is none, it counts as the same.
    fn has_content_of(&self, name: &str, path: &Path, root: &Path) -> bool {
        let image = &self.images[name];
        if is_readable(Path::new(&image.source)) {
            return is_same(Path::new(&image.source), path);
        }
        let Some(now) = content_of(path) else { return true };
        let is_copy = |path: &PathBuf| {
            let is_file = path.symlink_metadata().is_ok_and(|there| there.is_file());
            is_file && image.identity.0 == identity(path).0 && is_copy_of(path, name, image.identity)
        };
        let mut copies = COPIES.iter().map(|folder| root.join(folder).join(copy_name(name))).filter(is_copy);
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
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => add_stems(&entry.path(), &format!("{name}/"), stems),
            false => drop(stems.insert(split_extension(&name).0.to_lowercase())),
        }
    }
}
