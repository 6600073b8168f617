//! Evaluates tracks, and masks in videos, with the figures of each format's own evaluation.
//!
//! | ground truth | figures | equal to those of |
//! |---|---|---|
//! | MOTChallenge text: boxes | HOTA, MOTA, IDF1 | TrackEval |
//! | MOTS text: masks | HOTA, MOTA, IDF1 | TrackEval |
//! | YouTube-VIS JSON | average precision of tracks; HOTA, MOTA, IDF1 | YouTube-VIS' `YTVOSeval`; TrackEval |
//! | the same with `video_np_pairs`, of SA-Co's videos | cgF1 as well | `sam3` |
//! | folders of PNGs as DAVIS has them | J and F | `davis2017-evaluation` |
//! | COCO JSON with `is_instance_exhaustive`, of SA-Co's images | cgF1 | `sam3` |
//!
//! [`evaluate`] reads files; [`TrackCounts`] counts tracks in memory.

mod boundary;
mod cgf1;
mod clear;
mod davis;
mod figures;
mod format;
mod hota;
mod layout;
mod masklets;
mod mot;
mod mots;
mod report;
mod saco;
mod tracks;
mod vis;
mod vis_ap;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ocelli::{Error, ErrorKind, Result};

pub use cgf1::CgF1;
pub use davis::{JAndF, JAndFFigures, ObjectJAndF};
pub use figures::{TrackCounts, TrackFigures};
pub use format::VideoFormat;
pub use report::{NamedFigures, TrackReport, VideoReport, write_video_report};
pub use tracks::{ObjectBox, Role, TrackBox, TrackSequence};

use vis::Vis;

/// Compares predictions with ground truth, whose format decides the figures. Only SA-Co's images have several files of ground
/// truth: the annotations of several people.
///
/// # Errors
/// [`ErrorKind::Io`] if a file cannot be read; [`ErrorKind::InvalidData`], with the file and the line, if it is of no known
/// format, or there is nothing to compare with; [`ErrorKind::Mismatch`] if the predictions lack a sequence or a frame, or
/// have one, an image or a category that the ground truth does not have.
pub fn evaluate(truth: &[PathBuf], predictions: &Path) -> Result<VideoReport> {
    let Some(first) = truth.first() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "no ground truth"));
    };
    let format = VideoFormat::of(first)?;
    if truth.len() > 1 && format != VideoFormat::SacoImages {
        let message = format!(
            "{}: {} has one file or folder of ground truth, {} are given",
            first.display(),
            format.name(),
            truth.len()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let mut report = VideoReport {
        truth: truth.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        predictions: predictions.display().to_string(),
        format,
        notes: Vec::new(),
        tracks: None,
        segm: None,
        semi_supervised: None,
        unsupervised: None,
        cgf1_bbox: None,
        cgf1_segm: None,
    };
    match format {
        VideoFormat::Mot => {
            let mut sequences = Vec::new();
            for files in layout::sequences(first, predictions, &mut report.notes)? {
                let counts = mot::count(&files, &mut report.notes)?;
                sequences.push((files.name, counts));
            }
            report.tracks = Some(TrackReport::new(first, sequences, Vec::new())?);
        }
        VideoFormat::Mots => {
            let all = layout::sequences(first, predictions, &mut report.notes)?;
            let mut known = BTreeSet::new();
            for files in &all {
                known.extend(mots::classes(files)?);
            }
            let (mut sequences, mut classes) = (Vec::new(), BTreeMap::<u64, Vec<TrackCounts>>::new());
            for files in all {
                let counts = mots::count(&files, &known, &mut report.notes)?;
                sequences.push((files.name, counts.values().cloned().sum()));
                for (class, counts) in counts {
                    classes.entry(class).or_default().push(counts);
                }
            }
            let classes = classes.into_iter();
            let classes = classes.map(|(class, counts)| (format!("class {class}"), counts.into_iter().sum()));
            report.tracks = Some(TrackReport::new(first, sequences, classes.collect())?);
        }
        VideoFormat::YouTubeVis => {
            let bytes = std::fs::read(first).map_err(|e| Error::io("cannot read", first, e))?;
            let truth = Vis::truth(first, &bytes)?;
            let found = Vis::predictions(predictions, &truth)?;
            let compared = masklets::compare(&truth, &found)?;
            report.segm = Some(compared.accuracy);
            report.cgf1_segm = compared.cgf1;
            report.tracks = Some(TrackReport::new(first, Vec::new(), compared.counts)?);
        }
        VideoFormat::Davis => {
            if !predictions.is_dir() {
                let message =
                    format!("{}: expected a folder of PNGs, as the ground truth is", predictions.display());
                return Err(Error::new(ErrorKind::Mismatch, message));
            }
            let compared = davis::compare(first, predictions)?;
            let figures =
                [("semi-supervised", compared.semi_supervised), ("unsupervised", compared.unsupervised)];
            let [semi_supervised, unsupervised] = figures.map(|(task, figures)| match figures {
                Ok(figures) => Some(figures),
                Err(why) => {
                    report.notes.push(format!("no {task} figures: {why}"));
                    None
                }
            });
            if semi_supervised.is_none() && unsupervised.is_none() {
                return Err(Error::new(ErrorKind::Mismatch, report.notes.join("; ")));
            }
            (report.semi_supervised, report.unsupervised) = (semi_supervised, unsupervised);
        }
        VideoFormat::SacoImages => {
            let compared = saco::compare(truth, predictions)?;
            (report.cgf1_bbox, report.cgf1_segm) = (compared.bbox, compared.segm);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
