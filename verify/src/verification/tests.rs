use ocelli_engines::Tensor;

use super::detections::DetectionComparison;
use super::{Input, Limits, Output, OutputComparison, Pass, Pixels, cosine, is_finite};

use ocelli::image::Image;
use ocelli::postprocess::{ClassOutputs, PostProcessOptions, PostProcessor};
use ocelli::{Detection, model::ModelGraph};
use ocelli_export::contract::tensor;

#[test]
fn cosines_of_vectors() {
    let huge = f32::MAX;
    let cases: [(&[f32], &[f32], f64); 7] = [
        (&[1.0, 2.0], &[2.0, 4.0], 1.0),
        (&[1.0, 0.0], &[0.0, 1.0], 0.0),
        (&[1.0, -1.0], &[-1.0, 1.0], -1.0),
        (&[0.0, 0.0], &[0.0, 0.0], 1.0),
        (&[0.0, 0.0], &[1.0, 0.0], 0.0),
        (&[huge, huge], &[huge, huge], 1.0),
        (&[1.0, 1.0], &[1.0, 0.0], std::f64::consts::FRAC_1_SQRT_2),
    ];
    for (a, b, expected) in cases {
        let found = cosine(a, b);
        assert!((found - expected).abs() < 1e-12, "{a:?} and {b:?}: {found}, expected {expected}");
    }
    assert!(cosine(&[f32::NAN], &[1.0]).is_nan() || cosine(&[f32::NAN], &[1.0]) == 0.0);
}

#[test]
fn values_that_are_not_finite_are_noticed() {
    for (value, finite) in [(0.0, true), (f32::MAX, true), (f32::INFINITY, false), (f32::NAN, false)] {
        let tensor = Tensor::f32(&[2], vec![1.0, value]).expect("it fits");
        assert_eq!(is_finite(&tensor), finite, "{value}");
    }
}

