//! A session on its thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use ocelli::masklets::{Click, RunDirection, SessionSource, TrackedFrame, VideoSession, VideoSessionOptions};
use ocelli::{BoundingBox, Error, ErrorKind, Image, Mask, Result};
use serde::Serialize;
use tempfile::TempPath;
use tokio::sync::mpsc::Sender;

use super::asked::{AskedRun, Shows};
use super::upload::Upload;
use super::{Load, Seen};
use crate::limits::Limits;
use crate::problem::Problem;

/// Pictures of a video file that a session has in memory.
const KEPT_PICTURES: usize = 16;

/// The session, and what it needs until it has a frame.
pub(crate) struct Worker {
    load: Load,
    window: Option<usize>,
    limits: Limits,
    seen: Arc<Seen>,
    /// Frames that came before the model was loaded.
    waiting: Vec<Image>,
    /// A video, before the model was loaded.
    video: Option<SessionSource>,
    session: Option<VideoSession>,
    /// The file of a video, which outlives the session.
    file: Option<TempPath>,
    /// Bytes of an object in a frame that a run has passed.
    object_bytes: u64,
    /// The frames that runs have passed.
    passed: BTreeSet<usize>,
}

/// A frame of a run, in JSON.
#[derive(Serialize)]
pub(crate) struct FrameRecord {
    frame: usize,
    objects: Vec<ObjectRecord>,
}

#[derive(Serialize)]
struct ObjectRecord {
    object: u64,
    score: f64,
    #[serde(rename = "box")]
    bbox: [f64; 4],
    mask: Mask,
}

impl From<TrackedFrame> for FrameRecord {
    fn from(frame: TrackedFrame) -> Self {
        let rounded = |value: f32, scale: f64| (f64::from(value) * scale).round() / scale;
        let objects = frame.objects.into_iter().map(|object| ObjectRecord {
            object: object.id,
            score: rounded(object.score, 1e5),
            bbox: object.bbox.to_xyxy().map(|edge| rounded(edge, 1e2)),
            mask: object.mask,
        });
        Self { frame: frame.frame, objects: objects.collect() }
    }
}

impl Worker {
    pub fn new(
        load: Load,
        window: Option<usize>,
        video: Option<Upload>,
        limits: Limits,
        seen: Arc<Seen>,
    ) -> Self {
        let (video, file) = video.map(|Upload { source, file }| (source, file)).unzip();
        Self {
            load,
            window,
            limits,
            seen,
            waiting: Vec::new(),
            video,
            session: None,
            file,
            object_bytes: 0,
            passed: BTreeSet::new(),
        }
    }

    pub fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// 413 if the session has no room for it; 400 if it has another size than the first.
    pub fn push(&mut self, image: Image) -> Result<(), Problem> {
        if self.file.is_some() {
            return Err(Problem::bad(
                "the session has a video: frames can be appended to a session without one",
            ));
        }
        let size = (image.width(), image.height());
        // With a window an earlier frame leaves.
        let is_full = self.window.is_some_and(|window| self.frames().len() >= window);
        self.check_room(if is_full { 0 } else { picture_bytes(size) })?;
        if let Some(session) = &mut self.session {
            session.push(image)?;
            let frames = session.frames();
            self.passed.retain(|frame| frames.contains(frame));
            return Ok(());
        }
        if let Some(first) = self.waiting.first().filter(|first| (first.width(), first.height()) != size) {
            let message = format!(
                "frame {}: it has {}×{} pixels, the first frame {}×{}; a session needs frames of one size",
                self.waiting.len(),
                size.0,
                size.1,
                first.width(),
                first.height()
            );
            return Err(Problem::bad(message));
        }
        self.waiting.push(image);
        Ok(())
    }

