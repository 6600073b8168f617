//! Engine files in place of a model's graphs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ocelli_engines::Engine;
use ocelli_export::contract::{Prompting, Target, dim, file, tensor};

use super::check;
use super::fit::{Fitted, fit};
use super::native::{Gpu, NativeTensorRt, TensorRtLibrary, describe};
use super::sidecar::{EngineLayout, Sidecar};
use crate::engine::EngineFactory;
use crate::model::{Model, ModelGraph, ModelRequest, ModelSource};
use ocelli_error::{Error, ErrorKind, Result};

/// The parameters that name engines, for messages.
const BACKBONE: &str = "trt_backbone";
const ENCODER_DECODER: &str = "trt_encoder_decoder";

/// The engines that the caller named.
pub(crate) struct EngineFiles(Vec<EngineFile>);

struct EngineFile {
    /// The parameter that named it.
    parameter: &'static str,
    graph: ModelGraph,
    path: PathBuf,
    sidecar: Option<Sidecar>,
    /// An engine without a sidecar is loaded at once to see what it is; it is kept for its first use.
    loaded: Mutex<Option<Box<dyn Engine>>>,
}

/// A model some of whose graphs are engines.
pub(crate) struct ModelWithEngines {
    pub(crate) model: Model,
    pub(crate) factory: EngineFactory,
    /// The most classes that can be decoded at once.
    pub(crate) max_classes: Option<usize>,
}

impl EngineFiles {
    /// Reads the sidecars of the engines and checks what can be checked without model, library and GPU.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::InvalidData`] for files that are not engines or sidecars,
    /// [`ErrorKind::Mismatch`] for an engine of another graph, two that do not match, or one that was never verified.
    pub(crate) fn open(backbone: Option<&Path>, encoder_decoder: Option<&Path>) -> Result<Self> {
        let mut files = Vec::new();
        if let Some(path) = backbone {
            let first = EngineFile::open(BACKBONE, path, ModelGraph::Backbone)?;
            let other_half =
                (first.graph != ModelGraph::Backbone).then(|| first.open_other_half()).transpose()?;
            files.extend([Some(first), other_half].into_iter().flatten());
        }
        if let Some(path) = encoder_decoder {
            files.push(EngineFile::open(ENCODER_DECODER, path, ModelGraph::EncoderDecoder)?);
        }
        let files = Self(files);
        for (index, (a, ours)) in files.with_sidecars().enumerate() {
            for (b, theirs) in files.with_sidecars().skip(index + 1) {
                check::check_pair((&a.path, ours), (&b.path, theirs))?;
            }
        }
        Ok(files)
    }

    fn with_sidecars(&self) -> impl Iterator<Item = (&EngineFile, &Sidecar)> {
        self.0.iter().filter_map(|file| Some((file, file.sidecar.as_ref()?)))
    }

    /// Requests the model that the engines were built from, unless another is requested.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if no sidecar names a model, [`ErrorKind::Mismatch`] if that model does not exist.
    pub(crate) fn complete(&self, request: &mut ModelRequest) -> Result<()> {
        let first = self.with_sidecars().next();
        if first.is_some() {
            // A checkpoint must become the graphs that engines are built from.
            request.target = Target::TensorRt;
        }
        if request.source != ModelSource::Builtin {
            return Ok(());
        }
        let Some((file, sidecar)) = first else {
            let sidecar = Sidecar::path_of(&self.0[0].path);
            let why =
                format!("it has no sidecar ({}) that names its model; name the model", sidecar.display());
            return Err(self.0[0].error(ErrorKind::InvalidArgument, &why).about("model"));
        };
        if !sidecar.model.join(file::MANIFEST).is_file() {
            let model = sidecar.model.display();
            let why =
                format!("the model that it was built from, {model}, no longer exists there; name the model");
            return Err(file.error(ErrorKind::Mismatch, &why).about("model"));
        }
        request.source = ModelSource::Folder(sidecar.model.clone());
        Ok(())
    }

    /// Checks that the engines belong to the model, then to the library, then to the GPU, by their sidecars.
    fn check(&self, model: &Model, library: &TensorRtLibrary, gpu: &Gpu) -> Result<()> {
        self.with_sidecars()
            .try_for_each(|(file, sidecar)| check::check_model(&file.path, sidecar, model))?;
        self.with_sidecars()
            .try_for_each(|(file, sidecar)| check::check_library(&file.path, sidecar, library))?;
        self.with_sidecars().try_for_each(|(file, sidecar)| check::check_gpu(&file.path, sidecar, gpu))
    }

    /// Puts the engines in place of the model's graphs; `rest` runs the others. Engines with a sidecar are loaded when they
    /// are first needed.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] for engines that do not belong to the model, the library or the GPU,
    /// [`ErrorKind::Unavailable`] without TensorRT, a driver or a GPU.
    pub(crate) fn in_place_of(
        self,
        model: Model,
        tensorrt: NativeTensorRt,
        rest: EngineFactory,
        masks: bool,
    ) -> Result<ModelWithEngines> {
        let (gpu, library) = (tensorrt.gpu()?, tensorrt.library()?);
        self.check(&model, &library, &gpu)?;
        let names: Vec<_> = self.0.iter().map(|file| file.graph.name()).collect();
        let description = describe(&library, &gpu, &names, &rest);
        self.with_loader(
            model,
            masks,
            description,
            rest,
            Arc::new(move |file, graph| tensorrt.load(file, Some(graph))),
        )
    }

