//! The work itself: picture after picture into the journal.

use std::path::Path;

use super::ahead::in_order;
use super::class_map::{ClassMap, ExamplePicture};
use super::folder::{Contents, OutputFolder};
use super::journal::{Journal, source_hash};
use super::pictures::{PictureFile, PictureSet, Shard};
use super::prepare::Preparer;
use super::record::{Record, identity};
use super::refine::Refiner;
use super::search::Searches;
use super::settings::{DataSetOptions, Format, LabelSettings};
use super::write::{Existing, Placer, Summary, write_data_set};
use ocelli::Detection;
use ocelli::Model;
use ocelli::{Detector, ImageFeatures, StageTimes};
use ocelli::{Error, ErrorKind, Result};

/// After so many failures of the engine in a row it is not the pictures' fault.
const ENGINE_FAILURES: usize = 5;
/// Pictures that are decoded and not yet looked at, for each thread that decodes.
const AHEAD: usize = 2;

/// What happens while pictures are labelled.
#[derive(Debug)]
pub enum LabelEvent<'a> {
    /// A picture waits for its turn, or was encoded and waits for the decoder.
    Waiting,
    /// A picture is done.
    Done {
        /// What it is called.
        name: &'a str,
        /// Things in it.
        things: usize,
    },
    /// A picture cannot be labelled.
    Failed {
        /// The file.
        path: &'a Path,
        /// Why.
        error: &'a Error,
    },
}

/// A data set in its making.
pub struct LabelJob {
    folder: OutputFolder,
    pub(super) journal: Journal,
    contents: Contents,
    /// All pictures of the job, those of other shards included.
    whole: PictureSet,
    /// Those of this one.
    set: PictureSet,
    /// Those that have to be labelled yet.
    pub(super) todo: Vec<PictureFile>,
    classes: ClassMap,
    pub(super) refiner: Refiner,
    pub(super) masks: bool,
    placer: Placer,
    engine_failures: usize,
}

impl LabelJob {
    /// Finds out, without touching anything, whether a data set can go into this folder.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where it holds something else.
    pub fn check_output(root: &Path) -> Result<()> {
        OutputFolder::check(root)
    }

