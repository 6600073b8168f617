use super::*;

fn spec() -> EngineSpec {
    EngineSpec {
        inputs: vec![
            TensorSpec::new("features", ElementType::F32, ["classes".into(), "tokens".into(), Dim::Fixed(2)]),
            TensorSpec::new("mask", ElementType::I64, ["classes".into(), "tokens".into()]),
        ],
        outputs: vec![
            TensorSpec::new("logits", ElementType::F32, ["classes".into(), Dim::Fixed(5)]),
            TensorSpec::new("found", ElementType::I64, ["detections".into()]),
        ],
    }
}

#[test]
fn misuse_is_named() {
    let features = Tensor::zeros::<f32>(&[3, 4, 2]);
    let mask = Tensor::zeros::<i64>(&[3, 4]);
    let shorter = Tensor::zeros::<i64>(&[3, 1]);
    let wider = Tensor::zeros::<f32>(&[3, 4, 3]);
    let flat = Tensor::zeros::<f32>(&[12, 2]);
    type Case<'c> = (&'c [(&'c str, &'c Tensor)], &'c [&'c str], &'c str);
    let cases: &[Case<'_>] = &[
        (
            &[("features", &features), ("mask", &mask), ("boxes", &mask)],
            &["logits"],
            "input `boxes` does not exist: expected one of `features`, `mask`",
        ),
        (
            &[("features", &features)],
            &["logits"],
            "input `mask` is missing: expected mask: i64[classes, tokens]",
        ),
        (
            &[("mask", &mask), ("features", &features), ("mask", &mask)],
            &["logits"],
            "input `mask` is passed twice",
        ),
        (&[("features", &features), ("mask", &features)], &["logits"], "input `mask`: expected i64, got f32"),
        (
            &[("features", &wider), ("mask", &mask)],
            &["logits"],
            "input `features`: expected shape [classes, tokens, 2], got [3, 4, 3]",
        ),
        (
            &[("features", &flat), ("mask", &mask)],
            &["logits"],
            "input `features`: expected shape [classes, tokens, 2], got [12, 2]",
        ),
        (
            &[("mask", &shorter), ("features", &features)],
            &["logits"],
            "input `mask`, dimension 1: `tokens` is 4 in `features`, got 1 (shape [3, 1])",
        ),
        (
            &[("features", &features), ("mask", &mask)],
            &["boxes"],
            "output `boxes` does not exist: expected one of `logits`, `found`",
        ),
        (
            &[("features", &features), ("mask", &mask)],
            &["found", "logits", "found"],
            "output `found` is requested twice",
        ),
        (
            &[("features", &features), ("mask", &mask)],
            &[],
            "no output is requested: expected one or more of `logits`, `found`",
        ),
    ];
    let mut wrong = Vec::new();
    for (inputs, outputs, expected) in cases {
        let mut tensors: Vec<Tensor> = outputs.iter().map(|_| Tensor::empty()).collect();
        let outputs: Vec<_> = outputs.iter().copied().zip(&mut tensors).collect();
        match check_run(&spec(), inputs, &outputs) {
            Err(error) if error.to_string() == *expected && error.kind() == ErrorKind::InvalidArgument => {}
            other => wrong.push(format!("expected {expected:?}, got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn shapes_follow_from_the_inputs_where_they_can() {
    let spec = spec();
    for (classes, tokens) in [(3, 4), (1, 1), (0, 4), (0, 0)] {
        let features = Tensor::zeros::<f32>(&[classes, tokens, 2]);
        let mask = Tensor::zeros::<i64>(&[classes, tokens]);
        let bindings = check_inputs(&spec, &[("mask", &mask), ("features", &features)]).expect("they fit");
        assert_eq!(bindings.size("classes"), Some(classes));
        assert_eq!(bindings.size("detections"), None);
        assert_eq!(bindings.shape_of(&spec.outputs[0]), Some(vec![classes, 5]));
        assert_eq!(bindings.shape_of(&spec.outputs[1]), None);
    }
}

#[test]
fn results_of_another_shape_are_the_engines_fault() {
    let spec = spec();
    let features = Tensor::zeros::<f32>(&[3, 4, 2]);
    let mask = Tensor::zeros::<i64>(&[3, 4]);
    let bindings = check_inputs(&spec, &[("features", &features), ("mask", &mask)]).expect("they fit");
    let cases: [(Tensor, Option<&str>); 4] = [
        (Tensor::zeros::<f32>(&[3, 5]), None),
        (
            Tensor::zeros::<f32>(&[2, 5]),
            Some("output `logits`, dimension 0: `classes` is 3 in the inputs, got 2"),
        ),
        (Tensor::zeros::<f32>(&[3, 4]), Some("output `logits`: expected shape [classes, 5], got [3, 4]")),
        (Tensor::zeros::<i64>(&[3, 5]), Some("output `logits`: expected f32, got i64")),
    ];
    let mut wrong = Vec::new();
    for (mut tensor, expected) in cases {
        let checked = check_outputs(&spec, &bindings, &[("logits", &mut tensor)]);
        let message = checked.as_ref().err().map(ToString::to_string);
        if message.as_deref() != expected || checked.is_err_and(|error| error.kind() != ErrorKind::Execution)
        {
            wrong.push(format!("{tensor:?}: expected {expected:?}, got {message:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
