//! What a person changed in COCO's files or that of YouTube-VIS, by hand or in another program.
//!
//! An image whose annotations are not those that were written gets them as labels that the person saved, as in the gallery, and the
//! file is ours again. Programs order keys, number ids and write numbers and names of files in their own ways: what an annotation says
//! is compared with what it said in the copy of the file. What is not known to say the same counts as the person's.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hotcoco::types::{Annotation, Dataset, Image, Segmentation};
use ocelli::classes::ClassMap;
use ocelli::{BoundingBox, Error, Mask, Result};
use serde_json::{Value, json};

use super::Placer;
use super::corrected::{as_corrected, texts, with_lines};
use super::image_names::images_of;
use crate::eval::annotations;
use crate::eval::video::in_images;
use crate::label::formats::changed::changed;
use crate::label::formats::coco::mark;
use crate::label::formats::yolo_line::{Line, clipped, is_same};
use crate::label::formats::youtube_vis::YOUTUBE_VIS_FILE;
use crate::label::hash::hash_of_bytes;
use crate::label::store::state::{Event, FileEntry, SavedLabels, State};
use crate::label::store::write::whole_file;
use crate::label::store::{Journal, Owner, WHOLE_FILES, WholeFile, classes_of, journal_path};
use crate::label::{DataSetOptions, Format, ImageSet, Instance, LabelledInstance, Record};
use crate::table::some;

/// Scores are the same if they differ by less: five decimals are written.
const SAME_SCORE: f32 = 1e-4;
/// Images that a message names.
const NAMED: usize = 3;

/// What COCO's file says, by image.
struct Annotations {
    dataset: Dataset,
    /// The annotations with their classes, by the id of the image.
    of_image: HashMap<u64, Vec<(Annotation, usize)>>,
    /// The number of the first classes that it knows.
    classes: usize,
}

impl State {
    /// The files of COCO's and of YouTube-VIS that a person changed since they were written.
    pub fn changed_annotations(&self) -> Result<Vec<WholeFile>> {
        let mut changed = Vec::new();
        for whole @ (file, ..) in WHOLE_FILES {
            let is_there = self.is_recorded(file) && self.root.join(file).is_file();
            if is_there && self.owner(file)? == Owner::Person {
                changed.push(whole);
            }
        }
        Ok(changed)
    }

    /// Saves what a person changed in COCO's files since they were written, where every other file follows it; in memory alone if
    /// nothing is written to the data set. The file of the person is kept beside the state, with what no other format has. `options`
    /// are those of a data set whose own are not known, and `classes` those that it is to have.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if a file cannot be read, has images, classes or crowds that the data
    /// set cannot have, or says something else about an image than another one. Nothing is changed then.
    pub fn follow_annotations(self, options: &DataSetOptions, classes: Option<&ClassMap>) -> Result<Self> {
        let changed = self.changed_annotations()?;
        if changed.is_empty() {
            return Ok(self);
        }
        let path = self.root.join(changed[0].0);
        let unread = |why: Error| refusal(&path, &why.to_string());
        let (journal, settings) = Journal::open_existing(&journal_path(&self.root)).map_err(unread)?;
        let known = classes_of(&settings).unwrap_or_default();
        let count = known.names().count();
        let is_added = |all: &&ClassMap| all.names().take(count).eq(known.names());
        let classes = classes.filter(is_added).unwrap_or(&known);
        let options = self.contents.as_ref().map_or(options, |contents| &contents.options).clone();
        let mut placer = Placer::new(self, &options, &ImageSet::default(), classes);
        journal.splits().for_each(|(name, validation)| placer.prefer(name, validation));
        let mut files: Vec<(FileEntry, Vec<u8>)> = Vec::new();
        let mut saved: BTreeMap<String, (SavedLabels, &str)> = BTreeMap::new();
        for whole @ (file, ..) in changed {
            let path = placer.state.root.join(file);
            let refuse = |why: String| refusal(&path, &why);
            let bytes = std::fs::read(&path).map_err(|e| Error::io("cannot read", &path, e))?;
            for image in placer.changed_images(whole, &bytes, &journal, &refuse)? {
                if let Some((there, other)) = saved.get(&image.name)
                    && !is_same_text(&placer, there, &image)
                {
                    let name = &image.name;
                    return Err(refuse(format!(
                        "image {name}: {other} was changed, too, and says something else"
                    )));
                }
                saved.insert(image.name.clone(), (image, file));
            }
            let hash = Some(hash_of_bytes(&bytes));
            files.push((FileEntry { before: hash.clone(), hash, ..placer.state.files[file].clone() }, bytes));
        }
        if placer.state.log.file.is_some() {
            for (entry, bytes) in &files {
                placer.state.keep_followed(&entry.file, bytes)?;
            }
            let saved: Vec<SavedLabels> = saved.values().map(|(one, _)| one.clone()).collect();
            // What a person changes from here on is later, and has it. With more classes, images are searched first.
            if classes.names().count() == count {
                placer.place_saved(saved, &journal)?;
            }
        }
        let files = files.into_iter().map(|(entry, _)| entry).collect();
        let saved = saved.into_values().map(|(one, _)| one).collect();
        placer.state.append(Event::Followed { files, saved })?;
        Ok(placer.state)
    }
}

