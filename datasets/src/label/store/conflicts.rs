//! What the files of a data set are to mean, and corrected files that mean something else.

use std::path::Path;

use ocelli::{Error, ErrorKind, Result};

use crate::label::settings::{DataSetOptions, Format};
use crate::label::store::placer::{PROPOSALS, is_dropped};
use crate::label::store::write::whole_files;
use crate::label::store::written::{ClassHashes, Meaning, Owner, Written};

/// What a file below the output folder is to mean; `None` if this data set does not write it.
pub(crate) fn meaning_of(options: &DataSetOptions, classes: u64, file: &str) -> Option<Meaning> {
    let meaning = |format| Some(Meaning { format, classes });
    for (folder, format) in options.yolo_folders() {
        match file.strip_prefix(folder) {
            Some(below) if below.starts_with("labels/") => return meaning(Some(format)),
            Some("data.yaml" | "classes.txt") => return meaning(None),
            _ => {}
        }
    }
    let has = |format| options.has(format);
    match file {
        _ if file.starts_with("voc/Annotations/") && has(Format::Voc) => meaning(Some(Format::Voc)),
        _ if file.starts_with("masks/") && has(Format::Masks) => meaning(Some(Format::Masks)),
        _ => {
            let mut files = whole_files();
            let format = files.find_map(|(name, format)| (name == file && has(format)).then_some(format));
            format.and_then(|format| meaning(Some(format)))
        }
    }
}

/// Refuses to write over corrected files that have another format or other classes, and to leave those behind whose format is
/// not named any more: nothing would say that they describe an earlier image.
pub(crate) fn check_conflicts(
    root: &Path,
    written: &Written,
    classes: &ClassHashes,
    way_out: &str,
    options: &DataSetOptions,
) -> Result<()> {
    let mut conflicts = written.conflicts(classes, |file| meaning_of(options, classes.all, file))?;
    let is_dropped = |file: &str| is_dropped(options, file) && !file.starts_with(PROPOSALS);
    let dropped = written.existing(is_dropped)?.into_iter().filter(|(_, owner)| *owner == Owner::Person);
    conflicts.extend(dropped.map(|(file, _)| file));
    if conflicts.is_empty() {
        return Ok(());
    }
    let message = format!(
        "cannot write the data set, {}: these files were corrected by hand and have another format or other classes: {}; {way_out}",
        root.display(),
        conflicts.join(", ")
    );
    Err(Error::new(ErrorKind::Mismatch, message))
}
