//! Reads which TensorRT a shared library is, before it is used.

use super::version::{Product, Version};
use crate::elf;
pub(super) use crate::library::one_line;
use libloading::Library;
use std::ffi::c_void;
use std::path::Path;

/// What a library reports about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probed {
    pub(super) version: Version,
    /// Whether it builds plans; the lean and the dispatch runtime only run them.
    pub(super) builds: bool,
}

/// Loads the library and identifies it, or returns one line with the reason why it is not the wanted product.
///
/// The library stays loaded: unloading TensorRT is not safe once its threads or statics exist.
pub(super) fn probe(path: &Path, wanted: Product) -> Result<Probed, String> {
    if let Some((needed, present)) = elf::shortfall(path) {
        return Err(format!("the file is truncated: it has {present} bytes of at least {needed}"));
    }
    // SAFETY: loading runs the library's initialisers, which require nothing of their caller in TensorRT. The path comes from
    // the user or from a documented place.
    let library = unsafe { Library::new(path) }.map_err(|error| one_line(&error))?;
    let library: &'static Library = Box::leak(Box::new(library));
    let ask = |name: &str| {
        // SAFETY: these functions have this type in NvInferRuntime.h.
        let symbol = unsafe { library.get::<unsafe extern "C" fn() -> i32>(name.as_bytes()) };
        // SAFETY: as above; the function has no arguments and no effects.
        symbol.ok().and_then(|symbol| u32::try_from(unsafe { symbol() }).ok())
    };
    let number =
        ask("getInferLibVersion").ok_or("it is not TensorRT: it does not export `getInferLibVersion`")?;
    let version = match (
        ask("getInferLibMajorVersion"),
        ask("getInferLibMinorVersion"),
        ask("getInferLibPatchVersion"),
    ) {
        (Some(major), Some(minor), Some(patch)) => Version::new(major, minor, patch),
        _ => decode(number),
    };
    // SAFETY: the symbol is not called.
    let builds = unsafe { library.get::<*const c_void>(b"createInferBuilder_INTERNAL\0") }.is_ok();
    judge(version, wanted)?;
    Ok(Probed { version, builds })
}

/// Decodes the number that the library reports: `110400`, or `8601` before TensorRT 10.
fn decode(number: u32) -> Version {
    let thousands = if number < 10_000 { 1000 } else { 10_000 };
    Version::new(number / thousands, number % thousands / 100, number % 100)
}

/// Whether a library of this version is compatible with the product's headers.
fn judge(version: Version, wanted: Product) -> Result<(), String> {
    // TensorRT for RTX started at 1.0 when TensorRT was at 10.
    let product = if version.major < 5 { Product::TensorRtForRtx } else { Product::TensorRt };
    let headers = wanted.headers();
    if product != wanted {
        let feature = match product {
            Product::TensorRt => "tensorrt",
            Product::TensorRtForRtx => "tensorrt-rtx",
        };
        return Err(format!(
            "it is {product} {version}, and this program was built for {wanted}; the feature `{feature}` builds one for {product}"
        ));
    }
    if (version.major, version.minor) < (headers.major, headers.minor) || version.major > headers.major {
        let mut reason = format!(
            "it is {product} {version}, {}.{} or a later {} is needed",
            headers.major, headers.minor, headers.major
        );
        if product == Product::TensorRt && version.major == 10 {
            reason += " (for TensorRT 10 use ONNX Runtime's TensorRT provider)";
        }
        return Err(reason);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_decoded() {
        let cases = [
            (8601, Version::new(8, 6, 1)),
            (100_305, Version::new(10, 3, 5)),
            (110_400, Version::new(11, 4, 0)),
            (10_701, Version::new(1, 7, 1)),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(number, version)| decode(*number) != *version).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn other_products_and_versions_are_refused_with_a_reason() {
        use Product::{TensorRt, TensorRtForRtx};
        let cases: [((u32, u32, u32), Product, Option<&str>); 8] = [
            ((11, 4, 0), TensorRt, None),
            ((11, 9, 2), TensorRt, None),
            ((11, 3, 9), TensorRt, Some("it is TensorRT 11.3.9, 11.4 or a later 11 is needed")),
            ((12, 0, 0), TensorRt, Some("it is TensorRT 12.0.0, 11.4 or a later 11 is needed")),
            (
                (10, 3, 0),
                TensorRt,
                Some(
                    "it is TensorRT 10.3.0, 11.4 or a later 11 is needed (for TensorRT 10 use ONNX Runtime's TensorRT \
                     provider)",
                ),
            ),
            (
                (1, 7, 1),
                TensorRt,
                Some(
                    "it is TensorRT for RTX 1.7.1, and this program was built for TensorRT; the feature `tensorrt-rtx` \
                     builds one for TensorRT for RTX",
                ),
            ),
            ((1, 7, 1), TensorRtForRtx, None),
            (
                (11, 4, 0),
                TensorRtForRtx,
                Some(
                    "it is TensorRT 11.4.0, and this program was built for TensorRT for RTX; the feature `tensorrt` \
                     builds one for TensorRT",
                ),
            ),
        ];
        let mut wrong = Vec::new();
        for ((major, minor, patch), wanted, expected) in cases {
            let reason = judge(Version::new(major, minor, patch), wanted).err();
            if reason.as_deref() != expected {
                wrong.push(format!("{major}.{minor}.{patch} as {wanted}: {reason:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
