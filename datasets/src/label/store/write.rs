//! Writes the files of a data set from its journal.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::label::formats::coco::CocoWriter;
use crate::label::formats::tracks::Videos;
use crate::label::formats::yolo;
use crate::label::formats::youtube_vis::write_youtube_vis;
use crate::label::images::split_extension;
use crate::label::review::{Review, write_csv};
use crate::label::store::placer::{as_corrected, is_same_label};
use crate::label::store::{Contents, DataSet, Entry, Journal, Placer, WHOLE_FILES};
use crate::label::{CheckCancelled, Format, ImageFile, ImageSet, Record, disk, identity};
use ocelli::{Error, ErrorKind, Result};

/// The contents of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of labelled images.
    pub images: u64,
    /// Number of images that could not be labelled; `failed.csv` lists them.
    pub failed: u64,
    /// The images whose labels a person corrected. `classes`, the review pages and all files that the person did not
    /// correct have them, and not what was found.
    pub corrected: Vec<String>,
    /// The classes, in the order of their ids.
    pub classes: Vec<ClassCount>,
    /// The files that were written, except for labels and images.
    pub files: Vec<PathBuf>,
    /// The images that were labelled earlier and are not among the images any more. Their label files and copies stay.
    pub kept: Vec<String>,
    /// The images that were removed from the data set, with their labels, because their files are gone.
    pub removed: Vec<String>,
    /// The images that a restart with other classes left out, with their labels, because they are not among the images or
    /// cannot be read.
    pub left_out: Vec<String>,
    /// The images with corrected labels whose file was replaced since they were corrected.
    pub outdated: Vec<String>,
    /// The images whose file in the data set was edited there. It stays, and so do their labels.
    pub edited: Vec<String>,
    /// The images that were replaced after they were labelled: by another program meanwhile, or, in a merge, since their
    /// shard was labelled. The next run labels them again.
    pub changed: Vec<String>,
    /// The files that were removed because their formats are not named any more.
    pub dropped: Vec<String>,
    /// What other files and tables do not follow, with file and reason: lines of corrected label files that are not labels, and
    /// files with other labels than the one that is followed.
    pub unclear: Vec<String>,
    /// Files with the instances of classes that were added after label files were corrected, which do not have them.
    pub added: Vec<PathBuf>,
}

/// The number of occurrences of a class in a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClassCount {
    /// The name of the class.
    pub name: String,
    /// Number of its instances.
    pub instances: u64,
    /// Number of images with at least one instance.
    pub images: u64,
}

impl DataSet {
    /// Writes what waits to be written, so that finished images are complete after an error, too.
    pub fn stopped(&mut self) -> Result<()> {
        // What is done can be trained on.
        if !self.placer.state.is_recorded("data.yaml") {
            place_class_files(&mut self.placer, &self.journal, &self.set)?;
        }
        self.placer.state.commit()
    }

    /// Writes every file from the journal. An error of `check_cancelled`, which is called for each image, ends it.
    pub fn finish(mut self, check_cancelled: &mut CheckCancelled<'_>) -> Result<Summary> {
        let summary = Summary { dropped: std::mem::take(&mut self.dropped), ..self.write(check_cancelled)? };
        let contents = Contents { written: self.journal.log.length, ..self.contents };
        self.placer.state.set_contents(Some(contents))?;
        // The last write: what a stopped run did not say, the next one says.
        self.placer.state.save_images()?;
        Ok(summary)
    }

    /// Writes every file of the data set, except for those that the person changed.
    fn write(&mut self, check_cancelled: &mut CheckCancelled<'_>) -> Result<Summary> {
        let classes = self.placer.class_names();
        let classes = classes.map(|name| ClassCount { name: name.into(), ..ClassCount::default() }).collect();
        let mut summary = Summary { classes, ..Summary::default() };
        let (pages, review_below) = (self.placer.options.review, self.placer.options.review_below);
        let mut review = pages.map(|images| Review::new(images, review_below));
        self.placer.state.commit()?;
        self.keep_others(&mut summary, check_cancelled)?;
        let (journal, state) = (&self.journal, &mut self.placer.state);
        summary.left_out = state.take_left_out(|name| journal.is_labelled(name));
        // What stays is in COCO's file, too.
        let kept = summary.kept.iter().map(|name| (PathBuf::new(), name.clone()));
        let kept = kept.map(|(path, name)| ImageFile { path, name, frame: None });
        let all = ImageSet::from_named(self.set.files().iter().cloned().chain(kept).collect());
        let mut failed = self.place_images(&mut summary, review.as_mut(), check_cancelled)?;
        let broken =
            self.broken.iter().map(|(path, why)| vec![path.to_string_lossy().into_owned(), why.clone()]);
        failed.extend(broken);
        let Self { journal, placer, set, .. } = self;
        let root = placer.state.root.clone();
        placer.state.note_journal(journal)?;
        set.files().iter().for_each(|file| placer.state.note_content(&file.name, &file.path));
        summary.files.extend(place_class_files(placer, journal, &all)?);
        if placer.options.has(Format::Voc) {
            summary.files.extend(place_voc_splits(placer, journal, &all)?);
        }
        placer.state.commit()?;
        summary.files.extend(place_whole_files(journal, &all, placer)?);
        summary.added = placer.proposals()?.into_iter().map(|file| root.join(file)).collect();
        let path = root.join("failed.csv");
        if failed.is_empty() {
            drop(disk::remove(&path));
        } else {
            write_csv(&path, "file,error", failed.into_iter())?;
            summary.files.push(path);
        }
        if let Some(review) = review {
            let names: Vec<Arc<str>> = placer.class_names().map(Arc::from).collect();
            let read = |name: &str| corrected(journal, placer, name);
            summary.files.extend(review.write(&root, &names, &read, check_cancelled)?);
        }
        Ok(summary)
    }

