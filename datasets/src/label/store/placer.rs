//! Writes each image and its label file to their paths in the data set.

mod corrected;
mod dropped;
mod links;
mod pictures;
mod proposals;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ocelli::atomic_file::sync_folder;
use ocelli::{Error, ErrorKind, Result};

use crate::label::disk::{self, resumable};
use crate::label::formats::mask_files::{class_names, file_name, mask_files};
use crate::label::formats::{voc, yolo};
use crate::label::hash::{hash_of_bytes, hash_on_disk};
use crate::label::images::ImageSet;
use crate::label::record::Record;
use crate::label::settings::{DataSetOptions, Format, ImageMode};
use crate::label::source::{copy_to, identity, is_gone, is_member, is_readable, is_same, open_image};
use crate::label::store::files::{ClassHashes, Meaning, Owner, part_path, replace};
use crate::label::store::layout::{
    COCO_FILE, VOC_IMAGES, image_path, is_converted, label_files, label_path, link_to, masks_folder,
    voc_image,
};
use crate::label::store::saved::SavedLabels;
use crate::label::store::state::State;
pub(crate) use corrected::as_corrected;
use ocelli::classes::ClassMap;
pub(crate) use pictures::{has_picture as is_copy_of, is_time_of};

/// Writes images and label files.
pub(crate) struct Placer {
    pub root: PathBuf,
    pub options: DataSetOptions,
    /// The images for validation by their hashes.
    validation: HashSet<String>,
    /// The images that were written to the other split before, where they stay.
    exceptions: HashSet<String>,
    folders: HashSet<PathBuf>,
    pub state: State,
    pub classes: ClassHashes,
    /// The names of the classes.
    names: Vec<String>,
    /// The names of the classes in file names.
    file_names: Vec<String>,
    /// The images whose masks were written already.
    masked: HashSet<String>,
    /// The first of YOLO's files of each image that a person corrected, which tables and other formats follow.
    corrected: HashMap<String, (String, Format)>,
    /// The folder of a hard link that the file system refused: images are on another one.
    links_are_symbolic: bool,
}

impl Placer {
    pub fn new(
        state: State,
        root: &Path,
        options: &DataSetOptions,
        set: &ImageSet,
        classes: &ClassMap,
    ) -> Self {
        let validation = set.validation(options.validation_share).into_iter().map(str::to_owned).collect();
        Self {
            root: root.to_owned(),
            options: options.clone(),
            validation,
            exceptions: HashSet::new(),
            folders: HashSet::new(),
            state,
            classes: ClassHashes::new(classes.names()),
            names: classes.names().map(str::to_owned).collect(),
            file_names: class_names(classes.names()),
            masked: HashSet::new(),
            corrected: HashMap::new(),
            links_are_symbolic: false,
        }
    }

    /// The names of the classes, by id.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The split of an image that has no files yet.
    pub fn prefer(&mut self, name: &str, validation: bool) {
        if validation {
            self.validation.insert(name.to_owned());
        } else {
            self.validation.remove(name);
        }
    }

    pub fn is_validation(&self, name: &str) -> bool {
        self.validation.contains(name) != self.exceptions.contains(name)
    }

    pub fn meaning(&self, format: Option<Format>) -> Meaning {
        Meaning { format, classes: self.classes.all }
    }

    /// Keeps an image in the split that its files are in. Returns whether it is for validation.
    pub fn settle(&mut self, name: &str) -> Result<bool> {
        let by_hash = self.validation.contains(name);
        let split = self.split_on_disk(name)?.unwrap_or(by_hash);
        if split == by_hash {
            self.exceptions.remove(name);
        } else {
            self.exceptions.insert(name.to_owned());
        }
        Ok(split)
    }

