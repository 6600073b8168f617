//! `ocelli.Detector`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ocelli::{FrameView, Image, PixelFormat, stages::ImageFeatures};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::objects::{MaskParts, ObjectParts, mask_parts, objects};
use crate::options::DetectorOptions;
use crate::pixels::Pixels;
use crate::prompts::{PromptParts, prompts};
use crate::results::{FoundArrays, found_arrays};
use crate::waiting::{Worker, cancellable};

/// The features of an image.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct Features(Arc<ImageFeatures>);

#[pymethods]
impl Features {
    /// Width and height of the image.
    #[getter]
    fn size(&self) -> (u32, u32) {
        self.0.size()
    }
}

/// A detector on a thread of its own.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct Detector {
    worker: Worker<ocelli::Detector>,
    /// A description of the engine.
    #[pyo3(get)]
    engine: String,
    /// The folder of the exported model.
    #[pyo3(get)]
    model: PathBuf,
    /// The side of the model's input in pixels.
    #[pyo3(get)]
    imgsz: usize,
    /// The last image's copy, whose memory the next one takes.
    spare: Mutex<Image>,
}

impl Detector {
    /// A copy of an array, in its order of colours: after Ctrl-C the worker goes on reading, while the caller may write to the array
    /// or free it.
    fn copied(&self, image: &Bound<'_, PyAny>, channel_order: &str) -> PyResult<(Image, PixelFormat)> {
        let pixels = Pixels::new(image, channel_order)?;
        let mut copy = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        let FrameView { format, .. } = pixels.view();
        let as_it_is = FrameView { format: PixelFormat::Rgb8, ..pixels.view() };
        as_it_is.to_image_into(&mut copy).or_raise(image.py())?;
        Ok((copy, format))
    }

    /// Runs `find` on the detector's thread and keeps the memory of the pixels for the next image.
    fn search<R: Send + 'static>(
        &self,
        py: Python<'_>,
        (image, format): (Image, PixelFormat),
        find: impl FnOnce(&mut ocelli::Detector, FrameView<'_>) -> ocelli::Result<R> + Send + 'static,
    ) -> PyResult<R> {
        let find = move |detector: &mut ocelli::Detector| {
            (find(detector, FrameView { format, ..image.view() }), image)
        };
        let (found, image) = self.worker.call(py, find)?;
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = image;
        found.or_raise(py)
    }
}

#[pymethods]
impl Detector {
    /// Opens the model, which may export it, and loads the engine's library.
    #[new]
    fn new(py: Python<'_>, options: DetectorOptions) -> PyResult<Self> {
        let builder = options.builder().or_raise(py)?;
        let built = cancellable(py, |cancellation| builder.with_cancellation(cancellation.clone()).build())?;
        let detector = built.or_raise(py)?;
        let (engine, model) = (detector.engine().to_owned(), detector.model().folder().to_owned());
        let imgsz = detector.model().manifest().imgsz;
        let (worker, spare) = (Worker::start(py, detector)?, Mutex::default());
        Ok(Self { worker, engine, model, imgsz, spare })
    }

    /// Loads the engines and encodes the phrases.
    fn prepare(&self, py: Python<'_>, classes: Vec<PromptParts>) -> PyResult<()> {
        let prompts = prompts(py, classes)?;
        self.worker.call(py, move |detector| detector.prepare(&prompts).map(|_| ()))?.or_raise(py)
    }

    /// Detects in one image, maybe with exemplars that are boxes in another one.
    fn detect<'py>(
        &self,
        py: Python<'py>,
        image: &Bound<'py, PyAny>,
        classes: Vec<PromptParts>,
        channel_order: &str,
        exemplar_image: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<FoundArrays<'py>> {
        let prompts = prompts(py, classes)?;
        let image = self.copied(image, channel_order)?;
        let examples =
            exemplar_image.map(|image| Pixels::new(image, channel_order)?.to_image(py)).transpose()?;
        let found = self.search(py, image, move |detector, image| {
            let Some(examples) = examples else { return detector.detect(image, &prompts) };
            let embedded = detector.exemplar_features(&examples, &prompts)?;
            detector.detect_embedded(image, &embedded)
        })?;
        found_arrays(py, &found, &found.times)
    }

    /// The features of one image.
    fn encode(&self, py: Python<'_>, image: &Bound<'_, PyAny>, channel_order: &str) -> PyResult<Features> {
        let image = self.copied(image, channel_order)?;
        self.search(py, image, |detector, image| detector.encode(image).map(Arc::new)).map(Features)
    }

    /// Detects in the features of an image.
    fn detect_features<'py>(
        &self,
        py: Python<'py>,
        features: &Features,
        classes: Vec<PromptParts>,
    ) -> PyResult<FoundArrays<'py>> {
        let prompts = prompts(py, classes)?;
        let features = features.0.clone();
        let found = self.worker.call(py, move |detector| detector.detect_features(&features, &prompts))?;
        let found = found.or_raise(py)?;
        found_arrays(py, &found, &found.times)
    }

    /// The masks of each object that is shown: one, or three.
    fn segment<'py>(
        &self,
        py: Python<'py>,
        features: &Features,
        shown: Vec<ObjectParts<'py>>,
        multimask: bool,
    ) -> PyResult<Vec<Vec<MaskParts<'py>>>> {
        let objects = objects(py, shown)?;
        let features = features.0.clone();
        let work =
            move |detector: &mut ocelli::Detector| detector.segment_each(&features, &objects, multimask);
        let found = self.worker.call(py, work)?.or_raise(py)?;
        found.iter().map(|masks| masks.iter().map(|mask| mask_parts(py, mask)).collect()).collect()
    }
}
