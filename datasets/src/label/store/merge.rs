//! Joins the shards of a job.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::label::images::{ImageFile, ImageSet};
use crate::label::record::Record;
use crate::label::settings::Format;
use crate::label::store::conflicts::check_conflicts;
use crate::label::store::folder::{Contents, OutputFolder};
use crate::label::store::journal::{Journal, classes_of, difference};
use crate::label::store::known::KnownImages;
use crate::label::store::placer::{Placer, label_files, masks_folder};
use crate::label::store::saved::{Saved, SavedLabels};
use crate::label::store::write::{COCO_FILES, Summary, write_data_set};
use crate::label::store::written::{ClassHashes, Owner, Written};
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
        let folder = OutputFolder::open_to_read(root)?;
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
        let written = Written::load_to_read(folder.root(), &folder.written_path())?;
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

    /// Whether a person corrected the labels of an image in it.
    fn has_corrections(&self, name: &str) -> Result<bool> {
        for (file, _) in
            [false, true].into_iter().flat_map(|split| label_files(&self.contents.options, name, split))
        {
            if self.written.owner(&file)? == Owner::Person {
                return Ok(true);
            }
        }
        Ok(self.saved.contains(name))
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
    let owned = owned_images(&mut parts)?;
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
    let mut contents = Contents { shard: None, written: 0, ..first.contents.clone() };
    let expected = contents.names_sha256.clone();

    OutputFolder::check(output)?;
    let found = ImageSet::from_named(owned.values().map(|image| image.file.clone()).collect());
    if found.names_sha256() != expected {
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
    check_conflicts(folder.root(), &written, &hashes, way_out, &options)?;
    let saved = Saved::load(folder.root())?;
    saved.check(folder.root(), &options, &hashes, way_out)?;
    folder.check_journal(Some(&contents))?;
    let mut journal = Journal::open(&folder.journal_path(), &settings)?;
    folder.set_contents(&contents)?;
    // The names in the joined data set are those that one machine would give the images, with its history.
    let mut known = KnownImages::load(folder.root())?;
    known.note_contents(&journal);
    let set = known.name(found, |file| owned[&file.path].picture);
    let mut placer = Placer::new(written, folder.root(), &options, &set, &classes);
    (placer.saved, placer.known) = (saved, known);
    placer.note_pictures(&journal);
    let dropped = placer.remove_dropped()?;
    for file in set.files() {
        check_cancelled()?;
        let image = &owned[&file.path];
        let part = &mut parts[image.part];
        let entry = part.journal.entry(&image.name).cloned().expect("its name came from this journal");
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
            journal.append(&Record { name: file.name.clone(), ..labelled })?;
        }
        journal.append(&Record { name: file.name.clone(), ..part.journal.read(&entry)? })?;
    }
    placer.known.save()?;
    journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
    copy_saved(&mut placer, &parts, &set, &owned)?;
    for file in set.files() {
        check_cancelled()?;
        let (name, image) = (&file.name, &owned[&file.path]);
        let part = &mut parts[image.part];
        if !placer.has_own_corrections(name)? {
            let entry = part.journal.entry(&image.name).cloned().expect("its name came from this journal");
            let record = Record { name: name.clone(), ..part.journal.read(&entry)? };
            placer.take_pictures((part.folder.root(), &image.name), &record, entry.described)?;
        }
        copy_corrections(&mut placer, part, &journal, (&image.name, name))?;
        // Labels that were corrected for an earlier picture are so in the joined data set.
        let outdated = part.known.get(&image.name).map(|known| known.outdated_labels.clone());
        let outdated = outdated.unwrap_or_default();
        if !outdated.is_empty() {
            let there = placer.corrected_labels(name)?;
            let is_outdated = |label: &String| match image.name == *name {
                true => outdated.contains(label),
                false => outdated.iter().any(|other| hash_of_label(other) == hash_of_label(label)),
            };
            placer.known.change(name, |known| {
                let new = there.into_iter().filter(is_outdated);
                let new: Vec<_> = new.filter(|label| !known.outdated_labels.contains(label)).collect();
                known.outdated_labels.extend(new);
            });
        }
    }
    let summary = write_data_set(&folder, &journal, &set, &mut placer, &classes, check_cancelled)?;
    let summary = Summary { dropped, ..summary };
    folder.set_contents(&Contents { written: journal.length(), ..contents })?;
    placer.known.save()?;
    Ok(summary)
}

/// The hash of a corrected label file, as the placer names them.
fn hash_of_label(label: &str) -> &str {
    label.rsplit(' ').next().unwrap_or(label)
}

/// An image of a shard.
struct Owned {
    part: usize,
    /// Its name there.
    name: String,
    /// Its file, with the name that it has without a history.
    file: ImageFile,
    /// Size and time of the picture that its labels describe.
    picture: (u64, u64),
}

