//! Videos whose objects are found, followed, corrected and removed by requests, each with a thread and a model of its own.

mod export;
pub(crate) mod opened;
mod results;
pub(crate) mod routes;
pub(crate) mod worker;

use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use axum::body::Bytes;
use axum::http::StatusCode;
use image::ImageFormat;
use ocelli::{Detector, Image, Mask, Result, locked};
use serde::Serialize;
use tokio::sync::oneshot;

use self::opened::{IMAGE_RATE, OpenedVideo, VideoFile};
use self::results::{Changes, Results};
use self::worker::Worker;
use crate::config::random_token;
use crate::engine::{Engine, Task};
use crate::http::body::off_the_workers;
use crate::http::limits::Limits;
use crate::http::places::Places;
use crate::http::problem::Problem;
use crate::objects::ObjectQuestion;

/// Loads the model for a session.
pub(crate) type Load = Arc<dyn Fn() -> Result<Detector> + Send + Sync>;
/// Work for a session's thread.
type Work = Box<dyn FnOnce(&mut Worker) + Send>;

/// The sessions that are open.
pub(crate) struct Sessions {
    /// Without it, sessions are refused.
    pub load: Option<Load>,
    places: Places,
    limits: Limits,
    open: Mutex<HashMap<String, Arc<Session>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A session, for requests.
pub(crate) struct Session {
    pub id: String,
    work: Sender<Work>,
    pub seen: Arc<SharedState>,
    /// Its video; a session without one has the frames that clients push.
    file: Option<Arc<VideoFile>>,
}

/// The part of a session that is known while its thread works.
#[derive(Default)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    results: Mutex<Results>,
    /// `true` while a run is under way.
    is_running: AtomicBool,
    has_ended: AtomicBool,
}

/// A session in JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct State {
    pub id: String,
    /// `true` while a run is under way.
    pub running: bool,
    /// The first frame that the session has.
    pub first_frame: usize,
    /// The number of frames, those that left included.
    pub frames: usize,
    /// Of a frame, in pixels; 0 before the first.
    pub width: u32,
    pub height: u32,
    pub objects: Vec<u32>,
    /// The number of the next object that nobody numbers.
    pub next_object: u32,
    /// Frames that runs have passed.
    pub passed: usize,
    /// About how much memory its frames and objects take.
    pub bytes: u64,
    /// Frames per second of its video.
    pub frame_rate: f64,
    /// The name of a video of the server's folder.
    pub video: Option<String>,
    #[serde(flatten)]
    pub changes: Changes,
}

/// A run that is under way, until it is dropped.
pub(crate) struct Running(Arc<SharedState>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.is_running.store(false, SeqCst);
    }
}

impl SharedState {
    /// The results, as they are now.
    pub fn results(&self) -> MutexGuard<'_, Results> {
        locked(&self.results)
    }

    /// `true` if the session is to end.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }
}

impl Sessions {
    pub fn new(load: Option<Load>, limits: &Limits) -> Self {
        let (places, limits) = (Places::new(limits.sessions), limits.clone());
        Self { load, places, limits, open: Mutex::default(), threads: Mutex::default() }
    }

