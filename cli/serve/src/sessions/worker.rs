//! A session on its thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use ocelli::masklets::{Click, RunDirection, SessionSource, TrackedFrame, VideoSession, VideoSessionOptions};
use ocelli::{Error, ErrorKind, Image, Mask, Prompt, Result, locked};
use serde::Deserialize;

use super::{Load, SharedState};
use crate::http::limits::Limits;
use crate::http::problem::Problem;

/// Images of a video file that a session has in memory.
const KEPT_IMAGES: usize = 16;

/// A prompt, checked.
pub(crate) enum Shows {
    /// Maybe with a box around an example.
    Text(String, Option<[f32; 4]>),
    Box([f32; 4]),
    /// x and y in pixels, and whether the object is there.
    Points(Option<u32>, Vec<([f32; 2], bool)>),
    Mask(Option<u32>, Mask),
}

/// A run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedRun {
    pub direction: Option<RunDirection>,
    pub start: Option<usize>,
    pub max_frames: Option<usize>,
}

/// The session, and what it needs until it has a frame.
pub(crate) struct Worker {
    load: Load,
    window: Option<usize>,
    limits: Limits,
    pub seen: Arc<SharedState>,
    /// The frames, before the model was loaded.
    source: Option<SessionSource>,
    session: Option<VideoSession>,
    /// The frames are those of a video.
    has_video: bool,
    /// Bytes of an object in a frame that a run has passed.
    object_bytes: u64,
    /// The frames that runs have passed.
    passed: BTreeSet<usize>,
}

