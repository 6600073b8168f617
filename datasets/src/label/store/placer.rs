//! Writes each image and its label file to their paths in the data set.

mod annotations;
mod corrected;
mod dropped;
mod image_names;
mod images;
mod masks;
mod proposals;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ocelli::{Error, ErrorKind, Result, classes::ClassMap};

use crate::label::formats::mask_files::{class_names, mask_files};
use crate::label::formats::{voc, yolo};
use crate::label::hash::hash_of_bytes;
use crate::label::source::{copy_to, is_gone, is_member, is_readable, is_same};
use crate::label::store::layout::{
    VOC_IMAGES, image_path, is_converted, label_path, link_to, masks_folder, voc_image,
};
use crate::label::store::{
    COCO_FILE, ClassHashes, Meaning, Owner, SavedLabels, State, label_files, part_path,
};
use crate::label::{DataSetOptions, Format, ImageMode, ImageSet, Record, disk, identity, open_image};
pub(crate) use corrected::as_corrected;
pub(crate) use image_names::images_of;
pub(crate) use images::{has_image as is_copy_of, is_time_of};

/// The split of an image, and whose its labels are, as it was seen last.
#[derive(Default)]
struct Bound {
    validation: bool,
    /// Its files were written from what was found in this run.
    is_placed: bool,
    /// The label files that a person corrected, and the folder of masks, the later ones first. Tables and other files follow the first
    /// that can be read.
    corrected: Vec<(String, Format)>,
    /// The number of those that were corrected after COCO's files.
    later: usize,
    /// One of them was corrected before, too: it never had what was saved for COCO's files.
    are_again: bool,
}

/// A correction of a label file by a person, or one saved for COCO's.
pub(super) struct Correction {
    /// The file and the hash of its content.
    pub label: String,
    /// It was merged from a shard, and is as it was there.
    pub is_merged: bool,
}

/// Writes images and label files.
pub(super) struct Placer {
    pub options: DataSetOptions,
    /// The images for validation by their hashes.
    validation: HashSet<String>,
    bound: HashMap<String, Bound>,
    folders: HashSet<PathBuf>,
    pub state: State,
    pub classes: ClassHashes,
    /// The names of the classes.
    names: Vec<String>,
    /// The names of the classes in file names.
    file_names: Vec<String>,
    /// The folder of a hard link that the file system refused: images are on another one.
    links_are_symbolic: bool,
}

