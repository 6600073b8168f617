//! Names of files, tensors and free dimensions. Shapes are in the letters of [`contract`](super).

/// File names inside an exported folder.
pub mod file {
    /// The [`Manifest`](super::super::Manifest).
    pub const MANIFEST: &str = "model.json";
    /// [`PIXEL_VALUES`](super::tensor::PIXEL_VALUES) → [`FPN`](super::tensor::FPN) and
    /// [`IMAGE_PROMPT`](super::tensor::IMAGE_PROMPT).
    pub const BACKBONE: &str = "backbone.onnx";
    /// With a split backbone, the blocks before the split: pixels → [`TOKENS`](super::tensor::TOKENS).
    pub const BACKBONE_FIRST: &str = "backbone_first.onnx";
    /// With a split backbone, the blocks from the split on: [`TOKENS`](super::tensor::TOKENS) → features.
    pub const BACKBONE_SECOND: &str = "backbone_second.onnx";
    /// Token ids → [`TEXT_FEATURES`](super::tensor::TEXT_FEATURES).
    pub const TEXT_ENCODER: &str = "text_encoder.onnx";
    /// Boxes → [`EXEMPLAR_FEATURES`](super::tensor::EXEMPLAR_FEATURES).
    pub const EXEMPLAR_ENCODER: &str = "exemplar_encoder.onnx";
    /// Features and prompts → boxes and scores.
    pub const ENCODER_DECODER: &str = "encoder_decoder.onnx";
    /// Queries of kept detections → masks.
    pub const MASK_HEAD: &str = "mask_head.onnx";
    /// The coarse first pass over every class; exported on request.
    pub const SCREEN: &str = "screen.onnx";
    /// The folder of the memory tracker's graphs.
    pub const TRACKER: &str = "tracker";
    /// Once a frame: [`HIDDEN`](super::tensor::HIDDEN) → [`HIGH_RES`](super::tensor::HIGH_RES),
    /// [`PIXEL`](super::tensor::PIXEL), [`MEMORY_PIXEL`](super::tensor::MEMORY_PIXEL) and
    /// [`QUERY_0`](super::tensor::QUERY_0).
    pub const TRACK_FEATURES: &str = "tracker/track_features.onnx";
    /// Memories → masks and pointers of tracked objects.
    pub const TRACK_STEP: &str = "tracker/track_step.onnx";
    /// Masks → pointers of new objects.
    pub const TRACK_INIT: &str = "tracker/track_init.onnx";
    /// Points → masks and pointers.
    pub const TRACK_POINTS: &str = "tracker/track_points.onnx";
    /// Masks → memories.
    pub const MEMORY_ENCODER: &str = "tracker/memory_encoder.onnx";
    /// Masks → their overlap.
    pub const MASK_IOU: &str = "tracker/mask_iou.onnx";
    /// The folder of the graphs of SAM 3.1's tracker.
    pub const MULTIPLEX: &str = "multiplex";
    /// Once a frame: [`HIDDEN`](super::tensor::HIDDEN) → what every bucket needs.
    pub const MUX_FEATURES: &str = "multiplex/mux_features.onnx";
    /// On frames with new, corrected or clicked objects: [`HIDDEN`](super::tensor::HIDDEN) → features for them.
    pub const MUX_INTERACTIVE: &str = "multiplex/mux_interactive.onnx";
    /// Memories of buckets → masks and pointers of their objects.
    pub const MUX_STEP: &str = "multiplex/mux_step.onnx";
    /// Masks of all objects → planes for their memories.
    pub const MUX_PLANES: &str = "multiplex/mux_planes.onnx";
    /// Masks that were given → planes for their memories.
    pub const MUX_PLANES_STORED: &str = "multiplex/mux_planes_stored.onnx";
    /// Planes → memories of buckets.
    pub const MUX_MEMORY: &str = "multiplex/mux_memory.onnx";
    /// Masks → pointers of new objects.
    pub const MUX_INIT: &str = "multiplex/mux_init.onnx";
    /// Points → masks and pointers.
    pub const MUX_POINTS: &str = "multiplex/mux_points.onnx";
    /// Masks → their overlap, also as a share of the smaller one.
    pub const MUX_MASK_IOU: &str = "multiplex/mask_iou.onnx";
    /// The checkpoint's tokeniser.
    pub const TOKENIZER: &str = "tokenizer.json";
}

