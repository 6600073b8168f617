//! What does not belong together is an error before anything runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ocelli::engines::tensorrt::{ComputeCapability, Version};
use ocelli::export::ExportOptions;
use ocelli::export::contract::Prompting;
use ocelli::tensorrt::{BuildOptions, EngineBuild, Sidecar};
use ocelli::{ErrorKind, ModelGraph, ModelSource};
use serde_json::{Value, json};

use crate::fake::FakeTensorRt;
use crate::workshop::{Workshop, for_tensorrt, quick};

/// Changes the sidecar of an engine.
fn edit(engine: &Path, change: impl FnOnce(&mut Value)) {
    let path = Sidecar::path_of(engine);
    let text = std::fs::read_to_string(&path).expect("it was written");
    let mut sidecar = serde_json::from_str(&text).expect("it is JSON");
    change(&mut sidecar);
    std::fs::write(&path, sidecar.to_string()).expect("it can be written");
}

fn set(engine: &Path, pointer: &str, value: Value) {
    edit(engine, |sidecar| {
        *sidecar.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
    });
}

/// What is done before, with the paths of backbone and encoder-decoder.
type Prepare = fn(&Path, &Path);

struct Case {
    what: &'static str,
    prepare: Prepare,
    fake: fn(&mut FakeTensorRt),
    kind: ErrorKind,
    words: &'static [&'static str],
}

