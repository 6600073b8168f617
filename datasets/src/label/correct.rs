//! A labelled data set in the hands of a person: what is in its label files, and what the person makes of them.
//!
//! A saved file is the person's from then on, even if it has the labels that were there before: looking at them was the work.

mod coco;
mod everything;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ocelli::{BoundingBox, Error, ErrorKind, Result};

use crate::label::formats::yolo_line::{self, Line};
use crate::label::hash::hash_of_bytes;
use crate::label::images::image_id;
use crate::label::store::layout::image_path;
use crate::label::store::{
    Book, Contents, Journal, LabelFile, OutputFolder, Owner, STATE_FOLDER, State, classes_of, journal_path,
};
use crate::label::{Format, LabelledInstance, identity, source};

pub(crate) use everything::{AllLabels, ImageLabels, all_labels};

/// A labelled data set that a person looks at and corrects. It is read again whenever it changes.
#[derive(Clone, Default)]
pub struct CorrectedSet {
    root: PathBuf,
    classes: Vec<String>,
    images: Vec<SetImage>,
    by_id: HashMap<String, usize>,
    /// Size and time of the journal when it was read.
    journal: (u64, u64),
}

/// An image of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetImage {
    /// A short name that stays the same, without meaning as a path.
    pub id: String,
    /// The name in the data set.
    pub name: String,
    /// Width of the upright image in pixels.
    pub width: u32,
    /// Height of the upright image in pixels.
    pub height: u32,
    source: PathBuf,
    /// Size and time of the image that the labels describe.
    identity: (u64, u64),
    /// The split on record.
    validation: Option<bool>,
}

/// The labels of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    /// Identifies the content: saving names the version that was changed.
    pub version: String,
    /// A person changed them.
    pub is_corrected: bool,
    /// The instances, in the order of the lines.
    pub instances: Vec<LabelledInstance>,
    /// Number of the last instances that no label file has yet: those of classes that were added after a person corrected it.
    /// Saving them puts them there.
    pub added: usize,
}

const NOT_LABELLED: &str = "it is not labelled any more";
const CHANGED: &str = "they changed meanwhile; load the image again, and repeat the correction";

impl CorrectedSet {
    /// Opens a data set that `ocelli label` wrote.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the folder is none, or one with neither YOLO's label files nor `annotations.json`;
    /// [`ErrorKind::InvalidData`] if its state is corrupt, or a changed `annotations.json` cannot be followed.
    pub fn open(root: &Path) -> Result<Self> {
        let refuse = |why: &str| Err(of_gallery(ErrorKind::InvalidArgument, root, why));
        if !root.join(STATE_FOLDER).is_dir() {
            return refuse(if root.is_dir() {
                "it is not a labelled data set; label the images first, and name the folder of the labels"
            } else {
                "no such folder"
            });
        }
        let mut set = Self { root: root.to_owned(), ..Self::default() };
        if State::load(root)?.contents.is_none() {
            return refuse("its labelling has not started; run the command that labels it first");
        }
        let contents = set.read()?;
        if contents.options.yolo_folders().is_empty() && !contents.options.has(Format::Coco) {
            return refuse(
                "it has neither YOLO's label files nor annotations.json; label it with one of these formats",
            );
        }
        if set.peek()?.is_coco() && !State::load(root)?.changed_annotations()?.is_empty() {
            let folder = OutputFolder::open_existing(root)?;
            let mut book = set.book(set.open_to_write(&folder)?)?;
            let (journal, _) = Journal::open_existing(&journal_path(root))?;
            book.write_whole_files(&journal, set.image_files())?;
        }
        Ok(set)
    }

    /// Opens the state to write to it, with what was changed in `annotations.json` if labels are there alone.
    fn open_to_write(&self, folder: &OutputFolder) -> Result<State> {
        let mut state = State::open(folder)?;
        state.recover(&OutputFolder::FOLDERS)?;
        let options = self.contents(&state)?.options;
        let is_coco = options.yolo_folders().is_empty();
        if is_coco { state.follow_annotations(&options, None) } else { Ok(state) }
    }

    /// Reads which images there are.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`ErrorKind::Mismatch`] after a restart that was stopped before it began.
    pub fn refresh(&mut self) -> Result<()> {
        self.read().map(drop)
    }

    fn read(&mut self) -> Result<Contents> {
        let contents = self.contents(&State::load(&self.root)?)?;
        let path = journal_path(&self.root);
        self.journal = identity(&path);
        let (journal, settings) = Journal::open_existing(&path)?;
        let classes = classes_of(&settings).unwrap_or_default();
        let mut images = Vec::new();
        for (name, entry) in &journal.entries {
            let Some(record) = journal.read_labelled(entry)? else { continue };
            images.push(SetImage {
                id: image_id(name),
                name: name.clone(),
                width: record.width,
                height: record.height,
                source: record.source,
                identity: record.identity,
                validation: entry.validation,
            });
        }
        self.by_id = images.iter().enumerate().map(|(at, image)| (image.id.clone(), at)).collect();
        self.classes = classes.names().map(str::to_owned).collect();
        self.images = images;
        Ok(contents)
    }

