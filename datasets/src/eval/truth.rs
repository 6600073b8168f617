//! What people marked in pictures.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use hotcoco::COCO;
use hotcoco::types::{Annotation, Category as CocoCategory, Dataset, Image as CocoImage, Segmentation};
use ocelli_tracking::BoundingBox;

use ocelli::Mask;
use ocelli::{Error, ErrorKind, Result};

/// A picture of a [`Truth`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The file's number.
    pub id: u64,
    /// The name as the file has it, relative to the folder of the pictures.
    pub file_name: String,
    /// Width and height in pixels; 0 where the file does not say.
    pub size: (u32, u32),
}

/// A category of a [`Truth`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Category {
    /// The file's number.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// One thing in a picture, as it was marked.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// Which category.
    pub category_id: u64,
    /// In pixels of the picture.
    pub bbox: BoundingBox,
    /// Whether it stands for many things that nobody marked one by one.
    pub is_crowd: bool,
    /// Which pixels, where they were marked.
    pub mask: Option<Mask>,
}

/// Pictures and the things in them, as COCO's annotation files have them.
#[derive(Clone)]
pub struct Truth {
    pub(super) coco: Arc<COCO>,
    pictures: Vec<Picture>,
    categories: Vec<Category>,
}

impl Truth {
    /// Reads COCO annotations.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the file cannot be read; [`ErrorKind::InvalidData`], naming the file and the entry,
    /// where it is not JSON of this form, holds no picture or no category, or names a picture or a category that it
    /// does not have.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read the annotations", path, e))?;
        let refuse = |why: String| {
            Error::new(ErrorKind::InvalidData, format!("no COCO annotations, {}: {why}", path.display()))
        };
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(refuse("it is a list; a file of predictions is named with --predictions".into()));
        }
        let dataset = serde_json::from_slice(&bytes).map_err(|e| refuse(e.to_string()).with_source(e))?;
        Self::from_dataset(dataset).map_err(refuse)
    }

    fn from_dataset(dataset: Dataset) -> Result<Self, String> {
        check(&dataset)?;
        let pictures = dataset.images.iter().map(|image| Picture {
            id: image.id,
            file_name: image.file_name.clone(),
            size: (image.width, image.height),
        });
        let categories = dataset.categories.iter().map(|c| Category { id: c.id, name: c.name.clone() });
        let (pictures, categories) = (pictures.collect(), categories.collect());
        Ok(Self { coco: Arc::new(COCO::from_dataset(dataset)), pictures, categories })
    }

    /// The same pictures, and of the things those of some categories.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where there is no such category.
    pub fn of_categories(&self, category_ids: &[u64]) -> Result<Self> {
        let mut dataset = self.coco.dataset.clone();
        dataset.categories.retain(|category| category_ids.contains(&category.id));
        dataset.annotations.retain(|annotation| category_ids.contains(&annotation.category_id));
        Self::from_dataset(dataset).map_err(|why| {
            Error::new(ErrorKind::InvalidArgument, format!("categories {category_ids:?}: {why}"))
        })
    }

    /// The pictures in the file's order.
    pub fn pictures(&self) -> &[Picture] {
        &self.pictures
    }

    /// The ids of all pictures.
    pub fn picture_ids(&self) -> Vec<u64> {
        self.pictures.iter().map(|picture| picture.id).collect()
    }

    /// The categories in the file's order.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }

    /// The name of a category; empty where there is none of this id.
    pub fn category_name(&self, category_id: u64) -> &str {
        self.categories.iter().find(|c| c.id == category_id).map_or("", |c| c.name.as_str())
    }

    /// How many things are marked in these pictures, crowds left out.
    pub fn count_things(&self, picture_ids: &[u64]) -> usize {
        let marked = |id: &u64| self.annotations(*id).filter(|annotation| !annotation.iscrowd).count();
        picture_ids.iter().map(marked).sum()
    }

    /// The same picture by picture with their things, without decoding a mask.
    pub(super) fn annotations(&self, picture_id: u64) -> impl Iterator<Item = &Annotation> {
        let ids = self.coco.get_ann_ids_for_img(picture_id);
        ids.iter().filter_map(|&id| self.coco.get_ann(id))
    }

    /// What is marked in a picture, in the file's order; polygons become masks.
    pub fn things(&self, picture_id: u64) -> Vec<Thing> {
        self.annotations(picture_id).map(|annotation| self.thing(annotation)).collect()
    }

    fn thing(&self, annotation: &Annotation) -> Thing {
        let mask = annotation.segmentation.as_ref().and_then(|_| self.coco.ann_to_rle(annotation));
        let mask = mask.and_then(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h).ok());
        let from_mask = || mask.as_ref().and_then(Mask::bounding_box);
        let marked = annotation.bbox.map(|ltwh| BoundingBox::from_ltwh(ltwh.map(|value| value as f32)));
        let bbox = marked.or_else(from_mask).unwrap_or(BoundingBox::new(0.0, 0.0, 0.0, 0.0));
        Thing { category_id: annotation.category_id, bbox, is_crowd: annotation.iscrowd, mask }
    }
}