    /// The split that has the label files of an image, or is on record for them. Without label files, images count.
    fn split_on_disk(&self, name: &str) -> Result<Option<bool>> {
        let folders = self.options.yolo_folders();
        let labels = |validation| {
            folders.iter().map(move |(folder, _)| format!("{folder}labels/{}", label_path(name, validation)))
        };
        let exists = |file: String| self.root.join(file).symlink_metadata().is_ok();
        let on_disk = [false, true].map(|validation| {
            let image = folders.is_empty().then(|| format!("images/{}", image_path(name, validation)));
            image.into_iter().chain(labels(validation)).any(exists)
        });
        let only = |splits: [bool; 2]| (splits[0] != splits[1]).then_some(splits[1]);
        Ok(match on_disk {
            [true, true] => {
                only([self.state.has_persons(labels(false))?, self.state.has_persons(labels(true))?])
            }
            // The person removed the label files.
            [false, false] => only(
                [false, true].map(|validation| labels(validation).any(|file| self.state.is_recorded(&file))),
            ),
            _ => only(on_disk),
        })
    }

    /// The label files of an image, with the masks on record.
    fn files_with_labels(&self, name: &str, validation: bool) -> Vec<String> {
        let labels = label_files(&self.options, name, validation).into_iter().map(|(file, _)| file);
        let mut labels: Vec<String> = labels.collect();
        if self.options.has(Format::Masks) {
            labels.extend(self.recorded_masks(&self.state, name, validation));
        }
        labels
    }

    fn is_corrected(&self, name: &str, validation: bool) -> Result<bool> {
        let files = self.files_with_labels(name, validation);
        Ok(self.state.saved.contains_key(name) || self.state.has_persons(files)?)
    }

    /// The labels of an image that a person corrected: file and hash of each.
    pub fn corrected_labels(&self, name: &str) -> Result<Vec<String>> {
        let mut labels = Vec::new();
        for file in self.files_with_labels(name, self.is_validation(name)) {
            if self.state.owner(&file)? == Owner::Person {
                let hash = hash_on_disk(&self.root.join(&file))?;
                labels.push(format!("{file} {}", hash.unwrap_or_default()));
            }
        }
        if let Some(saved) = self.state.saved.get(name) {
            // The same in a shard and in the joined data set.
            let saved = SavedLabels { is_merged: false, ..saved.clone() };
            let text =
                serde_json::to_string(&saved).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            labels.push(format!("{COCO_FILE} {}", hash_of_bytes(text)));
        }
        Ok(labels)
    }

    /// The label files of an image, of any format, that a person removed, as [`corrected_labels`](Self::corrected_labels) has
    /// them.
    pub fn removed_labels(&self, name: &str) -> Vec<String> {
        let formats = vec![Format::Yolo, Format::YoloSeg, Format::Voc];
        let all = DataSetOptions { formats, ..self.options.clone() };
        let files = label_files(&all, name, self.is_validation(name)).into_iter().map(|(file, _)| file);
        let is_there = |file: &String| self.root.join(file).symlink_metadata().is_ok();
        let removed = files.filter(|file| self.state.is_recorded(file) && !is_there(file));
        removed.map(|file| format!("{file} ")).collect()
    }

    /// Writes the files of an image. Files that are up to date, and those of the person, are not touched. If the image
    /// could not be read, all its files stay. Returns whether a person corrected its labels.
    pub fn place(&mut self, record: &Record) -> Result<bool> {
        let validation = self.settle(&record.name)?;
        if record.error.is_some() {
            return self.is_corrected(&record.name, validation);
        }
        let is_corrected = self.place_labels(record)? || self.state.saved.contains_key(&record.name);
        let stays = is_corrected && !self.is_replaced_in_part(&record.name, record.identity);
        for folder in self.image_folders() {
            let path = format!("{folder}images/{}", image_path(&record.name, validation));
            let other = format!("{folder}images/{}", image_path(&record.name, !validation));
            self.place_image(&path, Some(&other), record, stays)?;
            self.tidy_other_split(folder, &record.name, validation)?;
        }
        if self.options.has(Format::Voc) {
            self.place_image(&voc_image(&record.name), None, record, stays)?;
        }
        Ok(is_corrected)
    }

