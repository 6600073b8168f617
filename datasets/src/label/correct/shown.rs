//! The labels of an image as a person left them, for tables and review pages.

use super::line::Line;
use crate::label::placer::Placer;
use crate::label::record::{Instance, Record};
use crate::label::yolo;

/// The record of an image with the labels that a person made of it: those in the first of YOLO's files that was corrected, or
/// those saved for COCO's. Lines that are as they were found keep score and mask; what a person wrote is certain. A file that
/// is not YOLO's any more, and one of another format, changes nothing; `unclear` gets it, and classes that there are not.
pub(in crate::label) fn as_corrected(placer: &Placer, record: Record, unclear: &mut Vec<String>) -> Record {
    if placer.saved.contains(&record.name) {
        return placer.saved.over(record, &placer.classes);
    }
    let Some((file, format)) = placer.corrected_file(&record.name) else { return record };
    // A file that was removed has no labels.
    let text = match std::fs::read_to_string(placer.root().join(file)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            unclear.push(format!("{file}: {e}"));
            return record;
        }
        text => text.unwrap_or_default(),
    };
    let lines = match Line::parse_all(&text, (record.width, record.height)) {
        Ok(lines) => lines,
        Err(why) => {
            unclear.push(format!("{file}, {why}"));
            return record;
        }
    };
    let numbers = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()).map(|(_, number)| number);
    for (line, number) in lines.iter().zip(numbers).filter(|(line, _)| line.class() >= placer.class_count()) {
        let (class, classes) = (line.class(), placer.class_count());
        unclear.push(format!("{file}, line {number}: class {class}, expected an id below {classes}"));
    }
    let alone = |one: &Instance| Record { instances: vec![one.clone()], ..record.clone() };
    let mut found: Vec<(String, &Instance)> = record
        .instances
        .iter()
        .map(|one| (yolo::label_file(&alone(one), *format).trim_end().to_owned(), one))
        .collect();
    let mut instances = Vec::with_capacity(lines.len());
    for line in lines.iter().filter(|line| line.class() < placer.class_count()) {
        let same = found.iter().position(|(text, _)| text == line.text());
        instances.push(match same {
            Some(at) => found.swap_remove(at).1.clone(),
            None => Instance {
                class: line.class(),
                score: 1.0,
                bbox: line.bbox().to_xyxy(),
                mask: None,
                track: None,
            },
        });
    }
    Record { instances, ..record }
}
