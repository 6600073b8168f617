//! The detector with engines on an NVIDIA GPU.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{detector, model, prompts, scenes, without_times};
use ocelli::engines::Engine;
use ocelli::engines::cuda::CudaDevice;
use ocelli::engines::onnxruntime::{CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeEngine};
use ocelli::export::contract::file;
use ocelli::{
    Detection, Detector, Pipeline, Prompts, StageTimes,
    engine::EngineFactory,
    stages::{DecodeRequest, EmbeddedPrompts, Stages},
};

#[path = "fullsize.rs"]
mod fullsize;

/// The GPU, for one test at a time, because the tests count its copies and allocations.
fn gpu() -> (Arc<CudaDevice>, MutexGuard<'static, ()>) {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    (CudaDevice::open(0).expect("there is a GPU"), guard)
}

/// ONNX Runtime with CUDA. Tensors of the graphs in `on_device` stay on the GPU, those of others are copied to the host.
fn engines(device: &Arc<CudaDevice>, on_device: &'static [&'static str]) -> EngineFactory {
    let runtime = OnnxRuntime::load(None).expect("`make setup` was run");
    let device = device.clone();
    EngineFactory::custom("CUDA", move |graph: &Path| {
        let provider = ExecutionProvider::Cuda(CudaOptions::default());
        let builder = OnnxRuntimeEngine::builder(&runtime).with_provider(provider);
        let stays = on_device.iter().any(|name| graph.ends_with(name));
        let builder = if stays { builder.with_device(device.clone()) } else { builder };
        Ok(Box::new(builder.build_from_file(graph)?) as Box<dyn Engine>)
    })
}

