//! Engines in place of a model's graphs: `--trt`, `--trt-enc-dec`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ocelli_engines::Engine;
use ocelli_export::contract::{Prompting, Target, dim, file, tensor};

use super::backend::TensorRtBackend;
use super::check;
use super::fit::{Fitted, fit};
use super::sidecar::{EngineLayout, Sidecar};
use crate::engine::EngineFactory;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Model, ModelRequest, ModelSource};
use crate::model_graph::ModelGraph;

/// The engines that somebody named.
pub(crate) struct EngineFiles {
    files: Vec<EngineFile>,
    backend: Arc<dyn TensorRtBackend>,
}

struct EngineFile {
    /// The flag that named it, for messages.
    flag: &'static str,
    graph: ModelGraph,
    path: PathBuf,
    sidecar: Option<Sidecar>,
    /// One that had to be loaded to see what it is, for the first who asks.
    loaded: Mutex<Option<Box<dyn Engine>>>,
}

/// A model some of whose graphs are engines.
pub(crate) struct ModelWithEngines {
    pub(crate) model: Model,
    pub(crate) factory: EngineFactory,
    /// Classes that can be decoded at once at most.
    pub(crate) max_classes: Option<usize>,
}

/// The flags, as messages name them.
const BACKBONE: &str = "--trt";
const ENCODER_DECODER: &str = "--trt-enc-dec";

impl EngineFiles {
    /// Reads the sidecars of the engines and checks what can be checked without model, library and GPU.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::InvalidData`] for files that are no engines or no sidecars,
    /// [`ErrorKind::Mismatch`] for one of another graph, two that do not fit each other, or one that was never verified.
    pub(crate) fn open(
        backbone: Option<&Path>,
        encoder_decoder: Option<&Path>,
        backend: Arc<dyn TensorRtBackend>,
    ) -> Result<Self> {
        let mut files = Vec::new();
        if let Some(path) = backbone {
            let first = EngineFile::open(BACKBONE, path, ModelGraph::Backbone)?;
            let in_two = first.graph != ModelGraph::Backbone;
            files.push(first);
            if in_two {
                files.push(EngineFile::open_other_half(&files[0])?);
            }
        }
        if let Some(path) = encoder_decoder {
            files.push(EngineFile::open(ENCODER_DECODER, path, ModelGraph::EncoderDecoder)?);
        }
        for (index, a) in files.iter().enumerate() {
            for b in &files[index + 1..] {
                if let (Some(ours), Some(theirs)) = (&a.sidecar, &b.sidecar) {
                    check::check_pair((&a.path, ours), (&b.path, theirs))?;
                }
            }
        }
        Ok(Self { files, backend })
    }

