//! From an exported model to engines to detections, with something that pretends to be TensorRT: what is built, what the
//! gate lets through, what does not belong together, whose engines run.
//!
//! Needs ONNX Runtime where programs find it; `make setup` puts it there.

#[path = "tensorrt/dart.rs"]
mod dart;
#[path = "tensorrt/fake.rs"]
mod fake;
#[path = "tensorrt/refusals.rs"]
mod refusals;
#[path = "tensorrt/workshop.rs"]
mod workshop;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fake::FakeTensorRt;
use ocelli::engines::tensorrt::{ComputeCapability, DimensionRange};
use ocelli::export::ExportOptions;
use ocelli::export::contract::{Prompting, Target, tensor};
use ocelli::tensorrt::{
    BuildEvent, BuildOptions, EngineBuild, Sidecar, TensorRtBackend, cached_engines, verify_engine,
};
use ocelli_datasets::verify::VerificationOptions;
use ocelli::{Cancellation, Detector, ErrorKind, ModelGraph, ModelSource, TextCacheFile};
use workshop::{CLASSES, Workshop, for_tensorrt, quick, same};

#[test]
fn an_exported_model_becomes_engines_that_find_the_same_things() {
    let shop = Workshop::new(&for_tensorrt());
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let mut seen = Vec::new();
    let options = BuildOptions { max_classes: 3, max_exemplars: 2, ..quick() };
    let build = EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, options);
    let built = build.run(&shop.engines(), &mut |event| {
        seen.push(match event {
            BuildEvent::Building { graph, step } => format!("building {graph} {}/{}", step.done, step.total),
            BuildEvent::Built { graph, .. } => format!("built {graph}"),
            BuildEvent::Verifying { graph, .. } => format!("verifying {graph:?}"),
            BuildEvent::Verified { graph, report } => format!("verified {graph} {}", report.accepted()),
            other => format!("{other:?}"),
        });
    });
    let built = built.expect("a fake that is right is let through");
    for line in [
        "building backbone 0/3",
        "building encoder_decoder 3/3",
        "built backbone",
        "verifying None",
        "verifying Some(Backbone)",
        "verified backbone true",
        "verified encoder_decoder true",
    ] {
        assert!(seen.iter().any(|seen| seen == line), "{line}: {seen:?}");
    }
    assert_eq!(
        shop.names(),
        ["backbone.engine", "backbone.engine.json", "encoder_decoder.engine", "encoder_decoder.engine.json"]
    );

    // The profile is what the model can ask for: no class count is padded to another.
    let request = fake.request.lock().expect("nobody panics").clone().expect("something was built");
    let range = |name: &str| request.dimensions.get(name).copied();
    assert_eq!(range("classes"), Some(DimensionRange { min: 1, optimal: 3, max: 3 }));
    let least = shop.model.manifest().context_length + 1;
    assert_eq!(
        range("prompt_tokens"),
        Some(DimensionRange { min: least, optimal: least, max: least + 2 }),
        "the words, the CLS token, up to two examples"
    );

    // The sidecar, as other programs read it.
    let decoder = &built[1];
    let text = std::fs::read_to_string(Sidecar::path_of(&decoder.path)).expect("it was written");
    let sidecar: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let manifest = shop.model.manifest();
    for (pointer, expected) in [
        ("/format_version", 1.into()),
        ("/graph", "encoder_decoder".into()),
        ("/layout", "ocelli".into()),
        ("/onnx_sha256", manifest.files["encoder_decoder.onnx"].sha256.clone().into()),
        ("/model_weights_sha256", manifest.weights_sha256.clone().into()),
        ("/gpu", "Fake RTX".into()),
        ("/compute_capability/0", "8.9".into()),
        ("/tensorrt/name", "Fake TensorRT".into()),
        ("/tensorrt/version", "1.7.1".into()),
        ("/precision", "fp32".into()),
        ("/shapes/imgsz", manifest.imgsz.into()),
        ("/shapes/dimensions/classes/max", 3.into()),
        ("/options/version_compatible", false.into()),
        ("/verified/scenes", 2.into()),
        ("/engine/bytes", decoder.path.metadata().expect("it is there").len().into()),
    ] {
        assert_eq!(sidecar.pointer(pointer), Some(&expected), "{pointer}: {text}");
    }
    let cosine = sidecar.pointer("/verified/cosine/logits").and_then(serde_json::Value::as_f64);
    assert!(cosine.is_some_and(|cosine| cosine > 0.9999), "{text}");

    // Seven classes, three at a time; the model is the sidecar's.
    let loaded = fake.loaded.load(Ordering::SeqCst);
    let mut detector = shop
        .detector()
        .with_trt_backbone(&built[0].path)
        .with_trt_encoder_decoder(&decoder.path)
        .with_tensorrt(fake.clone())
        .with_class_chunk(7)
        .build()
        .expect("they belong together");
    assert_eq!(fake.loaded.load(Ordering::SeqCst), loaded, "engines are loaded when they are needed");
    assert_eq!(
        detector.engine(),
        format!(
            "Fake TensorRT 1.7.1 on Fake RTX (backbone, encoder_decoder); {} for the rest",
            shop.onnxruntime.description()
        )
    );
    let found = shop.find(&mut detector);
    assert_eq!(fake.loaded.load(Ordering::SeqCst), loaded + 2);
    same(&found, &shop.expected(), 1e-3);

    // One alone, and the rest through ONNX Runtime.
    let mut alone = shop
        .detector()
        .with_trt_encoder_decoder(&decoder.path)
        .with_tensorrt(fake)
        .build()
        .expect("it belongs to its model");
    same(&shop.find(&mut alone), &shop.expected(), 1e-3);
}