    /// The session, once it has a frame. The model is loaded the first time.
    fn session(&mut self) -> Result<&mut VideoSession> {
        if self.session.is_none() {
            if self.waiting.is_empty() && self.video.is_none() {
                let message = "the session has no frames: push one first";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let detector = (self.load)()?;
            let grid = detector.model().manifest().grid() as u64;
            // A memory of 64 × P² numbers and a mask of (4P)².
            self.object_bytes = 4 * (64 + 16) * grid * grid;
            let mut options = VideoSessionOptions::new(&detector);
            options.window = self.window;
            let mut waiting = std::mem::take(&mut self.waiting).into_iter();
            let pushed = || SessionSource::pushed(waiting.next().expect("it is not empty without a video"));
            let source = self.video.take().unwrap_or_else(pushed);
            let mut session = VideoSession::new(detector, source, options)?;
            for image in waiting {
                session.push(image)?;
            }
            self.session = Some(session);
        }
        Ok(self.session.as_mut().expect("it was made above"))
    }

    /// Shows an object or a text. Returns the frame, and the id of an object that was shown by itself.
    ///
    /// # Errors
    /// Those of the session; 413 if it has no room for another object.
    pub fn show(&mut self, frame: usize, shows: Shows) -> Result<(FrameRecord, Option<u32>), Problem> {
        self.check_room(0)?;
        let session = self.session()?;
        let (width, height) = session.size();
        let mut shown = None;
        let found = match shows {
            Shows::Text(text) => session.add_text(frame, text),
            Shows::Box([x1, y1, x2, y2]) => session.add_box(frame, BoundingBox::new(x1, y1, x2, y2)),
            Shows::Points(object, points) => {
                let object = *shown.insert(object.unwrap_or_else(|| session.next_object()));
                let click = |([x, y], is_foreground): ([f32; 2], bool)| Click {
                    x: x / width as f32,
                    y: y / height as f32,
                    is_foreground,
                };
                let is_inside =
                    |[x, y]: [f32; 2]| (0.0..width as f32).contains(&x) && (0.0..height as f32).contains(&y);
                if let Some(([x, y], _)) = points.iter().find(|(point, _)| !is_inside(*point)) {
                    let message = format!("point {x},{y} is outside the frame of {width} × {height} pixels");
                    return Err(Problem::bad(message));
                }
                let clicks: Vec<Click> = points.into_iter().map(click).collect();
                session.add_points(object, frame, &clicks)
            }
            Shows::Mask(object, mask) => {
                let object = *shown.insert(object.unwrap_or_else(|| session.next_object()));
                if (mask.width() as usize, mask.height() as usize) != (width, height) {
                    let message = format!(
                        "the mask has {} × {} pixels: expected those of the frame, {width} × {height}",
                        mask.width(),
                        mask.height()
                    );
                    return Err(Problem::bad(message));
                }
                session.add_mask(object, frame, &mask)
            }
        };
        // A text or a box starts over.
        if shown.is_none() {
            self.passed.clear();
        }
        let found = found?;
        self.passed.insert(found.frame);
        Ok((found.into(), shown))
    }

    /// Begins a run.
    ///
    /// # Errors
    /// Those of the session.
    pub fn begin(&mut self, run: &AskedRun) -> Result<(), Problem> {
        let direction = RunDirection::from(run.direction);
        self.session()?.propagate(direction, run.start, run.max_frames)?;
        Ok(())
    }

    /// Sends the frames of the run as lines, until its end, an error, the end of the session, or until nobody takes them.
    pub fn run(&mut self, lines: &Sender<Bytes>) {
        loop {
            let next = match self.seen.has_ended() {
                true => Err(Problem::missing("the session was ended")),
                false => self.next_frame(),
            };
            let (line, is_last) = match next {
                Ok(None) => return,
                Ok(Some(frame)) => (serde_json::to_vec(&frame), false),
                Err(problem) => (serde_json::to_vec(&serde_json::json!({"error": problem.message})), true),
            };
            let mut line = line.expect("numbers and text have a JSON form");
            line.push(b'\n');
            self.note();
            if lines.blocking_send(line.into()).is_err() || is_last {
                return;
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<FrameRecord>, Problem> {
        self.check_room(0)?;
        let Some(found) = self.session()?.next_frame().transpose()? else { return Ok(None) };
        self.passed.insert(found.frame);
        Ok(Some(found.into()))
    }

    /// Removes an object.
    ///
    /// # Errors
    /// 404 if there is none.
    pub fn remove(&mut self, object: u32) -> Result<(), Problem> {
        self.session()?.remove(object).map_err(|error| match error.kind() {
            ErrorKind::InvalidArgument => Problem::missing(error.to_string()),
            _ => error.into(),
        })
    }

    /// Refuses what would make the session too large.
    fn check_room(&self, more: u64) -> Result<(), Problem> {
        let bytes = self.bytes() + more;
        if bytes <= self.limits.session_bytes {
            return Ok(());
        }
        let message = format!(
            "the session takes {} MB: expected at most {} MB; remove objects, open it with a window, or begin another",
            bytes.div_ceil(1_000_000),
            self.limits.session_bytes / 1_000_000
        );
        Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message))
    }

    /// About how much memory the frames and objects take.
    fn bytes(&self) -> u64 {
        let objects = self.session.as_ref().map_or(0, |session| session.objects().len() as u64);
        let most = if self.file.is_some() { KEPT_PICTURES } else { usize::MAX };
        self.frames().len().min(most) as u64 * picture_bytes(self.size())
            + objects * self.passed.len() as u64 * self.object_bytes
    }

    fn frames(&self) -> std::ops::Range<usize> {
        match (&self.session, &self.video) {
            (Some(session), _) => session.frames(),
            (None, Some(video)) => 0..video.shape().frames.unwrap_or(0),
            (None, None) => 0..self.waiting.len(),
        }
    }

    fn size(&self) -> (u32, u32) {
        let of_video = |video: &SessionSource| (video.shape().width, video.shape().height);
        let size = self.session.as_ref().map(VideoSession::size).or(self.video.as_ref().map(of_video));
        match size {
            Some((width, height)) => (width as u32, height as u32),
            None => self.waiting.first().map_or((0, 0), |first| (first.width(), first.height())),
        }
    }

    /// Notes what is known for requests that do not wait for this thread.
    pub fn note(&self) {
        let frames = self.frames();
        let mut state = self.seen.lock();
        (state.width, state.height) = self.size();
        (state.first_frame, state.frames) = (frames.start, frames.end);
        state.objects = self.session.as_ref().map(VideoSession::objects).unwrap_or_default();
        (state.passed, state.bytes) = (self.passed.len(), self.bytes());
    }
}

/// The memory of a picture.
fn picture_bytes((width, height): (u32, u32)) -> u64 {
    3 * u64::from(width) * u64::from(height)
}