    fn with_loader(
        self,
        mut model: Model,
        masks: bool,
        description: String,
        rest: EngineFactory,
        load: Arc<Load>,
    ) -> Result<ModelWithEngines> {
        let mut max_classes: Option<usize> = None;
        let mut of_dart = false;
        for file in &self.0 {
            let limit = match &file.sidecar {
                Some(sidecar) if sidecar.layout == EngineLayout::Ocelli => sidecar.max_classes(),
                sidecar => {
                    if file.graph == ModelGraph::Backbone {
                        // A backbone that was not built here is in one piece.
                        model = model.with_manifest(|manifest| manifest.split_block = None);
                    }
                    let fitted = file.load(&*load, &model)?;
                    of_dart |= fitted.of_dart;
                    if masks && fitted.of_dart {
                        file.check_masks(&*fitted.engine)?;
                    }
                    if sidecar.is_none() {
                        let path = file.path.display();
                        tracing::warn!("engine {path} has no sidecar: it was never compared with its model");
                    }
                    *file.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(fitted.engine);
                    fitted.max_classes
                }
            };
            max_classes = [max_classes, limit].into_iter().flatten().min();
        }
        if of_dart && model.manifest().prompting == Prompting::Official {
            // DART's prompts are text only: its decoder has no place for a CLS token, and its backbone returns none.
            self.check_text_only(model.manifest().context_length)?;
            model = model.with_manifest(|manifest| manifest.prompting = Prompting::Text);
        }
        let own = model.clone();
        let factory = EngineFactory::custom(description, move |graph| {
            let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(file) = self.0.iter().find(|file| file.graph.file() == name) else {
                return rest.load(graph);
            };
            let loaded = file.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
            loaded.map_or_else(|| Ok(file.load(&*load, &own)?.engine), Ok)
        });
        Ok(ModelWithEngines { model, factory, max_classes })
    }

    /// An engine that was built for prompts with a CLS token cannot run without one.
    fn check_text_only(&self, context_length: usize) -> Result<()> {
        for (file, sidecar) in self.with_sidecars() {
            let sizes = sidecar.shapes.dimensions.get(dim::PROMPT_TOKENS);
            if let Some(sizes) = sizes.filter(|sizes| sizes.min > context_length) {
                return Err(file.error(ErrorKind::Mismatch, &format!(
                    "it takes prompts of at least {} tokens, and the other engine those of {context_length}, without a CLS \
                     token; export the model with text prompting and build this engine again",
                    sizes.min
                )));
            }
        }
        Ok(())
    }
}

type Load = dyn Fn(&Path, ModelGraph) -> Result<Box<dyn Engine>> + Send + Sync;

impl EngineFile {
    /// Opens an engine of the graph that its parameter is about, or of the first half of a backbone.
    fn open(parameter: &'static str, path: &Path, wanted: ModelGraph) -> Result<Self> {
        check::check_file(path, None)?;
        let sidecar = Sidecar::read(path)?;
        check::check_file(path, sidecar.as_ref())?;
        let graph = sidecar.as_ref().map_or(wanted, |sidecar| sidecar.graph);
        let file = Self { parameter, graph, path: path.to_owned(), sidecar, loaded: Mutex::new(None) };
        if graph != wanted && (wanted, graph) != (ModelGraph::Backbone, ModelGraph::BackboneFirst) {
            let remedy = match graph {
                ModelGraph::EncoderDecoder => format!("; pass it as {ENCODER_DECODER}"),
                ModelGraph::Backbone => format!("; pass it as {BACKBONE}"),
                ModelGraph::BackboneSecond => "; pass the first half, this one is found beside it".into(),
                _ => String::new(),
            };
            let why = format!("it is an engine of the {graph}, expected one of the {wanted}{remedy}");
            return Err(file.error(ErrorKind::Mismatch, &why));
        }
        file.sidecar.as_ref().map_or(Ok(()), |sidecar| check::check_verified(path, sidecar))?;
        Ok(file)
    }

    /// The second half of a split backbone, which is beside the first.
    fn open_other_half(&self) -> Result<Self> {
        let path = self.path.with_file_name(format!("{}.engine", ModelGraph::BackboneSecond));
        if !path.is_file() {
            let why = format!(
                "it is the first half of a backbone, and the second, {}, is not beside it",
                path.display()
            );
            return Err(self.error(ErrorKind::Mismatch, &why));
        }
        Self::open(self.parameter, &path, ModelGraph::BackboneSecond)
    }

    fn load(&self, load: &Load, model: &Model) -> Result<Fitted> {
        let engine = load(&self.path, self.graph).map_err(|e| self.corruption().unwrap_or(e))?;
        fit(engine, self.graph, model.manifest(), &self.path)
    }

    /// The reason why an engine does not load if it is no longer the file that was built.
    fn corruption(&self) -> Option<Error> {
        let sidecar = self.sidecar.as_ref()?;
        let found = Sidecar::entry_of(&self.path).ok()?;
        (found.sha256 != sidecar.engine.sha256).then(|| {
            let why = "it is corrupt: its SHA-256 is not the one in its sidecar; build it again";
            self.error(ErrorKind::InvalidData, why)
        })
    }

    /// DART's engines have no outputs for the mask head.
    fn check_masks(&self, engine: &dyn Engine) -> Result<()> {
        let needed: &[&str] = match self.graph {
            ModelGraph::EncoderDecoder => &[tensor::QUERIES, tensor::ENCODED],
            _ => &[tensor::FPN[0], tensor::FPN[1]],
        };
        match needed.iter().find(|name| engine.spec().output(name).is_none()) {
            None => Ok(()),
            Some(name) => Err(self.error(
                ErrorKind::Mismatch,
                &format!("masks need `{name}`, which this engine does not return; build one from the model"),
            )),
        }
    }

    fn error(&self, kind: ErrorKind, why: &str) -> Error {
        Error::new(kind, format!("{} {}: {why}", self.parameter, self.path.display()))
    }
}

#[cfg(test)]
mod tests;