#[test]
fn a_backbone_in_two_halves_runs_as_one() {
    let shop = Workshop::new(&for_tensorrt().with_split_block(Some(3)));
    let fake: Arc<dyn TensorRtBackend> = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let options = BuildOptions { graphs: vec![ModelGraph::Backbone], ..quick() };
    let build = EngineBuild::new(&shop.model, Arc::clone(&fake), &shop.onnxruntime, options);
    let built = build.run(&shop.engines(), &mut |_| ()).expect("the gate lets both through");
    let graphs: Vec<_> = built.iter().map(|engine| engine.graph).collect();
    assert_eq!(graphs, [ModelGraph::BackboneFirst, ModelGraph::BackboneSecond]);
    let detector = || shop.detector().with_tensorrt(Arc::clone(&fake)).with_trt_backbone(&built[0].path);
    let mut detector_of_both = detector().build().expect("the second half lies beside the first");
    same(&shop.find(&mut detector_of_both), &shop.expected(), 1e-3);
    std::fs::remove_file(&built[1].path).expect("it is there");
    let error = detector().build().err().expect("half a backbone is none");
    assert!(error.to_string().contains("is not beside it"), "{error}");
}

#[test]
fn every_graph_can_be_an_engine() {
    let shop = Workshop::new(&for_tensorrt().with_detection_only(false));
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let graphs = ModelGraph::all_of(shop.model.manifest());
    assert_eq!(graphs.len(), 5);
    let options = BuildOptions { graphs: graphs.clone(), ..quick() };
    let build = EngineBuild::new(&shop.model, fake, &shop.onnxruntime, options);
    let built = build.run(&shop.engines(), &mut |_| ()).expect("the gate lets all through");
    assert_eq!(built.len(), graphs.len());
    let last = built.last().and_then(|engine| engine.report.as_ref()).expect("a GPU is there");
    for name in [tensor::TEXT_FEATURES, tensor::EXEMPLAR_FEATURES, tensor::MASKS] {
        assert!(last.outputs.iter().any(|output| output.output == name), "{name} was not compared");
    }
}