    /// Writes the label files of an image. Returns whether one is the person's.
    pub fn place_labels(&mut self, record: &Record) -> Result<bool> {
        let validation = self.settle(&record.name)?;
        let mut is_corrected = false;
        for (file, format) in label_files(&self.options, &record.name, validation) {
            self.create_folder_of(&self.root.join(&file))?;
            // YOLO's files come first.
            let text = match format {
                Format::Voc => self.label_text(&as_corrected(self, record.clone(), &mut Vec::new()), format),
                _ => self.label_text(record, format),
            };
            let meaning = self.meaning(Some(format));
            let owner = self.state.place_bytes(&file, meaning, text.as_bytes()).map_err(resumable)?;
            is_corrected |= owner == Owner::Person;
            if format != Format::Voc && owner == Owner::Person {
                self.corrected.entry(record.name.clone()).or_insert_with(|| (file.clone(), format));
            }
            self.propose(record, &file, format, owner == Owner::Person)?;
        }
        if self.options.has(Format::Masks) {
            is_corrected |= self.place_masks(record, validation)?;
        }
        Ok(is_corrected)
    }

    /// The text of a label file.
    fn label_text(&self, record: &Record, format: Format) -> String {
        match format {
            Format::Voc => {
                let image = voc_image(&record.name);
                voc::annotation(record, &self.names, image.strip_prefix(VOC_IMAGES).unwrap_or(&image))
            }
            _ => yolo::label_file(record, format),
        }
    }

    /// Writes the masks of an image. Returns whether one is the person's.
    fn place_masks(&mut self, record: &Record, validation: bool) -> Result<bool> {
        let mut is_corrected = false;
        let folder = masks_folder(&record.name, validation);
        let meaning = self.meaning(Some(Format::Masks));
        if self.masked.insert(record.name.clone()) {
            if record.instances.iter().any(|instance| instance.mask.is_some()) {
                self.create_folder_of(&self.root.join(&folder).join("any"))?;
            }
            for (name, bytes) in mask_files(record, &self.file_names) {
                let file = format!("{folder}{name}");
                let owner = self.state.place_bytes(&file, meaning, &bytes?).map_err(resumable)?;
                is_corrected |= owner == Owner::Person;
            }
        }
        // Those of instances that are not found any more.
        let mut counts = vec![0; self.file_names.len()];
        record.instances.iter().for_each(|instance| counts[instance.class] += 1);
        for (class, count) in counts.into_iter().enumerate() {
            let rest = self.masks_of(&self.state, &folder, class, count);
            let others = self.masks_of(&self.state, &masks_folder(&record.name, !validation), class, 0);
            for file in rest.into_iter().chain(others) {
                self.state.remove(&file)?;
            }
        }
        Ok(is_corrected)
    }

    /// The masks of a class in a record, from this number on.
    fn masks_of(&self, state: &State, folder: &str, class: usize, from: usize) -> Vec<String> {
        let files = (from..).map(|number| format!("{folder}{}", file_name(&self.file_names, class, number)));
        files.take_while(|file| state.is_recorded(file)).collect()
    }

    /// The masks of an image in a record.
    pub fn recorded_masks(&self, state: &State, name: &str, validation: bool) -> Vec<String> {
        let folder = masks_folder(name, validation);
        (0..self.file_names.len()).flat_map(|class| self.masks_of(state, &folder, class, 0)).collect()
    }

