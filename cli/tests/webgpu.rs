//! The engine webgpu on machines without an adapter, and on a software GPU.
//!
//! Tests that are ignored need a software GPU: `bash tests/fetch-software-gpu.sh FOLDER`, and the environment that it
//! writes.

use std::process::Command;

use crate::run::{Place, outcome};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const ALLOW_SOFTWARE: &str = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER";

/// Detects at 56 px, for which the shaders matter more than the arithmetic.
fn detect(place: &Place, engine: &str, further: &[&str]) -> Command {
    let scene = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png");
    let fixed = ["detect", "--engine", engine, "--imgsz", "56", "--image", scene, "--classes", "dog"];
    place.command(OCELLI, &[&fixed, further].concat())
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_library_that_is_missing_is_an_error() {
    let place = Place::with_libraries();
    place.write("text", "hello");
    for (library, words) in [("none", ["none", "no such file"]), ("text", ["text", "cannot use"])] {
        let ill = outcome(&mut detect(&place, "webgpu", &["--webgpu", library]));
        ill.is_refusal(
            1,
            &[&words[..], &["engine webgpu: cannot use ONNX Runtime's WebGPU provider"]].concat(),
        )
        .unwrap_or_else(|e| panic!("{library}: {e}"));
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_machine_without_an_adapter_is_an_error_with_the_remedy() {
    let place = Place::with_libraries();
    // Neither a driver of this machine nor a software GPU, whether it has Vulkan's loader or not.
    let ill = outcome(
        detect(&place, "webgpu", &[])
            .env("VK_ICD_FILENAMES", place.path("none.json"))
            .env("VK_DRIVER_FILES", place.path("none.json")),
    );
    ill.is_refusal(1, &["engine webgpu: no WebGPU adapter: Vulkan's loader ", "install it (Debian: "])
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn a_loader_without_drivers_is_an_error() {
    let place = Place::with_libraries();
    let ill = outcome(
        detect(&place, "webgpu", &[])
            .env("VK_ICD_FILENAMES", place.path("none.json"))
            .env("VK_DRIVER_FILES", place.path("none.json")),
    );
    ill.is_refusal(1, &["Vulkan's loader has no driver for a GPU"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn a_software_adapter_must_be_named() {
    let place = Place::with_libraries();
    for value in [None, Some("0")] {
        let mut command = detect(&place, "webgpu", &[]);
        command.env_remove(ALLOW_SOFTWARE);
        if let Some(value) = value {
            command.env(ALLOW_SOFTWARE, value);
        }
        let ill = outcome(&mut command);
        ill.is_refusal(1, &["it computes on the CPU", "set ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1"])
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let ill = outcome(&mut detect(&place, "webgpu:99", &[]));
    ill.is_refusal(1, &["WebGPU adapter 99", "they are counted from 0"]).unwrap_or_else(|e| panic!("{e}"));
}

/// One of the two compares the adapter with the CPU, the other waits for the verdict.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn two_processes_at_once_share_one_verdict() {
    let place = Place::with_libraries();
    let detect = |json: &str| outcome(&mut detect(&place, "webgpu", &["--json", json, "--verbose"]));
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| detect("first.json"));
        let second = detect("second.json");
        (first.join().expect("it does not panic"), second)
    });
    assert_eq!((first.status, second.status), (Some(0), Some(0)), "{first:?} {second:?}");
    let comparisons = [&first, &second].map(|ran| ran.stderr.matches("with the CPU, once").count());
    assert_eq!(comparisons.iter().sum::<usize>(), 1, "{first:?} {second:?}");
    let detections = |name: &str| {
        let json: serde_json::Value = serde_json::from_slice(&place.read(name)).expect("it is JSON");
        json["images"][0]["detections"].clone()
    };
    assert_eq!(detections("first.json"), detections("second.json"));

    let report = place.succeed(OCELLI, &["doctor"]);
    for words in [
        "webgpu          can be used: WebGPU 0.4.0, SwiftShader",
        "right, largest error ",
        "(built-in model of 56 px",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
}
