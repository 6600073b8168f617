//! Plans that the real libraries refuse without a GPU. `OCELLI_TENSORRT` names the library: TensorRT for RTX with its
//! builder, or the lean runtime of TensorRT proper.

use super::*;
use crate::tensorrt::description::meaning;
use crate::tensorrt::{ComputeCapability, PlanRequest, Product, TensorRt, TensorRtBuilder};
use ocelli_error::ErrorKind;

/// An ONNX file of one node, `y = Relu(x)`, written field by field after `onnx.proto3`.
fn relu() -> Vec<u8> {
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, value.len() as u8], value].concat()
    }
    let tensor = |name: &str| {
        let dims = field(1, &[0x08, 4]);
        let tensor = [b"\x08\x01".to_vec(), field(2, &dims)].concat();
        [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
    };
    let node = [field(1, b"x"), field(2, b"y"), field(4, b"Relu")].concat();
    let graph = [field(1, &node), field(2, b"g"), field(11, &tensor("x")), field(12, &tensor("y"))].concat();
    [b"\x08\x08\x42\x02\x10\x11".to_vec(), field(7, &graph)].concat()
}

/// A plan may be dropped on a thread that no device is bound to.
#[test]
fn the_device_is_bound_before_anything_is_freed() {
    static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let note = |what| ORDER.lock().expect("no test panics while it writes").push(what);
    struct Freed;
    impl Drop for Freed {
        fn drop(&mut self) {
            ORDER.lock().expect("no test panics while it writes").push("freed");
        }
    }
    let plan = OnDevice { binding: Binding::new(move || note("bound")), objects: Freed };
    std::thread::spawn(move || drop(plan)).join().expect("it does not panic");
    assert_eq!(*ORDER.lock().expect("no test panics while it writes"), ["bound", "freed"]);
}

#[test]
#[ignore = "needs OCELLI_TENSORRT, and no NVIDIA driver"]
fn without_a_driver_plans_are_refused_with_the_reason() {
    let tensorrt = TensorRt::load(None).expect("OCELLI_TENSORRT names a library");
    // Without a driver TensorRT proper has no runtime; TensorRT for RTX has one, which reads a plan's header.
    let is_rtx = tensorrt.product() == Product::TensorRtForRtx;
    let whole = if is_rtx {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let onnx = folder.path().join("relu.onnx");
        std::fs::write(&onnx, relu()).expect("it can be written");
        let request = PlanRequest { targets: vec![ComputeCapability::new(8, 9)], ..PlanRequest::default() };
        let builder = TensorRtBuilder::new(&tensorrt, request);
        builder.build(&onnx).expect("it is built").bytes
    } else {
        vec![0x5A; 100_000]
    };
    let mut changed = whole.clone();
    changed[..64].fill(0x5A);
    let cases = [
        ("a few bytes", &b"not a plan"[..], "it is truncated, or not a plan"),
        ("zeros", &[0; 100_000], "it is not a plan of this TensorRT"),
        ("an overwritten header", &changed, "it is not a plan of this TensorRT"),
        ("half of a plan", &whole[..whole.len() / 2], "it has the wrong length"),
        ("a plan", &whole, "NVIDIA's driver is missing, or too old for this TensorRT"),
    ];
    let mut wrong = Vec::new();
    for (case, bytes, expected) in cases {
        let Err(error) = LoadedPlan::deserialize(tensorrt.run_functions(), bytes, Binding::new(|| {})) else {
            wrong.push(format!("{case}: loaded"));
            continue;
        };
        let text = error.to_string();
        let fits = if is_rtx {
            error.kind() == ErrorKind::InvalidData && meaning(&text) == expected
        } else {
            error.kind() == ErrorKind::Unavailable
                && text.contains("CUDA initialization failure with error: 35")
        };
        if !fits || text.lines().count() != 1 {
            wrong.push(format!("{case}: expected {expected:?}, got {error:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
