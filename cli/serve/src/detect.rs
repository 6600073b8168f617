//! `POST /v1/detect` and `POST /v1/segment`: what is in an image.

use std::sync::Arc;

use axum::extract::{Request, State};
use ocelli::Detection;
use ocelli::report::timings;
use serde::Serialize;
use serde_json::{Value, json};

use crate::engine::{EngineAnswer, Task};
use crate::extract::asked;
use crate::http::body::off_the_workers;
use crate::http::connections::Ends;
use crate::http::problem::{Answer, json_response};
use crate::objects::ObjectQuestion;
use crate::request::Question;
use crate::state::App;

/// The answer about an image, with what is in it under a name.
fn report(name: &str, answer: EngineAnswer<impl Serialize>) -> Value {
    let EngineAnswer { width, height, items, times } = answer;
    json!({"width": width, "height": height, (name): items, "timing_ms": timings(&times)})
}

/// The answer about an image with detections: an entry of `ocelli detect --json`, without the file.
pub(crate) fn detections(answer: EngineAnswer<Vec<Detection>>) -> Value {
    report("detections", answer)
}

/// Detects in one image.
pub(crate) async fn detect(State(app): State<Arc<App>>, ends: Ends, request: Request) -> Answer {
    let (image, question, _slot) = asked::<Question>(&app, ends.client, request).await?;
    let found = app.engine.ask(ends.client, image, |reply| Task::Detect(question, reply)).await?;
    off_the_workers(move |_| Ok(json_response(&detections(found)))).await
}

/// Answers clicks on one image: the masks of objects that clicks and boxes show.
pub(crate) async fn segment(State(app): State<Arc<App>>, ends: Ends, request: Request) -> Answer {
    app.check_tracker("clicks")?;
    let (image, shown, _slot) = asked::<ObjectQuestion>(&app, ends.client, request).await?;
    let found = app.engine.ask(ends.client, image, |reply| Task::Segment(shown, reply)).await?;
    off_the_workers(move |_| Ok(json_response(&report("objects", found)))).await
}
