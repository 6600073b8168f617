//! Labels images one after the other, with a line in the journal for each.

mod run;
mod videos;

use std::collections::HashMap;
use std::path::Path;

use ocelli::postprocess::PostProcessOptions;
use ocelli::{Error, Model, Result, prompt::MAX_CLASSES, tiles::Tiling};
use serde_json::Value;

use crate::label::disk::resumable;
use crate::label::run::prefetch::Prepared;
use crate::label::run::refine::Refiner;
use crate::label::source::is_member;
use crate::label::store::{DataSet, Existing, Opening, OutputFolder, Summary, is_growing, journal_path};
use crate::label::{
    CheckCancelled, DataSetOptions, Format, ImageFile, ImageSet, LabelSettings, Shard, Tracking, identity,
};
use ocelli::classes::{ClassMap, ExemplarImage};
pub(crate) use run::{SearchedImage, read};

/// The size and the time of the last change of an image, and its pixels, or why it cannot be read.
pub(crate) type ReadImage = ((u64, u64), Result<Prepared>);

/// An event while images are labelled.
#[derive(Debug)]
pub enum LabelEvent<'a> {
    /// The next image is about to be encoded or decoded.
    Waiting,
    /// An image is done.
    Done {
        /// Its name in the data set.
        name: &'a str,
        /// Number of instances in it.
        instances: usize,
    },
    /// An image cannot be labelled, or a video not be read to its end.
    Failed {
        /// The file.
        path: &'a Path,
        /// The reason.
        error: &'a Error,
    },
}

/// A callback for events. An error from it ends the job; finished images are kept.
pub type OnEvent<'e> = dyn FnMut(LabelEvent<'_>) -> Result<()> + 'e;

/// A data set that is being labelled.
pub struct LabelJob {
    pub(crate) data: DataSet,
    /// The images that are not labelled yet, or without classes that were added.
    pub(crate) todo: Vec<ImageFile>,
    pub(crate) classes: ClassMap,
    refiner: Refiner,
    pub(crate) masks: bool,
    tracking: Option<Tracking>,
    pub(crate) tiling: Option<Tiling>,
    /// In a row, by device.
    engine_failures: HashMap<usize, usize>,
}

impl LabelSettings {
    /// As [`post_processing`](Self::post_processing), for a data set in this folder. If classes are added to one, not all
    /// classes are looked for in every image, so that prompts have other numbers: the lowest threshold applies to all, and the
    /// threshold of each class afterwards.
    pub fn post_processing_for(&self, output: &Path) -> PostProcessOptions {
        let mut options = self.post_processing();
        if is_growing(&journal_path(output), self.classes.classes.len()) {
            let thresholds = std::mem::take(&mut options.class_confidence).into_values();
            options.confidence = thresholds.fold(options.confidence, f32::min);
        }
        options
    }
}

impl LabelJob {
    /// Checks whether a data set can be written to this folder. Nothing is changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if the folder contains something else.
    pub fn check_output(root: &Path) -> Result<()> {
        OutputFolder::check(root)
    }

    /// Starts a data set, or continues one.
    ///
    /// New images, changed images and images that failed are labelled. Label files that were corrected by hand stay, and so
    /// does the split of images that were labelled before.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if the folder contains something else;
    /// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the data set was started with other settings, or if
    /// corrected files have another format or other classes (the message lists them);
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if its state is corrupt;
    /// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if another process is writing to it or it cannot be written.
    pub fn open(
        root: &Path,
        model: &Model,
        settings: &LabelSettings,
        options: &DataSetOptions,
        whole: ImageSet,
        shard: Option<Shard>,
        existing: Existing,
    ) -> Result<Self> {
        settings.check_tracking(model)?;
        let described = settings.describe(model.manifest());
        Self::open_described(root, &described, settings, options, whole, shard, existing)
    }

