//! ONNX Runtime's WebGPU provider: the conformance suite, and what it refuses.
//!
//! Needs a GPU or a software GPU: `bash tests/fetch-software-gpu.sh FOLDER`, and the environment that it writes.

use crate::models::{F32, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine};
use ocelli_engines::webgpu::{WebGpu, adapters};
use ocelli_engines::{Engine, ErrorKind, Tensor};

fn builder() -> OnnxRuntimeBuilder {
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    let webgpu = WebGpu::load(None).unwrap_or_else(|error| panic!("{error}"));
    let provider = webgpu.provider(0).unwrap_or_else(|error| panic!("{error}"));
    runtime.try_provider(&provider).unwrap_or_else(|error| panic!("{error}"));
    OnnxRuntimeEngine::builder(&runtime).with_provider(provider).with_threads(1)
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn passes_the_conformance_suite() {
    // `NonZero` has no kernel there, and integers have 32 bits.
    let model = crate::models::conformance();
    let make = || builder().with_cpu_fallback(true).build_from_memory(&model);
    let outcome = conformance::check_32_bit(make, Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn nodes_that_would_run_on_the_cpu_are_an_error_with_the_list() {
    let error =
        builder().build_from_memory(&crate::models::conformance()).expect_err("NonZero has no kernel");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.starts_with("cannot run all of (in memory) on WebGPU: 1 of 4 nodes would run on the CPU"),
        "{text}"
    );
    assert!(text.contains("NonZero"), "{text}");
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn the_adapters_are_listed_and_only_those_can_be_used() {
    let found = adapters().unwrap_or_else(|error| panic!("{error}"));
    assert!(!found.is_empty() && found.iter().all(|adapter| !adapter.name.is_empty()), "{found:?}");
    let webgpu = WebGpu::load(None).unwrap_or_else(|error| panic!("{error}"));
    let error = webgpu.provider(found.len()).expect_err("there are not that many");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("they are counted from 0"), "{error}");
}

/// The stages of a pipeline run on threads of their own.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn engines_on_several_threads_take_turns() {
    let model = Model {
        nodes: &[("Add", &["a", "a"], "b"), ("Mul", &["b", "a"], "c"), ("Sub", &["c", "a"], "y")],
        inputs: &[("a", F32, "n")],
        outputs: &[("y", F32, "n")],
    };
    let model = model.encode();
    std::thread::scope(|scope| {
        for thread in 0..4_u16 {
            let model = &model;
            scope.spawn(move || {
                for run in 0..20_u16 {
                    let mut engine = builder().build_from_memory(model).expect("it loads");
                    let value = f32::from(thread * 100 + run);
                    let a = Tensor::f32(&[1000], vec![value; 1000]).expect("fits");
                    let mut y = Tensor::empty();
                    engine.run(&[("a", &a)], &mut [("y", &mut y)]).expect("it runs");
                    let expected = 2.0 * value * value - value;
                    assert!(y.as_f32().expect("f32").iter().all(|y| *y == expected), "{thread}, {run}");
                }
            });
        }
    });
}

/// The provider only logs that a buffer is beyond the adapter's limits.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn an_engine_stays_usable_after_a_run_that_fails() {
    let model = Model {
        nodes: &[("Add", &["a", "b"], "y")],
        inputs: &[("a", F32, "n 1"), ("b", F32, "1 m")],
        outputs: &[("y", F32, "n m")],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    let mut run = |n: usize, m: usize| {
        let (a, b) = (Tensor::zeros_f32(&[n, 1]), Tensor::f32(&[1, m], vec![2.0; m]).expect("fits"));
        let mut y = Tensor::empty();
        engine.run(&[("a", &a), ("b", &b)], &mut [("y", &mut y)]).map(|()| y)
    };
    // 4 GB: beyond the size of a buffer in WebGPU.
    let error = run(1 << 15, 1 << 15).expect_err("the output is too large");
    assert_eq!(error.kind(), ErrorKind::Execution);
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    let y = run(2, 3).expect("the adapter still works");
    assert_eq!(y.as_f32().expect("f32"), [2.0; 6]);
}
