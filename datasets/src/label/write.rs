//! The files of a data set, written from its journal.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::class_map::ClassMap;
use super::coco::CocoWriter;
use super::folder::OutputFolder;
use super::journal::Journal;
use super::pictures::PictureSet;
use super::placement::{is_converted, label_path, picture_path};
use super::record::Record;
use super::review::Review;
use super::settings::{DataSetOptions, Format, PictureMode};
use super::yolo;
use ocelli::atomic_file::write_atomically;
use ocelli::image::Image;
use ocelli::{Error, ErrorKind, Result};

/// What a data set holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pictures that were labelled.
    pub pictures: u64,
    /// Pictures that could not be; `failed.csv` lists them.
    pub failed: u64,
    /// The classes in order.
    pub classes: Vec<ClassCount>,
    /// What to look at: the files beside labels and pictures.
    pub files: Vec<PathBuf>,
}

/// How often a class is in a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// Its name.
    pub name: String,
    /// Things of it.
    pub things: u64,
    /// Pictures with one of them at least.
    pub pictures: u64,
}

/// Puts pictures and label files in their places.
pub(super) struct Placer {
    root: PathBuf,
    options: DataSetOptions,
    validation: HashSet<String>,
    folders: HashSet<PathBuf>,
}

/// Whether a label file that is there already may have been corrected by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// It is of an earlier run that ended: it stays.
    Kept,
    /// It is of this run.
    Replaced,
}

impl Placer {
    pub fn new(root: &Path, options: &DataSetOptions, set: &PictureSet) -> Self {
        let validation = set.validation(options.validation_share).into_iter().map(str::to_owned).collect();
        Self { root: root.to_owned(), options: options.clone(), validation, folders: HashSet::new() }
    }

    pub fn is_validation(&self, name: &str) -> bool {
        self.validation.contains(name)
    }

    /// Writes a picture's files; those that are right already are not touched.
    pub fn place(&mut self, record: &Record, existing: Existing) -> Result<()> {
        let validation = self.is_validation(&record.name);
        for (folder, format) in self.options.yolo_folders() {
            if record.error.is_none() {
                let path = self.root.join(format!("{folder}labels/{}", label_path(&record.name, validation)));
                self.write_label(&path, yolo::label_file(record, format), existing)?;
                self.place_picture(folder, record, validation, existing)?;
            }
        }
        if self.options.yolo_folders().is_empty() && record.error.is_none() {
            self.place_picture("", record, validation, existing)?;
        }
        self.remove(&record.name, if record.error.is_some() { None } else { Some(validation) })
    }

    fn write_label(&mut self, path: &Path, text: String, existing: Existing) -> Result<()> {
        match std::fs::read(path) {
            Ok(there) if there == text.as_bytes() => return Ok(()),
            // Empty is what a power failure leaves.
            Ok(there) if existing == Existing::Kept && !there.is_empty() => return Ok(()),
            _ => {}
        }
        self.create_folder_of(path)?;
        write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(resumable)
    }

