//! Builds plans with the TensorRT for RTX that `OCELLI_TENSORRT` names.

use crate::models::{F32, I64, Model};
use ocelli_engines::tensorrt::{
    ComputeCapability, DimensionRange, PlanRequest, Product, TensorRt, TensorRtBuilder,
};
use ocelli_engines::{ErrorKind, Result};
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const ADA: ComputeCapability = ComputeCapability::new(8, 9);

fn tensorrt() -> TensorRt {
    TensorRt::load(None).unwrap_or_else(|error| panic!("{error}"))
}

/// A network with a matrix product and a sum, for any number of rows.
fn network() -> Vec<u8> {
    let model = Model {
        nodes: &[("MatMul", &["a", "weights"], "product"), ("Relu", &["product"], "positive")],
        inputs: &[("a", F32, "rows 3"), ("ids", I64, "rows 2")],
        outputs: &[("positive", F32, "rows 4"), ("doubled", I64, "rows 2")],
    };
    let nodes = [model.nodes, &[("Add", &["ids", "ids"] as &[&str], "doubled")]].concat();
    Model { nodes: &nodes, ..model }.encode()
}

/// A file with this content, in a folder of its own.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.onnx");
    fs::write(&path, bytes).expect("a file");
    (folder, path)
}

fn request() -> PlanRequest {
    let rows = DimensionRange { min: 1, optimal: 4, max: 16 };
    PlanRequest {
        targets: vec![ADA],
        dimensions: [("rows".to_owned(), rows)].into(),
        ..PlanRequest::default()
    }
}

