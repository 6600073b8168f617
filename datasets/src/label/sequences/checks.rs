//! Rules that hold after a run, and those that hold at any time.

use std::collections::{BTreeMap, BTreeSet};

use ocelli::Mask;
use serde_json::Value;

use super::{
    Finished, Sequence, Written, files_below, format_of, ids_of, image_beside, is_copy, is_label, labels,
    labels_of, masks_below, stem_of,
};
use crate::label::folders::{SIDE, row_of};
use crate::label::formats::mask_files::decoded;
use crate::label::formats::yolo_line::parse_labels;
use crate::label::{Format, Summary};

/// `true` if a run searched an image for all classes. It did not if the image is not named any more, although its file may
/// be that of another one, which has the path of a third one now.
fn is_searched(summary: &Summary, named: &BTreeSet<String>, file: &str, image: &str) -> bool {
    named.contains(image) && !summary.kept.iter().any(|name| stem_of(name) == stem_of(file))
}

/// The images whose files or labels a run reports.
fn reported(summary: &Summary) -> Vec<&str> {
    let reported = summary.outdated.iter().chain(&summary.edited).chain(&summary.changed);
    reported.map(|name| stem_of(name)).collect()
}

impl Sequence {
    /// A person's files are as they were left, at any time.
    pub(super) fn check_person(&self) -> Result<(), String> {
        for (file, written) in &self.person {
            let there = self.place.read(file);
            if there != written.content {
                return Err(format!("{file}: {there:?}, the person left {:?}", written.content));
            }
        }
        let is_other = |(file, bytes): &(&String, &Option<Vec<u8>>)| {
            std::fs::read(self.place.path(file)).ok() != **bytes
        };
        match self.masks.iter().find(is_other) {
            Some((file, _)) => Err(format!("{file}: it is not the mask that the person left")),
            None => Ok(()),
        }
    }

    /// A finished run leaves what it should.
    pub(super) fn check(&mut self, summary: &Summary) -> Result<(), String> {
        let is_other_order = self.former.take().is_some();
        self.edited.clear();
        self.is_stopped = false;
        self.log.push(format!("finished: {:?} removed, {:?} left out", summary.removed, summary.left_out));
        self.check_person()?;
        let named = self.named();
        self.check_images("set", &self.person, summary, &named)?;
        self.check_coco("set", summary)?;
        self.check_masks(summary)?;
        self.check_painted(summary)?;
        self.check_saved(Some(summary))?;
        self.check_proposals(summary, &named)?;
        self.check_what_is_gone(summary, &named, is_other_order)?;
        self.check_own_images()?;
        self.check_formats()?;
        let files = files_below(&self.place, "set").into_iter();
        let files = files.filter(|(file, _)| !self.person.contains_key(file)).collect();
        let formats = self.run.options.formats.clone();
        self.finished = Finished { files, formats, classes: self.run.classes.clone() };
        Ok(())
    }

    /// Boxes that a person did not correct follow masks that the person did: each is an instance, and none is missing.
    fn check_masks(&mut self, summary: &Summary) -> Result<(), String> {
        for file in self.masks.keys().cloned().collect::<Vec<_>>() {
            let folder = file.rsplit_once('/').map_or(&*file, |(folder, _)| folder);
            self.remember_masks(folder);
            let label = format!("{}.txt", folder.replacen("masks/", "labels/", 1));
            let stem = stem_of(&label);
            // Annotations that were corrected later count.
            let is_saved = self.saved.contains_key(stem) || self.contradicted.contains(stem);
            let is_persons = labels_of(stem).iter().any(|label| self.person.contains_key(label));
            let is_other = is_persons || is_saved || reported(summary).contains(&stem);
            if is_other || image_beside(&self.place, &label).is_none() {
                continue;
            }
            let (masks, text) =
                (masks_below(&self.place, folder).len(), self.place.read(&label).unwrap_or_default());
            // Those of classes that were added since are in the boxes alone.
            let lines = text.lines().count();
            if lines < masks || lines >= masks + self.run.classes.len() {
                return Err(format!("{label}: {text:?} beside {masks} masks"));
            }
        }
        Ok(())
    }

