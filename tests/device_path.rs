//! Engines with a device: what stays there, what crosses, and that the detections are the same.
//!
//! The device is a fake one, the host's memory behind another door; the graphs of the built-in model are computed by
//! ONNX Runtime all the same. Needs ONNX Runtime where programs find it; `make setup` puts it there.

#[path = "device_path/fullsize.rs"]
mod fullsize;

use std::path::Path;
use std::sync::Arc;

use ocelli::engines::fake::FakeDevice;
use ocelli::engines::onnxruntime::{LibrarySearch, OnnxRuntime, OnnxRuntimeEngine};
use ocelli::engines::{Device, Engine};
use ocelli::export::contract::file;
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::scenes::{Scene, SceneGenerator, SceneOptions};
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
        Prompt::phrase("dog"),
        Prompt::phrase(first.label),
        Prompt::phrase(second.label),
        Prompt::visual("shown").with_exemplar(first.bbox, true),
        Prompt::phrase("banana"),
        Prompt::phrase(second.label).with_exemplar(second.bbox, true).with_exemplar(first.bbox, false),
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
