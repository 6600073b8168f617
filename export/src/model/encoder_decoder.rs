//! `encoder_decoder.onnx`: image features and prompts → boxes and scores; `screen.onnx`: → scores alone, on a coarse grid.

use super::Plan;
use super::decoder::Decoded;
use super::layers::Prompt;
use crate::contract::{Precision, dim, tensor};
use crate::exporter::ExportOptions;
use crate::graph::{Dim, Element, Graph, Value};
use crate::mixed_precision::{Block, Family};

impl<'w> Plan<'w> {
    /// Fusion encoder, decoder and scoring for C classes at once.
    pub(crate) fn encoder_decoder(&self, g: &Graph<'w>) {
        let (grid, width, queries) = (self.grid(), self.config().width, self.config().num_queries);
        let classes = Dim::Named(dim::CLASSES);
        let (features, prompt) = self.features_and_prompt(g);
        let (encoded, decoded, logits) = self.encode_and_decode(g, &features, &prompt);

        g.output(tensor::LOGITS, &logits, &[classes, queries.into()]);
        g.output(tensor::BOXES, &decoded.boxes, &[classes, queries.into(), 4.into()]);
        g.output(tensor::PRESENCE, &decoded.presence, &[classes, 1.into()]);
        if !self.options.detection_only {
            g.output(tensor::QUERIES, &decoded.queries, &[classes, queries.into(), width.into()]);
            g.output(tensor::ENCODED, &encoded, &[classes, (grid * grid).into(), width.into()]);
        }
    }

    /// The same on features that are averaged 2 × 2, without boxes: attention costs a sixteenth, other layers a quarter.
    pub(crate) fn screen(&self, g: &Graph<'w>) {
        // Averaged features have other ranges than those that were observed.
        let precision =
            if self.options.precision.is_calibrated() { Precision::Fp16 } else { self.options.precision };
        let options = ExportOptions { precision, observes: false, ..self.options.clone() };
        let coarse = Plan { imgsz: self.imgsz / 2, options, ..*self };
        let classes = Dim::Named(dim::CLASSES);
        let (features, prompt) = self.features_and_prompt(g);
        let pooled = g.average_pool(&features, 2);
        let (_, decoded, logits) = coarse.encode_and_decode(g, &pooled, &prompt);

        g.output(tensor::LOGITS, &logits, &[classes, self.config().num_queries.into()]);
        g.output(tensor::PRESENCE, &decoded.presence, &[classes, 1.into()]);
    }

    /// The inputs: features `[1, D, grid, grid]` of the coarsest level, and the prompts of C classes.
    fn features_and_prompt(&self, g: &Graph<'w>) -> (Value, Prompt) {
        let (grid, width) = (self.grid(), self.config().width);
        g.block(Block::layer(Family::Fusion, 0));
        let features = g.input(tensor::FPN[2], Element::F32, &[1, width, grid, grid].map(Dim::from));
        (features, g.prompt_input(Dim::Named(dim::CLASSES), width))
    }

    /// Encoded features `[C, grid², D]`, what the decoder makes of them, and the logits `[C, Q]`, on features of this grid.
    fn encode_and_decode(&self, g: &Graph<'w>, features: &Value, prompt: &Prompt) -> (Value, Decoded, Value) {
        let image = g.tokens_of(features);
        let positions = g.image_positions(self);
        let encoded = self.fusion_encoder(g, &image, &positions, prompt);
        let decoded = self.decode(g, &encoded, &positions, prompt);
        let logits = self.score(g, &decoded.queries, prompt);
        (encoded, decoded, logits)
    }
}
