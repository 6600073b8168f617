//! EfficientViT (Cai et al. 2022): MobileNet blocks, in the small models followed by linear attention.

use super::{Conv, Layer, Names, Network, Nonlinearity, ROOT, Student, StudentStage};

const NAMES: Names = Names { conv: "conv", norm: "norm" };

/// A block of 1×1, depthwise 3×3 and 1×1. The later stages have biases instead of the first two norms.
struct Inverted {
    place: String,
    input: usize,
    output: usize,
    hidden: usize,
    stride: usize,
    fewer_norms: bool,
    activation: Nonlinearity,
}

impl Inverted {
    fn layers(&self) -> Vec<Layer> {
        let Self { place, input, output, hidden, stride, fewer_norms, activation } = self;
        let part = |part: &str, widths, kernel, stride, groups| {
            let conv = NAMES.parts(&format!("{place}.{part}"), widths, kernel, stride, groups);
            Layer::Conv(if *fewer_norms { Conv { norm: None, bias: true, ..conv } } else { conv })
        };
        vec![
            part("inverted_conv", [*input, *hidden], 1, 1, 1),
            Layer::Activate(*activation),
            part("depth_conv", [*hidden, *hidden], 3, *stride, *hidden),
            Layer::Activate(*activation),
            NAMES.conv(&format!("{place}.point_conv"), [*hidden, *output], 1, 1),
        ]
    }
}

/// The stages of EfficientViT-L, in `timm`'s names. The first block of a stage halves the map and has no residual sum.
pub(super) fn large(student: &Student) -> Network {
    let activation = Nonlinearity::GeluTanh;
    let width = student.stem;
    let layers = [
        NAMES.conv("stem_in_conv", [3, width], 3, 2),
        NAMES.conv("stem_res0.main.conv1", [width, width], 3, 1),
        NAMES.conv("stem_res0.main.conv2", [width, width], 3, 1),
    ];
    let stages = blocks(student, |i, j, input, stage| {
        let place = format!("stages_{i}.blocks.{j}.main");
        let (hidden, stride) = if j == 0 { (16 * input, 2) } else { (4 * input, 1) };
        let block = match i {
            // Two layers instead of three.
            0 | 1 => vec![
                NAMES.conv(&format!("{place}.spatial_conv"), [input, hidden], 3, stride),
                Layer::Activate(activation),
                NAMES.conv(&format!("{place}.point_conv"), [hidden, stage.width], 1, 1),
            ],
            _ => {
                Inverted { place, input, output: stage.width, hidden, stride, fewer_norms: true, activation }
                    .layers()
            }
        };
        if j == 0 { block } else { vec![Layer::Residual(block)] }
    });
    Network { stem: stem(layers, activation), stages }
}

/// EfficientViT-B, in the names of its own code.
pub(super) fn small(student: &Student) -> Network {
    let activation = Nonlinearity::HardSwish;
    let width = student.stem;
    let layers = [
        NAMES.conv("input_stem.op_list.0", [3, width], 3, 2),
        NAMES.depthwise("input_stem.op_list.1.main.depth_conv", width, 3, 1),
        NAMES.conv("input_stem.op_list.1.main.point_conv", [width, width], 1, 1),
    ];
    let stages = blocks(student, |i, j, input, stage| {
        let place = format!("stages.{i}.op_list.{j}");
        let inverted = |part: &str| Inverted {
            place: format!("{place}.{part}"),
            input,
            output: stage.width,
            hidden: 4 * input,
            stride: if j == 0 { 2 } else { 1 },
            fewer_norms: i >= 2,
            activation,
        };
        match (i, j) {
            (_, 0) => inverted("main").layers(),
            (0 | 1, _) => vec![Layer::Residual(inverted("main").layers())],
            _ => {
                let name = format!("{ROOT}.{place}.context_module.main");
                let attention = Layer::LinearAttention { name, width: input, heads: stage.heads };
                vec![
                    Layer::Residual(vec![attention]),
                    Layer::Residual(inverted("local_module.main").layers()),
                ]
            }
        }
    });
    Network { stem: stem(layers, activation), stages }
}

/// The first convolution, and two more around which there is a residual sum.
fn stem([first, second, third]: [Layer; 3], activation: Nonlinearity) -> Vec<Layer> {
    let block = vec![second, Layer::Activate(activation), third];
    vec![first, Layer::Activate(activation), Layer::Residual(block)]
}

/// The stages: `block` has stage, block, channels before it, and the stage.
fn blocks(
    student: &Student,
    block: impl Fn(usize, usize, usize, &StudentStage) -> Vec<Layer>,
) -> Vec<Vec<Layer>> {
    let mut before = student.stem;
    let mut stages = Vec::new();
    for (i, stage) in student.stages.iter().enumerate() {
        let input = |j: usize| if j == 0 { before } else { stage.width };
        stages.push((0..stage.blocks).flat_map(|j| block(i, j, input(j), stage)).collect());
        before = stage.width;
    }
    stages
}
