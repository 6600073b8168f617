//! A model with full-size shapes and no arithmetic, on a GPU, to count copies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ocelli::engines::cuda::CudaDevice;
use ocelli::engines::spec::{check_residence, check_run};
use ocelli::engines::{Device, Dim, ElementType, Engine, EngineSpec, Tensor, TensorSpec};
use ocelli::export::contract::{
    FORMAT_VERSION, Manifest, Precision, Preprocessing, Prompting, SpecialTokens, Target, Thresholds, dim,
    file, tensor,
};
use ocelli::{
    Detector, Error, ErrorKind, Frame, Image, Model, Prompts, Result, Source, engine::EngineFactory,
    source::SourceInfo, stages::TextCacheFile,
};

const PATCH: usize = 14;
const WIDTH: usize = 256;
const QUERIES: usize = 200;
const CONTEXT: usize = 32;

/// Logits, boxes and presence of four classes.
pub const BYTES_TO_HOST: u64 = 4 * (4 * QUERIES + 4 * QUERIES * 4 + 4) as u64;

/// The text features of the four classes, which the text encoder returns once.
pub const TEXT_BYTES: u64 = 4 * (4 * CONTEXT * WIDTH) as u64;

pub fn prompts() -> Prompts {
    Prompts::new(["person", "car", "dog", "bicycle"]).expect("they are not empty")
}

pub fn image() -> Image {
    Image::from_rgb8(64, 48, vec![99; 64 * 48 * 3]).expect("the bytes fit")
}

/// A detector whose engines are all on the device. With masks, it detects the first query of each class, otherwise nothing.
pub fn detector(device: &Arc<CudaDevice>, side: usize, masks: bool) -> Detector {
    let folder = tempfile::tempdir().expect("a temporary folder");
    ocelli::builtin::write_checkpoint(folder.path()).expect("it writes");
    let text = serde_json::to_string(&manifest(side, masks)).expect("a manifest is JSON");
    std::fs::write(folder.path().join(file::MANIFEST), text).expect("it writes");
    // Masks are computed if their graph exists. The file is never read.
    std::fs::write(folder.path().join(file::MASK_HEAD), "").expect("it writes");
    let model = Model::open(folder.path()).expect("the folder is a model");
    let device = device.clone();
    let factory = EngineFactory::custom("without arithmetic", move |graph: &Path| {
        let name = graph.file_name().and_then(|name| name.to_str()).expect("a graph has a name");
        let Some(spec) = spec(name, side / PATCH) else {
            return Err(Error::new(ErrorKind::Unavailable, format!("{name}: no such engine")));
        };
        Ok(Box::new(Constant::new(spec, &device, masks)) as Box<dyn Engine>)
    });
    Detector::builder()
        .with_open_model(model)
        .with_engine_factory(factory)
        .with_text_cache(TextCacheFile::None)
        .with_masks(masks)
        // With masks, two chunks, whose states are in use at the same time.
        .with_class_chunk(if masks { 2 } else { 4 })
        .build()
        .expect("the engines load")
}

fn manifest(side: usize, masks: bool) -> Manifest {
    Manifest {
        format_version: FORMAT_VERSION,
        exporter: "none".into(),
        weights_sha256: "0".repeat(64),
        text_sha256: None,
        imgsz: side,
        patch_size: PATCH,
        model_width: WIDTH,
        num_queries: QUERIES,
        context_length: CONTEXT,
        special_tokens: SpecialTokens { bos: 0, eos: 1, pad: 1 },
        text_padding: None,
        license: None,
        preprocessing: Preprocessing { resize: "bilinear-antialias".into(), mean: [0.0; 3], std: [1.0; 3] },
        thresholds: Thresholds { confidence: 0.3, nms: 0.7 },
        prompting: Prompting::Official,
        target: Target::OnnxRuntime,
        precision: Precision::Fp32,
        mixed_precision: Default::default(),
        keep_fp32: Vec::new(),
        calibration: None,
        tracker: None,
        multiplex: None,
        detection_only: !masks,
        skip_blocks: Vec::new(),
        mask_blocks: Vec::new(),
        split_block: None,
        files: BTreeMap::new(),
    }
}

/// An engine on the device that returns zeros, except for the scores of the first query of each class.
struct Constant {
    spec: EngineSpec,
    device: Device,
    found: bool,
    /// By the position of the output.
    results: Vec<Tensor>,
    /// For inputs in host memory.
    staged: Tensor,
}

impl Constant {
    fn new(spec: EngineSpec, device: &Arc<CudaDevice>, found: bool) -> Self {
        let device = Device::from(device.clone());
        let results = spec.outputs.iter().map(|_| Tensor::on(device.clone())).collect();
        let staged = Tensor::on(device.clone());
        Self { spec, device, found, results, staged }
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let mut values = Tensor::zeros::<f32>(shape);
        match name {
            tensor::LOGITS if self.found => {
                values.as_mut_slice::<f32>()?.chunks_exact_mut(QUERIES).for_each(|row| row[0] = 4.0);
            }
            tensor::PRESENCE if self.found => values.as_mut_slice::<f32>()?.fill(4.0),
            tensor::BOXES => {
                let boxes = values.as_mut_slice::<f32>()?.chunks_exact_mut(4);
                boxes.for_each(|one| one.copy_from_slice(&[0.1, 0.1, 0.6, 0.6]));
            }
            _ => {}
        }
        Ok(values)
    }
}

