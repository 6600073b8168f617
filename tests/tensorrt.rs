//! From an exported model to engines to detections.
//!
//! Needs ONNX Runtime; `make setup` installs it. The ignored tests need TensorRT (`OCELLI_TENSORRT`) and its part (`make tensorrt`), most of them a GPU as
//! well.

mod dart;
mod workshop;

use self::workshop::{Workshop, same};
use ocelli::engines::Engine;
use ocelli::export::contract::{Prompting, file};
use ocelli::export::{ExportOptions, Pruning};
use ocelli::tensorrt::dart::{DartBackbone, DartEncoderDecoder};
use ocelli::{Detector, ErrorKind, engine::EngineFactory, stages::TextCacheFile};
use serde_json::{Value, json};

/// Runs backbone and encoder-decoder as engines with the tensors of DART, through their adapters.
fn as_dart(shop: &Workshop, backbone: Value, decoder: Value) -> EngineFactory {
    let (onnxruntime, manifest) = (shop.onnxruntime.clone(), shop.model.manifest().clone());
    let words = manifest.context_length;
    EngineFactory::custom("DART", move |graph| {
        let engine = onnxruntime.load(graph)?;
        let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let adapted: Box<dyn Engine> = match name {
            file::BACKBONE => Box::new(DartBackbone::new(dart::engine(engine, &backbone), &manifest)?),
            file::ENCODER_DECODER => {
                let mut options = decoder.clone();
                options["words"] = words.into();
                Box::new(DartEncoderDecoder::new(dart::engine(engine, &options), &manifest)?)
            }
            _ => engine,
        };
        Ok(adapted)
    })
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn engines_of_dart_give_the_detections_of_the_model() {
    let shop = Workshop::new(&ExportOptions { prompting: Prompting::Text, ..ExportOptions::default() });
    let cases = [
        ("in single precision", json!({}), json!({ "classes": 3 }), 3, 1e-3),
        ("in half precision", json!({ "half": true }), json!({ "classes": 2, "half": true }), 2, 0.05),
    ];
    for (what, backbone, decoder, classes, tolerance) in cases {
        let mut detector = Detector::builder()
            .with_open_model(shop.model.clone())
            .with_engine_factory(as_dart(&shop, backbone, decoder))
            .with_text_cache(TextCacheFile::None)
            .with_class_chunk(classes)
            .build()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        same(&shop.find(&mut detector), &shop.expected(), tolerance);
    }
}

#[test]
fn the_engine_tensorrt_needs_prepared_engines() {
    let engine = "tensorrt".parse().expect("an engine in every build");
    let error = Detector::builder().with_engine(engine).build().err().expect("none are prepared");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("none were prepared"), "{text}");
}

mod with_tensorrt {
    use ocelli::engines::tensorrt::ComputeCapability;
    use ocelli::export::contract::{Target, tensor};
    use ocelli::tensorrt::{NativeTensorRt, PlanRequest};
    use ocelli::{Cancellation, model::ModelGraph};
    use ocelli_verify::VerificationOptions;
    use ocelli_verify::tensorrt::{BuildEvent, BuildOptions, EngineBuild, cached_engines, verify_engine};

    use super::workshop::{for_tensorrt, quick};
    use super::*;

    fn tensorrt() -> NativeTensorRt {
        NativeTensorRt::new(None)
    }

    /// Builds for Ada, without the GPU.
    fn for_ada() -> BuildOptions {
        let targets = vec![ComputeCapability::new(8, 9)];
        BuildOptions { plan: PlanRequest { targets, ..PlanRequest::default() }, ..quick() }
    }

    #[test]
    #[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
    fn existing_engines_are_kept_and_a_cancelled_build_leaves_nothing() {
        let (shop, tensorrt) = (Workshop::new(&for_tensorrt()), tensorrt());
        let build = |options| EngineBuild::new(&shop.model, &tensorrt, &shop.onnxruntime, options);
        let mut seen = Vec::new();
        build(for_ada())
            .run(&shop.engines(), &mut |event| match event {
                BuildEvent::Building { graph, .. } => seen.push(format!("building {graph}")),
                BuildEvent::Built { graph, .. } => seen.push(format!("built {graph}")),
                _ => {}
            })
            .expect("the build succeeds");
        seen.dedup();
        let expected =
            ["building backbone", "built backbone", "building encoder_decoder", "built encoder_decoder"];
        assert_eq!(seen, expected);
        let names = [
            "backbone.engine",
            "backbone.engine.json",
            "encoder_decoder.engine",
            "encoder_decoder.engine.json",
        ];
        assert_eq!(shop.names(), names);
        let refused = build(for_ada()).run(&shop.engines(), &mut |_| ()).expect_err("they exist");
        assert_eq!(refused.kind(), ErrorKind::Io);

        let cancellation = Cancellation::new();
        let new = shop.path("new");
        let outcome =
            EngineBuild { cancellation: cancellation.clone(), ..build(for_ada()) }.run(&new, &mut |event| {
                if let BuildEvent::Building { graph: ModelGraph::EncoderDecoder, .. } = event {
                    cancellation.cancel();
                }
            });
        assert_eq!(outcome.err().map(|e| e.kind()), Some(ErrorKind::Cancelled));
        assert!(!new.exists(), "{new:?} was left behind");
    }

