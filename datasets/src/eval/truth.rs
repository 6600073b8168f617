//! Ground truth: the annotated instances of images.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hotcoco::COCO;
use hotcoco::types::{Annotation, Category, Dataset, Image as CocoImage, Segmentation};
use ocelli_tracking::BoundingBox;
use sha2::{Digest, Sha256};

use super::entries::repeated;
use super::{annotations, labelled};
use ocelli::{Error, ErrorKind, Mask, Result};

/// One annotated instance in an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The id of its category.
    pub category_id: u64,
    /// The box, in pixels of the image.
    pub bbox: BoundingBox,
    /// It stands for a group of instances that are not annotated one by one (`iscrowd`).
    pub is_crowd: bool,
    /// The mask, if it is annotated.
    pub mask: Option<Mask>,
}

/// Images and their instances, as in COCO's annotation files.
#[derive(Clone)]
pub struct Truth {
    pub(super) coco: Arc<COCO>,
    folder: Option<PathBuf>,
    notes: Vec<String>,
    /// The first annotation whose segmentation cannot be read.
    pub(super) unreadable: Option<String>,
}

impl Truth {
    /// Reads a COCO file, whose images are in `folder`.
    pub(super) fn of_coco(path: &Path, folder: Option<PathBuf>) -> Result<Self> {
        let refuse = |why: String| annotations::invalid(path, &why);
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read the annotations", path, e))?;
        let (mut dataset, unreadable) =
            annotations::parse_file(&bytes, path)?.into_dataset().map_err(refuse)?;
        let notes = labelled::correct(&mut dataset, path)?.into_iter().collect();
        Ok(Self { folder, notes, unreadable, ..Self::from_dataset(dataset).map_err(refuse)? })
    }

    /// Labels at `path` that are no COCO file: `folder` is what the names of the images are relative to, `note` what was read.
    pub(super) fn of_labels(path: &Path, mut dataset: Dataset, folder: &Path, note: String) -> Result<Self> {
        annotations::number_annotations(&mut dataset);
        let truth = Self::from_dataset(dataset)
            .map_err(|why| labelled::unreadable(ErrorKind::InvalidData, path, why))?;
        Ok(Self { folder: Some(folder.to_owned()), notes: vec![note], ..truth })
    }

    fn from_dataset(dataset: Dataset) -> Result<Self, String> {
        check(&dataset)?;
        let coco = Arc::new(COCO::from_dataset(dataset));
        Ok(Self { coco, folder: None, notes: Vec::new(), unreadable: None })
    }

    /// The folder that the names of the images are relative to, if the annotations say where the images are.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Notes for a person on where the labels are from.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A hash of the images with these ids and their names, and with `instances` of all annotations.
    pub fn hash(&self, image_ids: &[u64], instances: bool) -> String {
        let mut hash = Sha256::new();
        for image in image_ids.iter().filter_map(|id| self.coco.get_img(*id)) {
            hash.update(format!("{} {:?}\n", image.id, image.file_name));
        }
        for annotation in self.coco.dataset.annotations.iter().filter(|_| instances) {
            hash.update(serde_json::to_vec(annotation).expect("an annotation is plain data"));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// `true` if a category has no name, and is named after its id.
    pub fn is_unnamed(&self, category: &Category) -> bool {
        category.name == COCO::placeholder_cat_name(category.id)
    }

    /// The same images with the instances of some categories only.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if none of the categories exists.
    pub fn of_categories(&self, category_ids: &[u64]) -> Result<Self> {
        let mut dataset = self.coco.dataset.clone();
        dataset.categories.retain(|category| category_ids.contains(&category.id));
        dataset.annotations.retain(|annotation| category_ids.contains(&annotation.category_id));
        let truth = Self::from_dataset(dataset)
            .map_err(|why| Error::invalid_argument(format!("categories {category_ids:?}: {why}")))?;
        Ok(Self { coco: truth.coco, ..self.clone() })
    }

    /// The images, in the order of the annotations. A width and a height of 0 are unknown.
    pub fn images(&self) -> &[CocoImage] {
        &self.coco.dataset.images
    }

    /// The ids of all images.
    pub fn image_ids(&self) -> Vec<u64> {
        self.images().iter().map(|image| image.id).collect()
    }

    /// The categories, in the order of the annotations.
    pub fn categories(&self) -> &[Category] {
        &self.coco.dataset.categories
    }

    /// Number of instances in these images, without crowds.
    pub fn count_instances(&self, image_ids: &[u64]) -> usize {
        let count = |id: &u64| self.annotations(*id).filter(|annotation| !annotation.iscrowd).count();
        image_ids.iter().map(count).sum()
    }

    /// The annotations of an image, without decoding masks.
    pub(super) fn annotations(&self, image_id: u64) -> impl Iterator<Item = &Annotation> {
        let ids = self.coco.get_ann_ids_for_img(image_id);
        ids.iter().filter_map(|&id| self.coco.get_ann(id))
    }

    /// The instances of an image, in the order of the annotations. Polygons become masks.
    pub fn instances(&self, image_id: u64) -> Vec<Instance> {
        self.annotations(image_id).map(|annotation| self.instance(annotation)).collect()
    }

    fn instance(&self, annotation: &Annotation) -> Instance {
        let mask = annotation.segmentation.as_ref().and_then(|_| self.coco.ann_to_rle(annotation));
        let mask = mask.and_then(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h).ok());
        let bbox = bbox_of(annotation, mask.as_ref()).unwrap_or(BoundingBox::new(0.0, 0.0, 0.0, 0.0));
        Instance { category_id: annotation.category_id, bbox, is_crowd: annotation.iscrowd, mask }
    }
}

impl std::fmt::Debug for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (images, categories) = (self.images().len(), self.categories().len());
        write!(f, "Truth({images} images, {categories} categories)")
    }
}

