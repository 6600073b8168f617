//! `memory_encoder.onnx`: a frame's features and masks → memories.

use super::prompts::MEMORY_PIXELS;
use super::{Network, OBJECTS};
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Value};

/// The mask's logits become numbers between −10 and 10.
const MASK_SCALE: f32 = 20.0;
const MASK_BIAS: f32 = -10.0;

impl<'w> Network<'_, 'w> {
    /// Features and masks → memories.
    pub(crate) fn memory_encoder(&self, g: &Graph<'w>) {
        let tracker = self.config();
        let (side, tokens) = (Dim::from(4 * self.grid()), Dim::from(self.grid() * self.grid()));
        let fine = Dim::from(MEMORY_PIXELS * self.grid());
        let pixel = self.pixel_input(g, tensor::MEMORY_PIXEL);
        let masks = g.input(tensor::MASKS, Element::F32, &[OBJECTS, side, side]);
        let [keep, present, binary] = [tensor::KEEP, tensor::PRESENT, tensor::BINARY]
            .map(|name| g.input(name, Element::Bool, &[OBJECTS]));
        let prompts = g.input(tensor::PROMPTS, Element::F32, &[Dim::Named(dim::PROMPTS), fine, fine]);

        let soft = self.tracked_mask(g, &masks, &keep);
        let mut prompts = g.reshape(&prompts, &[prompts.dims[0], 1.into(), fine, fine]);
        // One for all objects or one for each: both broadcast.
        prompts.dims[0] = 1.into();
        let binary = g.reshape(&binary, &[OBJECTS, 1.into(), 1.into(), 1.into()]);
        let mask = g.choose(&binary, &prompts, &soft);
        g.scope(self.of("memory_encoder.mask_downsampler"));
        let mask = g.convolution(&mask, &self.of("memory_encoder.mask_downsampler.layers.0.conv"), 2, 1);
        let x = self.mixed_with_image(g, &mask, &pixel);
        g.scope(self.of("memory_encoder.projection"));
        let x = g.tokens_of(&x);
        let memory = g.linear(&x, &self.of("memory_encoder.projection"));
        let occluded = g.weight(&self.of("occlusion_spatial_embedding_parameter"));
        let occluded = g.reshape(&occluded, &[1, 1, tracker.memory_width].map(Dim::from));
        let zero = g.scalar(0.0);
        let present = g.reshape(&present, &[OBJECTS, 1.into(), 1.into()]);
        let memory = g.add(&memory, &g.choose(&present, &zero, &occluded));
        g.output(tensor::MEMORY, &memory, &[OBJECTS, tokens, tracker.memory_width.into()]);
    }

    /// Masks of tracked objects in the detail of memories, `[B, 1, 16P, 16P]`: their probabilities, −10 to 10.
    fn tracked_mask(&self, g: &Graph<'w>, masks: &Value, keep: &Value) -> Value {
        let side = Dim::from(4 * self.grid());
        let keep = g.reshape(keep, &[OBJECTS, 1.into(), 1.into(), 1.into()]);
        g.scope("mask");
        let masks = g.reshape(masks, &[OBJECTS, 1.into(), side, side]);
        let logits = g.enlarge(&masks, MEMORY_PIXELS * self.grid());
        let logits = g.choose(&keep, &logits, &g.clip(&logits, None, Some(MASK_BIAS)));
        let scaled = g.scale(&g.unary("Sigmoid", &logits), MASK_SCALE);
        g.add(&scaled, &g.scalar(MASK_BIAS))
    }

    /// Masks after the first convolution `[B, channels, 8P, 8P]`, and the frame's features → `[B, D, P, P]`.
    pub(super) fn mixed_with_image(&self, g: &Graph<'w>, masks: &Value, pixel: &Value) -> Value {
        let name = self.of("memory_encoder.mask_downsampler");
        let mut x = masks.clone();
        for layer in 0..4 {
            if layer > 0 {
                x = g.convolution(&x, &format!("{name}.layers.{layer}.conv"), 2, 1);
            }
            x = g.map_norm(&x, &format!("{name}.layers.{layer}.layer_norm"));
            x = g.gelu(&x, false);
        }
        let masks = g.pixel_projection(&x, &format!("{name}.final_conv"));
        let x = g.add(&g.tokens_of(pixel), &masks);
        let mut x = self.map_of(g, &x);
        for layer in 0..self.config().fuser_layers {
            x = self.fused(g, &x, layer);
        }
        x
    }

    /// One layer that mixes mask and image.
    fn fused(&self, g: &Graph<'w>, x: &Value, layer: usize) -> Value {
        let name = self.of(&format!("memory_encoder.memory_fuser.layers.{layer}"));
        g.scope(&name);
        let tokens = g.tokens_of(&g.convolution(x, &format!("{name}.depthwise_conv"), 1, 3));
        let normed = g.norm_with(&tokens, &format!("{name}.layer_norm"), super::MAP_EPS);
        let hidden = g.gelu(&g.linear(&normed, &format!("{name}.pointwise_conv1")), false);
        let out = g.linear(&hidden, &format!("{name}.pointwise_conv2"));
        let out = g.mul(&out, &g.weight(&format!("{name}.scale")));
        g.add(x, &self.map_of(g, &out))
    }
}
