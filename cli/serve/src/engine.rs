//! One engine for all clients: threads decode pictures ahead of the thread that detects.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::body::Bytes;
use ocelli::engines::Tensor;
use ocelli::{
    Backbone, Detection, Detector, Error, ErrorKind, Image, ImageFeatures, ImagePreprocessor, PromptDecoder,
    Result, StageTimes, TextEmbedder,
};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::queue::{Awaited, Queue};
use crate::request::{Question, check_pixels};

/// New phrases that are kept in memory.
const PHRASES: usize = 2_000;
/// Pictures whose features are kept: the next request is often about the same picture with other words.
const PICTURES: usize = 2;
/// Decoded pictures that wait for the engine.
const AHEAD: usize = 2;
/// Threads that decode.
const MOST_DECODERS: usize = 4;

/// What was found in a picture.
pub(crate) struct Found {
    pub width: u32,
    pub height: u32,
    pub detections: Vec<Detection>,
    pub times: StageTimes,
}

/// A question that waits, and who asked it.
pub(crate) struct Job {
    picture: Bytes,
    question: Question,
    reply: oneshot::Sender<Result<Found>>,
}

impl Awaited for Job {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A picture is known by the hash of its file.
type Key = [u8; 32];

/// A job whose picture is decoded, unless its features are known.
struct Decoded {
    key: Key,
    image: Option<Image>,
    job: Job,
}

/// The engine's threads.
pub(crate) struct Engine {
    queue: Arc<Queue<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the threads.
    pub fn start(detector: Detector, metrics: Arc<Metrics>, max_pixels: u64) -> Self {
        let queue = Arc::new(Queue::new());
        let (sender, receiver) = sync_channel(AHEAD);
        let known = Arc::new(Mutex::new(VecDeque::new()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Vec::new();
        for _ in 0..cores.div_ceil(2).min(MOST_DECODERS) {
            let (queue, sender, known) = (queue.clone(), sender.clone(), known.clone());
            threads.push(std::thread::spawn(move || decode_all(&queue, &sender, &known, max_pixels)));
        }
        let mut worker = Worker::new(detector, known, metrics, max_pixels);
        threads.push(std::thread::spawn(move || worker.run(&receiver)));
        Self { queue, threads: Mutex::new(threads) }
    }

    /// Waits for what is found in a picture. Dropping the future withdraws the question.
    pub async fn ask(
        &self,
        client: IpAddr,
        picture: Bytes,
        question: Question,
    ) -> std::result::Result<Found, Problem> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(client, Job { picture, question, reply });
        match answer.await {
            Ok(found) => Ok(found?),
            Err(_) => Err(Problem::stopping()),
        }
    }

    /// The questions that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Ends the threads after the picture at hand.
    pub fn stop(&self) {
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            drop(thread.join());
        }
    }
}

/// Decodes pictures until the queue is closed.
fn decode_all(
    queue: &Queue<Job>,
    decoded: &SyncSender<Decoded>,
    known: &Mutex<VecDeque<Key>>,
    max_pixels: u64,
) {
    while let Some(job) = queue.pop() {
        let key: Key = Sha256::digest(&job.picture).into();
        let is_known = known.lock().unwrap_or_else(PoisonError::into_inner).contains(&key);
        let image = match is_known {
            true => Ok(None),
            false => decode(&job.picture, max_pixels).map(Some),
        };
        match image {
            Err(error) => drop(job.reply.send(Err(error))),
            Ok(image) => {
                if decoded.send(Decoded { key, image, job }).is_err() {
                    return;
                }
            }
        }
    }
}

/// Decodes a picture. No file makes the thread end.
fn decode(bytes: &[u8], max_pixels: u64) -> Result<Image> {
    catch_unwind(|| {
        check_pixels(bytes, max_pixels)?;
        Image::decode(bytes, "the request")
    })
    .unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::InvalidData, "cannot read the image, the request: the decoder failed"))
    })
}

/// Owns the engine.
struct Worker {
    text: TextEmbedder,
    preprocessor: ImagePreprocessor,
    backbone: Backbone,
    decoder: PromptDecoder,
    pixels: Tensor,
    /// The pictures whose features are known, the oldest first.
    pictures: VecDeque<(Key, (u32, u32), ImageFeatures)>,
    /// Their keys, for the threads that decode.
    known: Arc<Mutex<VecDeque<Key>>>,
    options: ocelli::postprocess::PostProcessOptions,
    metrics: Arc<Metrics>,
    max_pixels: u64,
}

impl Worker {
    fn new(
        detector: Detector,
        known: Arc<Mutex<VecDeque<Key>>>,
        metrics: Arc<Metrics>,
        max_pixels: u64,
    ) -> Self {
        let (mut text, preprocessor, backbone, decoder) = detector.into_stages();
        text.keep_in_memory(PHRASES);
        let options = decoder.post_processing().clone();
        let pictures = VecDeque::new();
        let pixels = Tensor::empty();
        Self { text, preprocessor, backbone, decoder, pixels, pictures, known, options, metrics, max_pixels }
    }

    fn run(&mut self, decoded: &Receiver<Decoded>) {
        while let Ok(Decoded { key, image, job }) = decoded.recv() {
            if job.is_abandoned() {
                continue;
            }
            let found = catch_unwind(AssertUnwindSafe(|| self.detect(key, image, &job)));
            let found = found.unwrap_or_else(|_| {
                self.forget();
                Err(Error::new(ErrorKind::Execution, "the detector failed on this picture; see the log"))
            });
            match &found {
                Ok(found) => self.metrics.observe(&found.times, found.detections.len()),
                Err(_) => self.metrics.failed(),
            }
            drop(job.reply.send(found));
        }
    }

    fn forget(&mut self) {
        self.pictures.clear();
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn detect(&mut self, key: Key, image: Option<Image>, job: &Job) -> Result<Found> {
        let start = std::time::Instant::now();
        let mut times = StageTimes::default();
        let milliseconds = |start: std::time::Instant| start.elapsed().as_secs_f64() * 1e3;
        let embedded = self.text.embed(&job.question.prompts)?;
        times.text = milliseconds(start);
        if !self.pictures.iter().any(|(known, ..)| *known == key) {
            // A picture that was known when it was to be decoded can be forgotten since.
            let image = match image {
                Some(image) => image,
                None => decode(&job.picture, self.max_pixels)?,
            };
            self.encode(key, &image, &mut times)?;
        }
        let (_, (width, height), features) =
            self.pictures.iter().find(|(known, ..)| *known == key).expect("it was added above");
        self.decoder.set_post_processing(job.question.thresholds.over(&self.options))?;
        self.decoder.set_masks(job.question.masks);
        let detections = self.decoder.decode(features, &embedded, &mut times)?;
        times.total = milliseconds(start);
        Ok(Found { width: *width, height: *height, detections, times })
    }

    fn encode(&mut self, key: Key, image: &Image, times: &mut StageTimes) -> Result<()> {
        self.backbone.load()?;
        self.preprocessor.run_on(self.backbone.device());
        self.preprocessor.run_into(image, &mut self.pixels, times)?;
        // The buffers of the oldest picture are used again.
        let oldest = if self.pictures.len() < PICTURES { None } else { self.pictures.pop_front() };
        let mut features = oldest.map(|(.., features)| features).unwrap_or_default();
        let size = (image.width(), image.height());
        let encoded = self.backbone.run_into(&self.pixels, size, &mut features, times);
        if encoded.is_ok() {
            self.pictures.push_back((key, size, features));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.extend(self.pictures.iter().map(|(key, ..)| *key));
        encoded
    }
}