    mod on_a_gpu {
        use super::*;

        #[test]
        #[ignore = "needs an NVIDIA GPU and TensorRT"]
        fn built_engines_give_the_detections_of_the_model() {
            let (shop, tensorrt) = (Workshop::new(&for_tensorrt()), tensorrt());
            let options = BuildOptions { max_classes: 3, max_exemplars: 2, ..quick() };
            let built = EngineBuild::new(&shop.model, &tensorrt, &shop.onnxruntime, options)
                .run(&shop.engines(), &mut |_| ())
                .expect("the gate accepts them");
            assert!(built.iter().all(|engine| engine.sidecar.verified.is_some()));
            // Seven classes, three at a time; the sidecar names the model.
            let mut detector = shop
                .detector()
                .with_options(|options| options.engine.trt_backbone = Some(built[0].path.clone()))
                .with_options(|options| options.engine.trt_encoder_decoder = Some(built[1].path.clone()))
                .with_class_chunk(7)
                .build()
                .expect("they belong together");
            same(&shop.find(&mut detector), &shop.expected(), 1e-2);
            let mut alone = shop
                .detector()
                .with_options(|options| options.engine.trt_encoder_decoder = Some(built[1].path.clone()))
                .build()
                .expect("it belongs to its model");
            same(&shop.find(&mut alone), &shop.expected(), 1e-2);

            let options =
                VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
            let reference = (&shop.model, &shop.onnxruntime);
            let report =
                verify_engine(&built[0].path, &shop.model, &tensorrt, reference, options, &mut |_| Ok(()))
                    .expect("its GPU is here");
            assert!(report.accepted(), "{}", report.verdict());
        }

        #[test]
        #[ignore = "needs an NVIDIA GPU and TensorRT"]
        fn a_split_backbone_runs_as_one() {
            let (shop, tensorrt) = (
                Workshop::new(&ExportOptions {
                    pruning: Pruning { split_block: Some(3), ..Pruning::default() },
                    ..for_tensorrt()
                }),
                tensorrt(),
            );
            let options = BuildOptions { graphs: vec![ModelGraph::Backbone], ..quick() };
            let built = EngineBuild::new(&shop.model, &tensorrt, &shop.onnxruntime, options)
                .run(&shop.engines(), &mut |_| ())
                .expect("the gate accepts both");
            let graphs: Vec<_> = built.iter().map(|engine| engine.graph).collect();
            assert_eq!(graphs, [ModelGraph::BackboneFirst, ModelGraph::BackboneSecond]);
            let mut detector = shop
                .detector()
                .with_options(|options| options.engine.trt_backbone = Some(built[0].path.clone()))
                .build()
                .expect("both engines exist");
            same(&shop.find(&mut detector), &shop.expected(), 1e-2);
        }

        #[test]
        #[ignore = "needs an NVIDIA GPU and TensorRT"]
        fn every_graph_can_be_an_engine() {
            let (shop, tensorrt) =
                (Workshop::new(&ExportOptions { detection_only: false, ..for_tensorrt() }), tensorrt());
            let graphs = ModelGraph::all_of(shop.model.manifest());
            let options = BuildOptions { graphs: graphs.clone(), ..quick() };
            let built = EngineBuild::new(&shop.model, &tensorrt, &shop.onnxruntime, options)
                .run(&shop.engines(), &mut |_| ())
                .expect("the gate accepts all");
            assert_eq!(built.len(), graphs.len());
            let last = built.last().and_then(|engine| engine.report.as_ref()).expect("a GPU is here");
            for name in [tensor::TEXT_FEATURES, tensor::EXEMPLAR_FEATURES, tensor::MASKS] {
                assert!(last.outputs.iter().any(|output| output.output == name), "{name} was not compared");
            }
        }

        #[test]
        #[ignore = "needs an NVIDIA GPU and TensorRT"]
        fn engines_in_the_cache_are_built_once() {
            let (shop, tensorrt) = (Workshop::new(&for_tensorrt()), tensorrt());
            for expected in [6, 0] {
                let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
                let (engines, tensorrt, seen) = (shop.engines(), tensorrt.clone(), lines.clone());
                let mut detector = Detector::builder()
                    .with_open_model(shop.model.clone())
                    .with_text_cache(TextCacheFile::None)
                    .with_prepared_engines(Target::TensorRt, move |request| {
                        let report = |line: &str| seen.lock().expect("no panic").push(line.to_owned());
                        let (model, rest, cancellation) = (request.model, request.rest, request.cancellation);
                        cached_engines(model, &tensorrt, rest, quick(), &engines, cancellation, &report)
                    })
                    .build()
                    .expect("a GPU is here");
                same(&shop.find(&mut detector), &shop.expected(), 1e-2);
                let lines = lines.lock().expect("no panic");
                assert_eq!(lines.len(), expected, "{lines:?}");
            }
        }
    }
}
