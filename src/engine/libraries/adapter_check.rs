//! The numeric check of a WebGPU adapter: drivers have faults, so that the built-in model runs once on each adapter and
//! driver, and is compared with the CPU, before the adapter is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ocelli_engines::embedded::EmbeddedEngine;
use ocelli_engines::webgpu::{Adapter, AdapterKind};
use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{Target, file, tensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Cancellation;
use crate::cache::{cache_folder, remembered, short_hex};
use crate::model::{CACHE_REVISION, Model, ModelRequest, ModelSource};
use ocelli_error::{Error, Result};

/// The largest error that is accepted, of max|a − b| / max|b| over an output. The software adapter of the tests gives 1.1e-5,
/// and 1.9e-4 with random models; the operator that the provider computes wrongly gave 0.3.
const LIMIT: f32 = 1e-3;

/// The side of the image for software adapters, in pixels: their speed is that of a slow CPU. Others check the built-in
/// model at its own size.
const SOFTWARE_IMGSZ: usize = 56;

/// The result of the check of a WebGPU adapter.
///
/// It is remembered in the cache folder for the adapter with its driver, the provider, ONNX Runtime and the exporter: if one
/// of them changes, the adapter is checked again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdapterVerdict {
    /// The adapter and its driver: name, numbers on the PCI bus, version and build of the driver.
    pub adapter: String,
    /// The version of ONNX Runtime's WebGPU provider.
    pub provider: String,
    /// The version of ONNX Runtime.
    pub onnxruntime: String,
    /// The side of the image with which the built-in model ran, in pixels.
    pub imgsz: usize,
    /// The error of each output, `encoder_decoder logits`: max|a − b| / max|b|, where b was computed on the CPU.
    pub errors: BTreeMap<String, f32>,
}

impl AdapterVerdict {
    /// The output with the largest error, and the error.
    pub fn worst(&self) -> Option<(&str, f32)> {
        let errors = self.errors.iter().map(|(name, error)| (name.as_str(), *error));
        errors.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// `true` if every output is within its limit.
    pub fn is_accepted(&self) -> bool {
        self.worst().is_some_and(|(_, error)| error <= LIMIT)
    }

    /// The verdicts that the cache folder remembers, by adapter.
    pub fn remembered() -> Vec<Self> {
        let entries = verdict_folder()
            .and_then(|folder| {
                std::fs::read_dir(&folder).map_err(|e| Error::io("cannot read the folder", &folder, e))
            })
            .into_iter()
            .flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let mut verdicts: Vec<Self> = paths.filter_map(|path| read(&path)).collect();
        verdicts.sort_by(|a, b| (&a.adapter, &a.provider).cmp(&(&b.adapter, &b.provider)));
        verdicts
    }
}

/// The adapter and the libraries that a verdict holds for.
pub(super) struct Checked<'a> {
    pub(super) adapter: &'a Adapter,
    /// The version of the provider, and the bytes of its library.
    pub(super) provider: (&'a str, u64),
    pub(super) onnxruntime: &'a str,
}

impl Checked<'_> {
    fn imgsz(&self) -> Option<usize> {
        (self.adapter.kind == AdapterKind::Software).then_some(SOFTWARE_IMGSZ)
    }

    /// The file that remembers the verdict; `None` if the driver is not known, so that it could change unnoticed.
    fn entry(&self) -> Result<Option<PathBuf>> {
        let Some(adapter) = self.adapter.identity() else { return Ok(None) };
        let exporter = format!("{}.{CACHE_REVISION}", env!("CARGO_PKG_VERSION"));
        let identity = format!("{adapter}\0{:?}\0{}\0{exporter}", self.provider, self.onnxruntime);
        let name = short_hex(&Sha256::digest(identity));
        Ok(Some(verdict_folder()?.join(format!("{name}.json"))))
    }

