//! `GET /v1/video`: a WebSocket that takes the frames of a video and answers with what is in them.
//!
//! The first message is a question in JSON, as for `/v1/detect` without the image; a later one replaces it. Each binary
//! message is a frame as an image file. A frame that arrives while another is being worked on waits, and a newer one
//! replaces it: the answers keep up with the camera, and each names its frame by its number from 0.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::response::Response;
use serde_json::{Value, json};

use crate::detect::detections;
use crate::engine::Task;
use crate::http::body::off_the_workers;
use crate::http::connections::Ends;
use crate::http::places::Place;
use crate::http::problem::Problem;
use crate::request::{Asks, Question};
use crate::state::App;

/// A client that is silent for this long is gone.
const SILENCE: Duration = Duration::from_secs(120);

/// Turns the connection into a WebSocket.
pub(crate) async fn video(
    State(app): State<Arc<App>>,
    ends: Ends,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let place = app.videos.take(ends.client)?;
    let upgrade = upgrade.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let most = app.config.limits.body_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most);
    Ok(upgrade.on_upgrade(move |socket| async move { serve(&app, &ends, place, socket).await }))
}

type Work<'a> = Pin<Box<dyn Future<Output = Value> + Send + 'a>>;

/// A frame that waits, and what the frames are searched for.
#[derive(Default)]
struct Frames {
    question: Option<Question>,
    newest: Option<(u64, Bytes)>,
    received: u64,
    dropped: u64,
}

/// `ends` hold the place of the connection.
async fn serve(app: &App, ends: &Ends, place: Place, mut socket: WebSocket) {
    let _counted = app.metrics.videos.count();
    // Given back before it is not counted any more.
    let _place = place;
    let mut stopping = app.stopping.clone();
    let mut frames = Frames::default();
    let mut work: Option<Work<'_>> = None;
    loop {
        if work.is_none()
            && let Some(question) = &frames.question
            && let Some((number, image)) = frames.newest.take()
        {
            work = Some(Box::pin(answer(app, ends.client, number, image, question.clone())));
        }
        let answer = tokio::select! {
            message = tokio::time::timeout(SILENCE, socket.recv()) => match message {
                // The same pong waits already, and is sent once; the next ping is not read before.
                Ok(Some(Ok(Message::Ping(payload)))) => Message::Pong(payload),
                Ok(Some(Ok(message))) => match frames.take(app, message).await {
                    Some(said) => text(&said),
                    None => continue,
                },
                // Gone, silent or broken. The work is dropped, and so is its place in the queue.
                _ => return,
            },
            mut said = async { work.as_mut().expect("checked below").await }, if work.is_some() => {
                work = None;
                app.metrics.frames_done.fetch_add(1, Relaxed);
                said["dropped"] = json!(frames.dropped);
                text(&said)
            }
            () = stopped(&mut stopping) => {
                drop(socket.send(Message::Close(None)).await);
                return;
            }
        };
        let sent = tokio::time::timeout(SILENCE, socket.send(answer)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

fn text(said: &Value) -> Message {
    Message::Text(said.to_string().into())
}

async fn stopped(stopping: &mut tokio::sync::watch::Receiver<bool>) {
    // The value is locked while it is borrowed.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

impl Frames {
    /// Takes a message. Returns what is said to it.
    async fn take(&mut self, app: &App, message: Message) -> Option<Value> {
        match message {
            Message::Text(text) => {
                let limits = app.config.limits.clone();
                let question = off_the_workers(move |_| match Question::of_json(text.as_bytes(), &limits)? {
                    (None, question) => Ok(question),
                    (Some(_), _) => Err(Problem::bad("image: expected each frame as a binary message")),
                });
                let taken = question.await.map(|question| self.question = Some(question));
                Some(taken.map_or_else(|problem| problem.json(), |()| json!({"ready": true})))
            }
            Message::Binary(image) => {
                app.metrics.frames_received.fetch_add(1, Relaxed);
                let number = self.received;
                self.received += 1;
                if self.question.is_none() {
                    return Some(json!({"frame": number, "error": "send the classes before the frames"}));
                }
                if self.newest.replace((number, image)).is_some() {
                    self.dropped += 1;
                    app.metrics.frames_dropped.fetch_add(1, Relaxed);
                }
                None
            }
            _ => None,
        }
    }
}

/// A frame waits for a slot, as a newer one takes its place meanwhile.
async fn answer(app: &App, client: IpAddr, number: u64, image: Bytes, question: Question) -> Value {
    let work = async {
        let _slot = app.slots.wait(client).await?;
        let found = app.engine.ask(client, image, |reply| Task::Detect(question, reply)).await?;
        off_the_workers(move |_| Ok(detections(found))).await
    };
    let answered = app.config.limits.in_time(work).await.and_then(|answered| answered);
    let mut said = answered.unwrap_or_else(|problem| problem.json());
    said["frame"] = json!(number);
    said
}
