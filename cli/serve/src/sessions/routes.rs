//! `/v1/sessions`.

use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http_body_util::channel::{Channel, Sender};
use image::ImageFormat;
use ocelli::Mask;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::export::{Export, Form};
use super::opened::{self, OpenedVideo};
use super::worker::{AskedRun, Shows, Worker};
use super::{Session, caught};
use crate::engine::decode;
use crate::extract::{Arrived, Of, Slot};
use crate::http::body::{FORM, Fields, body, fields, kind_of, off_the_workers, parameter, read};
use crate::http::connections::Ends;
use crate::http::limits::Limits;
use crate::http::problem::{Answer, Problem, json_response};
use crate::objects::{ObjectQuestion, labelled};
use crate::state::App;

/// The quality of images of frames, 1 to 100.
const IMAGE_QUALITY: u8 = 85;

/// A session to open.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedSession {
    /// The latest frames that it keeps; all by default.
    pub window: Option<usize>,
    /// A video of the server's folder.
    pub video: Option<String>,
    /// The number of the video's stream. FFmpeg's options are not a client's to choose: some name other files and addresses.
    pub stream: Option<u32>,
}

/// A name for an object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedName {
    pub name: String,
}

/// A prompt, as a client sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedPrompt {
    frame: usize,
    text: Option<String>,
    #[serde(rename = "box")]
    bbox: Option<[f32; 4]>,
    points: Option<Vec<[f32; 2]>>,
    labels: Option<Vec<u8>>,
    mask: Option<Mask>,
    object: Option<u32>,
}

impl AskedPrompt {
    /// What is shown on the frame. A box around an object, maybe with clicks on it, becomes its mask.
    async fn shows(self, app: &App, session: &Session, client: IpAddr) -> Result<Shows, Problem> {
        let Self { frame, text, bbox, points, labels, mask, object } = self;
        if labels.is_some() && points.is_none() {
            return Err(Problem::bad("labels belong to points"));
        }
        let limits = &app.config.limits;
        limits.check_points(points.as_ref().map_or(0, Vec::len))?;
        let points = points.map(|points| labelled(points, labels).map_err(Problem::bad)).transpose()?;
        Ok(match (text, bbox, points, mask) {
            (Some(text), bbox, None, None) if object.is_none() => {
                limits.check_names([text.as_str()])?;
                Shows::Text(text, bbox)
            }
            (None, Some(bbox), None, None) if object.is_none() => Shows::Box(bbox),
            (None, Some(bbox), points, None) => {
                let shown = ObjectQuestion::one(points.unwrap_or_default(), Some(bbox));
                Shows::Mask(object, session.mask_of(&app.engine, client, frame, |_| shown).await?)
            }
            (None, None, Some(points), None) => Shows::Points(object, points),
            (None, None, None, Some(mask)) => Shows::Mask(object, mask),
            _ => {
                return Err(Problem::bad(
                    "expected one of text, box, points and mask, or a box beside a text or points; an object is named for points, \
                     a mask and a box around it: a text, and a box without an object, start over",
                ));
            }
        })
    }
}

/// The routes below `/v1/sessions`.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", post(open))
        .route("/{id}", get(state).delete(end))
        .route("/{id}/frames", post(push))
        .route("/{id}/frames/{frame}", get(image))
        .route("/{id}/results", get(results))
        .route("/{id}/download", get(download))
        .route("/{id}/prompts", post(show))
        .route("/{id}/reset", post(reset))
        .route("/{id}/propagate", post(propagate))
        .route("/{id}/objects/{object}", delete(remove).put(rename))
}

/// The videos of the server's folder.
pub(crate) async fn videos(State(app): State<Arc<App>>, _slot: Slot) -> Answer {
    let folder = app.config.videos.clone();
    let videos = off_the_workers(move |_| Ok(opened::listed(folder.as_deref())?)).await?;
    Ok(json_response(&json!({"videos": videos})))
}

