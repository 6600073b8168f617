//! The engines: results, errors, and how their libraries are found.

mod copies;
mod cuda_device;
mod device_tensors;
mod embedded;
mod every_engine;
mod gpu_providers;
mod models;
#[path = "../../tests/modules.rs"]
mod modules;
mod onnxruntime;
mod openvino;
mod providers;
mod tensorrt;
mod tensorrt_libraries;
mod tensorrt_run;
mod webgpu;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), &["all.rs"]);
}
