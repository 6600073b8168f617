//! The exemplar encoder.

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{file, tensor};

use super::engine_io::move_to;
use super::features::{COARSE, HostCopies, ImageFeatures};
use crate::engine::EngineFactory;
use crate::model::Model;
use crate::prompt::Prompt;
use ocelli_error::{Error, Result, refuse};

/// The least share of a box that is in the image: a box that is cut at the edge is an example, one for a larger image is not.
const LEAST_INSIDE: f32 = 0.1;

/// Boxes in an image to prompt features. The buffers are reused.
pub(super) struct ExemplarEncoder {
    engine: Box<dyn Engine>,
    boxes: Tensor,
    labels: Tensor,
    /// `[1, N + 1, D]`.
    features: Tensor,
}

impl ExemplarEncoder {
    pub(super) fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        if !model.has_file(file::EXEMPLAR_ENCODER) {
            return Err(Error::mismatch(format!(
                "exemplars, {}: this model has no encoder of exemplar boxes; detect classes by phrases",
                model.folder().display()
            )));
        }
        let [boxes, labels, features] = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
        Ok(Self { engine: model.load_graph(factory, file::EXEMPLAR_ENCODER)?, boxes, labels, features })
    }

    /// The features of a prompt's exemplars and the CLS token, `[1, N + 1, D]`: on `device` if the engine runs there too,
    /// otherwise in host memory.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if an exemplar is outside the image, and the
    /// errors of the engine.
    pub(super) fn run(
        &mut self,
        image: &ImageFeatures,
        prompt: &Prompt,
        copies: &mut HostCopies,
        device: Option<&Device>,
    ) -> Result<&Tensor> {
        let exemplars = prompt.exemplars();
        let (width, height) = (image.size.0 as f32, image.size.1 as f32);
        let boxes = self.boxes.reset_f32(&[1, exemplars.len(), 4]);
        for (target, exemplar) in boxes.chunks_exact_mut(4).zip(exemplars) {
            let inside = exemplar.bbox.clip_to(width, height);
            if !inside.has_area() || inside.area() < LEAST_INSIDE * exemplar.bbox.area() {
                let ([x1, y1, x2, y2], label) = (exemplar.bbox.to_xyxy(), prompt.label());
                let most = if inside.has_area() { "most of it" } else { "it" };
                refuse!(
                    "exemplar of \"{label}\", {x1},{y1},{x2},{y2}: {most} is outside the image of {width} × {height} pixels"
                );
            }
            target.copy_from_slice(&inside.scaled(1.0 / width, 1.0 / height).to_cxcywh());
        }
        let labels = self.labels.reset::<i64>(&[1, exemplars.len()]);
        labels.iter_mut().zip(exemplars).for_each(|(label, exemplar)| *label = i64::from(exemplar.wanted));
        let own = self.engine.device();
        let own = own.as_ref();
        move_to(&mut self.features, device.filter(|_| own == device));
        let [coarse] = copies.readable_on(own, image, [COARSE])?;
        self.engine.run(
            &[(tensor::FPN[2], coarse), (tensor::BOXES, &self.boxes), (tensor::BOX_LABELS, &self.labels)],
            &mut [(tensor::EXEMPLAR_FEATURES, &mut self.features)],
        )?;
        Ok(&self.features)
    }
}
