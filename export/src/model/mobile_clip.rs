//! `text_encoder.onnx` with MobileCLIP's text transformer: no order of tokens, and layers that mix tokens by convolution.

use super::Plan;
use super::layers::Folded;
use crate::checkpoint::Weights;
use crate::config::MobileClip;
use crate::contract::{TextPadding, dim};
use crate::fold::{BATCH_NORM_EPS, BatchNorm};
use crate::graph::{Dim, Graph, Value};
use crate::mixed_precision::{Block, Family};
use ocelli_error::Result;

const ROOT: &str = "text_encoder";

impl<'w> Plan<'w> {
    /// Token ids → text features.
    pub(super) fn mobile_clip(&self, g: &Graph<'w>, text: MobileClip) {
        let t = &self.config().text;
        let length = t.context_length;
        let [tokens, mask] = self.embedded_tokens(g, ROOT);
        let name = format!("{ROOT}.embeddings.position_embedding.position_embedding");
        let (key, hidden) = (name.clone(), t.hidden);
        let positions = g.derived(&format!("{name}.resized"), &[length, hidden], move |weights| {
            Ok(resize_rows(&weights.read(&key)?, hidden, length))
        });
        let mut x = g.add(&tokens, &positions);
        let bias = (text.padding == TextPadding::Transformers).then(|| {
            let [_, padding] = g.padding(&mask);
            padding
        });

        for i in 0..t.stack.layers {
            let layer = format!("{ROOT}.layers.{i}");
            g.scope(layer.as_str());
            g.block(Block::layer(Family::Text, i));
            if text.rep_mixer && (i == 0 || i + 1 == t.stack.layers) {
                x = self.rep_mixer(g, &x, &layer, text.kernel);
                continue;
            }
            x = self.text_layer(g, &x, &layer, bias.as_ref());
        }
        self.text_features(g, &x, ROOT);
    }

    /// A layer that mixes tokens by convolution; x `[C, L, hidden]`. The token mixer with its residual sum, its three
    /// batch norms and its scale is one convolution.
    fn rep_mixer(&self, g: &Graph<'w>, x: &Value, layer: &str, kernel: usize) -> Value {
        let t = &self.config().text;
        let (hidden, length) = (t.hidden, t.context_length);
        let name = layer.to_owned();
        let x = self.conv_tokens(g, x, &format!("{layer}.token_mixer"), kernel, move |weights| {
            token_mixer(weights, &name, hidden, kernel)
        });
        let name = layer.to_owned();
        let mixed = self.conv_tokens(g, &x, &format!("{layer}.conv_feed_forward"), kernel, move |weights| {
            let norm = BatchNorm::read(
                weights,
                &format!("{name}.conv_feed_forward.depthwise_batchnorm"),
                BATCH_NORM_EPS,
            )?;
            let weight = weights.read(&format!("{name}.conv_feed_forward.depthwise_conv.weight"))?;
            let scaled = weight.iter().enumerate().map(|(i, w)| norm.scale[i / kernel] * f64::from(*w));
            Ok(Folded { kernel: scaled.collect(), bias: norm.shift })
        });
        let out = g.feed_forward(&mixed, &format!("{layer}.conv_feed_forward.mlp"), &t.stack);
        let key = format!("{layer}.layer_scale");
        let scale = g.derived(&format!("{key}.flat"), &[hidden], move |weights| weights.read(&key));
        let sum = g.add(&x, &g.mul(&out, &scale));
        g.reshape(&sum, &[Dim::Named(dim::CLASSES), length.into(), hidden.into()])
    }

    /// A convolution of every channel along the tokens, `[C, L, hidden]` → `[C, L, hidden]`.
    fn conv_tokens(
        &self,
        g: &Graph<'w>,
        x: &Value,
        name: &str,
        kernel: usize,
        fold: impl Fn(&Weights) -> Result<Folded> + Clone + 'w,
    ) -> Value {
        let t = &self.config().text;
        let (classes, hidden, length) = (Dim::Named(dim::CLASSES), t.hidden, t.context_length);
        let names = ["", ".bias"].map(|part| format!("{name}.folded{part}"));
        let [weight, bias] = g.folded(names, &[hidden, 1, 1, kernel], fold);
        let columns = g.transpose(x, &[0, 2, 1]);
        let columns = g.reshape(&columns, &[classes, hidden.into(), 1.into(), length.into()]);
        let mixed = g.conv_rows(&columns, &weight, &bias);
        g.transpose(&g.reshape(&mixed, &[classes, hidden.into(), length.into()]), &[0, 2, 1])
    }
}

/// x + s · (BN(conv x) + BN(x) − BN(x)), with three batch norms, as one convolution.
fn token_mixer(weights: &Weights, layer: &str, hidden: usize, kernel: usize) -> Result<Folded> {
    let mixer = format!("{layer}.token_mixer");
    let conv = BatchNorm::read(weights, &format!("{mixer}.mixer.batchnorm_conv"), BATCH_NORM_EPS)?;
    let skip = BatchNorm::read(weights, &format!("{mixer}.mixer.batchnorm_skip"), BATCH_NORM_EPS)?;
    let reference = BatchNorm::read(weights, &format!("{mixer}.reference_batchnorm"), BATCH_NORM_EPS)?;
    let scale = weights.read(&format!("{mixer}.layer_scale"))?;
    let weight = weights.read(&format!("{mixer}.mixer.conv.weight"))?;
    let mut folded = Folded { kernel: Vec::with_capacity(hidden * kernel), bias: Vec::with_capacity(hidden) };
    for channel in 0..hidden {
        let s = f64::from(scale[channel]);
        let row = &weight[channel * kernel..(channel + 1) * kernel];
        let centre = 1.0 + s * (skip.scale[channel] - reference.scale[channel]);
        folded.kernel.extend(row.iter().enumerate().map(|(i, w)| {
            s * conv.scale[channel] * f64::from(*w) + if i == kernel / 2 { centre } else { 0.0 }
        }));
        folded.bias.push(s * (conv.shift[channel] + skip.shift[channel] - reference.shift[channel]));
    }
    Ok(folded)
}

/// Resizes the rows of a table to `rows`, linearly between the centres of rows.
fn resize_rows(table: &[f32], columns: usize, rows: usize) -> Vec<f32> {
    let found = table.len() / columns;
    if found == rows {
        return table.to_vec();
    }
    let mut resized = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        let place = ((row as f64 + 0.5) * found as f64 / rows as f64 - 0.5).max(0.0);
        let low = (place as usize).min(found - 1);
        let high = (low + 1).min(found - 1);
        let part = place - low as f64;
        let at = |row: usize, column: usize| f64::from(table[row * columns + column]);
        resized.extend((0..columns).map(|c| (at(low, c) * (1.0 - part) + at(high, c) * part) as f32));
    }
    resized
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_are_resized_between_their_centres() {
        let table = [0.0, 10.0, 1.0, 11.0, 2.0, 12.0];
        assert_eq!(super::resize_rows(&table, 2, 3), table);
        assert_eq!(super::resize_rows(&table, 2, 1), [1.0, 11.0]);
        let twice = [0.0, 10.0, 0.25, 10.25, 0.75, 10.75, 1.25, 11.25, 1.75, 11.75, 2.0, 12.0];
        assert_eq!(super::resize_rows(&table, 2, 6), twice);
    }
}
