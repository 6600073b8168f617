//! The labels of an image as a person left them, for tables and review pages.

use ocelli::Result;

use super::line::Line;
use crate::label::placer::{Placer, label_path};
use crate::label::record::{Instance, Record};
use crate::label::written::Owner;
use crate::label::yolo;

/// The record of an image with the labels that a person made of it: those in YOLO's file, or those saved for COCO's. Lines that
/// are as they were found keep score and mask; what a person wrote is certain. A file that is not YOLO's any more, and one of
/// another format, changes nothing.
pub(in crate::label) fn as_corrected(placer: &Placer, record: Record) -> Result<Record> {
    if placer.saved.contains(&record.name) {
        return Ok(placer.saved.over(record, &placer.classes));
    }
    let Some((folder, format)) = placer.options.yolo_folders().first().copied() else { return Ok(record) };
    let file = format!("{folder}labels/{}", label_path(&record.name, placer.is_validation(&record.name)));
    if placer.written.owner(&file)? != Owner::Person {
        return Ok(record);
    }
    // A file that was removed has no labels.
    let text = std::fs::read_to_string(placer.root().join(&file)).unwrap_or_default();
    let Ok(lines) = Line::parse_all(&text, (record.width, record.height)) else { return Ok(record) };
    let alone = |one: &Instance| Record { instances: vec![one.clone()], ..record.clone() };
    let mut found: Vec<(String, &Instance)> = record
        .instances
        .iter()
        .map(|one| (yolo::label_file(&alone(one), format).trim_end().to_owned(), one))
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
    Ok(Record { instances, ..record })
}
