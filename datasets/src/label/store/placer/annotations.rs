//! What a person changed in `annotations.json`, by hand or in another program.
//!
//! The annotations of an image that are not those that were written become labels that the person saved, as those of the gallery, and
//! the file is ours again. Programs order keys, number ids and write numbers and names of files in their own ways: what an annotation
//! says is compared.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use hotcoco::types::{Annotation, Dataset, Image, Segmentation};
use ocelli::classes::ClassMap;
use ocelli::{BoundingBox, Error, Mask, Result};
use serde_json::json;

use super::Placer;
use super::corrected::{as_corrected, texts, with_lines};
use crate::eval::annotations;
use crate::label::formats::coco::{mark, with_mark};
use crate::label::formats::yolo_line::{Line, clipped, is_same};
use crate::label::store::state::{Event, SavedLabels, State};
use crate::label::store::{COCO_FILE, Journal, STATE_FOLDER, classes_of, journal_path};
use crate::label::{DataSetOptions, Format, ImageSet, Instance, Record, disk};

/// Masks are the same above this IoU: programs trace outlines in their own ways.
const SAME_MASK: f64 = 0.98;

impl State {
    /// Saves what a person changed in `annotations.json` since it was written, where every other file follows it; in memory alone if
    /// nothing is written to the data set. The file of the person is kept beside the state. `options` are those of a data set whose
    /// own are not known, and `classes` those that it is to have. Returns the images that a person removed from the file, too.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if the file cannot be read, or has images or classes that the data set
    /// does not have. Nothing is changed then.
    pub fn follow_annotations(
        self,
        options: &DataSetOptions,
        classes: Option<&ClassMap>,
    ) -> Result<(Self, Vec<String>)> {
        let path = self.root.join(COCO_FILE);
        let is_ours = |hash: &String| self.is_recorded_as(COCO_FILE, hash) || !self.is_recorded(COCO_FILE);
        let hash = self.on_disk(COCO_FILE)?.filter(|hash| path.is_file() && !is_ours(hash));
        let (Some(hash), Some(meaning)) = (hash, self.recorded_meaning(COCO_FILE)) else {
            return Ok((self, Vec::new()));
        };
        let refuse = |why: String| {
            let message = format!(
                "cannot follow what was corrected by hand, {}: {why}; repair it, move it away, or discard_corrections",
                path.display()
            );
            Error::invalid_data(message).about("discard_corrections")
        };
        let dataset = read(&path).map_err(refuse)?;
        let (journal, settings) = Journal::open_existing(&journal_path(&self.root))?;
        let known = classes_of(&settings).unwrap_or_default();
        let is_added = |all: &&ClassMap| {
            let names: Vec<&str> = known.names().collect();
            all.names().take(names.len()).eq(names)
        };
        let classes = classes.filter(is_added).unwrap_or(&known);
        let options = self.contents.as_ref().map_or(options, |contents| &contents.options).clone();
        let mut placer = Placer::new(self, &options, &ImageSet::default(), classes);
        journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
        let (saved, removed) = placer.changed_images(&journal, dataset, &refuse)?;
        if placer.state.log.file.is_some() {
            let kept = placer.state.root.join(STATE_FOLDER).join(format!("annotations-{}.json", &hash[..16]));
            let mut from = std::fs::File::open(&path).map_err(|e| Error::io("cannot read", &path, e))?;
            disk::replace(&kept, |out| io::copy(&mut from, out))?;
        }
        if !saved.is_empty() {
            placer.state.append(Event::Saved(saved))?;
        }
        placer.state.note(COCO_FILE, Some(hash), meaning);
        placer.state.commit()?;
        Ok((placer.state, removed))
    }
}

/// Reads the file, whose names get `/` as separator.
fn read(path: &Path) -> Result<Dataset, String> {
    let file = annotations::read(path).map_err(|e| e.to_string())?;
    if !file.is_whole() {
        return Err("expected images, annotations and categories".into());
    }
    let (mut dataset, unreadable) = file.into_dataset()?;
    dataset.images.iter_mut().for_each(|image| image.file_name = image.file_name.replace('\\', "/"));
    unreadable.map_or(Ok(dataset), Err)
}