    /// The contents of the data set, which are not known from the start of a restart until it labels.
    fn contents(&self, state: &State) -> Result<Contents> {
        state.contents.clone().ok_or_else(|| {
            let why =
                "a restart of the data set was stopped; run its command again, and load the image again";
            of_gallery(ErrorKind::Mismatch, &self.root, why)
        })
    }

    /// The names of the classes, by id.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The images that are labelled, by name.
    pub fn images(&self) -> &[SetImage] {
        &self.images
    }

    /// An image by its id.
    pub fn image(&self, id: &str) -> Option<&SetImage> {
        self.by_id.get(id).map(|at| &self.images[*at])
    }

    /// The bytes of the file of an image: the one in the data set, or its source.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read.
    pub fn read_image(&self, image: &SetImage) -> Result<Vec<u8>> {
        let path = self.file(image);
        source::read(&path).map_err(|e| Error::io("cannot read the image", Path::new(&image.name), e))
    }

    /// The version of the file of an image: its size and its time.
    pub fn file_version(&self, image: &SetImage) -> (u64, u64) {
        identity(&self.file(image))
    }

    fn file(&self, image: &SetImage) -> PathBuf {
        let in_set = [false, true]
            .map(|validation| self.root.join(format!("images/{}", image_path(&image.name, validation))));
        in_set.into_iter().find(|path| path.is_file()).unwrap_or_else(|| image.source.clone())
    }

