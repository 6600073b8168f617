//! The engines: results, errors, and how their libraries are found.

mod copies;
#[cfg(feature = "cuda")]
mod cuda_device;
#[cfg(feature = "cuda")]
mod device_tensors;
mod embedded;
mod every_engine;
mod gpu_providers;
mod models;
mod onnxruntime;
mod openvino;
mod providers;
#[cfg(feature = "tensorrt-rtx")]
mod tensorrt;
mod tensorrt_libraries;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod tensorrt_run;
mod webgpu;
