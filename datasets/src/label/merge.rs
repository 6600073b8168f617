//! Joins the shards of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::class_map::{Class, ClassMap};
use super::folder::{Contents, OutputFolder};
use super::images::{ImageFile, ImageSet};
use super::journal::{Journal, difference};
use super::placer::Placer;
use super::write::{Summary, write_data_set};
use ocelli::{Error, ErrorKind, Result};

/// A finished shard.
struct Part {
    folder: OutputFolder,
    contents: Contents,
    journal: Journal,
    settings: Value,
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
        Ok(Self { folder, contents, journal, settings })
    }
}

/// Joins shards into one data set, identical to that of one process for all images. An error of `check_cancelled`, which is
/// called for each image, ends it.
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
    let named = shard_of.keys().map(|name| ImageFile { path: PathBuf::new(), name: name.clone() });
    if ImageSet::from_named(named.collect()).names_sha256() != expected {
        let message = format!(
            "cannot merge, {}: the images of its shards are not those of the job; restart the shards and label them \
             again",
            output.display()
        );
        return Err(Error::new(ErrorKind::Mismatch, message));
    }
    let folder = OutputFolder::open(output)?;
    if let Some(there) = folder.contents()? {
        if there.shard.is_some() || there.names_sha256 != expected {
            let message = format!(
                "output folder, {}: it contains another data set; name another folder",
                output.display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        contents.written = there.written;
    }
    folder.set_contents(&contents)?;
    let mut journal = Journal::open(&folder.journal_path(), &settings)?;
    for (name, part) in shard_of {
        check_cancelled()?;
        let part = &mut parts[part];
        let entry = part.journal.entry(&name).cloned().expect("its name came from this journal");
        let is_merged = journal.entry(&name).is_some_and(|there| {
            (there.identity, there.source, there.failed) == (entry.identity, entry.source, entry.failed)
        });
        let record = part.journal.read(&entry)?;
        files.push(ImageFile { path: record.source.clone(), name });
        if !is_merged {
            journal.append(&record)?;
        }
    }
    journal.sync()?;
    let set = ImageSet::from_named(files);
    let placer = Placer::new(folder.root(), &options, &set);
    let written = contents.written;
    let summary = write_data_set(&folder, &mut journal, &set, placer, &classes, written, check_cancelled)?;
    folder.set_contents(&Contents { written: journal.length(), ..contents })?;
    Ok(summary)
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
fn classes_of(settings: &Value) -> Option<ClassMap> {
    let class = |class: &Value| Some(Class { name: class.get("name")?.as_str()?.into(), ..Class::default() });
    let classes: Option<Vec<Class>> = settings.get("classes")?.as_array()?.iter().map(class).collect();
    Some(ClassMap { classes: classes?, merge: Vec::new() })
}
