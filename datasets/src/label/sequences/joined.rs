//! Shards that are labelled, corrected, labelled again after images changed, and merged more than once.

use ocelli::ErrorKind;

use super::{CorrectedSet, Run, Sequence, Written, files_below, labels, stem_of};
use crate::label::folders::stopping;
use crate::label::{Existing, Shard, Summary, merge};

const SHARDS: [&str; 2] = ["one", "two"];

impl Sequence {
    /// Labels two shards, corrects files in them, merges them with stops in between, and again after new corrections.
    pub(super) fn merge(&mut self) -> Result<(), String> {
        if !self.has_images() || self.former.is_some() {
            return Ok(());
        }
        let kept = std::mem::take(&mut self.person);
        let merged = self.merge_shards();
        SHARDS.iter().chain(&["joined"]).for_each(|folder| {
            std::fs::remove_dir_all(self.place.path(folder)).unwrap_or_default();
        });
        self.person = kept;
        merged
    }

    fn merge_shards(&mut self) -> Result<(), String> {
        let first_day = self.place.also.clone().filter(|_| self.below(2) == 0);
        let is_renamed = first_day.is_some();
        if let Some(also) = first_day {
            // On the first day, the other folder was out of reach.
            let images = std::mem::replace(&mut self.place.images, also);
            let also = self.place.also.take();
            self.label_shard(1, SHARDS[0])?;
            (self.place.images, self.place.also) = (images, also);
        }
        self.label_shards()?;
        let folders = SHARDS.map(|shard| self.place.path(shard));
        let joined = self.place.path("joined");
        for round in 0..2 {
            if self.below(3) == 0 {
                self.replace_a_named_image();
                self.label_shards()?;
            }
            for output in SHARDS {
                for file in labels(&self.place, output) {
                    match self.below(4) {
                        0 => self.correct_file(&file),
                        1 if file.starts_with(&format!("{output}/labels")) => {
                            self.save_as_it_is(output, &file)?;
                        }
                        _ => {}
                    }
                }
            }
            if self.below(3) == 0 {
                self.replace_a_named_image();
                self.label_shards()?;
            }
            for _ in 0..2 {
                let writes = self.below(80);
                let stopped = stopping(writes, || merge(&folders, &joined, &mut || Ok(())));
                if stopped.is_err_and(|e| e.kind() == ErrorKind::InvalidArgument) {
                    return Err("a merge after a stop is refused".into());
                }
            }
            let summary = merge(&folders, &joined, &mut || Ok(())).map_err(|e| e.to_string())?;
            self.check_joined(&format!("round {round}"), &summary, is_renamed)?;
        }
        // A later run leaves what was merged.
        let run = Run { output: "joined".into(), ..self.run.clone() };
        let run = Run { existing: Existing { restart: true, ..Existing::default() }, ..run };
        self.change_image();
        let summary = self.place.label(&run).map_err(|e| e.to_string())?;
        self.check_joined("a later run", &summary, is_renamed)
    }

    fn label_shards(&mut self) -> Result<(), String> {
        for (index, output) in (1..).zip(SHARDS) {
            self.label_shard(index, output)?;
        }
        self.check_person()
    }

    fn label_shard(&self, index: u32, output: &str) -> Result<(), String> {
        let run = Run { output: output.into(), shard: Shard::new(index, 2).ok(), ..self.run.clone() };
        self.place.label(&run).map(drop).map_err(|e| format!("{output}: {e}"))
    }

    /// Replaces a file, so that the shards have the same images.
    fn replace_a_named_image(&mut self) {
        let files: Vec<String> = files_below(&self.place, &self.place.images).into_keys().collect();
        let name = files[self.below(files.len() as u64) as usize].clone();
        self.replace_image(&name);
    }

    /// Saves a label file in the gallery; a folder's files may be ones that a person removed before.
    fn save_as_it_is(&mut self, output: &str, file: &str) -> Result<(), String> {
        let set = CorrectedSet::open(&self.place.path(output)).map_err(|e| e.to_string())?;
        let stem = stem_of(file);
        let Some(image) = set.images().iter().find(|image| stem_of(&image.name) == stem) else {
            return Ok(());
        };
        let labels = set.labels(image).map_err(|e| e.to_string())?;
        let content = set.read_image(image).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        set.save(image, &labels.version, &labels.instances).map_err(|e| e.to_string())?;
        for file in [file.to_owned(), file.replacen("labels/", "segments/labels/", 1)] {
            if let Some(text) = self.place.read(&file) {
                self.remember(&file, Some(text), content.clone());
            }
        }
        Ok(())
    }

    /// The joined data set has the corrections of all shards, beside the images that they describe, or says so.
    /// With `is_renamed`, the shards may know them by other names.
    fn check_joined(&self, when: &str, summary: &Summary, is_renamed: bool) -> Result<(), String> {
        let named = self.named();
        let mut person = std::collections::BTreeMap::<String, Written>::new();
        for (file, written) in &self.person {
            let Some((_, below)) = file.split_once('/') else { continue };
            let mut joined = format!("joined/{below}");
            if is_renamed {
                let folder = &below[..below.find("labels/").unwrap_or(0)];
                // A label file that was removed is known by the image alone.
                let images = files_below(&self.place, &format!("joined/{folder}images"));
                let is_it = |(_, image): &(&String, &String)| written.beside.as_ref() == Some(*image);
                let Some((file, _)) = images.iter().find(is_it) else { continue };
                let stem = file.rsplit_once('.').map_or(&**file, |(stem, _)| stem);
                joined = format!("{}.txt", stem.replacen("images/", "labels/", 1));
            }
            let there = self.place.read(&joined);
            if there != written.content {
                return Err(format!("{when}: {joined}: {there:?}, {file} has {:?}", written.content));
            }
            person.insert(joined, written.clone());
        }
        let images: Vec<String> = files_below(&self.place, "joined/images").into_values().collect();
        let times = |image: &String| images.iter().filter(|there| *there == image).count();
        let missing = named.iter().filter(|image| *image != "bad" && times(image) == 0).count();
        let others = summary.outdated.len() + summary.edited.len() + summary.changed.len();
        if named.iter().any(|image| image != "bad" && times(image) > 1) || missing > others {
            let lengths = |all: &mut dyn Iterator<Item = &String>| all.map(String::len).collect::<Vec<_>>();
            let (named, there) = (lengths(&mut named.iter()), lengths(&mut images.iter()));
            return Err(format!("{when}: images of {there:?} bytes for {named:?}"));
        }
        self.check_images("joined", &person, summary, &named).map_err(|why| format!("{when}: {why}"))?;
        self.check_coco("joined", summary).map_err(|why| format!("{when}: {why}"))
    }
}
