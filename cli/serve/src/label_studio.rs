//! Label Studio's protocol of machine-learning backends, below `/label-studio`: predictions from the labels of a project.
//!
//! Label Studio sends the project's labelling configuration and tasks whose data name an image. The labels are the text
//! prompts; the tags say whether a prediction is a rectangle, a polygon or a brush mask. `hostname` and `access_token`, which
//! it sends as well, are ignored: images are fetched from the Label Studio that the server was started with.

mod drawn;
pub(crate) mod images;
mod labels;
mod regions;
mod video;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::engine::Task as EngineTask;
use crate::extract::Arrived;
use crate::http::body::off_the_workers;
use crate::http::limits::or_default;
use crate::http::problem::{Answer, Problem, json_response};
use crate::request::{Asked, Asks, Question};
use crate::state::App;
use drawn::{Context, Drawn};
use labels::{LabelConfig, Task};
use regions::{Region, drawn_regions, regions};

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
    json_response(&json!({"status": "UP", "model_class": "Ocelli", "v2": true}))
}

/// A labelling configuration, which has two names.
#[derive(Deserialize)]
struct Configuration {
    #[serde(default, alias = "schema", deserialize_with = "or_default")]
    config: String,
}

/// Label Studio calls this when the address is entered and when the configuration changes.
async fn setup(State(app): State<Arc<App>>, body: Arrived<Configuration>) -> Answer {
    let limits = app.config.limits.clone();
    let parsed = off_the_workers(move |_| LabelConfig::parse(&{ body }.asked.config, &limits).map(drop));
    if let Err(problem) = parsed.await {
        // A project has no configuration yet when it is made.
        tracing::info!("Label Studio: {}", problem.message);
    }
    Ok(json_response(&json!({"model_version": version(&app)})))
}

async fn validate(State(app): State<Arc<App>>, body: Arrived<Configuration>) -> Answer {
    let limits = app.config.limits.clone();
    off_the_workers(move |_| LabelConfig::parse(&{ body }.asked.config, &limits).map(drop)).await?;
    Ok(json_response(&json!({"status": "ok"})))
}

async fn versions(State(app): State<Arc<App>>) -> Response {
    json_response(&json!({"versions": [version(&app)]}))
}

/// The model is not trained here.
async fn nothing_to_train(_: Arrived<IgnoredAny>) -> Response {
    let said = json!({"status": "ok", "detail": "Ocelli is not trained by Label Studio"});
    json_response(&said)
}

async fn is_training() -> Response {
    json_response(&json!({"is_training": false, "job_status": "completed"}))
}

#[derive(Deserialize)]
struct Predict {
    tasks: Vec<Task>,
    label_config: String,
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    /// Regions drawn with a smart tool; without them the labels of the configuration are searched for.
    context: Option<Context>,
}

#[derive(Serialize)]
struct Predictions {
    results: Vec<Prediction>,
    model_version: String,
}

/// The regions of a task's image. Label Studio sorts tasks by the score: that of the least certain instance says how much a
/// task needs a person.
#[derive(Serialize)]
struct Prediction {
    result: Regions,
    score: f32,
    model_version: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Regions {
    Image(Vec<Region>),
    Video(Vec<Value>),
}

/// A task on the images.
enum PredictionTask {
    Labels(Question),
    Drawn(Drawn),
    /// Rectangles that were drawn in a video; without one, the labels are looked for.
    Video(Vec<Drawn>),
}

impl PredictionTask {
    /// What a request asks for, within the limits.
    fn of(app: &App, config: &LabelConfig, context: Option<Context>) -> Result<Self, Problem> {
        let limits = &app.config.limits;
        if config.video.is_some() {
            let drawn = context.map(Context::drawn_in_video).unwrap_or_default();
            limits.check_objects(drawn.len())?;
            app.check_tracker("videos")?;
            return Ok(Self::Video(drawn));
        }
        if let Some(drawn) = context.and_then(Context::drawn) {
            limits.check_points(drawn.points.len())?;
            app.check_tracker("smart tools")?;
            return Ok(Self::Drawn(drawn));
        }
        let mut labels = Asked::default();
        (labels.classes, labels.masks) = config.asks();
        if labels.masks && !app.about.masks {
            return Err(Problem::bad("polygons and brushes need masks, but the server runs without masks"));
        }
        Ok(Self::Labels(Question::of(labels, limits)?))
    }
}

/// The predictions for some tasks. An image that cannot be fetched or read has none, and the log says why; if that is so
/// for all of them, the answer is the error.
async fn predict(State(app): State<Arc<App>>, body: Arrived<Predict>) -> Answer {
    let Arrived { asked, client, place } = body;
    let reading = app.clone();
    let read = off_the_workers(move |_| {
        let _place = place;
        let config = LabelConfig::parse(&asked.label_config, &reading.config.limits)?;
        let wanted = PredictionTask::of(&reading, &config, asked.params.and_then(|params| params.context))?;
        Ok((asked.tasks, Arc::new(config), wanted))
    });
    let (tasks, config, wanted) = read.await?;
    let _slot = app.slots.take(client)?;
    let mut results = Vec::new();
    let (mut failures, mut problem) = (0, None);
    for task in &tasks {
        let (result, score) =
            predicted(&app, client, &config, task, &wanted).await.unwrap_or_else(|failed| {
                tracing::warn!("Label Studio, task {}: {}", task.id.0, failed.message);
                (failures, problem) = (failures + 1, Some(failed));
                (Regions::Image(Vec::new()), 0.0)
            });
        results.push(Prediction { result, score, model_version: version(&app) });
    }
    if let Some(problem) = problem.filter(|_| failures == results.len()) {
        return Err(problem);
    }
    let predictions = Predictions { results, model_version: version(&app) };
    off_the_workers(move |_| Ok(json_response(&predictions))).await
}

/// The regions of a task's image or video, and their score.
async fn predicted(
    app: &App,
    client: IpAddr,
    config: &Arc<LabelConfig>,
    task: &Task,
    wanted: &PredictionTask,
) -> Result<(Regions, f32), Problem> {
    let data = |key: &str| task.text(key);
    let image = async || app.images.get(config.image_of(data)?).await;
    let (regions, score) = match wanted {
        PredictionTask::Video(drawn) => {
            let missing = || Problem::bad("a task has no video under the name that the configuration has");
            let (control, address) = config.video_of(data).ok_or_else(missing)?;
            let video = app.images.get(address).await?;
            let (regions, score) = video::predict(app, client, control, video, drawn).await?;
            return Ok((Regions::Video(regions), score));
        }
        PredictionTask::Labels(question) => {
            let (asked, prompts) = (question.clone(), question.prompts.clone());
            let ask = |reply| EngineTask::Detect(asked, reply);
            let found = app.engine.ask(client, image().await?, ask).await?;
            let config = config.clone();
            off_the_workers(move |withdrawn| regions(&config, &prompts, &found, withdrawn)).await?
        }
        PredictionTask::Drawn(drawn) => {
            let (shown, label) = (drawn.shown(drawn.size), drawn.label.clone());
            let ask = |reply| EngineTask::Segment(shown, reply);
            let found = app.engine.ask(client, image().await?, ask).await?;
            let config = config.clone();
            off_the_workers(move |withdrawn| drawn_regions(&config, &label, found, withdrawn)).await?
        }
    };
    Ok((Regions::Image(regions), score))
}
