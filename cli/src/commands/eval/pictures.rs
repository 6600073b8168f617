//! The pictures, and what is in them.

use std::path::PathBuf;

use crate::{LogArgs, Progress, interrupted};
use ocelli::{Error, ErrorKind, Image};
use ocelli_datasets::eval::{Truth, TruthBuilder, TruthImage};
use ocelli_datasets::scenes::{SceneGenerator, SceneOptions, vocabulary};

use super::EvalArgs;

/// The scenes are the same for everybody who draws as many.
const SEED: u64 = 1;

/// Where pictures come from, and what is in them.
pub struct Pictures {
    pub truth: Truth,
    /// What they are, for people.
    pub description: String,
    /// Of the pictures that count.
    pub ids: Vec<u64>,
    /// Names of those that could not be read.
    pub failed: Vec<String>,
    origin: Origin,
}

enum Origin {
    Folder(PathBuf),
    Scenes(SceneGenerator),
    /// Answers are there already.
    Nowhere,
}

impl Pictures {
    /// Reads the annotations, or draws the scenes.
    pub fn open(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<Self> {
        let asks_models = args.compare.is_empty() || args.compare.iter().any(|path| !path.is_file());
        let needed = asks_models && args.predictions.is_none();
        let (truth, description, origin) = match (args.scenes, &args.annotations, &args.images) {
            (Some(count), _, _) => {
                let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
                let truth = draw_all(&generator, count, log)?;
                let description = format!("{count} drawn scenes, seed {SEED}");
                (truth, description, Origin::Scenes(generator))
            }
            (None, Some(path), folder) => {
                let origin = match folder {
                    Some(folder) if folder.is_dir() => Origin::Folder(folder.clone()),
                    Some(folder) => {
                        let message = format!("no pictures, {}: no such folder", folder.display());
                        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
                    }
                    None if needed => {
                        let message =
                            "no pictures: name their folder with --images, or answers with --predictions";
                        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
                    }
                    None => Origin::Nowhere,
                };
                (Truth::open(path)?, path.display().to_string(), origin)
            }
            (None, None, _) => unreachable!("one of them is named: that was checked"),
        };
        let mut ids = truth.image_ids();
        ids.truncate(args.max_images.unwrap_or(usize::MAX));
        Ok(Self { truth, description, ids, failed: Vec::new(), origin })
    }

    /// The name of a picture.
    pub fn name(&self, id: u64) -> &str {
        self.picture(id).map_or("", |picture| picture.file_name.as_str())
    }

    fn picture(&self, id: u64) -> Option<&TruthImage> {
        // Ids count up in most files, and those of scenes always.
        let pictures = self.truth.images();
        let guess = pictures.get((id as usize).wrapping_sub(1)).filter(|picture| picture.id == id);
        guess.or_else(|| pictures.iter().find(|picture| picture.id == id))
    }

    /// Reads a picture and checks that it is the one that was annotated.
    pub fn read(&self, id: u64) -> ocelli::Result<Image> {
        let picture = self.picture(id).expect("ids are those of pictures");
        let folder = match &self.origin {
            Origin::Scenes(generator) => return Ok(generator.scene(id - 1).image),
            Origin::Folder(folder) => folder,
            Origin::Nowhere => unreachable!("models are not asked without pictures: that was checked"),
        };
        let path = folder.join(&picture.file_name);
        let image = Image::open(&path)?;
        let size = (image.width(), image.height());
        if picture.size != (0, 0) && picture.size != size {
            let message = format!(
                "{}: it is {}×{}, but the annotations say {}×{}",
                path.display(),
                size.0,
                size.1,
                picture.size.0,
                picture.size.1
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        Ok(image)
    }
}

/// The truth of all scenes. Their pixels are drawn again when they are needed: a picture takes a few milliseconds to
/// draw, and hundreds of them too much memory to keep.
fn draw_all(generator: &SceneGenerator, count: u32, log: &LogArgs) -> anyhow::Result<Truth> {
    let progress = Progress::new(log, u64::from(count));
    progress.message("drawing");
    let mut truth = TruthBuilder::new(vocabulary().iter().copied());
    for number in 0..count {
        interrupted()?;
        let scene = generator.scene(u64::from(number));
        let name = format!("scene {number:04}");
        let picture = truth.add_image(name, scene.image.width(), scene.image.height());
        for object in scene.objects {
            let class = vocabulary().iter().position(|name| *name == object.label);
            let class = class.expect("scenes show what is in the vocabulary");
            truth.add_instance(picture, class, object.bbox, Some(object.mask));
        }
        progress.step();
    }
    Ok(truth.build()?)
}
