//! The search with real libraries of TensorRT.
//!
//! Needs TensorRT for RTX at `OCELLI_TENSORRT` and TensorRT's lean runtime at `OCELLI_TENSORRT_LEAN`, files or folders.

use ocelli_engines::library::{Finding, Place};
use ocelli_engines::tensorrt::LIBRARY;
use std::fs;
use std::path::{Path, PathBuf};

/// The path in an environment variable.
fn named(variable: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")))
}

/// The result of the search at a path.
fn found(path: &Path) -> Finding {
    let given = LIBRARY.candidates(Some(path)).into_iter().find(|candidate| candidate.place == Place::Given);
    given.expect("the given path is a place").finding
}

/// The library, if the path is its folder.
fn file(path: &Path) -> PathBuf {
    if path.is_file() {
        return path.to_owned();
    }
    let mut files = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
    let library = files.find(|file| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libnvinfer_lean.so") || name.starts_with("libtensorrt_rtx.so")
    });
    library.expect("a library")
}

#[test]
#[ignore = "needs TensorRT for RTX and the lean runtime (OCELLI_TENSORRT, OCELLI_TENSORRT_LEAN)"]
fn each_library_is_identified() {
    let (rtx, lean) = (named("OCELLI_TENSORRT"), named("OCELLI_TENSORRT_LEAN"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let truncated = folder.path().join("libnvinfer.so.11");
    let mut bytes = fs::read(file(&lean)).expect("the lean runtime");
    let whole = bytes.len();
    bytes.truncate(whole / 2);
    fs::write(&truncated, &bytes).expect("half of it");
    let parser = file(&rtx).with_file_name("libtensorrt_onnxparser_rtx.so.1.7.1");

    let usable = |start: &'static str| (true, start);
    let refused = |start: &'static str| (false, start);
    let cases = [
        ("TensorRT for RTX", rtx.clone(), usable("1.7.1 (TensorRT for RTX)")),
        ("the lean runtime", lean.clone(), usable("11.4.0 (TensorRT)")),
        ("half a library", truncated, refused("the file is truncated: it has ")),
        ("the parser", parser, refused("it is not TensorRT: it does not export `getInferLibVersion`")),
    ];
    let mut wrong = Vec::new();
    for (name, path, (is_usable, start)) in cases {
        let finding = found(&path);
        let fits = match &finding {
            Finding::Usable { version } => is_usable && version.starts_with(start),
            Finding::Unusable { reason } => !is_usable && reason.starts_with(start),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{name}: {finding:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
