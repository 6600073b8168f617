//! The inputs that both sides are given.

use ocelli::{BoundingBox, Image, Prompt, Prompts, Result};
use ocelli_engines::Tensor;
use ocelli_export::contract::Manifest;

use super::VerificationOptions;
use crate::scenes::{Random, SceneGenerator, SceneOptions, indices_of, vocabulary};

/// Classes that are looked for in a scene.
const CLASSES_OF_A_SCENE: usize = 4;

/// Two exemplars as shares of the image's sides, a positive and a negative one.
const EXEMPLARS: [([f32; 4], bool); 2] = [([0.2, 0.25, 0.4, 0.55], true), ([0.575, 0.5, 0.825, 0.7], false)];

/// One input.
#[derive(Debug)]
pub(super) struct Input {
    /// `scene 3`, `random input 0`.
    pub(super) name: String,
    pub(super) pixels: Pixels,
    /// Width and height in pixels.
    pub(super) size: (u32, u32),
    /// The text prompts that are looked for, and behind them one with exemplars.
    pub(super) prompts: Prompts,
    /// The number of text prompts.
    pub(super) classes: usize,
    /// The number of classes that the candidate decodes at a time.
    pub(super) chunk: usize,
}

/// The inputs of the backbone.
#[derive(Debug)]
pub(super) enum Pixels {
    /// An image with objects to detect.
    Scene(Image),
    /// `[1, 3, S, S]`, not an image.
    Random(Tensor),
}

impl Input {
    /// `classes` are indices into the vocabulary.
    pub(super) fn new(name: String, pixels: Pixels, classes: &[usize], chunk: usize) -> Result<Self> {
        let size = match &pixels {
            Pixels::Scene(image) => (image.width(), image.height()),
            Pixels::Random(tensor) => (tensor.shape()[3] as u32, tensor.shape()[2] as u32),
        };
        let phrases = classes.iter().map(|&class| Prompt::new(vocabulary()[class]));
        let with_exemplars =
            EXEMPLARS.iter().fold(Prompt::new(vocabulary()[classes[0]]), |prompt, (shares, is_positive)| {
                let bbox = BoundingBox::from(*shares).scaled(size.0 as f32, size.1 as f32);
                prompt.with_exemplar(bbox, *is_positive)
            });
        let prompts = Prompts::new(phrases.chain([with_exemplars]))?;
        Ok(Self { name, pixels, size, prompts, classes: classes.len(), chunk })
    }
}

/// The inputs: the same ones for the same options and model.
pub(super) fn make(manifest: &Manifest, options: &VerificationOptions) -> Result<Vec<Input>> {
    let side = manifest.imgsz;
    let mut inputs = Vec::new();
    // The first input decodes as many classes at a time as possible, the others fewer in turn.
    let chunk = |index: usize| match index {
        0 => options.max_classes,
        _ => [CLASSES_OF_A_SCENE, 1, 2, 3][(index - 1) % 4].min(options.max_classes),
    };
    for index in 0..options.random_inputs {
        let mut random = Random::new(options.seed, 1 << 32 | index as u64);
        let values = (0..3 * side * side).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
        let pixels = Tensor::f32(&[1, 3, side, side], values)?;
        let chunk = chunk(inputs.len());
        let classes: Vec<usize> = (0..chunk.min(vocabulary().len())).collect();
        let name = format!("random input {index}");
        inputs.push(Input::new(name, Pixels::Random(pixels), &classes, chunk)?);
    }
    let generator = SceneGenerator::new(options.seed, SceneOptions::default())?;
    for index in 0..options.scenes {
        let scene = generator.scene(index as u64);
        let labels: Vec<&str> = scene.objects.iter().map(|object| object.label).collect();
        let mut classes = indices_of(&labels)?;
        classes.sort_unstable();
        classes.dedup();
        // Others that are not in the scene.
        let chunk = chunk(inputs.len());
        let others = (0..vocabulary().len()).map(|step| (index + step) % vocabulary().len());
        let absent: Vec<usize> = others.filter(|class| !classes.contains(class)).collect();
        let missing = chunk.max(CLASSES_OF_A_SCENE).saturating_sub(classes.len());
        classes.extend(absent.into_iter().take(missing));
        let (name, pixels) = (format!("scene {index}"), Pixels::Scene(scene.image));
        inputs.push(Input::new(name, pixels, &classes, chunk)?);
    }
    Ok(inputs)
}