/// Opens a session, with the video or the images of a form as its frames.
async fn open(State(app): State<Arc<App>>, Ends { client, .. }: Ends, request: Request) -> Answer {
    app.check_tracker("sessions")?;
    let limits = app.config.limits.clone();
    let place = app.bodies.take(client)?;
    let (mut asked, mut images, mut upload) = (AskedSession::default(), Vec::new(), None);
    if kind_of(&request) == FORM {
        for (name, value) in fields(request, Fields("video window stream", "image"), &limits).await? {
            match name.as_str() {
                "image" => images.push(value),
                "video" => upload = Some(value),
                "stream" => asked.stream = Some(read(&value)?),
                _ => asked.window = Some(read(&value)?),
            }
        }
    } else {
        asked = read(&body(request).await?)?;
    }
    if (upload.is_some() || asked.video.is_some()) && (asked.window.is_some() || !images.is_empty()) {
        return Err(Problem::bad("a video has all frames: expected no images and no window beside it"));
    }
    if asked.stream.is_some() && upload.is_none() && asked.video.is_none() {
        return Err(Problem::bad("stream is one of a video's: expected a video beside it"));
    }
    if asked.window == Some(0) {
        return Err(Problem::bad("window is 0: expected at least 1"));
    }
    let _slot = app.slots.take(client)?;
    drop(place);
    let folder = app.config.videos.clone();
    let video = off_the_workers(move |_| match (upload, asked.video, folder) {
        (Some(bytes), ..) => OpenedVideo::upload(&bytes, asked.stream, &limits).map(Some),
        (None, Some(name), Some(folder)) => {
            OpenedVideo::of_folder(&folder, &name, asked.stream, &limits).map(Some)
        }
        (None, Some(_), None) => Err(Problem::missing("the server was started without a folder of videos")),
        (None, None, _) => Ok(None),
    });
    let session = app.sessions.open(client, asked.window, video.await?)?;
    if let Err(problem) = append(&session, images, &app.config.limits).await {
        drop(app.sessions.end(&session.id));
        return Err(problem);
    }
    Ok((StatusCode::CREATED, json_response(&session.state())).into_response())
}

/// Appends the images of a form, or an image that is the body itself.
async fn push(State(app): State<Arc<App>>, Of(session): Of, ends: Ends, request: Request) -> Answer {
    let place = app.bodies.take(ends.client)?;
    let mut images = Vec::new();
    if kind_of(&request) == FORM {
        let all = fields(request, Fields("", "image"), &app.config.limits).await?;
        images.extend(all.into_iter().map(|(_, image)| image));
        if images.is_empty() {
            return Err(Problem::bad("image is missing: expected an image file"));
        }
    } else {
        images.push(body(request).await?);
    }
    let _slot = app.slots.take(ends.client)?;
    drop(place);
    append(&session, images, &app.config.limits).await?;
    Ok(json_response(&session.state()))
}

/// Decodes and appends one image after the other, so that one is in memory besides those of the session.
async fn append(session: &Session, images: Vec<Bytes>, limits: &Limits) -> Result<(), Problem> {
    for file in images {
        let limits = limits.clone();
        let image = off_the_workers(move |_| Ok(decode(&file, &limits)?)).await?;
        session.ask(move |worker| worker.push(image)).await?;
    }
    Ok(())
}

async fn state(Of(session): Of) -> Response {
    json_response(&session.state())
}

