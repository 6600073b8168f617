//! The first look at every class, on a coarser grid: classes that are certainly absent are not decoded.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{Manifest, file, tensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::chunk_prompts::{ChunkPrompts, ChunkShape};
use super::engine_io::fixed_size;
use super::features::{COARSE, HostCopies, IMAGE_PROMPT, ImageFeatures};
use super::text::EmbeddedPrompts;
use crate::atomic_file::write_atomically;
use crate::cache::{cache_folder, create_folder, short_hex};
use crate::engine::EngineFactory;
use crate::model::Model;
use crate::postprocess::sigmoid;
use ocelli_error::{Error, Result, refuse};

/// Classes are screened this many times as many at once as they are decoded: a class takes a sixteenth of the scores of
/// attention.
const CHUNKS_AT_ONCE: usize = 4;

/// The choice of the classes that are decoded in full: those whose score in a first, coarse pass reaches a threshold.
///
/// The coarse pass costs a small part of decoding a class: searching an image for many classes costs little more than decoding
/// those that it shows. A class that is ruled out wrongly is not detected. Classes with exemplars are always decoded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Screening {
    /// The threshold that was [calibrated](ScreenCalibration) for the model.
    Calibrated,
    /// A threshold from 0, which rules out nothing, to 1.
    #[serde(untagged)]
    At(f32),
}

impl Screening {
    /// The threshold for detections with at least this score.
    ///
    /// # Errors
    /// [`Unavailable`](ocelli_error::ErrorKind::Unavailable) if the model has no calibration.
    pub(super) fn threshold(self, model: &Model, is_built_in: bool, confidence: f32) -> Result<f32> {
        let threshold = match self {
            Self::At(threshold) => return Ok(threshold),
            Self::Calibrated => ScreenCalibration::of(model)?,
        };
        let built_in = || is_built_in.then(ScreenCalibration::of_built_in);
        let Some(found) = threshold.or_else(built_in) else {
            return Err(Error::unavailable(format!(
                "screen, {}: the model has no calibrated threshold; calibrate it with images of yours, or give a threshold",
                model.folder().display()
            )).about("screen"));
        };
        if confidence < found.confidence {
            tracing::warn!(
                "screen: calibrated for detections from a score of {}, and more of those from {confidence} are lost",
                found.confidence
            );
        }
        Ok(found.threshold)
    }
}

/// `screen.json`: the threshold of the first pass and what it was found on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScreenCalibration {
    /// Classes with a lower score in the first pass are not decoded.
    pub threshold: f32,
    /// The share of the detections that was to be kept: 0.995.
    pub keep: f64,
    /// The share of them that the threshold kept.
    pub kept: f64,
    /// Detections of the full pass that it was found on, the score threshold that they had, and the number of images and
    /// of classes.
    pub detections: usize,
    /// Score threshold of these detections.
    pub confidence: f32,
    /// Images.
    pub images: usize,
    /// Classes that were searched for in every image.
    pub classes: usize,
    /// Classes of an image that were decoded in full, on average.
    pub passed: f64,
}

impl ScreenCalibration {
    /// The name of its file in an exported folder.
    pub const FILE: &str = "screen.json";

    /// The highest threshold that keeps the share `keep` of the detections, each with the score that its class has in the
    /// first pass of its image; `scores` has those of all classes and images.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) without detections, or if `keep` is not above 0 and at most 1.
    pub fn new(
        mut detected: Vec<f32>,
        scores: &[f32],
        (images, classes): (usize, usize),
        confidence: f32,
        keep: f64,
    ) -> Result<Self> {
        if !(keep > 0.0 && keep <= 1.0) {
            refuse!("keep is {keep}: expected above 0 and at most 1");
        }
        if detected.is_empty() {
            refuse!("nothing was detected: there is nothing to calibrate the screen on");
        }
        detected.sort_unstable_by(f32::total_cmp);
        let lost = ((1.0 - keep) * detected.len() as f64 + 1e-9) as usize;
        // A little below the lowest score that is kept: other engines compute it a little differently.
        let threshold = detected[lost.min(detected.len() - 1)] * 0.98;
        let share = |scores: &[f32]| scores.iter().filter(|&&score| score >= threshold).count() as f64;
        Ok(Self {
            threshold,
            keep,
            kept: share(&detected) / detected.len() as f64,
            detections: detected.len(),
            confidence,
            images,
            classes,
            passed: share(scores) / images.max(1) as f64,
        })
    }

    /// The calibration of a model; `None` if it has none.
    ///
    /// # Errors
    /// [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if the file cannot be read.
    pub fn of(model: &Model) -> Result<Option<Self>> {
        let path = Self::path(model);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("cannot read", &path, error)),
        };
        let wrong = |why: String| {
            Error::invalid_data(format!("{}: {why}; calibrate the screen again", path.display()))
        };
        let found: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if !(0.0..=1.0).contains(&found.threshold) {
            return Err(wrong(format!("threshold is {}: expected 0 to 1", found.threshold)));
        }
        Ok(Some(found))
    }

    /// Its path: beside `model.json` in a folder that was exported, or in the cache folder for a checkpoint, which has several
    /// exports there (with and without masks, for each engine).
    pub fn path(model: &Model) -> PathBuf {
        match cache_folder() {
            Ok(cache) if model.folder().starts_with(&cache) => {
                let Manifest { weights_sha256, imgsz, prompting, skip_blocks, mask_blocks, .. } =
                    model.manifest();
                let options = format!("{imgsz} {prompting:?} {skip_blocks:?} {mask_blocks:?}");
                let name = short_hex(&Sha256::digest(format!("{weights_sha256} {options}")));
                cache.join("screens").join(name + ".json")
            }
            _ => model.file(Self::FILE),
        }
    }

    /// The calibration of the built-in model at its own size, on drawn scenes.
    fn of_built_in() -> Self {
        serde_json::from_str(include_str!("../builtin/screen.json")).expect("a test reads it")
    }

    /// Writes the file at its [path](Self::path).
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be written.
    pub fn save(&self, model: &Model) -> Result<()> {
        let path = Self::path(model);
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let text = serde_json::to_string_pretty(self).expect("plain data") + "\n";
        write_atomically(&path, |file| file.write_all(text.as_bytes()))
    }
}