/// Tensor names.
pub mod tensor {
    /// f32 `[1, 3, S, S]`, normalised.
    pub const PIXEL_VALUES: &str = "pixel_values";
    /// f32, fine to coarse: `[1, D, 4P, 4P]`, `[1, D, 2P, 2P]`, `[1, D, P, P]`.
    pub const FPN: [&str; 3] = ["fpn_0", "fpn_1", "fpn_2"];
    /// f32 `[1, 1, D]`, the CLS token of a prompt without boxes.
    pub const IMAGE_PROMPT: &str = "image_prompt";
    /// f32 `[P·P, hidden]`, the tokens between the two parts of a split backbone, in the exporter's token order.
    pub const TOKENS: &str = "tokens";
    /// The output of a branch that is a graph: the next one's [`TOKENS`].
    pub const NEXT_TOKENS: &str = "next_tokens";
    /// i64 `[C, L]`.
    pub const INPUT_IDS: &str = "input_ids";
    /// i64 `[C, L]`, 1 = token.
    pub const ATTENTION_MASK: &str = "attention_mask";
    /// f32 `[C, L, D]`.
    pub const TEXT_FEATURES: &str = "text_features";
    /// f32: of the exemplar encoder `[1, N, 4]` cxcywh in 0..1; of the encoder-decoder `[C, Q, 4]` xyxy in units of the
    /// image's sides, not clipped.
    pub const BOXES: &str = "boxes";
    /// i64 `[1, N]`, 1 = positive, 0 = negative.
    pub const BOX_LABELS: &str = "box_labels";
    /// f32 `[1, N + 1, D]`, the CLS token last.
    pub const EXEMPLAR_FEATURES: &str = "exemplar_features";
    /// f32 `[C, T, D]`.
    pub const PROMPT_FEATURES: &str = "prompt_features";
    /// i64 `[C, T]`, 1 = token.
    pub const PROMPT_MASK: &str = "prompt_mask";
    /// f32 `[C, Q]`.
    pub const LOGITS: &str = "logits";
    /// f32 `[C, 1]`.
    pub const PRESENCE: &str = "presence";
    /// f32 `[C, Q, D]`; of the mask head `[1, K, D]`.
    pub const QUERIES: &str = "queries";
    /// f32 `[C, P·P, D]`; of the mask head `[1, P·P, D]`.
    pub const ENCODED: &str = "encoded";
    /// f32 `[1, K, 4P, 4P]`, logits.
    pub const MASKS: &str = "masks";
    /// f32 `[1, 1, 4P, 4P]`, logits.
    pub const SEMANTIC: &str = "semantic";

