//! `exemplar_encoder.onnx`, and the CLS token that the same encoder computes for a prompt without boxes.

use std::f64::consts::TAU;

use super::Plan;
use super::joined::SharedTokens;
use super::position::sine_frequencies;
use crate::contract::{dim, tensor};
use crate::fold;
use crate::graph::{Dim, Element, Graph, Role, Value};
use crate::mixed_precision::{Block, Family};

const ROOT: &str = "geometry_encoder";

impl<'w> Plan<'w> {
    /// Boxes → prompt features.
    pub(crate) fn exemplar_encoder(&self, g: &Graph<'w>) {
        let (grid, width) = (self.grid(), self.config().width);
        let boxes_dim = Dim::Named(dim::EXEMPLARS);
        let tokens_dim = Dim::Named(dim::EXEMPLAR_TOKENS);
        let features = g.input(tensor::FPN[2], Element::F32, &[1, width, grid, grid].map(Dim::from));
        let boxes = g.input(tensor::BOXES, Element::F32, &[1.into(), boxes_dim, 4.into()]);
        let labels = g.input(tensor::BOX_LABELS, Element::I64, &[1.into(), boxes_dim]);

        g.scope(ROOT);
        g.block(Block::whole(Family::Exemplars));
        let boxes = g.reshape(&boxes, &[boxes_dim, 4.into()]);
        let labels = g.reshape(&labels, &[boxes_dim]);
        let direct = g.as_role(Role::Exact, |g| g.linear(&boxes, &format!("{ROOT}.boxes_direct_project")));
        let pooled = self.pooled_boxes(g, &features, &boxes);
        let placed = self.placed_boxes(g, &boxes);
        let label = g.gather_rows(&g.weight(&format!("{ROOT}.label_embed.weight")), &labels);
        let sum = g.add(&g.add(&direct, &pooled), &placed);
        let embedded = g.add(&sum, &label);

        let cls = g.weight(&format!("{ROOT}.cls_embed.weight"));
        let prompt = g.concat(&[&embedded, &cls], 0, tokens_dim);
        let prompt = g.linear(&prompt, &format!("{ROOT}.final_proj"));
        let prompt = g.norm(&prompt, &format!("{ROOT}.prompt_layer_norm"));
        let mut x = g.reshape(&prompt, &[1.into(), tokens_dim, width.into()]);
        let image = self.image_tokens(g, &features);
        for i in 0..self.config().geometry.layers {
            let layer = format!("{ROOT}.layers.{i}");
            g.scope(layer.as_str());
            let normed = g.norm(&x, &format!("{layer}.layer_norm1"));
            let heads = self.config().geometry.heads;
            x = g.add(&x, &g.attention(&format!("{layer}.self_attn"), [&normed; 3], heads));
            x = self.image_attention(g, &x, i, &image);
        }
        let out = g.norm(&x, &format!("{ROOT}.output_layer_norm"));
        g.output(tensor::EXEMPLAR_FEATURES, &out, &[1.into(), tokens_dim, width.into()]);
    }

    /// The CLS token without boxes, `[1, 1, D]`. A single token attends to itself with weight 1, so self-attention reduces
    /// to its value and output projections; in the first layer it is a constant.
    pub(super) fn image_prompt(&self, g: &Graph<'w>, features: &Value) -> Value {
        let width = self.config().width;
        let layers = self.config().geometry.layers;
        g.scope(ROOT);
        g.block(Block::whole(Family::Exemplars));
        let mut x = g.derived(&format!("{ROOT}.cls_embed.folded"), &[1, 1, width], move |weights| {
            let cls = fold::matrix(weights, &format!("{ROOT}.cls_embed.weight"), width)?;
            let x = fold::linear(weights, &format!("{ROOT}.final_proj"), &cls)?;
            let x = fold::layer_norm(weights, &format!("{ROOT}.prompt_layer_norm"), &x)?;
            let first = format!("{ROOT}.layers.0");
            let normed = fold::layer_norm(weights, &format!("{first}.layer_norm1"), &x)?;
            let mixed = fold::linear(weights, &format!("{first}.self_attn.v_proj"), &normed)?;
            let mixed = fold::linear(weights, &format!("{first}.self_attn.o_proj"), &mixed)?;
            Ok(fold::to_f32(&(x + mixed)))
        });
        let image = self.image_tokens(g, features);
        for i in 0..layers {
            let layer = format!("{ROOT}.layers.{i}");
            g.scope(layer.as_str());
            if i > 0 {
                let normed = g.norm(&x, &format!("{layer}.layer_norm1"));
                let mixed = g.linear(&normed, &format!("{layer}.self_attn.v_proj"));
                x = g.add(&x, &g.linear(&mixed, &format!("{layer}.self_attn.o_proj")));
            }
            x = self.image_attention(g, &x, i, &image);
        }
        g.norm(&x, &format!("{ROOT}.output_layer_norm"))
    }

