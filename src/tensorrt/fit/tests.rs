use ocelli_engines::fake::FakeEngine;
use ocelli_engines::{ElementType, EngineSpec};

use super::super::sample::manifest;
use ocelli_error::ErrorKind;

use super::*;

fn tensor_of(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, ElementType::F32, shape.iter().map(|size| Dim::Fixed(*size)))
}

fn backbone() -> EngineSpec {
    EngineSpec {
        inputs: vec![tensor_of("pixel_values", &[1, 3, 28, 28])],
        outputs: vec![tensor_of("fpn_2", &[1, 4, 2, 2])],
    }
}

#[test]
fn an_engine_of_another_graph_or_model_is_refused() {
    type Change = fn(&mut EngineSpec);
    let cases: [(ModelGraph, Change, Result<bool, &str>); 6] = [
        (ModelGraph::Backbone, |_| (), Ok(false)),
        (ModelGraph::Backbone, |spec| spec.inputs[0].shape[0] = Dim::named("images"), Ok(false)),
        (ModelGraph::Backbone, |spec| spec.outputs[0].name = "out_0".into(), Ok(true)),
        (
            ModelGraph::Backbone,
            |spec| spec.outputs[0].shape[1] = Dim::Fixed(8),
            Err("its output is fpn_2: f32[1, 8, 2, 2], the model needs [1, 4, 2, 2]; it is not a backbone"),
        ),
        (
            ModelGraph::Backbone,
            |spec| spec.inputs[0] = tensor_of("input_ids", &[16, 2]),
            Err("it has no input `pixel_values`, but input_ids: f32[16, 2]"),
        ),
        (
            ModelGraph::EncoderDecoder,
            |_| (),
            Err("it has no input `fpn_2`, but pixel_values: f32[1, 3, 28, 28]"),
        ),
    ];
    let mut wrong = Vec::new();
    for (graph, change, expected) in cases {
        let mut spec = backbone();
        change(&mut spec);
        let found = fit(Box::new(FakeEngine::zeros(spec)), graph, &manifest(), Path::new("x.engine"));
        let fits = match (&found, expected) {
            (Ok(fitted), Ok(of_dart)) => fitted.of_dart == of_dart,
            (Err(error), Err(part)) => {
                error.kind() == ErrorKind::Mismatch && error.to_string().contains(part)
            }
            _ => false,
        };
        if !fits {
            wrong.push(format!(
                "{graph}: expected {expected:?}, got {:?}",
                found.map(|fitted| fitted.of_dart)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
