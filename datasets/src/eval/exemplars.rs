//! How well the masks of things are that were boxed by hand.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Thing;
use ocelli::Detection;
use ocelli::Result;
use ocelli::{Prompt, Prompts};

/// Mean mask IoU over things whose boxes were given to the detector as examples, one thing at a time and without its
/// name.
///
/// Of what is found by a box, the detection whose own box overlaps it most is taken for the thing; where nothing is
/// found, or nothing that overlaps it, the IoU is 0. Crowds and things without a mask are left out.
///
/// So DART measures masks on COCO (as EfficientSAM3 before it), with one difference: there the box goes to SAM's
/// interactive head, which is trained to return the boxed thing alone and which the detector's graphs do not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExemplarMasks {
    /// The mean over all things, 0 to 1; `None` where there is none.
    pub mask_iou: Option<f64>,
    /// How many things.
    pub things: usize,
    /// For how many of them nothing was found.
    pub without_mask: usize,
    /// The mean over the things of each category, by its id.
    pub per_class: BTreeMap<u64, f64>,
    #[serde(skip)]
    sums: BTreeMap<u64, (f64, usize)>,
}

impl ExemplarMasks {
    /// The things of a picture that can be asked for by their boxes: not crowds, with a mask, with a box inside the
    /// picture of `width` × `height` pixels.
    pub fn askable(things: Vec<Thing>, width: u32, height: u32) -> Vec<Thing> {
        let inside = |thing: &Thing| thing.bbox.clip_to(width as f32, height as f32).has_area();
        things.into_iter().filter(|thing| !thing.is_crowd && thing.mask.is_some() && inside(thing)).collect()
    }

    /// A class for each thing, known by its box alone.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) where there is no thing.
    pub fn prompts(things: &[Thing]) -> Result<Prompts> {
        Prompts::new(things.iter().map(|thing| Prompt::visual("boxed").with_exemplar(thing.bbox, true)))
    }

    /// Adds a picture: its things, and what was found by [`prompts`](Self::prompts) of them, with masks.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli::ErrorKind::Mismatch) where a mask is not as large as what was marked.
    pub fn add(&mut self, things: &[Thing], found: &[Detection]) -> Result<()> {
        for (class, thing) in things.iter().enumerate() {
            let overlap = |one: &&Detection| one.bbox.iou(&thing.bbox);
            let own = found.iter().filter(|one| one.class_id == class && overlap(one) > 0.0);
            let nearest = own.max_by(|a, b| overlap(a).total_cmp(&overlap(b)));
            let iou = match (nearest.and_then(|one| one.mask.as_ref()), &thing.mask) {
                (Some(ours), Some(theirs)) => ours.iou(theirs)?,
                _ => {
                    self.without_mask += 1;
                    0.0
                }
            };
            let sum = self.sums.entry(thing.category_id).or_default();
            *sum = (sum.0 + iou, sum.1 + 1);
        }
        self.things += things.len();
        let total: f64 = self.sums.values().map(|(sum, _)| sum).sum();
        self.mask_iou = (self.things > 0).then(|| total / self.things as f64);
        self.per_class = self.sums.iter().map(|(&id, (sum, count))| (id, sum / *count as f64)).collect();
        Ok(())
    }
}
