//! Folders of images and data sets for the tests of labelling.

use std::path::{Path, PathBuf};

use ocelli::{BoundingBox, Detection, Error, Mask, Result, classes::ClassMap};
use serde_json::json;

use crate::label::disk::WRITES_LEFT;
use crate::label::run::SearchedImage;
use crate::label::{
    DataSetOptions, Existing, Format, ImageMode, ImageSet, LabelJob, LabelSettings, Shard, Summary,
    find_images, identity,
};

/// Width and height of every image.
pub(super) const SIDE: u32 = 64;

/// A folder with images and data sets. An image is a text, whose length is what is found in it; `bad` cannot be read.
pub(super) struct Place {
    pub folder: tempfile::TempDir,
    /// The folder of the images.
    pub images: String,
    /// Another folder of images.
    pub also: Option<String>,
}

/// A run that labels images.
#[derive(Clone)]
pub(super) struct Run {
    pub output: String,
    pub classes: Vec<&'static str>,
    pub options: DataSetOptions,
    pub shard: Option<Shard>,
    pub existing: Existing,
    /// Every image has an instance of each class, and not of the first one alone.
    pub finds_added: bool,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            output: "set".into(),
            classes: vec!["dog"],
            options: DataSetOptions { validation_share: 0.0, ..DataSetOptions::default() },
            shard: None,
            existing: Existing::default(),
            finds_added: false,
        }
    }
}

impl Place {
    pub fn new() -> Self {
        // In memory, because every write is synced.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { folder: folder.expect("a temporary folder"), images: "images".into(), also: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a temporary folder");
        std::fs::write(path, text).expect("a temporary folder");
    }

    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).expect("it is there");
    }

    /// Writes images of these names and lengths.
    pub fn images(&self, images: &[(&str, usize)]) {
        images.iter().for_each(|(name, length)| self.image(name, *length));
    }

    pub fn image(&self, name: &str, length: usize) {
        self.write(&format!("{}/{name}", self.images), &"x".repeat(length));
    }

    /// Labels the images as the program does, with a detector that reads their lengths.
    pub fn label(&self, run: &Run) -> Result<Summary> {
        self.label_while(run, &mut || {})
    }

    /// The same, with something that happens between reading each image and writing its labels.
    pub fn label_while(&self, run: &Run, meanwhile: &mut dyn FnMut()) -> Result<Summary> {
        let mut job = self.open(run)?;
        job.label_groups(|job, first, todo| {
            let classes = if run.finds_added { (first..run.classes.len()).collect() } else { vec![0] };
            for file in todo {
                let identity = identity(&file.path);
                let found = detect_all(&file.path, classes.iter().map(|class| run.classes[*class]));
                meanwhile();
                let seen = SearchedImage {
                    file: &file,
                    identity,
                    found,
                    first,
                    classes: classes.clone(),
                    device: 0,
                };
                job.finish_image(seen, &mut |_| Ok(()))?;
            }
            Ok(())
        })?;
        job.finish(&mut || Ok(()))
    }

    pub fn open(&self, run: &Run) -> Result<LabelJob> {
        let settings =
            LabelSettings { masks: true, ..LabelSettings::new(ClassMap::from_names(run.classes.clone())) };
        let described = json!({"classes": settings.classes.classes});
        let output = self.path(&run.output);
        let folders: Vec<PathBuf> = [Some(&self.images), self.also.as_ref()]
            .into_iter()
            .flatten()
            .map(|name| self.path(name))
            .collect();
        let images = ImageSet::new(find_images(&folders, &output)?);
        LabelJob::open_described(
            &output,
            &described,
            &settings,
            &run.options,
            images,
            run.shard,
            run.existing,
        )
    }

    /// Labels the images, and stops after some writes as `kill -9` would. Returns whether it ended before.
    pub fn label_and_stop(&self, run: &Run, writes: u64) -> bool {
        stopping(writes, || self.label(run)).is_ok()
    }
}

/// Stops what `work` writes after some writes.
pub(super) fn stopping<T>(writes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    WRITES_LEFT.set(writes);
    let ended = work();
    WRITES_LEFT.set(u64::MAX);
    ended
}

pub(super) fn detect(path: &Path) -> Result<((u32, u32), Vec<Detection>)> {
    detect_all(path, ["dog"].into_iter())
}

/// An instance of each of these classes.
fn detect_all<'a>(
    path: &Path,
    classes: impl Iterator<Item = &'a str>,
) -> Result<((u32, u32), Vec<Detection>)> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("cannot read", path, e))?;
    if text == "bad" {
        return Err(Error::invalid_data("it is not an image"));
    }
    let left = text.len() as f32 / 20.0;
    let instance = |(class_id, class): (usize, &str)| {
        let row = row_of(class);
        let mut pixels = vec![0; (SIDE * SIDE) as usize];
        pixels[text.len() + row * SIDE as usize] = 1;
        let mask = Mask::from_bitmap(&pixels, SIDE, SIDE).expect("the size is right");
        let bbox = BoundingBox::new(left, row as f32, left + 1.0, row as f32 + 1.0);
        Detection { class_id, label: "".into(), score: 0.9, bbox, mask: Some(mask) }
    };
    Ok(((SIDE, SIDE), classes.enumerate().map(instance).collect()))
}

/// The row of the instances of a class: it shows when ids of one order of the classes are read as those of another.
pub(super) fn row_of(class: &str) -> usize {
    ["dog", "cat", "car", "cow"].iter().position(|name| *name == class).unwrap_or(0) * 2
}

/// The label file of an image with this length.
pub(super) fn text_of(length: usize, format: Format) -> String {
    format!("0{}\n", place_of(length, format, 0))
}

/// The text after the class in the line of an instance, in an image with this length.
pub(super) fn place_of(length: usize, format: Format, row: usize) -> String {
    let share = |value: f64| format!("{:.6}", value / f64::from(SIDE));
    let (left, side) = (f64::from(length as f32 / 20.0), f64::from(SIDE));
    match format {
        Format::Yolo => {
            let right = f64::from(length as f32 / 20.0 + 1.0);
            let middle = share(row as f64 + 0.5);
            format!(" {} {middle} {} {}", share((left + right) / 2.0), share(right - left), share(1.0))
        }
        _ => {
            let (x, y) = ((length as f64) % side, (length as f64 / side).floor() + row as f64);
            let points = [(x, y), (x + 1.0, y), (x + 1.0, y + 1.0), (x, y + 1.0)];
            points.iter().map(|(x, y)| format!(" {} {}", share(*x), share(*y))).collect()
        }
    }
}

pub(super) const MINE: &str = "0 0.5 0.5 0.1 0.1\n";
/// The same as a polygon: whole pixels.
pub(super) const MINE_POLYGON: &str =
    "0 0.457031 0.457031 0.535156 0.457031 0.535156 0.535156 0.457031 0.535156\n";

pub(super) fn copies() -> DataSetOptions {
    DataSetOptions { images: ImageMode::Copy, ..Run::default().options }
}
