//! Builds behind the calls that are no library's.

use super::*;
use crate::tensorrt::calls::{Class, ParseError};
use crate::tensorrt::fake_calls::{Failure, FakeBuildCalls, PLAN, TIMES};
use std::fs;

const VERSION: Version = Version::new(11, 4, 0);

/// A file that is there, and options with ranges for both dynamic dimensions.
fn prepared() -> (tempfile::TempDir, PathBuf, Options) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let onnx = folder.path().join("model.onnx");
    fs::write(&onnx, b"").expect("a file");
    let range = |min, optimal, max| DimensionRange { min, optimal, max };
    let dimensions =
        [("classes", range(1, 4, 80)), ("tokens", range(1, 33, 64)), ("elsewhere", range(1, 1, 1))];
    let dimensions = dimensions.map(|(name, range)| (name.to_owned(), range)).into();
    (folder, onnx, Options { dimensions, ..Options::default() })
}

fn run(calls: &FakeBuildCalls, options: &Options, onnx: &Path) -> Result<Plan> {
    build(calls, Product::TensorRt, VERSION, options, None, onnx)
}

#[test]
fn a_plan_knows_what_it_was_built_of() {
    let (_folder, onnx, options) = prepared();
    let calls = FakeBuildCalls::new();
    let plan = run(&calls, &options, &onnx).expect("a plan");
    assert_eq!(plan.bytes(), PLAN);
    assert_eq!(plan.spec().inputs[0].to_string(), "features: f32[classes, tokens, 8]");
    assert_eq!(plan.spec().outputs[0].to_string(), "logits: f32[logits.0, 5]");
    assert_eq!(plan.dimensions().keys().collect::<Vec<_>>(), ["classes", "tokens"], "those that it has");
    let shape = ProfileShape {
        name: "features".into(),
        min: vec![1, 1, 8],
        optimal: vec![4, 33, 8],
        max: vec![80, 64, 8],
    };
    assert_eq!(calls.state().profiles, [vec![shape]]);
    assert!(calls.state().settings.is_empty());
    assert_eq!(calls.complaints(), [""; 0]);
}

#[test]
fn options_reach_the_configuration() {
    let (_folder, onnx, options) = prepared();
    let calls = FakeBuildCalls::new();
    let all = Options {
        workspace_bytes: Some(1 << 30),
        version_compatible: true,
        hardware_compatible: true,
        optimization_level: Some(5),
        ..options.clone()
    };
    run(&calls, &all, &onnx).expect("a plan");
    let settings = [
        Setting::WorkspaceBytes(1 << 30),
        Setting::VersionCompatible,
        Setting::HardwareCompatible,
        Setting::OptimizationLevel(5),
    ];
    assert_eq!(calls.state().settings, settings);

    // The driver is not needed where another GPU is named.
    let calls = FakeBuildCalls::failing(Failure::Driver);
    let targets = vec![ComputeCapability::new(8, 9), ComputeCapability::new(12, 0)];
    let options = Options { targets: targets.clone(), ..options };
    let plan = build(&calls, Product::TensorRtForRtx, Version::new(1, 7, 1), &options, None, &onnx);
    assert_eq!(plan.expect("a plan").targets(), targets);
    assert_eq!(calls.state().settings, [Setting::Targets(targets)]);
}

