//! Writes each image and its label file to their paths in the data set.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ocelli::atomic_file::write_atomically;
use ocelli::image::Image;
use ocelli::{Error, ErrorKind, Result};

use super::images::{ImageSet, split_extension};
use super::record::Record;
use super::settings::{DataSetOptions, ImageMode};
use super::yolo;

/// Writes images and label files.
pub(super) struct Placer {
    root: PathBuf,
    pub options: DataSetOptions,
    validation: HashSet<String>,
    folders: HashSet<PathBuf>,
}

/// Whether a file that exists may have been corrected by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// It is from an earlier run that finished: keep it.
    Kept,
    /// It is from this run: replace it.
    Replaced,
}

impl Placer {
    pub fn new(root: &Path, options: &DataSetOptions, set: &ImageSet) -> Self {
        let validation = set.validation(options.validation_share).into_iter().map(str::to_owned).collect();
        Self { root: root.to_owned(), options: options.clone(), validation, folders: HashSet::new() }
    }

    pub fn is_validation(&self, name: &str) -> bool {
        self.validation.contains(name)
    }

    /// Writes the files of an image. Files that are up to date are not touched.
    pub fn place(&mut self, record: &Record, existing: Existing) -> Result<()> {
        let validation = self.is_validation(&record.name);
        for (folder, format) in self.options.yolo_folders() {
            if record.error.is_none() {
                let path = self.root.join(format!("{folder}labels/{}", label_path(&record.name, validation)));
                self.write_label(&path, yolo::label_file(record, format), existing)?;
                self.place_image(folder, record, validation, existing)?;
            }
        }
        if self.options.yolo_folders().is_empty() && record.error.is_none() {
            self.place_image("", record, validation, existing)?;
        }
        self.remove(&record.name, if record.error.is_some() { None } else { Some(validation) })
    }

    fn write_label(&mut self, path: &Path, text: String, existing: Existing) -> Result<()> {
        match std::fs::read(path) {
            Ok(there) if there == text.as_bytes() => return Ok(()),
            // A power failure leaves an empty file.
            Ok(there) if existing == Existing::Kept && !there.is_empty() => return Ok(()),
            _ => {}
        }
        self.create_folder_of(path)?;
        write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(resumable)
    }

    fn place_image(
        &mut self,
        folder: &str,
        record: &Record,
        validation: bool,
        existing: Existing,
    ) -> Result<()> {
        if self.options.images == ImageMode::None {
            return Ok(());
        }
        let path = self.root.join(format!("{folder}images/{}", image_path(&record.name, validation)));
        let source = &record.source;
        let there = std::fs::symlink_metadata(&path).ok();
        let is_converted = is_converted(&record.name);
        let is_right = there.as_ref().is_some_and(|there| match (is_converted, self.options.images) {
            (true, _) => there.is_file() && there.len() > 0 && existing == Existing::Kept,
            (false, ImageMode::Link) => std::fs::read_link(&path).is_ok_and(|target| target == *source),
            (false, _) => there.is_file() && there.len() == record.identity.0 && existing == Existing::Kept,
        });
        if is_right {
            return Ok(());
        }
        self.create_folder_of(&path)?;
        if there.is_some() {
            std::fs::remove_file(&path).map_err(|e| Error::io("cannot replace", &path, e))?;
        }
        let placed = if is_converted {
            let image = Image::open(source)?.into_rgb_image();
            write_atomically(&path, |file| {
                let mut encoded = io::Cursor::new(Vec::new());
                image.write_to(&mut encoded, image::ImageFormat::Png).map_err(io::Error::other)?;
                file.write_all(encoded.get_ref())
            })
        } else if self.options.images == ImageMode::Link {
            link(source, &path).map_err(|e| {
                let message = format!(
                    "cannot create a symbolic link, {}: {e}; copy the images instead of linking them",
                    path.display()
                );
                Error::new(ErrorKind::Io, message).with_source(e)
            })
        } else {
            write_atomically(&path, |file| io::copy(&mut File::open(source)?, file).map(drop))
        };
        placed.map_err(resumable)
    }

