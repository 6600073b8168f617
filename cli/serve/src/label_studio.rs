//! Label Studio's protocol of machine-learning backends, below `/label-studio`: predictions from the labels of a project.
//!
//! Label Studio sends the project's labelling configuration and tasks whose data name a picture. The labels are the text
//! prompts; the tags say whether a prediction is a rectangle, a polygon or a brush mask. `hostname` and `access_token`, which
//! it sends as well, are ignored: pictures are fetched from the Label Studio that the server was started with.

mod labels;
mod pictures;
mod regions;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::detect::{body, ends_of, off_the_workers};
use crate::problem::{Problem, json_response};
use crate::request::Asked;
use labels::LabelConfig;
pub(crate) use pictures::Pictures;
use regions::regions;

/// The routes of the protocol.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(health))
        .route("/health", get(health))
        .route("/setup", post(setup))
        .route("/validate", post(validate))
        .route("/predict", post(predict))
        .route("/train", post(nothing_to_train))
        .route("/webhook", post(nothing_to_train))
        .route("/is_training", get(is_training))
        .route("/job_status", post(is_training))
        .route("/versions", get(versions))
}

fn version(app: &App) -> String {
    format!("ocelli {} {}", env!("CARGO_PKG_VERSION"), app.about.model)
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "UP", "model_class": "Ocelli", "v2": true}))
}

#[derive(Deserialize)]
struct Setup {
    #[serde(default)]
    schema: String,
}

/// Label Studio calls this when the address is entered and when the configuration changes.
async fn setup(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let setup: Setup = read(&body(&app, request).await?)?;
    if let Err(problem) = LabelConfig::parse(&setup.schema) {
        // A project has no configuration yet when it is made.
        tracing::info!("Label Studio: {}", problem.message);
    }
    Ok(json_response(StatusCode::OK, &json!({"model_version": version(&app)})))
}

#[derive(Deserialize)]
struct Validate {
    #[serde(default)]
    config: String,
}

async fn validate(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let asked: Validate = read(&body(&app, request).await?)?;
    LabelConfig::parse(&asked.config)?;
    Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
}

async fn versions(State(app): State<Arc<App>>) -> Response {
    json_response(StatusCode::OK, &json!({"versions": [version(&app)]}))
}

/// The model is not trained here.
async fn nothing_to_train(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    body(&app, request).await?;
    Ok(json_response(
        StatusCode::OK,
        &json!({"status": "ok", "detail": "Ocelli is not trained by Label Studio"}),
    ))
}

async fn is_training() -> Response {
    json_response(StatusCode::OK, &json!({"is_training": false, "job_status": "completed"}))
}

#[derive(Deserialize)]
struct Predict {
    tasks: Vec<Task>,
    label_config: String,
}

#[derive(Deserialize)]
struct Task {
    id: Option<Value>,
    data: serde_json::Map<String, Value>,
}

fn read<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::bad(format!("request: {error}")))
}

/// The predictions for some tasks. A picture that cannot be fetched or read has none, and the log says why; if that is so
/// for all of them, the answer is the error.
async fn predict(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let client = ends_of(&request)?.client;
    let body = body(&app, request).await?;
    let _slot = app.slots.take(client)?;
    let (limits, has_masks) = (app.config.limits.clone(), app.about.masks);
    let (asked, config, question) = off_the_workers(move || {
        let asked: Predict = read(&body)?;
        let config = LabelConfig::parse(&asked.label_config)?;
        let asks = config.asks();
        if asks.masks && !has_masks {
            return Err(Problem::bad("polygons and brushes need masks, but the server runs without masks"));
        }
        let question = Asked::of_classes(asks.phrases, asks.masks).question(&limits)?;
        Ok((asked, config, question))
    })
    .await?;
    let mut results = Vec::new();
    let (mut failures, mut problem) = (0, None);
    for task in &asked.tasks {
        let found = async {
            let picture = app.pictures.get(config.picture_of(&task.data)?).await?;
            app.engine.ask(client, picture, question.clone()).await
        };
        let predicted = match found.await {
            Ok(found) => {
                let regions = regions(&config, &question.prompts, &found)?;
                // Label Studio sorts tasks by this score: the least certain instance says how much a task needs a person.
                let score = found.detections.iter().map(|one| one.score).fold(f32::INFINITY, f32::min);
                let score = if score.is_finite() { score } else { 0.0 };
                json!({"result": regions, "score": score, "model_version": version(&app)})
            }
            Err(failed) => {
                let id = task.id.as_ref().map_or_else(String::new, ToString::to_string);
                tracing::warn!("Label Studio, task {id}: {}", failed.message);
                (failures, problem) = (failures + 1, Some(failed));
                json!({"result": [], "score": 0.0, "model_version": version(&app)})
            }
        };
        results.push(predicted);
    }
    if let Some(problem) = problem.filter(|_| failures == results.len()) {
        return Err(problem);
    }
    Ok(json_response(StatusCode::OK, &json!({"results": results, "model_version": version(&app)})))
}
