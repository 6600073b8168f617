//! Layers that several parts share.

use crate::checkpoint::Weights;
use crate::config::{Activation, Stack};
use crate::contract::{Target, dim, tensor};
use crate::fold::NORM_EPS;
use crate::graph::{Dim, Element, Graph, LinearForm, Role, Value};
use ocelli_error::Result;

impl<'w> Graph<'w> {
    /// x · Wᵀ + b over the last axis; the file stores the transposed weight.
    pub(crate) fn linear(&self, x: &Value, name: &str) -> Value {
        self.linear_layer(x, &LinearLayer::new(name))
    }

    /// As [`linear`](Self::linear), for a layer with options.
    pub(super) fn linear_layer(&self, x: &Value, layer: &LinearLayer) -> Value {
        match self.linear_form() {
            LinearForm::Integers if !layer.exact => return self.quantized_linear(x, layer),
            LinearForm::Codes if !layer.exact => return self.linear_of_codes(x, layer),
            LinearForm::Static(format) if !layer.exact => return self.static_linear(x, layer, format),
            _ => {}
        }
        self.observe_input(x, layer);
        let name = format!("{}.weight", layer.name);
        let dims = self.weight_dims(&name);
        let (rows, columns) = (dims[0], dims[1..].iter().product());
        let (file_name, layer_of_weight) = (format!("{name}.T{}", layer.suffix()), layer.clone());
        let weight = self.derived(&file_name, &[columns, rows], move |weights| {
            Ok(transpose(&layer_of_weight.prepared(weights.read(&name)?, columns), rows, columns))
        });
        let product = self.matmul(x, &weight);
        let bias = self.linear_bias(layer);
        self.as_role(Role::Product, |g| g.add(&product, &bias))
    }

    /// A linear layer's bias.
    pub(super) fn linear_bias(&self, layer: &LinearLayer) -> Value {
        let name = format!("{}.bias", layer.name);
        if layer.is_unchanged() {
            return self.weight(&name);
        }
        let (dims, layer) = (self.weight_dims(&name), layer.clone());
        self.derived(&format!("{name}{}", layer.suffix()), &dims, move |weights| {
            Ok(layer.prepared(weights.read(&name)?, 1))
        })
    }

    /// Layer norm with the checkpoint's scale and bias.
    pub(crate) fn norm(&self, x: &Value, name: &str) -> Value {
        self.norm_with(x, name, NORM_EPS as f32)
    }

    /// As [`norm`](Self::norm), with a configured epsilon.
    pub(crate) fn norm_with(&self, x: &Value, name: &str, eps: f32) -> Value {
        let [scale, bias] = self.weight_and_bias(name);
        self.layer_norm(x, &scale, &bias, eps)
    }

    /// The two tensors of a module of the checkpoint.
    pub(crate) fn weight_and_bias(&self, name: &str) -> [Value; 2] {
        ["weight", "bias"].map(|part| self.weight(&format!("{name}.{part}")))
    }

    /// A convolution of the checkpoint.
    pub(crate) fn convolution(&self, x: &Value, name: &str, stride: usize, pad: usize) -> Value {
        let [weight, bias] = self.weight_and_bias(name);
        self.conv(x, &weight, Some(&bias), stride, pad)
    }

    /// A transposed convolution of the checkpoint, which doubles the sides.
    pub(crate) fn convolution_transpose(&self, x: &Value, name: &str) -> Value {
        let [weight, bias] = self.weight_and_bias(name);
        self.conv_transpose2(x, &weight, &bias)
    }

    /// The kernel and the bias that `fold` computes, under these names.
    pub(super) fn folded(
        &self,
        names: [String; 2],
        shape: &[usize],
        fold: impl Fn(&Weights) -> Result<Folded> + Clone + 'w,
    ) -> [Value; 2] {
        let to_f32 = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
        let again = fold.clone();
        let kernel = self.derived(&names[0], shape, move |weights| Ok(to_f32(fold(weights)?.kernel)));
        let bias = self.derived(&names[1], &shape[..1], move |weights| Ok(to_f32(again(weights)?.bias)));
        [kernel, bias]
    }