impl std::fmt::Debug for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pictures, categories) = (self.pictures.len(), self.categories.len());
        write!(f, "Truth({pictures} pictures, {categories} categories)")
    }
}

/// What would make the figures wrong, or the evaluation say things on stderr of its own accord.
fn check(dataset: &Dataset) -> Result<(), String> {
    if dataset.images.is_empty() {
        return Err("it has no \"images\"".into());
    }
    if dataset.categories.is_empty() {
        return Err("it has no \"categories\"".into());
    }
    if let Some(id) = repeated(dataset.images.iter().map(|image| image.id)) {
        return Err(format!("two pictures have the id {id}"));
    }
    if let Some(id) = repeated(dataset.categories.iter().map(|category| category.id)) {
        return Err(format!("two categories have the id {id}"));
    }
    if let Some(id) = repeated(dataset.annotations.iter().map(|annotation| annotation.id)) {
        return Err(format!("two annotations have the id {id}"));
    }
    if let Some(category) = dataset.categories.iter().find(|category| category.name.trim().is_empty()) {
        return Err(format!("category {} has no name", category.id));
    }
    let images: HashMap<u64, &CocoImage> = dataset.images.iter().map(|image| (image.id, image)).collect();
    let categories: HashSet<u64> = dataset.categories.iter().map(|category| category.id).collect();
    for annotation in &dataset.annotations {
        let wrong = |why: String| Err(format!("annotation {}: {why}", annotation.id));
        let Some(image) = images.get(&annotation.image_id) else {
            return wrong(format!("there is no picture {}", annotation.image_id));
        };
        if !categories.contains(&annotation.category_id) {
            return wrong(format!("there is no category {}", annotation.category_id));
        }
        if annotation.bbox.is_none() && annotation.segmentation.is_none() {
            return wrong("it has neither bbox nor segmentation".into());
        }
        if let Some(segmentation) = &annotation.segmentation
            && let Err(why) = check_segmentation(segmentation, image)
        {
            return wrong(why);
        }
    }
    Ok(())
}

fn repeated(mut ids: impl Iterator<Item = u64>) -> Option<u64> {
    let mut seen = HashSet::new();
    ids.find(|id| !seen.insert(*id))
}

fn check_segmentation(segmentation: &Segmentation, image: &CocoImage) -> Result<(), String> {
    let Some(rle) = segmentation.rle_ref() else { return Ok(()) };
    let rle = rle.to_rle().map_err(|e| format!("segmentation: {e}"))?;
    let unknown = image.width == 0 || image.height == 0;
    if unknown || (rle.w, rle.h) == (image.width, image.height) {
        return Ok(());
    }
    Err(format!("its mask is {}×{}, the picture {}×{}", rle.w, rle.h, image.width, image.height))
}

/// Collects a [`Truth`] picture by picture.
#[derive(Clone, Debug, Default)]
pub struct TruthBuilder(Dataset);

impl TruthBuilder {
    /// No pictures yet; the categories get the ids 1, 2, 3 and so on.
    pub fn new(categories: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let named = |(place, name): (usize, String)| CocoCategory {
            id: place as u64 + 1,
            name,
            ..CocoCategory::default()
        };
        let categories = categories.into_iter().map(Into::into).enumerate().map(named).collect();
        Self(Dataset { categories, ..Dataset::default() })
    }

    /// Adds a picture of `width` × `height` pixels and returns its id.
    pub fn add_picture(&mut self, file_name: impl Into<String>, width: u32, height: u32) -> u64 {
        let id = self.0.images.len() as u64 + 1;
        let file_name = file_name.into();
        self.0.images.push(CocoImage { id, file_name, width, height, ..CocoImage::default() });
        id
    }

    /// Adds a thing to a picture; `class` is its category's place in the list, from 0. Its area, by which it counts as
    /// small or large, is the mask's, else the box's.
    pub fn add_thing(&mut self, picture_id: u64, class: usize, bbox: BoundingBox, mask: Option<Mask>) {
        let area = mask.as_ref().map_or_else(|| f64::from(bbox.area()), |mask| mask.area() as f64);
        let segmentation = mask.map(|mask| Segmentation::CompressedRle {
            size: [mask.height(), mask.width()],
            counts: mask.counts().to_owned(),
        });
        self.0.annotations.push(Annotation {
            id: self.0.annotations.len() as u64 + 1,
            image_id: picture_id,
            category_id: class as u64 + 1,
            bbox: Some(bbox.to_ltwh().map(f64::from)),
            area: Some(area),
            segmentation,
            ..Annotation::default()
        });
    }

    /// The truth.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] where there is no picture or no category, a class does not exist, or a mask is not
    /// as large as its picture.
    pub fn build(self) -> Result<Truth> {
        Truth::from_dataset(self.0)
            .map_err(|why| Error::new(ErrorKind::InvalidData, format!("what is to be found: {why}")))
    }
}
