//! `backbone.onnx` with a convolutional network instead of the vision transformer.
//!
//! Batch norms are folded into the convolutions before them, and the parallel branches of RepViT into one convolution.

use super::Plan;
use super::backbone::{partition, unpartition};
use super::layers::{Folded, LinearLayer, scale_of};
use super::position::TokenOrder;
use crate::checkpoint::Weights;
use crate::config::{Student, StudentFamily, StudentOrigin};
use crate::contract::{Target, tensor};
use crate::fold::{BATCH_NORM_EPS, BatchNorm};
use crate::graph::{Dim, Element, Graph, LinearForm, Role, Value};
use crate::mixed_precision::{Block, Family};
use crate::student::{ADAPTERS, Conv, HEAD, Layer, Nonlinearity};
use ocelli_error::Result;

/// The number that linear attention adds to its divisor, so that 0 / 0 is 0.
const LINEAR_ATTENTION_EPS: f32 = 1e-15;

impl<'w> Plan<'w> {
    /// Pixels → the feature pyramid and the CLS token.
    pub(super) fn student(&self, g: &Graph<'w>, student: &'w Student) {
        let side: Dim = self.imgsz.into();
        let pixels = g.input(tensor::PIXEL_VALUES, Element::F32, &[1.into(), 3.into(), side, side]);
        let network = student.network();
        g.write_linear_as(self.linear_form());
        g.block(Block::whole(Family::Patches));
        let mut x = self.steps(g, student, &network.stem, &pixels);
        let mut stages = Vec::new();
        for (i, stage) in network.stages.iter().enumerate() {
            g.block(Block::layer(Family::Vit, i));
            x = self.steps(g, student, stage, &x);
            stages.push(x.clone());
        }
        g.write_linear_as(LinearForm::Float);
        g.block(Block::whole(Family::Neck));
        match student.origin {
            StudentOrigin::Dart => self.adapters(g, &stages),
            StudentOrigin::EfficientSam3 => {
                let map = self.head(g, &x);
                g.scope("vision_encoder.neck");
                self.pyramid(g, &map);
            }
        }
    }

    /// The features of each stage → a level of the pyramid.
    fn adapters(&self, g: &Graph<'w>, stages: &[Value]) {
        // Detection needs the coarsest level only.
        let first = if self.options.detection_only { 2 } else { 0 };
        for (level, stage) in stages.iter().enumerate().skip(first) {
            let name = format!("{ADAPTERS}.{level}");
            g.scope(name.as_str());
            let x = g.convolution(stage, &format!("{name}.proj"), 1, 0);
            let x = g.resize_linear(&x, self.grid() << (2 - level));
            self.level_output(g, &g.convolution(&x, &format!("{name}.refine"), 1, 1), level);
        }
    }

    /// The features of the last stage → what the vision transformer would give, `[1, hidden, P, P]`.
    fn head(&self, g: &Graph<'w>, x: &Value) -> Value {
        g.scope(HEAD);
        let shape = g.weight_dims(&format!("{HEAD}.0.weight"));
        let first = Conv::of_pixels(format!("{HEAD}.0"), format!("{HEAD}.1"), [shape[1], shape[0]]);
        let x = folded_conv(g, x, &first, BATCH_NORM_EPS);
        let x = g.convolution(&g.gelu(&x, false), &format!("{HEAD}.3"), 1, 1);
        g.resize_linear(&x, self.grid())
    }

    fn steps(&self, g: &Graph<'w>, student: &Student, layers: &[Layer], x: &Value) -> Value {
        let mut x = x.clone();
        for layer in layers {
            x = self.step(g, student, layer, &x);
        }
        x
    }