    /// Checks the adapter unless its verdict is remembered. One process checks, others wait for the verdict.
    ///
    /// `load` loads a graph on the adapter.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the adapter computes wrongly and this is not allowed; the
    /// message names the output with the
    /// largest error.
    pub(super) fn check(
        &self,
        allow_inexact: bool,
        load: impl Fn(&Path) -> Result<Box<dyn Engine>>,
    ) -> Result<()> {
        let verdict = match self.entry()? {
            Some(entry) => remembered(&entry, || self.run(", once", load))?,
            None => self.run("", load)?,
        };
        let (output, error) = verdict.worst().unwrap_or(("no output", f32::MAX));
        if verdict.is_accepted() {
            tracing::debug!(output, error, "adapter {}: right", self.adapter.name);
            return Ok(());
        }
        let what = format!(
            "WebGPU adapter {}: it computes wrongly: the error of {output} is {error:.1e} of its largest value, and at most \
             {LIMIT:.0e} is accepted",
            self.adapter.name
        );
        if allow_inexact {
            tracing::warn!("{what}; it is used, because that was allowed");
            return Ok(());
        }
        Err(Error::mismatch(format!(
            "{what}; update the GPU's driver, choose another engine, or allow it with `allow_inexact`; docs/gpus.md says how \
             to report it"
        )).about("allow_inexact"))
    }

    fn run(&self, once: &str, load: impl Fn(&Path) -> Result<Box<dyn Engine>>) -> Result<AdapterVerdict> {
        let adapter = self.adapter.identity().unwrap_or_else(|| self.adapter.name.clone());
        tracing::info!("engine webgpu: comparing {} with the CPU{once}", self.adapter.name);
        let imgsz = self.imgsz();
        let request = ModelRequest {
            source: ModelSource::Builtin,
            target: Target::TensorRt,
            imgsz,
            masks: true,
            ..ModelRequest::default()
        };
        let model = Model::resolve(&request, &|_| (), &Cancellation::new())?;
        Ok(AdapterVerdict {
            adapter,
            provider: self.provider.0.to_owned(),
            onnxruntime: self.onnxruntime.to_owned(),
            imgsz: model.manifest().imgsz,
            errors: errors(&model, load)?,
        })
    }
}

fn verdict_folder() -> Result<PathBuf> {
    Ok(cache_folder()?.join("adapters"))
}

