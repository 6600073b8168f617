//! A data set that is open for writing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Result, classes::ClassMap};
use serde_json::Value;

use crate::label::source::content_of;
use crate::label::store::journal::source_hash;
use crate::label::store::layout::{PROPOSALS, is_dropped, meaning_of};
use crate::label::store::{
    COCO_FILE, ClassHashes, Contents, Entry, Event, Journal, OutputFolder, Owner, Placer, SavedLabels, State,
    WHOLE_FILES, WholeFile, classes_of, journal_path, label_files,
};
use crate::label::{DataSetOptions, ImageFile, ImageSet, Record, Shard, identity};
use crate::table::some;

/// The treatment of the data set that is in the output folder already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// Label all images again instead of continuing, which allows other settings. Corrected label files stay.
    pub restart: bool,
    /// Overwrite label files that were corrected by hand.
    pub discard_corrections: bool,
}

/// The arguments to open a data set.
pub(crate) struct Opening<'a> {
    pub folder: OutputFolder,
    /// The first line of the journal.
    pub described: &'a Value,
    pub options: &'a DataSetOptions,
    pub classes: &'a ClassMap,
    /// All images of the job, in all shards.
    pub whole: ImageSet,
    pub shard: Option<Shard>,
    pub existing: Existing,
    /// `true` if it joins shards.
    pub merges: bool,
    /// Size and time of the file of an image.
    pub identity: &'a dyn Fn(&ImageFile) -> (u64, u64),
}

/// A data set that is open for writing.
pub(crate) struct DataSet {
    pub folder: OutputFolder,
    pub journal: Journal,
    pub contents: Contents,
    pub(super) placer: Placer,
    /// The images of the job, or of its shard.
    pub set: ImageSet,
    /// Files that were removed of formats that are not named any more.
    pub(super) dropped: Vec<String>,
    /// Videos that were not read to their end, each with the reason.
    pub(crate) broken: Vec<(PathBuf, String)>,
}

impl DataSet {
    pub fn open(opening: Opening<'_>) -> Result<Self> {
        let Opening { folder, described, options, classes, whole, shard, existing, merges, identity } =
            opening;
        let Existing { restart, .. } = existing;
        let mut state = match State::open(&folder) {
            Err(e) if restart && existing.discard_corrections && e.kind() == ErrorKind::InvalidData => {
                let mut state = State::new(&folder.root, None);
                state.start()?;
                state
            }
            state => state?,
        };
        state.recover(&OutputFolder::FOLDERS)?;
        // What a run with little memory left behind when it was killed.
        drop(std::fs::remove_file(folder.spill_path()));
        let path = journal_path(&folder.root);
        let before = state.contents.clone().filter(|_| !restart);
        let hashes = ClassHashes::new(classes.names());
        state.see_all(&whole, options, &hashes, restart || existing.discard_corrections)?;
        if !existing.discard_corrections {
            let way_out = if merges {
                "name another output folder"
            } else {
                "choose another output folder, or discard_corrections to overwrite them"
            };
            let own = |error: Error| if merges { error } else { error.about("discard_corrections") };
            let cannot = |error: Error| {
                let message = format!("{error}, or discard_corrections to overwrite it");
                if merges { error } else { own(Error::new(error.kind(), message).with_source(error)) }
            };
            let check =
                |state: &State, changed: &[_]| check_conflicts(state, changed, &hashes, way_out, options);
            let changed = state.changed_annotations()?;
            if !changed.is_empty() {
                // Whatever refuses this run comes before anything is followed.
                folder.check_shard(before.as_ref(), shard)?;
                let grows = restart || Journal::check(&path, described)?;
                check(&state, &changed).map_err(own)?;
                state = state.follow_annotations(options, grows.then_some(classes)).map_err(cannot)?;
            }
            check(&state, &[]).map_err(own)?;
        }
        folder.check_shard(before.as_ref(), shard)?;
        // Checks the settings before anything is discarded.
        let continued = if restart {
            None
        } else {
            folder.check_journal(before.as_ref())?;
            Some(Journal::open(&path, described)?)
        };
        if existing.discard_corrections {
            discard_corrections(&mut state, options, &hashes, &whole)?;
        }
        let former = Journal::open_existing(&path).ok().filter(|_| restart);
        let there = continued.as_ref().or(former.as_ref().map(|(journal, _)| journal));
        if let Some(journal) = there {
            state.note_journal(journal)?;
        }
        let contents = Contents {
            shard,
            images: whole.files().len() as u64,
            names_sha256: whole.names_sha256(),
            options: options.clone(),
            written: before.map_or(0, |before| before.written),
        };
        let of_shard =
            whole.files().iter().filter(|file| shard.is_none_or(|shard| shard.contains(&file.key())));
        let of_shard: HashSet<PathBuf> = of_shard.map(|file| file.path.clone()).collect();
        let whole = state.name_images(whole, identity);
        let is_here = |file: &&ImageFile| of_shard.contains(&file.path);
        let set = ImageSet::from_named(whole.files().iter().filter(is_here).cloned().collect());
        let mut placer = Placer::new(state, options, &whole, classes);
        let kept = match &former {
            Some((journal, before)) => kept_images(&mut placer, journal, before, &set)?,
            None => Vec::new(),
        };
        // The names, and what is left out, have to survive the journal.
        placer.state.save_images()?;
        let mut journal = match continued {
            Some(journal) => journal,
            None => restart_journal(&path, &mut placer, described, former, &kept)?,
        };
        if journal.is_mostly_superseded() {
            // What it says of earlier images is kept by the state alone from here on.
            journal.compact()?;
        }
        let dropped = placer.remove_dropped()?;
        placer.state.set_contents(Some(contents.clone()))?;
        journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
        Ok(Self { folder, journal, contents, placer, set, dropped, broken: Vec::new() })
    }

