//! `demo-video --trt`, and what it says where something is missing.

use crate::run::{Place, refusal};

const DEMO: &str = env!("CARGO_BIN_EXE_demo-video");

fn without_a_gpu_the_driver_is_named(place: Place) {
    place.write("x.engine", "a plan");
    let words = ["--trt", "x.engine: cannot use an NVIDIA GPU"];
    place.without_gpu().refuses(
        DEMO,
        &[
            refusal("--trt|x.engine|--classes|person|car", 1, &words),
            refusal("--trt-enc-dec|x.engine|--classes|person|car", 1, &words),
        ],
    );
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs Ocelli's parts for TensorRT: make setup")]
#[cfg_attr(without_tensorrt, ignore = "needs Ocelli's parts for TensorRT: make tensorrt")]
fn without_a_gpu_the_driver_is_named_with_the_parts() {
    let parts = ocelli::engines::tensorrt::Product::ALL.map(ocelli::engines::tensorrt::Product::part);
    assert!(parts.iter().all(Option::is_some), "{parts:?}");
    without_a_gpu_the_driver_is_named(Place::with_libraries());
}

#[test]
fn without_a_gpu_the_driver_is_named_without_the_parts() {
    without_a_gpu_the_driver_is_named(Place::without_libraries());
}
