//! Execution providers of ONNX Runtime: which start, where nodes end up, and tensors that stay on a device.
//!
//! Needs ONNX Runtime for the processor where programs find it; `make setup` puts it there.

// Another test program uses the rest.
#[allow(dead_code)]
#[path = "onnxruntime/models.rs"]
mod models;

use models::{F32, I64, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, LibrarySearch, OnnxRuntime, OnnxRuntimeBuilder,
    OnnxRuntimeEngine, OtherProvider, TensorRtOptions,
};
use ocelli_engines::{Dim, DimensionRange, Engine, ErrorKind, Tensor};
use std::path::PathBuf;

fn runtime() -> OnnxRuntime {
    // The message says what to do where the library is missing.
    OnnxRuntime::load(&LibrarySearch::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn builder() -> OnnxRuntimeBuilder {
    OnnxRuntimeEngine::builder(&runtime()).with_threads(1)
}

/// A provider inside of every build of ONNX Runtime that takes no node of these models: it calls services.
fn taking_nothing() -> ExecutionProvider {
    let name = "AzureExecutionProvider".to_owned();
    ExecutionProvider::Other(OtherProvider { name, library: None, options: Vec::new() })
}

#[test]
fn a_provider_that_cannot_start_says_why_and_what_to_do() {
    let other = |name: &str, library: Option<&str>| {
        let library = library.map(PathBuf::from);
        ExecutionProvider::Other(OtherProvider { name: name.to_owned(), library, options: Vec::new() })
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases = [
        (
            ExecutionProvider::Cuda(CudaOptions { ordinal: 1, ..CudaOptions::default() }),
            "cannot start CUDA device 1, ",
            "not enabled in this build; use a library that was built with it: the one in the package `onnxruntime-gpu`",
        ),
        (
            ExecutionProvider::TensorRt(TensorRtOptions::default()),
            "cannot start TensorRT on CUDA device 0, ",
            "not enabled in this build; use a library that was built with it: the one in the package `onnxruntime-gpu`",
        ),
        (
            ExecutionProvider::CoreMl(CoreMlOptions::default()),
            "cannot start Core ML, ",
            "; Core ML is in ONNX Runtime's builds for macOS alone",
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
        let loaded = builder().with_provider(provider.clone()).build_from_memory(&models::conformance());
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
fn the_library_says_what_it_was_built_with() {
    let runtime = runtime();
    let providers = runtime.providers().expect("it says");
    assert!(providers.iter().any(|name| name == ExecutionProvider::Cpu.name()), "{providers:?}");
    runtime.try_provider(&ExecutionProvider::Cpu).expect("a processor is always there");
}

#[test]
fn nodes_that_are_left_to_the_processor_are_an_error_with_the_list() {
    let load = |allowed, model: &[u8]| {
        let builder = builder().with_provider(taking_nothing()).with_partial_placement(allowed);
        builder.build_from_memory(model)
    };
    let error = load(false, &models::conformance()).expect_err("it takes nothing");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let expected = "AzureExecutionProvider does not run all of the model, (in memory): it leaves 4 of 4 nodes to the \
                    processor: Add (2), MatMul, NonZero; with --allow-partial it runs as it is";
    assert_eq!(error.to_string(), expected);

    let outcome = conformance::check(|| load(true, &models::conformance()), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));

    let shapes = Model {
        nodes: &[("Shape", &["x"], "s"), ("Size", &["x"], "n")],
        inputs: &[("x", F32, "rows 3")],
        outputs: &[("s", I64, "2"), ("n", I64, "")],
    };
    load(false, &shapes.encode()).expect("shapes are the processor's");
}

#[test]
fn a_fixed_dimension_is_part_of_the_specification() {
    let model = models::conformance();
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
        let (a, ids) = (Tensor::zeros_f32(&[rows, 3]), Tensor::zeros::<i64>(&[rows, 5]));
        let mut sum = Tensor::empty();
        let inputs = [("a", &a), ("b", &a), ("ids", &ids)];
        engine.run(&inputs, &mut [("sum", &mut sum)]).map_err(|error| error.to_string())
    };
    assert_eq!(run(2), Ok(()));
    assert_eq!(run(3), Err("input `a`: expected shape [2, 3], got [3, 3]".to_owned()));
}

#[test]
fn ranges_are_for_every_named_dimension() {
    let range = DimensionRange { min: 1, optimal: 4, max: 8 };
    let dimensions = [("rows".to_owned(), range)].into();
    let options = TensorRtOptions { dimensions, ..TensorRtOptions::default() };
    let loaded = builder()
        .with_provider(ExecutionProvider::TensorRt(options))
        .build_from_memory(&models::conformance());
    let error = loaded.expect_err("`tokens` has none");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        error.to_string(),
        "TensorRT: no range for dimension `tokens` of input `ids`: give one to every named dimension, or to none"
    );
}
