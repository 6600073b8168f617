//! A labelled data set to look at and to correct. Images are named by ids that are no paths.

pub(crate) mod routes;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};

use axum::body::Bytes;
use image::ImageFormat;
use ocelli::report::rounded;
use ocelli::{Image, Result, locked};
use ocelli_datasets::label::{CorrectedSet, Labels, SetImage};
use serde_json::{Value, json};

use crate::http::limits::Limits;
use crate::http::problem::Problem;

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
        self.limits.check_image(bytes)?;
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
