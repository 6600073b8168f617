//! The embedded engine: the conformance suite, element types, models that cannot be loaded, external data.

use crate::models::{BOOL, F16, F32, I32, I64, Model, STRING, U8};
use half::f16;
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
    let changes: [(&str, Change); 4] = [
        ("defaults", |builder| builder),
        ("one thread", |builder| builder.with_threads(1)),
        ("three threads", |builder| builder.with_threads(3)),
        ("prepacking", |builder| builder.with_prepacking(true)),
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
    let nodes: &[(&str, &[&str], &str)] = &[
        ("Identity", &["floats"], "same_floats"),
        ("Identity", &["halves"], "same_halves"),
        ("Identity", &["longs"], "same_longs"),
        ("Identity", &["ints"], "same_ints"),
        ("Identity", &["bytes"], "same_bytes"),
        ("Not", &["flags"], "other_flags"),
    ];
    let types = [F32, F16, I64, I32, U8, BOOL];
    let inputs = ["floats", "halves", "longs", "ints", "bytes", "flags"];
    let outputs = ["same_floats", "same_halves", "same_longs", "same_ints", "same_bytes", "other_flags"];
    let typed = |names: [&'static str; 6]| -> Vec<_> {
        names.into_iter().zip(types).map(|(name, of_type)| (name, of_type, "n")).collect()
    };
    let model = Model { nodes, inputs: &typed(inputs), outputs: &typed(outputs) }.encode();
    let mut engine = builder().build_from_memory(&model).expect("it loads");
    for count in [3_usize, 0] {
        let take = |values: [f32; 3]| values[..count].to_vec();
        let floats = Tensor::f32(&[count], take([1.5, -0.0, 3e30])).expect("fits");
        let halves = take([1.5, 2.5, -4.0]).into_iter().map(f16::from_f32).collect();
        let halves = Tensor::new(&[count], halves).expect("fits");
        let longs = [i64::from(i32::MIN), 7, i64::from(i32::MAX)];
        let longs = Tensor::i64(&[count], longs[..count].to_vec()).expect("fits");
        let ints = Tensor::new(&[count], vec![i32::MIN, 7, i32::MAX][..count].to_vec()).expect("fits");
        let bytes = Tensor::new(&[count], vec![0_u8, 7, 255][..count].to_vec()).expect("fits");
        let flags = Tensor::new(&[count], vec![true, false, true][..count].to_vec()).expect("fits");
        let inverse = Tensor::new(&[count], vec![false, true, false][..count].to_vec()).expect("fits");
        let mut results = vec![Tensor::empty(); 6];
        let mut filled: Vec<_> = outputs.into_iter().zip(&mut results).collect();
        let given: Vec<_> =
            inputs.into_iter().zip([&floats, &halves, &longs, &ints, &bytes, &flags]).collect();
        engine.run(&given, &mut filled).expect("it runs");
        let expected = [floats, halves, longs, ints, bytes, inverse];
        let wrong: Vec<_> =
            outputs.iter().zip(results).zip(expected).filter(|((_, got), want)| got != want).collect();
        assert!(wrong.is_empty(), "{count} elements: {wrong:?}");
    }
}

#[test]
fn an_integer_beyond_32_bits_is_an_error_that_names_the_input() {
    let nodes: &[(&str, &[&str], &str)] = &[("Identity", &["x"], "y")];
    let model = Model { nodes, inputs: &[("x", I64, "n")], outputs: &[("y", I64, "n")] }.encode();
    let mut engine = builder().build_from_memory(&model).expect("it loads");
    for long in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, i64::MAX] {
        let (x, mut y) = (Tensor::i64(&[2], vec![1, long]).expect("fits"), Tensor::zeros_f32(&[1]));
        let error = engine.run(&[("x", &x)], &mut [("y", &mut y)]).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            error.to_string(),
            format!("input `x`: {long} does not fit the embedded engine's 32-bit integers")
        );
        assert_eq!(y, Tensor::zeros_f32(&[1]), "the output is unchanged");
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
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        path
    };
    let good = crate::models::conformance();
    let with = |op: &str, element_type: i32| {
        let (nodes, x, y) = ([(op, &["x"][..], "y")], ("x", element_type, "n"), ("y", element_type, "n"));
        Model { nodes: &nodes, inputs: &[x], outputs: &[y] }.encode()
    };
    let cases = [
        ("missing", folder.path().join("missing.onnx"), "no such file"),
        ("a folder", folder.path().to_path_buf(), "not a file"),
        ("empty", file("empty.onnx", b""), "it has no inputs and no outputs"),
        ("a text file", file("text.onnx", b"not a model, but a text of some length"), ""),
        ("a truncated file", file("cut.onnx", &good[..good.len() / 2]), ""),
        (
            "an unknown operator",
            file("operator.onnx", &with("Frobnicate", F32)),
            "Frobnicate operator not supported or not enabled; ONNX Runtime has more operators and types than the \
             embedded engine",
        ),
        (
            "strings",
            file("strings.onnx", &with("Identity", STRING)),
            "input `x` has ONNX's element type 8, expected f32, f16, i64, i32, u8 or bool",
        ),
    ];
    let mut wrong = Vec::new();
    for (name, path, expected) in cases {
        match builder().build_from_file(&path) {
            Err(error)
                if error.kind() == ErrorKind::InvalidData
                    && error.to_string().contains(expected)
                    && error.to_string().contains(&path.display().to_string())
                    && error.to_string().lines().count() == 1 => {}
            other => wrong.push(format!("{name}: expected {expected:?}, got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
