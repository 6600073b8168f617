use serde::Deserialize;

use super::{BoundingBox, Candidate, ClassOutputs, PostProcessOptions, PostProcessor, suppress};
use ocelli_error::ErrorKind;

const GOLDEN: &str = include_str!("../../tests/golden/postprocess/postprocess.json");

#[derive(Deserialize)]
struct Golden {
    nms: Vec<NmsCase>,
    pipeline: Vec<PipelineCase>,
}

#[derive(Deserialize)]
struct NmsCase {
    iou: f32,
    boxes: Vec<BoundingBox>,
    scores: Vec<f32>,
    keep: Vec<usize>,
}

#[derive(Clone, Deserialize)]
struct PipelineCase {
    width: u32,
    height: u32,
    threshold: f32,
    iou: f32,
    class_agnostic_iou: Option<f32>,
    logits: Vec<Vec<f32>>,
    boxes: Vec<Vec<[f32; 4]>>,
    presence: Option<Vec<f32>>,
    expected: Vec<Expected>,
}

#[derive(Clone, Deserialize)]
struct Expected {
    class_id: usize,
    query: usize,
    score: f32,
    #[serde(rename = "box")]
    bbox: [f32; 4],
}

fn golden() -> Golden {
    serde_json::from_str(GOLDEN).expect("the golden is JSON of this structure")
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn suppression_equals_torchvision() {
    let mut failures = Vec::new();
    for (index, case) in golden().nms.into_iter().enumerate() {
        let scored = case.boxes.iter().zip(&case.scores).enumerate();
        let mut candidates: Vec<Candidate> =
            scored.map(|(query, (&bbox, &score))| Candidate { class_id: 0, query, score, bbox }).collect();
        candidates.sort_unstable_by(Candidate::order);
        suppress(&mut candidates, case.iou, |candidate| candidate.bbox);
        let kept: Vec<usize> = candidates.iter().map(|candidate| candidate.query).collect();
        if kept != case.keep {
            failures.push(format!("case {index}, IoU {}: expected {:?}, got {kept:?}", case.iou, case.keep));
        }
    }
    report(&failures);
}

#[test]
fn results_equal_the_reference() {
    let mut failures = Vec::new();
    let limits = [None, Some(2), Some(20)];
    let cases = golden().pipeline.into_iter().enumerate();
    for ((index, case), limit) in cases.flat_map(|case| limits.map(|limit| (case.clone(), limit))) {
        let expected = &case.expected[..limit.unwrap_or(usize::MAX).min(case.expected.len())];
        let options = PostProcessOptions {
            confidence: case.threshold,
            nms: Some(case.iou),
            class_agnostic_nms: case.class_agnostic_iou,
            max_detections: limit,
            ..PostProcessOptions::default()
        };
        let mut processor = PostProcessor::new(options).expect("the golden's thresholds are valid");
        let mut found = Vec::new();
        processor.begin(case.width, case.height);
        for (class_id, logits) in case.logits.iter().enumerate() {
            let raw = ClassOutputs {
                class_id,
                label: "thing",
                logits,
                boxes: case.boxes[class_id].as_flattened(),
                presence: case.presence.as_ref().map_or(f32::INFINITY, |presence| presence[class_id]),
            };
            processor.push_class(&raw).expect("the golden's outputs are complete");
        }
        processor.finish_into(&mut found);
        if !same(&found, expected) {
            failures.push(format!("case {index}, limit {limit:?}: got {found:#?}"));
        }
    }
    report(&failures);
}

fn same(found: &[Candidate], expected: &[Expected]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| {
            let edges = found.bbox.to_xyxy().into_iter().zip(expected.bbox);
            (found.class_id, found.query) == (expected.class_id, expected.query)
                && (found.score - expected.score).abs() < 1e-6
                && edges.into_iter().all(|(a, b)| (a - b).abs() < 1e-3)
        })
}

