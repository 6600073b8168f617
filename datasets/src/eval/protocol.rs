//! The detections that count in an evaluation.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use ocelli::{Error, postprocess::PostProcessOptions};

/// The rule by which detections count. Figures of different protocols cannot be compared.
///
/// With `practical` and `dart`, every class is looked for in every image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Protocol {
    /// As in practical use: scores above 0.01, suppression at an IoU of 0.7 within a class, the best 300 detections of an image.
    #[default]
    Practical,
    /// As in DART's paper: scores above 0, no suppression, the best 100 detections of an image.
    Dart,
    /// As in EfficientSAM3's evaluation: nothing is detected; the model's tracker is given the annotated box of each instance,
    /// and its mask is compared with the annotated one.
    BoxToMask,
}

impl Protocol {
    /// The post-processing options.
    pub fn post_processing(self) -> PostProcessOptions {
        let options = PostProcessOptions::default();
        match self {
            Self::BoxToMask => options,
            Self::Practical => {
                PostProcessOptions { confidence: 0.01, nms: Some(0.7), max_detections: Some(300), ..options }
            }
            Self::Dart => {
                PostProcessOptions { confidence: 0.0, nms: None, max_detections: Some(100), ..options }
            }
        }
    }

    /// A description for reports.
    pub fn description(self) -> &'static str {
        match self {
            Self::Practical => "practical: scores above 0.01, suppression 0.7, the best 300 of an image",
            Self::Dart => "dart: every score, no suppression, the best 100 of an image",
            Self::BoxToMask => "box-to-mask: the mask of each annotated box, by the tracker's mask decoder",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name that reports have.
        self.serialize(f)
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = [Self::Practical, Self::Dart, Self::BoxToMask];
        all.into_iter().find(|protocol| protocol.to_string() == name.to_lowercase()).ok_or_else(|| {
            let message = format!(
                "protocol {name}: no such protocol; the protocols are practical, dart and box-to-mask"
            );
            Error::invalid_argument(message).about("protocol")
        })
    }
}