    /// Keeps or removes the images that were labelled earlier and are not among the images any more.
    fn keep_others(&mut self, summary: &mut Summary, check_cancelled: &mut CheckCancelled<'_>) -> Result<()> {
        let Self { journal, placer, set, .. } = self;
        let in_set: HashSet<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
        for (name, entry) in journal.entries.iter().filter(|(name, _)| !in_set.contains(name.as_str())) {
            check_cancelled()?;
            let labelled = journal.read_labelled(entry)?;
            if placer.keep_or_remove(name, labelled.as_ref())? {
                let source = labelled.as_ref().map_or((0, 0), |record| identity(&record.source));
                let mut is_outdated = false;
                if let Some(described) = entry.described {
                    let is_other =
                        placer.state.images.get(name).is_some_and(|known| known.identity != described);
                    is_outdated = note_described(placer, name, described, source, is_other)?
                        || placer.shows_other(name, source, described)
                        || placer.has_other_copy(name, described);
                }
                if placer.is_edited(name, entry, source) {
                    summary.edited.push(name.clone());
                } else if is_outdated {
                    summary.outdated.push(name.clone());
                }
                drop(labelled.map(|record| as_corrected(placer, record, &mut summary.unclear)));
                summary.kept.push(name.clone());
            } else if labelled.is_some()
                && placer.state.images.get(name).is_none_or(|known| !known.is_removed)
            {
                placer.state.change_image(name, |known| known.is_removed = true);
                summary.removed.push(name.clone());
            }
        }
        Ok(())
    }

    /// Places the files of the images. Returns the files that cannot be labelled, each with the reason.
    fn place_images(
        &mut self,
        summary: &mut Summary,
        mut review: Option<&mut Review>,
        check_cancelled: &mut CheckCancelled<'_>,
    ) -> Result<Vec<Vec<String>>> {
        let Self { journal, placer, set, .. } = self;
        let mut failed = Vec::new();
        for file in set.files() {
            check_cancelled()?;
            let Some(entry) = journal.entries.get(&file.name) else { continue };
            let record = journal.read(entry)?;
            let is_corrected = placer.place(&record)?;
            // Labels that were removed are there again, even if their image is gone by now, or cannot be read.
            placer.state.change_image(&file.name, |known| known.is_removed &= !entry.is_labelled());
            summary.corrected.extend(is_corrected.then(|| file.name.clone()));
            note_image(placer, entry, file, is_corrected, summary)?;
            if let Some(error) = &record.error {
                summary.failed += 1;
                let now = identity(&file.path);
                if now != (0, 0) && now != entry.identity {
                    summary.changed.push(file.name.clone());
                }
                failed.push(vec![record.source.to_string_lossy().into_owned(), error.clone()]);
                // Its labels stay, in the format and with the classes of the data set.
                if let Some(labelled) = journal.read_labelled(entry)? {
                    placer.place_labels(&labelled)?;
                    drop(as_corrected(placer, labelled.clone(), &mut summary.unclear));
                    if placer.has_other_copy(&file.name, labelled.identity) {
                        summary.outdated.push(file.name.clone());
                    }
                }
            } else {
                summary.images += 1;
                let record = as_corrected(placer, record, &mut summary.unclear);
                count(&mut summary.classes, &record);
                if let Some(review) = &mut review {
                    review.consider(&record, || placer.image_link(&record));
                }
            }
        }
        Ok(failed)
    }
}