    /// The activation of a feed-forward network.
    pub(crate) fn activation(&self, x: &Value, activation: Activation) -> Value {
        match activation {
            Activation::Gelu => self.gelu(x, false),
            Activation::GeluTanh => self.gelu(x, true),
            Activation::Relu => self.unary("Relu", x),
            Activation::QuickGelu => {
                let gate = self.unary("Sigmoid", &self.scale(x, 1.702));
                self.mul(x, &gate)
            }
            Activation::Silu => self.mul(x, &self.unary("Sigmoid", x)),
        }
    }

    /// `fc1` → activation → `fc2`.
    pub(crate) fn feed_forward(&self, x: &Value, name: &str, stack: &Stack) -> Value {
        let hidden = self.activation(&self.linear(x, &format!("{name}.fc1")), stack.activation);
        let last =
            LinearLayer { floor: Some(stack.activation.floor()), ..LinearLayer::new(&format!("{name}.fc2")) };
        self.linear_layer(&hidden, &last)
    }

    /// `layer1 … layerN` with ReLU between them.
    pub(crate) fn perceptron(&self, x: &Value, name: &str, layers: usize) -> Value {
        self.layers_in_turn(x, (1..=layers).map(|i| format!("{name}.layer{i}")))
    }

    /// Linear layers with ReLU between them.
    pub(crate) fn layers_in_turn(&self, x: &Value, names: impl IntoIterator<Item = String>) -> Value {
        let mut names = names.into_iter();
        let first = names.next().map_or_else(|| x.clone(), |name| self.linear(x, &name));
        names.fold(first, |x, name| {
            let x = self.unary("Relu", &x);
            self.linear_layer(&x, &LinearLayer { floor: Some(0.0), ..LinearLayer::new(&name) })
        })
    }

    /// `[batch, channels, h, w]` → `[batch, h·w, channels]`.
    pub(super) fn tokens_of(&self, map: &Value) -> Value {
        let &[batch, channels, Dim::Fixed(h), Dim::Fixed(w)] = map.dims.as_slice() else {
            return map.clone();
        };
        self.transpose(&self.reshape(map, &[batch, channels, (h * w).into()]), &[0, 2, 1])
    }

    /// `[batch, tokens, heads · head]` → `[batch, heads, tokens, head]`.
    pub(crate) fn split_heads(&self, x: &Value, heads: usize) -> Value {
        let Dim::Fixed(width) = x.dims[2] else { return x.clone() };
        let split = self.reshape(x, &[x.dims[0], x.dims[1], heads.into(), (width / heads).into()]);
        self.transpose(&split, &[0, 2, 1, 3])
    }

    /// Q·Kᵀ + bias → softmax → ·V over split heads, for queries that are scaled already; batches broadcast.
    pub(crate) fn explicit_attention(&self, [q, k, v]: [&Value; 3], bias: Option<&Value>) -> Value {
        let keys = self.transpose(k, &[0, 1, 3, 2]);
        let mixed = self.as_role(Role::Attention, |g| {
            let scores = g.matmul(q, &keys);
            let scores = bias.map_or(scores.clone(), |bias| g.add(&scores, bias));
            g.matmul(&g.softmax(&scores), v)
        });
        let joined = self.transpose(&mixed, &[0, 2, 1, 3]);
        let [batch, tokens, heads, head] = [0, 1, 2, 3].map(|i| joined.dims[i]);
        let (Dim::Fixed(heads), Dim::Fixed(head)) = (heads, head) else { return joined };
        self.reshape(&joined, &[batch, tokens, (heads * head).into()])
    }

