//! One engine for all clients. A picture passes three stages, each on threads of its own: decoding, the backbone, and the
//! prompts. While one picture is in one stage, the next is in the stage before.

mod stages;

use std::net::IpAddr;
use std::panic::catch_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::body::Bytes;
use ocelli::{
    Cancellation, Detection, Detector, Error, ErrorKind, Image, Result, StageTimes, stages::Stages,
};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use self::stages::{BackboneStage, KnownPictures, PromptStage};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::queue::{Awaited, Queue};
use crate::request::Question;

/// Decoded pictures that wait for the backbone.
const AHEAD: usize = 2;
/// Threads that decode.
const MOST_DECODERS: usize = 4;

/// What was found in a picture. In `times`, `total` is from the start of the backbone's stage, with the wait for the next.
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
    withdrawn: Cancellation,
}

impl Awaited for Job {
    fn is_abandoned(&self) -> bool {
        self.withdrawn.is_cancelled()
    }
}

/// Withdraws a question when it is dropped, also while it is worked on.
#[derive(Default)]
pub(crate) struct Asking(Cancellation);

impl Asking {
    /// Cancelled when the question is withdrawn.
    pub fn token(&self) -> Cancellation {
        self.0.clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.cancel();
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
    pub fn start(detector: Detector, metrics: Arc<Metrics>, limits: &Limits) -> Self {
        let queue = Arc::new(Queue::new());
        let (sender, receiver) = sync_channel(AHEAD);
        let (encoded, to_search) = sync_channel(0);
        let known = Arc::new(KnownPictures::default());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Vec::new();
        for _ in 0..cores.div_ceil(2).min(MOST_DECODERS) {
            let (queue, sender, known, limits) =
                (queue.clone(), sender.clone(), known.clone(), limits.clone());
            threads.push(named("decode", move || decode_all(&queue, &sender, &known, &limits)));
        }
        let Stages { text, encoder, decoder, .. } = detector.into_stages();
        let mut first = BackboneStage::new(encoder, known, metrics.clone(), limits.clone());
        threads.push(named("backbone", move || first.run(&receiver, &encoded)));
        let mut second = PromptStage::new(text, decoder, metrics, limits.clone());
        threads.push(named("prompts", move || second.run(&to_search)));
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
        let asking = Asking::default();
        self.queue.push(client, Job { picture, question, reply, withdrawn: asking.token() });
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

/// A thread whose name tells a profiler what it does.
fn named(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("the system has threads left")
}

/// Decodes pictures until the queue is closed.
fn decode_all(queue: &Queue<Job>, decoded: &SyncSender<Decoded>, known: &KnownPictures, limits: &Limits) {
    while let Some(job) = queue.pop() {
        let key: Key = Sha256::digest(&job.picture).into();
        let image = match known.contains(&key, job.question.masks) {
            true => Ok(None),
            false => decode(&job.picture, limits).map(Some),
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
fn decode(bytes: &[u8], limits: &Limits) -> Result<Image> {
    catch_unwind(|| {
        limits.check_picture(bytes)?;
        Image::decode(bytes, "the request")
    })
    .unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::InvalidData, "cannot read the image, the request: the decoder failed"))
    })
}
