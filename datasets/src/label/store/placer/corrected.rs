//! The labels of an image as a person left them, which all other files follow.

use hotcoco::mask::fr_poly;
use ocelli::{BoundingBox, Mask};

use super::Placer;
use crate::label::formats::changed::changed;
use crate::label::formats::coco::mark_of;
use crate::label::formats::mask_files::mask_text;
use crate::label::formats::yolo_line::{Line, MATCH, is_same as is_same_box};
use crate::label::formats::{voc, yolo};
use crate::label::store::COCO_FILE;
use crate::label::{Format, Instance, LabelledInstance, Record, disk};

/// Masks are the same above this IoU: polygons trace outlines in their own ways.
const SAME_MASK: f64 = 0.98;

/// The record of an image with the labels that a person made of it: those in the first label file that was corrected, of YOLO's or
/// VOC's, or in the masks, or those saved for COCO's files, whichever was later. Instances that are as they were found, or saved, keep
/// score and mask; what a person wrote is certain, and has the mask of what was there, moved with its box, unless polygons or masks
/// were corrected as well. Classes that were added since are as they were found. What cannot be read, and a file with other labels or
/// masks than these, changes nothing and is added to `unclear`.
pub(crate) fn as_corrected(placer: &Placer, record: Record, unclear: &mut Vec<String>) -> Record {
    let is_saved = placer.state.saved.contains_key(&record.name);
    let mut record = placer.state.with_saved(record, &placer.classes);
    if is_saved && are_masks_written(placer) {
        // Formats with masks may have been added since.
        for at in 0..record.instances.len() {
            let Instance { class, bbox, mask: None, .. } = record.instances[at] else { continue };
            let own = LabelledInstance { line: None, class, bbox: bbox.into(), polygon: None, mask: None };
            record.instances[at].mask = changed(&record, &own, true).mask;
        }
    }
    let mut followed: Option<Record> = None;
    // Whether a file that counts has masks of its own, and the lines of polygons.
    let (mut has_masks, mut polygons) = (false, Vec::new());
    // The number of classes that the person has seen in all files.
    let mut seen = usize::MAX;
    let (corrected, later) =
        placer.bound.get(&record.name).map_or((&[][..], 0), |bound| (&bound.corrected, bound.later));
    for (number, (file, format)) in corrected.iter().enumerate() {
        if is_saved && number == later {
            followed.get_or_insert_with(|| record.clone());
        }
        let (lines, unread) = lines_of(placer, file, *format, &record);
        unclear.extend(unread.into_iter().map(|why| format!("{file}{why}")));
        let Some(lines) = lines else { continue };
        let own = with_lines(placer, &record, &lines, file, texts(placer, &record, *format));
        seen = seen.min(placer.unseen(file).unwrap_or(usize::MAX));
        let is_of_masks = matches!(format, Format::YoloSeg | Format::Masks);
        if *format == Format::YoloSeg {
            polygons = lines.into_iter().map(|line| line.text).collect();
        }
        match &mut followed {
            None => {
                followed = Some(own);
                has_masks = is_of_masks;
            }
            Some(there) => {
                let are_same = is_same(there, &own, seen);
                let is_later = number < later;
                let written = if has_masks { texts(placer, &own, Format::YoloSeg) } else { Vec::new() };
                let counts = |at: usize| is_later && (!has_masks || polygons.contains(&written[at]));
                let have_same_masks = !is_of_masks || take_masks(there, &own, counts);
                has_masks |= is_of_masks && is_later;
                if !are_same || !have_same_masks {
                    let what = if are_same { "masks" } else { "labels" };
                    unclear.push(format!("{file}: other {what} than those corrected elsewhere, which count"));
                }
            }
        }
    }
    let are_again = placer.bound.get(&record.name).is_some_and(|bound| bound.are_again);
    let says_other = |there: &Record| {
        let are_same = is_same(there, &record, seen);
        !are_same || has_masks && !take_masks(&mut there.clone(), &record, |_| false)
    };
    if are_again && followed.as_ref().is_some_and(says_other) {
        unclear.push(format!(
            "{COCO_FILE}, {}: other labels than those corrected later, which count",
            record.name
        ));
    }
    followed.unwrap_or(record)
}

