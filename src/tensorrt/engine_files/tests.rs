use std::sync::atomic::{AtomicUsize, Ordering};

use ocelli_engines::fake::FakeEngine;
use ocelli_engines::{Dim, ElementType, EngineSpec, TensorSpec};
use serde_json::{Value, json};

use super::super::sample::{Sample, gpu, library, set};
use super::*;

/// Everything that is checked before an engine is loaded.
fn check_all(sample: &Sample, backbone: &Path, decoder: &Path) -> Result<ModelRequest> {
    let files = EngineFiles::open(Some(backbone), Some(decoder))?;
    let mut request = ModelRequest::default();
    files.complete(&mut request)?;
    files.check(&sample.model, &library(), &gpu())?;
    Ok(request)
}

#[test]
fn engines_that_do_not_belong_together_are_refused_before_anything_is_loaded() {
    use ErrorKind::{InvalidArgument, InvalidData, Io, Mismatch};
    type Prepare = fn(&Path, &Path);
    let cases: [(&str, Prepare, ErrorKind, &[&str]); 20] = [
        ("no file", |b, _| std::fs::remove_file(b).expect("a file"), Io, &["b.engine", "no such file"]),
        ("an empty file", |b, _| std::fs::write(b, "").expect("a file"), InvalidData, &["the file is empty"]),
        (
            "a truncated engine",
            |b, _| std::fs::write(b, "a plan").expect("a file"),
            InvalidData,
            &["b.engine", "its sidecar says", "it is corrupt"],
        ),
        (
            "a folder",
            |b, _| {
                std::fs::remove_file(b).expect("a file");
                std::fs::create_dir(b).expect("the place is free");
            },
            InvalidData,
            &["it is a folder"],
        ),
        (
            "no sidecar and no model",
            |b, d| [b, d].iter().for_each(|e| std::fs::remove_file(Sidecar::path_of(e)).expect("a file")),
            InvalidArgument,
            &["trt_backbone", "b.engine.json", "name the model"],
        ),
        (
            "a sidecar that is not JSON",
            |_, d| std::fs::write(Sidecar::path_of(d), "{ half").expect("a file"),
            InvalidData,
            &["d.engine.json", "not JSON", "build the engine again"],
        ),
        (
            "a sidecar that is something else",
            |_, d| std::fs::write(Sidecar::path_of(d), "[1]").expect("a file"),
            InvalidData,
            &["no format_version"],
        ),
        ("a later format", |b, _| set(b, "/format_version", 99.into()), InvalidData, &["version 99"]),
        ("a field of another type", |b, _| set(b, "/shapes", 1.into()), InvalidData, &["not a sidecar"]),
        (
            "the encoder-decoder as the backbone",
            |b, _| set(b, "/graph", "encoder_decoder".into()),
            Mismatch,
            &[
                "an engine of the encoder_decoder, expected one of the backbone",
                "pass it as trt_encoder_decoder",
            ],
        ),
        (
            "half a backbone",
            |b, _| set(b, "/graph", "backbone_first".into()),
            Mismatch,
            &["the first half of a backbone", "is not beside it"],
        ),
        ("never verified", |b, _| set(b, "/verified", Value::Null), Mismatch, &["never been compared"]),
        (
            "another ONNX file",
            |b, _| set(b, "/onnx_sha256", "00ff".into()),
            Mismatch,
            &["b.engine", "another backbone.onnx", "build it again"],
        ),
        (
            "another model",
            |b, d| [b, d].iter().for_each(|e| set(e, "/model_weights_sha256", "00ff".into())),
            Mismatch,
            &["from another model", "the weights differ"],
        ),
        (
            "engines of two models",
            |b, _| set(b, "/model_weights_sha256", "00ff".into()),
            Mismatch,
            &["do not match", "the model is 00ff"],
        ),
        (
            "engines of two sizes",
            |b, _| set(b, "/shapes/imgsz", 9.into()),
            Mismatch,
            &["do not match", "imgsz is 9"],
        ),
        (
            "engines of two widths",
            |_, d| set(d, "/shapes/model_width", 256.into()),
            Mismatch,
            &["do not match", "the width of features"],
        ),
        (
            "both of another size than the model",
            |b, d| [b, d].iter().for_each(|e| set(e, "/shapes/imgsz", 9.into())),
            Mismatch,
            &["its imgsz is 9"],
        ),
        (
            "a model that does not exist",
            |b, d| [b, d].iter().for_each(|e| set(e, "/model", "/nowhere/exported".into())),
            Mismatch,
            &["/nowhere/exported", "no longer exists", "name the model"],
        ),
        (
            "another GPU",
            |b, _| set(b, "/compute_capability", json!(["12.0"])),
            Mismatch,
            &["compute capability 12.0", "RTX 4090"],
        ),
    ];
    let mut wrong = Vec::new();
    for (case, prepare, kind, parts) in cases {
        let sample = Sample::new(&json!({}));
        let (backbone, decoder) =
            (sample.engine(ModelGraph::Backbone, "b"), sample.engine(ModelGraph::EncoderDecoder, "d"));
        let request = check_all(&sample, &backbone, &decoder).expect("they belong together");
        assert_eq!(request.source, ModelSource::Folder(sample.model.folder().to_owned()));
        assert_eq!(request.target, Target::TensorRt);
        prepare(&backbone, &decoder);
        match check_all(&sample, &backbone, &decoder) {
            Err(error)
                if error.kind() == kind
                    && parts.iter().all(|part| error.to_string().contains(part))
                    && !error.to_string().contains('\n') => {}
            other => wrong.push(format!("{case}: expected {kind:?} {parts:?}, got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn tensor_of(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, ElementType::F32, shape.iter().map(|size| Dim::Fixed(*size)))
}

/// A backbone with DART's names.
fn dart_backbone() -> EngineSpec {
    EngineSpec {
        inputs: vec![tensor_of("images", &[1, 3, 28, 28])],
        outputs: vec![tensor_of("out_0", &[1, 4, 2, 2])],
    }
}

/// Puts an engine file of this specification in place, and says how often it was loaded.
fn place(
    sample: &Sample,
    files: EngineFiles,
    spec: EngineSpec,
    masks: bool,
) -> (Result<ModelWithEngines>, Arc<AtomicUsize>) {
    let rest = EngineFactory::custom("rest", |graph| panic!("{} is not an engine", graph.display()));
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&loads);
    let load = move |_: &Path, _| -> Result<Box<dyn Engine>> {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeEngine::zeros(spec.clone())))
    };
    (files.with_loader(sample.model.clone(), masks, "engines".into(), rest, Arc::new(load)), loads)
}

#[test]
fn an_engine_with_a_sidecar_is_loaded_when_it_is_first_needed() {
    let sample = Sample::new(&json!({}));
    let decoder = sample.engine(ModelGraph::EncoderDecoder, "d");
    let files = EngineFiles::open(None, Some(&decoder)).expect("it is an engine");
    let (placed, loads) = place(&sample, files, dart_backbone(), false);
    assert_eq!(placed.expect("it is not looked at").max_classes, Some(3), "the sidecar says so");
    assert_eq!(loads.load(Ordering::SeqCst), 0);
}

#[test]
fn an_engine_of_dart_is_loaded_at_once_and_prompts_become_text_only() {
    let sample = Sample::new(&json!({ "prompting": "official", "split_block": 1 }));
    let backbone = sample.path("dart.engine");
    std::fs::write(&backbone, "a plan").expect("it can be written");
    let open = || EngineFiles::open(Some(&backbone), None).expect("it needs no sidecar");
    let (placed, loads) = place(&sample, open(), dart_backbone(), false);
    let placed = placed.expect("it is a backbone");
    assert_eq!(placed.model.manifest().prompting, Prompting::Text);
    assert_eq!(placed.model.manifest().split_block, None);
    let engine = placed.factory.load(Path::new("backbone.onnx")).expect("it is an engine");
    assert!(engine.spec().output(tensor::FPN[2]).is_some(), "{:?}", engine.spec());
    assert_eq!(loads.load(Ordering::SeqCst), 1, "the first use takes the engine that was looked at");

    let error = place(&sample, open(), dart_backbone(), true).0.err().expect("it has no fine features");
    assert!(error.to_string().contains("masks need `fpn_0`"), "{error}");
    let mut twice = dart_backbone();
    twice.outputs.push(tensor_of("position", &[1, 4, 2, 2]));
    let error = place(&sample, open(), twice, false).0.err().expect("it is ambiguous");
    assert!(error.to_string().contains("it could be `out_0` or `position`"), "{error}");

    // An encoder-decoder that needs the CLS token, which a backbone of DART does not return.
    let decoder = sample.engine(ModelGraph::EncoderDecoder, "d");
    let both = EngineFiles::open(Some(&backbone), Some(&decoder)).expect("both are engines");
    let error = place(&sample, both, dart_backbone(), false).0.err().expect("they take different prompts");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("export the model with text prompting"), "{error}");
}

#[test]
fn a_corrupt_engine_is_detected_when_it_does_not_load() {
    let sample = Sample::new(&json!({}));
    let engine = sample.engine(ModelGraph::Backbone, "b");
    std::fs::write(&engine, "a PLAN of TensorRT").expect("as many bytes as before");
    let files = EngineFiles::open(Some(&engine), None).expect("its size is right");
    let rest = EngineFactory::custom("rest", |_| panic!("it is not needed"));
    let load = |_: &Path, _| Err(Error::invalid_data("TensorRT refuses it"));
    let placed = files.with_loader(sample.model.clone(), false, "engines".into(), rest, Arc::new(load));
    let error = placed
        .expect("it is not loaded yet")
        .factory
        .load(Path::new("backbone.onnx"))
        .err()
        .expect("corrupt");
    assert!(error.to_string().contains("its SHA-256 is not the one in its sidecar"), "{error}");
}
