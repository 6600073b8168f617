//! `text_encoder.onnx`: CLIP's text transformer and the detector's projection of its hidden states.

use super::Plan;
use crate::config::TextEncoder;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};
use crate::mixed_precision::{Block, Family};

const CLIP: &str = "text_encoder.text_model";

impl<'w> Plan<'w> {
    /// Token ids → text features.
    pub(crate) fn text_encoder(&self) -> Graph<'w> {
        match self.config().text.encoder {
            TextEncoder::Clip => self.clip(),
            TextEncoder::MobileClip(text) => self.mobile_clip(text),
        }
    }

    fn clip(&self) -> Graph<'w> {
        let graph = self.graph("text_encoder");
        let g = &graph;
        let t = &self.config().text;
        let (classes, length) = (Dim::Named(dim::CLASSES), t.context_length);
        let ids = g.input(tensor::INPUT_IDS, Element::I64, &[classes, length.into()]);
        let mask = g.input(tensor::ATTENTION_MASK, Element::I64, &[classes, length.into()]);

        g.scope(format!("{CLIP}.embeddings"));
        g.block(Block::whole(Family::Words));
        let table = g.weight(&format!("{CLIP}.embeddings.token_embedding.weight"));
        let tokens = g.gather_rows(&table, &ids);
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
        graph
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
