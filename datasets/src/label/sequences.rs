//! Random sequences of what happens to a data set, against a model of what every label file must hold.

use std::collections::{BTreeMap, BTreeSet};

use ocelli::ErrorKind;

use super::corrections::{Place, Run, stopping, text_of};
use super::{Existing, Format, ImageMode, Shard, merge};

const SEQUENCES: u64 = 1000;
const STEPS: u64 = 14;
const IMAGES: u64 = 6;

/// What the label files of a data set must hold.
#[derive(Default)]
struct Model {
    /// The images that can be named, with their length; `None` if they cannot be read.
    images: BTreeMap<String, Option<usize>>,
    /// The lengths that each image ever had.
    seen: BTreeMap<String, BTreeSet<usize>>,
    /// The files that the person changed; `None` if they were removed.
    person: BTreeMap<String, Option<String>>,
    /// The split of each image whose labels a finished run wrote.
    finished: BTreeMap<String, &'static str>,
}

impl Model {
    /// What the person changed is as it was left, at any time.
    fn check_person(&self, place: &Place) -> Result<(), String> {
        for (file, content) in &self.person {
            let there = place.read(file);
            if there != *content {
                return Err(format!("{file}: {there:?}, the person left {content:?}"));
            }
        }
        Ok(())
    }

    /// What a finished run leaves.
    fn check_finished(&mut self, place: &Place, run: &Run) -> Result<(), String> {
        self.check_person(place)?;
        for (name, length) in &self.images {
            let file = |split: &str| label(&run.output, split, name);
            let splits = ["train", "val"];
            if splits.iter().any(|split| self.person.contains_key(&file(split))) {
                continue;
            }
            let there: Vec<_> =
                splits.into_iter().filter(|split| place.read(&file(split)).is_some()).collect();
            let before = self.finished.get(name);
            let split = match there[..] {
                [split] if before.is_none_or(|before| *before == split) => split,
                [] if length.is_none() && before.is_none() => continue,
                _ => return Err(format!("{name}: its labels are in {there:?}, before in {before:?}")),
            };
            let text = place.read(&file(split)).unwrap_or_default();
            let format = run.options.formats[0];
            let may_be: Vec<String> = match length {
                Some(length) => vec![text_of(*length, format)],
                None => self.seen[name].iter().map(|length| text_of(*length, format)).collect(),
            };
            if !may_be.contains(&text) {
                return Err(format!("{name}: {text:?}, expected one of {may_be:?}"));
            }
            self.finished.insert(name.clone(), split);
        }
        Ok(())
    }
}

fn label(output: &str, split: &str, name: &str) -> String {
    format!("{output}/labels/{split}/{}.txt", name.trim_end_matches(".png"))
}

/// The label files that are there.
fn labels(place: &Place, output: &str) -> Vec<String> {
    let mut found = Vec::new();
    for split in ["train", "val"] {
        let folder = format!("{output}/labels/{split}");
        let Ok(entries) = std::fs::read_dir(place.path(&folder)) else { continue };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| name.ends_with(".txt")).map(|name| format!("{folder}/{name}")));
    }
    found.sort();
    found
}

struct Sequence {
    place: Place,
    model: Model,
    run: Run,
    random: u64,
    /// Makes every content another one.
    next: usize,
    /// Whether an image could not be read at some time.
    was_bad: bool,
    log: Vec<String>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let mut run = Run::default();
        run.options.validation_share = 0.3;
        if seed.is_multiple_of(2) {
            run.options.images = ImageMode::Copy;
        }
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            place: Place::new(),
            model: Model::default(),
            run,
            random,
            next: 0,
            was_bad: false,
            log: Vec::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn name(&mut self) -> String {
        format!("{}.png", self.below(IMAGES))
    }

    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn step(&mut self) -> Result<(), String> {
        let step = self.below(15);
        self.log.push(format!("step {step}"));
        match step {
            0..=2 => self.label(),
            3 | 4 => self.stop(),
            5 | 6 => self.correct(),
            7 => {
                let to = format!("images-{}", self.fresh());
                if self.place.path(&self.place.images).is_dir() {
                    std::fs::rename(self.place.path(&self.place.images), self.place.path(&to))
                        .expect("it can");
                }
                self.place.images = to;
                Ok(())
            }
            8 | 9 => {
                let (name, length) = (self.name(), self.fresh());
                self.place.image(&name, length);
                self.model.seen.entry(name.clone()).or_default().insert(length);
                self.model.images.insert(name, Some(length));
                Ok(())
            }
            10 => {
                let name = self.name();
                if self.model.images.get(&name).is_some_and(Option::is_some) {
                    self.place.write(&format!("{}/{name}", self.place.images), "bad");
                    self.model.images.insert(name, None);
                    self.was_bad = true;
                }
                Ok(())
            }
            11 => {
                self.run.options.validation_share = self.below(10) as f64 / 10.0;
                let name = self.name();
                if self.model.images.len() > 1 && self.model.images.remove(&name).is_some() {
                    self.place.remove(&format!("{}/{name}", self.place.images));
                    // Without its image, a label file that is ours may go.
                    self.model.finished.remove(&name);
                }
                Ok(())
            }
            12 => self.change(),
            13 => self.forget(),
            _ => self.merge(),
        }
    }

    fn label(&mut self) -> Result<(), String> {
        if self.model.images.is_empty() {
            return Ok(());
        }
        self.place.label(&self.run).map_err(|e| e.to_string())?;
        self.model.check_finished(&self.place, &self.run)
    }