fn builder<'b>(tensorrt: &TensorRt) -> TensorRtBuilder<'b> {
    TensorRtBuilder::new(tensorrt, request())
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn a_network_is_built_into_a_plan() -> Result<()> {
    let tensorrt = tensorrt();
    assert_eq!(tensorrt.product(), Product::TensorRtForRtx);
    assert!(tensorrt.version().major == 1, "{tensorrt:?}");

    let (_folder, path) = file(&network());
    let (mut phases, mut ends, mut deepest) = (0, 0, 0);
    let request = PlanRequest { workspace_bytes: Some(1 << 28), optimization_level: Some(2), ..request() };
    let plan = TensorRtBuilder::new(&tensorrt, request)
        .with_progress(|progress| {
            phases += usize::from(progress.step == 0);
            ends += usize::from(progress.step == progress.steps);
            deepest = deepest.max(progress.depth);
            ControlFlow::Continue(())
        })
        .build(&path)?;
    let spec: Vec<String> =
        plan.spec.inputs.iter().chain(&plan.spec.outputs).map(ToString::to_string).collect();
    let expected =
        ["a: f32[rows, 3]", "ids: i64[rows, 2]", "positive: f32[rows, 4]", "doubled: i64[rows, 2]"];
    assert_eq!(spec, expected);
    assert!(plan.bytes.len() > 1000, "{} bytes", plan.bytes.len());
    assert!(phases > 2 && phases == ends && deepest > 0, "{phases} phases, {ends} ends, {deepest} deep");

    // Loading again returns the same library.
    assert_eq!(format!("{:?}", TensorRt::load(None)?), format!("{tensorrt:?}"));
    Ok(())
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn a_build_that_fails_names_the_file_and_the_reason() {
    use ErrorKind::{Execution, InvalidArgument, InvalidData};
    type Change = fn(&mut PlanRequest);
    let as_is: Change = |_| ();
    let unknown = Model {
        nodes: &[("Relu", &["a"], "b"), ("Frobnicate", &["b"], "c")],
        inputs: &[("a", F32, "2 3")],
        outputs: &[("c", F32, "2 3")],
    };
    let nameless = Model {
        nodes: &[("Relu", &["a"], "b")],
        inputs: &[("a", F32, "? 3")],
        outputs: &[("b", F32, "? 3")],
    };
    let dynamic = Model {
        nodes: &[("Relu", &["a"], "b")],
        inputs: &[("a", F32, "columns 3")],
        outputs: &[("b", F32, "columns 3")],
    };
    let cases: [(&str, Vec<u8>, Change, ErrorKind, &[&str]); 8] = [
        ("an unknown operator", unknown.encode(), as_is, InvalidData, &["node 1 (Frobnicate)"]),
        ("a file that is not protobuf", vec![0xff; 64], as_is, InvalidData, &["cannot parse the ONNX file"]),
        ("an empty file", Vec::new(), as_is, InvalidData, &["no inputs or no outputs"]),
        (
            "a dimension without a name",
            nameless.encode(),
            as_is,
            InvalidData,
            &["`a`, dimension 0", "no name"],
        ),
        (
            "a missing range",
            dynamic.encode(),
            as_is,
            InvalidArgument,
            &["input `a`, dimension 0 is dynamic (`columns`) and has no range"],
        ),
        (
            "Hopper",
            network(),
            |request| request.targets.push(ComputeCapability::new(9, 0)),
            InvalidArgument,
            &["does not support compute capability 9.0: expected one of 7.5, 8.0, 8.6, 8.9, 12.0, 12.1"],
        ),
        (
            "a timing cache",
            network(),
            |request| request.timing_cache = Some("/tmp/times".into()),
            InvalidArgument,
            &["has no timing cache"],
        ),
        (
            "too little workspace",
            network(),
            |request| request.workspace_bytes = Some(1),
            Execution,
            &["workspace"],
        ),
    ];
    let tensorrt = tensorrt();
    let mut wrong = Vec::new();
    for (name, bytes, change, kind, parts) in cases {
        let (_folder, path) = file(&bytes);
        let mut request = request();
        change(&mut request);
        match TensorRtBuilder::new(&tensorrt, request).build(&path) {
            Ok(plan) => wrong.push(format!("{name}: built, {} bytes", plan.bytes.len())),
            Err(error) => {
                let text = error.to_string();
                let place = path.display().to_string();
                let whole = text.contains(&place) && parts.iter().all(|part| text.contains(part));
                if error.kind() != kind || !whole || text.contains('\n') {
                    wrong.push(format!("{name}: {error:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A truncated file is an error, never a crash.
#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn truncated_files_are_refused() {
    let tensorrt = tensorrt();
    let whole = network();
    let mut wrong = Vec::new();
    for length in (0..whole.len()).step_by(7) {
        let (_folder, path) = file(&whole[..length]);
        match builder(&tensorrt).build(&path) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {}
            Err(error) => wrong.push(format!("{length} bytes: {error:?}")),
            Ok(_) => wrong.push(format!("{length} bytes of {}: built", whole.len())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn a_build_is_cancelled_by_the_caller() {
    let tensorrt = tensorrt();
    let (folder, path) = file(&network());
    let mut wrong = Vec::new();
    for cancel_at in [1, 2, 3, 5, 8, 13, 21] {
        let mut reports = 0;
        let outcome = builder(&tensorrt)
            .with_progress(|_| {
                reports += 1;
                if reports >= cancel_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .build(&path);
        match outcome {
            Err(error) if error.kind() == ErrorKind::Cancelled => {}
            other => wrong.push(format!("cancelled at report {cancel_at}: {other:?}")),
        }
        if reports != cancel_at {
            wrong.push(format!("cancelled at report {cancel_at}: {reports} reports"));
        }
    }
    // A panic in the callback unwinds to the caller.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let build = builder(&tensorrt).with_progress(|progress| {
            assert!(progress.depth == 0, "the callback panicked");
            ControlFlow::Continue(())
        });
        build.build(&path).map(|_| ())
    }));
    let text = panicked.err().and_then(|payload| payload.downcast::<&str>().ok());
    assert_eq!(text.as_deref(), Some(&"the callback panicked"));
    // The library can still build.
    if let Err(error) = builder(&tensorrt).build(&path) {
        wrong.push(format!("afterwards: {error:?}"));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "only the model");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT) on a machine without NVIDIA's driver"]
fn without_a_target_a_build_needs_the_driver() {
    let (_folder, path) = file(&network());
    let error = TensorRtBuilder::new(&tensorrt(), PlanRequest::default())
        .build(&path)
        .map(|_| ())
        .expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("NVIDIA's driver is not installed"), "{error}");
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn external_weights_are_read() -> Result<()> {
    let tensorrt = tensorrt();
    let (folder, path) = file(&with_weights_beside("weights.bin"));
    let missing = builder(&tensorrt).build(&path).map(|_| ()).expect_err("an error");
    assert_eq!(missing.kind(), ErrorKind::InvalidData, "{missing}");
    assert!(missing.to_string().contains("weights.bin"), "{missing}");

    let weights: Vec<u8> = (0..12).flat_map(|n| (n as f32).to_le_bytes()).collect();
    fs::write(folder.path().join("weights.bin"), weights).expect("a file");
    let plan = builder(&tensorrt).build(&path)?;
    assert_eq!(plan.spec.outputs[0].to_string(), "b: f32[rows, 4]");
    Ok(())
}

/// `b = a · weights`, where 3×4 weights are external data; written field by field after `onnx.proto3`.
fn with_weights_beside(location: &str) -> Vec<u8> {
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(value.len()).expect("short");
        assert!(length < 0x80, "one byte of length");
        [&[number << 3 | 2, length], value].concat()
    }
    let text = |number: u8, value: &str| field(number, value.as_bytes());
    let entry = |key: &str, value: &str| field(13, &[text(1, key), text(2, value)].concat());
    let weights = [
        b"\x08\x03\x08\x04\x10\x01".to_vec(), // dims 3 and 4, f32
        text(8, "w"),
        entry("location", location),
        b"\x70\x01".to_vec(), // data_location EXTERNAL
    ]
    .concat();
    let node = [text(1, "a"), text(1, "w"), text(2, "b"), text(4, "MatMul")].concat();
    let value = |name: &str, columns: u8| {
        let dims = [field(1, &text(2, "rows")), field(1, &[0x08, columns])].concat();
        let tensor = [b"\x08\x01".to_vec(), field(2, &dims)].concat();
        [text(1, name), field(2, &field(1, &tensor))].concat()
    };
    let graph = [
        field(1, &node),
        text(2, "g"),
        field(5, &weights),
        field(11, &value("a", 3)),
        field(12, &value("b", 4)),
    ]
    .concat();
    // The graph's length takes two bytes.
    let length = [graph.len() as u8 | 0x80, (graph.len() >> 7) as u8];
    [b"\x08\x08\x42\x02\x10\x11\x3a".as_slice(), &length, &graph].concat()
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn a_process_loads_one_library_only() {
    let tensorrt = tensorrt();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("libtensorrt_rtx.so.1.7.1");
    fs::copy(tensorrt.path(), &copy).expect("a copy of the library");
    let error = TensorRt::load(Some(&copy)).map(|_| ()).expect_err("an error");
    let text = error.to_string();
    assert!(text.contains("can load only one") && text.contains(&copy.display().to_string()), "{text}");
    assert!(Path::new(tensorrt.path()).is_absolute());
}
