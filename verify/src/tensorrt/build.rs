//! From an exported model to engines that have been compared with it.

mod gate;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ocelli::engine::EngineFactory;
use ocelli::model::ModelGraph;
use ocelli::tensorrt::{
    BuildSettings, BuiltBy, EngineLayout, EngineShapes, Gpu, NativeTensorRt, PlanRequest, Sidecar,
    TensorRtLibrary,
};
use ocelli::{Cancellation, Error, ErrorKind, Model, Result};
use ocelli_engines::tensorrt::{BuildProgress, DimensionRange};
use ocelli_export::contract::{FileEntry, Manifest, Precision, Prompting, Target, dim};
use tempfile::NamedTempFile;

use crate::{Verification, VerificationOptions, VerificationProgress, VerificationReport};

pub use gate::verify_engine;

/// Options of a build and its verification.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOptions {
    /// The graphs to build; backbone and encoder-decoder if empty.
    pub graphs: Vec<ModelGraph>,
    /// The maximum number of classes that the encoder-decoder decodes at once (4). Fewer classes take less time.
    pub max_classes: usize,
    /// The maximum number of exemplars of a prompt (8).
    pub max_exemplars: usize,
    /// The options of building each engine; its dimensions follow from the model.
    pub plan: PlanRequest,
    /// Replaces existing engines.
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
            plan: PlanRequest::default(),
            force: false,
            verification: VerificationOptions::default(),
        }
    }
}

/// Progress of a build.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildEvent<'e> {
    /// The engine of a graph is being built.
    Building {
        /// The graph.
        graph: ModelGraph,
        /// The progress.
        step: BuildProgress<'e>,
    },
    /// An engine has been built, but not installed.
    Built {
        /// The graph.
        graph: ModelGraph,
        /// Its size.
        bytes: u64,
        /// The build time.
        seconds: f64,
    },
    /// The gate is running.
    Verifying {
        /// The graph whose engine is compared; `None` while the reference runs.
        graph: Option<ModelGraph>,
        /// The progress.
        progress: VerificationProgress,
    },
    /// The gate has accepted or refused an engine.
    Verified {
        /// The graph.
        graph: ModelGraph,
        /// The verdict.
        report: &'e VerificationReport,
    },
}

/// Called during a build.
pub type ReportEvent<'r> = dyn FnMut(&BuildEvent<'_>) + Send + 'r;

/// A built engine.
#[derive(Debug)]
pub struct BuiltEngine {
    /// The graph.
    pub graph: ModelGraph,
    /// Its file; the sidecar is beside it.
    pub path: PathBuf,
    /// The sidecar.
    pub sidecar: Sidecar,
    /// The report of the gate; `None` if the GPU is not present.
    pub report: Option<VerificationReport>,
}

/// Builds the engines of a model into a folder: `backbone.engine`, `encoder_decoder.engine` and their sidecars.
///
/// Each engine is built under a temporary name and compared with its ONNX file, with the outputs of the engines before it as
/// inputs; only accepted engines are installed. If the GPU of the engines is not present, they are installed unverified, and
/// refuse to run until [`verify_engine`] has accepted them.
#[derive(Debug)]
pub struct EngineBuild<'b> {
    /// The model whose engines are built.
    pub model: &'b Model,
    /// Builds and runs them.
    pub tensorrt: &'b NativeTensorRt,
    /// Runs the ONNX files that the engines are compared with.
    pub reference: &'b EngineFactory,
    /// The model that has these files: the one that is built, or the same model in 32 bits, for number formats that the
    /// reference does not support.
    pub reference_model: &'b Model,
    /// The graphs, their settings, and the numeric gate.
    pub options: BuildOptions,
    /// Cancels the build.
    pub cancellation: Cancellation,
}

/// An engine that has been built, but not installed.
struct Staged {
    graph: ModelGraph,
    file: NamedTempFile,
    sidecar: Sidecar,
}

impl<'b> EngineBuild<'b> {
    /// Builds the engines of a model; `reference` runs the ONNX files that they are compared with.
    pub fn new(
        model: &'b Model,
        tensorrt: &'b NativeTensorRt,
        reference: &'b EngineFactory,
        options: BuildOptions,
    ) -> Self {
        let (reference_model, cancellation) = (model, Cancellation::new());
        Self { model, tensorrt, reference, reference_model, options, cancellation }
    }

