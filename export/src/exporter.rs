//! Exports a checkpoint as a folder of graphs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::calibration::Calibration;
use crate::checkpoint::{Checkpoint, hex};
use crate::config::{ModelConfig, Stack, TextConfig, TextEncoder};
use crate::contract::{
    FORMAT_VERSION, FileEntry, Manifest, Precision, Preprocessing, Prompting, SpecialTokens, Target,
    TextPadding, Thresholds, TrackerSizes, file,
};
use crate::graph::{Graph, HashedFile, WrittenFile};
use crate::mixed_precision::{Block, Family, HalfFormat, HalfRules, MixedPrecision};
use crate::model::{Plan, Section};
use crate::prune::{MaskedBranch, Pruning};
use ocelli_error::{Error, ErrorKind, Result};

/// The largest input side: the cost of attention over the whole grid grows with its fourth power.
pub(crate) const MAX_IMGSZ: usize = 8192;
/// The largest number of patches in a row: a table of positions has the square of it.
pub(crate) const MAX_GRID: usize = 1024;

/// Increased when the same options write other files, so that cached exports are made again. 2: repeated numbers are not
/// packed. 3: no `Sign`. 4: scaled queries, sums in 32 bits.
const WRITER_REVISION: u32 = 4;

/// Options of an export; the [`Default`] is the unchanged checkpoint, for ONNX Runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    imgsz: Option<usize>,
    target: Target,
    precision: Precision,
    /// That of the precision by default.
    mixed_precision: Option<MixedPrecision>,
    keep_fp32: BTreeSet<Block>,
    emulated_half: bool,
    calibration: Option<Calibration>,
    observes: bool,
    prompting: Prompting,
    detection_only: bool,
    screen: bool,
    no_tracker: bool,
    pruning: Pruning,
    force: bool,
}

impl ExportOptions {
    /// The side of the input in pixels, a multiple of the patch size; the checkpoint's own by default.
    #[must_use]
    pub fn with_imgsz(mut self, imgsz: usize) -> Self {
        self.imgsz = Some(imgsz);
        self
    }

    /// The operators that attention is written in.
    #[must_use]
    pub fn with_target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Number format of the weights.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The kinds of computation that stay in 32 bits in [half precision](Precision::is_half);
    /// [`MixedPrecision::default_of`] the precision by default.
    #[must_use]
    pub fn with_mixed_precision(mut self, islands: MixedPrecision) -> Self {
        self.mixed_precision = Some(islands);
        self
    }

    fn islands(&self) -> MixedPrecision {
        self.mixed_precision.unwrap_or(MixedPrecision::default_of(self.precision))
    }

    /// The blocks that stay in 32 bits in [half precision](Precision::is_half), and in [`Precision::Int8`].
    #[must_use]
    pub fn with_keep_fp32(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.keep_fp32 = blocks.into_iter().collect();
        self
    }

    /// Writes [half precision](Precision::is_half) as a graph in 32 bits that rounds where half precision would: to
    /// measure its effect on engines without half precision. The files are as large as those of [`Precision::Fp32`], and
    /// slower.
    #[must_use]
    pub fn with_emulated_half(mut self, emulated: bool) -> Self {
        self.emulated_half = emulated;
        self
    }

