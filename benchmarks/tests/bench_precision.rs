//! Runs `bench precision`: lines, bisection, errors.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::error::Error;
use std::process::{Command, Output};

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

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_format_has_a_line() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().to_str().ok_or("a path that is text")?;
    let few = ["--scenes", "2", "--compared", "1", "--class-count", "2", "--runs", "1", "--output", output];
    let strategies = ["fp32", "fp16", "fp16:attention", "int8"];
    let output = bench(&[&few[..], &["--strategies"], &strategies].concat())?;
    let lines = lines(&output)?;
    let names: Vec<&str> = lines.iter().filter_map(|line| line["strategy"].as_str()).collect();
    assert_eq!(names, ["fp32", "fp16:none", "fp16:attention", "int8"]);
    let mut wrong = Vec::new();
    for line in &lines {
        let number = |key: &str| line[key].as_f64();
        let (ap, cosine) = (number("ap"), line["least_cosine"]["cosine"].as_f64());
        if ap.is_none_or(|ap| ap < 0.3) || cosine.is_none_or(|cosine| cosine < 0.999) {
            wrong.push(format!("AP {ap:?}, cosine {cosine:?}: {line}"));
        }
        // Image, image prompt, text, exemplars, five of the decoder, two of masks.
        let outputs = line["cosines"].as_object().map(serde_json::Map::len);
        let timed = line["total_ms"]["p50"].as_f64().is_some_and(|ms| ms > 0.0);
        if outputs != Some(13) || !timed {
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
