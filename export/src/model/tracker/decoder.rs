//! The mask decoder: image tokens and prompts → masks, scores and a pointer.

use std::ops::Range;

use super::{Network, OBJECTS};
use crate::contract::tensor;
use crate::graph::{Dim, Graph, Role, Value};
use crate::model::layers::LinearLayer;

/// The tokens of the decoder in front of the prompt: the object score, the IoU, and the masks.
const SCORE: usize = 0;
const IOU: usize = 1;
const MASKS: [usize; 4] = [2, 3, 4, 5];
/// The mask logit of objects that are not in the frame.
const ABSENT: f32 = -1024.0;

/// The decoder's output for some objects.
pub(super) struct Decoded {
    /// `[B, tokens, D]`.
    pub(super) tokens: Value,
    /// `[B, P·P, D]`.
    image: Value,
}

/// A mask, its predicted IoU and the token that it comes from.
pub(super) struct Mask {
    /// `[B, 4P, 4P]`, logits.
    pub(super) logits: Value,
    /// `[B]`.
    pub(super) iou: Value,
    /// `[B, D]`.
    pub(super) token: Value,
}

impl<'w> Network<'_, 'w> {
    /// Memories → masks and pointers of tracked objects.
    pub(crate) fn track_step(&self, g: &Graph<'w>) {
        let attended = self.attend_memories(g);
        let high_res = self.high_res_inputs(g);
        let image = g.add(&attended, &self.no_mask(g));
        let decoded = self.decode_objects(g, &image, &self.no_points(g));
        let best = self.best_mask(g, &decoded, &self.upscaled(g, &decoded, &high_res));
        self.object_outputs(g, &decoded, &best);
    }

    /// The two-way transformer; image `[batch, P·P, D]`, prompt `[batch, tokens, D]` with the decoder's own tokens first.
    pub(super) fn decode_objects(&self, g: &Graph<'w>, image: &Value, prompt: &Value) -> Decoded {
        let positions = self.pixel_positions(g);
        let (mut tokens, mut image) = (prompt.clone(), image.clone());
        for layer in 0..self.config().decoder.layers {
            let name = self.of(&format!("mask_decoder.transformer.layers.{layer}"));
            g.scope(&name);
            tokens = if layer == 0 {
                self.decoder_attention(g, &format!("{name}.self_attn"), [&tokens; 3])
            } else {
                let placed = g.add(&tokens, prompt);
                let mixed =
                    self.decoder_attention(g, &format!("{name}.self_attn"), [&placed, &placed, &tokens]);
                g.add(&tokens, &mixed)
            };
            tokens = g.norm(&tokens, &format!("{name}.layer_norm1"));

            let placed_image = g.add(&image, &positions);
            let to_image = format!("{name}.cross_attn_token_to_image");
            tokens = self.attend_image(g, &to_image, &tokens, prompt, [&placed_image, &image]);
            tokens = g.norm(&tokens, &format!("{name}.layer_norm2"));

            let layers = ["proj_in", "proj_out"].map(|layer| format!("{name}.mlp.{layer}"));
            tokens = g.add(&tokens, &g.layers_in_turn(&tokens, layers));
            tokens = g.norm(&tokens, &format!("{name}.layer_norm3"));

            let placed = g.add(&tokens, prompt);
            let to_tokens = format!("{name}.cross_attn_image_to_token");
            let mixed = self.decoder_attention(g, &to_tokens, [&placed_image, &placed, &tokens]);
            image = g.add(&image, &mixed);
            image = g.norm(&image, &format!("{name}.layer_norm4"));
        }
        let name = self.of("mask_decoder.transformer.final_attn_token_to_image");
        g.scope(&name);
        tokens = self.attend_image(g, &name, &tokens, prompt, [&g.add(&image, &positions), &image]);
        tokens = g.norm(&tokens, &self.of("mask_decoder.transformer.layer_norm_final_attn"));
        Decoded { tokens, image }
    }

    /// The tokens after attention to the image.
    fn attend_image(
        &self,
        g: &Graph<'w>,
        name: &str,
        tokens: &Value,
        prompt: &Value,
        [keys, values]: [&Value; 2],
    ) -> Value {
        let mixed = self.decoder_attention(g, name, [&g.add(tokens, prompt), keys, values]);
        g.add(tokens, &mixed)
    }

    /// Attention with its four projections. One side has few tokens, so basic operators are enough.
    fn decoder_attention(&self, g: &Graph<'w>, name: &str, [q, k, v]: [&Value; 3]) -> Value {
        let heads = self.config().decoder.heads;
        let layer = LinearLayer::new(&format!("{name}.q_proj")).scaled_for(g, heads);
        let q = g.linear_layer(q, &layer);
        let [k, v] = [(k, "k_proj"), (v, "v_proj")].map(|(x, end)| g.linear(x, &format!("{name}.{end}")));
        let [q, k, v] = [&q, &k, &v].map(|x| g.split_heads(x, heads));
        g.linear(&g.explicit_attention([&q, &k, &v], None), &format!("{name}.o_proj"))
    }

    /// The image's tokens in the detail of masks: `[B, D/8, 16·P·P]`.
    pub(super) fn upscaled(&self, g: &Graph<'w>, decoded: &Decoded, [fine, middle]: &[Value; 2]) -> Value {
        let side = 4 * self.grid();
        g.scope(self.of("mask_decoder.upscale"));
        let x = self.map_of(g, &decoded.image);
        let x = g.upscale_with(&x, &self.of("mask_decoder.upscale_conv1"), middle);
        let x = g.map_norm(&x, &self.of("mask_decoder.upscale_layer_norm"));
        let x = g.gelu(&x, false);
        let x = g.upscale_with(&x, &self.of("mask_decoder.upscale_conv2"), fine);
        let x = g.gelu(&x, false);
        // By way of tokens: OpenVINO's convolutions have the channels last, and to bring the whole map into the other order took
        // a seventh of a click. The last transposition becomes part of the product that follows.
        let x = g.transpose(&x, &[0, 2, 3, 1]);
        g.transpose(&g.reshape(&x, &[x.dims[0], (side * side).into(), x.dims[3]]), &[0, 2, 1])
    }

    /// The best of the three masks for ambiguous prompts, by predicted IoU.
    pub(super) fn best_mask(&self, g: &Graph<'w>, decoded: &Decoded, upscaled: &Value) -> Mask {
        let ious = g.slice(&self.ious(g, decoded), 1, 1, MASKS.len());
        let best = g.as_role(Role::Exact, |g| g.one_hot_of_largest(&ious));
        let tokens = g.select(&decoded.tokens, 1, &MASKS[1..]);
        let kernels = self.mask_kernels(g, decoded, 1..MASKS.len());
        // The choice of a kernel saves the other masks.
        let kernel = g.matmul(&best, &kernels);
        let token = g.matmul(&best, &tokens);
        self.mask(g, [&kernel, upscaled], &g.reduce("ReduceMax", &ious, 1), &token)
    }

    /// The mask for prompts that are not ambiguous.
    pub(super) fn first_mask(&self, g: &Graph<'w>, decoded: &Decoded, upscaled: &Value) -> Mask {
        let iou = g.slice(&self.ious(g, decoded), 1, 0, 1);
        let kernel = self.mask_kernel(g, decoded, 0);
        self.mask(g, [&kernel, upscaled], &iou, &g.select(&decoded.tokens, 1, &MASKS[..1]))
    }

    /// All four masks with their predicted IoU, for clicks on an image.
    pub(super) fn all_masks(&self, g: &Graph<'w>, decoded: &Decoded, upscaled: &Value) {
        let (count, side) = (Dim::from(MASKS.len()), Dim::from(4 * self.grid()));
        let ious = self.ious(g, decoded);
        let logits = g.matmul(&self.mask_kernels(g, decoded, 0..MASKS.len()), upscaled);
        let logits = g.reshape(&logits, &[OBJECTS, count, side, side]);
        g.output(tensor::ALL_MASKS, &logits, &[OBJECTS, count, side, side]);
        g.output(tensor::ALL_IOU, &ious, &[OBJECTS, count]);
    }

    fn mask(&self, g: &Graph<'w>, [kernel, upscaled]: [&Value; 2], iou: &Value, token: &Value) -> Mask {
        let side = Dim::from(4 * self.grid());
        let logits = g.matmul(kernel, upscaled);
        Mask {
            logits: g.reshape(&logits, &[OBJECTS, side, side]),
            iou: g.reshape(iou, &[OBJECTS]),
            token: g.reshape(token, &[OBJECTS, self.width().into()]),
        }
    }

    /// The predicted IoU of the four masks, `[B, 4]`.
    fn ious(&self, g: &Graph<'w>, decoded: &Decoded) -> Value {
        let head = "mask_decoder.iou_prediction_head";
        let logits = self.head_of(g, head, || g.select(&decoded.tokens, 1, &[IOU]));
        let ious =
            if self.is_sam3() { g.as_role(Role::Exact, |g| g.unary("Sigmoid", &logits)) } else { logits };
        g.reshape(&ious, &[OBJECTS, MASKS.len().into()])
    }

    /// The kernels of some of the four masks, `[B, masks, D/8]`.
    fn mask_kernels(&self, g: &Graph<'w>, decoded: &Decoded, masks: Range<usize>) -> Value {
        let count = masks.len();
        let kernels: Vec<Value> = masks.map(|mask| self.mask_kernel(g, decoded, mask)).collect();
        g.concat(&kernels, 1, count)
    }

    /// The kernel of one of the four masks, `[B, 1, D/8]`.
    fn mask_kernel(&self, g: &Graph<'w>, decoded: &Decoded, mask: usize) -> Value {
        let head = format!("mask_decoder.output_hypernetworks_mlps.{mask}");
        self.head_of(g, &head, || g.select(&decoded.tokens, 1, &[MASKS[mask]]))
    }

    /// The logit of the object's presence, `[B]`.
    pub(super) fn object_score(&self, g: &Graph<'w>, decoded: &Decoded) -> Value {
        let head = "mask_decoder.pred_obj_score_head";
        let score = self.head_of(g, head, || g.select(&decoded.tokens, 1, &[SCORE]));
        g.reshape(&score, &[OBJECTS])
    }

    /// The token of the mask for prompts that are not ambiguous, `[B, D]`.
    pub(super) fn first_token(&self, g: &Graph<'w>, decoded: &Decoded) -> Value {
        let token = g.select(&decoded.tokens, 1, &MASKS[..1]);
        g.reshape(&token, &[OBJECTS, self.width().into()])
    }

    /// The pointer of a mask's token, or the one of absent objects: `[B, D]`.
    pub(super) fn pointer(&self, g: &Graph<'w>, token: &Value, present: &Value) -> Value {
        let pointer = self.head_of(g, "object_pointer_proj", || token.clone());
        if !self.is_sam3() {
            return self.pointer_if(g, present, &pointer);
        }
        let absent = g.weight(&self.of("no_object_pointer"));
        g.choose(&g.reshape(present, &[OBJECTS, 1.into()]), &pointer, &absent)
    }

    /// A pointer, which SAM 3.1 projects once more if the condition does not hold: `[B, D]`.
    pub(super) fn pointer_if(&self, g: &Graph<'w>, condition: &Value, pointer: &Value) -> Value {
        let absent = g.linear(pointer, &self.multiplex().of("no_object_pointer_projection"));
        g.choose(&g.reshape(condition, &[OBJECTS, 1.into()]), pointer, &absent)
    }

    /// The outputs of objects with a mask.
    pub(super) fn object_outputs(&self, g: &Graph<'w>, decoded: &Decoded, mask: &Mask) {
        self.outputs(g, &self.object_score(g, decoded), mask);
    }

    /// The outputs of objects with this score, `[B]`, and a mask.
    pub(super) fn outputs(&self, g: &Graph<'w>, score: &Value, mask: &Mask) {
        let (side, width) = (Dim::from(4 * self.grid()), self.width());
        let present = g.is_above(score, 0.0);
        let shown = g.reshape(&present, &[OBJECTS, 1.into(), 1.into()]);
        let logits = g.choose(&shown, &mask.logits, &g.scalar(ABSENT));
        let pointer = self.pointer(g, &mask.token, &present);
        g.output(tensor::MASKS, &logits, &[OBJECTS, side, side]);
        g.output(tensor::OBJECT_SCORE, score, &[OBJECTS]);
        g.output(tensor::IOU, &mask.iou, &[OBJECTS]);
        g.output(tensor::POINTER, &pointer, &[OBJECTS, width.into()]);
    }
}

impl Graph<'_> {
    /// Doubles the sides, and adds finer features.
    fn upscale_with(&self, x: &Value, name: &str, finer: &Value) -> Value {
        self.add(&self.convolution_transpose(x, name), finer)
    }

    /// One value for all objects → the same for each, `[B, …]`; `like` has the batch.
    pub(super) fn repeat_for(&self, x: &Value, like: &Value) -> Value {
        self.repeat(x, &self.size_of(like, 0), like.dims[0])
    }
}
