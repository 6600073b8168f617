//! The stages that own the model's graphs: the backbone, and what searches its features for the prompts.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Cancellation, Detection, Error, ErrorKind, Image, Result, StageTimes, locked,
    stages::{
        ImageEncoder, ImageFeatures, ObjectSegmenter, PromptDecoder, TextEmbedder, TiledSearch, Wanted,
    },
    tiles::{Tiling, WholePicture},
};

use super::features::{FeatureCache, KEPT, Picture};
use super::{Decoded, EngineAnswer, EngineRequest, Key, Reply, Task, caught, decode};
use crate::http::limits::Limits;
use crate::metrics::Metrics;
use crate::objects::{ObjectQuestion, ObjectRecord};
use crate::request::Question;

/// New phrases that are kept in memory.
pub(super) const PHRASES: usize = 2_000;
/// Objects whose masks are computed at once.
const TOGETHER: usize = 16;

/// The encoder of both stages: a search in tiles runs it between prompts.
type SharedEncoder = Arc<Mutex<ImageEncoder>>;

/// Held while half of the model is loaded, if only one half may be. The encoder is locked after it.
pub(super) type Alone = Option<Arc<Mutex<()>>>;

/// A job whose picture has features.
pub(super) struct Encoded {
    picture: Arc<Picture>,
    job: EngineRequest,
    start: Instant,
    times: StageTimes,
}

/// Computes features, and keeps those of the last pictures.
pub(super) struct BackboneStage {
    pub encoder: SharedEncoder,
    pub alone: Alone,
    /// The model takes clicks. Their features cost the backbone nothing, so that every picture has them.
    pub clicks: bool,
    pub cache: Arc<Mutex<FeatureCache>>,
    pub metrics: Arc<Metrics>,
    pub limits: Limits,
}

