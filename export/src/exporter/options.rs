//! Options of an export.

use std::collections::BTreeSet;

use crate::calibration::Calibration;
use crate::checkpoint::Checkpoint;
use crate::contract::{FORMAT_VERSION, MAX_GRID, MAX_IMGSZ, Precision, Prompting, Target};
use crate::errors::refused;
use crate::graph::HalfRules;
use crate::mixed_precision::{Block, Family, MixedPrecision};
use crate::prune::Pruning;
use ocelli_error::{Error, Result};

/// Increased when the same options write other files, so that cached exports are made again. 2: repeated numbers are not
/// packed. 3: no `Sign`. 4: scaled queries, sums in 32 bits. 5: masks of prompts come to the memory encoder in its
/// detail.
const WRITER_REVISION: u32 = 5;

/// Options of an export; the [`Default`] is the unchanged checkpoint, for ONNX Runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// The side of the input in pixels, a multiple of the patch size; the checkpoint's own by default.
    pub imgsz: Option<usize>,
    /// The operators that attention is written in.
    pub target: Target,
    /// Number format of the weights.
    pub precision: Precision,
    /// The kinds of computation that stay in 32 bits in [half precision](Precision::is_half);
    /// [`MixedPrecision::default_of`] the precision by default.
    pub mixed_precision: Option<MixedPrecision>,
    /// The blocks that stay in 32 bits in [half precision](Precision::is_half), and in [`Precision::Int8`].
    pub keep_fp32: BTreeSet<Block>,
    /// The ranges for a [calibrated](Precision::is_calibrated) precision, which needs them.
    pub calibration: Option<Calibration>,
    /// Adds an output for the range of every layer that a calibrated precision rounds; see
    /// [`for_calibration`](Self::for_calibration).
    pub observes: bool,
    /// The tokens of a text prompt: with the CLS token or without it.
    pub prompting: Prompting,
    /// Removes everything that only masks need: the finer feature maps and the mask head.
    pub detection_only: bool,
    /// Adds [`file::SCREEN`](crate::contract::file::SCREEN): the encoder-decoder on a grid of half the side, which rules out
    /// classes that are absent.
    pub screen: bool,
    /// Leaves out the memory tracker, which is exported if the checkpoint has one. A model for detection alone has no masks
    /// to follow, and never has a tracker.
    pub no_tracker: bool,
    /// The blocks and branches that are removed, and the block before which the backbone is split into two files.
    pub pruning: Pruning,
    /// The terms of the weights, for `model.json`.
    pub license: Option<String>,
    /// Replaces an existing exported folder.
    pub force: bool,
}

impl ExportOptions {
    /// The number format that is exported for a requested one: where `calibrates`, its scales are measured on images, and
    /// [`Precision::Int8`] is [`Precision::Int8Static`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the format needs measured scales and gets none, or
    /// gets some and has none, or the target does not multiply with them.
    pub fn precision_for(requested: Precision, calibrates: bool, target: Target) -> Result<Precision> {
        let precision = match requested {
            Precision::Int8 if calibrates => Precision::Int8Static,
            requested => requested,
        };
        let (name, why) = match (precision.is_calibrated(), calibrates) {
            (false, false) => return Ok(precision),
            (true, false) => ("precision", "its scales are measured on images; name some with calibrate"),
            (false, true) => ("calibrate", "only fp8 and int8 have scales that are measured with calibrate"),
            (true, true) if target == Target::TensorRt => return Ok(precision),
            (true, true) => {
                ("target", "only TensorRT multiplies with measured scales; expected target tensorrt")
            }
        };
        Err(refused(format!("precision {requested}: {why}")).about(name))
    }

    pub(super) fn islands(&self) -> MixedPrecision {
        self.mixed_precision.unwrap_or(MixedPrecision::default_of(self.precision))
    }

    /// The same model in 32 bits for detection alone, with an output for the range of every layer that a
    /// [calibrated](Precision::is_calibrated) precision rounds: [`Calibration::output_of`] has their names.
    #[must_use]
    pub fn for_calibration(&self, target: Target) -> Self {
        Self {
            imgsz: self.imgsz,
            target,
            observes: true,
            prompting: self.prompting,
            detection_only: true,
            no_tracker: self.no_tracker,
            pruning: self.pruning.clone(),
            force: self.force,
            ..Self::default()
        }
    }

    /// The blocks that [`keep_fp32`](Self::keep_fp32) accepts for this checkpoint, front to back, without those
    /// that these options remove. With [`Precision::Int8`] they are those with layers in 8 bits.
    pub fn blocks(&self, checkpoint: &Checkpoint) -> Vec<Block> {
        let all = checkpoint.config().blocks().into_iter();
        let pruning = self.pruning.with(checkpoint.pruning());
        all.filter(|block| {
            let skipped = pruning.skip_blocks.iter().any(|&skip| *block == Block::layer(Family::Vit, skip));
            let masks = *block == Block::whole(Family::Masks);
            let stays = self.precision == Precision::Int8 && !block.has_8_bits();
            let left_out = *block == Block::whole(Family::Tracker) && !self.has_tracker(checkpoint);
            !(skipped || stays || left_out || masks && self.detection_only)
        })
        .collect()
    }

    pub(crate) fn has_tracker(&self, checkpoint: &Checkpoint) -> bool {
        !self.no_tracker && !self.detection_only && checkpoint.config().tracker.is_some()
    }

