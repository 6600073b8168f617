use ocelli_engines::ErrorKind;
use ocelli_engines::fake::FakeEngine;

use super::super::sample::manifest;
use super::*;

fn spec(name: &str, element_type: ElementType, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, element_type, shape.iter().map(|size| Dim::Fixed(*size)))
}

/// An encoder-decoder for two classes, with another shape or type for one tensor.
fn decoder(change: impl FnOnce(&mut EngineSpec)) -> EngineSpec {
    let f32 = ElementType::F32;
    let mut spec = EngineSpec {
        inputs: vec![
            spec(name::IMAGE, f32, &[2, 4, 2, 2]),
            spec(name::POSITIONS, f32, &[2, 4, 2, 2]),
            spec(name::TEXT, f32, &[2, 2, 4]),
            spec(name::TEXT_MASK, f32, &[2, 2]),
        ],
        outputs: vec![spec(name::SCORES, f32, &[2, 3, 1]), spec(name::BOXES, f32, &[2, 3, 4])],
    };
    change(&mut spec);
    spec
}

#[test]
fn positions_are_those_of_the_reference() {
    // `Sam3SinePositionEmbedding(num_position_features=4, normalize=True)` of transformers 5.23 on a grid of 3 × 3.
    let rows = [
        [0.866026, -0.866025, -0.000002],
        [-0.499999, -0.500001, 1.0],
        [0.020942, 0.041876, 0.06279],
        [0.999781, 0.999123, 0.998027],
    ];
    let mut expected = Vec::new();
    // y first: constant along a row; then x.
    for row in rows {
        expected.extend(row.iter().flat_map(|value| [*value; 3]));
    }
    for row in rows {
        expected.extend([row; 3].concat());
    }
    let found = image_positions(3, 8);
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() < 3e-6, "{place}: {found}, expected {expected}");
    }
}

#[test]
fn inputs_and_outputs_are_converted() {
    for (mask_type, presence) in [
        (ElementType::F32, true),
        (ElementType::Bool, false),
        (ElementType::I32, true),
        (ElementType::I64, false),
    ] {
        let spec = decoder(|own| {
            own.inputs[3].element_type = mask_type;
            if presence {
                own.outputs.push(spec(name::PRESENCE, ElementType::F32, &[2, 1]));
            }
        });
        let engine = FakeEngine::new(spec, move |inputs, outputs| {
            let input = |name: &str| inputs.iter().find(|one| one.0 == name).expect("it was checked").1;
            let image: Vec<f32> = (0..16).map(|value| value as f32).collect();
            assert_eq!(
                input(name::IMAGE).as_f32()?,
                [&image[..], &image[..]].concat(),
                "once for each class"
            );
            // The one class is repeated to fill both places; [token, class, channel].
            let words = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 5.0, 6.0, 7.0, 8.0];
            assert_eq!(input(name::TEXT).as_f32()?, words);
            let mask = input(name::TEXT_MASK);
            let padding: Vec<f32> = match mask_type {
                ElementType::Bool => {
                    mask.as_slice::<bool>()?.iter().map(|&one| f32::from(u8::from(one))).collect()
                }
                ElementType::I32 => mask.as_slice::<i32>()?.iter().map(|&one| one as f32).collect(),
                ElementType::I64 => mask.as_slice::<i64>()?.iter().map(|&one| one as f32).collect(),
                _ => mask.as_f32()?.to_vec(),
            };
            assert_eq!(padding, [0.0, 1.0, 0.0, 1.0], "1 = padding, of {mask_type}");
            for (name, tensor) in outputs.iter_mut() {
                match *name {
                    name::SCORES => {
                        tensor.reset_f32(&[2, 3, 1]).copy_from_slice(&[1.0, 2.0, 3.0, 9.0, 9.0, 9.0]);
                    }
                    name::BOXES => {
                        let to = tensor.reset_f32(&[2, 3, 4]);
                        to.chunks_exact_mut(4).for_each(|to| to.copy_from_slice(&[0.5, 0.25, 0.5, 0.25]));
                    }
                    _ => tensor.reset_f32(&[2, 1]).copy_from_slice(&[-2.0, 9.0]),
                }
            }
            Ok(())
        });
        let mut adapted = DartEncoderDecoder::new(Box::new(engine), &manifest()).expect("its shapes fit");
        assert_eq!(adapted.max_classes(), 2);
        let image = Tensor::f32(&[1, 4, 2, 2], (0..16).map(|value| value as f32).collect()).expect("fits");
        let words = Tensor::f32(&[1, 2, 4], (1..9).map(|value| value as f32).collect()).expect("fits");
        let mask = Tensor::i64(&[1, 2], vec![1, 0]).expect("fits");
        let (mut logits, mut boxes, mut there) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        let inputs =
            [(tensor::FPN[2], &image), (tensor::PROMPT_FEATURES, &words), (tensor::PROMPT_MASK, &mask)];
        let mut outputs =
            [(tensor::PRESENCE, &mut there), (tensor::BOXES, &mut boxes), (tensor::LOGITS, &mut logits)];
        adapted.run(&inputs, &mut outputs).expect("it runs");
        assert_eq!(logits, Tensor::f32(&[1, 3], vec![1.0, 2.0, 3.0]).expect("fits"), "of the first class");
        assert_eq!(boxes.shape(), [1, 3, 4]);
        assert_eq!(boxes.as_f32().expect("f32")[..4], [0.25, 0.125, 0.75, 0.375], "corners");
        let certain = if presence { -2.0 } else { CERTAIN };
        assert_eq!(there, Tensor::f32(&[1, 1], vec![certain]).expect("fits"));

        // Three classes at once are more than the engine takes.
        let words = Tensor::zeros::<f32>(&[3, 2, 4]);
        let mask = Tensor::zeros::<i64>(&[3, 2]);
        let inputs =
            [(tensor::FPN[2], &image), (tensor::PROMPT_FEATURES, &words), (tensor::PROMPT_MASK, &mask)];
        let outcome = adapted.run(&inputs, &mut [(tensor::LOGITS, &mut logits)]);
        let error = outcome.expect_err("it takes two at most");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("3 classes at once"), "{error}");
    }
}

