//! The images of an evaluation and their ground truth.

use std::path::{Path, PathBuf};

use ocelli::{BoundingBox, Error, Image, Mask, Result};

use super::entries::entries;
use super::{
    Contender, EvalJournal, EvalReport, EvalTask, ImageResult, Overlap, Truth, TruthBuilder,
    difference_interval,
};
use crate::label::identity;
use crate::table::some;

/// Images and their ground truth.
pub struct EvalImages {
    /// The ground truth.
    pub truth: Truth,
    /// Their origin, for the report.
    pub description: String,
    /// The images to evaluate.
    pub ids: Vec<u64>,
    /// Names of images that could not be read.
    pub failed: Vec<String>,
    origin: Origin,
}

enum Origin {
    /// The folder of the images, and the annotations.
    Folder(PathBuf, PathBuf),
    Drawn(Box<dyn Fn(u64) -> Image>),
    /// A results file is evaluated, without images.
    None,
}

/// A step of an image in an evaluation.
#[derive(Clone, Copy, Debug)]
pub enum EvalStep<'a> {
    /// It is next: models detect in it, unless the journal has its results.
    Next,
    /// It cannot be read.
    Failed(&'a Error),
    /// It is done.
    Done,
}

impl EvalImages {
    fn new(truth: Truth, description: String, origin: Origin) -> Self {
        let ids = truth.image_ids();
        Self { truth, description, ids, failed: Vec::new(), origin }
    }