const ALL: &[&str] =
    &[file::TEXT_ENCODER, file::BACKBONE, file::EXEMPLAR_ENCODER, file::ENCODER_DECODER, file::MASK_HEAD];

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn detections_do_not_depend_on_where_tensors_are() {
    let (_folder, model) = model();
    let scenes = scenes(3);
    let run = |detector: &mut Detector| {
        let mut found = Vec::new();
        // Twice, so that buffers kept between images are reused.
        for scene in scenes.iter().chain(&scenes) {
            found.push(without_times(detector.detect(&scene.image, &prompts(scene)).expect("it detects")));
        }
        let kept = detector.exemplar_features(&scenes[0].image, &prompts(&scenes[0])).expect("it encodes");
        found.push(without_times(detector.detect_embedded(&scenes[1].image, &kept).expect("it detects")));
        found.push(without_times(detector.detect_embedded(&scenes[2].image, &kept).expect("it detects")));
        found
    };
    let (device, _guard) = gpu();
    let expected = run(&mut detector(&model, engines(&device, &[]), 2));
    // Examples from another image may detect nothing.
    assert!(expected[..6].iter().any(|(items, semantic)| items.len() > 2 && !semantic.is_empty()));
    let cases: [(&str, &[&str], usize); 8] = [
        ("everything", ALL, 2),
        ("everything, one class at a time", ALL, 1),
        ("everything at once", ALL, 100),
        ("only the backbone", &[file::BACKBONE], 2),
        ("all but the backbone", &[file::EXEMPLAR_ENCODER, file::ENCODER_DECODER, file::MASK_HEAD], 2),
        ("backbone and encoder-decoder", &[file::BACKBONE, file::ENCODER_DECODER], 2),
        ("all but the encoder-decoder", &[file::BACKBONE, file::EXEMPLAR_ENCODER, file::MASK_HEAD], 2),
        ("all but the mask head", &[file::BACKBONE, file::EXEMPLAR_ENCODER, file::ENCODER_DECODER], 2),
    ];
    let mut wrong = Vec::new();
    for (name, there, chunk) in cases {
        let before = device.allocations();
        let found = run(&mut detector(&model, engines(&device, there), chunk));
        let allocated = device.allocations() - before;
        // Sums over a batch of another size may be rounded differently.
        let expected =
            if chunk == 2 { &expected } else { &run(&mut detector(&model, engines(&device, &[]), chunk)) };
        for (image, (found, expected)) in found.iter().zip(expected).enumerate() {
            if found != expected {
                wrong.push(format!("{name}, image {image}: {:?}\n  expected {:?}", found.0, expected.0));
            }
        }
        if allocated == 0 {
            wrong.push(format!("{name}: no tensor was on the device"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn prompts_are_uploaded_once() {
    let (_folder, model) = model();
    let scene = &scenes(1)[0];
    let prompts = Prompts::new(["dog", "bicycle", "banana", "airplane", "cat", scene.objects[0].label])
        .expect("they are not empty");
    let (device, _guard) = gpu();
    let decode = |factory: EngineFactory| {
        let mut detector = detector(&model, factory, 2);
        let features = detector.encode(&scene.image).expect("it encodes");
        let Stages { mut text, mut decoder, .. } = detector.into_stages();
        let embedded: EmbeddedPrompts = text.embed(&prompts).expect("it embeds");
        let mut times = StageTimes::default();
        let mut outcomes = Vec::new();
        for classes in [&[0, 1, 5][..], &[1, 2], &[0, 1, 5], &[2, 3, 4, 5], &[1, 2], &[0, 1, 5]] {
            let before = device.transferred().to_device;
            let mut found = Vec::new();
            let request = DecodeRequest { classes: Some(classes), ..(&embedded).into() };
            decoder.decode_into(&features, request, &mut times, &mut found).expect("it decodes");
            outcomes.push((found, device.transferred().to_device - before));
        }
        outcomes
    };
    let expected = decode(engines(&device, &[]));
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
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn features_on_a_device_can_be_serialised() {
    let (_folder, model) = model();
    let scene = &scenes(1)[0];
    let (device, _guard) = gpu();
    let bytes = |factory: EngineFactory| {
        let mut features = detector(&model, factory, 2).encode(&scene.image).expect("it encodes");
        let mut bytes = Vec::new();
        features.write_to(&mut bytes).expect("writing to memory does not fail");
        // Reading into the same buffers works in host memory and on the device.
        features.read_from(&mut &bytes[..]).expect("it was written");
        let mut again = Vec::new();
        features.write_to(&mut again).expect("writing to memory does not fail");
        assert!(bytes == again);
        bytes
    };
    assert!(bytes(engines(&device, ALL)) == bytes(engines(&device, &[])));
}

/// Frames overlap, and buffers are reused.
#[test]
#[ignore = "needs an NVIDIA GPU and NVRTC"]
fn a_running_pipeline_does_not_allocate() {
    let (device, _guard) = gpu();
    let (allocations, before) = (device.allocations(), device.transferred().to_host);
    let frames = 300;
    let detector = fullsize::detector(&device, 28, false);
    let summary = Pipeline::builder(detector, fullsize::prompts())
        .run(fullsize::Grey::new(frames), &mut [])
        .expect("it runs");
    assert_eq!(summary.stats.frames_out, frames);
    // The features of the frames in the queues and stages, two tensors each, and the buffers of the engines, of the prompts
    // and of the preprocessing.
    let allocated = device.allocations() - allocations;
    assert!(allocated <= 2 * 8 + 32, "{allocated}");
    let to_host = device.transferred().to_host - before;
    assert_eq!(to_host, frames * fullsize::BYTES_TO_HOST + fullsize::TEXT_BYTES);
}

/// Full-size shapes without arithmetic: 4 classes at 1008 px.
#[test]
#[ignore = "needs an NVIDIA GPU and NVRTC"]
fn at_full_size_only_the_raw_detections_are_downloaded() {
    let (device, _guard) = gpu();
    let mut detector = fullsize::detector(&device, 1008, false);
    let mut frame = || {
        let before = device.transferred();
        detector.detect(&fullsize::image(), &fullsize::prompts()).expect("it detects");
        let after = device.transferred();
        (after.to_device - before.to_device, after.to_host - before.to_host, device.allocations())
    };
    let (_, first_downloaded, allocations) = frame();
    let image = 64 * 48 * 3;
    for _ in 0..3 {
        assert_eq!(frame(), (image, fullsize::BYTES_TO_HOST, allocations));
    }
    const { assert!(fullsize::BYTES_TO_HOST <= 64 * 1024) };
    assert_eq!(first_downloaded, fullsize::BYTES_TO_HOST + fullsize::TEXT_BYTES);
}

#[test]
#[ignore = "needs an NVIDIA GPU and NVRTC"]
fn with_masks_only_the_masks_are_downloaded_as_well() {
    let (device, _guard) = gpu();
    let mut detector = fullsize::detector(&device, 56, true);
    let mut frame = || {
        let before = device.transferred().to_host;
        let found = detector.detect(&fullsize::image(), &fullsize::prompts()).expect("it detects");
        (found.items.len() as u64, device.transferred().to_host - before, device.allocations())
    };
    frame();
    let (found, back, allocations) = frame();
    assert!(found > 0, "masks are computed for detections");
    let side = 4 * 56 / 14;
    assert_eq!(back, fullsize::BYTES_TO_HOST + found * side * side * 4);
    assert_eq!(frame(), (found, back, allocations));
}
