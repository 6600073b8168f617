//! What handlers take from a request: who sends it, what its path names, and its body.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::connections::Ends;
use crate::detect::off_the_workers;
use crate::gallery::Gallery;
use crate::places::Place;
use crate::problem::Problem;
use crate::sessions::Session;

impl<S: Sync> FromRequestParts<S> for Ends {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without an address");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// A place among the requests that wait or run.
pub(crate) struct Slot {
    _place: Place,
}

impl FromRequestParts<Arc<App>> for Slot {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let client = Ends::from_request_parts(parts, app).await?.client;
        Ok(Self { _place: app.slots.take(client)? })
    }
}

/// The session that the path names.
pub(crate) struct Of(pub Arc<Session>);

impl FromRequestParts<Arc<App>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::new(error.status(), error.body_text()))?;
        let id = names.iter().find(|(name, _)| name == "id").map_or("", |(_, id)| id);
        app.sessions.get(id).map(Self)
    }
}

/// The gallery, for a client.
pub(crate) struct Files {
    app: Arc<App>,
    gallery: Arc<Gallery>,
    client: IpAddr,
}

impl FromRequestParts<Arc<App>> for Files {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let missing = || Problem::missing("the server was started without a gallery");
        let client = Ends::from_request_parts(parts, app).await?.client;
        Ok(Self { app: app.clone(), gallery: app.gallery.clone().ok_or_else(missing)?, client })
    }
}

impl Files {
    /// Work with files, which has one of the places of requests until it is done, even if nobody waits for it any more.
    pub async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&Gallery) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let slot = self.app.slots.wait(self.client).await?;
        off_the_workers(move |_| {
            let _slot = slot;
            work(&self.gallery)
        })
        .await
    }
}

/// A parameter of the address, as it is there.
pub(crate) fn parameter<'r>(address: &'r Uri, name: &str) -> Option<&'r str> {
    let pairs = address.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The whole body, within the limit. The caller holds a place for it.
pub(crate) async fn body(request: Request) -> Result<Bytes, Problem> {
    Bytes::from_request(request, &()).await.map_err(|error| Problem::new(error.status(), error.body_text()))
}

/// Reads JSON; an empty body is that of a request without options.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| Problem::bad(format!("request: {error}")))
}

/// A body in JSON, with its place, which it has until the next one is taken.
pub(crate) struct Arrived<B> {
    pub asked: B,
    pub client: IpAddr,
    pub place: Place,
}

impl<B: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for Arrived<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body_of) = request.into_parts();
        let client = Ends::from_request_parts(&mut parts, app).await?.client;
        let place = app.bodies.take(client)?;
        let body = body(Request::from_parts(parts, body_of)).await?;
        off_the_workers(move |_| Ok(Self { asked: read(&body)?, client, place })).await
    }
}
