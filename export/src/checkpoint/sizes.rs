//! The sizes of a model from the shapes of its tensors, for files without a configuration.

use std::collections::BTreeMap;

use super::container::View;
use crate::config::{
    Activation, MobileClip, ModelConfig, Stack, TextConfig, TextEncoder, TrackerConfig, VisionConfig,
};
use crate::contract::TextPadding;
use crate::student;
use ocelli_error::{Error, ErrorKind, Result};

/// Layer norm's epsilon in Meta's code, which trained the released weights.
pub(super) const ORIGINAL_EPS: f32 = 1e-5;
/// Width of a head of the image and text transformers, where no table tells it.
const HEAD: usize = 64;
/// Heads of the attention layers that no table describes.
const HEADS: usize = 8;
/// Side of an attention window, in tokens, where no table tells it.
const WINDOW: usize = 24;
/// Side of the image in patches, where no table tells it.
const GRID: usize = 72;
/// Side of a patch in pixels, where no embedding tells it.
const PATCH: usize = 14;

/// The rotary tables of a checkpoint: rows and columns by block.
pub(super) type RotaryShapes = BTreeMap<usize, [usize; 2]>;

/// What the rotary tables say about the vision transformer.
struct Geometry {
    heads: usize,
    window: usize,
    grid: usize,
    global_blocks: Vec<usize>,
}

/// The sizes of Meta's detector. Token ids of start and end are the last two of the vocabulary, as in CLIP.
pub(super) fn sizes(
    views: &BTreeMap<String, View>,
    blocks: usize,
    rotary: &RotaryShapes,
) -> Result<ModelConfig> {
    let shapes = Shapes(views);
    let student = match shapes.first(&format!("{}.", student::ROOT)) {
        Some(_) => Some(super::student::student(&shapes)?),
        None => None,
    };
    let vision = match student {
        Some(_) => unseen_vision(&shapes)?,
        None => vision(&shapes, blocks, rotary)?,
    };
    let width = shapes.of::<4>("vision_encoder.neck.fpn_layers.2.proj1.weight")?[0];
    let decoder = "detr_decoder";
    let decoder_heads = shapes.of::<2>(&format!("{decoder}.box_rpb_embed_x.layer2.weight"))?[0];
    let stack = |layers: &str, heads: usize| {
        Ok::<_, Error>(Stack {
            layers: shapes.count(layers),
            heads,
            intermediate: shapes.of::<2>(&format!("{layers}0.mlp.fc1.weight"))?[0],
            activation: Activation::Relu,
        })
    };
    // EfficientSAM3's fine-tuned detectors come without an encoder of exemplars.
    let (geometry, roi_size) = match shapes.first("geometry_encoder.") {
        None => (Stack { layers: 0, heads: 1, intermediate: 0, activation: Activation::Relu }, 0),
        Some(_) => (
            stack("geometry_encoder.layers.", HEADS)?,
            shapes.of::<4>("geometry_encoder.boxes_pool_project.weight")?[2],
        ),
    };
    let config = ModelConfig {
        vision,
        student,
        text: if views.contains_key(MOBILE_CLIP) { mobile_clip(&shapes)? } else { clip(&shapes)? },
        width,
        geometry,
        roi_size,
        encoder: stack("detr_encoder.layers.", HEADS)?,
        decoder: stack("detr_decoder.layers.", decoder_heads)?,
        num_queries: shapes.of::<2>(&format!("{decoder}.query_embed.weight"))?[0],
        mask_heads: HEADS,
        mask_stages: shapes.count("mask_decoder.pixel_decoder.conv_layers."),
        scoring_hidden: shapes.of::<2>("dot_product_scoring.text_mlp.layer1.weight")?[0],
        tracker: shapes.first("tracker_model.").map(|_| tracker(&shapes)).transpose()?,
    };
    for (what, size) in [("heads", decoder_heads), ("width", width)] {
        if size == 0 {
            return Err(invalid(format!("the {what} is 0")));
        }
    }
    config.validate()?;
    Ok(config)
}