impl Placer {
    /// The images whose annotations a person changed, as they are to be saved, and those that the person removed.
    fn changed_images(
        &mut self,
        journal: &Journal,
        mut dataset: Dataset,
        refuse: &dyn Fn(String) -> Error,
    ) -> Result<(Vec<SavedLabels>, Vec<String>)> {
        let mut annotations: HashMap<u64, Vec<Annotation>> = HashMap::new();
        for one in std::mem::take(&mut dataset.annotations) {
            annotations.entry(one.image_id).or_default().push(one);
        }
        let mut by_end: HashMap<&str, Vec<&Image>> = HashMap::new();
        for image in &dataset.images {
            by_end.entry(file_name(&image.file_name)).or_default().push(image);
        }
        let (mut saved, mut removed, mut of_image) = (Vec::new(), Vec::new(), HashMap::new());
        for (name, entry) in &journal.entries {
            let Some(record) = journal.read_labelled(entry)? else { continue };
            self.corrections(name)?;
            let written = self.coco_name(&record);
            let Some(image) = image_of(&by_end, &written, name) else {
                if self.state.images.get(name).is_some_and(|known| known.annotations.is_some()) {
                    removed.push(format!("{COCO_FILE}, {name}: the image was removed"));
                }
                continue;
            };
            if let Some(other) = of_image.insert(image.id, name) {
                return Err(refuse(format!("image {}: it can be {other} or {name}", image.file_name)));
            }
            let own = annotations.remove(&image.id).unwrap_or_default();
            let lines = self.lines(&dataset, (record.width, record.height), own);
            let lines = lines.and_then(|lines| self.changed_image(image, record, lines));
            saved.extend(lines.map_err(|why| refuse(format!("image {}: {why}", image.file_name)))?);
        }
        match dataset.images.iter().find(|image| !of_image.contains_key(&image.id)) {
            Some(image) => Err(refuse(format!("image {}: it is not labelled here", image.file_name))),
            None => match annotations.keys().next() {
                Some(id) => Err(refuse(format!("no image has the id {id}"))),
                None => Ok((saved, removed)),
            },
        }
    }

    /// The annotations of an image of this size.
    fn lines(
        &self,
        dataset: &Dataset,
        (width, height): (u32, u32),
        own: Vec<Annotation>,
    ) -> Result<Vec<Line>, String> {
        let line = |one: Annotation| {
            let category = dataset.categories.iter().find(|category| category.id == one.category_id);
            let category = category.ok_or_else(|| format!("no category has the id {}", one.category_id))?;
            let class = self.names.iter().position(|name| *name == category.name).ok_or_else(|| {
                format!(
                    "category \"{}\": no class of the data set; add it at the end of the classes",
                    category.name
                )
            })?;
            let text = mark(class, &json!(one.bbox), &json!(one.segmentation));
            let is_empty =
                |one: &Segmentation| matches!(one, Segmentation::Polygon(rings) if rings.is_empty());
            let rle = one.segmentation.filter(|one| !is_empty(one)).map(|one| one.to_rle(height, width));
            let rle = rle.transpose().map_err(|e| format!("segmentation: {e}"))?;
            let mask = rle.map(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h)).transpose();
            let mask = mask.map_err(|e| e.to_string())?.filter(|mask| mask.area() > 0);
            let bbox = one.bbox.map(|ltwh| BoundingBox::from_ltwh(ltwh.map(|value| value as f32)));
            let bbox = bbox.or_else(|| mask.as_ref()?.bounding_box()).unwrap_or_default();
            Ok(Line { text, class, bbox, polygon: None, mask, score: None })
        };
        own.into_iter().map(line).collect()
    }

    /// The labels of an image if these are not those that were written.
    fn changed_image(
        &self,
        image: &Image,
        record: Record,
        mut lines: Vec<Line>,
    ) -> Result<Option<SavedLabels>, String> {
        let (name, size) = (record.name.clone(), (record.width, record.height));
        let is_saved = self.state.saved.contains_key(&name);
        let marks = lines.iter().fold(0, |marks, line| with_mark(marks, &line.text));
        let known = self.state.images.get(&name).and_then(|known| known.annotations);
        if !is_saved && known == Some(marks) {
            return Ok(None);
        }
        let is_other = |mask: &Mask| (mask.width(), mask.height()) != size;
        if (image.width, image.height) != size
            || lines.iter().filter_map(|line| line.mask.as_ref()).any(is_other)
        {
            return Err(format!("it has {} × {} pixels here", size.0, size.1));
        }
        // Classes that were added since the file was written are not in it, unless the person looked for them.
        let written = self.state.earlier_classes(COCO_FILE, &self.classes).unwrap_or(usize::MAX);
        let (classes, limit) = match self.state.recorded_meaning(COCO_FILE) {
            Some(meaning) if lines.iter().all(|line| line.class < written) => (meaning.classes, written),
            _ => (self.classes.all, usize::MAX),
        };
        let seen = |mut record: Record| {
            record.instances.retain(|one| one.class < limit);
            record
        };
        let alone = seen(self.state.with_saved(record.clone(), &self.classes));
        let before = if is_saved {
            alone
        } else {
            // As it was before other files were corrected.
            if is_as_written(&mut lines.clone(), &alone, &texts(self, &alone, Format::Coco)) {
                return Ok(None);
            }
            seen(as_corrected(self, record, &mut Vec::new()))
        };
        let texts = texts(self, &before, Format::Coco);
        if is_as_written(&mut lines, &before, &texts) {
            return Ok(None);
        }
        if !lines.iter().all(|line| texts.contains(&line.text) || clipped(&line.bbox, size).has_area()) {
            return Err("expected boxes with an area, inside the image".into());
        }
        let Record { instances, .. } = with_lines(self, &before, &lines, COCO_FILE, texts);
        let (width, height) = size;
        Ok(Some(SavedLabels { name, width, height, classes, instances, is_merged: false }))
    }
}

