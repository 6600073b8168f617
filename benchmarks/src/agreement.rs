//! Agreement between two engines that run the same model on the same inputs.
//!
//! A [`Reference`] is a safetensors file with inputs and the outputs of one engine, for comparison with other engines and
//! with other programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use ocelli::atomic_file::write_atomically;
use ocelli::engines::Tensor;
use ocelli::postprocess::{ClassOutputs, PostProcessOptions, PostProcessor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Serialize;

use crate::halves::{Outputs, TextFeatures};

/// Number of queries per class, those of the highest scores, whose boxes are compared.
const TOP_QUERIES: usize = 10;

/// Inputs and the outputs of one engine.
#[derive(Debug)]
pub struct Reference {
    /// `[1, 3, S, S]`.
    pub pixels: Tensor,
    /// Features of the text prompts.
    pub text: TextFeatures,
    /// `[1, D, P, P]`.
    pub fpn_2: Vec<f32>,
    /// Outputs for the first classes of `text`.
    pub outputs: Outputs,
}

/// Differences from the [`Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Cosine similarity of the features.
    pub fpn_2_cosine: f64,
    /// Cosine similarity of the logits of the shared classes.
    pub logits_cosine: f64,
    /// Over the boxes of the top queries; 1 is the side of the image.
    pub largest_box_difference: f64,
    /// Over the scores of the top queries.
    pub largest_score_difference: f64,
    /// Number of compared classes.
    pub classes: usize,
    /// Number of detections in the reference.
    pub detections_reference: usize,
    /// Number of detections here.
    pub detections: usize,
}

impl Reference {
    /// Writes the file atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = &self.text;
        let classes = self.outputs.presence.len();
        let pixels = self.pixels.as_f32()?;
        let length = text.mask.len() / text.classes;
        let queries = self.outputs.logits.len() / classes;
        let width = text.features.len() / text.mask.len();
        let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mask: Vec<u8> = text.mask.iter().flat_map(|value| value.to_le_bytes()).collect();
        let out = &self.outputs;
        let tensors = [
            ("pixel_values", Dtype::F32, self.pixels.shape().to_vec(), f32s(pixels)),
            ("text_features", Dtype::F32, vec![text.classes, length, width], f32s(&text.features)),
            ("text_mask", Dtype::I64, vec![text.classes, length], mask),
            ("fpn_2", Dtype::F32, vec![1, width, self.fpn_2.len() / width], f32s(&self.fpn_2)),
            ("logits", Dtype::F32, vec![classes, queries], f32s(&out.logits)),
            ("boxes", Dtype::F32, vec![classes, queries, 4], f32s(&out.boxes)),
            ("presence", Dtype::F32, vec![classes], f32s(&out.presence)),
        ];
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| Ok((*name, TensorView::new(*dtype, shape.clone(), bytes)?)))
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let bytes = safetensors::serialize(views, None)?;
        Ok(write_atomically(path, |file| file.write_all(&bytes))?)
    }

    /// Reads a file of [`write`](Self::write).
    ///
    /// # Errors
    /// If it cannot be read or is not a reference.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read the reference, {}", path.display()))?;
        let read = || -> anyhow::Result<Self> {
            let file = SafeTensors::deserialize(&bytes)?;
            let f32s = |name: &str| -> anyhow::Result<Vec<f32>> {
                let values = file.tensor(name)?.data().as_chunks::<4>().0;
                Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            };
            let mask = file.tensor("text_mask")?;
            let text = TextFeatures {
                features: f32s("text_features")?,
                mask: mask.data().as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
                classes: mask.shape().first().copied().unwrap_or(0),
            };
            anyhow::ensure!(text.classes > 0, "it has no classes");
            Ok(Self {
                pixels: Tensor::f32(file.tensor("pixel_values")?.shape(), f32s("pixel_values")?)?,
                text,
                fpn_2: f32s("fpn_2")?,
                outputs: Outputs {
                    logits: f32s("logits")?,
                    boxes: f32s("boxes")?,
                    presence: f32s("presence")?,
                },
            })
        };
        read().map_err(|e| anyhow::anyhow!("not a reference, {}: {e}; write it again", path.display()))
    }

    /// Compares features and outputs with the reference.
    ///
    /// # Errors
    /// If they are of another model.
    pub fn compare(&self, fpn_2: &[f32], outputs: &Outputs) -> anyhow::Result<Agreement> {
        let classes = self.outputs.presence.len().min(outputs.presence.len());
        let queries = self.outputs.logits.len() / self.outputs.presence.len().max(1);
        let fits =
            fpn_2.len() == self.fpn_2.len() && outputs.logits.len() == outputs.presence.len() * queries;
        anyhow::ensure!(classes > 0 && fits, "the reference is of another model or image size");
        let (one, other) = (first(&self.outputs, classes), first(outputs, classes));
        let (mut boxes, mut scores) = (0.0_f64, 0.0_f64);
        for class in 0..classes {
            let ours = |query: usize| score(&other, queries, class, query);
            let theirs = |query: usize| score(&one, queries, class, query);
            let mut ranked: Vec<usize> = (0..queries).collect();
            ranked.sort_by(|a, b| theirs(*b).total_cmp(&theirs(*a)));
            for query in ranked.into_iter().take(TOP_QUERIES) {
                scores = worst(scores, ours(query) - theirs(query));
                let at = (class * queries + query) * 4;
                for corner in at..at + 4 {
                    boxes = worst(boxes, f64::from(other.boxes[corner]) - f64::from(one.boxes[corner]));
                }
            }
        }
        Ok(Agreement {
            fpn_2_cosine: cosine(&self.fpn_2, fpn_2),
            logits_cosine: cosine(&one.logits, &other.logits),
            largest_box_difference: boxes,
            largest_score_difference: scores,
            classes,
            detections_reference: detections(&one)?,
            detections: detections(&other)?,
        })
    }
}

