//! The routes.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::guard::guard;
use crate::http::problem::{Problem, json_response};
use crate::state::App;
use crate::{detect, gallery, label_studio, page, sessions, video};

/// The description of the API, without the refusals that many routes have in common.
const OPENAPI: &str = include_str!("openapi.json");

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
        .route("/v1/segment", post(detect::segment))
        .route("/v1/video", get(video::video))
        .route("/v1/gallery", get(gallery::routes::list))
        .route("/v1/gallery/{id}", get(gallery::routes::read).put(gallery::routes::save))
        .route("/v1/gallery/{id}/image", get(gallery::routes::image))
        .route("/v1/gallery/{id}/thumbnail", get(gallery::routes::thumbnail))
        .route("/v1/videos", get(sessions::routes::videos))
        .nest("/v1/sessions", sessions::routes::router())
        .nest("/label-studio", label_studio::router())
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(app.config.limits.body_bytes))
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app.clone())
}

async fn nothing_here() -> Problem {
    Problem::missing("there is nothing at this address; /openapi.json lists what there is")
}

async fn wrong_method(method: Method, address: Uri) -> Problem {
    let path = address.path();
    let message =
        format!("{method} {path}: this address takes another method; /openapi.json lists what there is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn health() -> Response {
    json_response(&json!({"status": "ok"}))
}

async fn openapi() -> Response {
    static WHOLE: LazyLock<Value> = LazyLock::new(|| described(OPENAPI));
    json_response(&*WHOLE)
}

/// A description with what requests of each kind can be refused with.
fn described(text: &str) -> Value {
    let mut whole: Value = serde_json::from_str(text).expect("a test reads it");
    for (path, methods) in whole["paths"].as_object_mut().into_iter().flatten() {
        let operations = methods.as_object_mut().into_iter().flatten();
        for (_, operation) in operations.filter(|(name, _)| *name != "parameters") {
            let has_body = operation.get("requestBody").is_some();
            let refusals = [
                ("400", has_body || path.starts_with("/v1/")),
                ("401", operation.get("security").is_none()),
                ("404", path.contains('{')),
                ("413", has_body),
            ];
            let any = ["403", "500", "503", "504"].map(|status| (status, true));
            for (status, _) in refusals.into_iter().chain(any).filter(|(_, is_possible)| *is_possible) {
                operation["responses"][status] = json!({"$ref": "#/components/responses/Problem"});
            }
        }
    }
    whole
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let now = [
        ("queue_depth", "Images that wait for the engine.", app.engine.waiting() as i64),
        ("free_slots", "Requests that are accepted before 503.", app.slots.free() as i64),
        ("arriving", "Requests whose body arrives.", app.bodies.taken() as i64),
        ("feature_cache_bytes", "Bytes of kept features.", app.engine.kept_bytes() as i64),
        ("sessions", "Open sessions.", app.sessions.count() as i64),
    ];
    (kind, app.metrics.text(&app.about.engine, &app.about.model, &now)).into_response()
}

/// All that the page has to know.
async fn about(State(app): State<Arc<App>>) -> Response {
    let limits = &app.config.limits;
    let mut about = json!(app.about);
    about["version"] = json!(env!("CARGO_PKG_VERSION"));
    about["gallery"] = json!(app.gallery.is_some());
    about["sessions"] = json!(app.about.clicks && app.sessions.load.is_some());
    about["videos"] = json!(app.config.videos.is_some());
    about["example"] = json!(page::EXAMPLE);
    about["limits"] = json!({
        "bytes": limits.body_bytes,
        "pixels": limits.pixels,
        "classes": limits.classes,
        "exemplars": limits.exemplars,
        "objects": limits.objects,
        "points": limits.points,
        "tiles": limits.tiles,
        "sessions": limits.sessions,
        "session_bytes": limits.session_bytes,
        "session_seconds": limits.session_idle.as_secs_f64(),
        "seconds": limits.time.as_secs_f64(),
    });
    json_response(&about)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes of a file, as `path method`.
    fn routes(source: &str, prefix: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let mut routes = Vec::new();
        for route in source.split(".route(\"").skip(1) {
            let (path, rest) = route.split_once('"').expect("a path");
            let line = rest.lines().next().expect("methods");
            for method in ["get", "put", "post", "delete"] {
                if line.contains(&format!(" {method}(")) || line.contains(&format!(".{method}(")) {
                    let path = if path == "/" && !prefix.is_empty() { "" } else { path };
                    routes.push(format!("{prefix}{path} {method}"));
                }
            }
        }
        routes
    }

    #[test]
    fn the_description_has_every_route() {
        let described = described(OPENAPI);
        let mut wrong = Vec::new();
        let mut documented = BTreeSet::new();
        for (path, methods) in described["paths"].as_object().expect("it has paths") {
            let methods = methods.as_object().expect("it has methods");
            for (method, operation) in methods.iter().filter(|(key, _)| *key != "parameters") {
                documented.insert(format!("{path} {method}"));
                let has = |status: &str| operation["responses"].get(status).is_some();
                for (status, is_needed) in [
                    ("401", path != "/healthz"),
                    ("403", true),
                    ("500", true),
                    ("404", path.contains('{')),
                    ("413", operation.get("requestBody").is_some()),
                    ("400", operation.get("requestBody").is_some() || path.starts_with("/v1/")),
                ] {
                    if is_needed && !has(status) {
                        wrong.push(format!("{path} {method} has no {status}"));
                    }
                }
                if operation["summary"].as_str().is_none_or(str::is_empty) {
                    wrong.push(format!("{path} {method} has no summary"));
                }
            }
        }
        let served: BTreeSet<String> = [
            routes(include_str!("api.rs"), ""),
            routes(include_str!("sessions/routes.rs"), "/v1/sessions"),
            routes(include_str!("label_studio.rs"), "/label-studio"),
        ]
        .concat()
        .into_iter()
        .collect();
        assert!(served.len() > 30, "{served:?}");
        wrong
            .extend(served.symmetric_difference(&documented).map(|route| format!("{route}: in one of both")));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let text = described.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(described.pointer(reference).is_some(), "{reference}");
        }
    }
}
