//! Label Studio's protocol of machine-learning backends, below `/label-studio`: predictions from the labels of a project.
//!
//! Label Studio sends the project's labelling configuration and tasks whose data name a picture. The labels are the text
//! prompts; the tags say whether a prediction is a rectangle, a polygon or a brush mask. `hostname` and `access_token`, which
//! it sends as well, are ignored: pictures are fetched from the Label Studio that the server was started with.

mod labels;
mod pictures;
mod regions;
mod tasks;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::app::App;
use crate::detect::{body, ends_of, off_the_workers};
use crate::problem::{Problem, json_response};
use crate::request::Asked;
use labels::LabelConfig;
pub(crate) use pictures::Pictures;
use regions::{Region, regions};
use tasks::Task;

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
    let limits = app.config.limits.clone();
    arrived(&app, request, move |setup: Setup| {
        if let Err(problem) = LabelConfig::parse(&setup.schema, &limits) {
            // A project has no configuration yet when it is made.
            tracing::info!("Label Studio: {}", problem.message);
        }
        Ok(())
    })
    .await?;
    Ok(json_response(StatusCode::OK, &json!({"model_version": version(&app)})))
}

#[derive(Deserialize)]
struct Validate {
    #[serde(default)]
    config: String,
}

async fn validate(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let limits = app.config.limits.clone();
    arrived(&app, request, move |asked: Validate| LabelConfig::parse(&asked.config, &limits).map(drop))
        .await?;
    Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
}

async fn versions(State(app): State<Arc<App>>) -> Response {
    json_response(StatusCode::OK, &json!({"versions": [version(&app)]}))
}

/// The model is not trained here.
async fn nothing_to_train(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let _place = app.bodies.take(ends_of(&request)?.client)?;
    body(request).await?;
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

fn read<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::bad(format!("request: {error}")))
}

/// What `work` makes of a body. It has a place for bodies until then.
async fn arrived<B: DeserializeOwned, T: Send + 'static>(
    app: &App,
    request: Request,
    work: impl FnOnce(B) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let place = app.bodies.take(ends_of(&request)?.client)?;
    let body = body(request).await?;
    off_the_workers(move |_| {
        let _place = place;
        work(read(&body)?)
    })
    .await
}

#[derive(Serialize)]
struct Predictions {
    results: Vec<Prediction>,
    model_version: String,
}

/// The regions of a task's picture. Label Studio sorts tasks by the score: that of the least certain instance says how much a
/// task needs a person.
#[derive(Serialize)]
struct Prediction {
    result: Vec<Region>,
    score: f32,
    model_version: String,
}

/// The predictions for some tasks. A picture that cannot be fetched or read has none, and the log says why; if that is so
/// for all of them, the answer is the error.
async fn predict(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let client = ends_of(&request)?.client;
    let (limits, has_masks) = (app.config.limits.clone(), app.about.masks);
    let (tasks, config, question) = arrived(&app, request, move |asked: Predict| {
        let config = LabelConfig::parse(&asked.label_config, &limits)?;
        let asks = config.asks();
        if asks.masks && !has_masks {
            return Err(Problem::bad("polygons and brushes need masks, but the server runs without masks"));
        }
        let question = Asked::of_classes(asks.phrases, asks.masks).question(&limits)?;
        Ok((asked.tasks, Arc::new(config), question))
    })
    .await?;
    let _slot = app.slots.take(client)?;
    let mut results = Vec::new();
    let (mut failures, mut problem) = (0, None);
    for task in &tasks {
        let found = async {
            let picture = app.pictures.get(task.picture(&config)?).await?;
            let found = app.engine.ask(client, picture, question.clone()).await?;
            let (config, prompts) = (config.clone(), question.prompts.clone());
            off_the_workers(move |withdrawn| regions(&config, &prompts, &found, withdrawn)).await
        };
        let predicted = match found.await {
            Ok((result, score)) => Prediction { result, score, model_version: version(&app) },
            Err(failed) => {
                tracing::warn!("Label Studio, task {}: {}", task.id.0, failed.message);
                (failures, problem) = (failures + 1, Some(failed));
                Prediction { result: Vec::new(), score: 0.0, model_version: version(&app) }
            }
        };
        results.push(predicted);
    }
    if let Some(problem) = problem.filter(|_| failures == results.len()) {
        return Err(problem);
    }
    let predictions = Predictions { results, model_version: version(&app) };
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &predictions))).await
}
