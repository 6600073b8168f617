//! Runs `bench precision`: lines, bisection, errors.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn bench(arguments: &[&str]) -> Outcome<Output> {
    let cache = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    Ok(command
        .arg("precision")
        .args(arguments)
        .args(["--threads", "1"])
        .env("OCELLI_CACHE", cache.path())
        .output()?)
}

fn lines(output: &Output) -> Outcome<Vec<Value>> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = std::str::from_utf8(&output.stdout)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/parity").join(name)
}

/// Copies a checkpoint stored as f32 with some tensors multiplied.
fn disturbed(name: &str, factors: &[(&str, f32)], folder: &Path) -> Outcome<()> {
    let mut changed = 0;
    for entry in golden(name).read_dir()? {
        let path = entry?.path();
        let file = path.file_name().ok_or("an entry of a folder has a name")?;
        let target = folder.join(file);
        std::fs::copy(&path, &target)?;
        if !file.to_string_lossy().starts_with("model") || path.extension().is_none_or(|e| e != "safetensors")
        {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let mut tensors = Vec::new();
        for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
            let mut data = view.data().to_vec();
            if let Some((_, factor)) = factors.iter().find(|(part, _)| name.ends_with(part)) {
                assert_eq!(view.dtype(), Dtype::F32, "{name}");
                for value in data.as_chunks_mut::<4>().0 {
                    *value = (f32::from_le_bytes(*value) * factor).to_le_bytes();
                }
                changed += 1;
            }
            tensors.push((name, view.dtype(), view.shape().to_vec(), data));
        }
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            Ok((name.clone(), TensorView::new(*dtype, shape.clone(), data)?))
        });
        let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
        std::fs::write(&target, safetensors::serialize(views, None)?)?;
    }
    assert_eq!(changed, factors.len(), "tensors of {factors:?}");
    Ok(())
}

