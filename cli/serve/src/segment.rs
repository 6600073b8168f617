//! `POST /v1/segment`: the masks of objects that clicks and boxes show.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ocelli::report::timings;
use ocelli::{BoundingBox, Error, ErrorKind, Mask, ObjectMask, ObjectPrompt, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::app::App;
use crate::connections::Ends;
use crate::detect::{Asks, Fields, asked, off_the_workers};
use crate::engine::EngineAnswer;
use crate::extract::read;
use crate::limits::{Limits, or_default, short_list};
use crate::problem::{Problem, json_response};
use crate::request::from_base64;

/// Objects that are shown in a picture.
#[derive(Clone, Debug)]
pub(crate) struct ObjectQuestion {
    pub objects: Vec<ObjectPrompt>,
    /// Whether each object gets three masks.
    pub multimask: bool,
}

impl ObjectQuestion {
    /// Refuses what is not in a picture of `size` (width, height).
    pub fn check(&self, size: (u32, u32)) -> Result<()> {
        self.objects.iter().try_for_each(|object| object.check(size))
    }
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
        let rounded = |value: f32| (f64::from(value) * 1e5).round() / 1e5;
        Self {
            object,
            bbox: found.mask.bounding_box().map(Into::into),
            predicted_iou: rounded(found.predicted_iou),
            object_score: rounded(found.object_score),
            mask: found.mask,
        }
    }
}

#[derive(Serialize)]
struct Answer {
    width: u32,
    height: u32,
    objects: Vec<ObjectRecord>,
    timing_ms: Map<String, Value>,
}

/// The JSON form of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedObjects {
    /// As for detections.
    image: Option<String>,
    #[serde(default)]
    objects: Objects,
    #[serde(default, deserialize_with = "or_default")]
    multimask: bool,
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

/// Answers clicks on one picture.
pub(crate) async fn segment(
    State(app): State<Arc<App>>,
    Ends { client, .. }: Ends,
    request: Request,
) -> Result<Response, Problem> {
    check_tracker(&app, "clicks")?;
    let (picture, shown, _slot) = asked::<ObjectQuestion>(&app, client, request).await?;
    let found = app.engine.segment(client, picture, shown).await?;
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &Answer::from(found)))).await
}

/// Refuses what needs a model with a tracker, if there is none.
pub(crate) fn check_tracker(app: &App, purpose: &str) -> Result<(), Problem> {
    if app.about.clicks {
        return Ok(());
    }
    let message = format!(
        "{purpose}, {}: this model has no tracker; start the server with a checkpoint that has one, such as Meta's sam3.pt or \
         facebook/sam3",
        app.about.model
    );
    Err(Problem::bad(message))
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

impl From<EngineAnswer<Vec<ObjectRecord>>> for Answer {
    fn from(found: EngineAnswer<Vec<ObjectRecord>>) -> Self {
        let EngineAnswer { width, height, items: objects, times } = found;
        Self { width, height, objects, timing_ms: timings(&times) }
    }
}

impl AskedObjects {
    fn shown(self, limits: &Limits) -> Result<ObjectQuestion> {
        let Objects(objects) = self.objects;
        limits.check_objects(objects.len())?;
        limits.check_points(objects.iter().map(|object| object.points.len()).sum())?;
        if objects.is_empty() {
            let message = "objects is empty: expected an object with points, a box or both";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let objects = objects.into_iter().enumerate().map(|(index, object)| object.prompt(index));
        Ok(ObjectQuestion { objects: objects.collect::<Result<_>>()?, multimask: self.multimask })
    }
}

impl ShownObject {
    fn prompt(self, index: usize) -> Result<ObjectPrompt> {
        let refuse = |why| Error::new(ErrorKind::InvalidArgument, format!("object {index}: {why}"));
        let mut prompt = ObjectPrompt::new(index.to_string());
        for ([x, y], is_positive) in labelled(self.points, self.labels).map_err(refuse)? {
            prompt = prompt.with_point(x, y, is_positive);
        }
        Ok(match self.bbox {
            None => prompt,
            Some([x1, y1, x2, y2]) => prompt.with_box(BoundingBox::new(x1, y1, x2, y2)),
        })
    }
}

impl Asks for ObjectQuestion {
    const FIELDS: Fields = Fields("image request objects multimask", "");

    fn of_json(body: &[u8], limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        let mut asked: AskedObjects = read(body)?;
        let image = asked.image.take();
        let shown = asked.shown(limits)?;
        Ok((image.map(|text| from_base64(&text)).transpose()?, shown))
    }

    fn of_form(fields: Vec<(String, Bytes)>, limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        let (mut picture, mut asked) = (None, AskedObjects::default());
        for (name, value) in fields {
            let wrong = |why: String| Problem::bad(format!("{name}: {why}"));
            match name.as_str() {
                "image" => picture = Some(value),
                "request" => asked = read(&value)?,
                "objects" => {
                    let Objects(more) =
                        serde_json::from_slice(&value).map_err(|error| wrong(error.to_string()))?;
                    asked.objects.0.extend(more);
                }
                _ => {
                    asked.multimask = serde_json::from_slice(value.trim_ascii())
                        .map_err(|_| wrong("expected true or false".into()))?;
                }
            }
        }
        if asked.image.is_some() {
            return Err(Problem::bad("request: expected the picture in the field image, not in its JSON"));
        }
        Ok((picture, asked.shown(limits)?))
    }
}
