//! Convolutional image backbones, "students" of SAM3's vision transformer, as lists of layers.
//!
//! A layer knows the tensors that it needs and their shapes; `model/student.rs` writes it as ONNX nodes. The names below
//! [`ROOT`] are those of the file: `timm`'s in DART's files, those of the networks' own code in EfficientSAM3's.

mod efficient_vit;
mod rep_vit;
mod tiny_vit;

/// Prefix of a network's tensors.
pub(crate) const ROOT: &str = "vision_encoder.student";
/// Prefix of DART's adapters, one for each level of the pyramid.
pub(crate) const ADAPTERS: &str = "vision_encoder.adapters";
/// Prefix of the head that makes EfficientSAM3's features as wide as the vision transformer's.
pub(crate) const HEAD: &str = "vision_encoder.head";

/// The architecture of a student.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudentFamily {
    /// RepViT: depthwise convolutions with parallel branches, and gates.
    RepVit,
    /// The first stages of EfficientViT-L, which have convolutions only.
    EfficientVitL,
    /// EfficientViT-B: convolutions, then linear attention.
    EfficientVitB,
    /// TinyViT: convolutions, then attention inside windows.
    TinyVit,
}

/// Who trained a student, which decides how its features become the pyramid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudentOrigin {
    /// DART: three stages, each with an adapter to one level.
    Dart,
    /// EfficientSAM3: four stages, a head, and SAM3's own neck.
    EfficientSam3,
}

/// One stage of a student, at half the resolution of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StudentStage {
    /// Channels.
    pub width: usize,
    /// Blocks, without the layers between stages that the architecture has beside them.
    pub blocks: usize,
    /// Attention heads; 0 in a stage without attention.
    pub heads: usize,
    /// Side of an attention window; 0 without windows.
    pub window: usize,
}

/// A convolutional image backbone in place of the vision transformer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Student {
    /// The architecture.
    pub family: StudentFamily,
    /// Who trained it.
    pub origin: StudentOrigin,
    /// Channels of the first convolution.
    pub stem: usize,
    /// Front to back.
    pub stages: Vec<StudentStage>,
}

impl Student {
    /// Its layers.
    pub(crate) fn network(&self) -> Network {
        match self.family {
            StudentFamily::RepVit => rep_vit::network(self),
            StudentFamily::EfficientVitL => efficient_vit::large(self),
            StudentFamily::EfficientVitB => efficient_vit::small(self),
            StudentFamily::TinyVit => tiny_vit::network(self),
        }
    }

    /// Channels of its last stage.
    pub(crate) fn width(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.width)
    }

    /// Its name, with the size where it is a known one: `RepViT-M2.3`.
    pub fn name(&self) -> String {
        let widths: Vec<usize> = self.stages.iter().map(|stage| stage.width).collect();
        let size = match (self.family, widths.as_slice()) {
            (StudentFamily::RepVit, [48, ..]) => "-M0.9",
            (StudentFamily::RepVit, [64, ..]) => "-M1.1",
            (StudentFamily::RepVit, [80, ..]) => "-M2.3",
            (StudentFamily::EfficientVitL, [64, 128, 256]) => match self.stages[0].blocks {
                2 => "1",
                3 => "2",
                _ => "",
            },
            (StudentFamily::EfficientVitB, [16, ..]) => "0",
            (StudentFamily::EfficientVitB, [32, ..]) => "1",
            (StudentFamily::EfficientVitB, [48, ..]) => "2",
            (StudentFamily::TinyVit, [64, 128, 160, ..]) => "-5M",
            (StudentFamily::TinyVit, [64, 128, 256, ..]) => "-11M",
            (StudentFamily::TinyVit, [96, 192, 384, ..]) => "-21M",
            _ => "",
        };
        let family = match self.family {
            StudentFamily::RepVit => "RepViT",
            StudentFamily::EfficientVitL => "EfficientViT-L",
            StudentFamily::EfficientVitB => "EfficientViT-B",
            StudentFamily::TinyVit => "TinyViT",
        };
        format!("{family}{size}")
    }

    /// Why its blocks cannot be pruned or split.
    pub fn lacks_blocks(&self) -> String {
        format!("the image backbone is {}, which has no blocks of a vision transformer", self.name())
    }

    /// The numbers that a graph depends on.
    pub(crate) fn is_sound(&self) -> bool {
        let size = |n: usize| (1..=1 << 16).contains(&n);
        let stage = |s: &StudentStage| {
            let windows = s.heads == 0 || s.width.is_multiple_of(s.heads);
            size(s.width) && size(s.blocks) && windows && s.window <= 256
        };
        let windows = match self.family {
            StudentFamily::TinyVit => self.stages.iter().skip(1).all(|s| s.heads > 0 && s.window > 0),
            StudentFamily::EfficientVitB => self.stages.iter().skip(2).all(|s| s.heads > 0),
            _ => true,
        };
        size(self.stem) && self.stages.iter().all(stage) && windows
    }
}

