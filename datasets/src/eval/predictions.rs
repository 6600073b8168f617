//! The detections of a detector, as in COCO's results files.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use hotcoco::mask::RleRef;
use hotcoco::types::{Annotation, Segmentation};
use ocelli_tracking::BoundingBox;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::Truth;
use super::annotations::{Entry, parse, run_lengths};
use ocelli::{Detection, Error, ErrorKind, Mask, Result, atomic_file::write_atomically};

/// The detections in many images. They are serialized as COCO's results.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Predictions(pub(super) Vec<Annotation>);

/// One entry of a results file.
fn entry(one: &Annotation) -> Value {
    let (bbox, score) = (one.bbox.unwrap_or_default(), one.score.unwrap_or_default());
    let mut entry = json!({
        "image_id": one.image_id, "category_id": one.category_id, "bbox": bbox, "score": score,
    });
    if let Some(segmentation) = &one.segmentation {
        entry["segmentation"] = json!(segmentation);
    }
    entry
}

impl Serialize for Predictions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(entry))
    }
}

impl Predictions {
    /// Adds those of other images.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// The ids of the images that have any.
    pub fn image_ids(&self) -> HashSet<u64> {
        self.0.iter().map(|one| one.image_id).collect()
    }

    /// Adds a detection.
    pub fn push(
        &mut self,
        image_id: u64,
        category_id: u64,
        bbox: BoundingBox,
        score: f32,
        mask: Option<&Mask>,
    ) {
        self.0.push(Annotation {
            image_id,
            category_id,
            bbox: Some(bbox.to_ltwh().map(shortest)),
            score: Some(shortest(score)),
            segmentation: mask.map(run_lengths),
            ..Annotation::default()
        });
    }

    /// Adds the detections of an image. `category_ids` has the id of the category of each class.
    pub fn push_detections(&mut self, image_id: u64, detections: &[Detection], category_ids: &[u64]) {
        for one in detections {
            self.push(image_id, category_ids[one.class_id], one.bbox, one.score, one.mask.as_ref());
        }
    }

    /// Number of detections.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `true` if there are no detections.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the detections in these images.
    #[must_use]
    pub fn of_images(mut self, image_ids: &[u64]) -> Self {
        let wanted: HashSet<u64> = image_ids.iter().copied().collect();
        self.0.retain(|one| wanted.contains(&one.image_id));
        self
    }

    /// Keeps the detections of these categories.
    #[must_use]
    pub fn of_categories(mut self, category_ids: &[u64]) -> Self {
        let wanted: HashSet<u64> = category_ids.iter().copied().collect();
        self.0.retain(|one| wanted.contains(&one.category_id));
        self
    }

    /// Reads a COCO results file: a list of `{"image_id", "category_id", "bbox": [x, y, w, h], "score"}`, with
    /// `segmentation` in addition to the box or instead of it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::InvalidData`], with the file and the entry, if it is not
    /// COCO results; [`ErrorKind::Mismatch`] if it refers to an image or a category that `truth` does not have.
    pub fn open(path: &Path, truth: &Truth) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read the predictions", path, e))?;
        let refuse =
            |kind, why: String| Error::new(kind, format!("invalid COCO results, {}: {why}", path.display()));
        let entries: Vec<Entry> =
            parse(&bytes).map_err(|e| refuse(ErrorKind::InvalidData, e.to_string()).with_source(e))?;
        let images: HashSet<u64> = truth.images().iter().map(|image| image.id).collect();
        let categories: HashSet<u64> = truth.categories().iter().map(|category| category.id).collect();
        let mut list = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let wrong = |kind, why: String| refuse(kind, format!("entry {}: {why}", index + 1));
            let invalid = |why: String| wrong(ErrorKind::InvalidData, why);
            let unknown =
                |what: &str, id| wrong(ErrorKind::Mismatch, format!("the annotations have no {what} {id}"));
            let (one, _) = entry.into_annotation().map_err(invalid)?;
            if one.score.is_none_or(|score| !score.is_finite()) {
                return Err(invalid("it has no score".into()));
            }
            if one.bbox.is_none() && one.segmentation.is_none() {
                return Err(invalid("it has neither bbox nor segmentation".into()));
            }
            let area = one.segmentation.as_ref().and_then(Segmentation::rle_ref).map(RleRef::area);
            area.transpose().map_err(|e| invalid(format!("segmentation: {e}")))?;
            if !images.contains(&one.image_id) {
                return Err(unknown("image", one.image_id));
            }
            if !categories.contains(&one.category_id) {
                return Err(unknown("category", one.category_id));
            }
            list.push(one);
        }
        Ok(Self(list))
    }

    /// Writes a COCO results file atomically. [`open`](Self::open) and pycocotools read it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomically(path, |file| {
            let mut separator = "[\n";
            for one in &self.0 {
                file.write_all(separator.as_bytes())?;
                separator = ",\n";
                serde_json::to_writer(&mut *file, &entry(one))?;
            }
            file.write_all(if self.0.is_empty() { b"[]\n" } else { b"\n]\n" })
        })
    }
}

/// The number with the fewest digits that identify the `f32`, so that numbers do not change when a file is written and read
/// again.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