#[test]
fn what_the_gate_refuses_is_not_put_in_place() {
    let shop = Workshop::new(&for_tensorrt());
    // What goes wrong, the engines that are in place afterwards, what the error says.
    type Case = (&'static str, fake::Change, &'static [&'static str], &'static [&'static str]);
    let cases: [Case; 3] = [
        (
            "features",
            |name, tensor| {
                if name == tensor::FPN[2] {
                    let values = tensor.as_f32_mut().expect("it is f32");
                    values.iter_mut().step_by(3).for_each(|value| *value = -*value);
                }
            },
            &[],
            &[
                "backbone.engine",
                "refused: backbone, fpn_2, random input 0",
                "the cosine is",
                "not put in place",
            ],
        ),
        (
            "scores",
            |name, tensor| {
                if name == tensor::LOGITS {
                    tensor.as_f32_mut().expect("it is f32").iter_mut().for_each(|logit| *logit -= 1.0);
                }
            },
            &["backbone.engine", "backbone.engine.json"],
            &["encoder_decoder.engine", "refused: encoder_decoder, logits"],
        ),
        (
            "NaN",
            |name, tensor| {
                if name == tensor::PRESENCE {
                    tensor.as_f32_mut().expect("it is f32").fill(f32::NAN);
                }
            },
            &["backbone.engine", "backbone.engine.json"],
            &["encoder_decoder.engine", "presence", "infinite or NaN"],
        ),
    ];
    for (what, change, left, words) in cases {
        let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime).with_change(change));
        let options = BuildOptions { force: true, ..quick() };
        let build = EngineBuild::new(&shop.model, fake, &shop.onnxruntime, options);
        let mut reported = false;
        let outcome = build.run(&shop.engines(), &mut |event| {
            reported |= matches!(event, BuildEvent::Verified { report, .. } if !report.accepted());
        });
        let error = outcome.err().unwrap_or_else(|| panic!("{what}: it was let through"));
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{what}");
        for word in words {
            assert!(error.to_string().contains(word), "{what}: expected {word:?} in {error}");
        }
        assert!(reported, "{what}: the whole report is told as well");
        assert_eq!(shop.names(), left, "{what}");
        shop.clear();
    }
}

#[test]
fn engines_are_not_replaced_unasked_and_a_wish_to_end_leaves_nothing() {
    let shop = Workshop::new(&for_tensorrt());
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let cancellation = Cancellation::new();
    let build = |options| {
        EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, options)
            .with_cancellation(cancellation.clone())
    };
    build(quick()).run(&shop.engines(), &mut |_| ()).expect("nothing is there yet");
    let before = shop.names();
    let refused = build(quick()).run(&shop.engines(), &mut |_| ()).expect_err("they are there");
    assert_eq!(refused.kind(), ErrorKind::Io);
    assert!(refused.to_string().contains("backbone.engine: it is there already; --force"), "{refused}");
    let replace = BuildOptions { force: true, max_classes: 2, ..quick() };
    build(replace.clone()).run(&shop.engines(), &mut |_| ()).expect("it was asked for");
    assert_eq!(shop.names(), before);

    // While the second engine is built, and while the gate is at work.
    for moment in ["building encoder_decoder", "verifying"] {
        let cancellation = Cancellation::new();
        let build = EngineBuild::new(&shop.model, fake.clone(), &shop.onnxruntime, replace.clone())
            .with_cancellation(cancellation.clone());
        let new = shop.path("new");
        let outcome = build.run(&new, &mut |event| {
            let now = match event {
                BuildEvent::Building { graph, .. } => format!("building {graph}"),
                BuildEvent::Verifying { .. } => "verifying".into(),
                _ => return,
            };
            if now == moment {
                cancellation.cancel();
            }
        });
        assert_eq!(outcome.err().map(|e| e.kind()), Some(ErrorKind::Cancelled), "{moment}");
        assert!(!new.exists(), "{moment}: {new:?} was left behind");
    }
}

#[test]
fn engines_for_another_gpu_wait_for_it() {
    let shop = Workshop::new(&for_tensorrt());
    let elsewhere = Arc::new(FakeTensorRt::new(&shop.onnxruntime).without_gpu());
    let ada = ComputeCapability::new(8, 9);
    let build = |targets: Vec<ComputeCapability>| {
        let options = BuildOptions { targets, force: true, ..quick() };
        EngineBuild::new(&shop.model, elsewhere.clone(), &shop.onnxruntime, options)
            .run(&shop.engines(), &mut |_| ())
    };
    let error = build(vec![]).expect_err("there is no GPU, and none was named");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("--target-sm 8.9"), "{error}");
    let built = build(vec![ada]).expect("it can be built without");
    assert!(built.iter().all(|engine| engine.report.is_none() && engine.sidecar.verified.is_none()));
    assert_eq!(built[0].sidecar.compute_capability, ["8.9"]);
    assert_eq!(built[0].sidecar.gpu, None);
    let engine = &built[1].path;

    let there: Arc<dyn TensorRtBackend> = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let detector = || shop.detector().with_trt_encoder_decoder(engine).with_tensorrt(Arc::clone(&there));
    let error = detector().build().err().expect("it has never been compared");
    assert!(error.to_string().contains("ocelli build-engine --verify"), "{error}");

    let verify = |fake: &Arc<dyn TensorRtBackend>| {
        let options = VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
        verify_engine(engine, &shop.model, fake, (&shop.model, &shop.onnxruntime), options, &mut |_| Ok(()))
    };
    let report = verify(&there).expect("its GPU is here");
    assert!(report.accepted(), "{}", report.verdict());
    let mut detector_of_it = detector().build().expect("it was compared");
    same(&shop.find(&mut detector_of_it), &shop.expected(), 1e-3);

    // A driver that computes something else is found out, and the engine does not run any more.
    let broken: Arc<dyn TensorRtBackend> =
        Arc::new(FakeTensorRt::new(&shop.onnxruntime).with_change(|name, tensor| {
            if name == tensor::BOXES {
                tensor.as_f32_mut().expect("it is f32").iter_mut().for_each(|edge| *edge *= 0.9);
            }
        }));
    let report = verify(&broken).expect("it runs");
    assert!(!report.accepted());
    assert!(detector().build().is_err(), "it was refused");
}

