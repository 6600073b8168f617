//! The preprocessing kernel on an NVIDIA GPU, and its compilation for every supported GPU without one.
//!
//! The comparison without a GPU is a unit test of the kernel.

mod cases;

use std::sync::Arc;
use std::time::Duration;

use self::cases::{Case, Random, full_size, image, random_cases, table};
use ocelli::engines::Tensor;
use ocelli::engines::cuda::{CudaDevice, Nvrtc};
use ocelli::pipeline::FrameOutcome;
use ocelli::preprocess::{DevicePreprocessor, PreprocessConfig, Preprocessor};
use ocelli::sink::{VideoOptions, create_video};
use ocelli::source::{InputOptions, open_video, open_video_with};
use ocelli::{Frame, FrameView, Image, PixelFormat, Source};

/// Runs the cases on the GPU and on the CPU. The result names those that differ.
fn compare(device: &Arc<CudaDevice>, cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    let (mut pixels, mut received, mut expected) = (Tensor::empty(), Tensor::empty(), Vec::new());
    let mut known: Option<(PreprocessConfig, Preprocessor, DevicePreprocessor)> = None;
    for case in cases {
        let config = PreprocessConfig {
            mean: [0.1, 0.5, 0.9],
            std: [0.3, 0.5, 0.7],
            ..PreprocessConfig::new(case.side)
        };
        if known.as_ref().is_none_or(|(of, ..)| *of != config) {
            let cpu = Preprocessor::new(config).expect("the configuration is valid");
            let gpu = DevicePreprocessor::new(device, config).expect("the kernel compiles");
            known = Some((config, cpu, gpu));
        }
        let (_, cpu, gpu) = known.as_mut().expect("made above");
        let (data, stride) = image(case);
        let (width, height, format) = (case.width, case.height, case.format);
        let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
        expected.resize(cpu.output_len(), 0.0);
        // The kernel converts NV12 before the resize.
        let rgb = frame.to_image().expect("the image is complete");
        let of_cpu = if format == PixelFormat::Nv12 { rgb.view() } else { frame };
        cpu.run_into(of_cpu, &mut expected).expect("the image is complete");
        gpu.run_into(frame, &mut pixels).expect("the image is complete");
        assert_eq!(pixels.shape(), [1, 3, case.side, case.side]);
        pixels.copy_to_host_into(&mut received).expect("it is copied");
        let values = received.as_f32().expect("f32");
        let differing = values.iter().zip(&expected).filter(|(a, b)| a != b).count();
        if differing > 0 {
            failures.push(format!("{case:?}: {differing} values differ"));
        }
    }
    failures
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

fn gpu() -> Arc<CudaDevice> {
    CudaDevice::open(0).expect("there is a GPU")
}

#[test]
#[ignore = "needs NVRTC (OCELLI_NVRTC)"]
fn the_kernels_compile_for_every_gpu() {
    let nvrtc = Nvrtc::open().expect("OCELLI_NVRTC names it, or it is installed");
    let known = nvrtc.architectures().expect("the compiler lists them");
    let mut failures = Vec::new();
    for compute_capability in
        [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]
    {
        assert!(known.contains(&(compute_capability.0 * 10 + compute_capability.1)), "{known:?}");
        let source = include_str!("../images/src/preprocess/kernel/preprocess.cu");
        match nvrtc.compile("preprocess", source, compute_capability) {
            Ok(compiled) if compiled.cubin.starts_with(b"\x7fELF") && compiled.log.is_empty() => {}
            other => failures.push(format!("{compute_capability:?}: {other:?}")),
        }
    }
    report(&failures);
}

#[test]
#[ignore = "needs NVRTC (OCELLI_NVRTC)"]
fn a_compiler_error_has_the_compilers_message() {
    let nvrtc = Nvrtc::open().expect("OCELLI_NVRTC names it, or it is installed");
    let cases = [
        ("extern \"C\" __global__ void k() { nonsense; }", (9, 0), "kernels k: k.cu(1): error: "),
        ("", (3, 5), "does not support GPUs of compute capability 3.5"),
        ("\0", (9, 0), "kernels k: the source contains a null character"),
    ];
    let mut failures = Vec::new();
    for (source, compute_capability, expected) in cases {
        match nvrtc.compile("k", source, compute_capability) {
            Err(error) if error.to_string().contains(expected) => {}
            other => failures.push(format!("{source:?}: expected {expected:?}, got {other:?}")),
        }
    }
    report(&failures);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_preprocessing_is_bit_identical() {
    let (device, mut cases) = (gpu(), table());
    cases.extend(random_cases(40));
    cases.extend(full_size());
    report(&compare(&device, &cases));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn only_the_image_is_uploaded() {
    let device = gpu();
    let mut preprocessor =
        DevicePreprocessor::new(&device, PreprocessConfig::new(28)).expect("the kernel compiles");
    let (mut pixels, data) = (Tensor::empty(), vec![99; 64 * 72]);
    let (width, height, stride, format) = (64, 48, 64, PixelFormat::Nv12);
    let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
    preprocessor.run_into(frame, &mut pixels).expect("the image is complete");
    let (before, allocations) = (device.transferred(), device.allocations());
    preprocessor.run_into(frame, &mut pixels).expect("the image is complete");
    let after = device.transferred();
    assert_eq!((after.to_device - before.to_device, after.to_host - before.to_host), (64 * 72, 0));
    assert_eq!(device.allocations(), allocations, "the buffers are reused");
    let error = preprocessor.run_into(FrameView { data: &data[1..], ..frame }, &mut pixels);
    assert!(error.expect_err("a byte is missing").to_string().contains("too few"));
}

/// Each result is read only after the next images have been enqueued.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn consecutive_images_do_not_interfere() {
    let config = PreprocessConfig::new(1008);
    let mut on_gpu = DevicePreprocessor::new(&gpu(), config).expect("the kernel compiles");
    let mut cpu = Preprocessor::new(config).expect("the configuration is valid");
    let (width, height, stride, format) = (1920, 1080, 1920 * 3, PixelFormat::Bgr8);
    let images: Vec<Vec<u8>> = (0..24u32)
        .map(|seed| {
            let mut random = Random(seed + 1);
            (0..stride * 1080).map(|_| random.next() as u8).collect()
        })
        .collect();
    let frame = |data| FrameView { data, width, height, stride, format, timestamp: Duration::ZERO };
    let mut tensors = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
    let (mut received, mut expected) = (Tensor::empty(), vec![0.0; cpu.output_len()]);
    let mut failures = Vec::new();
    for (number, data) in images.iter().enumerate() {
        on_gpu.run_into(frame(data), &mut tensors[number % 3]).expect("the image is complete");
        if let Some(earlier) = number.checked_sub(2) {
            tensors[earlier % 3].copy_to_host_into(&mut received).expect("it is copied");
            cpu.run_into(frame(&images[earlier]), &mut expected).expect("the image is complete");
            if received.as_f32().expect("f32") != expected {
                failures.push(format!("image {earlier}"));
            }
        }
    }
    report(&failures);
}

/// A video of waves of colour that move.
fn waves(path: &std::path::Path, (width, height): (u32, u32), frames: u64) {
    let mut video = create_video(path, &VideoOptions::new(25.0)).expect("FFmpeg has an encoder");
    for index in 0..frames {
        let wave =
            |at: u32, period: f32| (((at as f32 + 3.0 * index as f32) / period).sin() * 90.0 + 128.0) as u8;
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let rgb = pixels.flat_map(|(x, y)| [wave(x, 40.0), wave(y, 31.0), wave(x + y, 57.0)]).collect();
        let mut outcome = FrameOutcome::default();
        (outcome.index, outcome.time) = (index, Duration::from_millis(40 * index));
        outcome.annotated = Some(Image::from_rgb8(width, height, rgb).expect("three bytes a pixel"));
        video.write(&outcome).expect("there is room");
    }
    video.finish().expect("it is complete");
}

/// A video that NVIDIA's hardware decodes, beside the same one decoded on the CPU: swscale interpolates chroma, and the kernel does
/// not. Nothing is copied to the host, and of the frames no more are kept than the decoder has surfaces for.
#[test]
#[ignore = "needs an NVIDIA GPU, and the video library with an FFmpeg that decodes on it"]
fn decoded_frames_stay_on_the_gpu() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("waves.mp4");
    waves(&path, (640, 352), 12);
    let device = gpu();
    let mut config = PreprocessConfig::new(280);
    (config.mean, config.std) = ([0.0; 3], [1.0 / 255.0; 3]);
    let mut on_gpu = DevicePreprocessor::new(&device, config).expect("the kernel compiles");
    let mut cpu = Preprocessor::new(config).expect("the configuration is valid");
    let (mut pixels, mut received, mut expected) =
        (Tensor::empty(), Tensor::empty(), vec![0.0; cpu.output_len()]);
    let options = InputOptions { hwaccel: Some("cuda".into()), ..InputOptions::default() };
    let mut decoder = open_video_with(&path, &options).expect("NVIDIA's hardware decodes H.264");
    let mut reference = open_video(&path).expect("the CPU does, too");
    let (mut in_memory, mut kept, mut before) = (Frame::default(), Vec::new(), None);
    for index in 0..12 {
        let mut frame = Frame::default();
        frame.gpu = Some(0);
        assert!(decoder.read_into(&mut frame).expect("it decodes"), "frame {index} of the GPU");
        assert!(reference.read_into(&mut in_memory).expect("it decodes"), "frame {index} of the CPU");
        cpu.run_into(&in_memory.image, &mut expected).expect("the image is complete");
        let Some(planes) = frame.on_gpu else {
            assert!(kept.len() == 6, "frame {index} was copied to the host, of {} that are kept", kept.len());
            assert_eq!((frame.image.width(), frame.image.height()), (640, 352));
            kept.clear();
            continue;
        };
        assert_eq!(frame.image.width(), 1, "no pixel was copied to the host");
        on_gpu.run_device_into(&planes, &mut pixels).expect("the kernel runs");
        // The first image has also uploaded the weights.
        if let Some(before) = before {
            assert_eq!(device.transferred(), before, "nothing was copied for frame {index}");
        }
        pixels.copy_to_host_into(&mut received).expect("it is copied");
        before = Some(device.transferred());
        let found = received.as_f32().expect("f32");
        let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let mean = differences.clone().sum::<f32>() / expected.len() as f32;
        let worst = differences.fold(0.0, f32::max);
        assert!(mean < 2.0 && worst < 48.0, "frame {index}: {mean} levels on average, {worst} at most");
        let mut copied = Image::default();
        planes.to_image_into(&mut copied).expect("it is copied to the host");
        let both = copied.as_rgb8().iter().zip(in_memory.image.as_rgb8());
        let sum = both.map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        assert!(sum < 2 * 3 * 640 * 352, "frame {index} on the host: {sum} levels from that of the CPU");
        kept.push(planes);
    }
    drop((decoder, reference));
    // A frame outlives its decoder.
    on_gpu
        .run_device_into(kept.last().expect("the last ones are kept"), &mut pixels)
        .expect("the kernel runs");
    pixels.wait().expect("it has run");
}
