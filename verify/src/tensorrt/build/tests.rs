use serde_json::json;

use super::*;
use ocelli::tensorrt::sample::Sample;

#[test]
fn options_that_cannot_work_are_refused() {
    let sample = Sample::new(&json!({}));
    let cases = [
        (BuildOptions { max_classes: 0, ..BuildOptions::default() }, "max_classes is 0"),
        (
            BuildOptions {
                plan: PlanRequest { workspace_bytes: Some(0), ..PlanRequest::default() },
                ..BuildOptions::default()
            },
            "workspace_bytes is 0",
        ),
        (BuildOptions { graphs: vec![ModelGraph::MaskHead], ..BuildOptions::default() }, "has no mask_head"),
    ];
    for (options, part) in cases {
        let error = graphs_to_build(&sample.model, &options).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let fused = Sample::new(&json!({ "target": "onnxruntime" }));
    let error = check_target(&fused.model).expect_err("it has fused operators");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("with the target tensorrt"), "{error}");
    check_target(&sample.model).expect("it was exported for TensorRT");
}

#[test]
fn existing_engines_are_replaced_only_with_force() {
    let sample = Sample::new(&json!({}));
    let (file, new) = (sample.path("x.engine"), sample.path("new.engine"));
    fs::write(&file, "x").expect("it can be written");
    check_place(&new, false).expect("it does not exist");
    check_place(&file, true).expect("it may be replaced");
    for (path, force, part) in
        [(&file, false, "x.engine: it exists already"), (&sample.path("model"), true, "it is a folder")]
    {
        let error = check_place(path, force).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn graphs_are_built_in_the_order_they_run_and_a_split_backbone_as_its_halves() {
    use ModelGraph::{Backbone, BackboneFirst, BackboneSecond, EncoderDecoder, TextEncoder};
    let cases = [
        (json!(null), vec![], vec![Backbone, EncoderDecoder]),
        (json!(null), vec![EncoderDecoder, TextEncoder, EncoderDecoder], vec![TextEncoder, EncoderDecoder]),
        (json!(3), vec![], vec![BackboneFirst, BackboneSecond, EncoderDecoder]),
        (json!(3), vec![Backbone], vec![BackboneFirst, BackboneSecond]),
    ];
    for (split, graphs, expected) in cases {
        let sample = Sample::new(&json!({ "split_block": split }));
        let options = BuildOptions { graphs: graphs.clone(), ..BuildOptions::default() };
        assert_eq!(
            graphs_to_build(&sample.model, &options).expect("it has them"),
            expected,
            "{split}, {graphs:?}"
        );
    }
}

#[test]
fn dimensions_are_those_that_the_detector_can_ask_for() {
    let options = BuildOptions { max_classes: 3, max_exemplars: 2, ..BuildOptions::default() };
    // The prompts of a model with a CLS token always have it; text prompts have it only with exemplars.
    for (prompting, tokens) in [("official", (3, 3, 5)), ("text", (2, 2, 5))] {
        let sample = Sample::new(&json!({ "prompting": prompting }));
        let found = dimensions(ModelGraph::EncoderDecoder, sample.model.manifest(), &options);
        let range = |(min, optimal, max)| DimensionRange { min, optimal, max };
        assert_eq!(found[dim::CLASSES], range((1, 3, 3)), "{prompting}");
        assert_eq!(found[dim::PROMPT_TOKENS], range(tokens), "{prompting}");
        assert!(dimensions(ModelGraph::Backbone, sample.model.manifest(), &options).is_empty());
    }
}

#[test]
fn a_sidecar_describes_the_model_and_the_library() {
    let sample = Sample::new(&json!({}));
    let library = ocelli::tensorrt::sample::library();
    let range = DimensionRange { min: 1, optimal: 3, max: 3 };
    let entry = FileEntry { sha256: "ff".into(), bytes: 7 };
    let dimensions = [("classes".to_owned(), range)].into();
    let sidecar = describe(&sample.model, ModelGraph::EncoderDecoder, entry, &library, dimensions)
        .expect("it is described");
    let sidecar = serde_json::to_value(sidecar).expect("it is plain data");
    for (pointer, expected) in [
        ("/format_version", json!(1)),
        ("/graph", json!("encoder_decoder")),
        ("/layout", json!("ocelli")),
        ("/onnx_sha256", json!("encoder_decoder")),
        ("/model_weights_sha256", json!("5a")),
        ("/tensorrt/name", json!("TensorRT for RTX")),
        ("/tensorrt/version", json!("1.7.1")),
        ("/precision", json!("fp32")),
        ("/shapes/imgsz", json!(28)),
        ("/shapes/dimensions/classes/max", json!(3)),
        ("/options/version_compatible", json!(false)),
        ("/verified", json!(null)),
        ("/engine/bytes", json!(7)),
    ] {
        assert_eq!(sidecar.pointer(pointer), Some(&expected), "{pointer}: {sidecar}");
    }
}
