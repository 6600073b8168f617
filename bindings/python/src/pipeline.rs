//! The pipeline of `ocelli.Video`: frames are pushed, results received.

use std::time::{Duration, Instant};

use ocelli::{
    Cancellation, DetectorBuilder, Result, masklets::MaskletOptions, options::PipelineOptions,
    pipeline::FrameOutcome,
};
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};
use crate::options::{DetectorOptions, form};
use crate::pixels::Pixels;
use crate::prompts::{PromptParts, prompts};
use crate::results::{FoundArrays, found_arrays, to_json};
use crate::waiting::{POLL, cancellable};

/// Time that a frame waits for room between two looks.
const ROOM: Duration = Duration::from_millis(1);

/// Index, time in seconds, width and height, whether it was detected in, detections, tracks as JSON, ids of tracks that were false.
type OutcomeParts<'py> = (u64, f64, (u32, u32), bool, FoundArrays<'py>, String, Vec<u64>);

/// A running pipeline.
#[pyclass(frozen, module = "ocelli._ocelli")]
pub(crate) struct Pipeline {
    pipeline: ocelli::Pipeline,
    cancellation: Cancellation,
    /// A description of the engine.
    #[pyo3(get)]
    engine: String,
}

#[pymethods]
impl Pipeline {
    /// Builds a detector and starts the pipeline. `memory`, to follow objects by memory: whether frames leave at once, and the most
    /// objects.
    #[new]
    fn new(
        py: Python<'_>,
        detector: DetectorOptions,
        classes: Vec<PromptParts>,
        options: &str,
        memory: Option<(bool, Option<usize>)>,
    ) -> PyResult<Self> {
        let builders = detector.builders().or_raise(py)?;
        let prompts = prompts(py, classes)?;
        let mut form: PipelineOptions = form(py, options)?;
        form.memory = memory.map(|_| MaskletOptions::default());
        form.check(builders[0].options(), builders.len(), true).or_raise(py)?;
        let (confidence, token) = (detector.confidence, Cancellation::new());
        let cancellation = token.clone();
        let built = cancellable(py, move |stop| {
            let build = |builder: DetectorBuilder| {
                let builder = builder.with_options(|options| options.masks |= memory.is_some());
                builder.with_cancellation(stop.clone()).build()
            };
            let mut detectors = builders.into_iter().map(build).collect::<Result<Vec<_>>>()?;
            let engine = detectors.iter().map(ocelli::Detector::engine).collect::<Vec<_>>().join(" and ");
            let defaults = detectors[0].model().masklet_options();
            form.memory = memory.map(|(at_once, most)| defaults.with_settings(confidence, !at_once, most));
            let pipeline = ocelli::Pipeline::builder(detectors.remove(0), prompts)
                .with_options(|all| *all = form)
                .with_more_devices(detectors)
                .with_cancellation(token);
            pipeline.build().map(|pipeline| (pipeline, engine))
        })?;
        let (pipeline, engine) = built.or_raise(py)?;
        Ok(Self { pipeline, cancellation, engine })
    }

    /// Pushes a frame and returns its index. Waits for room, without the GIL.
    fn push(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        time_s: f64,
        channel_order: &str,
    ) -> PyResult<u64> {
        let Ok(timestamp) = Duration::try_from_secs_f64(time_s) else {
            return Err(invalid(py, &format!("time is {time_s}: expected seconds of at least 0")));
        };
        let pixels = Pixels::new(image, channel_order)?;
        loop {
            let start = Instant::now();
            let pushed = py.detach(|| {
                loop {
                    // Made anew, so that nothing refers to the pixels while this waits for room.
                    let mut view = pixels.view();
                    view.timestamp = timestamp;
                    match self.pipeline.try_push(view) {
                        Ok(None) if start.elapsed() < POLL => std::thread::sleep(ROOM),
                        other => return other,
                    }
                }
            });
            match pushed.or_raise(py)? {
                Some(index) => return Ok(index),
                None => py.check_signals()?,
            }
        }
    }

    /// The next result, in order; `None` at the end or after `timeout_s` seconds.
    fn receive<'py>(&self, py: Python<'py>, timeout_s: Option<f64>) -> PyResult<Option<OutcomeParts<'py>>> {
        let end =
            timeout_s.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let start = Instant::now();
        loop {
            let left = end.map_or(POLL, |end| end.saturating_sub(start.elapsed()).min(POLL));
            let received = py.detach(|| self.pipeline.recv_timeout(left)).or_raise(py)?;
            if let Some(outcome) = received {
                let parts = outcome_parts(py, &outcome)?;
                self.pipeline.recycle(outcome);
                return Ok(Some(parts));
            }
            if self.pipeline.is_ended() || end.is_some_and(|end| start.elapsed() >= end) {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// All results were received after `close`.
    #[getter]
    fn is_ended(&self) -> bool {
        self.pipeline.is_ended()
    }

    /// Marks the end of the stream.
    fn close(&self) {
        self.pipeline.close();
    }

    /// Stops early: frames that wait are dropped.
    fn cancel(&self) {
        self.cancellation.cancel();
        self.pipeline.close();
    }

    /// Statistics so far, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        to_json(py, &self.pipeline.stats())
    }
}

fn outcome_parts<'py>(py: Python<'py>, outcome: &FrameOutcome) -> PyResult<OutcomeParts<'py>> {
    let found = found_arrays(py, &outcome.detections, &outcome.times)?;
    let tracks = to_json(py, &outcome.tracks)?;
    let FrameOutcome { index, time, size, detected, retracted, .. } = outcome;
    Ok((*index, time.as_secs_f64(), *size, *detected, found, tracks, retracted.clone()))
}
