//! The devices that OpenVINO runs models on, and the number formats in which they compute.

use ocelli_error::{Error, Result, display_as};
use std::fmt;
use std::str::FromStr;

/// A device of OpenVINO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OpenVinoDevice {
    /// The CPU: x86-64 or ARM.
    #[default]
    Cpu,
    /// An Intel GPU, integrated or discrete.
    Gpu {
        /// OpenVINO's number of the GPU.
        ordinal: usize,
    },
    /// The neural processing unit of an Intel Core Ultra. It computes in f16 only, and needs fixed sizes.
    Npu,
    /// OpenVINO's choice among the devices of the machine.
    Auto,
}

impl OpenVinoDevice {
    /// `true` if the device is one of those that OpenVINO lists: `CPU`, `GPU`, and `GPU.0`, `GPU.1` if there are several.
    pub(super) fn is_among(self, names: &[String]) -> bool {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        match self {
            Self::Auto => true,
            Self::Gpu { ordinal: 0 } => has("GPU") || has("GPU.0"),
            Self::Npu => has("NPU") || names.iter().any(|name| name.starts_with("NPU.")),
            device => has(&device.to_string()),
        }
    }

    /// The remedy if the device is missing.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Gpu { .. } => {
                "a GPU needs Intel's compute runtime (libOpenCL.so.1), and libopenvino_intel_gpu_plugin beside the library"
            }
            Self::Npu => {
                "an NPU needs Intel's NPU driver, and libopenvino_intel_npu_plugin beside the library"
            }
            Self::Cpu | Self::Auto => "a CPU needs libopenvino_intel_cpu_plugin beside the library",
        }
    }
}

impl fmt::Display for OpenVinoDevice {
    /// As OpenVINO names it: `CPU`, `GPU`, `GPU.1`, `NPU`, `AUTO`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("CPU"),
            Self::Gpu { ordinal: 0 } => f.write_str("GPU"),
            Self::Gpu { ordinal } => write!(f, "GPU.{ordinal}"),
            Self::Npu => f.write_str("NPU"),
            Self::Auto => f.write_str("AUTO"),
        }
    }
}

impl FromStr for OpenVinoDevice {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes, ignoring case.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_lowercase();
        let device = match &*lower {
            "cpu" => Some(Self::Cpu),
            "gpu" => Some(Self::Gpu { ordinal: 0 }),
            "npu" => Some(Self::Npu),
            "auto" => Some(Self::Auto),
            other => {
                let ordinal = other.strip_prefix("gpu.").and_then(|ordinal| ordinal.parse().ok());
                ordinal.map(|ordinal| Self::Gpu { ordinal })
            }
        };
        device.ok_or_else(|| {
            let message = format!("OpenVINO has no device {text}: expected CPU, GPU, GPU.1, NPU or AUTO");
            Error::invalid_argument(message)
        })
    }
}

/// The number format in which an engine computes. Inputs and outputs keep the types of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum InferencePrecision {
    /// 32-bit floating point.
    #[default]
    F32,
    /// bfloat16 where the device has instructions for it, with 8 bits of mantissa; sums are kept in 32 bits.
    Bf16,
    /// 16-bit floating point, for GPUs, NPUs and ARM CPUs.
    F16,
}

// `f32`, `bf16`, `f16`
display_as!(InferencePrecision, it => "{}", format!("{it:?}").to_lowercase());

/// A device that works on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// OpenVINO's name: `CPU`, `GPU.0`.
    pub name: String,
    /// The product: `Intel(R) Xeon(R) Platinum 8480+`.
    pub product: String,
    /// The formats in which the device has fast arithmetic, as OpenVINO names them: `FP32`, `BF16`, `INT8`.
    pub number_formats: Vec<String>,
}

impl DeviceReport {
    /// `capabilities` is OpenVINO's list, separated by spaces or commas, which has more than number formats.
    pub(super) fn new(name: &str, product: &str, capabilities: &str) -> Self {
        let words = capabilities.split([' ', ',']).filter(|word| !word.is_empty());
        let formats = words.filter(|word| {
            let bits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            bits.starts_with(|c: char| c.is_ascii_digit())
                && ["FP", "BF", "INT"].iter().any(|kind| word.starts_with(kind))
        });
        let mut number_formats: Vec<String> = formats.map(str::to_owned).collect();
        number_formats.sort();
        Self { name: name.to_owned(), product: product.trim().to_owned(), number_formats }
    }

    /// `true` if the device has arithmetic of this precision.
    pub fn computes_in(&self, precision: InferencePrecision) -> bool {
        let name = match precision {
            InferencePrecision::F32 => "FP32",
            InferencePrecision::Bf16 => "BF16",
            InferencePrecision::F16 => "FP16",
        };
        self.number_formats.iter().any(|format| format == name)
    }
}

/// `true` if a device's products in bf16 take the CPU's matrix unit, AMX: with the built-in model OpenVINO 2026.4.1 then finds other objects and
/// ends in a segmentation fault. Who has limited the instructions of its kernels has decided.
pub(super) fn takes_amx(device: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_amx = std::arch::x86_64::__cpuid_count(7, 0).edx & (1 << 22) != 0;
    #[cfg(not(target_arch = "x86_64"))]
    let has_amx = false;
    device == "CPU" && has_amx && std::env::var_os("ONEDNN_MAX_CPU_ISA").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_their_names() {
        let gpu = |ordinal| OpenVinoDevice::Gpu { ordinal };
        let cases: [(OpenVinoDevice, &[&str], bool); 10] = [
            (OpenVinoDevice::Cpu, &["CPU"], true),
            (OpenVinoDevice::Cpu, &[], false),
            (OpenVinoDevice::Auto, &[], true),
            (gpu(0), &["CPU", "GPU"], true),
            (gpu(0), &["CPU", "GPU.0", "GPU.1"], true),
            (gpu(1), &["CPU", "GPU.0", "GPU.1"], true),
            (gpu(1), &["CPU", "GPU"], false),
            (gpu(0), &["CPU"], false),
            (OpenVinoDevice::Npu, &["CPU", "NPU"], true),
            (OpenVinoDevice::Npu, &["CPU"], false),
        ];
        for (device, names, expected) in cases {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            assert_eq!(device.is_among(&names), expected, "{device} among {names:?}");
        }
    }

    #[test]
    fn names_are_parsed() {
        let devices = [
            OpenVinoDevice::Cpu,
            OpenVinoDevice::Gpu { ordinal: 0 },
            OpenVinoDevice::Gpu { ordinal: 2 },
            OpenVinoDevice::Npu,
            OpenVinoDevice::Auto,
        ];
        for device in devices {
            assert_eq!(device.to_string().parse().ok(), Some(device));
            assert_eq!(device.to_string().to_lowercase().parse().ok(), Some(device));
        }
        for text in ["", "TPU", "GPU.", "GPU.x", "GPU:1", "CPU.0"] {
            assert!(text.parse::<OpenVinoDevice>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_number_formats_are_reported() {
        let report = DeviceReport::new("CPU", "AMD EPYC ", "BF16 WINOGRAD FP32 INT8 BIN EXPORT_IMPORT");
        assert_eq!(
            (&*report.product, report.number_formats.join(" ")),
            ("AMD EPYC", "BF16 FP32 INT8".to_owned())
        );
        let has = [InferencePrecision::F32, InferencePrecision::Bf16, InferencePrecision::F16]
            .map(|precision| report.computes_in(precision));
        assert_eq!(has, [true, true, false]);
    }
}
