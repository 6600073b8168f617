//! Clicks on an image to masks: SAM's promptable segmentation, in the graphs of a model's tracker.

use std::collections::BTreeMap;
use std::sync::Arc;

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{file, tensor};
use ocelli_tracking::masklets::LogitMask;

use super::features::{ClickFeatures, ImageFeatures};
use crate::detection::Detection;
use crate::engine::EngineFactory;
use crate::mask::{Mask, MaskResampler};
use crate::model::Model;
use crate::prompt::{EncodedObject, ObjectPrompt};
use ocelli_error::{Error, Result, refuse};

/// The masks of an object: one for prompts that are not ambiguous, then three.
const MASKS: usize = 4;
/// The most objects of one run, for which its buffers are about 300 MB at 1008 pixels.
const MAX_OBJECTS: usize = 16;
/// A mask is stable if its area hardly changes between these logits.
const STABILITY_LOGIT: f32 = 0.05;
const STABILITY: f32 = 0.98;

/// The mask of an object that was clicked.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMask {
    /// The pixels of the object, as large as the image. There may be none.
    pub mask: Mask,
    /// The model's estimate of how well the mask fits the object, 0 to 1.
    pub predicted_iou: f32,
    /// The logit of the object's presence in the image: above 0 the model believes in it.
    pub object_score: f32,
    /// The mask as the model returned it, `[4P, 4P]`, to [refine](ObjectPrompt::with_logits) it.
    pub logits: LogitMask,
}

impl ObjectMask {
    /// The mask as a detection: the box around it, and the predicted IoU as its score. `None` if it has no pixels.
    pub fn to_detection(&self, class_id: usize, label: Arc<str>) -> Option<Detection> {
        let bbox = self.mask.bounding_box()?;
        Some(Detection { class_id, label, score: self.predicted_iou, bbox, mask: Some(self.mask.clone()) })
    }
}

/// Finds the masks of objects that are shown by clicks, boxes and masks. The buffers are reused.
pub struct ObjectSegmenter {
    model: Model,
    factory: EngineFactory,
    graphs: Option<Graphs>,
    inputs: PointInputs,
    outputs: Outputs,
    resampler: MaskResampler,
}

struct Graphs {
    features: Box<dyn Engine>,
    points: Box<dyn Engine>,
}

#[derive(Default)]
struct Outputs {
    /// `[B, 4, 4P, 4P]`.
    masks: Tensor,
    /// `[B, 4]`.
    ious: Tensor,
    /// `[B]`.
    object_scores: Tensor,
}

impl ObjectSegmenter {
    pub(super) fn new(model: &Model, factory: EngineFactory) -> Self {
        Self {
            model: model.clone(),
            factory,
            graphs: None,
            inputs: PointInputs::default(),
            outputs: Outputs::default(),
            resampler: MaskResampler::new(),
        }
    }

    /// Loads the graphs unless they are loaded.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the model has no tracker, or was exported before its graphs
    /// answered clicks on images;
    /// errors of loading a graph.
    pub fn load(&mut self) -> Result<()> {
        if self.graphs.is_some() {
            return Ok(());
        }
        self.model.tracker("clicks")?;
        let load = |name| self.model.load_graph(&self.factory, name);
        let [features, points] = if self.model.manifest().multiplex.is_some() {
            [file::MUX_INTERACTIVE, file::MUX_POINTS]
        } else {
            [file::TRACK_FEATURES, file::TRACK_POINTS]
        };
        let graphs = Graphs { features: load(features)?, points: load(points)? };
        if graphs.points.spec().output(tensor::ALL_MASKS).is_none() {
            let folder = self.model.folder().display();
            return Err(Error::mismatch(format!(
                "clicks, {folder}: this model was exported by an earlier version, whose tracker takes clicks in videos only; \
                 export the checkpoint again"
            )));
        }
        self.graphs = Some(graphs);
        Ok(())
    }

    /// Drops the graphs; they are loaded again when they are needed.
    pub fn unload(&mut self) {
        self.graphs = None;
    }