impl Engine for Constant {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        "without arithmetic"
    }

    fn device(&self) -> Option<Device> {
        Some(self.device.clone())
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let bindings = check_run(&self.spec, inputs, outputs)?;
        check_residence(Some(&self.device), inputs, outputs)?;
        for (_, input) in inputs.iter().filter(|(_, input)| input.device().is_none()) {
            self.staged.copy_from_host(input)?;
        }
        for (name, output) in outputs.iter_mut() {
            let at = self.spec.outputs.iter().position(|spec| spec.name == *name).expect("it was checked");
            let shape = bindings.shape_of(&self.spec.outputs[at]).expect("no shape depends on elements");
            if self.results[at].shape() != shape {
                let values = self.values(name, &shape)?;
                self.results[at].copy_from_host(&values)?;
            }
            let result = &self.results[at];
            if output.device().is_none() {
                result.copy_to_host_into(output)?;
            } else {
                output.reset_to(ElementType::F32, &shape)?;
                output.copy_elements(0, result, 0, result.len())?;
            }
        }
        Ok(())
    }
}

fn spec(graph: &str, grid: usize) -> Option<EngineSpec> {
    let f32 = |name: &str, shape: &[Dim]| TensorSpec::new(name, ElementType::F32, shape.to_vec());
    let i64 = |name: &str, shape: &[Dim]| TensorSpec::new(name, ElementType::I64, shape.to_vec());
    let n = Dim::Fixed;
    let (classes, tokens, kept) =
        (Dim::named(dim::CLASSES), Dim::named(dim::PROMPT_TOKENS), Dim::named(dim::MASKS));
    let level = |scale: usize| [n(1), n(WIDTH), n(scale * grid), n(scale * grid)];
    let [fine, middle, coarse] = [4, 2, 1].map(level);
    let c = || classes.clone();
    let (inputs, outputs) = match graph {
        file::TEXT_ENCODER => {
            let words = [c(), n(CONTEXT)];
            (
                vec![i64(tensor::INPUT_IDS, &words), i64(tensor::ATTENTION_MASK, &words)],
                vec![f32(tensor::TEXT_FEATURES, &[c(), n(CONTEXT), n(WIDTH)])],
            )
        }
        file::BACKBONE => (
            vec![f32(tensor::PIXEL_VALUES, &[n(1), n(3), n(grid * PATCH), n(grid * PATCH)])],
            vec![
                f32(tensor::FPN[0], &fine),
                f32(tensor::FPN[1], &middle),
                f32(tensor::FPN[2], &coarse),
                f32(tensor::IMAGE_PROMPT, &[n(1), n(1), n(WIDTH)]),
            ],
        ),
        file::ENCODER_DECODER => (
            vec![
                f32(tensor::FPN[2], &coarse),
                f32(tensor::PROMPT_FEATURES, &[c(), tokens.clone(), n(WIDTH)]),
                i64(tensor::PROMPT_MASK, &[c(), tokens]),
            ],
            vec![
                f32(tensor::LOGITS, &[c(), n(QUERIES)]),
                f32(tensor::BOXES, &[c(), n(QUERIES), n(4)]),
                f32(tensor::PRESENCE, &[c(), n(1)]),
                f32(tensor::QUERIES, &[c(), n(QUERIES), n(WIDTH)]),
                f32(tensor::ENCODED, &[c(), n(grid * grid), n(WIDTH)]),
            ],
        ),
        file::MASK_HEAD => (
            vec![
                f32(tensor::FPN[0], &fine),
                f32(tensor::FPN[1], &middle),
                f32(tensor::ENCODED, &[n(1), n(grid * grid), n(WIDTH)]),
                f32(tensor::PROMPT_FEATURES, &[n(1), tokens.clone(), n(WIDTH)]),
                i64(tensor::PROMPT_MASK, &[n(1), tokens]),
                f32(tensor::QUERIES, &[n(1), kept.clone(), n(WIDTH)]),
            ],
            vec![
                f32(tensor::MASKS, &[n(1), kept, n(4 * grid), n(4 * grid)]),
                f32(tensor::SEMANTIC, &[n(1), n(1), n(4 * grid), n(4 * grid)]),
            ],
        ),
        _ => return None,
    };
    Some(EngineSpec { inputs, outputs })
}

/// A stream of grey frames.
pub struct Grey {
    info: SourceInfo,
    left: u64,
}

impl Grey {
    pub fn new(frames: u64) -> Self {
        let mut info = SourceInfo::default();
        info.name = "grey".into();
        info.size = Some((64, 48));
        info.frame_rate = Some(25.0);
        info.frame_count = Some(frames);
        Self { info, left: frames }
    }
}

impl Source for Grey {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        frame.image.reset_rgb8(64, 48)?.fill(99);
        frame.index = self.info.frame_count.unwrap_or(0) - left - 1;
        frame.time = Duration::from_millis(40 * frame.index);
        Ok(true)
    }
}