impl BackboneStage {
    /// Works until no more pictures come, or nobody takes them.
    pub fn run(&mut self, decoded: &Mutex<Receiver<Decoded>>, encoded: &SyncSender<Encoded>) {
        loop {
            let next = locked(decoded).recv_timeout(KEPT);
            let Decoded { key, image, tiling, job } = match next {
                Ok(decoded) => decoded,
                Err(RecvTimeoutError::Timeout) => {
                    locked(&self.cache).clear();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if job.is_abandoned() {
                continue;
            }
            let (start, mut times) = (Instant::now(), StageTimes::default());
            match caught(panicked, || self.picture(key, image, tiling, &job, &mut times)) {
                Ok(picture) => {
                    if encoded.send(Encoded { picture, job, start, times }).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    locked(&self.cache).clear();
                    self.metrics.failed();
                    job.task.fail(error);
                }
            }
        }
    }

    /// The picture of a job, with the features that its question needs.
    fn picture(
        &mut self,
        key: Key,
        image: Option<Image>,
        tiling: Option<Tiling>,
        job: &EngineRequest,
        times: &mut StageTimes,
    ) -> Result<Arc<Picture>> {
        // A picture that was known when it was to be decoded can be forgotten since.
        let image = || image.map_or_else(|| decode(&job.picture, &self.limits), Ok);
        if let Some(tiling) = tiling {
            let image = image()?;
            let size = (image.width(), image.height());
            let (features, in_tiles) = (ImageFeatures::default(), Some((image, tiling)));
            return Ok(Arc::new(Picture { size, features, in_tiles }));
        }
        let (masks, now) = (job.task.masks(), Instant::now());
        if let Some(picture) = locked(&self.cache).find(&key, masks, now) {
            return Ok(picture);
        }
        let image = image()?;
        let _alone = self.alone.as_deref().map(locked);
        let mut encoder = locked(&self.encoder);
        encoder.load()?;
        let wanted = Wanted { masks, hidden: self.clicks && encoder.backbone.has_hidden() };
        let mut features = locked(&self.cache).make_room(&key);
        let size = (image.width(), image.height());
        let encoded = encoder.encode_into(&image, wanted, &mut features, times);
        if self.alone.is_some() {
            encoder.unload();
        }
        encoded?;
        let with_masks = !encoder.backbone.supports_masks() || features.support_masks();
        let picture = Arc::new(Picture { size, features, in_tiles: None });
        locked(&self.cache).keep(key, picture.clone(), with_masks, now);
        Ok(picture)
    }
}

/// Searches features for the prompts of a question, or for the objects that are shown.
pub(super) struct PromptStage {
    pub text: TextEmbedder,
    pub encoder: SharedEncoder,
    pub alone: Alone,
    pub decoder: PromptDecoder,
    pub segmenter: ObjectSegmenter,
    pub options: PostProcessOptions,
    pub metrics: Arc<Metrics>,
    pub limits: Limits,
}

impl PromptStage {
    /// Answers until no more pictures come.
    pub fn run(&mut self, encoded: &Receiver<Encoded>) {
        while let Ok(Encoded { picture, job, start, times }) = encoded.recv() {
            if job.is_abandoned() {
                continue;
            }
            let EngineRequest { task, withdrawn, .. } = job;
            match task {
                Task::Detect(question, reply) => {
                    self.answer(picture, start, times, reply, |stage, picture, times| {
                        let found = stage.search(picture, &question, &withdrawn, times)?;
                        let count = found.len();
                        Ok((found, count))
                    });
                }
                Task::Segment(shown, reply) => {
                    self.answer(picture, start, times, reply, |stage, picture, times| {
                        Ok((stage.segment(picture, &shown, &withdrawn, times)?, 0))
                    });
                }
            }
        }
    }

    /// Sends what `work` finds; it also returns the number of detections.
    fn answer<T>(
        &mut self,
        picture: Arc<Picture>,
        start: Instant,
        mut times: StageTimes,
        reply: Reply<T>,
        work: impl FnOnce(&mut Self, &Picture, &mut StageTimes) -> Result<(T, usize)>,
    ) {
        let shared = self.alone.clone();
        let alone = shared.as_deref().map(locked);
        let found = caught(panicked, || work(self, &picture, &mut times));
        if alone.is_some() {
            self.decoder.unload();
            self.segmenter.unload();
            // A search in tiles has loaded it.
            locked(&self.encoder).unload();
        }
        drop(alone);
        times.total = start.elapsed().as_secs_f64() * 1e3;
        let (width, height) = picture.size;
        // The backbone's stage may use its buffers again.
        drop(picture);
        match &found {
            Ok((_, count)) => self.metrics.observe(&times, *count),
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::InvalidArgument) => {}
            Err(_) => self.metrics.failed(),
        }
        drop(reply.send(found.map(|(items, _)| EngineAnswer { width, height, items, times })));
    }

    fn search(
        &mut self,
        picture: &Picture,
        question: &Question,
        withdrawn: &Cancellation,
        times: &mut StageTimes,
    ) -> Result<Vec<Detection>> {
        let start = Instant::now();
        let embedded = self.text.embed(&question.prompts)?;
        times.text = start.elapsed().as_secs_f64() * 1e3;
        let options = question.asked.over(&self.options, &self.limits);
        self.decoder.set_post_processing(options)?;
        self.decoder.set_masks(question.asked.masks);
        self.decoder.set_cancellation(withdrawn.clone());
        let Some((image, tiling)) = &picture.in_tiles else {
            return self.decoder.decode(&picture.features, &embedded, times);
        };
        let mut encoder = locked(&self.encoder);
        let (mut search, mut whole) = (TiledSearch::new(*tiling)?, WholePicture::new(image)?);
        Ok(search.detect((&mut *encoder, &mut self.decoder), &mut whole, &embedded, times)?.items)
    }

    fn segment(
        &mut self,
        picture: &Picture,
        shown: &ObjectQuestion,
        withdrawn: &Cancellation,
        times: &mut StageTimes,
    ) -> Result<Vec<ObjectRecord>> {
        let start = Instant::now();
        let mut records = Vec::new();
        for (number, objects) in shown.objects.chunks(TOGETHER).enumerate() {
            withdrawn.check().map_err(|_| Error::cancelled("the request was withdrawn"))?;
            let masks = self.segmenter.segment_each(&picture.features, objects, shown.multimask)?;
            for (index, masks) in (number * TOGETHER..).zip(masks) {
                records.extend(masks.into_iter().map(|mask| ObjectRecord::new(index, mask)));
            }
        }
        times.decode = start.elapsed().as_secs_f64() * 1e3;
        Ok(records)
    }
}

fn panicked() -> Error {
    Error::execution("the detector failed on this picture; see the log")
}
