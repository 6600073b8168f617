//! The NVIDIA GPU: its description by `nvidia-smi`, and the bytes copied between it and the host.

use std::process::Command;

use ocelli::engines::{Device, Transferred};
use serde::Serialize;

/// The GPU behind a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Name.
    pub name: String,
    /// Driver version.
    pub driver: String,
    /// Memory in MiB.
    pub memory_mib: f64,
    /// Compute capability, such as `9.0`.
    pub compute_capability: String,
}

impl Gpu {
    /// The first GPU; `None` if `nvidia-smi` is missing or lists none.
    pub fn here() -> Option<Self> {
        Self::parse(&query("name,driver_version,memory.total,compute_cap")?)
    }

    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [name, driver, memory, capability] = fields.as_slice() else { return None };
        Some(Self {
            name: (*name).to_owned(),
            driver: (*driver).to_owned(),
            memory_mib: memory.parse().ok()?,
            compute_capability: (*capability).to_owned(),
        })
    }
}

/// Memory of the first GPU used by all processes, in MiB; `None` if unknown.
pub fn memory_used_mib() -> Option<f64> {
    query("memory.used")?.parse().ok()
}

/// The answer of `nvidia-smi` for the first GPU.
fn query(fields: &str) -> Option<String> {
    let output = Command::new("nvidia-smi")
        .args([&format!("--query-gpu={fields}"), "--format=csv,noheader,nounits"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    output.status.success().then_some(line?.to_owned())
}

/// Counts the bytes copied between the host and the first GPU, by any engine; nothing without a GPU.
pub struct Transfers(Option<Device>);

impl Transfers {
    /// Opens the GPU; engines share its counter.
    pub fn watch() -> Self {
        Self(ocelli::engines::cuda::CudaDevice::open(0).ok().map(Device::from))
    }

    /// The bytes copied so far.
    pub fn total(&self) -> Option<Transferred> {
        self.0.as_ref().map(Device::transferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nvidia_smi() {
        let gpu = |name: &str, memory_mib| {
            Some(Gpu {
                name: name.into(),
                driver: "580.1".into(),
                memory_mib,
                compute_capability: "9.0".into(),
            })
        };
        let cases = [
            ("NVIDIA H200, 580.1, 143771, 9.0", gpu("NVIDIA H200", 143_771.0)),
            ("A,580.1,8.5,9.0", gpu("A", 8.5)),
            ("NVIDIA H200, 580.1, [N/A], 9.0", None),
            ("No devices were found", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(Gpu::parse(line), expected, "{line:?}");
        }
    }
}