    /// What a person painted is in COCO's file, exactly, unless the person's boxes do not have its object.
    fn check_painted(&self, summary: &Summary) -> Result<(), String> {
        let Some(text) = self.place.read("set/annotations.json") else { return Ok(()) };
        if !self.run.options.formats.contains(&Format::Coco) {
            return Ok(());
        }
        let coco: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let list = |key: &str| coco[key].as_array().cloned().unwrap_or_default();
        let folders: BTreeSet<&str> =
            self.masks.keys().filter_map(|file| Some(file.rsplit_once('/')?.0)).collect();
        for folder in folders {
            let label = format!("{}.txt", folder.replacen("masks/", "labels/", 1));
            let (stem, names) = (stem_of(&label), &self.run.classes);
            let is_saved = self.saved.contains_key(stem) || self.contradicted.contains(stem);
            let is_it =
                |image: &&Value| image["file_name"].as_str().is_some_and(|name| stem_of(name) == stem);
            let (images, annotations) = (list("images"), list("annotations"));
            let Some(image) = images.iter().find(is_it) else { continue };
            if is_saved || reported(summary).contains(&stem) || image_beside(&self.place, &label).is_none() {
                continue;
            }
            let of_image = annotations.iter().filter(|one| one["image_id"] == image["id"]);
            let there: Vec<Mask> =
                of_image.filter_map(|one| serde_json::from_value(one["segmentation"].clone()).ok()).collect();
            let masks: Vec<(String, Mask)> = masks_below(&self.place, folder)
                .into_iter()
                .filter_map(|file| {
                    let mask = decoded(&std::fs::read(self.place.path(&file)).ok()?, (SIDE, SIDE)).ok()?;
                    Some((file, mask)).filter(|(_, mask)| mask.area() > 0)
                })
                .collect();
            let text = self.place.read(&label).unwrap_or_default();
            let lines = parse_labels(&text, (SIDE, SIDE)).unwrap_or_default();
            for (file, mask) in &masks {
                let bbox = mask.bounding_box().expect("it has pixels");
                let is_class =
                    |class: usize| names.get(class).is_some_and(|name| file.contains(&format!("/{name}-")));
                let like = |share: f32| {
                    lines
                        .iter()
                        .filter(move |line| is_class(line.class) && line.bbox.iou(&bbox) > share)
                        .count()
                };
                let is_alone = masks
                    .iter()
                    .filter(|(_, other)| other.bounding_box().is_some_and(|other| other.iou(&bbox) > 0.2))
                    .count()
                    == 1;
                let is_persons = labels_of(stem).iter().any(|label| self.person.contains_key(label));
                let has_object = !is_persons || like(0.95) == 1 && like(0.2) == 1 && is_alone;
                if has_object && !there.contains(mask) {
                    return Err(format!("{file} is not in annotations.json beside {text:?}"));
                }
            }
        }
        Ok(())
    }

    /// `true` if a person corrected masks of an image.
    fn has_masks(&self, stem: &str) -> bool {
        self.masks.keys().any(|file| file.split('/').nth(3) == Some(stem))
    }

    /// The images that a person put into the data set are there, without labels of others.
    fn check_own_images(&self) -> Result<(), String> {
        for (file, image) in &self.own {
            if self.place.read(file).as_ref() != Some(image) {
                return Err(format!("{file}: the person's own image is gone"));
            }
            let mut labels = labels_of(stem_of(file)).into_iter();
            let label =
                labels.find(|file| self.place.read(file).is_some() && !self.person.contains_key(file));
            if let Some(label) = label {
                return Err(format!("{label} is beside the person's own image"));
            }
        }
        Ok(())
    }

    /// Of formats that are not named any more, there is nothing but what a person wrote.
    fn check_formats(&self) -> Result<(), String> {
        let places = [
            ("set/labels/", Format::Yolo),
            ("set/segments/", Format::YoloSeg),
            ("set/annotations", Format::Coco),
            ("set/voc/", Format::Voc),
            ("set/masks/", Format::Masks),
        ];
        let is_left = |file: &&String| {
            let mut others = places.iter().filter(|(_, format)| !self.run.options.formats.contains(format));
            // A copy whose source is out of reach stays.
            let is_copy = !is_label(file)
                && is_copy(&self.place, file)
                && ["png", "bmp"].iter().any(|end| file.ends_with(end));
            let is_mine = self.person.contains_key(*file) || is_copy;
            others.any(|(place, _)| file.starts_with(place)) && !is_mine
        };
        match files_below(&self.place, "set").keys().find(is_left) {
            Some(file) => Err(format!("{file} is of a format that is not named any more")),
            None => Ok(()),
        }
    }