    /// Finds the images that are not in the journal, failed, or have changed since.
    pub fn find_todo(&mut self) -> Result<Vec<ImageFile>> {
        let mut todo = Vec::new();
        for file in self.set.files() {
            let Some(entry) = self.journal.entries.get(&file.name).cloned() else {
                todo.push(file.clone());
                continue;
            };
            let now = identity(&file.path);
            // Its place among the frames of a folder: objects are followed to it by another way.
            let is_elsewhere = entry.frame != file.frame.as_ref().map(|frame| frame.index);
            if entry.failed || entry.classes.is_some() || entry.identity != now || is_elsewhere {
                // Its labels describe the image that stays in the data set.
                if !self.placer.is_frozen(&file.name, &entry, now)? {
                    todo.push(file.clone());
                } else if let Some(record) = self.journal.read_labelled(&entry)?
                    && (entry.failed || record.source != file.path)
                {
                    // It does not matter any more that the source could not be read, or where it was.
                    self.journal.append(&Record { source: file.path.clone(), ..record })?;
                }
            } else if entry.source != source_hash(&file.path) {
                // The same image at another path keeps its instances.
                let record = self.journal.read(&entry)?;
                let record = Record { source: file.path.clone(), frame: file.frame.clone(), ..record };
                self.journal.append(&record)?;
            }
        }
        Ok(todo)
    }

    /// A record without a size and instances.
    pub fn new_record(&mut self, file: &ImageFile, identity: (u64, u64)) -> Result<Record> {
        Ok(Record {
            name: file.name.clone(),
            source: file.path.to_string_lossy().into_owned().into(),
            identity,
            validation: Some(self.placer.settle(&file.name)?),
            frame: file.frame.clone(),
            ..Record::default()
        })
    }

    /// Records the instances in an image, and writes its files.
    pub fn record(&mut self, record: &mut Record) -> Result<()> {
        // That of the image that was read: it was not replaced before the content was read, either.
        let content = content_of(&record.source);
        record.content = content.filter(|_| identity(&record.source) == record.identity);
        // A person may have corrected it since this run started.
        let entry = self.journal.entries.get(&record.name);
        let is_frozen = |entry| self.placer.is_frozen(&record.name, entry, record.identity);
        if !entry.map_or(Ok(false), is_frozen)? {
            self.journal.append(record)?;
            self.placer.place(record)?;
        }
        Ok(())
    }
}

/// Replaces the journal by one with what is kept of the former one.
fn restart_journal(
    path: &Path,
    placer: &mut Placer,
    described: &Value,
    former: Option<(Journal, Value)>,
    kept: &[(Entry, Option<u32>)],
) -> Result<Journal> {
    let is_same = |(_, before): &(Journal, Value)| before.get("classes") == described.get("classes");
    if !former.as_ref().is_some_and(is_same) {
        // Until the restart is finished, no file says which classes the ids mean.
        for (below, _) in placer.options.yolo_folders() {
            placer.state.remove(&format!("{below}data.yaml"))?;
            placer.state.remove(&format!("{below}classes.txt"))?;
        }
        placer.state.commit()?;
    }
    placer.state.remove_labels()?;
    // The journal stays until another one replaces it: a stop in between loses no image.
    placer.state.set_contents(None)?;
    Journal::restart(path, described, former.as_ref().map(|(journal, _)| journal), kept)
}

