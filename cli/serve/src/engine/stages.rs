//! The stages that own the model's graphs: the backbone, and what searches its features for the prompts.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Cancellation, Detection, Error, ErrorKind, Result, StageTimes, locked,
    stages::{
        DecodeRequest, ImageEncoder, ImageFeatures, ObjectSegmenter, PromptDecoder, TextEmbedder,
        TiledSearch, Wanted,
    },
    tiles::WholeImage,
};

use super::features::{FeatureCache, KEPT, SearchedImage};
use super::{Decoded, EngineAnswer, EngineRequest, Reply, Task, caught, decode};
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

/// A job whose image has features.
pub(super) struct Encoded {
    task: Task,
    work: Work,
}

/// What a task needs to be answered.
struct Work {
    searched: Arc<SearchedImage>,
    withdrawn: Cancellation,
    start: Instant,
    times: StageTimes,
}

/// Computes features, and keeps those of the last images.
pub(super) struct BackboneStage {
    pub encoder: SharedEncoder,
    pub alone: Alone,
    /// The model takes clicks. Their features cost the backbone nothing, so that every image has them.
    pub clicks: bool,
    pub cache: Arc<Mutex<FeatureCache>>,
    pub metrics: Arc<Metrics>,
    pub limits: Limits,
}

impl BackboneStage {
    /// Works until no more images come, or nobody takes them.
    pub fn run(&mut self, decoded: &Mutex<Receiver<Decoded>>, encoded: &SyncSender<Encoded>) {
        loop {
            let next = locked(decoded).recv_timeout(KEPT);
            let mut decoded = match next {
                Ok(decoded) => decoded,
                Err(RecvTimeoutError::Timeout) => {
                    locked(&self.cache).clear();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if decoded.job.is_abandoned() {
                continue;
            }
            let (start, mut times) = (Instant::now(), StageTimes::default());
            let searched = caught(panicked, || self.encoded(&mut decoded, &mut times));
            let EngineRequest { task, withdrawn, .. } = decoded.job;
            match searched {
                Ok(searched) => {
                    let work = Work { searched, withdrawn, start, times };
                    if encoded.send(Encoded { task, work }).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    locked(&self.cache).clear();
                    self.metrics.failed();
                    task.fail(error);
                }
            }
        }
    }

    /// The image of a job, with the features that its question needs.
    fn encoded(&mut self, decoded: &mut Decoded, times: &mut StageTimes) -> Result<Arc<SearchedImage>> {
        let Decoded { key, image, tiling, job } = decoded;
        // An image that was known when it was to be decoded can be forgotten since.
        let mut image = || image.take().map_or_else(|| decode(&job.image, &self.limits), Ok);
        if let Some(tiling) = *tiling {
            let image = image()?;
            let size = (image.width(), image.height());
            let (features, in_tiles) = (ImageFeatures::default(), Some((image, tiling)));
            return Ok(Arc::new(SearchedImage { size, features, in_tiles }));
        }
        let (masks, now) = (job.task.masks(), Instant::now());
        if let Some(searched) = locked(&self.cache).find(key, masks, now) {
            return Ok(searched);
        }
        let image = image()?;
        let _alone = self.alone.as_deref().map(locked);
        let mut encoder = locked(&self.encoder);
        encoder.load()?;
        let wanted = Wanted { masks, hidden: self.clicks && encoder.backbone.has_hidden() };
        let mut features = locked(&self.cache).make_room(key);
        let size = (image.width(), image.height());
        let encoded = encoder.encode_into(&image, wanted, &mut features, times);
        if self.alone.is_some() {
            encoder.unload();
        }
        encoded?;
        let with_masks = !encoder.backbone.supports_masks() || features.support_masks();
        let searched = Arc::new(SearchedImage { size, features, in_tiles: None });
        locked(&self.cache).keep(*key, searched.clone(), with_masks, now);
        Ok(searched)
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
    /// Answers until no more images come.
    pub fn run(&mut self, encoded: &Receiver<Encoded>) {
        while let Ok(Encoded { task, work }) = encoded.recv() {
            if work.withdrawn.is_cancelled() {
                continue;
            }
            match task {
                Task::Detect(question, reply) => {
                    self.answer(work, reply, Vec::len, |stage, work| stage.search(&question, work));
                }
                Task::Segment(shown, reply) => {
                    self.answer(work, reply, |_| 0, |stage, work| stage.segment(&shown, work));
                }
            }
        }
    }

    /// Sends what `find` finds; `detections` counts them.
    fn answer<T>(
        &mut self,
        mut work: Work,
        reply: Reply<T>,
        detections: fn(&T) -> usize,
        find: impl FnOnce(&mut Self, &mut Work) -> Result<T>,
    ) {
        let shared = self.alone.clone();
        let alone = shared.as_deref().map(locked);
        let found = caught(panicked, || find(self, &mut work));
        if alone.is_some() {
            self.decoder.unload();
            self.segmenter.unload();
            // A search in tiles has loaded it.
            locked(&self.encoder).unload();
        }
        drop(alone);
        let Work { searched, start, mut times, .. } = work;
        times.total = start.elapsed().as_secs_f64() * 1e3;
        let (width, height) = searched.size;
        // The backbone's stage may use its buffers again.
        drop(searched);
        match &found {
            Ok(items) => self.metrics.observe(&times, detections(items)),
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::InvalidArgument) => {}
            Err(_) => self.metrics.failed(),
        }
        drop(reply.send(found.map(|items| EngineAnswer { width, height, items, times })));
    }

    fn search(&mut self, question: &Question, work: &mut Work) -> Result<Vec<Detection>> {
        let Work { searched, withdrawn, times, .. } = work;
        let start = Instant::now();
        let embedded = self.text.embed(&question.prompts)?;
        times.text = start.elapsed().as_secs_f64() * 1e3;
        let options = question.asked.over(&self.options, &self.limits);
        self.decoder.set_post_processing(options)?;
        self.decoder.set_cancellation(withdrawn.clone());
        let request = DecodeRequest { masks: question.asked.masks, ..(&embedded).into() };
        let Some((image, tiling)) = &searched.in_tiles else {
            return self.decoder.decode(&searched.features, request, times);
        };
        let mut encoder = locked(&self.encoder);
        let (mut search, mut whole) = (TiledSearch::new(*tiling)?, WholeImage::new(image)?);
        Ok(search.detect((&mut *encoder, &mut self.decoder), &mut whole, request, times)?.items)
    }

    fn segment(&mut self, shown: &ObjectQuestion, work: &mut Work) -> Result<Vec<ObjectRecord>> {
        let start = Instant::now();
        let mut records = Vec::new();
        for (number, objects) in shown.objects.chunks(TOGETHER).enumerate() {
            work.withdrawn.check().map_err(|_| Error::cancelled("the request was withdrawn"))?;
            let masks = self.segmenter.segment_each(&work.searched.features, objects, shown.multimask)?;
            for (index, masks) in (number * TOGETHER..).zip(masks) {
                records.extend(masks.into_iter().map(|mask| ObjectRecord::new(index, mask)));
            }
        }
        work.times.decode = start.elapsed().as_secs_f64() * 1e3;
        Ok(records)
    }
}

fn panicked() -> Error {
    Error::execution("the detector failed on this image; see the log")
}
