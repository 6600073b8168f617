//! Writes the files of a data set from its journal.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::class_map::ClassMap;
use super::coco::CocoWriter;
use super::folder::OutputFolder;
use super::images::ImageSet;
use super::journal::Journal;
use super::placer::{Existing, Placer, resumable};
use super::record::Record;
use super::review::Review;
use super::settings::Format;
use super::yolo;
use ocelli::Result;
use ocelli::atomic_file::write_atomically;

/// The contents of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of labelled images.
    pub images: u64,
    /// Number of images that could not be labelled; `failed.csv` lists them.
    pub failed: u64,
    /// The classes, in the order of their ids.
    pub classes: Vec<ClassCount>,
    /// The files that were written, except for labels and images.
    pub files: Vec<PathBuf>,
}

/// How often a class occurs in a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// The name of the class.
    pub name: String,
    /// Number of its instances.
    pub instances: u64,
    /// Number of images with at least one instance.
    pub images: u64,
}

/// Writes every file of the data set. The files that exist were written from the first `written` bytes of the journal.
pub(super) fn write_data_set(
    folder: &OutputFolder,
    journal: &mut Journal,
    set: &ImageSet,
    mut placer: Placer,
    classes: &ClassMap,
    written: u64,
    check_cancelled: &mut dyn FnMut() -> Result<()>,
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
    let mut review = options.review.map(|images| Review::new(images, options.review_below));
    let mut failed = Vec::new();
    let in_set: HashSet<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
    let removed: Vec<String> =
        journal.names().filter(|name| !in_set.contains(name)).map(str::to_owned).collect();
    drop(in_set);
    removed.iter().try_for_each(|name| placer.remove(name, None))?;

    for file in set.files() {
        check_cancelled()?;
        let Some(entry) = journal.entry(&file.name).cloned() else { continue };
        let record = journal.read(&entry)?;
        let existing = if entry.offset() < written { Existing::Kept } else { Existing::Replaced };
        // `place` does not touch the files that this run wrote before.
        placer.place(&record, existing)?;
        match &record.error {
            Some(error) => {
                summary.failed += 1;
                failed.push((record.source.to_string_lossy().into_owned(), error.clone()));
            }
            None => {
                summary.images += 1;
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
        // The folders that data.yaml names have to exist, even if they are empty.
        let splits = if has_validation { &["train", "val"][..] } else { &["train"] };
        for split in splits {
            for kind in ["images", "labels"] {
                placer.create_folder_of(&root.join(format!("{below}{kind}/{split}/any")))?;
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
        summary.files.extend(review.write(root, journal, classes, check_cancelled)?);
    }
    Ok(summary)
}

fn count(classes: &mut [ClassCount], record: &Record) {
    let mut instances: HashMap<usize, u64> = HashMap::new();
    record.instances.iter().for_each(|instance| *instances.entry(instance.class).or_default() += 1);
    for (class, instances) in instances {
        classes[class].instances += instances;
        classes[class].images += 1;
    }
}

fn write_coco(
    file: &mut BufWriter<File>,
    journal: &mut Journal,
    set: &ImageSet,
    placer: &Placer,
    classes: &ClassMap,
) -> io::Result<()> {
    let mut coco = CocoWriter::begin(file, classes.names(), placer.options.polygons)?;
    // Two passes over the journal instead of all instances in memory.
    for pass in 0..2 {
        let mut id = 0;
        for file in set.files() {
            let Some(entry) = journal.entry(&file.name).filter(|entry| !entry.failed).cloned() else {
                continue;
            };
            let record = journal.read(&entry).map_err(io::Error::other)?;
            id += 1;
            match pass {
                0 => coco.image(id, &placer.coco_name(&record), &record)?,
                _ => coco.annotations(id, &record)?,
            }
        }
        if pass == 0 {
            coco.begin_annotations()?;
        }
    }
    coco.finish()
}

/// Writes a table, with quotes around the cells that need them.
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