    /// The mask of each object or, with `multimask`, three masks of each in the model's order: often a part, the object, and a group
    /// of objects.
    ///
    /// A single click is ambiguous: of three masks the one with the best predicted IoU is taken. For everything else the model
    /// has a mask of its own; the best of the three replaces it where its border is uncertain.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a prompt that does not
    /// [fit](ObjectPrompt::check) the image, and for features
    /// without those for clicks; [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails or returns values
    /// that are not finite; as
    /// [`load`](Self::load).
    pub fn segment_each(
        &mut self,
        features: &ImageFeatures,
        objects: &[ObjectPrompt],
        multimask: bool,
    ) -> Result<Vec<Vec<ObjectMask>>> {
        self.load()?;
        let (image, side) = (self.model.manifest().imgsz, 4 * self.model.manifest().grid());
        let size = features.size();
        let encode = |object: &ObjectPrompt| object.encode(size, image, side);
        let encoded = objects.iter().map(encode).collect::<Result<Vec<EncodedObject>>>()?;
        let Self { graphs, inputs, outputs, resampler, .. } = self;
        let graphs = graphs.as_mut().expect("it was loaded above");
        let clicked = graphs.click_features(features)?;
        // Objects of one run have equally many points, so that none is padded.
        let mut groups: BTreeMap<(usize, bool), Vec<usize>> = BTreeMap::new();
        for (index, object) in encoded.iter().enumerate() {
            groups.entry((object.points.len(), object.mask.is_some())).or_default().push(index);
        }
        let mut masks: Vec<Vec<ObjectMask>> = objects.iter().map(|_| Vec::new()).collect();
        for batch in groups.values().flat_map(|group| group.chunks(MAX_OBJECTS)) {
            let prompts: Vec<&EncodedObject> = batch.iter().map(|&index| &encoded[index]).collect();
            inputs.fill(&prompts, side);
            inputs.run(
                &mut graphs.points,
                clicked,
                &mut [
                    (tensor::ALL_MASKS, &mut outputs.masks),
                    (tensor::ALL_IOU, &mut outputs.ious),
                    (tensor::OBJECT_SCORE, &mut outputs.object_scores),
                ],
            )?;
            for (row, (&index, prompt)) in batch.iter().zip(prompts).enumerate() {
                let found = outputs.found(row, side)?;
                let best = found.best(prompt.is_ambiguous);
                for chosen in if multimask { 1..MASKS } else { best..best + 1 } {
                    let logits = found.logits(chosen);
                    masks[index].push(ObjectMask {
                        mask: resampler.run_logits(logits, (side, side), size)?,
                        predicted_iou: found.ious[chosen],
                        object_score: found.object_score,
                        logits: LogitMask::new(side, side, logits.to_vec())?,
                    });
                }
            }
        }
        Ok(masks)
    }
}

impl Graphs {
    /// The device of both graphs, if they share one.
    fn device(&self) -> Option<Device> {
        self.features.device().filter(|device| self.points.device().as_ref() == Some(device))
    }

    /// An image's features for clicks; they are computed with the first click and kept with the others.
    fn click_features<'f>(&mut self, features: &'f ImageFeatures) -> Result<&'f ClickFeatures> {
        if let Some(known) = features.clicks.get() {
            return Ok(known);
        }
        if features.hidden.is_empty() {
            refuse!(
                "clicks: these features have no part for clicks; encode the image with Detector::encode, on a \
                           backbone that has the output hidden"
            );
        }
        let (device, mut made) = (self.device(), ClickFeatures::default());
        made.run(&mut self.features, device.as_ref(), &features.hidden, Vec::new())?;
        Ok(features.clicks.get_or_init(|| made))
    }
}

/// The inputs of the graph that answers points and masks. The buffers are reused.
#[derive(Default)]
pub(crate) struct PointInputs {
    points: Tensor,
    labels: Tensor,
    mask: Tensor,
    has_mask: Tensor,
}

impl PointInputs {
    /// Prompts with equally many points, all or none of them with a mask.
    pub(crate) fn fill(&mut self, prompts: &[&EncodedObject], side: usize) {
        let (count, points) = (prompts.len(), prompts.first().map_or(0, |prompt| prompt.points.len()));
        let coordinates = self.points.reset_f32(&[count, points, 2]);
        let labels = self.labels.reset::<i64>(&[count, points]);
        let masks = self.mask.reset_f32(&[count, side, side]);
        for (row, prompt) in prompts.iter().enumerate() {
            coordinates[row * points * 2..][..points * 2].copy_from_slice(prompt.points.as_flattened());
            labels[row * points..][..points].copy_from_slice(&prompt.labels);
            let mask = &mut masks[row * side * side..][..side * side];
            match &prompt.mask {
                Some(logits) => mask.copy_from_slice(logits),
                None => mask.fill(0.0),
            }
        }
        self.has_mask.reset::<bool>(&[])[0] = prompts.iter().any(|prompt| prompt.mask.is_some());
    }

    /// Runs the graph on what was filled in.
    pub(crate) fn run(
        &self,
        graph: &mut Box<dyn Engine>,
        features: &ClickFeatures,
        outputs: &mut [(&str, &mut Tensor)],
    ) -> Result<()> {
        graph.run(
            &[
                (tensor::PIXEL, &features.pixel),
                (tensor::HIGH_RES[0], &features.high_res[0]),
                (tensor::HIGH_RES[1], &features.high_res[1]),
                (tensor::POINTS, &self.points),
                (tensor::LABELS, &self.labels),
                (tensor::MASK_PROMPT, &self.mask),
                (tensor::HAS_MASK, &self.has_mask),
            ],
            outputs,
        )
    }
}

