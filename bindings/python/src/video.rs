//! Videos, streams and cameras that the video library reads; without it, `ocelli._decode` reads them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArray3, PyArrayMethods};
use ocelli::source::{InputOptions, SourceInfo, StreamKind, video_library};
use ocelli::videos::{self, VideoInput};
use ocelli::{Cancellation, Frame, Source};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::waiting::cancellable;

/// Why the video library cannot be used; `None` if it can.
#[pyfunction]
pub(crate) fn why_no_video_library() -> Option<String> {
    video_library().err().map(|error| error.to_string())
}

/// Reads videos as `ocelli._decode.VideoReader` does with PyAV.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct VideoReader {
    #[pyo3(get)]
    frame_rate: Option<f64>,
    #[pyo3(get)]
    live: bool,
    cancellation: Cancellation,
    open: Mutex<Option<Box<dyn Source>>>,
}

#[pymethods]
impl VideoReader {
    /// Opens a file, an address, or a camera by its number.
    #[new]
    fn new(
        py: Python<'_>,
        name: String,
        live: Option<bool>,
        stream: Option<u32>,
        ffmpeg: Vec<(String, String)>,
        hwaccel: Option<String>,
    ) -> PyResult<Self> {
        let options = InputOptions { stream, ffmpeg, hwaccel };
        let kind = live.map(|live| if live { StreamKind::Live } else { StreamKind::File });
        let opened = cancellable(py, move |cancellation| {
            let file = name.strip_prefix("file://").unwrap_or(&name);
            let input = match name.parse() {
                Ok(camera) => VideoInput::Camera(camera),
                Err(_) if file.contains("://") => VideoInput::Url(file, kind, cancellation),
                Err(_) => VideoInput::File(Path::new(file)),
            };
            Ok((videos::open(input, &options)?, cancellation.clone()))
        })?;
        let (source, cancellation) = opened.or_raise(py)?;
        let SourceInfo { frame_rate, live, .. } = *source.info();
        Ok(Self { frame_rate, live, cancellation, open: Mutex::new(Some(source)) })
    }

    /// Index, time in seconds and pixels (height, width, rgb), which are the caller's, of the next frame; `None` at the end.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, f64, Bound<'py, PyArray3<u8>>)>> {
        let found = py.detach(|| -> ocelli::Result<Option<Frame>> {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(source) = open.as_mut() else { return Ok(None) };
            let mut frame = Frame::default();
            let found = source.read_into(&mut frame);
            if self.cancellation.is_cancelled() { Ok(None) } else { Ok(found?.then_some(frame)) }
        });
        let Some(frame) = found.or_raise(py)? else { return Ok(None) };
        let sides = [frame.image.height() as usize, frame.image.width() as usize, 3];
        let pixels = PyArray1::from_vec(py, frame.image.into_rgb8()).reshape(sides)?;
        Ok(Some((frame.index, frame.time.as_secs_f64(), pixels)))
    }

    /// Closes the video. A read that waits for a server ends; another one is left to end by itself.
    fn close(&self) {
        self.cancellation.cancel();
        if let Ok(mut open) = self.open.try_lock() {
            *open = None;
        }
    }
}