fn read(path: &Path) -> Option<AdapterVerdict> {
    if path.extension()? != "json" {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Runs every graph of a model on the CPU and on the candidate, with the CPU's results as the inputs of the next graph, and
/// compares the outputs.
fn errors(model: &Model, load: impl Fn(&Path) -> Result<Box<dyn Engine>>) -> Result<BTreeMap<String, f32>> {
    let mut errors = BTreeMap::new();
    let mut values = inputs(model)?;
    for graph in
        [file::BACKBONE, file::TEXT_ENCODER, file::EXEMPLAR_ENCODER, file::ENCODER_DECODER, file::MASK_HEAD]
    {
        let path = model.file(graph);
        match graph {
            file::ENCODER_DECODER => add_prompt(&mut values)?,
            file::MASK_HEAD => keep_first_class(&mut values)?,
            _ => {}
        }
        let expected = run(&mut EmbeddedEngine::builder().build_from_file(&path)?, &values)?;
        let found = run(&mut *load(&path)?, &values)?;
        for (name, expected) in expected {
            let error = relative_error(found[&name].as_f32()?, expected.as_f32()?);
            errors.insert(format!("{} {name}", graph.trim_end_matches(".onnx")), error);
            values.insert(name, expected);
        }
        if graph == file::EXEMPLAR_ENCODER {
            values.remove(tensor::BOXES);
        }
    }
    Ok(errors)
}

/// The largest difference, in units of the largest expected value; `f32::MAX` if a value is not finite.
fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    if found.len() != expected.len() || found.iter().any(|value| !value.is_finite()) {
        return f32::MAX;
    }
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    let difference = found.iter().zip(expected).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    difference / largest
}

fn run(engine: &mut dyn Engine, values: &BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>> {
    let spec = engine.spec().clone();
    let inputs: Vec<(&str, &Tensor)> =
        spec.inputs.iter().map(|input| (&*input.name, &values[&*input.name])).collect();
    let names: Vec<String> = spec.outputs.iter().map(|output| output.name.clone()).collect();
    let mut tensors = vec![Tensor::empty(); names.len()];
    let mut outputs: Vec<(&str, &mut Tensor)> = names.iter().map(|name| &**name).zip(&mut tensors).collect();
    engine.run(&inputs, &mut outputs)?;
    Ok(names.into_iter().zip(tensors).collect())
}

/// The inputs that no graph computes: an image of noise, two classes, two exemplars.
fn inputs(model: &Model) -> Result<BTreeMap<String, Tensor>> {
    let imgsz = model.manifest().imgsz;
    let mut state = 1_u32;
    let mut noise = || {
        // A linear congruential generator; the upper bits are the better ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let pixels = (0..3 * imgsz * imgsz).map(|_| noise()).collect();
    let tokenizer = model.tokenizer()?;
    let phrases = [tokenizer.encode("dog")?, tokenizer.encode("traffic light")?];
    let context = tokenizer.context_length();
    let ids = phrases.iter().flat_map(|phrase| phrase.ids.iter().copied()).collect();
    let mask = phrases.iter().flat_map(|phrase| phrase.mask.iter().copied()).collect();
    let boxes = vec![0.3, 0.4, 0.25, 0.3, 0.6, 0.55, 0.5, 0.2];
    Ok([
        (tensor::PIXEL_VALUES, Tensor::f32(&[1, 3, imgsz, imgsz], pixels)?),
        (tensor::INPUT_IDS, Tensor::i64(&[2, context], ids)?),
        (tensor::ATTENTION_MASK, Tensor::i64(&[2, context], mask)?),
        (tensor::BOXES, Tensor::f32(&[1, 2, 4], boxes)?),
        (tensor::BOX_LABELS, Tensor::i64(&[1, 2], vec![1, 0])?),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}

/// The prompts of the two classes: their text, then the CLS token of the image.
fn add_prompt(values: &mut BTreeMap<String, Tensor>) -> Result<()> {
    let (text, image) = (&values[tensor::TEXT_FEATURES], &values[tensor::IMAGE_PROMPT]);
    let [classes, words, width] = *text.shape() else { unreachable!("the contract says [C, L, D]") };
    let mut features = Vec::with_capacity(classes * (words + 1) * width);
    for text in text.as_f32()?.chunks(words * width) {
        features.extend_from_slice(text);
        features.extend_from_slice(image.as_f32()?);
    }
    let mut mask = Vec::with_capacity(classes * (words + 1));
    for words in values[tensor::ATTENTION_MASK].as_slice::<i64>()?.chunks(words) {
        mask.extend_from_slice(words);
        mask.push(1);
    }
    let features = Tensor::f32(&[classes, words + 1, width], features)?;
    values.insert(tensor::PROMPT_FEATURES.to_owned(), features);
    values.insert(tensor::PROMPT_MASK.to_owned(), Tensor::i64(&[classes, words + 1], mask)?);
    Ok(())
}

/// The mask head takes the first class alone, and here two of its queries.
fn keep_first_class(values: &mut BTreeMap<String, Tensor>) -> Result<()> {
    for (name, rows) in [
        (tensor::ENCODED, usize::MAX),
        (tensor::PROMPT_FEATURES, usize::MAX),
        (tensor::PROMPT_MASK, usize::MAX),
        (tensor::QUERIES, 2),
    ] {
        let value = values.get_mut(name).expect("the encoder-decoder has computed or read it");
        let mut shape = value.shape().to_vec();
        (shape[0], shape[1]) = (1, shape[1].min(rows));
        let count = shape.iter().product();
        *value = match value.as_slice::<i64>() {
            Ok(integers) => Tensor::i64(&shape, integers[..count].to_vec())?,
            Err(_) => Tensor::f32(&shape, value.as_f32()?[..count].to_vec())?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
