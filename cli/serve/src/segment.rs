//! `POST /v1/segment`: the masks of objects that clicks and boxes show.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ocelli::report::timings;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::engine::EngineAnswer;
use crate::extract::asked;
use crate::http::body::off_the_workers;
use crate::http::connections::Ends;
use crate::http::problem::{Problem, json_response};
use crate::objects::{ObjectQuestion, ObjectRecord};

#[derive(Serialize)]
struct Answer {
    width: u32,
    height: u32,
    objects: Vec<ObjectRecord>,
    timing_ms: Map<String, Value>,
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
    let EngineAnswer { width, height, items: objects, times } = found;
    let answer = Answer { width, height, objects, timing_ms: timings(&times) };
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &answer))).await
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
