//! The decoder: queries attend to prompt and image, and refine their boxes layer by layer.

use std::f64::consts::TAU;

use super::Plan;
use super::geometry::encode_sine;
use super::joined::SharedTokens;
use super::layers::{Prompt, scale_of};
use super::position::{sine_encoding, sine_frequencies};
use crate::checkpoint::Weights;
use crate::fold::{self, Matrix};
use crate::graph::{Dim, Graph, Role, Value};
use crate::mixed_precision::{Block, Family};
use ocelli_error::Result;

const ROOT: &str = "detr_decoder";
/// Presence logits are clamped to ± this.
const MAX_PRESENCE: f32 = 10.0;
/// The least distance of boxes from 0 and 1 when they become logits.
const BOX_EPS: f64 = 1e-3;
/// The number of units in an image side, for the logarithmic distances of the box bias.
const BIAS_UNITS: f64 = 8.0;

/// The decoder's output for C classes.
pub(super) struct Decoded {
    /// `[C, Q, D]`, after the output norm.
    pub(super) queries: Value,
    /// `[C, Q, 4]` xyxy.
    pub(super) boxes: Value,
    /// `[C, 1]` logits.
    pub(super) presence: Value,
}

/// The inputs of a layer besides image and prompt. In the first layer they are constants of the checkpoint, with 1
/// instead of C.
struct LayerInput {
    /// Hidden states after the self-attention, `[C, 1 + Q, D]`.
    hidden: Value,
    /// Queries of the prompt cross-attention, projected, scaled and split, `[C, heads, 1 + Q, head]`.
    prompt_queries: Value,
    /// Positions of the queries, zero for the presence token, `[C, 1 + Q, D]`.
    query_positions: Value,
    /// Box bias of the image cross-attention, `[C, heads, 1 + Q, P·P]`.
    bias: Value,
    /// Logits of the boxes before the layer, cxcywh, `[C, Q, 4]`.
    box_logits: Value,
}

impl<'w> Plan<'w> {
    /// Encoded image `[C, P·P, D]` → queries, boxes, presence.
    pub(super) fn decode(
        &self,
        g: &Graph<'w>,
        encoded: &Value,
        positions: &Value,
        prompt: &Prompt,
    ) -> Decoded {
        let config = self.config();
        let (layers, queries) = (config.decoder.layers, config.num_queries);
        let classes = encoded.dims[0];
        g.scope(ROOT);
        g.block(Block::layer(Family::Decoder, 0));
        let keys = g.add(encoded, positions);
        let attentions: Vec<String> =
            (0..layers).map(|i| format!("{ROOT}.layers.{i}.vision_cross_attn")).collect();
        let image = SharedTokens::new(g, keys, encoded.clone(), &attentions);
        let mut input = self.first_layer(g);
        let mut layer = 0;
        loop {
            let name = format!("{ROOT}.layers.{layer}");
            g.scope(name.as_str());
            let hidden = self.layer(g, layer, &input, &image, prompt);
            g.scope(format!("{ROOT}.box_head"));
            let only_queries = g.slice(&hidden, 1, 1, 1 + queries);
            let normed = g.norm(&only_queries, &format!("{ROOT}.output_layer_norm"));
            let boxes = g.as_role(Role::Exact, |g| {
                let delta = g.perceptron(&normed, &format!("{ROOT}.box_head"), 3);
                g.unary("Sigmoid", &g.add(&delta, &input.box_logits))
            });
            layer += 1;
            if layer == layers {
                g.scope(format!("{ROOT}.presence_head"));
                let presence = g.slice(&hidden, 1, 0, 1);
                let presence = g.norm(&presence, &format!("{ROOT}.presence_layer_norm"));
                let presence = g.as_role(Role::Exact, |g| {
                    let presence = g.perceptron(&presence, &format!("{ROOT}.presence_head"), 3);
                    g.clip(&presence, Some(-MAX_PRESENCE), Some(MAX_PRESENCE))
                });
                let presence = g.reshape(&presence, &[classes, 1.into()]);
                let boxes = g.as_role(Role::Exact, |g| corners(g, &boxes));
                return Decoded { queries: normed, boxes, presence };
            }
            g.block(Block::layer(Family::Decoder, layer));
            input = self.next_layer(g, layer, &hidden, &boxes);
        }
    }

