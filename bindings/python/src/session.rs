//! `ocelli.VideoSession`.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use ocelli::masklets::{
    Click, KeepFeatures, ObjectId, RunDirection, SessionSource, TrackedFrame, VideoSessionOptions,
};
use ocelli::source::InputOptions;
use ocelli::videos::{self, VideoInput, Videos};
use ocelli::{BoundingBox, Image, Mask};
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};
use crate::options::DetectorOptions;
use crate::pixels::Pixels;
use crate::program::PythonVideos;
use crate::prompts::{PromptParts, prompts};
use crate::waiting::{Worker, cancellable};

/// Number, ids, scores, boxes [n, xyxy], and masks (COCO's counts, width and height).
type FrameParts<'py> = (
    usize,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray2<f32>>,
    Vec<(String, u32, u32)>,
);

/// The keyword arguments of `ocelli.VideoSession` that concern the session.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SessionOptions {
    temporal_disambiguation: bool,
    keep_features: Option<String>,
    kept_frames: usize,
    window: Option<usize>,
}

/// The source of frames: a first frame, image files, or a video by its name, which `videos` opens in place of the video library.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SourceParts<'py> {
    name: String,
    frame: Option<Bound<'py, PyAny>>,
    channel_order: String,
    files: Option<Vec<PathBuf>>,
    videos: Option<Py<PyAny>>,
    stream: Option<u32>,
    ffmpeg: Vec<(String, String)>,
    hwaccel: Option<String>,
}

/// A source that another thread opens.
enum Opener {
    Frame(Image),
    Files(String, Vec<PathBuf>),
    Video(String, Option<PythonVideos>, InputOptions),
}

impl SourceParts<'_> {
    fn opener(self) -> PyResult<Opener> {
        Ok(match (self.frame, self.files) {
            (Some(frame), _) => {
                Opener::Frame(Pixels::new(&frame, &self.channel_order)?.to_image(frame.py())?)
            }
            (None, Some(files)) => Opener::Files(self.name, files),
            (None, None) => {
                let options =
                    InputOptions { stream: self.stream, ffmpeg: self.ffmpeg, hwaccel: self.hwaccel };
                Opener::Video(self.name, self.videos.map(PythonVideos), options)
            }
        })
    }
}

impl Opener {
    fn open(self) -> ocelli::Result<SessionSource> {
        match self {
            Self::Frame(image) => Ok(SessionSource::pushed(image)),
            Self::Files(name, files) => SessionSource::images(name, files),
            Self::Video(name, instead, options) => SessionSource::reopened(move || {
                let file = VideoInput::File(name.as_ref());
                instead
                    .as_ref()
                    .map_or_else(|| videos::open(file, &options), |videos| videos.open(file, &options))
            }),
        }
    }
}

/// A session on a thread of its own.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct VideoSession {
    worker: Worker<ocelli::masklets::VideoSession>,
    /// A description of the engine.
    #[pyo3(get)]
    engine: String,
}

impl VideoSession {
    /// Runs `work` on the session's thread and returns its frame.
    fn frame<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(&mut ocelli::masklets::VideoSession) -> ocelli::Result<TrackedFrame> + Send + 'static,
    ) -> PyResult<FrameParts<'py>> {
        let found = self.worker.call(py, work)?.or_raise(py)?;
        frame_parts(py, &found)
    }
}

#[pymethods]
impl VideoSession {
    /// Opens the model, which may export it, and the video.
    #[new]
    fn new(
        py: Python<'_>,
        detector: DetectorOptions,
        source: SourceParts<'_>,
        options: SessionOptions,
    ) -> PyResult<Self> {
        let keep = match options.keep_features.as_deref() {
            None => KeepFeatures::None,
            Some("device") => KeepFeatures::Device,
            Some("host") => KeepFeatures::Host,
            Some(other) => {
                let message = format!("keep_features is {other:?}: expected \"device\" or \"host\"");
                return Err(invalid(py, &message));
            }
        };
        let (builders, confidence) = (detector.builders().or_raise(py)?, detector.confidence);
        let opener = source.opener()?;
        let built = cancellable(py, move |cancellation| {
            // What needs no model first.
            let source = opener.open()?;
            let built = builders.into_iter().map(|builder| {
                let builder = builder.with_masks(true).with_cancellation(cancellation.clone());
                builder.build()
            });
            let mut detectors = built.collect::<ocelli::Result<Vec<_>>>()?;
            let engines: Vec<_> = detectors.iter().map(|detector| detector.engine().to_owned()).collect();
            let detector = detectors.remove(0);
            let mut given = VideoSessionOptions::new(&detector);
            (given.keep_features, given.kept_frames) = (keep, options.kept_frames);
            given.window = options.window;
            given.masklets = given.masklets.with_settings(confidence, true, None);
            if !options.temporal_disambiguation {
                given.masklets = given.masklets.without_temporal_disambiguation();
            }
            let mut session = ocelli::masklets::VideoSession::new(detector, source, given)?;
            detectors.iter().try_for_each(|other| session.add_device(other))?;
            Ok((session, engines.join(", ")))
        })?;
        let (session, engine) = built.or_raise(py)?;
        Ok(Self { worker: Worker::start(py, session)?, engine })
    }