/// The record of what was found in an image last, as a person corrected it.
fn corrected(journal: &Journal, placer: &Placer, name: &str) -> Result<Option<Record>> {
    Ok(journal.labelled(name)?.map(|record| as_corrected(placer, record, &mut Vec::new())))
}

/// Writes the lists of the images of VOC's splits. Returns their paths.
fn place_voc_splits(placer: &mut Placer, journal: &Journal, set: &ImageSet) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, validation) in [("train", false), ("val", true)] {
        let is_in = |file: &&ImageFile| {
            journal.is_labelled(&file.name) && placer.is_validation(&file.name) == validation
        };
        let images = set.files().iter().filter(is_in);
        let text: String = images.map(|file| format!("{}\n", split_extension(&file.name).0)).collect();
        written.push(placer.place_text(&format!("voc/ImageSets/Main/{name}.txt"), &text)?);
    }
    Ok(written)
}

/// `true` if labelled images are for validation.
fn has_validation(placer: &Placer, journal: &Journal, set: &ImageSet) -> bool {
    set.files().iter().any(|file| placer.is_validation(&file.name) && journal.is_labelled(&file.name))
}

/// Writes the files that say what the ids of YOLO's classes mean, and which folders there are. Returns their paths.
pub(super) fn place_class_files(
    placer: &mut Placer,
    journal: &Journal,
    set: &ImageSet,
) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let has_validation = has_validation(placer, journal, set);
    for (below, _) in placer.options.yolo_folders() {
        // The folders that data.yaml names have to exist, even if they are empty.
        let splits = if has_validation { &["train", "val"][..] } else { &["train"] };
        for split in splits {
            for kind in ["images", "labels"] {
                placer.create_folder_of(&placer.state.root.join(format!("{below}{kind}/{split}/any")))?;
            }
        }
        let classes: String = placer.class_names().map(|name| format!("{name}\n")).collect();
        let data = yolo::data_file(placer.class_names(), has_validation);
        for (name, text) in [("classes.txt", classes), ("data.yaml", data)] {
            written.push(placer.place_text(&format!("{below}{name}"), &text)?);
        }
    }
    Ok(written)
}

/// Notes which file the labels of an image describe, and reports those that describe another one than there is.
fn note_image(
    placer: &mut Placer,
    entry: &Entry,
    file: &ImageFile,
    is_corrected: bool,
    summary: &mut Summary,
) -> Result<()> {
    let now = identity(&file.path);
    let Some(described) = entry.described.filter(|_| now != (0, 0) && !entry.failed) else { return Ok(()) };
    let name = &file.name;
    if placer.is_edited(name, entry, now) {
        summary.edited.push(name.clone());
    } else if !is_corrected && (described != now || entry.classes == Some(0)) {
        summary.changed.push(name.clone());
    }
    if !is_corrected {
        // What a person removed of a format that is not named is so when the format is named again.
        let removed = placer.removed_labels(name);
        placer.state.change_image(name, |known| {
            let is_other = known.identity != described;
            known.outdated_labels.retain(|label| removed.contains(label));
            if is_other {
                known.outdated_labels = removed;
            }
            known.describe(described);
        });
        return Ok(());
    }
    // A frozen image is not the one at the source.
    let is_other =
        placer.state.images.get(name).is_some_and(|known| known.identity != now || described != now);
    if note_described(placer, name, described, now, is_other)? {
        summary.outdated.push(name.clone());
    }
    Ok(())
}

/// Notes which file the labels of an image describe; `now` is the one at the source, and `is_other` says whether it is not
/// the one that the last finished run left. Returns whether a person corrected labels for an earlier one.
fn note_described(
    placer: &mut Placer,
    name: &str,
    described: (u64, u64),
    now: (u64, u64),
    is_other: bool,
) -> Result<bool> {
    let corrections = placer.corrections(name)?.into_iter();
    let mut labels: Vec<String> = corrections.map(|correction| correction.label).collect();
    let Some(known) = placer.state.images.get(name) else { return Ok(false) };
    let is_replaced = is_other && !(described == now && placer.has_content_of_source(name));
    labels
        .retain(|label| is_replaced || known.outdated_labels.iter().any(|other| is_same_label(label, other)));
    let is_outdated = !labels.is_empty();
    placer.state.change_image(name, |known| {
        known.describe(described);
        known.outdated_labels = labels;
        known.is_removed = false;
    });
    Ok(is_outdated)
}