/// The third block's feed-forward network computes the same, with intermediate values beyond the range of fp16.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn bisection_names_the_block_that_overflows() -> Outcome<()> {
    const BLOCK: &str = "vision_encoder.backbone.layers.2.mlp";
    const FACTOR: f32 = 32768.0;
    let folder = tempfile::tempdir()?;
    let [weight, bias, back] = ["fc1.weight", "fc1.bias", "fc2.weight"].map(|part| format!("{BLOCK}.{part}"));
    let factors = [(weight.as_str(), FACTOR), (bias.as_str(), FACTOR), (back.as_str(), 1.0 / FACTOR)];
    disturbed("released", &factors, folder.path())?;
    let model = folder.path().to_str().ok_or("a path that is text")?;
    let run = |more: &[&str]| -> Outcome<(Value, String)> {
        let first = ["--bisect", "--model", model, "--scenes", "1", "--compared", "1"];
        let output = bench(&[&first, more].concat())?;
        let mut lines = lines(&output)?;
        Ok((lines.remove(0), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (line, errors) = run(&[])?;
    assert_eq!(line["keep_fp32"], serde_json::json!(["vit.2"]), "{errors}");
    assert!(
        errors.contains("ocelli export --precision fp16 --mixed-precision none --keep-fp32 vit.2"),
        "{errors}"
    );
    // Alone in half precision, each of the others is harmless.
    let output = bench(&["--per-block", "--model", model, "--scenes", "1", "--compared", "1"])?;
    let cosine = |line: &Value| line["least_cosine"]["cosine"].as_f64().unwrap_or(-1.0);
    let (bad, good): (Vec<_>, Vec<_>) = lines(&output)?.into_iter().partition(|line| cosine(line) < 0.999);
    assert!(bad.len() == 1 && bad[0]["block"] == "vit.2" && bad[0]["emulated"] == true, "{bad:?}");
    assert!(good.len() > 10 && good.iter().any(|line| line["block"] == "decoder.0"), "{good:?}");
    // No setting helps: a single product is too large.
    let (line, errors) = run(&["--mixed-precision", "all", "--target", "tensorrt"])?;
    assert_eq!(line["keep_fp32"], serde_json::json!(["vit.2"]), "{errors}");
    // bfloat16 has the range of fp32, but less precision.
    let (line, errors) = run(&["--precision", "bf16", "--least-cosine", "0.9"])?;
    assert_eq!(line["keep_fp32"], serde_json::json!([]), "{errors}");
    Ok(())
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_format_has_a_line() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().to_str().ok_or("a path that is text")?;
    let few = ["--scenes", "2", "--compared", "1", "--class-count", "2", "--runs", "1", "--output", output];
    let strategies = ["fp32", "fp16", "fp16:attention", "bf16", "int8"];
    let output = bench(&[&few[..], &["--strategies"], &strategies].concat())?;
    let lines = lines(&output)?;
    let names: Vec<&str> = lines.iter().filter_map(|line| line["strategy"].as_str()).collect();
    assert_eq!(names, ["fp32", "fp16:none", "fp16:attention", "bf16:none", "int8"]);
    let mut wrong = Vec::new();
    for line in &lines {
        let number = |key: &str| line[key].as_f64();
        let (ap, cosine) = (number("ap"), line["least_cosine"]["cosine"].as_f64());
        let least = if line["strategy"] == "bf16:none" { 0.99 } else { 0.999 };
        if ap.is_none_or(|ap| ap < 0.3) || cosine.is_none_or(|cosine| cosine < least) {
            wrong.push(format!("AP {ap:?}, cosine {cosine:?}: {line}"));
        }
        // Image, image prompt, text, exemplars, five of the decoder, two of masks.
        let outputs = line["cosines"].as_object().map(serde_json::Map::len);
        let timed = line["total_ms"]["p50"].as_f64().is_some_and(|ms| ms > 0.0);
        let is_half = line["precision"] == "fp16" || line["precision"] == "bf16";
        if outputs != Some(13) || timed == (line["precision"] == "bf16") || line["emulated"] != is_half {
            wrong.push(format!("{outputs:?} outputs: {line}"));
        }
    }
    let exact = &lines[0]["least_cosine"]["cosine"];
    assert!(exact.as_f64().is_some_and(|cosine| cosine > 0.999_999_9), "fp32 differs from itself: {exact}");
    let bytes = |line: usize| lines[line]["bytes"].as_u64().unwrap_or(0);
    assert!(bytes(1) < bytes(2) && bytes(2) * 10 < bytes(0) * 6, "{} {} {}", bytes(0), bytes(1), bytes(2));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(names.iter().all(|name| table.contains(name)), "{table}");
    let kept = std::fs::read_to_string(folder.path().join("precision.jsonl"))?;
    assert_eq!(kept.as_bytes(), output.stdout);
    Ok(())
}

/// A block in 8 bits changes what its own graph computes, and nothing else.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn blocks_in_8_bits_are_compared_one_by_one() -> Outcome<()> {
    let few = ["--scenes", "2", "--compared", "1", "--class-count", "2", "--calibrated-on", "2"];
    for (precision, target) in
        [("int8", "onnxruntime"), ("int8", "tensorrt"), ("int8-static", "tensorrt"), ("fp8", "tensorrt")]
    {
        let output =
            bench(&[&few[..], &["--per-block", "--precision", precision, "--target", target]].concat())?;
        let lines = lines(&output)?;
        let blocks: Vec<_> = lines.iter().filter_map(|line| line["block"].as_str()).collect();
        assert!(
            blocks.contains(&"vit.0") && blocks.contains(&"fusion.0"),
            "{precision}, {target}: {blocks:?}"
        );
        for line in &lines {
            let of = |graph: &str| -> Vec<f64> {
                let cosines = line["cosines"].as_object().into_iter().flatten();
                cosines
                    .filter(|(name, _)| name.starts_with(graph))
                    .filter_map(|(_, it)| it.as_f64())
                    .collect()
            };
            let (image, rest) = (of("backbone"), of("encoder_decoder"));
            assert!(!image.is_empty() && !rest.is_empty(), "{precision}, {target}: {line}");
            let changes = |cosines: &[f64]| cosines.iter().any(|cosine| *cosine < 1.0 - 1e-9);
            let block = line["block"].as_str().unwrap_or_default();
            let least = image.iter().chain(&rest).copied().fold(1.0, f64::min);
            let expected = (block.starts_with("vit"), block.starts_with("fusion"));
            assert_eq!((changes(&image), changes(&rest)), expected, "{precision}, {target}: {line}");
            assert!(least > 0.99, "{precision}, {target}: {line}");
        }
    }
    Ok(())
}

#[test]
fn invalid_arguments_are_errors() -> Outcome<()> {
    let exported = tempfile::tempdir()?;
    std::fs::write(exported.path().join("model.json"), "{}")?;
    let exported = exported.path().to_str().ok_or("a path that is text")?;
    let cases: [(&[&str], i32, &str); 11] = [
        (&["--precision", "fp16"], 2, "--precision goes with --bisect"),
        (&["--trt", "x.engine"], 2, "--trt"),
        (&["--bisect", "--precision", "fp32"], 2, "--precision fp32: expected fp16"),
        (&["--per-block", "--precision", "auto"], 2, "--precision auto: expected fp16"),
        (&["--scenes", "0"], 2, "--scenes is 0"),
        (&["--strategies", "fp16:some"], 2, "fp16:some"),
        (&["--outliers", "queries:1"], 2, "expected norms, keys or values"),
        (&["--least-cosine", "0.9"], 2, "--bisect"),
        (&["--model", exported], 2, "it is an exported model"),
        (&["--model", "nowhere"], 1, "nowhere"),
        (&["--engine", "nonsense"], 2, "engine nonsense"),
    ];
    let mut wrong = Vec::new();
    for (arguments, code, words) in cases {
        let output = bench(arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(code) || !errors.contains(words) || !output.stdout.is_empty() {
            wrong.push(format!("{arguments:?}: {:?}, {errors}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
