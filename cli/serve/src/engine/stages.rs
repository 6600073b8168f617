//! The stages that own the model's graphs: the backbone, and what searches its features for the prompts.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Detection, Error, ErrorKind, Image, Result, StageTimes,
    stages::{ImageEncoder, ImageFeatures, PromptDecoder, TextEmbedder},
};

use super::{Decoded, Found, Job, Key, decode};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::queue::Awaited;

/// New phrases that are kept in memory.
const PHRASES: usize = 2_000;
/// Pictures whose features are kept: the next request is often about the same picture with other words.
const PICTURES: usize = 2;

/// The pictures whose features are known, for the threads that decode: their keys, and whether their features are
/// enough for masks.
#[derive(Default)]
pub(super) struct KnownPictures(Mutex<Vec<(Key, bool)>>);

impl KnownPictures {
    fn lock(&self) -> MutexGuard<'_, Vec<(Key, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a picture need not be decoded.
    pub fn contains(&self, key: &Key, masks: bool) -> bool {
        self.lock().iter().any(|(known, with_masks)| known == key && (*with_masks || !masks))
    }
}

/// The features of a picture.
struct Picture {
    size: (u32, u32),
    features: ImageFeatures,
}

/// A job whose picture has features.
pub(super) struct Encoded {
    picture: Arc<Picture>,
    job: Job,
    start: Instant,
    times: StageTimes,
}

/// Computes features, and keeps those of the last pictures.
pub(super) struct BackboneStage {
    encoder: ImageEncoder,
    /// The oldest first.
    pictures: VecDeque<(Key, Arc<Picture>)>,
    known: Arc<KnownPictures>,
    metrics: Arc<Metrics>,
    limits: Limits,
}

impl BackboneStage {
    pub fn new(
        encoder: ImageEncoder,
        known: Arc<KnownPictures>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        Self { encoder, pictures: VecDeque::new(), known, metrics, limits }
    }

    /// Works until no more pictures come, or nobody takes them.
    pub fn run(&mut self, decoded: &Receiver<Decoded>, encoded: &SyncSender<Encoded>) {
        while let Ok(Decoded { key, image, job }) = decoded.recv() {
            if job.is_abandoned() {
                continue;
            }
            let (start, mut times) = (Instant::now(), StageTimes::default());
            let picture = catch_unwind(AssertUnwindSafe(|| self.picture(key, image, &job, &mut times)));
            match picture.unwrap_or_else(|_| Err(panicked())) {
                Ok(picture) => {
                    if encoded.send(Encoded { picture, job, start, times }).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    self.forget();
                    self.metrics.failed();
                    drop(job.reply.send(Err(error)));
                }
            }
        }
    }

    fn forget(&mut self) {
        self.pictures.clear();
        self.known.lock().clear();
    }

    /// The picture of a job, with the features that its question needs.
    fn picture(
        &mut self,
        key: Key,
        image: Option<Image>,
        job: &Job,
        times: &mut StageTimes,
    ) -> Result<Arc<Picture>> {
        let masks = job.question.masks && self.encoder.supports_masks();
        let is_enough = |picture: &Picture| !masks || picture.features.support_masks();
        let known = self.pictures.iter().find(|(known, picture)| *known == key && is_enough(picture));
        if let Some((_, picture)) = known {
            return Ok(picture.clone());
        }
        // A picture that was known when it was to be decoded can be forgotten since.
        let image = match image {
            Some(image) => image,
            None => decode(&job.picture, &self.limits)?,
        };
        self.encoder.set_masks(masks);
        self.pictures.retain(|(known, _)| *known != key);
        // The buffers of the oldest picture are used again, unless it is still searched.
        let oldest = if self.pictures.len() < PICTURES { None } else { self.pictures.pop_front() };
        let oldest = oldest.and_then(|(_, picture)| Arc::try_unwrap(picture).ok());
        let mut features = oldest.map(|picture| picture.features).unwrap_or_default();
        let size = (image.width(), image.height());
        self.encoder.encode_into(&image, &mut features, times)?;
        let picture = Arc::new(Picture { size, features });
        self.pictures.push_back((key, picture.clone()));
        let never_masks = !self.encoder.supports_masks();
        let has_all = |picture: &Picture| never_masks || picture.features.support_masks();
        *self.known.lock() = self.pictures.iter().map(|(key, picture)| (*key, has_all(picture))).collect();
        Ok(picture)
    }
}

/// Searches features for the prompts of a question.
pub(super) struct PromptStage {
    text: TextEmbedder,
    decoder: PromptDecoder,
    options: PostProcessOptions,
    metrics: Arc<Metrics>,
    limits: Limits,
}

impl PromptStage {
    pub fn new(
        mut text: TextEmbedder,
        decoder: PromptDecoder,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        text.keep_in_memory(PHRASES);
        let options = decoder.post_processing().clone();
        Self { text, decoder, options, metrics, limits }
    }

    /// Answers until no more pictures come.
    pub fn run(&mut self, encoded: &Receiver<Encoded>) {
        while let Ok(Encoded { picture, job, start, mut times }) = encoded.recv() {
            if job.is_abandoned() {
                continue;
            }
            let found = catch_unwind(AssertUnwindSafe(|| self.search(&picture, &job, &mut times)));
            times.total = start.elapsed().as_secs_f64() * 1e3;
            let (width, height) = picture.size;
            // The backbone's stage may use its buffers again.
            drop(picture);
            let found = found.unwrap_or_else(|_| Err(panicked()));
            let found = found.map(|detections| Found { width, height, detections, times });
            match &found {
                Ok(found) => self.metrics.observe(&found.times, found.detections.len()),
                Err(error) if error.kind() == ErrorKind::Cancelled => {}
                Err(_) => self.metrics.failed(),
            }
            drop(job.reply.send(found));
        }
    }

    fn search(&mut self, picture: &Picture, job: &Job, times: &mut StageTimes) -> Result<Vec<Detection>> {
        let start = Instant::now();
        let embedded = self.text.embed(&job.question.prompts)?;
        times.text = start.elapsed().as_secs_f64() * 1e3;
        let options = job.question.thresholds.over(&self.options, &self.limits);
        self.decoder.set_post_processing(options)?;
        self.decoder.set_masks(job.question.masks);
        self.decoder.set_cancellation(job.withdrawn.clone());
        self.decoder.decode(&picture.features, &embedded, times)
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Execution, "the detector failed on this picture; see the log")
}
