//! NVIDIA's GPU: what its driver's own program says of it, and what crosses between it and the host.

use std::process::Command;

use ocelli::engines::{Device, Transferred};
use serde::Serialize;

/// The GPU behind a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// The driver's version.
    pub driver: String,
    /// Its memory in MiB.
    pub memory_mib: f64,
    /// `9.0`.
    pub compute_capability: String,
}

impl Gpu {
    /// The first GPU; none where `nvidia-smi` is not there or has none to speak of.
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

/// The memory that is taken on the first GPU, by all programs together, in MiB; none where nobody says.
pub fn memory_used_mib() -> Option<f64> {
    query("memory.used")?.parse().ok()
}

/// What `nvidia-smi` answers for the first GPU.
fn query(fields: &str) -> Option<String> {
    let output = Command::new("nvidia-smi")
        .args([&format!("--query-gpu={fields}"), "--format=csv,noheader,nounits"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    output.status.success().then_some(line?.to_owned())
}

/// Counts the bytes copied between the host and the first GPU by all engines, if there is a GPU and the program was built
/// with CUDA.
pub struct Crossing(Option<Device>);

impl Crossing {
    /// Starts to count. Everything in the process that opens the GPU shares its counters.
    pub fn watch() -> Self {
        #[cfg(feature = "cuda")]
        {
            Self(ocelli::engines::cuda::CudaDevice::open(0).ok().map(Device::from))
        }
        #[cfg(not(feature = "cuda"))]
        {
            Self(None)
        }
    }

    /// The bytes copied so far.
    pub fn so_far(&self) -> Option<Transferred> {
        self.0.as_ref().map(Device::transferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_drivers_program() {
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