impl Placer {
    pub fn new(state: State, options: &DataSetOptions, set: &ImageSet, classes: &ClassMap) -> Self {
        let validation = set.validation(options.validation_share).into_iter().map(str::to_owned).collect();
        Self {
            options: options.clone(),
            validation,
            bound: HashMap::new(),
            folders: HashSet::new(),
            state,
            classes: ClassHashes::new(classes.names()),
            names: classes.names().map(str::to_owned).collect(),
            file_names: class_names(classes.names()),
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
        self.bound.remove(name);
    }

    pub fn is_validation(&self, name: &str) -> bool {
        self.bound.get(name).map_or_else(|| self.validation.contains(name), |bound| bound.validation)
    }

    pub fn meaning(&self, format: Option<Format>) -> Meaning {
        Meaning { format, classes: self.classes.all }
    }

    /// Keeps an image in the split that its files are in. Returns whether it is for validation.
    pub fn settle(&mut self, name: &str) -> Result<bool> {
        let split = self.split_on_disk(name)?.unwrap_or_else(|| self.validation.contains(name));
        self.bound.entry(name.to_owned()).or_default().validation = split;
        Ok(split)
    }

    /// The split that has the label files of an image, or is on record for them. Without label files, images count.
    pub fn split_on_disk(&self, name: &str) -> Result<Option<bool>> {
        let folders = self.options.yolo_folders();
        let labels = |validation| {
            folders.iter().map(move |(folder, _)| format!("{folder}labels/{}", label_path(name, validation)))
        };
        let exists = |file: String| self.state.root.join(file).symlink_metadata().is_ok();
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

    /// The label files of an image with their formats, and the masks on record or added.
    pub fn files_with_labels(&self, name: &str, validation: bool) -> Vec<(String, Format)> {
        let mut labels = label_files(&self.options, name, validation);
        if self.options.has(Format::Masks) {
            let masks = self.state.masks_in(&masks_folder(name, validation));
            labels.extend(masks.into_iter().map(|file| (file, Format::Masks)));
        }
        labels
    }

    /// The corrections of an image's labels, the one that counts first. Files that were changed are on record as the person's from
    /// now on.
    pub fn corrections(&mut self, name: &str) -> Result<Vec<Correction>> {
        let validation = self.settle(name)?;
        let saved = self.state.saved.get(name).cloned();
        let older_labels = saved.as_ref().map_or(&[][..], |saved| &saved.older);
        // In a shard or in the other split the file has another name.
        let is_older = |label: &String| older_labels.iter().any(|other| is_same_label(label, other));
        let mut all = Vec::new();
        self.state.see_moves(&self.options, name, validation)?;
        for (file, format) in label_files(&self.options, name, validation) {
            if self.state.see(&file)? == Owner::Person {
                let label = format!("{file} {}", self.state.on_disk(&file)?.unwrap_or_default());
                let is_merged = self.state.is_merged(&file)?;
                all.push((Correction { label, is_merged }, (file, format)));
            }
        }
        let masks = self.corrected_masks(name, validation)?;
        all.extend(masks);
        let (later, older): (Vec<_>, Vec<_>) = all.into_iter().partition(|(one, _)| !is_older(&one.label));
        let count = later.len();
        let is_again = |(_, (file, _)): &(Correction, (String, Format))| {
            older_labels.iter().any(|other| other.rsplit_once(' ').is_some_and(|(other, _)| other == file))
        };
        let are_again = later.iter().any(is_again);
        let (mut corrections, corrected): (Vec<_>, Vec<_>) = later.into_iter().chain(older).unzip();
        let bound = self.bound.entry(name.to_owned()).or_default();
        (bound.corrected, bound.later, bound.are_again) = (corrected, count, are_again);
        if let Some(saved) = saved {
            let is_merged = saved.is_merged;
            // The same in a shard and in the joined data set.
            let same = SavedLabels { is_merged: false, older: Vec::new(), ..saved };
            let text =
                serde_json::to_string(&same).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            let label = format!("{COCO_FILE} {}", hash_of_bytes(text));
            corrections.insert(count, Correction { label, is_merged });
        }
        Ok(corrections)
    }

    /// The label files of an image that a person corrected until now, which are on record as such from now on.
    pub fn labels_of_corrections(&mut self, name: &str) -> Result<Vec<String>> {
        let mut labels: Vec<String> = self.corrections(name)?.into_iter().map(|one| one.label).collect();
        self.state.commit()?;
        labels.retain(|label| !label.starts_with(COCO_FILE));
        // Those of formats that are not named, too: they may be again.
        labels.extend(self.removed_labels(name));
        Ok(labels)
    }

    /// `true` if a person corrected the labels of an image.
    pub fn is_corrected(&mut self, name: &str) -> Result<bool> {
        Ok(!self.corrections(name)?.is_empty())
    }

    /// The label files of an image, of any format, that a person removed, as [`Correction::label`] has them.
    pub fn removed_labels(&self, name: &str) -> Vec<String> {
        let formats = vec![Format::Yolo, Format::YoloSeg, Format::Voc];
        let all = DataSetOptions { formats, ..self.options.clone() };
        let files = label_files(&all, name, self.is_validation(name)).into_iter().map(|(file, _)| file);
        let is_there = |file: &String| self.state.root.join(file).symlink_metadata().is_ok();
        let removed = files.filter(|file| self.state.is_recorded(file) && !is_there(file));
        removed.map(|file| format!("{file} ")).collect()
    }

    /// Writes the files of an image, once in a run. Files that are up to date, and those of the person, are not touched. If the
    /// image could not be read, all its files stay. Returns whether a person corrected its labels.
    pub fn place(&mut self, record: &Record) -> Result<bool> {
        let is_placed = self.bound.get(&record.name).is_some_and(|bound| bound.is_placed);
        if is_placed || record.error.is_some() {
            let is_corrected = self.is_corrected(&record.name)?;
            // What a person corrected since then reaches its other files.
            if record.error.is_some() || !is_corrected {
                return Ok(is_corrected);
            }
        }
        self.place_labels(record)?;
        let is_corrected = self.is_corrected(&record.name)?;
        let validation = self.is_validation(&record.name);
        let stays = is_corrected && !self.is_replaced_in_part(&record.name, record.identity);
        let [here, others] = [validation, !validation].map(|split| self.image_files(&record.name, split));
        for (path, other) in here.iter().zip(&others) {
            self.place_image(path, other, record, stays)?;
        }
        for folder in self.image_folders() {
            self.tidy_other_split(folder, &record.name, validation)?;
        }
        self.bound.entry(record.name.clone()).or_default().is_placed = true;
        Ok(is_corrected)
    }

    /// Writes a file without labels. Returns its path.
    pub fn place_text(&mut self, file: &str, text: &str) -> Result<PathBuf> {
        let path = self.state.root.join(file);
        self.create_folder_of(&path)?;
        self.state.place_bytes(file, self.meaning(None), text.as_bytes())?;
        Ok(path)
    }

    /// Writes the label files of an image. Those that a person did not correct follow those that were.
    pub fn place_labels(&mut self, record: &Record) -> Result<()> {
        let validation = self.settle(&record.name)?;
        let is_corrected = self.is_corrected(&record.name)?;
        for (file, format) in self.bound[&record.name].corrected.clone() {
            if format != Format::Masks {
                self.propose(record, &file, format, true)?;
            }
        }
        let followed = is_corrected.then(|| as_corrected(self, record.clone(), &mut Vec::new()));
        let shown = followed.as_ref().unwrap_or(record);
        for (file, format) in label_files(&self.options, &record.name, validation) {
            self.create_folder_of(&self.state.root.join(&file))?;
            let is_corrected = self.bound[&record.name].corrected.iter().any(|(other, _)| *other == file);
            let text = self.label_text(if is_corrected { record } else { shown }, format);
            let owner = self.state.place_bytes(&file, self.meaning(Some(format)), text.as_bytes())?;
            self.propose(record, &file, format, owner == Owner::Person)?;
        }
        if self.options.has(Format::Masks) {
            self.place_masks(shown, validation)?;
        }
        self.state.commit_if_due()
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

    /// Writes the masks of an image, unless they are the person's.
    fn place_masks(&mut self, record: &Record, validation: bool) -> Result<()> {
        let [folder, other] = [validation, !validation].map(|split| masks_folder(&record.name, split));
        let mut rest = self.state.masks_in(&other);
        let has_own = !self.state.masks_in(&folder).is_empty();
        let mut masks =
            self.bound[&record.name].corrected.iter().filter(|(_, format)| *format == Format::Masks);
        if masks.any(|(corrected, _)| *corrected == folder || !has_own) {
            return rest.iter().try_for_each(|file| self.state.remove(file).map(drop));
        }
        if record.instances.iter().any(|instance| instance.mask.is_some()) {
            self.create_folder_of(&self.state.root.join(&folder).join("any"))?;
        }
        // Those of instances that are not found any more.
        rest.extend(self.state.masks_in(&folder));
        for (name, bytes) in mask_files(record, &self.file_names) {
            let file = format!("{folder}{name}");
            self.state.place_bytes(&file, self.meaning(Some(Format::Masks)), &bytes?)?;
            rest.remove(&file);
        }
        rest.iter().try_for_each(|file| self.state.remove(file).map(drop))
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

    /// Writes an image. A copy in the other split is moved.
    fn place_image(&mut self, path: &str, other: &str, record: &Record, stays: bool) -> Result<()> {
        let (path, other) = (self.state.root.join(path), self.state.root.join(other));
        self.create_folder_of(&path)?;
        let mut there = std::fs::symlink_metadata(&path).ok();
        if there.is_none() && other.symlink_metadata().is_ok_and(|there| there.is_file()) {
            // A copy is moved: its source may be missing.
            disk::rename(&other, &path)?;
            there = std::fs::symlink_metadata(&path).ok();
        }
        let (source, is_converted) = (&record.source, is_converted(&record.name));
        let is_copy = there.is_some_and(|there| there.is_file() && there.len() > 0);
        let now = identity(source);
        // A copy stays if the person corrected its labels or edited it, or if the image of this record was replaced meanwhile.
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
        let put = |is_made| if is_made { disk::put(&part, &path) } else { disk::remove(&part) };
        made.and_then(put).inspect_err(|_| drop(disk::remove(&part)))
    }

    /// `true` if a copy has none of the files that its image had, and not that of the source with another time, either.
    fn is_edited_copy(&self, path: &Path, record: &Record) -> bool {
        let name = &record.name;
        self.state.images.contains_key(name)
            && !self.state.is_image_of(path, name, [&record.identity])
            && !is_same(&record.source, path)
    }

    /// Makes a link under a temporary name. Returns whether there is one: the right link may be there already.
    fn make_link(&mut self, source: &Path, part: &Path, path: &Path, is_hard: bool) -> Result<bool> {
        disk::remove(part)?;
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
        if !folder.is_dir() {
            disk::create_folders(folder)?;
            let above = folder.ancestors().skip(1).take_while(|above| above.starts_with(&self.state.root));
            above.for_each(|above| drop(disk::sync(above)));
        }
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
        let path = self.state.root.join(file);
        if path.is_symlink() { disk::remove(&path) } else { Ok(()) }
    }

    /// An image that was labelled earlier and is not among the images any more. Its files stay if its source exists, if it
    /// was copied, or if the person changed its labels. Returns whether they stay.
    pub fn keep_or_remove(&mut self, name: &str, labelled: Option<&Record>) -> Result<bool> {
        let is_corrected = self.is_corrected(name)?;
        let Some(record) = labelled else { return Ok(false) };
        let validation = self.is_validation(name);
        let images = self.image_files(name, validation);
        // What was removed does not come back when its folder is out of reach.
        let was_removed = self.state.images.get(name).is_some_and(|known| known.is_removed);
        let is_out = if was_removed { identity(&record.source) == (0, 0) } else { is_gone(&record.source) };
        let is_copy = |image: &String| {
            self.state.root.join(image).symlink_metadata().is_ok_and(|there| there.is_file())
        };
        if is_corrected || !is_out || images.iter().any(is_copy) {
            // In the format and with the classes of the data set.
            self.place_labels(record)?;
            return Ok(true);
        }
        for (label, _) in self.files_with_labels(name, validation) {
            self.state.remove(&label)?;
        }
        images.iter().try_for_each(|image| self.remove_link(image))?;
        Ok(false)
    }

    /// The path of an image from a folder in the data set, as a link in a page.
    pub fn image_link(&self, record: &Record) -> String {
        match self.image_files(&record.name, self.is_validation(&record.name)).first() {
            Some(file) => link_to(&format!("../{file}")),
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

/// `true` if two corrected label files, as a [`Correction`] names them, are one, or have the same content.
pub(super) fn is_same_label(a: &str, b: &str) -> bool {
    let [hash, other] = [a, b].map(|label| label.rsplit(' ').next().unwrap_or_default());
    a == b || !hash.is_empty() && hash == other
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
