//! A small model on disk, and engine files of it, for tests.

use std::path::{Path, PathBuf};

use ocelli_engines::tensorrt::{ComputeCapability, Version};
use ocelli_export::contract::Manifest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::native::{Gpu, TensorRtLibrary};
use super::sidecar::Sidecar;
use crate::model::Model;
use crate::model::ModelGraph;

/// A manifest of a model of 28 px, width 4 and 3 queries, with text prompts of 2 tokens.
pub fn manifest() -> Manifest {
    serde_json::from_value(manifest_json()).expect("a manifest")
}

fn manifest_json() -> Value {
    json!({
        "format_version": 1, "exporter": "test", "weights_sha256": "5a", "imgsz": 28, "patch_size": 14, "model_width": 4,
        "num_queries": 3, "context_length": 2, "special_tokens": { "bos": 0, "eos": 1, "pad": 1 },
        "preprocessing": { "resize": "bilinear-antialias", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5] },
        "thresholds": { "confidence": 0.3, "nms": 0.7 }, "prompting": "text", "target": "tensorrt",
        "precision": "fp32", "detection_only": true, "skip_blocks": [], "mask_blocks": [], "split_block": null,
        "files": {}
    })
}

pub fn library() -> TensorRtLibrary {
    TensorRtLibrary {
        name: "TensorRT for RTX".into(),
        version: Version::new(1, 7, 1),
        path: "librtx.so".into(),
    }
}

pub fn gpu() -> Gpu {
    Gpu { name: "RTX 4090".into(), compute_capability: ComputeCapability::new(8, 9) }
}

pub struct Sample {
    folder: TempDir,
    pub model: Model,
}

impl Sample {
    /// The model, with these changes to its manifest.
    pub fn new(changes: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let model = folder.path().join("model");
        std::fs::create_dir(&model).expect("the folder is new");
        let mut manifest = manifest_json();
        let backbone: &[ModelGraph] = match changes["split_block"].is_null() {
            true => &[ModelGraph::Backbone],
            false => &[ModelGraph::BackboneFirst, ModelGraph::BackboneSecond],
        };
        for graph in backbone.iter().chain(&[ModelGraph::TextEncoder, ModelGraph::EncoderDecoder]) {
            std::fs::write(model.join(graph.file()), "onnx").expect("it can be written");
            manifest["files"][graph.file()] = json!({ "sha256": graph.name(), "bytes": 4 });
        }
        for (name, value) in changes.as_object().expect("an object") {
            manifest[name] = value.clone();
        }
        std::fs::write(model.join("model.json"), manifest.to_string()).expect("it can be written");
        let model = Model::open(&model).expect("it was just written");
        Self { folder, model }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `name.engine` and its sidecar: a verified engine of the model for [`library`] and [`gpu`].
    pub fn engine(&self, graph: ModelGraph, name: &str) -> PathBuf {
        let path = self.path(&format!("{name}.engine"));
        std::fs::write(&path, "a plan of TensorRT").expect("it can be written");
        let manifest = self.model.manifest();
        let sidecar = json!({
            "format_version": 1, "writer": "test", "graph": graph, "layout": "ocelli",
            "engine": Sidecar::entry_of(&path).expect("it was just written"),
            "onnx_sha256": graph.name(), "model": self.model.folder(),
            "model_weights_sha256": manifest.weights_sha256, "gpu": gpu().name, "compute_capability": ["8.9"],
            "tensorrt": { "name": library().name, "version": library().version.to_string() }, "precision": "fp32",
            "shapes": {
                "imgsz": manifest.imgsz, "model_width": manifest.model_width, "grid": manifest.grid(),
                "dimensions": match graph {
                    ModelGraph::EncoderDecoder => json!({
                        "classes": { "min": 1, "optimal": 3, "max": 3 },
                        "prompt_tokens": { "min": 3, "optimal": 3, "max": 5 }
                    }),
                    _ => json!({}),
                }
            },
            "options": { "workspace_bytes": null, "version_compatible": false, "hardware_compatible": false },
            "verified": {
                "reference": "CPU", "candidate": "GPU", "cosine": { "logits": 0.99999 }, "box_difference": 0.0,
                "score_difference": 0.0, "kept": 1, "borderline": 0, "scenes": 2, "random_inputs": 1, "seed": 0,
                "limits": crate::tensorrt::Limits::default()
            }
        });
        std::fs::write(Sidecar::path_of(&path), sidecar.to_string()).expect("it can be written");
        path
    }
}

/// Changes one value of an engine's sidecar.
pub fn set(engine: &Path, pointer: &str, value: Value) {
    let path = Sidecar::path_of(engine);
    let mut sidecar: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("it is JSON");
    *sidecar.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
    std::fs::write(&path, sidecar.to_string()).expect("it can be written");
}
