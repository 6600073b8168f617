//! ONNX Runtime's WebGPU provider: the conformance suite, and what it refuses.
//!
//! Needs a GPU or a software GPU: `bash tests/fetch-software-gpu.sh FOLDER`, and the environment that it writes.

use crate::copies::{copied, on_host};
use crate::models::{F32, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{
    ExecutionProvider, OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine, WebGpuDevice,
};
use ocelli_engines::webgpu::{WebGpu, adapters};
use ocelli_engines::{ElementType, Engine, ErrorKind, RowWriter, Tensor, Transferred};
use std::sync::Arc;

fn provider() -> ExecutionProvider {
    let webgpu = WebGpu::load(None).unwrap_or_else(|error| panic!("{error}"));
    webgpu.provider(0).unwrap_or_else(|error| panic!("{error}"))
}

fn builder() -> OnnxRuntimeBuilder {
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    let provider = provider();
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

fn device() -> Arc<WebGpuDevice> {
    let _ = builder();
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    WebGpuDevice::open(&runtime, &provider(), "the adapter").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn passes_the_conformance_suite_with_a_device() {
    let model = crate::models::conformance();
    let device = device();
    let make = || builder().with_device(device.clone()).with_cpu_fallback(true).build_from_memory(&model);
    let outcome = conformance::check_32_bit(make, Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn every_element_type_is_copied_unchanged() {
    let device = device();
    let mut bools = Tensor::zeros::<bool>(&[3]);
    bools.as_mut_slice::<bool>().expect("bool")[1] = true;
    let tensors = [
        Tensor::f32(&[2], vec![1.5, f32::INFINITY]).expect("fits"),
        Tensor::f32(&[1000, 3], (0..3000).map(|value| value as f32).collect()).expect("fits"),
        Tensor::new(&[2], vec![half::f16::from_f32(0.5), half::f16::MAX]).expect("fits"),
        Tensor::i64(&[2], vec![i64::MIN, 7]).expect("fits"),
        Tensor::new(&[3], vec![i32::MIN, 7, 8]).expect("fits"),
        Tensor::new(&[17], (0_u8..17).collect()).expect("fits"),
        bools,
        Tensor::zeros::<f32>(&[0, 4]),
    ];
    let failures: Vec<_> =
        tensors.iter().filter(|&tensor| on_host(&copied(&device, tensor)) != *tensor).collect();
    assert!(failures.is_empty(), "{failures:?}");
}

/// WebGPU's tensors begin where their buffer does, and it copies 16 bytes at least.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn parts_of_tensors_are_copied_and_the_rest_stays() {
    let device = device();
    let host =
        |from: u8, len: u8| Tensor::new(&[usize::from(len)], (from..from + len).collect()).expect("fits");
    let mut wrong = Vec::new();
    for (to, from, count) in
        [(0, 0, 64), (0, 0, 16), (0, 0, 5), (3, 0, 7), (0, 9, 1), (20, 30, 33), (63, 0, 1)]
    {
        let mut expected = host(0, 64);
        expected.copy_elements(to, &host(100, 64), from, count).expect("it is in range");
        let mut target = copied(&device, &host(0, 64));
        target.copy_elements(to, &copied(&device, &host(100, 64)), from, count).expect("it is in range");
        let mut uploaded = copied(&device, &host(0, 64));
        uploaded.copy_elements(to, &host(100, 64), from, count).expect("it is in range");
        let mut fetched = host(0, 64);
        fetched.copy_elements(to, &copied(&device, &host(100, 64)), from, count).expect("it is in range");
        for (how, found) in
            [("on the device", on_host(&target)), ("up", on_host(&uploaded)), ("down", fetched)]
        {
            if found != expected {
                wrong.push(format!("{how}, {count} from {from} to {to}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let rows = Tensor::f32(&[3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("fits");
    let there = copied(&device, &rows);
    for row in 0..3 {
        assert_eq!(
            on_host(&there.row(row).expect("there are three")),
            rows.row(row).expect("there are three")
        );
    }
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn rows_are_written_on_the_device() {
    let device = device();
    let numbers = |rows: usize, first: f32| {
        Tensor::f32(&[rows, 100, 3], (0..rows * 300).map(|at| first + at as f32).collect()).expect("fits")
    };
    let (mut expected, source) = (numbers(7, 0.0), numbers(4, 10_000.0));
    let (mut target, on_device) = (copied(&device, &expected), copied(&device, &source));
    // A smaller tensor in a buffer that was larger is written without reading the rest back.
    let (mut reused, before) = (copied(&device, &source), device.transferred());
    reused.copy_from_host(&Tensor::f32(&[1], vec![2.5]).expect("fits")).expect("it is copied");
    assert_eq!(device.transferred(), Transferred { to_device: before.to_device + 4, ..before });
    assert_eq!(on_host(&reused).as_f32().expect("f32"), [2.5]);
    let mut rounding = RowWriter::rounding();
    let exact = Tensor::f32(&[1, 2, 2], vec![1.0 + 3.0 / 256.0, -0.1, 1.0 + 1.0 / 256.0, 0.0]).expect("fits");
    let mut rounded = copied(&device, &exact);
    rounding.write(&mut rounded, &copied(&device, &exact), &[(0, 0)]).expect("there is one row");
    assert_eq!(on_host(&rounded).as_f32().expect("f32"), [1.0 + 4.0 / 256.0, -0.100_097_656, 1.0, 0.0]);
    let (mut writer, mut on_the_host) = (RowWriter::default(), RowWriter::default());
    let mut copied_bytes = Vec::new();
    for rows in [&[(0, 3)][..], &[(6, 0), (2, 1), (5, 1)], &[], &[(4, 3)]] {
        let before = device.transferred();
        writer.write(&mut target, &on_device, rows).expect("the rows are there");
        let after = device.transferred();
        copied_bytes.push((after.to_device - before.to_device, after.to_host - before.to_host));
        on_the_host.write(&mut expected, &source, rows).expect("the rows are there");
        assert_eq!(on_host(&target), expected, "{rows:?}");
    }
    // Seven numbers of rows, and seven flags.
    assert_eq!(copied_bytes, [(7 * 8 + 7, 0); 4]);
    for rows in [(7, 0), (0, 4)] {
        let error = writer.write(&mut target, &on_device, &[rows]).expect_err("there is no such row");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(on_the_host.write(&mut expected, &source, &[rows]).is_err(), "{rows:?}");
    }
    assert_eq!(on_host(&target), expected);
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn what_one_engine_hands_to_the_next_stays_on_the_device() {
    let model = Model {
        nodes: &[("Add", &["a", "a"], "y")],
        inputs: &[("a", F32, "n m")],
        outputs: &[("y", F32, "n m")],
    };
    let (model, device) = (model.encode(), device());
    let mut engines =
        [0, 1].map(|_| builder().with_device(device.clone()).build_from_memory(&model).expect("it loads"));
    let a = Tensor::f32(&[300, 2], (0..600).map(|value| value as f32).collect()).expect("fits");
    let (mut between, mut y) = (Tensor::on(device.clone()), Tensor::empty());
    let mut allocations = Vec::new();
    for _ in 0..3 {
        let before = device.transferred();
        engines[0].run(&[("a", &a)], &mut [("y", &mut between)]).expect("it runs");
        let copies = device.transferred();
        assert_eq!((copies.to_device - before.to_device, copies.to_host - before.to_host), (2400, 0));
        engines[1].run(&[("a", &between)], &mut [("y", &mut y)]).expect("it runs");
        let after = device.transferred();
        let expected = Transferred { to_device: copies.to_device, to_host: copies.to_host + 2400 };
        assert_eq!(after, expected);
        assert!(y.as_f32().expect("f32").iter().zip(0_u16..).all(|(y, value)| *y == 4.0 * f32::from(value)));
        allocations.push(device.allocations());
        assert_eq!(between.element_type(), ElementType::F32);
    }
    assert_eq!(allocations[0], allocations[2], "buffers are reused");
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
        let (a, b) = (Tensor::zeros::<f32>(&[n, 1]), Tensor::f32(&[1, m], vec![2.0; m]).expect("fits"));
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
