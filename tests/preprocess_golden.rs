//! Decoded and preprocessed images against PIL, torchvision and `transformers`. The files and the script that generates
//! them are in `tests/golden/preprocess`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ocelli::FrameView;
use ocelli::image::Image;
use ocelli::preprocess::{PreprocessConfig, Preprocessor};
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/preprocess")
}

fn expected_bytes() -> Vec<u8> {
    std::fs::read(folder().join("expected.safetensors")).expect("the expected values are in the repository")
}

/// Tensors whose names start with `prefix`, by the rest of the name.
fn tensors<'a>(bytes: &'a [u8], prefix: &str) -> Vec<(String, safetensors::tensor::TensorView<'a>)> {
    let file = SafeTensors::deserialize(bytes).expect("the script writes safetensors");
    let all = file.tensors().into_iter();
    let mut of_prefix: Vec<_> =
        all.filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor))).collect();
    of_prefix.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!of_prefix.is_empty(), "no tensor {prefix}…");
    of_prefix
}

fn as_f32(tensor: &safetensors::tensor::TensorView<'_>) -> Vec<f32> {
    assert_eq!(tensor.dtype(), Dtype::F32);
    tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The script's `pattern`: [height, width, rgb].
fn pattern(name: &str, width: u32, height: u32) -> Vec<u8> {
    let value = |x: u32, y: u32, c: u32| match name {
        "ramp" => (x * 7 + y * 13 + c * 29) as u8,
        "noise" => {
            let v = x.wrapping_mul(73_856_093) ^ y.wrapping_mul(19_349_663) ^ c.wrapping_mul(83_492_791);
            ((v ^ (v >> 13)).wrapping_mul(0x5BD1_E995) >> 24) as u8
        }
        other => panic!("unknown pattern {other}"),
    };
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..height {
        for x in 0..width {
            pixels.extend([value(x, y, 0), value(x, y, 1), value(x, y, 2)]);
        }
    }
    pixels
}

/// A case's pattern, resized and normalised so that values are levels, 0..255.
fn levels(case: &str) -> Vec<f32> {
    let mut parts = case.split('-');
    let (Some(name), Some(size), Some(side), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        panic!("case {case} is not PATTERN-WIDTHxHEIGHT-SIDE");
    };
    let (width, height) = size.split_once('x').expect("a size has an x");
    let number = |text: &str| text.parse::<u32>().expect("sizes are numbers");
    let (width, height) = (number(width), number(height));
    let pixels = pattern(name, width, height);
    let config = PreprocessConfig {
        mean: [0.0; 3],
        std: [1.0 / 255.0; 3],
        ..PreprocessConfig::new(number(side) as usize)
    };
    let mut preprocessor = Preprocessor::new(config).expect("the configuration is valid");
    let mut out = vec![f32::NAN; preprocessor.output_len()];
    let view = FrameView::rgb8(width, height, &pixels);
    preprocessor.run_into(view, &mut out).expect("the output has the length");
    out
}

/// Infinite if a value is NaN.
fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.map(|d| if d.is_nan() { f32::INFINITY } else { d }).fold(0.0, f32::max)
}

#[test]
fn images_decode_as_in_pil() {
    let bytes = expected_bytes();
    let mut failures = Vec::new();
    for (name, tensor) in tensors(&bytes, "decoded/") {
        let image = match Image::open(folder().join("images").join(&name)) {
            Ok(image) => image,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let size = [image.height() as usize, image.width() as usize, 3];
        if tensor.shape() != size {
            failures.push(format!("{name}: expected {:?}, got {size:?}", tensor.shape()));
            continue;
        }
        let differences = image.as_rgb8().iter().zip(tensor.data()).map(|(a, b)| a.abs_diff(*b));
        let largest = differences.max().expect("an image has pixels");
        // JPEG decoders may round differently; everything else is exact.
        let allowed = if name.ends_with(".jpg") { JPEG_LEVELS } else { 0 };
        if largest > allowed {
            failures.push(format!("{name}: differs by {largest} levels, expected at most {allowed}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const JPEG_LEVELS: u8 = 3;

#[test]
fn preprocessing_equals_the_reference_processor() {
    let bytes = expected_bytes();
    let mut preprocessor = Preprocessor::new(PreprocessConfig::new(28)).expect("the configuration is valid");
    let mut out = vec![f32::NAN; preprocessor.output_len()];
    let mut failures = Vec::new();
    // One preprocessor for all, so that stale contents of its buffers would be noticed.
    for (name, tensor) in tensors(&bytes, "processor/") {
        let image = Image::open(folder().join("images").join(&name)).expect("the image can be read");
        preprocessor.run_into(&image, &mut out).expect("the output has the length");
        let largest = largest_difference(&out, &as_f32(&tensor));
        let allowed = if name.ends_with(".jpg") { f32::from(JPEG_LEVELS) * 2.001 / 255.0 } else { 0.0 };
        if largest > allowed {
            failures.push(format!("{name}: differs by {largest}, expected at most {allowed}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_size_equals_torchvision_in_8_bits() {
    let bytes = expected_bytes();
    let mut failures = Vec::new();
    for (case, tensor) in tensors(&bytes, "u8/") {
        let expected: Vec<f32> = tensor.data().iter().map(|&level| f32::from(level)).collect();
        let ours: Vec<f32> = levels(&case).iter().map(|level| level.round()).collect();
        let differing = ours.iter().zip(&expected).filter(|(a, b)| a != b).count();
        let largest = largest_difference(&ours, &expected);
        // At 178:1 some 16-bit weights of the two libraries differ by one.
        let allowed = if case.contains("5000") { 5 } else { 0 };
        if differing > allowed || largest > 1.0 {
            failures.push(format!("{case}: {differing} of {} differ, by up to {largest}", ours.len()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_size_is_within_a_level_of_torchvision_in_float() {
    let bytes = expected_bytes();
    let mut failures = Vec::new();
    for (case, tensor) in tensors(&bytes, "float/") {
        let exact = as_f32(&tensor);
        let rounded: Vec<f32> = exact.iter().map(|level| level.round()).collect();
        // Each of two roundings adds up to half a level, and the weights are rounded as well.
        for (expected, allowed) in [(&rounded, 1.0001), (&exact, 1.02)] {
            let largest = largest_difference(&levels(&case), expected);
            if largest > allowed {
                failures.push(format!("{case}: {largest} levels, expected at most {allowed}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn large_outputs_have_the_expected_hash() {
    let bytes = expected_bytes();
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("the script writes safetensors");
    let hashes: HashMap<String, String> = header.metadata().clone().expect("the script writes hashes");
    let mut failures = Vec::new();
    let mut cases = 0;
    for (case, expected) in hashes.iter().filter_map(|(name, hash)| Some((name.strip_prefix("u8/")?, hash))) {
        let ours: Vec<u8> = levels(case).iter().map(|level| level.round() as u8).collect();
        let hash: String = Sha256::digest(&ours).iter().map(|byte| format!("{byte:02x}")).collect();
        if hash != *expected {
            failures.push(format!("{case}: expected {expected}, got {hash}"));
        }
        cases += 1;
    }
    assert!(cases >= 4, "only {cases} cases");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
