//! Data sets of earlier versions, which had a file for each part of the state.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Event, KIND};
use crate::label::disk;
use crate::label::store::{Log, STATE_FOLDER};
use ocelli::{Error, Result};

/// The record of written files. It is removed last: what is read after a stop is all there, or in the log.
const FILES: &str = "written.jsonl";
const IMAGES: &str = "images.json";
const SAVED: &str = "saved.json";
const CONTENTS: &str = "contents.json";

/// What the files of images and of saved labels have.
#[derive(Deserialize)]
struct Whole<T> {
    images: T,
}

fn path(root: &Path, file: &str) -> PathBuf {
    root.join(STATE_FOLDER).join(file)
}

pub(super) fn is_there(root: &Path) -> bool {
    path(root, FILES).exists()
}

/// The state of a data set as events.
pub(super) fn events(root: &Path) -> Result<Vec<Event>> {
    let mut log = Log::open_to_read(&path(root, FILES), &KIND)?;
    if log.header::<IgnoredAny>()?.is_none() {
        return Err(log.corrupt("it is empty"));
    }
    let mut events = Vec::new();
    log.read(|files, _| {
        events.push(Event::Files(files));
        Ok(())
    })?;
    events.extend(read(root, IMAGES)?.map(|whole: Whole<_>| Event::Images(whole.images)));
    events.extend(read(root, SAVED)?.map(|whole: Whole<_>| Event::Saved(whole.images)));
    events.push(Event::Contents(read(root, CONTENTS)?));
    Ok(events)
}

fn read<T: DeserializeOwned>(root: &Path, file: &str) -> Result<Option<T>> {
    let path = path(root, file);
    let bytes = disk::if_there(std::fs::read(&path));
    let bytes = bytes.map_err(|e| Error::io("cannot read the record of a data set", &path, e))?;
    let corrupt = |e: serde_json::Error| Log::new(&path, &KIND, None).corrupt(&e.to_string());
    bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(corrupt)
}

/// Removes the files, whose state is in the log.
pub(super) fn remove(root: &Path) -> Result<()> {
    [CONTENTS, SAVED, IMAGES, FILES].into_iter().try_for_each(|file| disk::remove(&path(root, file)))
}
