//! Adapters, and which of them the provider takes.

use ocelli_error::{Error, Result};
use std::fmt;

/// A GPU with its driver, or a software adapter, as Vulkan describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// The product: `Intel(R) Iris(R) Xe Graphics (TGL GT2)`.
    pub name: String,
    /// Its kind.
    pub kind: AdapterKind,
    /// The vendor's number on the PCI bus: 0x8086 is Intel.
    pub vendor_id: u32,
    /// The product's number on the PCI bus.
    pub device_id: u32,
    /// The driver's version as the driver encodes it, and its build; `None` where the system does not say, so that a new
    /// driver goes unnoticed.
    pub driver: Option<String>,
}

/// The kind of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A driver that computes on the CPU.
    Software,
    /// Anything else, such as a GPU of a virtual machine.
    Other,
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete GPU",
            Self::Integrated => "integrated GPU",
            Self::Software => "software adapter",
            Self::Other => "GPU",
        })
    }
}

impl Adapter {
    /// The adapter that Direct3D 12 or Metal prefers, of which nothing is known here.
    pub(super) fn of_the_system() -> Self {
        let name = if cfg!(windows) { "the default adapter of Direct3D 12" } else { "the GPU of Metal" };
        let kind = AdapterKind::Other;
        Self { name: name.to_owned(), kind, vendor_id: 0, device_id: 0, driver: None }
    }

    /// A software adapter of this name, for tests.
    #[cfg(any(test, feature = "test-support"))]
    pub fn software(name: &str) -> Self {
        let (kind, driver) = (AdapterKind::Software, Some("1".to_owned()));
        Self { name: name.to_owned(), kind, vendor_id: 0, device_id: 0, driver }
    }

    /// One line that differs between adapters and between versions of a driver; `None` if the driver is not known.
    pub fn identity(&self) -> Option<String> {
        let driver = self.driver.as_ref()?;
        Some(format!("{} {:04x}:{:04x} driver {driver}", self.name, self.vendor_id, self.device_id))
    }

    /// The provider's order of preference; a lower rank is taken first.
    fn rank(&self, low_power: bool) -> u8 {
        match self.kind {
            AdapterKind::Discrete => u8::from(low_power),
            AdapterKind::Integrated => u8::from(!low_power),
            AdapterKind::Software => 2,
            AdapterKind::Other => 3,
        }
    }
}

/// An adapter, and the preference with which the provider takes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) adapter: Adapter,
    pub(super) low_power: bool,
}

/// Sorts adapters as the provider does unless it is to save power; equal ones stay in the loader's order.
pub(super) fn sort(adapters: &mut [Adapter]) {
    adapters.sort_by_key(|adapter| adapter.rank(false));
}

/// The adapter of this number among [sorted](sort) ones.
pub(super) fn choose(adapters: Vec<Adapter>, ordinal: usize, allow_software: bool) -> Result<Chosen> {
    let unavailable = |message: String| Err(Error::unavailable(message));
    let saving = (0..adapters.len()).min_by_key(|&index| adapters[index].rank(true));
    let count = adapters.len();
    let Some(adapter) = adapters.into_iter().nth(ordinal) else {
        let plural = if count == 1 { "" } else { "s" };
        return unavailable(format!(
            "WebGPU adapter {ordinal}: this machine has {count} adapter{plural}; they are counted from 0"
        ));
    };
    if adapter.kind == AdapterKind::Software && !allow_software {
        return unavailable(format!(
            "WebGPU adapter {ordinal}, {}: it computes on the CPU, slower than the engines for CPUs; install the driver of a \
             GPU, or set {}=1 to use it for tests",
            adapter.name,
            super::ALLOW_SOFTWARE
        ));
    }
    match ordinal {
        0 => Ok(Chosen { adapter, low_power: false }),
        _ if saving == Some(ordinal) => Ok(Chosen { adapter, low_power: true }),
        _ => unavailable(format!(
            "WebGPU adapter {ordinal}, {}: ONNX Runtime's provider takes the first discrete or the first integrated GPU; set \
             VK_LOADER_DEVICE_SELECT={:x}:{:x}, which newer loaders of Vulkan read, to make this one the first",
            adapter.name, adapter.vendor_id, adapter.device_id
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AdapterKind::{Discrete, Integrated, Other, Software};
    use ocelli_error::ErrorKind;

    fn machine(kinds: &[AdapterKind]) -> Vec<Adapter> {
        let adapter = |(index, kind): (usize, &AdapterKind)| Adapter {
            name: format!("{kind} of place {index}"),
            kind: *kind,
            vendor_id: 0x10de,
            device_id: 0x2684,
            driver: Some("1".to_owned()),
        };
        let mut adapters: Vec<_> = kinds.iter().enumerate().map(adapter).collect();
        sort(&mut adapters);
        adapters
    }

    #[test]
    fn the_adapter_is_the_one_that_the_provider_takes() {
        type Expected = Result<(&'static str, bool), &'static str>;
        let cases: [(&[AdapterKind], usize, bool, Expected); 13] = [
            (&[Discrete], 0, false, Ok(("discrete GPU of place 0", false))),
            (&[Integrated, Discrete], 0, false, Ok(("discrete GPU of place 1", false))),
            (&[Integrated, Discrete], 1, false, Ok(("integrated GPU of place 0", true))),
            (&[Integrated, Software, Discrete], 1, false, Ok(("integrated GPU of place 0", true))),
            (&[Discrete, Discrete], 1, false, Err("VK_LOADER_DEVICE_SELECT=10de:2684")),
            (&[Integrated, Integrated, Discrete], 2, false, Err("VK_LOADER_DEVICE_SELECT")),
            (&[Software, Integrated], 0, false, Ok(("integrated GPU of place 1", false))),
            (&[Software], 0, false, Err("it computes on the CPU")),
            (&[Software], 0, true, Ok(("software adapter of place 0", false))),
            // The provider would take the software adapter.
            (&[Other, Software], 0, false, Err("it computes on the CPU")),
            (&[Other], 0, false, Ok(("GPU of place 0", false))),
            (&[Discrete], 1, false, Err("this machine has 1 adapter;")),
            (&[], 0, false, Err("this machine has 0 adapters;")),
        ];
        let mut wrong = Vec::new();
        for (kinds, ordinal, allow_software, expected) in cases {
            let found = choose(machine(kinds), ordinal, allow_software);
            let fits = match (&found, expected) {
                (Ok(found), Ok((name, low_power))) => {
                    (&*found.adapter.name, found.low_power) == (name, low_power)
                }
                (Err(error), Err(expected)) => {
                    error.kind() == ErrorKind::Unavailable && error.to_string().contains(expected)
                }
                _ => false,
            };
            if !fits {
                wrong.push(format!("{kinds:?}, {ordinal}: expected {expected:?}, got {found:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn another_driver_is_another_identity() {
        let [adapter] = <[Adapter; 1]>::try_from(machine(&[Discrete])).expect("one");
        let updated = Adapter { driver: Some("2".to_owned()), ..adapter.clone() };
        assert_ne!(adapter.identity(), updated.identity());
        assert_eq!(Adapter::of_the_system().identity(), None);
    }
}
