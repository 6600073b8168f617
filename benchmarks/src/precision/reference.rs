//! Outputs of the fp32 model, graph by graph.

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::engines::Tensor;
use ocelli::export::contract::{Manifest, Prompting, file, tensor};
use ocelli::preprocess::{PreprocessConfig, Preprocessor};
use ocelli::tokenizer::{Tokenizer, TokenizerConfig};
use ocelli::{Prompts, engine::EngineFactory};

use super::{Scenes, cosine};

/// Number of classes and masks to compare.
const CLASSES: usize = 2;
const MASKS: usize = 4;

/// Outputs by graph and name: `encoder_decoder.boxes`.
type Outputs = BTreeMap<String, Tensor>;

/// Loads the graphs of an export.
struct Graphs<'f> {
    factory: &'f EngineFactory,
    folder: &'f Path,
    manifest: Manifest,
}

impl<'f> Graphs<'f> {
    fn new(factory: &'f EngineFactory, folder: &'f Path) -> anyhow::Result<Self> {
        Ok(Self { factory, folder, manifest: Manifest::read(folder)? })
    }

    /// Loads a graph, runs it once per image and unloads it.
    fn run(&self, graph: &str, images: &[Vec<(&str, &Tensor)>]) -> anyhow::Result<Vec<Outputs>> {
        let mut engine = self.factory.load(&self.folder.join(graph))?;
        let names: Vec<String> = engine.spec().outputs.iter().map(|spec| spec.name.clone()).collect();
        let mut all = Vec::new();
        for inputs in images {
            let mut values: Vec<Tensor> = names.iter().map(|_| Tensor::empty()).collect();
            let mut outputs: Vec<_> = names.iter().map(String::as_str).zip(&mut values).collect();
            engine.run(inputs, &mut outputs)?;
            all.push(names.iter().cloned().zip(values).collect());
        }
        Ok(all)
    }
}

/// Inputs and fp32 outputs of every graph, one entry per compared image.
pub struct Reference {
    pixels: Vec<Tensor>,
    ids: Tensor,
    mask: Tensor,
    /// Features `[C, T, D]` and mask `[C, T]`.
    prompts: Vec<(Tensor, Tensor)>,
    /// The same for the first class alone.
    prompt: Vec<(Tensor, Tensor)>,
    encoded: Vec<Tensor>,
    queries: Vec<Tensor>,
    outputs: BTreeMap<&'static str, Vec<Outputs>>,
}

impl Reference {
    /// Runs the fp32 export in `folder` on the first `count` scenes.
    ///
    /// # Errors
    /// If a graph cannot be loaded or run.
    pub fn new(
        factory: &EngineFactory,
        folder: &Path,
        scenes: &Scenes,
        count: usize,
    ) -> anyhow::Result<Self> {
        let graphs = Graphs::new(factory, folder)?;
        let manifest = &graphs.manifest;
        let mut preprocessor = Preprocessor::new(PreprocessConfig::new(manifest.imgsz))?;
        let mut pixels = Vec::new();
        for image in scenes.images.iter().take(count) {
            let mut tensor = Tensor::empty();
            preprocessor.run_into(image, tensor.reset_f32(&[1, 3, manifest.imgsz, manifest.imgsz]))?;
            pixels.push(tensor);
        }
        let (ids, mask) = token_ids(manifest, folder, &scenes.prompts)?;
        let mut reference = Self {
            pixels,
            ids,
            mask,
            prompts: Vec::new(),
            prompt: Vec::new(),
            encoded: Vec::new(),
            queries: Vec::new(),
            outputs: BTreeMap::new(),
        };
        let text = reference.run(&graphs, file::TEXT_ENCODER)?;
        let backbone = reference.run(&graphs, file::BACKBONE)?;
        for features in &backbone {
            let cls = (manifest.prompting == Prompting::Official).then(|| &features[tensor::IMAGE_PROMPT]);
            let prompt = append(&text[0][tensor::TEXT_FEATURES], &reference.mask, cls)?;
            reference.prompt.push((first_rows(&prompt.0, 1)?, first_rows(&prompt.1, 1)?));
            reference.prompts.push(prompt);
        }
        reference.outputs.insert(file::TEXT_ENCODER, text);
        reference.outputs.insert(file::BACKBONE, backbone);
        let decoded = reference.run(&graphs, file::ENCODER_DECODER)?;
        for outputs in &decoded {
            reference.encoded.push(first_rows(&outputs[tensor::ENCODED], 1)?);
            reference.queries.push(first_queries(&outputs[tensor::QUERIES], MASKS)?);
        }
        reference.outputs.insert(file::ENCODER_DECODER, decoded);
        for graph in [file::EXEMPLAR_ENCODER, file::MASK_HEAD] {
            let outputs = reference.run(&graphs, graph)?;
            reference.outputs.insert(graph, outputs);
        }
        Ok(reference)
    }

