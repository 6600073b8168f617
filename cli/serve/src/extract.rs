//! Handlers name what they need of a request as their arguments: who sends it, what its path names, and its body.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::gallery::Gallery;
use crate::http::body::{FORM, body, fields, kind_of, off_the_workers, read};
use crate::http::connections::Ends;
use crate::http::places::Place;
use crate::http::problem::Problem;
use crate::request::Asks;
use crate::server::App;
use crate::sessions::Session;

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

/// Reads a request about a picture. Returns it with the place to work in.
pub(crate) async fn asked<Q: Asks>(
    app: &App,
    client: IpAddr,
    request: Request,
) -> Result<(Bytes, Q, Place), Problem> {
    let limits = app.config.limits.clone();
    // It is held until the request has its slot, so that bodies that wait are counted.
    let place = app.bodies.take(client)?;
    let (picture, question) = match kind_of(&request).as_str() {
        "application/json" => {
            let body = body(request).await?;
            off_the_workers(move |_| Q::of_json(&body, &limits)).await?
        }
        FORM => {
            let fields = fields(request, Q::FIELDS, &limits).await?;
            off_the_workers(move |_| Q::of_form(fields, &limits)).await?
        }
        _ => {
            let message = "expected application/json or multipart/form-data as the content type";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let picture = picture.filter(|picture| !picture.is_empty());
    let picture = picture.ok_or_else(|| Problem::bad("image is missing: expected a picture file"))?;
    let slot = app.slots.take(client)?;
    drop(place);
    Ok((picture, question, slot))
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
