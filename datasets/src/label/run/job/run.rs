//! Looks for instances in the pending images, and records what is found.

use std::collections::BTreeMap;

use ocelli::stages::{
    DecodeRequest, ImageEncoder, ImageFeatures, PromptDecoder, Stages, TextEmbedder, TiledSearch,
};
use ocelli::tiles::{Regions, TiledImage, Tiling};
use ocelli::{Detection, Detector, Error, ErrorKind, Result, StageTimes, classes::ClassMap};

use super::{LabelEvent, LabelJob, OnEvent, ReadImage};
use crate::label::disk::resumable;
use crate::label::run::prefetch::{Prepared, Preparer};
use crate::label::run::prompts::LabelPrompts;
use crate::label::run::turns::in_turns;
use crate::label::source::open_regions;
use crate::label::store::Entry;
use crate::label::{ImageFile, Record, identity};

/// After this many failures of an engine in a row, the images are not the cause.
const MAX_ENGINE_FAILURES: usize = 5;

/// The stages of a detector that finds the classes of a data set.
pub(crate) struct LabelStages {
    text: TextEmbedder,
    encoder: ImageEncoder,
    decoder: PromptDecoder,
    features: ImageFeatures,
    tiles: Option<TiledSearch>,
}

/// A device's stages, and what they look for.
pub(crate) struct LabelDevice<'a> {
    /// From 0.
    pub number: usize,
    pub stages: &'a mut LabelStages,
    pub prompts: LabelPrompts,
}

/// Size of an image, and its detections.
pub(crate) type SizedDetections = ((u32, u32), Vec<Detection>);

/// An image that a device has looked at.
pub(crate) struct SearchedImage<'a> {
    pub file: &'a ImageFile,
    /// Size and time of the file before it was read.
    pub identity: (u64, u64),
    pub found: Result<SizedDetections>,
    /// Classes before this one were not looked for.
    pub first: usize,
    /// The class of each prompt.
    pub classes: Vec<usize>,
    pub device: usize,
}

impl LabelStages {
    pub fn new(detector: Detector, tiling: Option<Tiling>) -> Result<Self> {
        let Stages { text, encoder, decoder, .. } = detector.into_stages();
        let tiles = tiling.map(TiledSearch::new).transpose()?;
        Ok(Self { text, encoder, decoder, features: ImageFeatures::default(), tiles })
    }

    /// The devices with the prompts for the classes from `first` on in these images, and everything loaded.
    pub fn devices<'a>(
        all: &'a mut [Self],
        map: &ClassMap,
        first: usize,
        todo: &[ImageFile],
        preparer: &Preparer,
    ) -> Result<Vec<LabelDevice<'a>>> {
        let Self { text, encoder, decoder, .. } = all.first_mut().ok_or_else(no_device)?;
        let prompts = LabelPrompts::new(map, first, todo, preparer, (text, encoder, decoder), false)?;
        let device = |(number, stages): (usize, &'a mut Self)| -> Result<LabelDevice<'a>> {
            stages.encoder.load()?;
            stages.decoder.load()?;
            Ok(LabelDevice { number, stages, prompts: prompts.clone() })
        };
        all.iter_mut().enumerate().map(device).collect()
    }

    /// The size of an image, and what is found in it, with `masks` if the detector has them.
    pub fn look(
        &mut self,
        prompts: &mut LabelPrompts,
        file: &ImageFile,
        prepared: Prepared,
        preparer: &Preparer,
        masks: bool,
    ) -> Result<SizedDetections> {
        if let Some(tiles) = &mut self.tiles {
            let mut image = match prepared.frame {
                Some(frame) => TiledImage::from(frame),
                None => open_regions(&file.path)?,
            };
            let found = match prompts.of(&mut self.text, file)? {
                Some(prompts) => {
                    let stages = (&mut self.encoder, &mut self.decoder);
                    let request = DecodeRequest { masks, ..prompts.into() };
                    tiles.detect(stages, &mut image, request, &mut StageTimes::default())?.items
                }
                None => Vec::new(),
            };
            return Ok((image.size(), found));
        }
        let size = preparer.encode(&mut self.encoder, prepared, &mut self.features)?;
        let found = prompts.decode(&mut self.text, file, &self.features, &mut self.decoder, masks)?;
        Ok((size, found))
    }
}