impl Worker {
    pub fn new(
        load: Load,
        window: Option<usize>,
        source: Option<SessionSource>,
        limits: Limits,
        seen: Arc<SharedState>,
    ) -> Self {
        let (has_video, passed) = (source.is_some(), BTreeSet::new());
        Self { load, window, limits, seen, source, session: None, has_video, object_bytes: 0, passed }
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// 413 if the session has no room for it; 400 if it has another size than the first.
    pub fn push(&mut self, image: Image) -> Result<(), Problem> {
        if self.has_video {
            let message = "the session has a video: frames can be appended to a session without one";
            return Err(Problem::bad(message));
        }
        let size = (image.width(), image.height());
        // With a window an earlier frame leaves.
        let is_full = self.window.is_some_and(|window| self.frames().len() >= window);
        self.check_room(if is_full { 0 } else { image_bytes(size) })?;
        match (&mut self.session, &mut self.source) {
            (Some(session), _) => {
                session.push(image)?;
                let frames = session.frames();
                self.passed.retain(|frame| frames.contains(frame));
                self.seen.results().forget_before(frames.start);
            }
            (None, Some(source)) => drop(source.push(image)?),
            (None, none) => *none = Some(SessionSource::pushed(image)),
        }
        Ok(())
    }

    /// The session, once it has a frame. The model is loaded the first time.
    fn session(&mut self) -> Result<&mut VideoSession> {
        if self.session.is_none() {
            if self.source.is_none() {
                return Err(Error::invalid_argument("the session has no frames: push one first"));
            }
            let detector = (self.load)()?;
            let grid = detector.model().manifest().grid() as u64;
            // A memory of 64 × P² numbers and a mask of (4P)².
            self.object_bytes = 4 * (64 + 16) * grid * grid;
            let mut options = VideoSessionOptions::new(&detector);
            options.window = self.window;
            let source = self.source.take().expect("it was checked above");
            self.session = Some(VideoSession::new(detector, source, options)?);
        }
        Ok(self.session.as_mut().expect("it was made above"))
    }

    /// The image of a pushed frame.
    ///
    /// # Errors
    /// Those of the session.
    pub fn image(&mut self, frame: usize) -> Result<Image, Problem> {
        Ok(match &mut self.source {
            Some(source) => source.image(frame)?,
            None => self.session()?.image(frame)?,
        })
    }

    /// Shows an object or a text. Returns the frame as a line, and the id of an object that was shown by itself.
    ///
    /// # Errors
    /// Those of the session; 413 if it has no room for another object.
    pub fn show(&mut self, frame: usize, shows: Shows) -> Result<(Bytes, Option<u32>), Problem> {
        self.check_room(0)?;
        let session = self.session()?;
        let (width, height) = session.size();
        let before = session.objects();
        let mut shown = None;
        let text = if let Shows::Text(text, _) = &shows { Some(text.clone()) } else { None };
        let found = match shows {
            Shows::Text(text, None) => session.add_text(frame, text),
            Shows::Text(text, Some(example)) => {
                session.add_exemplars(frame, Prompt::new(text).with_exemplar(example.into(), true))
            }
            Shows::Box(edges) => session.add_box(frame, edges.into()),
            Shows::Points(object, points) => {
                let object = *shown.insert(object.unwrap_or_else(|| session.next_object()));
                let (w, h) = (width as f32, height as f32);
                let is_inside = |[x, y]: [f32; 2]| (0.0..w).contains(&x) && (0.0..h).contains(&y);
                if let Some(([x, y], _)) = points.iter().find(|(point, _)| !is_inside(*point)) {
                    let message = format!("point {x},{y} is outside the frame of {width} × {height} pixels");
                    return Err(Problem::bad(message));
                }
                let clicks =
                    points.iter().map(|([x, y], on)| Click { x: x / w, y: y / h, is_foreground: *on });
                session.add_points(object, frame, &clicks.collect::<Vec<_>>())
            }
            Shows::Mask(object, mask) => {
                let object = *shown.insert(object.unwrap_or_else(|| session.next_object()));
                let (w, h) = (mask.width(), mask.height());
                if (w as usize, h as usize) != (width, height) {
                    let expected = format!("expected those of the frame, {width} × {height}");
                    return Err(Problem::bad(format!("the mask has {w} × {h} pixels: {expected}")));
                }
                session.add_mask(object, frame, &mask)
            }
        };
        // A text or a box starts over.
        if shown.is_none() {
            self.passed.clear();
            self.seen.results().start_over(text);
        }
        if let Some(object) = shown.filter(|object| found.is_ok() && !before.contains(object)) {
            self.seen.results().begin(u64::from(object));
        }
        Ok((self.keep(found?), shown))
    }

    /// Forgets all objects and results; the frames stay.
    ///
    /// # Errors
    /// Those of the session.
    pub fn reset(&mut self) -> Result<(), Problem> {
        self.session.as_mut().map_or(Ok(()), VideoSession::reset)?;
        self.passed.clear();
        self.seen.results().start_over(None);
        Ok(())
    }

    /// Keeps a frame for everybody who looks at the session. Returns its line.
    fn keep(&mut self, found: TrackedFrame) -> Bytes {
        self.passed.insert(found.frame);
        self.seen.results().keep(found)
    }

    /// Begins a run.
    ///
    /// # Errors
    /// Those of the session.
    pub fn begin(&mut self, run: &AskedRun) -> Result<(), Problem> {
        self.session()?.propagate(run.direction.unwrap_or_default(), run.start, run.max_frames)?;
        Ok(())
    }

    /// Sends the frames of the run as lines, until its end, an error, the end of the session, or until `send` returns `false`, as
    /// nobody takes them.
    pub fn run(&mut self, mut send: impl FnMut(Bytes) -> bool) {
        loop {
            let (line, is_last) = match self.next_frame() {
                Ok(None) => return,
                Ok(Some(line)) => (line, false),
                Err(problem) => (format!("{}\n", problem.json()).into(), true),
            };
            self.note();
            if !send(line) || is_last {
                return;
            }
        }
    }

    /// Makes a run without sending its frames, which are in the results; until its end, or until the session is ended.
    ///
    /// # Errors
    /// Those of the session; 404 if it was ended.
    pub fn run_to_end(&mut self, run: &AskedRun) -> Result<(), Problem> {
        self.begin(run)?;
        while self.next_frame()?.is_some() {}
        Ok(())
    }

    /// The next frame of the run as a line; none at its end.
    fn next_frame(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.seen.has_ended() {
            return Err(Problem::missing("the session was ended"));
        }
        self.check_room(0)?;
        let Some(found) = self.session()?.next_frame().transpose()? else { return Ok(None) };
        Ok(Some(self.keep(found)))
    }

    /// Removes an object.
    ///
    /// # Errors
    /// 404 if there is none.
    pub fn remove(&mut self, object: u32) -> Result<(), Problem> {
        self.session()?.remove(object).map_err(|error| match error.kind() {
            ErrorKind::InvalidArgument => Problem::missing(error.to_string()),
            _ => Problem::from(error),
        })?;
        self.seen.results().remove(u64::from(object));
        Ok(())
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
        let most = if self.has_video { KEPT_IMAGES } else { usize::MAX };
        self.frames().len().min(most) as u64 * image_bytes(self.size())
            + objects * self.passed.len() as u64 * self.object_bytes
            + self.seen.results().bytes
    }

    fn frames(&self) -> std::ops::Range<usize> {
        match &self.session {
            Some(session) => session.frames(),
            None => 0..self.source.as_ref().and_then(|source| source.shape().frames).unwrap_or(0),
        }
    }

    /// Width and height of the frames; zeros before the first.
    fn size(&self) -> (u32, u32) {
        let of_source = |source: &SessionSource| (source.shape().width, source.shape().height);
        let size = self.session.as_ref().map(VideoSession::size).or(self.source.as_ref().map(of_source));
        size.map_or((0, 0), |(width, height)| (width as u32, height as u32))
    }

    /// Notes what is known for requests that do not wait for this thread.
    pub fn note(&self) {
        let frames = self.frames();
        let mut state = locked(&self.seen.state);
        (state.width, state.height) = self.size();
        (state.first_frame, state.frames) = (frames.start, frames.end);
        state.next_object = self.session.as_ref().map_or(0, VideoSession::next_object);
        state.objects = self.session.as_ref().map(VideoSession::objects).unwrap_or_default();
        (state.passed, state.bytes) = (self.passed.len(), self.bytes());
    }
}

/// The memory of an image.
fn image_bytes((width, height): (u32, u32)) -> u64 {
    3 * u64::from(width) * u64::from(height)
}
