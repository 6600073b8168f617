//! The embedded engine: the conformance suite, element types, models that cannot be loaded, external data.

use crate::every_engine::{self, Refusals};
use crate::models::{F32, I64, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::embedded::{EmbeddedBuilder, EmbeddedEngine};
use ocelli_engines::{Engine, ErrorKind, Tensor};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{ModelProto, StringStringEntryProto, data_location};
use std::fs;

fn builder() -> EmbeddedBuilder {
    EmbeddedEngine::builder()
}

#[test]
fn passes_the_conformance_suite_with_every_option() {
    type Change = fn(EmbeddedBuilder) -> EmbeddedBuilder;
    let changes: [(&str, Change); 3] = [
        ("defaults", |builder| builder),
        ("one thread", |builder| builder.with_threads(1)),
        ("three threads", |builder| builder.with_threads(3)),
    ];
    let model = crate::models::conformance();
    let mut wrong = Vec::new();
    for (name, change) in changes {
        let make = || change(builder()).build_from_memory(&model);
        if let Err(failures) = conformance::check_32_bit(make, Tolerance::F32) {
            wrong.push(format!("{name}: {failures}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_description_names_the_threads() {
    for (threads, expected) in [(1, ", CPU, 1 thread"), (2, ", CPU, 2 threads")] {
        let engine = builder().with_threads(threads).build_from_memory(&crate::models::conformance());
        let description = engine.expect("it loads").description().to_owned();
        assert!(description.starts_with("embedded") && description.ends_with(expected), "{description}");
    }
}

#[test]
fn every_element_type_can_be_an_input_and_an_output() {
    every_engine::runs_every_element_type(
        |model| builder().build_from_memory(model),
        (i32::MIN.into(), i32::MAX.into()),
    );
}

#[test]
fn an_integer_beyond_32_bits_is_an_error_that_names_the_input() {
    let nodes: &[(&str, &[&str], &str)] = &[("Identity", &["x"], "y")];
    let model = Model { nodes, inputs: &[("x", I64, "n")], outputs: &[("y", I64, "n")] }.encode();
    let mut engine = builder().build_from_memory(&model).expect("it loads");
    for long in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, i64::MAX] {
        let (x, mut y) = (Tensor::i64(&[2], vec![1, long]).expect("fits"), Tensor::zeros::<f32>(&[1]));
        let error = engine.run(&[("x", &x)], &mut [("y", &mut y)]).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            error.to_string(),
            format!("input `x`: {long} does not fit the embedded engine's 32-bit integers")
        );
        assert_eq!(y, Tensor::zeros::<f32>(&[1]), "the output is unchanged");
    }
}

/// Outputs that are transposed views of what was computed are written row by row.
#[test]
fn a_transposed_output_is_row_major() {
    let nodes: &[(&str, &[&str], &str)] = &[("Add", &["x", "x"], "sum"), ("Transpose", &["sum"], "y")];
    let model = Model { nodes, inputs: &[("x", F32, "2 3")], outputs: &[("y", F32, "3 2")] }.encode();
    let mut engine = builder().build_from_memory(&model).expect("it loads");
    let x = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("fits");
    let mut y = Tensor::empty();
    engine.run(&[("x", &x)], &mut [("y", &mut y)]).expect("it runs");
    assert_eq!(y, Tensor::f32(&[3, 2], vec![2.0, 8.0, 4.0, 10.0, 6.0, 12.0]).expect("fits"));
}

#[test]
fn models_that_cannot_be_loaded_are_named_with_the_reason() {
    let reasons = Refusals {
        empty: "it has no inputs and no outputs",
        text: "",
        truncated: "",
        operator: "Frobnicate operator not supported or not enabled; ONNX Runtime has more operators and types than the \
                   embedded engine",
        strings: "input `x` has ONNX's element type 8, expected f32, f16, i64, i32, u8 or bool",
    };
    every_engine::refuses_unusable_models(|path| builder().build_from_file(path), &reasons);
}

/// Every file that differs from a model in one byte loads, or is an error.
#[test]
fn corrupt_files_are_errors() {
    let good = crate::models::conformance();
    let mut loaded = 0;
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 0x15;
        match builder().with_threads(1).build_from_memory(&bad) {
            Ok(_) => loaded += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidData, "byte {position}: {error}"),
        }
    }
    assert!(loaded < good.len(), "every corrupt file loaded");
}

#[test]
fn weights_in_another_file_are_found_beside_the_model() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut model = ModelProto::decode(&*crate::models::conformance()).expect("it decodes");
    let weights = &mut model.graph.as_mut().expect("a graph").initializer[0];
    let data = weights.raw_data.take().expect("the data is in the file");
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.to_owned(), value };
    weights.external_data = vec![
        entry("location", "model.onnx.data".to_owned()),
        entry("offset", "64".to_owned()),
        entry("length", data.len().to_string()),
    ];
    weights.data_location = data_location::EXTERNAL;
    let (path, beside) = (folder.path().join("model.onnx"), folder.path().join("model.onnx.data"));
    fs::write(&path, model.encode_to_vec()).expect("a file");
    let missing = builder().build_from_file(&path).expect_err("there are no weights");
    assert_eq!(missing.kind(), ErrorKind::InvalidData);
    assert!(missing.to_string().contains("model.onnx.data"), "{missing}");

    fs::write(&beside, [vec![0; 64], data].concat()).expect("a file");
    let outcome = conformance::check_32_bit(|| builder().build_from_file(&path), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

every_engine::tests_of_runs!(builder, conformance::check_32_bit, "");