    /// Builds, verifies and installs the engines.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for invalid options; [`ErrorKind::Mismatch`] for a model that was not exported for
    /// TensorRT, and for an engine that the gate refused: it is not installed, those before it are; [`ErrorKind::Io`] if
    /// engines exist already or cannot be written; [`ErrorKind::Unavailable`] without TensorRT, or with neither a GPU nor a
    /// target; [`ErrorKind::Cancelled`].
    pub fn run(&self, output: &Path, report: &mut ReportEvent<'_>) -> Result<Vec<BuiltEngine>> {
        let graphs = graphs_to_build(self.model, &self.options)?;
        check_target(self.model)?;
        let place = |graph: ModelGraph| output.join(format!("{graph}.engine"));
        for &graph in &graphs {
            check_place(&place(graph), self.options.force)?;
        }
        if output.exists() && !output.is_dir() {
            let message = format!("cannot write engines to {}: it is not a folder", output.display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        let library = self.tensorrt.library()?;
        let here = self.gpu_of_targets()?;
        let was_there = output.is_dir();
        fs::create_dir_all(output).map_err(|e| Error::io("cannot create the folder", output, e))?;
        let built = self.build_into(output, &graphs, &library, here, report);
        if built.is_err() && !was_there {
            // This fails if an engine was installed, and then the folder stays.
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
            // The sidecar first: one beside another engine is detected, an engine without a sidecar is not.
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
                gate::judge(&verification, self.model, self.tensorrt, accepted.clone(), &mut |progress| {
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

    /// Builds one engine under a temporary name.
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
        let request = PlanRequest { dimensions: dimensions.clone(), ..self.options.plan.clone() };
        self.check_cancelled()?;
        let built = self.tensorrt.build(&onnx, &request, &mut |step| {
            report(&BuildEvent::Building { graph, step: *step });
            if self.cancellation.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Whatever error the library returns, a cancelled build is reported as cancelled.
        self.check_cancelled()?;
        let bytes = built?;
        let file = stage_file(output, &bytes)?;
        let entry = Sidecar::entry_of(file.path())?;
        report(&BuildEvent::Built { graph, bytes: entry.bytes, seconds: start.elapsed().as_secs_f64() });
        let targets = match (request.targets.as_slice(), here) {
            ([], Some(gpu)) => vec![gpu.compute_capability.to_string()],
            (targets, _) => targets.iter().map(ToString::to_string).collect(),
        };
        let settings = BuildSettings {
            workspace_bytes: request.workspace_bytes,
            version_compatible: request.version_compatible,
            hardware_compatible: request.hardware_compatible,
            optimization_level: request.optimization_level,
        };
        let mut sidecar = describe(self.model, graph, entry, library, dimensions)?;
        sidecar.gpu = here.map(|gpu| gpu.name.clone());
        sidecar.compute_capability = targets;
        sidecar.options = settings;
        Ok(Staged { graph, file, sidecar })
    }

    /// The GPU of this machine, if the engines are for it.
    fn gpu_of_targets(&self) -> Result<Option<Gpu>> {
        match (self.tensorrt.gpu(), self.options.plan.targets.as_slice()) {
            (Ok(gpu), []) => Ok(Some(gpu)),
            (Ok(gpu), targets) => Ok(targets.contains(&gpu.compute_capability).then_some(gpu)),
            (Err(e), []) => {
                let message = format!(
                    "{e}; to build for another machine, name its compute capability as a target, such as 8.9"
                );
                Err(Error::new(e.kind(), message).with_source(e))
            }
            (Err(_), _) => Ok(None),
        }
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.cancellation.is_cancelled() {
            return Err(Error::cancelled("building engines: cancelled"));
        }
        Ok(())
    }
}

/// The graphs to build, in the order they run.
fn graphs_to_build(model: &Model, options: &BuildOptions) -> Result<Vec<ModelGraph>> {
    let manifest = model.manifest();
    if options.max_classes == 0 {
        ocelli_error::refuse!("max_classes is 0: expected at least 1");
    }
    if options.plan.workspace_bytes == Some(0) {
        ocelli_error::refuse!("workspace_bytes is 0: layers need some memory");
    }
    let mut wanted = options.graphs.clone();
    if wanted.is_empty() {
        wanted = ModelGraph::backbone_of(manifest);
        wanted.push(ModelGraph::EncoderDecoder);
    } else if wanted.contains(&ModelGraph::Backbone) && manifest.split_block.is_some() {
        // The backbone is both halves.
        wanted.retain(|graph| !graph.is_backbone());
        wanted.extend(ModelGraph::backbone_of(manifest));
    }
    let has = ModelGraph::all_of(manifest);
    if let Some(graph) = wanted.iter().find(|graph| !has.contains(graph)) {
        let names: Vec<_> = has.iter().map(|graph| graph.name()).collect();
        ocelli_error::refuse!(
            "graphs: {} has no {graph}; it has {}",
            model.folder().display(),
            names.join(", ")
        );
    }
    let order = [
        ModelGraph::TextEncoder,
        ModelGraph::Backbone,
        ModelGraph::BackboneFirst,
        ModelGraph::BackboneSecond,
        ModelGraph::ExemplarEncoder,
        ModelGraph::EncoderDecoder,
        ModelGraph::Screen,
        ModelGraph::MaskHead,
    ];
    Ok(order.into_iter().filter(|graph| wanted.contains(graph)).collect())
}

/// TensorRT does not have ONNX Runtime's fused operators.
fn check_target(model: &Model) -> Result<()> {
    let folder = model.folder().display();
    if model.manifest().precision == Precision::Int8 {
        return Err(Error::mismatch(format!(
            "cannot build engines from {folder}: it has 8-bit weights, which TensorRT would multiply in 32 bits; choose the \
             precision fp16, bf16 or fp32"
        )));
    }
    if model.manifest().target == Target::TensorRt {
        return Ok(());
    }
    Err(Error::mismatch(format!(
        "cannot build engines from {folder}: it was exported for ONNX Runtime, whose fused operators TensorRT does not have; export \
         the checkpoint again with the target tensorrt, or use the checkpoint itself, which is exported into the cache"
    )))
}

fn check_place(path: &Path, force: bool) -> Result<()> {
    let refuse =
        |why: &str| Err(Error::new(ErrorKind::Io, format!("cannot write engine {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder");
    }
    if path.exists() && !force {
        return refuse("it exists already (force replaces it)");
    }
    Ok(())
}

fn stage_file(folder: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ocelli-").suffix(".part");
    #[cfg(unix)]
    {
        // Temporary files are private by default; an engine has the permissions of any other new file (umask).
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

/// The sidecar of an engine, without the GPU and the settings.
fn describe(
    model: &Model,
    graph: ModelGraph,
    engine: FileEntry,
    library: &TensorRtLibrary,
    dimensions: BTreeMap<String, DimensionRange>,
) -> Result<Sidecar> {
    let manifest = model.manifest();
    let folder = model.folder();
    // The precision as `model.json` states it.
    let said = serde_json::to_value(manifest).expect("a manifest is plain data");
    let onnx_sha256 = match manifest.files.get(graph.file()) {
        Some(entry) => entry.sha256.clone(),
        None => Sidecar::entry_of(&model.file(graph.file()))?.sha256,
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
        precision: said["precision"].as_str().unwrap_or_default().to_owned(),
        mixed_precision: said.get("mixed_precision").cloned(),
        shapes: EngineShapes {
            imgsz: manifest.imgsz,
            model_width: manifest.model_width,
            grid: manifest.grid(),
            dimensions,
        },
        options: BuildSettings::default(),
        verified: None,
    })
}

/// The ranges of a graph's dynamic dimensions: only sizes that the detector uses.
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
        // Phrases are encoded 16 at a time, however many the decoder takes.
        ModelGraph::TextEncoder => vec![(dim::CLASSES, range(1, 4, 16))],
        ModelGraph::ExemplarEncoder => {
            vec![(dim::EXEMPLARS, range(1, 1, options.max_exemplars.max(2)))]
        }
        ModelGraph::EncoderDecoder | ModelGraph::Screen => vec![classes, tokens],
        ModelGraph::MaskHead => {
            let kept = manifest.num_queries;
            vec![tokens, (dim::MASKS, range(1, kept.min(8), kept))]
        }
    };
    all.into_iter().map(|(name, range)| (name.to_owned(), range)).collect()
}

#[cfg(test)]
mod tests;
