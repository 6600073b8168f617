//! ONNX Runtime: the conformance suite, options, models and libraries that cannot be loaded.
//!
//! Needs ONNX Runtime in one of the places that are searched; `make setup` installs it.

use crate::every_engine::{self, Refusals, compile};
use crate::models::{F32, I64, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::library::Finding;
use ocelli_engines::onnxruntime::{LIBRARY, OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine};
use ocelli_engines::{Dim, ElementType, Engine, ErrorKind, Tensor, TensorSpec};
use std::fs;

fn runtime() -> OnnxRuntime {
    // The message says how to install the library.
    OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"))
}

fn builder() -> OnnxRuntimeBuilder {
    OnnxRuntimeEngine::builder(&runtime())
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn passes_the_conformance_suite() {
    let outcome =
        conformance::check(|| builder().build_from_memory(&crate::models::conformance()), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn passes_the_conformance_suite_with_every_option() {
    type Change = fn(OnnxRuntimeBuilder) -> OnnxRuntimeBuilder;
    let changes: [(&str, Change); 3] = [
        ("one thread", |builder| builder.with_threads(1)),
        ("three threads", |builder| builder.with_threads(3)),
        ("no arena", |builder| builder.with_memory_arena(false)),
    ];
    let model = crate::models::conformance();
    let mut wrong = Vec::new();
    for (name, change) in changes {
        let make = || change(builder()).build_from_memory(&model);
        if let Err(failures) = conformance::check(make, Tolerance::F32) {
            wrong.push(format!("{name}: {failures}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn the_description_names_version_and_threads() {
    let runtime = runtime();
    let engine =
        builder().with_threads(2).build_from_memory(&crate::models::conformance()).expect("it loads");
    assert_eq!(engine.description(), format!("ONNX Runtime {}, CPU, 2 threads", runtime.version()));
    let chosen = LIBRARY.candidates(None).into_iter().find(|found| found.finding != Finding::Missing);
    let chosen = chosen.expect("one was loaded");
    assert_eq!(
        (chosen.path.as_path(), chosen.finding),
        (runtime.path(), Finding::Usable { version: runtime.version().to_owned() })
    );
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_second_library_in_one_process_is_refused() {
    let loaded = runtime();
    let again = OnnxRuntime::load(Some(loaded.path())).expect("the same file");
    assert_eq!(again.path(), loaded.path());

    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("libonnxruntime.so");
    fs::copy(loaded.path(), &copy).expect("a copy");
    let error = OnnxRuntime::load(Some(&copy)).expect_err("another file");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let expected = format!(
        "cannot load ONNX Runtime, {}: this process has loaded {}, and can load only one",
        copy.display(),
        loaded.path().display()
    );
    assert_eq!(error.to_string(), expected);
}

#[cfg(unix)]
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn libraries_that_cannot_be_used_are_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let base = |version: &str, api: &str| {
        format!(
            "struct base {{ const void *(*api)(unsigned); const char *(*version)(void); }};
             static const void *api(unsigned version) {{ return {api}; }}
             static const char *version(void) {{ return {version}; }}
             static const struct base it = {{ api, version }};
             const struct base *OrtGetApiBase(void) {{ return &it; }}"
        )
    };
    let compile = |name: &str, source: &str| compile(folder.path(), name, source);

    let cases = vec![
        (
            "an old version",
            compile("old", &base("\"1.10.0\"", "0")),
            "version 1.10.0 is too old: 1.31 or newer is needed",
        ),
        (
            "an old version with a new API",
            compile("odd", &base("\"1.30.9\"", "\"api\"")),
            "version 1.30.9 is too old: 1.31 or newer is needed",
        ),
        (
            "a version without its API",
            compile("none", &base("\"1.99.0\"", "0")),
            "version 1.99.0 has no API 1.31",
        ),
        (
            "a version without numbers",
            compile("word", &base("\"next\"", "\"api\"")),
            "version next is too old: 1.31 or newer is needed",
        ),
        ("no version", compile("mute", &base("0", "0")), "the library states no version"),
        ("a null pointer", compile("null", "const void *OrtGetApiBase(void) { return 0; }"), "returned null"),
        (
            "another library",
            compile("other", "int answer(void) { return 42; }"),
            "the library is not ONNX Runtime: it has no `OrtGetApiBase`",
        ),
    ];
    every_engine::refuses_unusable_libraries(|path| OnnxRuntime::load(Some(path)), runtime().path(), cases);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn models_that_cannot_be_loaded_are_named_with_the_reason() {
    let reasons = Refusals {
        empty: "No graph was found",
        text: "Protobuf parsing failed",
        truncated: "Protobuf parsing failed",
        operator: "Frobnicate",
        strings: "input `x` holds String, expected f32, f16, i64, i32, u8 or bool",
    };
    every_engine::refuses_unusable_models(|path| builder().build_from_file(path), &reasons);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_element_type_can_be_an_input_and_an_output() {
    every_engine::runs_every_element_type(|model| builder().build_from_memory(model), (i64::MIN, i64::MAX));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn scalars_and_unnamed_dimensions_are_supported() {
    let model = Model {
        nodes: &[("Mul", &["x", "factor"], "y"), ("Shape", &["x"], "size")],
        inputs: &[("x", F32, "? ?"), ("factor", F32, "")],
        outputs: &[("y", F32, "? ?"), ("size", I64, "2")],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    let x = |side: &str| {
        TensorSpec::new(side, ElementType::F32, [0, 1].map(|axis| Dim::Named(format!("{side}.{axis}"))))
    };
    assert_eq!(engine.spec().inputs[0], x("x"));
    assert_eq!(engine.spec().outputs[0], x("y"));

    let factor = Tensor::f32(&[], vec![2.0]).expect("a scalar");
    let (mut y, mut size) = (Tensor::empty(), Tensor::empty());
    for shape in [[2, 3], [0, 4], [1, 1]] {
        let x = Tensor::f32(&shape, vec![1.5; shape[0] * shape[1]]).expect("fits");
        engine
            .run(&[("x", &x), ("factor", &factor)], &mut [("y", &mut y), ("size", &mut size)])
            .expect("it runs");
        assert_eq!(y, Tensor::f32(&shape, vec![3.0; shape[0] * shape[1]]).expect("fits"));
        assert_eq!(size.as_slice::<i64>().expect("i64"), shape.map(|size| size as i64));
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_constant_or_an_input_can_be_an_output() {
    let model = Model {
        nodes: &[("Identity", &["weights"], "constant"), ("Identity", &["x"], "same")],
        inputs: &[("x", F32, "n")],
        outputs: &[("constant", F32, "3 4"), ("same", F32, "n")],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    let x = Tensor::f32(&[2], vec![1.0, 2.0]).expect("fits");
    let (mut constant, mut same) = (Tensor::empty(), Tensor::empty());
    for _ in 0..3 {
        constant.reset_f32(&[1]).fill(9.0);
        same.reset_f32(&[1]).fill(9.0);
        engine.run(&[("x", &x)], &mut [("same", &mut same), ("constant", &mut constant)]).expect("it runs");
        assert_eq!(constant.as_f32().expect("f32"), conformance::WEIGHTS.as_flattened());
        assert_eq!(same, x);
    }
}

every_engine::tests_of_runs!(builder, conformance::check, "Reshape");