    /// Asks for the model that the engines were built from, unless one is named.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where no sidecar names one, [`ErrorKind::Mismatch`] where it is gone.
    pub(crate) fn complete(&self, request: &mut ModelRequest) -> Result<()> {
        let with_sidecar = self.files.iter().find_map(|file| Some((file, file.sidecar.as_ref()?)));
        if with_sidecar.is_some() {
            // A checkpoint has to become the graphs that engines are built from.
            request.target = Target::TensorRt;
        }
        if request.source != ModelSource::Builtin {
            return Ok(());
        }
        let Some((file, sidecar)) = with_sidecar else {
            let (flag, path) = (self.files[0].flag, &self.files[0].path);
            let message = format!(
                "{flag} {}: it has no sidecar ({}) that says which model it is of; name the exported model or the \
                 checkpoint with --model",
                path.display(),
                Sidecar::path_of(path).display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        if !sidecar.model.join(file::MANIFEST).is_file() {
            let message = format!(
                "{} {}: the exported model that it was built from, {}, is not there any more; say with --model where it is",
                file.flag,
                file.path.display(),
                sidecar.model.display()
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        request.source = ModelSource::Folder(sidecar.model.clone());
        Ok(())
    }

    /// Puts the engines in place of the model's graphs: first what the files say is compared with the model, then with
    /// the library, then with the GPU. Engines with a sidecar are loaded when they are first needed, others at once, to see
    /// what they are.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] for what does not belong together, [`ErrorKind::Unavailable`] where there is no TensorRT, no
    /// driver or no GPU.
    pub(crate) fn in_place_of(
        self,
        model: Model,
        rest: EngineFactory,
        masks: bool,
    ) -> Result<ModelWithEngines> {
        for file in &self.files {
            if let Some(sidecar) = &file.sidecar {
                check::check_model(&file.path, sidecar, &model)?;
            }
        }
        let library = self.backend.library()?;
        for file in &self.files {
            if let Some(sidecar) = &file.sidecar {
                check::check_library(&file.path, sidecar, &library)?;
            }
        }
        let gpu = self.backend.gpu()?;
        for file in &self.files {
            if let Some(sidecar) = &file.sidecar {
                check::check_gpu(&file.path, sidecar, &gpu)?;
            }
        }
        let mut max_classes: Option<usize> = None;
        let mut of_dart = false;
        let mut model = model;
        for file in &self.files {
            let limit = match &file.sidecar {
                Some(sidecar) if sidecar.layout == EngineLayout::Ocelli => sidecar.max_classes(),
                sidecar => {
                    // An engine of somebody else's is a backbone in one piece.
                    if file.graph == ModelGraph::Backbone {
                        model = model.with_manifest(|manifest| manifest.split_block = None);
                    }
                    let fitted = file.load(&*self.backend, &model)?;
                    of_dart |= fitted.of_dart;
                    check_masks(file, &*fitted.engine, masks && fitted.of_dart)?;
                    if sidecar.is_none() {
                        tracing::warn!(
                            "{} {}: it has no sidecar, nobody has compared it with its model; `ocelli build-engine --verify {} \
                         --model {}` does",
                            file.flag,
                            file.path.display(),
                            file.path.display(),
                            model.folder().display()
                        );
                    }
                    *file.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(fitted.engine);
                    fitted.max_classes
                }
            };
            max_classes = [max_classes, limit].into_iter().flatten().min();
        }
        if of_dart && model.manifest().prompting == Prompting::Official {
            // DART's prompts are words alone: its decoder has no place for a CLS token, its backbone returns none.
            self.check_words_alone(model.manifest().context_length)?;
            model = model.with_manifest(|manifest| manifest.prompting = Prompting::Text);
        }
        let names: Vec<_> = self.files.iter().map(|file| file.graph.name()).collect();
        let description =
            format!("{library} on {} ({}); {} for the rest", gpu.name, names.join(", "), rest.description());
        let factory = {
            let model = model.clone();
            EngineFactory::custom(description, move |graph| {
                let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Some(file) = self.files.iter().find(|file| file.graph.file() == name) else {
                    return rest.load(graph);
                };
                if let Some(engine) = file.loaded.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    return Ok(engine);
                }
                Ok(file.load(&*self.backend, &model)?.engine)
            })
        };
        Ok(ModelWithEngines { model, factory, max_classes })
    }

    /// Engines built for prompts with a CLS token cannot be asked without.
    fn check_words_alone(&self, words: usize) -> Result<()> {
        for file in &self.files {
            let sizes =
                file.sidecar.as_ref().and_then(|sidecar| sidecar.shapes.dimensions.get(dim::PROMPT_TOKENS));
            if let Some(sizes) = sizes.filter(|sizes| sizes.min > words) {
                let message = format!(
                    "{} {}: it takes prompts of {} tokens and more, the other engine knows words alone ({words}); export \
                     the model with --prompt text and build this engine again",
                    file.flag,
                    file.path.display(),
                    sizes.min
                );
                return Err(Error::new(ErrorKind::Mismatch, message));
            }
        }
        Ok(())
    }
}

/// DART's engines have nothing for the mask head.
fn check_masks(file: &EngineFile, engine: &dyn Engine, masks: bool) -> Result<()> {
    let needed: &[&str] = match file.graph {
        ModelGraph::EncoderDecoder => &[tensor::QUERIES, tensor::ENCODED],
        _ => &[tensor::FPN[0], tensor::FPN[1]],
    };
    let missing = needed.iter().find(|name| engine.spec().output(name).is_none());
    match missing.filter(|_| masks) {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "{} {}: masks need `{name}`, which this engine does not return; leave masks out, or build the engine with \
                 `ocelli build-engine`",
                file.flag,
                file.path.display()
            );
            Err(Error::new(ErrorKind::Mismatch, message))
        }
    }
}

impl EngineFile {
    /// `wanted` is the graph that the flag is about; halves of a backbone are one, too.
    fn open(flag: &'static str, path: &Path, wanted: ModelGraph) -> Result<Self> {
        check::check_file(path, None)?;
        let sidecar = Sidecar::read(path)?;
        check::check_file(path, sidecar.as_ref())?;
        let graph = sidecar.as_ref().map_or(wanted, |sidecar| sidecar.graph);
        let fits = graph == wanted || (wanted == ModelGraph::Backbone && graph == ModelGraph::BackboneFirst);
        if !fits {
            let other = match graph {
                ModelGraph::EncoderDecoder => format!("; {ENCODER_DECODER} takes it"),
                ModelGraph::Backbone => format!("; {BACKBONE} takes it"),
                ModelGraph::BackboneSecond => "; name the first half, this one is found beside it".into(),
                _ => String::new(),
            };
            let message = format!(
                "{flag} {}: it is an engine of the {graph}, not of the {wanted}{other}",
                path.display()
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        if let Some(sidecar) = &sidecar {
            check::check_verified(path, sidecar)?;
        }
        Ok(Self { flag, graph, path: path.to_owned(), sidecar, loaded: Mutex::new(None) })
    }

    /// The second half of a backbone cut in two, beside the first.
    fn open_other_half(first: &Self) -> Result<Self> {
        let path = first.path.with_file_name(format!("{}.engine", ModelGraph::BackboneSecond));
        if !path.is_file() {
            let message = format!(
                "{} {}: it is the first half of a backbone; the second, {}, is not beside it",
                first.flag,
                first.path.display(),
                path.display()
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        Self::open(first.flag, &path, ModelGraph::BackboneSecond)
    }

    fn load(&self, backend: &dyn TensorRtBackend, model: &Model) -> Result<Fitted> {
        let engine = backend.load(&self.path, Some(self.graph)).map_err(|e| self.damage().unwrap_or(e))?;
        fit(engine, self.graph, model.manifest(), &self.path)
    }

    /// An engine that does not load is looked at: is it what was built?
    fn damage(&self) -> Option<Error> {
        let sidecar = self.sidecar.as_ref()?;
        let found = crate::model::sha256_of_file(&self.path).ok()?;
        (found != sidecar.engine.sha256).then(|| {
            let message = format!(
                "no engine, {}: it is damaged (its SHA-256 is not the one in its sidecar); build it again: {}",
                self.path.display(),
                check::rebuild(sidecar)
            );
            Error::new(ErrorKind::InvalidData, message)
        })
    }
}
