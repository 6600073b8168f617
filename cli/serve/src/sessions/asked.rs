//! What requests ask of a session, in JSON.

use ocelli::masklets::RunDirection;
use ocelli::{Mask, ObjectPrompt, Result};
use serde::Deserialize;

use crate::http::limits::{Limits, or_default};
use crate::http::problem::Problem;
use crate::objects::{ObjectQuestion, labelled};

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
    /// Maybe with a box around an example.
    Text(String, Option<[f32; 4]>),
    Box([f32; 4]),
    /// A box around the object, and clicks on it: they become its mask.
    Object(Option<u32>, ObjectQuestion),
    /// x and y in pixels, and whether the object is there.
    Points(Option<u32>, Vec<([f32; 2], bool)>),
    Mask(Option<u32>, Mask),
}

/// A run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedRun {
    #[serde(default, deserialize_with = "or_default")]
    pub direction: RunDirection,
    pub start: Option<usize>,
    pub max_frames: Option<usize>,
}

impl AskedPrompt {
    /// The frame, and what is shown on it.
    pub fn shows(self, limits: &Limits) -> Result<(usize, Shows), Problem> {
        let Self { frame, text, bbox, points, labels, mask, object } = self;
        if labels.is_some() && points.is_none() {
            return Err(Problem::bad("labels belong to points"));
        }
        limits.check_points(points.as_ref().map_or(0, Vec::len))?;
        let points = points.map(|points| labelled(points, labels).map_err(Problem::bad)).transpose()?;
        let shows = match (text, bbox, points, mask) {
            (Some(text), bbox, None, None) if object.is_none() => {
                limits.check_names([text.as_str()])?;
                Shows::Text(text, bbox)
            }
            (None, Some(bbox), None, None) if object.is_none() => Shows::Box(bbox),
            (None, Some(bbox), points, None) => {
                Shows::Object(object, shown(points.unwrap_or_default(), bbox))
            }
            (None, None, Some(points), None) => Shows::Points(object, points),
            (None, None, None, Some(mask)) => Shows::Mask(object, mask),
            _ => {
                return Err(Problem::bad(
                    "expected one of text, box, points and mask, or a box beside a text or points; an object is named for points, \
                     a mask and a box around it: a text, and a box without an object, start over",
                ));
            }
        };
        Ok((frame, shows))
    }
}

fn shown(points: Vec<([f32; 2], bool)>, edges: [f32; 4]) -> ObjectQuestion {
    let prompt = ObjectPrompt::new("0").with_box(edges.into());
    let click = |prompt: ObjectPrompt, ([x, y], is_on): ([f32; 2], bool)| prompt.with_point(x, y, is_on);
    ObjectQuestion { objects: vec![points.into_iter().fold(prompt, click)], multimask: false }
}
