//! Engines on a GPU: tensors that stay there, copies, and identical detections. Engines with fixed sizes, such as those of
//! Core ML, are tested on the CPU.
//!
//! Needs ONNX Runtime; `make setup` installs it. The tests on a GPU need ONNX Runtime for CUDA.

mod gpu;

use std::path::Path;

use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine};
use ocelli::engines::{Dim, Engine};
use ocelli::export::contract::{dim, file};
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{
    Detection, Detections, Detector, Model, Prompt, Prompts, engine::EngineFactory, mask::SemanticMap,
    stages::TextCacheFile,
};
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions};

/// The built-in model with the graphs for masks.
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

fn detector(model: &Model, factory: EngineFactory, chunk: usize) -> Detector {
    Detector::builder()
        .with_open_model(model.clone())
        .with_engine_factory(factory)
        .with_text_cache(TextCacheFile::None)
        .with_class_chunk(chunk)
        .with_masks(true)
        .with_options(|options| options.semantic_maps = true)
        .build()
        .expect("the built-in model runs")
}

fn scenes(count: u64) -> Vec<Scene> {
    let options = SceneOptions { kinds: 2..=3, objects: 4..=6, ..SceneOptions::default() };
    let generator = SceneGenerator::new(5, options).expect("valid ranges");
    (0..count).map(|number| generator.scene(number)).collect()
}

/// Text prompts with and without examples, more than one chunk of them.
fn prompts(scene: &Scene) -> Prompts {
    let [first, second] = [&scene.objects[0], &scene.objects[1]];
    Prompts::new([
        Prompt::new("dog"),
        Prompt::new(first.label),
        Prompt::new(second.label),
        Prompt::visual("shown").with_exemplar(first.bbox, true),
        Prompt::new("banana"),
        Prompt::new(second.label).with_exemplar(second.bbox, true).with_exemplar(first.bbox, false),
    ])
    .expect("boxes with area")
}

/// Detections without their times.
fn without_times(found: Detections) -> (Vec<Detection>, Vec<SemanticMap>) {
    (found.items, found.semantic)
}

/// CPU engines with fixed sizes for some dynamic dimensions, given by graph, dimension and size. The number of examples
/// stays dynamic, because examples cannot be padded.
fn engines_of_fixed_sizes(fixed: &'static [(&'static str, &'static str, usize)]) -> EngineFactory {
    let runtime = OnnxRuntime::load(None).expect("`make setup` was run");
    EngineFactory::custom("with fixed sizes", move |graph: &Path| {
        let mut builder = OnnxRuntimeEngine::builder(&runtime);
        for (_, name, size) in fixed.iter().filter(|(file, ..)| graph.ends_with(file)) {
            builder = builder.with_fixed_dimension(*name, *size);
        }
        let engine = builder.build_from_file(graph)?;
        let spec = engine.spec();
        let dynamic = spec.inputs.iter().chain(&spec.outputs).flat_map(|tensor| &tensor.shape);
        let dynamic = dynamic.filter(|dim| matches!(dim, Dim::Named(_))).count();
        let is_fixed = !fixed.is_empty() && !graph.ends_with(file::EXEMPLAR_ENCODER);
        assert!(!is_fixed || dynamic == 0, "{}: {spec:?}", graph.display());
        Ok(Box::new(engine) as Box<dyn Engine>)
    })
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn fixed_sizes_do_not_change_the_detections() {
    let (_folder, model) = model();
    let tokens = model.manifest().context_length + 8;
    // Leaked, because the factory outlives this function.
    let sizes = |texts, classes, masks| -> &'static [(&'static str, &'static str, usize)] {
        Box::leak(Box::new([
            (file::TEXT_ENCODER, dim::CLASSES, texts),
            (file::ENCODER_DECODER, dim::CLASSES, classes),
            (file::ENCODER_DECODER, dim::PROMPT_TOKENS, tokens),
            (file::MASK_HEAD, dim::MASKS, masks),
            (file::MASK_HEAD, dim::PROMPT_TOKENS, tokens),
        ]))
    };
    let scenes = scenes(3);
    let run = |detector: &mut Detector| -> Vec<_> {
        // Twice, so that padding is reused with its previous contents.
        let images = scenes.iter().chain(&scenes);
        images
            .map(|scene| without_times(detector.detect(&scene.image, &prompts(scene)).expect("it detects")))
            .collect()
    };
    let expected = run(&mut detector(&model, engines_of_fixed_sizes(&[]), 2));
    assert!(expected.iter().map(|(items, _)| items.len()).sum::<usize>() > 12);
    let cases = [
        ("as for Core ML", sizes(1, 2, 8), 2),
        ("more rows than classes, masks one by one", sizes(4, 7, 1), 7),
        ("fewer rows than classes in a chunk", sizes(3, 4, 40), 100),
        ("all the same", sizes(4, 4, 3), 4),
    ];
    let mut wrong = Vec::new();
    for (name, fixed, chunk) in cases {
        let found = run(&mut detector(&model, engines_of_fixed_sizes(fixed), chunk));
        for (image, ((found, areas), (expected, expected_areas))) in found.iter().zip(&expected).enumerate() {
            let same = found.len() == expected.len()
                && areas.len() == expected_areas.len()
                && found.iter().zip(expected).all(|(found, expected)| is_close(found, expected))
                && areas
                    .iter()
                    .zip(expected_areas)
                    .all(|(found, expected)| found.mask.iou(&expected.mask).is_ok_and(|iou| iou > 0.99));
            if !same {
                wrong.push(format!("{name}, image {image}: {found:?}\n  expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sums over more rows may be rounded differently.
fn is_close(found: &Detection, expected: &Detection) -> bool {
    let corners = |one: &Detection| [one.bbox.x1, one.bbox.y1, one.bbox.x2, one.bbox.y2];
    let distance =
        corners(found).into_iter().zip(corners(expected)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let masks = match (&found.mask, &expected.mask) {
        (Some(found), Some(expected)) => found.iou(expected).is_ok_and(|iou| iou > 0.99),
        _ => false,
    };
    found.class_id == expected.class_id
        && (found.score - expected.score).abs() < 1e-3
        && distance < 0.1
        && masks
}
