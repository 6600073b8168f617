//! Joins the shards of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::class_map::{Class, ClassMap};
use super::folder::{Contents, OutputFolder};
use super::images::{ImageFile, ImageSet};
use super::job::{check_conflicts, meaning_of};
use super::journal::{Journal, difference};
use super::known::KnownImages;
use super::placer::{Placer, label_files};
use super::saved::{Saved, SavedLabels};
use super::settings::Format;
use super::write::{COCO_FILES, Summary, write_data_set};
use super::written::{ClassHashes, Owner, Written};
use ocelli::{Error, ErrorKind, Result};

/// A finished shard.
struct Part {
    folder: OutputFolder,
    contents: Contents,
    journal: Journal,
    settings: Value,
    written: Written,
    saved: Saved,
    known: KnownImages,
}

impl Part {
    fn open(root: &Path) -> Result<Self> {
        let refuse = |why: &str| {
            let message = format!("cannot merge, {}: {why}", root.display());
            Err(Error::new(ErrorKind::Mismatch, message))
        };
        let folder = OutputFolder::open_existing(root)?;
        let Some(contents) = folder.contents()? else {
            return refuse("nothing is labelled in it yet; finish this shard first");
        };
        if contents.shard.is_none() {
            return refuse("it is not a shard but a whole data set");
        }
        let (journal, settings) = Journal::open_existing(&folder.journal_path())?;
        if contents.written == 0 || contents.written != journal.length() {
            return refuse("it is not finished; finish this shard first");
        }
        let written = Written::open(&folder)?;
        written.recover(&OutputFolder::FOLDERS)?;
        for (file, _) in COCO_FILES {
            let is_there = contents.options.has(Format::Coco) && root.join(file).is_file();
            if !is_there || written.owner(file)? != Owner::Person {
                continue;
            }
            return refuse(&format!(
                "{file} was corrected by hand, and only label files of single images can be merged; move it out of the \
                 folder to merge without these corrections"
            ));
        }
        let saved = Saved::load(root)?;
        let known = KnownImages::load(root)?;
        Ok(Self { folder, contents, journal, settings, written, saved, known })
    }
}

