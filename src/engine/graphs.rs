//! What each engine asks of each graph: sizes that are fixed or bounded, and where what was compiled is kept.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ocelli_engines::DimensionRange;
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntimeBuilder, TensorRtOptions,
};
use ocelli_export::contract::{dim, file};
use sha2::{Digest, Sha256};

use super::EngineKind;
use crate::cache::{cache_folder, remembered_hash};
use crate::error::{Error, Result};

/// Tokens that examples and the CLS token may take where the number is fixed or bounded: seven examples of one class.
const APPENDED_TOKENS: usize = 8;

/// Masks that are made at once where the number is fixed.
const MASKS_AT_ONCE: usize = 8;

/// The sizes of a model and its use that bound what its graphs are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphSizes {
    /// L.
    pub(crate) context_length: usize,
    /// Q.
    pub(crate) queries: usize,
}

/// Options of one graph's engine.
pub(super) struct Graph<'g> {
    pub(super) path: &'g Path,
    pub(super) kind: EngineKind,
    pub(super) tf32: bool,
    /// Classes that are decoded at once.
    pub(super) class_chunk: usize,
    pub(super) sizes: Option<GraphSizes>,
}

impl Graph<'_> {
    fn is_any_of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.path.ends_with(name))
    }

    /// What runs the graph.
    ///
    /// Where others compile it first, what runs a few times only is not worth that: with TensorRT, words and examples are
    /// encoded by CUDA. Core ML wants every size fixed, and there is no filling up a number of examples: their encoder runs
    /// on the processor.
    pub(super) fn provider(&self) -> Result<ExecutionProvider> {
        let cuda = |ordinal| CudaOptions { ordinal, tf32: self.tf32, ..CudaOptions::default() };
        Ok(match self.kind {
            EngineKind::Cuda { ordinal } => ExecutionProvider::Cuda(cuda(ordinal)),
            EngineKind::OnnxRuntimeTensorRt { ordinal }
                if self.is_any_of(&[file::TEXT_ENCODER, file::EXEMPLAR_ENCODER]) =>
            {
                ExecutionProvider::Cuda(cuda(ordinal))
            }
            EngineKind::OnnxRuntimeTensorRt { ordinal } => {
                tracing::info!(graph = %self.path.display(), "TensorRT compiles what it has not compiled before: minutes");
                ExecutionProvider::TensorRt(TensorRtOptions {
                    cuda: cuda(ordinal),
                    engine_cache: Some(self.cache("tensorrt")?),
                    dimensions: self.ranges().into_iter().collect(),
                    ..TensorRtOptions::default()
                })
            }
            EngineKind::CoreMl if self.is_any_of(&[file::EXEMPLAR_ENCODER]) => {
                tracing::info!(
                    "examples are encoded on the processor: their number is not fixed, as Core ML wants it"
                );
                ExecutionProvider::Cpu
            }
            EngineKind::CoreMl => {
                ExecutionProvider::CoreMl(CoreMlOptions { model_cache: Some(self.cache("coreml")?) })
            }
            EngineKind::Auto
            | EngineKind::Cpu
            | EngineKind::TensorRt { .. }
            | EngineKind::CudaNative { .. } => ExecutionProvider::Cpu,
        })
    }

    /// Fixes the sizes that Core ML wants fixed.
    pub(super) fn fix_dimensions(&self, builder: OnnxRuntimeBuilder) -> OnnxRuntimeBuilder {
        if self.kind != EngineKind::CoreMl {
            return builder;
        }
        let fixed = self.fixed();
        fixed.into_iter().fold(builder, |builder, (name, size)| builder.with_fixed_dimension(name, size))
    }

    fn fixed(&self) -> Vec<(&'static str, usize)> {
        let Some(sizes) = self.sizes else { return Vec::new() };
        let tokens = (dim::PROMPT_TOKENS, sizes.context_length + APPENDED_TOKENS);
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

    /// The sizes that TensorRT makes kernels for.
    fn ranges(&self) -> Vec<(String, DimensionRange)> {
        let Some(sizes) = self.sizes else { return Vec::new() };
        let range = |name: &str, min, optimal, max| (name.to_owned(), DimensionRange { min, optimal, max });
        let words = sizes.context_length;
        let tokens = range(dim::PROMPT_TOKENS, words, words + 1, words + APPENDED_TOKENS);
        if self.is_any_of(&[file::ENCODER_DECODER]) {
            vec![range(dim::CLASSES, 1, self.class_chunk, self.class_chunk), tokens]
        } else if self.is_any_of(&[file::MASK_HEAD]) {
            vec![range(dim::MASKS, 1, MASKS_AT_ONCE.min(sizes.queries), sizes.queries), tokens]
        } else {
            Vec::new()
        }
    }

    /// A folder for what is compiled of this very graph, weights included.
    fn cache(&self, name: &str) -> Result<PathBuf> {
        let files = self.files()?;
        // A file that cannot be read now fails when it is loaded, with a better message.
        let compute = || hash(&files).unwrap_or_default();
        let identity = remembered_hash(&files, compute)?;
        let short = identity.get(..24).unwrap_or("unread");
        Ok(cache_folder()?.join("engines").join(name).join(short))
    }

    /// The graph, and its weights where they lie beside it.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = vec![self.path.to_owned()];
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entries =
            std::fs::read_dir(folder).map_err(|e| Error::io("cannot read the model's folder", folder, e))?;
        let beside = entries.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|other| other.to_string_lossy().starts_with(&format!("{name}.")))
        });
        files.extend(beside);
        files[1..].sort();
        Ok(files)
    }
}

fn hash(files: &[PathBuf]) -> std::io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    for file in files {
        let mut file = File::open(file)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => hash.update(&buffer[..count]),
            }
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(path: &Path, kind: EngineKind) -> Graph<'_> {
        let sizes = Some(GraphSizes { context_length: 32, queries: 200 });
        Graph { path, kind, tf32: false, class_chunk: 4, sizes }
    }

    #[test]
    fn core_ml_is_given_every_size() {
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
    fn a_compiled_graph_belongs_to_its_weights() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(file::ENCODER_DECODER);
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it writes");
        write(file::ENCODER_DECODER, "graph");
        write("encoder_decoder.onnx.data", "weights");
        write("other.onnx", "other");
        let engine_cache = || {
            let kind = EngineKind::OnnxRuntimeTensorRt { ordinal: 1 };
            match graph(&path, kind).provider().expect("it can be read") {
                ExecutionProvider::TensorRt(options) => {
                    assert_eq!(options.cuda.ordinal, 1);
                    let range = DimensionRange { min: 1, optimal: 4, max: 4 };
                    assert_eq!(options.dimensions["classes"], range);
                    options.engine_cache.expect("it is kept")
                }
                other => panic!("{other:?}"),
            }
        };
        let first = engine_cache();
        assert_eq!(engine_cache(), first);
        write("encoder_decoder.onnx.data", "other weights");
        assert_ne!(engine_cache(), first);
    }
}
