//! Loads the graphs of a model.

use ocelli_engines::{Dim, Engine, EngineSpec};
use ocelli_export::contract::{Manifest, Precision, file, hex, tensor};
use sha2::{Digest, Sha256};

use super::EngineFactory;
use crate::cache::sha256_of_file;
use crate::model::{Model, corrupt};
use ocelli_error::{Error, ErrorKind, Result};

impl Model {
    /// Loads one of the graphs, for programs that run graphs themselves.
    ///
    /// # Errors
    /// As [`EngineFactory::load`]; the message says so if the file is not the one that the exporter wrote.
    pub fn load_graph(&self, factory: &EngineFactory, name: &str) -> Result<Box<dyn Engine>> {
        // Hashing the files takes as long as loading them, so it waits until a graph fails to load.
        let grid = self.manifest().imgsz / self.manifest().patch_size.max(1);
        factory.loader.check_patches(if name == file::SCREEN { grid / 2 } else { grid })?;
        let from_file = || factory.load_of(&self.file(name), Some(self.manifest().context_length));
        let loaded = if self.is_in_memory() { self.load_from_memory(factory, name) } else { from_file() };
        let engine = loaded.map_err(|e| self.corruption(name).unwrap_or_else(|| self.unsupported(e)))?;
        match self.misfit(engine.spec()) {
            Some(why) => Err(corrupt(&self.file(file::MANIFEST), &format!("{name}: {why}"))),
            None => Ok(engine),
        }
    }

    /// The first size in `model.json` that is not that of a graph, for messages.
    fn misfit(&self, graph: &EngineSpec) -> Option<String> {
        let Manifest { imgsz, model_width, num_queries, context_length, tracker, multiplex, .. } =
            self.manifest();
        let tracker = tracker.or(*multiplex);
        let memory = tracker.map(|tracker| ("tracker.memory_width", tracker.memory_width));
        let sizes = [
            (tensor::PIXEL_VALUES, 2, Some(("imgsz", *imgsz))),
            (tensor::INPUT_IDS, 1, Some(("context_length", *context_length))),
            (tensor::TEXT_FEATURES, 2, Some(("model_width", *model_width))),
            (tensor::PROMPT_FEATURES, 2, Some(("model_width", *model_width))),
            (tensor::EXEMPLAR_FEATURES, 2, Some(("model_width", *model_width))),
            (tensor::FPN[2], 1, Some(("model_width", *model_width))),
            (tensor::FPN[2], 2, Some(("imgsz / patch_size", self.manifest().grid()))),
            (tensor::LOGITS, 1, Some(("num_queries", *num_queries))),
            (tensor::MEMORY, 2, memory),
            (tensor::HIDDEN, 1, tracker.map(|tracker| ("tracker.hidden", tracker.hidden))),
        ];
        sizes.into_iter().find_map(|(name, axis, size)| {
            let (key, size) = size?;
            match graph.input(name).or_else(|| graph.output(name))?.shape.get(axis)? {
                Dim::Fixed(found) if *found != size => {
                    Some(format!("{key} is {size}, and the graph has {found} at `{name}`"))
                }
                _ => None,
            }
        })
    }

    fn load_from_memory(&self, factory: &EngineFactory, name: &str) -> Result<Box<dyn Engine>> {
        let read =
            |name: &str| self.read(name).map_err(|e| Error::io("cannot read the model", &self.file(name), e));
        let of_weights = format!("{name}.");
        let weights = self.manifest().files.keys().filter(|file| file.starts_with(&of_weights));
        let weights = weights.map(|file| Ok((file.clone(), read(file)?))).collect::<Result<_>>()?;
        factory.loader.load_from_memory(name, &read(name)?, weights)
    }

    /// Explains an engine's error about an operator if the engine may lack the number format.
    fn unsupported(&self, error: Error) -> Error {
        if self.manifest().precision != Precision::Bf16 || error.kind() != ErrorKind::InvalidData {
            return error;
        }
        Error::unavailable(format!(
            "cannot run a bfloat16 model, {}: the engine does not support bfloat16 (ONNX Runtime on the CPU has no \
             operators for it); export the model in fp32 or fp16, or choose an engine that runs on a GPU: {error}",
            self.folder().display()
        )).with_source(error)
    }

    /// The error for the first file of a graph, its weights included, that is not the one the exporter wrote.
    fn corruption(&self, graph: &str) -> Option<Error> {
        let files = self.manifest().files.iter().filter(|(name, _)| name.starts_with(graph));
        files.map(|(name, entry)| (name, self.file(name), entry)).find_map(|(name, path, entry)| {
            let in_memory = || self.read(name).map(|bytes| hex(&Sha256::digest(bytes)));
            let hash = if self.is_in_memory() { in_memory() } else { sha256_of_file(&path) };
            match hash {
                Ok(found) if found == entry.sha256 => None,
                Ok(_) => Some(corrupt(&path, "its SHA-256 differs from the one in model.json")),
                Err(e) => Some(corrupt(&path, &e.to_string()).with_source(e)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Cancellation;
    use crate::engine::{EngineKind, EngineOptions};
    use crate::model::{ModelGraph, ModelRequest, ModelSource};

    #[test]
    fn a_model_in_memory_is_read_when_it_is_needed() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parity/plain");
        let request =
            ModelRequest { source: ModelSource::Folder(golden), masks: true, ..ModelRequest::default() };
        let on_disk = Model::resolve(&request, &|_| {}, &Cancellation::new()).expect("it is a checkpoint");
        let folder = on_disk.folder().to_owned();
        let read = move |name: &str| std::fs::read(folder.join(name));
        let options = EngineOptions { kind: EngineKind::Embedded, ..EngineOptions::default() };
        let factory = EngineFactory::start(&options).expect("it needs no library");

        let model = Model::from_memory(read.clone()).expect("the same model");
        assert_eq!(model.manifest(), on_disk.manifest());
        assert!(model.tokenizer().is_ok() && model.has_file(file::MASK_HEAD));
        for graph in ModelGraph::all_of(model.manifest()) {
            let load = |model: &Model| model.load_graph(&factory, graph.file()).expect("it is fine");
            assert_eq!(load(&model).spec(), load(&on_disk).spec(), "{graph}");
        }

        let custom = EngineFactory::custom("files only", |_| panic!("there is no file"));
        let without = model.clone();
        let broken = read.clone();
        let broken = Model::from_memory(move |name| {
            let mut bytes = broken(name)?;
            if name == file::BACKBONE {
                bytes.truncate(100);
            }
            Ok(bytes)
        });
        let missing = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        let load = |model: &Model, factory| model.load_graph(factory, file::BACKBONE).map(|_| ());
        let cases = [
            (
                load(&without, &custom),
                ErrorKind::Unavailable,
                "only the engine embedded loads a model without files",
            ),
            (
                load(&broken.expect("its manifest is fine"), &factory),
                ErrorKind::InvalidData,
                "(in memory)/backbone.onnx: its SHA-256",
            ),
            (Model::from_memory(missing).map(|_| ()), ErrorKind::Io, "(in memory)/model.json"),
            (
                Model::from_memory(|_| Ok(b"{}".to_vec())).map(|_| ()),
                ErrorKind::InvalidData,
                "not an exported model",
            ),
        ];
        for (outcome, kind, text) in cases {
            let error = outcome.expect_err(text);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
