//! Masks of tracks as MOTS text: `frame id class height width rle`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ocelli::{Mask, Result};

use super::layout::{self};
use super::{
    Frames, SequenceFiles, TrackCounts, TrackReport, TrackSequence, VideoReport, invalid, matches_above_half,
    of_both, part,
};

/// The class of regions in which tracks do not count.
const IGNORE: u64 = 10;

#[derive(Clone)]
struct Line {
    id: u64,
    class: u64,
    mask: Mask,
}

/// Evaluates the sequences of a file or a folder.
pub(super) fn evaluate(truth: &Path, predictions: &Path) -> Result<VideoReport> {
    let mut notes = Vec::new();
    let all = layout::sequences(truth, predictions, &mut notes)?;
    let mut known = BTreeSet::new();
    for files in &all {
        known.extend(classes_of(&read(&files.truth, files)?));
    }
    let counts = all.iter().map(|files| count(files, &known, &mut notes)).collect::<Result<Vec<_>>>()?;
    let of_files = all.into_iter().zip(&counts);
    let sequences = of_files.map(|(files, counts)| (files.name, counts.values().cloned().sum()));
    let of_class = |class: &u64| counts.iter().map(|counts| counts[class].clone()).sum();
    let classes = known.iter().map(|class| (format!("class {class}"), of_class(class)));
    let tracks = Some(TrackReport::new(truth, sequences.collect(), classes.collect())?);
    Ok(VideoReport { tracks, notes, ..VideoReport::default() })
}

fn classes_of(frames: &Frames<Line>) -> BTreeSet<u64> {
    frames.values().flatten().map(|line| line.class).filter(|class| *class != IGNORE).collect()
}

/// Counts each class of the ground truth in one sequence.
fn count(
    files: &SequenceFiles,
    classes: &BTreeSet<u64>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<u64, TrackCounts>> {
    let (truth, found) = (read(&files.truth, files)?, read(&files.predictions, files)?);
    for class in classes_of(&found).difference(classes) {
        let path = files.predictions.display();
        notes.push(format!("{path}: the ground truth has no class {class}, not evaluated"));
    }
    classes.iter().map(|&class| Ok((class, count_class(&truth, &found, class)?))).collect()
}

fn count_class(truth: &Frames<Line>, found: &Frames<Line>, class: u64) -> Result<TrackCounts> {
    let mut sequence = TrackSequence::default();
    for [truth, found] in of_both(truth, found) {
        let of = |lines: &'_ [Line], class: u64| -> Vec<Line> {
            lines.iter().filter(|line| line.class == class).cloned().collect()
        };
        let (objects, tracks, ignored) = (of(truth, class), of(found, class), of(truth, IGNORE));
        let (rows, columns) = (objects.len(), tracks.len());
        let mut overlaps = Vec::with_capacity(rows * columns);
        for object in &objects {
            for track in &tracks {
                overlaps.push(object.mask.iou(&track.mask)?);
            }
        }
        // A track without an object, and with more than half of it in ignored regions, is removed.
        let region = union(&ignored)?;
        let mut is_kept = vec![true; columns];
        let matched: BTreeSet<usize> =
            matches_above_half(&overlaps, rows, columns, -10_000.0).into_iter().map(|pair| pair.1).collect();
        for column in (0..columns).filter(|column| !matched.contains(column)) {
            let mask = &tracks[column].mask;
            let common = region.as_ref().map_or(Ok(0), |region| mask.intersection_area(region))?;
            is_kept[column] = common as f64 / mask.area().max(1) as f64 <= 0.5 + f64::EPSILON;
        }
        let kept: Vec<usize> = (0..columns).filter(|&column| is_kept[column]).collect();
        let overlaps = part(&overlaps, columns, &(0..rows).collect::<Vec<_>>(), &kept);
        let ids = kept.iter().map(|&column| tracks[column].id).collect();
        sequence.push(objects.iter().map(|one| one.id).collect(), ids, overlaps)?;
    }
    Ok(TrackCounts::of(&sequence))
}

/// The pixels of any of the masks.
fn union(lines: &[Line]) -> Result<Option<Mask>> {
    let Some((first, others)) = lines.split_first() else { return Ok(None) };
    others.iter().try_fold(first.mask.clone(), |region, line| region.union(&line.mask)).map(Some)
}

fn read(path: &Path, files: &SequenceFiles) -> Result<Frames<Line>> {
    let mut size = None;
    let of_size = |text: &str| {
        let (frame, line) = parse(text)?;
        let (w, h) = (line.mask.width(), line.mask.height());
        match *size.get_or_insert((w, h)) {
            of_others if of_others == (w, h) => Ok((frame, line)),
            (width, height) => Err(format!("a mask of {w}×{h}, others are of {width}×{height}")),
        }
    };
    let frames = files.read(path, of_size, |line| Some(line.id).filter(|_| line.class != IGNORE))?;
    for (frame, lines) in &frames {
        for (place, line) in lines.iter().enumerate() {
            for other in &lines[..place] {
                let are_regions = line.class == IGNORE && other.class == IGNORE;
                if !are_regions && line.mask.intersection_area(&other.mask)? > 0 {
                    let (one, other) = (other.id, line.id);
                    let why = format!("frame {frame}: the masks of {one} and {other} have common pixels");
                    return Err(invalid(path, why + "; in MOTS a pixel belongs to one object"));
                }
            }
        }
    }
    Ok(frames)
}

fn parse(text: &str) -> Result<(u64, Line), String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [frame, id, class, height, width, counts] = fields[..] else {
        return Err(format!("{} fields; expected `frame id class height width rle`", fields.len()));
    };
    let integer = |what: &str, text: &str| {
        text.parse::<u64>().map_err(|_| format!("the {what} is {text:?}; expected an integer"))
    };
    let frame = integer("frame", frame)?;
    if frame == 0 {
        return Err("frame 0; frames are from 1".into());
    }
    let side = |what, text| integer(what, text).map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    let (width, height) = (side("width", width)?, side("height", height)?);
    let mask = Mask::from_counts(counts, width, height).map_err(|e| e.to_string())?;
    Ok((frame, Line { id: integer("id", id)?, class: integer("class", class)?, mask }))
}