    /// As [`open`](Self::open), with the first line of the journal.
    pub(crate) fn open_described(
        root: &Path,
        described: &Value,
        settings: &LabelSettings,
        options: &DataSetOptions,
        whole: ImageSet,
        shard: Option<Shard>,
        existing: Existing,
    ) -> Result<Self> {
        settings.check(options)?;
        check_tracking(settings, options, &whole, shard)?;
        check_exemplars(&settings.classes, &whole)?;
        let phrases = settings.classes.classes.iter().map(|class| class.phrases.len()).sum::<usize>();
        let classes = settings.classes.classes.len();
        if classes.max(phrases) > MAX_CLASSES {
            return Err(Error::invalid_argument(format!(
                "classes is {classes}, with {phrases} phrases: expected at most {MAX_CLASSES} of each"
            )));
        }
        let mut data = DataSet::open(Opening {
            folder: OutputFolder::open(root)?,
            described,
            options,
            classes: &settings.classes,
            whole,
            shard,
            existing,
            merges: false,
            identity: &|file| identity(&file.path),
        })?;
        Ok(Self {
            todo: data.find_todo()?,
            data,
            classes: settings.classes.clone(),
            refiner: Refiner::new(settings),
            masks: settings.masks,
            tracking: settings.tracking,
            tiling: settings.tiling,
            engine_failures: HashMap::new(),
        })
    }

    /// The images whose name is not the end of their path: another image has it, or trainers cannot use it. Frames of videos
    /// are not among them.
    pub fn renamed(&self) -> Vec<(&Path, &str)> {
        let files = self.data.set.files().iter().filter(|file| {
            file.frame.is_none() && !is_member(&file.path) && !file.path.ends_with(&file.name)
        });
        files.map(|file| (file.path.as_path(), file.name.as_str())).collect()
    }

    /// Number of images of this job, or of its shard.
    pub fn images(&self) -> usize {
        self.data.set.files().len()
    }

    /// Number of images of the whole job, in all shards.
    pub fn images_of_all_shards(&self) -> usize {
        self.data.contents.images as usize
    }

    /// Number of images that are not labelled yet.
    pub fn pending(&self) -> usize {
        self.todo.len()
    }

    /// Lists a video that cannot be read to its end in `failed.csv`, with the reason.
    pub fn list_broken(&mut self, video: &Path, why: String) {
        self.data.broken.push((video.to_owned(), why));
    }

    /// Writes every file of the data set from the journal. An error of `check_cancelled`, which is called for each image,
    /// ends it.
    ///
    /// # Errors
    /// The error of `check_cancelled`; [`ErrorKind::Io`](ocelli::ErrorKind::Io) if a file cannot be written.
    pub fn finish(self, check_cancelled: &mut CheckCancelled<'_>) -> Result<Summary> {
        self.data.finish(check_cancelled).map_err(resumable)
    }
}

/// Checks that objects are followed through videos, and only there.
fn check_tracking(
    settings: &LabelSettings,
    options: &DataSetOptions,
    whole: &ImageSet,
    shard: Option<Shard>,
) -> Result<()> {
    let why = match settings.tracking {
        Some(_) if shard.is_some() => {
            "shard: objects are followed through whole videos, which have no shards".to_owned()
        }
        None if whole.files().iter().any(|file| file.frame.is_some()) => {
            "tracking is missing: images are frames of videos".to_owned()
        }
        None if options.has(Format::YoutubeVis) => {
            format!("format {} needs videos, through which it follows objects", Format::YoutubeVis)
        }
        _ => return Ok(()),
    };
    Err(Error::invalid_argument(why))
}

/// Checks that the images of all exemplars exist.
fn check_exemplars(classes: &ClassMap, set: &ImageSet) -> Result<()> {
    for class in &classes.classes {
        for exemplar in &class.exemplars {
            let (image, why) = match &exemplar.image {
                ExemplarImage::Image(name) if !set.files().iter().any(|file| file.name == *name) => (
                    name.clone(),
                    "no image has this name; a name is the path below the folder of the images",
                ),
                ExemplarImage::File(file) if !file.is_file() => (file.display().to_string(), "no such file"),
                _ => continue,
            };
            let message = format!("exemplar of class \"{}\", {image}: {why}", class.name);
            return Err(Error::invalid_argument(message));
        }
    }
    Ok(())
}