    fn step(&self, g: &Graph<'w>, student: &Student, layer: &Layer, x: &Value) -> Value {
        let eps = match student.family {
            StudentFamily::EfficientVitL => 1e-7,
            _ => BATCH_NORM_EPS,
        };
        match layer {
            Layer::Conv(conv) => folded_conv(g, x, conv, eps),
            Layer::Activate(Nonlinearity::Gelu) => g.gelu(x, false),
            Layer::Activate(Nonlinearity::GeluTanh) => g.gelu(x, true),
            Layer::Activate(Nonlinearity::HardSwish) => g.unary("HardSwish", x),
            Layer::Residual(layers) => g.add(x, &self.steps(g, student, layers, x)),
            Layer::RepMixer { name, width } => rep_mixer(g, x, name, *width, eps),
            Layer::Gate { name, .. } => {
                g.scope(name.as_str());
                let hidden = g.convolution(&g.channel_means(x), &format!("{name}.fc1"), 1, 0);
                let gate = g.convolution(&g.unary("Relu", &hidden), &format!("{name}.fc2"), 1, 0);
                g.mul(x, &g.unary("Sigmoid", &gate))
            }
            Layer::Windows { name, width, heads, window } => {
                self.windows(g, x, name, [*width, *heads, *window])
            }
            Layer::Perceptron { name, width } => {
                g.scope(name.as_str());
                let (tokens, side) = to_tokens(g, x, *width);
                let normed = g.norm(&tokens, &format!("{name}.norm"));
                let hidden = g.gelu(&g.linear(&normed, &format!("{name}.fc1")), false);
                let out = g.linear(&hidden, &format!("{name}.fc2"));
                to_map(g, &out, *width, side)
            }
            Layer::LinearAttention { name, width, heads } => {
                linear_attention(g, x, name, *width, *heads, eps)
            }
        }
    }

    /// Attention inside windows. The map is padded with zeros before the norm, which makes its bias of them, and they are
    /// attended to.
    fn windows(&self, g: &Graph<'w>, x: &Value, name: &str, [width, heads, window]: [usize; 3]) -> Value {
        g.scope(name);
        let (tokens, side) = to_tokens(g, x, width);
        let order = TokenOrder { grid: side, window };
        let tokens = partition(g, &tokens, order, width);
        let (count, length) = ((order.padded() / window).pow(2), window * window);
        let normed = g.norm(&tokens, &format!("{name}.norm"));
        // Rows are grouped by heads, each with its queries, keys and values; here all queries come first.
        let head = width / heads;
        let row = |row: usize| {
            let (part, channel) = (row / width, row % width);
            (channel / head * 3 + part) * head + channel % head
        };
        let qkv = LinearLayer {
            order: (0..3 * width).map(row).collect(),
            ..LinearLayer::new(&format!("{name}.qkv"))
        };
        let qkv = g.linear_layer(&normed, &qkv);
        let qkv = g.reshape(&qkv, &[count, length, 3 * width].map(Dim::from));
        let [q, k, v] = g.split_last(&qkv, 3).try_into().expect("three parts");
        let key = format!("{name}.attention_biases");
        let bias = g.derived(&format!("{key}.by_pair"), &[1, heads, length, length], move |weights| {
            let table = weights.read(&key)?;
            let pair = |head: usize, a: usize, b: usize| {
                let distance = |a: usize, b: usize| a.abs_diff(b);
                let at = distance(a / window, b / window) * window + distance(a % window, b % window);
                table[head * length + at]
            };
            let pairs =
                (0..heads * length * length).map(|i| (i / length / length, i / length % length, i % length));
            Ok(pairs.map(|(head, a, b)| pair(head, a, b)).collect())
        });
        let q = match self.options.target {
            Target::OnnxRuntime => q,
            Target::TensorRt => g.as_role(Role::Attention, |g| g.scale(&q, scale_of(head))),
        };
        let mixed = g.attend([&q, &k, &v], heads, Some(&bias));
        let mixed = unpartition(g, &mixed, order, width);
        let mixed = g.linear(&mixed, &format!("{name}.proj"));
        to_map(g, &mixed, width, side)
    }
}

/// `[1, width, side, side]` → `[side · side, width]`.
fn to_tokens(g: &Graph<'_>, x: &Value, width: usize) -> (Value, usize) {
    let side = match x.dims[2] {
        Dim::Fixed(side) => side,
        Dim::Named(_) => 0,
    };
    (g.transpose(&g.reshape(x, &[width, side * side].map(Dim::from)), &[1, 0]), side)
}

/// `[side · side, width]` → `[1, width, side, side]`.
fn to_map(g: &Graph<'_>, x: &Value, width: usize, side: usize) -> Value {
    g.reshape(&g.transpose(x, &[1, 0]), &[1, width, side, side].map(Dim::from))
}

/// A convolution with its batch norm folded in.
fn folded_conv<'w>(g: &Graph<'w>, x: &Value, conv: &Conv, eps: f64) -> Value {
    g.scope(conv.name.as_str());
    let name = &conv.name;
    let Some(norm) = &conv.norm else {
        let weight = g.weight(&format!("{name}.weight"));
        let bias = conv.bias.then(|| g.weight(&format!("{name}.bias")));
        return g.conv(x, &weight, bias.as_ref(), conv.stride, conv.kernel / 2);
    };
    let (key, norm, row) =
        (format!("{name}.weight"), norm.clone(), conv.shape()[1..].iter().product::<usize>());
    let [weight, bias] = g.folded(names_of(name), &conv.shape(), move |weights| {
        let norm = BatchNorm::read(weights, &norm, eps)?;
        let kernel = weights.read(&key)?;
        let kernel = kernel.iter().enumerate().map(|(i, w)| norm.scale[i / row] * f64::from(*w)).collect();
        Ok(Folded { kernel, bias: norm.shift })
    });
    g.conv(x, &weight, Some(&bias), conv.stride, conv.kernel / 2)
}

