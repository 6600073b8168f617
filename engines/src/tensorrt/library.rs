//! TensorRT's shared libraries: how they are found, and which product and version a file is.

use super::version::{Product, Version};
use crate::library::{self, Library};
use std::path::{Path, PathBuf};

/// Either product: a file says which one it is. In a folder that holds both, TensorRT for RTX is used.
pub static LIBRARY: Library = Library {
    name: "TensorRT",
    stems: &["tensorrt_rtx", "nvinfer"],
    stems_if_named: &["nvinfer_lean", "nvinfer_dispatch"],
    variables: &["OCELLI_TENSORRT"],
    setup_folder: "tensorrt",
    python_packages: &["*tensorrt*"],
    python_extra: None,
    remedy: "install TensorRT 11 (servers), or TensorRT for RTX (desktops), which is in the wheel \
             onnxruntime-ep-nv-tensorrt-rtx-cu13 that pip downloads, and set OCELLI_TENSORRT to its folder",
    version: |path| version(path).map(|version| format!("{version} ({})", Product::of(version))),
};

/// Loads a library and returns its version, or one line that says why it cannot be used.
pub(super) fn version(path: &Path) -> Result<Version, String> {
    let library = library::open(path)?;
    let call = |name: &str| {
        // SAFETY: these functions have this type in NvInferRuntime.h.
        let function = unsafe { library.get::<unsafe extern "C" fn() -> i32>(name.as_bytes()) };
        // SAFETY: as above; the function has no arguments and no effects.
        function.ok().and_then(|function| u32::try_from(unsafe { function() }).ok())
    };
    let number =
        call("getInferLibVersion").ok_or("it is not TensorRT: it does not export `getInferLibVersion`")?;
    let version = match (
        call("getInferLibMajorVersion"),
        call("getInferLibMinorVersion"),
        call("getInferLibPatchVersion"),
    ) {
        (Some(major), Some(minor), Some(patch)) => Version::new(major, minor, patch),
        _ => decode(number),
    };
    check(version)?;
    Ok(version)
}

/// The ONNX parser beside the library: of the same major version, and as close to the library's as possible.
pub(super) fn parser_beside(library: &Path, version: Version) -> Result<PathBuf, String> {
    let stem = match Product::of(version) {
        Product::TensorRt => "nvonnxparser",
        Product::TensorRtForRtx => "tensorrt_onnxparser_rtx",
    };
    let version = [version.major, version.minor, version.patch];
    let closeness = |numbers: &[u32]| numbers.iter().zip(version).take_while(|(a, b)| *a == b).count();
    let folder = library.parent().unwrap_or(library);
    library::versions(folder, stem)
        // A file name has none to four numbers: libnvonnxparser.so, .so.11, .so.11.4.0.106.
        .filter(|(numbers, _)| numbers.first().is_none_or(|major| *major == version[0]))
        .max_by_key(|(numbers, _)| (closeness(numbers), numbers.clone()))
        .map(|(_, path)| path)
        .ok_or_else(|| {
            format!("the ONNX parser is missing: there is no lib{stem} beside {}", library.display())
        })
}

/// Decodes the number that the library reports: `110400`, or `8601` before TensorRT 10.
fn decode(number: u32) -> Version {
    let thousands = if number < 10_000 { 1000 } else { 10_000 };
    Version::new(number / thousands, number % thousands / 100, number % 100)
}

/// Checks that a library of this version is compatible with the headers of its product.
fn check(version: Version) -> Result<(), String> {
    let product = Product::of(version);
    let headers = product.headers();
    if (version.major, version.minor) < (headers.major, headers.minor) || version.major > headers.major {
        return Err(format!(
            "it is {product} {version}, {}.{} or a later {} is needed",
            headers.major, headers.minor, headers.major
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
