//! Random sequences of what happens to a data set, against what its owner may rely on:
//!
//! * A label never describes another image than the one beside it. Where a person's label does, the run says so.
//! * A class id never means another class than the one that was found or chosen.
//! * What a person wrote is never lost, and never beside another image without a word.
//! * Classes that a corrected label file lacks are proposed, unless the person removed the proposal.
//! * What is no longer there is reported, and only what a person removed, or left out of a restart with other classes, is.
//!
//! Every image has a length of its own, which the detector reads, and every class a row: a line of a label file shows which
//! image and which class it is about.

mod checks;
mod events;
mod joined;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::label::disk::REFUSES_HARD_LINKS;
use crate::label::folders::{Place, Run, copies, place_of, row_of};
use crate::label::{CorrectedSet, Format, Labels, SetImage};

const SEQUENCES: u64 = 400;
const STEPS: u64 = 14;
const NAMES: u64 = 4;
const FORMATS: [&[Format]; 8] = [
    &[Format::Yolo],
    &[Format::Yolo, Format::YoloSeg],
    &[Format::Yolo, Format::Coco],
    &[Format::Yolo, Format::YoloSeg, Format::Coco],
    &[Format::Coco],
    &[Format::Yolo, Format::Voc],
    &[Format::Yolo, Format::Masks],
    &[Format::Yolo, Format::Masks, Format::Coco],
];

/// A file that a person wrote.
#[derive(Clone, Debug)]
struct Written {
    /// `None` if it was removed.
    content: Option<String>,
    /// The image that the person saw.
    beside: Option<String>,
    /// The classes that its ids mean.
    classes: Vec<String>,
}

/// The labels that a person saved for an image of a data set of COCO alone, or changed in COCO's file.
#[derive(Clone, Debug)]
struct SavedImage {
    /// Class, left and upper edge of each box, in order.
    boxes: Vec<(String, i64, i64)>,
    beside: Option<String>,
    classes: usize,
}

/// A page of the gallery that was loaded some time ago.
struct Page {
    set: CorrectedSet,
    image: SetImage,
    labels: Labels,
    content: Option<String>,
}

/// The files that the last finished run left, without the person's, and its formats and classes.
#[derive(Default)]
struct Finished {
    files: BTreeMap<String, String>,
    formats: Vec<Format>,
    classes: Vec<&'static str>,
}

