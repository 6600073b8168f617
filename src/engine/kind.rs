//! The names of the engines.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;

use ocelli_engines::openvino::OpenVinoDevice;
use ocelli_error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The engine that runs the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum EngineKind {
    /// The best engine that is installed and starts on this machine: CUDA; otherwise OpenVINO, ONNX Runtime or
    /// [`Embedded`](Self::Embedded), which always starts, on the CPU, or [`WebGpu`](Self::WebGpu) if there is a GPU on which a
    /// short measurement, which is remembered, was faster. Engines that compile a model for minutes before the first image
    /// run only when named.
    /// [`EngineFactory::description`](super::EngineFactory::description) says which engine was chosen.
    #[default]
    Auto,
    /// The engine inside the program, on the CPU: it needs no library. See
    /// [`embedded`](crate::engines::embedded).
    Embedded,
    /// ONNX Runtime on the CPU; its name is `onnxruntime`, and `cpu` is an alias.
    Cpu,
    /// OpenVINO: on CPUs, and on Intel's GPUs and NPUs.
    OpenVino {
        /// The device; `openvino` alone means the CPU.
        device: OpenVinoDevice,
    },
    /// ONNX Runtime's CUDA provider.
    Cuda {
        /// CUDA's number of the GPU.
        ordinal: usize,
    },
    /// TensorRT on an NVIDIA GPU, with engines that are built from the model beforehand
    /// ([`with_prepared_engines`](crate::DetectorBuilder::with_prepared_engines)).
    TensorRt {
        /// CUDA's number of the GPU.
        ordinal: usize,
    },
    /// Any GPU with Vulkan, Direct3D 12 or Metal, through ONNX Runtime's WebGPU provider; see
    /// [`webgpu`](crate::engines::webgpu). Before an adapter is used for the first time it is compared with the CPU.
    WebGpu {
        /// The adapter's number in [`adapters`](crate::engines::webgpu::adapters).
        ordinal: usize,
    },
    /// ONNX Runtime's Core ML provider.
    CoreMl,
}

impl EngineKind {
    /// The name of every engine.
    pub const NAMES: [&'static str; 8] =
        ["auto", "embedded", "openvino", "onnxruntime", "cuda", "tensorrt", "webgpu", "coreml"];

    /// Reads the engines of several devices, separated by commas: `cuda:0,cuda:1`, in short `cuda:0,1`, or
    /// `embedded,embedded` for two instances on the CPU.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a name that is none, and for different engines
    /// or kinds of devices, whose results
    /// differ in the last digits.
    pub fn list(text: &str) -> Result<Vec<Self>> {
        let mut kinds: Vec<Self> = Vec::new();
        let mut name = "";
        for item in text.split(',') {
            let is_number = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
            let is_short = is_number && !name.is_empty();
            let kind: Self = if is_short { format!("{name}:{item}").parse()? } else { item.parse()? };
            if !is_number {
                name = item.split(':').next().unwrap_or_default();
            }
            if let Some(first) = kinds.first().filter(|first| !first.is_like(kind)) {
                return Err(Error::invalid_argument(format!(
                    "engine {text}: {first} and {kind} differ in the last digits of their results; expected devices of one \
                     engine, such as cuda:0,1"
                )).about("engine"));
            }
            kinds.push(kind);
        }
        Ok(kinds)
    }

    /// `true` if both are the same engine on devices of one kind.
    fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::OpenVino { device }, Self::OpenVino { device: other }) => {
                discriminant(&device) == discriminant(&other)
            }
            _ => discriminant(&self) == discriminant(&other),
        }
    }

    /// The name, and the GPU's number if the engine runs on one.
    fn parts(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Auto => ("auto", None),
            Self::Embedded => ("embedded", None),
            Self::Cpu => ("onnxruntime", None),
            Self::OpenVino { .. } => ("openvino", None),
            Self::Cuda { ordinal } => ("cuda", Some(ordinal)),
            Self::TensorRt { ordinal } => ("tensorrt", Some(ordinal)),
            Self::WebGpu { ordinal } => ("webgpu", Some(ordinal)),
            Self::CoreMl => ("coreml", None),
        }
    }
}

impl fmt::Display for EngineKind {
    /// `cuda` for the first GPU, `cuda:1` for the second; `openvino` for the CPU, `openvino:GPU` for another device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::OpenVino { device } = self
            && *device != OpenVinoDevice::Cpu
        {
            return write!(f, "openvino:{device}");
        }
        match self.parts() {
            (name, None | Some(0)) => f.write_str(name),
            (name, Some(ordinal)) => write!(f, "{name}:{ordinal}"),
        }
    }
}

