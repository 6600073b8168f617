//! From the name of a model to its engines: what the program and the bindings ask for.

use std::path::{Path, PathBuf};

use ocelli::engine::{EngineFactory, EngineOptions};
use ocelli::model::ModelRequest;
use ocelli::tensorrt::{NativeTensorRt, Sidecar};
use ocelli::{Cancellation, EngineKind, Error, ErrorKind, Model, ModelSource, Result};
use ocelli_export::contract::{Precision, Target};

use super::build::{BuildOptions, BuiltEngine, EngineBuild, ReportEvent, verify_engine};
use crate::{ReportProgress, VerificationReport};

/// Engines to build or to verify, and where the libraries are.
#[derive(Clone, Debug, Default)]
pub struct EngineRequest {
    /// The model: a folder exported for TensorRT, or a checkpoint, which is exported into the cache. `None` is the built-in
    /// model, or the one that an engine to verify was built from.
    pub source: Option<ModelSource>,
    /// Side of the model's input in pixels; `None` is the model's.
    pub imgsz: Option<usize>,
    /// Number format of a checkpoint's engines; `None` is 32 bits, or the exported model's.
    pub precision: Option<Precision>,
    /// Exports a checkpoint with what masks need.
    pub masks: bool,
    /// An exported model in 32 bits to compare the engines with; `None` is what they are built from.
    pub reference: Option<PathBuf>,
    /// TensorRT's library or its folder; `None` searches the usual places.
    pub tensorrt: Option<PathBuf>,
    /// ONNX Runtime's library, which runs the reference; `None` searches the usual places.
    pub onnxruntime: Option<PathBuf>,
    /// CPU threads of the reference; `None` is one for each physical core.
    pub threads: Option<usize>,
    /// The options of building and comparing the engines.
    pub build: BuildOptions,
}

impl EngineRequest {
    /// Builds the engines into `output`, compares each with its ONNX graph on this GPU, and installs those that agree.
    /// `announce` gets a line about each step of an export.
    ///
    /// # Errors
    /// Those of [`EngineBuild::run`] and [`Model::resolve`].
    pub fn build(
        &self,
        output: &Path,
        cancellation: &Cancellation,
        announce: &dyn Fn(&str),
        report: &mut ReportEvent<'_>,
    ) -> Result<Vec<BuiltEngine>> {
        let tensorrt = self.native();
        // What is missing is reported before a model is exported.
        tensorrt.library().map_err(for_purpose("cannot build engines"))?;
        let source = self.source.clone().unwrap_or_default();
        let (model, reference_model, reference) = self.prepare(source, cancellation, announce)?;
        let build = EngineBuild {
            reference_model: &reference_model,
            cancellation: cancellation.clone(),
            ..EngineBuild::new(&model, &tensorrt, &reference, self.build.clone())
        };
        build.run(output, report)
    }

    /// Compares an existing engine with its model on this GPU, and records the verdict in its sidecar.
    ///
    /// # Errors
    /// Those of [`verify_engine`] and [`Model::resolve`].
    pub fn verify(
        &self,
        engine: &Path,
        cancellation: &Cancellation,
        announce: &dyn Fn(&str),
        progress: &mut ReportProgress<'_>,
    ) -> Result<VerificationReport> {
        let tensorrt = self.native();
        tensorrt.gpu().map_err(for_purpose(&format!("cannot verify the engine, {}", engine.display())))?;
        let source = self.source.clone().map_or_else(|| source_of(engine), Ok)?;
        let (model, reference_model, reference) = self.prepare(source, cancellation, announce)?;
        let (reference, options) = ((&reference_model, &reference), self.build.verification.clone());
        verify_engine(engine, &model, &tensorrt, reference, options, progress)
    }

    fn native(&self) -> NativeTensorRt {
        NativeTensorRt::new(self.tensorrt.as_deref())
    }

    /// The model, the one that its engines are compared with, and what runs that.
    fn prepare(
        &self,
        source: ModelSource,
        cancellation: &Cancellation,
        announce: &dyn Fn(&str),
    ) -> Result<(Model, Model, EngineFactory)> {
        let reference = EngineFactory::start(&EngineOptions {
            kind: EngineKind::Cpu,
            threads: self.threads,
            onnxruntime: self.onnxruntime.clone(),
            ..EngineOptions::default()
        })?;
        let request = ModelRequest {
            source,
            imgsz: self.imgsz,
            precision: self.precision,
            target: Target::TensorRt,
            screen: self.build.graphs.contains(&ocelli::model::ModelGraph::Screen),
            masks: self.masks,
            ..ModelRequest::default()
        };
        let model = Model::resolve(&request, announce, cancellation)?;
        let is_exported = matches!(&request.source, ModelSource::Folder(folder) if model.folder() == folder);
        let reference_model = match (&self.reference, self.precision) {
            (Some(folder), _) => Model::open(folder)?,
            // No CPU engine computes in bfloat16.
            (None, Some(Precision::Bf16)) if !is_exported => {
                let request = ModelRequest { precision: Some(Precision::Fp32), ..request };
                Model::resolve(&request, announce, cancellation)?
            }
            _ => model.clone(),
        };
        Ok((model, reference_model, reference))
    }
}

/// Puts what was to be done in front of an error.
fn for_purpose(purpose: &str) -> impl Fn(Error) -> Error {
    move |error| Error::new(error.kind(), format!("{purpose}: {error}"))
}

/// The model that an engine was built from.
fn source_of(engine: &Path) -> Result<ModelSource> {
    if !engine.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("no engine, {}: no such file", engine.display())));
    }
    let sidecar = Sidecar::read(engine)?.ok_or_else(|| {
        let (engine, missing) = (engine.display(), Sidecar::path_of(engine));
        let message =
            format!("engine {engine}: its sidecar, {}, is missing; name its model", missing.display());
        Error::invalid_argument(message).about("model")
    })?;
    Ok(ModelSource::Folder(sidecar.model))
}