    fn image_tokens(&self, g: &Graph<'w>, features: &Value) -> SharedTokens {
        let values = g.tokens_of(features);
        let keys = g.add(&values, &g.image_positions(self));
        let layers = 0..self.config().geometry.layers;
        let attentions: Vec<String> = layers.map(|i| format!("{ROOT}.layers.{i}.cross_attn")).collect();
        SharedTokens::new(g, keys, values, &attentions)
    }

    /// The rest of a layer after its self-attention: attention to the image, feed-forward.
    fn image_attention(&self, g: &Graph<'w>, x: &Value, at: usize, image: &SharedTokens) -> Value {
        let stack = &self.config().geometry;
        let layer = format!("{ROOT}.layers.{at}");
        let normed = g.norm(x, &format!("{layer}.layer_norm2"));
        let name = format!("{layer}.cross_attn");
        let x = g.add(x, &g.shared_attention((&name, at), &normed, image, stack.heads, None));
        let normed = g.norm(&x, &format!("{layer}.layer_norm3"));
        g.add(&x, &g.feed_forward(&normed, &format!("{layer}.mlp"), stack))
    }

    /// The features in the boxes, pooled and projected: `[N, D]`.
    fn pooled_boxes(&self, g: &Graph<'w>, features: &Value, boxes: &Value) -> Value {
        let (grid, width, roi) = (self.grid(), self.config().width, self.config().roi_size);
        let normed = g.transpose(features, &[0, 2, 3, 1]);
        let normed = g.norm(&normed, &format!("{ROOT}.vision_layer_norm"));
        let normed = g.transpose(&normed, &[0, 3, 1, 2]);
        let corners = {
            let side = grid as f32;
            let half = side / 2.0;
            #[rustfmt::skip]
            let matrix = [
                side, 0.0,  side, 0.0,
                0.0,  side, 0.0,  side,
                -half, 0.0, half, 0.0,
                0.0, -half, 0.0,  half,
            ];
            let matrix = g.constant("cxcywh_to_xyxy", &[4, 4], &matrix);
            g.as_role(Role::Exact, |g| g.matmul(boxes, &matrix))
        };
        let pooled = g.as_role(Role::Exact, |g| g.roi_align(&normed, &corners, roi));
        let flat = g.reshape(&pooled, &[boxes.dims[0], (width * roi * roi).into()]);
        // A convolution with a kernel as large as its input is a matrix product.
        g.linear(&flat, &format!("{ROOT}.boxes_pool_project"))
    }

    /// The positions of the boxes: sine encodings of y and x, then height and width, projected: `[N, D]`.
    fn placed_boxes(&self, g: &Graph<'w>, boxes: &Value) -> Value {
        let width = self.config().width;
        let count = boxes.dims[0];
        let frequencies = sine_frequencies(width / 2);
        let radians: Vec<f32> = frequencies.iter().map(|f| (TAU * f) as f32).collect();
        let radians = g.constant("box_frequencies", &[1, 1, width / 4], &radians);
        let centres = g.select(boxes, 1, &[1, 0]);
        let encoded = encode_sine(g, &centres, &radians);
        let encoded = g.reshape(&encoded, &[count, width.into()]);
        let sides = g.select(boxes, 1, &[3, 2]);
        let joined = g.concat(&[&encoded, &sides], 1, width + 2);
        g.as_role(Role::Exact, |g| g.linear(&joined, &format!("{ROOT}.boxes_pos_enc_project")))
    }
}

/// Sines and cosines of every number of `x` `[…]` at every frequency, interleaved: `[…, frequencies, 2]`; `radians`
/// `[1, …, frequencies]`.
pub(super) fn encode_sine(g: &Graph<'_>, x: &Value, radians: &Value) -> Value {
    let axes = x.dims.len();
    let column = [x.dims.as_slice(), &[1.into()]].concat();
    let stacked = [x.dims.as_slice(), &[radians.dims[axes], 1.into()]].concat();
    let x = g.reshape(x, &column);
    let angles = g.as_role(Role::Exact, |g| g.mul(&x, radians));
    let waves = ["Sin", "Cos"].map(|wave| {
        let values = g.as_role(Role::Exact, |g| g.unary(wave, &angles));
        g.reshape(&values, &stacked)
    });
    g.concat(&waves, axes + 1, 2)
}
