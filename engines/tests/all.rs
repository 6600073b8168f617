//! The engines: results, errors, and how their libraries are found.

mod copies;
mod cuda_device;
mod device_tensors;
mod embedded;
mod every_engine;
mod gpu_providers;
mod models;
mod onnxruntime;
mod openvino;
mod providers;
mod tensorrt;
mod tensorrt_libraries;
mod tensorrt_run;
mod webgpu;