/// The outputs of the first classes.
fn first(outputs: &Outputs, classes: usize) -> Outputs {
    let queries = outputs.logits.len() / outputs.presence.len();
    Outputs {
        logits: outputs.logits[..classes * queries].to_vec(),
        boxes: outputs.boxes[..classes * queries * 4].to_vec(),
        presence: outputs.presence[..classes].to_vec(),
    }
}

fn score(outputs: &Outputs, queries: usize, class: usize, query: usize) -> f64 {
    let sigmoid = |logit: f32| 1.0 / (1.0 + f64::from(-logit).exp());
    sigmoid(outputs.logits[class * queries + query]) * sigmoid(outputs.presence[class])
}

/// The larger absolute difference; NaN is infinite.
fn worst(so_far: f64, difference: f64) -> f64 {
    if difference.is_nan() { f64::INFINITY } else { so_far.max(difference.abs()) }
}

/// The number of detections with the default thresholds.
///
/// # Errors
/// If a value is NaN.
pub fn detections(outputs: &Outputs) -> anyhow::Result<usize> {
    let mut post = PostProcessor::new(PostProcessOptions::default())?;
    post.begin(1000, 1000);
    let queries = outputs.logits.len() / outputs.presence.len().max(1);
    let fits = outputs.logits.len() == queries * outputs.presence.len()
        && outputs.boxes.len() == 4 * outputs.logits.len();
    anyhow::ensure!(fits, "logits, boxes and presence do not have the shapes of classes and queries");
    for (class_id, &presence) in outputs.presence.iter().enumerate() {
        let logits = &outputs.logits[class_id * queries..][..queries];
        let boxes = &outputs.boxes[4 * class_id * queries..][..4 * queries];
        post.push_class(&ClassOutputs { class_id, label: "instance", logits, boxes, presence })?;
    }
    let mut kept = Vec::new();
    post.finish_into(&mut kept);
    Ok(kept.len())
}

/// Cosine similarity; 0 if it is not finite.
fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(one, other) / (dot(one, one) * dot(other, other)).sqrt();
    if cosine.is_finite() { cosine } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Reference {
        let outputs = Outputs {
            logits: vec![4.0, -4.0, 0.0, 3.0],
            boxes: (0..16).map(|i| [0.1, 0.1, 0.4, 0.4][i % 4] + 0.5 * (i / 4 % 2) as f32).collect(),
            presence: vec![5.0, 5.0],
        };
        Reference {
            pixels: Tensor::zeros::<f32>(&[1, 3, 2, 2]),
            text: TextFeatures { features: vec![0.5; 3 * 2 * 2], mask: vec![1, 0, 1, 1, 1, 0], classes: 3 },
            fpn_2: vec![1.0, 2.0, -3.0, 0.5],
            outputs,
        }
    }

    #[test]
    fn a_written_reference_is_read_back() {
        let (folder, written) = (tempfile::tempdir().expect("a folder"), reference());
        let path = folder.path().join("reference.safetensors");
        written.write(&path).expect("the folder can be written to");
        let read = Reference::read(&path).expect("it was written above");
        assert_eq!((&read.pixels, &read.text), (&written.pixels, &written.text));
        assert_eq!((&read.fpn_2, &read.outputs), (&written.fpn_2, &written.outputs));
        std::fs::write(&path, b"hello").expect("the folder can be written to");
        let error = Reference::read(&path).expect_err("it is not a reference").to_string();
        assert!(error.contains("not a reference") && error.contains("write it again"), "{error}");
    }

    #[test]
    fn differences_are_reported_in_the_right_field() {
        let reference = reference();
        let exact = reference.compare(&reference.fpn_2, &reference.outputs).expect("it is the same");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(exact.fpn_2_cosine, 1.0) && close(exact.logits_cosine, 1.0), "{exact:?}");
        assert_eq!((exact.largest_box_difference, exact.largest_score_difference), (0.0, 0.0));
        assert_eq!((exact.classes, exact.detections, exact.detections_reference), (2, 3, 3));

        // (name, change, field that has to show it)
        type Change = fn(&mut Vec<f32>, &mut Outputs);
        type Shows = fn(&Agreement) -> bool;
        let cases: [(&str, Change, Shows); 6] = [
            ("features", |fpn, _| fpn[2] = 3.0, |a| a.fpn_2_cosine < 0.9),
            ("features of zeros", |fpn, _| fpn.fill(0.0), |a| a.fpn_2_cosine == 0.0),
            ("logits", |_, out| out.logits[0] = -4.0, |a| a.logits_cosine < 0.9 && a.detections == 2),
            ("a box", |_, out| out.boxes[3] += 0.25, |a| (a.largest_box_difference - 0.25).abs() < 1e-6),
            ("presence", |_, out| out.presence[1] = -5.0, |a| a.largest_score_difference > 0.4),
            ("an invalid box", |_, out| out.boxes[15] = 9.0, |a| a.largest_box_difference > 8.0),
        ];
        let mut failures = Vec::new();
        for (name, change, shows) in cases {
            let (mut fpn_2, mut outputs) = (reference.fpn_2.clone(), reference.outputs.clone());
            change(&mut fpn_2, &mut outputs);
            let found = reference.compare(&fpn_2, &outputs).expect("the sizes are the same");
            if !shows(&found) {
                failures.push(format!("{name}: {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn another_model_is_refused() {
        let reference = reference();
        let error = reference.compare(&[1.0], &reference.outputs).expect_err("of another size");
        assert!(error.to_string().contains("another model"), "{error}");
    }
}
