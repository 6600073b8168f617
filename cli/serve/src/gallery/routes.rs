//! `/v1/gallery`.

use std::sync::{Arc, PoisonError};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use image::ImageFormat;
use ocelli::{ErrorKind, Result};
use ocelli_datasets::label::{LabelledInstance, SetImage};
use serde::Deserialize;
use serde_json::json;

use super::Gallery;
use crate::app::App;
use crate::extract::{Arrived, Files};
use crate::http::body::parameter;
use crate::http::problem::{Answer, Problem, json_response};

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
            json!({
                "classes": set.classes(),
                "total": set.images().len(),
                "from": from,
                "images": images.collect::<Vec<_>>(),
            })
        }))
    });
    Ok(json_response(StatusCode::OK, &listed.await?))
}

/// The labels of an image.
pub(crate) async fn read(files: Files, Path(id): Path<String>) -> Answer {
    let labels = files.work(move |gallery| {
        let image = gallery.image(&id)?;
        let labels = gallery.read(|set| set.labels(&image))?;
        Ok(gallery.labels(&image, &labels))
    });
    Ok(json_response(StatusCode::OK, &labels.await?))
}

/// What a person made of the labels of an image.
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
        let _saving = gallery.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = gallery.read(|set| set.save(&image, &correction.version, &correction.instances));
        let labels = saved.map_err(|error| match error.kind() {
            ErrorKind::Mismatch => Problem::from(error).with_status(StatusCode::CONFLICT),
            _ => error.into(),
        })?;
        Ok(gallery.labels(&image, &labels))
    });
    Ok(json_response(StatusCode::OK, &saved.await?))
}

/// The file of an image, in a format that browsers show.
pub(crate) async fn image(files: Files, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    picture(files, id, &headers, |gallery, image| {
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
    picture(files, id, &headers, |gallery, image| Ok(("image/jpeg", gallery.thumbnail(image)?))).await
}

/// What `work` makes of the file of an image, with its type; a client that has it already is told so.
async fn picture(
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
