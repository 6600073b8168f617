//! From an exported model to engines that have been compared with it.

mod gate;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange};
use ocelli_export::contract::{FileEntry, Manifest, Prompting, Target, dim};
use tempfile::NamedTempFile;

pub use gate::verify_engine;

use ocelli::Cancellation;
use ocelli::EngineFactory;
use ocelli::ModelGraph;
use ocelli::tensorrt::{BuildSettings, BuiltBy, EngineLayout, EngineShapes, Sidecar};
use ocelli::tensorrt::{BuildStep, Gpu, PlanRequest, TensorRtBackend, TensorRtLibrary};
use ocelli::{Error, ErrorKind, Result};
use ocelli::{Model, sha256_of_file};
use ocelli_datasets::verify::{Verification, VerificationOptions, VerificationProgress, VerificationReport};

/// What is built, and how it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOptions {
    /// Which graphs; backbone and encoder-decoder where empty.
    pub graphs: Vec<ModelGraph>,
    /// Classes that the encoder-decoder takes at once at most (4). It takes any number from 1 to it and computes no more
    /// than it is given.
    pub max_classes: usize,
    /// Examples that a prompt may have at most (8).
    pub max_exemplars: usize,
    /// Generations of GPUs; the GPU that is here where empty.
    pub targets: Vec<ComputeCapability>,
    /// Memory of the GPU that one layer may use, in bytes; all of it by default.
    pub workspace_bytes: Option<u64>,
    /// A file of measured times, read and written, with which the next build is quicker.
    pub timing_cache: Option<PathBuf>,
    /// Whether later versions of TensorRT can run the engines.
    pub version_compatible: bool,
    /// Whether later generations of GPUs can run the engines.
    pub hardware_compatible: bool,
    /// Whether engines that are there already are replaced.
    pub force: bool,
    /// The numeric gate.
    pub verification: VerificationOptions,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            graphs: Vec::new(),
            max_classes: 4,
            max_exemplars: 8,
            targets: Vec::new(),
            workspace_bytes: None,
            timing_cache: None,
            version_compatible: false,
            hardware_compatible: false,
            force: false,
            verification: VerificationOptions::default(),
        }
    }
}

/// What happens while engines are built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildEvent<'e> {
    /// A step of building a graph's engine.
    Building {
        /// The graph.
        graph: ModelGraph,
        /// How far it is.
        step: BuildStep<'e>,
    },
    /// An engine is built, and not yet in place.
    Built {
        /// The graph.
        graph: ModelGraph,
        /// Its size.
        bytes: u64,
        /// How long it took.
        seconds: f64,
    },
    /// The gate is at work.
    Verifying {
        /// The graph whose engine is compared; `None` while the reference runs.
        graph: Option<ModelGraph>,
        /// How far it is.
        progress: VerificationProgress,
    },
    /// The gate has judged.
    Verified {
        /// The graph.
        graph: ModelGraph,
        /// The judgement.
        report: &'e VerificationReport,
    },
}

/// What is told what happens.
pub type ReportEvent<'r> = dyn FnMut(&BuildEvent<'_>) + Send + 'r;

/// An engine in its place.
#[derive(Debug)]
pub struct BuiltEngine {
    /// Which graph it is.
    pub graph: ModelGraph,
    /// Its file; the sidecar lies beside it.
    pub path: PathBuf,
    /// What the sidecar says.
    pub sidecar: Sidecar,
    /// What the gate found; `None` where the GPU that it is for is not here.
    pub report: Option<VerificationReport>,
}

/// Builds the engines of a model into a folder: `backbone.engine`, `encoder_decoder.engine` and their sidecars.
///
/// Each engine is built beside its place and compared with the ONNX file that it came from, behind the engines that were
/// accepted before it; only an accepted one is put in place. Where the GPU that engines are for is not here, they are put
/// in place unverified, their sidecars say so, and they do not run before [`verify_engine`] has accepted them.
#[derive(Debug)]
pub struct EngineBuild<'b> {
    model: &'b Model,
    backend: Arc<dyn TensorRtBackend>,
    reference: &'b EngineFactory,
    reference_model: &'b Model,
    options: BuildOptions,
    cancellation: Cancellation,
}

/// An engine on its way.
struct Staged {
    graph: ModelGraph,
    file: NamedTempFile,
    sidecar: Sidecar,
}

