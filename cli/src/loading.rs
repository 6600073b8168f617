//! Loading a model, which Ctrl-C does not wait for.

use std::sync::Arc;
use std::time::Duration;

use ocelli::{Detector, DetectorBuilder, Model, ModelSource, engine::EngineFactory, model::ModelRequest};

use crate::Progress;
use crate::interrupt::{cancel_on_interrupt, on_thread};

/// Time that a load has to end after Ctrl-C: an export into the cache removes its files.
const PATIENCE: Duration = Duration::from_secs(1);

/// Builds a detector, and returns it with its progress. After Ctrl-C the thread that loads it gets a second to clean up, and
/// is then left to end with the program.
///
/// # Errors
/// As [`DetectorBuilder::build`]; [`ErrorKind::Cancelled`](ocelli::ErrorKind::Cancelled) after Ctrl-C.
pub fn load(builder: DetectorBuilder) -> anyhow::Result<(Detector, Arc<Progress>)> {
    let (mut detectors, loading) = load_devices(vec![builder])?;
    Ok((detectors.remove(0), loading))
}

/// As [`load`], for each device.
pub(crate) fn load_devices(builders: Vec<DetectorBuilder>) -> anyhow::Result<(Vec<Detector>, Arc<Progress>)> {
    let loading = Arc::new(Progress::waiting());
    let shown = Arc::clone(&loading);
    let build = move || {
        let build = |builder: DetectorBuilder| {
            let shown = Arc::clone(&shown);
            builder.with_progress(move |line| shown.announce(line)).build()
        };
        builders.into_iter().map(build).collect::<ocelli::Result<Vec<_>>>()
    };
    let detectors = on_thread(build, PATIENCE)??;
    Ok((detectors, loading))
}

/// A model, exported into the cache for this engine if it is not there, unless Ctrl-C is pressed.
///
/// # Errors
/// As [`Model::resolve`].
pub(crate) fn resolved(
    source: ModelSource,
    imgsz: Option<usize>,
    engine: &EngineFactory,
    progress: &Progress,
) -> ocelli::Result<Model> {
    let request = ModelRequest { source, imgsz, target: engine.target(None), ..ModelRequest::default() };
    Model::resolve(&request, &|line| progress.announce(line), &cancel_on_interrupt())
}

/// The engines of these detectors, for people.
pub(crate) fn engines(detectors: &[Detector]) -> String {
    detectors.iter().map(Detector::engine).collect::<Vec<_>>().join(" and ")
}