    /// A layer after its self-attention.
    fn layer(
        &self,
        g: &Graph<'w>,
        at: usize,
        input: &LayerInput,
        image: &SharedTokens,
        prompt: &Prompt,
    ) -> Value {
        let stack = &self.config().decoder;
        let name = format!("{ROOT}.layers.{at}");
        let attention = format!("{name}.text_cross_attn");
        let mixed = g.attend_prompt(&attention, &input.prompt_queries, prompt, stack.heads);
        let x = g.norm(&g.add(&input.hidden, &mixed), &format!("{attention}_layer_norm"));

        let attention = format!("{name}.vision_cross_attn");
        let placed = g.add(&x, &input.query_positions);
        let bias = Some(&input.bias);
        let x = g.add(&x, &g.shared_attention((&attention, at), &placed, image, stack.heads, bias));
        let x = g.norm(&x, &format!("{attention}_layer_norm"));

        let x = g.add(&x, &g.feed_forward(&x, &format!("{name}.mlp"), stack));
        g.norm(&x, &format!("{name}.mlp_layer_norm"))
    }

    /// The inputs of layer `layer` > 0, from the hidden states and boxes (cxcywh, 0..1) of the layer before.
    fn next_layer(&self, g: &Graph<'w>, layer: usize, hidden: &Value, boxes: &Value) -> LayerInput {
        let config = self.config();
        let (width, stack) = (config.width, &config.decoder);
        let name = format!("{ROOT}.layers.{layer}");
        let classes = boxes.dims[0];
        g.scope(format!("{ROOT}.ref_point_head"));

        let radians: Vec<f32> = sine_frequencies(width / 2).iter().map(|f| (TAU * f) as f32).collect();
        let radians = g.constant("query_frequencies", &[1, 1, 1, width / 4], &radians);
        let ordered = g.select(boxes, 2, &[1, 0, 2, 3]);
        let queries = boxes.dims[1];
        let encoded = encode_sine(g, &ordered, &radians);
        let encoded = g.reshape(&encoded, &[classes, queries, (2 * width).into()]);
        let positions = g.perceptron(&encoded, &format!("{ROOT}.ref_point_head"), 2);
        let query_positions = g.pad(&positions, &[0, 1, 0], &[0; 3]);

        let by = self.axis_bias(g, boxes, "y");
        let bias = self.join_bias(g, &by, &self.axis_bias(g, boxes, "x"));

        g.scope(name.as_str());
        let placed = g.add(hidden, &query_positions);
        let attention = format!("{name}.self_attn");
        let x = g.add(hidden, &g.attention(&attention, [&placed, &placed, hidden], stack.heads));
        let hidden = g.norm(&x, &format!("{attention}_layer_norm"));
        let placed = g.add(&hidden, &query_positions);
        let prompt_queries = g.prompt_queries(&format!("{name}.text_cross_attn"), &placed, stack.heads);
        let box_logits = g.as_role(Role::Exact, |g| inverse_sigmoid(g, boxes));
        LayerInput { hidden, prompt_queries, query_positions, bias, box_logits }
    }