impl<'b> EngineBuild<'b> {
    /// A build of a model's engines; `reference` runs the ONNX files that they are compared with.
    pub fn new(
        model: &'b Model,
        backend: Arc<dyn TensorRtBackend>,
        reference: &'b EngineFactory,
        options: BuildOptions,
    ) -> Self {
        let (reference_model, cancellation) = (model, Cancellation::new());
        Self { model, backend, reference, reference_model, options, cancellation }
    }

    /// What the engines are compared with, where it is not the ONNX files that they are built from: the same model in 32
    /// bits, for number formats that the reference does not compute in.
    #[must_use]
    pub fn with_reference_model(mut self, model: &'b Model) -> Self {
        self.reference_model = model;
        self
    }

    /// Whose wish ends it.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Builds, compares, puts in place.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that make no sense; [`ErrorKind::Mismatch`] for a model that was not
    /// exported for TensorRT, and for an engine that the gate refused: those before it are in place, it is not;
    /// [`ErrorKind::Io`] where engines are there already or cannot be written; [`ErrorKind::Unavailable`] where there is no
    /// TensorRT, or no GPU and no target named; [`ErrorKind::Cancelled`].
    pub fn run(&self, output: &Path, report: &mut ReportEvent<'_>) -> Result<Vec<BuiltEngine>> {
        let graphs = self.check_options()?;
        check_target(self.model)?;
        let place = |graph: ModelGraph| output.join(format!("{graph}.engine"));
        for &graph in &graphs {
            check_place(&place(graph), self.options.force)?;
        }
        if output.exists() && !output.is_dir() {
            let message = format!("cannot write the engines, {}: it is no folder", output.display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        let library = self.backend.library()?;
        let here = self.gpu_of_targets()?;
        let was_there = output.is_dir();
        fs::create_dir_all(output).map_err(|e| Error::io("cannot make the folder", output, e))?;
        let built = self.build_into(output, &graphs, &library, here, report);
        if built.is_err() && !was_there {
            // It goes only if nothing was put in place.
            drop(fs::remove_dir(output));
        }
        built
    }

    fn build_into(
        &self,
        output: &Path,
        graphs: &[ModelGraph],
        library: &TensorRtLibrary,
        here: Option<Gpu>,
        report: &mut ReportEvent<'_>,
    ) -> Result<Vec<BuiltEngine>> {
        let mut staged = Vec::new();
        for &graph in graphs {
            staged.push(self.stage(output, graph, library, here.as_ref(), report)?);
        }
        let install = |staged: Staged, report: Option<VerificationReport>| -> Result<BuiltEngine> {
            let path = output.join(format!("{}.engine", staged.graph));
            // The sidecar first: beside an engine that is not its own it is found out, an engine without one is not.
            staged.sidecar.write(&path)?;
            staged
                .file
                .persist(&path)
                .map_err(|e| Error::io("cannot put the engine in place", &path, e.error))?;
            Ok(BuiltEngine { graph: staged.graph, path, sidecar: staged.sidecar, report })
        };
        if here.is_none() {
            return staged.into_iter().map(|staged| install(staged, None)).collect();
        }
        let mut options = self.options.verification.clone();
        options.max_classes = self.options.max_classes;
        options.graphs = graphs.to_vec();
        let verification =
            Verification::of_reference(self.reference_model, self.reference, options, &mut |progress| {
                report(&BuildEvent::Verifying { graph: None, progress: *progress });
                self.check_cancelled()
            })?;
        let mut built: Vec<BuiltEngine> = Vec::new();
        let mut accepted: Vec<(ModelGraph, PathBuf)> = Vec::new();
        for mut staged in staged {
            let graph = staged.graph;
            accepted.push((graph, staged.file.path().to_owned()));
            let verdict =
                gate::judge(&verification, self.model, &self.backend, accepted.clone(), &mut |progress| {
                    report(&BuildEvent::Verifying { graph: Some(graph), progress: *progress });
                    self.check_cancelled()
                })?;
            report(&BuildEvent::Verified { graph, report: &verdict });
            if !verdict.accepted() {
                let path = output.join(format!("{graph}.engine"));
                return Err(gate::refusal(&path, &verdict, "it was not put in place"));
            }
            staged.sidecar.verified = Some(verdict.summary());
            let engine = install(staged, Some(verdict))?;
            accepted.last_mut().expect("it was pushed above").1.clone_from(&engine.path);
            built.push(engine);
        }
        Ok(built)
    }

    /// Builds one engine into a file beside its place.
    fn stage(
        &self,
        output: &Path,
        graph: ModelGraph,
        library: &TensorRtLibrary,
        here: Option<&Gpu>,
        report: &mut ReportEvent<'_>,
    ) -> Result<Staged> {
        let start = Instant::now();
        let onnx = self.model.file(graph.file());
        let dimensions = dimensions(graph, self.model.manifest(), &self.options);
        let request = PlanRequest {
            targets: self.options.targets.clone(),
            dimensions: dimensions.clone(),
            workspace_bytes: self.options.workspace_bytes,
            timing_cache: self.options.timing_cache.clone(),
            version_compatible: self.options.version_compatible,
            hardware_compatible: self.options.hardware_compatible,
        };
        self.check_cancelled()?;
        let built = self.backend.build(&onnx, &request, &mut |step| {
            report(&BuildEvent::Building { graph, step: *step });
            if self.cancellation.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // However the library puts it, a build that was stopped was stopped.
        self.check_cancelled()?;
        let bytes = built?;
        let file = stage_file(output, &bytes)?;
        let entry = FileEntry { sha256: sha256_of(file.path())?, bytes: bytes.len() as u64 };
        report(&BuildEvent::Built { graph, bytes: entry.bytes, seconds: start.elapsed().as_secs_f64() });
        let targets = match (self.options.targets.as_slice(), here) {
            ([], Some(gpu)) => vec![gpu.compute_capability.to_string()],
            (targets, _) => targets.iter().map(ToString::to_string).collect(),
        };
        let settings = BuildSettings {
            workspace_bytes: self.options.workspace_bytes,
            version_compatible: self.options.version_compatible,
            hardware_compatible: self.options.hardware_compatible,
        };
        let mut sidecar = describe(self.model, graph, entry, library, dimensions)?;
        sidecar.gpu = here.map(|gpu| gpu.name.clone());
        sidecar.compute_capability = targets;
        sidecar.options = settings;
        Ok(Staged { graph, file, sidecar })
    }

    /// The graphs to build, in the order they run.
    fn check_options(&self) -> Result<Vec<ModelGraph>> {
        let manifest = self.model.manifest();
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if self.options.max_classes == 0 {
            return invalid("--max-classes is 0: an engine takes at least one class".into());
        }
        if self.options.workspace_bytes == Some(0) {
            return invalid("--workspace is 0: layers need some memory".into());
        }
        let mut wanted = self.options.graphs.clone();
        if wanted.is_empty() {
            wanted = ModelGraph::backbone_of(manifest);
            wanted.push(ModelGraph::EncoderDecoder);
        } else if wanted.contains(&ModelGraph::Backbone) && manifest.split_block.is_some() {
            // Both halves are the backbone.
            wanted.retain(|graph| !graph.is_backbone());
            wanted.extend(ModelGraph::backbone_of(manifest));
        }
        let has = ModelGraph::all_of(manifest);
        if let Some(graph) = wanted.iter().find(|graph| !has.contains(graph)) {
            let names: Vec<_> = has.iter().map(|graph| graph.name()).collect();
            return invalid(format!(
                "--graphs {graph}, {}: this model has no such graph; it has {}",
                self.model.folder().display(),
                names.join(", ")
            ));
        }
        // As they run, each once.
        let order = [
            ModelGraph::TextEncoder,
            ModelGraph::Backbone,
            ModelGraph::BackboneFirst,
            ModelGraph::BackboneSecond,
            ModelGraph::ExemplarEncoder,
            ModelGraph::EncoderDecoder,
            ModelGraph::MaskHead,
        ];
        Ok(order.into_iter().filter(|graph| wanted.contains(graph)).collect())
    }

    /// The GPU here, where the engines are for it.
    fn gpu_of_targets(&self) -> Result<Option<Gpu>> {
        match (self.backend.gpu(), self.options.targets.as_slice()) {
            (Ok(gpu), []) => Ok(Some(gpu)),
            (Ok(gpu), targets) => Ok(targets.contains(&gpu.compute_capability).then_some(gpu)),
            (Err(e), []) => {
                let message =
                    format!("{e}; to build for a GPU elsewhere, name its generation: --target-sm 8.9");
                Err(Error::new(e.kind(), message).with_source(e))
            }
            (Err(_), _) => Ok(None),
        }
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.cancellation.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "building engines: cancelled"));
        }
        Ok(())
    }
}

/// TensorRT has none of ONNX Runtime's fused operators.
fn check_target(model: &Model) -> Result<()> {
    if model.manifest().target == Target::TensorRt {
        return Ok(());
    }
    let message = format!(
        "cannot build engines, {}: this model was exported for ONNX Runtime, whose fused operators TensorRT does not have; \
         export the checkpoint with `ocelli export --checkpoint … --target tensorrt --output …`, or name the checkpoint \
         itself, which is then exported into the cache",
        model.folder().display()
    );
    Err(Error::new(ErrorKind::Mismatch, message))
}

fn check_place(path: &Path, force: bool) -> Result<()> {
    let refuse = |why: &str| {
        let message = format!("cannot write the engine, {}: {why}", path.display());
        Err(Error::new(ErrorKind::Io, message))
    };
    if path.is_dir() {
        return refuse("a folder of that name is there");
    }
    if path.exists() && !force {
        return refuse("it is there already; --force replaces it");
    }
    Ok(())
}

fn stage_file(folder: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ocelli-").suffix(".part");
    #[cfg(unix)]
    {
        // Temporary files are for their owner alone; the engine is a file like any other, as umask wants it.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let write = || -> std::io::Result<NamedTempFile> {
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.flush()?;
        Ok(file)
    };
    write().map_err(|e| Error::io("cannot write the engine", folder, e))
}

fn sha256_of(path: &Path) -> Result<String> {
    sha256_of_file(path).map_err(|e| Error::io("cannot read", path, e))
}

/// What a sidecar says of an engine, but for the GPU and the settings.
fn describe(
    model: &Model,
    graph: ModelGraph,
    engine: FileEntry,
    library: &TensorRtLibrary,
    dimensions: BTreeMap<String, DimensionRange>,
) -> Result<Sidecar> {
    let manifest = model.manifest();
    let folder = model.folder();
    // What `model.json` says of precision, in its own words.
    let said = serde_json::to_value(manifest).expect("a manifest is plain data");
    let text = |name: &str| said.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let onnx_sha256 = match manifest.files.get(graph.file()) {
        Some(entry) => entry.sha256.clone(),
        None => sha256_of(&model.file(graph.file()))?,
    };
    Ok(Sidecar {
        format_version: Sidecar::FORMAT_VERSION,
        writer: format!("ocelli {}", env!("CARGO_PKG_VERSION")),
        graph,
        layout: EngineLayout::Ocelli,
        engine,
        onnx_sha256,
        model: fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
        model_weights_sha256: manifest.weights_sha256.clone(),
        gpu: None,
        compute_capability: Vec::new(),
        tensorrt: BuiltBy { name: library.name.clone(), version: library.version.to_string() },
        precision: text("precision"),
        mixed_precision: said.get("mixed_precision").cloned(),
        shapes: EngineShapes {
            imgsz: manifest.imgsz,
            model_width: manifest.model_width,
            grid: manifest.grid(),
            dimensions: dimensions.into_iter().map(|(name, range)| (name, range.into())).collect(),
        },
        options: BuildSettings::default(),
        verified: None,
    })
}

/// Sizes of a graph's dynamic dimensions: only what the model can ask for.
fn dimensions(
    graph: ModelGraph,
    manifest: &Manifest,
    options: &BuildOptions,
) -> BTreeMap<String, DimensionRange> {
    let words = manifest.context_length;
    let classes = options.max_classes;
    let (least, most) = match manifest.prompting {
        Prompting::Official => (words + 1, words + 1 + options.max_exemplars),
        Prompting::Text if options.max_exemplars == 0 => (words, words),
        Prompting::Text => (words, words + 1 + options.max_exemplars),
    };
    let range = |min: usize, optimal: usize, max: usize| DimensionRange { min, optimal, max };
    let classes = (dim::CLASSES, range(1, classes, classes));
    let tokens = (dim::PROMPT_TOKENS, range(least, least, most));
    let all = match graph {
        ModelGraph::Backbone | ModelGraph::BackboneFirst | ModelGraph::BackboneSecond => vec![],
        // Words are encoded 16 at a time, whatever the decoder takes.
        ModelGraph::TextEncoder => vec![(dim::CLASSES, range(1, 4, 16))],
        ModelGraph::ExemplarEncoder => {
            vec![(dim::EXEMPLARS, range(1, 1, options.max_exemplars.max(2)))]
        }
        ModelGraph::EncoderDecoder => vec![classes, tokens],
        ModelGraph::MaskHead => {
            let kept = manifest.num_queries;
            vec![tokens, (dim::MASKS, range(1, kept.min(8), kept))]
        }
    };
    all.into_iter().map(|(name, range)| (name.to_owned(), range)).collect()
}