    /// Label files describe the images beside them, with the ids of the classes.
    pub(super) fn check_images(
        &self,
        output: &str,
        person: &BTreeMap<String, Written>,
        summary: &Summary,
        named: &BTreeSet<String>,
    ) -> Result<(), String> {
        let reported = reported(summary);
        let is_named = |file: &&String| self.run.options.formats.contains(&format_of(file));
        for (file, written) in person.iter().filter(|(file, _)| is_named(file)) {
            if !self.run.classes.starts_with(&written.classes.iter().map(String::as_str).collect::<Vec<_>>())
            {
                return Err(format!(
                    "{file}: corrected with the classes {:?}, now there are {:?}",
                    written.classes, self.run.classes
                ));
            }
            let now = image_beside(&self.place, file);
            // An image that cannot be read is in `failed.csv`.
            let is_bad = now.as_deref() == Some("bad");
            let is_same = now.is_none() || written.beside.is_none() || now == written.beside;
            if !is_bad && !is_same && !reported.contains(&stem_of(file)) {
                return Err(format!(
                    "{file}: corrected beside {:?}, now beside {now:?}, not reported",
                    written.beside
                ));
            }
        }
        for file in labels(&self.place, output) {
            let Some(image) = image_beside(&self.place, &file) else { continue };
            if person.contains_key(&file) || image == "bad" || reported.contains(&stem_of(&file)) {
                continue;
            }
            let text = self.place.read(&file).unwrap_or_default();
            if output == "set" && self.contradicted.contains(stem_of(&file)) {
                continue;
            }
            if let Some(saved) = self.saved.get(stem_of(&file)).filter(|_| output == "set") {
                // All of them, and those of classes that were added since.
                let (lines, boxes) = (text.lines().count(), saved.boxes.len());
                let added = self.run.classes.len().saturating_sub(saved.classes);
                if lines < boxes || lines > boxes + added {
                    return Err(format!(
                        "{file}: {text:?}, annotations.json was left with {:?}",
                        saved.boxes
                    ));
                }
                continue;
            }
            let others = labels_of(stem_of(&file)).into_iter();
            let others = others
                .map(|other| other.replacen("set/", &format!("{output}/"), 1))
                .filter(|file| is_named(&file));
            // The boxes come first; polygons that were removed may be missing with their folder.
            let is_followed = |other: &String| {
                let boxes = !other.contains("segments/");
                person.get(other).is_some_and(|written| boxes || written.content.is_some())
            };
            if let Some(other) = others.into_iter().find(is_followed) {
                let lines = self.lines_with_proposals(output, &other);
                if text.lines().count() != lines {
                    return Err(format!("{file}: {text:?}, {other} has {lines} lines with what is proposed"));
                }
                continue;
            }
            if output == "set" && self.has_masks(stem_of(&file)) {
                continue;
            }
            let ids = ids_of(&text, image.len(), format_of(&file), &self.run.classes).unwrap_or_default();
            let is_searched = is_searched(summary, named, &file, &image);
            if ids.is_empty() || is_searched && ids.len() < self.run.classes.len() {
                return Err(format!("{file}: {text:?} beside an image of {} bytes", image.len()));
            }
        }
        Ok(())
    }

    /// Corrected label files lack the classes that were added since: proposals have them.
    fn check_proposals(&self, summary: &Summary, named: &BTreeSet<String>) -> Result<(), String> {
        let reported = reported(summary);
        for (file, written) in &self.person {
            let first = written.classes.len().max(self.handled.get(file).copied().unwrap_or(0));
            let Some(image) = image_beside(&self.place, file) else { continue };
            let is_searched = is_searched(summary, named, file, &image)
                && self.run.options.formats.contains(&format_of(file))
                && image != "bad"
                && !reported.contains(&stem_of(file));
            if !is_searched || first >= self.run.classes.len() {
                continue;
            }
            let proposal = file.replacen("set/", "set/added/", 1);
            let text = self.place.read(&proposal).unwrap_or_default();
            let ids = ids_of(&text, image.len(), format_of(file), &self.run.classes).unwrap_or_default();
            if !(first..self.run.classes.len()).all(|class| ids.contains(&class)) {
                return Err(format!("{proposal}: {text:?} lacks classes from {first} on"));
            }
        }
        Ok(())
    }