    /// Attention over `[batch, tokens, width]` as projected by [`queries_of`](LinearLayer::queries_of) and two more layers,
    /// fused if the target has an operator for it.
    pub(crate) fn attend(&self, qkv: [&Value; 3], heads: usize, bias: Option<&Value>) -> Value {
        match (self.target, qkv[0].dims[2]) {
            (Target::OnnxRuntime, Dim::Fixed(width)) => {
                self.fused_attention(qkv, heads, scale_of(width / heads), bias)
            }
            _ => {
                let [q, k, v] = qkv.map(|x| self.split_heads(x, heads));
                self.explicit_attention([&q, &k, &v], bias)
            }
        }
    }

    /// A module's attention with its four projections.
    pub(crate) fn attention(&self, name: &str, qkv: [&Value; 3], heads: usize) -> Value {
        let [q, k, v] = self.projections(name, qkv, heads);
        self.linear(&self.attend([&q, &k, &v], heads, None), &format!("{name}.o_proj"))
    }

    /// Attention of queries to the prompt of a class. A prompt is short, so basic operators are enough; queries that all
    /// classes share, `[1, tokens, width]`, stay shared.
    pub(crate) fn prompt_attention(&self, name: &str, q: &Value, prompt: &Prompt, heads: usize) -> Value {
        self.attend_prompt(name, &self.prompt_queries(name, q, heads), prompt, heads)
    }

    /// Queries for [`attend_prompt`](Self::attend_prompt): projected, scaled and split.
    pub(crate) fn prompt_queries(&self, name: &str, x: &Value, heads: usize) -> Value {
        let layer = LinearLayer::new(&format!("{name}.q_proj")).scaled_for(self, heads);
        self.split_heads(&self.linear_layer(x, &layer), heads)
    }

    /// As [`prompt_attention`](Self::prompt_attention), with the queries of [`prompt_queries`](Self::prompt_queries).
    pub(crate) fn attend_prompt(&self, name: &str, q: &Value, prompt: &Prompt, heads: usize) -> Value {
        let [k, v] = ["k_proj", "v_proj"].map(|projection| {
            let layer = LinearLayer { exact: true, ..LinearLayer::new(&format!("{name}.{projection}")) };
            let projected = self.as_role(Role::PromptProduct, |g| g.linear_layer(&prompt.features, &layer));
            self.split_heads(&projected, heads)
        });
        let mixed = self.explicit_attention([q, &k, &v], Some(&prompt.bias));
        self.linear(&mixed, &format!("{name}.o_proj"))
    }

    /// The inputs `prompt_features` and `prompt_mask`, and the bias of the scores that masks padding.
    pub(crate) fn prompt_input(&self, batch: Dim, width: usize) -> Prompt {
        let tokens = Dim::Named(dim::PROMPT_TOKENS);
        let features = self.input(tensor::PROMPT_FEATURES, Element::F32, &[batch, tokens, width.into()]);
        let mask = self.input(tensor::PROMPT_MASK, Element::I64, &[batch, tokens]);
        let [valid, bias] = self.padding(&mask);
        Prompt { features, valid, bias }
    }

    /// A mask `[batch, tokens]` as numbers, and as the bias of scores, `[batch, 1, 1, tokens]`: 0 where it is 1, and −10⁴ where it
    /// is 0. exp(−10⁴) is zero and −10⁴ is finite in every number format in use.
    pub(crate) fn padding(&self, mask: &Value) -> [Value; 2] {
        let valid = self.cast(mask, Element::F32);
        let bias = self.as_role(Role::Attention, |g| {
            let absent = g.sub(&valid, &g.scalar(1.0));
            g.scale(&absent, 1e4)
        });
        let bias = self.reshape(&bias, &[mask.dims[0], 1.into(), 1.into(), mask.dims[1]]);
        [valid, bias]
    }
}

/// A convolution with what follows it in the checkpoint: `[output, …]`, `[output]`.
pub(super) struct Folded {
    pub(super) kernel: Vec<f64>,
    pub(super) bias: Vec<f64>,
}

