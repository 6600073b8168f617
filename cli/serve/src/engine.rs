//! One engine for all clients, or one on each of several devices, which take the next image when they are free. An image
//! passes three stages, each on threads of its own: decoding, the backbone, and the prompts. While one image is in one stage,
//! the next is in the stage before.

mod features;
mod stages;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::body::Bytes;
use ocelli::{
    Cancellation, Detection, Detector, Error, Image, Result, StageTimes, locked, stages::Stages,
    tiles::Tiling,
};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use self::features::FeatureCache;
use self::stages::{BackboneStage, PHRASES, PromptStage};
use crate::http::body::Asking;
use crate::http::limits::Limits;
use crate::http::problem::Problem;
use crate::metrics::Metrics;
use crate::objects::{ObjectQuestion, ObjectRecord};
use crate::queue::Queue;
use crate::request::Question;

/// Decoded images that wait for the backbone, for each device.
const AHEAD: usize = 2;
/// Threads that decode, for each device.
const MOST_DECODERS: usize = 4;

/// An engine's answer about an image. In `times`, `total` is from the start of the backbone's stage, with the wait for the next.
pub(crate) struct EngineAnswer<T> {
    pub width: u32,
    pub height: u32,
    pub items: T,
    pub times: StageTimes,
}

/// A task that waits, and who waits for it.
pub(crate) struct EngineRequest {
    image: Bytes,
    task: Task,
    withdrawn: Cancellation,
}

/// The way back for an answer.
pub(crate) type Reply<T> = oneshot::Sender<Result<EngineAnswer<T>>>;

/// A question about an image, with the way back.
pub(crate) enum Task {
    Detect(Question, Reply<Vec<Detection>>),
    Segment(ObjectQuestion, Reply<Vec<ObjectRecord>>),
}

impl Task {
    /// `true` if it needs the features that masks of detections are computed from.
    fn masks(&self) -> bool {
        matches!(self, Self::Detect(question, _) if question.asked.masks)
    }

    /// The tiles in which the image is searched, with those of the server as the default.
    fn tiling(&self, of_server: Option<Tiling>, limits: &Limits) -> Result<Option<Tiling>> {
        let Self::Detect(question, _) = self else { return Ok(None) };
        question.tiles.over(of_server, limits)
    }

    /// Refuses what does not fit an image of `size` (width, height), before its features are computed.
    fn check(&self, size: (u32, u32)) -> Result<()> {
        let Self::Segment(shown, _) = self else { return Ok(()) };
        shown.objects.iter().try_for_each(|object| object.check(size))
    }

    fn fail(self, error: Error) {
        match self {
            Self::Detect(_, reply) => drop(reply.send(Err(error))),
            Self::Segment(_, reply) => drop(reply.send(Err(error))),
        }
    }
}

impl EngineRequest {
    /// `true` if nobody waits for its answer any more.
    fn is_abandoned(&self) -> bool {
        self.withdrawn.is_cancelled()
    }
}

/// An image is known by the hash of its file.
type Key = [u8; 32];

/// A job whose image is decoded, unless its features are known.
struct Decoded {
    key: Key,
    image: Option<Image>,
    tiling: Option<Tiling>,
    job: EngineRequest,
}