    /// The ranges for a [calibrated](Precision::is_calibrated) precision, which needs them.
    #[must_use]
    pub fn with_calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = Some(calibration);
        self
    }

    /// The same model in 32 bits for detection alone, with an output for the range of every layer that a
    /// [calibrated](Precision::is_calibrated) precision rounds: [`Calibration::output_of`] has their names.
    #[must_use]
    pub fn for_calibration(&self, target: Target) -> Self {
        let (precision, keep_fp32) = (Precision::Fp32, BTreeSet::new());
        let (mixed_precision, calibration) = (None, None);
        let same = self.clone().with_target(target).with_detection_only(true).with_screen(false);
        Self {
            precision,
            mixed_precision,
            keep_fp32,
            calibration,
            emulated_half: false,
            observes: true,
            ..same
        }
    }

    /// The blocks that [`with_keep_fp32`](Self::with_keep_fp32) accepts for this checkpoint, front to back, without those
    /// that these options remove. With [`Precision::Int8`] they are those with layers in 8 bits.
    pub fn blocks(&self, checkpoint: &Checkpoint) -> Vec<Block> {
        let all = Block::of_model(checkpoint.config()).into_iter();
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

    /// Whether a text prompt includes the CLS token.
    #[must_use]
    pub fn with_prompting(mut self, prompting: Prompting) -> Self {
        self.prompting = prompting;
        self
    }

    /// Removes everything that only masks need: the finer feature maps and the mask head.
    #[must_use]
    pub fn with_detection_only(mut self, detection_only: bool) -> Self {
        self.detection_only = detection_only;
        self
    }

    /// Adds [`file::SCREEN`]: the encoder-decoder on a grid of half the side, which rules out classes that are absent.
    #[must_use]
    pub fn with_screen(mut self, screen: bool) -> Self {
        self.screen = screen;
        self
    }

    /// Whether the memory tracker is exported, if the checkpoint has one: it is by default. A model for detection alone has
    /// no masks to follow, and never has a tracker.
    #[must_use]
    pub fn with_tracker(mut self, tracker: bool) -> Self {
        self.no_tracker = !tracker;
        self
    }

    fn has_tracker(&self, checkpoint: &Checkpoint) -> bool {
        !self.no_tracker && !self.detection_only && checkpoint.config().tracker.is_some()
    }

    /// Removes these ViT blocks.
    #[must_use]
    pub fn with_skip_blocks(mut self, blocks: impl IntoIterator<Item = usize>) -> Self {
        self.pruning.skip_blocks = blocks.into_iter().collect();
        self
    }

    /// Replaces these branches of ViT blocks by the identity.
    #[must_use]
    pub fn with_mask_blocks(mut self, branches: impl IntoIterator<Item = MaskedBranch>) -> Self {
        self.pruning.mask_blocks = branches.into_iter().collect();
        self
    }

    /// Splits the backbone into two files before this block.
    #[must_use]
    pub fn with_split_block(mut self, block: Option<usize>) -> Self {
        self.pruning.split_block = block;
        self
    }

    /// Replaces an existing exported folder.
    #[must_use]
    pub fn with_force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// A short text that differs if the exported graphs would differ.
    pub fn fingerprint(&self, checkpoint: &Checkpoint) -> String {
        let pruning = self.pruning.with(checkpoint.pruning());
        let list = |blocks: Vec<String>| blocks.join(",");
        let half = match self.precision.is_half() {
            true => {
                let kept = list(self.keep_fp32.iter().map(ToString::to_string).collect());
                format!(";mixed={};keep={kept};emulated={}", self.islands(), self.emulated_half)
            }
            false if self.keep_fp32.is_empty() => String::new(),
            false => format!(";keep={}", list(self.keep_fp32.iter().map(ToString::to_string).collect())),
        };
        let screen = if self.screen { ";screen" } else { "" };
        let tracker = if self.has_tracker(checkpoint) { ";tracker 2" } else { "" };
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
            let expected = format!("at most {most}, {MAX_GRID} patches a side");
            return Err(Error::argument("imgsz", imgsz, expected));
        }
        if imgsz == 0 || !imgsz.is_multiple_of(vision.patch_size) {
            let below = (imgsz / vision.patch_size).max(1) * vision.patch_size;
            let (patch, above) = (vision.patch_size, below + vision.patch_size);
            let expected = format!("a multiple of the patch size {patch}, such as {below} or {above}");
            return Err(Error::argument("imgsz", imgsz, expected));
        }
        let grid = imgsz / vision.patch_size;
        if self.screen && !grid.is_multiple_of(2) {
            let message = format!(
                "screen, imgsz {imgsz}: the screen needs an even number of patches a side, got {grid}; choose imgsz {} or {}",
                imgsz - vision.patch_size,
                imgsz + vision.patch_size
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).about("screen"));
        }
        self.pruning.with(checkpoint.pruning()).check(checkpoint.config())?;
        self.check_half(checkpoint)?;
        self.check_calibration()?;
        Ok(imgsz)
    }

    fn check_calibration(&self) -> Result<()> {
        let precision = self.precision;
        let why = match &self.calibration {
            Some(_) if precision == Precision::Fp8 && self.emulated_half => {
                "its half precision is not emulated; expected the graph itself, which ONNX Runtime runs on the CPU".to_owned()
            }
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
        let message = format!("precision {precision}: {why}");
        Err(Error::new(ErrorKind::InvalidArgument, message).about("precision"))
    }

    fn check_half(&self, checkpoint: &Checkpoint) -> Result<()> {
        let invalid =
            |parameter, message| Err(Error::new(ErrorKind::InvalidArgument, message).about(parameter));
        if !self.precision.is_half() {
            let precision = self.precision;
            if self.islands() != MixedPrecision::None {
                return invalid(
                    "mixed_precision",
                    format!(
                        "mixed_precision, precision {precision}: only half precision has operators that stay in 32 bits; \
                     export with precision fp16 or bf16"
                    ),
                );
            }
            if precision == Precision::Fp32 && !self.keep_fp32.is_empty() {
                return invalid(
                    "keep_fp32",
                    format!(
                        "keep_fp32, precision {precision}: all blocks are in 32 bits; export with precision fp16, bf16 or int8"
                    ),
                );
            }
        }
        if self.islands() == MixedPrecision::Bf16Attention {
            let why = match (self.precision, self.target) {
                (Precision::Bf16, _) => {
                    Some("precision bf16: attention is bfloat16 at every level; expected accumulate")
                }
                (_, Target::OnnxRuntime) => {
                    Some("target onnxruntime: only TensorRT mixes the two; expected target tensorrt")
                }
                (_, Target::TensorRt) => None,
            };
            if let Some(why) = why {
                return invalid("mixed_precision", format!("mixed_precision bf16-attention, {why}"));
            }
        }
        let known = self.blocks(checkpoint);
        match self.keep_fp32.iter().find(|kept| !known.iter().any(|block| kept.covers(*block))) {
            Some(unknown) => {
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                invalid("keep_fp32", format!("keep_fp32 has {unknown}: the model has {}", names.join(", ")))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn plan<'w>(
        &'w self,
        checkpoint: &'w Checkpoint,
        imgsz: usize,
        kept: &'w [Block],
    ) -> Plan<'w> {
        Plan {
            checkpoint,
            imgsz,
            target: self.target,
            precision: self.precision,
            // The image's token is what the encoder of exemplars gives without boxes.
            prompting: if checkpoint.config().has_exemplars() { self.prompting } else { Prompting::Text },
            detection_only: self.detection_only,
            screen: self.screen,
            tracker: self.has_tracker(checkpoint),
            pruning: self.pruning.with(checkpoint.pruning()),
            observes: self.observes,
            calibration: self.calibration.as_ref(),
            kept,
        }
    }

    /// The formats in the graphs, if they are half precision.
    fn half_rules(&self) -> Option<HalfRules> {
        let format = HalfFormat::of(self.precision)?;
        let kept = self.keep_fp32.iter().copied().collect();
        Some(HalfRules {
            format,
            islands: self.islands(),
            casts_for_sums: self.target == Target::TensorRt,
            kept,
        })
    }
}

/// The progress of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportProgress {
    /// The file being written.
    pub file: &'static str,
    /// The number of files written so far.
    pub done: usize,
    /// The number of files in total.
    pub total: usize,
}