/// A linear layer of the checkpoint.
#[derive(Clone)]
pub(super) struct LinearLayer {
    /// Of the module.
    pub(super) name: String,
    /// The rows of the weight in the order in which they are written; empty for the checkpoint's order.
    pub(super) order: Vec<usize>,
    /// Multiplies weight and bias.
    pub(super) scale: f32,
    /// A lower bound of the inputs, if one is known: at most 0.
    pub(super) floor: Option<f32>,
    /// Computes in floating point in every precision: it has few inputs and gains nothing from integers.
    pub(super) exact: bool,
}

impl LinearLayer {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), order: Vec::new(), scale: 1.0, floor: None, exact: false }
    }

    /// The projection of an attention's queries: scaled by 1/√head where attention is written in basic operators.
    pub(super) fn queries_of(g: &Graph<'_>, attention: &str, heads: usize) -> Self {
        let layer = Self::new(&format!("{attention}.q_proj"));
        match g.target {
            Target::OnnxRuntime => layer,
            Target::TensorRt => layer.scaled_for(g, heads),
        }
    }

    /// The same layer with results multiplied by 1/√head.
    pub(super) fn scaled_for(self, g: &Graph<'_>, heads: usize) -> Self {
        let width = g.weight_dims(&format!("{}.weight", self.name))[0];
        Self { scale: scale_of(width / heads), ..self }
    }

    /// `true` if the weight is written as in the checkpoint.
    fn is_unchanged(&self) -> bool {
        self.order.is_empty() && self.scale == 1.0
    }

    /// Rows of `columns` numbers in the layer's order, scaled.
    pub(super) fn prepared(&self, mut data: Vec<f32>, columns: usize) -> Vec<f32> {
        if !self.order.is_empty() {
            let rows = self.order.iter().map(|row| row * columns);
            data = rows.flat_map(|at| data[at..at + columns].iter().copied()).collect();
        }
        if self.scale != 1.0 {
            data.iter_mut().for_each(|value| *value *= self.scale);
        }
        data
    }

    /// The suffix for the name of a changed tensor.
    pub(super) fn suffix(&self) -> &'static str {
        match (self.order.is_empty(), self.scale == 1.0) {
            (true, true) => "",
            (false, true) => ".reordered",
            (true, false) => ".scaled",
            (false, false) => ".reordered.scaled",
        }
    }
}

/// A prompt in a graph.
pub(crate) struct Prompt {
    /// f32 `[C, T, D]`.
    pub(crate) features: Value,
    /// f32 `[C, T]`, 1 = token.
    pub(crate) valid: Value,
    /// f32 `[C, 1, 1, T]`, the bias of attention scores.
    pub(crate) bias: Value,
}

/// The factor of an attention's scores.
pub(super) fn scale_of(head: usize) -> f32 {
    1.0 / (head as f32).sqrt()
}

/// Transposes a matrix, in tiles that fit the cache.
pub(crate) fn transpose<T: Copy + Default>(data: &[T], rows: usize, columns: usize) -> Vec<T> {
    const TILE: usize = 32;
    let mut out = vec![T::default(); data.len()];
    for r0 in (0..rows).step_by(TILE) {
        for c0 in (0..columns).step_by(TILE) {
            for r in r0..(r0 + TILE).min(rows) {
                for c in c0..(c0 + TILE).min(columns) {
                    out[c * rows + r] = data[r * columns + c];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn transposing() {
        for (rows, columns) in [(1, 1), (2, 3), (33, 65), (64, 1)] {
            let data: Vec<f32> = (0..rows * columns).map(|n| n as f32).collect();
            let out = super::transpose(&data, rows, columns);
            let wrong = (0..rows * columns).find(|i| out[(i % columns) * rows + i / columns] != data[*i]);
            assert_eq!(wrong, None, "{rows}×{columns}");
        }
    }
}
