//! Options and dimensions. Tests of builds need the library: see `tests/tensorrt.rs`.

use super::*;
use crate::tensor::ElementType;
use crate::tensorrt::ComputeCapability;

#[test]
fn invalid_options_are_refused() {
    use Product::{TensorRt, TensorRtForRtx};
    let range = |min, optimal, max| {
        let range = DimensionRange { min, optimal, max };
        PlanRequest { dimensions: [("classes".to_owned(), range)].into(), ..PlanRequest::default() }
    };
    let target = |target| PlanRequest { targets: vec![target], ..PlanRequest::default() };
    let hopper = ComputeCapability::new(9, 0);
    let invalid = "dimension `classes`: expected min ≤ optimal ≤ max, from 1 to 2^31 - 1, got ";
    let cases = [
        (TensorRt, range(2, 1, 3), format!("{invalid}2, 1, 3")),
        (TensorRt, range(1, 4, 3), format!("{invalid}1, 4, 3")),
        (TensorRt, range(0, 0, 0), format!("{invalid}0, 0, 0")),
        (TensorRt, range(1, 1, 1 << 40), format!("{invalid}1, 1, 1099511627776")),
        (TensorRt, target(hopper), "TensorRT builds for the GPU of this machine only, not for target 9.0".into()),
        (
            TensorRtForRtx,
            target(hopper),
            "TensorRT for RTX does not support compute capability 9.0: expected one of 7.5, 8.0, 8.6, 8.9, 12.0, 12.1"
                .into(),
        ),
        (
            TensorRtForRtx,
            PlanRequest { timing_cache: Some("times".into()), ..PlanRequest::default() },
            "TensorRT for RTX has no timing cache: it compiles kernels when an engine first runs".into(),
        ),
        (
            TensorRtForRtx,
            PlanRequest { version_compatible: true, ..PlanRequest::default() },
            "TensorRT for RTX does not build version-compatible plans".into(),
        ),
        (
            TensorRtForRtx,
            PlanRequest { hardware_compatible: true, ..PlanRequest::default() },
            "TensorRT for RTX does not build hardware-compatible plans; name several targets for one plan instead"
                .into(),
        ),
        (
            TensorRt,
            PlanRequest { optimization_level: Some(6), ..PlanRequest::default() },
            "optimisation level 6: expected 0 to 5".into(),
        ),
    ];
    let mut wrong = Vec::new();
    for (product, options, expected) in cases {
        match check(product, &options) {
            Err(error)
                if (error.kind(), error.to_string()) == (ErrorKind::InvalidArgument, expected.clone()) => {}
            other => wrong.push(format!("{options:?}: expected {expected:?}, got {other:?}")),
        }
    }
    let all = PlanRequest {
        workspace_bytes: Some(1 << 30),
        timing_cache: Some("times".into()),
        version_compatible: true,
        hardware_compatible: true,
        optimization_level: Some(5),
        ..range(0, 33, 64)
    };
    wrong.extend(check(TensorRt, &all).err().map(|error| error.to_string()));
    let two = PlanRequest {
        targets: vec![ComputeCapability::new(8, 9), ComputeCapability::new(12, 0)],
        ..PlanRequest::default()
    };
    wrong.extend(check(TensorRtForRtx, &two).err().map(|error| error.to_string()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dynamic_dimensions_need_a_name_and_a_range() {
    let range = DimensionRange { min: 1, optimal: 4, max: 80 };
    let known: BTreeMap<_, _> = ["classes", "elsewhere"].map(|name| (name.to_owned(), range)).into();
    let input = |dims: &[Dim]| [TensorSpec::new("x", ElementType::F32, dims.to_vec())];
    let cases = [
        (input(&[Dim::named("classes"), Dim::Fixed(3)]), Ok(vec!["classes"])),
        (input(&[Dim::Fixed(3)]), Ok(vec![])),
        (
            input(&[Dim::Fixed(3), Dim::named("")]),
            Err((ErrorKind::InvalidData, "input `x`, dimension 1 is dynamic and has no name")),
        ),
        (
            input(&[Dim::named("boxes")]),
            Err((ErrorKind::InvalidArgument, "input `x`, dimension 0 is dynamic (`boxes`) and has no range")),
        ),
    ];
    for (inputs, expected) in cases {
        match (ranges(&inputs, &known), expected) {
            (Ok(found), Ok(names)) => assert_eq!(found.keys().collect::<Vec<_>>(), names, "{inputs:?}"),
            (Err(error), Err((kind, text))) => assert_eq!((error.kind(), &*error.to_string()), (kind, text)),
            (found, expected) => panic!("{inputs:?}: expected {expected:?}, got {found:?}"),
        }
    }
}
