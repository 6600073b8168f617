//! `text_encoder.onnx`: CLIP's text transformer and the detector's projection of its hidden states.

use super::Plan;
use crate::config::TextEncoder;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};
use crate::mixed_precision::{Block, Family};

const CLIP: &str = "text_encoder.text_model";

impl<'w> Plan<'w> {
    /// Token ids → text features.
    pub(crate) fn text_encoder(&self, g: &Graph<'w>) {
        match self.config().text.encoder {
            TextEncoder::Clip => self.clip(g),
            TextEncoder::MobileClip(text) => self.mobile_clip(g, text),
        }
    }

    fn clip(&self, g: &Graph<'w>) {
        let t = &self.config().text;
        let length = t.context_length;
        let [tokens, mask] = self.embedded_tokens(g, CLIP);
        let positions = g.weight(&format!("{CLIP}.embeddings.position_embedding.weight"));
        let mut x = g.add(&tokens, &positions);

        // A token attends to itself and the tokens before it, except padding.
        let [_, padding] = g.padding(&mask);
        let later: Vec<f32> =
            (0..length * length).map(|i| if i % length > i / length { -1e4 } else { 0.0 }).collect();
        let later = g.constant("causal", &[1, 1, length, length], &later);
        let bias = g.as_role(Role::Attention, |g| g.add(&padding, &later));

        for i in 0..t.stack.layers {
            let layer = format!("{CLIP}.encoder.layers.{i}");
            g.scope(layer.as_str());
            g.block(Block::layer(Family::Text, i));
            x = self.text_layer(g, &x, &layer, Some(&bias));
        }
        self.text_features(g, &x, CLIP);
    }

    /// The inputs: the tokens, embedded, `[C, L, hidden]`, and the mask, `[C, L]`, which the runtime passes even to a graph
    /// that does not use it.
    pub(super) fn embedded_tokens(&self, g: &Graph<'w>, root: &str) -> [Value; 2] {
        let shape = [Dim::Named(dim::CLASSES), self.config().text.context_length.into()];
        let [ids, mask] =
            [tensor::INPUT_IDS, tensor::ATTENTION_MASK].map(|name| g.input(name, Element::I64, &shape));
        g.scope(format!("{root}.embeddings"));
        g.block(Block::whole(Family::Words));
        let table = g.weight(&format!("{root}.embeddings.token_embedding.weight"));
        [g.gather_rows(&table, &ids), mask]
    }

    /// A layer with attention and a feed-forward network.
    pub(super) fn text_layer(&self, g: &Graph<'w>, x: &Value, name: &str, bias: Option<&Value>) -> Value {
        let t = &self.config().text;
        let normed = g.norm_with(x, &format!("{name}.layer_norm1"), t.layer_norm_eps);
        let attention = format!("{name}.self_attn");
        let mixed = g.explicit_self_attention(&attention, &normed, t.stack.heads, bias);
        let x = g.add(x, &g.linear(&mixed, &format!("{attention}.out_proj")));
        let normed = g.norm_with(&x, &format!("{name}.layer_norm2"), t.layer_norm_eps);
        g.add(&x, &g.feed_forward(&normed, &format!("{name}.mlp"), &t.stack))
    }

    /// The hidden states of the last layer → the output, in the detector's width.
    pub(super) fn text_features(&self, g: &Graph<'w>, x: &Value, root: &str) {
        let t = &self.config().text;
        g.scope("text_projection");
        g.block(Block::whole(Family::Words));
        let x = g.norm_with(x, &format!("{root}.final_layer_norm"), t.layer_norm_eps);
        let x = g.linear(&x, "text_projection");
        let shape = [Dim::Named(dim::CLASSES), t.context_length.into(), self.config().width.into()];
        g.output(tensor::TEXT_FEATURES, &x, &shape);
    }
}
