//! The programs inside Python: `ocelli`, `demo-image` and `demo-video`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numpy::{PyArray3, PyArrayMethods};
use ocelli::sink::Images;
use ocelli::source::{InputOptions, StreamKind};
use ocelli::videos::{self, VideoInput, Videos};
use ocelli::{Error, ErrorKind, Frame, Result, Sink, Source, pipeline::FrameOutcome, source::SourceInfo};
use ocelli_cli::Program;
use pyo3::prelude::*;

use crate::error::{from_exception, invalid};
use crate::pixels::Pixels;

/// Sets where the libraries of the engines are searched for besides the usual places.
#[pyfunction]
pub(crate) fn set_python_packages(folders: Vec<PathBuf>) {
    ocelli_engines::library::set_python_packages(folders);
}

/// The text without the passwords and tokens of addresses in it.
#[pyfunction]
pub(crate) fn without_secrets(text: &str) -> String {
    ocelli::source::without_secrets(text)
}

/// Runs a program and returns its exit status. `decoder` reads and writes videos: see `ocelli._decode`.
#[pyfunction]
pub(crate) fn run_program(
    py: Python<'_>,
    name: &str,
    arguments: Vec<OsString>,
    decoder: Option<Py<PyAny>>,
) -> PyResult<u8> {
    let program = Program::named(name);
    let program = program.ok_or_else(|| invalid(py, &format!("no program is called {name}")))?;
    if let Some(module) = decoder {
        videos::replace(Box::new(PythonVideos(module)));
    }
    Ok(py.detach(move || program.run_in(arguments)))
}

/// The functions of `ocelli._decode`.
pub(crate) struct PythonVideos(pub(crate) Py<PyAny>);

impl Videos for PythonVideos {
    fn library(&self) -> Option<String> {
        Python::attach(|py| {
            self.0.call_method0(py, "library").and_then(|name| name.extract(py)).ok().flatten()
        })
    }

    fn open(&self, input: VideoInput<'_>, options: &InputOptions) -> Result<Box<dyn Source>> {
        if options.hwaccel.is_some() {
            return Err(Error::unavailable("hwaccel needs the video library: PyAV decodes on the CPU"));
        }
        let (name, live) = match input {
            VideoInput::File(path) => (path.display().to_string(), Some(false)),
            VideoInput::Url(url, kind, _) => (url.to_owned(), kind.map(|kind| kind == StreamKind::Live)),
            VideoInput::Camera(index) => (index.to_string(), Some(true)),
        };
        Python::attach(|py| {
            let made = self.0.call_method1(py, "open_video", (&name, live, options.stream, &options.ffmpeg));
            made.and_then(|reader| PythonSource::new(py, reader))
                .map(|source| Box::new(source) as Box<dyn Source>)
                .map_err(|failure| from_exception(py, "", &failure))
        })
    }

    fn create(&self, path: &Path, frame_rate: f64) -> Result<Box<dyn Sink>> {
        Python::attach(|py| {
            let made = self.0.call_method1(py, "create_video", (path, frame_rate));
            let sink =
                made.map(|writer| Box::new(PythonSink { writer, path: path.to_owned() }) as Box<dyn Sink>);
            sink.map_err(|failure| from_exception(py, "", &failure))
        })
    }
}

/// A video that Python reads.
struct PythonSource {
    reader: Py<PyAny>,
    info: SourceInfo,
}

impl PythonSource {
    fn new(py: Python<'_>, reader: Py<PyAny>) -> PyResult<Self> {
        let mut info = SourceInfo::default();
        info.name = reader.getattr(py, "name")?.extract(py)?;
        info.size = reader.getattr(py, "size")?.extract(py)?;
        info.frame_rate = reader.getattr(py, "frame_rate")?.extract(py)?;
        info.frame_count = reader.getattr(py, "frame_count")?.extract(py)?;
        info.live = reader.getattr(py, "live")?.extract(py)?;
        info.has_sound = reader.getattr(py, "has_sound")?.extract(py)?;
        Ok(Self { reader, info })
    }

    /// The index and the time of the next frame; `fill` gets its pixels.
    fn next(&mut self, frame: &mut Frame, with_pixels: bool) -> Result<bool> {
        Python::attach(|py| {
            let read = || -> PyResult<Option<(u64, f64, Bound<'_, PyAny>)>> {
                let found = self.reader.bind(py).call_method1("read", (with_pixels,))?;
                found.extract()
            };
            let failed = |failure: PyErr| from_exception(py, "", &failure);
            let Some((index, time_s, image)) = read().map_err(failed)? else { return Ok(false) };
            frame.index = index;
            frame.time = Duration::try_from_secs_f64(time_s).unwrap_or_default().max(frame.time);
            if with_pixels {
                let pixels = Pixels::new(&image, "rgb").map_err(failed)?;
                let view = pixels.view();
                py.detach(|| view.to_image_into(&mut frame.image))?;
            }
            Ok(true)
        })
    }
}

impl Source for PythonSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        self.next(frame, true)
    }

    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        self.next(frame, false)
    }
}

/// A video that Python writes.
struct PythonSink {
    writer: Py<PyAny>,
    path: PathBuf,
}

impl Sink for PythonSink {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.annotated else {
            let message = format!("{}: the frame has no image", self.path.display());
            return Err(Error::new(ErrorKind::Internal, message));
        };
        let sides = [image.height() as usize, image.width() as usize, 3];
        Python::attach(|py| {
            let pixels = PyArray3::<u8>::zeros(py, sides, false);
            let write = || -> PyResult<()> {
                pixels.readwrite().as_slice_mut()?.copy_from_slice(image.as_rgb8());
                self.writer.call_method1(py, "write", (outcome.time.as_secs_f64(), pixels.clone()))?;
                Ok(())
            };
            write().map_err(|failure| from_exception(py, "", &failure))
        })
    }

    fn finish(&mut self) -> Result<()> {
        Python::attach(|py| match self.writer.call_method0(py, "finish") {
            Ok(_) => Ok(()),
            Err(failure) => Err(from_exception(py, "", &failure)),
        })
    }
}
