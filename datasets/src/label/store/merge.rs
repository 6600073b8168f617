//! Joins the shards of a job.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::label::store::folder::unusable;
use crate::label::store::journal::difference;
use crate::label::store::layout::masks_folder;
use crate::label::store::placer::is_same_label;
use crate::label::store::{
    ClassHashes, Contents, DataSet, Entry, Event, Existing, Journal, Meaning, Opening, OutputFolder, Owner,
    Placer, SavedLabels, State, Summary, classes_of, journal_path, label_files,
};
use crate::label::{CheckCancelled, Format, ImageFile, ImageSet, Record, disk};
use ocelli::{Error, Result};

/// A finished shard.
struct Part {
    folder: OutputFolder,
    contents: Contents,
    journal: Journal,
    settings: Value,
    placer: Placer,
}

impl Part {
    fn open(root: &Path) -> Result<Self> {
        let refuse = |why: &str| Err(refusal(root, why));
        let folder = OutputFolder::open_existing(root)?;
        let mut state = State::load(root)?;
        let Some(contents) = state.contents.clone() else {
            return refuse("nothing is labelled in it yet; finish this shard first");
        };
        if contents.shard.is_none() {
            return refuse("it is not a shard but a whole data set");
        }
        let (journal, settings) = Journal::open_existing(&journal_path(&folder.root))?;
        if contents.written == 0 || contents.written != journal.log.length {
            return refuse("it is not finished; finish this shard first");
        }
        state.recover(&OutputFolder::FOLDERS)?;
        let mut state = state.follow_annotations(&contents.options, None)?;
        let classes = classes_of(&settings).unwrap_or_default();
        state.see_all(&ImageSet::default(), &contents.options, &ClassHashes::new(classes.names()), true)?;
        let placer = Placer::new(state, &contents.options, &ImageSet::default(), &classes);
        Ok(Self { folder, contents, journal, settings, placer })
    }

    /// `true` if a person corrected the labels of an image in it.
    fn has_corrections(&self, name: &str) -> Result<bool> {
        let (both, state) = ([false, true].into_iter(), &self.placer.state);
        let files = both.flat_map(|split| self.placer.files_with_labels(name, split));
        Ok(state.saved.contains_key(name) || state.has_persons(files.map(|(file, _)| file))?)
    }

    /// The last line of an image.
    fn entry(&self, image: &Owned) -> &Entry {
        self.journal.entries.get(&image.name).expect("its name came from this journal")
    }
}

/// Joins shards into one data set, identical to that of one process for all images. An error of `check_cancelled`, which is
/// called for each image, ends it.
///
/// Corrected label files are joined, too. A file that was corrected in the joined data set stays.
///
/// # Errors
/// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the shards do not belong together, or one is missing or not
/// finished,
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if the output folder cannot be used,
/// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if files cannot be read or written.
pub fn merge(shards: &[PathBuf], output: &Path, check_cancelled: &mut CheckCancelled<'_>) -> Result<Summary> {
    let mut parts = Vec::new();
    for root in shards {
        if is_same(root, output) {
            return Err(unusable(output, "it is one of the shards; name another folder"));
        }
        if let Some(twice) = shards.iter().filter(|other| is_same(root, other)).nth(1) {
            let message = format!("cannot merge, {}: it was given twice", twice.display());
            return Err(Error::invalid_argument(message));
        }
        parts.push(Part::open(root)?);
    }
    check(&parts)?;
    let owned = owned_images(&parts)?;
    let mut joined = open_joined(&parts, &owned, output)?;
    for file in joined.set.files().to_vec() {
        check_cancelled()?;
        let image = &owned[&file.path];
        copy_records(&mut joined, &parts[image.part], image, &file.name)?;
    }
    let DataSet { placer, journal, .. } = &mut joined;
    journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
    copy_saved(&mut joined, &parts, &owned)?;
    for file in joined.set.files().to_vec() {
        check_cancelled()?;
        let image = &owned[&file.path];
        copy_work(&mut joined, &parts[image.part], image, &file.name)?;
    }
    joined.finish(check_cancelled)
}

