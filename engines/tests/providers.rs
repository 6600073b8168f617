//! Execution providers of ONNX Runtime: errors, nodes that run on the CPU, and tensors that stay on a device.
//!
//! Needs ONNX Runtime for the CPU in one of the places that are searched; `make setup` installs it.

use crate::models::{F32, I64, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine,
    OtherProvider,
};
use ocelli_engines::{Dim, Engine, ErrorKind, Tensor};
use std::path::PathBuf;

fn runtime() -> OnnxRuntime {
    // The message says how to install the library.
    OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"))
}

fn builder() -> OnnxRuntimeBuilder {
    OnnxRuntimeEngine::builder(&runtime()).with_threads(1)
}

/// A provider that every build of ONNX Runtime has and that supports no node of these models: it calls web services.
fn without_kernels() -> ExecutionProvider {
    let name = "AzureExecutionProvider".to_owned();
    ExecutionProvider::Other(OtherProvider { name, library: None, options: Vec::new() })
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_provider_that_cannot_start_is_an_error_with_reason_and_remedy() {
    let other = |name: &str, library: Option<&str>| {
        let library = library.map(PathBuf::from);
        ExecutionProvider::Other(OtherProvider { name: name.to_owned(), library, options: Vec::new() })
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases = [
        (
            ExecutionProvider::Cuda(CudaOptions { ordinal: 1, ..CudaOptions::default() }),
            "cannot start CUDA device 1, ",
            "not enabled in this build; use a library that was built with it, such as that of the package `onnxruntime-gpu`",
        ),
        (
            ExecutionProvider::CoreMl(CoreMlOptions::default()),
            "cannot start Core ML, ",
            "; only ONNX Runtime's builds for macOS have Core ML",
        ),
        (
            other("NoneExecutionProvider", None),
            "cannot start NoneExecutionProvider, ",
            "NoneExecutionProvider",
        ),
        (other("X", Some("/nowhere/x.so")), "cannot start X, ", "/nowhere/x.so: No such file"),
        (other("X", Some(text)), "cannot start X, ", "Cargo.toml"),
    ];
    let runtime = runtime();
    let mut wrong = Vec::new();
    for (provider, start, end) in cases {
        let loaded =
            builder().with_provider(provider.clone()).build_from_memory(&crate::models::conformance());
        for error in [loaded.map(drop).err(), runtime.try_provider(&provider).err()] {
            let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
            let kind = error.map(|error| error.kind());
            let fits = text.starts_with(start) && text.contains(end) && text.lines().count() == 1;
            if !fits || kind != Some(ErrorKind::Unavailable) {
                wrong.push(format!("{provider}: {kind:?} {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn the_library_lists_its_providers() {
    let runtime = runtime();
    let providers = runtime.providers().expect("a list");
    assert!(providers.iter().any(|name| name == ExecutionProvider::Cpu.name()), "{providers:?}");
    runtime.try_provider(&ExecutionProvider::Cpu).expect("every machine has a CPU");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn nodes_that_would_run_on_the_cpu_are_an_error_with_the_list() {
    let load = |cpu_fallback, model: &[u8]| {
        let builder = builder().with_provider(without_kernels()).with_cpu_fallback(cpu_fallback);
        builder.build_from_memory(model)
    };
    let error = load(false, &crate::models::conformance()).expect_err("the provider supports no node");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let expected = "cannot run all of (in memory) on AzureExecutionProvider: 4 of 4 nodes would run on the CPU, and only \
                    shape arithmetic may: Add (2), MatMul, NonZero; with `cpu_fallback` they run there";
    assert_eq!(error.to_string(), expected);

    let outcome = conformance::check(|| load(true, &crate::models::conformance()), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));

    let shapes = Model {
        nodes: &[("Shape", &["x"], "s"), ("Size", &["x"], "n")],
        inputs: &[("x", F32, "rows 3")],
        outputs: &[("s", I64, "2"), ("n", I64, "")],
    };
    load(false, &shapes.encode()).expect("shape arithmetic may run on the CPU");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_fixed_dimension_is_part_of_the_specification() {
    let model = crate::models::conformance();
    let fixed = builder().with_fixed_dimension("rows", 2).with_fixed_dimension("absent", 7);
    let mut engine = fixed.build_from_memory(&model).expect("it loads");
    let shape = |name: &str| {
        let spec = engine.spec();
        spec.input(name).or(spec.output(name)).expect("the model has it").shape.clone()
    };
    assert_eq!(shape("a"), [Dim::Fixed(2), Dim::Fixed(3)]);
    assert_eq!(shape("ids"), [Dim::Fixed(2), Dim::named("tokens")]);
    assert_eq!(shape("product"), [Dim::Fixed(2), Dim::Fixed(4)]);
    let mut run = |rows: usize| {
        let (a, ids) = (Tensor::zeros::<f32>(&[rows, 3]), Tensor::zeros::<i64>(&[rows, 5]));
        let mut sum = Tensor::empty();
        let inputs = [("a", &a), ("b", &a), ("ids", &ids)];
        engine.run(&inputs, &mut [("sum", &mut sum)]).map_err(|error| error.to_string())
    };
    assert_eq!(run(2), Ok(()));
    assert_eq!(run(3), Err("input `a`: expected shape [2, 3], got [3, 3]".to_owned()));
}