/// The vision transformer.
fn vision(shapes: &Shapes<'_>, blocks: usize, rotary: &RotaryShapes) -> Result<VisionConfig> {
    let vit = "vision_encoder.backbone";
    let [hidden, _, patch, _] = shapes.of(&format!("{vit}.embeddings.patch_embeddings.projection.weight"))?;
    let [_, positions, _] = shapes.of(&format!("{vit}.embeddings.position_embeddings"))?;
    let table = positions.isqrt();
    if table * table != positions {
        return Err(invalid(format!(
            "the position table has {positions} places: expected a square, and one for the class"
        )));
    }
    let Geometry { heads, window, grid, global_blocks } = geometry(hidden, blocks, rotary)?;
    for (what, size) in [("patch size", patch), ("table", table)] {
        if size == 0 {
            return Err(invalid(format!("the {what} is 0")));
        }
    }
    Ok(VisionConfig {
        hidden,
        stack: Stack {
            layers: blocks,
            heads,
            intermediate: shapes.any(&format!("{vit}.layers."), ".mlp.fc1.weight")?,
            activation: Activation::Gelu,
        },
        image_size: grid.checked_mul(patch).ok_or_else(|| invalid("the patch size overflows".into()))?,
        patch_size: patch,
        window_size: window,
        global_blocks,
        pretrain_image_size: table * patch,
        layer_norm_eps: ORIGINAL_EPS,
        rope_theta: 10000.0,
    })
}

/// What a network in place of the vision transformer stands for: as wide, with the same image and grid.
fn unseen_vision(shapes: &Shapes<'_>) -> Result<VisionConfig> {
    let hidden = shapes.of::<4>(&format!("{}.0.weight", student::HEAD))?[0];
    Ok(VisionConfig {
        hidden,
        stack: Stack { layers: 0, heads: 1, intermediate: 0, activation: Activation::Gelu },
        image_size: GRID * PATCH,
        patch_size: PATCH,
        window_size: WINDOW,
        global_blocks: Vec::new(),
        pretrain_image_size: GRID * PATCH,
        layer_norm_eps: ORIGINAL_EPS,
        rope_theta: 10000.0,
    })
}

fn clip(shapes: &Shapes<'_>) -> Result<TextConfig> {
    let root = "text_encoder.text_model";
    let [vocab_size, hidden] = shapes.of(&format!("{root}.embeddings.token_embedding.weight"))?;
    let [context_length, _] = shapes.of(&format!("{root}.embeddings.position_embedding.weight"))?;
    let layers = format!("{root}.encoder.layers.");
    Ok(TextConfig {
        hidden,
        stack: Stack {
            layers: shapes.count(&layers),
            heads: heads_of(hidden)?,
            intermediate: shapes.of::<2>(&format!("{layers}0.mlp.fc1.weight"))?[0],
            activation: Activation::Gelu,
        },
        context_length,
        vocab_size,
        projection: shapes.of::<2>("text_encoder.text_projection.weight").map_or(hidden, |shape| shape[0]),
        layer_norm_eps: ORIGINAL_EPS,
        encoder: TextEncoder::Clip,
        bos: vocab_size.saturating_sub(2) as i64,
        eos: vocab_size.saturating_sub(1) as i64,
    })
}

/// A tensor that only MobileCLIP's text encoder has.
const MOBILE_CLIP: &str = "text_encoder.embeddings.token_embedding.weight";

fn mobile_clip(shapes: &Shapes<'_>) -> Result<TextConfig> {
    let [vocab_size, hidden] = shapes.of(MOBILE_CLIP)?;
    let table = "text_encoder.embeddings.position_embedding.position_embedding";
    let [_, _, positions, _] = shapes.of(table)?;
    let layers = "text_encoder.layers.";
    let conv = shapes.of::<4>(&format!("{layers}0.token_mixer.mixer.conv.weight"));
    let text = MobileClip {
        rep_mixer: conv.is_ok(),
        kernel: conv.map_or(1, |[_, _, _, kernel]| kernel),
        positions,
        padding: TextPadding::Training,
    };
    Ok(TextConfig {
        hidden,
        stack: Stack {
            layers: shapes.count(layers),
            heads: heads_of(hidden)?,
            intermediate: shapes.any(layers, ".mlp.fc1.weight")?,
            activation: Activation::Gelu,
        },
        context_length: positions,
        vocab_size,
        projection: hidden,
        layer_norm_eps: ORIGINAL_EPS,
        encoder: TextEncoder::MobileClip(text),
        bos: vocab_size.saturating_sub(2) as i64,
        eos: vocab_size.saturating_sub(1) as i64,
    })
}

