use ocelli_error::ErrorKind;

use super::*;

fn verdict(errors: &[(&str, f32)]) -> AdapterVerdict {
    AdapterVerdict {
        adapter: "GPU 8086:9a49 driver 1".to_owned(),
        provider: "0.4.0".to_owned(),
        onnxruntime: "1.31.1".to_owned(),
        imgsz: 56,
        errors: errors.iter().map(|(name, error)| ((*name).to_owned(), *error)).collect(),
    }
}

#[test]
fn the_worst_output_decides() {
    let cases: [(&[(&str, f32)], Option<&str>, bool); 4] = [
        (&[("a x", 1e-6), ("b y", 8e-6)], Some("b y"), true),
        (&[("a x", 0.3), ("b y", 8e-6)], Some("a x"), false),
        (&[("a x", f32::MAX)], Some("a x"), false),
        (&[], None, false),
    ];
    for (errors, worst, accepted) in cases {
        let verdict = verdict(errors);
        assert_eq!((verdict.worst().map(|(name, _)| name), verdict.is_accepted()), (worst, accepted));
        // As a file has it.
        let text = serde_json::to_string(&verdict).expect("plain data");
        assert_eq!(serde_json::from_str::<AdapterVerdict>(&text).expect("it was just written"), verdict);
    }
}

#[test]
fn values_that_are_not_finite_are_the_largest_error() {
    let cases = [
        (vec![1.0, -2.0], vec![1.0, -2.0], 0.0),
        (vec![1.0, -1.5], vec![1.0, -2.0], 0.25),
        (vec![1.0, f32::NAN], vec![1.0, -2.0], f32::MAX),
        (vec![f32::INFINITY, 0.0], vec![1.0, -2.0], f32::MAX),
        (vec![1.0], vec![1.0, -2.0], f32::MAX),
        (vec![0.0], vec![0.0], 0.0),
    ];
    for (found, expected, error) in cases {
        assert_eq!(relative_error(&found, &expected), error, "{found:?}, {expected:?}");
    }
}

/// The engine inside the program takes the place of the adapter.
#[test]
fn every_output_of_every_graph_is_compared() {
    let request = ModelRequest {
        source: ModelSource::Builtin,
        target: Target::TensorRt,
        imgsz: Some(SOFTWARE_IMGSZ),
        masks: true,
        ..ModelRequest::default()
    };
    let model = Model::resolve(&request, &|_| (), &Cancellation::new()).expect("it is exported");
    let load = |path: &Path| -> Result<Box<dyn Engine>> {
        Ok(Box::new(EmbeddedEngine::builder().with_threads(1).build_from_file(path)?))
    };
    let errors = errors(&model, load).expect("it runs");
    let names: Vec<_> = errors.keys().map(String::as_str).collect();
    let expected = [
        "backbone fpn_0",
        "backbone fpn_1",
        "backbone fpn_2",
        "backbone image_prompt",
        "encoder_decoder boxes",
        "encoder_decoder encoded",
        "encoder_decoder logits",
        "encoder_decoder presence",
        "encoder_decoder queries",
        "exemplar_encoder exemplar_features",
        "mask_head masks",
        "mask_head semantic",
        "text_encoder text_features",
    ];
    assert_eq!(names, expected);
    assert!(errors.values().all(|error| *error <= 1e-5), "{errors:?}");
}

#[test]
fn an_adapter_that_computes_wrongly_is_refused_unless_allowed() {
    struct Wrong(EmbeddedEngine);
    impl Engine for Wrong {
        fn spec(&self) -> &ocelli_engines::EngineSpec {
            self.0.spec()
        }
        fn description(&self) -> &str {
            "wrong"
        }
        fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
            self.0.run(inputs, outputs)?;
            for (name, output) in outputs {
                if *name == tensor::LOGITS {
                    output.as_mut_slice::<f32>()?.iter_mut().for_each(|value| *value *= 1.5);
                }
            }
            Ok(())
        }
    }
    let adapter = Adapter::software("a wrong one");
    let checked = Checked { adapter: &adapter, provider: ("0.0.0", 1), onnxruntime: "0" };
    let load = |path: &Path| -> Result<Box<dyn Engine>> {
        Ok(Box::new(Wrong(EmbeddedEngine::builder().with_threads(1).build_from_file(path)?)))
    };
    let error = checked.check(false, load).expect_err("it computes wrongly");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(text.contains("the error of encoder_decoder logits is 5.0e-1 of its largest value"), "{text}");
    assert!(text.contains("`allow_inexact`"), "{text}");
    checked.check(true, load).expect("it was allowed");
    // It is remembered: nothing runs again.
    let remembered = AdapterVerdict::remembered();
    assert!(
        remembered
            .iter()
            .any(|verdict| verdict.adapter.starts_with("a wrong one ") && !verdict.is_accepted())
    );
    checked.check(false, |_| panic!("it is remembered")).expect_err("it computes wrongly");
    let entry = checked.entry().expect("there is a cache").expect("the driver is known");
    std::fs::remove_file(entry).expect("it is there");
}