    /// The data set as it is now: a run may have added images or classes since it was read.
    fn current(&self) -> Result<Cow<'_, Self>> {
        if identity(&journal_path(&self.root)) == self.journal {
            return Ok(Cow::Borrowed(self));
        }
        let mut current = self.clone();
        current.refresh()?;
        Ok(Cow::Owned(current))
    }

    /// The same image in the data set as it is now.
    fn current_image(&self, image: &SetImage) -> Result<SetImage> {
        self.image(&image.id).cloned().ok_or_else(|| refusal(image, NOT_LABELLED))
    }

    /// Identifies labels of an image: the classes that their ids mean, the file that they describe and the one that is shown,
    /// which is an earlier one until a run that was stopped is continued, and their text.
    fn version(&self, image: &SetImage, text: &str) -> String {
        let classes = self.classes.join("\n");
        let (size, described, shown) =
            ((image.width, image.height), image.identity, self.file_version(image));
        hash_of_bytes(format!("{classes}\n\n{size:?} {described:?} {shown:?}\n{text}"))
    }

    /// Opens the labels to read them, while another process may write to the data set.
    fn peek(&self) -> Result<Book> {
        self.book(State::load(&self.root)?)
    }

    fn book(&self, state: State) -> Result<Book> {
        let options = self.contents(&state)?.options;
        let splits = self.images.iter().filter_map(|image| Some((image.name.as_str(), image.validation?)));
        Ok(Book::new(state, &options, &self.classes, splits))
    }

    /// The labels of an image.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if a line is not one of YOLO's; [`ErrorKind::Io`] if the file cannot be read;
    /// [`ErrorKind::Mismatch`] if the image is not in the data set any more.
    pub fn labels(&self, image: &SetImage) -> Result<Labels> {
        let current = self.current()?;
        let image = &current.current_image(image)?;
        let mut book = current.peek()?;
        if book.is_coco() {
            let (journal, _) = Journal::open_existing(&journal_path(&current.root))?;
            return current.coco_labels(&mut book, &journal, image).map(|(_, labels)| labels);
        }
        current.labels_of(image, &book.label_files(&image.name)?)
    }

    /// The labels of an image whose label files are these; the first one is shown.
    fn labels_of(&self, image: &SetImage, files: &[LabelFile]) -> Result<Labels> {
        let Some(LabelFile { file, text, added, .. }) = files.first() else {
            let message = format!("labels of {}: the data set has no label files", image.name);
            return Err(Error::invalid_data(message));
        };
        let size = (image.width, image.height);
        let instances = yolo_line::parse_labels(text, size).map_err(|why| wrong_line(file, &why))?;
        let is_corrected = files.iter().any(|label| label.owner == Owner::Person);
        Ok(Labels { version: self.version(image, text), is_corrected, instances, added: *added })
    }

    /// Saves the labels of an image: those of `instances` whose line is named keep what was not changed, the others are new,
    /// and lines that are not named are removed. A [mask](LabelledInstance::mask) becomes the polygon of its line, or its
    /// box where
    /// lines are boxes. The label files are the person's from then on.
    ///
    /// In a data set of COCO alone, the labels of this image are the person's, and `annotations.json` is written again with
    /// them: now, by later runs and by merges. The mask of an instance moves with its box.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if the labels, the image or the classes are not of `version` any more; [`ErrorKind::InvalidArgument`] for an unknown class
    /// or line and for a box without area; [`ErrorKind::Io`] if another process is writing to the data set. Nothing is
    /// changed then.
    pub fn save(&self, image: &SetImage, version: &str, instances: &[LabelledInstance]) -> Result<Labels> {
        // What the data set has is read once it is locked.
        let folder = OutputFolder::open_existing(&self.root)?;
        let current = self.current()?;
        let image = &current.current_image(image)?;
        let mut book = current.book(current.open_to_write(&folder)?)?;
        let instances = &with_boxes_of_masks(image, instances)?;
        if book.is_coco() {
            return current.save_in_coco(book, image, version, instances);
        }
        let size = (image.width, image.height);
        let files = book.label_files(&image.name)?;
        if files.first().is_some_and(|first| current.version(image, &first.text) != version) {
            return Err(refusal(image, CHANGED));
        }
        let parse = |label: &LabelFile| {
            Line::parse_all(&label.text, size).map_err(|why| wrong_line(&label.file, &why))
        };
        let lines = files.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let first = lines.first().map_or(&[][..], Vec::as_slice);
        let before: Vec<_> = first.iter().map(|line| (line.class, line.bbox)).collect();
        current.check(image, instances, &before)?;
        let changed = files.into_iter().zip(&lines).enumerate().map(|(number, (label, lines))| {
            let text = match number {
                0 => yolo_line::changed(lines, instances, label.format, size),
                _ => yolo_line::followed(first, lines, instances, size),
            };
            (label.file, label.format, text)
        });
        book.save(&image.name, changed.collect())?;
        current.labels_of(image, &book.label_files(&image.name)?)
    }

    /// Checks what is to be saved against the classes and boxes that are there. Those that were not changed may be beyond the list
    /// and without area.
    fn check(
        &self,
        image: &SetImage,
        instances: &[LabelledInstance],
        lines: &[(usize, BoundingBox)],
    ) -> Result<()> {
        let refuse = |message: String| Err(Error::invalid_argument(message));
        let mut used = vec![false; lines.len()];
        for (number, instance) in instances.iter().enumerate() {
            let before = instance.line.and_then(|line| lines.get(line));
            let has_its_class = before.is_some_and(|(class, _)| *class == instance.class);
            if instance.class >= self.classes.len() && !has_its_class {
                let (class, classes) = (instance.class, self.classes.len());
                return refuse(format!("instance {number}: class {class}, expected an id below {classes}"));
            }
            let bbox = &instance.bbox;
            let is_inside = bbox.x2 > 0.0
                && bbox.y2 > 0.0
                && bbox.x1 < image.width as f32
                && bbox.y1 < image.height as f32;
            let is_untouched = before.is_some_and(|(_, before)| yolo_line::is_same(before, bbox));
            if !is_untouched && (!bbox.is_finite() || !bbox.has_area() || !is_inside) {
                return refuse(format!("instance {number}: expected a box with an area, inside the image"));
            }
            if let Some(line) = instance.line
                && used.get_mut(line).is_none_or(|used| std::mem::replace(used, true))
            {
                return refuse(format!("instance {number}: expected a line of the file, and each line once"));
            }
        }
        Ok(())
    }
}

/// The instances, those with a mask with its box.
fn with_boxes_of_masks(image: &SetImage, instances: &[LabelledInstance]) -> Result<Vec<LabelledInstance>> {
    let with_box = |(number, instance): (usize, &LabelledInstance)| {
        let mut instance = instance.clone();
        if let Some(mask) = &instance.mask {
            let is_large = (mask.width(), mask.height()) == (image.width, image.height);
            let bbox = mask.bounding_box().filter(|_| is_large);
            instance.bbox = bbox.ok_or_else(|| {
                Error::invalid_argument(format!(
                    "instance {number}: expected a mask of {} × {} pixels, some of them in it",
                    image.width, image.height
                ))
            })?;
        }
        Ok(instance)
    };
    instances.iter().enumerate().map(with_box).collect()
}

/// The error for a data set that cannot be corrected.
fn of_gallery(kind: ErrorKind, path: &Path, why: &str) -> Error {
    Error::new(kind, format!("gallery, {}: {why}", path.display()))
}

/// The error for labels that are not those that the person saw.
fn refusal(image: &SetImage, why: &str) -> Error {
    Error::mismatch(format!("labels of {}: {why}", image.name))
}

fn wrong_line(file: &str, why: &str) -> Error {
    Error::invalid_data(format!("labels, {file}, {why}; correct the file in an editor"))
}

#[cfg(test)]
mod tests;