/// A network: an image of 3 channels → the features of each stage.
pub(crate) struct Network {
    pub(crate) stem: Vec<Layer>,
    pub(crate) stages: Vec<Vec<Layer>>,
}

/// An activation of a student.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nonlinearity {
    Gelu,
    GeluTanh,
    HardSwish,
}

/// One step; x `[1, channels, h, w]`. Names are complete.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    Conv(Conv),
    Activate(Nonlinearity),
    /// x + layers(x).
    Residual(Vec<Layer>),
    /// BN(BN(conv 3×3) + conv 1×1 + x), each channel for itself.
    RepMixer {
        name: String,
        width: usize,
    },
    /// Squeeze and excite: channels times a gate that is computed from their means.
    Gate {
        name: String,
        width: usize,
        hidden: usize,
    },
    /// Attention inside windows, after a layer norm.
    Windows {
        name: String,
        width: usize,
        heads: usize,
        window: usize,
    },
    /// Layer norm, then two linear layers with GELU between them, for each pixel.
    Perceptron {
        name: String,
        width: usize,
    },
    /// Linear attention over the whole map at two scales.
    LinearAttention {
        name: String,
        width: usize,
        heads: usize,
    },
}

/// A convolution with zero padding that keeps the size, up to the stride.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    /// The module with `weight`, and `bias` where there is one.
    pub(crate) name: String,
    /// The batch norm after it.
    pub(crate) norm: Option<String>,
    pub(crate) bias: bool,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) groups: usize,
}

impl Conv {
    /// A convolution of single pixels with a batch norm.
    pub(crate) fn of_pixels(name: String, norm: String, [input, output]: [usize; 2]) -> Self {
        Self { name, norm: Some(norm), bias: false, input, output, kernel: 1, stride: 1, groups: 1 }
    }

    /// The shape of its weight.
    pub(crate) fn shape(&self) -> [usize; 4] {
        [self.output, self.input / self.groups, self.kernel, self.kernel]
    }
}

/// The hidden width of a gate: a quarter, rounded to a multiple of 8.
fn gate_width(width: usize) -> usize {
    ((width + 16) / 32 * 8).max(8)
}

/// The names of a batch norm and its convolution inside a module.
#[derive(Clone, Copy)]
struct Names {
    conv: &'static str,
    norm: &'static str,
}

impl Names {
    /// A convolution with a batch norm.
    fn conv(self, name: &str, [input, output]: [usize; 2], kernel: usize, stride: usize) -> Layer {
        Layer::Conv(self.parts(name, [input, output], kernel, stride, 1))
    }

    /// A convolution of each channel for itself, with a batch norm.
    fn depthwise(self, name: &str, width: usize, kernel: usize, stride: usize) -> Layer {
        Layer::Conv(self.parts(name, [width, width], kernel, stride, width))
    }

    fn parts(self, name: &str, channels: [usize; 2], kernel: usize, stride: usize, groups: usize) -> Conv {
        let [name, norm] = [self.conv, self.norm].map(|part| format!("{ROOT}.{name}.{part}"));
        Conv { kernel, stride, groups, ..Conv::of_pixels(name, norm, channels) }
    }
}

/// Tensors that layers need: name and shape.
pub(crate) fn tensors(layers: &[Layer], add: &mut impl FnMut(String, &[usize])) {
    for layer in layers {
        layer.tensors(add);
    }
}

impl Layer {
    fn tensors(&self, add: &mut impl FnMut(String, &[usize])) {
        match self {
            Self::Activate(_) => {}
            Self::Residual(layers) => tensors(layers, add),
            Self::Conv(conv) => {
                add(format!("{}.weight", conv.name), &conv.shape());
                if conv.bias {
                    add(format!("{}.bias", conv.name), &[conv.output]);
                }
                if let Some(norm) = &conv.norm {
                    batch_norm(norm, conv.output, add);
                }
            }
            Self::RepMixer { name, width } => {
                add(format!("{name}.conv.c.weight"), &[*width, 1, 3, 3]);
                batch_norm(&format!("{name}.conv.bn"), *width, add);
                add(format!("{name}.conv1.weight"), &[*width, 1, 1, 1]);
                add(format!("{name}.conv1.bias"), &[*width]);
                batch_norm(&format!("{name}.bn"), *width, add);
            }
            Self::Gate { name, width, hidden } => {
                affine(&format!("{name}.fc1"), &[*hidden, *width, 1, 1], add);
                affine(&format!("{name}.fc2"), &[*width, *hidden, 1, 1], add);
            }
            Self::Windows { name, width, heads, window } => {
                affine(&format!("{name}.norm"), &[*width], add);
                affine(&format!("{name}.qkv"), &[3 * width, *width], add);
                affine(&format!("{name}.proj"), &[*width, *width], add);
                add(format!("{name}.attention_biases"), &[*heads, window * window]);
            }
            Self::Perceptron { name, width } => {
                affine(&format!("{name}.norm"), &[*width], add);
                affine(&format!("{name}.fc1"), &[4 * width, *width], add);
                affine(&format!("{name}.fc2"), &[*width, 4 * width], add);
            }
            Self::LinearAttention { name, width, heads } => {
                let rows = 3 * width;
                add(format!("{name}.qkv.conv.weight"), &[rows, *width, 1, 1]);
                add(format!("{name}.aggreg.0.0.weight"), &[rows, 1, 5, 5]);
                add(format!("{name}.aggreg.0.1.weight"), &[rows, width / heads, 1, 1]);
                add(format!("{name}.proj.conv.weight"), &[*width, 2 * width, 1, 1]);
                batch_norm(&format!("{name}.proj.norm"), *width, add);
            }
        }
    }
}

