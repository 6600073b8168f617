//! Objects that points and boxes show, and their masks.

use ocelli::report::rounded;
use ocelli::{Error, Mask, ObjectMask, ObjectPrompt, Result};
use serde::{Deserialize, Serialize};

use crate::http::body::Fields;
use crate::http::limits::{Limits, or_default, short_list};
use crate::http::problem::Problem;
use crate::request::Asks;

/// Objects that are shown in an image.
#[derive(Clone, Debug)]
pub(crate) struct ObjectQuestion {
    pub objects: Vec<ObjectPrompt>,
    /// Each object gets three masks.
    pub multimask: bool,
}

impl ObjectQuestion {
    /// One object: its points, each with whether the object is there, and a box around it.
    pub fn one(points: Vec<([f32; 2], bool)>, bbox: Option<[f32; 4]>) -> Self {
        Self { objects: vec![prompt(0, points, bbox)], multimask: false }
    }
}

fn prompt(number: usize, points: Vec<([f32; 2], bool)>, bbox: Option<[f32; 4]>) -> ObjectPrompt {
    let mut prompt = ObjectPrompt::new(number.to_string());
    for ([x, y], is_positive) in points {
        prompt = prompt.with_point(x, y, is_positive);
    }
    bbox.into_iter().fold(prompt, |prompt, edges| prompt.with_box(edges.into()))
}

/// The mask of an object.
#[derive(Serialize)]
pub(crate) struct ObjectRecord {
    /// The index of the object in the request.
    object: usize,
    pub mask: Mask,
    /// Around the mask; null if it has no pixels.
    #[serde(rename = "box")]
    pub bbox: Option<[f32; 4]>,
    pub predicted_iou: f64,
    object_score: f64,
}

impl ObjectRecord {
    pub fn new(object: usize, found: ObjectMask) -> Self {
        Self {
            object,
            bbox: found.mask.bounding_box().map(Into::into),
            predicted_iou: rounded(f64::from(found.predicted_iou), 1e5),
            object_score: rounded(f64::from(found.object_score), 1e5),
            mask: found.mask,
        }
    }
}

/// The JSON form of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedObjects {
    /// As for detections.
    image: Option<String>,
    #[serde(default)]
    objects: Objects,
    multimask: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct Objects(#[serde(deserialize_with = "short_list")] Vec<ShownObject>);

/// Clicks on an object and beside it, and a box around it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShownObject {
    #[serde(default, deserialize_with = "or_default")]
    points: Vec<[f32; 2]>,
    /// 1 on the object, 0 beside it; all are on it by default.
    labels: Option<Vec<u8>>,
    #[serde(rename = "box")]
    bbox: Option<[f32; 4]>,
}

/// Points, each with whether the object is there. A label is 1 on the object, 0 beside it; all are on it by default.
///
/// # Errors
/// The reason.
pub(crate) fn labelled(
    points: Vec<[f32; 2]>,
    labels: Option<Vec<u8>>,
) -> Result<Vec<([f32; 2], bool)>, String> {
    let labels = labels.unwrap_or_else(|| vec![1; points.len()]);
    if labels.len() != points.len() {
        let (labels, points) = (labels.len(), points.len());
        return Err(format!("labels has {labels} numbers: expected one for each of the {points} points"));
    }
    if let Some(label) = labels.iter().find(|label| **label > 1) {
        return Err(format!("labels has {label}: expected 1 on the object, 0 beside it"));
    }
    Ok(points.into_iter().zip(labels).map(|(point, label)| (point, label == 1)).collect())
}

impl ShownObject {
    fn prompt(self, index: usize) -> Result<ObjectPrompt> {
        let refuse = |why| Error::invalid_argument(format!("object {index}: {why}"));
        let points = labelled(self.points, self.labels).map_err(refuse)?;
        Ok(prompt(index, points, self.bbox))
    }
}

impl Asks for ObjectQuestion {
    const FIELDS: Fields = Fields("image request objects multimask", "");
    type Asked = AskedObjects;

    fn image(asked: &mut AskedObjects) -> &mut Option<String> {
        &mut asked.image
    }

    fn set(asked: &mut AskedObjects, name: &str, value: &[u8], _: &Limits) -> Result<(), Problem> {
        let wrong = |why: String| Problem::bad(format!("{name}: {why}"));
        if name == "objects" {
            let Objects(more) = serde_json::from_slice(value).map_err(|error| wrong(error.to_string()))?;
            asked.objects.0.extend(more);
        } else {
            let is_true = serde_json::from_slice(value.trim_ascii());
            asked.multimask = Some(is_true.map_err(|_| wrong("expected true or false".into()))?);
        }
        Ok(())
    }

    fn of(asked: AskedObjects, limits: &Limits) -> Result<Self> {
        let Objects(objects) = asked.objects;
        limits.check_objects(objects.len())?;
        limits.check_points(objects.iter().map(|object| object.points.len()).sum())?;
        if objects.is_empty() {
            let message = "objects is empty: expected an object with points, a box or both";
            return Err(Error::invalid_argument(message));
        }
        let objects = objects.into_iter().enumerate().map(|(index, object)| object.prompt(index));
        Ok(Self { objects: objects.collect::<Result<_>>()?, multimask: asked.multimask.unwrap_or_default() })
    }
}
