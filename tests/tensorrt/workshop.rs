//! A model, an image, and the detections with ONNX Runtime.

use std::path::PathBuf;

use ocelli::export::contract::Target;
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{
    Detection, Detector, DetectorBuilder, EngineKind, Image, Model, Prompts,
    engine::{EngineFactory, EngineOptions},
    stages::TextCacheFile,
};
use ocelli_verify::VerificationOptions;
use ocelli_verify::tensorrt::BuildOptions;
use tempfile::TempDir;

/// The classes: more than any engine here accepts at once.
pub const CLASSES: [&str; 7] = ["dog", "person", "bicycle", "tree", "car", "clock", "cat"];

/// The built-in model, exported into a temporary folder.
pub struct Workshop {
    folder: TempDir,
    pub model: Model,
    pub onnxruntime: EngineFactory,
}

/// The options of a model that engines are built from.
pub fn for_tensorrt() -> ExportOptions {
    ExportOptions { target: Target::TensorRt, detection_only: true, ..ExportOptions::default() }
}

/// Options with a numeric gate that takes seconds.
pub fn quick() -> BuildOptions {
    let verification = VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
    BuildOptions { verification, ..BuildOptions::default() }
}

impl Workshop {
    pub fn new(options: &ExportOptions) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (checkpoint, exported) = (folder.path().join("checkpoint"), folder.path().join("exported"));
        std::fs::create_dir(&checkpoint).expect("the folder is new");
        ocelli::builtin::write_checkpoint(&checkpoint).expect("it writes");
        let checkpoint = Checkpoint::open(&checkpoint).expect("the built-in model is a checkpoint");
        export(&checkpoint, options, &exported, |_| Ok(())).expect("it exports");
        let model = Model::open(&exported).expect("it was just exported");
        let onnxruntime =
            EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..EngineOptions::default() })
                .expect("`make setup` installs ONNX Runtime");
        Self { folder, model, onnxruntime }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the engines.
    pub fn engines(&self) -> PathBuf {
        self.path("engines")
    }

    /// The names of the files in it, sorted; empty if the folder does not exist.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.engines()).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A detector that takes its model from the sidecar of an engine.
    pub fn detector(&self) -> DetectorBuilder {
        Detector::builder().with_text_cache(TextCacheFile::None)
    }

    /// The detections of a detector.
    pub fn find(&self, detector: &mut Detector) -> Vec<Detection> {
        let image = Image::open("../demos/scenes/park.png").expect("the scene is in the project");
        let prompts = Prompts::new(CLASSES).expect("they are not blank");
        detector.detect(&image, &prompts).expect("the engines run").items
    }

    /// The detections with ONNX Runtime only.
    pub fn expected(&self) -> Vec<Detection> {
        let mut detector =
            self.detector().with_open_model(self.model.clone()).build().expect("the model is open");
        let found = self.find(&mut detector);
        assert!(found.len() >= 4, "too few detections to compare: {found:?}");
        found
    }
}

/// Checks that the detections are nearly equal.
pub fn same(found: &[Detection], expected: &[Detection], tolerance: f32) {
    let of = |all: &[Detection]| {
        let mut labels: Vec<_> = all.iter().map(|one| one.label.to_string()).collect();
        labels.sort();
        labels
    };
    assert_eq!(of(found), of(expected));
    for one in expected {
        let near = |other: &&Detection| {
            other.label == one.label
                && (other.score - one.score).abs() <= tolerance
                && other.bbox.iou(&one.bbox) >= 1.0 - 4.0 * tolerance
        };
        assert!(found.iter().any(|other| near(&other)), "{one:?} is not in {found:?}");
    }
}
