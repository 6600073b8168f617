//! Each engine needs other settings for each graph: the provider, fixed sizes, and the cache of compiled graphs.

use std::path::{Path, PathBuf};

use ocelli_engines::onnxruntime::{CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntimeBuilder};
use ocelli_export::contract::{dim, file, hex};
use sha2::{Digest, Sha256};

use super::EngineKind;
use crate::cache::{cache_folder, remembered_hash, sha256_of_file};
use ocelli_error::{Error, Result};

/// Prompt tokens beyond the text where their number is fixed: the CLS token and seven exemplars.
const APPENDED_TOKENS: usize = 8;

/// Masks computed at once where their number is fixed.
const MASKS_AT_ONCE: usize = 8;

/// One graph and the options of its engine.
pub(super) struct Graph<'g> {
    pub(super) path: &'g Path,
    pub(super) kind: EngineKind,
    pub(super) tf32: bool,
    /// Classes that are decoded at once.
    pub(super) class_chunk: usize,
    pub(super) context_length: Option<usize>,
}

impl Graph<'_> {
    fn is_any_of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.path.ends_with(name))
    }

    /// `true` if the runtime keeps the memory of a run for the next one.
    ///
    /// The graphs of the memory tracker take turns and each needs hundreds of megabytes for features of its own: what all of them
    /// keep is twice what the largest needs.
    pub(super) fn keeps_memory(&self) -> bool {
        let of_tracker = |folder: &Path| folder.ends_with(file::TRACKER) || folder.ends_with(file::MULTIPLEX);
        !self.path.parent().is_some_and(of_tracker)
    }

    /// The provider that runs the graph.
    ///
    /// Core ML needs fixed sizes, but the number of exemplars varies and cannot be padded: their encoder runs on the CPU.
    pub(super) fn provider(&self) -> Result<ExecutionProvider> {
        // The attention to memories, whose values are narrower than their keys.
        let no_efficient_attention = self.path.ends_with(file::TRACK_STEP);
        Ok(match self.kind {
            EngineKind::Cuda { ordinal } => {
                ExecutionProvider::Cuda(CudaOptions { ordinal, tf32: self.tf32, no_efficient_attention })
            }
            EngineKind::CoreMl if self.is_any_of(&[file::EXEMPLAR_ENCODER]) => {
                tracing::info!("exemplars are encoded on the CPU: Core ML needs a fixed number of them");
                ExecutionProvider::Cpu
            }
            EngineKind::CoreMl => ExecutionProvider::CoreMl(CoreMlOptions {
                model_cache: Some(cache_of_compiled(self.path, "coreml")?),
            }),
            other => super::default_provider(other),
        })
    }

    /// Fixes the free sizes of the graph for Core ML.
    pub(super) fn fix_dimensions(&self, builder: OnnxRuntimeBuilder) -> OnnxRuntimeBuilder {
        if self.kind != EngineKind::CoreMl {
            return builder;
        }
        let fixed = self.fixed();
        fixed.into_iter().fold(builder, |builder, (name, size)| builder.with_fixed_dimension(name, size))
    }

    fn fixed(&self) -> Vec<(&'static str, usize)> {
        let Some(context_length) = self.context_length else { return Vec::new() };
        let tokens = (dim::PROMPT_TOKENS, context_length + APPENDED_TOKENS);
        if self.is_any_of(&[file::TEXT_ENCODER]) {
            vec![(dim::CLASSES, 1)]
        } else if self.is_any_of(&[file::ENCODER_DECODER]) {
            vec![(dim::CLASSES, self.class_chunk), tokens]
        } else if self.is_any_of(&[file::MASK_HEAD]) {
            vec![(dim::MASKS, MASKS_AT_ONCE), tokens]
        } else {
            Vec::new()
        }
    }
}

/// The cache folder for the compiled form of a graph with these weights.
pub(super) fn cache_of_compiled(graph: &Path, name: &str) -> Result<PathBuf> {
    let files = files(graph)?;
    // An unreadable file fails when the engine loads it, with a better message.
    let compute = || {
        let hashes: std::io::Result<Vec<_>> = files.iter().map(|file| sha256_of_file(file)).collect();
        hashes.map(|hashes| hex(&Sha256::digest(hashes.concat()))).unwrap_or_default()
    };
    let identity = remembered_hash(&files, compute)?;
    let short = identity.get(..24).unwrap_or("unread");
    Ok(cache_folder()?.join("engines").join(name).join(short))
}

/// The size of the graph and of its weights beside it.
pub(super) fn bytes_of(graph: &Path) -> Result<u64> {
    let sizes = files(graph)?.into_iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len()));
    Ok(sizes.sum())
}

/// The graph and the files of its weights beside it.
fn files(graph: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![graph.to_owned()];
    let folder = graph.parent().unwrap_or(Path::new("."));
    let name = graph.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries =
        std::fs::read_dir(folder).map_err(|e| Error::io("cannot read the model's folder", folder, e))?;
    let beside = entries.flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|other| other.to_string_lossy().starts_with(&format!("{name}.")))
    });
    files.extend(beside);
    files[1..].sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(path: &Path, kind: EngineKind) -> Graph<'_> {
        Graph { path, kind, tf32: false, class_chunk: 4, context_length: Some(32) }
    }

    #[test]
    fn graphs_of_the_memory_tracker_keep_no_memory() {
        let cases = [
            (file::BACKBONE, true),
            (file::TRACK_FEATURES, false),
            (file::TRACK_STEP, false),
            ("tracker", true),
        ];
        let found = cases
            .map(|(name, _)| (name, graph(&Path::new("/model").join(name), EngineKind::Cpu).keeps_memory()));
        assert_eq!(found, cases);
    }

    #[test]
    fn every_size_is_fixed_for_core_ml() {
        let cases: [(&str, &[(&str, usize)]); 5] = [
            (file::BACKBONE, &[]),
            (file::TEXT_ENCODER, &[("classes", 1)]),
            (file::ENCODER_DECODER, &[("classes", 4), ("prompt_tokens", 40)]),
            (file::MASK_HEAD, &[("kept", 8), ("prompt_tokens", 40)]),
            (file::EXEMPLAR_ENCODER, &[]),
        ];
        for (name, expected) in cases {
            let path = Path::new("/model").join(name);
            assert_eq!(graph(&path, EngineKind::CoreMl).fixed(), expected, "{name}");
        }
        let examples = Path::new(file::EXEMPLAR_ENCODER);
        let provider = graph(examples, EngineKind::CoreMl).provider().expect("nothing is compiled");
        assert_eq!(provider, ExecutionProvider::Cpu);
    }

    #[test]
    fn the_cache_of_a_compiled_graph_depends_on_its_weights() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(file::ENCODER_DECODER);
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it writes");
        write(file::ENCODER_DECODER, "graph");
        write("encoder_decoder.onnx.data", "weights");
        write("other.onnx", "other");
        let engine_cache = || cache_of_compiled(&path, "coreml").expect("it can be read");
        let first = engine_cache();
        assert_eq!(engine_cache(), first);
        write("encoder_decoder.onnx.data", "other weights");
        assert_ne!(engine_cache(), first);
    }
}
