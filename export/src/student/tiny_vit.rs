//! TinyViT (Wu et al. 2022): MobileNet blocks, then attention inside windows.

use super::{Layer, Names, Network, Nonlinearity, ROOT, Student, StudentOrigin};

const GELU: Layer = Layer::Activate(Nonlinearity::Gelu);

pub(super) fn network(student: &Student) -> Network {
    // The layers that halve the map are at the start of a stage in `timm`, and at the end of the one before in its own code.
    let (conv, stem, stages_of, earlier) = match student.origin {
        StudentOrigin::Dart => ("conv", ["patch_embed.conv1", "patch_embed.conv2"], "stages_", 0),
        StudentOrigin::EfficientSam3 => ("c", ["patch_embed.seq.0", "patch_embed.seq.2"], "layers.", 1),
    };
    let names = Names { conv, norm: "bn" };
    let three = |place: &str, [input, hidden, output]: [usize; 3], stride: usize| {
        vec![
            names.conv(&format!("{place}.conv1"), [input, hidden], 1, 1),
            GELU,
            names.depthwise(&format!("{place}.conv2"), hidden, 3, stride),
            GELU,
            names.conv(&format!("{place}.conv3"), [hidden, output], 1, 1),
        ]
    };
    let mut before = student.stages[0].width;
    let stem = vec![
        names.conv(stem[0], [3, student.stem], 3, 2),
        GELU,
        names.conv(stem[1], [student.stem, before], 3, 2),
    ];
    let mut stages = Vec::new();
    for (i, stage) in student.stages.iter().enumerate() {
        let width = stage.width;
        let mut layers = Vec::new();
        if i > 0 {
            layers = three(&format!("{stages_of}{}.downsample", i - earlier), [before, width, width], 2);
        }
        for j in 0..stage.blocks {
            let place = format!("{stages_of}{i}.blocks.{j}");
            if i == 0 {
                layers.push(Layer::Residual(three(&place, [width, 4 * width, width], 1)));
                layers.push(GELU);
                continue;
            }
            let (heads, window) = (stage.heads, stage.window);
            let attention = Layer::Windows { name: format!("{ROOT}.{place}.attn"), width, heads, window };
            let perceptron = Layer::Perceptron { name: format!("{ROOT}.{place}.mlp"), width };
            layers.extend([
                Layer::Residual(vec![attention]),
                names.depthwise(&format!("{place}.local_conv"), width, 3, 1),
                Layer::Residual(vec![perceptron]),
            ]);
        }
        before = width;
        stages.push(layers);
    }
    Network { stem, stages }
}