    /// The sessions that have not ended.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        let mut open = locked(&self.open);
        open.retain(|_, session| !session.seen.has_ended());
        open
    }

    /// Opens a session with a video, or without frames. Of a session with a `window`, that many frames are kept.
    ///
    /// # Errors
    /// 503 if there are too many, or all of the client's share are open.
    pub fn open(
        &self,
        client: IpAddr,
        window: Option<usize>,
        video: Option<OpenedVideo>,
    ) -> Result<Arc<Session>, Problem> {
        let load = self.load.clone().ok_or_else(|| Problem::missing("this server has no sessions"))?;
        let place = self.places.take(client).map_err(|_| {
            Problem::full(format!(
                "too many sessions: expected at most {}, half of them from one address; end one, or wait until an unused one ends",
                self.limits.sessions
            ))
        })?;
        let id = random_token()?;
        let (source, file) = video.map(|OpenedVideo { source, file }| (source, Arc::new(file))).unzip();
        let frame_rate = file.as_ref().map_or(IMAGE_RATE, |file| file.frame_rate);
        let video = file.as_ref().and_then(|file| file.name.clone());
        let state = Mutex::new(State { id: id.clone(), frame_rate, video, ..State::default() });
        let seen = Arc::new(SharedState { state, ..SharedState::default() });
        let (sender, work) = channel();
        let worker = Worker::new(load, window, source, self.limits.clone(), seen.clone());
        worker.note();
        let idle = self.limits.session_idle;
        let thread = std::thread::Builder::new().name("session".into()).spawn(move || {
            // Given back when the memory is.
            let _place = place;
            serve(worker, &work, idle);
        });
        let full = StatusCode::SERVICE_UNAVAILABLE;
        let failed = |error| Problem::new(full, format!("no thread for a session: {error}"));
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread.map_err(failed)?);
        let session = Arc::new(Session { id: id.clone(), work: sender, seen, file });
        self.lock().insert(id, session.clone());
        Ok(session)
    }

    /// Number of open sessions.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The session with this id.
    ///
    /// # Errors
    /// 404 if there is none, or not any more.
    pub fn get(&self, id: &str) -> Result<Arc<Session>, Problem> {
        self.lock().get(id).cloned().ok_or_else(gone)
    }

    /// Ends a session after the frame at hand.
    ///
    /// # Errors
    /// 404 if there is none, or not any more.
    pub fn end(&self, id: &str) -> Result<(), Problem> {
        let session = self.lock().remove(id).ok_or_else(gone)?;
        session.seen.has_ended.store(true, SeqCst);
        Ok(())
    }

    /// Ends all sessions after the frames at hand.
    pub fn stop(&self) {
        for (_, session) in self.lock().drain() {
            session.seen.has_ended.store(true, SeqCst);
        }
    }

    /// Waits for the ends of their threads.
    pub fn join(&self) {
        self.stop();
        let threads = std::mem::take(&mut *locked(&self.threads));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Does what requests ask for, until nobody has asked for anything for the time `idle`.
fn serve(mut worker: Worker, work: &Receiver<Work>, idle: std::time::Duration) {
    let seen = worker.seen.clone();
    while let Ok(work) = work.recv_timeout(idle) {
        if seen.has_ended() {
            break;
        }
        work(&mut worker);
    }
    seen.has_ended.store(true, SeqCst);
}

impl Session {
    /// Its state now.
    pub fn state(&self) -> State {
        let state = locked(&self.seen.state).clone();
        let changes = self.seen.results().changes(state.objects.iter().map(|id| u64::from(*id)));
        State { running: self.seen.is_running.load(SeqCst), changes, ..state }
    }

    /// Somebody uses the session.
    ///
    /// # Errors
    /// 404 if it has ended.
    pub fn touch(&self) -> Result<(), Problem> {
        self.send(Box::new(|_| ()))
    }

    /// The image of a frame. That of a video can be had during a run.
    ///
    /// # Errors
    /// 409 if the frames were pushed and a run is under way; 400 if there is no such frame.
    pub async fn image(&self, frame: usize) -> Result<Image, Problem> {
        let State { first_frame, frames, .. } = locked(&self.seen.state).clone();
        if !(first_frame..frames).contains(&frame) {
            let message = format!("frame {frame}: expected one from {first_frame}, below {frames}");
            return Err(Problem::missing(message));
        }
        let Some(file) = self.file.clone() else {
            return self.ask(move |worker| worker.image(frame)).await;
        };
        self.touch()?;
        off_the_workers(move |_| Ok(file.image(frame)?)).await
    }

    /// The mask of an object that is shown in a frame of the size (width, height) that `shown` takes.
    ///
    /// # Errors
    /// 400 if nothing is there; those of [`image`](Self::image) and of the engine.
    pub async fn mask_of(
        &self,
        engine: &Engine,
        client: IpAddr,
        frame: usize,
        shown: impl FnOnce((u32, u32)) -> ObjectQuestion,
    ) -> Result<Mask, Problem> {
        let image = self.image(frame).await?;
        let shown = shown((image.width(), image.height()));
        let png = off_the_workers(move |_| Ok(Bytes::from(image.view().encoded(ImageFormat::Png, 0)?)));
        let found = engine.ask(client, png.await?, |reply| Task::Segment(shown, reply)).await?;
        let object = found.items.into_iter().next().filter(|object| object.bbox.is_some());
        Ok(object.ok_or_else(|| Problem::bad(format!("frame {frame}: nothing is in the box")))?.mask)
    }

    /// Waits for the session's thread to do something.
    ///
    /// # Errors
    /// 409 while a run is under way; those of `work`.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if self.seen.is_running.load(SeqCst) {
            return Err(running());
        }
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(move |worker| {
            // Nobody waits for what was withdrawn.
            if !reply.is_closed() {
                drop(reply.send(caught(worker, work)));
            }
        }))?;
        answer.await.map_err(|_| gone())?
    }

    /// Begins a run, of which there is one at a time.
    ///
    /// # Errors
    /// 409 while another is under way.
    pub fn begin(&self) -> Result<Running, Problem> {
        if self.seen.is_running.swap(true, SeqCst) { Err(running()) } else { Ok(Running(self.seen.clone())) }
    }

    /// Gives the thread something to do.
    fn send(&self, work: Work) -> Result<(), Problem> {
        self.work.send(work).map_err(|_| gone())
    }
}

/// Does something with a session, and notes what is known afterwards.
fn caught<T>(
    worker: &mut Worker,
    work: impl FnOnce(&mut Worker) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let message = "the session failed; see the log, and open another";
    let failed = |_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message));
    let done = catch_unwind(AssertUnwindSafe(|| work(worker))).unwrap_or_else(failed);
    worker.note();
    done
}

fn gone() -> Problem {
    Problem::missing("there is no such session, or not any more: it was ended, or not used for too long")
}

fn running() -> Problem {
    let message = "a run is under way: wait for its end, or close its connection";
    Problem::new(StatusCode::CONFLICT, message)
}
