//! `mux_step.onnx`: SAM 3.1's tracker, for buckets of sixteen objects that share their memories.
//!
//! An image is tracked once for a bucket. A slot without an object takes part in the attention and in the decoder: its
//! pointers are zeros, and its tokens say that it is empty.

use super::decoder::{Decoded, Mask};
use super::{BUCKETS, Network, OBJECTS};
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};
use crate::model::layers::LinearLayer;
use crate::model::position::image_positions;

/// B · slots of a bucket.
const PLACES: Dim = Dim::Named(dim::PLACES);
/// Masks of a slot.
const MASKS: usize = 3;

/// The memories and pointers that the queries of a bucket attend to.
struct Memories {
    /// `[B, M, P·P, D]`, the memories.
    maps: Value,
    /// `[B, M, P·P, D]`, what is added to the projected keys of memories: positions.
    positions: Value,
    /// `[F, P·P, D]`, the images of the memories, and their rows `[B, M]`.
    images: Value,
    image_slots: Value,
    /// `[B, T, slots, D]`.
    pointers: Value,
    /// `[B, T, 1, D]`, what is added to the projected keys of pointers: how long ago they were.
    pointer_positions: Value,
    /// `[B, tokens, D]`: memories and pointers.
    values: Value,
}

impl<'w> Network<'_, 'w> {
    /// Memories of buckets → masks and pointers of their objects.
    pub(crate) fn mux_step(&self, g: &Graph<'w>) {
        let image = self.attend_buckets(g);
        let high_res = self.high_res_inputs(g);
        let valid = g.input(tensor::VALID, Element::Bool, &[BUCKETS, self.slots().into()]);
        let objects = g.input(tensor::OBJECTS, Element::I64, &[OBJECTS]);
        let decoded = self.decode_objects(g, &image, &self.slot_tokens(g, &valid));
        self.slot_outputs(g, &decoded, &self.upscaled(g, &decoded, &high_res), &objects);
    }

    /// Objects of a bucket.
    pub(super) fn slots(&self) -> usize {
        self.config().slots.unwrap_or(1)
    }

    /// The frame's tokens as each bucket: `[B, P·P, D]`.
    fn attend_buckets(&self, g: &Graph<'w>) -> Value {
        let (tokens, width) = (self.grid() * self.grid(), self.width());
        let layers = self.config().layers;
        let query = g.input(tensor::QUERY_0, Element::F32, &[1, tokens, width].map(Dim::from));
        let image_query = g.input(tensor::IMAGE_QUERY, Element::F32, &[layers, tokens, width].map(Dim::from));
        let image_query = g.select(&image_query, 2, &self.rotary_order());
        let memories = self.bucket_memories(g);
        self.memory_layers(g, query, |x, layer, tables| {
            let of_image = g.slice(&image_query, 0, layer, layer + 1);
            self.attend_bucket(g, [x, &of_image], layer, &memories, tables)
        })
    }

    fn bucket_memories(&self, g: &Graph<'w>) -> Memories {
        let (width, tokens) = (self.width(), self.grid() * self.grid());
        let [many, frames] = [dim::MEMORIES, dim::POINTERS].map(Dim::Named);
        let [bank, images] =
            [(tensor::BANK, dim::SLOTS), (tensor::IMAGES, dim::FRAMES)].map(|(name, rows)| {
                g.input(name, Element::F32, &[Dim::Named(rows), tokens.into(), width.into()])
            });
        let [slots, image_slots, times] = [tensor::SLOTS, tensor::IMAGE_SLOTS, tensor::SLOT_TIMES]
            .map(|name| g.input(name, Element::I64, &[BUCKETS, many]));
        let dims = [BUCKETS, frames, self.slots().into(), width.into()];
        let pointers = g.input(tensor::POINTERS, Element::F32, &dims);
        let offsets = g.input(tensor::POINTER_OFFSETS, Element::F32, &[BUCKETS, frames]);

        g.scope("memories");
        let maps = g.gather_rows(&bank, &slots);
        let order = self.rotary_order();
        let in_order = move |table: &[f32]| -> Vec<f32> {
            table.chunks(width).flat_map(|row| order.iter().map(|&at| row[at])).collect()
        };
        let place = in_order(&image_positions(self.grid(), width));
        let place = g.constant("memory_positions", &[1, 1, tokens, width], &place);
        let (name, rows) = (self.of("memory_temporal_positional_encoding"), self.config().memory_rows);
        let table = g.derived(&format!("{name}.reordered"), &[rows, width], move |weights| {
            Ok(in_order(&weights.read(&name)?))
        });
        let time = g.gather_rows(&table, &times);
        let positions = g.add(&g.reshape(&time, &[BUCKETS, many, 1.into(), width.into()]), &place);
        let pointer_positions = self.pointer_positions(g, &offsets);

        let of_memories = g.join_axes(&maps, 1, Dim::Named(dim::MEMORY_TOKENS));
        let of_pointers = g.join_axes(&pointers, 1, Dim::Named(dim::POINTER_TOKENS));
        let values = g.concat(&[&of_memories, &of_pointers], 1, Dim::Named(dim::KEYS));
        Memories { maps, positions, images, image_slots, pointers, pointer_positions, values }
    }

    /// Attention to the memories; the image has its part in queries and in keys.
    fn attend_bucket(
        &self,
        g: &Graph<'w>,
        [x, of_image]: [&Value; 2],
        layer: usize,
        memories: &Memories,
        tables: &[Value; 2],
    ) -> Value {
        let layer = self.of(&format!("memory_attention.layers.{layer}"));
        let [name, image_name] = ["cross_attn", "image_cross_attn"].map(|part| format!("{layer}.{part}"));
        g.scope(&name);
        let query = self.queries(g, &name, &g.norm(x, &format!("{layer}.layer_norm2")));
        let scale = LinearLayer::queries_of(g, &name, self.config().heads).scale;
        let of_image = if scale == 1.0 { of_image.clone() } else { g.scale(of_image, scale) };
        let query = self.rotated(g, &g.add(&query, &of_image), tables);

        let image_layer = self.rotary_layer(&format!("{image_name}.k_proj"));
        let of_images = g.linear_layer(&memories.images, &image_layer);
        let of_images = g.gather_rows(&of_images, &memories.image_slots);
        let project = self.rotary_layer(&format!("{name}.k_proj"));
        let keys = g.add(&g.linear_layer(&memories.maps, &project), &of_images);
        let keys = self.rotated(g, &g.add(&keys, &memories.positions), tables);
        let keys = g.join_axes(&keys, 1, Dim::Named(dim::MEMORY_TOKENS));

        // A pointer has no image and no place in one: the bias of the image's projection is left, and nothing is rotated.
        let pointer_keys = g.linear_layer(&memories.pointers, &project);
        let pointer_keys = g.add(&pointer_keys, &g.linear_bias(&image_layer));
        let pointer_keys = g.add(&pointer_keys, &memories.pointer_positions);
        let pointer_keys = g.join_axes(&pointer_keys, 1, Dim::Named(dim::POINTER_TOKENS));

        let keys = g.concat(&[&keys, &pointer_keys], 1, Dim::Named(dim::KEYS));
        let values = g.linear(&memories.values, &format!("{name}.v_proj"));
        let mixed = self.mix(g, &self.repeated_queries(g, query, &values), &keys, &values);
        g.add(x, &g.linear(&mixed, &format!("{name}.o_proj")))
    }

    /// The decoder's tokens for the slots of a bucket, `[B, 5 · slots, D]`: scores, IoUs, and three masks of each.
    fn slot_tokens(&self, g: &Graph<'w>, valid: &Value) -> Value {
        let (slots, width) = (self.slots(), self.width());
        g.scope("slots");
        let [occupied, empty] = ["output_valid_embed", "output_invalid_embed"].map(|name| {
            let table = g.weight(&self.of(name));
            g.reshape(&table, &[1, slots, width].map(Dim::from))
        });
        let condition = g.reshape(valid, &[BUCKETS, slots.into(), 1.into()]);
        let state = g.choose(&condition, &occupied, &empty);
        let state = g.reshape(&state, &[BUCKETS, slots.into(), 1.into(), width.into()]);
        let masks = g.weight(&self.of("mask_decoder.mask_tokens.weight"));
        let masks = g.add(&g.reshape(&masks, &[1, slots, MASKS, width].map(Dim::from)), &state);
        let masks = g.reshape(&masks, &[BUCKETS, (MASKS * slots).into(), width.into()]);
        let own = ["obj_score_token", "iou_token"].map(|token| {
            let table = g.weight(&self.of(&format!("mask_decoder.{token}.weight")));
            g.repeat_for(&g.reshape(&table, &[1, slots, width].map(Dim::from)), valid)
        });
        g.concat(&[&own[0], &own[1], &masks], 1, (2 + MASKS) * slots)
    }

    /// The outputs of the objects in their slots; `objects` has bucket · slots + slot.
    fn slot_outputs(&self, g: &Graph<'w>, decoded: &Decoded, upscaled: &Value, objects: &Value) {
        let (slots, width, side) = (self.slots(), self.width(), Dim::from(4 * self.grid()));
        let of_slots =
            |at: usize, count: usize| g.slice(&decoded.tokens, 1, at * slots, (at + count) * slots);
        let scores = self.head_of(g, "mask_decoder.pred_obj_score_head", || of_slots(0, 1));
        let scores = g.join_axes(&scores, 0, PLACES);
        let score = g.reshape(&g.gather_rows(&scores, objects), &[OBJECTS]);

        let ious = self.head_of(g, "mask_decoder.iou_prediction_head", || of_slots(1, 1));
        let ious = g.join_axes(&ious, 0, PLACES);
        let tokens = g.reshape(&of_slots(2, MASKS), &[BUCKETS, slots.into(), MASKS.into(), width.into()]);
        let tokens = g.join_axes(&tokens, 0, PLACES);
        let best = g.as_role(Role::Exact, |g| g.one_hot_of_largest(&ious));
        let kernels: Vec<Value> = (0..MASKS)
            .map(|mask| {
                let head = format!("mask_decoder.output_hypernetworks_mlps.{mask}");
                self.head_of(g, &head, || g.slice(&tokens, 1, mask, mask + 1))
            })
            .collect();
        g.scope("masks");
        let kernels = g.concat(&kernels, 1, MASKS);
        // The choice of a kernel saves the other masks.
        let [kernel, token] = [&kernels, &tokens].map(|x| g.matmul(&best, x));
        let iou = g.reduce("ReduceMax", &ious, 1);
        let [iou, token] = [(&iou, 1), (&token, width)]
            .map(|(x, columns)| g.gather_rows(&g.reshape(x, &[PLACES, columns.into()]), objects));
        let iou = g.reshape(&iou, &[OBJECTS]);
        let kernel = g.separate_axis(&kernel, [BUCKETS, slots.into(), (width / 8).into()]);
        let logits = g.join_axes(&g.matmul(&kernel, upscaled), 0, PLACES);
        let logits = g.reshape(&g.gather_rows(&logits, objects), &[OBJECTS, side, side]);
        self.outputs(g, &score, &Mask { logits, iou, token });
    }
}
