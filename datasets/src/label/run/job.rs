//! Labels images one after the other, with a line in the journal for each.

mod run;
mod videos;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Model, Result, prompt::MAX_CLASSES, tiles::Tiling};
use serde_json::Value;

use crate::label::images::{ImageFile, ImageSet, Shard};
use crate::label::record::{Record, identity};
use crate::label::run::prefetch::Prepared;
use crate::label::run::refine::Refiner;
use crate::label::settings::{DataSetOptions, Format, LabelSettings, Tracking};
use crate::label::source::is_member;
use crate::label::store::conflicts::{check_conflicts, meaning_of};
use crate::label::store::folder::{Contents, OutputFolder};
use crate::label::store::journal::{Entry, Journal, classes_of, source_hash};
use crate::label::store::known::KnownImages;
use crate::label::store::placer::{Placer, label_files};
use crate::label::store::saved::Saved;
use crate::label::store::write::{Summary, whole_files, write_data_set};
use crate::label::store::written::{ClassHashes, Written};
use ocelli::classes::{ClassMap, ExemplarImage};
pub(crate) use run::read;

/// What happens to the data set that is in the output folder already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// Label all images again instead of continuing, which allows other settings. Corrected label files stay.
    pub restart: bool,
    /// Overwrite label files that were corrected by hand.
    pub discard_corrections: bool,
}

/// The size and the time of the last change of an image, and its pixels, or why it cannot be read.
pub(crate) type ReadImage = ((u64, u64), Result<Prepared>);

/// An event while images are labelled.
#[derive(Debug)]
pub enum LabelEvent<'a> {
    /// The next image is about to be encoded or decoded.
    Waiting,
    /// An image is done.
    Done {
        /// Its name in the data set.
        name: &'a str,
        /// Number of instances in it.
        instances: usize,
    },
    /// An image cannot be labelled, or a video not be read to its end.
    Failed {
        /// The file.
        path: &'a Path,
        /// The reason.
        error: &'a Error,
    },
}

/// A data set that is being labelled.
pub struct LabelJob {
    folder: OutputFolder,
    pub(crate) journal: Journal,
    contents: Contents,
    /// All images of the job, in all shards.
    whole: ImageSet,
    /// The images of this shard.
    set: ImageSet,
    /// The images that are not labelled yet, or without classes that were added.
    pub(crate) todo: Vec<ImageFile>,
    pub(crate) classes: ClassMap,
    refiner: Refiner,
    pub(crate) masks: bool,
    tracking: Option<Tracking>,
    pub(crate) tiling: Option<Tiling>,
    placer: Placer,
    /// In a row, by device.
    engine_failures: HashMap<usize, usize>,
    /// What was removed of formats that are not named any more.
    dropped: Vec<String>,
}

impl LabelJob {
    /// Checks whether a data set can be written to this folder. Nothing is changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the folder contains something else.
    pub fn check_output(root: &Path) -> Result<()> {
        OutputFolder::check(root)
    }

    /// Starts a data set, or continues one.
    ///
    /// New images, changed images and images that failed are labelled. Label files that were corrected by hand stay, and so
    /// does the split of images that were labelled before.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the folder contains something else; [`ErrorKind::Mismatch`] if the data set was
    /// started with other settings, or if corrected files have another format or other classes (the message lists them);
    /// [`ErrorKind::InvalidData`] if its state is corrupt; [`ErrorKind::Io`] if another process is writing to it or it cannot
    /// be written.
    pub fn open(
        root: &Path,
        model: &Model,
        settings: &LabelSettings,
        options: &DataSetOptions,
        whole: ImageSet,
        shard: Option<Shard>,
        existing: Existing,
    ) -> Result<Self> {
        settings.check_tracking(model)?;
        Self::open_described(
            root,
            &settings.describe(model.manifest()),
            settings,
            options,
            whole,
            shard,
            existing,
        )
    }