/// Every failure is an error that says what, where and why, and leaves nothing behind.
#[test]
fn failures_are_errors_with_their_reason() {
    use ErrorKind::{Execution, InvalidArgument, InvalidModel, Unavailable};
    let parse = |description: &str, node: i32, name: &str, operator: &str| ParseError {
        description: description.into(),
        node,
        node_name: name.into(),
        operator: operator.into(),
    };
    let unknown = parse("no importer for it", 7, "layer.0/Frobnicate", "Frobnicate");
    let nameless = parse("bad attribute", 3, "", "Pad");
    let file = parse("Failed to parse the ONNX model", -1, "", "");
    let tensor_of = |size: i64, name: Option<&str>, data_type: i32| {
        let names = vec![name.map(str::to_owned)];
        Some(NetworkTensor { name: "x".into(), data_type, sizes: vec![size], names })
    };
    let ready = FakeBuildCalls::failing;
    let with_inputs = FakeBuildCalls::with_inputs;
    let cases = [
        (ready(Failure::Driver), Unavailable, "cannot build, FILE: no NVIDIA GPU can be used: none"),
        (
            ready(Failure::Null(Class::Builder)),
            Unavailable,
            "cannot build, FILE: TensorRT made no builder: no memory for a builder",
        ),
        (
            ready(Failure::Null(Class::Config)),
            Unavailable,
            "cannot build, FILE: TensorRT made no configuration: no memory for a configuration",
        ),
        (
            ready(Failure::Null(Class::Network)),
            Unavailable,
            "cannot build, FILE: TensorRT made no network: no memory for a network",
        ),
        (
            ready(Failure::Null(Class::Parser)),
            Unavailable,
            "cannot build, FILE: TensorRT made no ONNX parser: no memory for a ONNX parser",
        ),
        (
            ready(Failure::Parse(vec![unknown, file.clone()])),
            InvalidModel,
            "cannot parse, FILE, node `layer.0/Frobnicate` (Frobnicate): no importer for it (and 1 more errors)",
        ),
        (
            ready(Failure::Parse(vec![nameless])),
            InvalidModel,
            "cannot parse, FILE, node 3 (Pad): bad attribute",
        ),
        (
            ready(Failure::Parse(vec![file])),
            InvalidModel,
            "cannot parse, FILE: Failed to parse the ONNX model (the parser said why to the log)",
        ),
        (ready(Failure::Parse(vec![])), InvalidModel, "cannot parse, FILE: the parser said why to the log"),
        (
            with_inputs(vec![None]),
            InvalidModel,
            "cannot build, FILE: the network has no inputs or no outputs",
        ),
        (with_inputs(vec![]), InvalidModel, "cannot build, FILE: the network has no inputs or no outputs"),
        (
            with_inputs(vec![tensor_of(-1, None, 0)]),
            InvalidModel,
            "cannot build, FILE: input `x`, dimension 0 is dynamic and has no name",
        ),
        (
            with_inputs(vec![tensor_of(-1, Some("boxes"), 0)]),
            InvalidArgument,
            "cannot build, FILE: dimension `boxes` (input `x`, dimension 0) is dynamic and has no range",
        ),
        (
            with_inputs(vec![tensor_of(3, None, 7)]),
            InvalidModel,
            "cannot build, FILE: `x` has elements of TensorRT's type 7, which no engine here takes",
        ),
        (
            ready(Failure::Setting),
            InvalidArgument,
            "cannot build, FILE: a workspace of 16 bytes refused: no such setting",
        ),
        (
            ready(Failure::Profile),
            InvalidArgument,
            "cannot build, FILE: the sizes of the inputs were refused: no such sizes",
        ),
        (ready(Failure::Build), Execution, "cannot build, FILE: not enough workspace for node `attention`"),
        (ready(Failure::EmptyPlan), Execution, "cannot build, FILE: TensorRT gave no reason"),
    ];
    let mut wrong = Vec::new();
    for (calls, kind, expected) in cases {
        let (_folder, onnx, options) = prepared();
        let options = Options { workspace_bytes: Some(16), ..options };
        let expected = expected.replace("FILE", &onnx.display().to_string());
        match run(&calls, &options, &onnx) {
            Ok(_) => wrong.push(format!("{expected}: but it was built")),
            Err(error) if (error.kind(), error.to_string()) != (kind, expected.clone()) => {
                wrong.push(format!("expected {kind:?} {expected}\n     got {error:?}"));
            }
            Err(_) => {}
        }
        wrong.extend(calls.complaints().into_iter().map(|complaint| format!("{expected}: {complaint}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong about the options is said before anything is made.
#[test]
fn options_that_make_no_sense_are_refused() {
    use Product::{TensorRt, TensorRtForRtx};
    let range = |min, optimal, max| {
        let range = DimensionRange { min, optimal, max };
        Options { dimensions: [("classes".to_owned(), range)].into(), ..Options::default() }
    };
    let target = |target| Options { targets: vec![target], ..Options::default() };
    let hopper = ComputeCapability::new(9, 0);
    let no_range = "expected least ≤ likely ≤ most";
    let cases = [
        (TensorRt, range(2, 1, 3), no_range),
        (TensorRt, range(1, 4, 3), no_range),
        (TensorRt, range(0, 0, 0), no_range),
        (TensorRt, range(1, 1, 1 << 40), no_range),
        (TensorRt, target(hopper), "TensorRT builds for the GPU that is present, not for a named one (9.0)"),
        (
            TensorRtForRtx,
            target(hopper),
            "TensorRT for RTX does not know compute capability 9.0; it knows 7.5, 8.0, 8.6, 8.9, 12.0, 12.1",
        ),
        (
            TensorRtForRtx,
            Options { timing_cache: Some("times".into()), ..Options::default() },
            "TensorRT for RTX has no timing cache (it compiles kernels when an engine first runs); leave it out",
        ),
        (
            TensorRtForRtx,
            Options { version_compatible: true, ..Options::default() },
            "TensorRT for RTX builds no plans for other versions; leave that out",
        ),
        (
            TensorRtForRtx,
            Options { hardware_compatible: true, ..Options::default() },
            "it builds one plan for all that are named",
        ),
        (
            TensorRt,
            Options { optimization_level: Some(6), ..Options::default() },
            "optimisation level 6: expected 0 to 5",
        ),
    ];
    let mut wrong = Vec::new();
    for (product, options, expected) in cases {
        let (_folder, onnx, _) = prepared();
        let calls = FakeBuildCalls::new();
        match build(&calls, product, VERSION, &options, None, &onnx) {
            Err(error)
                if error.kind() == ErrorKind::InvalidArgument && error.to_string().ends_with(expected) => {}
            other => wrong.push(format!("{options:?}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error =
        run(&FakeBuildCalls::new(), &Options::default(), Path::new("/nowhere/x.onnx")).expect_err("an error");
    assert_eq!(error.to_string(), "cannot parse, /nowhere/x.onnx: no such file");
    assert_eq!(error.kind(), ErrorKind::InvalidModel);
}

/// Whenever the caller stops it, nothing is written and nothing is left.
#[test]
fn a_build_can_be_stopped_at_every_report() {
    let mut reports = 0;
    let mut wrong = Vec::new();
    for stop_at in 1.. {
        let (folder, onnx, options) = prepared();
        let timing_cache = folder.path().join("times");
        let options = Options { timing_cache: Some(timing_cache.clone()), ..options };
        let calls = FakeBuildCalls::new();
        reports = 0;
        let progress: Progress<'_> = Box::new(|_: &BuildProgress<'_>| {
            reports += 1;
            if reports == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let built = build(&calls, Product::TensorRt, VERSION, &options, Some(progress), &onnx);
        wrong.extend(calls.complaints().into_iter().map(|complaint| format!("{stop_at}: {complaint}")));
        match built {
            Ok(_) => break,
            Err(error) => {
                let expected = format!("stopped while building, {}", onnx.display());
                if (error.kind(), error.to_string()) != (ErrorKind::Cancelled, expected) {
                    wrong.push(format!("{stop_at}: {error:?}"));
                }
                if timing_cache.exists() {
                    wrong.push(format!("{stop_at}: a timing cache was written"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Parsing begins and ends, two phases within each other begin and end, one has a step between.
    assert_eq!(reports, 7);
}

#[test]
fn measured_times_are_kept_and_read_where_they_fit() {
    // What lies there, what goes wrong, what is tried.
    let cases: [(&str, Option<&[u8]>, Option<Failure>, &[&[u8]]); 4] = [
        ("none yet", None, None, &[b""]),
        ("some", Some(b"old"), None, &[b"old"]),
        ("damaged", Some(b"old"), Some(Failure::DamagedTimingCache), &[b"old", b""]),
        ("another GPU's", Some(b"old"), Some(Failure::OtherTimingCache), &[b"old", b""]),
    ];
    let mut wrong = Vec::new();
    for (name, there, failure, tried) in cases {
        let (folder, onnx, options) = prepared();
        let path = folder.path().join("times");
        if let Some(bytes) = there {
            fs::write(&path, bytes).expect("a file");
        }
        let calls = failure.map_or_else(FakeBuildCalls::new, FakeBuildCalls::failing);
        let options = Options { timing_cache: Some(path.clone()), ..options };
        if let Err(error) = run(&calls, &options, &onnx) {
            wrong.push(format!("{name}: {error}"));
        }
        if calls.state().timing_caches != tried {
            wrong.push(format!("{name}: tried {:?}", calls.state().timing_caches));
        }
        if fs::read(&path).ok().as_deref() != Some(TIMES) {
            wrong.push(format!("{name}: the file holds {:?}", fs::read(&path)));
        }
        let files = fs::read_dir(folder.path()).expect("a folder").count();
        if files != 2 {
            wrong.push(format!("{name}: {files} files"));
        }
        wrong.extend(calls.complaints().into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    // A place where nothing can be written fails after the build, in words.
    let (folder, onnx, options) = prepared();
    let path = folder.path().join("nowhere/times");
    let options = Options { timing_cache: Some(path.clone()), ..options };
    let error = run(&FakeBuildCalls::new(), &options, &onnx).map(|_| ()).expect_err("an error").to_string();
    if !error.starts_with(&format!("cannot write the timing cache, {}: ", path.display())) {
        wrong.push(error);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
