use super::*;
use crate::tensor::ElementType;
use ocelli_error::ErrorKind;

/// `y = f(x)` with `[n, 4]` on both sides, n from 0 to 64.
fn tensors() -> Vec<PlanTensor> {
    let tensor = |name: &str, is_input: bool| PlanTensor {
        name: name.into(),
        is_input,
        element_type: ElementType::F32,
        sizes: vec![-1, 4],
        range: is_input.then(|| [vec![0, 4], vec![64, 4]]),
    };
    vec![tensor("y", false), tensor("x", true)]
}

/// A name for the dimension of both sides, and some that change nothing.
fn names() -> DimensionNames {
    [("x", 0), ("y", 0), ("x", 1), ("z", 0)]
        .map(|(tensor, axis)| ((tensor.to_owned(), axis), "n".to_owned()))
        .into()
}

fn text(description: &Description) -> String {
    format!("{}, {}", description.spec.inputs[0], description.spec.outputs[0])
}

#[test]
fn dynamic_dimensions_get_the_given_names_or_their_own() {
    for (names, shapes) in
        [(names(), "x: f32[n, 4], y: f32[n, 4]"), (DimensionNames::new(), "x: f32[x.0, 4], y: f32[y.0, 4]")]
    {
        let description = Description::of(&tensors(), &names);
        assert_eq!(text(&description), shapes);
        assert_eq!((description.inputs, description.outputs), (vec![1], vec![0]), "positions in the plan");
    }
}

#[test]
fn sizes_outside_the_profile_are_refused_with_a_remedy() {
    let description = Description::of(&tensors(), &names());
    let check = |rows, remedy: Option<Remedy>| {
        description.check_sizes(&[("x", &Tensor::zeros::<f32>(&[rows, 4]))], remedy.as_ref())
    };
    check(0, None).expect("the least");
    check(64, None).expect("the most");
    let error = check(70, None).expect_err("64 is the most");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().ends_with("; build it for sizes up to 70"), "{error}");
    let error = check(65, Some(Box::new(|name, size| format!("set max_{name} to {size}"))));
    assert_eq!(
        error.expect_err("64 is the most").to_string(),
        "input `x`, dimension 0: `n` is 65, the plan was built for 0 to 64; set max_n to 65"
    );
}

#[test]
fn the_usual_reasons_are_explained() {
    let cases = [
        ("(Serialization assertion magicTag == kMAGIC failed.)", "it is not a plan of this TensorRT"),
        ("Error Code 1: Version tag does not match.", "another version of TensorRT built it"),
        ("anything else", "TensorRT refuses it"),
    ];
    for (reason, expected) in cases {
        assert_eq!(meaning(reason), expected, "{reason}");
    }
}