/// Exports `checkpoint` to the folder `output` and returns the manifest.
///
/// The folder appears complete or not at all: it is written under another name and then renamed. `progress` is called
/// before each file is written; an error that it returns cancels the export, which returns that error. The checkpoint's
/// files are mapped into memory and must not change during the export.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for options that are invalid for this checkpoint, or if `output` exists;
/// [`ErrorKind::InvalidData`] if a value is not finite; [`ErrorKind::Io`] if writing fails.
pub fn export(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    output: &Path,
    mut progress: impl FnMut(ExportProgress) -> Result<()>,
) -> Result<Manifest> {
    let imgsz = options.check(checkpoint)?;
    check_output(output, options.force)?;
    let kept: Vec<Block> = options.keep_fp32.iter().copied().collect();
    let plan = options.plan(checkpoint, imgsz, &kept);
    let parent = parent_of(output);
    std::fs::create_dir_all(&parent).map_err(|e| Error::io("cannot create the folder", &parent, e))?;
    let staging = tempfile::Builder::new()
        .prefix(".ocelli-export-")
        .tempdir_in(&parent)
        .map_err(|e| Error::io("cannot write into", &parent, e))?;

    if plan.tracker {
        let folder = staging.path().join(file::TRACKER);
        std::fs::create_dir(&folder).map_err(|e| Error::io("cannot create the folder", &folder, e))?;
    }
    let parts = parts(&plan);
    let half = options.half_rules();
    let (written, weights_sha256) = std::thread::scope(|scope| {
        // Hashing reads the whole checkpoint, and so fills the page cache for the writer.
        let hash = scope.spawn(|| checkpoint.weights_sha256());
        let mut written = Vec::new();
        for (done, part) in parts.iter().enumerate() {
            progress(ExportProgress { file: part.file(), done, total: parts.len() })?;
            let graph = part.build(&plan);
            let graph = match &half {
                Some(rules) if options.emulated_half => graph.in_emulated_half(rules),
                Some(rules) => graph.in_half(rules),
                None => graph,
            };
            written.extend(graph.finish(staging.path(), part.file())?);
        }
        written.push(copy_tokenizer(checkpoint, staging.path())?);
        let hash = hash.join().expect("hashing does not panic");
        Ok::<_, Error>((written, hash))
    })?;

    let emulates = half.is_some() && options.emulated_half;
    let manifest = Manifest {
        exporter: format!(
            "ocelli {}{}",
            env!("CARGO_PKG_VERSION"),
            if emulates { ", half precision emulated" } else { "" }
        ),
        mixed_precision: options.islands(),
        keep_fp32: options.keep_fp32.iter().map(ToString::to_string).collect(),
        calibration: options.calibration.clone(),
        ..manifest(&plan, weights_sha256, written)
    };
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
    let mut file = HashedFile::create(&staging.path().join(file::MANIFEST))?;
    file.append(text.as_bytes())?;
    file.append(b"\n")?;
    file.close()?;
    install(staging, output)?;
    Ok(manifest)
}