/// The engine's threads.
pub(crate) struct Engine {
    queue: Arc<Queue<EngineRequest>>,
    /// One for each device.
    caches: Vec<Arc<Mutex<FeatureCache>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the threads.
    pub fn start(detectors: Vec<Detector>, metrics: Arc<Metrics>, limits: &Limits) -> Self {
        let queue = Arc::new(Queue::new(EngineRequest::is_abandoned));
        let devices = detectors.len();
        let (sender, receiver) = sync_channel(AHEAD * devices);
        let receiver = Arc::new(Mutex::new(receiver));
        let cache = |_| FeatureCache::new(limits.feature_bytes / devices, metrics.clone());
        let caches: Vec<_> = (0..devices).map(cache).map(|cache| Arc::new(Mutex::new(cache))).collect();
        let tiles = detectors.first().map(|one| (one.tiling(), one.model().manifest().imgsz));
        let (of_server, side) = tiles.unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Vec::new();
        for _ in 0..cores.div_ceil(2).min(MOST_DECODERS * devices) {
            let (queue, sender, caches, limits) =
                (queue.clone(), sender.clone(), caches.clone(), limits.clone());
            let decode = move || decode_all(&queue, &sender, &caches, of_server, side, &limits);
            threads.push(named("decode", decode));
        }
        for (detector, cache) in detectors.into_iter().zip(caches.clone()) {
            let (encoded, to_search) = sync_channel(0);
            let clicks = detector.model().manifest().has_tracker();
            let alone = detector.is_in_low_memory().then(Arc::default);
            let Stages { mut text, mut encoder, mut decoder, segmenter, .. } = detector.into_stages();
            if alone.is_some() {
                encoder.unload();
                decoder.unload();
            }
            let encoder = Arc::new(Mutex::new(encoder));
            let mut first = BackboneStage {
                encoder: encoder.clone(),
                alone: alone.clone(),
                clicks,
                cache,
                metrics: metrics.clone(),
                limits: limits.clone(),
            };
            let receiver = receiver.clone();
            threads.push(named("backbone", move || first.run(&receiver, &encoded)));
            text.keep_in_memory(PHRASES);
            let options = decoder.post_processing().clone();
            let (metrics, limits) = (metrics.clone(), limits.clone());
            let mut second =
                PromptStage { text, encoder, alone, decoder, segmenter, options, metrics, limits };
            threads.push(named("prompts", move || second.run(&to_search)));
        }
        Self { queue, caches, threads: Mutex::new(threads) }
    }

    /// Waits for the answer to a question about an image. Dropping the future withdraws the question.
    pub async fn ask<T>(
        &self,
        client: IpAddr,
        image: Bytes,
        task: impl FnOnce(Reply<T>) -> Task,
    ) -> Result<EngineAnswer<T>, Problem> {
        let (reply, answer) = oneshot::channel();
        let asking = Asking::default();
        self.queue.push(client, EngineRequest { image, task: task(reply), withdrawn: asking.token() });
        Ok(answer.await.map_err(|_| Problem::stopping())??)
    }

    /// The questions that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of the features that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.caches.iter().map(|cache| locked(cache).bytes()).sum()
    }

    /// Ends the threads after the image at hand.
    pub fn stop(&self) {
        self.queue.close();
        let threads = std::mem::take(&mut *locked(&self.threads));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// A thread whose name tells a profiler what it does.
fn named(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("the system has threads left")
}

/// Decodes images until the queue is closed. `tiles` are those of the server, and the side of the model's input.
fn decode_all(
    queue: &Queue<EngineRequest>,
    decoded: &SyncSender<Decoded>,
    caches: &[Arc<Mutex<FeatureCache>>],
    of_server: Option<Tiling>,
    side: usize,
    limits: &Limits,
) {
    while let Some(job) = queue.pop() {
        let key: Key = Sha256::digest(&job.image).into();
        // Any device may take it.
        let is_known = caches.iter().all(|cache| locked(cache).place(&key, job.task.masks()).is_some());
        let read = caught(undecodable, || {
            let tiling = job.task.tiling(of_server, limits)?;
            if let Some(tiling) = tiling {
                tiling.check_image(Image::declared_size(&job.image, "the request")?, side)?;
            }
            if is_known {
                return Ok((None, tiling));
            }
            let image = decode(&job.image, limits)?;
            job.task.check((image.width(), image.height()))?;
            Ok((Some(image), tiling))
        });
        match read {
            Err(error) => job.task.fail(error),
            Ok((image, tiling)) => {
                if decoded.send(Decoded { key, image, tiling, job }).is_err() {
                    return;
                }
            }
        }
    }
}

/// Decodes an image. No file makes the thread end.
pub(crate) fn decode(bytes: &[u8], limits: &Limits) -> Result<Image> {
    caught(undecodable, || {
        limits.check_image(bytes)?;
        Image::decode(bytes, "the request")
    })
}

/// Does some work; if it panics, this is the error of `panicked`.
fn caught<T>(panicked: fn() -> Error, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

fn undecodable() -> Error {
    Error::invalid_data("cannot read the image, the request: the decoder failed")
}