    /// As [`open`](Self::open), with the first line of the journal.
    pub(crate) fn open_described(
        root: &Path,
        described: &Value,
        settings: &LabelSettings,
        options: &DataSetOptions,
        whole: ImageSet,
        shard: Option<Shard>,
        Existing { restart, discard_corrections }: Existing,
    ) -> Result<Self> {
        options.check()?;
        let in_need = [Format::YoloSeg, Format::Masks, Format::YoutubeVis];
        let in_need = in_need.into_iter().find(|format| options.has(*format));
        if let Some(format) = in_need.filter(|_| !settings.masks) {
            let message = format!("format {format} needs masks, but masks is false in the label settings");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        check_tracking(settings, options, &whole, shard)?;
        check_exemplars(&settings.classes, &whole)?;
        let phrases = settings.classes.classes.iter().map(|class| class.phrases.len()).sum::<usize>();
        let classes = settings.classes.classes.len();
        if classes.max(phrases) > MAX_CLASSES {
            let message = format!(
                "classes is {classes}, with {phrases} phrases: expected at most {MAX_CLASSES} of each"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let folder = OutputFolder::open(root)?;
        let before = match folder.contents() {
            // A restart does not need to know what was there.
            Err(e) if restart && e.kind() == ErrorKind::InvalidData => None,
            contents => contents?,
        };
        let mut written = match Written::open(&folder) {
            Err(e) if restart && discard_corrections && e.kind() == ErrorKind::InvalidData => {
                let mut written = Written::new(root, &folder.written_path());
                written.save()?;
                written
            }
            record => record?,
        };
        written.recover(&OutputFolder::FOLDERS)?;
        // What a run with little memory left behind when it was killed.
        drop(std::fs::remove_file(folder.spill_path()));
        let classes = ClassHashes::new(settings.classes.names());
        if !discard_corrections {
            let way_out = "choose another output folder, or discard_corrections to overwrite them";
            check_conflicts(root, &written, &classes, way_out, options)
                .map_err(|error| error.about("discard_corrections"))?;
        }
        let mut saved = Saved::default();
        if !discard_corrections {
            saved = Saved::load(root)?;
            let way_out = "choose another output folder, or discard_corrections to overwrite them";
            let checked = saved.check(root, options, &classes, way_out);
            checked.map_err(|error| error.about("discard_corrections"))?;
        }
        let before = before.filter(|_| !restart);
        if let Some(before) = before.as_ref().filter(|before| before.shard != shard) {
            let name = |shard: Option<Shard>| {
                shard.map_or("the whole job".into(), |s| format!("shard {}/{}", s.index(), s.count()))
            };
            let message = format!(
                "output folder, {}: it holds {}, this is {}; choose another folder or restart",
                root.display(),
                name(before.shard),
                name(shard)
            );
            return Err(Error::new(ErrorKind::Mismatch, message).about("restart"));
        }
        // Checks the settings before anything is discarded.
        let continued = match restart {
            true => None,
            false => {
                folder.check_journal(before.as_ref())?;
                Some(Journal::open(&folder.journal_path(), described)?)
            }
        };
        if discard_corrections {
            let both = |name: &str| [false, true].map(|split| label_files(options, name, split));
            let files = whole.files().iter().flat_map(|file| both(&file.name).into_iter().flatten());
            let files = files.map(|(file, _)| file);
            let others = ["", "segments/"]
                .into_iter()
                .flat_map(|below| ["classes.txt", "data.yaml"].map(|name| format!("{below}{name}")))
                .chain(whole_files().map(|(file, _)| file.to_owned()));
            let meant = |file: String| meaning_of(options, classes.all, &file).map(|meaning| (file, meaning));
            written.discard_corrections(files.chain(others).filter_map(meant))?;
            saved = Saved::discard(root)?;
        }
        let mut known = match KnownImages::load(root) {
            Err(e) if restart && discard_corrections && e.kind() == ErrorKind::InvalidData => {
                KnownImages::empty(root)
            }
            known => known?,
        };
        let before_restart = Journal::open_existing(&folder.journal_path()).ok().filter(|_| restart);
        if known.is_empty() {
            // The data set has no record of its images yet, or it was lost.
            let journal = before_restart.as_ref().map(|(journal, _)| journal);
            remember_images(&mut known, continued.as_ref().or(journal))?;
        }
        let journal = before_restart.as_ref().map(|(journal, _)| journal);
        if let Some(journal) = continued.as_ref().or(journal) {
            known.note_contents(journal);
        }
        let names_sha256 = whole.names_sha256();
        let of_shard =
            whole.files().iter().filter(|file| shard.is_none_or(|shard| shard.contains(&file.key())));
        let of_shard: HashSet<PathBuf> = of_shard.map(|file| file.path.clone()).collect();
        let whole = known.name(whole, |file| identity(&file.path));
        let is_here = |file: &&ImageFile| of_shard.contains(&file.path);
        let set = ImageSet::from_named(whole.files().iter().filter(is_here).cloned().collect());
        let mut placer = Placer::new(written, root, options, &whole, &settings.classes);
        placer.saved = saved;
        placer.known = known;
        if let Some(journal) = continued.as_ref().or(before_restart.as_ref().map(|(journal, _)| journal)) {
            placer.note_pictures(journal);
        }
        let contents = Contents {
            shard,
            images: whole.files().len() as u64,
            names_sha256,
            options: options.clone(),
            written: before.map_or(0, |before| before.written),
        };
        let mut kept = Vec::new();
        if let Some((journal, before)) = &before_restart {
            let classes_before = classes_of(before).unwrap_or_default();
            kept = kept_images(&mut placer, journal, &classes_before, &set, &settings.classes)?;
        }
        // The names, and what is left out, have to survive the journal.
        placer.known.save()?;
        let journal = match continued {
            Some(journal) => journal,
            None => {
                let is_same =
                    |(_, before): &(Journal, Value)| before.get("classes") == described.get("classes");
                if !before_restart.as_ref().is_some_and(is_same) {
                    // Until the restart is finished, no file says which classes the ids mean.
                    for (below, _) in options.yolo_folders() {
                        placer.written.remove(&format!("{below}data.yaml"))?;
                        placer.written.remove(&format!("{below}classes.txt"))?;
                    }
                    placer.written.commit()?;
                }
                placer.written.remove_labels()?;
                folder.restart()?;
                let former = before_restart.as_ref().map(|(journal, _)| journal);
                Journal::restart(&folder.journal_path(), described, former, &kept)?
            }
        };
        let dropped = placer.remove_dropped()?;
        folder.set_contents(&contents)?;
        journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
        let mut job = Self {
            placer,
            folder,
            journal,
            contents,
            whole,
            set,
            todo: Vec::new(),
            classes: settings.classes.clone(),
            refiner: Refiner::new(settings),
            masks: settings.masks,
            tracking: settings.tracking,
            tiling: settings.tiling,
            engine_failures: HashMap::new(),
            dropped,
        };
        job.find_todo()?;
        Ok(job)
    }

    /// Finds the images that are not in the journal, failed, or have changed since.
    fn find_todo(&mut self) -> Result<()> {
        for file in self.set.files() {
            let Some(entry) = self.journal.entry(&file.name).cloned() else {
                self.todo.push(file.clone());
                continue;
            };
            let now = identity(&file.path);
            // Its place among the frames of a folder: objects are followed to it by another way.
            let is_elsewhere = entry.frame != file.frame.as_ref().map(|frame| frame.index);
            if entry.failed || entry.classes.is_some() || entry.identity != now || is_elsewhere {
                // Its labels describe the picture that stays in the data set.
                if !self.placer.is_frozen(&file.name, &entry, now)? {
                    self.todo.push(file.clone());
                } else if let Some(record) = self.journal.read_labelled(&entry)?.filter(|_| entry.failed) {
                    // It does not matter any more that the source could not be read.
                    self.journal.append(&record)?;
                }
            } else if entry.source != source_hash(&file.path) {
                // The same image at another path keeps its instances.
                let record = self.journal.read(&entry)?;
                let record = Record { source: file.path.clone(), frame: file.frame.clone(), ..record };
                self.journal.append(&record)?;
            }
        }
        Ok(())
    }

    /// The images whose name is not the end of their path: another image has it, or trainers cannot use it. Frames of videos
    /// are not among them.
    pub fn renamed(&self) -> Vec<(&Path, &str)> {
        let files = self.set.files().iter().filter(|file| {
            file.frame.is_none() && !is_member(&file.path) && !file.path.ends_with(&file.name)
        });
        files.map(|file| (file.path.as_path(), file.name.as_str())).collect()
    }

    /// Number of images of this job, or of its shard.
    pub fn images(&self) -> usize {
        self.set.files().len()
    }

    /// Number of images of the whole job, in all shards.
    pub fn images_of_all_shards(&self) -> usize {
        self.whole.files().len()
    }

    /// Number of images that are not labelled yet.
    pub fn pending(&self) -> usize {
        self.todo.len()
    }

    pub(crate) fn folder(&self) -> &OutputFolder {
        &self.folder
    }

    /// Writes every file of the data set from the journal. An error of `check_cancelled`, which is called for each image,
    /// ends it.
    ///
    /// # Errors
    /// The error of `check_cancelled`; [`ErrorKind::Io`] if a file cannot be written.
    pub fn finish(mut self, check_cancelled: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
        let mut summary = write_data_set(
            &self.folder,
            &self.journal,
            &self.set,
            &mut self.placer,
            &self.classes,
            check_cancelled,
        )?;
        summary.dropped = std::mem::take(&mut self.dropped);
        self.contents.written = self.journal.length();
        self.folder.set_contents(&self.contents)?;
        // The last write: what a stopped run did not say, the next one says.
        self.placer.known.save()?;
        Ok(summary)
    }
}

/// The images that a restart keeps, each with the number of classes that need not be looked for again. Images that are
/// named are labelled again, but until then, or if they cannot be read, they keep what was found before. If the ids of the
/// classes mean others now, nothing is kept, and all images are noted as left out until they are labelled again.
fn kept_images(
    placer: &mut Placer,
    journal: &Journal,
    before: &ClassMap,
    set: &ImageSet,
    classes: &ClassMap,
) -> Result<Vec<(Entry, Option<u32>)>> {
    let (fewer, all) = (before.names().count(), classes.names().count());
    let are_known = fewer <= all && before.names().zip(classes.names()).all(|(a, b)| a == b);
    let files: HashMap<&str, &ImageFile> =
        set.files().iter().map(|file| (file.name.as_str(), file)).collect();
    let mut names: Vec<&str> = journal.names().collect();
    names.sort_unstable();
    let mut kept = Vec::new();
    for name in names {
        let Some(entry) = journal.entry(name).filter(|entry| entry.is_labelled()) else { continue };
        if !are_known {
            placer.known.change(name, |known| known.is_left_out = true);
            continue;
        }
        let stays = match files.get(name) {
            Some(file) => placer.is_frozen(name, entry, identity(&file.path))?,
            None => true,
        };
        let known = entry.classes.or((fewer < all).then_some(fewer as u32));
        kept.push((entry.clone(), if stays { known } else { Some(0) }));
    }
    Ok(kept)
}

/// Fills the record of the images of a data set from its journal.
fn remember_images(known: &mut KnownImages, journal: Option<&Journal>) -> Result<()> {
    let Some(journal) = journal else { return Ok(()) };
    for (name, entry) in journal.entries() {
        let path = journal.read(entry)?.source;
        known.add(
            &ImageFile { path, name: name.clone(), frame: None },
            entry.described.unwrap_or(entry.identity),
        );
    }
    Ok(())
}

/// Checks that objects are followed through videos, and only there.
fn check_tracking(
    settings: &LabelSettings,
    options: &DataSetOptions,
    whole: &ImageSet,
    shard: Option<Shard>,
) -> Result<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if settings.tracking.is_none() {
        if whole.files().iter().any(|file| file.frame.is_some()) {
            return refuse("tracking is missing: images are frames of videos".into());
        }
        if options.has(Format::YoutubeVis) {
            return refuse(format!(
                "format {} needs videos, through which it follows objects",
                Format::YoutubeVis
            ));
        }
        return Ok(());
    };
    if shard.is_some() {
        return refuse("shard: objects are followed through whole videos, which have no shards".into());
    }
    Ok(())
}

/// Checks that the images of all exemplars exist.
fn check_exemplars(classes: &ClassMap, set: &ImageSet) -> Result<()> {
    for class in &classes.classes {
        for exemplar in &class.exemplars {
            let (image, why) = match &exemplar.image {
                ExemplarImage::Image(name) if !set.files().iter().any(|file| file.name == *name) => (
                    name.clone(),
                    "no image has this name; a name is the path below the folder of the images",
                ),
                ExemplarImage::File(file) if !file.is_file() => (file.display().to_string(), "no such file"),
                _ => continue,
            };
            let message = format!("exemplar of class \"{}\", {image}: {why}", class.name);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
    }
    Ok(())
}
