//! Engines that are built on first use and cached.

use std::path::Path;
use std::sync::mpsc;

use sha2::{Digest, Sha256};

use super::build::{BuildEvent, BuildOptions, EngineBuild};
use ocelli::cache::{Lock, cache_folder, create_folder, short_hex};
use ocelli::engine::{EngineFactory, PrepareEngines};
use ocelli::model::ModelGraph;
use ocelli::options::DetectorOptions;
use ocelli::tensorrt::{NativeTensorRt, Sidecar};
use ocelli::{Cancellation, Detector, DetectorBuilder, EngineKind, Error, Model, Result};
use ocelli_export::contract::Target;

/// A detector with these options. `tensorrt` builds its engines into the cache once the model is known; engine files take
/// precedence, and other engines need no preparation. `option` is the name by which the user chose the engine, for errors.
///
/// # Errors
/// [`ErrorKind::Unavailable`](ocelli::ErrorKind::Unavailable) without a driver or a GPU.
pub fn detector(options: DetectorOptions, option: &str) -> Result<DetectorBuilder> {
    let kind = options.engine.kind;
    let EngineKind::TensorRt { ordinal } = kind else { return Ok(Detector::with(options)) };
    let tensorrt = NativeTensorRt::new(options.engine.tensorrt.as_deref()).with_ordinal(ordinal);
    tensorrt.gpu().map_err(|error| Error::new(error.kind(), format!("{option} {kind}: {error}")))?;
    let builder = Detector::with(options);
    Ok(builder.with_prepared_engines(Target::TensorRt, move |request| {
        let options = BuildOptions { max_classes: request.class_chunk, ..BuildOptions::default() };
        let folder = cache_folder()?.join("engines");
        let PrepareEngines { model, rest, cancellation, report, .. } = request;
        cached_engines(model, &tensorrt, rest, options, &folder, cancellation, report)
    }))
}

/// Engines for the backbone and the encoder-decoder of a model that was exported for TensorRT, kept in `folder` (programs use
/// `engines` in the [cache](ocelli::cache::cache_folder)). Missing engines are built and verified now, which takes minutes for a
/// full-size model. `rest` runs the other graphs and is the reference of the numeric gate.
///
/// `report` is called with a line about each stage of a build.
///
/// # Errors
/// [`Unavailable`](ocelli::ErrorKind::Unavailable) without TensorRT, a driver or a GPU, and those of [`EngineBuild::run`].
pub fn cached_engines(
    model: &Model,
    tensorrt: &NativeTensorRt,
    rest: EngineFactory,
    options: BuildOptions,
    folder: &Path,
    cancellation: &Cancellation,
    report: &dyn Fn(&str),
) -> Result<EngineFactory> {
    let (gpu, library) = (tensorrt.gpu()?, tensorrt.library()?);
    let manifest = model.manifest();
    let mut graphs = ModelGraph::backbone_of(manifest);
    graphs.push(ModelGraph::EncoderDecoder);
    let options = BuildOptions { graphs: graphs.clone(), force: true, ..options };
    let hashes =
        graphs.iter().filter_map(|graph| manifest.files.get(graph.file())).map(|entry| &*entry.sha256);
    // Another library, GPU, graph or option makes other engines.
    let key = format!(
        "{};{library};{};{gpu};{};{};{options:?}",
        env!("CARGO_PKG_VERSION"),
        library.path.display(),
        manifest.weights_sha256,
        hashes.collect::<Vec<_>>().join(";")
    );
    let entry = folder.join(short_hex(&Sha256::digest(key.as_bytes())));
    let engines: Vec<_> =
        graphs.into_iter().map(|graph| (graph, entry.join(format!("{graph}.engine")))).collect();
    create_folder(folder)?;
    // One process builds, others wait.
    let lock = Lock::acquire(&entry.with_extension("lock"))?;
    if !engines.iter().all(|(_, path)| is_complete(path)) {
        report(&format!("building engines into the cache, {} (once)", entry.display()));
        let mut build = EngineBuild::new(model, tensorrt, &rest, options);
        build.cancellation = cancellation.clone();
        build_on_a_thread(&build, &entry, report)?;
    }
    drop(lock);
    tensorrt.factory(model, engines, rest)
}

/// Builds on another thread, because TensorRT reports from its own threads; `report` is called on this one.
fn build_on_a_thread(build: &EngineBuild<'_>, entry: &Path, report: &dyn Fn(&str)) -> Result<()> {
    let (lines, received) = mpsc::channel::<String>();
    std::thread::scope(|scope| {
        let building = scope.spawn(move || {
            let mut last = String::new();
            build.run(entry, &mut |event| {
                let line = match event {
                    BuildEvent::Building { graph, .. } => format!("building the engine of the {graph}"),
                    BuildEvent::Verifying { graph: None, .. } => "running the model on the CPU".into(),
                    BuildEvent::Verifying { graph: Some(graph), .. } => {
                        format!("comparing the engine of the {graph}")
                    }
                    _ => return,
                };
                if line != last {
                    last.clone_from(&line);
                    // The receiver lives until this thread ends.
                    drop(lines.send(line));
                }
            })
        });
        received.iter().for_each(|line| report(&line));
        building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(())
}

/// `true` if the engine exists, was accepted, and has its full size.
fn is_complete(path: &Path) -> bool {
    let sidecar = Sidecar::read(path).ok().flatten();
    sidecar.is_some_and(|sidecar| {
        sidecar.verified.is_some() && path.metadata().is_ok_and(|found| found.len() == sidecar.engine.bytes)
    })
}