impl LabelJob {
    /// Labels the pending images. They are decoded on `threads` threads ahead of the detector. Several detectors, of the same
    /// model with the same options on different devices, take turns; the data set is the same.
    ///
    /// An image that cannot be labelled is reported and recorded, and the job continues. An error of `on_event` ends the
    /// job; finished images are kept. Frames of videos are labelled by [`run_videos`](Self::run_videos).
    ///
    /// # Errors
    /// The error of `on_event`, [`ErrorKind::InvalidArgument`] without a detector, [`ErrorKind::Io`] if the output cannot be
    /// written, the error of a model or an engine that cannot be loaded, and the error of an engine that fails for several
    /// images in a row.
    pub fn run(
        &mut self,
        detectors: Vec<Detector>,
        threads: usize,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let (preparer, mut stages) = self.stages(detectors)?;
        self.label_groups(|job, first, todo| {
            let mut devices = LabelStages::devices(&mut stages, &job.classes, first, &todo, &preparer)?;
            let look = |device: &mut LabelDevice<'_>, (number, image): (usize, Result<ReadImage>)| {
                let LabelDevice { stages, prompts, .. } = device;
                let (identity, prepared) = image.unwrap_or_else(|panicked| ((0, 0), Err(panicked)));
                let file = &todo[number];
                let found =
                    prepared.and_then(|prepared| stages.look(prompts, file, prepared, &preparer, true));
                let (classes, device) = (prompts.classes.clone(), device.number);
                SearchedImage { file, identity, found, first, classes, device }
            };
            in_turns(
                &mut devices,
                (todo.len(), threads),
                |i| read(&preparer, &todo[i]),
                look,
                on_event,
                |seen, on_event| job.finish_image(seen, on_event),
            )
        })
    }

    /// The stage that prepares images, and the stages of the devices.
    pub(crate) fn stages(&self, detectors: Vec<Detector>) -> Result<(Preparer, Vec<LabelStages>)> {
        let first = detectors.first().ok_or_else(no_device)?;
        let preparer = Preparer::new(first.model().manifest(), self.tiling.is_some());
        let stages = detectors.into_iter().map(|detector| LabelStages::new(detector, self.tiling));
        Ok((preparer, stages.collect::<Result<_>>()?))
    }

    /// Labels the pending images by the first class that is looked for in them. What waits to be written is written at the end.
    pub(crate) fn label_groups(
        &mut self,
        mut label: impl FnMut(&mut Self, usize, Vec<ImageFile>) -> Result<()>,
    ) -> Result<()> {
        let mut groups = BTreeMap::<usize, Vec<ImageFile>>::new();
        for file in std::mem::take(&mut self.todo) {
            // An image that changed is labelled with all classes.
            let is_same = |entry: &&Entry| !entry.failed && entry.identity == identity(&file.path);
            let known =
                self.data.journal.entries.get(&file.name).filter(is_same).and_then(|entry| entry.classes);
            groups.entry(known.unwrap_or(0) as usize).or_default().push(file);
        }
        let ended = groups.into_iter().try_for_each(|(first, todo)| label(self, first, todo));
        ended.and(self.data.stopped())
    }

    /// Records the detections in an image, or that it failed.
    pub(crate) fn finish_image(&mut self, seen: SearchedImage<'_>, on_event: &mut OnEvent<'_>) -> Result<()> {
        let SearchedImage { file, identity, found, first, classes, device } = seen;
        let mut record = self.data.new_record(file, identity)?;
        let failures = self.engine_failures.entry(device).or_default();
        match found {
            Ok(((width, height), detections)) => {
                *failures = 0;
                (record.width, record.height) = (width, height);
                record.instances = self.refiner.instances(&classes, detections);
                self.add_known(first, &mut record)?;
                self.finish_record(record, on_event)
            }
            Err(error) => {
                let is_engine = error.kind() == ErrorKind::Execution;
                *failures = if is_engine { *failures + 1 } else { 0 };
                if *failures == MAX_ENGINE_FAILURES {
                    return Err(error);
                }
                record.error = Some(error.to_string());
                self.data.journal.append(&record).map_err(resumable)?;
                on_event(LabelEvent::Failed { path: &file.path, error: &error })
            }
        }
    }

    /// Records the instances in an image, and writes its files.
    pub(crate) fn finish_record(&mut self, mut record: Record, on_event: &mut OnEvent<'_>) -> Result<()> {
        self.data.record(&mut record).map_err(resumable)?;
        on_event(LabelEvent::Done { name: &record.name, instances: record.instances.len() })
    }

    /// Adds the instances of an earlier run to those of the classes that were added since.
    fn add_known(&mut self, first: usize, record: &mut Record) -> Result<()> {
        let Some(entry) = self.data.journal.entries.get(&record.name).filter(|_| first > 0) else {
            return Ok(());
        };
        if entry.identity != record.identity {
            // What was found before is about another image. The next run labels this one with all classes.
            record.classes = Some(0);
            return Ok(());
        }
        let known = self.data.journal.read(entry)?.instances;
        record.instances.extend(known.into_iter().filter(|instance| instance.class < first));
        record.instances.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }
}

pub(crate) fn no_device() -> Error {
    Error::invalid_argument("no detector: expected at least one").about("detectors")
}

/// Reads an image. Its identity is taken first: if the file is replaced meanwhile, the next run labels it again.
pub(crate) fn read(preparer: &Preparer, file: &ImageFile) -> Result<ReadImage> {
    let identity = identity(&file.path);
    if file.path.to_str().is_none() {
        let message = "its path is not UTF-8; rename the file or its folder";
        return Ok((identity, Err(Error::invalid_argument(message))));
    }
    Ok((identity, preparer.prepare_file(&file.path)))
}
