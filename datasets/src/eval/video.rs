//! Evaluates tracks, and masks in videos, with the figures of each format's own evaluation.
//!
//! | ground truth | figures | equal to those of |
//! |---|---|---|
//! | MOTChallenge text: boxes | HOTA, MOTA, IDF1 | TrackEval |
//! | YouTube-VIS JSON | average precision of tracks; HOTA, MOTA, IDF1 | YouTube-VIS' `YTVOSeval`; TrackEval |
//! | the same with `video_np_pairs`, of SA-Co's videos | cgF1 as well | `sam3` |
//! | folders of PNGs as DAVIS has them | J and F | `davis2017-evaluation` |
//! | COCO JSON with `is_instance_exhaustive`, of SA-Co's images | cgF1 | `sam3` |
//!
//! [`evaluate`] reads files; [`TrackCounts`] counts tracks in memory.

mod boundary;
mod cgf1;
mod clear;
mod counts;
mod davis;
mod figures;
mod format;
mod hota;
mod layout;
mod masklets;
mod mot;
mod report;
mod saco;
mod tracks;
mod vis;
mod vis_ap;

pub(crate) use vis::in_images;

use std::path::{Path, PathBuf};

use ocelli::{Error, Result};

pub use cgf1::CgF1;
pub use counts::TrackCounts;
pub use figures::{JAndF, JAndFFigures, ObjectJAndF, TrackFigures};
pub use format::VideoFormat;
pub use report::{NamedFigures, TrackReport, VideoReport, write_video_report};
pub use tracks::{ObjectBox, Role, TrackBox, TrackSequence};
use tracks::{TrackFrame, assign};

/// Compares predictions with ground truth, whose format decides the figures. Only SA-Co's images have several files of ground
/// truth: the annotations of several people.
///
/// # Errors
/// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if a file cannot be read;
/// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData), with the file and the line, if it is of no known format, or
/// there is nothing to compare with; [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the predictions lack a
/// sequence or a frame, or have one, an image or a category that the ground truth does not have.
pub fn evaluate(truth: &[PathBuf], predictions: &Path) -> Result<VideoReport> {
    let Some(first) = truth.first() else {
        return Err(Error::invalid_argument("no ground truth"));
    };
    let format = VideoFormat::of(first)?;
    if truth.len() > 1 && format != VideoFormat::SacoImages {
        let (name, count) = (format.name(), truth.len());
        let why = format!("{name} has one file or folder of ground truth, {count} are given");
        return Err(Error::invalid_argument(why).at(first));
    }
    let report = match format {
        VideoFormat::Mot => mot::evaluate(first, predictions),
        VideoFormat::YouTubeVis => masklets::evaluate(first, predictions),
        VideoFormat::Davis => davis::evaluate(first, predictions),
        VideoFormat::SacoImages => saco::evaluate(truth, predictions),
    }?;
    let truth = truth.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    Ok(VideoReport { truth, predictions: predictions.display().to_string(), format, ..report })
}

#[cfg(test)]
mod tests;
