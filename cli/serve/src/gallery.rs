//! `/v1/gallery`: a labelled data set to look at and to correct. Images are named by ids that are no paths.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use image::ImageFormat;
use image::imageops::FilterType;
use ocelli::{BoundingBox, ErrorKind, Image, Mask, Result};
use ocelli_datasets::label::{CorrectedSet, LabelledInstance, Labels, SetImage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::extract::{Arrived, Files, parameter};
use crate::limits::Limits;
use crate::problem::{Problem, json_response};

type Answer = std::result::Result<Response, Problem>;

/// Images of one answer.
const PAGE: usize = 200;
/// The longer side of a thumbnail, in pixels.
const THUMBNAIL: u32 = 256;
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
    pub fn open(root: &FilePath, limits: Limits) -> Result<Self> {
        let set = RwLock::new(CorrectedSet::open(root)?);
        Ok(Self { set, thumbnails: Mutex::default(), limits, saving: Mutex::default() })
    }

    fn read<T>(&self, work: impl FnOnce(&CorrectedSet) -> T) -> T {
        work(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn image(&self, id: &str) -> std::result::Result<SetImage, Problem> {
        let found = self.read(|set| set.image(id).cloned());
        found.ok_or_else(|| Problem::missing("the gallery has no such image"))
    }

    fn refresh(&self) -> Result<()> {
        self.set.write().unwrap_or_else(PoisonError::into_inner).refresh()
    }

    /// The labels of an image in JSON.
    fn labels(&self, image: &SetImage, labels: &Labels) -> Value {
        let classes = self.read(|set| set.classes().to_vec());
        let instances = labels.instances.iter().map(|one| {
            json!({
                "line": one.line,
                "class_id": one.class,
                "label": classes.get(one.class),
                "box": one.bbox.to_xyxy().map(rounded),
                "polygon": one.polygon.as_ref().map(|points| {
                    points.iter().map(|point| point.map(rounded)).collect::<Vec<_>>()
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
        })
    }

    fn decode(&self, image: &SetImage, bytes: &[u8]) -> Result<image::RgbImage> {
        self.limits.check_picture(bytes)?;
        Ok(Image::decode(bytes, &image.name)?.into_rgb_image())
    }

    fn thumbnail(&self, image: &SetImage) -> Result<Bytes> {
        let lock = || self.thumbnails.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.read(|set| set.file_version(image));
        if let Some((_, known)) = lock().get(&image.id).filter(|(known, _)| *known == version) {
            return Ok(known.clone());
        }
        let whole = self.decode(image, &self.read(|set| set.read_image(image))?)?;
        let scale = f64::from(THUMBNAIL) / f64::from(whole.width().max(whole.height()));
        let side = |pixels: u32| ((f64::from(pixels) * scale.min(1.0)).round() as u32).max(1);
        let (width, height) = (side(whole.width()), side(whole.height()));
        let small = image::imageops::resize(&whole, width, height, FilterType::Triangle);
        let mut bytes = Cursor::new(Vec::new());
        small.write_to(&mut bytes, ImageFormat::Jpeg).map_err(not_encoded)?;
        let bytes = Bytes::from(bytes.into_inner());
        let mut known = lock();
        if known.len() >= KEPT_THUMBNAILS {
            known.clear();
        }
        known.insert(image.id.clone(), (version, bytes.clone()));
        Ok(bytes)
    }
}

fn rounded(value: f32) -> f64 {
    (f64::from(value) * 100.0).round() / 100.0
}

pub(crate) fn not_encoded(error: image::ImageError) -> ocelli::Error {
    ocelli::Error::new(ErrorKind::Execution, format!("cannot encode an image: {error}")).with_source(error)
}

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
    instances: Vec<CorrectedInstance>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CorrectedInstance {
    /// The line that it comes from; a new instance has none.
    line: Option<usize>,
    class_id: usize,
    #[serde(rename = "box")]
    bbox: [f32; 4],
    /// Pixels that replace what it has; the box is theirs.
    mask: Option<Mask>,
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
        let instance = |one: &CorrectedInstance| {
            let [x1, y1, x2, y2] = one.bbox;
            let bbox = BoundingBox::new(x1, y1, x2, y2);
            LabelledInstance {
                line: one.line,
                class: one.class_id,
                bbox,
                polygon: None,
                mask: one.mask.clone(),
            }
        };
        let instances: Vec<LabelledInstance> = correction.instances.iter().map(instance).collect();
        let _saving = gallery.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = gallery.read(|set| set.save(&image, &correction.version, &instances));
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
                let mut png = Cursor::new(Vec::new());
                gallery.decode(image, &bytes)?.write_to(&mut png, ImageFormat::Png).map_err(not_encoded)?;
                return Ok(("image/png", png.into_inner().into()));
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
