//! The images of an evaluation and their ground truth.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ocelli::{Error, ErrorKind, Image};
use ocelli_datasets::eval::{Truth, TruthBuilder, TruthImage};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions, vocabulary};

use super::EvalArgs;
use crate::output::{diagnostic, one_line};
use crate::{LogArgs, Progress, interrupted, usage};

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
                let is_data_set =
                    path.is_dir() || path.extension().is_some_and(|one| one == "yaml" || one == "yml");
                let known = if is_data_set { Some(Truth::open(&path)?) } else { None };
                let own = known.as_ref().and_then(Truth::folder).map(Path::to_path_buf);
                let origin = match folder.or(own.filter(|_| needed)) {
                    Some(_) if !needed && args.coco.is_some() => Origin::None,
                    Some(folder) if folder.is_dir() => Origin::Folder(folder),
                    Some(folder) => {
                        refuse!("no images, {}: no such folder", folder.display());
                    }
                    None if needed => {
                        refuse!(
                            "no images: name their folder with --images, or a results file with --predictions"
                        );
                    }
                    None => Origin::None,
                };
                let truth = known.map_or_else(|| Truth::open(&path), Ok)?;
                (truth, path.display().to_string(), origin)
            }
            (None, None, _) => unreachable!("`check` requires one of them"),
        };
        let mut ids = truth.image_ids();
        ids.truncate(args.max_images.unwrap_or(usize::MAX));
        let mut images = Self { truth, description, ids, failed: Vec::new(), origin };
        if needed {
            images.check_files(args)?;
        }
        Ok(images)
    }

    /// Reports the images that are not in the folder, in one line, and leaves them out.
    fn check_files(&mut self, args: &EvalArgs) -> anyhow::Result<()> {
        let Origin::Folder(folder) = &self.origin else { return Ok(()) };
        let is_missing = |id: &u64| self.path(*id).is_some_and(|path| !path.exists());
        let (missing, there): (Vec<u64>, Vec<u64>) = self.ids.iter().partition(|id| is_missing(id));
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter().map(|id| self.name(*id).to_owned()).collect();
        let some = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > 5 { ", …" } else { "" };
        let advice = match self.folder_with(&names, folder, args) {
            Some(found) => format!("; they are in {0}: try --images {0}", found.display()),
            None => "; names in the annotations are relative to the folder of --images".into(),
        };
        let (count, all) = (names.len(), self.ids.len());
        let message =
            format!("{}: {count} of {all} images do not exist: {some}{more}{advice}", folder.display());
        if there.is_empty() {
            return Err(usage(message));
        }
        diagnostic(&format!("error: {}", one_line(&message)));
        (self.ids, self.failed) = (there, names);
        Ok(())
    }

    /// A folder near the named ones that has the images.
    fn folder_with(&self, names: &[String], folder: &Path, args: &EvalArgs) -> Option<PathBuf> {
        let annotations = args.annotations();
        let near = [Some(folder), annotations.as_deref()].into_iter().flatten();
        // The last part of a relative path is in the current folder.
        let here = |path| if path == Path::new("") { Path::new(".") } else { path };
        let near =
            near.flat_map(|path| path.ancestors().take(3)).map(here).filter(|path: &&Path| path.is_dir());
        let below = |path: &Path| {
            let mut inner: Vec<PathBuf> =
                std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            inner.sort();
            std::iter::once(path.to_owned()).chain(inner.into_iter().filter(|path| path.is_dir()))
        };
        let mut candidates = near.flat_map(below);
        let found = candidates.find(|path| names.iter().take(100).all(|name| path.join(name).is_file()))?;
        Some(found.strip_prefix(".").map_or(found.clone(), Path::to_path_buf))
    }

    /// The file of an image.
    fn path(&self, id: u64) -> Option<PathBuf> {
        let Origin::Folder(folder) = &self.origin else { return None };
        let name = &self.image(id)?.file_name;
        let path = folder.join(name);
        if path.exists() {
            return Some(path);
        }
        // Names that were written on Windows; names from the root of a data set, where a folder in it is named.
        let name = name.replace('\\', "/");
        let mut short = Path::new(&name).components();
        let mut candidates = vec![folder.join(&name)];
        while self.truth.folder().is_some() && short.next().is_some() && short.as_path().file_name().is_some()
        {
            candidates.push(folder.join(short.as_path()));
        }
        Some(candidates.into_iter().find(|path| path.exists()).unwrap_or(path))
    }

    /// Size of the file of an image and time of its last change; zeros if they are unknown.
    pub fn stamp(&self, id: u64) -> (u64, u64) {
        let data = self.path(id).and_then(|path| path.metadata().ok());
        data.map_or((0, 0), |data| {
            let changed = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            (data.len(), changed.map_or(0, |since| since.as_nanos() as u64))
        })
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
        if let Origin::Scenes(generator) = &self.origin {
            return Ok(generator.scene(id - 1).image);
        }
        let path = self.path(id).expect("`open` requires images for models");
        let image = Image::open(&path)?;
        let size = (image.width(), image.height());
        let (width, height) = (annotated.width, annotated.height);
        if (width, height) != (0, 0) && (width, height) != size {
            let message = format!(
                "{}: its size is {}×{}, in the annotations it is {}×{}",
                path.display(),
                size.0,
                size.1,
                width,
                height
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
