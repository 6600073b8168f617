//! The attention of a frame's tokens to an object's memories, and to themselves.

use super::{OBJECTS, Plan, ROOT};
use crate::contract::{Precision, Target, dim, tensor};
use crate::fold;
use crate::graph::{Dim, Element, Graph, LinearForm, Role, Value};
use crate::model::layers::{LinearLayer, scale_of};
use crate::model::position::{TokenOrder, image_positions, rotary_row, rotary_tables, rotate};

/// Where an engine has no fused attention, the matrix of scores has at most this many rows at once: a frame of 72 × 72
/// tokens and seven memories would have 0.75 GB of scores for each object.
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

impl<'w> Plan<'w> {
    /// Memories and pointers → the frame's tokens as these objects: `[B, P·P, D]`.
    pub(super) fn attend_memories(&self, g: &mut Graph<'w>) -> Value {
        let (tokens, width) = (self.grid() * self.grid(), self.config().width);
        let query = g.input(tensor::QUERY_0, Element::F32, &[1, tokens, width].map(Dim::from));
        let memories = self.memories(g);
        let tables = self.memory_rotary(g);
        if self.precision == Precision::Int8 {
            g.write_linear_as(self.linear_form());
        }
        let mut x = query;
        for layer in 0..self.tracker_config().layers {
            if layer > 0 {
                x = self.memory_self_attention(g, &x, layer, &tables);
            }
            x = self.memory_cross_attention(g, &x, layer, &memories, &tables);
            x = self.memory_feed_forward(g, &x, layer);
        }
        g.write_linear_as(LinearForm::Float);
        g.norm(&x, &format!("{ROOT}.memory_attention.layer_norm"))
    }

    fn memories(&self, g: &mut Graph<'w>) -> Memories {
        let tracker = self.tracker_config();
        let (memory, width, tokens) = (tracker.memory_width, self.config().width, self.grid() * self.grid());
        let [slots, many, pointers] = [dim::SLOTS, dim::MEMORIES, dim::POINTERS].map(Dim::Named);
        let bank = g.input(tensor::BANK, Element::F32, &[slots, tokens.into(), memory.into()]);
        let slots = g.input(tensor::SLOTS, Element::I64, &[OBJECTS, many]);
        let times = g.input(tensor::SLOT_TIMES, Element::I64, &[OBJECTS, many]);
        let pointer = g.input(tensor::POINTERS, Element::F32, &[OBJECTS, pointers, width.into()]);
        let offsets = g.input(tensor::POINTER_OFFSETS, Element::F32, &[OBJECTS, pointers]);

        g.scope("memories");
        let chosen = g.gather_rows(&bank, &slots); // [object, memory, token, channel]
        let table = g.weight(&format!("{ROOT}.memory_temporal_positional_encoding"));
        let table = g.reshape(&table, &[tracker.memory_rows, memory].map(Dim::from));
        let time = g.gather_rows(&table, &times);
        let time = g.reshape(&time, &[OBJECTS, many, 1.into(), memory.into()]);
        let place = image_positions(self.grid(), memory);
        let place = g.constant("memory_positions", &[1, 1, tokens, memory], &place);
        let position = g.add(&time, &place);
        let keys = g.add(&chosen, &position);

        // A pointer is several tokens as wide as a memory.
        let parts = width / memory;
        let split = g.reshape(&pointer, &[OBJECTS, pointers, parts.into(), memory.into()]);
        let position = self.pointer_positions(g, &offsets);
        let positioned = g.add(&split, &position);
        let pointer_tokens = Dim::Named(dim::POINTER_TOKENS);
        let [split, pointer_keys] = [&split, &positioned].map(|x| g.join_axes(x, 1, pointer_tokens));
        let flat = g.join_axes(&chosen, 1, Dim::Named(dim::MEMORY_TOKENS));
        let values = g.concat(&[&flat, &split], 1, Dim::Named(dim::KEYS));
        Memories { keys, pointer_keys, values }
    }

    /// The positions of pointers by how long ago they were: `[B, T, 1, memory width]`.
    fn pointer_positions(&self, g: &mut Graph<'w>, offsets: &Value) -> Value {
        let half = self.config().width / 2;
        let exponent = |i: usize| (2 * (i / 2)) as f64 / half as f64;
        let periods: Vec<f32> = (0..half).map(|i| 10000f64.powf(-exponent(i)) as f32).collect();
        let name = format!("{ROOT}.temporal_positional_encoding_projection_layer");
        let [objects, pointers] = [offsets.dims[0], offsets.dims[1]];
        let encoded = g.as_role(Role::Exact, |g| {
            let offsets = g.reshape(offsets, &[objects, pointers, 1.into()]);
            let frequencies = g.constant("pointer_frequencies", &[1, 1, half], &periods);
            let angles = g.mul(&offsets, &frequencies);
            let waves = ["Sin", "Cos"].map(|wave| g.unary(wave, &angles));
            let waves = g.concat(&[&waves[0], &waves[1]], 2, 2 * half);
            g.linear(&waves, &name)
        });
        g.reshape(&encoded, &[objects, pointers, 1.into(), encoded.dims[2]])
    }

