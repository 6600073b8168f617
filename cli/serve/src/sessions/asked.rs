//! What requests ask of a session, in JSON.

use ocelli::masklets::RunDirection;
use ocelli::{Mask, Result};
use serde::Deserialize;

use crate::limits::Limits;
use crate::problem::Problem;
use crate::segment::labelled;

/// A session to open.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedSession {
    /// The latest frames that it keeps; all by default.
    pub window: Option<usize>,
    /// A video of the server's folder.
    pub video: Option<String>,
}

/// A name for an object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedName {
    pub name: String,
}

/// What is shown on a frame.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedPrompt {
    frame: usize,
    text: Option<String>,
    #[serde(rename = "box")]
    bbox: Option<[f32; 4]>,
    points: Option<Vec<[f32; 2]>>,
    labels: Option<Vec<u8>>,
    mask: Option<Mask>,
    object: Option<u32>,
}

/// What is shown, checked.
pub(crate) enum Shows {
    Text(String),
    Box([f32; 4]),
    /// x and y in pixels, and whether the object is there.
    Points(Option<u32>, Vec<([f32; 2], bool)>),
    Mask(Option<u32>, Mask),
}

/// A run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedRun {
    #[serde(default)]
    pub direction: Direction,
    pub start: Option<usize>,
    pub max_frames: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    #[default]
    Forward,
    Backward,
    Both,
}

impl From<Direction> for RunDirection {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Forward => Self::Forward,
            Direction::Backward => Self::Backward,
            Direction::Both => Self::Both,
        }
    }
}

/// Reads a body; an empty one is that of a request without options.
pub(crate) fn read<T: for<'d> Deserialize<'d>>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| Problem::bad(format!("request: {error}")))
}

impl AskedPrompt {
    /// The frame, and what is shown on it.
    pub fn shows(self, limits: &Limits) -> Result<(usize, Shows), Problem> {
        let Self { frame, text, bbox, points, labels, mask, object } = self;
        let count = [text.is_some(), bbox.is_some(), points.is_some(), mask.is_some()];
        if count.into_iter().filter(|is_given| *is_given).count() != 1 {
            return Err(Problem::bad("expected one of text, box, points and mask"));
        }
        if labels.is_some() && points.is_none() {
            return Err(Problem::bad("labels belong to points"));
        }
        if object.is_some() && points.is_none() && mask.is_none() {
            return Err(Problem::bad(
                "an object is named for points and a mask; a text and a box start over",
            ));
        }
        let shows = if let Some(text) = text {
            limits.check_names([text.as_str()])?;
            Shows::Text(text)
        } else if let Some(bbox) = bbox {
            Shows::Box(bbox)
        } else if let Some(mask) = mask {
            Shows::Mask(object, mask)
        } else {
            let points = points.unwrap_or_default();
            limits.check_points(points.len())?;
            Shows::Points(object, labelled(points, labels).map_err(Problem::bad)?)
        };
        Ok((frame, shows))
    }
}
