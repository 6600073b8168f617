//! The contract between exporter and runtime: file names, tensor names and shapes, and the manifest.
//!
//! An exported model is a folder with the files below and a [`Manifest`]. Shapes are given in `S` = imgsz,
//! `P` = S / patch, `D` = model width, `C` = classes, `L` = context, `T` = prompt tokens, `Q` = queries,
//! `N` = exemplar boxes, `K` = requested masks; of the memory tracker `B` = objects, `M` = memories and `T` = pointers of an
//! object, `S` = memories of all, `K` = points.

mod names;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;
use crate::errors::invalid;
use crate::mixed_precision::MixedPrecision;
use crate::read_text;
use ocelli_error::{Result, read_by_name};

pub use names::{FREE_DIMENSIONS, FreeDimension, dim, file, tensor};

/// The format of [`Manifest`] that this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// The largest input side: the cost of attention over the whole grid grows with its fourth power.
pub(crate) const MAX_IMGSZ: usize = 8192;
/// The largest number of patches in a row: a table of positions has the square of it.
pub(crate) const MAX_GRID: usize = 1024;

/// The largest value of a size. Released checkpoints are far below; a corrupt file must not fill the memory.
pub(crate) fn largest(key: &str) -> u64 {
    match key {
        "num_layers" | "num_hidden_layers" | "num_upsampling_stages" | "num_attention_heads" => 1024,
        "roi_size" => 64,
        "image_size" | "pretrain_image_size" | "imgsz" | "patch_size" | "window_size" => MAX_IMGSZ as u64,
        "max_position_embeddings" | "context_length" => 4096,
        "num_queries" => 1 << 16,
        "vocab_size" | "bos_token_id" | "eos_token_id" | "pad_token_id" => 1 << 22,
        _ => 1 << 17,
    }
}

/// The operators that attention is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// ONNX Runtime's fused operators, which never store the whole score matrix.
    #[default]
    OnnxRuntime,
    /// Standard operators: Q·Kᵀ·scale → softmax → ·V, and rotary embedding in real arithmetic.
    TensorRt,
}

read_by_name!(Target, "target", "onnxruntime or tensorrt");

/// The tokens of a text prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prompting {
    /// The text tokens and an image-conditioned CLS token, as in Meta's detector.
    #[default]
    Official,
    /// The text tokens only, as `transformers` and DART run a prompt without boxes.
    Text,
}

read_by_name!(Prompting, "prompt", "official or text");

/// Number format of the weights inside the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point.
    #[default]
    #[serde(alias = "float32")]
    Fp32,
    /// 8-bit weights, with a scale for every output channel, in the linear layers of backbone and fusion encoder, 32-bit
    /// floating point elsewhere. Graphs for [`Target::OnnxRuntime`] also quantise what the weights are multiplied with,
    /// every token by a scale of its own; with [`Target::TensorRt`] the engine decides. Inputs and outputs of the graphs
    /// are those of [`Precision::Fp32`].
    Int8,
    /// IEEE half precision: 11 bits, up to 65504. [`Manifest::mixed_precision`] and [`Manifest::keep_fp32`] list the parts
    /// that stay in 32 bits. Inputs and outputs of the graphs are those of [`Precision::Fp32`].
    #[serde(alias = "float16", alias = "half")]
    Fp16,
    /// bfloat16: 8 bits, the range of 32-bit floating point; otherwise as [`Precision::Fp16`]. Convolutions stay in 32
    /// bits: they do not support bfloat16 in the graphs' opset.
    #[serde(alias = "bfloat16")]
    Bf16,
    /// 8-bit floating point (E4M3: 4 bits, up to 448) in the linear layers of backbone and fusion encoder: the weights with a
    /// scale for every output channel, what they are multiplied with by one scale for each layer, from
    /// [`Manifest::calibration`]. Everything else as [`Precision::Fp16`]. For TensorRT alone.
    #[serde(alias = "float8")]
    Fp8,
    /// 8-bit integers in the places of [`Precision::Fp8`], and with scales like its.
    #[serde(rename = "int8-static")]
    Int8Static,
}