/// The labels of a file that have classes of the data set, if it can be followed, and what is wrong with it and with the others.
/// If the first of YOLO's files was removed, there are none; any other may be missing with its whole folder.
fn lines_of(
    placer: &Placer,
    file: &str,
    format: Format,
    record: &Record,
) -> (Option<Vec<Line>>, Vec<String>) {
    if format == Format::Masks {
        let lines = placer.mask_lines(file, record);
        return lines.map_or_else(|why| (None, vec![why]), |lines| (Some(lines), Vec::new()));
    }
    let size = (record.width, record.height);
    let bytes = match disk::if_there(std::fs::read(placer.state.root.join(file))) {
        Ok(Some(bytes)) => bytes,
        Ok(None) if file.starts_with("labels/") => Vec::new(),
        Ok(None) => return (None, vec![": it was removed".into()]),
        Err(e) => return (None, vec![format!(": {e}")]),
    };
    let text = String::from_utf8_lossy(&bytes);
    match format {
        Format::Voc => match voc::objects(&text, &placer.names, size) {
            Ok(lines) => (Some(lines), Vec::new()),
            Err(why) => (None, vec![format!(": {why}")]),
        },
        _ => {
            let (lines, unread) = readable(&text, size, placer.names.len());
            let is_read = unread.is_empty() || !lines.is_empty();
            (is_read.then_some(lines), unread.into_iter().map(|why| format!(", {why}")).collect())
        }
    }
}

/// The text of each instance of a record in a file of a format.
pub(super) fn texts(placer: &Placer, record: &Record, format: Format) -> Vec<String> {
    let size = (record.width, record.height);
    let text = |one: &Instance| match format {
        Format::Coco => mark_of(record, one, placer.options.polygons),
        // It has masks with pixels alone.
        Format::YoutubeVis if record.mask(one).is_none_or(|mask| mask.area() == 0) => String::new(),
        Format::YoutubeVis => mark_of(record, one, false),
        Format::Voc => voc::line(one, size).text,
        Format::Masks => record.mask(one).map_or_else(String::new, |mask| mask_text(one.class, &mask)),
        _ => {
            let alone =
                Record { width: size.0, height: size.1, instances: vec![one.clone()], ..Record::default() };
            yolo::label_file(&alone, format).trim_end().to_owned()
        }
    };
    record.instances.iter().map(text).collect()
}

/// The record with the labels of a file, in which its own instances have these texts.
pub(super) fn with_lines(
    placer: &Placer,
    record: &Record,
    lines: &[Line],
    file: &str,
    texts: Vec<String>,
) -> Record {
    let size = (record.width, record.height);
    let has_masks = are_masks_written(placer) || record.instances.iter().any(|one| one.mask.is_some());
    let mut found: Vec<_> = texts.into_iter().map(Some).collect();
    // What is as it was found comes first, so that nothing else takes its mask.
    let as_found = |line: &Line| {
        let at = found.iter().position(|text| text.as_deref() == Some(&*line.text))?;
        found[at].take().map(|_| at)
    };
    let same: Vec<Option<usize>> = lines.iter().map(as_found).collect();
    let mut instance = |(line, same): (&Line, Option<usize>)| {
        if let Some(at) = same {
            return record.instances[at].clone();
        }
        let iou = |at: &usize| BoundingBox::from(record.instances[*at].bbox).iou(&line.bbox);
        let likeness = |at: &usize| iou(at) + f32::from(u8::from(record.instances[*at].class == line.class));
        let free = (0..found.len()).filter(|at| found[*at].is_some() && iou(at) > MATCH);
        let known = free.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).inspect(|at| found[*at] = None);
        let mask = line.mask.clone().or_else(|| {
            let points = line.polygon.as_ref()?;
            let points: Vec<f64> = points.as_flattened().iter().map(|value| f64::from(*value)).collect();
            let rle = fr_poly(&points, size.1, size.0).ok()?;
            Mask::from_run_lengths(&rle.counts, size.0, size.1).ok().filter(|mask| mask.area() > 0)
        });
        let own = LabelledInstance { line: known, class: line.class, bbox: line.bbox, polygon: None, mask };
        let one = changed(record, &own, has_masks);
        Instance { score: line.score.unwrap_or(one.score), track: line.track.or(one.track), ..one }
    };
    let mut instances: Vec<Instance> = lines.iter().zip(same).map(&mut instance).collect();
    // Those that the file cannot have, and those that the person has not seen.
    let unseen = placer.unseen(file).unwrap_or(usize::MAX);
    let is_left = |(one, text): &(&Instance, &Option<String>)| {
        text.as_ref().is_some_and(|text| text.is_empty() || one.class >= unseen)
    };
    instances.extend(record.instances.iter().zip(&found).filter(is_left).map(|(one, _)| one.clone()));
    Record { instances, ..record.clone() }
}