/// BN(BN(3×3 of x) + 1×1 of x + x), each channel for itself, as one convolution.
fn rep_mixer<'w>(g: &Graph<'w>, x: &Value, name: &str, width: usize, eps: f64) -> Value {
    g.scope(name);
    let key = name.to_owned();
    let [weight, bias] =
        g.folded(names_of(name), &[width, 1, 3, 3], move |weights| folded_mixer(weights, &key, eps));
    g.conv(x, &weight, Some(&bias), 1, 1)
}

/// The names of a convolution's kernel and bias in the graph.
fn names_of(name: &str) -> [String; 2] {
    ["weight", "bias"].map(|part| format!("{name}.{part}.folded"))
}

/// The kernels and biases of [`rep_mixer`].
fn folded_mixer(weights: &Weights, name: &str, eps: f64) -> Result<Folded> {
    let inner = BatchNorm::read(weights, &format!("{name}.conv.bn"), eps)?;
    let outer = BatchNorm::read(weights, &format!("{name}.bn"), eps)?;
    let kernels = weights.read(&format!("{name}.conv.c.weight"))?;
    let points = weights.read(&format!("{name}.conv1.weight"))?;
    let biases = weights.read(&format!("{name}.conv1.bias"))?;
    const CENTRE: usize = 4;
    let kernel = |(i, w): (usize, &f32)| {
        let channel = i / 9;
        let beside = if i % 9 == CENTRE { 1.0 + f64::from(points[channel]) } else { 0.0 };
        outer.scale[channel] * (inner.scale[channel] * f64::from(*w) + beside)
    };
    let bias = |(channel, bias): (usize, &f32)| {
        outer.shift[channel] + outer.scale[channel] * (inner.shift[channel] + f64::from(*bias))
    };
    let (kernel, bias) = (kernels.iter().enumerate().map(kernel), biases.iter().enumerate().map(bias));
    Ok(Folded { kernel: kernel.collect(), bias: bias.collect() })
}

/// Attention with ReLU instead of softmax: keys and values are multiplied first, so that the cost grows with the number
/// of pixels and not with its square. In 32 bits: its sums run over the whole map.
fn linear_attention<'w>(g: &Graph<'w>, x: &Value, name: &str, width: usize, heads: usize, eps: f64) -> Value {
    let side = x.dims[2];
    let Dim::Fixed(pixels) = side else { return x.clone() };
    let (pixels, head) = (pixels * pixels, width / heads);
    g.scope(name);
    let weight = g.weight(&format!("{name}.qkv.conv.weight"));
    let near = g.conv(x, &weight, None, 1, 0);
    let far = g.conv(&near, &g.weight(&format!("{name}.aggreg.0.0.weight")), None, 1, 2);
    let far = g.conv(&far, &g.weight(&format!("{name}.aggreg.0.1.weight")), None, 1, 0);
    let both = g.concat(&[&near, &far], 1, 6 * width);
    // Channels are grouped by heads, each with its queries, keys and values.
    let both = g.reshape(&both, &[2 * heads, 3 * head, pixels].map(Dim::from));
    let mixed = g.as_role(Role::Exact, |g| {
        let [q, k, v] = [0, 1, 2].map(|part| g.slice(&both, 1, part * head, (part + 1) * head));
        let [q, k] = [q, k].map(|x| g.unary("Relu", &x));
        let keys = g.transpose(&k, &[0, 2, 1]);
        let products = g.matmul(&v, &keys); // [2 · heads, head, head]
        let sums = g.sum(&keys, 1); // [2 · heads, 1, head]
        let mixed = g.matmul(&products, &q);
        let total = g.matmul(&sums, &q);
        let total = g.add(&total, &g.scalar(LINEAR_ATTENTION_EPS));
        g.div(&mixed, &total)
    });
    let mixed = g.reshape(&mixed, &[1.into(), (2 * width).into(), side, side]);
    let out = Conv::of_pixels(format!("{name}.proj.conv"), format!("{name}.proj.norm"), [2 * width, width]);
    folded_conv(g, &mixed, &out, eps)
}
