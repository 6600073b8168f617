//! The cost of masks: nothing if they are not requested; otherwise one run of the mask head for each class with
//! detections, over their queries.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ocelli::engines::{Engine, EngineSpec, Tensor};
use ocelli::export::contract::{file, tensor};
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Detection, Detector, EngineKind, Image, Model, Prompts, StageTimes,
    engine::{EngineFactory, EngineOptions},
    mask::SemanticMap,
    stages::{DecodeRequest, ImageFeatures, Stages, TextCacheFile, Wanted},
};

/// One run of an engine.
struct Run {
    graph: String,
    /// Queries given to the mask head.
    queries: usize,
    outputs: BTreeSet<String>,
}

type Runs = Arc<Mutex<Vec<Run>>>;

/// An engine that records which outputs are requested.
struct Recording {
    graph: String,
    engine: Box<dyn Engine>,
    runs: Runs,
}

impl Engine for Recording {
    fn spec(&self) -> &EngineSpec {
        self.engine.spec()
    }

    fn description(&self) -> &str {
        self.engine.description()
    }

    fn run(
        &mut self,
        inputs: &[(&str, &Tensor)],
        outputs: &mut [(&str, &mut Tensor)],
    ) -> ocelli::engines::Result<()> {
        let queries =
            inputs.iter().find(|(name, _)| *name == tensor::QUERIES).map_or(0, |(_, t)| t.shape()[1]);
        let names = outputs.iter().map(|(name, _)| (*name).to_owned()).collect();
        let run = Run { graph: self.graph.clone(), queries, outputs: names };
        self.runs.lock().expect("no thread panicked").push(run);
        self.engine.run(inputs, outputs)
    }
}

fn recording(runs: &Runs) -> EngineFactory {
    let factory = EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..EngineOptions::default() })
        .expect("`make setup` was run");
    let runs = Arc::clone(runs);
    EngineFactory::custom("recording", move |graph| {
        let name = graph.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Box::new(Recording { graph: name, engine: factory.load(graph)?, runs: Arc::clone(&runs) }))
    })
}

struct Found {
    items: Vec<Detection>,
    semantic: Vec<SemanticMap>,
    runs: Vec<Run>,
}

fn found(model: &Model, masks: bool, semantic: bool) -> Found {
    let runs = Runs::default();
    let mut detector = Detector::builder()
        .with_open_model(model.clone())
        .with_engine_factory(recording(&runs))
        .with_text_cache(TextCacheFile::None)
        .with_masks(masks)
        .with_options(|options| options.semantic_maps = semantic)
        .build()
        .expect("the built-in model runs");
    let prompts = Prompts::new(["dog", "banana", "tree", "airplane"]).expect("they are not blank");
    let image = Image::open("../demos/scenes/park.png").expect("the scene is in the project");
    let found = detector.detect(&image, &prompts).expect("it detects");
    drop(detector);
    let runs = std::mem::take(&mut *runs.lock().expect("no thread panicked"));
    Found { items: found.items, semantic: found.semantic, runs }
}