#[test]
fn encoder_decoders_of_other_sizes_are_refused() {
    let cases: [(&str, fn(&mut EngineSpec), &str); 6] = [
        ("another grid", |own| own.inputs[0].shape[2] = Dim::Fixed(3), "input `img_feat`"),
        ("another width", |own| own.inputs[2].shape[2] = Dim::Fixed(8), "input `text_feats`"),
        ("another context", |own| own.inputs[3].shape[1] = Dim::Fixed(77), "input `text_mask`"),
        ("no positions", |own| drop(own.inputs.remove(1)), "input `img_pos`"),
        ("other queries", |own| own.outputs[0].shape[1] = Dim::Fixed(300), "output `scores`"),
        ("classes that vary", |own| own.inputs[0].shape[0] = Dim::named("M"), "input `img_feat`"),
    ];
    let mut wrong = Vec::new();
    for (what, change, part) in cases {
        let engine = Box::new(FakeEngine::zeros(decoder(change)));
        match DartEncoderDecoder::new(engine, &manifest()) {
            Err(error) if error.to_string().contains(part) => {}
            other => wrong.push(format!("{what}: expected {part}, got {:?}", other.err())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn levels_of_a_backbone_are_identified_by_their_size() {
    let f32 = ElementType::F32;
    let levels = |sides: &[usize], number: ElementType| EngineSpec {
        inputs: vec![spec("images", number, &[1, 3, 28, 28])],
        outputs: sides
            .iter()
            .enumerate()
            .map(|(index, side)| spec(&format!("out_{index}"), number, &[1, 4, *side, *side]))
            .collect(),
    };
    // Sides of the outputs, type of all tensors, the names or a part of the error.
    let cases: [(&[usize], ElementType, Result<&[&str], &str>); 6] = [
        (&[8, 4, 2], f32, Ok(&["fpn_0", "fpn_1", "fpn_2"])),
        (&[2, 4, 8], f32, Ok(&["fpn_0", "fpn_1", "fpn_2"])),
        (&[2], f32, Ok(&["fpn_2"])),
        (&[2, 8], ElementType::F16, Ok(&["fpn_0", "fpn_2"])),
        (&[8, 4], f32, Err("output `fpn_2`: the model needs [1, 4, 2, 2]")),
        (&[2, 2], f32, Err("it could be `out_0` or `out_1`")),
    ];
    for (sides, number, expected) in cases {
        let engine = FakeEngine::zeros(levels(sides, number));
        let made = DartBackbone::new(Box::new(engine), &manifest());
        let (mut adapted, names) = match (made, expected) {
            (Ok(adapted), Ok(names)) => (adapted, names),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{sides:?}: {error}");
                continue;
            }
            (made, expected) => panic!("{sides:?}: expected {expected:?}, got {:?}", made.err()),
        };
        let found: Vec<_> = adapted.spec().outputs.iter().map(|output| output.name.clone()).collect();
        assert_eq!(found, names, "{sides:?}");
        let mut coarse = Tensor::empty();
        let pixels = Tensor::zeros::<f32>(&[1, 3, 28, 28]);
        adapted
            .run(&[(tensor::PIXEL_VALUES, &pixels)], &mut [(tensor::FPN[2], &mut coarse)])
            .unwrap_or_else(|e| panic!("{sides:?}: {e}"));
        assert_eq!((coarse.shape(), coarse.element_type()), (&[1, 4, 2, 2][..], f32), "{sides:?}");
    }
}
