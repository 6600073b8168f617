//! Exports the backbone as a chain of graphs, one for each branch, so that any of them can be left out.

use std::path::{Path, PathBuf};

use crate::checkpoint::Checkpoint;
use crate::contract::file;
use crate::errors::refused;
use crate::exporter::ExportOptions;
use crate::model::{Plan, Section};
use crate::prune::{Branch, MaskedBranch};
use ocelli_error::Result;

/// The files of a backbone that is a chain: each reads the tokens `[P·P, hidden]` that the one before returns.
///
/// A branch includes its residual sum. Without its graph, the chain is the backbone that an export with
/// [`mask_blocks`](crate::Pruning::mask_blocks) has; without both of a block, the one of
/// [`skip_blocks`](crate::Pruning::skip_blocks).
#[derive(Clone, Debug)]
pub struct BackboneChain {
    /// [`PIXEL_VALUES`](crate::contract::tensor::PIXEL_VALUES) → [`TOKENS`](crate::contract::tensor::TOKENS).
    pub embedding: PathBuf,
    /// [`TOKENS`](crate::contract::tensor::TOKENS) → [`NEXT_TOKENS`](crate::contract::tensor::NEXT_TOKENS), in the order in which they run.
    pub branches: Vec<(MaskedBranch, PathBuf)>,
    /// [`TOKENS`](crate::contract::tensor::TOKENS) → the outputs of a backbone.
    pub neck: PathBuf,
    /// Bytes of the tokens of an image.
    pub token_bytes: u64,
}

/// Writes the backbone that `options` describe into an existing folder as a chain, in 32 bits where `options` ask for 16.
/// `progress` is called with the number of files that are written and the total; an error that it returns ends the export.
///
/// # Errors
/// As [`export`](crate::export), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a backbone that is no vision
/// transformer.
pub fn export_chain(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    folder: &Path,
    mut progress: impl FnMut(usize, usize) -> Result<()>,
) -> Result<BackboneChain> {
    let mut plan = Plan::new(options, checkpoint)?;
    plan.options.keep_fp32.clear();
    let config = checkpoint.config();
    if let Some(student) = &config.student {
        return Err(refused(student.lacks_blocks()));
    }
    let both = |block| [Branch::Attention, Branch::Mlp].map(|branch| MaskedBranch { block, branch });
    let kept = (0..config.vision.stack.layers)
        .flat_map(both)
        .filter(|branch| plan.options.pruning.has_kept(*branch));
    let named = |branch: MaskedBranch| {
        let name = format!("{branch}.onnx").replace(':', "_");
        (Section::Branch(branch), folder.join(name))
    };
    let (embedding, neck) = (folder.join("embedding.onnx"), folder.join("neck.onnx"));
    let mut parts = vec![(Section::Embedding, embedding.clone())];
    parts.extend(kept.map(named));
    parts.push((Section::Neck, neck.clone()));
    let mut branches = Vec::new();
    for (done, (section, path)) in parts.iter().enumerate() {
        progress(done, parts.len())?;
        let name = path.file_name().and_then(|name| name.to_str()).expect("the names are ASCII");
        let graph = plan.graph(file::BACKBONE);
        plan.backbone(&graph, *section);
        graph.finish(folder, name)?;
        if let Section::Branch(branch) = section {
            branches.push((*branch, path.clone()));
        }
    }
    let token_bytes = (plan.grid() * plan.grid() * config.vision.hidden * size_of::<f32>()) as u64;
    Ok(BackboneChain { embedding, branches, neck, token_bytes })
}