impl FromStr for EngineKind {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes, ignoring case, and the names that other programs use: `cpu` is
    /// `onnxruntime`, `rten` is `embedded`, `gpu` and a plain number are CUDA, `trt` is TensorRT, `mps` is Core ML.
    fn from_str(text: &str) -> Result<Self> {
        let invalid =
            |why: &str| Err(Error::invalid_argument(format!("engine {text}: {why}")).about("engine"));
        if text.contains(',') {
            return invalid("this is a list of devices; expected one");
        }
        let lower = text.to_lowercase();
        if !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_digit()) {
            return match lower.parse() {
                Ok(ordinal) => Ok(Self::Cuda { ordinal }),
                Err(_) => invalid("the number of the GPU is too large"),
            };
        }
        let (name, number) = match lower.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (&*lower, None),
        };
        if name == "openvino" {
            return match number.unwrap_or("cpu").parse() {
                Ok(device) => Ok(Self::OpenVino { device }),
                Err(_) => {
                    invalid("expected a device of OpenVINO after the colon: CPU, GPU, GPU.1, NPU or AUTO")
                }
            };
        }
        let ordinal = match number.map(str::parse) {
            None => 0,
            Some(Ok(ordinal)) => ordinal,
            Some(Err(_)) => return invalid("expected a GPU's number from 0 after the colon, such as cuda:1"),
        };
        let kind = match name {
            "auto" => Self::Auto,
            "embedded" | "rten" => Self::Embedded,
            "onnxruntime" | "cpu" => Self::Cpu,
            "cuda" | "gpu" => Self::Cuda { ordinal },
            "tensorrt" | "trt" => Self::TensorRt { ordinal },
            "webgpu" => Self::WebGpu { ordinal },
            "coreml" | "mps" => Self::CoreMl,
            _ => {
                return invalid(&format!("no such engine; expected one of {}", Self::NAMES.join(", ")));
            }
        };
        match kind.parts() {
            (name, None) if number.is_some() => invalid(&format!("{name} takes no number")),
            _ => Ok(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;

    #[test]
    fn names_and_aliases_are_parsed() {
        let cuda = |ordinal| EngineKind::Cuda { ordinal };
        let openvino = |device| EngineKind::OpenVino { device };
        let cases = [
            ("auto", Ok(EngineKind::Auto)),
            ("embedded", Ok(EngineKind::Embedded)),
            ("Embedded", Ok(EngineKind::Embedded)),
            ("rten", Ok(EngineKind::Embedded)),
            ("onnxruntime", Ok(EngineKind::Cpu)),
            ("cpu", Ok(EngineKind::Cpu)),
            ("CPU", Ok(EngineKind::Cpu)),
            ("openvino", Ok(openvino(OpenVinoDevice::Cpu))),
            ("OpenVINO:cpu", Ok(openvino(OpenVinoDevice::Cpu))),
            ("openvino:GPU", Ok(openvino(OpenVinoDevice::Gpu { ordinal: 0 }))),
            ("openvino:gpu.1", Ok(openvino(OpenVinoDevice::Gpu { ordinal: 1 }))),
            ("openvino:NPU", Ok(openvino(OpenVinoDevice::Npu))),
            ("openvino:AUTO", Ok(openvino(OpenVinoDevice::Auto))),
            ("openvino:1", Err("a device of OpenVINO after the colon")),
            ("openvino:", Err("a device of OpenVINO after the colon")),
            ("cuda", Ok(cuda(0))),
            ("cuda:0", Ok(cuda(0))),
            ("cuda:3", Ok(cuda(3))),
            ("gpu", Ok(cuda(0))),
            ("gpu:1", Ok(cuda(1))),
            ("0", Ok(cuda(0))),
            ("2", Ok(cuda(2))),
            ("tensorrt", Ok(EngineKind::TensorRt { ordinal: 0 })),
            ("TRT:1", Ok(EngineKind::TensorRt { ordinal: 1 })),
            ("onnxruntime-tensorrt:1", Err("no such engine")),
            ("webgpu", Ok(EngineKind::WebGpu { ordinal: 0 })),
            ("WebGPU:1", Ok(EngineKind::WebGpu { ordinal: 1 })),
            ("webgpu:GPU", Err("a GPU's number")),
            ("coreml", Ok(EngineKind::CoreMl)),
            ("mps", Ok(EngineKind::CoreMl)),
            ("cuda-native", Err("no such engine")),
            ("cuda:0,1", Err("expected one")),
            ("", Err("no such engine")),
            (
                "quick",
                Err(
                    "no such engine; expected one of auto, embedded, openvino, onnxruntime, cuda, tensorrt, \
                     webgpu, coreml",
                ),
            ),
            ("cuda:", Err("a GPU's number")),
            ("cuda:-1", Err("a GPU's number")),
            ("cuda:a", Err("a GPU's number")),
            ("cpu:0", Err("onnxruntime takes no number")),
            ("embedded:0", Err("embedded takes no number")),
            ("mps:0", Err("coreml takes no number")),
            ("99999999999999999999999", Err("too large")),
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

    #[test]
    fn lists_name_devices_of_one_engine() {
        let cuda =
            |ordinals: &[usize]| ordinals.iter().map(|&ordinal| EngineKind::Cuda { ordinal }).collect();
        let tensorrt =
            |ordinals: &[usize]| ordinals.iter().map(|&ordinal| EngineKind::TensorRt { ordinal }).collect();
        let gpu = |ordinal| EngineKind::OpenVino { device: OpenVinoDevice::Gpu { ordinal } };
        let cases: [(&str, std::result::Result<Vec<EngineKind>, &str>); 12] = [
            ("cuda", Ok(cuda(&[0]))),
            ("cuda:0,1", Ok(cuda(&[0, 1]))),
            ("cuda,1,3", Ok(cuda(&[0, 1, 3]))),
            ("0,1", Ok(cuda(&[0, 1]))),
            ("cuda:1,cuda:0", Ok(cuda(&[1, 0]))),
            ("trt:0,1", Ok(tensorrt(&[0, 1]))),
            ("embedded,embedded", Ok(vec![EngineKind::Embedded; 2])),
            ("openvino:GPU.0,openvino:GPU.1", Ok(vec![gpu(0), gpu(1)])),
            ("openvino,openvino:GPU", Err("differ in the last digits")),
            ("embedded,onnxruntime", Err("differ in the last digits")),
            ("embedded,1", Err("embedded takes no number")),
            ("cuda:0,", Err("no such engine")),
        ];
        let mut wrong = Vec::new();
        for (text, expected) in cases {
            let came = EngineKind::list(text);
            let fits = match (&came, &expected) {
                (Ok(came), Ok(expected)) => came == expected,
                (Err(error), Err(expected)) => error.to_string().contains(expected),
                _ => false,
            };
            if !fits {
                wrong.push(format!("{text}: expected {expected:?}, got {came:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