#[test]
fn wrong_outputs_are_refused_with_a_reason() {
    let ours = vec![3.0, 4.0, 0.0, 1.0];
    // The output, the candidate's values, the expected reason.
    let cases: [(&'static str, Vec<f32>, Option<&str>); 8] = [
        ("fpn_2", ours.clone(), None),
        ("fpn_2", vec![3.0001, 4.0, 0.0, 1.0], None),
        ("fpn_2", vec![4.0, 3.0, 0.0, 1.0], Some("the cosine is")),
        ("fpn_2", vec![3.0, 4.0, 0.0, f32::NAN], Some("1 of 4 values are infinite or NaN")),
        ("fpn_2", vec![f32::INFINITY, 4.0, f32::NAN, 1.0], Some("2 of 4 values")),
        ("fpn_2", vec![3.0, 4.0], Some("its shape is [2], expected [4]")),
        ("boxes", vec![4.0, 3.0, 0.0, 1.0], None),
        ("boxes", vec![4.0, f32::NAN, 0.0, 1.0], Some("1 of 4 values")),
    ];
    let mut wrong = Vec::new();
    for (name, theirs, expected) in cases {
        let tensor = |values: &[f32]| Tensor::f32(&[values.len()], values.to_vec()).expect("it fits");
        let (a, b) = (tensor(&ours), tensor(&theirs));
        let mut comparison = OutputComparison::new(Limits::default());
        comparison.add("scene 3", ModelGraph::Backbone, name, &a, &b);
        let failures = comparison.failures;
        let said = failures.first().map(|failure| format!("{} {}", failure.input, failure.why));
        let fits = match (expected, &said) {
            (None, None) => true,
            (Some(part), Some(said)) => said.starts_with("scene 3") && said.contains(part),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{name} {theirs:?}: expected {expected:?}, came {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One query of a class: score and box in 0..1.
type Query = (f32, [f32; 4]);

const LEFT: [f32; 4] = [0.1, 0.1, 0.3, 0.3];
const RIGHT: [f32; 4] = [0.6, 0.6, 0.9, 0.9];

const SIZE: (u32, u32) = (100, 200);

/// The outputs of an encoder-decoder with these queries for one class of presence 1, and their detections.
fn pass(queries: &[Query]) -> Pass {
    let logit = |score: f32| (score / (1.0 - score)).ln();
    let count = queries.len();
    let logits: Vec<f32> = queries.iter().map(|query| logit(query.0)).collect();
    let boxes: Vec<f32> = queries.iter().flat_map(|query| query.1).collect();
    let raw = ClassOutputs { class_id: 0, label: "person", logits: &logits, boxes: &boxes, presence: 40.0 };
    let mut post = PostProcessor::new(PostProcessOptions::default()).expect("the defaults are valid");
    let mut kept = Vec::new();
    post.begin(SIZE.0, SIZE.1);
    post.push_class(&raw).expect("all values are finite");
    post.finish_into(&mut kept);
    let detections = kept.iter().map(|one| Detection::from_candidate(one, "person".into())).collect();
    let output = |name, shape: &[usize], values: Vec<f32>| Output {
        graph: ModelGraph::EncoderDecoder,
        name,
        tensor: Tensor::f32(shape, values).expect("it fits"),
    };
    let outputs = vec![
        output(tensor::LOGITS, &[1, count], logits.clone()),
        output(tensor::BOXES, &[1, count, 4], boxes.clone()),
        output(tensor::PRESENCE, &[1, 1], vec![40.0]),
    ];
    Pass { outputs, detections, ..Pass::default() }
}

#[test]
fn detections_match_or_are_borderline_or_fail() {
    let moved = |edges: [f32; 4], by: f32| edges.map(|edge| edge + by);
    let low = [0.11, 0.1, 0.3, 0.3];
    // Reference, candidate, the expected reason, borderline cases. The score threshold is 0.3, suppression starts at 0.7.
    type Case = (&'static str, Vec<Query>, Vec<Query>, Option<&'static str>, usize);
    let cases: Vec<Case> = vec![
        ("the same", vec![(0.8, LEFT), (0.7, RIGHT)], vec![(0.8, LEFT), (0.7, RIGHT)], None, 0),
        ("a little off", vec![(0.8, LEFT)], vec![(0.79, moved(LEFT, 0.005))], None, 0),
        ("a score off", vec![(0.8, LEFT)], vec![(0.75, LEFT)], Some("logits: a score differs by 0.05"), 0),
        (
            "a box off",
            vec![(0.8, LEFT)],
            vec![(0.8, moved(LEFT, 0.012))],
            Some("boxes: an edge of a box differs by 0.0120 of the side (\"person\", query 0)"),
            0,
        ),
        (
            "a box off, with a low score",
            vec![(0.8, LEFT), (0.1, LEFT)],
            vec![(0.8, LEFT), (0.1, RIGHT)],
            None,
            0,
        ),
        (
            "a box off among the best queries, as no score is near the threshold",
            vec![(0.1, LEFT)],
            vec![(0.1, RIGHT)],
            Some("boxes: an edge of a box differs"),
            0,
        ),
        ("just below the threshold", vec![(0.305, LEFT)], vec![(0.295, LEFT)], None, 1),
        ("just above the threshold", vec![(0.295, LEFT)], vec![(0.305, LEFT)], None, 1),
        (
            "lost",
            vec![(0.8, LEFT), (0.7, RIGHT)],
            vec![(0.8, LEFT), (0.01, RIGHT)],
            Some("detections: the reference keeps \"person\" 0.700"),
            0,
        ),
        (
            "found in addition",
            vec![(0.8, LEFT), (0.01, RIGHT)],
            vec![(0.8, LEFT), (0.7, RIGHT)],
            Some("detections: the candidate keeps \"person\" 0.700"),
            0,
        ),
        // The other of two overlapping queries has the higher score now: the same object is detected.
        ("swapped", vec![(0.61, LEFT), (0.6, low)], vec![(0.6, LEFT), (0.61, low)], None, 0),
        // Two boxes that overlap by 0.70: on one side the second is suppressed, on the other it is not.
        (
            "suppressed on one side only",
            vec![(0.8, [0.1, 0.1, 0.3, 0.3]), (0.6, [0.1, 0.1, 0.3, 0.2401])],
            vec![(0.8, [0.1, 0.1, 0.3, 0.3]), (0.6, [0.1, 0.1, 0.3, 0.2399])],
            None,
            1,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, ours, theirs, expected, borderline) in cases {
        let image =
            Image::from_rgb8(SIZE.0, SIZE.1, vec![0; (SIZE.0 * SIZE.1 * 3) as usize]).expect("it fits");
        let input =
            Input::new("scene 3".into(), Pixels::Scene(image), &[0], 1).expect("a class of the vocabulary");
        let mut comparison = DetectionComparison::new(PostProcessOptions::default(), Limits::default());
        comparison.add(&input, &pass(&ours), &pass(&theirs)).expect("all values are finite");
        let (report, failures) = (comparison.report, comparison.failures);
        let said: Vec<_> =
            failures.iter().map(|failure| format!("{}: {}", failure.output, failure.why)).collect();
        let fits = match expected {
            None => said.is_empty(),
            Some(part) => said.iter().any(|one| one.contains(part)),
        };
        if !fits || report.borderline != borderline {
            wrong.push(format!(
                "{what}: expected {expected:?} and {borderline}, came {said:?} and {report:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
