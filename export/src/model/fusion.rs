//! The fusion encoder: image tokens attend to the prompt.

use super::Plan;
use super::layers::Prompt;
use crate::graph::{Graph, LinearForm, Value};
use crate::mixed_precision::{Block, Family};

impl<'w> Plan<'w> {
    /// Image tokens `[1, P·P, D]` and prompts of C classes → `[C, P·P, D]`.
    ///
    /// All classes share the image up to the first attention to the prompt, so that the first layer's self-attention is
    /// computed once.
    pub(super) fn fusion_encoder(
        &self,
        g: &Graph<'w>,
        image: &Value,
        positions: &Value,
        prompt: &Prompt,
    ) -> Value {
        let stack = &self.config().encoder;
        let mut x = image.clone();
        g.write_linear_as(self.linear_form());
        for i in 0..stack.layers {
            let layer = format!("detr_encoder.layers.{i}");
            g.scope(layer.as_str());
            g.block(Block::layer(Family::Fusion, i));
            let normed = g.norm(&x, &format!("{layer}.layer_norm1"));
            let placed = g.add(&normed, positions);
            let attention = format!("{layer}.self_attn");
            x = g.add(&x, &g.attention(&attention, [&placed, &placed, &normed], stack.heads));
            let normed = g.norm(&x, &format!("{layer}.layer_norm2"));
            let mixed = g.prompt_attention(&format!("{layer}.cross_attn"), &normed, prompt, stack.heads);
            x = g.add(&x, &mixed);
            let normed = g.norm(&x, &format!("{layer}.layer_norm3"));
            x = g.add(&x, &g.feed_forward(&normed, &format!("{layer}.mlp"), stack));
        }
        g.write_linear_as(LinearForm::Float);
        x
    }
}
