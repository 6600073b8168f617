//! WebGPU: every operator, and the detections of the built-in model.
//!
//! Needs a GPU or a software GPU: `bash tests/fetch-software-gpu.sh FOLDER`, and the environment that it writes.

#![allow(clippy::print_stdout, reason = "the largest differences are interesting if the test passes, too")]

mod operators;

use std::path::Path;
use std::sync::Arc;

use ocelli::engines::Engine;
use ocelli::engines::onnxruntime::{OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine, WebGpuDevice};
use ocelli::engines::webgpu::WebGpu;
use ocelli::export::contract::Target;
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{
    Detector, EngineKind, ErrorKind, Image, ModelSource, Prompts,
    engine::{EngineFactory, EngineOptions},
    stages::TextCacheFile,
};

const WEBGPU: EngineKind = EngineKind::WebGpu { ordinal: 0 };

/// ONNX Runtime with its WebGPU provider.
pub fn builder() -> ocelli::Result<OnnxRuntimeBuilder> {
    let provider = WebGpu::load(None)?.provider(0)?;
    Ok(OnnxRuntimeEngine::builder(&OnnxRuntime::load(None)?).with_provider(provider).with_threads(1))
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh; minutes"]
fn detections_equal_those_of_the_embedded_engine() {
    let image =
        Image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png")).expect("an image");
    let prompts = Prompts::new(["dog", "tree"]).expect("two classes");
    let [expected, found] = [EngineKind::Embedded, WEBGPU].map(|kind| {
        let builder = Detector::builder().with_engine(kind).with_masks(true);
        let detector = builder.with_text_cache(TextCacheFile::None).build();
        let mut detector = detector.unwrap_or_else(|error| panic!("{error}"));
        detector.detect(&image, &prompts).unwrap_or_else(|error| panic!("{error}")).items
    });
    assert_eq!((expected.len(), found.len()), (4, 4));
    let (mut score, mut edge, mut least_iou) = (0.0_f32, 0.0_f32, 1.0_f64);
    for (a, b) in expected.iter().zip(&found) {
        assert_eq!(a.class_id, b.class_id, "{a:?}, {b:?}");
        score = score.max((a.score - b.score).abs());
        let corners = |box_: ocelli::BoundingBox| [box_.x1, box_.y1, box_.x2, box_.y2];
        let edges = corners(a.bbox).into_iter().zip(corners(b.bbox));
        edge = edges.map(|(a, b)| (a - b).abs()).fold(edge, f32::max);
        let masks = a.mask.as_ref().zip(b.mask.as_ref()).expect("masks were requested");
        least_iou = least_iou.min(masks.0.iou(masks.1).expect("masks of one image"));
    }
    println!("score within {score}, edges within {edge} px, masks' IoU at least {least_iou}");
    assert!(score <= 1e-4 && edge <= 0.05 && least_iou >= 0.995, "{score}, {edge}, {least_iou}");
}

/// The built-in model for small images, with standard operators.
fn small_model(folder: &Path) -> ModelSource {
    let (checkpoint, exported) = (folder.join("checkpoint"), folder.join("exported"));
    std::fs::create_dir(&checkpoint).expect("the folder is new");
    ocelli::builtin::write_checkpoint(&checkpoint).expect("it writes");
    let checkpoint = Checkpoint::open(&checkpoint).expect("the built-in model is a checkpoint");
    let options = ExportOptions { target: Target::TensorRt, imgsz: Some(112), ..ExportOptions::default() };
    export(&checkpoint, &options, &exported, |_| Ok(())).expect("it exports");
    ModelSource::Folder(exported)
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn features_stay_on_the_adapter() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = small_model(folder.path());
    let started = builder().expect("the adapter starts");
    let runtime = OnnxRuntime::load(None).expect("`make setup` was run");
    let probe = WebGpu::load(None).and_then(|webgpu| webgpu.provider(0)).expect("the adapter starts");
    runtime.try_provider(&probe).expect("the adapter starts");
    let device = WebGpuDevice::open(&runtime, &probe, "the adapter").expect("the provider has memory");
    let detector = |device: Option<Arc<WebGpuDevice>>| {
        let started = started.clone();
        let factory = EngineFactory::custom("WebGPU", move |graph: &Path| {
            let builder =
                device.iter().fold(started.clone(), |builder, device| builder.with_device(device.clone()));
            Ok(Box::new(builder.build_from_file(graph)?) as Box<dyn Engine>)
        });
        let builder = Detector::builder().with_model(model.clone()).with_engine_factory(factory);
        builder.with_text_cache(TextCacheFile::None).with_confidence(0.02).build().expect("it starts")
    };
    let (mut through_host, mut resident) = (detector(None), detector(Some(device.clone())));
    let image =
        Image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png")).expect("an image");
    let prompts = Prompts::new(["dog", "tree"]).expect("two classes");
    let expected = through_host.detect(&image, &prompts).expect("it detects").items;
    assert!(!expected.is_empty());
    for image_number in 0..3 {
        let before = device.transferred();
        let found = resident.detect(&image, &prompts).expect("it detects").items;
        assert_eq!(found, expected);
        let after = device.transferred();
        let (up, down) = (after.to_device - before.to_device, after.to_host - before.to_host);
        println!("image {image_number}: {up} bytes to the adapter, {down} to the host");
        // What comes back are the boxes and scores of two classes and the image's part of the prompts, and the text features
        // once; what goes up are the pixels and the prompts. `fpn_2` alone has 65,536 bytes.
        let pixels = 3 * 112 * 112 * 4;
        let most = if image_number == 0 { 65_536 } else { 16_384 };
        assert!(down < most, "{down} bytes came back");
        assert!((pixels..pixels + 65_536).contains(&up), "{up} bytes, {pixels} of pixels");
    }
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn models_are_exported_with_standard_operators_and_others_are_refused() {
    let options = EngineOptions { kind: WEBGPU, ..EngineOptions::default() };
    let factory = EngineFactory::start(&options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(factory.target(None), Target::TensorRt);

    let golden = crate::parity::golden::Golden::all().into_iter().next().expect("there are goldens");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("model");
    let options = ExportOptions { target: Target::OnnxRuntime, ..ExportOptions::default() };
    let checkpoint = golden.open_checkpoint().expect("the golden has a checkpoint");
    export(&checkpoint, &options, &model, |_| Ok(())).expect("it can be exported");
    let detector = Detector::builder()
        .with_model(ModelSource::Folder(model))
        .with_engine_factory(factory)
        .with_text_cache(TextCacheFile::None);
    let image = Image::from_rgb8(8, 8, vec![128; 8 * 8 * 3]).expect("an image");
    let error = detector
        .build()
        .and_then(|mut detector| detector.detect(&image, &Prompts::new(["dog"])?).map(drop))
        .expect_err("its fused operators are computed wrongly");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("computes com.microsoft.MultiHeadAttention wrongly"), "{error}");
    assert!(error.to_string().contains("target tensorrt"), "{error}");
}
