//! The attention of a frame's tokens to an object's memories, and to themselves: with one head over narrow memories in SAM 3,
//! with several heads in SAM 3.1, whose memories are those of a bucket ([`buckets`](super::buckets)).

use super::{Network, OBJECTS};
use crate::config::Activation;
use crate::contract::{Precision, Target, dim, tensor};
use crate::fold;
use crate::graph::{Dim, Element, Graph, LinearForm, Role, Value};
use crate::model::layers::{LinearLayer, scale_of};
use crate::model::position::{TokenOrder, image_positions, rotary_row, rotary_tables, rotate};

/// The most rows of the matrix of scores at once, where an engine has no fused attention: a frame of 72 × 72 tokens and seven
/// memories would have 0.75 GB of scores for each object.
const MAX_QUERY_ROWS: usize = 512;

/// The tokens that an object's queries attend to.
struct Memories {
    /// `[B, M, P·P, memory width]`, with positions.
    keys: Value,
    /// `[B, tokens, memory width]`, with positions.
    pointer_keys: Value,
    /// All of them without positions, `[B, tokens, memory width]`.
    values: Value,
}

impl<'w> Network<'_, 'w> {
    /// Memories and pointers → the frame's tokens as these objects: `[B, P·P, D]`.
    pub(super) fn attend_memories(&self, g: &Graph<'w>) -> Value {
        let (tokens, width) = (self.grid() * self.grid(), self.width());
        let query = g.input(tensor::QUERY_0, Element::F32, &[1, tokens, width].map(Dim::from));
        let memories = self.memories(g);
        self.memory_layers(g, query, |x, layer, tables| {
            self.memory_cross_attention(g, x, layer, &memories, tables)
        })
    }

    /// All layers after the first one's self-attention, which the features have; `attend` looks at the memories.
    pub(super) fn memory_layers(
        &self,
        g: &Graph<'w>,
        mut x: Value,
        attend: impl Fn(&Value, usize, &[Value; 2]) -> Value,
    ) -> Value {
        let tables = self.memory_rotary(g);
        if self.options.precision == Precision::Int8 {
            g.write_linear_as(self.linear_form());
        }
        for layer in 0..self.config().layers {
            if layer > 0 {
                x = self.memory_self_attention(g, &x, layer, &tables);
            }
            x = attend(&x, layer, &tables);
            x = self.memory_feed_forward(g, &x, layer);
        }
        g.write_linear_as(LinearForm::Float);
        g.norm(&x, &self.of("memory_attention.layer_norm"))
    }

    fn memories(&self, g: &Graph<'w>) -> Memories {
        let tracker = self.config();
        let (memory, width, tokens) = (tracker.memory_width, self.width(), self.grid() * self.grid());
        let [slots, many, pointers] = [dim::SLOTS, dim::MEMORIES, dim::POINTERS].map(Dim::Named);
        let bank = g.input(tensor::BANK, Element::F32, &[slots, tokens.into(), memory.into()]);
        let slots = g.input(tensor::SLOTS, Element::I64, &[OBJECTS, many]);
        let times = g.input(tensor::SLOT_TIMES, Element::I64, &[OBJECTS, many]);
        let pointer = g.input(tensor::POINTERS, Element::F32, &[OBJECTS, pointers, width.into()]);
        let offsets = g.input(tensor::POINTER_OFFSETS, Element::F32, &[OBJECTS, pointers]);

        g.scope("memories");
        let chosen = g.gather_rows(&bank, &slots); // [object, memory, token, channel]
        let table = g.weight(&self.of("memory_temporal_positional_encoding"));
        let table = g.reshape(&table, &[tracker.memory_rows, memory].map(Dim::from));
        let time = g.gather_rows(&table, &times);
        let time = g.reshape(&time, &[OBJECTS, many, 1.into(), memory.into()]);
        let place = image_positions(self.grid(), memory);
        let place = g.constant("memory_positions", &[1, 1, tokens, memory], &place);
        let keys = g.add(&chosen, &g.add(&time, &place));

        // A pointer is several tokens as wide as a memory.
        let parts = width / memory;
        let split = g.reshape(&pointer, &[OBJECTS, pointers, parts.into(), memory.into()]);
        let positioned = g.add(&split, &self.pointer_positions(g, &offsets));
        let pointer_tokens = Dim::Named(dim::POINTER_TOKENS);
        let [split, pointer_keys] = [&split, &positioned].map(|x| g.join_axes(x, 1, pointer_tokens));
        let flat = g.join_axes(&chosen, 1, Dim::Named(dim::MEMORY_TOKENS));
        let values = g.concat(&[&flat, &split], 1, Dim::Named(dim::KEYS));
        Memories { keys, pointer_keys, values }
    }

    /// The positions of pointers by how long ago they were: `[B, T, 1, memory width]`.
    pub(super) fn pointer_positions(&self, g: &Graph<'w>, offsets: &Value) -> Value {
        let half = self.width() / 2;
        let exponent = |i: usize| (2 * (i / 2)) as f64 / half as f64;
        let periods: Vec<f32> = (0..half).map(|i| 10000f64.powf(-exponent(i)) as f32).collect();
        let layer = self.ordered(&self.of("temporal_positional_encoding_projection_layer"));
        let [objects, pointers] = [offsets.dims[0], offsets.dims[1]];
        let encoded = g.as_role(Role::Exact, |g| {
            let offsets = g.reshape(offsets, &[objects, pointers, 1.into()]);
            let frequencies = g.constant("pointer_frequencies", &[1, 1, half], &periods);
            let angles = g.mul(&offsets, &frequencies);
            let waves = ["Sin", "Cos"].map(|wave| g.unary(wave, &angles));
            g.linear_layer(&g.concat(&waves, 2, 2 * half), &layer)
        });
        g.reshape(&encoded, &[objects, pointers, 1.into(), encoded.dims[2]])
    }

    /// Cosines and sines of a head, `[P·P, head/2]`, for queries, and for each memory's keys; of several heads `[P·P, 1, head/2]`.
    pub(super) fn memory_rotary(&self, g: &Graph<'w>) -> [Value; 2] {
        let (grid, head) = (self.grid(), self.head());
        let places = TokenOrder { grid, window: grid }.places();
        let [cos, sin] = rotary_tables(&places, 1.0, head, self.config().rope_theta);
        g.scope("rotary");
        let dims = match self.config().heads {
            1 => vec![grid * grid, head / 2],
            _ => vec![grid * grid, 1, head / 2],
        };
        [("rotary.cos", cos), ("rotary.sin", sin)].map(|(name, table)| g.constant(name, &dims, &table))
    }

    pub(super) fn memory_self_attention(
        &self,
        g: &Graph<'w>,
        x: &Value,
        layer: usize,
        tables: &[Value; 2],
    ) -> Value {
        let layer = self.of(&format!("memory_attention.layers.{layer}"));
        let name = format!("{layer}.self_attn");
        g.scope(&name);
        let normed = g.norm(x, &format!("{layer}.layer_norm1"));
        let query = self.rotated_queries(g, &name, &normed, tables);
        let key = g.linear_layer(&normed, &self.rotary_layer(&format!("{name}.k_proj")));
        let key = self.rotated(g, &key, tables);
        let mixed = match self.config().heads {
            1 => {
                let mixed = self.mix(g, &query, &key, &normed);
                projected_values(g, &mixed, &name)
            }
            _ => {
                let values = g.linear(&normed, &format!("{name}.v_proj"));
                g.linear(&self.mix(g, &query, &key, &values), &format!("{name}.o_proj"))
            }
        };
        g.add(x, &mixed)
    }

    fn memory_cross_attention(
        &self,
        g: &Graph<'w>,
        x: &Value,
        layer: usize,
        memories: &Memories,
        tables: &[Value; 2],
    ) -> Value {
        let layer = self.of(&format!("memory_attention.layers.{layer}"));
        let name = format!("{layer}.cross_attn_image");
        g.scope(&name);
        let normed = g.norm(x, &format!("{layer}.layer_norm2"));
        let query = self.rotated_queries(g, &name, &normed, tables);
        let project = self.rotary_layer(&format!("{name}.k_proj"));
        let keys = self.rotated(g, &g.linear_layer(&memories.keys, &project), tables);
        let keys = g.join_axes(&keys, 1, Dim::Named(dim::MEMORY_TOKENS));
        // Pointers have no place in the image, so their keys are not rotated.
        let pointer_keys = g.linear_layer(&memories.pointer_keys, &project);
        let keys = g.concat(&[&keys, &pointer_keys], 1, Dim::Named(dim::KEYS));
        let query = self.repeated_queries(g, query, &memories.values);
        let mixed = self.mix(g, &query, &keys, &memories.values);
        let mixed = projected_values(g, &mixed, &name);
        g.add(x, &mixed)
    }

    fn memory_feed_forward(&self, g: &Graph<'w>, x: &Value, layer: usize) -> Value {
        let name = self.of(&format!("memory_attention.layers.{layer}"));
        let activation = if self.is_sam3() { Activation::Relu } else { Activation::Gelu };
        g.scope(format!("{name}.mlp"));
        let normed = g.norm(x, &format!("{name}.layer_norm3"));
        let hidden = g.activation(&g.linear(&normed, &format!("{name}.linear1")), activation);
        let last =
            LinearLayer { floor: Some(activation.floor()), ..LinearLayer::new(&format!("{name}.linear2")) };
        g.add(x, &g.linear_layer(&hidden, &last))
    }

    fn rotated_queries(&self, g: &Graph<'w>, name: &str, x: &Value, tables: &[Value; 2]) -> Value {
        self.rotated(g, &self.queries(g, name, x), tables)
    }

    /// Projected queries, in the order of [`rotary_row`].
    pub(super) fn queries(&self, g: &Graph<'w>, name: &str, x: &Value) -> Value {
        let layer = LinearLayer::queries_of(g, name, self.config().heads);
        g.linear_layer(x, &LinearLayer { order: self.rotary_order(), ..layer })
    }

    /// Queries that all objects share, for each of them if the target's attention needs that; `like` has the batch.
    pub(super) fn repeated_queries(&self, g: &Graph<'w>, query: Value, like: &Value) -> Value {
        match (self.options.target, query.dims[0] == like.dims[0]) {
            (Target::OnnxRuntime, false) => g.repeat_for(&query, like),
            _ => query,
        }
    }

    /// The width of a head of the attention over memories.
    fn head(&self) -> usize {
        self.width() / self.config().heads
    }

    /// Channels in the order of [`rotary_row`].
    pub(super) fn rotary_order(&self) -> Vec<usize> {
        (0..self.width()).map(|row| rotary_row(row, self.head())).collect()
    }

    /// A projection with its channels in the order of [`rotary_row`].
    pub(super) fn rotary_layer(&self, name: &str) -> LinearLayer {
        LinearLayer { order: self.rotary_order(), ..LinearLayer::new(name) }
    }

    /// The projection of positions: those of SAM 3.1 are added to projected keys, and have their order.
    fn ordered(&self, name: &str) -> LinearLayer {
        if self.is_sam3() { LinearLayer::new(name) } else { self.rotary_layer(name) }
    }

    /// Rotary embedding of `[…, P·P, D]`, head by head.
    pub(super) fn rotated(&self, g: &Graph<'w>, x: &Value, tables: &[Value; 2]) -> Value {
        let heads = self.config().heads;
        if heads == 1 {
            return rotate(g, x, tables);
        }
        let mut split = x.dims.clone();
        split.splice(x.dims.len() - 1.., [heads, self.head()].map(Dim::from));
        let parts = g.reshape(x, &split);
        let rotated = rotate(g, &parts, tables);
        g.reshape(&rotated, &x.dims)
    }

    /// Attention over `[B, tokens, D]`; values of one head need not be projected yet.
    pub(super) fn mix(&self, g: &Graph<'w>, query: &Value, keys: &Value, values: &Value) -> Value {
        let (heads, head) = (self.config().heads, self.head());
        if self.options.target == Target::OnnxRuntime {
            return g.fused_attention([query, keys, values], heads, scale_of(head), None);
        }
        if heads == 1 {
            return self.mix_head(g, query, keys, values);
        }
        let [query, keys, values] = [query, keys, values].map(|x| g.split_last(x, heads));
        let mixed: Vec<Value> =
            (0..heads).map(|head| self.mix_head(g, &query[head], &keys[head], &values[head])).collect();
        g.concat(&mixed, 2, self.width())
    }

    /// Attention of one head in basic operators, some rows after the other.
    fn mix_head(&self, g: &Graph<'w>, query: &Value, keys: &Value, values: &Value) -> Value {
        let tokens = self.grid() * self.grid();
        let parts = (1..=tokens)
            .find(|parts| tokens.is_multiple_of(*parts) && tokens / parts <= MAX_QUERY_ROWS)
            .expect("single rows are few enough");
        let keys = g.transpose(keys, &[0, 2, 1]);
        let queries = if parts == 1 { vec![query.clone()] } else { g.split_axis(query, 1, parts) };
        let mixed: Vec<Value> = queries
            .iter()
            .map(|query| {
                let scores = g.as_role(Role::Attention, |g| g.matmul(query, &keys));
                let shares = g.softmax(&scores);
                g.as_role(Role::Attention, |g| g.matmul(&shares, values))
            })
            .collect();
        match mixed.as_slice() {
            [whole] => whole.clone(),
            parts => g.concat(parts, 1, tokens),
        }
    }
}

/// The two projections after the mixture: those of values and of the output. The shares of a row sum to 1, so the mixture
/// of projected values is the projection of the mixture.
fn projected_values(g: &Graph<'_>, mixed: &Value, name: &str) -> Value {
    let (value, output) = (format!("{name}.v_proj"), format!("{name}.o_proj"));
    let [inner, width] = [0, 1].map(|axis| g.weight_dims(&format!("{value}.weight"))[axis]);
    let out = g.weight_dims(&format!("{output}.weight"))[0];
    let (first, second) = (value.clone(), output.clone());
    let weight = g.derived(&format!("{name}.values_and_output.T"), &[width, out], move |weights| {
        let value = fold::matrix(weights, &format!("{first}.weight"), width)?;
        let output = fold::matrix(weights, &format!("{second}.weight"), inner)?;
        Ok(fold::to_f32(&output.dot(&value).reversed_axes().as_standard_layout().to_owned()))
    });
    let product = g.matmul(mixed, &weight);
    let bias = g.projected_bias(&value, &output);
    g.as_role(Role::Product, |g| g.add(&product, &bias))
}