    /// Anything that is no longer there is reported, and was removed by a person, or left out.
    fn check_what_is_gone(
        &self,
        summary: &Summary,
        named: &BTreeSet<String>,
        is_other_order: bool,
    ) -> Result<(), String> {
        let has = |names: &[String], stem: &str| names.iter().any(|name| stem_of(name) == stem);
        let is_left_out = |stem: &str| is_other_order && has(&summary.left_out, stem);
        let in_set: BTreeSet<String> = files_below(&self.place, "set/images").into_values().collect();
        for (file, content) in self.finished.files.iter().filter(|(file, _)| file.starts_with("set/images/"))
        {
            // The image of a link is at the source.
            let is_link = ["train", "val"].iter().any(|split| {
                let path = |extension| format!("set/images/{split}/{}.{extension}", stem_of(file));
                ["png", "bmp"].iter().any(|extension| self.place.path(&path(extension)).is_symlink())
            });
            let is_other = is_link
                || content == "bad"
                || content.starts_with("edited")
                || self.gone.contains(&content.len());
            if !is_other && !in_set.contains(content) && !is_left_out(stem_of(file)) {
                return Err(format!(
                    "{file}: the image of {} bytes is not in the data set any more",
                    content.len()
                ));
            }
        }
        if self.run.options.formats.contains(&Format::Yolo) {
            let missing: Vec<usize> = named
                .iter()
                .filter(|content| *content != "bad" && !in_set.contains(*content))
                .map(String::len)
                .collect();
            let reported = reported(summary);
            if missing.len() > reported.len() + summary.failed as usize {
                return Err(format!(
                    "images of {missing:?} bytes are not in the set; reported: {reported:?}"
                ));
            }
        }
        let both = |format| {
            [&self.finished.formats, &self.run.options.formats].iter().all(|all| all.contains(&format))
        };
        let has_labels = |file: &str| both(Format::Yolo) && is_label(file);
        for (file, text) in self.finished.files.iter().filter(|(file, _)| has_labels(file)) {
            let stem = stem_of(file);
            let is_there = labels_of(stem).iter().any(|file| self.place.read(file).is_some());
            let has_person = labels_of(stem).iter().any(|file| self.person.contains_key(file));
            if is_there || has_person || is_left_out(stem) {
                continue;
            }
            let was_removed = self
                .gone
                .iter()
                .any(|length| ids_of(text, *length, format_of(file), &self.finished.classes).is_some());
            if !(has(&summary.removed, stem) && was_removed) {
                return Err(format!(
                    "{file} is gone: reported {:?}, {:?}; removed by a person {was_removed}",
                    summary.removed, summary.left_out
                ));
            }
        }
        if !both(Format::Coco) {
            return Ok(());
        }
        // COCO's file is all that some data sets have.
        let names = |text: Option<&String>| -> Vec<String> {
            let images = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let images = images.and_then(|json| json["images"].as_array().cloned()).unwrap_or_default();
            images
                .iter()
                .filter_map(|image| image["file_name"].as_str().map(|name| stem_of(name).to_owned()))
                .collect()
        };
        let now = names(self.place.read("set/annotations.json").as_ref());
        for stem in names(self.finished.files.get("set/annotations.json")) {
            let is_known = now.contains(&stem) || has(&summary.removed, &stem) || is_left_out(&stem);
            if !is_known {
                return Err(format!("annotations.json: {stem} is gone without a word"));
            }
        }
        Ok(())
    }

    /// The entries of COCO's file describe the images beside them, with the ids of the classes.
    pub(super) fn check_coco(&self, output: &str, summary: &Summary) -> Result<(), String> {
        let Some(coco) = self.coco(output)? else { return Ok(()) };
        let reported = reported(summary);
        for (name, boxes) in coco {
            let Some(image) = self.place.read(&format!("{output}/images/{name}")) else { continue };
            let stem = stem_of(&name);
            let is_saved =
                output == "set" && (self.saved.contains_key(stem) || self.contradicted.contains(stem));
            if image == "bad" || is_saved || reported.contains(&stem_of(&name)) {
                continue;
            }
            if let Some(lines) = self.corrected_lines(output, &name, image.len()) {
                if !lines.contains(&boxes.len()) {
                    return Err(format!(
                        "{output}/annotations.json, {name}: {boxes:?}, a person left {lines:?} lines"
                    ));
                }
                continue;
            }
            let is_outside = image.len() >= SIDE as usize * 20;
            let of_image = |(class, left, top): &(String, i64, i64)| {
                *left == image.len() as i64 && *top == row_of(class) as i64
            };
            if boxes.is_empty() || !is_outside && !boxes.iter().all(of_image) {
                return Err(format!(
                    "{output}/annotations.json, {name}: {boxes:?} beside {} bytes",
                    image.len()
                ));
            }
        }
        Ok(())
    }