/// The images that a restart keeps, each with the number of classes that need not be looked for again. Images that are
/// named are labelled again, but until then, or if they cannot be read, they keep what was found before. If the ids of the
/// classes mean others now, nothing is kept, and all images are noted as left out until they are labelled again.
fn kept_images(
    placer: &mut Placer,
    journal: &Journal,
    before: &Value,
    set: &ImageSet,
) -> Result<Vec<(Entry, Option<u32>)>> {
    let before = classes_of(before).unwrap_or_default();
    let (fewer, all) = (before.names().count(), placer.class_names().count());
    let are_known = fewer <= all && before.names().zip(placer.class_names()).all(|(a, b)| a == b);
    let files: HashMap<&str, &ImageFile> =
        set.files().iter().map(|file| (file.name.as_str(), file)).collect();
    let mut kept = Vec::new();
    for (name, entry) in journal.entries.iter().filter(|(_, entry)| entry.is_labelled()) {
        if !are_known {
            placer.state.change_image(name, |known| known.is_left_out = true);
            continue;
        }
        let stays = match files.get(name.as_str()) {
            Some(file) => placer.is_frozen(name, entry, identity(&file.path))?,
            None => true,
        };
        let known = entry.classes.or((fewer < all).then_some(fewer as u32));
        kept.push((entry.clone(), if stays { known } else { Some(0) }));
    }
    Ok(kept)
}

/// Images that a message names.
const NAMED: usize = 10;

/// Refuses to write over corrected files and saved labels that have another format or other classes, and to leave those behind
/// whose format is not named any more: nothing would say that they describe an earlier image. COCO's files that were `changed` are
/// followed.
fn check_conflicts(
    state: &State,
    changed: &[WholeFile],
    classes: &ClassHashes,
    way_out: &str,
    options: &DataSetOptions,
) -> Result<()> {
    let is_followed =
        |file: &str| changed.iter().any(|(other, format, _)| *other == file && options.has(*format));
    let wanted = |file: &str| meaning_of(options, classes.all, file).filter(|_| !is_followed(file));
    let mut conflicts = state.conflicts(classes, wanted)?;
    let is_dropped = |file: &str| is_dropped(options, file) && !file.starts_with(PROPOSALS);
    conflicts.extend(state.existing_of(Owner::Person, is_dropped)?);
    let is_lost = |image: &&SavedLabels| {
        !WHOLE_FILES.iter().any(|(_, format, _)| options.has(*format))
            || (image.classes != classes.all && classes.earlier(image.classes).is_none())
    };
    let lost: Vec<_> = state.saved.values().filter(is_lost).map(|image| image.name.as_str()).collect();
    if !lost.is_empty() {
        conflicts.push(format!("{COCO_FILE} (what was saved for {})", some(&lost, NAMED)));
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    let message = format!(
        "cannot write the data set, {}: these files were corrected by hand and have another format or other classes: {}; {way_out}",
        state.root.display(),
        conflicts.join(", ")
    );
    Err(Error::mismatch(message))
}

/// Makes every file ours, whoever wrote it, and forgets what a person saved.
fn discard_corrections(
    state: &mut State,
    options: &DataSetOptions,
    classes: &ClassHashes,
    whole: &ImageSet,
) -> Result<()> {
    let both = |name: &str| [false, true].map(|split| label_files(options, name, split));
    let files = whole.files().iter().flat_map(|file| both(&file.name).into_iter().flatten());
    let files = files.map(|(file, _)| file);
    let others = ["", "segments/"]
        .into_iter()
        .flat_map(|below| ["classes.txt", "data.yaml"].map(|name| format!("{below}{name}")))
        .chain(WHOLE_FILES.map(|(file, ..)| file.to_owned()));
    let meant = |file: String| meaning_of(options, classes.all, &file).map(|meaning| (file, meaning));
    state.discard_corrections(files.chain(others).filter_map(meant))?;
    if state.saved.is_empty() { Ok(()) } else { state.append(Event::Discarded) }
}
