//! ONNX Runtime's providers on a real NVIDIA GPU.
//!
//! Needs an NVIDIA GPU, and the library of the package `onnxruntime-gpu` in one of the places that are searched.

use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{
    CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine,
};

fn builder(provider: ExecutionProvider) -> OnnxRuntimeBuilder {
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    runtime.try_provider(&provider).unwrap_or_else(|error| panic!("{error}"));
    OnnxRuntimeEngine::builder(&runtime).with_provider(provider)
}

fn passes(builder: impl Fn() -> OnnxRuntimeBuilder) {
    let outcome =
        conformance::check(|| builder().build_from_memory(&crate::models::conformance()), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn cuda_passes_the_conformance_suite() {
    passes(|| builder(ExecutionProvider::Cuda(CudaOptions::default())));
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn cuda_passes_the_conformance_suite_with_its_device() {
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    passes(|| builder(ExecutionProvider::Cuda(CudaOptions::default())).with_device(device.clone()));
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn tensors_stay_on_the_gpu_between_engines() {
    use ocelli_engines::{Engine, Tensor, Transferred};
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let make = || {
        let builder = builder(ExecutionProvider::Cuda(CudaOptions::default())).with_device(device.clone());
        builder.build_from_memory(&crate::models::conformance()).expect("it loads")
    };
    let (mut first, mut second) = (make(), make());
    let a = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("fits");
    let ids = Tensor::i64(&[2, 1], vec![3, 0]).expect("fits");
    let (mut there, mut ids_there) = (Tensor::on(device.clone()), Tensor::on(device.clone()));
    there.copy_from_host(&a).expect("it is copied");
    ids_there.copy_from_host(&ids).expect("it is copied");
    let (mut between, mut sum) = (Tensor::on(device.clone()), Tensor::empty());
    let before = device.transferred();
    for round in 0..100 {
        let inputs = [("a", &there), ("b", &there), ("ids", &ids_there)];
        first.run(&inputs, &mut [("sum", &mut between)]).expect("it runs");
        between.copy_elements(0, &there, 3, 3).expect("it is copied");
        let inputs = [("a", &between), ("b", &there), ("ids", &ids_there)];
        second.run(&inputs, &mut [("sum", &mut sum)]).expect("it runs");
        assert_eq!(sum.as_f32().expect("f32"), [5.0, 7.0, 9.0, 12.0, 15.0, 18.0], "round {round}");
    }
    let after = device.transferred();
    let crossed = Transferred {
        to_device: after.to_device - before.to_device,
        to_host: after.to_host - before.to_host,
    };
    assert_eq!(crossed, Transferred { to_device: 0, to_host: 100 * 24 });
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn only_tensors_in_host_memory_are_copied() {
    use ocelli_engines::{Device, Engine, Tensor, Transferred};
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let cuda = || builder(ExecutionProvider::Cuda(CudaOptions::default()));
    let make = || cuda().with_device(device.clone()).build_from_memory(&crate::models::conformance());
    let mut engine = make().expect("it loads");
    assert_eq!(engine.device(), Some(Device::from(device.clone())));
    let rows = |first: f32| Tensor::f32(&[2, 3], (0..6).map(|i| first + i as f32).collect()).expect("fits");
    let (a, b) = (rows(1.0), rows(10.0));
    let ids = Tensor::i64(&[2, 1], vec![3, 0]).expect("fits");
    let on = || Tensor::on(device.clone());
    let (mut there, mut ids_there) = (on(), on());
    there.copy_from_host(&a).expect("it is copied");
    ids_there.copy_from_host(&ids).expect("it is copied");
    let before = device.transferred();

    let (mut sum, mut product, mut doubled, mut positions) = (on(), Tensor::empty(), on(), on());
    let mut allocations = Vec::new();
    for _ in 0..3 {
        let inputs = [("a", &there), ("b", &b), ("ids", &ids_there)];
        engine
            .run(&inputs, &mut [("sum", &mut sum), ("product", &mut product), ("doubled", &mut doubled)])
            .expect("it runs");
        allocations.push(device.allocations());
    }
    let after = device.transferred();
    // Three times: 2 x 3 f32 of `b` there, 2 x 4 of `product` back.
    let crossed = Transferred {
        to_device: after.to_device - before.to_device,
        to_host: after.to_host - before.to_host,
    };
    assert_eq!(crossed, Transferred { to_device: 3 * 24, to_host: 3 * 32 });
    assert_eq!(allocations[1..], [allocations[0]; 2], "a steady state allocates nothing");

    let mut plain = cuda().build_from_memory(&crate::models::conformance()).expect("it loads");
    let mut expected = [Tensor::empty(), Tensor::empty(), Tensor::empty(), Tensor::empty()];
    let [expected_sum, expected_product, expected_doubled, expected_positions] = &mut expected;
    let inputs = [("a", &a), ("b", &b), ("ids", &ids)];
    let mut outputs = [
        ("sum", expected_sum),
        ("product", expected_product),
        ("doubled", expected_doubled),
        ("positions", expected_positions),
    ];
    plain.run(&inputs, &mut outputs).expect("it runs");
    // Its shape depends on the elements.
    engine.run(&inputs, &mut [("positions", &mut positions)]).expect("it runs");
    for (name, came, expected) in [
        ("sum", &sum, &expected[0]),
        ("product", &product, &expected[1]),
        ("doubled", &doubled, &expected[2]),
        ("positions", &positions, &expected[3]),
    ] {
        let mut host = Tensor::empty();
        came.copy_to_host_into(&mut host).expect("it is copied");
        assert_eq!(&host, expected, "{name}");
    }
    assert!([&sum, &doubled, &positions].iter().all(|tensor| tensor.device().is_some()));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_of_another_provider_is_refused() {
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    let cpu = OnnxRuntimeEngine::builder(&runtime).with_device(device.clone());
    let error = cpu.build_from_memory(&crate::models::conformance()).expect_err("the CPU has no device");
    assert_eq!(error.kind(), ocelli_engines::ErrorKind::InvalidArgument);
    let expected =
        format!("cannot access the memory of {}: expected the device that it runs on", device.name());
    assert!(error.to_string().ends_with(&expected), "{error}");
}