/// Writes the files that have the labels of all images, except for those that the person changed. Returns their paths.
pub(super) fn place_whole_files(
    journal: &Journal,
    set: &ImageSet,
    placer: &mut Placer,
) -> Result<Vec<PathBuf>> {
    let is_named = |format| placer.options.has(format);
    let wanted: Vec<_> = WHOLE_FILES.into_iter().filter(|(_, format, _)| is_named(*format)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let has_validation = has_validation(placer, journal, set);
    let mut files = Vec::new();
    let videos = Videos::of(journal.frames(set))?;
    for (file, format, split) in wanted {
        if split.is_some() && !has_validation {
            placer.state.remove(file)?;
            placer.state.commit()?;
            placer.state.remove_old_copies(file);
            continue;
        }
        let write = |out: &mut dyn Write, placer: &Placer| {
            write_whole(out, journal, set, &videos, placer, (format, split))
        };
        files.push(place_whole(placer, file, format, write)?);
    }
    placer.state.commit()?;
    Ok(files)
}

fn place_whole(
    placer: &mut Placer,
    file: &str,
    format: Format,
    write: impl FnOnce(&mut dyn Write, &Placer) -> io::Result<()>,
) -> Result<PathBuf> {
    let path = placer.state.root.join(file);
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        // A device or a pipe.
        disk::replace(&path, |mut file| write(&mut file, placer))?;
        return Ok(path);
    }
    let part = placer.state.write_part(file, |out| write(out, placer))?;
    let (hash, meaning) = (part.hash.clone(), placer.meaning(Some(format)));
    let is_followed = placer.state.is_recorded(file);
    placer.state.keep_copy(file, &part)?;
    placer.state.place_part(file, meaning, part)?;
    placer.state.commit()?;
    if !placer.state.is_recorded_as(file, &hash) {
        let remedy = if is_followed {
            "run the command again, which follows it"
        } else {
            "choose another output folder, or discard_corrections to overwrite it"
        };
        let why = "it was corrected by hand and does not have the labels of this run";
        let message = format!("cannot write, {}: {why}; {remedy}", path.display());
        return Err(Error::mismatch(message).about("discard_corrections"));
    }
    placer.state.remove_old_copies(file);
    Ok(path)
}

fn count(classes: &mut [ClassCount], record: &Record) {
    let mut instances: HashMap<usize, u64> = HashMap::new();
    record.instances.iter().for_each(|instance| *instances.entry(instance.class).or_default() += 1);
    for (class, instances) in instances {
        classes[class].instances += instances;
        classes[class].images += 1;
    }
}

/// A file with the labels of all images, or of a split, as it would be written now.
pub(super) fn whole_file(
    journal: &Journal,
    placer: &Placer,
    kind: (Format, Option<bool>),
) -> Result<Vec<u8>> {
    let is_there = |name: &&String| placer.state.images.get(*name).is_none_or(|known| !known.is_removed);
    let names = journal.entries.keys().filter(is_there).cloned();
    let set = ImageSet::from_named(
        names.map(|name| ImageFile { path: PathBuf::new(), name, frame: None }).collect(),
    );
    let mut bytes = Vec::new();
    let videos = Videos::of(journal.frames(&set))?;
    write_whole(&mut bytes, journal, &set, &videos, placer, kind)
        .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    Ok(bytes)
}

/// Writes the labels of all images of a set, or of one split, in a format that has one file for them.
fn write_whole(
    out: &mut dyn Write,
    journal: &Journal,
    set: &ImageSet,
    videos: &Videos,
    placer: &Placer,
    (format, split): (Format, Option<bool>),
) -> io::Result<()> {
    if format == Format::Coco {
        return write_coco(out, journal, set, videos, placer, split);
    }
    write_youtube_vis(out, videos, placer.class_names(), |name| {
        let record = corrected(journal, placer, name)?;
        Ok(record.map(|record| (placer.coco_name(&record), record)))
    })
}

/// Writes the annotations of all images of a set, or of one split, that were labelled. Ids are the same in all files.
fn write_coco(
    out: &mut dyn Write,
    journal: &Journal,
    set: &ImageSet,
    videos: &Videos,
    placer: &Placer,
    split: Option<bool>,
) -> io::Result<()> {
    let videos = &videos.only(|name| split.is_none_or(|validation| placer.is_validation(name) == validation));
    let mut coco = CocoWriter::begin(out, placer.class_names(), placer.options.polygons, videos)?;
    // Two passes over the journal instead of all instances in memory.
    for pass in 0..2 {
        let mut id = 0;
        for file in set.files() {
            let found = journal.labelled(&file.name).map_err(io::Error::other)?;
            let Some(record) = found.map(|record| match pass {
                // Its size and name alone.
                0 => placer.state.with_saved(record, &placer.classes),
                _ => as_corrected(placer, record, &mut Vec::new()),
            }) else {
                continue;
            };
            id += 1;
            if split.is_some_and(|validation| placer.is_validation(&file.name) != validation) {
                if pass == 1 {
                    coco.skip(&record);
                }
                continue;
            }
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
