//! Drawn scenes and their text prompts.

use anyhow::Context;
use ocelli::{Image, Prompts};
use ocelli_datasets::eval::{Truth, TruthBuilder};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions, vocabulary};

/// The scenes that `ocelli eval --scenes` draws.
const SEED: u64 = 1;
/// Others, to calibrate on.
const OTHER_SEED: u64 = 1001;

/// Drawn scenes and their text prompts.
pub struct Scenes {
    pub(super) images: Vec<Image>,
    pub(super) truth: Truth,
    pub(super) prompts: Prompts,
    pub(super) category_ids: Vec<u64>,
}

impl Scenes {
    /// Draws the first `count` scenes, with the `classes` most frequent classes as prompts.
    ///
    /// # Errors
    /// If `count` or `classes` is 0.
    pub fn draw(count: usize, classes: usize) -> anyhow::Result<Self> {
        let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
        let scenes: Vec<_> = (0..count as u64).map(|number| generator.scene(number)).collect();
        let mut seen: Vec<(usize, usize)> = (0..vocabulary().len()).map(|class| (0, class)).collect();
        for object in scenes.iter().flat_map(|scene| &scene.objects) {
            let class = vocabulary().iter().position(|name| *name == object.label);
            seen[class.context("a scene shows an object outside the vocabulary")?].0 += 1;
        }
        seen.sort_by_key(|&(count, class)| (std::cmp::Reverse(count), class));
        let prompted: Vec<usize> = seen.iter().take(classes).map(|(_, class)| *class).collect();
        let names: Vec<&str> = prompted.iter().map(|class| vocabulary()[*class]).collect();
        let mut truth = TruthBuilder::new(names.iter().copied());
        let mut images = Vec::new();
        for (number, scene) in scenes.into_iter().enumerate() {
            let size = (scene.image.width(), scene.image.height());
            let image = truth.add_image(format!("scene {number}"), size.0, size.1);
            for object in scene.objects {
                if let Some(class) = names.iter().position(|name| *name == object.label) {
                    truth.add_instance(image, class, object.bbox, None);
                }
            }
            images.push(scene.image);
        }
        let truth = truth.build()?;
        let category_ids = truth.categories().iter().map(|category| category.id).collect();
        Ok(Self { images, truth, prompts: Prompts::new(names)?, category_ids })
    }

    /// Draws `count` images that are not among the scenes.
    ///
    /// # Errors
    /// If `count` is 0.
    pub fn others(count: usize) -> anyhow::Result<Vec<Image>> {
        let generator = SceneGenerator::new(OTHER_SEED, SceneOptions::default())?;
        Ok((0..count as u64).map(|number| generator.scene(number).image).collect())
    }

    /// Number of scenes.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether there are no scenes.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}