    /// f32 `[1, hidden, P, P]`, the backbone's last features; only with a tracker.
    pub const HIDDEN: &str = "hidden";
    /// f32 `[1, D/8, 4P, 4P]` and `[1, D/4, 2P, 2P]`.
    pub const HIGH_RES: [&str; 2] = ["high_res_0", "high_res_1"];
    /// f32 `[1, D, P, P]`.
    pub const PIXEL: &str = "pixel";
    /// f32 `[1, D, P, P]`.
    pub const MEMORY_PIXEL: &str = "memory_pixel";
    /// f32 `[1, P·P, D]`, the frame's tokens before the first memory is attended to.
    pub const QUERY_0: &str = "query_0";
    /// f32 `[S, P·P, memory width]`, the memories of all objects.
    pub const BANK: &str = "bank";
    /// i64 `[B, M]`, rows of the bank.
    pub const SLOTS: &str = "slots";
    /// i64 `[B, M]`, for each memory its row in the table of times: 0 the newest … 5, and 6 for a conditioning frame.
    pub const SLOT_TIMES: &str = "slot_times";
    /// f32 `[B, T, D]`, T ≥ 0.
    pub const POINTERS: &str = "pointers";
    /// f32 `[B, T]`, frames ago, divided by one less than the number of frames, of at most 16.
    pub const POINTER_OFFSETS: &str = "pointer_offsets";
    /// f32 `[B]`, a logit; above 0 the object is in the frame. Of `track_init` 10 or −10.
    pub const OBJECT_SCORE: &str = "object_score";
    /// f32 `[B]`, the predicted IoU of the mask, of absent objects too; of `mask_iou` `[n, m]`.
    pub const IOU: &str = "iou";
    /// f32 `[B, 4, 4P, 4P]`, logits of absent objects too: the mask for prompts that are not ambiguous, then three for those
    /// that are.
    pub const ALL_MASKS: &str = "all_masks";
    /// f32 `[B, 4]`, the predicted IoU of each of [`ALL_MASKS`].
    pub const ALL_IOU: &str = "all_iou";
    /// f32 `[B, D]`.
    pub const POINTER: &str = "pointer";
    /// f32 `[B, K, 2]`, x and y in pixels of the square input.
    pub const POINTS: &str = "points";
    /// i64 `[B, K]`: 1 on the object, 0 beside it, 2 and 3 the corners of a box, −1 no point.
    pub const LABELS: &str = "labels";
    /// f32 `[B, 4P, 4P]`, logits between −32 and 32.
    pub const MASK_PROMPT: &str = "mask_prompt";
    /// bool, whether [`MASK_PROMPT`] counts.
    pub const HAS_MASK: &str = "has_mask";
    /// bool `[B]`: objects that do not keep their mask are clamped at −10.
    pub const KEEP: &str = "keep";
    /// bool `[B]`.
    pub const PRESENT: &str = "present";
    /// bool `[B]`: the mask is the one of [`PROMPTS`].
    pub const BINARY: &str = "binary";
    /// f32 `[N, 16P, 16P]`: masks of prompts as memories are made of them, 10 on the object and −10 beside it. N = B, or 1 if
    /// no mask is one of a prompt.
    pub const PROMPTS: &str = "prompts";
    /// f32 `[B, P·P, memory width]`.
    pub const MEMORY: &str = "memory";
    /// f32 `[n, 4P, 4P]`, logits.
    pub const A: &str = "a";
    /// f32 `[m, 4P, 4P]`, logits.
    pub const B: &str = "b";
    /// f32 `[n]`, the pixels of each mask of `a` at 4P.
    pub const AREA: &str = "area";
    /// f32 `[n]`, the same at 16P.
    pub const AREA_BEFORE: &str = "area_before";
    /// f32 `[n]`, the same after each pixel is left to the mask of `a` with the largest logit; of `mux_planes` i64.
    pub const AREA_AFTER: &str = "area_after";
    /// f32 `[m]`, the pixels of each mask of `b` at 4P.
    pub const AREA_B: &str = "area_b";
    /// f32 `[n, m]`, the pixels that masks share at 4P.
    pub const SHARED: &str = "shared";

    // Of SAM 3.1's tracker, B buckets of 16 slots, n objects, M memories and T frames with pointers:
    /// f32 `[1, P·P, D]`, the frame's features, which stay with its memories.
    pub const IMAGE: &str = "image";
    /// f32 `[layers, P·P, D]`, the frame's own part of the queries of every layer.
    pub const IMAGE_QUERY: &str = "image_query";
    /// f32 `[F, P·P, D]`, [`IMAGE`] of the frames that have memories.
    pub const IMAGES: &str = "images";
    /// i64 `[B, M]`, for each memory its row of [`IMAGES`].
    pub const IMAGE_SLOTS: &str = "image_slots";
    /// bool `[B, 16]`, the slots with an object.
    pub const VALID: &str = "valid";
    /// i64 `[n]`, the places of objects: bucket · 16 + slot.
    pub const OBJECTS: &str = "objects";
    /// f32 `[n, 16P, 16P]`, masks as memories are made of them, between −1 and 1.
    pub const PLANES: &str = "planes";
    /// i64 `[B, 16]`, for each slot its row of [`PLANES`]; 0 for slots without an object.
    pub const ORDER: &str = "order";
    /// bool `[n]`, objects whose mask was given on this frame.
    pub const CONDITIONAL: &str = "conditional";
    /// f32 `[n]`, the decoder's logit of an object whose mask was given.
    pub const DECODER_SCORE: &str = "decoder_score";
}