    /// Runs one graph of an export on the reference's inputs.
    fn run(&self, graphs: &Graphs<'_>, graph: &str) -> anyhow::Result<Vec<Outputs>> {
        let boxes = Tensor::f32(&[1, 2, 4], vec![0.3, 0.4, 0.2, 0.3, 0.6, 0.5, 0.5, 0.4])?;
        let labels = Tensor::i64(&[1, 2], vec![1, 0])?;
        let features = |image: usize, level: usize| &self.outputs[file::BACKBONE][image][tensor::FPN[level]];
        let inputs = |image: usize| -> Vec<(&str, &Tensor)> {
            match graph {
                file::BACKBONE => vec![(tensor::PIXEL_VALUES, &self.pixels[image])],
                file::TEXT_ENCODER => {
                    vec![(tensor::INPUT_IDS, &self.ids), (tensor::ATTENTION_MASK, &self.mask)]
                }
                file::EXEMPLAR_ENCODER => vec![
                    (tensor::FPN[2], features(image, 2)),
                    (tensor::BOXES, &boxes),
                    (tensor::BOX_LABELS, &labels),
                ],
                file::ENCODER_DECODER => vec![
                    (tensor::FPN[2], features(image, 2)),
                    (tensor::PROMPT_FEATURES, &self.prompts[image].0),
                    (tensor::PROMPT_MASK, &self.prompts[image].1),
                ],
                _ => vec![
                    (tensor::FPN[0], features(image, 0)),
                    (tensor::FPN[1], features(image, 1)),
                    (tensor::ENCODED, &self.encoded[image]),
                    (tensor::PROMPT_FEATURES, &self.prompt[image].0),
                    (tensor::PROMPT_MASK, &self.prompt[image].1),
                    (tensor::QUERIES, &self.queries[image]),
                ],
            }
        };
        // Text is the same for every image.
        let images = if graph == file::TEXT_ENCODER { 1 } else { self.pixels.len() };
        graphs.run(graph, &(0..images).map(inputs).collect::<Vec<_>>())
    }

    /// The minimum cosine over all images for every output of another export, by `graph.output`; 0 if a value is not finite.
    ///
    /// # Errors
    /// If a graph cannot be loaded or run.
    pub fn cosines(&self, factory: &EngineFactory, folder: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
        let graphs = Graphs::new(factory, folder)?;
        let mut cosines = BTreeMap::new();
        for (graph, expected) in &self.outputs {
            let found = self.run(&graphs, graph)?;
            for (expected, found) in expected.iter().zip(&found) {
                for (name, expected) in expected {
                    let cosine = cosine(expected.as_f32()?, found[name].as_f32()?);
                    let least =
                        cosines.entry(format!("{}.{name}", graph.trim_end_matches(".onnx"))).or_insert(1.0);
                    *least = cosine.min(*least);
                }
            }
        }
        Ok(cosines)
    }
}

/// Token ids and mask of the first phrases, both `[C, L]`.
fn token_ids(manifest: &Manifest, folder: &Path, prompts: &Prompts) -> anyhow::Result<(Tensor, Tensor)> {
    let mut config = TokenizerConfig::new(manifest.context_length);
    config.start_id = Some(manifest.special_tokens.bos);
    config.end_id = Some(manifest.special_tokens.eos);
    let tokenizer =
        Tokenizer::from_bytes(&std::fs::read(folder.join(file::TOKENIZER))?, file::TOKENIZER, config)?;
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for prompt in prompts.iter().take(CLASSES) {
        let tokens = tokenizer.encode(prompt.phrase())?;
        ids.extend(tokens.ids);
        mask.extend(tokens.mask);
    }
    let shape = [mask.len() / manifest.context_length, manifest.context_length];
    Ok((Tensor::i64(&shape, ids)?, Tensor::i64(&shape, mask)?))
}

/// `text` `[C, L, D]` with the image's token `[1, 1, D]` appended to every class, and its mask.
fn append(text: &Tensor, mask: &Tensor, cls: Option<&Tensor>) -> anyhow::Result<(Tensor, Tensor)> {
    let Some(cls) = cls else { return Ok((text.clone(), mask.clone())) };
    let &[classes, length, width] = text.shape() else { anyhow::bail!("text features are [C, L, D]") };
    let cls = cls.as_f32()?;
    let rows = text.as_f32()?.chunks(length * width);
    let features = rows.flat_map(|class| class.iter().chain(cls)).copied().collect();
    let rows = mask.as_slice::<i64>()?.chunks(length);
    let mask = rows.flat_map(|row| row.iter().copied().chain([1])).collect();
    let shape = [classes, length + 1, width];
    Ok((Tensor::f32(&shape, features)?, Tensor::i64(&shape[..2], mask)?))
}

/// The first `count` rows of the outer axis.
fn first_rows(tensor: &Tensor, count: usize) -> anyhow::Result<Tensor> {
    let mut shape = tensor.shape().to_vec();
    shape[0] = count;
    let size = shape.iter().product();
    Ok(match tensor.as_f32() {
        Ok(values) => Tensor::f32(&shape, values[..size].to_vec())?,
        Err(_) => Tensor::i64(&shape, tensor.as_slice::<i64>()?[..size].to_vec())?,
    })
}

/// The first queries of the first class, `[C, Q, D]` → `[1, count, D]`.
fn first_queries(queries: &Tensor, count: usize) -> anyhow::Result<Tensor> {
    let width = queries.shape()[2];
    Ok(Tensor::f32(&[1, count, width], queries.as_f32()?[..count * width].to_vec())?)
}
