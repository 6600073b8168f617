//! Engines that are built when they are first needed and kept in the cache.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use super::backend::TensorRtBackend;
use super::build::{BuildEvent, BuildOptions, EngineBuild};
use super::fit::fit;
use super::sidecar::Sidecar;
use crate::Cancellation;
use crate::cache::{Lock, create_folder, short_hash};
use crate::engine::EngineFactory;
use crate::error::Result;
use crate::model::Model;
use crate::model_graph::ModelGraph;

/// Engines for the backbone and the encoder-decoder of a model that was exported for TensorRT, kept in `folder`: `engines`
/// of the [cache](crate::cache_folder) for programs. Where they are not there yet, they are built and passed through the
/// numeric gate now, which takes minutes for a full-size model. `rest` runs the other graphs and is the reference.
///
/// `report` is told, in words, what is being done.
///
/// # Errors
/// [`Unavailable`](crate::ErrorKind::Unavailable) where there is no TensorRT, no driver or no GPU, and what
/// [`EngineBuild::run`] finds.
pub fn cached_engines(
    model: &Model,
    backend: Arc<dyn TensorRtBackend>,
    rest: EngineFactory,
    options: BuildOptions,
    folder: &Path,
    cancellation: &Cancellation,
    report: &dyn Fn(&str),
) -> Result<EngineFactory> {
    let (library, gpu) = (backend.library()?, backend.gpu()?);
    let mut graphs = ModelGraph::backbone_of(model.manifest());
    graphs.push(ModelGraph::EncoderDecoder);
    let options = BuildOptions { graphs: graphs.clone(), force: true, ..options };
    let manifest = model.manifest();
    let hashes =
        graphs.iter().filter_map(|graph| manifest.files.get(graph.file())).map(|entry| &*entry.sha256);
    // Engines of another library, GPU or graph are others.
    let key = format!(
        "{};{library};{};{gpu};{};{};{options:?}",
        env!("CARGO_PKG_VERSION"),
        library.path.display(),
        manifest.weights_sha256,
        hashes.collect::<Vec<_>>().join(";")
    );
    let entry = folder.join(short_hash(&key));
    let place = |graph: ModelGraph| entry.join(format!("{graph}.engine"));
    create_folder(folder)?;
    {
        // One process builds, others wait.
        let _lock = Lock::acquire(&entry.with_extension("lock"))?;
        if !graphs.iter().all(|graph| is_whole(&place(*graph))) {
            report(&format!("building engines into the cache, {} (once)", entry.display()));
            let build = EngineBuild::new(model, Arc::clone(&backend), &rest, options)
                .with_cancellation(cancellation.clone());
            build_elsewhere(&build, &entry, report)?;
        }
    }
    let names: Vec<_> = graphs.iter().map(|graph| graph.name()).collect();
    let description =
        format!("{library} on {} ({}); {} for the rest", gpu.name, names.join(", "), rest.description());
    let engines: Vec<(ModelGraph, PathBuf)> = graphs.iter().map(|graph| (*graph, place(*graph))).collect();
    let model = model.clone();
    Ok(EngineFactory::custom(description, move |graph| {
        let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match engines.iter().find(|(graph, _)| graph.file() == name) {
            Some((graph, path)) => {
                Ok(fit(backend.load(path, Some(*graph))?, *graph, model.manifest(), path)?.engine)
            }
            None => rest.load(graph),
        }
    }))
}

/// Builds on a thread of its own, because TensorRT may report from any; `report` is called on this one.
fn build_elsewhere(build: &EngineBuild<'_>, entry: &Path, report: &dyn Fn(&str)) -> Result<()> {
    let (lines, told) = mpsc::channel::<String>();
    std::thread::scope(|scope| {
        let building = scope.spawn(move || {
            let mut last = String::new();
            build.run(entry, &mut |event| {
                let line = match event {
                    BuildEvent::Building { graph, .. } => format!("building the engine of the {graph}"),
                    BuildEvent::Verifying { graph: None, .. } => "running the model on the processor".into(),
                    BuildEvent::Verifying { graph: Some(graph), .. } => {
                        format!("comparing the engine of the {graph}")
                    }
                    _ => return,
                };
                if line != last {
                    last.clone_from(&line);
                    // Nobody listens only once this has ended.
                    drop(lines.send(line));
                }
            })
        });
        told.iter().for_each(|line| report(&line));
        building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(())
}

/// Whether the engine is there, was accepted, and is as large as it was.
fn is_whole(path: &Path) -> bool {
    let sidecar = Sidecar::read(path).ok().flatten();
    sidecar.is_some_and(|sidecar| {
        sidecar.verified.is_some() && path.metadata().is_ok_and(|found| found.len() == sidecar.engine.bytes)
    })
}