    /// A short text that differs if the exported graphs would differ.
    pub fn fingerprint(&self, checkpoint: &Checkpoint) -> String {
        let pruning = self.pruning.with(checkpoint.pruning());
        let list = |blocks: Vec<String>| blocks.join(",");
        let kept = list(self.keep_fp32.iter().map(ToString::to_string).collect());
        let half = if self.precision.is_half() {
            format!(";mixed={};keep={kept}", self.islands())
        } else if kept.is_empty() {
            String::new()
        } else {
            format!(";keep={kept}")
        };
        let screen = if self.screen { ";screen" } else { "" };
        let tracker = if self.has_tracker(checkpoint) { ";tracker" } else { "" };
        let ranges = self.calibration.as_ref().map_or(String::new(), |it| format!(";{}", it.fingerprint()));
        let observes = if self.observes { ";observes" } else { "" };
        format!(
            "v{FORMAT_VERSION}.{WRITER_REVISION};{};imgsz={};{:?};{:?};{:?};detection_only={};skip={};mask={};split={:?};{}{half}{screen}{tracker}{ranges}{observes}",
            env!("CARGO_PKG_VERSION"),
            self.imgsz.unwrap_or(checkpoint.config().vision.image_size),
            self.target,
            self.precision,
            self.prompting,
            self.detection_only,
            list(pruning.skip_blocks.iter().map(ToString::to_string).collect()),
            list(pruning.mask_blocks.iter().map(ToString::to_string).collect()),
            pruning.split_block,
            checkpoint.fingerprint(),
        )
    }

    /// Checks the options; returns the side of the input.
    pub(crate) fn check(&self, checkpoint: &Checkpoint) -> Result<usize> {
        let vision = &checkpoint.config().vision;
        let imgsz = self.imgsz.unwrap_or(vision.image_size);
        if imgsz > MAX_IMGSZ {
            return Err(Error::argument("imgsz", imgsz, format!("at most {MAX_IMGSZ}")));
        }
        if imgsz / vision.patch_size > MAX_GRID {
            let most = MAX_GRID * vision.patch_size;
            return Err(Error::argument(
                "imgsz",
                imgsz,
                format!("at most {most}, {MAX_GRID} patches a side"),
            ));
        }
        if imgsz == 0 || !imgsz.is_multiple_of(vision.patch_size) {
            let below = (imgsz / vision.patch_size).max(1) * vision.patch_size;
            let (patch, above) = (vision.patch_size, below + vision.patch_size);
            let expected = format!("a multiple of the patch size {patch}, such as {below} or {above}");
            return Err(Error::argument("imgsz", imgsz, expected));
        }
        let grid = imgsz / vision.patch_size;
        if self.screen && !grid.is_multiple_of(2) {
            return Err(refused(format!(
                "screen, imgsz {imgsz}: the screen needs an even number of patches a side, got {grid}; choose imgsz {} or {}",
                imgsz - vision.patch_size,
                imgsz + vision.patch_size
            )).about("screen"));
        }
        self.pruning.with(checkpoint.pruning()).check(checkpoint.config())?;
        self.check_half(checkpoint)?;
        self.check_calibration()?;
        Ok(imgsz)
    }

    fn check_calibration(&self) -> Result<()> {
        let precision = self.precision;
        let why = match &self.calibration {
            None if precision.is_calibrated() => {
                "its scales are measured on images; export the checkpoint with a calibration, and use that folder".to_owned()
            }
            Some(_) if !precision.is_calibrated() => {
                "a calibration is for 8-bit formats with known scales; expected fp8 or int8-static".to_owned()
            }
            Some(calibration) if calibration.ranges.is_empty() => {
                "the calibration has no ranges; calibrate on at least one image".to_owned()
            }
            Some(_) if self.target != Target::TensorRt => {
                "only TensorRT multiplies in 8 bits with known scales; expected target tensorrt".to_owned()
            }
            _ => return Ok(()),
        };
        Err(refused(format!("precision {precision}: {why}")).about("precision"))
    }

    fn check_half(&self, checkpoint: &Checkpoint) -> Result<()> {
        let refuse = |option, why: String| Err(refused(format!("{option}{why}")).about(option));
        let (precision, islands) = (self.precision, self.islands());
        if !precision.is_half() && islands != MixedPrecision::None {
            let remedy =
                "only half precision has operators that stay in 32 bits; export with precision fp16 or bf16";
            return refuse("mixed_precision", format!(", precision {precision}: {remedy}"));
        }
        if precision == Precision::Fp32 && !self.keep_fp32.is_empty() {
            let remedy = "all blocks are in 32 bits; export with precision fp16, bf16 or int8";
            return refuse("keep_fp32", format!(", precision {precision}: {remedy}"));
        }
        let why = match (precision, self.target) {
            _ if islands != MixedPrecision::Bf16Attention => "",
            (Precision::Bf16, _) => {
                "precision bf16: attention is bfloat16 at every level; expected accumulate"
            }
            (_, Target::TensorRt) => "",
            (_, Target::OnnxRuntime) => {
                "target onnxruntime: only TensorRT mixes the two; expected target tensorrt"
            }
        };
        if !why.is_empty() {
            return refuse("mixed_precision", format!(" bf16-attention, {why}"));
        }
        let known = self.blocks(checkpoint);
        match self.keep_fp32.iter().find(|kept| !known.iter().any(|block| kept.covers(*block))) {
            Some(unknown) => {
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                refuse("keep_fp32", format!(" has {unknown}: the model has {}", names.join(", ")))
            }
            None => Ok(()),
        }
    }

    /// The formats in the graphs, if they are half precision.
    pub(super) fn half_rules(&self) -> Option<HalfRules> {
        Some(HalfRules {
            half: HalfRules::half_of(self.precision)?,
            islands: self.islands(),
            casts_for_sums: self.target == Target::TensorRt,
            kept: self.keep_fp32.iter().copied().collect(),
        })
    }
}
