//! The files of each sequence: text files come one by one, or in a folder in the layout of MOTChallenge; PNGs in folders, as DAVIS
//! has them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

use crate::eval::entries::entries;

/// The files of one sequence.
pub(super) struct SequenceFiles {
    pub(super) name: String,
    pub(super) truth: PathBuf,
    pub(super) predictions: PathBuf,
    /// The number of frames, if a `seqinfo.ini` has it.
    pub(super) frames: Option<u64>,
}

/// The error for a file that is not of its format.
pub(super) fn invalid(path: &Path, why: impl fmt::Display) -> Error {
    Error::invalid_data(format!("{}: {why}", path.display()))
}

/// The error for a file that does not belong to the others.
pub(super) fn mismatch(path: &Path, why: impl fmt::Display) -> Error {
    Error::mismatch(format!("{}: {why}", path.display()))
}

/// The error for a file or folder that is not there.
pub(super) fn missing(what: impl fmt::Display, path: &Path) -> Error {
    Error::mismatch(format!("no {what}, {}: no such file or folder", path.display()))
}

/// The error for an entry of a list; `place` counts from 0.
pub(super) fn wrong_entry(kind: ErrorKind, path: &Path, place: usize, why: &str) -> Error {
    Error::new(kind, format!("{}, entry {}: {why}", path.display(), place + 1))
}

/// Reads a file of JSON.
pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
    serde_json::from_slice(&bytes).map_err(|e| invalid(path, e))
}

/// The files of ground truth of all sequences, by name.
pub(super) fn truth_files(truth: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if !truth.is_dir() {
        let is_gt = truth.ends_with("gt/gt.txt");
        let sequence = truth.parent().and_then(Path::parent).filter(|_| is_gt);
        let name = sequence.map(file_name).filter(|name| !name.is_empty());
        return Ok(BTreeMap::from([(name.unwrap_or_else(|| stem(truth)), truth.to_owned())]));
    }
    let gt = truth.join("gt/gt.txt");
    if gt.is_file() {
        return truth_files(&gt);
    }
    let mut files = BTreeMap::new();
    for path in entries(truth)? {
        let gt = path.join("gt/gt.txt");
        if gt.is_file() {
            files.insert(file_name(&path), gt);
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "txt") {
            files.insert(stem(&path), path);
        }
    }
    Ok(files)
}

/// The files of each sequence: `NAME.txt` or `data/NAME.txt` in a folder of predictions, or one file for one sequence.
pub(super) fn sequences(
    truth: &Path,
    predictions: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<SequenceFiles>> {
    let files = truth_files(truth)?;
    if !predictions.is_dir() && files.len() != 1 {
        let count = files.len();
        let why = format!(
            "one file, and the ground truth has {count} sequences: expected a folder with NAME.txt for each"
        );
        return Err(mismatch(predictions, why));
    }
    let mut sequences = Vec::new();
    for (name, truth) in &files {
        let places = ["", "data"].map(|folder| predictions.join(folder).join(format!("{name}.txt")));
        let in_folder = || places.iter().map(PathBuf::as_path).find(|path| path.is_file());
        let found = if predictions.is_dir() { in_folder() } else { Some(predictions) };
        let none = || missing(format_args!("predictions of sequence {name}"), &places[0]);
        let path = found.ok_or_else(none)?.to_owned();
        let info = truth.parent().and_then(Path::parent).map(|folder| folder.join("seqinfo.ini"));
        let frames = info.filter(|_| truth.ends_with("gt/gt.txt")).and_then(|path| length(&path));
        sequences.push(SequenceFiles { name: name.clone(), truth: truth.clone(), predictions: path, frames });
    }
    if predictions.is_dir() {
        let data = Some(predictions.join("data")).filter(|data| data.is_dir());
        for path in entries(data.as_deref().unwrap_or(predictions))? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|extension| extension == "txt") && !files.contains_key(&*name) {
                let path = path.display();
                notes.push(format!("{path}: no such sequence in the ground truth, not evaluated"));
            }
        }
    }
    Ok(sequences)
}

/// The PNGs of a frame: of the ground truth, and of the predictions.
pub(super) type PngFrame = (PathBuf, PathBuf);

/// The frames of each sequence of a folder with PNGs, or with folders of them, with the file of the same name among the predictions.
pub(super) fn png_sequences(truth: &Path, predictions: &Path) -> Result<Vec<(String, Vec<PngFrame>)>> {
    let is_png =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png"));
    let pngs =
        |folder: &Path| -> Result<Vec<PathBuf>> { Ok(entries(folder)?.into_iter().filter(is_png).collect()) };
    let mut folders = vec![(file_name(truth), truth.to_owned(), predictions.to_owned())];
    if pngs(truth)?.is_empty() {
        let inside = entries(truth)?.into_iter().filter(|path| path.is_dir());
        folders =
            inside.map(|path| (file_name(&path), path.clone(), predictions.join(file_name(&path)))).collect();
    }
    let mut sequences = Vec::new();
    for (name, truth, predictions) in folders {
        let truths = pngs(&truth)?;
        if truths.is_empty() {
            continue;
        }
        if !predictions.is_dir() {
            return Err(missing(format_args!("predictions of sequence {name}"), &predictions));
        }
        let pair = |path: PathBuf| {
            let file = predictions.join(path.file_name().unwrap_or_default());
            (path, file)
        };
        sequences.push((name, truths.into_iter().map(pair).collect()));
    }
    Ok(sequences)
}

/// `seqLength` of a `seqinfo.ini`.
fn length(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let length = pairs.into_iter().find(|(key, _)| key.trim().eq_ignore_ascii_case("seqLength"))?;
    length.1.trim().parse().ok()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The lines of a text file that are not empty, with their numbers from 1.
pub(super) fn lines(path: &Path) -> Result<Vec<(usize, String)>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
    let text = String::from_utf8(bytes).map_err(|_| invalid(path, "it is not UTF-8 text"))?;
    let text = text.trim_start_matches('\u{feff}');
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim().to_owned()));
    Ok(numbered.filter(|(_, line)| !line.is_empty()).collect())
}
