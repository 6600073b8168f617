//! Mask IoU of instances whose annotated boxes are given.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Instance;
use ocelli::{Detection, Mask, ObjectPrompt, Prompt, Prompts, Result};

/// Mean mask IoU over instances whose annotated boxes are given to the detector as exemplars, each as a separate class
/// without a text prompt.
///
/// Of the detections of a class, the one whose box overlaps the exemplar most counts. If none overlaps it, the IoU is 0.
/// Crowds and instances without a mask are left out.
///
/// DART measures masks on COCO this way (as EfficientSAM3 does), with one difference: it gives the box to SAM's interactive
/// head, which is trained to return the boxed instance only. [`objects`](Self::objects) and [`ious_of_masks`](Self::ious_of_masks) are
/// for that head, which is part of a model's tracker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExemplarMasks {
    /// The mean over all instances, 0 to 1; `None` if there are no instances.
    pub mask_iou: Option<f64>,
    /// Number of instances.
    pub instances: usize,
    /// Number of instances without a detection, or with an empty mask.
    pub without_mask: usize,
    /// The mean over the instances of each category, by its id.
    pub per_class: BTreeMap<u64, f64>,
    #[serde(skip)]
    sums: BTreeMap<u64, (f64, usize)>,
}

impl ExemplarMasks {
    /// The instances that can be exemplars: not crowds, with a mask, and with a box that overlaps the image of `width` ×
    /// `height` pixels.
    pub fn eligible(instances: Vec<Instance>, width: u32, height: u32) -> Vec<Instance> {
        let inside = |instance: &Instance| instance.bbox.clip_to(width as f32, height as f32).has_area();
        instances
            .into_iter()
            .filter(|instance| !instance.is_crowd && instance.mask.is_some() && inside(instance))
            .collect()
    }

    /// One class for each instance, with its box as the only exemplar.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if `instances` is empty.
    pub fn prompts(instances: &[Instance]) -> Result<Prompts> {
        Prompts::new(
            instances.iter().map(|instance| Prompt::visual("boxed").with_exemplar(instance.bbox, true)),
        )
    }

    /// The mask IoU of each instance in an image, with the id of its category, from the detections for the
    /// [`prompts`](Self::prompts); `None` without a mask.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli::ErrorKind::Mismatch) if the masks have different sizes.
    pub fn ious(instances: &[Instance], found: &[Detection]) -> Result<Vec<(u64, Option<f64>)>> {
        let masks = instances.iter().enumerate().map(|(class, instance)| {
            let overlap = |detection: &&Detection| detection.bbox.iou(&instance.bbox);
            let own = found.iter().filter(|one| one.class_id == class && overlap(one) > 0.0);
            own.max_by(|a, b| overlap(a).total_cmp(&overlap(b))).and_then(|one| one.mask.as_ref())
        });
        compared(instances, masks)
    }

    /// An object for each instance, shown by its box.
    pub fn objects(instances: &[Instance]) -> Vec<ObjectPrompt> {
        instances.iter().map(|instance| ObjectPrompt::new("boxed").with_box(instance.bbox)).collect()
    }

    /// The same for the masks of their [`objects`](Self::objects).
    ///
    /// # Errors
    /// [`Mismatch`](ocelli::ErrorKind::Mismatch) if the masks have different sizes.
    pub fn ious_of_masks<'m>(
        instances: &[Instance],
        masks: impl IntoIterator<Item = &'m Mask>,
    ) -> Result<Vec<(u64, Option<f64>)>> {
        compared(instances, masks.into_iter().map(|mask| Some(mask).filter(|mask| mask.area() > 0)))
    }

    /// Adds an image by the [`ious`](Self::ious) of its instances.
    pub fn record(&mut self, ious: &[(u64, Option<f64>)]) {
        for (category, iou) in ious {
            self.without_mask += usize::from(iou.is_none());
            let sum = self.sums.entry(*category).or_default();
            *sum = (sum.0 + iou.unwrap_or(0.0), sum.1 + 1);
        }
        self.instances += ious.len();
        let total: f64 = self.sums.values().map(|(sum, _)| sum).sum();
        self.mask_iou = (self.instances > 0).then(|| total / self.instances as f64);
        self.per_class = self.sums.iter().map(|(&id, (sum, count))| (id, sum / *count as f64)).collect();
    }
}

fn compared<'m>(
    instances: &[Instance],
    masks: impl Iterator<Item = Option<&'m Mask>>,
) -> Result<Vec<(u64, Option<f64>)>> {
    let iou = |(instance, mask): (&Instance, Option<&'m Mask>)| {
        let iou = mask.zip(instance.mask.as_ref()).map(|(ours, theirs)| ours.iou(theirs)).transpose()?;
        Ok((instance.category_id, iou))
    };
    instances.iter().zip(masks).map(iou).collect()
}
