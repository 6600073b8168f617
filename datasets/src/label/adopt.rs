//! The record of written files for a data set of a version that kept none.

use std::io::ErrorKind::NotFound;
use std::path::PathBuf;

use serde_json::Value;

use super::folder::{Contents, OutputFolder};
use super::images::{ImageFile, ImageSet};
use super::journal::Journal;
use super::merge::classes_of;
use super::placer::{Placer, image_path, label_path};
use super::settings::Format;
use super::write::{COCO_FILE, write_coco};
use super::written::{Owner, Written, hash_of_output, hash_of_text};
use super::yolo;
use ocelli::{Error, Result};

/// Opens the record of written files. If there is none, it is made from the journal: a file that has what the journal says is
/// ours, any other is the person's.
///
/// # Errors
/// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if the record, or the journal that it is made from, is corrupt.
pub(super) fn open_record(folder: &OutputFolder, contents: Option<&Contents>) -> Result<Written> {
    let path = folder.written_path();
    if let Some(written) = Written::load(folder.root(), &path)? {
        return Ok(written);
    }
    let mut written = Written::new(folder.root(), &path);
    match std::fs::metadata(folder.journal_path()) {
        Err(e) if e.kind() == NotFound => {}
        Err(e) => return Err(Error::io("cannot read", &folder.journal_path(), e)),
        // A stop left it before its first line.
        Ok(there) if there.len() == 0 && contents.is_none() => {}
        Ok(_) => {
            let (mut journal, settings) = Journal::open_existing(&folder.journal_path())?;
            written = from_journal(written, folder, &mut journal, &settings, contents)?;
        }
    }
    written.save()?;
    Ok(written)
}

fn from_journal(
    written: Written,
    folder: &OutputFolder,
    journal: &mut Journal,
    settings: &Value,
    contents: Option<&Contents>,
) -> Result<Written> {
    let root = folder.root();
    let classes = classes_of(settings).unwrap_or_default();
    let options = contents.map(|contents| contents.options.clone()).unwrap_or_default();
    let named = journal.names().map(|name| ImageFile { path: PathBuf::new(), name: name.into() });
    let set = ImageSet::from_named(named.collect());
    let mut placer = Placer::new(written, root, &options, &set, &classes);
    for file in set.files() {
        placer.settle(&file.name)?;
        let Some(entry) = journal.entry(&file.name).cloned() else { continue };
        let Some(record) = journal.read_labelled(&entry)? else { continue };
        for (below, default) in [("", Format::Yolo), ("segments/", Format::YoloSeg)] {
            let used = options.yolo_folders().into_iter().find(|(folder, _)| *folder == below);
            let format = used.map_or(default, |(_, format)| format);
            let path = |validation| format!("{below}labels/{}", label_path(&file.name, validation));
            let mut is_missing = true;
            for file in [path(false), path(true)] {
                if root.join(&file).symlink_metadata().is_err() {
                    continue;
                }
                is_missing = false;
                // Another format may have been written before. The one that is noted last stays.
                for format in [Format::Yolo, Format::YoloSeg, format] {
                    let hash = hash_of_text(&yolo::label_file(&record, format));
                    placer.written.note(&file, Some(hash), placer.meaning(Some(format)));
                    if placer.written.owner(&file)? == Owner::Ours {
                        break;
                    }
                }
            }
            if used.is_none() || !is_missing || entry.failed {
                continue;
            }
            // Labels are written before the image. If only the image is there, the person removed them.
            for validation in [false, true] {
                let image = format!("{below}images/{}", image_path(&file.name, validation));
                if root.join(image).symlink_metadata().is_ok() {
                    let hash = hash_of_text(&yolo::label_file(&record, format));
                    placer.written.note(&path(validation), Some(hash), placer.meaning(Some(format)));
                }
            }
        }
    }
    for below in ["", "segments/"] {
        let texts = [
            ("classes.txt", yolo::classes_file(classes.names())),
            ("data.yaml", yolo::data_file(classes.names(), false)),
            ("data.yaml", yolo::data_file(classes.names(), true)),
        ];
        for (name, text) in texts {
            let file = format!("{below}{name}");
            let there = std::fs::read_to_string(root.join(&file));
            if there.is_ok_and(|there| there == text) {
                placer.written.note(&file, Some(hash_of_text(&text)), placer.meaning(None));
            }
        }
    }
    if root.join(COCO_FILE).is_file() {
        let hash = hash_of_output(|out| write_coco(out, journal, &set, &placer, &classes, None));
        let hash = hash.map_err(|e| Error::io("cannot read", root, e))?;
        placer.written.note(COCO_FILE, Some(hash), placer.meaning(Some(Format::Coco)));
    }
    Ok(placer.written)
}