#[test]
fn engines_that_do_not_fit_are_refused_before_anything_is_loaded() {
    let shop = Workshop::new(&for_tensorrt());
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    EngineBuild::new(&shop.model, fake, &shop.onnxruntime, quick())
        .run(&shop.engines(), &mut |_| ())
        .expect("the gate lets both through");
    let kept = shop.path("kept");
    std::fs::rename(shop.engines(), &kept).expect("both are in the temporary folder");

    let nothing: fn(&mut FakeTensorRt) = |_| ();
    let case = |what, prepare, kind, words| Case { what, prepare, fake: nothing, kind, words };
    use ErrorKind::{InvalidArgument, InvalidData, Io, Mismatch, Unavailable};
    let cases = [
        case(
            "no file",
            |b, _| std::fs::remove_file(b).expect("it is there"),
            Io,
            &["backbone.engine", "no such file"],
        ),
        case(
            "an empty file",
            |b, _| std::fs::write(b, "").expect("it can be"),
            InvalidData,
            &["the file is empty"],
        ),
        case(
            "a truncated engine",
            |b, _| {
                let bytes = std::fs::read(b).expect("it is there");
                std::fs::write(b, &bytes[..bytes.len() / 2]).expect("it can be written");
            },
            InvalidData,
            &["backbone.engine", "its sidecar says", "it is damaged"],
        ),
        case(
            "a folder",
            |b, _| {
                std::fs::remove_file(b).expect("it is there");
                std::fs::create_dir(b).expect("the place is free");
            },
            InvalidData,
            &["it is a folder"],
        ),
        case(
            "no sidecar and no --model",
            |b, d| {
                [b, d].iter().for_each(|e| std::fs::remove_file(Sidecar::path_of(e)).expect("it is there"));
            },
            InvalidArgument,
            &["--trt", "backbone.engine.json", "--model"],
        ),
        case(
            "a sidecar that is no JSON",
            |_, d| std::fs::write(Sidecar::path_of(d), "{ half").expect("it can be written"),
            InvalidData,
            &["encoder_decoder.engine.json", "no JSON", "build the engine again"],
        ),
        case(
            "a sidecar that is something else",
            |_, d| std::fs::write(Sidecar::path_of(d), "[1]").expect("it can be written"),
            InvalidData,
            &["no format_version"],
        ),
        case(
            "a sidecar of a later format",
            |b, _| set(b, "/format_version", 99.into()),
            InvalidData,
            &["version 99"],
        ),
        case(
            "a sidecar without a field",
            |b, _| edit(b, |s| drop(s.as_object_mut().expect("an object").remove("shapes"))),
            InvalidData,
            &["shapes"],
        ),
        case(
            "the encoder-decoder as the backbone",
            |b, d| {
                for (from, to) in [(d.to_owned(), b.to_owned()), (Sidecar::path_of(d), Sidecar::path_of(b))] {
                    std::fs::copy(from, to).expect("they can be copied");
                }
            },
            Mismatch,
            &["it is an engine of the encoder_decoder, not of the backbone", "--trt-enc-dec takes it"],
        ),
        case("never verified", |b, _| set(b, "/verified", Value::Null), Mismatch, &["build-engine --verify"]),
        case(
            "another ONNX file",
            |b, _| set(b, "/onnx_sha256", "00ff".into()),
            Mismatch,
            &["backbone.engine", "another backbone.onnx", "build it again"],
        ),
        case(
            "another model",
            |b, d| [b, d].iter().for_each(|e| set(e, "/model_weights_sha256", "00ff".into())),
            Mismatch,
            &["from another model", "the weights differ"],
        ),
        case(
            "engines of two models",
            |b, _| set(b, "/model_weights_sha256", "00ff".into()),
            Mismatch,
            &["do not fit each other", "the model is 00ff"],
        ),
        case(
            "engines of two sizes",
            |b, _| set(b, "/shapes/imgsz", 1008.into()),
            Mismatch,
            &["do not fit each other", "imgsz is 1008"],
        ),
        case(
            "engines of two widths",
            |_, d| set(d, "/shapes/model_width", 256.into()),
            Mismatch,
            &["do not fit each other", "the width of features"],
        ),
        case(
            "both of another size than the model",
            |b, d| [b, d].iter().for_each(|e| set(e, "/shapes/imgsz", 1008.into())),
            Mismatch,
            &["its imgsz is 1008"],
        ),
        case(
            "a model that is gone",
            |b, d| [b, d].iter().for_each(|e| set(e, "/model", "/nowhere/exported".into())),
            Mismatch,
            &["/nowhere/exported", "not there any more", "--model"],
        ),
        case(
            "another GPU",
            |b, _| set(b, "/compute_capability", json!(["12.0"])),
            Mismatch,
            &["compute capability 12.0", "Fake RTX"],
        ),
        case(
            "another TensorRT",
            |b, _| set(b, "/tensorrt/version", "1.6.0".into()),
            Mismatch,
            &["built by Fake TensorRT 1.6.0, here is version 1.7.1", "--version-compatible"],
        ),
        case(
            "a product of the same maker",
            |_, d| set(d, "/tensorrt/name", "TensorRT".into()),
            Mismatch,
            &["built by TensorRT 1.7.1, here is Fake TensorRT 1.7.1"],
        ),
        Case {
            what: "no GPU",
            prepare: |_, _| (),
            fake: |fake| fake.gpu = None,
            kind: Unavailable,
            words: &["no NVIDIA GPU"],
        },
        Case {
            what: "another GPU than where it was built",
            prepare: |_, _| (),
            fake: |fake| fake.gpu = Some(("Fake H", ComputeCapability::new(9, 0))),
            kind: Mismatch,
            words: &["compute capability 8.9 (Fake RTX)", "Fake H (compute capability 9.0)"],
        },
        Case {
            what: "a compatible engine and a library of a later main version",
            prepare: |b, _| set(b, "/options/version_compatible", true.into()),
            fake: |fake| fake.version = Version::new(2, 0, 0),
            kind: Mismatch,
            words: &["here is version 2.0.0"],
        },
    ];
    let mut wrong = Vec::new();
    for Case { what, prepare, fake: change, kind, words } in cases {
        shop.clear();
        std::fs::create_dir(shop.engines()).expect("it was cleared");
        for entry in std::fs::read_dir(&kept).expect("it is there").flatten() {
            std::fs::copy(entry.path(), shop.engines().join(entry.file_name())).expect("it can be copied");
        }
        let (backbone, decoder) =
            (shop.engines().join("backbone.engine"), shop.engines().join("encoder_decoder.engine"));
        prepare(&backbone, &decoder);
        let mut fake = FakeTensorRt::new(&shop.onnxruntime);
        change(&mut fake);
        let fake = Arc::new(fake);
        let built = shop
            .detector()
            .with_trt_backbone(&backbone)
            .with_trt_encoder_decoder(&decoder)
            .with_tensorrt(fake.clone())
            .build();
        let loaded = fake.loaded.load(Ordering::SeqCst);
        match built.map(|_| ()) {
            Err(error)
                if error.kind() == kind
                    && words.iter().all(|word| error.to_string().contains(word))
                    && !error.to_string().contains('\n')
                    && loaded == 0 => {}
            other => {
                wrong.push(format!("{what}: expected {kind:?} {words:?}, came {other:?}, {loaded} loaded"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn engines_that_are_compatible_run_elsewhere_and_damaged_ones_are_named() {
    let shop = Workshop::new(&for_tensorrt());
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let options = BuildOptions {
        version_compatible: true,
        hardware_compatible: true,
        graphs: vec![ModelGraph::EncoderDecoder],
        ..quick()
    };
    let built = EngineBuild::new(&shop.model, fake, &shop.onnxruntime, options)
        .run(&shop.engines(), &mut |_| ())
        .expect("the gate lets it through");
    let engine = &built[0].path;
    let mut later = FakeTensorRt::new(&shop.onnxruntime);
    later.version = Version::new(1, 8, 0);
    later.gpu = Some(("Fake H", ComputeCapability::new(9, 0)));
    let later = Arc::new(later);
    let detector = || shop.detector().with_trt_encoder_decoder(engine).with_tensorrt(later.clone());
    detector().build().expect("a later library and a later GPU");

    // As many bytes, but others: found out when it does not load.
    let length = engine.metadata().expect("it is there").len() as usize;
    std::fs::write(engine, "x".repeat(length)).expect("it can be written");
    let mut detector = detector().build().expect("from outside it is whole");
    let prompts = ocelli::Prompts::new(["dog"]).expect("a word");
    let error = detector.prepare(&prompts).expect_err("it is damaged");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("its SHA-256 is not the one in its sidecar"), "{error}");
}

#[test]
fn what_cannot_be_built_is_said_before_anything_is() {
    let shop = Workshop::new(&for_tensorrt());
    let fused = Workshop::new(&ExportOptions::default().with_detection_only(true));
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let file = shop.path("file");
    std::fs::write(&file, "x").expect("the temporary folder can be written to");
    let cases = [
        ("a model for ONNX Runtime", &fused, quick(), ErrorKind::Mismatch, "--target tensorrt"),
        (
            "no class",
            &shop,
            BuildOptions { max_classes: 0, ..quick() },
            ErrorKind::InvalidArgument,
            "--max-classes is 0",
        ),
        (
            "no memory",
            &shop,
            BuildOptions { workspace_bytes: Some(0), ..quick() },
            ErrorKind::InvalidArgument,
            "--workspace is 0",
        ),
        (
            "a graph that is not there",
            &shop,
            BuildOptions { graphs: vec![ModelGraph::MaskHead], ..quick() },
            ErrorKind::InvalidArgument,
            "--graphs mask_head",
        ),
    ];
    for (what, shop, options, kind, part) in cases {
        let outcome = EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, options)
            .run(&shop.engines(), &mut |_| ());
        let error = outcome.err().unwrap_or_else(|| panic!("{what}: it was built"));
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert!(error.to_string().contains(part), "{what}: {error}");
        assert!(!shop.engines().exists(), "{what}");
    }
    let outcome =
        EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, quick()).run(&file, &mut |_| ());
    assert!(outcome.is_err_and(|error| error.kind() == ErrorKind::Io));
    assert_eq!(fake.built.load(Ordering::SeqCst), 0);
}

#[test]
fn engines_without_a_sidecar_are_looked_at() {
    let shop = Workshop::new(&for_tensorrt());
    // The engine's options, which flag names it, whether masks are wanted, the reason.
    let cases = [
        ("backbone", json!({ "twice": true }), false, "it could be `out_0` or `position`"),
        ("encoder_decoder", json!({}), true, "masks"),
        ("text_encoder", Value::Null, false, "it is no backbone"),
    ];
    let mut wrong = Vec::new();
    for (graph, options, masks, part) in cases {
        let engine = if options.is_null() {
            let path = shop.path("plain.engine");
            let onnx = shop.model.file(&format!("{graph}.onnx"));
            std::fs::write(&path, json!({ "onnx": onnx, "ranges": [] }).to_string())
                .expect("it can be written");
            path
        } else {
            shop.dart(graph, options)
        };
        let builder = shop
            .detector()
            .with_model(ModelSource::Folder(shop.model.folder().to_owned()))
            .with_masks(masks)
            .with_tensorrt(Arc::new(FakeTensorRt::new(&shop.onnxruntime)));
        let builder = match graph {
            "encoder_decoder" => builder.with_trt_encoder_decoder(engine),
            _ => builder.with_trt_backbone(engine),
        };
        match builder.build().map(|_| ()) {
            Err(error) if error.kind() == ErrorKind::Mismatch && error.to_string().contains(part) => {}
            other => wrong.push(format!("{graph}: expected {part:?}, came {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A backbone of words alone, and an engine that has to have the CLS token.
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let built = EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, quick())
        .run(&shop.engines(), &mut |_| ())
        .expect("the gate lets both through");
    assert_eq!(shop.model.manifest().prompting, Prompting::Official);
    let backbone = shop.dart("backbone", json!({}));
    let outcome = shop
        .detector()
        .with_trt_backbone(backbone)
        .with_trt_encoder_decoder(&built[1].path)
        .with_tensorrt(fake);
    let error = outcome.build().err().expect("they ask for different prompts");
    assert!(error.to_string().contains("--prompt text"), "{error}");
}

#[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
#[test]
fn a_program_without_tensorrt_says_what_to_build() {
    let shop = Workshop::new(&for_tensorrt());
    let error = shop.detector().with_trt_backbone("x.engine").build().err().expect("there is no TensorRT");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for word in ["x.engine", "--features tensorrt-rtx", "leave --trt out"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}