/// One graph of the folder.
#[derive(Clone, Copy)]
enum Part {
    Backbone,
    BackboneFirst,
    BackboneSecond,
    TextEncoder,
    ExemplarEncoder,
    EncoderDecoder,
    Screen,
    MaskHead,
    TrackFeatures,
    TrackStep,
    TrackInit,
    TrackPoints,
    MemoryEncoder,
    MaskIou,
}

impl Part {
    fn file(self) -> &'static str {
        match self {
            Self::Backbone => file::BACKBONE,
            Self::BackboneFirst => file::BACKBONE_FIRST,
            Self::BackboneSecond => file::BACKBONE_SECOND,
            Self::TextEncoder => file::TEXT_ENCODER,
            Self::ExemplarEncoder => file::EXEMPLAR_ENCODER,
            Self::EncoderDecoder => file::ENCODER_DECODER,
            Self::Screen => file::SCREEN,
            Self::MaskHead => file::MASK_HEAD,
            Self::TrackFeatures => file::TRACK_FEATURES,
            Self::TrackStep => file::TRACK_STEP,
            Self::TrackInit => file::TRACK_INIT,
            Self::TrackPoints => file::TRACK_POINTS,
            Self::MemoryEncoder => file::MEMORY_ENCODER,
            Self::MaskIou => file::MASK_IOU,
        }
    }

    fn build<'w>(self, plan: &Plan<'w>) -> Graph<'w> {
        match self {
            Self::Backbone => plan.backbone(Section::Whole),
            Self::BackboneFirst => plan.backbone(Section::First),
            Self::BackboneSecond => plan.backbone(Section::Second),
            Self::TextEncoder => plan.text_encoder(),
            Self::ExemplarEncoder => plan.exemplar_encoder(),
            Self::EncoderDecoder => plan.encoder_decoder(),
            Self::Screen => plan.screen(),
            Self::MaskHead => plan.mask_head(),
            Self::TrackFeatures => plan.track_features(),
            Self::TrackStep => plan.track_step(),
            Self::TrackInit => plan.track_init(),
            Self::TrackPoints => plan.track_points(),
            Self::MemoryEncoder => plan.memory_encoder(),
            Self::MaskIou => plan.mask_iou(),
        }
    }
}

fn parts(plan: &Plan<'_>) -> Vec<Part> {
    let mut parts = match plan.pruning.split_block {
        Some(_) => vec![Part::BackboneFirst, Part::BackboneSecond],
        None => vec![Part::Backbone],
    };
    parts.push(Part::TextEncoder);
    if plan.checkpoint.config().has_exemplars() {
        parts.push(Part::ExemplarEncoder);
    }
    parts.push(Part::EncoderDecoder);
    if plan.screen {
        parts.push(Part::Screen);
    }
    if !plan.detection_only {
        parts.push(Part::MaskHead);
    }
    if plan.tracker {
        parts.extend([
            Part::TrackFeatures,
            Part::TrackStep,
            Part::TrackInit,
            Part::TrackPoints,
            Part::MemoryEncoder,
            Part::MaskIou,
        ]);
    }
    parts
}

