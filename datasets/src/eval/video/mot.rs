//! Boxes of tracks as MOTChallenge text, preprocessed as its evaluation does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ocelli::{Error, Result};

use super::layout::{self, SequenceFiles, invalid, lines, mismatch};
use super::{ObjectBox, Role, TrackBox, TrackCounts, TrackReport, TrackSequence, VideoReport};
use crate::eval::entries::repeated;

/// The classes of MOT16, MOT17 and MOT20: 1 is pedestrian.
const CLASSES: std::ops::RangeInclusive<i64> = 1..=13;
const PEDESTRIAN: i64 = 1;
/// Person on a vehicle, static person, distractor, reflection; in MOT20 other vehicles as well.
const DISTRACTORS: [i64; 4] = [2, 7, 8, 12];
const NON_MOT_VEHICLE: i64 = 6;

/// One line. Numbers are `f64` here, as in other evaluations, and not `f32` as in the tracker.
struct Line {
    frame: u64,
    id: u64,
    ltwh: [f64; 4],
    /// The seventh number without its decimals: 0 for an annotation that does not count.
    flag: i64,
    class: Option<i64>,
}

/// Evaluates the sequences of a file or a folder.
pub(super) fn evaluate(truth: &Path, predictions: &Path) -> Result<VideoReport> {
    let (mut notes, mut sequences) = (Vec::new(), Vec::new());
    for files in layout::sequences(truth, predictions, &mut notes)? {
        let counts = count(&files, &mut notes)?;
        sequences.push((files.name, counts));
    }
    let tracks = Some(TrackReport::new(truth, sequences, Vec::new())?);
    Ok(VideoReport { tracks, notes, ..VideoReport::default() })
}

/// Counts one sequence. `notes` says how classes were understood.
fn count(files: &SequenceFiles, notes: &mut Vec<String>) -> Result<TrackCounts> {
    let (truth, found) = (read(files, &files.truth)?, read(files, &files.predictions)?);
    let has_classes = truth.values().flatten().any(|line| line.class.is_some_and(|class| class > 0));
    if has_classes {
        let is_known = |line: &&Line| line.class.is_some_and(|class| CLASSES.contains(&class));
        if let Some(Line { frame, class, .. }) = truth.values().flatten().find(|line| !is_known(line)) {
            let class = class.map_or("none".to_owned(), |class| class.to_string());
            let why = "expected MOTChallenge's classes, 1 to 13, or -1 in every line";
            return Err(invalid(&files.truth, format!("frame {frame}: class {class}; {why}")));
        }
        let is_other = |line: &&Line| line.class.is_some_and(|class| class > PEDESTRIAN);
        if let Some(Line { frame, class, .. }) = found.values().flatten().find(is_other) {
            let class = class.unwrap_or_default();
            let why = "MOTChallenge's evaluation is of pedestrians, class 1, alone";
            return Err(mismatch(&files.predictions, format!("frame {frame}: class {class}; {why}")));
        }
    }
    let note = if has_classes {
        "MOTChallenge's classes: pedestrians count, and tracks on distractors are removed"
    } else {
        "no classes in the ground truth: every box counts whose seventh number is not 0"
    };
    if !notes.iter().any(|known| known == note) {
        notes.push(note.to_owned());
    }
    let is_mot20 = files.name.starts_with("MOT20");
    let role = |line: &Line| {
        let class = line.class.unwrap_or(PEDESTRIAN);
        if has_classes && (DISTRACTORS.contains(&class) || (is_mot20 && class == NON_MOT_VEHICLE)) {
            return Role::Distractor;
        }
        let counts = line.flag != 0 && (!has_classes || class == PEDESTRIAN);
        if counts { Role::Counts } else { Role::Ignored }
    };
    let mut sequence = TrackSequence::default();
    let frames: BTreeSet<u64> = truth.keys().chain(found.keys()).copied().collect();
    for frame in frames {
        let [objects, tracks] = [&truth, &found].map(|of| of.get(&frame).map_or(&[][..], Vec::as_slice));
        let object = |line: &Line| ObjectBox { id: line.id, ltwh: line.ltwh, role: role(line) };
        let track = |line: &Line| TrackBox { id: line.id, ltwh: line.ltwh };
        let objects: Vec<_> = objects.iter().map(object).collect();
        sequence.push_boxes(&objects, &tracks.iter().map(track).collect::<Vec<_>>())?;
    }
    Ok(TrackCounts::of(&sequence))
}

/// The lines of one of the files by frame.
fn read(files: &SequenceFiles, path: &Path) -> Result<BTreeMap<u64, Vec<Line>>> {
    let mut frames: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
    for (number, text) in lines(path)? {
        let wrong = |why| Error::invalid_data(format!("{}, line {number}: {why}", path.display()));
        let line = parse(&text).map_err(wrong)?;
        if let Some(all) = files.frames.filter(|all| line.frame > *all) {
            return Err(mismatch(path, format!("frame {}, but seqinfo.ini has {all} frames", line.frame)));
        }
        frames.entry(line.frame).or_default().push(line);
    }
    for (frame, lines) in &frames {
        if let Some(id) = repeated(lines.iter().map(|line| line.id)) {
            return Err(invalid(path, format!("frame {frame} has id {id} twice")));
        }
    }
    Ok(frames)
}

fn parse(text: &str) -> Result<Line, String> {
    const LAYOUT: &str = "frame,id,left,top,width,height,score,class";
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    if fields.len() < 6 {
        return Err(format!("{} numbers; expected {LAYOUT} separated by commas", fields.len()));
    }
    let number = |place: usize| match fields[place].parse::<f64>() {
        Ok(value) if value.abs() <= f64::from(f32::MAX) => Ok(value),
        _ => Err(format!("number {} is {:?}; expected a finite number", place + 1, fields[place])),
    };
    let integer = |place: usize, what: &str, least: f64| {
        let value = number(place)?;
        let is_valid = value >= least && value <= (1u64 << 53) as f64 && value.fract() == 0.0;
        if is_valid {
            Ok(value as u64)
        } else {
            Err(format!("the {what} is {value}; expected an integer from {least}"))
        }
    };
    let ltwh = [number(2)?, number(3)?, number(4)?, number(5)?];
    let flag = if fields.len() > 6 { number(6)?.trunc() as i64 } else { 1 };
    let class = if fields.len() > 7 { Some(number(7)?.trunc() as i64) } else { None };
    let class = class.filter(|&class| class != -1);
    let frame = integer(0, "frame", 1.0)?;
    Ok(Line { frame, id: integer(1, "id", 0.0)?, ltwh, flag, class })
}
