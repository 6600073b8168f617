//! RepViT (Wang et al. 2023): MobileNet blocks whose token mixer is a depthwise convolution with parallel branches.

use super::{Layer, Names, Network, Nonlinearity, ROOT, Student, StudentOrigin, gate_width};

const NAMES: Names = Names { conv: "c", norm: "bn" };

/// The names of one block's modules. Its own code numbers blocks through; `timm` groups them by stages.
struct Block {
    mixer: String,
    gate: String,
    perceptron: [String; 2],
}

impl Block {
    fn of_timm(place: &str) -> Self {
        let perceptron = [1, 2].map(|i| format!("{place}.channel_mixer.conv{i}"));
        Self { mixer: format!("{place}.token_mixer"), gate: format!("{place}.se"), perceptron }
    }

    fn of_original(number: usize) -> Self {
        let place = format!("features.{number}");
        let [mixer, gate] = [0, 1].map(|i| format!("{place}.token_mixer.{i}"));
        Self { mixer, gate, perceptron: original_perceptron(number) }
    }

    fn layers(&self, width: usize, gated: bool) -> Vec<Layer> {
        let mut layers = vec![Layer::RepMixer { name: format!("{ROOT}.{}", self.mixer), width }];
        if gated {
            let name = format!("{ROOT}.{}", self.gate);
            layers.push(Layer::Gate { name, width, hidden: gate_width(width) });
        }
        layers.push(perceptron(&self.perceptron, width));
        layers
    }
}

fn original_perceptron(number: usize) -> [String; 2] {
    [0, 2].map(|i| format!("features.{number}.channel_mixer.m.{i}"))
}

/// 1×1 to twice the width, GELU, 1×1 back, added to the input.
fn perceptron([first, second]: &[String; 2], width: usize) -> Layer {
    Layer::Residual(vec![
        NAMES.conv(first, [width, 2 * width], 1, 1),
        Layer::Activate(Nonlinearity::Gelu),
        NAMES.conv(second, [2 * width, width], 1, 1),
    ])
}

pub(super) fn network(student: &Student) -> Network {
    let is_timm = student.origin == StudentOrigin::Dart;
    let stem = if is_timm { ["stem.conv1", "stem.conv2"] } else { ["features.0.0", "features.0.2"] };
    let mut before = student.stages[0].width;
    let stem = vec![
        NAMES.conv(stem[0], [3, student.stem], 3, 2),
        Layer::Activate(Nonlinearity::Gelu),
        NAMES.conv(stem[1], [student.stem, before], 3, 2),
    ];
    // The number of the next block in the original's list.
    let mut number = 1;
    let mut stages = Vec::new();
    for (i, stage) in student.stages.iter().enumerate() {
        let mut layers = Vec::new();
        if i > 0 {
            let down = format!("stages_{i}.downsample");
            let (block, [spatial, channels], mixer) = if is_timm {
                (
                    Block::of_timm(&format!("{down}.pre_block")),
                    ["spatial_downsample", "channel_downsample"].map(|part| format!("{down}.{part}")),
                    [1, 2].map(|i| format!("{down}.ffn.conv{i}")),
                )
            } else {
                (
                    Block::of_original(number),
                    [0, 2].map(|i| format!("features.{}.token_mixer.{i}", number + 1)),
                    original_perceptron(number + 1),
                )
            };
            number += 2;
            layers.extend(block.layers(before, false));
            layers.push(NAMES.depthwise(&spatial, before, 3, 2));
            layers.push(NAMES.conv(&channels, [before, stage.width], 1, 1));
            layers.push(perceptron(&mixer, stage.width));
        }
        for j in 0..stage.blocks {
            let block = if is_timm {
                Block::of_timm(&format!("stages_{i}.blocks.{j}"))
            } else {
                Block::of_original(number)
            };
            number += 1;
            layers.extend(block.layers(stage.width, j % 2 == 0));
        }
        before = stage.width;
        stages.push(layers);
    }
    Network { stem, stages }
}
