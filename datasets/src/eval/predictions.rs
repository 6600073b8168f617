//! What a detector answered, as COCO's result files have it.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use hotcoco::mask::RleRef;
use hotcoco::types::{Annotation, Segmentation};
use ocelli_tracking::BoundingBox;
use serde::Serialize;

use super::Truth;
use ocelli::Detection;
use ocelli::Mask;
use ocelli::atomic_file::write_atomically;
use ocelli::{Error, ErrorKind, Result};

/// Detections in many pictures.
#[derive(Clone, Debug, Default)]
pub struct Predictions(pub(super) Vec<Annotation>);

/// One entry of a results file.
#[derive(Serialize)]
struct Record<'a> {
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    segmentation: Option<&'a Segmentation>,
}

impl Predictions {
    /// Adds a detection.
    pub fn push(
        &mut self,
        picture_id: u64,
        category_id: u64,
        bbox: BoundingBox,
        score: f32,
        mask: Option<&Mask>,
    ) {
        self.0.push(Annotation {
            image_id: picture_id,
            category_id,
            bbox: Some(bbox.to_ltwh().map(shortest)),
            score: Some(shortest(score)),
            segmentation: mask.map(|mask| Segmentation::CompressedRle {
                size: [mask.height(), mask.width()],
                counts: mask.counts().to_owned(),
            }),
            ..Annotation::default()
        });
    }

    /// Adds what was found in a picture; `category_ids` has the category of each class.
    pub fn push_detections(&mut self, picture_id: u64, detections: &[Detection], category_ids: &[u64]) {
        for one in detections {
            self.push(picture_id, category_ids[one.class_id], one.bbox, one.score, one.mask.as_ref());
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every detection says which pixels it covers.
    pub fn have_masks(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|one| one.segmentation.is_some())
    }

    /// Without what does not belong to these pictures.
    #[must_use]
    pub fn of_pictures(mut self, picture_ids: &[u64]) -> Self {
        let wanted: HashSet<u64> = picture_ids.iter().copied().collect();
        self.0.retain(|one| wanted.contains(&one.image_id));
        self
    }

    /// Without what does not belong to these categories.
    #[must_use]
    pub fn of_categories(mut self, category_ids: &[u64]) -> Self {
        self.0.retain(|one| category_ids.contains(&one.category_id));
        self
    }

    /// Reads a COCO results file: a list of `{"image_id", "category_id", "bbox": [x, y, w, h], "score"}`, where
    /// `segmentation` may stand beside the box or in its place.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the file cannot be read; [`ErrorKind::InvalidData`], naming the file and the entry,
    /// where it is not JSON of this form; [`ErrorKind::Mismatch`] where it speaks of a picture or a category that
    /// `truth` does not have.
    pub fn open(path: &Path, truth: &Truth) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read the predictions", path, e))?;
        let refuse =
            |kind, why: String| Error::new(kind, format!("no COCO results, {}: {why}", path.display()));
        let list: Vec<Annotation> = serde_json::from_slice(&bytes)
            .map_err(|e| refuse(ErrorKind::InvalidData, e.to_string()).with_source(e))?;
        let pictures: HashSet<u64> = truth.pictures().iter().map(|picture| picture.id).collect();
        let categories: HashSet<u64> = truth.categories().iter().map(|category| category.id).collect();
        for (place, one) in list.iter().enumerate() {
            let wrong = |kind, why: String| Err(refuse(kind, format!("entry {}: {why}", place + 1)));
            if one.score.is_none_or(|score| !score.is_finite()) {
                return wrong(ErrorKind::InvalidData, "it has no score".into());
            }
            if one.bbox.is_none() && one.segmentation.is_none() {
                return wrong(ErrorKind::InvalidData, "it has neither bbox nor segmentation".into());
            }
            let area = one.segmentation.as_ref().and_then(Segmentation::rle_ref).map(RleRef::area);
            if let Some(Err(e)) = area {
                return wrong(ErrorKind::InvalidData, format!("segmentation: {e}"));
            }
            if !pictures.contains(&one.image_id) {
                let why = format!("the annotations have no picture {}", one.image_id);
                return wrong(ErrorKind::Mismatch, why);
            }
            if !categories.contains(&one.category_id) {
                let why = format!("the annotations have no category {}", one.category_id);
                return wrong(ErrorKind::Mismatch, why);
            }
        }
        Ok(Self(list))
    }

    /// Writes a COCO results file, which [`open`](Self::open) and pycocotools read. It appears whole or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomically(path, |file| {
            let mut separator = "[\n";
            for one in &self.0 {
                file.write_all(separator.as_bytes())?;
                separator = ",\n";
                let record = Record {
                    image_id: one.image_id,
                    category_id: one.category_id,
                    bbox: one.bbox.unwrap_or_default(),
                    score: one.score.unwrap_or_default(),
                    segmentation: one.segmentation.as_ref(),
                };
                serde_json::to_writer(&mut *file, &record)?;
            }
            file.write_all(if self.0.is_empty() { b"[]\n" } else { b"\n]\n" })
        })
    }
}

/// The number with no more digits than tell it from its neighbours, so that a file that was written and read again
/// has the very same numbers.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
