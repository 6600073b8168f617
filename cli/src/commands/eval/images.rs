//! The images of an evaluation and their ground truth.

use std::path::PathBuf;

use ocelli::{Error, ErrorKind, Image};
use ocelli_datasets::eval::{Truth, TruthBuilder, TruthImage};
use ocelli_datasets::scenes::{SceneGenerator, SceneOptions, vocabulary};

use super::EvalArgs;
use crate::{LogArgs, Progress, interrupted};

/// Every run draws the same scenes.
const SEED: u64 = 1;

/// The images and their ground truth.
pub struct Images {
    pub truth: Truth,
    /// Where they are from, for the report.
    pub description: String,
    /// The images to evaluate.
    pub ids: Vec<u64>,
    /// Names of images that could not be read.
    pub failed: Vec<String>,
    origin: Origin,
}

enum Origin {
    Folder(PathBuf),
    Scenes(SceneGenerator),
    /// A results file is evaluated, without images.
    None,
}

impl Images {
    /// Reads the annotations, or draws the scenes.
    pub fn open(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<Self> {
        let has_model = args.compare.is_empty() || args.compare.iter().any(|path| !path.is_file());
        let needed = has_model && args.predictions.is_none();
        let (truth, description, origin) = match (args.scenes, args.annotations(), args.images()) {
            (Some(count), _, _) => {
                let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
                let truth = draw_all(&generator, count, log)?;
                let description = format!("{count} drawn scenes, seed {SEED}");
                (truth, description, Origin::Scenes(generator))
            }
            (None, Some(path), folder) => {
                let origin = match folder {
                    Some(_) if !needed && args.coco.is_some() => Origin::None,
                    Some(folder) if folder.is_dir() => Origin::Folder(folder),
                    Some(folder) => {
                        let message = format!("no images, {}: no such folder", folder.display());
                        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
                    }
                    None if needed => {
                        let message = "no images: name their folder with --images, or a results file with --predictions";
                        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
                    }
                    None => Origin::None,
                };
                (Truth::open(&path)?, path.display().to_string(), origin)
            }
            (None, None, _) => unreachable!("`check` requires one of them"),
        };
        let mut ids = truth.image_ids();
        ids.truncate(args.max_images.unwrap_or(usize::MAX));
        Ok(Self { truth, description, ids, failed: Vec::new(), origin })
    }

    /// The name of an image.
    pub fn name(&self, id: u64) -> &str {
        self.image(id).map_or("", |image| image.file_name.as_str())
    }

    fn image(&self, id: u64) -> Option<&TruthImage> {
        // Ids are consecutive in most files, and always in scenes.
        let images = self.truth.images();
        let guess = images.get((id as usize).wrapping_sub(1)).filter(|image| image.id == id);
        guess.or_else(|| images.iter().find(|image| image.id == id))
    }

    /// Reads an image and checks its size against the annotations.
    pub fn read(&self, id: u64) -> ocelli::Result<Image> {
        let annotated = self.image(id).expect("ids are those of images");
        let folder = match &self.origin {
            Origin::Scenes(generator) => return Ok(generator.scene(id - 1).image),
            Origin::Folder(folder) => folder,
            Origin::None => unreachable!("`open` requires images for models"),
        };
        let path = folder.join(&annotated.file_name);
        let image = Image::open(&path)?;
        let size = (image.width(), image.height());
        if annotated.size != (0, 0) && annotated.size != size {
            let message = format!(
                "{}: its size is {}×{}, in the annotations it is {}×{}",
                path.display(),
                size.0,
                size.1,
                annotated.size.0,
                annotated.size.1
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        Ok(image)
    }
}

/// The ground truth of all scenes. Pixels are drawn again when needed: drawing takes a few milliseconds, and keeping
/// hundreds of images too much memory.
fn draw_all(generator: &SceneGenerator, count: u32, log: &LogArgs) -> anyhow::Result<Truth> {
    let progress = Progress::new(log, u64::from(count));
    progress.message("drawing");
    let mut truth = TruthBuilder::new(vocabulary().iter().copied());
    for number in 0..count {
        interrupted()?;
        let scene = generator.scene(u64::from(number));
        let name = format!("scene {number:04}");
        let image = truth.add_image(name, scene.image.width(), scene.image.height());
        for object in scene.objects {
            let class = vocabulary().iter().position(|name| *name == object.label);
            let class = class.expect("scenes contain the vocabulary only");
            truth.add_instance(image, class, object.bbox, Some(object.mask));
        }
        progress.step();
    }
    Ok(truth.build()?)
}