    /// Reads annotations, as [`Truth::open`]. If a model `needs_images`, they are in `folder`, or where the annotations say.
    ///
    /// # Errors
    /// Those of [`Truth::open`]; [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) without the images that
    /// are needed.
    pub fn open(annotations: &Path, folder: Option<&Path>, needs_images: bool) -> Result<Self> {
        let no_folder = |folder: &Path| format!("no images, {}: no such folder", folder.display());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Error::invalid_argument(no_folder(folder)));
        }
        let truth = Truth::open(annotations)?;
        let origin = match folder.or(truth.folder()) {
            _ if !needs_images => Origin::None,
            Some(folder) if folder.is_dir() => Origin::Folder(folder.to_owned(), annotations.to_owned()),
            Some(folder) => return Err(Error::invalid_argument(no_folder(folder))),
            None => {
                let message = "no images: name their folder, or a results file as predictions";
                return Err(Error::invalid_argument(message).about("images"));
            }
        };
        Ok(Self::new(truth, annotations.display().to_string(), origin))
    }

    /// Draws `count` images of the classes `names`. `draw` returns an image by its number from 0, and the class, box and mask of
    /// each object in it; an error of `step`, which is called before each image, ends it. Pixels are drawn again when needed:
    /// that takes a few milliseconds, and keeping hundreds of images too much memory.
    ///
    /// # Errors
    /// Those of `step`; [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if `count` is 0;
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if a class is not among
    /// `names`.
    pub fn drawn<L: AsRef<str>>(
        names: &[&str],
        count: u32,
        description: String,
        draw: impl Fn(u64) -> (Image, Vec<(L, BoundingBox, Mask)>) + 'static,
        mut step: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        if count == 0 {
            return Err(Error::argument("scenes", count, "at least 1"));
        }
        let mut truth = TruthBuilder::new(names.iter().copied());
        for number in 0..count {
            step()?;
            let (image, objects) = draw(number.into());
            let id = truth.add_image(format!("scene {number:04}"), image.width(), image.height());
            for (label, bbox, mask) in objects {
                let class = names.iter().position(|name| *name == label.as_ref()).unwrap_or(names.len());
                truth.add_instance(id, class, bbox, Some(mask));
            }
        }
        Ok(Self::new(truth.build()?, description, Origin::Drawn(Box::new(move |id| draw(id - 1).0))))
    }

    /// Leaves out the images that are not in the folder, and returns which they are, in one line.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if these are all.
    pub fn leave_out_missing(&mut self) -> Result<Option<Error>> {
        let Origin::Folder(folder, _) = &self.origin else { return Ok(None) };
        let is_missing = |id: &u64| self.path(*id).is_some_and(|path| !path.exists());
        let (missing, there): (Vec<u64>, Vec<u64>) = self.ids.iter().partition(|id| is_missing(id));
        if missing.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = missing.iter().map(|id| self.name(*id).to_owned()).collect();
        let advice = match self.folder_with(&names) {
            Some(found) => format!("; they are in {}", found.display()),
            None => "; names in the annotations are relative to the folder of the images".into(),
        };
        let (count, all, some) = (names.len(), self.ids.len(), some(&names, 5));
        let message = format!("{}: {count} of {all} images do not exist: {some}{advice}", folder.display());
        let error = Error::invalid_argument(message).about("images");
        if there.is_empty() {
            return Err(error);
        }
        (self.ids, self.failed) = (there, names);
        Ok(Some(error))
    }

    /// A folder near the named ones that has the images.
    fn folder_with(&self, names: &[String]) -> Option<PathBuf> {
        let Origin::Folder(folder, annotations) = &self.origin else { return None };
        // The last part of a relative path is in the current folder.
        let here = |path| if path == Path::new("") { Path::new(".") } else { path };
        let near = [folder, annotations].into_iter().flat_map(|path| path.ancestors().take(3));
        let near = near.map(here).filter(|path: &&Path| path.is_dir());
        let below = |path: &Path| {
            let inner = entries(path).unwrap_or_default().into_iter().filter(|path| path.is_dir());
            std::iter::once(path.to_owned()).chain(inner)
        };
        let mut candidates = near.flat_map(below);
        let found = candidates.find(|path| names.iter().take(100).all(|name| path.join(name).is_file()))?;
        Some(found.strip_prefix(".").map_or(found.clone(), Path::to_path_buf))
    }

    /// The file of an image.
    fn path(&self, id: u64) -> Option<PathBuf> {
        let Origin::Folder(folder, _) = &self.origin else { return None };
        let name = &self.truth.coco.get_img(id)?.file_name;
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

    fn name(&self, id: u64) -> &str {
        self.truth.coco.get_img(id).map_or("", |image| image.file_name.as_str())
    }

    /// Reads an image and checks its size against the annotations.
    fn read(&self, id: u64) -> Result<Image> {
        let annotated = self.truth.coco.get_img(id).expect("ids are those of images");
        if let Origin::Drawn(draw) = &self.origin {
            return Ok(draw(id));
        }
        let path = self.path(id).expect("models need images");
        let image = Image::open(&path)?;
        let (width, height) = (annotated.width, annotated.height);
        let (w, h) = (image.width(), image.height());
        if (width, height) != (0, 0) && (width, height) != (w, h) {
            let path = path.display();
            let message = format!("{path}: its size is {w}×{h}, in the annotations it is {width}×{height}");
            return Err(Error::mismatch(message));
        }
        Ok(image)
    }

    /// Detects in all images that the journal does not have. `step` is called with the name of an image and what happens to it;
    /// its error before an image ends the evaluation and is returned as a value, as what is finished counts: its images are
    /// [`ids`](Self::ids).
    ///
    /// # Errors
    /// Those of the models, the journal and `step`; [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if no image
    /// could be read.
    pub fn detect_all(
        &mut self,
        task: &EvalTask,
        contenders: &mut [Contender],
        mut journal: Option<&mut EvalJournal>,
        step: &mut dyn FnMut(&str, EvalStep<'_>) -> Result<()>,
    ) -> Result<Option<Error>> {
        let all = std::mem::take(&mut self.ids);
        for (number, &id) in all.iter().enumerate() {
            let name = self.name(id).to_owned();
            let stamp = self.path(id).map_or((0, 0), |path| identity(&path));
            let known = journal.as_mut().and_then(|journal| journal.take(id, stamp));
            if let Err(stop) = step(&name, EvalStep::Next) {
                return Ok(Some(stop));
            }
            let results = match known {
                Some(known) => Ok(known),
                None => match self.read(id) {
                    Ok(image) => {
                        let results = self.detect(task, contenders, (number, id), &image)?;
                        journal.as_mut().map_or(Ok(()), |journal| journal.add(id, stamp, &results))?;
                        Ok(results)
                    }
                    Err(error) => Err(error),
                },
            };
            match results {
                Ok(results) => {
                    let models = contenders.iter_mut().filter(|contender| contender.is_model());
                    models.zip(results).for_each(|(model, result)| model.add(result));
                    self.ids.push(id);
                }
                Err(error) => {
                    step(&name, EvalStep::Failed(&error))?;
                    self.failed.push(name.clone());
                }
            }
            step(&name, EvalStep::Done)?;
        }
        if self.ids.is_empty() {
            return Err(Error::invalid_data(format!("none of {} images could be read", all.len())));
        }
        Ok(None)
    }

    /// The result of each model.
    fn detect(
        &self,
        task: &EvalTask,
        contenders: &mut [Contender],
        (number, id): (usize, u64),
        image: &Image,
    ) -> Result<Vec<ImageResult>> {
        let instances = if task.options.gives_boxes() { self.truth.instances(id) } else { Vec::new() };
        let mut models: Vec<_> = contenders.iter_mut().filter(|contender| contender.is_model()).collect();
        let count = models.len();
        let mut results = vec![ImageResult::default(); count];
        // The models alternate, so that a slow period of the machine affects both.
        for turn in (0..count).map(|turn| (turn + number) % count) {
            results[turn] = models[turn].detect(id, image, instances.clone(), task)?;
        }
        Ok(results)
    }
}

impl EvalTask {
    /// The report of one contender, or of several on the same images.
    ///
    /// # Errors
    /// Those of [`average_precision`](super::average_precision).
    pub fn report(&self, images: &EvalImages, contenders: Vec<Contender>) -> Result<EvalReport> {
        let (truth, ids) = (&images.truth, &images.ids[..]);
        let of_classes = !self.options.classes.is_empty();
        let truth = if of_classes { &truth.of_categories(&self.category_ids)? } else { truth };
        let is_model = contenders.iter().any(Contender::is_model);
        let intervals = match &contenders[..] {
            [first, second] if !self.options.gives_boxes() => {
                let found = [&first.predictions, &second.predictions];
                let interval = |overlap| difference_interval(truth, found, ids, overlap);
                let boxes = interval(Overlap::Boxes)?;
                [boxes, if self.options.masks { interval(Overlap::Masks)? } else { None }]
            }
            _ => [None; 2],
        };
        let evaluate = |contender: Contender| contender.evaluate(&self.options, truth, ids);
        let report = EvalReport {
            truth: images.description.clone(),
            protocol: is_model.then_some(self.options.protocol),
            images: ids.len(),
            instances: truth.count_instances(ids),
            classes: truth.categories().len(),
            failed: images.failed.clone(),
            models: contenders.into_iter().map(evaluate).collect::<Result<_>>()?,
            ..EvalReport::default()
        };
        Ok(report.with_difference(intervals))
    }
}