/// Class 0 has queries of logit 2, 0 and -2; class 1 of 1, 3 and 0, with the boxes of the same places.
fn run(
    change: impl Fn(&mut PostProcessOptions),
    logits: [f32; 6],
    boxes: [[f32; 4]; 3],
) -> Vec<(usize, usize)> {
    let mut options = PostProcessOptions::default();
    change(&mut options);
    let mut processor = PostProcessor::new(options).expect("options of this test are valid");
    let mut found = vec![Candidate { class_id: 9, query: 9, score: 9.0, bbox: BoundingBox::default() }];
    processor.begin(100, 50);
    for (class_id, logits) in logits.chunks(3).enumerate() {
        let (boxes, presence) = (boxes.as_flattened(), f32::INFINITY);
        let raw = ClassOutputs { class_id, label: "thing", logits, boxes, presence };
        processor.push_class(&raw).expect("outputs of this test are complete");
    }
    processor.finish_into(&mut found);
    found.iter().map(|candidate| (candidate.class_id, candidate.query)).collect()
}

#[test]
fn options_select_candidates() {
    const LOGITS: [f32; 6] = [2.0, 0.0, -2.0, 1.0, 3.0, 0.0];
    const APART: [[f32; 4]; 3] = [[0.0, 0.0, 0.2, 0.2], [0.4, 0.4, 0.6, 0.6], [0.7, 0.7, 1.0, 1.0]];
    const SAME: [[f32; 4]; 3] = [[0.0, 0.0, 0.5, 0.5]; 3];
    const OUTSIDE: [[f32; 4]; 3] = [[-0.5, 0.1, -0.1, 0.3], [0.9, 0.9, 1.5, 1.5], [0.3, 0.3, 0.3, 0.8]];
    type Change = fn(&mut PostProcessOptions);
    type Case = (&'static str, Change, [f32; 6], [[f32; 4]; 3], &'static [(usize, usize)]);
    let cases: &[Case] = &[
        ("descending scores, then class", |_| (), LOGITS, APART, &[(1, 1), (0, 0), (1, 0), (0, 1), (1, 2)]),
        ("equal is not above", |o| o.confidence = 0.5, LOGITS, APART, &[(1, 1), (0, 0), (1, 0)]),
        ("nothing is kept", |o| o.confidence = 1.0, LOGITS, APART, &[]),
        (
            "a class's own threshold",
            |o| o.class_confidence = [(1, 0.9)].into(),
            LOGITS,
            APART,
            &[(1, 1), (0, 0), (0, 1)],
        ),
        ("the best of each class", |_| (), LOGITS, SAME, &[(1, 1), (0, 0)]),
        ("ties go by query", |_| (), [1.0; 6], SAME, &[(0, 0), (1, 0)]),
        ("no suppression", |o| o.nms = None, LOGITS, SAME, &[(1, 1), (0, 0), (1, 0), (0, 1), (1, 2)]),
        (
            "equal overlap is kept",
            |o| o.nms = Some(1.0),
            [1.0; 6],
            SAME,
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        ("across classes", |o| o.class_agnostic_nms = Some(0.5), LOGITS, SAME, &[(1, 1)]),
        ("at most two", |o| o.max_detections = Some(2), LOGITS, APART, &[(1, 1), (0, 0)]),
        ("at most one", |o| o.max_detections = Some(1), LOGITS, APART, &[(1, 1)]),
        ("boxes outside or without area", |_| (), LOGITS, OUTSIDE, &[(1, 1), (0, 1)]),
        (
            "certain and impossible",
            |_| (),
            [f32::INFINITY, f32::NEG_INFINITY, 100.0, -100.0, -1e30, f32::MIN],
            APART,
            &[(0, 0), (0, 2)],
        ),
    ];
    let mut failures = Vec::new();
    for &(name, change, logits, boxes, expected) in cases {
        let got = run(change, logits, boxes);
        if got != expected {
            failures.push(format!("{name}: expected {expected:?}, got {got:?}"));
        }
    }
    report(&failures);
}

#[test]
fn values_that_are_not_finite_are_an_error_that_names_the_class() {
    let good_boxes = [[0.1, 0.1, 0.4, 0.4]; 2].concat();
    let with_nan = |index: usize, values: &[f32]| {
        let mut values = values.to_vec();
        values[index] = f32::NAN;
        values
    };
    let logits = [1.0, -9.0];
    type Case<'a> = (&'a str, Vec<f32>, Vec<f32>, f32, ErrorKind, &'a str);
    let cases: &[Case<'_>] = &[
        ("logit", with_nan(0, &logits), good_boxes.clone(), 1.0, ErrorKind::Execution, "class 7 \"thing\""),
        ("presence", logits.into(), good_boxes.clone(), f32::NAN, ErrorKind::Execution, "presence"),
        ("box", logits.into(), with_nan(0, &good_boxes), 1.0, ErrorKind::Execution, "class 7 \"thing\""),
        ("logits short", vec![1.0; 1], good_boxes.clone(), 1.0, ErrorKind::Mismatch, "expected 4"),
        ("boxes short", logits.into(), vec![0.0; 7], 1.0, ErrorKind::Mismatch, "expected 8"),
    ];
    let mut processor = PostProcessor::new(PostProcessOptions::default()).expect("defaults are valid");
    let mut failures = Vec::new();
    for (name, logits, boxes, presence, kind, part) in cases {
        let raw = ClassOutputs { class_id: 7, label: "thing", logits, boxes, presence: *presence };
        processor.begin(10, 10);
        match processor.push_class(&raw) {
            Err(error) if error.kind() == *kind && error.to_string().contains(part) => {}
            other => failures.push(format!("{name}: expected {kind:?} with {part:?}, got {other:?}")),
        }
        let mut found = Vec::new();
        processor.finish_into(&mut found);
        if !found.is_empty() {
            failures.push(format!("{name}: {} candidates of the failed class were kept", found.len()));
        }
    }
    // A box of a query that is not kept does not matter.
    let boxes = with_nan(7, &good_boxes);
    let raw = ClassOutputs { class_id: 0, label: "thing", logits: &logits, boxes: &boxes, presence: 1.0 };
    processor.begin(10, 10);
    if let Err(error) = processor.push_class(&raw) {
        failures.push(format!("box of a dropped query: {error}"));
    }
    report(&failures);
}

#[test]
fn thresholds_outside_0_to_1_are_rejected() {
    type Change = fn(&mut PostProcessOptions, f32);
    let changes: &[(&str, Change)] = &[
        ("confidence", |o, value| o.confidence = value),
        ("class 3", |o, value| o.class_confidence = [(3, value)].into()),
        ("nms", |o, value| o.nms = Some(value)),
        ("class_agnostic_nms", |o, value| o.class_agnostic_nms = Some(value)),
    ];
    let mut failures = Vec::new();
    for &(name, change) in changes {
        for value in [-0.1, 1.5, 7.0, f32::NAN, f32::INFINITY] {
            let mut options = PostProcessOptions::default();
            change(&mut options, value);
            match PostProcessor::new(options) {
                Err(error)
                    if error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(name) => {}
                other => failures.push(format!("{name} {value}: got {other:?}")),
            }
        }
    }
    report(&failures);
}

#[test]
fn without_classes_or_queries_nothing_is_found() {
    let mut processor = PostProcessor::new(PostProcessOptions::default()).expect("defaults are valid");
    let mut found = Vec::new();
    for classes in [0, 2] {
        processor.begin(10, 10);
        for class_id in 0..classes {
            let raw = ClassOutputs { class_id, label: "thing", logits: &[], boxes: &[], presence: 1.0 };
            processor.push_class(&raw).expect("empty outputs are valid");
        }
        processor.finish_into(&mut found);
        assert_eq!(found, []);
    }
}