/// Joins shards into one data set, identical to that of one process for all images. An error of `check_cancelled`, which is
/// called for each image, ends it.
///
/// Corrected label files are joined, too. A file that was corrected in the joined data set stays.
///
/// # Errors
/// [`ErrorKind::Mismatch`] if the shards do not belong together, or one is missing or not finished,
/// [`ErrorKind::InvalidArgument`] if the output folder cannot be used, [`ErrorKind::Io`] if files cannot be read or written.
pub fn merge(
    shards: &[PathBuf],
    output: &Path,
    check_cancelled: &mut dyn FnMut() -> Result<()>,
) -> Result<Summary> {
    let mut parts = Vec::new();
    for root in shards {
        if is_same(root, output) {
            let message =
                format!("output folder, {}: it is one of the shards; name another folder", output.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if let Some(twice) = shards.iter().filter(|other| is_same(root, other)).nth(1) {
            let message = format!("cannot merge, {}: it was given twice", twice.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        parts.push(Part::open(root)?);
    }
    check(&parts)?;
    let Some(first) = parts.first() else {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "nothing to merge: expected the folders of the shards",
        ));
    };
    let (settings, options) = (first.settings.clone(), first.contents.options.clone());
    let classes = classes_of(&settings).ok_or_else(|| {
        let message = format!("corrupt journal, {}: it has no classes", first.folder.root().display());
        Error::new(ErrorKind::InvalidData, message)
    })?;
    // The shard of each image, by name, which is the order of the data set.
    let mut shard_of: BTreeMap<String, usize> = BTreeMap::new();
    for (part, Part { journal, .. }) in parts.iter().enumerate() {
        shard_of.extend(journal.names().map(|name| (name.to_owned(), part)));
    }
    let mut contents = Contents { shard: None, written: 0, ..first.contents.clone() };
    let expected = contents.names_sha256.clone();

    OutputFolder::check(output)?;
    let mut files = Vec::with_capacity(shard_of.len());
    let named =
        shard_of.keys().map(|name| ImageFile { path: PathBuf::new(), name: name.clone(), frame: None });
    if ImageSet::from_named(named.collect()).names_sha256() != expected {
        let message = format!(
            "cannot merge, {}: the images of its shards are not those of the job; restart the shards and label them \
             again",
            output.display()
        );
        return Err(Error::new(ErrorKind::Mismatch, message));
    }
    let folder = OutputFolder::open(output)?;
    let there = folder.contents()?;
    if let Some(there) = there {
        if there.shard.is_some() || there.names_sha256 != expected {
            let message = format!(
                "output folder, {}: it contains another data set; name another folder",
                output.display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        contents.written = there.written;
    }
    let written = Written::open(&folder)?;
    written.recover(&OutputFolder::FOLDERS)?;
    let hashes = ClassHashes::new(classes.names());
    let way_out = "name another output folder";
    check_conflicts(folder.root(), &written, &hashes, way_out, |file| {
        meaning_of(&options, hashes.all, file)
    })?;
    let saved = Saved::load(folder.root())?;
    saved.check(folder.root(), &options, &hashes, way_out)?;
    folder.check_journal(Some(&contents))?;
    let mut journal = Journal::open(&folder.journal_path(), &settings)?;
    folder.set_contents(&contents)?;
    for (name, part) in &shard_of {
        check_cancelled()?;
        let part = &mut parts[*part];
        let entry = part.journal.entry(name).cloned().expect("its name came from this journal");
        let path = part.journal.read(&entry)?.source;
        files.push(ImageFile { path, name: name.clone(), frame: None });
    }
    let set = ImageSet::from_named(files);
    let mut placer = Placer::new(written, folder.root(), &options, &set, &classes);
    placer.saved = saved;
    placer.known = KnownImages::load(folder.root())?;
    placer.note_pictures(&journal);
    for file in set.files() {
        check_cancelled()?;
        let part = &mut parts[shard_of[&file.name]];
        let entry = part.journal.entry(&file.name).cloned().expect("its name came from this journal");
        placer.known.add(file, entry.described.unwrap_or(entry.identity));
        let there = journal.entry(&file.name).cloned();
        let is_merged = there.as_ref().is_some_and(|there| {
            (there.identity, there.source, there.failed, there.classes)
                == (entry.identity, entry.source, entry.failed, entry.classes)
        });
        // What a person corrected or edited in the joined data set describes its picture.
        let is_frozen = match &there {
            Some(there) if !is_merged => {
                let picture = entry.described.unwrap_or(entry.identity);
                placer.is_frozen(&file.name, there, picture)?
                    && (placer.has_own_corrections(&file.name)?
                        || placer.is_edited(&file.name, there, picture))
            }
            _ => false,
        };
        if is_merged || is_frozen {
            continue;
        }
        // The instances of an image that cannot be read any more.
        if let Some(labelled) = part.journal.read_labelled(&entry)?.filter(|_| entry.failed) {
            journal.append(&labelled)?;
        }
        journal.append(&part.journal.read(&entry)?)?;
    }
    placer.known.save()?;
    journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
    copy_saved(&mut placer, &parts)?;
    for (name, part) in &shard_of {
        check_cancelled()?;
        let part = &mut parts[*part];
        if !placer.has_own_corrections(name)? {
            let entry = part.journal.entry(name).cloned().expect("its name came from this journal");
            let record = part.journal.read(&entry)?;
            placer.take_pictures(part.folder.root(), &record, entry.described)?;
        }
        copy_corrections(&mut placer, part, &mut journal, name)?;
        // Labels that were corrected for an earlier picture are so in the joined data set.
        let outdated = part.known.get(name).map(|known| known.outdated_labels.clone()).unwrap_or_default();
        if !outdated.is_empty() {
            let there = placer.corrected_labels(name)?;
            placer.known.change(name, |known| {
                let new = outdated.into_iter().filter(|label| there.contains(label));
                let new: Vec<_> = new.filter(|label| !known.outdated_labels.contains(label)).collect();
                known.outdated_labels.extend(new);
            });
        }
    }
    let summary = write_data_set(&folder, &mut journal, &set, &mut placer, &classes, check_cancelled)?;
    folder.set_contents(&Contents { written: journal.length(), ..contents })?;
    placer.known.save()?;
    Ok(summary)
}

/// Copies what a person saved in COCO's files of the shards. What was saved in the joined data set stays.
fn copy_saved(placer: &mut Placer, parts: &[Part]) -> Result<()> {
    let mut new = Vec::new();
    for image in parts.iter().flat_map(|part| part.saved.images()) {
        match placer.saved.get(&image.name) {
            None => new.push(image.clone()),
            Some(there) if there.is_merged => new.push(image.clone()),
            Some(there)
                if SavedLabels { is_merged: false, ..there.clone() }
                    == SavedLabels { is_merged: false, ..image.clone() } => {}
            Some(_) => tracing::warn!(
                "{}: the labels of {} were saved in it, too; those of its shard are not merged",
                placer.root().display(),
                image.name
            ),
        }
    }
    let new: Vec<_> = new.into_iter().map(|image| SavedLabels { is_merged: true, ..image }).collect();
    let is_new = new.iter().any(|image| placer.saved.get(&image.name) != Some(image));
    if is_new { placer.saved.add(new) } else { Ok(()) }
}

/// Copies the label files of an image that were corrected in a shard. A file that was corrected in the joined data set stays.
fn copy_corrections(placer: &mut Placer, part: &mut Part, journal: &mut Journal, name: &str) -> Result<()> {
    let Some(entry) = journal.entry(name).cloned() else { return Ok(()) };
    let Some(record) = journal.read_labelled(&entry)? else { return Ok(()) };
    let mut files = BTreeMap::new();
    let mut split = None;
    for validation in [false, true] {
        let labels = label_files(&part.contents.options, name, validation);
        let masks = placer.recorded_masks(&part.written, name, validation).into_iter();
        for (file, format) in labels.into_iter().chain(masks.map(|file| (file, Format::Masks))) {
            let is_corrected = part.written.owner(&file)? == Owner::Person;
            if is_corrected {
                // VOC has no folders for the splits.
                split = split.or((format != Format::Voc).then_some(validation));
            }
            files.insert(file, (format, is_corrected));
        }
    }
    for (file, (format, _)) in files.iter().filter(|(_, (_, is_corrected))| !is_corrected) {
        // The correction that was merged earlier was undone.
        if placer.written.is_merged(file)? {
            placer.written.take_back(file, placer.meaning(Some(*format)))?;
        }
    }
    files.retain(|_, (_, is_corrected)| *is_corrected);
    if files.is_empty() {
        return Ok(());
    }
    if let Some(validation) = split {
        placer.prefer(name, validation);
    }
    // What was found comes first, so that its hash is on record and what follows counts as a correction.
    placer.place_labels(&record)?;
    placer.written.commit()?;
    for (file, (format, _)) in files {
        let (from, to) = (part.folder.root().join(&file), placer.root().join(&file));
        let read = |path: &Path| match std::fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            there => there.map(Some).map_err(|e| Error::io("cannot read", path, e)),
        };
        let (corrected, there) = (read(&from)?, read(&to)?);
        let is_merged = placer.written.is_merged(&file)?;
        if is_merged && corrected == there {
            continue;
        }
        if !is_merged && corrected != there && placer.written.owner(&file)? == Owner::Person {
            tracing::warn!(
                "{}: it was corrected, too; the correction {} is not merged",
                to.display(),
                from.display()
            );
            continue;
        }
        // The correction has the classes that it was made with.
        let meaning = part.written.recorded_meaning(&file).unwrap_or(placer.meaning(Some(format)));
        placer.create_folder_of(&to)?;
        placer.written.merge(&file, meaning, corrected.as_deref())?;
    }
    Ok(())
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a))
}

/// Checks that the parts are the shards of one job, each of them once.
fn check(parts: &[Part]) -> Result<()> {
    let refuse = |part: &Part, why: String| {
        let message = format!("cannot merge, {}: {why}", part.folder.root().display());
        Err(Error::new(ErrorKind::Mismatch, message))
    };
    let Some(first) = parts.first() else { return Ok(()) };
    let Some(whole) = first.contents.shard else { return Ok(()) };
    let mut shard_of = BTreeMap::new();
    for part in parts {
        let other = first.folder.root().display();
        if let Some((key, here, there)) = difference("", &part.settings, &first.settings) {
            return refuse(part, format!("its {key} is {here}, that of {other} {there}"));
        }
        let options = |part: &Part| serde_json::to_value(&part.contents.options).unwrap_or_default();
        if let Some((key, here, there)) = difference("", &options(part), &options(first)) {
            return refuse(part, format!("its {key} is {here}, that of {other} {there}"));
        }
        let Some(shard) = part.contents.shard else { continue };
        if shard.count() != whole.count() {
            return refuse(
                part,
                format!("it is one of {} shards, {other} one of {}", shard.count(), whole.count()),
            );
        }
        if part.contents.names_sha256 != first.contents.names_sha256 {
            return refuse(part, format!("it has other images than {other}"));
        }
        if let Some(twin) = shard_of.insert(shard.index(), part) {
            let twin = twin.folder.root().display();
            return refuse(part, format!("it is shard {}/{}, as is {twin}", shard.index(), shard.count()));
        }
    }
    let missing: Vec<String> = (1..=whole.count())
        .filter(|index| !shard_of.contains_key(index))
        .map(|index| format!("{index}/{}", whole.count()))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => refuse(first, format!("shards are missing: {}; add their folders", missing.join(", "))),
    }
}

/// The names of the classes in the first line of a journal.
pub(super) fn classes_of(settings: &Value) -> Option<ClassMap> {
    let class = |class: &Value| Some(Class { name: class.get("name")?.as_str()?.into(), ..Class::default() });
    let classes: Option<Vec<Class>> = settings.get("classes")?.as_array()?.iter().map(class).collect();
    Some(ClassMap { classes: classes?, merge: Vec::new() })
}
