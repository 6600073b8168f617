//! The comparison of two models accepts small differences and refuses large ones, with ONNX Runtime on both sides.
//!
//! Needs ONNX Runtime; `make setup` installs it.

mod candidates;

use std::path::Path;

use self::candidates::{builtin, disturbed_engines, disturbed_weights, engine};
use ocelli::export::contract::{Precision, tensor};
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{ErrorKind, Model, model::ModelGraph};
use ocelli_engines::Tensor;
use ocelli_verify::{Candidate, Limits, Verification, VerificationOptions, VerificationReport};

/// The default options with fewer inputs.
fn options() -> VerificationOptions {
    VerificationOptions { scenes: 4, random_inputs: 1, ..VerificationOptions::default() }
}

fn verification(model: &Model, options: VerificationOptions) -> Verification {
    Verification::of_reference(model, &engine(), options, &mut |_| Ok(())).expect("the reference runs")
}

fn check(verification: &Verification, candidate: &Candidate<'_>) -> VerificationReport {
    verification.check(candidate, &mut |_| Ok(())).expect("the candidate runs")
}

/// The table, for the message of a failing test.
fn table(report: &VerificationReport) -> String {
    let mut text = Vec::new();
    report.write_table(&mut text).expect("writing to memory does not fail");
    String::from_utf8(text).expect("the table is UTF-8")
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_model_agrees_with_itself() {
    let (_folder, model) = builtin(&ExportOptions::default());
    let graphs = ModelGraph::all_of(model.manifest());
    let verification = verification(&model, VerificationOptions { graphs, ..options() });
    let mut steps = Vec::new();
    let engine = engine();
    let report = verification.check(&Candidate::of_model(&model, &engine), &mut |step| {
        steps.push((step.done, step.total, step.reference));
        Ok(())
    });
    let report = report.expect("it runs");
    assert!(report.accepted(), "{}", table(&report));
    assert_eq!(steps.first(), Some(&(0, 10, false)));
    assert_eq!(steps.last(), Some(&(9, 10, false)));
    let names: Vec<_> = report.outputs.iter().map(|output| output.output.as_str()).collect();
    for name in [
        tensor::TEXT_FEATURES,
        tensor::FPN[0],
        tensor::FPN[1],
        tensor::FPN[2],
        tensor::IMAGE_PROMPT,
        tensor::EXEMPLAR_FEATURES,
        tensor::LOGITS,
        tensor::BOXES,
        tensor::PRESENCE,
        tensor::QUERIES,
        tensor::ENCODED,
        tensor::MASKS,
        tensor::SEMANTIC,
    ] {
        assert!(names.contains(&name), "{name} is not compared: {names:?}");
    }
    // Chunks of other sizes sum in another order.
    assert!(report.outputs.iter().all(|output| output.cosine > 1.0 - 1e-6), "{}", table(&report));
    let found = &report.detections;
    assert!(found.kept_by_reference >= 8, "{}", table(&report));
    assert_eq!((found.matched, found.borderline), (found.kept_by_reference, 0), "{}", table(&report));
    let json = serde_json::to_value(report.summary()).expect("a summary is plain data");
    assert!(json["cosine"]["fpn_2"].as_f64().is_some_and(|cosine| cosine > 0.999), "{json}");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn disturbed_weights_are_refused_and_a_little_noise_is_accepted() {
    let (_folder, model) = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let verification = verification(&model, options());
    let engine = engine();
    // The disturbed tensors, the amplitude, and the output that fails first.
    let cases = [
        ("vision_encoder", 0.3, Some(tensor::FPN[2])),
        ("detr_decoder", 0.5, Some(tensor::LOGITS)),
        // The size of rounding errors in half precision.
        ("", 5e-4, None),
        ("", 2e-3, None),
    ];
    let mut wrong = Vec::new();
    for (tensors, amplitude, expected) in cases {
        let (_folder, other) = disturbed_weights(tensors, amplitude);
        let report = check(&verification, &Candidate::of_model(&other, &engine));
        let first = report.failures.first();
        let fits = match expected {
            None => report.accepted() && report.outputs.iter().any(|output| output.cosine < 1.0),
            Some(output) => {
                first.is_some_and(|first| first.output == output)
                    && report.failures.iter().any(|failure| failure.input.starts_with("scene "))
                    && report.verdict().starts_with("refused: ")
                    && report.verdict().contains(output)
            }
        };
        if !fits {
            wrong.push(format!("{tensors} by {amplitude}: expected {expected:?}, got\n{}", table(&report)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn failures_name_the_replaced_graph() {
    let (_folder, model) = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let verification = verification(&model, options());
    let (_other_folder, other) = disturbed_weights("", 0.3);
    let engine = engine();
    for (graph, wrong, right) in [
        (ModelGraph::Backbone, tensor::FPN[2], None),
        (ModelGraph::EncoderDecoder, tensor::LOGITS, Some(tensor::FPN[2])),
    ] {
        let report =
            check(&verification, &Candidate { model: &other, factory: &engine, graphs: vec![graph] });
        assert!(report.failures.iter().any(|failure| failure.output == wrong), "{}", table(&report));
        let of =
            |name: &str| report.outputs.iter().find(|output| output.output == name).map(|one| one.cosine);
        if let Some(right) = right {
            let cosine = of(right).expect("it is compared");
            assert!(cosine > 1.0 - 1e-12, "the reference ran it: {}", table(&report));
        }
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn wrong_outputs_are_refused_with_the_output_and_the_input() {
    let (_folder, model) = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let verification = verification(&model, options());
    type Change = fn(&str, &mut Tensor);
    // What the candidate does to its outputs, and the parts of the expected failure.
    let cases: [(&str, Change, &[&str]); 5] = [
        (
            "NaN in features",
            |name, tensor| {
                if name == tensor::FPN[2] {
                    tensor.as_mut_slice::<f32>().expect("it is f32")[17] = f32::NAN;
                }
            },
            &["backbone, fpn_2, random input 0: 1 of ", "infinite or NaN"],
        ),
        (
            "infinity in boxes",
            |name, tensor| {
                if name == tensor::BOXES {
                    tensor.as_mut_slice::<f32>().expect("it is f32")[0] = f32::INFINITY;
                }
            },
            &["encoder_decoder, boxes, random input 0: ", "infinite or NaN"],
        ),
        (
            "boxes moved by 0.02",
            |name, tensor| {
                if name == tensor::BOXES {
                    tensor
                        .as_mut_slice::<f32>()
                        .expect("it is f32")
                        .iter_mut()
                        .for_each(|edge| *edge += 0.02);
                }
            },
            &["encoder_decoder, boxes, scene ", "0.0200 of the side", "at most 0.01"],
        ),
        (
            "classes that are never present",
            |name, tensor| {
                if name == tensor::PRESENCE {
                    tensor.as_mut_slice::<f32>().expect("it is f32").fill(-9.0);
                }
            },
            &["encoder_decoder, detections, scene ", "the reference keeps", "the candidate does not"],
        ),
        (
            "queries in another order",
            |name, tensor| {
                if name == tensor::LOGITS {
                    tensor.as_mut_slice::<f32>().expect("it is f32").reverse();
                }
            },
            &["encoder_decoder, logits, scene ", "a score differs by"],
        ),
    ];
    let mut wrong = Vec::new();
    for (what, change, expected) in cases {
        let factory = disturbed_engines(change);
        let report = check(&verification, &Candidate::of_model(&model, &factory));
        let said = table(&report);
        let listed: Vec<_> = report
            .failures
            .iter()
            .map(|one| format!("{}, {}, {}: {}", one.graph, one.output, one.input, one.why))
            .collect();
        if report.accepted()
            || !listed.iter().any(|line| expected.iter().all(|part| line.contains(part)))
            || !said.contains("refused")
        {
            wrong.push(format!("{what}: expected {expected:?}, got {listed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn eight_bits_pass_the_default_limits_and_fail_stricter_ones() {
    let (_folder, model) = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let int8 = ExportOptions { detection_only: true, precision: Precision::Int8, ..ExportOptions::default() };
    let (_int8_folder, int8) = builtin(&int8);
    let engine = engine();
    let report = check(&verification(&model, options()), &Candidate::of_model(&int8, &engine));
    // The default limits accept this cosine.
    assert!(report.accepted(), "{}", table(&report));
    let least = report.outputs.iter().filter(|output| output.limited).map(|output| output.cosine);
    let least = least.fold(1.0, f64::min);
    assert!((0.999..0.99999).contains(&least), "{}", table(&report));
    // With stricter limits, the verdict has the output and the input.
    let limits = Limits { min_cosine: 0.99999, max_score_difference: 0.001, ..Limits::default() };
    let strict = verification(&model, VerificationOptions { limits, ..options() });
    let report = check(&strict, &Candidate::of_model(&int8, &engine));
    let verdict = report.verdict();
    assert!(verdict.starts_with("refused: ") && verdict.contains("the cosine is 0.9999"), "{verdict}");
    assert!(report.failures.iter().any(|one| one.why.contains("a score differs by")), "{}", table(&report));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn random_weights_are_compared_without_detections() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parity/plain");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let exported = folder.path().join("exported");
    let checkpoint = Checkpoint::open(&golden).expect("the golden is complete");
    export(&checkpoint, &ExportOptions::default(), &exported, |_| Ok(())).expect("it exports");
    let model = Model::open(&exported).expect("it was just exported");
    let options = VerificationOptions { confidence: Some(0.999), ..options() };
    let (verification, engine) = (verification(&model, options), engine());
    let report = check(&verification, &Candidate::of_model(&model, &engine));
    assert!(report.accepted(), "{}", table(&report));
    assert_eq!(report.detections.kept_by_reference, 0);
    assert!(
        report.detections.compared_queries > 0,
        "the best queries are compared if no score is near the threshold"
    );
    assert!(report.verdict().contains("no detection to compare"), "{}", report.verdict());

    let (_folder, other) = builtin(&ExportOptions::default());
    let outcome = verification.check(&Candidate::of_model(&other, &engine), &mut |_| Ok(()));
    let error = outcome.expect_err("the sizes differ");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("imgsz is"), "{error}");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn invalid_options_are_refused_and_an_error_of_progress_ends_it() {
    let (_folder, model) = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let cases = [
        (VerificationOptions { scenes: 0, random_inputs: 0, ..options() }, "nothing to compare"),
        (VerificationOptions { max_classes: 0, ..options() }, "nothing to compare"),
        (
            VerificationOptions { limits: Limits { min_cosine: f64::NAN, ..Limits::default() }, ..options() },
            "min_cosine",
        ),
        (
            VerificationOptions {
                limits: Limits { max_box_difference: -1.0, ..Limits::default() },
                ..options()
            },
            "max_box_difference",
        ),
        (VerificationOptions { graphs: vec![ModelGraph::MaskHead], ..options() }, "has no such graph"),
    ];
    for (options, part) in cases {
        let outcome = Verification::of_reference(&model, &engine(), options, &mut |_| Ok(()));
        let error = outcome.err().unwrap_or_else(|| panic!("{part}: it was accepted"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let stop = || ocelli::Error::new(ErrorKind::Cancelled, "enough");
    let outcome = Verification::of_reference(&model, &engine(), options(), &mut |step| match step.done {
        0..2 => Ok(()),
        _ => Err(stop()),
    });
    assert_eq!(outcome.err().map(|e| e.kind()), Some(ErrorKind::Cancelled));
}
