//! Engines with a device: what stays there, what crosses, and that the detections are the same; and engines of fixed
//! sizes, as Core ML's are.
//!
//! The device is a fake one, the host's memory behind another door; the graphs of the built-in model are computed by
//! ONNX Runtime all the same. Needs ONNX Runtime where programs find it; `make setup` puts it there.

#[path = "device_path/fullsize.rs"]
mod fullsize;

use std::path::Path;
use std::sync::Arc;

use ocelli::engines::fake::FakeDevice;
use ocelli::engines::onnxruntime::{LibrarySearch, OnnxRuntime, OnnxRuntimeEngine};
use ocelli::engines::{Device, Dim, Engine};
use ocelli::export::contract::{dim, file};
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli_datasets::scenes::{Scene, SceneGenerator, SceneOptions};
use ocelli::{
    Detection, Detections, Detector, EmbeddedPrompts, EngineFactory, ImageFeatures, Model, Pipeline, Prompt,
    Prompts, SemanticMap, StageTimes, TextCacheFile,
};

/// Engines of ONNX Runtime on the processor, which pretend to work on `device` for the graphs in `there`.
fn engines(device: &Arc<FakeDevice>, there: &'static [&'static str]) -> EngineFactory {
    let runtime = OnnxRuntime::load(&LibrarySearch::new()).expect("`make setup` was run");
    let device = device.clone();
    EngineFactory::custom("behind a door", move |graph: &Path| {
        let builder = OnnxRuntimeEngine::builder(&runtime);
        let is_there = there.iter().any(|name| graph.ends_with(name));
        let builder = if is_there { builder.with_device(device.clone()) } else { builder };
        Ok(Box::new(builder.build_from_file(graph)?) as Box<dyn Engine>)
    })
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

fn detector(model: &Model, factory: EngineFactory, chunk: usize) -> Detector {
    Detector::builder()
        .with_open_model(model.clone())
        .with_engine_factory(factory)
        .with_text_cache(TextCacheFile::None)
        .with_class_chunk(chunk)
        .with_masks(true)
        .with_semantic_maps(true)
        .build()
        .expect("the built-in model runs")
}

fn scenes(count: u64) -> Vec<Scene> {
    let options = SceneOptions { kinds: 2..=3, objects: 4..=6, ..SceneOptions::default() };
    let generator = SceneGenerator::new(5, options).expect("ranges that hold numbers");
    (0..count).map(|number| generator.scene(number)).collect()
}

/// Words with and without examples, more than one chunk of them.
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

/// Everything of detections but the times.
fn facts(found: Detections) -> (Vec<Detection>, Vec<SemanticMap>) {
    (found.items, found.semantic)
}

const ALL: &[&str] =
    &[file::TEXT_ENCODER, file::BACKBONE, file::EXEMPLAR_ENCODER, file::ENCODER_DECODER, file::MASK_HEAD];

#[test]
fn detections_are_the_same_to_the_bit_wherever_the_engines_work() {
    let (_folder, model) = model();
    let scenes = scenes(3);
    let run = |detector: &mut Detector| {
        let mut found = Vec::new();
        // Twice, so that everything that is kept from image to image is used again.
        for scene in scenes.iter().chain(&scenes) {
            found.push(facts(detector.detect(&scene.image, &prompts(scene)).expect("it detects")));
        }
        let kept = detector.exemplar_features(&scenes[0].image, &prompts(&scenes[0])).expect("it looks");
        found.push(facts(detector.detect_embedded(&scenes[1].image, &kept).expect("it detects")));
        found.push(facts(detector.detect_embedded(&scenes[2].image, &kept).expect("it detects")));
        found
    };
    let nowhere = FakeDevice::new();
    let expected = run(&mut detector(&model, engines(&nowhere, &[]), 2));
    // Examples from another image may find nothing.
    assert!(expected[..6].iter().any(|(items, semantic)| items.len() > 2 && !semantic.is_empty()));
    assert_eq!(nowhere.allocations(), 0);

    let cases: [(&str, &[&str], usize); 8] = [
        ("everything", ALL, 2),
        ("everything, one class at a time", ALL, 1),
        ("everything at once", ALL, 100),
        ("the backbone alone", &[file::BACKBONE], 2),
        ("all but the backbone", &[file::EXEMPLAR_ENCODER, file::ENCODER_DECODER, file::MASK_HEAD], 2),
        ("backbone and encoder-decoder", &[file::BACKBONE, file::ENCODER_DECODER], 2),
        ("all but the encoder-decoder", &[file::BACKBONE, file::EXEMPLAR_ENCODER, file::MASK_HEAD], 2),
        ("all but the mask head", &[file::BACKBONE, file::EXEMPLAR_ENCODER, file::ENCODER_DECODER], 2),
    ];
    let mut wrong = Vec::new();
    for (name, there, chunk) in cases {
        let device = FakeDevice::new();
        let found = run(&mut detector(&model, engines(&device, there), chunk));
        // Sums over a batch of another size may be rounded otherwise.
        let expected =
            if chunk == 2 { &expected } else { &run(&mut detector(&model, engines(&nowhere, &[]), chunk)) };
        for (image, (found, expected)) in found.iter().zip(expected).enumerate() {
            if found != expected {
                wrong.push(format!("{name}, image {image}: {:?}\n  expected {:?}", found.0, expected.0));
            }
        }
        if device.allocations() == 0 {
            wrong.push(format!("{name}: nothing was there"));
        }
    }
    // What comes before and after the graphs is computed there too.
    let kernels = tempfile::tempdir().expect("a temporary folder");
    let device = FakeDevice::with_kernels(kernels.path());
    let mut there = detector(&model, engines(&device, ALL), 2);
    if run(&mut there) != expected {
        wrong.push("everything, with kernels: another result".to_owned());
    }
    let before = device.transferred();
    let scene = &scenes[0];
    there.detect(&scene.image, &Prompts::new(["dog", "cat"]).expect("words")).expect("it detects");
    let pixels = u64::from(scene.image.width() * scene.image.height() * 3);
    let up = device.transferred().to_device - before.to_device;
    if !(pixels..pixels + 100_000).contains(&up) {
        wrong.push(format!("{up} bytes went up, the picture has {pixels}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Engines that take one size alone of what is free in the graphs, given by graph and dimension; examples' are as they
/// were, since their number cannot be filled up.
fn engines_of_fixed_sizes(
    device: Option<&Arc<FakeDevice>>,
    fixed: &'static [(&'static str, &'static str, usize)],
) -> EngineFactory {
    let runtime = OnnxRuntime::load(&LibrarySearch::new()).expect("`make setup` was run");
    let device = device.cloned();
    EngineFactory::custom("of fixed sizes", move |graph: &Path| {
        let mut builder = OnnxRuntimeEngine::builder(&runtime);
        for (_, name, size) in fixed.iter().filter(|(file, ..)| graph.ends_with(file)) {
            builder = builder.with_fixed_dimension(*name, *size);
        }
        if let Some(device) = &device {
            builder = builder.with_device(device.clone());
        }
        let engine = builder.build_from_file(graph)?;
        let spec = engine.spec();
        let free = spec.inputs.iter().chain(&spec.outputs).flat_map(|tensor| &tensor.shape);
        let free = free.filter(|dim| matches!(dim, Dim::Named(_))).count();
        assert!(graph.ends_with(file::EXEMPLAR_ENCODER) || free == 0, "{}: {spec:?}", graph.display());
        Ok(Box::new(engine) as Box<dyn Engine>)
    })
}

#[test]
fn engines_of_fixed_sizes_find_the_same_as_those_of_any_size() {
    let (_folder, model) = model();
    let tokens = model.manifest().context_length + 8;
    // Leaked, once a test: the factory outlives this function's frame.
    let sizes = |words, classes, masks| -> &'static [(&'static str, &'static str, usize)] {
        Box::leak(Box::new([
            (file::TEXT_ENCODER, dim::CLASSES, words),
            (file::ENCODER_DECODER, dim::CLASSES, classes),
            (file::ENCODER_DECODER, dim::PROMPT_TOKENS, tokens),
            (file::MASK_HEAD, dim::MASKS, masks),
            (file::MASK_HEAD, dim::PROMPT_TOKENS, tokens),
        ]))
    };
    let scenes = scenes(3);
    let run = |detector: &mut Detector| -> Vec<_> {
        // Twice, so that what is left over in the rows that fill up is there when they are filled again.
        let images = scenes.iter().chain(&scenes);
        images
            .map(|scene| facts(detector.detect(&scene.image, &prompts(scene)).expect("it detects")))
            .collect()
    };
    let expected = run(&mut detector(&model, engines(&FakeDevice::new(), &[]), 2));
    assert!(expected.iter().map(|(items, _)| items.len()).sum::<usize>() > 12);
    let device = FakeDevice::new();
    let cases = [
        ("as Core ML's are", None, sizes(1, 2, 8), 2),
        ("more places than classes, masks one by one", None, sizes(4, 7, 1), 7),
        ("fewer places than classes a chunk", None, sizes(3, 4, 40), 100),
        ("on a device", Some(&device), sizes(4, 4, 3), 4),
    ];
    let mut wrong = Vec::new();
    for (name, device, fixed, chunk) in cases {
        let found = run(&mut detector(&model, engines_of_fixed_sizes(device, fixed), chunk));
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
    assert!(device.allocations() > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sums over more rows may be rounded otherwise.
fn is_close(found: &Detection, expected: &Detection) -> bool {
    let corners = |one: &Detection| [one.bbox.x1, one.bbox.y1, one.bbox.x2, one.bbox.y2];
    let apart =
        corners(found).into_iter().zip(corners(expected)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let masks = match (&found.mask, &expected.mask) {
        (Some(found), Some(expected)) => found.iou(expected).is_ok_and(|iou| iou > 0.99),
        _ => false,
    };
    found.class_id == expected.class_id && (found.score - expected.score).abs() < 1e-3 && apart < 0.1 && masks
}

#[test]
fn classes_that_take_turns_are_the_same_and_cross_once() {
    let (_folder, model) = model();
    let scene = &scenes(1)[0];
    let prompts =
        Prompts::new(["dog", "bicycle", "banana", "airplane", "cat", scene.objects[0].label]).expect("words");
    let device = FakeDevice::new();
    let decode = |factory: EngineFactory| {
        let (mut text, mut encoder, mut decoder) = detector(&model, factory, 2).into_stages();
        let embedded: EmbeddedPrompts = text.embed(&prompts).expect("it embeds");
        let (mut features, mut times) = (ImageFeatures::default(), StageTimes::default());
        encoder.encode_into(scene.image.view(), &mut features, &mut times).expect("it encodes");
        let mut outcomes = Vec::new();
        for classes in [&[0, 1, 5][..], &[1, 2], &[0, 1, 5], &[2, 3, 4, 5], &[1, 2], &[0, 1, 5]] {
            let before = device.transferred().to_device;
            let mut found = Vec::new();
            decoder
                .decode_into(&features, &embedded, Some(classes), &mut times, &mut found)
                .expect("it decodes");
            outcomes.push((found, device.transferred().to_device - before));
        }
        outcomes
    };
    let expected = decode(engines(&FakeDevice::new(), &[]));
    let found = decode(engines(&device, ALL));
    let items = |outcomes: &[(Vec<Detection>, u64)]| {
        outcomes.iter().map(|(found, _)| found.clone()).collect::<Vec<_>>()
    };
    assert!(!items(&expected)[0].is_empty());
    assert_eq!(items(&found), items(&expected));
    let crossed: Vec<_> = found.iter().map(|(_, bytes)| *bytes).collect();
    assert!(crossed[0] > 0 && crossed[1] > 0 && crossed[3] > 0, "{crossed:?}");
    assert_eq!([crossed[2], crossed[4], crossed[5]], [0; 3], "{crossed:?}");
}

#[test]
fn features_on_a_device_are_written_to_disk() {
    let (_folder, model) = model();
    let scene = &scenes(1)[0];
    let device = FakeDevice::new();
    let bytes = |factory: EngineFactory| {
        let (_, mut encoder, _) = detector(&model, factory, 2).into_stages();
        let mut features = ImageFeatures::default();
        encoder
            .encode_into(scene.image.view(), &mut features, &mut StageTimes::default())
            .expect("it encodes");
        let mut bytes = Vec::new();
        features.write_to(&mut bytes).expect("memory takes all");
        // The buffers, wherever they lie, can be read into again.
        features.read_from(&mut &bytes[..]).expect("it was written");
        let mut again = Vec::new();
        features.write_to(&mut again).expect("memory takes all");
        assert!(bytes == again);
        bytes
    };
    assert!(bytes(engines(&device, ALL)) == bytes(engines(&device, &[])));
}

/// The loop: frames overlap, buffers go round.
#[test]
fn a_pipeline_allocates_nothing_on_the_device_once_it_runs() {
    let device = FakeDevice::new();
    let frames = 300;
    let detector = fullsize::detector(&device, 28, false);
    let summary = Pipeline::builder(detector, fullsize::prompts())
        .run(fullsize::Grey::new(frames), &mut [])
        .expect("it runs");
    assert_eq!(summary.stats.frames_out, frames);
    // Features of the frames in the queues and stages, two tensors each, and what the two engines and the prompts keep.
    assert!(device.allocations() <= 2 * 8 + 16, "{}", device.allocations());
    let to_host = device.transferred().to_host;
    assert_eq!(to_host, frames * fullsize::BYTES_TO_HOST + fullsize::WORDS_BYTES);
}

/// A model of the full size, without its arithmetic: 4 classes at 1008 px.
#[test]
fn at_full_size_little_comes_back() {
    let device = FakeDevice::new();
    let mut detector = fullsize::detector(&device, 1008, false);
    let mut frame = || {
        let before = device.transferred();
        detector.detect(&fullsize::picture(), &fullsize::prompts()).expect("it detects");
        let after = device.transferred();
        (after.to_device - before.to_device, after.to_host - before.to_host, device.allocations())
    };
    let (_, first_back, allocations) = frame();
    let pixels = 4 * 3 * 1008 * 1008;
    for _ in 0..3 {
        assert_eq!(frame(), (pixels, fullsize::BYTES_TO_HOST, allocations));
    }
    const { assert!(fullsize::BYTES_TO_HOST <= 64 * 1024) };
    assert_eq!(first_back, fullsize::BYTES_TO_HOST + fullsize::WORDS_BYTES);
}

#[test]
fn with_masks_only_the_masks_come_back_as_well() {
    let device = FakeDevice::new();
    let mut detector = fullsize::detector(&device, 56, true);
    let mut frame = || {
        let before = device.transferred().to_host;
        let found = detector.detect(&fullsize::picture(), &fullsize::prompts()).expect("it detects");
        (found.items.len() as u64, device.transferred().to_host - before, device.allocations())
    };
    frame();
    let (found, back, allocations) = frame();
    assert!(found > 0, "masks are asked for what is found");
    let side = 4 * 56 / 14;
    assert_eq!(back, fullsize::BYTES_TO_HOST + found * side * side * 4);
    assert_eq!(frame(), (found, back, allocations));
}
