//! `/v1/gallery`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use image::ImageFormat;
use ocelli::{ErrorKind, Result, locked};
use ocelli_datasets::label::{LabelledInstance, SetImage};
use serde::Deserialize;
use serde_json::json;

use super::Gallery;
use crate::extract::Arrived;
use crate::http::body::{off_the_workers, parameter};
use crate::http::connections::Ends;
use crate::http::problem::{Answer, Problem, json_response};
use crate::state::App;

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
    async fn work(self, work: impl FnOnce(&Gallery) -> Answer + Send + 'static) -> Answer {
        let slot = self.app.slots.wait(self.client).await?;
        off_the_workers(move |_| {
            let _slot = slot;
            work(&self.gallery)
        })
        .await
    }
}

/// Images of one answer.
const PAGE: usize = 200;

/// The classes, and a page of the images: `?from=200` continues.
pub(crate) async fn list(files: Files, address: Uri) -> Answer {
    let from = parameter(&address, "from").unwrap_or("0");
    let wrong = |_| Problem::bad("from: expected the number of an image, from 0");
    let from: usize = from.parse().map_err(wrong)?;
    let listed = files.work(move |gallery| {
        if from == 0 {
            gallery.refresh()?;
        }
        Ok(gallery.read(|set| {
            let images = set.images().iter().skip(from).take(PAGE);
            let images = images.map(|image| {
                json!({"id": image.id, "name": image.name, "width": image.width, "height": image.height})
            });
            json_response(&json!({
                "classes": set.classes(),
                "total": set.images().len(),
                "from": from,
                "images": images.collect::<Vec<_>>(),
            }))
        }))
    });
    listed.await
}

/// The labels of an image.
pub(crate) async fn read(files: Files, Path(id): Path<String>) -> Answer {
    let labels = files.work(move |gallery| {
        let image = gallery.image(&id)?;
        let labels = gallery.read(|set| set.labels(&image))?;
        Ok(json_response(&gallery.labels(&image, &labels)))
    });
    labels.await
}

/// The labels of an image as a person corrected them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Correction {
    /// That of the labels that were changed.
    version: String,
    instances: Vec<LabelledInstance>,
}

/// Saves the labels of an image.
pub(crate) async fn save(
    State(app): State<Arc<App>>,
    files: Files,
    Path(id): Path<String>,
    Arrived { asked: correction, place, .. }: Arrived<Correction>,
) -> Answer {
    let new = correction.instances.iter().filter(|one| one.line.is_none());
    app.config.limits.check_new_boxes(new.count())?;
    let saved = files.work(move |gallery| {
        let _place = place;
        let image = gallery.image(&id)?;
        let _saving = locked(&gallery.saving);
        let saved = gallery.read(|set| set.save(&image, &correction.version, &correction.instances));
        let labels = saved.map_err(|error| match error.kind() {
            ErrorKind::Mismatch => Problem { status: StatusCode::CONFLICT, ..error.into() },
            _ => error.into(),
        })?;
        Ok(json_response(&gallery.labels(&image, &labels)))
    });
    saved.await
}

/// The file of an image, in a format that browsers show.
pub(crate) async fn image(files: Files, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    answer_with(files, id, &headers, |gallery, image| {
        let bytes = gallery.read(|set| set.read_image(image))?;
        let kind = match image::guess_format(&bytes) {
            Ok(ImageFormat::Jpeg) => "image/jpeg",
            Ok(ImageFormat::Png) => "image/png",
            Ok(ImageFormat::WebP) => "image/webp",
            _ => {
                let decoded = gallery.decode(image, &bytes)?;
                return Ok(("image/png", decoded.view().encoded(ImageFormat::Png, 0)?.into()));
            }
        };
        Ok((kind, bytes.into()))
    })
    .await
}

/// A small JPEG of an image.
pub(crate) async fn thumbnail(files: Files, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    answer_with(files, id, &headers, |gallery, image| Ok(("image/jpeg", gallery.thumbnail(image)?))).await
}

/// The result of `work` on the file of an image, with its type; a client that has it already is told so.
async fn answer_with(
    files: Files,
    id: String,
    headers: &HeaderMap,
    work: fn(&Gallery, &SetImage) -> Result<(&'static str, Bytes)>,
) -> Answer {
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let answer = files.work(move |gallery| {
        let image = gallery.image(&id)?;
        let (size, time) = gallery.read(|set| set.file_version(&image));
        let tag = format!("\"{id}-{size:x}-{time:x}\"");
        let is_known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let headers = [(header::ETAG, tag), (header::CACHE_CONTROL, "private, no-cache".to_owned())];
        if is_known {
            return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
        }
        let (kind, bytes) = work(gallery, &image)?;
        Ok(([(header::CONTENT_TYPE, kind)], headers, bytes).into_response())
    });
    answer.await
}