fn tracker(shapes: &Shapes<'_>) -> Result<TrackerConfig> {
    let of = |name: &str| Ok::<_, Error>(shapes.of::<2>(&format!("tracker_model.{name}"))?[0]);
    let root = "tracker_model";
    let [memory_rows, _, _, memory_width] =
        shapes.of(&format!("{root}.memory_temporal_positional_encoding"))?;
    let decoder = "mask_decoder.transformer.layers.";
    Ok(TrackerConfig {
        memory_width,
        memory_rows,
        layers: shapes.count(&format!("{root}.memory_attention.layers.")),
        intermediate: of("memory_attention.layers.0.linear1.weight")?,
        rope_theta: 10000.0,
        decoder: Stack {
            layers: shapes.count(&format!("{root}.{decoder}")),
            heads: HEADS,
            intermediate: of(&format!("{decoder}0.mlp.proj_in.weight"))?,
            activation: Activation::Relu,
        },
        decoder_width: of(&format!("{decoder}0.cross_attn_token_to_image.q_proj.weight"))?,
        iou_hidden: of("mask_decoder.iou_prediction_head.proj_in.weight")?,
        fuser_layers: shapes.count(&format!("{root}.memory_encoder.memory_fuser.layers.")),
        fuser_intermediate: of("memory_encoder.memory_fuser.layers.0.pointwise_conv1.weight")?,
        mask_channels: shapes.of::<4>(&format!("{root}.prompt_encoder.mask_embed.conv2.weight"))?[0],
    })
}

fn heads_of(width: usize) -> Result<usize> {
    match width / HEAD {
        heads if heads > 0 && width.is_multiple_of(HEAD) => Ok(heads),
        _ => Err(invalid(format!(
            "a transformer has width {width}: expected a multiple of {HEAD}, the width of a head"
        ))),
    }
}

/// A table has a row for every token that attends together, and a column for each pair of a head's channels.
fn geometry(hidden: usize, blocks: usize, rotary: &RotaryShapes) -> Result<Geometry> {
    let Some(smallest) = rotary.values().map(|[rows, _]| *rows).min() else {
        // Mirrors in safetensors lack the tables: every fourth part of the blocks ends with a global one.
        if blocks == 0 || !blocks.is_multiple_of(4) {
            return Err(invalid(format!(
                "the file has no rotary tables (freqs_cis) and {blocks} blocks: expected 32, whose global blocks are known"
            )));
        }
        let global_blocks = (1..=4).map(|part| part * blocks / 4 - 1).collect();
        return Ok(Geometry { heads: heads_of(hidden)?, window: WINDOW, grid: GRID, global_blocks });
    };
    let largest = rotary.values().map(|[rows, _]| *rows).max().unwrap_or(smallest);
    let columns = rotary.values().next().map_or(0, |[_, columns]| *columns);
    let [window, grid] = [smallest, largest].map(usize::isqrt);
    let square = window * window == smallest && grid * grid == largest;
    let known =
        rotary.values().all(|[rows, found]| (*rows == smallest || *rows == largest) && *found == columns);
    if !square || !known || smallest == 0 || columns == 0 || !hidden.is_multiple_of(2 * columns) {
        return Err(invalid(
            "the rotary tables (freqs_cis) differ: expected those of square windows and of the square image"
                .into(),
        ));
    }
    let global = rotary.iter().filter(|(_, [rows, _])| *rows == largest && largest > smallest);
    Ok(Geometry {
        heads: hidden / (2 * columns),
        window,
        grid,
        global_blocks: global.map(|(block, _)| *block).collect(),
    })
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

/// Shapes by name.
pub(super) struct Shapes<'v>(pub(super) &'v BTreeMap<String, View>);

impl Shapes<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The first tensor that starts with `prefix`.
    pub(super) fn first(&self, prefix: &str) -> Option<String> {
        let (name, _) = self.0.range(prefix.to_owned()..).next()?;
        name.starts_with(prefix).then(|| name.clone())
    }

    pub(super) fn of<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        let Some(view) = self.0.get(name) else { return Err(invalid(format!("tensor {name} is missing"))) };
        view.shape
            .as_slice()
            .try_into()
            .map_err(|_| invalid(format!("tensor {name} has shape {:?}: expected {N} axes", view.shape)))
    }

    /// The first size of some tensor between `start` and `end`.
    fn any(&self, start: &str, end: &str) -> Result<usize> {
        let mut found = self.0.iter().filter(|(name, _)| name.starts_with(start) && name.ends_with(end));
        let size = found.next().and_then(|(_, view)| view.shape.first());
        size.copied().ok_or_else(|| invalid(format!("no tensor {start}*{end}")))
    }

    /// The number of layers after `prefix`: one more than the largest index.
    pub(super) fn count(&self, prefix: &str) -> usize {
        layer_count(self.0.keys().map(String::as_str), prefix)
    }
}

/// One more than the largest number that follows `prefix`.
pub(super) fn layer_count<'n>(names: impl Iterator<Item = &'n str>, prefix: &str) -> usize {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
    let largest = names.filter_map(number).max();
    // More layers than names would only be reported as missing tensors.
    largest.map_or(0, |largest| largest.min(9999) + 1)
}