    /// The numbers of lines in YOLO's files of an image, which has this length, if a person corrected one of them: both may be
    /// the person's.
    fn corrected_lines(&self, output: &str, name: &str, length: usize) -> Option<Vec<usize>> {
        let folders = [(Format::Yolo, "labels"), (Format::YoloSeg, "segments/labels")];
        let folders = folders.iter().filter(|(format, _)| self.run.options.formats.contains(format));
        let texts = folders.map(|(format, folder)| {
            let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
            (*format, self.place.read(&format!("{output}/{folder}/{stem}.txt")).unwrap_or_default())
        });
        let is_ours = |format: Format, text: &str| {
            ids_of(text, length, format, &self.run.classes).is_some_and(|ids| !ids.is_empty())
        };
        let texts: Vec<(Format, String)> = texts.collect();
        let is_corrected = texts.iter().any(|(format, text)| !is_ours(*format, text));
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let lines =
            |folder: &str| self.lines_with_proposals(output, &format!("{output}/{folder}/{stem}.txt"));
        is_corrected.then(|| ["labels", "segments/labels"].map(lines).to_vec())
    }

    /// The lines of a label file, and of what is proposed for it.
    fn lines_with_proposals(&self, output: &str, file: &str) -> usize {
        let added = file.replacen(output, &format!("{output}/added"), 1);
        let lines = |file: &str| self.place.read(file).unwrap_or_default().lines().count();
        lines(file) + lines(&added)
    }

    /// Labels that a person saved in COCO's file are in it, beside the image that the person saw, or the run says so. Without a
    /// summary, no run has ended since.
    pub(super) fn check_saved(&self, summary: Option<&Summary>) -> Result<(), String> {
        let Some(coco) = self.coco("set")? else { return Ok(()) };
        for (stem, saved) in &self.saved {
            let Some((name, boxes)) = coco.iter().find(|(name, _)| stem_of(name) == stem) else {
                match summary {
                    Some(_) => return Err(format!("annotations.json: {stem}, which was saved, is gone")),
                    None => continue,
                }
            };
            let known: Vec<_> = boxes.iter().take(saved.boxes.len()).cloned().collect();
            let added = boxes.iter().skip(saved.boxes.len()).map(|(class, ..)| class);
            let is_new = |class: &String| {
                self.run.classes.iter().position(|name| name == class).is_some_and(|at| at >= saved.classes)
            };
            if known != saved.boxes || !added.clone().all(is_new) {
                return Err(format!("annotations.json, {name}: {boxes:?}, saved {:?}", saved.boxes));
            }
            let Some(summary) = summary else { continue };
            let now = self.place.read(&format!("set/images/{name}"));
            let is_same = now.is_none() || saved.beside.is_none() || now == saved.beside;
            if !is_same && now.as_deref() != Some("bad") && !reported(summary).contains(&stem.as_str()) {
                return Err(format!(
                    "{name}: saved beside {:?}, now beside {now:?}, not reported",
                    saved.beside
                ));
            }
        }
        Ok(())
    }

    /// The images of COCO's file, each with class, left and upper edge of its boxes, in twentieths of a pixel and pixels.
    pub(super) fn coco(
        &self,
        output: &str,
    ) -> Result<Option<Vec<(String, Vec<(String, i64, i64)>)>>, String> {
        let Some(text) = self.place.read(&format!("{output}/annotations.json")) else { return Ok(None) };
        let json: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
        let (annotations, categories) = (list("annotations"), list("categories"));
        let class = |id: &Value| {
            let category = categories.iter().find(|category| category["id"] == *id);
            category.and_then(|category| category["name"].as_str()).unwrap_or("no such class").to_owned()
        };
        let edge = |value: &Value, scale: f64| (value.as_f64().unwrap_or(f64::NAN) * scale).round() as i64;
        let boxes = |image: &Value| {
            let of_image = annotations.iter().filter(|one| one["image_id"] == image["id"]);
            let place = |one: &Value| {
                let bbox = &one["bbox"];
                (class(&one["category_id"]), edge(&bbox[0], 20.0), edge(&bbox[1], 1.0))
            };
            of_image.map(place).collect()
        };
        let name = |image: &Value| image["file_name"].as_str().unwrap_or_default().to_owned();
        Ok(Some(list("images").iter().map(|image| (name(image), boxes(image))).collect()))
    }
}