#[test]
fn engines_in_the_cache_are_built_once() {
    let shop = Workshop::new(&for_tensorrt());
    let fake = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let mut told = Vec::new();
    for _ in 0..2 {
        let lines = std::cell::RefCell::new(Vec::new());
        let factory = cached_engines(
            &shop.model,
            fake.clone(),
            shop.onnxruntime.clone(),
            quick(),
            &shop.engines(),
            &Cancellation::new(),
            &|line| lines.borrow_mut().push(line.to_owned()),
        );
        let factory = factory.expect("library and GPU are there");
        assert!(
            factory.description().starts_with("Fake TensorRT 1.7.1 on Fake RTX (backbone, encoder_decoder)")
        );
        let mut detector = Detector::builder()
            .with_open_model(shop.model.clone())
            .with_engine_factory(factory)
            .with_text_cache(TextCacheFile::None)
            .build()
            .expect("the model is open");
        same(&shop.find(&mut detector), &shop.expected(), 1e-3);
        assert_eq!(fake.built.load(Ordering::SeqCst), 2, "both, once");
        told.push(lines.into_inner());
    }
    for (line, expected) in told[0].iter().zip([
        "building engines into the cache",
        "building the engine of the backbone",
        "building the engine of the encoder_decoder",
        "running the model on the processor",
        "comparing the engine of the backbone",
        "comparing the engine of the encoder_decoder",
    ]) {
        assert!(line.starts_with(expected), "{expected}: {told:?}");
    }
    assert_eq!((told[0].len(), told[1].len()), (6, 0), "{told:?}");
}

#[test]
fn engines_of_dart_find_what_the_model_finds_with_words_alone() {
    let shop = Workshop::new(&ExportOptions::default().with_prompting(Prompting::Text));
    let fake: Arc<dyn TensorRtBackend> = Arc::new(FakeTensorRt::new(&shop.onnxruntime));
    let backbone = shop.dart("backbone", serde_json::json!({}));
    let cases = [
        ("both", serde_json::json!({ "classes": 3 }), serde_json::json!({}), 1e-3),
        (
            "in half precision",
            serde_json::json!({ "classes": 2, "half": true }),
            serde_json::json!({ "half": true }),
            0.05,
        ),
    ];
    for (what, decoder, backbone, tolerance) in cases {
        let decoder = shop.dart("encoder_decoder", decoder);
        let backbone = shop.dart("backbone", backbone);
        let mut detector = shop
            .detector()
            .with_model(ModelSource::Folder(shop.model.folder().to_owned()))
            .with_trt_backbone(&backbone)
            .with_trt_encoder_decoder(&decoder)
            .with_tensorrt(Arc::clone(&fake))
            .build()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        same(&shop.find(&mut detector), &shop.expected(), tolerance);
    }

    // Of a model with a CLS token it asks with words alone: a DART backbone gives none.
    let official = Workshop::new(&for_tensorrt());
    assert_eq!(official.model.manifest().prompting, Prompting::Official);
    let backbone_of_it = official.dart("backbone", serde_json::json!({}));
    let mut detector = official
        .detector()
        .with_model(ModelSource::Folder(official.model.folder().to_owned()))
        .with_trt_backbone(&backbone_of_it)
        .with_tensorrt(Arc::clone(&fake))
        .build()
        .expect("the rest of the model fits");
    assert_eq!(detector.model().manifest().prompting, Prompting::Text);
    assert!(!official.find(&mut detector).is_empty());

    // One that was compared has a sidecar, needs no --model, and one without presence is on another scale.
    let options = || VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
    let verify = |engine: &std::path::Path| {
        verify_engine(
            engine,
            &shop.model,
            &fake,
            (&shop.model, &shop.onnxruntime),
            options(),
            &mut |_| Ok(()),
        )
        .unwrap_or_else(|e| panic!("{}: {e}", engine.display()))
    };
    let decoder = shop.dart("encoder_decoder", serde_json::json!({ "classes": 3 }));
    for engine in [&backbone, &decoder] {
        let report = verify(engine);
        assert!(report.accepted(), "{}: {}", engine.display(), report.verdict());
    }
    let mut detector = shop
        .detector()
        .with_trt_backbone(&backbone)
        .with_trt_encoder_decoder(&decoder)
        .with_tensorrt(Arc::clone(&fake))
        .build()
        .expect("their sidecars name the model");
    same(&shop.find(&mut detector), &shop.expected(), 1e-3);
    let without = shop.dart("encoder_decoder", serde_json::json!({ "classes": 2, "presence": false }));
    assert!(!verify(&without).accepted(), "scores without presence are other scores");
    assert_eq!(CLASSES.len(), 7);
    assert_eq!(shop.model.manifest().target, Target::OnnxRuntime);
}