/// The images of all shards by their files, each in the shard that it belongs to.
fn owned_images(parts: &mut [Part]) -> Result<HashMap<PathBuf, Owned>> {
    let mut owned: HashMap<PathBuf, Owned> = HashMap::new();
    for (at, part) in parts.iter_mut().enumerate() {
        let root = part.folder.root().display().to_string();
        let refuse =
            |why: String| Err(Error::new(ErrorKind::Mismatch, format!("cannot merge, {root}: {why}")));
        let has_found = part.known.has_found();
        let mut names: Vec<String> = part.journal.names().map(str::to_owned).collect();
        names.sort_unstable();
        for name in names {
            let entry = part.journal.entry(&name).cloned().expect("its name came from this journal");
            let known = part.known.get(&name);
            let (found, is_removed) = match known {
                Some(known) => (known.found.clone().or((!has_found).then(|| name.clone())), known.is_removed),
                None => (Some(name.clone()), false),
            };
            let path = known.map(|known| PathBuf::from(&known.source));
            let path = path.map_or_else(|| part.journal.read(&entry).map(|record| record.source), Ok)?;
            let Some(found) = found else {
                if is_removed {
                    continue;
                }
                return refuse(format!(
                    "{name} is not an image of the job any more; name its folder, too, or label this shard in a new folder"
                ));
            };
            let file = ImageFile { path: path.clone(), name: found, frame: None };
            let key = if has_found { file.key() } else { name.clone() };
            if part.contents.shard.is_some_and(|shard| !shard.contains(&key)) {
                // An earlier version chose the shard by the number in its name, too.
                if part.has_corrections(&name)? {
                    return refuse(format!(
                        "{name} was corrected in it, and belongs to another shard now; label the shards in new folders, and \
                         correct it there"
                    ));
                }
                continue;
            }
            let picture = entry.described.unwrap_or(entry.identity);
            let image = Owned { part: at, name: name.clone(), file, picture };
            if owned.insert(path.clone(), image).is_some() {
                return refuse(format!(
                    "{name}, {}: another shard has this image, too, as they were first labelled with other images; run the \
                     command of each shard again, or label them in new folders",
                    path.display()
                ));
            }
        }
    }
    Ok(owned)
}

/// Copies what a person saved in COCO's files of the shards. What was saved in the joined data set stays.
fn copy_saved(
    placer: &mut Placer,
    parts: &[Part],
    set: &ImageSet,
    owned: &HashMap<PathBuf, Owned>,
) -> Result<()> {
    let mut new = Vec::new();
    let saved = set.files().iter().filter_map(|file| {
        let image = &owned[&file.path];
        let saved = parts[image.part].saved.get(&image.name)?.clone();
        Some(SavedLabels { name: file.name.clone(), ..saved })
    });
    for image in saved {
        match placer.saved.get(&image.name) {
            None => new.push(image),
            Some(there) if there.is_merged => new.push(image),
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
fn copy_corrections(
    placer: &mut Placer,
    part: &Part,
    journal: &Journal,
    (name_there, name): (&str, &str),
) -> Result<()> {
    let Some(record) = journal.labelled(name)? else { return Ok(()) };
    let mut files = BTreeMap::new();
    let mut split = None;
    for validation in [false, true] {
        let [there, here] =
            [name_there, name].map(|name| label_files(&part.contents.options, name, validation));
        let labels = there.into_iter().zip(here).map(|((there, format), (here, _))| (there, here, format));
        let [from, to] = [name_there, name].map(|name| masks_folder(name, validation));
        let masks = placer.recorded_masks(&part.written, name_there, validation).into_iter();
        let masks = masks.map(|file| (file.clone(), file.replacen(&from, &to, 1), Format::Masks));
        for (there, file, format) in labels.chain(masks) {
            let is_corrected = part.written.owner(&there)? == Owner::Person;
            if is_corrected {
                // VOC has no folders for the splits.
                split = split.or((format != Format::Voc).then_some(validation));
            }
            files.insert(file, (there, format, is_corrected));
        }
    }
    for (file, (_, format, _)) in files.iter().filter(|(_, (.., is_corrected))| !is_corrected) {
        // The correction that was merged earlier was undone.
        if placer.written.is_merged(file)? {
            placer.written.take_back(file, placer.meaning(Some(*format)))?;
        }
    }
    files.retain(|_, (.., is_corrected)| *is_corrected);
    if files.is_empty() {
        return Ok(());
    }
    if let Some(validation) = split {
        placer.prefer(name, validation);
    }
    // What was found comes first, so that its hash is on record and what follows counts as a correction.
    placer.place_labels(&record)?;
    placer.written.commit()?;
    for (file, (there, format, _)) in files {
        let (from, to) = (part.folder.root().join(&there), placer.root().join(&file));
        let read = |path: &Path| match std::fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            there => there.map(Some).map_err(|e| Error::io("cannot read", path, e)),
        };
        let (corrected, before) = (read(&from)?, read(&to)?);
        let is_merged = placer.written.is_merged(&file)?;
        if is_merged && corrected == before {
            continue;
        }
        if !is_merged && corrected != before && placer.written.owner(&file)? == Owner::Person {
            tracing::warn!(
                "{}: it was corrected, too; the correction {} is not merged",
                to.display(),
                from.display()
            );
            continue;
        }
        // The correction has the classes that it was made with.
        let meaning = part.written.recorded_meaning(&there).unwrap_or(placer.meaning(Some(format)));
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
