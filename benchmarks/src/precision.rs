//! The effect of a number format on a model: outputs, detections, time.
//!
//! [`Reference`] holds the outputs of the fp32 model on some of the drawn [`Scenes`]; [`Reference::cosines`] compares
//! another export with it graph by graph, each with the reference's inputs. [`detect`] evaluates the whole model, and
//! [`time`] measures it.

mod reference;
mod scenes;
mod strategy;

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::export::contract::Manifest;
use ocelli::{
    Detection, Detector, ErrorKind, Model, StageTimes, engine::EngineFactory, stages::TextCacheFile,
};
use ocelli_datasets::eval::{Accuracy, Overlap, Predictions, Protocol, average_precision};
use serde::Serialize;

pub use reference::Reference;
pub use scenes::Scenes;
pub use strategy::Strategy;

/// Detections in the scenes.
#[derive(Clone, Debug)]
pub struct Detected {
    /// COCO's metrics.
    pub accuracy: Accuracy,
    /// Detections above the model's threshold, by scene.
    pub items: Vec<Vec<Detection>>,
    /// Scenes in which the engine failed or returned a NaN.
    pub failed: usize,
}

/// Boxes with at least this IoU are of the same detection.
const SAME_IOU: f32 = 0.7;

impl Detected {
    /// Detections above the model's threshold, in all scenes.
    pub fn detections(&self) -> usize {
        self.items.iter().map(Vec::len).sum()
    }

    /// The detections that have no counterpart of their class in `other`, which are those of the same scenes.
    pub fn missing_in(&self, other: &Self) -> usize {
        let same = |a: &Detection, b: &Detection| a.class_id == b.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU;
        let alone = |(these, those): (&Vec<Detection>, &Vec<Detection>)| {
            these.iter().filter(|a| !those.iter().any(|b| same(a, b))).count()
        };
        self.items.iter().zip(&other.items).map(alone).sum()
    }
}

/// Detects in all scenes with an export and evaluates the detections.
///
/// # Errors
/// If a graph cannot be loaded or run.
pub fn detect(factory: &EngineFactory, folder: &Path, scenes: &Scenes) -> anyhow::Result<Detected> {
    let mut detector = detector(factory, folder)?;
    let threshold = detector.model().manifest().thresholds.confidence;
    detector.prepare(&scenes.prompts)?;
    let (mut found, mut items, mut failed) = (Predictions::default(), Vec::new(), 0);
    let ids = scenes.truth.image_ids();
    for (image, id) in scenes.images.iter().zip(&ids) {
        ocelli_cli::interrupted()?;
        let answer = match detector.detect(image, &scenes.prompts) {
            Ok(answer) => answer,
            // Values out of range count as no detections.
            Err(e) if e.kind() == ErrorKind::Execution => {
                failed += 1;
                items.push(Vec::new());
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        found.push_detections(*id, &answer.items, &scenes.category_ids);
        items.push(answer.items.into_iter().filter(|item| item.score > threshold).collect());
    }
    let accuracy = average_precision(&scenes.truth, &found, &ids, Overlap::Boxes)?;
    Ok(Detected { accuracy, items, failed })
}

/// The times of `runs` detections in the first scene, after one warm-up run.
///
/// # Errors
/// If a graph cannot be loaded or run.
pub fn time(
    factory: &EngineFactory,
    folder: &Path,
    scenes: &Scenes,
    runs: usize,
) -> anyhow::Result<Vec<StageTimes>> {
    let mut detector = detector(factory, folder)?;
    detector.prepare(&scenes.prompts)?;
    let mut times = Vec::new();
    for _ in 0..=runs {
        ocelli_cli::interrupted()?;
        times.push(detector.detect(&scenes.images[0], &scenes.prompts)?.times);
    }
    times.remove(0);
    Ok(times)
}

fn detector(factory: &EngineFactory, folder: &Path) -> anyhow::Result<Detector> {
    let builder = Detector::builder()
        .with_open_model(Model::open(folder)?)
        .with_engine_factory(factory.clone())
        .with_post_processing(Protocol::Practical.post_processing())
        .with_text_cache(TextCacheFile::None);
    Ok(builder.build()?)
}

/// Size of an export's graphs and weights in bytes.
///
/// # Errors
/// If the folder is not an exported model.
pub fn graph_bytes(folder: &Path) -> anyhow::Result<u64> {
    let manifest = Manifest::read(folder)?;
    let graphs = manifest.files.iter().filter(|(name, _)| name.contains(".onnx"));
    Ok(graphs.map(|(_, entry)| entry.bytes).sum())
}

/// The minimum of several cosines.
#[derive(Clone, Debug, Serialize)]
pub struct Least {
    /// `graph.output`.
    pub output: String,
    /// Cosine similarity.
    pub cosine: f64,
}

impl Least {
    /// The minimum of `cosines`.
    pub fn of(cosines: &BTreeMap<String, f64>) -> Option<Self> {
        let least = cosines.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
        Some(Self { output: least.0.clone(), cosine: *least.1 })
    }
}

/// Cosine similarity; 0 if it is not finite, 1 if both vectors are zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (aa, bb) = (dot(a, a), dot(b, b));
    if aa == 0.0 && bb == 0.0 {
        return 1.0;
    }
    let cosine = dot(a, b) / (aa * bb).sqrt();
    if cosine.is_finite() { cosine } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::cosine;

    #[test]
    fn cosines() {
        let cases: [(&[f32], &[f32], f64); 6] = [
            (&[1.0, 2.0], &[2.0, 4.0], 1.0),
            (&[1.0, 0.0], &[0.0, 1.0], 0.0),
            (&[1.0, 1.0], &[-1.0, -1.0], -1.0),
            (&[0.0, 0.0], &[0.0, 0.0], 1.0),
            (&[1.0, 2.0], &[f32::INFINITY, 2.0], 0.0),
            (&[1.0, 2.0], &[f32::NAN, 2.0], 0.0),
        ];
        for (a, b, expected) in cases {
            assert!((cosine(a, b) - expected).abs() < 1e-12, "{a:?} and {b:?}: {}", cosine(a, b));
        }
    }
}