    fn place_picture(
        &mut self,
        folder: &str,
        record: &Record,
        validation: bool,
        existing: Existing,
    ) -> Result<()> {
        if self.options.pictures == PictureMode::None {
            return Ok(());
        }
        let path = self.root.join(format!("{folder}images/{}", picture_path(&record.name, validation)));
        let source = &record.source;
        let there = std::fs::symlink_metadata(&path).ok();
        let is_converted = is_converted(&record.name);
        let is_right = there.as_ref().is_some_and(|there| match (is_converted, self.options.pictures) {
            (true, _) => there.is_file() && there.len() > 0 && existing == Existing::Kept,
            (false, PictureMode::Link) => std::fs::read_link(&path).is_ok_and(|target| target == *source),
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
            let picture = Image::open(source)?.into_rgb_image();
            write_atomically(&path, |file| {
                let mut encoded = io::Cursor::new(Vec::new());
                picture.write_to(&mut encoded, image::ImageFormat::Png).map_err(io::Error::other)?;
                file.write_all(encoded.get_ref())
            })
        } else if self.options.pictures == PictureMode::Link {
            link(source, &path).map_err(|e| {
                let message = format!("cannot link, {}: {e}; use --copy", path.display());
                Error::new(ErrorKind::Io, message).with_source(e)
            })
        } else {
            write_atomically(&path, |file| io::copy(&mut File::open(source)?, file).map(drop))
        };
        placed.map_err(resumable)
    }

    fn create_folder_of(&mut self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent().filter(|folder| !self.folders.contains(*folder)) else {
            return Ok(());
        };
        std::fs::create_dir_all(folder)
            .map_err(|e| resumable(Error::io("cannot create the folder", folder, e)))?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// Removes what an earlier run left of a picture where it does not belong: in the other part of the data set, or,
    /// with no part, anywhere.
    pub fn remove(&self, name: &str, stays: Option<bool>) -> Result<()> {
        let folders = self.options.yolo_folders().into_iter().map(|(folder, _)| folder);
        let has_pictures_alone =
            self.options.yolo_folders().is_empty() && self.options.pictures != PictureMode::None;
        for folder in folders.chain(has_pictures_alone.then_some("")) {
            for validation in [false, true].into_iter().filter(|part| Some(*part) != stays) {
                let picture = format!("{folder}images/{}", picture_path(name, validation));
                let label = format!("{folder}labels/{}", label_path(name, validation));
                for path in [picture, label].map(|path| self.root.join(path)) {
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

    /// What COCO calls a picture: its path below `images/`, or, where pictures stay where they are, its name, where that
    /// leads to it from the folder that was named, else the whole path.
    fn coco_name(&self, record: &Record) -> String {
        match self.options.pictures {
            PictureMode::None if record.source.ends_with(&record.name) => record.name.clone(),
            PictureMode::None => record.source.to_string_lossy().into_owned(),
            _ => picture_path(&record.name, self.is_validation(&record.name)),
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

/// Says of an error of writing that it costs nothing.
fn resumable(error: Error) -> Error {
    if error.kind() != ErrorKind::Io {
        return error;
    }
    let message = format!("{error}; nothing that was finished is lost, the same command goes on from there");
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// Writes every file of the data set. `written` bytes of the journal went into the files that are there.
pub(super) fn write_data_set(
    folder: &OutputFolder,
    journal: &mut Journal,
    set: &PictureSet,
    mut placer: Placer,
    classes: &ClassMap,
    written: u64,
    interrupted: &mut dyn FnMut() -> Result<()>,
) -> Result<Summary> {
    let options = placer.options.clone();
    let root = folder.root();
    let mut summary = Summary {
        classes: classes
            .names()
            .map(|name| ClassCount { name: name.into(), ..ClassCount::default() })
            .collect(),
        ..Summary::default()
    };
    let mut review = options.review.map(|pictures| Review::new(pictures, options.review_below));
    let mut failed = Vec::new();
    let in_set: HashSet<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
    let gone: Vec<String> =
        journal.names().filter(|name| !in_set.contains(name)).map(str::to_owned).collect();
    drop(in_set);
    gone.iter().try_for_each(|name| placer.remove(name, None))?;

    for file in set.files() {
        interrupted()?;
        let Some(entry) = journal.entry(&file.name).cloned() else { continue };
        let record = journal.read(&entry)?;
        let existing = if entry.offset() < written { Existing::Kept } else { Existing::Replaced };
        // Files that this run wrote as it went are right already, which `place` sees.
        placer.place(&record, existing)?;
        match &record.error {
            Some(error) => {
                summary.failed += 1;
                failed.push((record.source.to_string_lossy().into_owned(), error.clone()));
            }
            None => {
                summary.pictures += 1;
                count(&mut summary.classes, &record);
                if let Some(review) = &mut review {
                    review.consider(&record);
                }
            }
        }
    }
    for (below, _) in options.yolo_folders() {
        let has_validation = set.files().iter().any(|file| {
            placer.is_validation(&file.name) && journal.entry(&file.name).is_some_and(|entry| !entry.failed)
        });
        let texts = [
            ("classes.txt", yolo::classes_file(classes.names())),
            ("data.yaml", yolo::data_file(classes.names(), has_validation)),
        ];
        // Folders that a trainer is sent to have to be there, with no picture in them as well.
        let parts = if has_validation { &["train", "val"][..] } else { &["train"] };
        for part in parts {
            for kind in ["images", "labels"] {
                placer.create_folder_of(&root.join(format!("{below}{kind}/{part}/any")))?;
            }
        }
        for (name, text) in texts {
            let path = root.join(format!("{below}{name}"));
            write_atomically(&path, |file| file.write_all(text.as_bytes())).map_err(resumable)?;
            summary.files.push(path);
        }
    }
    if options.has(Format::Coco) {
        let path = root.join("annotations.json");
        let write = |file: &mut BufWriter<File>| write_coco(file, journal, set, &placer, classes);
        write_atomically(&path, write).map_err(resumable)?;
        summary.files.push(path);
    }
    let path = root.join("failed.csv");
    if failed.is_empty() {
        drop(std::fs::remove_file(&path));
    } else {
        write_csv(&path, "file,error", failed.iter().map(|(file, error)| vec![file.clone(), error.clone()]))?;
        summary.files.push(path);
    }
    if let Some(review) = review {
        summary.files.extend(review.write(root, journal, classes, interrupted)?);
    }
    Ok(summary)
}

fn count(classes: &mut [ClassCount], record: &Record) {
    let mut things: HashMap<usize, u64> = HashMap::new();
    record.things.iter().for_each(|thing| *things.entry(thing.class).or_default() += 1);
    for (class, things) in things {
        classes[class].things += things;
        classes[class].pictures += 1;
    }
}

fn write_coco(
    file: &mut BufWriter<File>,
    journal: &mut Journal,
    set: &PictureSet,
    placer: &Placer,
    classes: &ClassMap,
) -> io::Result<()> {
    let mut coco = CocoWriter::begin(file, classes.names(), placer.options.polygons)?;
    // Twice through the journal instead of all things in memory.
    for pass in 0..2 {
        let mut id = 0;
        for file in set.files() {
            let Some(entry) = journal.entry(&file.name).filter(|entry| !entry.failed).cloned() else {
                continue;
            };
            let record = journal.read(&entry).map_err(io::Error::other)?;
            id += 1;
            match pass {
                0 => coco.picture(id, &placer.coco_name(&record), &record)?,
                _ => coco.things(id, &record)?,
            }
        }
        if pass == 0 {
            coco.begin_things()?;
        }
    }
    coco.finish()
}

/// Writes a table whose cells are quoted where they have to be.
pub(super) fn write_csv(path: &Path, header: &str, rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    write_atomically(path, |file| {
        writeln!(file, "{header}")?;
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            writeln!(file, "{}", cells.join(","))?;
        }
        Ok(())
    })
    .map_err(resumable)
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
