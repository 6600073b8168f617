//! Ground truth is named without its format, which the content tells.

use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use ocelli::{Error, Result};

use super::layout::{self, lines, png_sequences, truth_files};

/// The format of ground truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VideoFormat {
    /// Boxes as MOTChallenge text.
    #[default]
    Mot,
    /// YouTube-VIS JSON, with `video_np_pairs` that of SA-Co's videos.
    #[serde(rename = "youtube-vis")]
    YouTubeVis,
    /// Folders of PNGs as DAVIS has them.
    Davis,
    /// COCO JSON with text prompts, of SA-Co's images.
    SacoImages,
}

#[derive(Deserialize)]
struct Keys {
    videos: Option<IgnoredAny>,
    images: Option<Vec<ImageKeys>>,
}

#[derive(Deserialize)]
struct ImageKeys {
    is_instance_exhaustive: Option<IgnoredAny>,
}

impl VideoFormat {
    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mot => "MOTChallenge boxes",
            Self::YouTubeVis => "YouTube-VIS",
            Self::Davis => "DAVIS",
            Self::SacoImages => "SA-Co images",
        }
    }

    /// The format of a file or folder of ground truth.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if it cannot be read,
    /// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if it is of no known format.
    pub fn of(truth: &Path) -> Result<Self> {
        const KNOWN: &str = "expected MOTChallenge text, YouTube-VIS JSON, folders of PNGs, or SA-Co JSON";
        let invalid =
            |why: &str| Error::invalid_data(format!("the ground truth, {}: {why}", truth.display()));
        if truth.is_dir() {
            if !png_sequences(truth, truth)?.is_empty() {
                return Ok(Self::Davis);
            }
            let files = truth_files(truth)?;
            if files.is_empty() {
                return Err(invalid(&format!("neither PNGs nor text files in it; {KNOWN}")));
            }
            // A sequence without objects is an empty file.
            for path in files.values() {
                if let Some(line) = first_line(path)? {
                    return Self::of_line(path, &line);
                }
            }
            return Err(invalid("all files in it are empty: there is nothing to compare with"));
        }
        let bytes = std::fs::read(truth).map_err(|e| Error::io("cannot read the ground truth", truth, e))?;
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => {
                let keys: Keys = serde_json::from_slice(&bytes).map_err(|e| invalid(&e.to_string()))?;
                let is_saco = keys.images.is_some_and(|images| {
                    images.first().is_some_and(|image| image.is_instance_exhaustive.is_some())
                });
                match (keys.videos.is_some(), is_saco) {
                    (true, _) => Ok(Self::YouTubeVis),
                    (false, true) => Ok(Self::SacoImages),
                    (false, false) => Err(invalid(
                        "JSON without \"videos\" (YouTube-VIS), and without images that have \"is_instance_exhaustive\" (SA-Co)",
                    )),
                }
            }
            Some(b'[') => Err(invalid(&format!("it is a list, as results are; {KNOWN}"))),
            Some(_) => Self::of_line(truth, &first_line(truth)?.unwrap_or_default()),
            None => Err(invalid("it is empty: there is nothing to compare with")),
        }
    }

    fn of_line(path: &Path, line: &str) -> Result<Self> {
        if line.contains(',') {
            return Ok(Self::Mot);
        }
        Err(layout::invalid(path, "not MOTChallenge text (frame,id,left,top,width,height,score,class)"))
    }
}

fn first_line(path: &Path) -> Result<Option<String>> {
    Ok(lines(path)?.into_iter().next().map(|(_, line)| line))
}