    /// The box bias along one axis, `[C, heads, 1 + Q, P]`, zero for the presence token.
    fn axis_bias(&self, g: &Graph<'w>, boxes: &Value, axis: &str) -> Value {
        let grid = self.grid();
        let [classes, queries] = [boxes.dims[0], boxes.dims[1]];
        g.scope(format!("{ROOT}.box_rpb_embed_{axis}"));
        let (centre, size) = columns(axis);
        let log = g.as_role(Role::Exact, |g| {
            let [centre, size] = [centre, size].map(|i| g.slice(boxes, 2, i, i + 1));
            let half = g.scale(&size, 0.5);
            let low = g.sub(&centre, &half);
            let high = g.add(&centre, &half);
            let edges = g.concat(&[&low, &high], 2, 2);
            let edges = g.reshape(&edges, &[classes, queries, 1.into(), 2.into()]);
            let places: Vec<f32> = (0..grid).map(|i| (i as f64 / grid as f64) as f32).collect();
            let distance = g.sub(&g.constant("places", &[1, 1, grid, 1], &places), &edges);
            let distance = g.scale(&distance, BIAS_UNITS as f32);
            // sign(d) · ln(|d| + 1) = ln(max(d, 0) + 1) − ln(max(−d, 0) + 1), exactly: one of the two is ln(1) = 0. `Sign` is
            // missing in ONNX Runtime's WebGPU provider, and runtimes disagree about the sign of zero.
            let one = g.scalar(1.0);
            let negated = g.scale(&distance, -1.0);
            let [above, below] = [distance, negated].map(|distance| {
                let shifted = g.add(&g.unary("Relu", &distance), &one);
                g.unary("Log", &shifted)
            });
            g.scale(&g.sub(&above, &below), (1.0 / BIAS_UNITS.ln()) as f32)
        });
        let bias = g.perceptron(&log, &format!("{ROOT}.box_rpb_embed_{axis}"), 2);
        g.pad(&g.transpose(&bias, &[0, 3, 1, 2]), &[0, 0, 1, 0], &[0; 4])
    }

    /// Biases along y and x → `[C, heads, 1 + Q, P·P]`.
    fn join_bias(&self, g: &Graph<'w>, by: &Value, bx: &Value) -> Value {
        let [classes, heads, queries, grid] = [0, 1, 2, 3].map(|i| by.dims[i]);
        let by = g.reshape(by, &[classes, heads, queries, grid, 1.into()]);
        let bx = g.reshape(bx, &[classes, heads, queries, 1.into(), grid]);
        let bias = g.as_role(Role::Attention, |g| g.add(&by, &bx));
        g.reshape(&bias, &[classes, heads, queries, (self.grid() * self.grid()).into()])
    }

    /// The inputs of the first layer, folded: queries, their positions and self-attention, and the box bias of the
    /// reference points.
    fn first_layer(&self, g: &Graph<'w>) -> LayerInput {
        let config = self.config();
        let (width, heads, queries, grid) =
            (config.width, config.decoder.heads, config.num_queries, self.grid());
        let rows = 1 + queries;
        let start = move |weights: &Weights| FirstLayer::fold(weights, width, heads);
        let name = |what: &str| format!("{ROOT}.layers.0.folded.{what}");

        let hidden =
            g.derived(&name("hidden"), &[1, rows, width], move |w| Ok(fold::to_f32(&start(w)?.hidden)));
        let query_positions =
            g.derived(&name("positions"), &[1, rows, width], move |w| Ok(fold::to_f32(&start(w)?.positions)));
        let prompt_queries = g.derived(&name("prompt_queries"), &[1, rows, width], move |w| {
            let first = start(w)?;
            let placed = first.hidden + first.positions;
            let queries = fold::linear(w, &format!("{ROOT}.layers.0.text_cross_attn.q_proj"), &placed)?;
            Ok(fold::to_f32(&(queries * f64::from(scale_of(width / heads)))))
        });
        let prompt_queries = g.split_heads(&prompt_queries, heads);
        let box_logits = g.derived(&name("box_logits"), &[1, queries, 4], move |w| {
            let logit = |x: f64| (x.max(BOX_EPS) / (1.0 - x).max(BOX_EPS)).ln();
            Ok(fold::to_f32(&reference_boxes(w)?.mapv(logit)))
        });
        let [by, bx] = ["y", "x"].map(|axis| {
            g.derived(&name(&format!("bias_{axis}")), &[1, heads, rows, grid], move |w| {
                first_axis_bias(w, axis, heads, grid)
            })
        });
        let bias = self.join_bias(g, &by, &bx);
        LayerInput { hidden, prompt_queries, query_positions, bias, box_logits }
    }
}

/// Constants of the first layer before its attention to the prompt; rows: the presence token, then the queries.
struct FirstLayer {
    hidden: Matrix,
    positions: Matrix,
}