/// An image of the data set in a file before and after a person changed it.
struct Matched<'a> {
    name: String,
    former: Option<&'a Image>,
    image: Option<&'a Image>,
}

/// The images of the data set in both files. `names` are those that the former file may have, and `others` those of the other split,
/// which may be in it for other reasons.
fn matched<'a>(
    before: &'a Dataset,
    now: &'a Dataset,
    names: Vec<(String, String)>,
    others: Vec<(String, String)>,
) -> Result<Vec<Matched<'a>>, String> {
    let (former, _) = images_of(before.images.iter(), &names, false)?;
    let former = former.into_iter().chain(std::iter::repeat_n(None, others.len()));
    let mut both: Vec<_> = former.zip(names.into_iter().chain(others)).collect();
    // Images that the file had come first.
    both.sort_by_key(|(former, _)| former.is_none());
    let (former, names): (Vec<Option<&Image>>, Vec<_>) = both.into_iter().unzip();
    let (had, new) = names.split_at(former.iter().flatten().count());
    let (images, unknown) = images_of(now.images.iter(), had, true)?;
    let (more, unknown) = images_of(unknown.into_iter(), new, true)?;
    if let Some(image) = unknown.first() {
        return Err(format!("image {}: it is not labelled here", image.file_name));
    }
    let images = images.into_iter().chain(more).zip(former);
    Ok(names
        .into_iter()
        .zip(images)
        .map(|((name, _), (image, former))| Matched { name, former, image })
        .collect())
}

