//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use crate::app::App;
use crate::metrics::Now;
use crate::problem::{Problem, json_response};
use crate::{detect, example, gallery, guard, label_studio, page, segment, sessions, video};

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Every route; all of them pass the guard.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/page/{file}", get(page::file))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .route("/v1/about", get(about))
        .route("/v1/detect", post(detect::detect))
        .route("/v1/segment", post(segment::segment))
        .route("/v1/video", get(video::video))
        .route("/v1/gallery", get(gallery::list))
        .route("/v1/gallery/{id}", get(gallery::read).put(gallery::save))
        .route("/v1/gallery/{id}/image", get(gallery::image))
        .route("/v1/gallery/{id}/thumbnail", get(gallery::thumbnail))
        .route("/v1/videos", get(sessions::routes::videos))
        .nest("/v1/sessions", sessions::routes::router())
        .nest("/label-studio", label_studio::router())
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(app.config.limits.body_bytes))
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app.clone())
}

async fn nothing_here() -> Problem {
    Problem::missing("there is nothing at this address; /openapi.json lists what there is")
}

async fn wrong_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    let message =
        format!("{method} {path}: this address takes another method; /openapi.json lists what there is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let now = Now {
        waiting: app.engine.waiting(),
        free_slots: app.slots.free(),
        arriving: app.bodies.taken(),
        sessions: app.sessions.count(),
        engine: &app.about.engine,
        model: &app.about.model,
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, app.metrics.text(&now)).into_response()
}

/// What the page has to know.
async fn about(State(app): State<Arc<App>>) -> Response {
    let limits = &app.config.limits;
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "engine": app.about.engine,
        "model": app.about.model,
        "vocabulary": app.about.vocabulary,
        "masks": app.about.masks,
        "clicks": app.about.clicks,
        "confidence": app.about.confidence,
        "nms": app.about.nms,
        "gallery": app.gallery.is_some(),
        "sessions": app.about.clicks && app.sessions.can_open(),
        "videos": app.config.videos.is_some(),
        "example": example::NAMES,
        "limits": {
            "bytes": limits.body_bytes,
            "pixels": limits.pixels,
            "classes": limits.classes,
            "exemplars": limits.exemplars,
            "objects": limits.objects,
            "points": limits.points,
            "sessions": limits.sessions,
            "session_bytes": limits.session_bytes,
            "session_seconds": limits.session_idle.as_secs_f64(),
            "seconds": limits.time.as_secs_f64(),
        },
    });
    json_response(StatusCode::OK, &about)
}
