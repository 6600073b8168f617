//! Random sequences of what happens to a data set, against what its owner may rely on:
//!
//! * A label never describes another picture than the one beside it. Where a person's label does, the run says so.
//! * What a person wrote is never lost, and never beside another picture without a word.
//! * What is no longer there is reported, and only what a person removed is.
//!
//! Every picture has a length of its own, which the detector reads: the text of a label file shows which picture it describes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::corrections::{Place, Run, copies, stopping, text_of};
use super::{CorrectedSet, Existing, Format, Labels, SetImage, Shard, Summary, merge};
use ocelli::ErrorKind;

const SEQUENCES: u64 = 400;
const STEPS: u64 = 14;
const NAMES: u64 = 4;
/// The side of the images that the test's detector sees.
const SIDE: f64 = 64.0;

/// A file that a person wrote.
#[derive(Clone, Debug)]
struct Written {
    /// `None` if it was removed.
    content: Option<String>,
    /// The picture beside it at that time.
    beside: Option<String>,
}

struct Sequence {
    place: Place,
    run: Run,
    random: u64,
    /// Makes every picture another one.
    next: usize,
    person: BTreeMap<String, Written>,
    /// The lengths of pictures that a person removed or replaced.
    gone: BTreeSet<usize>,
    /// A page of the gallery that was loaded some time ago.
    page: Option<(CorrectedSet, SetImage, Labels)>,
    log: Vec<String>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let options = if seed.is_multiple_of(2) { copies() } else { Run::default().options };
        let mut run = Run { options, finds_added: true, ..Run::default() };
        run.options.validation_share = 0.3;
        run.options.formats = match seed / 2 % 4 {
            0 => vec![Format::Yolo],
            1 => vec![Format::Yolo, Format::YoloSeg],
            2 => vec![Format::Yolo, Format::Coco],
            _ => vec![Format::Coco],
        };
        Self {
            place: Place::new(),
            run,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next: 0,
            person: BTreeMap::new(),
            gone: BTreeSet::new(),
            page: None,
            log: Vec::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn picture(&mut self) -> String {
        self.next += 1;
        "x".repeat(self.next)
    }

    fn step(&mut self) -> Result<(), String> {
        let step = self.below(22);
        self.log.push(format!("step {step}"));
        match step {
            0..=2 => return self.label(),
            3 => return self.stop(false),
            4 => return self.stop(true),
            5 | 6 => self.correct(),
            7..=9 => self.change_picture(),
            10 => self.remove_picture(),
            11 => self.move_folder(),
            12 => self.choose_folders(),
            13 => self.unmount(),
            14 => self.page = self.load_page(),
            15 | 16 => return self.save(),
            17 => self.run.options.validation_share = self.below(10) as f64 / 10.0,
            18 => return self.add_class(),
            19 => drop(std::fs::remove_dir_all(self.place.path("set/added"))),
            20 => return self.edit_picture(),
            _ => return self.merge(),
        }
        Ok(())
    }

    fn has_images(&self) -> bool {
        let folders = [Some(&self.place.images), self.place.also.as_ref()];
        folders.into_iter().flatten().all(|folder| !files_below(&self.place, folder).is_empty())
    }

    fn label(&mut self) -> Result<(), String> {
        if !self.has_images() {
            return Ok(());
        }
        let before = files_below(&self.place, "set");
        let summary = self.place.label(&self.run).map_err(|e| e.to_string())?;
        self.check(&summary, &before)
    }

    fn stop(&mut self, restart: bool) -> Result<(), String> {
        if !self.has_images() {
            return Ok(());
        }
        let writes = self.below(60);
        self.log.push(format!("restart {restart}, stops after {writes} writes"));
        let run = Run { existing: Existing { restart, ..Existing::default() }, ..self.run.clone() };
        match stopping(writes, || self.place.label(&run)) {
            Err(e) if e.kind() == ErrorKind::Mismatch => return Err(e.to_string()),
            _ => {}
        }
        self.check_person()
    }

    /// Edits, empties or removes a label file.
    fn correct(&mut self) {
        let files = labels(&self.place, "set");
        if files.is_empty() {
            return;
        }
        let file = files[self.below(files.len() as u64) as usize].clone();
        self.correct_file(&file);
    }

    fn correct_file(&mut self, file: &str) {
        self.next += 1;
        let content = match self.below(3) {
            0 => Some(String::new()),
            1 => Some(format!("0 0.5 0.5 0.1 0.{}\n", self.next)),
            _ => None,
        };
        match &content {
            Some(text) => self.place.write(file, text),
            None => self.place.remove(file),
        }
        self.remember(file, content);
    }

    fn remember(&mut self, file: &str, content: Option<String>) {
        let beside = picture_beside(&self.place, file);
        self.log.push(format!("{file} becomes {content:?} beside {:?}", beside.as_ref().map(String::len)));
        self.person.insert(file.to_owned(), Written { content, beside });
    }

    /// Adds a picture or replaces one, in place or by renaming; it may be one that cannot be read.
    fn change_picture(&mut self) {
        let number = self.below(NAMES);
        let name = format!("{}/{number}.png", self.place.images);
        if let Some(before) = self.place.read(&name) {
            self.gone.insert(before.len());
        }
        let picture = if self.below(6) == 0 { "bad".into() } else { self.picture() };
        self.log.push(format!("{name} gets {} bytes", picture.len()));
        if self.below(2) == 0 {
            self.place.write(&name, &picture);
        } else {
            self.place.write("new", &picture);
            let path = self.place.path(&name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it can");
            std::fs::rename(self.place.path("new"), path).expect("it can");
        }
    }

    fn remove_picture(&mut self) {
        let number = self.below(NAMES);
        let name = format!("{}/{number}.png", self.place.images);
        if let Some(before) = self.place.read(&name) {
            self.gone.insert(before.len());
            self.place.remove(&name);
        }
    }

    fn move_folder(&mut self) {
        self.next += 1;
        let to = format!("moved-{}", self.next);
        if self.place.path(&self.place.images).is_dir() {
            std::fs::rename(self.place.path(&self.place.images), self.place.path(&to)).expect("it can");
        }
        self.place.images = to;
    }

    /// Names another folder with equal names, or two.
    fn choose_folders(&mut self) {
        let other = if self.place.images == "others" { "images" } else { "others" };
        let before = std::mem::replace(&mut self.place.images, other.into());
        self.place.also = (self.below(2) == 0 && self.place.path(&before).is_dir()).then_some(before);
        if !self.place.path(other).is_dir() {
            self.change_picture();
        }
    }

    /// The disk of the images is not mounted: its folder is missing or empty. The next folder is another one.
    fn unmount(&mut self) {
        let from = self.place.path(&self.place.images);
        self.next += 1;
        if from.is_dir() {
            std::fs::rename(&from, self.place.path(&format!("unmounted-{}", self.next))).expect("it can");
            if self.below(2) == 0 {
                std::fs::create_dir(&from).expect("it can");
            }
        }
        self.place.also = None;
        self.place.images = format!("disk-{}", self.next);
        self.change_picture();
    }

    fn load_page(&mut self) -> Option<(CorrectedSet, SetImage, Labels)> {
        let set = CorrectedSet::open(&self.place.path("set")).ok()?;
        let count = set.images().len() as u64;
        let image = set.images().get(self.below(count.max(1)) as usize)?.clone();
        let labels = set.labels(&image).ok()?;
        Some((set, image, labels))
    }

    /// Saves what the page has, with a box removed or as it is. It may be refused, if something changed.
    fn save(&mut self) -> Result<(), String> {
        let page = match self.page.take() {
            Some(page) => Some(page),
            None => self.load_page(),
        };
        let Some((set, image, labels)) = page else { return Ok(()) };
        let shown = if self.below(2) == 0 { &labels.instances[..] } else { &[] };
        let before = files_below(&self.place, "set");
        let saved = set.save(&image, &labels.version, shown);
        self.log.push(format!("saves {}: {:?}", image.name, saved.as_ref().err()));
        match saved {
            Ok(_) => {
                let stem = image.name.trim_end_matches(".png");
                for file in labels_of(stem) {
                    if let Some(text) = self.place.read(&file) {
                        self.remember(&file, Some(text));
                    } else if self.person.contains_key(&file) {
                        self.remember(&file, None);
                    }
                }
                // What was edited or replaced since is reported by the next run.
                self.check_coco("set", &before, None)
            }
            Err(e) if e.kind() == ErrorKind::Mismatch => self.check_person(),
            Err(e) => Err(format!("saving {}: {e}", image.name)),
        }
    }

    fn add_class(&mut self) -> Result<(), String> {
        let all = ["dog", "cat", "car", "cow"];
        if self.run.classes.len() < all.len() {
            self.run.classes = all[..self.run.classes.len() + 1].to_vec();
        }
        self.label()
    }

    /// Edits a picture in the data set, as an editor does that writes a new file.
    fn edit_picture(&mut self) -> Result<(), String> {
        let pictures: Vec<String> = files_below(&self.place, "set/images")
            .into_keys()
            .filter(|file| is_copy(&self.place, file))
            .collect();
        if pictures.is_empty() {
            return Ok(());
        }
        let file = pictures[self.below(pictures.len() as u64) as usize].clone();
        self.next += 1;
        let content = format!("edited {}", self.next);
        self.place.write("new", &content);
        std::fs::rename(self.place.path("new"), self.place.path(&file)).expect("it can");
        self.log.push(format!("{file} is edited"));
        self.label()?;
        match self.place.read(&file) == Some(content) {
            true => Ok(()),
            false => Err(format!("{file}: the edited picture was overwritten")),
        }
    }

    /// Labels two shards, corrects files in them, merges them with stops in between, and again after new corrections.
    fn merge(&mut self) -> Result<(), String> {
        if !self.has_images() {
            return Ok(());
        }
        let shards = ["one", "two"];
        let kept = std::mem::take(&mut self.person);
        for (index, output) in (1..).zip(shards) {
            let run = Run { output: output.into(), shard: Shard::new(index, 2).ok(), ..self.run.clone() };
            self.place.label(&run).map_err(|e| e.to_string())?;
        }
        let folders = shards.map(|shard| self.place.path(shard));
        let joined = self.place.path("joined");
        for round in 0..2 {
            for output in shards {
                for file in labels(&self.place, output) {
                    match self.below(4) {
                        0 => self.correct_file(&file),
                        1 if round == 0 && file.starts_with(&format!("{output}/labels")) => {
                            self.save_as_it_is(output, &file)?;
                        }
                        _ => {}
                    }
                }
            }
            for _ in 0..2 {
                let writes = self.below(80);
                drop(stopping(writes, || merge(&folders, &joined, &mut || Ok(()))));
            }
            merge(&folders, &joined, &mut || Ok(())).map_err(|e| e.to_string())?;
            self.check_joined(round)?;
        }
        // A later run leaves what was merged.
        let run = Run { output: "joined".into(), ..self.run.clone() };
        let run = Run { existing: Existing { restart: true, ..Existing::default() }, ..run };
        self.change_picture();
        self.place.label(&run).map_err(|e| e.to_string())?;
        let checked = self.check_joined(2);
        shards.iter().chain(&["joined"]).for_each(|folder| {
            std::fs::remove_dir_all(self.place.path(folder)).expect("a temporary folder");
        });
        self.person = kept;
        checked
    }

    fn save_as_it_is(&mut self, output: &str, file: &str) -> Result<(), String> {
        let set = CorrectedSet::open(&self.place.path(output)).map_err(|e| e.to_string())?;
        let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".txt");
        let Some(image) = set.images().iter().find(|image| image.name.trim_end_matches(".png") == stem)
        else {
            return Ok(());
        };
        let labels = set.labels(image).map_err(|e| e.to_string())?;
        set.save(image, &labels.version, &labels.instances).map_err(|e| e.to_string())?;
        let text = self.place.read(file);
        self.remember(file, text);
        Ok(())
    }

    /// The joined data set has the corrections of all shards.
    fn check_joined(&self, round: usize) -> Result<(), String> {
        for (file, written) in &self.person {
            let Some((_, below)) = file.split_once('/') else { continue };
            let there = self.place.read(&format!("joined/{below}"));
            if there != written.content {
                return Err(format!(
                    "round {round}: joined/{below}: {there:?}, {file} has {:?}",
                    written.content
                ));
            }
        }
        Ok(())
    }

    /// What a person wrote is as it was left, at any time.
    fn check_person(&self) -> Result<(), String> {
        for (file, written) in &self.person {
            let there = self.place.read(file);
            if there != written.content {
                return Err(format!("{file}: {there:?}, the person left {:?}", written.content));
            }
        }
        Ok(())
    }

    /// What a finished run leaves.
    fn check(&mut self, summary: &Summary, before: &BTreeMap<String, String>) -> Result<(), String> {
        self.check_person()?;
        let reported: Vec<&str> = summary
            .outdated
            .iter()
            .chain(&summary.edited)
            .map(|name| name.trim_end_matches(".png"))
            .collect();
        let is_reported = |file: &str| reported.contains(&stem_of(file));
        for (file, written) in &self.person {
            let now = picture_beside(&self.place, file);
            // A picture that cannot be read is in `failed.csv`.
            let is_bad = now.as_deref() == Some("bad");
            if !is_bad
                && now.is_some()
                && written.beside.is_some()
                && now != written.beside
                && !is_reported(file)
            {
                return Err(format!(
                    "{file}: corrected beside {:?}, now beside {now:?}, not reported",
                    written.beside
                ));
            }
        }
        for file in labels(&self.place, "set") {
            let Some(picture) = picture_beside(&self.place, &file) else { continue };
            let is_known = self.person.contains_key(&file) || picture == "bad" || is_reported(&file);
            let text = self.place.read(&file).unwrap_or_default();
            let format = if file.contains("segments/") { Format::YoloSeg } else { Format::Yolo };
            if !is_known && !describes(&text, picture.len(), format) {
                return Err(format!("{file}: {text:?} beside a picture of {} bytes", picture.len()));
            }
        }
        self.check_coco("set", before, Some(&reported))?;
        // Every picture that is named is in the data set.
        let has_images = self.run.options.formats.contains(&Format::Yolo);
        let in_set: BTreeSet<String> = files_below(&self.place, "set/images").into_values().collect();
        // So is every picture that was in it, unless a person removed or replaced it.
        for (file, picture) in before.iter().filter(|(file, _)| file.starts_with("set/images/")) {
            let is_other =
                picture == "bad" || picture.starts_with("edited") || self.gone.contains(&picture.len());
            if !is_other && !in_set.contains(picture) {
                return Err(format!(
                    "{file}: the picture of {} bytes is not in the data set any more",
                    picture.len()
                ));
            }
        }
        let folders = [Some(&self.place.images), self.place.also.as_ref()];
        let mut missing = Vec::new();
        for (file, picture) in
            folders.into_iter().flatten().flat_map(|folder| files_below(&self.place, folder))
        {
            if has_images && picture != "bad" && !in_set.contains(&picture) {
                missing.push(file);
            }
        }
        if missing.len() > reported.len() {
            return Err(format!("{missing:?} are not in the data set; reported: {reported:?}"));
        }
        // What is no longer there is reported, and was removed by a person.
        for (file, text) in before.iter().filter(|(file, _)| is_label(file)) {
            let stem = stem_of(file);
            if self.person.contains_key(file)
                || labels_of(stem).iter().any(|file| self.place.read(file).is_some())
            {
                continue;
            }
            let is_removed = summary.removed.iter().any(|name| name.trim_end_matches(".png") == stem);
            let has_person = labels_of(stem).iter().any(|file| self.person.contains_key(file));
            let was_removed = self.gone.iter().any(|length| {
                [Format::Yolo, Format::YoloSeg].iter().any(|format| describes(text, *length, *format))
            });
            if !(has_person || is_removed && was_removed) {
                return Err(format!(
                    "{file} is gone: reported {is_removed}, removed by a person {was_removed}"
                ));
            }
        }
        Ok(())
    }

    /// The entries of COCO's file describe the pictures beside them, and none is lost.
    fn check_coco(
        &self,
        output: &str,
        before: &BTreeMap<String, String>,
        reported: Option<&[&str]>,
    ) -> Result<(), String> {
        let Some(text) = self.place.read(&format!("{output}/annotations.json")) else { return Ok(()) };
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
        let earlier = before
            .get(&format!("{output}/annotations.json"))
            .map_or(0, |text| text.matches("file_name").count());
        let is_quiet = reported.is_none_or(<[&str]>::is_empty);
        if is_quiet && list("images").len() < earlier && self.gone.is_empty() {
            return Err(format!("annotations.json had {earlier} images, has {}", list("images").len()));
        }
        let Some(reported) = reported else { return Ok(()) };
        for image in list("images") {
            let name = image["file_name"].as_str().unwrap_or_default();
            let Some(picture) = self.place.read(&format!("{output}/images/{name}")) else { continue };
            if picture == "bad" || reported.contains(&stem_of(name)) || self.page_saved(name) {
                continue;
            }
            for one in list("annotations").iter().filter(|one| one["image_id"] == image["id"]) {
                let left = one["bbox"][0].as_f64().unwrap_or(f64::NAN);
                if (left * 20.0 - picture.len() as f64).abs() > 0.5 && picture.len() as f64 / 20.0 < SIDE {
                    return Err(format!(
                        "annotations.json, {name}: a box at {left} beside {} bytes",
                        picture.len()
                    ));
                }
            }
        }
        Ok(())
    }

    fn page_saved(&self, name: &str) -> bool {
        self.log.iter().any(|line| line.starts_with(&format!("saves {}.png", stem_of(name))))
    }
}

/// The image that a file belongs to, without extension.
fn stem_of(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Whether every line of a label file describes the picture of this length.
fn describes(text: &str, length: usize, format: Format) -> bool {
    let expected = text_of(length, format);
    let rest = |line: &str| line.split_once(' ').map(|(_, rest)| rest.to_owned());
    !text.is_empty() && text.lines().all(|line| rest(line) == rest(expected.trim_end()))
}

fn is_label(file: &str) -> bool {
    file.ends_with(".txt") && file.contains("labels/") && !file.contains("added/")
}

fn is_copy(place: &Place, file: &str) -> bool {
    place.path(file).symlink_metadata().is_ok_and(|there| there.is_file())
}

/// The places of the label files of an image.
fn labels_of(stem: &str) -> Vec<String> {
    let folders = ["set/labels", "set/segments/labels"];
    folders
        .iter()
        .flat_map(|folder| ["train", "val"].map(|split| format!("{folder}/{split}/{stem}.txt")))
        .collect()
}

/// The picture beside a label file.
fn picture_beside(place: &Place, file: &str) -> Option<String> {
    place.read(&file.replacen("labels/", "images/", 1).replace(".txt", ".png"))
}

fn labels(place: &Place, output: &str) -> Vec<String> {
    files_below(place, output).into_keys().filter(|file| is_label(file)).collect()
}

/// The files below a folder with their contents, without the state of a data set.
fn files_below(place: &Place, folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(place.path(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            match (entry.path().is_dir(), name.starts_with('.'), Path::new(&name).extension()) {
                (_, true, _) | (false, _, None) => {}
                (true, ..) => folders.push(path),
                _ => found.extend(place.read(&path).map(|text| (path.clone(), text))),
            }
        }
    }
    found
}

#[test]
fn no_sequence_of_events_loses_work_or_mixes_up_pictures() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OCELLI_SEQUENCE").unwrap_or(0);
    let count = number("OCELLI_SEQUENCES").unwrap_or(if first == 0 { SEQUENCES } else { 1 });
    let mut failures = Vec::new();
    for seed in first..first + count {
        let mut sequence = Sequence::new(seed);
        let ended = (0..STEPS).try_for_each(|_| sequence.step()).and_then(|()| sequence.label());
        if let Err(why) = ended {
            failures.push(format!("OCELLI_SEQUENCE={seed}: {why}\n  {}", sequence.log.join("\n  ")));
        }
    }
    let shown = failures.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} sequences:\n{shown}", failures.len());
}