impl Precision {
    /// `true` if features are 16-bit floating point.
    pub fn is_half(self) -> bool {
        matches!(self, Self::Fp16 | Self::Bf16) || self.is_calibrated()
    }

    /// `true` if the scales of activations come from a [`Calibration`].
    pub fn is_calibrated(self) -> bool {
        matches!(self, Self::Fp8 | Self::Int8Static)
    }
}

read_by_name!(Precision, "precision", "fp32, fp16, bf16, int8, fp8 or int8-static");

impl MixedPrecision {
    /// The level of a precision if none is chosen.
    pub fn default_of(precision: Precision) -> Self {
        if precision.is_half() { Self::Accumulate } else { Self::None }
    }
}

/// The padding after a phrase, for text encoders whose result depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextPadding {
    /// As the encoder was trained: token 0, up to the length of the position table, and every token attends to it.
    #[default]
    Training,
    /// As `transformers` runs it: the end token, up to 32 tokens, and no token attends to it.
    Transformers,
}

read_by_name!(TextPadding, "text_padding", "training or transformers");

/// The way of an image to [`tensor::PIXEL_VALUES`]: resized to the square without keeping the aspect ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocessing {
    /// The name of the filter: always `bilinear-antialias`.
    pub resize: String,
    /// Subtracted from every channel after scaling to 0..1.
    pub mean: [f32; 3],
    /// Divisor of every channel after that.
    pub std: [f32; 3],
}

/// Default thresholds of score and overlap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Detections above this score are kept.
    pub confidence: f32,
    /// Boxes of one class that overlap more than this are suppressed.
    pub nms: f32,
}

/// One file of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// SHA-256, lower-case hex.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

/// Lower-case hex.
#[doc(hidden)]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sizes of the memory tracker's tensors that the rest of the [`Manifest`] does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerSizes {
    /// Numbers of a memory for each patch.
    pub memory_width: usize,
    /// Channels of [`tensor::HIDDEN`].
    pub hidden: usize,
    /// Rows of the table of times; the last is that of conditioning frames.
    pub times: usize,
}

/// `model.json`: the properties of an exported model that the runtime needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// `ocelli` and its version.
    pub exporter: String,
    /// SHA-256 of the checkpoint's weight files, lower-case hex: the identity of the model.
    pub weights_sha256: String,
    /// SHA-256 of what text features depend on besides the weights: the text encoder's configuration and the tokeniser.
    /// Exports before this field lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_sha256: Option<String>,
    /// S, the side of the square input in pixels.
    pub imgsz: usize,
    /// Pixels of a patch's side.
    pub patch_size: usize,
    /// D.
    pub model_width: usize,
    /// Q.
    pub num_queries: usize,
    /// L.
    pub context_length: usize,
    /// Token ids for the start, the end and the padding of a phrase.
    pub special_tokens: SpecialTokens,
    /// The padding after a phrase, if the text encoder's result depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_padding: Option<TextPadding>,
    /// The preparation of images.
    pub preprocessing: Preprocessing,
    /// Default thresholds.
    pub thresholds: Thresholds,
    /// The tokens of a text prompt.
    pub prompting: Prompting,
    /// The operators that attention is written in.
    pub target: Target,
    /// Number format of the weights.
    pub precision: Precision,
    /// The kinds of computation that stay in 32 bits in half precision.
    #[serde(default)]
    pub mixed_precision: MixedPrecision,
    /// The [blocks](crate::Block) that stay in 32 bits in half precision.
    #[serde(default)]
    pub keep_fp32: Vec<String>,
    /// The ranges of a [calibrated](Precision::is_calibrated) precision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The memory tracker, if the folder has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracker: Option<TrackerSizes>,
    /// SAM 3.1's tracker, if the folder has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplex: Option<TrackerSizes>,
    /// `true` if the model has no masks: neither the mask head nor its inputs.
    pub detection_only: bool,
    /// ViT blocks that were removed.
    pub skip_blocks: Vec<usize>,
    /// Branches that were removed, as `25:attn`.
    pub mask_blocks: Vec<String>,
    /// The first block of the backbone's second part, if it is split.
    pub split_block: Option<usize>,
    /// The terms of the weights, of a model that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Every other file of the folder.
    pub files: BTreeMap<String, FileEntry>,
}