struct Sequence {
    place: Place,
    run: Run,
    random: u64,
    /// Makes every image another one.
    next: usize,
    person: BTreeMap<String, Written>,
    saved: BTreeMap<String, SavedImage>,
    /// The masks that a person changed, removed or added, and those beside them, with their bytes.
    masks: BTreeMap<String, Option<Vec<u8>>>,
    /// The last run was stopped.
    is_stopped: bool,
    /// The images that a person changed in COCO's file since a run ended, with the boxes that it had.
    edited: BTreeMap<String, Vec<(String, i64, i64)>>,
    /// The images whose label files a person changed, too, before a run ended: either may count.
    contradicted: BTreeSet<String>,
    /// The classes of proposals that a person removed, by label file.
    handled: BTreeMap<String, usize>,
    /// The lengths of images that a person removed or replaced.
    gone: BTreeSet<usize>,
    /// The images that a person put into the data set.
    own: BTreeMap<String, String>,
    /// Folders that were moved or are not mounted: where they were, and where they are.
    away: Vec<(String, String)>,
    page: Option<Page>,
    finished: Finished,
    /// A restart with another order of the classes has not ended; the order before.
    former: Option<Vec<&'static str>>,
    log: Vec<String>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        REFUSES_HARD_LINKS.set(false);
        let options = if seed.is_multiple_of(2) { copies() } else { Run::default().options };
        let mut run = Run { options, finds_added: true, ..Run::default() };
        run.options.validation_share = 0.3;
        run.options.formats = FORMATS[(seed / 2) as usize % FORMATS.len()].to_vec();
        Self {
            place: Place::new(),
            run,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            // Size and time tell images apart, and two may be written at once: none is as long as one that is bad.
            next: "bad".len(),
            person: BTreeMap::new(),
            saved: BTreeMap::new(),
            masks: BTreeMap::new(),
            is_stopped: false,
            edited: BTreeMap::new(),
            contradicted: BTreeSet::new(),
            handled: BTreeMap::new(),
            gone: BTreeSet::new(),
            own: BTreeMap::new(),
            away: Vec::new(),
            page: None,
            finished: Finished::default(),
            former: None,
            log: Vec::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn step(&mut self) -> Result<(), String> {
        let step = self.below(44);
        self.log.push(format!("step {step}"));
        match step {
            0..=2 => return self.label(),
            3 => return self.stop(false),
            4 | 5 => return self.stop(true),
            6 | 7 => self.correct(),
            8..=10 => self.change_image(),
            11 => self.remove_image(),
            12 => self.move_folder(),
            13 => self.choose_folders(),
            14 => self.unmount(),
            15 => self.mount(),
            16 => self.page = self.load_page(),
            17 | 18 => return self.save(),
            19 => self.run.options.validation_share = self.below(10) as f64 / 10.0,
            20 | 21 => return self.add_class(),
            22 => self.remove_proposals(),
            23 => return self.edit_image(),
            24 | 25 => return self.reorder_classes(),
            26 | 27 => self.change_mode(),
            28 | 29 => return self.change_formats(),
            30 => self.copy_to_another_disk(),
            31 => self.add_own_image(),
            32 => return self.replace_during_a_run(),
            33 => self.mount_a_twin(),
            34 | 35 => self.lose_times(),
            36 | 37 => self.edit_annotations()?,
            38..=40 => self.edit_masks(),
            41 | 42 => self.move_to_other_split(),
            _ => return self.merge(),
        }
        Ok(())
    }

    /// The folders of the images that the next run names.
    fn folders(&self) -> Vec<&String> {
        [Some(&self.place.images), self.place.also.as_ref()].into_iter().flatten().collect()
    }

    fn has_images(&self) -> bool {
        self.folders().into_iter().all(|folder| !files_below(&self.place, folder).is_empty())
    }

    /// The images that the next run names.
    fn named(&self) -> BTreeSet<String> {
        self.folders().into_iter().flat_map(|folder| files_below(&self.place, folder).into_values()).collect()
    }

    fn has_corrections(&self) -> bool {
        !self.person.is_empty() || !self.saved.is_empty() || !self.masks.is_empty()
    }
}

/// The image that a file belongs to, without extension.
fn stem_of(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The class ids of the lines of a label file if every line is about the image of this length, and its id about its class.
fn ids_of(text: &str, length: usize, format: Format, classes: &[&str]) -> Option<BTreeSet<usize>> {
    let id_of = |line: &str| {
        let (id, _) = line.split_once(' ')?;
        let id = id.parse::<usize>().ok()?;
        let row = row_of(classes.get(id)?);
        (line == format!("{id}{}", place_of(length, format, row))).then_some(id)
    };
    text.lines().map(id_of).collect()
}

fn format_of(file: &str) -> Format {
    if file.contains("segments/") { Format::YoloSeg } else { Format::Yolo }
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

/// The masks in the data set, each as a path.
fn masks_below(place: &Place, folder: &str) -> Vec<String> {
    let pattern = place.path(folder).join("**/*.png").to_string_lossy().into_owned();
    let found = glob::glob(&pattern).expect("it is a pattern").filter_map(Result::ok);
    let root = place.path("");
    found.filter_map(|path| Some(path.strip_prefix(&root).ok()?.to_str()?.to_owned())).collect()
}

/// The image beside a label file.
fn image_beside(place: &Place, file: &str) -> Option<String> {
    let image = file.replacen("labels/", "images/", 1);
    let stem = image.trim_end_matches(".txt");
    ["png", "bmp"].iter().find_map(|extension| place.read(&format!("{stem}.{extension}")))
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

/// `OCELLI_SEQUENCES` sets how many, `OCELLI_SEQUENCE` the first one.
#[expect(clippy::print_stdout, reason = "long runs show how far they are, and what they found")]
#[test]
fn no_sequence_of_events_loses_work_or_mixes_up_images() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OCELLI_SEQUENCE").unwrap_or(0);
    let count = number("OCELLI_SEQUENCES").unwrap_or(if first == 0 { SEQUENCES } else { 1 });
    let mut failures = Vec::new();
    for seed in first..first + count {
        let mut sequence = Sequence::new(seed);
        let ended = (0..STEPS).try_for_each(|_| sequence.step()).and_then(|()| sequence.label());
        if let Err(why) = ended {
            failures.push(format!("OCELLI_SEQUENCE={seed}: {why}\n  {}", sequence.log.join("\n  ")));
            println!("OCELLI_SEQUENCE={seed}: {why}");
        }
        if count > SEQUENCES && (seed + 1 - first).is_multiple_of(1000) {
            println!("{} sequences, {} failures", seed + 1 - first, failures.len());
        }
    }
    let shown = failures.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} sequences:\n{shown}", failures.len());
}
