//! Exports a checkpoint as a folder of graphs.

mod options;

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, parent_of};
use crate::config::{ModelConfig, Stack, TextConfig, TextEncoder};
use crate::contract::{
    FORMAT_VERSION, FileEntry, Manifest, Preprocessing, SpecialTokens, TextPadding, Thresholds, TrackerSizes,
    file, hex,
};
use crate::errors::refused;
use crate::graph::{Graph, WrittenFile};
use crate::model::{Plan, Section};
use ocelli_error::{Error, Result};

pub use options::ExportOptions;

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
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for options that are invalid for this checkpoint, or if `output`
/// exists; [`InvalidData`](crate::ErrorKind::InvalidData) if a value is not finite; [`Io`](crate::ErrorKind::Io) if writing fails.
pub fn export(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    output: &Path,
    mut progress: impl FnMut(ExportProgress) -> Result<()>,
) -> Result<Manifest> {
    let plan = Plan::new(options, checkpoint)?;
    check_output(output, options.force)?;
    let parent = parent_of(output);
    std::fs::create_dir_all(&parent).map_err(|e| Error::io("cannot create the folder", &parent, e))?;
    let staging = tempfile::Builder::new()
        .prefix(".ocelli-export-")
        .tempdir_in(&parent)
        .map_err(|e| Error::io("cannot write into", &parent, e))?;

    if plan.tracker {
        let name = if plan.has_buckets() { file::MULTIPLEX } else { file::TRACKER };
        let folder = staging.path().join(name);
        std::fs::create_dir(&folder).map_err(|e| Error::io("cannot create the folder", &folder, e))?;
    }
    let parts = parts(&plan);
    let half = options.half_rules();
    let (written, weights_sha256) = std::thread::scope(|scope| {
        // Hashing reads the whole checkpoint, and so fills the page cache for the writer.
        let hash = scope.spawn(|| checkpoint.weights_sha256());
        let mut written = Vec::new();
        for (done, &(file, build)) in parts.iter().enumerate() {
            progress(ExportProgress { file, done, total: parts.len() })?;
            let mut graph = plan.graph(file);
            build(&plan, &graph);
            if let Some(rules) = &half {
                graph = graph.in_half(rules);
            }
            written.extend(graph.finish(staging.path(), file)?);
        }
        written.push(WrittenFile::write(staging.path(), file::TOKENIZER, &checkpoint.tokenizer_json()?)?);
        let hash = hash.join().expect("hashing does not panic");
        Ok::<_, Error>((written, hash))
    })?;

    let manifest = manifest(&plan, weights_sha256, written);
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
    WrittenFile::write(staging.path(), file::MANIFEST, (text + "\n").as_bytes())?;
    install(staging, output)?;
    Ok(manifest)
}

type Build<'w> = fn(&Plan<'w>, &Graph<'w>);

/// The graphs of the folder: their files, and what builds them.
fn parts<'w>(plan: &Plan<'w>) -> Vec<(&'static str, Build<'w>)> {
    let is_split = plan.options.pruning.split_block.is_some();
    let (tracker, multiplex) = (plan.tracker && !plan.has_buckets(), plan.tracker && plan.has_buckets());
    let all: [(bool, &'static str, Build<'w>); 23] = [
        (!is_split, file::BACKBONE, |plan, g| plan.backbone(g, Section::Whole)),
        (is_split, file::BACKBONE_FIRST, |plan, g| plan.backbone(g, Section::First)),
        (is_split, file::BACKBONE_SECOND, |plan, g| plan.backbone(g, Section::Second)),
        (true, file::TEXT_ENCODER, Plan::text_encoder),
        (plan.checkpoint.config().has_exemplars(), file::EXEMPLAR_ENCODER, Plan::exemplar_encoder),
        (true, file::ENCODER_DECODER, Plan::encoder_decoder),
        (plan.options.screen, file::SCREEN, Plan::screen),
        (!plan.options.detection_only, file::MASK_HEAD, Plan::mask_head),
        (tracker, file::TRACK_FEATURES, |plan, g| plan.tracker().track_features(g)),
        (tracker, file::TRACK_STEP, |plan, g| plan.tracker().track_step(g)),
        (tracker, file::TRACK_INIT, |plan, g| plan.tracker().track_init(g)),
        (tracker, file::TRACK_POINTS, |plan, g| plan.tracker().track_points(g)),
        (tracker, file::MEMORY_ENCODER, |plan, g| plan.tracker().memory_encoder(g)),
        (tracker, file::MASK_IOU, |plan, g| plan.tracker().mask_iou(g)),
        (multiplex, file::MUX_FEATURES, |plan, g| plan.multiplex().mux_features(g)),
        (multiplex, file::MUX_INTERACTIVE, |plan, g| plan.interactive().mux_interactive(g)),
        (multiplex, file::MUX_STEP, |plan, g| plan.multiplex().mux_step(g)),
        (multiplex, file::MUX_PLANES, |plan, g| plan.multiplex().mux_planes(g)),
        (multiplex, file::MUX_PLANES_STORED, |plan, g| plan.multiplex().mux_planes_stored(g)),
        (multiplex, file::MUX_MEMORY, |plan, g| plan.multiplex().mux_memory(g)),
        (multiplex, file::MUX_INIT, |plan, g| plan.interactive().mux_init(g)),
        (multiplex, file::MUX_POINTS, |plan, g| plan.interactive().track_points(g)),
        (multiplex, file::MUX_MASK_IOU, |plan, g| plan.multiplex().mask_iou(g)),
    ];
    all.into_iter().filter_map(|(is_there, file, build)| is_there.then_some((file, build))).collect()
}

fn manifest(plan: &Plan<'_>, weights_sha256: String, written: Vec<WrittenFile>) -> Manifest {
    let (config, options) = (plan.checkpoint.config(), &plan.options);
    let padding = match config.text.encoder {
        TextEncoder::Clip => None,
        TextEncoder::MobileClip(text) => Some(text.padding),
    };
    let sizes = config.tracker.as_ref().filter(|_| plan.tracker).map(|tracker| TrackerSizes {
        memory_width: tracker.memory_width,
        hidden: config.vision.hidden,
        times: tracker.memory_rows,
    });
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
        prompting: options.prompting,
        target: options.target,
        precision: options.precision,
        mixed_precision: options.islands(),
        keep_fp32: options.keep_fp32.iter().map(ToString::to_string).collect(),
        calibration: options.calibration.clone(),
        tracker: sizes.filter(|_| !plan.has_buckets()),
        multiplex: sizes.filter(|_| plan.has_buckets()),
        detection_only: options.detection_only,
        skip_blocks: options.pruning.skip_blocks.iter().copied().collect(),
        text_sha256: Some(text_sha256(config, &files)),
        mask_blocks: options.pruning.mask_blocks.iter().map(ToString::to_string).collect(),
        split_block: options.pruning.split_block,
        license: options.license.clone(),
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

/// Refuses to replace anything except an exported folder, and that unless `force` is set.
fn check_output(output: &Path, force: bool) -> Result<()> {
    let refuse = |why: &str| Err(refused(format!("cannot export, {}: {why}", output.display())));
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
        (_, true, false) => refuse("it already has an exported model; set force to replace it")
            .map_err(|error| error.about("force")),
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