/// The box of an annotation, or else that of its mask.
pub(super) fn bbox_of(one: &Annotation, mask: Option<&Mask>) -> Option<BoundingBox> {
    let annotated = one.bbox.map(|ltwh| BoundingBox::from_ltwh(ltwh.map(|value| value as f32)));
    annotated.or_else(|| mask.and_then(Mask::bounding_box))
}

/// Checks for errors that would make the figures wrong, or make hotcoco write to stderr.
fn check(dataset: &Dataset) -> Result<(), String> {
    let ids = [
        ("images", dataset.images.iter().map(|image| image.id).collect::<Vec<_>>()),
        ("categories", dataset.categories.iter().map(|category| category.id).collect()),
        ("annotations", dataset.annotations.iter().map(|annotation| annotation.id).collect()),
    ];
    for (what, ids) in ids {
        if ids.is_empty() && what != "annotations" {
            return Err(format!("it has no \"{what}\""));
        }
        if let Some(id) = repeated(ids) {
            return Err(format!("two {what} have the id {id}"));
        }
    }
    if let Some(category) = dataset.categories.iter().find(|category| category.name.trim().is_empty()) {
        return Err(format!("category {} has no name", category.id));
    }
    let images: HashMap<u64, &CocoImage> = dataset.images.iter().map(|image| (image.id, image)).collect();
    let categories: HashSet<u64> = dataset.categories.iter().map(|category| category.id).collect();
    for annotation in &dataset.annotations {
        let wrong = |why: String| Err(format!("annotation {}: {why}", annotation.id));
        let Some(image) = images.get(&annotation.image_id) else {
            return wrong(format!("no image has the id {}", annotation.image_id));
        };
        if !categories.contains(&annotation.category_id) {
            return wrong(format!("no category has the id {}", annotation.category_id));
        }
        if annotation.bbox.is_none() && annotation.segmentation.is_none() {
            return wrong("it has neither bbox nor segmentation".into());
        }
        if let Some(segmentation) = &annotation.segmentation {
            check_segmentation(segmentation, image).or_else(wrong)?;
        }
    }
    Ok(())
}

fn check_segmentation(segmentation: &Segmentation, image: &CocoImage) -> Result<(), String> {
    let Some(rle) = segmentation.rle_ref() else { return Ok(()) };
    let rle = rle.to_rle().map_err(|e| format!("segmentation: {e}"))?;
    let unknown = image.width == 0 || image.height == 0;
    if unknown || (rle.w, rle.h) == (image.width, image.height) {
        return Ok(());
    }
    Err(format!("its mask is {}×{}, but the image is {}×{}", rle.w, rle.h, image.width, image.height))
}

/// Builds a [`Truth`] image by image.
#[derive(Clone, Debug, Default)]
pub struct TruthBuilder(Dataset);

impl TruthBuilder {
    /// Starts without images. The categories get the ids 1, 2, 3 and so on.
    pub fn new(categories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let categories =
            (1..).zip(categories).map(|(id, name)| labelled::category(id, name.into())).collect();
        Self(Dataset { categories, ..Dataset::default() })
    }

    /// Adds an image of `width` × `height` pixels and returns its id.
    pub fn add_image(&mut self, file_name: impl Into<String>, width: u32, height: u32) -> u64 {
        let id = self.0.images.len() as u64 + 1;
        self.0.images.push(labelled::image(id, file_name.into(), (width, height)));
        id
    }

    /// Adds an instance to an image. `class` is the index of its category, from 0. Its area, which decides whether it is
    /// small, medium or large, is that of the mask, or of the box if there is no mask.
    pub fn add_instance(&mut self, image_id: u64, class: usize, bbox: BoundingBox, mask: Option<Mask>) {
        let area = mask.as_ref().map_or_else(|| f64::from(bbox.area()), |mask| mask.area() as f64);

        self.0.annotations.push(Annotation {
            id: self.0.annotations.len() as u64 + 1,
            image_id,
            category_id: class as u64 + 1,
            bbox: Some(bbox.to_ltwh().map(f64::from)),
            area: Some(area),
            segmentation: mask.as_ref().map(annotations::run_lengths),
            ..Annotation::default()
        });
    }

    /// Checks and returns the ground truth.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if there is no image or no category, a class does not exist, or a mask has another size
    /// than its image.
    pub fn build(self) -> Result<Truth> {
        Truth::from_dataset(self.0).map_err(|why| Error::invalid_data(format!("ground truth: {why}")))
    }
}