async fn end(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    app.sessions.end(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows an object or a text on a frame.
async fn show(State(app): State<Arc<App>>, Of(session): Of, body: Arrived<AskedPrompt>) -> Answer {
    let Arrived { asked, client, place } = body;
    let _slot = app.slots.take(client)?;
    drop(place);
    let frame = asked.frame;
    let shows = asked.shows(&app, &session, client).await?;
    let (line, object) = session.ask(move |worker| worker.show(frame, shows)).await?;
    let mut answer = line.to_vec();
    if let Some(object) = object {
        // Before the closing brace and the line's end.
        answer.truncate(answer.len() - 2);
        answer.extend_from_slice(format!(",\"object\":{object}}}\n").as_bytes());
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
}

/// Forgets all objects and results.
async fn reset(Of(session): Of) -> Answer {
    session.ask(Worker::reset).await?;
    Ok(json_response(&session.state()))
}

async fn remove(Of(session): Of, Path((_, object)): Path<(String, String)>) -> Answer {
    let object = object.parse().map_err(|_| Problem::missing("objects have numbers"))?;
    session.ask(move |worker| worker.remove(object)).await?;
    Ok(json_response(&session.state()))
}

/// Names an object; an empty name takes its name away. This can be done during a run.
async fn rename(
    State(app): State<Arc<App>>,
    Of(session): Of,
    Path((_, object)): Path<(String, String)>,
    body: Arrived<AskedName>,
) -> Answer {
    let name = body.asked.name.split_whitespace().collect::<Vec<_>>().join(" ");
    app.config.limits.check_names([name.as_str()])?;
    let object: u32 = object.parse().map_err(|_| Problem::missing("objects have numbers"))?;
    let is_known = session.state().objects.contains(&object) || session.seen.results().has(u64::from(object));
    if !is_known {
        return Err(Problem::missing(format!("there is no object {object}")));
    }
    session.touch()?;
    session.seen.results().rename(u64::from(object), name);
    Ok(json_response(&session.state()))
}

/// The image of a frame, as a JPEG.
async fn image(Of(session): Of, Path((_, frame)): Path<(String, String)>, _slot: Slot) -> Answer {
    let frame = frame.parse().map_err(|_| Problem::missing("frames have numbers"))?;
    let image = session.image(frame).await?;
    let jpeg = off_the_workers(move |_| Ok(image.view().encoded(ImageFormat::Jpeg, IMAGE_QUALITY)?));
    let headers = [(header::CONTENT_TYPE, "image/jpeg"), (header::CACHE_CONTROL, "private, max-age=600")];
    Ok((headers, jpeg.await?).into_response())
}

/// The frames that have results, a line each: those that changed after the revision `?since=`, by default all.
async fn results(Of(session): Of, address: Uri, _slot: Slot) -> Answer {
    let since = parameter(&address, "since").unwrap_or("0").parse();
    let since = since.map_err(|_| Problem::bad("since: expected a revision of the session"))?;
    let lines = off_the_workers(move |_| Ok(session.seen.results().since(since)));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines.await?).into_response())
}

/// The results as a file: `?format=mp4`, `youtube-vis` or `masks`.
async fn download(State(app): State<Arc<App>>, Of(session): Of, ends: Ends, address: Uri) -> Answer {
    let form = Form::named(parameter(&address, "format").unwrap_or_default())?;
    let place = app.videos.take(ends.client)?;
    session.touch()?;
    let begun = session.clone();
    let export = off_the_workers(move |_| {
        let state = begun.state();
        let results = begun.seen.results().snapshot();
        Export::new(form, results, (state.width, state.height), state.frame_rate)
    });
    let export = export.await?;
    let (mut sender, streamed) = Channel::<Bytes, std::io::Error>::new(1);
    // It may take longer than a request: the answer begins now.
    tokio::task::spawn_blocking(move || {
        let _place = place;
        if let Err(problem) = send(export, form, &session, &mut sender) {
            tracing::warn!("an export failed: {}", problem.message);
            sender.abort(std::io::Error::other(problem.message));
        }
    });
    let (name, kind) = form.file();
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, Body::new(streamed)).into_response())
}

/// Writes an export, and sends it. It ends when nobody takes it any more.
fn send(
    export: Export,
    form: Form,
    session: &Arc<Session>,
    sender: &mut Sender<Bytes, std::io::Error>,
) -> Result<(), Problem> {
    let runtime = tokio::runtime::Handle::current();
    let gone = |_| Problem::missing("nobody takes it any more");
    // A source of its own: others look at other frames meanwhile.
    let file = session.file.as_ref().filter(|_| form == Form::Mp4);
    let mut source = file.map(|file| file.source()).transpose()?;
    let (mut file, _folder) = export.write(|frame| {
        session.touch()?;
        // Nothing is sent of an empty part, but that somebody takes it is seen.
        runtime.block_on(sender.send_data(Bytes::new())).map_err(gone)?;
        Ok(match &mut source {
            _ if form != Form::Mp4 => None,
            Some(source) => Some(source.image(frame)?),
            None => Some(runtime.block_on(session.image(frame))?),
        })
    })?;
    let failed = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read it: {error}"));
    loop {
        let mut part = vec![0; 1 << 18];
        match file.read(&mut part).map_err(failed)? {
            0 => return Ok(()),
            read => part.truncate(read),
        }
        runtime.block_on(sender.send_data(part.into())).map_err(gone)?;
    }
}

/// Follows the objects: each frame is a line of the answer. A client that goes away ends the run.
async fn propagate(State(app): State<Arc<App>>, Of(session): Of, body: Arrived<AskedRun>) -> Answer {
    let Arrived { asked: run, client, place: of_body } = body;
    drop(of_body);
    let place = app.videos.take(client)?;
    let running = session.begin()?;
    let (begun, has_begun) = oneshot::channel();
    let (mut lines, streamed) = Channel::<Bytes>::new(1);
    let runtime = tokio::runtime::Handle::current();
    session.send(Box::new(move |worker: &mut Worker| {
        // It ends before its client is told, who may ask for the next thing at once.
        let taken = (running, place);
        if let Err(problem) = caught(worker, |worker| worker.begin(&run)) {
            drop(taken);
            drop(begun.send(Err(problem)));
            return;
        }
        // Nobody waits for the run if this cannot be sent.
        if begun.send(Ok(())).is_ok() {
            drop(caught(worker, |worker| {
                worker.run(|line| runtime.block_on(lines.send_data(line)).is_ok());
                Ok(())
            }));
        }
        drop(taken);
        drop(lines);
    }))?;
    has_begun.await.map_err(|_| Problem::stopping())??;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(streamed)).into_response())
}