/// Opens the joined data set. The names in it are those that one machine would give the images, with its history.
fn open_joined(parts: &[Part], owned: &HashMap<PathBuf, Owned>, output: &Path) -> Result<DataSet> {
    let Some(first) = parts.first() else {
        return Err(Error::invalid_argument("nothing to merge: expected the folders of the shards"));
    };
    let classes = classes_of(&first.settings).ok_or_else(|| {
        Error::invalid_data(format!("corrupt journal, {}: it has no classes", first.folder.root.display()))
    })?;
    OutputFolder::check(output)?;
    let whole = ImageSet::from_named(owned.values().map(|image| image.file.clone()).collect());
    let names = &first.contents.names_sha256;
    if whole.names_sha256() != *names {
        let why =
            "the images of its shards are not those of the job; restart the shards and label them again";
        return Err(refusal(output, why));
    }
    let folder = OutputFolder::open(output)?;
    if State::load(output)?
        .contents
        .is_some_and(|there| there.shard.is_some() || there.names_sha256 != *names)
    {
        return Err(unusable(output, "it contains another data set; name another folder"));
    }
    DataSet::open(Opening {
        folder,
        described: &first.settings,
        options: &first.contents.options,
        classes: &classes,
        whole,
        shard: None,
        existing: Existing::default(),
        merges: true,
        identity: &|file| owned[&file.path].identity,
    })
}

/// Copies the lines of an image to the journal, unless they are there, or a person corrected or edited the image in the joined
/// data set: that describes its file.
fn copy_records(joined: &mut DataSet, part: &Part, image: &Owned, name: &str) -> Result<()> {
    let entry = part.entry(image);
    if let Some(there) = joined.journal.entries.get(name) {
        if (there.identity, there.source, there.failed, there.classes)
            == (entry.identity, entry.source, entry.failed, entry.classes)
        {
            return Ok(());
        }
        let identity = entry.described.unwrap_or(entry.identity);
        let placer = &mut joined.placer;
        if placer.is_frozen(name, there, identity)?
            && (has_own_corrections(placer, name)? || placer.is_edited(name, there, identity))
        {
            return Ok(());
        }
    }
    // The instances of an image that cannot be read any more.
    if let Some(labelled) = part.journal.read_labelled(entry)?.filter(|_| entry.failed) {
        joined.journal.append(&Record { name: name.into(), ..labelled })?;
    }
    joined.journal.append(&Record { name: name.into(), ..part.journal.read(entry)? })
}

/// Copies what a person made of an image in a shard: its file and its label files, with what is known about them.
fn copy_work(joined: &mut DataSet, part: &Part, image: &Owned, name: &str) -> Result<()> {
    if !has_own_corrections(&mut joined.placer, name)? {
        let entry = part.entry(image);
        let record = Record { name: name.into(), ..part.journal.read(entry)? };
        joined.placer.take_images(&part.folder.root, &image.name, &record, entry.described)?;
    }
    copy_corrections(joined, part, &image.name, name)?;
    // Labels that were corrected for an earlier image are so in the joined data set.
    let known = part.placer.state.images.get(&image.name).filter(|known| !known.outdated_labels.is_empty());
    let Some(outdated) = known.map(|known| &known.outdated_labels) else { return Ok(()) };
    let is_outdated = |label: &String| outdated.iter().any(|other| is_same_label(label, other));
    let corrections = joined.placer.corrections(name)?.into_iter();
    let there = corrections.map(|correction| correction.label).filter(is_outdated);
    joined.placer.state.change_image(name, |known| {
        let new: Vec<_> = there.filter(|label| !known.outdated_labels.contains(label)).collect();
        known.outdated_labels.extend(new);
    });
    Ok(())
}

/// `true` if a person corrected the labels of an image in the joined data set, and not in a shard.
fn has_own_corrections(joined: &mut Placer, name: &str) -> Result<bool> {
    Ok(joined.corrections(name)?.iter().any(|correction| !correction.is_merged))
}

/// An image of a shard.
struct Owned {
    part: usize,
    /// Its name there.
    name: String,
    /// Its file, with the name that it has without a history.
    file: ImageFile,
    /// Size and time of the image that its labels describe.
    identity: (u64, u64),
}

