//! TinyViT (Wu et al. 2022): MobileNet blocks, then attention inside windows.

use super::{Layer, Names, Network, Nonlinearity, ROOT, Student, StudentOrigin};

const GELU: Layer = Layer::Activate(Nonlinearity::Gelu);

/// The names of a stage's modules. The layers that halve the map are at the start of a stage in `timm`, and at the end of
/// the one before in its own code.
struct Spelling {
    names: Names,
    is_timm: bool,
}

impl Spelling {
    fn block(&self, stage: usize, block: usize) -> String {
        if self.is_timm {
            format!("stages_{stage}.blocks.{block}")
        } else {
            format!("layers.{stage}.blocks.{block}")
        }
    }

    fn merging(&self, stage: usize) -> String {
        if self.is_timm {
            format!("stages_{stage}.downsample")
        } else {
            format!("layers.{}.downsample", stage - 1)
        }
    }
}

pub(super) fn network(student: &Student) -> Network {
    let is_timm = student.origin == StudentOrigin::Dart;
    let conv = if is_timm { "conv" } else { "c" };
    let spelling = Spelling { names: Names { conv, norm: "bn" }, is_timm };
    let names = spelling.names;
    let stem = if is_timm {
        ["patch_embed.conv1", "patch_embed.conv2"]
    } else {
        ["patch_embed.seq.0", "patch_embed.seq.2"]
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
            let place = spelling.merging(i);
            layers.extend([
                names.conv(&format!("{place}.conv1"), [before, width], 1, 1),
                GELU,
                names.depthwise(&format!("{place}.conv2"), width, 3, 2),
                GELU,
                names.conv(&format!("{place}.conv3"), [width, width], 1, 1),
            ]);
        }
        for j in 0..stage.blocks {
            let place = spelling.block(i, j);
            if i == 0 {
                layers.push(Layer::Residual(vec![
                    names.conv(&format!("{place}.conv1"), [width, 4 * width], 1, 1),
                    GELU,
                    names.depthwise(&format!("{place}.conv2"), 4 * width, 3, 1),
                    GELU,
                    names.conv(&format!("{place}.conv3"), [4 * width, width], 1, 1),
                ]));
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