/// The error for a file that cannot be followed.
fn refusal(path: &Path, why: &str) -> Error {
    let path = path.display();
    let message =
        format!("cannot follow what was corrected by hand, {path}: {why}; repair it, or move it away");
    Error::invalid_data(message)
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

/// `true` if these are the same labels, in any order.
fn is_same_text(placer: &Placer, a: &SavedLabels, b: &SavedLabels) -> bool {
    let [a, b] = [a, b].map(|one| {
        let (width, height) = (one.width, one.height);
        let record = Record { width, height, instances: one.instances.clone(), ..Record::default() };
        sorted(texts(placer, &record, Format::Coco))
    });
    a == b
}

impl Placer {
    /// Writes the label files of images with what is about to be saved. After a stop before it is, they are as they were found again.
    pub fn place_saved(&mut self, saved: Vec<SavedLabels>, journal: &Journal) -> Result<()> {
        for one in saved {
            let labelled = journal.labelled(&one.name)?;
            self.state.saved.insert(one.name.clone(), one);
            labelled.map_or(Ok(()), |record| self.place_labels(&record))?;
        }
        self.state.commit()
    }

    /// The images whose labels a person changed in a file, which has those of a split or all, as they are to be saved.
    fn changed_images(
        &mut self,
        (file, format, split): WholeFile,
        bytes: &[u8],
        journal: &Journal,
        refuse: &dyn Fn(String) -> Error,
    ) -> Result<Vec<SavedLabels>> {
        let path = self.state.root.join(file);
        let copy = self.state.read_copy(file)?;
        let names = self.names_in_files(journal)?;
        // A version that kept no copy wrote what would be written now.
        let copy = copy.map_or_else(|| whole_file(journal, self, (format, split)), Ok)?;
        let [before, now] = [(&*copy, None), (bytes, Some(&*copy))]
            .map(|(bytes, former)| self.annotations(bytes, former, &path));
        let (before, now) = (before.map_err(refuse)?, now.map_err(refuse)?);
        let is_own =
            |(name, _): &(String, String)| split.is_none_or(|split| split == self.is_validation(name));
        let (names, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_own);
        let matched = matched(&before.dataset, &now.dataset, names, others).map_err(refuse)?;
        // Those that the file had, and those that the person named.
        let written = self.state.earlier_classes(file, &self.classes).unwrap_or(self.names.len());
        let seen = written.max(now.classes);
        let (mut saved, mut missing, mut unnamed) = (Vec::new(), Vec::new(), 0);
        for Matched { name, former, image } in &matched {
            let Some(image) = *image else {
                missing.extend(former.map(|_| name.as_str()));
                continue;
            };
            let of =
                |all: &Annotations, image: &Image| all.of_image.get(&image.id).cloned().unwrap_or_default();
            let (own, was_there) = (of(&now, image), former.is_some());
            let former = former.map_or_else(Vec::new, |image| of(&before, image));
            unnamed += former.iter().filter(|(_, class)| *class >= now.classes).count();
            if was_there && texts_of(&own) == texts_of(&former) {
                continue;
            }
            let Some(record) = journal.labelled(name)? else { continue };
            let older = self.labels_of_corrections(name)?;
            let record = as_corrected(self, record, &mut Vec::new());
            // From another one of COCO's files, or from an earlier version of this one.
            if !was_there && texts_of(&own) == sorted(texts(self, &record, Format::Coco)) {
                continue;
            }
            let changed = self.changed_image(image, record, format, &own, &former, (now.classes, seen));
            let changed = changed.map_err(|why| refuse(format!("image {}: {why}", image.file_name)))?;
            saved.extend(changed.map(|changed| SavedLabels { older, ..changed }));
        }
        let (file, images) = (path.display(), some(&missing, NAMED));
        if !missing.is_empty() {
            tracing::warn!("{file}: images that are not in it any more keep their labels: {images}");
        }
        if unnamed > 0 {
            let classes = self.names[now.classes..].join(", ");
            let why = "instances stay whose class is not among its categories";
            tracing::warn!("{file}: {unnamed} {why} ({classes}); name it there to remove them");
        }
        Ok(saved)
    }

    /// The labelled images, each with its name in COCO's files.
    fn names_in_files(&mut self, journal: &Journal) -> Result<Vec<(String, String)>> {
        let mut names = Vec::new();
        for (name, entry) in &journal.entries {
            let Some(record) = journal.read_labelled(entry)? else { continue };
            self.corrections(name)?;
            names.push((name.clone(), self.coco_name(&record).replace('\\', "/")));
        }
        Ok(names)
    }

    /// Parses a file, which was like the former one.
    fn annotations(&self, bytes: &[u8], former: Option<&[u8]>, path: &Path) -> Result<Annotations, String> {
        let mut dataset = if path.ends_with(YOUTUBE_VIS_FILE) {
            in_images(bytes, former, path).map_err(|e| e.to_string())?
        } else {
            let file = annotations::parse_file(bytes, path).map_err(|e| e.to_string())?;
            if !file.is_whole() {
                return Err("expected images, annotations and categories".into());
            }
            let (dataset, unreadable) = file.into_dataset()?;
            unreadable.map_or(Ok(dataset), Err)?
        };
        let known: HashMap<&str, usize> = self.names.iter().map(String::as_str).zip(0..).collect();
        let categories =
            dataset.categories.iter().map(|one| (one.id, (&*one.name, known.get(&*one.name).copied())));
        let categories: HashMap<u64, (&str, Option<usize>)> = categories.collect();
        let mut of_image: HashMap<u64, Vec<(Annotation, usize)>> = HashMap::new();
        for image in &dataset.images {
            if of_image.insert(image.id, Vec::new()).is_some() {
                return Err(format!("image {}: another one has its id, {}", image.file_name, image.id));
            }
        }
        if categories.len() < dataset.categories.len() {
            return Err("two categories have the same id".into());
        }
        for one in std::mem::take(&mut dataset.annotations) {
            let (id, category) = (one.image_id, one.category_id);
            let all = of_image.get_mut(&id).ok_or_else(|| format!("no image has the id {id}"))?;
            match categories.get(&category) {
                Some((_, Some(class))) => all.push((one, *class)),
                Some((name, None)) => {
                    return Err(format!(
                        "category \"{name}\": no class of the data set; add it at the end of the classes"
                    ));
                }
                None => return Err(format!("no category has the id {category}")),
            }
        }
        // Programs leave out categories that are not used.
        let classes = categories.values().filter_map(|(_, class)| *class).max().map_or(0, |last| last + 1);
        Ok(Annotations { dataset, of_image, classes })
    }

    /// The labels of an image if these annotations do not say what the former ones did. The file names the first `classes`, and
    /// the person has looked for the first `seen`.
    fn changed_image(
        &self,
        image: &Image,
        mut now: Record,
        format: Format,
        own: &[(Annotation, usize)],
        former: &[(Annotation, usize)],
        (classes, seen): (usize, usize),
    ) -> Result<Option<SavedLabels>, String> {
        let mut unnamed: Vec<_> = now.instances.extract_if(.., |one| one.class >= classes).collect();
        unnamed.retain(|one| one.class < seen);
        let size @ (width, height) = (now.width, now.height);
        if (image.width, image.height) != size && (image.width, image.height) != (0, 0) {
            return Err(format!("it has {width} × {height} pixels here"));
        }
        let lines = |all: &[(Annotation, usize)]| {
            let seen = all.iter().filter(|(_, class)| *class < classes);
            seen.map(|(one, class)| line(one, *class, size)).collect::<Result<Vec<Line>, String>>()
        };
        let (mut lines, mut former) = (lines(own)?, lines(former)?);
        let mut texts = texts(self, &now, format);
        if format == Format::YoutubeVis {
            as_in_videos(&now, &mut texts, &mut lines, &mut former);
        }
        if is_as_written(&mut lines, former, &now, &texts) {
            return Ok(None);
        }
        if !lines.iter().all(|line| texts.contains(&line.text) || clipped(&line.bbox, size).has_area()) {
            return Err("expected boxes with an area, inside the image".into());
        }
        let is_new = |line: &&Line| line.track.is_some() && !texts.contains(&line.text);
        let is_twice = |line: &&Line| lines.iter().filter(|other| other.track == line.track).count() > 1;
        if let Some(track) = lines.iter().filter(is_new).find(is_twice).and_then(|line| line.track) {
            return Err(format!("two annotations have the track_id {track}"));
        }
        // Those that have another class now are named.
        let has_new_class = |one: &Instance| {
            lines.iter().any(|line| !texts.contains(&line.text) && is_same(&one.bbox.into(), &line.bbox))
        };
        let is_line =
            |one: &Instance| one.track.is_some() && lines.iter().any(|line| line.track == one.track);
        unnamed.retain(|one| !has_new_class(one) && !is_line(one));
        let Record { name, mut instances, .. } = with_lines(self, &now, &lines, "", texts);
        instances.append(&mut unnamed);
        let classes = self.classes.of_first(seen);
        Ok(Some(SavedLabels { name, width, height, classes, instances, is_merged: false, older: Vec::new() }))
    }
}

/// An object in a video has one class and one score for all images, and one mask in an image: what is read of it is what the record has.
fn as_in_videos(record: &Record, texts: &mut [String], lines: &mut [Line], former: &mut [Line]) {
    for (at, one) in record.instances.iter().enumerate().filter(|(_, one)| one.track.is_some()) {
        if record.instances[at + 1..].iter().any(|other| other.track == one.track) {
            texts[at].clear();
        }
    }
    let at = |line: &Line| {
        record.instances.iter().position(|one| {
            let is_object = one.track == line.track && (one.track.is_some() || one.class == line.class);
            is_object && record.mask(one) == line.mask
        })
    };
    for line in former.iter_mut() {
        if let Some(at) = at(line) {
            line.text.clone_from(&texts[at]);
        }
    }
    for line in lines.iter_mut().chain(former) {
        line.bbox = at(line).map_or(line.bbox, |at| record.instances[at].bbox.into());
    }
}

/// `true` if these lines say what the former ones did. One that says the same gets its text, and a mask that a program left behind
/// when it moved the box follows it, if the record has it.
fn is_as_written(lines: &mut [Line], mut former: Vec<Line>, record: &Record, texts: &[String]) -> bool {
    let mut take = |line: &mut Line, is_it: &dyn Fn(&Line, &Line) -> bool| {
        let at = former.iter().position(|before| is_it(line, before));
        at.inspect(|at| line.text = former.swap_remove(*at).text).is_some()
    };
    let says_the_same = |line: &Line, before: &Line| {
        let is_box = is_same(&before.bbox, &line.bbox) || is_of_mask(&line.bbox, line.mask.as_ref());
        let has_score = line.score.is_none() || has_same_score(line, before);
        let has_track = line.track.is_none() || line.track == before.track;
        let has_mask = line.mask.is_none() || line.mask == before.mask;
        line.class == before.class && is_box && has_score && has_track && has_mask
    };
    let mut others: Vec<&mut Line> = lines.iter_mut().collect();
    others.retain_mut(|line| !take(line, &|line, before| line.text == before.text));
    others.retain_mut(|line| !take(line, &says_the_same));
    for line in &mut others {
        // A score that was carried over is not that of what the person made.
        if former.iter().any(|before| has_same_score(line, before)) {
            line.score = None;
        }
        let is_left = |before: &&Line| line.mask.is_some() && line.mask == before.mask;
        let before = former.iter().find(is_left).filter(|_| !is_of_mask(&line.bbox, line.mask.as_ref()));
        if let Some(at) = before.and_then(|before| texts.iter().position(|text| *text == before.text)) {
            let (class, bbox) = (line.class, line.bbox);
            let own = LabelledInstance { line: Some(at), class, bbox, polygon: None, mask: None };
            line.mask = record.mask(&changed(record, &own, true)).filter(|mask| mask.area() > 0);
        }
    }
    others.is_empty() && former.is_empty()
}

fn has_same_score(a: &Line, b: &Line) -> bool {
    a.score.zip(b.score).is_some_and(|(a, b)| (a - b).abs() < SAME_SCORE)
}

fn texts_of(all: &[(Annotation, usize)]) -> Vec<String> {
    sorted(all.iter().map(|(one, class)| text(one, *class)).collect())
}

/// What an annotation says, in pixels of an image of this size.
fn line(one: &Annotation, class: usize, size: (u32, u32)) -> Result<Line, String> {
    if one.iscrowd {
        return Err(
            "it has a crowd, which other formats cannot have; set its \"iscrowd\" to 0, or remove it".into(),
        );
    }
    let score = one.score.map(|score| score as f32);
    if score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
        return Err(format!("score {}, expected 0 to 1", one.score.unwrap_or_default()));
    }
    let mask = one.segmentation.as_ref().map_or(Ok(None), |outline| mask_of(outline, size))?;
    let bbox = one.bbox.map(|ltwh| BoundingBox::from_ltwh(ltwh.map(|value| value as f32)));
    let bbox = bbox.or_else(|| mask.as_ref()?.bounding_box()).unwrap_or_default();
    Ok(Line { text: text(one, class), class, bbox, polygon: None, mask, score, track: track(one) })
}