/// Names of the dimensions that are free in the ONNX files.
pub mod dim {
    /// C, prompts that are decoded together.
    pub const CLASSES: &str = "classes";
    /// T, tokens of a prompt.
    pub const PROMPT_TOKENS: &str = "prompt_tokens";
    /// N, exemplar boxes.
    pub const EXEMPLARS: &str = "exemplars";
    /// N + 1.
    pub const EXEMPLAR_TOKENS: &str = "exemplar_tokens";
    /// K, requested masks.
    pub const MASKS: &str = "kept";
    /// B, tracked objects.
    pub const OBJECTS: &str = "objects";
    /// S, memories in the bank.
    pub const SLOTS: &str = "slots";
    /// M, memories of an object.
    pub const MEMORIES: &str = "memories";
    /// T, pointers of an object.
    pub const POINTERS: &str = "pointers";
    /// Tokens of an object's memories.
    pub const MEMORY_TOKENS: &str = "memory_tokens";
    /// Tokens of an object's pointers.
    pub const POINTER_TOKENS: &str = "pointer_tokens";
    /// Both.
    pub const KEYS: &str = "keys";
    /// N, masks of prompts: B or 1.
    pub const PROMPTS: &str = "prompts";
    /// K, points of an object.
    pub const POINTS: &str = "points";
    /// Tokens of the mask decoder with those of points.
    pub const POINT_TOKENS: &str = "point_tokens";
    /// n, masks that are compared.
    pub const FIRST: &str = "first";
    /// m, masks that they are compared with.
    pub const SECOND: &str = "second";
    /// B, buckets of objects.
    pub const BUCKETS: &str = "buckets";
    /// Slots of all buckets.
    pub const PLACES: &str = "places";
    /// F, frames that have memories.
    pub const FRAMES: &str = "frames";
}

/// A dimension of a graph's input or output whose size is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FreeDimension {
    /// The input or output.
    pub tensor: &'static str,
    /// The index of the dimension.
    pub axis: usize,
    /// One of [`dim`].
    pub name: &'static str,
}

/// The free dimensions of the detector's graphs as the ONNX files name them, for engines that are built from a graph and keep
/// no names. A dimension that is free in one graph may be fixed in another.
pub const FREE_DIMENSIONS: [FreeDimension; 17] = {
    const fn free(tensor: &'static str, axis: usize, name: &'static str) -> FreeDimension {
        FreeDimension { tensor, axis, name }
    }
    [
        free(tensor::INPUT_IDS, 0, dim::CLASSES),
        free(tensor::ATTENTION_MASK, 0, dim::CLASSES),
        free(tensor::TEXT_FEATURES, 0, dim::CLASSES),
        free(tensor::BOXES, 0, dim::CLASSES),
        free(tensor::BOXES, 1, dim::EXEMPLARS),
        free(tensor::BOX_LABELS, 1, dim::EXEMPLARS),
        free(tensor::EXEMPLAR_FEATURES, 1, dim::EXEMPLAR_TOKENS),
        free(tensor::PROMPT_FEATURES, 0, dim::CLASSES),
        free(tensor::PROMPT_FEATURES, 1, dim::PROMPT_TOKENS),
        free(tensor::PROMPT_MASK, 0, dim::CLASSES),
        free(tensor::PROMPT_MASK, 1, dim::PROMPT_TOKENS),
        free(tensor::LOGITS, 0, dim::CLASSES),
        free(tensor::PRESENCE, 0, dim::CLASSES),
        free(tensor::QUERIES, 0, dim::CLASSES),
        free(tensor::QUERIES, 1, dim::MASKS),
        free(tensor::ENCODED, 0, dim::CLASSES),
        free(tensor::MASKS, 1, dim::MASKS),
    ]
};
