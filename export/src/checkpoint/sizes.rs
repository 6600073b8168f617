//! The sizes of a model from the shapes of its tensors, for files without a configuration. The table of tensors says which
//! axis has which size.

use super::load::Loaded;
use super::shapes::{RotaryShapes, Shapes};
use crate::config::{
    Activation, MobileClip, ModelConfig, Stack, TextConfig, TextEncoder, TrackerConfig, VisionConfig,
};
use crate::contract::TextPadding;
use crate::errors::invalid;
use crate::student;
use ocelli_error::Result;

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

/// The vision transformer's sizes, as the rotary tables say.
struct Geometry {
    heads: usize,
    window: usize,
    grid: usize,
    global_blocks: Vec<usize>,
}

/// The sizes of Meta's detector. Token ids of start and end are the last two of the vocabulary, as in CLIP.
pub(super) fn sizes(loaded: &Loaded) -> Result<ModelConfig> {
    let shapes = Shapes(&loaded.weights.views);
    let student = match shapes.first(&format!("{}.", student::ROOT)) {
        Some(_) => Some(super::student::student(&shapes)?),
        None => None,
    };
    let vision = match student {
        Some(_) => unseen_vision(&shapes)?,
        None => vision(&shapes, loaded.blocks, &loaded.rotary)?,
    };
    let (width, decoder_heads) = (shapes.size("width")?, shapes.size("decoder-heads")?);
    // EfficientSAM3's fine-tuned detectors come without an encoder of exemplars.
    let (geometry, roi_size) = match shapes.first("geometry_encoder.") {
        None => (Stack { layers: 0, heads: 1, intermediate: 0, activation: Activation::Relu }, 0),
        Some(_) => {
            (shapes.stack("geometry_encoder.layers.", "geometry-intermediate", HEADS)?, shapes.size("roi")?)
        }
    };
    let config = ModelConfig {
        vision,
        student,
        text: text(&shapes)?,
        width,
        geometry,
        roi_size,
        encoder: shapes.stack("detr_encoder.layers.", "encoder-intermediate", HEADS)?,
        decoder: shapes.stack("detr_decoder.layers.", "decoder-intermediate", decoder_heads)?,
        num_queries: shapes.size("queries")?,
        mask_heads: HEADS,
        mask_stages: shapes.count("mask_decoder.pixel_decoder.conv_layers."),
        scoring_hidden: shapes.size("scoring")?,
        tracker: match (shapes.first("tracker_model."), shapes.first("multiplex_model.")) {
            (Some(_), _) => Some(tracker(&shapes, None)?),
            // A file whose tracker lacks a part has its detector.
            (None, Some(_)) => shapes.size("slots").and_then(|slots| tracker(&shapes, Some(slots))).ok(),
            (None, None) => None,
        },
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
    let (hidden, patch) = (shapes.size("hidden")?, shapes.size("patch")?);
    let [_, positions, _] = shapes.of("vision_encoder.backbone.embeddings.position_embeddings")?;
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
            intermediate: shapes.size("vit-intermediate")?,
            activation: Activation::Gelu,
        },
        image_size: grid.checked_mul(patch).ok_or_else(|| invalid("the patch size overflows"))?,
        patch_size: patch,
        window_size: window,
        global_blocks,
        pretrain_image_size: table * patch,
        layer_norm_eps: ORIGINAL_EPS,
        rope_theta: 10000.0,
    })
}

/// The vision transformer that a network stands in for: as wide, with the same image and grid.
fn unseen_vision(shapes: &Shapes<'_>) -> Result<VisionConfig> {
    Ok(VisionConfig {
        hidden: shapes.size("hidden")?,
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

/// A tensor that only MobileCLIP's text encoder has.
const MOBILE_CLIP: &str = "text_encoder.embeddings.token_embedding.weight";

fn text(shapes: &Shapes<'_>) -> Result<TextConfig> {
    let (hidden, vocab_size) = (shapes.size("text")?, shapes.size("vocabulary")?);
    let (layers, context_length, encoder) = if shapes.has(MOBILE_CLIP) {
        let (positions, kernel) = (shapes.size("positions")?, shapes.size("kernel"));
        let text = MobileClip {
            rep_mixer: kernel.is_ok(),
            kernel: kernel.unwrap_or(1),
            positions,
            padding: TextPadding::Training,
        };
        ("text_encoder.layers.", positions, TextEncoder::MobileClip(text))
    } else {
        ("text_encoder.text_model.encoder.layers.", shapes.size("context")?, TextEncoder::Clip)
    };
    let stack = shapes.stack(layers, "text-intermediate", heads_of(hidden)?)?;
    Ok(TextConfig {
        hidden,
        stack: Stack { activation: Activation::Gelu, ..stack },
        context_length,
        vocab_size,
        projection: shapes.size("text-projection").unwrap_or(hidden),
        layer_norm_eps: ORIGINAL_EPS,
        encoder,
        bos: vocab_size.saturating_sub(2) as i64,
        eos: vocab_size.saturating_sub(1) as i64,
    })
}

/// The memory tracker; with `slots` that of SAM 3.1.
fn tracker(shapes: &Shapes<'_>, slots: Option<usize>) -> Result<TrackerConfig> {
    let root = if slots.is_some() { "multiplex_model" } else { "tracker_model" };
    Ok(TrackerConfig {
        memory_width: shapes.size(if slots.is_some() { "width" } else { "memory" })?,
        memory_rows: shapes.size("times")?,
        slots,
        layers: shapes.count(&format!("{root}.memory_attention.layers.")),
        heads: if slots.is_some() { HEADS } else { 1 },
        intermediate: shapes.size("tracker-intermediate")?,
        rope_theta: 10000.0,
        decoder: shapes.stack(&format!("{root}.mask_decoder.transformer.layers."), "decoder-mlp", HEADS)?,
        decoder_width: shapes.size("inner")?,
        iou_hidden: shapes.size("iou")?,
        fuser_layers: shapes.count(&format!("{root}.memory_encoder.memory_fuser.layers.")),
        fuser_intermediate: shapes.size("fuser-intermediate")?,
        mask_channels: shapes.size("channels")?,
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
            "the rotary tables (freqs_cis) differ: expected those of square windows and of the square image",
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