fn manifest(plan: &Plan<'_>, weights_sha256: String, written: Vec<WrittenFile>) -> Manifest {
    let config = plan.checkpoint.config();
    let padding = match config.text.encoder {
        TextEncoder::Clip => None,
        TextEncoder::MobileClip(text) => Some(text.padding),
    };
    let files: BTreeMap<_, _> = written.into_iter().map(|file| (file.name, file.entry)).collect();
    Manifest {
        format_version: FORMAT_VERSION,
        exporter: format!("ocelli {}", env!("CARGO_PKG_VERSION")),
        weights_sha256,
        imgsz: plan.imgsz,
        patch_size: config.vision.patch_size,
        model_width: config.width,
        num_queries: config.num_queries,
        context_length: config.text.context_length,
        special_tokens: SpecialTokens {
            bos: config.text.bos,
            eos: config.text.eos,
            pad: if padding == Some(TextPadding::Training) { 0 } else { config.text.eos },
        },
        text_padding: padding,
        preprocessing: Preprocessing { resize: "bilinear-antialias".into(), mean: [0.5; 3], std: [0.5; 3] },
        thresholds: Thresholds { confidence: 0.3, nms: 0.7 },
        prompting: plan.prompting,
        target: plan.target,
        precision: plan.precision,
        mixed_precision: MixedPrecision::None,
        keep_fp32: Vec::new(),
        calibration: None,
        tracker: config.tracker.as_ref().filter(|_| plan.tracker).map(|tracker| TrackerSizes {
            memory_width: tracker.memory_width,
            hidden: config.vision.hidden,
            times: tracker.memory_rows,
        }),
        detection_only: plan.detection_only,
        skip_blocks: plan.pruning.skip_blocks.iter().copied().collect(),
        text_sha256: Some(text_sha256(config, &files)),
        mask_blocks: plan
            .pruning
            .mask_blocks
            .iter()
            .collect::<BTreeSet<_>>()
            .iter()
            .map(ToString::to_string)
            .collect(),
        split_block: plan.pruning.split_block,
        files,
    }
}

/// SHA-256 of what text features depend on besides the weights: the text encoder's configuration and the tokeniser.
fn text_sha256(config: &ModelConfig, files: &BTreeMap<String, FileEntry>) -> String {
    let TextConfig { hidden, stack, context_length, vocab_size, layer_norm_eps, encoder, bos, eos, .. } =
        &config.text;
    let Stack { layers, heads, intermediate, activation } = stack;
    let tokenizer = files.get(file::TOKENIZER).map_or("", |entry| &entry.sha256);
    let encoder = match encoder {
        TextEncoder::Clip => String::new(),
        other => format!(" {other:?}"),
    };
    let text = format!(
        "{hidden} {layers} {heads} {intermediate} {activation:?} {context_length} {vocab_size} {layer_norm_eps:e} {bos} \
         {eos} {} {tokenizer}{encoder}",
        config.width
    );
    hex(&Sha256::digest(text))
}

fn copy_tokenizer(checkpoint: &Checkpoint, folder: &Path) -> Result<WrittenFile> {
    let data = checkpoint.tokenizer_json()?;
    let mut file = HashedFile::create(&folder.join(file::TOKENIZER))?;
    file.append(&data)?;
    Ok(WrittenFile { name: file::TOKENIZER.to_owned(), entry: file.close()? })
}

fn parent_of(output: &Path) -> PathBuf {
    match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Refuses to replace anything except an exported folder, and that unless `force` is set.
fn check_output(output: &Path, force: bool) -> Result<()> {
    let refuse = |why: &str| {
        let message = format!("cannot export, {}: {why}", output.display());
        Err(Error::new(ErrorKind::InvalidArgument, message))
    };
    if output.file_name().is_none() {
        return refuse("not the name of a folder");
    }
    if !output.exists() {
        return Ok(());
    }
    if !output.is_dir() {
        return refuse("it is a file; expected a folder");
    }
    let empty = std::fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_none());
    match (empty, output.join(file::MANIFEST).is_file(), force) {
        (true, _, _) | (_, true, true) => Ok(()),
        (_, true, false) => refuse("it already has an exported model; set force to replace it"),
        _ => refuse("the folder is not empty and has no exported model; choose another"),
    }
}

/// Moves the finished folder to its place; an old one is removed only when the new one is complete.
fn install(staging: tempfile::TempDir, output: &Path) -> Result<()> {
    let staged = staging.keep();
    let finish = || {
        if output.exists() {
            let old = staged.with_extension("old");
            std::fs::rename(output, &old)?;
            std::fs::rename(&staged, output)?;
            std::fs::remove_dir_all(&old)
        } else {
            std::fs::rename(&staged, output)
        }
    };
    finish().map_err(|e| {
        // The caller needs the error of the rename; a second error only leaves a folder behind.
        drop(std::fs::remove_dir_all(&staged));
        Error::io("cannot put the exported folder in place", output, e)
    })
}
