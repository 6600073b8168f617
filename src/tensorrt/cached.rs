//! Engines that are built when they are first needed and kept in the cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::Engine;

use super::backend::TensorRtBackend;
use super::build::{BuildEvent, BuildOptions, EngineBuild};
use super::fit::fit;
use super::sidecar::Sidecar;
use crate::Cancellation;
use crate::cache::{Lock, create_folder, short_hash};
use crate::engine::EngineFactory;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;
use crate::model_graph::ModelGraph;

/// Engines for the backbone and the encoder-decoder of a model that was exported for TensorRT: built into the cache, and
/// passed through the numeric gate, when they are first asked for; `rest` runs the other graphs and is the reference.
///
/// They are kept in `folder`, `engines` of the [cache](crate::cache_folder) for programs. `report` is told, in words, when
/// something begins that takes long.
///
/// # Errors
/// [`ErrorKind::Unavailable`] where there is no TensorRT, no driver or no GPU. What [`EngineBuild::run`] finds comes when
/// the first engine is made.
pub fn cached_engines(
    backend: Arc<dyn TensorRtBackend>,
    rest: EngineFactory,
    options: BuildOptions,
    folder: PathBuf,
    cancellation: Cancellation,
    report: impl Fn(&str) + Send + Sync + 'static,
) -> Result<EngineFactory> {
    let (library, gpu) = (backend.library()?, backend.gpu()?);
    let description =
        format!("{library} on {} (backbone, encoder_decoder); {} for the rest", gpu.name, rest.description());
    let machine = format!("{library};{};{gpu}", library.path.display());
    Ok(EngineFactory::custom(description, move |graph: &Path| {
        let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match (ModelGraph::of_file(name), graph.parent()) {
            (Some(graph), Some(folder)) if graph.is_backbone() || graph == ModelGraph::EncoderDecoder => {
                let model = Model::open(folder)?;
                let cache = Cache {
                    backend: &backend,
                    rest: &rest,
                    options: &options,
                    folder: &folder,
                    machine: &machine,
                };
                cache.load(&model, graph, &cancellation, &report)
            }
            _ => rest.load(graph),
        }
    }))
}

struct Cache<'c> {
    backend: &'c Arc<dyn TensorRtBackend>,
    rest: &'c EngineFactory,
    options: &'c BuildOptions,
    /// Where entries lie.
    folder: &'c Path,
    /// Library and GPU: engines of others are others.
    machine: &'c str,
}

impl Cache<'_> {
    fn load(
        &self,
        model: &Model,
        graph: ModelGraph,
        cancellation: &Cancellation,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Box<dyn Engine>> {
        let mut graphs = ModelGraph::backbone_of(model.manifest());
        graphs.push(ModelGraph::EncoderDecoder);
        let hashes: Vec<_> = graphs
            .iter()
            .filter_map(|graph| model.manifest().files.get(graph.file()))
            .map(|entry| entry.sha256.as_str())
            .collect();
        let options = BuildOptions { graphs, force: true, ..self.options.clone() };
        let key = format!(
            "{};{};{};{};{options:?}",
            env!("CARGO_PKG_VERSION"),
            self.machine,
            model.manifest().weights_sha256,
            hashes.join(";")
        );
        let entry = self.folder.join(short_hash(&key));
        let path = entry.join(format!("{graph}.engine"));
        create_folder(self.folder)?;
        // One process builds, others wait.
        let lock = Lock::acquire(&entry.with_extension("lock"))?;
        if !is_whole(&path) {
            self.build(model, &entry, options, cancellation, report)?;
        }
        drop(lock);
        Ok(fit(self.backend.load(&path)?, graph, model.manifest(), &path)?.engine)
    }

    fn build(
        &self,
        model: &Model,
        entry: &Path,
        options: BuildOptions,
        cancellation: &Cancellation,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<()> {
        report(&format!("building engines into the cache, {} (once)", entry.display()));
        let mut told: Option<String> = None;
        let build = EngineBuild::new(model, Arc::clone(self.backend), self.rest, options)
            .with_cancellation(cancellation.clone());
        let built = build.run(entry, &mut |event| {
            let line = match event {
                BuildEvent::Building { graph, .. } => format!("building the engine of the {graph}"),
                BuildEvent::Verifying { graph: None, .. } => "running the model on the processor".into(),
                BuildEvent::Verifying { graph: Some(graph), .. } => {
                    format!("comparing the engine of the {graph}")
                }
                _ => return,
            };
            if told.as_ref() != Some(&line) {
                report(&line);
                told = Some(line);
            }
        })?;
        let missing = |path: &PathBuf| !is_whole(path);
        match built.iter().map(|engine| &engine.path).find(|path| missing(path)) {
            None => Ok(()),
            Some(path) => {
                let message = format!("engine {}: it is gone again", path.display());
                Err(Error::new(ErrorKind::Io, message))
            }
        }
    }
}

/// Whether the engine is there, was accepted, and is as large as it was.
fn is_whole(path: &Path) -> bool {
    let sidecar = Sidecar::read(path).ok().flatten();
    sidecar.is_some_and(|sidecar| {
        sidecar.verified.is_some() && path.metadata().is_ok_and(|found| found.len() == sidecar.engine.bytes)
    })
}