/// `weight`, and a `bias` as long as its first axis.
fn affine(name: &str, weight: &[usize], add: &mut impl FnMut(String, &[usize])) {
    add(format!("{name}.weight"), weight);
    add(format!("{name}.bias"), &weight[..1]);
}

fn batch_norm(name: &str, width: usize, add: &mut impl FnMut(String, &[usize])) {
    for end in ["weight", "bias", "running_mean", "running_var"] {
        add(format!("{name}.{end}"), &[width]);
    }
}

/// The tensors of a student, with those that make its features the pyramid: as wide as the detector, and between them as the
/// vision transformer.
pub(crate) fn all_tensors(
    student: &Student,
    [width, hidden]: [usize; 2],
    add: &mut impl FnMut(String, &[usize]),
) {
    let network = student.network();
    tensors(&network.stem, add);
    for stage in &network.stages {
        tensors(stage, add);
    }
    match student.origin {
        StudentOrigin::Dart => {
            for (level, stage) in student.stages.iter().enumerate() {
                affine(&format!("{ADAPTERS}.{level}.proj"), &[width, stage.width, 1, 1], add);
                affine(&format!("{ADAPTERS}.{level}.refine"), &[width, width, 3, 3], add);
            }
        }
        StudentOrigin::EfficientSam3 => {
            add(format!("{HEAD}.0.weight"), &[hidden, student.width(), 1, 1]);
            batch_norm(&format!("{HEAD}.1"), hidden, add);
            affine(&format!("{HEAD}.3"), &[hidden, hidden, 3, 3], add);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_as_wide_as_in_timm() {
        for (width, hidden) in [(8, 8), (48, 16), (64, 16), (80, 24), (160, 40), (320, 80), (384, 96)] {
            assert_eq!(gate_width(width), hidden, "{width}");
        }
    }

    /// Parameters of the released sizes, in units of 100 000: those that `timm` counts.
    #[test]
    fn released_sizes_have_their_parameters() {
        let stages = |sizes: &[[usize; 4]]| -> Vec<StudentStage> {
            sizes
                .iter()
                .map(|&[width, blocks, heads, window]| StudentStage { width, blocks, heads, window })
                .collect()
        };
        let cases = [
            (
                StudentFamily::RepVit,
                StudentOrigin::Dart,
                40,
                stages(&[[80, 6, 0, 0], [160, 6, 0, 0], [320, 34, 0, 0]]),
                166,
                "RepViT-M2.3",
            ),
            (
                StudentFamily::EfficientVitL,
                StudentOrigin::Dart,
                32,
                stages(&[[64, 2, 0, 0], [128, 2, 0, 0], [256, 7, 0, 0]]),
                58,
                "EfficientViT-L1",
            ),
            (
                StudentFamily::EfficientVitL,
                StudentOrigin::Dart,
                32,
                stages(&[[64, 3, 0, 0], [128, 3, 0, 0], [256, 9, 0, 0]]),
                77,
                "EfficientViT-L2",
            ),
            (
                StudentFamily::TinyVit,
                StudentOrigin::Dart,
                48,
                stages(&[[96, 2, 0, 0], [192, 2, 6, 7], [384, 6, 12, 14]]),
                121,
                "TinyViT-21M",
            ),
            (
                StudentFamily::EfficientVitB,
                StudentOrigin::EfficientSam3,
                16,
                stages(&[[32, 2, 0, 0], [64, 3, 0, 0], [128, 4, 8, 0], [256, 5, 16, 0]]),
                46,
                "EfficientViT-B1",
            ),
        ];
        for (family, origin, stem, stages, expected, name) in cases {
            let student = Student { family, origin, stem, stages };
            let network = student.network();
            let mut parameters = 0;
            let mut count = |name: String, shape: &[usize]| {
                if !name.contains(".running_") {
                    parameters += shape.iter().product::<usize>();
                }
            };
            tensors(&network.stem, &mut count);
            network.stages.iter().for_each(|stage| tensors(stage, &mut count));
            assert_eq!((parameters + 50_000) / 100_000, expected, "{name}: {parameters}");
            assert_eq!(student.name(), name);
            assert!(student.is_sound());
        }
    }
}