/// The graph of the first pass with its inputs and outputs.
pub(super) struct Screen {
    engine: Box<dyn Engine>,
    pub(super) prompts: ChunkPrompts,
    logits: Tensor,
    presence: Tensor,
}

impl Screen {
    pub(super) fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let engine = model.load_graph(factory, file::SCREEN)?;
        let prompts = ChunkPrompts::new(engine.device());
        Ok(Self { engine, prompts, logits: Tensor::empty(), presence: Tensor::empty() })
    }

    /// The highest score of each of `classes`, which have no exemplars in the image, in their order.
    pub(super) fn scores(
        &mut self,
        model: &Model,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        classes: &[usize],
        (class_chunk, copies): (usize, &mut HostCopies),
    ) -> Result<Vec<f32>> {
        let Self { engine, prompts: chunk_prompts, logits, presence } = self;
        let device = engine.device();
        let device = device.as_ref();
        let at_once = fixed_size(&**engine, tensor::PROMPT_MASK, 0).unwrap_or(CHUNKS_AT_ONCE * class_chunk);
        let mut scores = Vec::with_capacity(classes.len());
        for chunk in classes.chunks(at_once) {
            let shape = ChunkShape::new(model.manifest(), &**engine, chunk.len(), 0)?;
            let chunk: Vec<_> = chunk.iter().map(|&class| &prompts.classes[class]).collect();
            let (prompt_features, prompt_mask) = chunk_prompts.prepare(shape, &chunk)?;
            if shape.appended_len() > 0 {
                let [appended] = copies.readable_on(device, features, [IMAGE_PROMPT])?;
                for row in 0..chunk.len() {
                    prompt_features.copy_elements(
                        shape.appended_at(row),
                        appended,
                        0,
                        shape.appended_len(),
                    )?;
                }
            }
            let [coarse] = copies.readable_on(device, features, [COARSE])?;
            engine.run(
                &[
                    (tensor::FPN[2], coarse),
                    (tensor::PROMPT_FEATURES, prompt_features),
                    (tensor::PROMPT_MASK, prompt_mask),
                ],
                &mut [(tensor::LOGITS, &mut *logits), (tensor::PRESENCE, &mut *presence)],
            )?;
            let queries = logits.shape().get(1).copied().unwrap_or(0);
            let (logits, presence) = (logits.as_f32()?, presence.as_f32()?);
            for (row, class) in chunk.iter().enumerate() {
                let logits = &logits[row * queries..][..queries];
                let best = logits.iter().copied().fold(f32::MIN, f32::max);
                let score = sigmoid(best) * sigmoid(presence[row]);
                // The maximum passes over NaN.
                if !score.is_finite() || logits.iter().any(|logit| !logit.is_finite()) {
                    let message = format!("screen, class {}: the score is not finite", class.prompt.label());
                    return Err(Error::execution(message));
                }
                scores.push(score);
            }
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_is_calibrated() {
        let found = ScreenCalibration::of_built_in();
        assert!(found.images >= 50 && found.classes == 80 && found.detections >= 200, "{found:?}");
        assert!(found.kept >= found.keep && found.passed < 10.0, "{found:?}");
    }

    #[test]
    fn the_threshold_keeps_the_share_of_the_detections() {
        let detected: Vec<f32> = (1..=200).rev().map(|n| n as f32 / 200.0).collect();
        let scores: Vec<f32> = (0..1000).map(|n| n as f32 / 1000.0).collect();
        let mut wrong = Vec::new();
        // The share to keep, detections kept, threshold.
        for (keep, kept, lowest) in
            [(1.0, 200, 1), (0.995, 199, 2), (0.99, 198, 3), (0.5, 100, 101), (0.001, 1, 200)]
        {
            let found =
                ScreenCalibration::new(detected.clone(), &scores, (10, 100), 0.3, keep).expect("it fits");
            let threshold = lowest as f32 / 200.0 * 0.98;
            // Just below a score that is kept there may be another.
            let passed = scores.iter().filter(|&&score| score >= threshold).count() as f64 / 10.0;
            let within = detected.iter().filter(|&&score| score >= threshold).count();
            if (found.threshold, found.passed) != (threshold, passed)
                || within < kept
                || (found.kept - within as f64 / 200.0).abs() > 1e-9
            {
                wrong.push(format!("keep {keep}: {found:?}, expected {kept} at {threshold}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (detected, keep, word) in
            [(vec![], 0.995, "nothing"), (vec![0.5], 0.0, "keep"), (vec![0.5], 1.1, "keep")]
        {
            let error =
                ScreenCalibration::new(detected, &scores, (10, 100), 0.3, keep).expect_err("it is refused");
            assert!(error.to_string().starts_with(word), "{error}");
        }
    }
}