/// Gives each line that says the same as an instance its text. Returns whether all do, and no instance is left. The mask of an
/// instance that has another class or box moves with it.
fn is_as_written(lines: &mut [Line], record: &Record, texts: &[String]) -> bool {
    let mut left: Vec<usize> = (0..texts.len()).collect();
    let mut take = |line: &mut Line, is_it: &dyn Fn(&Line, usize) -> bool| {
        let at = left.iter().position(|at| is_it(line, *at));
        at.inspect(|at| line.text.clone_from(&texts[left.swap_remove(*at)])).is_some()
    };
    let mut others: Vec<&mut Line> = lines
        .iter_mut()
        .filter_map(|line| (!take(line, &|line, at| line.text == texts[at])).then_some(line))
        .collect();
    let is_same_one = |line: &Line, at: usize| {
        let one = &record.instances[at];
        let is_placed = line.class == one.class && is_same(&BoundingBox::from(one.bbox), &line.bbox);
        is_placed && line.mask.as_ref().is_none_or(|mask| has_mask(record, one, mask))
    };
    others.retain_mut(|line| !take(line, &is_same_one));
    for line in &mut others {
        let is_old = |mask: &Mask| left.iter().any(|at| has_mask(record, &record.instances[*at], mask));
        line.mask.take_if(|mask| is_old(mask));
    }
    others.is_empty() && left.is_empty()
}

fn has_mask(record: &Record, one: &Instance, mask: &Mask) -> bool {
    record.mask(one).is_some_and(|own| own.iou(mask).is_ok_and(|iou| iou > SAME_MASK))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The image in the file that was written with this name: a program may have given it another folder, or none.
fn image_of<'a>(by_end: &HashMap<&str, Vec<&'a Image>>, written: &str, name: &str) -> Option<&'a Image> {
    let written = written.replace('\\', "/");
    let common = |image: &Image| {
        let parts = Path::new(&image.file_name).components().rev();
        let common = parts.clone().zip(Path::new(&written).components().rev()).take_while(|(a, b)| a == b);
        (common.count(), std::cmp::Reverse(parts.count()))
    };
    let is_it = |image: &&&Image| {
        let path = Path::new(&image.file_name);
        path.ends_with(&written) || path.ends_with(name) || Path::new(&written).ends_with(path)
    };
    by_end.get(file_name(&written))?.iter().filter(is_it).max_by_key(|image| common(image)).copied()
}