fn are_masks_written(placer: &Placer) -> bool {
    placer.options.has(Format::YoloSeg) || placer.options.has(Format::Masks)
}

/// `true` if these say the same of the first classes.
fn is_same(ours: &Record, others: &Record, classes: usize) -> bool {
    let [ours, others] = [ours, others]
        .map(|record| record.instances.iter().filter(|one| one.class < classes).cloned().collect::<Vec<_>>());
    ours.len() == others.len() && twins(&ours, &others).iter().all(Option::is_some)
}

/// For each instance the one of the others that means the same object: no other one has it, and those that are most alike come first.
fn twins(ours: &[Instance], others: &[Instance]) -> Vec<Option<usize>> {
    let iou = |a: &Instance, b: &Instance| BoundingBox::from(a.bbox).iou(&b.bbox.into());
    let of = |at: usize| (0..others.len()).filter(move |other| is_twin(&ours[at], &others[*other]));
    let mut pairs: Vec<(usize, usize)> =
        (0..ours.len()).flat_map(|at| of(at).map(move |other| (at, other))).collect();
    pairs.sort_by(|a, b| iou(&ours[b.0], &others[b.1]).total_cmp(&iou(&ours[a.0], &others[a.1])));
    let mut found = vec![None; ours.len()];
    for (at, other) in pairs {
        if found[at].is_none() && !found.contains(&Some(other)) {
            found[at] = Some(other);
        }
    }
    found
}

/// `true` if two files mean the same object: a polygon may be in a part of its box.
fn is_twin(one: &Instance, other: &Instance) -> bool {
    let [a, b] = [one, other].map(|one| BoundingBox::from(one.bbox));
    let common = a.intersection(&b).map_or(0.0, |common| common.area());
    one.class == other.class && (common > MATCH * a.area().min(b.area()) || is_same_box(&a, &b))
}

/// Gives instances the masks of another file, in which they mean the same, where `counts` says so of its instance. Returns whether the
/// other masks are the same.
fn take_masks(there: &mut Record, own: &Record, counts: impl Fn(usize) -> bool) -> bool {
    let mut are_same = true;
    for (at, twin) in twins(&there.instances, &own.instances).into_iter().enumerate() {
        let Some(number) = twin else { continue };
        let twin = &own.instances[number];
        if counts(number) {
            there.instances[at].mask.clone_from(&twin.mask);
        } else {
            // There is no overlap of two without pixels.
            let is_same = |a: Mask, b: Mask| a == b || a.iou(&b).is_ok_and(|iou| iou > SAME_MASK);
            let ours = there.mask(&there.instances[at]);
            are_same &= own.mask(twin).is_none_or(|mask| ours.is_some_and(|ours| is_same(ours, mask)));
        }
    }
    are_same
}

/// The lines of a file with classes of the data set, and what is wrong with the others.
fn readable(text: &str, size: (u32, u32), classes: usize) -> (Vec<Line>, Vec<String>) {
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for (number, line) in Line::parse_each(text, size) {
        match line {
            Ok(line) if line.class < classes => lines.push(line),
            Ok(line) => {
                unread.push(format!("line {number}: class {}, expected an id below {classes}", line.class));
            }
            Err(why) => unread.push(why),
        }
    }
    (lines, unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_reported() {
        let text = "0.0 0.5 0.5 0.2 0.2 0.7\n7 0.5 0.5 0.2 0.2\n0 0,5 0,5 0,2 0,2\n";
        let (lines, unread) = readable(text, (100, 100), 2);
        assert_eq!(lines.iter().map(|line| line.score).collect::<Vec<_>>(), [Some(0.7)]);
        assert_eq!(unread[0], "line 2: class 7, expected an id below 2");
        assert!(unread[1].starts_with("line 3: expected numbers with a decimal point"), "{unread:?}");
        assert_eq!(unread.len(), 2);
    }
}
