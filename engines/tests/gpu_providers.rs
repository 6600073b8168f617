//! ONNX Runtime's providers on a real NVIDIA GPU.
//!
//! Needs one, and the library of the package `onnxruntime-gpu` in one of the places that are searched.

// Another test program uses the rest.
#[allow(dead_code)]
#[path = "onnxruntime/models.rs"]
mod models;

use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::onnxruntime::{
    CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeBuilder, OnnxRuntimeEngine, TensorRtOptions,
};

fn builder(provider: ExecutionProvider) -> OnnxRuntimeBuilder {
    let runtime = OnnxRuntime::load(None).unwrap_or_else(|error| panic!("{error}"));
    runtime.try_provider(&provider).unwrap_or_else(|error| panic!("{error}"));
    OnnxRuntimeEngine::builder(&runtime).with_provider(provider)
}

fn passes(builder: impl Fn() -> OnnxRuntimeBuilder) {
    let outcome = conformance::check(|| builder().build_from_memory(&models::conformance()), Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn cuda_passes_the_conformance_suite() {
    passes(|| builder(ExecutionProvider::Cuda(CudaOptions::default())));
}

#[test]
#[ignore = "needs an NVIDIA GPU, ONNX Runtime for CUDA and TensorRT 10"]
fn tensorrt_passes_the_conformance_suite() {
    passes(|| builder(ExecutionProvider::TensorRt(TensorRtOptions::default())));
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn cuda_passes_the_conformance_suite_with_its_device() {
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    passes(|| builder(ExecutionProvider::Cuda(CudaOptions::default())).with_device(device.clone()));
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn tensors_stay_on_the_gpu_between_engines() {
    use ocelli_engines::{Device, Engine, Tensor, Transferred};
    let device = ocelli_engines::cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let make = || {
        let builder = builder(ExecutionProvider::Cuda(CudaOptions::default())).with_device(device.clone());
        builder.build_from_memory(&models::conformance()).expect("it loads")
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
