//! `/v1/sessions`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http_body_util::channel::Channel;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::asked::{AskedPrompt, AskedRun, AskedSession, read};
use super::upload::Upload;
use super::worker::Worker;
use super::{Session, caught};
use crate::app::App;
use crate::detect::{body, ends_of, fields, off_the_workers};
use crate::engine::decode;
use crate::limits::Limits;
use crate::problem::{Problem, json_response};
use crate::segment::check_tracker;

/// The routes below `/v1/sessions`.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", post(open))
        .route("/{id}", get(state).delete(end))
        .route("/{id}/frames", post(push))
        .route("/{id}/prompts", post(show))
        .route("/{id}/propagate", post(propagate))
        .route("/{id}/objects/{object}", delete(remove))
}

/// Opens a session, with the video or the pictures of a form as its frames.
async fn open(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    check_tracker(&app, "sessions")?;
    let client = ends_of(&request)?.client;
    let place = app.bodies.take(client)?;
    let (asked, pictures, video): (AskedSession, _, _) = match is_form(&request) {
        true => {
            let (mut asked, mut pictures, mut video) = (AskedSession::default(), Vec::new(), None);
            for (name, value) in fields(request, &app.config.limits).await? {
                match name.as_str() {
                    "image" => pictures.push(value),
                    "video" => video = Some(value),
                    "window" => asked.window = Some(read(&value)?),
                    _ => {
                        return Err(Problem::bad(format!(
                            "{name}: no such field; the fields are video, image, window"
                        )));
                    }
                }
            }
            (asked, pictures, video)
        }
        false => (read(&body(request).await?)?, Vec::new(), None),
    };
    if video.is_some() && (asked.window.is_some() || !pictures.is_empty()) {
        return Err(Problem::bad("a video has all frames: expected no images and no window beside it"));
    }
    if asked.window == Some(0) {
        return Err(Problem::bad("window is 0: expected at least 1"));
    }
    let _slot = app.slots.take(client)?;
    drop(place);
    let limits = app.config.limits.clone();
    let upload = match video {
        Some(video) => Some(off_the_workers(move |_| Upload::open(&video, &limits)).await?),
        None => None,
    };
    let session = app.sessions.open(client, asked.window, upload)?;
    if let Err(problem) = append(&session, pictures, &app.config.limits).await {
        drop(app.sessions.end(&session.id));
        return Err(problem);
    }
    Ok(json_response(StatusCode::CREATED, &session.state()))
}

/// Appends the pictures of a form, or a picture that is the body itself.
async fn push(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let session = app.sessions.get(&id)?;
    let client = ends_of(&request)?.client;
    let place = app.bodies.take(client)?;
    let mut pictures = Vec::new();
    if is_form(&request) {
        for (name, value) in fields(request, &app.config.limits).await? {
            match name.as_str() {
                "image" => pictures.push(value),
                _ => return Err(Problem::bad(format!("{name}: no such field; the field is image"))),
            }
        }
    } else {
        pictures.push(body(request).await?);
    }
    let _slot = app.slots.take(client)?;
    drop(place);
    append(&session, pictures, &app.config.limits).await?;
    Ok(json_response(StatusCode::OK, &session.state()))
}

/// Decodes and appends one picture after the other, so that one is in memory besides those of the session.
async fn append(session: &Session, pictures: Vec<Bytes>, limits: &Limits) -> Result<(), Problem> {
    for picture in pictures {
        let limits = limits.clone();
        let image = off_the_workers(move |_| Ok(decode(&picture, &limits)?)).await?;
        session.ask(move |worker| worker.push(image)).await?;
    }
    Ok(())
}

async fn state(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(json_response(StatusCode::OK, &app.sessions.get(&id)?.state()))
}

async fn end(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    app.sessions.end(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows an object or a text on a frame.
async fn show(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let session = app.sessions.get(&id)?;
    let client = ends_of(&request)?.client;
    let place = app.bodies.take(client)?;
    let (body, limits) = (body(request).await?, app.config.limits.clone());
    let (frame, shows) = off_the_workers(move |_| read::<AskedPrompt>(&body)?.shows(&limits)).await?;
    let _slot = app.slots.take(client)?;
    drop(place);
    let (found, object) = session.ask(move |worker| worker.show(frame, shows)).await?;
    let mut answer = json!(found);
    if let Some(object) = object {
        answer["object"] = json!(object);
    }
    Ok(json_response(StatusCode::OK, &answer))
}

async fn remove(
    State(app): State<Arc<App>>,
    Path((id, object)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let session = app.sessions.get(&id)?;
    let object = object.parse().map_err(|_| Problem::missing("objects have numbers"))?;
    session.ask(move |worker| worker.remove(object)).await?;
    Ok(json_response(StatusCode::OK, &session.state()))
}

/// Follows the objects: each frame is a line of the answer. A client that goes away ends the run.
async fn propagate(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let session = app.sessions.get(&id)?;
    let client = ends_of(&request)?.client;
    let bodies = app.bodies.take(client)?;
    let run: AskedRun = read(&body(request).await?)?;
    drop(bodies);
    let place = app.videos.take(client)?;
    let running = session.begin()?;
    let (begun, has_begun) = oneshot::channel();
    let (lines, mut written) = mpsc::channel::<Bytes>(1);
    session.send(Box::new(move |worker: &mut Worker| {
        // It ends before its client is told, who may ask for the next thing at once.
        let running = running;
        if let Err(problem) = caught(worker, |worker| worker.begin(&run)) {
            drop(running);
            drop(begun.send(Err(problem)));
            return;
        }
        // Nobody waits for the run if this cannot be sent.
        if begun.send(Ok(())).is_ok() {
            drop(caught(worker, |worker| {
                worker.run(&lines);
                Ok(())
            }));
        }
        drop(running);
        drop(lines);
    }))?;
    has_begun.await.map_err(|_| Problem::stopping())??;
    let (mut sender, streamed) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let _place = place;
        while let Some(line) = written.recv().await {
            if sender.send_data(line).await.is_err() {
                return;
            }
        }
    });
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    Ok((kind, Body::new(streamed)).into_response())
}

fn is_form(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"))
}
