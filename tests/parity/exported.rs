//! An exported folder and the engines that run its graphs.

use std::collections::BTreeMap;
use std::error::Error;

use ocelli::engine::{EngineFactory, EngineOptions};
use ocelli::engines::embedded::EmbeddedEngine;
use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine};
use ocelli::engines::openvino::{OpenVino, OpenVinoEngine};
use ocelli::engines::{Engine, Tensor};
use ocelli::export::contract::{Manifest, Target, file, tensor};
use ocelli::export::{Checkpoint, ExportOptions, export};
use tempfile::TempDir;

/// Errors are lines of the report.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tensors by name.
pub type Outputs = BTreeMap<String, Tensor>;

/// The engine that runs the graphs.
#[derive(Clone, Copy, Debug)]
pub enum Runner {
    OnnxRuntime,
    Embedded,
    OpenVino,
    WebGpu,
    /// As a detector loads it.
    Cuda,
}

impl Runner {
    /// The targets whose operators the engine knows.
    pub fn targets(self) -> &'static [Target] {
        match self {
            Self::OnnxRuntime | Self::Embedded | Self::Cuda => &[Target::OnnxRuntime, Target::TensorRt],
            Self::OpenVino | Self::WebGpu => &[Target::TensorRt],
        }
    }
}

/// An exported model in a temporary folder.
pub struct Exported {
    pub manifest: Manifest,
    folder: TempDir,
    runner: Runner,
    engines: BTreeMap<String, Box<dyn Engine>>,
}

impl Exported {
    /// Exports a checkpoint; ONNX Runtime runs it.
    pub fn new(checkpoint: &Checkpoint, options: &ExportOptions) -> Outcome<Self> {
        Self::on(Runner::OnnxRuntime, checkpoint, options)
    }

    /// Exports a checkpoint.
    pub fn on(runner: Runner, checkpoint: &Checkpoint, options: &ExportOptions) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let manifest = export(checkpoint, options, &folder.path().join("model"), |_| Ok(()))?;
        Ok(Self { manifest, folder, runner, engines: BTreeMap::new() })
    }

    /// The path of a file.
    pub fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join("model").join(file)
    }

    /// The engine of a graph, loaded on first use.
    pub fn engine(&mut self, file: &str) -> Outcome<&mut Box<dyn Engine>> {
        if !self.engines.contains_key(file) {
            // The graphs are small and tests run side by side.
            let path = self.path(file);
            let engine: Box<dyn Engine> = match self.runner {
                Runner::OnnxRuntime => {
                    let runtime = OnnxRuntime::load(None)?;
                    Box::new(OnnxRuntimeEngine::builder(&runtime).with_threads(1).build_from_file(path)?)
                }
                Runner::Embedded => {
                    Box::new(EmbeddedEngine::builder().with_threads(1).build_from_file(path)?)
                }
                Runner::OpenVino => {
                    let runtime = OpenVino::load(None)?;
                    Box::new(OpenVinoEngine::builder(&runtime).with_threads(1).build_from_file(path)?)
                }
                Runner::WebGpu => Box::new(crate::webgpu::builder()?.build_from_file(path)?),
                Runner::Cuda => {
                    let options = EngineOptions { kind: "cuda".parse()?, ..EngineOptions::default() };
                    EngineFactory::start(&options)?.load(&path)?
                }
            };
            self.engines.insert(file.to_owned(), engine);
        }
        Ok(self.engines.get_mut(file).expect("just inserted"))
    }

    /// Names of a graph's outputs.
    pub fn output_names(&mut self, file: &str) -> Outcome<Vec<String>> {
        Ok(self.engine(file)?.spec().outputs.iter().map(|spec| spec.name.clone()).collect())
    }

    /// Runs a graph for all its outputs.
    pub fn run(&mut self, file: &str, inputs: &[(&str, &Tensor)]) -> Outcome<Outputs> {
        let names = self.output_names(file)?;
        let mut tensors: Vec<Tensor> = names.iter().map(|_| Tensor::empty()).collect();
        let mut outputs: Vec<(&str, &mut Tensor)> =
            names.iter().map(String::as_str).zip(&mut tensors).collect();
        self.engine(file)?.run(inputs, &mut outputs)?;
        Ok(names.into_iter().zip(tensors).collect())
    }

    /// Pixels → features, through one graph or two consecutive ones.
    pub fn backbone(&mut self, pixels: &Tensor) -> Outcome<Outputs> {
        if self.manifest.split_block.is_none() {
            return self.run(file::BACKBONE, &[(tensor::PIXEL_VALUES, pixels)]);
        }
        let tokens = self.run(file::BACKBONE_FIRST, &[(tensor::PIXEL_VALUES, pixels)])?;
        self.run(file::BACKBONE_SECOND, &[(tensor::TOKENS, &tokens[tensor::TOKENS])])
    }

    /// The exemplar encoder.
    pub fn exemplars(&mut self, fpn_2: &Tensor, boxes: &Tensor, labels: &Tensor) -> Outcome<Outputs> {
        let inputs = [(tensor::FPN[2], fpn_2), (tensor::BOXES, boxes), (tensor::BOX_LABELS, labels)];
        self.run(file::EXEMPLAR_ENCODER, &inputs)
    }

    /// The encoder-decoder.
    pub fn decode(&mut self, fpn_2: &Tensor, (features, mask): &(Tensor, Tensor)) -> Outcome<Outputs> {
        let inputs =
            [(tensor::FPN[2], fpn_2), (tensor::PROMPT_FEATURES, features), (tensor::PROMPT_MASK, mask)];
        self.run(file::ENCODER_DECODER, &inputs)
    }

    /// The mask head for one class.
    pub fn masks(
        &mut self,
        [fpn_0, fpn_1]: [&Tensor; 2],
        encoded: &Tensor,
        (features, mask): &(Tensor, Tensor),
        queries: &Tensor,
    ) -> Outcome<Outputs> {
        let inputs = [
            (tensor::FPN[0], fpn_0),
            (tensor::FPN[1], fpn_1),
            (tensor::ENCODED, encoded),
            (tensor::PROMPT_FEATURES, features),
            (tensor::PROMPT_MASK, mask),
            (tensor::QUERIES, queries),
        ];
        self.run(file::MASK_HEAD, &inputs)
    }
}
