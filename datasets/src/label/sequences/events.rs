//! Events of a person, a disk and a run.

use ocelli::{BoundingBox, ErrorKind, Mask};
use serde_json::{Value, json};

use super::{
    CorrectedSet, FORMATS, NAMES, Page, Run, SavedImage, Sequence, Written, files_below, image_beside,
    is_copy, labels, labels_of, masks_below, stem_of,
};
use crate::label::disk::REFUSES_HARD_LINKS;
use crate::label::folders::{SIDE, stopping};
use crate::label::store::files::aside_path;
use crate::label::store::part_path;
use crate::label::{Existing, ImageMode, LabelledInstance};

impl Sequence {
    pub(super) fn image(&mut self) -> String {
        self.next += 1;
        "x".repeat(self.next)
    }

    pub(super) fn label(&mut self) -> Result<(), String> {
        if !self.has_images() {
            return Ok(());
        }
        let existing = Existing { restart: self.former.is_some(), ..Existing::default() };
        let ended = self.place.label(&Run { existing, ..self.run.clone() });
        self.is_stopped = ended.is_err();
        match ended {
            Ok(summary) => self.check(&summary),
            Err(e) if self.is_refused(&e) => {
                self.check_person()?;
                self.label()
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// `true` if a restart with another order of the classes is refused because of corrections. The order is the former one then.
    fn is_refused(&mut self, error: &ocelli::Error) -> bool {
        if error.kind() != ErrorKind::Mismatch || !self.has_corrections() {
            return false;
        }
        let Some(former) = self.former.take() else { return false };
        self.log.push(format!("refused: {error}"));
        self.run.classes = former;
        true
    }

    pub(super) fn stop(&mut self, restart: bool) -> Result<(), String> {
        if !self.has_images() {
            return Ok(());
        }
        let writes = self.below(60);
        let restart = restart || self.former.is_some();
        self.log.push(format!("restart {restart}, stops after {writes} writes"));
        let run = Run { existing: Existing { restart, ..Existing::default() }, ..self.run.clone() };
        let ended = stopping(writes, || self.place.label(&run));
        self.is_stopped = ended.is_err();
        match ended {
            Ok(summary) => self.check(&summary),
            Err(e) if self.is_refused(&e) => self.check_person(),
            Err(e) if e.kind() == ErrorKind::Mismatch => Err(e.to_string()),
            Err(_) => self.check_person(),
        }
    }

    /// Edits, empties or removes a label file.
    pub(super) fn correct(&mut self) {
        let files = labels(&self.place, "set");
        if files.is_empty() {
            return;
        }
        let file = files[self.below(files.len() as u64) as usize].clone();
        self.correct_file(&file);
    }

    pub(super) fn correct_file(&mut self, file: &str) {
        self.next += 1;
        let content = match self.below(3) {
            0 => Some(String::new()),
            1 => Some(format!("0 0.5 0.5 0.1 0.{}\n", self.next)),
            _ => None,
        };
        if !self.person.contains_key(file) && content == self.place.read(file) {
            // Nobody can see that a person left it so.
            return;
        }
        match &content {
            Some(text) => self.place.write(file, text),
            None => self.place.remove(file),
        }
        let beside = image_beside(&self.place, file);
        self.remember(file, content, beside);
    }

    /// Notes what a person made of a label file, and the image that the person saw.
    pub(super) fn remember(&mut self, file: &str, content: Option<String>, beside: Option<String>) {
        self.log.push(format!("{file} becomes {content:?} beside {:?}", beside.as_ref().map(String::len)));
        let output = file.split('/').next().unwrap_or("set");
        let classes = match CorrectedSet::open(&self.place.path(output)) {
            Ok(set) => set.classes().to_vec(),
            Err(_) => self.run.classes.iter().map(|class| (*class).to_owned()).collect(),
        };
        let is_removed = content.is_none();
        let written = Written { content, beside, classes };
        let before = self.person.insert(file.to_owned(), written);
        let is_new = before.is_none_or(|before| before.content != self.person[file].content);
        if output == "set" && is_new {
            // What was corrected last counts; a file that was removed does as long as its format is named.
            let stem = stem_of(file).to_owned();
            let was_saved = self.saved.remove(&stem).is_some();
            if self.edited.contains_key(&stem) || is_removed && was_saved {
                self.contradicted.insert(stem);
            }
        }
    }

    fn boxes_in_coco(&self, name: &str) -> Result<Vec<(String, i64, i64)>, String> {
        let found = self.coco("set")?.into_iter().flatten().find(|(other, _)| other == name);
        Ok(found.map(|(_, boxes)| boxes).unwrap_or_default())
    }

    /// Moves, removes or adds a box in COCO's file, or gives one another class.
    pub(super) fn edit_annotations(&mut self) -> Result<(), String> {
        const FILE: &str = "set/annotations.json";
        let Some(text) = self.place.read(FILE).filter(|_| self.former.is_none()) else { return Ok(()) };
        let mut coco: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let (images, categories) = (coco["images"].as_array(), coco["categories"].as_array());
        let (images, classes) = (images.map_or(0, Vec::len), categories.map_or(0, Vec::len));
        if images == 0 {
            return Ok(());
        }
        let image = coco["images"][self.below(images as u64) as usize].clone();
        let (event, id) = (self.below(4), image["id"].clone());
        self.next += 1;
        let left = (self.next % 40) as f64;
        let class = self.below(classes as u64) + 1;
        let Some(annotations) = coco["annotations"].as_array_mut() else { return Ok(()) };
        let first = annotations.iter().position(|one| one["image_id"] == id);
        let name = image["file_name"].as_str().unwrap_or_default();
        let before = self.boxes_in_coco(name)?;
        match (event, first) {
            (0, Some(first)) => {
                annotations[first]["bbox"] = json!([left, 2.0, 20.0, 20.0]);
                if (left as usize).is_multiple_of(2) {
                    annotations[first]["segmentation"] =
                        json!([[left, 2.0, left + 20.0, 2.0, left + 20.0, 22.0, left, 22.0]]);
                }
            }
            (1, Some(first)) => _ = annotations.remove(first),
            (2, Some(first)) if annotations[first]["category_id"] != class => {
                annotations[first]["category_id"] = class.into();
            }
            _ => annotations.push(json!({"id": 1000 + self.next, "image_id": id, "category_id": class,
                "bbox": [left, 3.0, 20.0, 20.0]})),
        }
        self.place.write(FILE, &coco.to_string());
        let boxes = self.boxes_in_coco(name)?;
        self.log.push(format!("{name} has {boxes:?} in {FILE}"));
        let beside = self.place.read(&format!("set/images/{name}"));
        let stem = stem_of(name).to_owned();
        self.contradicted.remove(&stem);
        if *self.edited.entry(stem.clone()).or_insert(before) == boxes {
            // Unless a stopped run followed it meanwhile, nobody can see that it was changed and changed back.
            self.contradicted.insert(stem.clone());
            self.saved.remove(&stem);
        } else {
            self.saved.insert(stem, SavedImage { boxes, beside, classes });
        }
        Ok(())
    }

    /// Changes, removes or adds a mask.
    pub(super) fn edit_masks(&mut self) {
        let masks = masks_below(&self.place, "set/masks");
        if masks.is_empty() {
            return;
        }
        let mut file = masks[self.below(masks.len() as u64) as usize].clone();
        let event = self.below(3);
        self.next += 1;
        if event == 0 {
            let start = file.rsplit_once('-').map_or(&*file, |(start, _)| start);
            file = format!("{start}-{}.png", 7 + self.next);
        }
        // One that was added is not taken back: before a run, nothing would be corrected.
        if event == 1 && file.ends_with("-0.png") {
            self.place.remove(&file);
        } else {
            let (left, top) = ((self.next % 40) as u32, 40 + (self.next / 40 % 20) as u32);
            let pixel =
                |x, y| image::Luma([if (left..left + 20).contains(&x) && y > top { 255u8 } else { 0 }]);
            image::GrayImage::from_fn(SIDE, SIDE, pixel).save(self.place.path(&file)).expect("it can");
        }
        self.log.push(format!("{file} is a mask of the person: {event}"));
        let bytes = std::fs::read(self.place.path(&file)).ok();
        if self.masks.insert(file.clone(), bytes.clone()) != Some(bytes) {
            // Of the label files that were corrected before the annotations, none counts before the masks now.
            let stem = file.split('/').nth(3).unwrap_or_default().to_owned();
            let was_saved = self.saved.remove(&stem).is_some();
            let is_corrected = labels_of(&stem).iter().any(|label| self.person.contains_key(label));
            if self.edited.contains_key(&stem) || was_saved && is_corrected {
                self.contradicted.insert(stem);
            }
        }
        // Those beside it stay as well, unless a run was stopped while it wrote them.
        let folder = file.rsplit_once('/').map_or(&*file, |(folder, _)| folder).to_owned();
        let files = std::fs::read_dir(self.place.path(&folder)).expect("it is there").flatten();
        if !files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with('.')) {
            self.remember_masks(&folder);
        }
    }

    /// Notes the masks in a folder, from which on none of them changes.
    pub(super) fn remember_masks(&mut self, folder: &str) {
        for file in masks_below(&self.place, folder) {
            let bytes = std::fs::read(self.place.path(&file)).ok();
            self.masks.insert(file, bytes);
        }
    }

    /// Adds an image or replaces one, in place or by renaming; it may be one that cannot be read.
    pub(super) fn change_image(&mut self) {
        // Numbers from `NAMES` on are those of images that a person put into the data set.
        let number = self.below(NAMES + self.own.len() as u64);
        // It is found before the other of the same number.
        let extension = if self.below(4) == 0 { "bmp" } else { "png" };
        let name = format!("{}/{number}.{extension}", self.place.images);
        self.replace_image(&name);
    }

    pub(super) fn replace_image(&mut self, name: &str) {
        self.gone.extend(self.place.read(name).map(|before| before.len()));
        // Files in the folder of a disk that is not mounted: those of the disk are gone.
        let others = self.away.iter().filter(|(from, _)| *from == self.place.images);
        let lost: Vec<usize> = others
            .flat_map(|(_, to)| files_below(&self.place, to).into_values().map(|image| image.len()))
            .collect();
        self.gone.extend(lost);
        let image = if self.below(6) == 0 { "bad".into() } else { self.image() };
        self.log.push(format!("{name} gets {} bytes", image.len()));
        if self.below(2) == 0 {
            self.place.write(name, &image);
        } else {
            self.place.write("new", &image);
            let path = self.place.path(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can");
            std::fs::rename(self.place.path("new"), path).expect("it can");
        }
    }

    pub(super) fn remove_image(&mut self) {
        let files: Vec<String> = files_below(&self.place, &self.place.images).into_keys().collect();
        if files.is_empty() {
            return;
        }
        let name = &files[self.below(files.len() as u64) as usize];
        self.gone.extend(self.place.read(name).map(|before| before.len()));
        self.place.remove(name);
        self.log.push(format!("{name} is removed"));
    }

    pub(super) fn move_folder(&mut self) {
        self.next += 1;
        let to = format!("moved-{}", self.next);
        if self.place.path(&self.place.images).is_dir() {
            std::fs::rename(self.place.path(&self.place.images), self.place.path(&to)).expect("it can");
        }
        self.log.push(format!("{} becomes {to}", self.place.images));
        let from = std::mem::replace(&mut self.place.images, to.clone());
        self.away.iter_mut().filter(|(_, there)| *there == from).for_each(|(_, there)| there.clone_from(&to));
        self.away.push((from, to));
    }

    /// Names another folder with equal names, or two.
    pub(super) fn choose_folders(&mut self) {
        let other = if self.place.images == "others" { "images" } else { "others" };
        let before = std::mem::replace(&mut self.place.images, other.into());
        self.place.also = (self.below(2) == 0 && self.place.path(&before).is_dir()).then_some(before);
        if !self.place.path(other).is_dir() {
            self.change_image();
        }
        self.log.push(format!("images are in {other} and {:?}", self.place.also));
    }

    /// The disk of the images is not mounted: its folder is missing or empty. The next folder is another one.
    pub(super) fn unmount(&mut self) {
        let from = self.place.images.clone();
        self.next += 1;
        if self.place.path(&from).is_dir() {
            let to = format!("unmounted-{}", self.next);
            std::fs::rename(self.place.path(&from), self.place.path(&to)).expect("it can");
            if self.below(2) == 0 {
                std::fs::create_dir(self.place.path(&from)).expect("it can");
            }
            self.log.push(format!("{from} is not mounted"));
            let moved = self.away.iter_mut().filter(|(_, there)| *there == from);
            moved.for_each(|(_, there)| there.clone_from(&to));
            self.away.push((from, to));
        }
        self.place.also = None;
        self.place.images = format!("disk-{}", self.next);
        self.change_image();
    }

    /// The disk is mounted again, or elsewhere if something else is in its place.
    pub(super) fn mount(&mut self) {
        let Some((from, to)) = self.away.pop().filter(|(_, to)| self.place.path(to).is_dir()) else { return };
        drop(std::fs::remove_dir(self.place.path(&from)));
        let is_free = !self.place.path(&from).exists();
        if is_free {
            std::fs::rename(self.place.path(&to), self.place.path(&from)).expect("it can");
            self.away
                .iter_mut()
                .filter(|(_, there)| *there == to)
                .for_each(|(_, there)| there.clone_from(&from));
        }
        self.place.also = None;
        self.place.images = if is_free { from } else { to };
        self.log.push(format!("{} is mounted", self.place.images));
    }

    pub(super) fn load_page(&mut self) -> Option<Page> {
        let set = CorrectedSet::open(&self.place.path("set")).ok()?;
        let count = set.images().len() as u64;
        let image = set.images().get(self.below(count.max(1)) as usize)?.clone();
        let labels = set.labels(&image).ok()?;
        let content = set.read_image(&image).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        Some(Page { set, image, labels, content })
    }

    /// Saves what the page has, with boxes removed, added, as they are, or with a mask from clicks. It may be refused, if something changed.
    pub(super) fn save(&mut self) -> Result<(), String> {
        let page = match self.page.take() {
            Some(page) => Some(page),
            None => self.load_page(),
        };
        let Some(Page { set, image, labels, content }) = page else { return Ok(()) };
        let mut shown = if self.below(3) == 0 { Vec::new() } else { labels.instances.clone() };
        if self.below(2) == 0 {
            self.next += 1;
            let left = (self.next % 40) as f32;
            let bbox = BoundingBox::new(left, 1.0, left + 20.0, 20.0);
            shown.push(LabelledInstance { line: None, class: 0, bbox, polygon: None, mask: None });
        }
        if self.below(3) == 0 {
            shown.iter_mut().for_each(|one| with_mask(one, (image.width, image.height)));
        }
        let saved = set.save(&image, &labels.version, &shown);
        self.log.push(format!("saves {}: {:?}", image.name, saved.as_ref().err()));
        match saved {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Mismatch => return self.check_person(),
            Err(e) => return Err(format!("saving {}: {e}", image.name)),
        }
        let now = CorrectedSet::open(&self.place.path("set")).map_err(|e| e.to_string())?;
        if now.classes() != set.classes() {
            return Err(format!("saved with {:?}, the classes are {:?}", set.classes(), now.classes()));
        }
        let stem = stem_of(&image.name).to_owned();
        if self.run.options.yolo_folders().is_empty() {
            let place = |one: &LabelledInstance| {
                let class = set.classes()[one.class].clone();
                (class, (one.bbox.x1 * 20.0).round() as i64, one.bbox.y1.round() as i64)
            };
            let boxes = shown.iter().map(place).collect();
            let saved = SavedImage { boxes, beside: content, classes: set.classes().len() };
            self.saved.insert(stem, saved);
            return self.check_saved(None);
        }
        // Even if nothing is changed.
        self.saved.remove(&stem);
        if self.edited.contains_key(&stem) {
            self.contradicted.insert(stem.clone());
        }
        for file in labels_of(&stem) {
            if let Some(text) = self.place.read(&file) {
                self.remember(&file, Some(text), content.clone());
            } else if self.person.contains_key(&file) {
                self.remember(&file, None, content.clone());
            }
        }
        Ok(())
    }

    pub(super) fn add_class(&mut self) -> Result<(), String> {
        let all = ["dog", "cat", "car", "cow"];
        let new = all.iter().find(|class| !self.run.classes.contains(*class));
        if let Some(new) = new.filter(|_| self.former.is_none()) {
            self.run.classes.push(new);
            self.log.push(format!("the classes are {:?}", self.run.classes));
        }
        self.label()
    }

    /// Restarts with another order of the classes, which is refused if something was corrected, unless it is discarded.
    pub(super) fn reorder_classes(&mut self) -> Result<(), String> {
        let is_labelled = self.place.read("set/.ocelli-label/journal.jsonl").is_some();
        if self.former.is_some() || self.run.classes.len() < 2 || !self.has_images() || !is_labelled {
            return self.add_class();
        }
        self.former = Some(self.run.classes.clone());
        self.run.classes.rotate_left(1);
        let way = self.below(4);
        self.log.push(format!("restarts with the classes {:?}, {way}", self.run.classes));
        match way {
            0 => {
                let existing = Existing { restart: true, discard_corrections: true };
                let run = Run { existing, ..self.run.clone() };
                let summary = self.place.label(&run).map_err(|e| e.to_string())?;
                self.person.clear();
                self.saved.clear();
                self.masks.clear();
                self.edited.clear();
                self.contradicted.clear();
                self.handled.clear();
                self.check(&summary)
            }
            1 | 2 => self.stop(true),
            _ => self.label(),
        }
    }

    /// Removes the folder of the proposals: what it had is dealt with.
    pub(super) fn remove_proposals(&mut self) {
        for file in files_below(&self.place, "set/added").into_keys() {
            self.handled.insert(file.replacen("added/", "", 1), self.run.classes.len());
        }
        // A stopped run has given some of them temporary names.
        for file in self.person.keys() {
            let proposal = self.place.path(&file.replacen("set/", "set/added/", 1));
            if aside_path(&proposal).exists() || part_path(&proposal).exists() {
                self.handled.insert(file.clone(), self.run.classes.len());
            }
        }
        drop(std::fs::remove_dir_all(self.place.path("set/added")));
    }

    /// Edits an image in the data set, as an editor does that writes a new file.
    pub(super) fn edit_image(&mut self) -> Result<(), String> {
        let images: Vec<String> = files_below(&self.place, "set/images")
            .into_keys()
            .filter(|file| is_copy(&self.place, file) && !self.own.contains_key(file))
            .collect();
        if images.is_empty() {
            return Ok(());
        }
        let file = images[self.below(images.len() as u64) as usize].clone();
        self.gone.extend(self.place.read(&file).map(|before| before.len()));
        self.next += 1;
        // As long as no other image: size and time tell them apart.
        let content = format!("edited {}", "y".repeat(2000 + self.next));
        self.place.write("new", &content);
        std::fs::rename(self.place.path("new"), self.place.path(&file)).expect("it can");
        self.log.push(format!("{file} is edited"));
        // A restart, or a run after one, may put an image into the other split, with its file.
        let other = if file.contains("/train/") {
            file.replacen("/train/", "/val/", 1)
        } else {
            file.replacen("/val/", "/train/", 1)
        };
        self.label()?;
        if [&file, &other].into_iter().any(|place| self.place.read(place).as_ref() == Some(&content)) {
            Ok(())
        } else {
            Err(format!("{file}: the edited image was overwritten"))
        }
    }

    /// Moves an image, its labels and its masks to the other split.
    pub(super) fn move_to_other_split(&mut self) {
        let files: Vec<String> =
            labels(&self.place, "set").into_iter().filter(|file| file.starts_with("set/labels/")).collect();
        // A stopped run has taken some of them away.
        if files.is_empty() || self.is_stopped {
            return;
        }
        let file = files[self.below(files.len() as u64) as usize].clone();
        let stem = stem_of(&file).to_owned();
        let splits = if file.contains("/train/") { ["/train/", "/val/"] } else { ["/val/", "/train/"] };
        let is_other = |path: &String| {
            path.contains(splits[1]) && (stem_of(path) == stem || path.contains(&format!("/{stem}/")))
        };
        let with_masks = self.below(2) == 0;
        let masks = masks_below(&self.place, "set/masks");
        let all: Vec<String> = files_below(&self.place, "set").into_keys().chain(masks).collect();
        if all.iter().any(is_other) || self.own.keys().any(|own| stem_of(own) == stem) {
            return;
        }
        self.log.push(format!("{file} is moved to the other split; with its masks: {with_masks}"));
        let is_mask = |path: &str| path.starts_with("set/masks/");
        let is_own = |path: &String| match is_mask(path) {
            true => with_masks && path.contains(&format!("{}{stem}/", splits[0])),
            false => path.contains(splits[0]) && stem_of(path) == stem && !path.contains("/added/"),
        };
        for path in all.iter().filter(|path| is_own(path)) {
            let to = path.replacen(splits[0], splits[1], 1);
            std::fs::create_dir_all(self.place.path(&to).parent().expect("it has one")).expect("it can");
            std::fs::rename(self.place.path(path), self.place.path(&to)).expect("it is there");
        }
        let moved = |path: String| if is_own(&path) { path.replacen(splits[0], splits[1], 1) } else { path };
        self.person =
            std::mem::take(&mut self.person).into_iter().map(|(path, one)| (moved(path), one)).collect();
        self.masks =
            std::mem::take(&mut self.masks).into_iter().map(|(path, one)| (moved(path), one)).collect();
        self.handled =
            std::mem::take(&mut self.handled).into_iter().map(|(path, one)| (moved(path), one)).collect();
    }

    /// Links become copies, or copies links.
    pub(super) fn change_mode(&mut self) {
        let images = &mut self.run.options.images;
        *images = if *images == ImageMode::Copy { ImageMode::Link } else { ImageMode::Copy };
        self.log.push(format!("images are {images:?}"));
    }

    /// Names other formats, which is refused if files of the former ones were corrected.
    pub(super) fn change_formats(&mut self) -> Result<(), String> {
        if !self.has_images() || self.former.is_some() {
            return Ok(());
        }
        let formats = FORMATS[self.below(FORMATS.len() as u64) as usize].to_vec();
        let before = std::mem::replace(&mut self.run.options.formats, formats);
        self.log.push(format!("the formats are {:?}", self.run.options.formats));
        match self.place.label(&self.run) {
            Ok(summary) => self.check(&summary),
            Err(e) if e.kind() == ErrorKind::Mismatch && self.has_corrections() => {
                self.log.push(format!("refused: {e}"));
                self.run.options.formats = before;
                self.check_person()?;
                self.label()
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// The data set is copied to another disk, with its times: its hard links are copies from then on.
    pub(super) fn copy_to_another_disk(&mut self) {
        let mut folders = vec![self.place.path("set")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let (path, meta) = (entry.path(), entry.metadata().expect("it is there"));
                if meta.is_dir() {
                    folders.push(path);
                } else if meta.is_file() {
                    let new = self.place.path("new");
                    std::fs::copy(&path, &new).expect("it can");
                    set_time(&new, meta.modified().expect("it has one"));
                    std::fs::rename(new, path).expect("it can");
                }
            }
        }
        REFUSES_HARD_LINKS.set(true);
        self.log.push("the data set is copied to another disk".into());
    }

    /// Puts a file into the data set, whose name no image had so far.
    pub(super) fn add_own_image(&mut self) {
        let number = NAMES + self.own.len() as u64;
        let known = self.place.read("set/.ocelli-label/state.jsonl").unwrap_or_default();
        if known.is_empty() || known.contains(&format!("\"{number}.")) {
            return;
        }
        let (file, image) = (format!("set/images/train/{number}.png"), self.image().replace('x', "o"));
        self.place.write(&file, &image);
        self.log.push(format!("{file} is a person's, of {} bytes", image.len()));
        self.own.insert(file, image);
    }

    /// An image is replaced after it was read and before its labels are written.
    pub(super) fn replace_during_a_run(&mut self) -> Result<(), String> {
        self.change_image();
        if !self.has_images() || self.former.is_some() {
            return Ok(());
        }
        let files: Vec<String> = files_below(&self.place, &self.place.images).into_keys().collect();
        let name = files[self.below(files.len() as u64) as usize].clone();
        let image = self.image();
        self.gone.extend(self.place.read(&name).map(|before| before.len()));
        self.log.push(format!("{name} gets {} bytes during a run", image.len()));
        let (place, is_in_place, mut is_done) = (&self.place, image.len().is_multiple_of(2), false);
        let ended = place.label_while(&self.run, &mut || {
            if !std::mem::replace(&mut is_done, true) {
                place.write(if is_in_place { &name } else { "new" }, &image);
                if !is_in_place {
                    std::fs::rename(place.path("new"), place.path(&name)).expect("it can");
                }
            }
        });
        let summary = ended.map_err(|e| e.to_string())?;
        self.check(&summary)
    }

    /// The data set is restored from a backup that keeps neither hard links nor the times of files.
    pub(super) fn lose_times(&mut self) {
        for (file, content) in files_below(&self.place, "set") {
            if is_copy(&self.place, &file) {
                self.place.write("new", &content);
                std::fs::rename(self.place.path("new"), self.place.path(&file)).expect("it can");
            }
        }
        self.log.push("the files of the data set have other times".into());
    }

    /// The disk of the images is not mounted, and another one has a file of the name, size and time of one of its own.
    pub(super) fn mount_a_twin(&mut self) {
        let from = self.place.images.clone();
        let files = files_below(&self.place, &from);
        let mut files = files.iter().filter(|(_, image)| *image != "bad");
        let Some((name, image)) = files.next() else { return };
        let time = self.place.path(name).metadata().and_then(|meta| meta.modified()).expect("it is there");
        self.next += 1;
        let (to, disk) = (format!("unmounted-{}", self.next), format!("disk-{}", self.next));
        std::fs::rename(self.place.path(&from), self.place.path(&to)).expect("it can");
        self.away.iter_mut().filter(|(_, there)| *there == from).for_each(|(_, there)| there.clone_from(&to));
        let twin = name.replacen(&from, &disk, 1);
        self.place.write(&twin, &"t".repeat(image.len()));
        set_time(&self.place.path(&twin), time);
        self.log.push(format!("{from} is not mounted, {twin} is as {name}"));
        self.away.push((from, to));
        (self.place.also, self.place.images) = (None, disk);
    }
}

fn set_time(path: &std::path::Path, time: std::time::SystemTime) {
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(time).expect("it can");
}

/// Gives an instance a mask in place of its box: the pixels that the box touches.
fn with_mask(one: &mut LabelledInstance, (width, height): (u32, u32)) {
    let [x1, y1, x2, y2] = one.bbox.to_xyxy();
    let columns = x1.max(0.0) as u32..(x2.ceil() as u32).min(width);
    let rows = y1.max(0.0) as u32..(y2.ceil() as u32).min(height);
    let is_in = |at: u32| columns.contains(&(at % width)) && rows.contains(&(at / width));
    let pixels: Vec<u8> = (0..width * height).map(|at| u8::from(is_in(at))).collect();
    let mask = Mask::from_bitmap(&pixels, width, height).expect("it has the size");
    if let Some(bbox) = mask.bounding_box() {
        (one.bbox, one.mask) = (bbox, Some(mask));
    }
}