    /// Begins a data set, or goes on with one that is there.
    ///
    /// `restart` forgets what was labelled there. Pictures that came since are labelled too, pictures that changed are
    /// labelled again, and so are those that failed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the folder holds something else, [`ErrorKind::Mismatch`] where it was begun
    /// with other settings, [`ErrorKind::Io`] where another process is at work in it or it cannot be written.
    pub fn open(
        root: &Path,
        model: &Model,
        settings: &LabelSettings,
        options: &DataSetOptions,
        whole: PictureSet,
        shard: Option<Shard>,
        restart: bool,
    ) -> Result<Self> {
        options.check()?;
        if options.has(Format::YoloSeg) && !settings.masks {
            let message = "--format yolo-seg needs masks; leave --no-masks out";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        for class in &settings.classes.classes {
            for exemplar in &class.exemplars {
                let (named, why) = match &exemplar.picture {
                    ExamplePicture::Image(image) if !whole.files().iter().any(|file| file.name == *image) => {
                        (
                            image.clone(),
                            "none of the pictures is called that; a picture is called its path below the folder that \
                         --images names",
                        )
                    }
                    ExamplePicture::File(file) if !file.is_file() => {
                        (file.display().to_string(), "no such file")
                    }
                    _ => continue,
                };
                let message = format!("example of class \"{}\", {named}: {why}", class.name);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        let folder = OutputFolder::open(root)?;
        if restart {
            folder.restart()?;
        }
        let before = folder.contents()?;
        if let Some(before) = before.as_ref().filter(|before| before.shard != shard) {
            let name = |shard: Option<Shard>| {
                shard.map_or("the whole job".into(), |s| format!("shard {}/{}", s.index(), s.count()))
            };
            let message = format!(
                "--output, {}: it holds {}, this is {}; name another folder, or begin anew with --restart",
                root.display(),
                name(before.shard),
                name(shard)
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let journal = Journal::open(&folder.journal_path(), &settings.describe(model.manifest()))?;
        let contents = Contents {
            shard,
            pictures: whole.files().len() as u64,
            names_sha256: whole.names_sha256(),
            options: options.clone(),
            written: before.map_or(0, |before| before.written),
        };
        folder.set_contents(&contents)?;
        let is_here = |file: &&PictureFile| shard.is_none_or(|shard| shard.contains(&file.name));
        let set = PictureSet::from_named(whole.files().iter().filter(is_here).cloned().collect());
        let mut job = Self {
            placer: Placer::new(root, options, &whole),
            folder,
            journal,
            contents,
            whole,
            set,
            todo: Vec::new(),
            classes: settings.classes.clone(),
            refiner: Refiner::new(settings),
            masks: settings.masks,
            engine_failures: 0,
        };
        job.find_todo()?;
        Ok(job)
    }

    /// What is not in the journal, failed, or has changed since.
    fn find_todo(&mut self) -> Result<()> {
        for file in self.set.files() {
            let Some(entry) = self.journal.entry(&file.name).cloned() else {
                self.todo.push(file.clone());
                continue;
            };
            if entry.failed || entry.identity != identity(&file.path) {
                self.todo.push(file.clone());
            } else if entry.source != source_hash(&file.path) {
                // The same picture in another place: what was found in it holds.
                let record = Record { source: file.path.clone(), ..self.journal.read(&entry)? };
                self.journal.append(&record)?;
            }
        }
        Ok(())
    }

    /// Pictures of this job, or of this shard of it.
    pub fn pictures(&self) -> usize {
        self.set.files().len()
    }

    /// Pictures of the whole job, those of other shards included.
    pub fn pictures_of_all_shards(&self) -> usize {
        self.whole.files().len()
    }

    /// Pictures that have to be labelled yet.
    pub fn pending(&self) -> usize {
        self.todo.len()
    }

    /// Labels the pictures that have to be. They are decoded on `threads` threads ahead of the detector. `on_event` is
    /// told what happens; its error ends the work, and what was finished stays finished.
    ///
    /// A picture that cannot be labelled is reported and written down, and the others go on.
    ///
    /// # Errors
    /// What `on_event` says; [`ErrorKind::Io`] where the output cannot be written; what a model or an engine that cannot
    /// be loaded says, and an engine that fails for picture after picture.
    pub fn run(
        &mut self,
        detector: Detector,
        threads: usize,
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let preparer = Preparer::new(detector.model().manifest());
        let (mut text, encoder, mut decoder) = detector.into_stages();
        let (_, mut backbone) = encoder.into_stages();
        let stages = (&mut text, &mut backbone, &mut decoder);
        let mut searches = Searches::new(&self.refiner, &self.todo, &preparer, stages, false)?;
        backbone.load()?;
        decoder.load()?;
        let mut features = ImageFeatures::default();
        let todo = std::mem::take(&mut self.todo);
        let ended = in_order(
            todo.len(),
            threads,
            threads * AHEAD,
            |i| preparer.prepare(&todo[i].path),
            |i, prepared| {
                on_event(LabelEvent::Waiting)?;
                let found = prepared.and_then(|prepared| {
                    let size = prepared.size;
                    backbone.run_into(&prepared.pixels, size, &mut features, &mut StageTimes::default())?;
                    preparer.recycle(prepared);
                    let found = searches.decode(&self.refiner, &mut text, &todo[i], &features, &mut decoder);
                    found.map(|found| (size, found))
                });
                self.finish_picture(&todo[i], found, &searches, on_event)
            },
        );
        // Even what ends badly leaves what was finished on the disk.
        let synced = self.journal.sync();
        ended.and(synced)
    }

    /// Writes down what was found in a picture, or that it failed.
    pub(super) fn finish_picture(
        &mut self,
        file: &PictureFile,
        found: Result<((u32, u32), Vec<Detection>)>,
        searches: &Searches,
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut record = Record {
            name: file.name.clone(),
            source: file.path.clone(),
            identity: identity(&file.path),
            ..Record::default()
        };
        match found {
            Ok(((width, height), detections)) => {
                self.engine_failures = 0;
                (record.width, record.height) = (width, height);
                record.things = self.refiner.things(searches.current(), detections);
                self.placer.place(&record, Existing::Replaced)?;
                self.journal.append(&record)?;
                on_event(LabelEvent::Done { name: &file.name, things: record.things.len() })
            }
            Err(error) => {
                let is_engine = error.kind() == ErrorKind::Engine;
                self.engine_failures = if is_engine { self.engine_failures + 1 } else { 0 };
                if self.engine_failures == ENGINE_FAILURES {
                    return Err(error);
                }
                record.error = Some(error.to_string());
                self.placer.place(&record, Existing::Replaced)?;
                self.journal.append(&record)?;
                on_event(LabelEvent::Failed { path: &file.path, error: &error })
            }
        }
    }

    pub(super) fn folder(&self) -> &OutputFolder {
        &self.folder
    }

    /// Writes every file of the data set from the journal. `interrupted` is asked now and then whether to stop.
    ///
    /// # Errors
    /// What `interrupted` says; [`ErrorKind::Io`] where a file cannot be written.
    pub fn finish(mut self, interrupted: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
        let written = self.contents.written;
        let summary = write_data_set(
            &self.folder,
            &mut self.journal,
            &self.set,
            self.placer,
            &self.classes,
            written,
            interrupted,
        )?;
        self.contents.written = self.journal.length();
        self.folder.set_contents(&self.contents)?;
        Ok(summary)
    }
}
