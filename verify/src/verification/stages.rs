//! One side of a comparison: the detector's own stages, one graph in memory at a time.

use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Detection, Detector, Model, Prompts, Result, StageTimes,
    engine::EngineFactory,
    model::ModelGraph,
    stages::{DecodeRequest, EmbeddedPrompts, ImageFeatures, Stages, TextCacheFile, Wanted},
};
use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::tensor;

use super::recording::{Recorded, Recording};
use super::{Input, Output, Pass, Pixels, is_finite};

/// Classes whose queries and encoded image are compared: these outputs are large.
const CLASSES_WITH_STATES: usize = 2;

/// Queries of the first class whose masks are compared.
const MASKS: usize = 3;

/// The stages of a detector, with engines that are recorded.
pub(super) struct Side {
    stages: Stages,
    recording: Recording,
    width: usize,
}

impl Side {
    /// The stages that a detector of `model` has, with the engines that `load` makes.
    pub(super) fn new(
        model: &Model,
        masks: bool,
        max_classes: usize,
        post: PostProcessOptions,
        load: impl Fn(ModelGraph) -> Result<Box<dyn Engine>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let recording = Recording::default();
        let recorded = recording.clone();
        let factory = EngineFactory::custom("verification", move |path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let graph = ModelGraph::of_file(name).expect("a detector loads the graphs of its model");
            Ok(recorded.engine(graph, load(graph)?))
        });
        let detector = Detector::builder()
            .with_open_model(model.clone())
            .with_engine_factory(factory)
            .with_post_processing(post)
            .with_class_chunk(max_classes)
            .with_masks(masks)
            .with_options(|options| options.semantic_maps = masks)
            .with_text_cache(TextCacheFile::None)
            .build()?;
        let width = detector.model().manifest().model_width;
        Ok(Self { stages: detector.into_stages(), recording, width })
    }

    /// Encodes text prompts; those that were encoded before are not encoded again.
    pub(super) fn embed(&mut self, prompts: &Prompts) -> Result<EmbeddedPrompts> {
        self.stages.text.embed(prompts)
    }

    /// Runs the backbone on all inputs, calling `step` before each; the engine is dropped at the end.
    pub(super) fn encode(
        &mut self,
        inputs: &[Input],
        mut step: impl FnMut() -> Result<()>,
    ) -> Result<Vec<Pass>> {
        let encoder = &mut self.stages.encoder;
        let mut passes = Vec::new();
        let mut times = StageTimes::default();
        for input in inputs {
            step()?;
            let mut pass = Pass::default();
            let (wanted, features) = (Wanted::default(), &mut pass.features);
            match &input.pixels {
                Pixels::Scene(image) => encoder.encode_into(image, wanted, features, &mut times),
                Pixels::Random(pixels) => {
                    encoder.backbone.run_into(pixels, input.size, wanted, features, &mut times)
                }
            }?;
            passes.push(pass);
        }
        encoder.unload();
        Ok(passes)
    }

    /// Runs the exemplar encoder for the last class of all inputs, which has exemplars; the engine is dropped at the end.
    pub(super) fn encode_exemplars(
        &mut self,
        prompts: &[EmbeddedPrompts],
        passes: &mut [Pass],
    ) -> Result<()> {
        for (prompts, pass) in prompts.iter().zip(passes) {
            let kept = self.stages.decoder.keep_exemplars(&pass.features, prompts)?;
            let features = kept.exemplar_features(prompts.len() - 1).expect("the last class has exemplars");
            pass.outputs.push(Output {
                graph: ModelGraph::ExemplarEncoder,
                name: tensor::EXEMPLAR_FEATURES,
                tensor: Tensor::f32(&[features.len() / self.width, self.width], features.to_vec())?,
            });
        }
        self.recording.take();
        self.stages.decoder.unload();
        Ok(())
    }

    /// Runs the encoder-decoder on an input, at most `chunk` classes at a time.
    pub(super) fn decode(
        &mut self,
        input: &Input,
        prompts: &EmbeddedPrompts,
        chunk: usize,
        pass: &mut Pass,
    ) -> Result<()> {
        let classes: Vec<usize> = (0..input.classes).collect();
        let names = [tensor::LOGITS, tensor::BOXES, tensor::PRESENCE, tensor::QUERIES, tensor::ENCODED];
        let mut outputs = names.map(|name| (name, Rows::default()));
        for chunk in classes.chunks(chunk) {
            let (recorded, detections) = self.run_decoder(&pass.features, prompts, chunk)?;
            pass.detections.extend(detections);
            for (name, rows) in &mut outputs {
                let is_state = [tensor::QUERIES, tensor::ENCODED].contains(name);
                let most = if is_state { CLASSES_WITH_STATES.saturating_sub(chunk[0]) } else { chunk.len() };
                for output in recorded.iter().filter(|output| output.name == *name) {
                    rows.add(output.tensor.shape(), output.tensor.as_f32()?, most.min(chunk.len()));
                }
            }
        }
        for (name, rows) in outputs {
            pass.push(ModelGraph::EncoderDecoder, name, rows)?;
        }
        Ok(())
    }

    /// Runs the mask head on the same queries of the first class on both sides.
    pub(super) fn draw_masks(&mut self, prompts: &EmbeddedPrompts, pass: &mut Pass) -> Result<()> {
        self.recording.force_queries(Some(MASKS));
        let decoded = self.run_decoder(&pass.features, prompts, &[0]);
        self.recording.force_queries(None);
        let (recorded, _) = decoded?;
        let [mut masks, mut semantic] = [Rows::default(), Rows::default()];
        for output in &recorded {
            let (shape, values) = (output.tensor.shape(), output.tensor.as_f32()?);
            match output.name.as_str() {
                // [1, query, height, width]
                tensor::MASKS => masks.add(&shape[1..], values, MASKS),
                tensor::SEMANTIC => semantic.add(shape, values, 1),
                _ => {}
            }
        }
        masks.truncate(MASKS);
        pass.push(ModelGraph::MaskHead, tensor::MASKS, masks)?;
        pass.push(ModelGraph::MaskHead, tensor::SEMANTIC, semantic)
    }

    /// The outputs of the graphs, and the detections.
    ///
    /// Values that are not finite are an error of the decoder and a finding of the comparison.
    fn run_decoder(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        classes: &[usize],
    ) -> Result<(Vec<Recorded>, Vec<Detection>)> {
        let mut detections = Vec::new();
        let times = &mut StageTimes::default();
        let request = DecodeRequest { classes: Some(classes), ..prompts.into() };
        let outcome = self.stages.decoder.decode_into(features, request, times, &mut detections);
        let recorded = self.recording.take();
        match outcome {
            Err(e) if recorded.iter().all(|output| is_finite(&output.tensor)) => Err(e),
            _ => Ok((recorded, detections)),
        }
    }
}

impl Pass {
    fn push(&mut self, graph: ModelGraph, name: &'static str, rows: Rows) -> Result<()> {
        if !rows.values.is_empty() {
            let tensor = Tensor::f32(&rows.shape(), rows.values)?;
            self.outputs.push(Output { graph, name, tensor });
        }
        Ok(())
    }
}

/// Rows of an output that several runs returned.
#[derive(Default)]
struct Rows {
    /// The shape of one row.
    row: Vec<usize>,
    values: Vec<f32>,
}

impl Rows {
    /// Adds the first rows of an output, as many as `most`: an engine with fixed sizes returns more than it was asked for.
    fn add(&mut self, shape: &[usize], values: &[f32], most: usize) {
        let Some((&rows, row)) = shape.split_first() else { return };
        self.row = row.to_vec();
        self.values.extend_from_slice(&values[..most.min(rows) * self.row_length()]);
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows * self.row_length());
    }

    fn row_length(&self) -> usize {
        self.row.iter().product()
    }

    fn shape(&self) -> Vec<usize> {
        let rows = self.values.len() / self.row_length().max(1);
        [&[rows], self.row.as_slice()].concat()
    }
}