/// The built-in model with everything that masks need.
fn model() -> (tempfile::TempDir, Model) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (checkpoint, exported) = (folder.path().join("checkpoint"), folder.path().join("exported"));
    std::fs::create_dir(&checkpoint).expect("the folder is new");
    ocelli::builtin::write_checkpoint(&checkpoint).expect("it writes");
    let checkpoint = Checkpoint::open(&checkpoint).expect("the built-in model is a checkpoint");
    export(&checkpoint, &ExportOptions::default(), &exported, |_| Ok(())).expect("it exports");
    let model = Model::open(&exported).expect("it was just exported");
    (folder, model)
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn only_requested_outputs_are_computed() {
    let (_folder, model) = model();
    let boxes = [tensor::LOGITS, tensor::BOXES, tensor::PRESENCE];
    let states = [tensor::QUERIES, tensor::ENCODED];
    let image = [tensor::FPN[2], tensor::IMAGE_PROMPT];
    let fine = [tensor::FPN[0], tensor::FPN[1]];
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let mut problems = Vec::new();
    let without = found(&model, false, false);
    for (masks, semantic, head) in [
        (false, false, &[][..]),
        (true, false, &[tensor::MASKS]),
        (false, true, &[tensor::SEMANTIC]),
        (true, true, &[tensor::MASKS, tensor::SEMANTIC]),
    ] {
        let name = format!("masks {masks}, semantic maps {semantic}");
        let came = found(&model, masks, semantic);
        let needed = masks || semantic;
        let expected_of = |graph: &str| match (graph, needed) {
            (file::BACKBONE, false) => set(&image),
            (file::BACKBONE, true) => set(&[&image[..], &fine].concat()),
            (file::ENCODER_DECODER, false) => set(&boxes),
            (file::ENCODER_DECODER, true) => set(&[&boxes[..], &states].concat()),
            (file::TEXT_ENCODER, _) => set(&[tensor::TEXT_FEATURES]),
            (file::MASK_HEAD, true) => set(head),
            _ => BTreeSet::new(),
        };
        for run in came.runs.iter().filter(|run| run.outputs != expected_of(&run.graph)) {
            problems.push(format!("{name}: {} was run for {:?}", run.graph, run.outputs));
        }
        // The detections do not depend on it.
        let place = |one: &Detection| (one.class_id, one.score.to_bits(), one.bbox);
        if came.items.iter().map(place).ne(without.items.iter().map(place)) {
            problems.push(format!("{name}: other detections: {:?}", came.items));
        }
        if came.items.iter().any(|one| one.mask.is_some() != masks) {
            problems.push(format!("{name}: masks {:?}", came.items));
        }
        let classes: BTreeSet<usize> = came.items.iter().map(|one| one.class_id).collect();
        let passes: Vec<usize> =
            came.runs.iter().filter(|run| run.graph == file::MASK_HEAD).map(|run| run.queries).collect();
        let of_class = |class: &usize| came.items.iter().filter(|one| one.class_id == *class).count();
        let kept: Vec<usize> = if needed { classes.iter().map(of_class).collect() } else { Vec::new() };
        if passes != kept {
            problems.push(format!("{name}: runs of {passes:?} queries for classes with {kept:?} detections"));
        }
        let maps: Vec<usize> = came.semantic.iter().map(|map| map.class_id).collect();
        if maps != (if semantic { Vec::from_iter(classes.clone()) } else { Vec::new() }) {
            problems.push(format!("{name}: semantic maps of {maps:?}"));
        }
        assert!(
            classes.len() >= 2 && came.items.len() > classes.len(),
            "too few detections: {:?}",
            came.items
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Without a limit and class-agnostic suppression, masks are computed chunk by chunk, otherwise after all chunks.
#[test]
fn masks_are_the_same_after_each_chunk_and_after_all_chunks() {
    let (_folder, model) = model();
    let prompts = Prompts::new(["dog", "banana", "tree", "airplane"]).expect("words");
    let image = Image::open("../demos/scenes/park.png").expect("the scene is in the project");
    let found = |post: PostProcessOptions| {
        let builder = Detector::builder().with_open_model(model.clone()).with_text_cache(TextCacheFile::None);
        let builder = builder.with_post_processing(post).with_class_chunk(1);
        let mut detector = builder
            .with_masks(true)
            .with_options(|options| options.semantic_maps = true)
            .build()
            .expect("the model runs");
        let found = detector.detect(&image, &prompts).expect("it detects");
        (found.items, found.semantic)
    };
    let options = PostProcessOptions { confidence: 0.01, ..Default::default() };
    let (items, semantic) = found(options.clone());
    assert!(semantic.len() >= 2 && items.len() >= 4, "too few detections: {items:?}");
    for limit in [items.len(), 3, 1] {
        let (limited, maps) = found(PostProcessOptions { max_detections: Some(limit), ..options.clone() });
        assert_eq!(limited, items[..limit]);
        let is_found = |map: &&SemanticMap| limited.iter().any(|one| one.class_id == map.class_id);
        assert_eq!(maps, semantic.iter().filter(is_found).cloned().collect::<Vec<_>>());
    }
    let across = PostProcessOptions { class_agnostic_nms: Some(1.0), ..options };
    assert_eq!(found(across), (items, semantic));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn masks_can_be_left_out_of_single_images() {
    let (_folder, model) = model();
    let runs = Runs::default();
    let detector = Detector::builder()
        .with_open_model(model)
        .with_engine_factory(recording(&runs))
        .with_text_cache(TextCacheFile::None)
        .with_masks(true)
        .build()
        .expect("the built-in model runs");
    let Stages { mut text, mut encoder, mut decoder, .. } = detector.into_stages();
    let prompts = Prompts::new(["dog", "banana"]).expect("they are not blank");
    let prompts = text.embed(&prompts).expect("they can be encoded");
    let image = Image::open("../demos/scenes/park.png").expect("the scene is in the project");
    let (mut features, mut times) = (ImageFeatures::default(), StageTimes::default());
    let mut all = Vec::new();
    // The buffers are the same, so that the features for masks of an earlier image could stay in them.
    for masks in [true, false, true] {
        encoder
            .encode_into(&image, Wanted { masks, hidden: false }, &mut features, &mut times)
            .expect("it runs");
        assert_eq!(features.support_masks(), masks);
        let request = DecodeRequest { masks, ..(&prompts).into() };
        all.push(decoder.decode(&features, request, &mut times).expect("it runs"));
    }
    let [first, without, last] = &all[..] else { panic!("three images") };
    assert!(!first.is_empty() && first.iter().all(|one| one.mask.is_some()) && first == last);
    let bare: Vec<Detection> = first.iter().map(|one| Detection { mask: None, ..one.clone() }).collect();
    assert_eq!(*without, bare);
    let runs = runs.lock().expect("no thread panicked");
    let of_backbone = runs.iter().filter(|run| run.graph == file::BACKBONE);
    let fine: Vec<bool> = of_backbone.map(|run| run.outputs.contains(tensor::FPN[0])).collect();
    assert_eq!(fine, [true, false, true]);
}
