//! `/v1/gallery`: a labelled data set to look at and to correct. Images are named by ids that are no paths.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use image::ImageFormat;
use ocelli::report::rounded;
use ocelli::{ErrorKind, Image, Result, locked};
use ocelli_datasets::label::{CorrectedSet, LabelledInstance, Labels, SetImage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::{Arrived, Files};
use crate::http::body::parameter;
use crate::http::limits::Limits;
use crate::http::problem::{Answer, Problem, json_response};
use crate::server::App;

/// The longer side of a thumbnail, in pixels.
const THUMBNAIL: u32 = 256;
/// Of JPEG.
const THUMBNAIL_QUALITY: u8 = 75;
/// Thumbnails that are kept.
const KEPT_THUMBNAILS: usize = 2_000;

/// The data set, and its small images.
pub(crate) struct Gallery {
    set: RwLock<CorrectedSet>,
    /// Each with the version of its file.
    thumbnails: Mutex<HashMap<String, ((u64, u64), Bytes)>>,
    limits: Limits,
    /// One save at a time: the second waits instead of failing on the lock.
    saving: Mutex<()>,
}

impl Gallery {
    pub fn open(root: &std::path::Path, limits: Limits) -> Result<Self> {
        let set = RwLock::new(CorrectedSet::open(root)?);
        Ok(Self { set, thumbnails: Mutex::default(), limits, saving: Mutex::default() })
    }

    fn read<T>(&self, work: impl FnOnce(&CorrectedSet) -> T) -> T {
        work(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn image(&self, id: &str) -> Result<SetImage, Problem> {
        let found = self.read(|set| set.image(id).cloned());
        found.ok_or_else(|| Problem::missing("the gallery has no such image"))
    }

    fn refresh(&self) -> Result<()> {
        self.set.write().unwrap_or_else(PoisonError::into_inner).refresh()
    }

    /// The labels of an image in JSON.
    fn labels(&self, image: &SetImage, labels: &Labels) -> Value {
        let pixels = |value: f32| rounded(f64::from(value), 1e2);
        let classes = self.read(|set| set.classes().to_vec());
        let instances = labels.instances.iter().map(|one| {
            json!({
                "line": one.line,
                "class_id": one.class,
                "label": classes.get(one.class),
                "box": one.bbox.to_xyxy().map(pixels),
                "polygon": one.polygon.as_ref().map(|points| {
                    points.iter().map(|point| point.map(pixels)).collect::<Vec<_>>()
                }),
            })
        });
        json!({
            "id": image.id,
            "name": image.name,
            "width": image.width,
            "height": image.height,
            "version": labels.version,
            "corrected": labels.is_corrected,
            "instances": instances.collect::<Vec<_>>(),
            "added": labels.added,
        })
    }

    fn decode(&self, image: &SetImage, bytes: &[u8]) -> Result<Image> {
        self.limits.check_picture(bytes)?;
        Image::decode(bytes, &image.name)
    }

    fn thumbnail(&self, image: &SetImage) -> Result<Bytes> {
        let lock = || locked(&self.thumbnails);
        let version = self.read(|set| set.file_version(image));
        if let Some((_, known)) = lock().get(&image.id).filter(|(known, _)| *known == version) {
            return Ok(known.clone());
        }
        let whole = self.decode(image, &self.read(|set| set.read_image(image))?)?;
        let side = whole.width().max(whole.height()).min(THUMBNAIL);
        let small = whole.fitted((side, side))?;
        let bytes = Bytes::from(small.view().encoded(ImageFormat::Jpeg, THUMBNAIL_QUALITY)?);
        let mut known = lock();
        if known.len() >= KEPT_THUMBNAILS {
            known.clear();
        }
        known.insert(image.id.clone(), (version, bytes.clone()));
        Ok(bytes)
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

/// The result of `work` on the file of an image, with its type; a client that has it already is told so.
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
