//! What is known about every image of a data set, across restarts: its name, its file, and the picture that its labels describe.
//!
//! An image is the file at a path. Its name does not say which image it is: two cameras have equal names. This is the one place
//! that decides whether a file that was found is an image of the data set, one that was moved, or another one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use ocelli::atomic_file::write_atomically;
use ocelli::image::has_unsupported_extension;
use ocelli::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::folder::STATE_FOLDER;
use super::images::{ImageFile, ImageSet, split_extension};
use super::record::{check_name, identity};
use super::source::{is_readable, read};
use super::stop::before_write;

/// The version of the format.
const FORMAT: u32 = 1;

/// An image of the data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownImage {
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
            self.identity = picture;
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
pub(super) struct KnownImages {
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
        before_write().map_err(|e| Error::io("cannot write", &self.path, e))?;
        let content = Content { ocelli_label_images: FORMAT, images: std::mem::take(&mut self.images) };
        let written = write_atomically(&self.path, |file| Ok(serde_json::to_writer(file, &content)?));
        self.images = content.images;
        self.is_changed = written.is_err();
        written
    }

    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
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
                let image = KnownImage {
                    source,
                    identity,
                    earlier: Vec::new(),
                    outdated_labels: Vec::new(),
                    is_removed: false,
                    is_left_out: false,
                };
                self.images.insert(file.name.clone(), image);
            }
        }
        self.is_changed = true;
    }

    /// Names the images that were found. One that is known by its path keeps its name, whatever its content is now. One that
    /// was moved does, too: the file has the same name, size and time, and if the file at the former path can be read, the
    /// same content. All other images are new, and those whose names are taken get a number, even if the image that had the
    /// name is gone: what a person made of its labels is not about them.
    pub fn name(&mut self, found: ImageSet) -> ImageSet {
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
            let now = identity(&file.path);
            let is_moved = |name: &&&String| {
                !used.contains(**name) && is_same_picture(&self.images[**name], &file.path, now)
            };
            let by_name = candidates.iter().find(|name| ***name == file.name).filter(is_moved);
            let Some(name) = by_name.or_else(|| candidates.iter().find(is_moved)) else { return true };
            file.name = (*name).clone();
            used.insert(file.name.clone());
            false
        });
        let key = |name: &str| split_extension(name).0.to_lowercase();
        let mut taken: HashSet<String> = self.images.keys().map(|name| key(name)).collect();
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
        for file in files.iter().filter(|file| !has_unsupported_extension(&file.path)) {
            if !self.images.contains_key(&file.name) {
                self.add(file, identity(&file.path));
            } else {
                self.add(file, (0, 0));
            }
        }
        ImageSet::from_named(files)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', std::path::MAIN_SEPARATOR]).next().unwrap_or(path)
}

/// Whether a file has the picture of an image that was elsewhere.
fn is_same_picture(known: &KnownImage, path: &Path, now: (u64, u64)) -> bool {
    let before = Path::new(&known.source);
    let has_same_content = || match (read(before), read(path)) {
        (Ok(before), Ok(now)) => before == now,
        _ => false,
    };
    known.identity == now && now != (0, 0) && (!is_readable(before) || has_same_content())
}
