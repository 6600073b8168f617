//! Looks for instances in the pending images, and records what is found.

use std::collections::BTreeMap;

use ocelli::{
    Detection, Detector, Error, ErrorKind, Result, StageTimes,
    stages::{ImageEncoder, ImageFeatures, PromptDecoder, Stages, TextEmbedder, TiledSearch},
    tiles::{PictureFile, Regions, Tiling},
};

use super::{LabelEvent, LabelJob, ReadImage};
use crate::label::class_map::ClassMap;
use crate::label::images::ImageFile;
use crate::label::journal::Entry;
use crate::label::prefetch::{Prepared, Preparer, in_order};
use crate::label::prompts::LabelPrompts;
use crate::label::record::{Record, identity};
use crate::label::source::open_regions;

/// After this many failures of the engine in a row, the images are not the cause.
const MAX_ENGINE_FAILURES: usize = 5;
/// Decoded images that wait for the detector, for each decoding thread.
pub(super) const AHEAD: usize = 2;

/// The stages of a detector that finds the classes of a data set.
pub(super) struct LabelStages {
    text: TextEmbedder,
    encoder: ImageEncoder,
    decoder: PromptDecoder,
    features: ImageFeatures,
    tiles: Option<TiledSearch>,
}

impl LabelStages {
    pub fn new(detector: Detector, tiling: Option<Tiling>) -> Result<Self> {
        let Stages { text, encoder, decoder, .. } = detector.into_stages();
        let tiles = tiling.map(TiledSearch::new).transpose()?;
        Ok(Self { text, encoder, decoder, features: ImageFeatures::default(), tiles })
    }

    /// The prompts for the classes from `first` on in these images, with everything loaded.
    pub fn prompts(
        &mut self,
        (map, first): (&ClassMap, usize),
        todo: &[ImageFile],
        preparer: &Preparer,
    ) -> Result<LabelPrompts> {
        let stages = (&mut self.text, &mut self.encoder, &mut self.decoder);
        let prompts = LabelPrompts::new(map, first, todo, preparer, stages, false)?;
        self.encoder.load()?;
        self.decoder.load()?;
        Ok(prompts)
    }

    /// Whether the next images get masks, if the detector computes any.
    pub fn set_masks(&mut self, masks: bool) {
        self.decoder.set_masks(masks);
    }

    /// The size of an image, and what is found in it.
    pub fn look(
        &mut self,
        prompts: &mut LabelPrompts,
        (file, prepared): (&ImageFile, Prepared),
        preparer: &Preparer,
    ) -> Result<((u32, u32), Vec<Detection>)> {
        let (size, mut times) = (prepared.size, StageTimes::default());
        if let Some(tiles) = &mut self.tiles {
            let mut picture = match prepared.frame {
                Some(frame) => PictureFile::from(frame),
                None => open_regions(&file.path)?,
            };
            let found = match prompts.of(&mut self.text, file)? {
                Some(prompts) => {
                    let stages = (&mut self.encoder, &mut self.decoder);
                    tiles.detect(stages, &mut picture, prompts, &mut times)?.items
                }
                None => Vec::new(),
            };
            return Ok((picture.size(), found));
        }
        self.encoder.encode_pixels_into(&prepared.pixels, size, &mut self.features, &mut times)?;
        preparer.recycle(prepared);
        let found = prompts.decode(&mut self.text, file, &self.features, &mut self.decoder)?;
        Ok((size, found))
    }
}

impl LabelJob {
    /// Labels the pending images. They are decoded on `threads` threads ahead of the detector.
    ///
    /// An image that cannot be labelled is reported and recorded, and the job continues. An error of `on_event` ends the
    /// job; finished images are kept. Frames of videos are labelled by [`run_videos`](Self::run_videos).
    ///
    /// # Errors
    /// The error of `on_event`, [`ErrorKind::Io`] if the output cannot be written, the error of a model or an engine that
    /// cannot be loaded, and the error of an engine that fails for several images in a row.
    pub fn run(
        &mut self,
        detector: Detector,
        threads: usize,
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let preparer = Preparer::new(detector.model().manifest(), self.tiling.is_some());
        let mut label_stages = LabelStages::new(detector, self.tiling)?;
        let mut label = |job: &mut Self, first: usize, todo: Vec<ImageFile>| {
            let mut prompts = label_stages.prompts((&job.classes, first), &todo, &preparer)?;
            in_order(
                todo.len(),
                threads,
                threads * AHEAD,
                |i| read(&preparer, &todo[i]),
                |i, image| {
                    on_event(LabelEvent::Waiting)?;
                    let (identity, prepared) = image.unwrap_or_else(|panicked| ((0, 0), Err(panicked)));
                    let found = prepared.and_then(|prepared| {
                        label_stages.look(&mut prompts, (&todo[i], prepared), &preparer)
                    });
                    job.finish_image(&todo[i], identity, found, (first, prompts.classes()), on_event)
                },
            )
        };
        let groups = self.take_todo();
        let ended = groups.into_iter().try_for_each(|(first, todo)| label(self, first, todo));
        ended.and(self.stopped())
    }

