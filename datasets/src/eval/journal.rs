//! The results of an evaluation image by image, so that one that was stopped continues with the image it had reached.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ocelli::{Error, Result, StageTimes, json_lines::JsonLines};
use serde::{Deserialize, Serialize};

use super::Predictions;

/// The version of the format.
const FORMAT: u32 = 1;

/// All that the results of an image depend on besides the image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalIdentity {
    /// The models, their engines included.
    pub models: Vec<String>,
    /// The text prompts with their categories, and what else decides what is detected.
    pub options: Vec<String>,
    /// A hash of the list of images.
    pub images: String,
}

/// The result of a model for an image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImageResult {
    /// The detections.
    pub found: Predictions,
    /// The mask IoU of each instance, if annotated boxes are given.
    pub ious: Vec<(u64, Option<f64>)>,
    /// Milliseconds of text, preprocessing, backbone, decoding, masks and all, if they were measured.
    times: Option<[f64; 6]>,
}

impl ImageResult {
    /// The same with the time of each stage.
    #[must_use]
    pub fn with_times(mut self, times: &StageTimes) -> Self {
        self.times =
            Some([times.text, times.preprocess, times.backbone, times.decode, times.masks, times.total]);
        self
    }

    /// The time of each stage, if it was measured.
    pub fn times(&self) -> Option<StageTimes> {
        let mut times = StageTimes::default();
        [times.text, times.preprocess, times.backbone, times.decode, times.masks, times.total] = self.times?;
        Some(times)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Evaluation { ocelli_eval: u32, identity: EvalIdentity },
    Image { id: u64, stamp: (u64, u64), results: Vec<ImageResult> },
}

/// A file with the results of the images that are done.
pub struct EvalJournal {
    path: PathBuf,
    lines: JsonLines,
    known: HashMap<u64, ((u64, u64), Vec<ImageResult>)>,
}

impl EvalJournal {
    /// Opens the file of this evaluation, or starts it.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli::ErrorKind::Mismatch) if it is that of another evaluation,
    /// [`InvalidData`](ocelli::ErrorKind::InvalidData) if it is none.
    pub fn open(path: &Path, identity: &EvalIdentity) -> Result<Self> {
        let (lines, read) = JsonLines::open(path, "results of an evaluation")?;
        let mut journal = Self { path: path.to_owned(), lines, known: HashMap::new() };
        if read.is_empty() {
            let first = Line::Evaluation { ocelli_eval: FORMAT, identity: identity.clone() };
            journal.lines.write(&first)?;
        }
        for (number, line) in read.into_iter().enumerate() {
            match (number, line) {
                (0, Line::Evaluation { ocelli_eval, identity: found }) => {
                    let differences = [
                        (ocelli_eval != FORMAT, "another version of this program"),
                        (found.models != identity.models, "another model or engine"),
                        (found.options != identity.options, "other classes or options"),
                        (found.images != identity.images, "other images"),
                    ];
                    if let Some((_, what)) = differences.into_iter().find(|(differs, _)| *differs) {
                        return Err(journal.lines.other("the evaluation", what));
                    }
                }
                (1.., Line::Image { id, stamp, results }) => {
                    journal.known.insert(id, (stamp, results));
                }
                _ => return Err(journal.lines.wrong_line(number)),
            }
        }
        Ok(journal)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of images whose results are known from an earlier run.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// The results of each model for an image, if its file has this size and time of the last change.
    pub fn take(&mut self, id: u64, stamp: (u64, u64)) -> Option<Vec<ImageResult>> {
        self.known.remove(&id).filter(|(known, _)| *known == stamp).map(|(_, results)| results)
    }

    /// Adds the results of an image.
    ///
    /// # Errors
    /// [`Io`](ocelli::ErrorKind::Io) if they cannot be written.
    pub fn add(&mut self, id: u64, stamp: (u64, u64), results: &[ImageResult]) -> Result<()> {
        self.lines.write(&Line::Image { id, stamp, results: results.to_vec() })
    }

    /// Removes the file of an evaluation that is complete.
    ///
    /// # Errors
    /// [`Io`](ocelli::ErrorKind::Io) if it cannot be removed.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|e| Error::io("cannot remove the results", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use ocelli::BoundingBox;

    use super::*;

    #[test]
    fn results_are_known_again_for_the_same_evaluation_and_image() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("r.images.jsonl");
        let identity = EvalIdentity { images: "some".into(), ..EvalIdentity::default() };
        let mut found = Predictions::default();
        found.push(7, 3, BoundingBox::new(0.1, 1.0 / 3.0, 77.7, 100.123_45), 0.123_456_79, None);
        let mut times = StageTimes::default();
        (times.backbone, times.total) = (1.0 / 3.0, 0.1);
        let result =
            ImageResult { found, ious: vec![(3, Some(1.0 / 3.0)), (4, None)], ..ImageResult::default() };
        let result = result.with_times(&times);
        let mut journal = EvalJournal::open(&path, &identity).expect("it starts");
        journal
            .add(7, (1, 2), std::slice::from_ref(&result))
            .and_then(|()| journal.add(8, (1, 2), &[]))
            .expect("it writes");
        let mut text = std::fs::read_to_string(&path).expect("it was written");
        // Half a line, as a stop leaves it.
        text.push_str("{\"image\":{\"id\":9,");
        std::fs::write(&path, &text).expect("it can be written");
        let mut journal = EvalJournal::open(&path, &identity).expect("the same evaluation");
        assert_eq!(journal.known(), 2);
        assert!(journal.take(8, (1, 3)).is_none(), "the image was replaced");
        let [again] = &journal.take(7, (1, 2)).expect("it is known")[..] else { panic!("one model") };
        assert_eq!((&again.ious, again.times()), (&result.ious, Some(times)));
        assert_eq!(format!("{:?}", again.found), format!("{:?}", result.found));
        let others = [
            (EvalIdentity { models: vec!["m".into()], ..identity.clone() }, "another model"),
            (EvalIdentity { options: vec!["o".into()], ..identity.clone() }, "other classes or options"),
            (EvalIdentity { images: "others".into(), ..identity }, "other images"),
        ];
        for (other, word) in others {
            let error = EvalJournal::open(&path, &other).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(word) && error.contains("delete the file"), "{word}: {error}");
        }
    }
}
