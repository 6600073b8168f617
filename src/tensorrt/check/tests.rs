use ocelli_engines::tensorrt::ComputeCapability;
use serde_json::{Value, json};

use super::super::sample::{Sample, gpu, library, set};
use super::*;
use crate::model::ModelGraph;

/// The outcome of the checks against library and GPU after changes to a sidecar.
fn outcome(changes: &[(&str, Value)], library: &TensorRtLibrary, gpu: &Gpu) -> Result<()> {
    let sample = Sample::new(&json!({}));
    let engine = sample.engine(ModelGraph::EncoderDecoder, "x");
    changes.iter().for_each(|(pointer, value)| set(&engine, pointer, value.clone()));
    let sidecar = Sidecar::read(&engine).expect("it was written").expect("it exists");
    check_model(&engine, &sidecar, &sample.model)?;
    check_library(&engine, &sidecar, library)?;
    check_gpu(&engine, &sidecar, gpu)
}

#[test]
fn compatible_engines_run_with_later_libraries_and_gpus() {
    let (here, later) =
        (library(), |major, minor| TensorRtLibrary { version: Version::new(major, minor, 0), ..library() });
    let other =
        |major, minor| Gpu { name: "other".into(), compute_capability: ComputeCapability::new(major, minor) };
    let versions = [("/options/version_compatible", json!(true))];
    let hardware = [("/options/hardware_compatible", json!(true))];
    let cases = [
        ("as built", outcome(&[], &here, &gpu()), None),
        (
            "a later version",
            outcome(&[], &later(1, 8), &gpu()),
            Some("version_compatible engines run with later versions"),
        ),
        ("a later version, compatible", outcome(&versions, &later(1, 8), &gpu()), None),
        ("a later major version", outcome(&versions, &later(2, 0), &gpu()), Some("this is version 2.0.0")),
        ("an earlier version", outcome(&versions, &later(1, 6), &gpu()), Some("this is version 1.6.0")),
        (
            "another GPU",
            outcome(&[], &here, &other(9, 0)),
            Some("this GPU is other (compute capability 9.0)"),
        ),
        ("a later GPU, compatible", outcome(&hardware, &here, &other(9, 0)), None),
        (
            "an earlier GPU",
            outcome(&hardware, &here, &other(8, 6)),
            Some("for compute capability 8.9 (RTX 4090)"),
        ),
        (
            "the other product",
            outcome(&[("/tensorrt/name", json!("TensorRT"))], &here, &gpu()),
            Some("built by TensorRT 1.7.1, this is TensorRT for RTX 1.7.1"),
        ),
    ];
    let mut wrong = Vec::new();
    for (case, outcome, expected) in cases {
        let fits = match (&outcome, expected) {
            (Ok(()), None) => true,
            (Err(error), Some(part)) => {
                error.kind() == ErrorKind::Mismatch && error.to_string().contains(part)
            }
            _ => false,
        };
        if !fits {
            wrong.push(format!("{case}: expected {expected:?}, got {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