/// The pixels of an outline; `None` if there are none.
fn mask_of(outline: &Segmentation, (width, height): (u32, u32)) -> Result<Option<Mask>, String> {
    if matches!(outline, Segmentation::Polygon(rings) if rings.is_empty()) {
        return Ok(None);
    }
    let rle = outline.to_rle(height, width).map_err(|e| format!("segmentation: {e}"))?;
    if (rle.w, rle.h) != (width, height) {
        return Err(format!("segmentation: expected {width} × {height} pixels"));
    }
    let mask = Mask::from_run_lengths(&rle.counts, width, height).map_err(|e| e.to_string())?;
    Ok(Some(mask).filter(|mask| mask.area() > 0))
}

fn text(one: &Annotation, class: usize) -> String {
    let outline = one.segmentation.as_ref().map_or(Value::Null, |outline| json!(outline));
    let crowd = if one.iscrowd { " crowd" } else { "" };
    mark(class, one.bbox, &outline, one.score, track(one)) + crowd
}

fn track(one: &Annotation) -> Option<u64> {
    one.extra.get(annotations::TRACK)?.as_u64()
}

/// `true` if a box is that of a mask. Some programs take the last pixel for the edge.
fn is_of_mask(bbox: &BoundingBox, mask: Option<&Mask>) -> bool {
    mask.and_then(Mask::bounding_box).is_some_and(|own| {
        let inner = BoundingBox::new(own.x1, own.y1, own.x2 - 1.0, own.y2 - 1.0);
        is_same(&own, bbox) || is_same(&inner, bbox)
    })
}