    /// The pending images by the first class that is looked for in them.
    pub(in crate::label) fn take_todo(&mut self) -> BTreeMap<usize, Vec<ImageFile>> {
        let mut groups = BTreeMap::<usize, Vec<ImageFile>>::new();
        for file in std::mem::take(&mut self.todo) {
            // An image that changed is labelled with all classes.
            let is_same = |entry: &&Entry| !entry.failed && entry.identity == identity(&file.path);
            let known = self.journal.entry(&file.name).filter(is_same).and_then(|entry| entry.classes);
            groups.entry(known.unwrap_or(0) as usize).or_default().push(file);
        }
        groups
    }

    /// Writes what waits to be written, so that finished images are complete after an error, too.
    pub(in crate::label) fn stopped(&mut self) -> Result<()> {
        self.placer.written.commit()
    }

    /// Records the detections in an image, or that it failed. `identity` is that of the file before it was read, and
    /// `classes` has the class of each prompt; classes before `first` were not looked for.
    pub(in crate::label) fn finish_image(
        &mut self,
        file: &ImageFile,
        identity: (u64, u64),
        found: Result<((u32, u32), Vec<Detection>)>,
        (first, classes): (usize, &[usize]),
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut record = self.new_record(file, identity)?;
        match found {
            Ok(((width, height), detections)) => {
                self.engine_failures = 0;
                (record.width, record.height) = (width, height);
                record.instances = self.refiner.instances(classes, detections);
                self.add_known(first, &mut record)?;
                self.finish_record(record, on_event)
            }
            Err(error) => {
                let is_engine = error.kind() == ErrorKind::Execution;
                self.engine_failures = if is_engine { self.engine_failures + 1 } else { 0 };
                if self.engine_failures == MAX_ENGINE_FAILURES {
                    return Err(error);
                }
                record.error = Some(error.to_string());
                self.journal.append(&record)?;
                on_event(LabelEvent::Failed { path: &file.path, error: &error })
            }
        }
    }

    /// A record without a size and instances.
    pub(super) fn new_record(&mut self, file: &ImageFile, identity: (u64, u64)) -> Result<Record> {
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
    pub(super) fn finish_record(
        &mut self,
        record: Record,
        on_event: &mut dyn FnMut(LabelEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        // A person may have corrected it since this run started.
        let is_frozen = match self.journal.entry(&record.name) {
            Some(entry) => self.placer.is_frozen(&record.name, entry, record.identity)?,
            None => false,
        };
        if !is_frozen {
            self.journal.append(&record)?;
            self.placer.place(&record)?;
        }
        on_event(LabelEvent::Done { name: &record.name, instances: record.instances.len() })
    }

    /// Adds the instances of an earlier run to those of the classes that were added since.
    fn add_known(&mut self, first: usize, record: &mut Record) -> Result<()> {
        let Some(entry) = self.journal.entry(&record.name).filter(|_| first > 0).cloned() else {
            return Ok(());
        };
        // An image that changed since is labelled with all classes by the next run.
        record.classes = (entry.identity != record.identity).then_some(0);
        let known = self.journal.read(&entry)?.instances;
        record.instances.extend(known.into_iter().filter(|instance| instance.class < first));
        record.instances.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }
}

/// Reads an image. Its identity is taken first: if the file is replaced meanwhile, the next run labels it again.
pub(in crate::label) fn read(preparer: &Preparer, file: &ImageFile) -> Result<ReadImage> {
    let identity = identity(&file.path);
    if file.path.to_str().is_none() {
        let message = "its path is not UTF-8; rename the file or its folder";
        return Ok((identity, Err(Error::new(ErrorKind::InvalidArgument, message))));
    }
    Ok((identity, preparer.prepare_file(&file.path)))
}