    /// Cosines and sines `[P·P, D/2]` for queries, and for each memory's keys.
    pub(super) fn memory_rotary(&self, g: &mut Graph<'w>) -> [Value; 2] {
        let (grid, width) = (self.grid(), self.config().width);
        let places = TokenOrder { grid, window: grid }.places();
        let [cos, sin] = rotary_tables(&places, 1.0, width, self.tracker_config().rope_theta);
        g.scope("rotary");
        [("rotary.cos", cos), ("rotary.sin", sin)]
            .map(|(name, table)| g.constant(name, &[grid * grid, width / 2], &table))
    }

    pub(super) fn memory_self_attention(
        &self,
        g: &mut Graph<'w>,
        x: &Value,
        layer: usize,
        tables: &[Value; 2],
    ) -> Value {
        let layer = format!("{ROOT}.memory_attention.layers.{layer}");
        let name = format!("{layer}.self_attn");
        g.scope(&name);
        let normed = g.norm(x, &format!("{layer}.layer_norm1"));
        let query = self.rotated_queries(g, &name, &normed, tables);
        let key = g.linear_layer(&normed, &self.rotary_layer(format!("{name}.k_proj")));
        let key = rotate(g, &key, tables);
        let mixed = self.mix(g, &query, &key, &normed);
        let mixed = projected_values(g, &mixed, &name);
        g.add(x, &mixed)
    }

    fn memory_cross_attention(
        &self,
        g: &mut Graph<'w>,
        x: &Value,
        layer: usize,
        memories: &Memories,
        tables: &[Value; 2],
    ) -> Value {
        let layer = format!("{ROOT}.memory_attention.layers.{layer}");
        let name = format!("{layer}.cross_attn_image");
        g.scope(&name);
        let normed = g.norm(x, &format!("{layer}.layer_norm2"));
        let query = self.rotated_queries(g, &name, &normed, tables);
        let project = self.rotary_layer(format!("{name}.k_proj"));
        let keys = g.linear_layer(&memories.keys, &project);
        let keys = rotate(g, &keys, tables);
        let keys = g.join_axes(&keys, 1, Dim::Named(dim::MEMORY_TOKENS));
        // Pointers have no place in the image, so their keys are not rotated.
        let pointer_keys = g.linear_layer(&memories.pointer_keys, &project);
        let keys = g.concat(&[&keys, &pointer_keys], 1, Dim::Named(dim::KEYS));
        let query = match (self.target, query.dims[0] == OBJECTS) {
            (Target::OnnxRuntime, false) => g.repeat_for(&query, &memories.values),
            _ => query,
        };
        let mixed = self.mix(g, &query, &keys, &memories.values);
        let mixed = projected_values(g, &mixed, &name);
        g.add(x, &mixed)
    }

    fn memory_feed_forward(&self, g: &mut Graph<'w>, x: &Value, layer: usize) -> Value {
        let name = format!("{ROOT}.memory_attention.layers.{layer}");
        g.scope(format!("{name}.mlp"));
        let normed = g.norm(x, &format!("{name}.layer_norm3"));
        let out = g.layers_in_turn(&normed, ["linear1", "linear2"].map(|layer| format!("{name}.{layer}")));
        g.add(x, &out)
    }

    fn rotated_queries(&self, g: &mut Graph<'w>, name: &str, x: &Value, tables: &[Value; 2]) -> Value {
        let layer = LinearLayer::queries_of(g, name, 1);
        let order = self.rotary_layer(String::new()).order;
        let query = g.linear_layer(x, &LinearLayer { order, ..layer });
        rotate(g, &query, tables)
    }

    /// A projection with its channels in the order of [`rotary_row`].
    fn rotary_layer(&self, name: String) -> LinearLayer {
        let width = self.config().width;
        let order = (0..width).map(|row| rotary_row(row, width)).collect();
        LinearLayer { order, ..LinearLayer::new(&name) }
    }

    /// Attention with one head, over values that are not projected yet.
    fn mix(&self, g: &mut Graph<'w>, query: &Value, keys: &Value, values: &Value) -> Value {
        let (width, tokens) = (self.config().width, self.grid() * self.grid());
        if self.target == Target::OnnxRuntime {
            return g.fused_attention([query, keys, values], 1, scale_of(width), None);
        }
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
            parts => g.concat(&parts.iter().collect::<Vec<_>>(), 1, tokens),
        }
    }
}

/// The two projections after the mixture: those of values and of the output. The shares of a row sum to 1, so the mixture
/// of projected values is the projection of the mixture.
fn projected_values(g: &mut Graph<'_>, mixed: &Value, name: &str) -> Value {
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
