//! Where the sequences of text files are: one file, or a folder in the layout of MOTChallenge.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

/// The files of one sequence.
pub(super) struct SequenceFiles {
    pub(super) name: String,
    pub(super) truth: PathBuf,
    pub(super) predictions: PathBuf,
    /// The number of frames, if a `seqinfo.ini` has it.
    pub(super) frames: Option<u64>,
}

impl SequenceFiles {
    /// Refuses a frame that the sequence does not have.
    pub(super) fn check_frame(&self, path: &Path, frame: u64) -> Result<()> {
        match self.frames {
            Some(frames) if frame > frames => {
                Err(mismatch(path, format!("frame {frame}, but seqinfo.ini has {frames} frames")))
            }
            _ => Ok(()),
        }
    }
}

/// The error for a file that is not of its format.
pub(super) fn invalid(path: &Path, why: impl fmt::Display) -> Error {
    Error::invalid_data(format!("{}: {why}", path.display()))
}

/// The error for a file that does not belong to the others.
pub(super) fn mismatch(path: &Path, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Mismatch, format!("{}: {why}", path.display()))
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
        let name = sequence.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
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
            files.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), gt);
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "txt") {
            files.insert(stem(&path), path);
        }
    }
    Ok(files)
}

/// The entries of a folder, sorted.
pub(in crate::eval) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("cannot read the folder", folder, e);
    let list = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        list.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// The files of each sequence: `NAME.txt` or `data/NAME.txt` in a folder of predictions, or one file for one sequence.
pub(super) fn sequences(
    truth: &Path,
    predictions: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<SequenceFiles>> {
    let files = truth_files(truth)?;
    let refusal = |why: String| Error::new(ErrorKind::Mismatch, why);
    if !predictions.is_dir() && files.len() != 1 {
        let (path, count) = (predictions.display(), files.len());
        return Err(refusal(format!(
            "the predictions, {path}, are one file and the ground truth has {count} sequences: expected a folder with \
             NAME.txt for each"
        )));
    }
    let mut sequences = Vec::new();
    for (name, truth) in &files {
        let path = if predictions.is_dir() {
            let places = [
                predictions.join(format!("{name}.txt")),
                predictions.join("data").join(format!("{name}.txt")),
            ];
            let found = places.iter().find(|path| path.is_file());
            found.cloned().ok_or_else(|| {
                refusal(format!("no predictions of sequence {name}, {}: no such file", places[0].display()))
            })?
        } else {
            predictions.to_owned()
        };
        let info = truth.parent().and_then(Path::parent).map(|folder| folder.join("seqinfo.ini"));
        let frames = info.filter(|_| truth.ends_with("gt/gt.txt")).and_then(|path| length(&path));
        sequences.push(SequenceFiles { name: name.clone(), truth: truth.clone(), predictions: path, frames });
    }
    if predictions.is_dir() {
        let folder =
            if predictions.join("data").is_dir() { predictions.join("data") } else { predictions.to_owned() };
        for path in entries(&folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "txt") && !files.contains_key(&name) {
                notes
                    .push(format!("{}: no such sequence in the ground truth, not evaluated", path.display()));
            }
        }
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

/// The lines of a text file that are not empty, with their numbers from 1.
pub(super) fn lines(path: &Path) -> Result<Vec<(usize, String)>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
    let text = String::from_utf8(bytes).map_err(|_| invalid(path, "it is not UTF-8 text"))?;
    let text = text.trim_start_matches('\u{feff}');
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim().to_owned()));
    Ok(numbered.filter(|(_, line)| !line.is_empty()).collect())
}
