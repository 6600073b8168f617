//! Engines with the tensors of DART's engines that run the graphs of an exported model.

use half::f16;
use ocelli::tensorrt::dart::{image_positions, name};
use ocelli_engines::fake::FakeEngine;
use ocelli_engines::{Dim, ElementType, Engine, EngineSpec, Result, Tensor, TensorSpec};
use serde_json::Value;

/// An engine with the interface of DART's scripts that runs a graph of an exported model. Options: `classes`, `words`,
/// `presence`, `half` (16-bit inputs and outputs), `twice` (two outputs of one size).
pub fn engine(inner: Box<dyn Engine>, options: &Value) -> Box<dyn Engine> {
    let size = |spec: &TensorSpec, axis: usize| match &spec.shape[axis] {
        Dim::Fixed(size) => *size,
        Dim::Named(name) => panic!("{name} is dynamic"),
    };
    let half = options["half"].as_bool().unwrap_or(false);
    if inner.spec().input("pixel_values").is_some() {
        return backbone(inner, half, options["twice"].as_bool().unwrap_or(false));
    }
    let spec = inner.spec();
    let image = spec.input("fpn_2").expect("an encoder-decoder has it");
    let (width, grid) = (size(image, 1), size(image, 2));
    let queries = size(spec.output("logits").expect("an encoder-decoder has it"), 1);
    let classes = options["classes"].as_u64().unwrap_or(4) as usize;
    let presence = options["presence"].as_bool().unwrap_or(true);
    let words = options["words"].as_u64().expect("the caller sets it") as usize;
    encoder_decoder(inner, [classes, words, width, grid, queries], presence, half)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    match tensor.element_type() {
        ElementType::F16 => {
            tensor.as_slice::<f16>().expect("it is").iter().map(|value| value.to_f32()).collect()
        }
        _ => tensor.as_f32().expect("it is").to_vec(),
    }
}

fn write(tensor: &mut Tensor, half: bool, shape: &[usize], values: &[f32]) {
    if half {
        let to = tensor.reset::<f16>(shape);
        to.iter_mut().zip(values).for_each(|(to, value)| *to = f16::from_f32(*value));
    } else {
        tensor.reset_f32(shape).copy_from_slice(values);
    }
}

fn encoder_decoder(
    mut inner: Box<dyn Engine>,
    [classes, words, width, grid, queries]: [usize; 5],
    presence: bool,
    half: bool,
) -> Box<dyn Engine> {
    let number = if half { ElementType::F16 } else { ElementType::F32 };
    let spec = |name: &str, element_type, shape: &[usize]| {
        TensorSpec::new(name, element_type, shape.iter().map(|size| Dim::Fixed(*size)))
    };
    let mut outputs = vec![
        spec(name::SCORES, number, &[classes, queries, 1]),
        spec(name::BOXES, number, &[classes, queries, 4]),
    ];
    if presence {
        outputs.push(spec(name::PRESENCE, number, &[classes, 1]));
    }
    let own = EngineSpec {
        inputs: vec![
            spec(name::IMAGE, number, &[classes, width, grid, grid]),
            spec(name::POSITIONS, number, &[classes, width, grid, grid]),
            spec(name::TEXT, number, &[words, classes, width]),
            // The scripts export it in fp32 whatever the precision.
            spec(name::TEXT_MASK, ElementType::F32, &[classes, words]),
        ],
        outputs,
    };
    Box::new(FakeEngine::new(own, move |inputs, outputs| -> Result<()> {
        let input = |name: &str| inputs.iter().find(|(known, _)| *known == name).expect("it was checked").1;
        let (image, size) = (floats(input(name::IMAGE)), width * grid * grid);
        assert!(
            image.chunks_exact(size).all(|one| one == &image[..size]),
            "expected the image features once for each class"
        );
        let (positions, table) = (floats(input(name::POSITIONS)), image_positions(grid, width));
        for one in positions.chunks_exact(size) {
            let off = one.iter().zip(&table).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-3, "positions are off by {off}");
        }
        // From [token, class, channel] to [class, token, channel].
        let text = floats(input(name::TEXT));
        let mut features = Vec::with_capacity(text.len());
        for class in 0..classes {
            for token in 0..words {
                features.extend_from_slice(&text[(token * classes + class) * width..][..width]);
            }
        }
        let mask = floats(input(name::TEXT_MASK)).iter().map(|&one| i64::from(one == 0.0)).collect();
        let image = Tensor::f32(&[1, width, grid, grid], image[..size].to_vec())?;
        let features = Tensor::f32(&[classes, words, width], features)?;
        let mask = Tensor::i64(&[classes, words], mask)?;
        let (mut logits, mut boxes, mut there) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        inner.run(
            &[("fpn_2", &image), ("prompt_features", &features), ("prompt_mask", &mask)],
            &mut [("logits", &mut logits), ("boxes", &mut boxes), ("presence", &mut there)],
        )?;
        for (wanted, out) in outputs.iter_mut() {
            match *wanted {
                name::SCORES => write(out, half, &[classes, queries, 1], logits.as_f32()?),
                name::BOXES => {
                    let centred = boxes
                        .as_f32()?
                        .chunks_exact(4)
                        .flat_map(|b| [(b[0] + b[2]) / 2.0, (b[1] + b[3]) / 2.0, b[2] - b[0], b[3] - b[1]]);
                    write(out, half, &[classes, queries, 4], &centred.collect::<Vec<_>>());
                }
                _ => write(out, half, &[classes, 1], there.as_f32()?),
            }
        }
        Ok(())
    }))
}

/// Its feature levels have arbitrary names, the coarsest first.
fn backbone(mut inner: Box<dyn Engine>, half: bool, twice: bool) -> Box<dyn Engine> {
    let number = if half { ElementType::F16 } else { ElementType::F32 };
    let known = inner.spec().clone();
    let shape = |name: &str| known.output(name).or(known.input(name)).map(|spec| spec.shape.clone());
    let levels: Vec<&str> =
        ["fpn_2", "fpn_1", "fpn_0"].into_iter().filter(|name| shape(name).is_some()).collect();
    let mut outputs: Vec<TensorSpec> = levels
        .iter()
        .enumerate()
        .map(|(index, level)| {
            TensorSpec::new(format!("out_{index}"), number, shape(level).expect("the graph has it"))
        })
        .collect();
    if twice {
        outputs.push(TensorSpec::new("position", number, shape("fpn_2").expect("the graph has it")));
    }
    let pixels = TensorSpec::new("images", number, shape("pixel_values").expect("the graph has it"));
    let levels: Vec<String> = levels.into_iter().map(str::to_owned).collect();
    Box::new(FakeEngine::new(EngineSpec { inputs: vec![pixels], outputs }, move |inputs, outputs| {
        let pixels = Tensor::f32(inputs[0].1.shape(), floats(inputs[0].1))?;
        for (wanted, out) in outputs.iter_mut() {
            let index: usize = wanted.trim_start_matches("out_").parse().expect("its names are numbered");
            let mut level = Tensor::empty();
            inner.run(&[("pixel_values", &pixels)], &mut [(&levels[index], &mut level)])?;
            write(out, half, level.shape(), level.as_f32()?);
        }
        Ok(())
    }))
}