/// Token ids for the start, the end and the padding of a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecialTokens {
    /// `<|startoftext|>`.
    pub bos: i64,
    /// `<|endoftext|>`.
    pub eos: i64,
    /// The token for the rest of the context.
    pub pad: i64,
}

impl Manifest {
    /// Reads `model.json` of an exported folder.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the file cannot be read, [`InvalidData`](crate::ErrorKind::InvalidData) if it is not a
    /// manifest or has another format version.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(file::MANIFEST);
        Self::parse(read_text(&path, "the manifest")?.as_bytes(), &path)
    }

    /// Parses a `model.json` in memory; `path` stands for it in errors.
    ///
    /// # Errors
    /// [`InvalidData`](crate::ErrorKind::InvalidData) if it is not a manifest or has another format version.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let manifest: Self = serde_json::from_slice(text).map_err(|e| {
            invalid(format!("not an exported model, {}: {e}; export it again", path.display()))
        })?;
        if manifest.format_version != FORMAT_VERSION {
            return Err(invalid(format!(
                "cannot read the manifest, {}: its format is version {}, this program reads version {FORMAT_VERSION}; \
                 export the checkpoint again",
                path.display(),
                manifest.format_version
            )));
        }
        manifest.check_sizes().map_err(|why| {
            invalid(format!("corrupt manifest, {}: {why}; export it again", path.display()))
        })?;
        Ok(manifest)
    }

    /// `true` if the folder has a memory tracker.
    pub fn has_tracker(&self) -> bool {
        self.tracker.or(self.multiplex).is_some()
    }

    /// A file that was changed by hand must not fill the memory.
    fn check_sizes(&self) -> Result<(), String> {
        let tracker =
            self.tracker.or(self.multiplex).unwrap_or(TrackerSizes { memory_width: 1, hidden: 1, times: 1 });
        for (name, size) in [
            ("imgsz", self.imgsz),
            ("patch_size", self.patch_size),
            ("model_width", self.model_width),
            ("num_queries", self.num_queries),
            ("context_length", self.context_length),
            ("tracker.memory_width", tracker.memory_width),
            ("tracker.hidden", tracker.hidden),
            ("tracker.times", tracker.times),
        ] {
            let most = largest(name);
            if !(1..=most).contains(&(size as u64)) {
                return Err(format!("{name} is {size}: expected 1 to {most}"));
            }
        }
        let (imgsz, patch) = (self.imgsz, self.patch_size);
        if imgsz % patch != 0 || imgsz / patch > MAX_GRID {
            return Err(format!(
                "imgsz is {imgsz}, patch_size is {patch}: expected a multiple with at most {MAX_GRID} patches"
            ));
        }
        let SpecialTokens { bos, eos, pad } = self.special_tokens;
        for (name, id) in [("bos", bos), ("eos", eos), ("pad", pad)] {
            let most = largest(&format!("{name}_token_id"));
            if !(0..=most).contains(&u64::try_from(id).unwrap_or(u64::MAX)) {
                return Err(format!("special_tokens.{name} is {id}: expected 0 to {most}"));
            }
        }
        Ok(())
    }

    /// P, the image's side in patches.
    pub fn grid(&self) -> usize {
        self.imgsz / self.patch_size
    }

    /// The files of the backbone, in the order in which they run.
    pub fn backbone_files(&self) -> Vec<&'static str> {
        match self.split_block {
            Some(_) => vec![file::BACKBONE_FIRST, file::BACKBONE_SECOND],
            None => vec![file::BACKBONE],
        }
    }
}
