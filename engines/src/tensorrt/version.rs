//! Products, versions and compute capabilities.

use ocelli_error::{Error, display_as};
use std::str::FromStr;

/// NVIDIA's two TensorRT products, which do not run each other's plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Product {
    /// TensorRT proper, for servers.
    TensorRt,
    /// TensorRT for RTX, for desktops. It builds plans without a GPU.
    TensorRtForRtx,
}

impl Product {
    /// Both.
    pub const ALL: [Self; 2] = [Self::TensorRt, Self::TensorRtForRtx];

    /// The product of a version: TensorRT for RTX started at 1.0 when TensorRT was at 10.
    pub(super) const fn of(version: Version) -> Self {
        if version.major < 5 { Self::TensorRtForRtx } else { Self::TensorRt }
    }

    /// The name as NVIDIA writes it: `TensorRT` or `TensorRT for RTX`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TensorRt => "TensorRT",
            Self::TensorRtForRtx => "TensorRT for RTX",
        }
    }

    /// The compute capabilities that it can build plans for without the GPU; empty for TensorRT proper.
    pub const fn targets(self) -> &'static [ComputeCapability] {
        const RTX: [ComputeCapability; 6] = [
            ComputeCapability::new(7, 5),
            ComputeCapability::new(8, 0),
            ComputeCapability::new(8, 6),
            ComputeCapability::new(8, 9),
            ComputeCapability::new(12, 0),
            ComputeCapability::new(12, 1),
        ];
        match self {
            Self::TensorRt => &[],
            Self::TensorRtForRtx => &RTX,
        }
    }

    /// The version of the headers; the library must have the same major version and not be older.
    pub(super) const fn headers(self) -> Version {
        match self {
            Self::TensorRt => Version::new(11, 4, 0),
            Self::TensorRtForRtx => Version::new(1, 7, 0),
        }
    }
}

display_as!(Product, it => "{}", it.name());

/// A version: `1.7.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch version.
    pub patch: u32,
}

impl Version {
    /// A version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

display_as!(Version, it => "{}.{}.{}", it.major, it.minor, it.patch);

/// The compute capability of a GPU: `8.9` is Ada, `9.0` Hopper, `12.0` Blackwell for desktops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The number before the dot.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl ComputeCapability {
    /// A compute capability from its numbers: `new(8, 9)`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

display_as!(ComputeCapability, it => "{}.{}", it.major, it.minor);

impl FromStr for ComputeCapability {
    type Err = Error;

    /// Parses `8.9`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if it is not two numbers with a dot between
    /// them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.split_once('.').and_then(|(major, minor)| {
            let number = |digits: &str| {
                digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
            };
            Some(Self::new(number(major)?, number(minor)?))
        });
        parsed.ok_or_else(|| {
            let message = format!("compute capability \"{text}\": expected two numbers, such as 8.9");
            Error::invalid_argument(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_capabilities_are_two_numbers() {
        let cases = [
            ("8.9", Some((8, 9))),
            ("12.0", Some((12, 0))),
            ("8", None),
            ("8.", None),
            (".9", None),
            ("+8.9", None),
            ("8.9.1", None),
            ("sm_89", None),
            ("", None),
            ("99999999999.0", None),
        ];
        let mut wrong = Vec::new();
        for (text, expected) in cases {
            let parsed = text.parse::<ComputeCapability>().ok();
            if parsed != expected.map(|(major, minor)| ComputeCapability::new(major, minor)) {
                wrong.push(format!("{text:?}: got {parsed:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(ComputeCapability::new(8, 6).to_string(), "8.6");
    }
}