    /// The data set is one of a version that kept no record.
    fn forget(&mut self) -> Result<(), String> {
        self.label()?;
        let record = format!("{}/.ocelli-label/written.jsonl", self.run.output);
        // That version removed the labels of images that it could not read, which looks like a correction.
        if !self.was_bad && self.place.path(&record).is_file() {
            self.log.push("forgets its record".into());
            self.place.remove(&record);
            return self.label();
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        if self.model.images.is_empty() {
            return Ok(());
        }
        let writes = self.below(60);
        self.log.push(format!("stops after {writes} writes"));
        if self.place.label_and_stop(&self.run, writes) {
            return self.model.check_finished(&self.place, &self.run);
        }
        self.model.check_person(&self.place)
    }

    /// Edits, empties or removes a label file.
    fn correct(&mut self) -> Result<(), String> {
        let files = labels(&self.place, &self.run.output);
        if !files.is_empty() {
            let file = files[self.below(files.len() as u64) as usize].clone();
            let content = self.correct_file(&file);
            self.model.person.insert(file, content);
        }
        Ok(())
    }

    fn correct_file(&mut self, file: &str) -> Option<String> {
        let content = match self.below(3) {
            0 => Some(String::new()),
            1 => Some(format!("0 0.5 0.5 0.1 0.{}\n", self.fresh())),
            _ => None,
        };
        self.log.push(format!("{file} becomes {content:?}"));
        match &content {
            Some(text) => self.place.write(file, text),
            None => self.place.remove(file),
        }
        content
    }

    /// Another format or other classes: refused if that overwrites corrections, unless they are discarded.
    fn change(&mut self) -> Result<(), String> {
        if self.model.images.is_empty() || !self.place.path(&self.run.output).is_dir() {
            return Ok(());
        }
        let mut run = self.run.clone();
        let restart = self.below(2) == 0;
        if restart {
            run.classes = if run.classes == ["dog"] { vec!["cat"] } else { vec!["dog"] };
            run.existing.restart = true;
        } else {
            let format = if run.options.formats == [Format::Yolo] { Format::YoloSeg } else { Format::Yolo };
            run.options.formats = vec![format];
        }
        if !self.model.person.is_empty() {
            match self.place.label(&run) {
                Err(e) if e.kind() == ErrorKind::Mismatch => {
                    let text = e.to_string();
                    for file in self.model.person.keys() {
                        // A file that is missing may be listed in the other split.
                        let file = file.rsplit('/').next().unwrap_or(file);
                        if !text.contains(file) {
                            return Err(format!("{file} is not in the list: {text}"));
                        }
                    }
                }
                other => return Err(format!("expected a refusal, came {:?}", other.err())),
            }
            self.model.check_person(&self.place)?;
            if self.below(2) == 0 {
                return Ok(());
            }
            run.existing.discard_corrections = true;
            self.model.person.clear();
            self.model.finished.clear();
        }
        if restart {
            // What cannot be read now has no labels after a restart.
            self.model.finished.clear();
        }
        self.log.push(format!("changes to {:?} {:?}", run.classes, run.options.formats));
        self.place.label(&run).map_err(|e| e.to_string())?;
        self.run = Run { existing: Existing::default(), ..run };
        self.model.check_finished(&self.place, &self.run)
    }

    /// Labels two shards, corrects files in them, merges them with stops in between, and corrects the joined files.
    fn merge(&mut self) -> Result<(), String> {
        if self.model.images.is_empty() {
            return Ok(());
        }
        let mut person = BTreeMap::new();
        let shards = ["shard-1", "shard-2"];
        for (index, output) in (1..).zip(shards) {
            let shard = Shard::new(index, 2).ok();
            let run = Run { output: output.into(), shard, ..self.run.clone() };
            self.place.label(&run).map_err(|e| e.to_string())?;
            for file in labels(&self.place, output) {
                if self.below(3) == 0 {
                    let content = self.correct_file(&file);
                    person.insert(file.replacen(output, "joined", 1), content);
                }
            }
        }
        let folders = shards.map(|shard| self.place.path(shard));
        let joined = self.place.path("joined");
        for _ in 0..3 {
            let writes = self.below(80);
            let ended = stopping(writes, || merge(&folders, &joined, &mut || Ok(())));
            self.log.push(format!("merges with {writes} writes: {:?}", ended.err()));
            let files = labels(&self.place, "joined");
            if !files.is_empty() && self.below(2) == 0 {
                let file = files[self.below(files.len() as u64) as usize].clone();
                let content = self.correct_file(&file);
                person.insert(file, content);
            }
        }
        merge(&folders, &joined, &mut || Ok(())).map_err(|e| e.to_string())?;
        let images = self.model.images.iter().filter(|(_, length)| length.is_some());
        let mut model = Model {
            images: images.map(|(name, length)| (name.clone(), *length)).collect(),
            person,
            ..Model::default()
        };
        let run = Run { output: "joined".into(), ..self.run.clone() };
        let checked = model.check_finished(&self.place, &run);
        shards.iter().chain(&["joined"]).for_each(|folder| {
            std::fs::remove_dir_all(self.place.path(folder)).expect("a temporary folder");
        });
        checked
    }
}

#[test]
fn no_sequence_of_events_loses_a_correction() {
    let one = std::env::var("OCELLI_SEQUENCE").ok().and_then(|seed| seed.parse().ok());
    let count =
        std::env::var("OCELLI_SEQUENCES").ok().and_then(|count| count.parse().ok()).unwrap_or(SEQUENCES);
    let mut failures = Vec::new();
    for seed in one.map_or(0..count, |seed: u64| seed..seed + 1) {
        let mut sequence = Sequence::new(seed);
        let ended = (0..STEPS).try_for_each(|_| sequence.step()).and_then(|()| sequence.label());
        if let Err(why) = ended {
            failures.push(format!("OCELLI_SEQUENCE={seed}: {why}\n  {}", sequence.log.join("\n  ")));
        }
    }
    let shown = failures.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} sequences:\n{shown}", failures.len());
}
