//! `POST /v1/detect` and `POST /v1/segment`: what is in a picture.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use ocelli::Detection;
use ocelli::report::{DetectionRecord, timings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::engine::EngineAnswer;
use crate::extract::asked;
use crate::http::body::off_the_workers;
use crate::http::connections::Ends;
use crate::http::problem::{self, json_response};
use crate::objects::{ObjectQuestion, ObjectRecord};
use crate::request::Question;
use crate::server::App;

/// The answer about a picture: for detections an entry of `ocelli detect --json`, without the file.
#[derive(Serialize)]
pub(crate) struct Answer {
    width: u32,
    height: u32,
    #[serde(flatten)]
    found: Items,
    timing_ms: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Items {
    Detections(Vec<DetectionRecord>),
    Objects(Vec<ObjectRecord>),
}

impl Answer {
    fn new<T>(answer: EngineAnswer<T>, found: impl FnOnce(T) -> Items) -> Self {
        let EngineAnswer { width, height, items, times } = answer;
        Self { width, height, found: found(items), timing_ms: timings(&times) }
    }

    /// An answer with detections.
    pub fn of_detections(answer: EngineAnswer<Vec<Detection>>) -> Self {
        Self::new(answer, |items| Items::Detections(items.iter().map(Into::into).collect()))
    }
}

/// Detects in one picture.
pub(crate) async fn detect(
    State(app): State<Arc<App>>,
    Ends { client, .. }: Ends,
    request: Request,
) -> problem::Answer {
    let (picture, question, _slot) = asked::<Question>(&app, client, request).await?;
    let found = app.engine.ask(client, picture, question).await?;
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &Answer::of_detections(found)))).await
}

/// Answers clicks on one picture: the masks of objects that clicks and boxes show.
pub(crate) async fn segment(
    State(app): State<Arc<App>>,
    Ends { client, .. }: Ends,
    request: Request,
) -> problem::Answer {
    app.check_tracker("clicks")?;
    let (picture, shown, _slot) = asked::<ObjectQuestion>(&app, client, request).await?;
    let found = app.engine.segment(client, picture, shown).await?;
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &Answer::new(found, Items::Objects)))).await
}