    /// The first frame, and the one after the last, that can be prompted, clicked and passed.
    fn frames(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.worker.call(py, |session| (session.frames().start, session.frames().end))
    }

    /// The number of frames, their width and height, the objects, and an id that none had.
    fn state(&self, py: Python<'_>) -> PyResult<(usize, (usize, usize), Vec<ObjectId>, ObjectId)> {
        self.worker.call(py, |session| {
            (session.frame_count(), session.size(), session.objects(), session.next_object())
        })
    }

    /// Goes on to another video.
    fn open(&self, py: Python<'_>, source: SourceParts<'_>) -> PyResult<()> {
        let opener = source.opener()?;
        self.worker.call(py, move |session| session.open(opener.open()?))?.or_raise(py)
    }

    /// Appends a frame and returns its number.
    fn push(&self, py: Python<'_>, image: &Bound<'_, PyAny>, channel_order: &str) -> PyResult<usize> {
        let image = Pixels::new(image, channel_order)?.to_image(py)?;
        self.worker.call(py, move |session| session.push(image))?.or_raise(py)
    }

    /// Starts over with a text, or with exemplars.
    fn add_prompt<'py>(
        &self,
        py: Python<'py>,
        frame: usize,
        prompt: PromptParts,
    ) -> PyResult<FrameParts<'py>> {
        let has_exemplars = !prompt.2.is_empty();
        let prompts = prompts(py, vec![prompt])?;
        let Some(prompt) = prompts.iter().next().cloned() else {
            return Err(invalid(py, "there is no prompt"));
        };
        if has_exemplars {
            return self.frame(py, move |session| session.add_exemplars(frame, prompt));
        }
        self.frame(py, move |session| session.add_text(frame, prompt.phrase()))
    }

    /// Starts over with a box.
    fn add_box<'py>(&self, py: Python<'py>, frame: usize, edges: [f32; 4]) -> PyResult<FrameParts<'py>> {
        self.frame(py, move |session| session.add_box(frame, BoundingBox::from(edges)))
    }

    /// Refines an object, or adds one: points x, y (0 to 1) and whether they are on it.
    fn add_points<'py>(
        &self,
        py: Python<'py>,
        object: ObjectId,
        frame: usize,
        points: Vec<(f32, f32, bool)>,
    ) -> PyResult<FrameParts<'py>> {
        let clicks = points.into_iter().map(|(x, y, is_foreground)| Click { x, y, is_foreground });
        let clicks: Vec<Click> = clicks.collect();
        self.frame(py, move |session| session.add_points(object, frame, &clicks))
    }

    /// Adds an object by its mask.
    fn add_mask<'py>(
        &self,
        py: Python<'py>,
        object: ObjectId,
        frame: usize,
        mask: (String, u32, u32),
    ) -> PyResult<FrameParts<'py>> {
        let (counts, width, height) = mask;
        let mask = Mask::from_counts(counts, width, height).or_raise(py)?;
        self.frame(py, move |session| session.add_mask(object, frame, &mask))
    }

    /// Plans a run.
    fn propagate(
        &self,
        py: Python<'_>,
        direction: &str,
        start: Option<usize>,
        max_frames: Option<usize>,
    ) -> PyResult<()> {
        let direction = direction.parse::<RunDirection>().or_raise(py)?;
        let run = move |session: &mut ocelli::masklets::VideoSession| {
            session.propagate(direction, start, max_frames).map(drop)
        };
        self.worker.call(py, run)?.or_raise(py)
    }

    /// The next frame of the run; `None` at its end.
    fn next_frame<'py>(&self, py: Python<'py>) -> PyResult<Option<FrameParts<'py>>> {
        let found = self.worker.call(py, |session| session.next_frame().transpose())?.or_raise(py)?;
        found.map(|found| frame_parts(py, &found)).transpose()
    }

    /// Removes an object.
    fn remove(&self, py: Python<'_>, object: ObjectId) -> PyResult<()> {
        self.worker.call(py, move |session| session.remove(object))?.or_raise(py)
    }

    /// Forgets all prompts, objects and results.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.worker.call(py, ocelli::masklets::VideoSession::reset)?.or_raise(py)
    }
}

fn frame_parts<'py>(py: Python<'py>, found: &TrackedFrame) -> PyResult<FrameParts<'py>> {
    let objects = &found.objects;
    let ids: Vec<i64> = objects.iter().map(|object| object.id as i64).collect();
    let scores: Vec<f32> = objects.iter().map(|object| object.score).collect();
    let boxes: Vec<f32> = objects.iter().flat_map(|object| object.bbox.to_xyxy()).collect();
    let boxes = boxes.into_pyarray(py).reshape([objects.len(), 4])?;
    let counts = |mask: &Mask| (mask.counts().to_owned(), mask.width(), mask.height());
    let masks = objects.iter().map(|object| counts(&object.mask)).collect();
    Ok((found.frame, ids.into_pyarray(py), scores.into_pyarray(py), boxes, masks))
}