impl Outputs {
    /// The output for one object.
    fn found(&self, row: usize, side: usize) -> Result<ClickMasks<'_>> {
        let pixels = MASKS * side * side;
        let found = ClickMasks {
            masks: &self.masks.as_f32()?[row * pixels..][..pixels],
            ious: &self.ious.as_f32()?[row * MASKS..][..MASKS],
            object_score: self.object_scores.as_f32()?[row],
        };
        let numbers = found.masks.iter().chain(found.ious).chain([&found.object_score]);
        // A sum is not finite if one of its terms is not.
        if !numbers.sum::<f32>().is_finite() {
            let message = "clicks: the engine returned values that are not finite; if the model runs in half precision, \
                           export it in fp32";
            return Err(Error::execution(message));
        }
        Ok(found)
    }
}

/// The four masks of an object.
struct ClickMasks<'o> {
    /// `[4, 4P, 4P]`.
    masks: &'o [f32],
    /// `[4]`.
    ious: &'o [f32],
    object_score: f32,
}

impl ClickMasks<'_> {
    fn logits(&self, index: usize) -> &[f32] {
        let pixels = self.masks.len() / MASKS;
        &self.masks[index * pixels..][..pixels]
    }

    /// The index of the mask to show.
    fn best(&self, is_ambiguous: bool) -> usize {
        if is_ambiguous || is_unstable(self.logits(0)) {
            // The first of equals.
            (1..MASKS).rev().max_by(|&a, &b| self.ious[a].total_cmp(&self.ious[b])).unwrap_or(0)
        } else {
            0
        }
    }
}

/// `true` if the area of a mask depends on the threshold. An empty mask is stable.
fn is_unstable(logits: &[f32]) -> bool {
    let area = |limit: f32| logits.iter().filter(|&&logit| logit > limit).count();
    let (small, large) = (area(STABILITY_LOGIT), area(-STABILITY_LOGIT));
    large > 0 && (small as f32 / large as f32) < STABILITY
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;

    #[test]
    fn the_best_mask_is_the_one_of_the_prompt_unless_it_is_ambiguous_or_unstable() {
        let (stable, unstable, empty) = ([5.0, -5.0], [5.0, 0.0], [-5.0, -5.0]);
        let cases = [
            (stable, [0.1, 0.5, 0.9, 0.7], true, 2),
            (stable, [0.1, 0.9, 0.9, 0.7], true, 1),
            (stable, [0.1, 0.5, 0.9, 0.7], false, 0),
            (unstable, [0.9, 0.5, 0.6, 0.7], false, 3),
            (empty, [0.1, 0.5, 0.6, 0.7], false, 0),
        ];
        for (first, ious, is_ambiguous, expected) in cases {
            let masks = [first, [1.0; 2], [2.0; 2], [3.0; 2]].concat();
            let found = ClickMasks { masks: &masks, ious: &ious, object_score: 1.0 };
            assert_eq!(found.best(is_ambiguous), expected, "{first:?} {ious:?} {is_ambiguous}");
            assert_eq!(found.logits(2), [2.0; 2]);
        }
    }

    #[test]
    fn outputs_that_are_not_finite_are_errors() {
        let outputs = |logit: f32, iou: f32, score: f32| Outputs {
            masks: Tensor::f32(&[1, 4, 1, 1], vec![1.0, 2.0, logit, 4.0]).expect("four logits"),
            ious: Tensor::f32(&[1, 4], vec![0.1, 0.2, 0.3, iou]).expect("four numbers"),
            object_scores: Tensor::f32(&[1], vec![score]).expect("one number"),
        };
        let finite = outputs(-3.0, 0.4, 1.5);
        let found = finite.found(0, 1).expect("all are finite");
        assert_eq!((found.masks[2], found.ious[3], found.object_score), (-3.0, 0.4, 1.5));
        for [logit, iou, score] in [[f32::NAN, 0.4, 1.5], [1.0, f32::INFINITY, 1.5], [1.0, 0.4, f32::NAN]] {
            let failed = outputs(logit, iou, score).found(0, 1).map(|_| ()).expect_err("not finite");
            assert_eq!(failed.kind(), ErrorKind::Execution, "{logit} {iou} {score}");
        }
    }

    #[test]
    fn a_mask_becomes_a_detection_unless_it_is_empty() {
        let of = |pixels: &[u8]| ObjectMask {
            mask: Mask::from_bitmap(pixels, 3, 2).expect("six pixels"),
            predicted_iou: 0.75,
            object_score: 2.0,
            logits: LogitMask::new(1, 1, vec![0.0]).expect("one logit"),
        };
        let found = of(&[0, 1, 1, 0, 0, 1]).to_detection(4, "dog".into()).expect("three pixels");
        assert_eq!((found.class_id, &*found.label, found.score), (4, "dog", 0.75));
        assert_eq!(<[f32; 4]>::from(found.bbox), [1.0, 0.0, 3.0, 2.0]);
        assert_eq!(found.mask.map(|mask| mask.area()), Some(3));
        assert_eq!(of(&[0; 6]).to_detection(0, "dog".into()), None);
    }
}