    /// The folders that contain `images/`.
    fn image_folders(&self) -> Vec<&'static str> {
        let folders = self.options.yolo_folders();
        let is_voc_alone = self.options.has(Format::Voc) && !self.options.has(Format::Coco);
        match (self.options.images, folders.is_empty()) {
            (ImageMode::None, _) => Vec::new(),
            (_, true) if is_voc_alone => Vec::new(),
            (_, true) => vec![""],
            _ => folders.into_iter().map(|(folder, _)| folder).collect(),
        }
    }

    /// Writes an image. A copy in the `other` split is moved.
    fn place_image(&mut self, path: &str, other: Option<&str>, record: &Record, stays: bool) -> Result<()> {
        let path = self.root.join(path);
        let other = other.map(|other| self.root.join(other));
        let cannot = |e| resumable(Error::io("cannot write", &path, e));
        self.create_folder_of(&path)?;
        let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|there| there.is_file());
        let mut there = std::fs::symlink_metadata(&path).ok();
        if let Some(other) = other.filter(|other| there.is_none() && is_file(other)) {
            // A copy is moved: its source may be missing.
            disk::rename(&other, &path).map_err(cannot)?;
            there = std::fs::symlink_metadata(&path).ok();
        }
        let (source, is_converted) = (&record.source, is_converted(&record.name));
        let is_copy = there.is_some_and(|there| there.is_file() && there.len() > 0);
        let now = identity(source);
        // A copy stays if the person corrected its labels or edited it, or if the picture of this record was replaced meanwhile.
        if is_copy && (stays || now != record.identity || self.is_edited_copy(&path, record)) {
            return Ok(());
        }
        // Nothing can link to a member of a tar file: it is copied.
        let is_any_link = self.options.images == ImageMode::Link && !is_converted && !is_member(source);
        let may_be_hard = self.is_linked_hard(source);
        let is_hard = is_any_link && may_be_hard && !self.links_are_symbolic;
        let is_right = if is_any_link && !is_hard {
            let is_same = may_be_hard && is_copy && identity(&path) == now;
            is_same || is_link_to(&path, source)
        } else {
            let (bytes, changed) = identity(&path);
            is_copy && changed == now.1 && (is_converted || bytes == now.0)
        };
        // A copy is all there is while its source cannot be read.
        if is_right || (is_copy && !is_readable(source)) {
            return Ok(());
        }
        let part = part_path(&path);
        let made = if is_any_link {
            self.make_link(source, &part, &path, is_hard)
        } else {
            // If it was replaced while it was copied, what is there stays until the next run.
            copy(source, &part, &path, is_converted, now.1).map(|()| identity(source) == now)
        };
        let put = |is_made| if is_made { replace(&part, &path) } else { disk::remove(&part).map_err(cannot) };
        let placed = made.and_then(put);
        placed.inspect_err(|_| drop(disk::remove(&part))).map_err(resumable)
    }

    /// Whether a copy has none of the pictures that its image had, and not that of the source with another time, either.
    fn is_edited_copy(&self, path: &Path, record: &Record) -> bool {
        let name = &record.name;
        self.state.images.contains_key(name)
            && !self.state.is_picture_of(path, name, [&record.identity])
            && !is_same(&record.source, path)
    }

    /// Makes a link under a temporary name. Returns whether there is one: the right link may be there already.
    fn make_link(&mut self, source: &Path, part: &Path, path: &Path, is_hard: bool) -> Result<bool> {
        disk::remove(part).map_err(|e| Error::io("cannot write", path, e))?;
        if is_hard && self.hard_link(source, part) {
            return Ok(true);
        }
        if is_link_to(path, source) {
            return Ok(false);
        }
        disk::link(source, part).map(|()| true).map_err(|e| {
            let message = format!(
                "cannot create a symbolic link, {}: {e}; copy the images instead of linking them",
                path.display()
            );
            Error::new(ErrorKind::Io, message).with_source(e)
        })
    }

    pub fn create_folder_of(&mut self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent().filter(|folder| !self.folders.contains(*folder)) else {
            return Ok(());
        };
        let created = || -> io::Result<()> {
            if !folder.is_dir() {
                disk::create_folders(folder)?;
                let above = folder.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
                above.for_each(|above| drop(sync_folder(above)));
            }
            Ok(())
        };
        created().map_err(|e| resumable(Error::io("cannot create the folder", folder, e)))?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// Removes what is ours from the split that an image is not in. Copies stay.
    fn tidy_other_split(&mut self, folder: &str, name: &str, validation: bool) -> Result<()> {
        let label = format!("{folder}labels/{}", label_path(name, !validation));
        if self.state.remove(&label)? != Owner::Person {
            self.remove_link(&format!("{folder}images/{}", image_path(name, !validation)))?;
        }
        Ok(())
    }

    fn remove_link(&self, file: &str) -> Result<()> {
        let path = self.root.join(file);
        if !path.is_symlink() {
            return Ok(());
        }
        disk::remove(&path).map_err(|e| Error::io("cannot remove", &path, e))
    }

    /// An image that was labelled earlier and is not among the images any more. Its files stay if its source exists, if it
    /// was copied, or if the person changed its labels. Returns whether they stay.
    pub fn keep_or_remove(&mut self, name: &str, labelled: Option<&Record>) -> Result<bool> {
        let validation = self.settle(name)?;
        let Some(record) = labelled else { return Ok(false) };
        let images = self.image_files(name, validation);
        let labels = self.files_with_labels(name, validation);
        // What was removed does not come back when its folder is out of reach.
        let was_removed = self.state.images.get(name).is_some_and(|known| known.is_removed);
        let is_out = if was_removed { identity(&record.source) == (0, 0) } else { is_gone(&record.source) };
        let mut stays = !is_out || self.state.saved.contains_key(name);
        for image in &images {
            stays |= self.root.join(image).symlink_metadata().is_ok_and(|there| there.is_file());
        }
        if stays || self.state.has_persons(labels.iter().cloned())? {
            // In the format and with the classes of the data set.
            self.place_labels(record)?;
            return Ok(true);
        }
        for label in &labels {
            self.state.remove(label)?;
        }
        images.iter().try_for_each(|image| self.remove_link(image))?;
        Ok(false)
    }

    /// The path of an image from a folder in the data set, as a link in a page.
    pub fn image_link(&self, record: &Record) -> String {
        let validation = self.is_validation(&record.name);
        match self.image_folders().first() {
            Some(folder) => link_to(&format!("../{folder}images/{}", image_path(&record.name, validation))),
            None if self.options.has(Format::Voc) => link_to(&format!("../{}", voc_image(&record.name))),
            None => format!("file://{}", link_to(&record.source.to_string_lossy())),
        }
    }

    /// The `file_name` in COCO's file: the path below `images/`. If images stay where they are, it is the name in the data
    /// set if the path ends in it, and the whole path otherwise.
    pub fn coco_name(&self, record: &Record) -> String {
        match self.options.images {
            ImageMode::None if record.source.ends_with(&record.name) || is_member(&record.source) => {
                record.name.clone()
            }
            ImageMode::None => record.source.to_string_lossy().into_owned(),
            _ => image_path(&record.name, self.is_validation(&record.name)),
        }
    }
}

fn is_link_to(path: &Path, source: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == source)
}

/// Copies an image, or converts it to PNG. The copy gets the source's time of the last change, by which it is known to be
/// up to date.
fn copy(source: &Path, part: &Path, path: &Path, is_converted: bool, changed: u64) -> Result<()> {
    let cannot = |e| Error::io("cannot write", path, e);
    let mut to = disk::create(part).map_err(cannot)?;
    if is_converted {
        let mut encoded = io::Cursor::new(Vec::new());
        let image = open_image(source)?.into_rgb_image();
        image.write_to(&mut encoded, image::ImageFormat::Png).map_err(|e| cannot(io::Error::other(e)))?;
        to.write_all(encoded.get_ref()).map_err(cannot)?;
    } else {
        copy_to(source, &mut to).map_err(|e| Error::io("cannot copy", source, e))?;
    }
    // Without the time, the image is copied again by the next run.
    drop(to.set_modified(UNIX_EPOCH + Duration::from_nanos(changed)));
    to.sync_all().map_err(cannot)
}
