//! Tests across crates: parity with the reference, from an image to detections, the pipeline, engines on devices.

mod checkpoints;
mod clicks;
mod cuda_kernels;
mod device_kernels;
mod device_path;
mod end_to_end;
mod engines_agree;
mod exemplars;
mod half_precision;
mod masklets;
mod masks;
mod model_json;
mod modules;
mod openvino;
mod operators;
mod parity;
mod pipeline;
mod precision;
mod preprocess_golden;
mod scenes;
mod screen;
mod tensorrt;
mod tensorrt_build;
mod tensorrt_plan;
mod tiles;
mod tokenizer_golden;
mod tracker_parity;
mod verify;
mod walls;
mod webgpu;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(
        env!("CARGO_MANIFEST_DIR"),
        &["all.rs", "support/lib.rs", "pipeline_memory.rs", "fuzz/fuzz.rs"],
    );
}