    pub fn create_folder_of(&mut self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent().filter(|folder| !self.folders.contains(*folder)) else {
            return Ok(());
        };
        std::fs::create_dir_all(folder)
            .map_err(|e| resumable(Error::io("cannot create the folder", folder, e)))?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// Removes the files of an image that an earlier run left in the other split, or, if `kept_split` is `None`, in both.
    pub fn remove(&self, name: &str, kept_split: Option<bool>) -> Result<()> {
        let folders = self.options.yolo_folders().into_iter().map(|(folder, _)| folder);
        let has_images_only =
            self.options.yolo_folders().is_empty() && self.options.images != ImageMode::None;
        for folder in folders.chain(has_images_only.then_some("")) {
            for validation in [false, true].into_iter().filter(|split| Some(*split) != kept_split) {
                let image = format!("{folder}images/{}", image_path(name, validation));
                let label = format!("{folder}labels/{}", label_path(name, validation));
                for path in [image, label].map(|path| self.root.join(path)) {
                    match std::fs::remove_file(&path) {
                        Err(e) if e.kind() != io::ErrorKind::NotFound && path.exists() => {
                            return Err(Error::io("cannot remove", &path, e));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// The `file_name` in COCO's file: the path below `images/`. If images stay where they are, it is the name in the data
    /// set if the path ends in it, and the whole path otherwise.
    pub fn coco_name(&self, record: &Record) -> String {
        match self.options.images {
            ImageMode::None if record.source.ends_with(&record.name) => record.name.clone(),
            ImageMode::None => record.source.to_string_lossy().into_owned(),
            _ => image_path(&record.name, self.is_validation(&record.name)),
        }
    }
}

#[cfg(unix)]
fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(source, path)
}

#[cfg(windows)]
fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(source, path)
}

/// Adds to an I/O error that no work is lost.
pub(super) fn resumable(error: Error) -> Error {
    if error.kind() != ErrorKind::Io {
        return error;
    }
    let message = format!("{error}; finished images are kept, and running it again continues from there");
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// The folder of a split.
fn split(validation: bool) -> &'static str {
    if validation { "val" } else { "train" }
}

/// The path of an image below `images/`: its name, with an extension that trainers know.
fn image_path(name: &str, validation: bool) -> String {
    let (stem, extension) = split_extension(name);
    let extension = match extension.to_lowercase().as_str() {
        ".jpe" | ".jfif" => ".jpg",
        ".dib" => ".bmp",
        _ if is_converted(name) => ".png",
        _ => extension,
    };
    format!("{}/{stem}{extension}", split(validation))
}

/// The path of a label file below `labels/`.
fn label_path(name: &str, validation: bool) -> String {
    format!("{}/{}.txt", split(validation), split_extension(name).0)
}

/// Whether the data set gets a PNG of the image, because trainers do not read its format.
fn is_converted(name: &str) -> bool {
    let extension = split_extension(name).1.to_lowercase();
    !matches!(
        extension.as_str(),
        ".jpg" | ".jpeg" | ".jpe" | ".jfif" | ".png" | ".bmp" | ".dib" | ".tif" | ".tiff" | ".webp"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_get_extensions_that_trainers_know() {
        for (name, image, label) in [
            ("a/b.JPG", "train/a/b.JPG", "train/a/b.txt"),
            ("a.b.jfif", "train/a.b.jpg", "train/a.b.txt"),
            ("b.gif", "train/b.png", "train/b.txt"),
            ("b.ppm", "train/b.png", "train/b.txt"),
            ("no-extension", "train/no-extension.png", "train/no-extension.txt"),
            (".hidden", "train/.hidden.png", "train/.hidden.txt"),
        ] {
            assert_eq!((image_path(name, false), label_path(name, false)), (image.into(), label.into()));
        }
        assert_eq!(image_path("a.png", true), "val/a.png");
    }
}
