//! What both sides are given.

use ocelli_engines::Tensor;
use ocelli_export::contract::{Manifest, tensor};

use super::{Output, VerificationOptions};
use crate::scenes::random::Random;
use crate::scenes::{SceneGenerator, SceneOptions, vocabulary};
use ocelli::Model;
use ocelli::ModelGraph;
use ocelli::Result;
use ocelli::preprocess::{PreprocessConfig, Preprocessor};

/// Classes that are asked for in a scene, those that are in it and some that are not.
const CLASSES_OF_A_SCENE: usize = 4;

/// One input.
#[derive(Debug)]
pub(super) struct Input {
    /// `scene 3`, `random input 0`.
    pub(super) name: String,
    /// Whether it is a scene, in which things can be found.
    pub(super) drawn: bool,
    /// `[1, 3, S, S]`.
    pub(super) pixels: Tensor,
    /// Pixels of the picture.
    pub(super) size: (u32, u32),
    /// What is asked for: places in the vocabulary.
    pub(super) phrases: Vec<usize>,
    /// How many of them a candidate is given at once.
    pub(super) chunk: usize,
}

/// The inputs, the same for the same options and model.
pub(super) fn make(manifest: &Manifest, options: &VerificationOptions) -> Result<Vec<Input>> {
    let side = manifest.imgsz;
    let mut inputs = Vec::new();
    // One input takes all classes at once, the others walk through smaller numbers.
    let chunk = |index: usize| match index {
        0 => options.max_classes,
        _ => [CLASSES_OF_A_SCENE, 1, 2, 3][(index - 1) % 4].min(options.max_classes),
    };
    for index in 0..options.random_inputs {
        let mut random = Random::new(options.seed, 1 << 32 | index as u64);
        let values = (0..3 * side * side).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
        let classes = chunk(inputs.len()).min(vocabulary().len());
        inputs.push(Input {
            name: format!("random input {index}"),
            drawn: false,
            pixels: Tensor::f32(&[1, 3, side, side], values)?,
            size: (side as u32, side as u32),
            phrases: (0..classes).collect(),
            chunk: chunk(inputs.len()),
        });
    }
    let generator = SceneGenerator::new(options.seed, SceneOptions::default())?;
    let mut config = PreprocessConfig::new(side);
    config.mean = manifest.preprocessing.mean;
    config.std = manifest.preprocessing.std;
    let mut preprocessor = Preprocessor::new(config)?;
    for index in 0..options.scenes {
        let scene = generator.scene(index as u64);
        let mut pixels = Tensor::empty();
        preprocessor.run_into(&scene.image, pixels.reset_f32(&[1, 3, side, side]))?;
        let place = |label: &str| vocabulary().iter().position(|name| *name == label);
        let mut phrases: Vec<usize> = scene.objects.iter().filter_map(|object| place(object.label)).collect();
        phrases.sort_unstable();
        phrases.dedup();
        let more = (0..vocabulary().len()).map(|step| (index + step) % vocabulary().len());
        let absent: Vec<usize> = more.filter(|phrase| !phrases.contains(phrase)).collect();
        let at_least = chunk(inputs.len()).max(CLASSES_OF_A_SCENE);
        let missing = at_least.saturating_sub(phrases.len());
        phrases.extend(absent.into_iter().take(missing));
        inputs.push(Input {
            name: format!("scene {index}"),
            drawn: true,
            pixels,
            size: (scene.image.width(), scene.image.height()),
            phrases,
            chunk: chunk(inputs.len()),
        });
    }
    Ok(inputs)
}

/// Phrases, as token numbers and as features.
#[derive(Clone, Debug)]
pub(super) struct Words {
    /// `[phrase, L]`.
    pub(super) ids: Tensor,
    /// `[phrase, L]`, 1 = token.
    pub(super) mask: Tensor,
    /// `[phrase, L, D]`; empty until they are encoded.
    pub(super) features: Tensor,
}

impl Words {
    pub(super) fn output(&self) -> Output<'_> {
        Output { graph: ModelGraph::TextEncoder, name: tensor::TEXT_FEATURES, tensor: &self.features }
    }
}

/// Phrases to token numbers.
pub(super) fn tokenize(model: &Model, phrases: &[&str]) -> Result<Words> {
    let tokenizer = model.tokenizer()?;
    let shape = [phrases.len(), model.manifest().context_length];
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for phrase in phrases {
        let tokens = tokenizer.encode(phrase)?;
        ids.extend(tokens.ids);
        mask.extend(tokens.mask);
    }
    Ok(Words { ids: Tensor::i64(&shape, ids)?, mask: Tensor::i64(&shape, mask)?, features: Tensor::empty() })
}