/// The images of all shards by their files, each in the shard that it belongs to.
fn owned_images(parts: &[Part]) -> Result<HashMap<PathBuf, Owned>> {
    let mut owned: HashMap<PathBuf, Owned> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        let refuse = |why: String| Err(refusal(&part.folder.root, &why));
        // Earlier versions did not note which images the last run named.
        let images = &part.placer.state.images;
        let has_found = images.values().any(|image| image.found.is_some());
        for (name, entry) in &part.journal.entries {
            let known = images.get(name);
            let (found, is_removed) = match known {
                Some(known) => (known.found.clone().or((!has_found).then(|| name.clone())), known.is_removed),
                None => (Some(name.clone()), false),
            };
            let path = known.map(|known| PathBuf::from(&known.source));
            let path = path.map_or_else(|| part.journal.read(entry).map(|record| record.source), Ok)?;
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
                if part.has_corrections(name)? {
                    return refuse(format!(
                        "{name} was corrected in it, and belongs to another shard now; label the shards in new folders, and \
                         correct it there"
                    ));
                }
                continue;
            }
            let identity = entry.described.unwrap_or(entry.identity);
            let image = Owned { part: at, name: name.clone(), file, identity };
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

/// Copies what a person saved in COCO's files of the shards. What was saved or corrected in the joined data set stays.
fn copy_saved(joined: &mut DataSet, parts: &[Part], owned: &HashMap<PathBuf, Owned>) -> Result<()> {
    let placer = &mut joined.placer;
    let (mut new, mut undone) = (Vec::new(), Vec::new());
    for file in joined.set.files() {
        let image = &owned[&file.path];
        let there = placer.state.saved.get(&file.name).cloned();
        let Some(saved) = parts[image.part].placer.state.saved.get(&image.name).cloned() else {
            undone.extend(there.filter(|there| there.is_merged).map(|there| there.name));
            continue;
        };
        let saved = SavedLabels { name: file.name.clone(), is_merged: true, ..saved };
        let is_same = |there| SavedLabels { is_merged: true, ..there } == saved;
        if there.is_some_and(is_same) {
            continue;
        }
        if has_own_corrections(placer, &file.name)? {
            let (root, name) = (placer.state.root.display(), &file.name);
            tracing::warn!(
                "{root}: the labels of {name} were corrected in it, too; those saved in its shard are not merged"
            );
        } else {
            new.push(saved);
        }
    }
    placer.state.forget_saved(undone)?;
    if new.is_empty() { Ok(()) } else { placer.state.append(Event::Saved(new)) }
}

/// Copies the label files of an image that were corrected in a shard. A file that was corrected in the joined data set stays.
fn copy_corrections(joined: &mut DataSet, part: &Part, name_there: &str, name: &str) -> Result<()> {
    let placer = &mut joined.placer;
    let Some(record) = joined.journal.labelled(name)? else { return Ok(()) };
    let there = part.placer.split_on_disk(name_there)?;
    if let Some(validation) = there.filter(|there| placer.is_validation(name) != *there)
        && !has_own_corrections(placer, name)?
    {
        // It was moved to the other split in the shard.
        for (file, _) in placer.files_with_labels(name, !validation) {
            placer.state.remove(&file)?;
        }
        placer.state.commit()?;
        placer.prefer(name, validation);
    }
    let mut files = BTreeMap::new();
    let (mut split, mut folders) = (None, Vec::new());
    for validation in [false, true] {
        let labels = label_files(&part.contents.options, name, validation);
        let [from, to] = [name_there, name].map(|name| masks_folder(name, validation));
        let mut has_masks = false;
        for (at, (there, format)) in
            part.placer.files_with_labels(name_there, validation).into_iter().enumerate()
        {
            // The masks follow the label files.
            let file = labels.get(at).map_or_else(|| there.replacen(&from, &to, 1), |(file, _)| file.clone());
            let is_corrected = part.placer.state.owner(&there)? == Owner::Person;
            if is_corrected {
                // VOC has no folders for the splits, and masks that are missing may be in the other one.
                let is_mask = format == Format::Masks;
                let is_in_split =
                    format != Format::Voc && (!is_mask || part.folder.root.join(&there).is_file());
                split = split.or(is_in_split.then_some(validation));
                has_masks |= is_mask;
            }
            files.insert(file, (there, format, is_corrected));
        }
        // They are one label file: those that the shard does not have are not to be here.
        for file in placer.state.masks_in(&to) {
            let there = file.replacen(&to, &from, 1);
            files.entry(file).or_insert((there, Format::Masks, false));
        }
        let masks = files.iter_mut().filter(|(file, _)| has_masks && file.starts_with(&to));
        masks.for_each(|(_, (.., is_corrected))| *is_corrected = true);
        folders.extend(has_masks.then_some((from, to)));
    }
    for (file, (_, format, _)) in files.iter().filter(|(_, (.., is_corrected))| !is_corrected) {
        // The correction that was merged earlier was undone.
        if placer.state.is_merged(file)? {
            placer.state.take_back(file, placer.meaning(Some(*format)))?;
        }
    }
    files.retain(|_, (.., is_corrected)| *is_corrected);
    if files.is_empty() {
        return Ok(());
    }
    if let Some(validation) = split {
        placer.prefer(name, validation);
    }
    // Beside masks that are a person's, no others are written.
    let others = files.extract_if(.., |_, (_, format, _)| *format != Format::Masks).collect();
    merge_files(placer, part, name, files)?;
    for (from, to) in folders {
        let masks = placer.state.masks_in(&to).into_iter();
        if !masks.map(|file| placer.state.is_merged(&file)).collect::<Result<Vec<_>>>()?.contains(&true) {
            continue;
        }
        // Without its folder, masks are missing, and in an empty one they were removed.
        if part.folder.root.join(from).is_dir() {
            placer.create_folder_of(&placer.state.root.join(to).join("any"))?;
        } else {
            drop(std::fs::remove_dir(placer.state.root.join(to)));
        }
    }
    // What was found comes first, so that its hash is on record and what follows counts as a correction.
    placer.place_labels(&record)?;
    placer.state.commit()?;
    merge_files(placer, part, name, others)
}

/// Gives files of an image, each with the one in the shard, the content that a person gave them there. One that was corrected in the
/// joined data set stays, and all masks with one of them.
fn merge_files(
    placer: &mut Placer,
    part: &Part,
    name: &str,
    files: BTreeMap<String, (String, Format, bool)>,
) -> Result<()> {
    let mut merged = Vec::new();
    let mut has_own_masks = false;
    for (file, (there, format, _)) in files {
        let (from, to) = (part.folder.root.join(&there), placer.state.root.join(&file));
        let read =
            |path: &Path| disk::if_there(std::fs::read(path)).map_err(|e| Error::io("cannot read", path, e));
        let (corrected, before) = (read(&from)?, read(&to)?);
        let is_merged = placer.state.is_merged(&file)?;
        if is_merged && corrected == before {
            continue;
        }
        if !is_merged && corrected != before && placer.state.owner(&file)? == Owner::Person {
            let (from, to) = (from.display(), to.display());
            tracing::warn!("{to}: it was corrected, too; the correction {from} is not merged");
            has_own_masks |= format == Format::Masks;
            continue;
        }
        if placer.state.saved.get(name).is_some_and(|saved| !saved.is_merged) {
            let (from, root) = (from.display(), placer.state.root.display());
            tracing::warn!(
                "{root}: the labels of {name} were corrected in it, too; the correction {from} is not merged"
            );
            continue;
        }
        // The correction has the classes that it was made with.
        let meaning = part.placer.state.recorded_meaning(&there).unwrap_or(placer.meaning(Some(format)));
        merged.push((file, to, meaning, corrected));
    }
    let is_mask = |meaning: Meaning| meaning.format == Some(Format::Masks);
    merged.retain(|(.., meaning, _)| !(has_own_masks && is_mask(*meaning)));
    for (file, to, meaning, corrected) in merged {
        placer.create_folder_of(&to)?;
        placer.state.merge(&file, meaning, corrected.as_deref())?;
    }
    Ok(())
}

/// The error for shards that cannot be merged.
fn refusal(root: &Path, why: &str) -> Error {
    Error::mismatch(format!("cannot merge, {}: {why}", root.display()))
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a))
}

