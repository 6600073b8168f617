//! The labels of an image as a person left them, for tables and review pages.

use super::Placer;
use crate::label::formats::yolo;
use crate::label::formats::yolo_line::Line;
use crate::label::{Instance, Record, disk};

/// The record of an image with the labels that a person made of it: those in the first of YOLO's files that was corrected, or
/// those saved for COCO's. Lines that are as they were found keep score and mask; what a person wrote is certain. What cannot be
/// read is not counted, and is added to `unclear` with file and line. A file of another format changes nothing.
pub(crate) fn as_corrected(placer: &Placer, record: Record, unclear: &mut Vec<String>) -> Record {
    if placer.state.saved.contains_key(&record.name) {
        return placer.state.with_saved(record, &placer.classes);
    }
    let corrected = placer.bound.get(&record.name).and_then(|bound| bound.corrected.as_ref());
    let Some((file, format)) = corrected else { return record };
    let bytes = match disk::if_there(std::fs::read(placer.state.root.join(file))) {
        // A file that was removed has no labels.
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(e) => {
            unclear.push(format!("{file}: {e}"));
            return record;
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    let (lines, unread) = readable(&text, (record.width, record.height), placer.class_names().count());
    unclear.extend(unread.into_iter().map(|why| format!("{file}, {why}")));
    let alone = |one: &Instance| Record { instances: vec![one.clone()], ..record.clone() };
    let mut found: Vec<(String, &Instance)> = record
        .instances
        .iter()
        .map(|one| (yolo::label_file(&alone(one), *format).trim_end().to_owned(), one))
        .collect();
    let mut instances = Vec::with_capacity(lines.len());
    for line in &lines {
        let same = found.iter().position(|(text, _)| *text == line.text);
        instances.push(match same {
            Some(at) => found.swap_remove(at).1.clone(),
            None => Instance {
                class: line.class,
                score: line.score.unwrap_or(1.0),
                bbox: line.bbox.to_xyxy(),
                mask: None,
                track: None,
            },
        });
    }
    Record { instances, ..record }
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
