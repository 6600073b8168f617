//! The engines' names.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The best engine that starts here: CUDA where there is a GPU for it, else the processor. Engines that compile a model
    /// for minutes before its first image, or that nobody has measured yet, are taken by their names alone. Programs print
    /// which one it is.
    #[default]
    Auto,
    /// ONNX Runtime on the processor.
    Cpu,
    /// ONNX Runtime on an NVIDIA GPU.
    Cuda {
        /// As CUDA counts.
        ordinal: usize,
    },
    /// TensorRT on an NVIDIA GPU, with engines that are built from the model beforehand
    /// ([`with_prepared_engines`](crate::DetectorBuilder::with_prepared_engines)), in programs built with TensorRT.
    TensorRt {
        /// As CUDA counts.
        ordinal: usize,
    },
    /// ONNX Runtime's TensorRT provider, which needs TensorRT 10.
    OnnxRuntimeTensorRt {
        /// As CUDA counts.
        ordinal: usize,
    },
    /// ONNX Runtime on Apple's Core ML.
    CoreMl,
    /// Kernels of this project's own on an NVIDIA GPU.
    CudaNative {
        /// As CUDA counts.
        ordinal: usize,
    },
}

impl EngineKind {
    /// The engines that can be named.
    pub const NAMES: [&'static str; 7] =
        ["auto", "cpu", "cuda", "tensorrt", "onnxruntime-tensorrt", "coreml", "cuda-native"];

    /// The name, and the GPU's number for those that have one.
    fn parts(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Auto => ("auto", None),
            Self::Cpu => ("cpu", None),
            Self::Cuda { ordinal } => ("cuda", Some(ordinal)),
            Self::TensorRt { ordinal } => ("tensorrt", Some(ordinal)),
            Self::OnnxRuntimeTensorRt { ordinal } => ("onnxruntime-tensorrt", Some(ordinal)),
            Self::CoreMl => ("coreml", None),
            Self::CudaNative { ordinal } => ("cuda-native", Some(ordinal)),
        }
    }
}

impl fmt::Display for EngineKind {
    /// `cuda`, or `cuda:1` for another than the first GPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, None | Some(0)) => f.write_str(name),
            (name, Some(ordinal)) => write!(f, "{name}:{ordinal}"),
        }
    }
}

impl FromStr for EngineKind {
    type Err = Error;

    /// Takes what [`Display`](fmt::Display) writes, in either case, and what other programs call the same: `gpu` and a
    /// number are CUDA, `trt` is TensorRT, `mps` is Core ML.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let message = format!("engine {text}: {why}");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        };
        let lower = text.to_lowercase();
        if !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_digit()) {
            return match lower.parse() {
                Ok(ordinal) => Ok(Self::Cuda { ordinal }),
                Err(_) => invalid("there are not that many GPUs"),
            };
        }
        let (name, number) = match lower.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (&*lower, None),
        };
        let ordinal = match number.map(str::parse) {
            None => 0,
            Some(Ok(ordinal)) => ordinal,
            Some(Err(_)) => return invalid("after the colon comes a GPU's number, from 0: cuda:1"),
        };
        let kind = match name {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "cuda" | "gpu" => Self::Cuda { ordinal },
            "tensorrt" | "trt" => Self::TensorRt { ordinal },
            "onnxruntime-tensorrt" => Self::OnnxRuntimeTensorRt { ordinal },
            "coreml" | "mps" => Self::CoreMl,
            "cuda-native" => Self::CudaNative { ordinal },
            _ => {
                return invalid(&format!("no such engine; the engines are {}", Self::NAMES.join(", ")));
            }
        };
        match kind.parts() {
            (name, None) if number.is_some() => invalid(&format!("{name} has no number: leave it out")),
            _ => Ok(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_others_call_the_same() {
        let cuda = |ordinal| EngineKind::Cuda { ordinal };
        let cases = [
            ("auto", Ok(EngineKind::Auto)),
            ("cpu", Ok(EngineKind::Cpu)),
            ("CPU", Ok(EngineKind::Cpu)),
            ("cuda", Ok(cuda(0))),
            ("cuda:0", Ok(cuda(0))),
            ("cuda:3", Ok(cuda(3))),
            ("gpu", Ok(cuda(0))),
            ("gpu:1", Ok(cuda(1))),
            ("0", Ok(cuda(0))),
            ("2", Ok(cuda(2))),
            ("tensorrt", Ok(EngineKind::TensorRt { ordinal: 0 })),
            ("TRT:1", Ok(EngineKind::TensorRt { ordinal: 1 })),
            ("onnxruntime-tensorrt:1", Ok(EngineKind::OnnxRuntimeTensorRt { ordinal: 1 })),
            ("coreml", Ok(EngineKind::CoreMl)),
            ("mps", Ok(EngineKind::CoreMl)),
            ("cuda-native", Ok(EngineKind::CudaNative { ordinal: 0 })),
            ("", Err("no such engine")),
            (
                "quick",
                Err(
                    "no such engine; the engines are auto, cpu, cuda, tensorrt, onnxruntime-tensorrt, coreml, cuda-native",
                ),
            ),
            ("cuda:", Err("a GPU's number")),
            ("cuda:-1", Err("a GPU's number")),
            ("cuda:a", Err("a GPU's number")),
            ("cpu:0", Err("cpu has no number")),
            ("mps:0", Err("coreml has no number")),
            ("99999999999999999999999", Err("not that many")),
        ];
        let mut wrong = Vec::new();
        for (text, expected) in cases {
            let came = text.parse::<EngineKind>();
            let fits = match (&came, expected) {
                (Ok(came), Ok(expected)) => {
                    *came == expected && came.to_string().parse::<EngineKind>().ok() == Some(expected)
                }
                (Err(error), Err(expected)) => {
                    error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(expected)
                }
                _ => false,
            };
            if !fits {
                wrong.push(format!("{text}: expected {expected:?}, got {came:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