impl FirstLayer {
    fn fold(weights: &Weights, width: usize, heads: usize) -> Result<Self> {
        let boxes = reference_boxes(weights)?;
        let frequencies = sine_frequencies(width / 2);
        let encoded: Vec<f64> = boxes
            .rows()
            .into_iter()
            .flat_map(|row| [row[1], row[0], row[2], row[3]])
            .flat_map(|v| sine_encoding(v * TAU, &frequencies).collect::<Vec<_>>())
            .collect();
        let encoded =
            Matrix::from_shape_vec((boxes.nrows(), 2 * width), encoded).expect("4 numbers of width / 2 each");
        let positions = fold::perceptron2(weights, &format!("{ROOT}.ref_point_head"), &encoded)?;
        let positions = fold::stack(&Matrix::zeros((1, width)), &positions);

        let presence = fold::matrix(weights, &format!("{ROOT}.presence_token.weight"), width)?;
        let queries = fold::matrix(weights, &format!("{ROOT}.query_embed.weight"), width)?;
        let hidden = fold::stack(&presence, &queries);
        let attention = format!("{ROOT}.layers.0.self_attn");
        let placed = &hidden + &positions;
        let mixed = fold::attention(weights, &attention, heads, &placed, &hidden)?;
        let hidden = fold::layer_norm(weights, &format!("{attention}_layer_norm"), &(hidden + mixed))?;
        Ok(Self { hidden, positions })
    }
}

/// The reference points as boxes, cxcywh in 0..1.
fn reference_boxes(weights: &Weights) -> Result<Matrix> {
    let points = fold::matrix(weights, &format!("{ROOT}.reference_points.weight"), 4)?;
    Ok(points.mapv_into(|x| 1.0 / (1.0 + (-x).exp())))
}

/// The places of centre and size along an axis in a box, cxcywh.
fn columns(axis: &str) -> (usize, usize) {
    if axis == "x" { (0, 2) } else { (1, 3) }
}

/// The box bias of the reference points along one axis, `[heads, 1 + Q, P]`.
fn first_axis_bias(weights: &Weights, axis: &str, heads: usize, grid: usize) -> Result<Vec<f32>> {
    let (boxes, (centre, size)) = (reference_boxes(weights)?, columns(axis));
    let log = |distance: f64| {
        let scaled = distance * BIAS_UNITS;
        scaled.signum() * (scaled.abs() + 1.0).ln() / BIAS_UNITS.ln()
    };
    let mut pairs = Vec::with_capacity(boxes.nrows() * grid * 2);
    for row in boxes.rows() {
        let (centre, half) = (row[centre], row[size] / 2.0);
        for i in 0..grid {
            let place = i as f64 / grid as f64;
            pairs.extend([log(place - (centre - half)), log(place - (centre + half))]);
        }
    }
    let pairs =
        Matrix::from_shape_vec((boxes.nrows() * grid, 2), pairs).expect("a pair for each query and place");
    let bias = fold::perceptron2(weights, &format!("{ROOT}.box_rpb_embed_{axis}"), &pairs)?;
    let mut out = Vec::with_capacity(heads * (1 + boxes.nrows()) * grid);
    for head in 0..heads {
        out.extend(std::iter::repeat_n(0.0, grid));
        out.extend(bias.column(head).iter().map(|&v| v as f32));
    }
    Ok(out)
}

/// log(x / (1 − x)), with both clamped to at least ε.
fn inverse_sigmoid(g: &Graph<'_>, x: &Value) -> Value {
    let rest = g.sub(&g.scalar(1.0), x);
    let [x, rest] = [x, &rest].map(|v| g.clip(v, Some(BOX_EPS as f32), None));
    g.unary("Log", &g.div(&x, &rest))
}

/// cxcywh → xyxy along the last axis.
fn corners(g: &Graph<'_>, boxes: &Value) -> Value {
    let centre = g.slice(boxes, 2, 0, 2);
    let half = g.scale(&g.slice(boxes, 2, 2, 4), 0.5);
    let low = g.sub(&centre, &half);
    let high = g.add(&centre, &half);
    g.concat(&[&low, &high], 2, Dim::Fixed(4))
}