/// Checks that the parts are the shards of one job, each of them once.
fn check(parts: &[Part]) -> Result<()> {
    let refuse = |part: &Part, why: String| Err(refusal(&part.folder.root, &why));
    let Some(first) = parts.first() else { return Ok(()) };
    let Some(whole) = first.contents.shard else { return Ok(()) };
    let mut shard_of = BTreeMap::new();
    for part in parts {
        let other = first.folder.root.display();
        let options = |part: &Part| serde_json::to_value(&part.contents.options).unwrap_or_default();
        let settings = difference("", &part.settings, &first.settings);
        let differs = settings.or_else(|| difference("", &options(part), &options(first)));
        if let Some((key, here, there)) = differs {
            return refuse(part, format!("its {key} is {here}, that of {other} {there}"));
        }
        let Some(shard) = part.contents.shard else { continue };
        let (count, all) = (shard.count(), whole.count());
        if count != all {
            return refuse(part, format!("it is one of {count} shards, {other} one of {all}"));
        }
        if part.contents.names_sha256 != first.contents.names_sha256 {
            return refuse(part, format!("it has other images than {other}"));
        }
        if let Some(twin) = shard_of.insert(shard.index(), part) {
            let twin = twin.folder.root.display();
            return refuse(part, format!("it is shard {}/{}, as is {twin}", shard.index(), shard.count()));
        }
    }
    let missing: Vec<String> = (1..=whole.count())
        .filter(|index| !shard_of.contains_key(index))
        .map(|index| format!("{index}/{}", whole.count()))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        refuse(first, format!("shards are missing: {}; add their folders", missing.join(", ")))
    }
}
