//! `mask_head.onnx`: queries of kept detections → masks, for one class.

use super::Plan;
use crate::contract::{dim, tensor};
use crate::fold::NORM_EPS;
use crate::graph::{Dim, Element, Graph, Value};
use crate::mixed_precision::{Block, Family};

const ROOT: &str = "mask_decoder";
/// Groups of the pixel decoder's norms.
const GROUPS: usize = 8;

impl<'w> Plan<'w> {
    /// Pixel decoder and mask embedding.
    pub(crate) fn mask_head(&self, g: &Graph<'w>) {
        let (grid, width) = (self.grid(), self.config().width);
        let kept = Dim::Named(dim::MASKS);
        g.block(Block::whole(Family::Masks));
        let fine = g.input(tensor::FPN[0], Element::F32, &[1, width, 4 * grid, 4 * grid].map(Dim::from));
        let middle = g.input(tensor::FPN[1], Element::F32, &[1, width, 2 * grid, 2 * grid].map(Dim::from));
        let encoded = g.input(tensor::ENCODED, Element::F32, &[1, grid * grid, width].map(Dim::from));
        let prompt = g.prompt_input(1.into(), width);
        let queries = g.input(tensor::QUERIES, Element::F32, &[1.into(), kept, width.into()]);

        g.scope(format!("{ROOT}.prompt_cross_attn"));
        let normed = g.norm(&encoded, &format!("{ROOT}.prompt_cross_attn_norm"));
        let heads = self.config().mask_heads;
        let mixed = g.prompt_attention(&format!("{ROOT}.prompt_cross_attn"), &normed, &prompt, heads);
        let mut pixels = self.map_of(g, &g.add(&encoded, &mixed));
        for (stage, level) in [middle, fine].iter().enumerate() {
            pixels = self.pixel_stage(g, &pixels, level, stage);
        }

        g.scope(format!("{ROOT}.semantic_projection"));
        let semantic = g.convolution(&pixels, &format!("{ROOT}.semantic_projection"), 1, 0);

        g.scope(format!("{ROOT}.mask_embedder"));
        let layers = (0..3).map(|i| format!("{ROOT}.mask_embedder.layers.{i}"));
        let masks = self.instance_masks(g, &g.layers_in_turn(&queries, layers), &pixels);
        let side: Dim = (4 * grid).into();
        g.output(tensor::MASKS, &masks, &[1.into(), kept, side, side]);
        g.output(tensor::SEMANTIC, &semantic, &[1.into(), 1.into(), side, side]);
    }

    /// Upsampling, plus the next level → convolution → norm → ReLU.
    fn pixel_stage(&self, g: &Graph<'w>, pixels: &Value, level: &Value, stage: usize) -> Value {
        let root = format!("{ROOT}.pixel_decoder");
        g.scope(format!("{root}.{stage}"));
        let x = g.add(&g.upsample2(pixels), level);
        let x = g.convolution(&x, &format!("{root}.conv_layers.{stage}"), 1, 1);
        let [scale, shift] = g.weight_and_bias(&format!("{root}.norms.{stage}"));
        g.unary("Relu", &g.group_norm(&x, GROUPS, [&scale, &shift], NORM_EPS as f32))
    }

    /// ⟨e, W·p + b⟩ for every query e and pixel p, computed as ⟨Wᵀe, p⟩ + ⟨e, b⟩: this projects a few queries instead of
    /// every pixel.
    fn instance_masks(&self, g: &Graph<'w>, embedded: &Value, pixels: &Value) -> Value {
        let (side, width) = (4 * self.grid(), self.config().width);
        g.scope(format!("{ROOT}.instance_projection"));
        let [weight, bias] = g.weight_and_bias(&format!("{ROOT}.instance_projection"));
        let weight = g.reshape(&weight, &[width, width].map(Dim::from));
        let bias = g.reshape(&bias, &[width, 1].map(Dim::from));
        let projected = g.matmul(embedded, &weight);
        let offset = g.matmul(embedded, &bias);
        let flat = g.reshape(pixels, &[1, width, side * side].map(Dim::from));
        let masks = g.add(&g.matmul(&projected, &flat), &offset);
        g.reshape(&masks, &[1.into(), embedded.dims[1], side.into(), side.into()])
    }
}
