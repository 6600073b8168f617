//! `POST /v1/detect`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ocelli::Detection;
use ocelli::report::{DetectionRecord, timings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::engine::EngineAnswer;
use crate::extract::asked;
use crate::http::body::off_the_workers;
use crate::http::connections::Ends;
use crate::http::problem::{Problem, json_response};
use crate::request::Question;

/// What was found in a picture: an entry of `ocelli detect --json`, without the file.
#[derive(Serialize)]
pub(crate) struct Answer {
    width: u32,
    height: u32,
    detections: Vec<DetectionRecord>,
    timing_ms: Map<String, Value>,
}

impl From<EngineAnswer<Vec<Detection>>> for Answer {
    fn from(found: EngineAnswer<Vec<Detection>>) -> Self {
        Self {
            width: found.width,
            height: found.height,
            detections: found.items.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        }
    }
}

/// Detects in one picture.
pub(crate) async fn detect(
    State(app): State<Arc<App>>,
    Ends { client, .. }: Ends,
    request: Request,
) -> Result<Response, Problem> {
    let (picture, question, _slot) = asked::<Question>(&app, client, request).await?;
    let found = app.engine.ask(client, picture, question).await?;
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &Answer::from(found)))).await
}
