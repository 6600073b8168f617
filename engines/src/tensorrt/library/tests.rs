use super::*;
use crate::library::{Finding, LibrarySearch, Place};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

/// Creates a file that is not a library; its path in the report shows which place was found.
fn touch(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, b"no library").expect("a file");
}

#[test]
fn the_first_place_decides() {
    let cases: [(&str, &[&str], &[(&str, &str)], Option<(Place, &str)>); 9] = [
        (
            "the environment's folder",
            &[
                "named/libtensorrt_rtx.so.1.7.1",
                "named/libtensorrt_rtx.so.1.10.0",
                "bin/libtensorrt_rtx.so.1",
            ],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment("OCELLI_TENSORRT"), "named/libtensorrt_rtx.so.1.10.0")),
        ),
        (
            "an empty variable counts as unset",
            &["bin/libtensorrt_rtx.so.1"],
            &[("OCELLI_TENSORRT", "")],
            Some((Place::BesideProgram, "bin/libtensorrt_rtx.so.1")),
        ),
        (
            "a named folder without the library",
            &["named/libnvinfer_plugin.so.11", "bin/libtensorrt_rtx.so.1"],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment("OCELLI_TENSORRT"), "named")),
        ),
        (
            "the setup folder",
            &["data/ocelli/tensorrt/libnvinfer.so.11", "data/ocelli/tensorrt/libnvinfer_plugin.so.11"],
            &[("XDG_DATA_HOME", "data")],
            Some((Place::SetupFolder, "data/ocelli/tensorrt/libnvinfer.so.11")),
        ),
        (
            "a wheel in a virtual environment, of the newest Python",
            &[
                "venv/lib/python3.9/site-packages/onnxruntime_ep_nv_tensorrt_rtx/libtensorrt_rtx.so.1.7.1",
                "venv/lib/python3.12/site-packages/onnxruntime_ep_nv_tensorrt_rtx/libtensorrt_rtx.so.1.7.1",
                "venv/lib/python3.12/site-packages/numpy/libtensorrt_rtx.so.1.7.1",
            ],
            &[("VIRTUAL_ENV", "venv")],
            Some((
                Place::Python,
                "venv/lib/python3.12/site-packages/onnxruntime_ep_nv_tensorrt_rtx/libtensorrt_rtx.so.1.7.1",
            )),
        ),
        (
            "a lean runtime in a named folder",
            &["named/libnvinfer_lean.so.11"],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment("OCELLI_TENSORRT"), "named/libnvinfer_lean.so.11")),
        ),
        (
            "a lean runtime elsewhere is skipped",
            &["bin/libnvinfer_lean.so.11", "data/ocelli/tensorrt/libnvinfer.so.11"],
            &[("XDG_DATA_HOME", "data")],
            Some((Place::SetupFolder, "data/ocelli/tensorrt/libnvinfer.so.11")),
        ),
        (
            "a folder with both products",
            &["bin/libnvinfer.so.11", "bin/libtensorrt_rtx.so.1"],
            &[],
            Some((Place::BesideProgram, "bin/libtensorrt_rtx.so.1")),
        ),
        (
            "the loader's path",
            &["system/libtensorrt_rtx.so"],
            &[("LD_LIBRARY_PATH", "system")],
            Some((Place::System, "system/libtensorrt_rtx.so")),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, files, variables, expected) in cases {
        let root = tempfile::tempdir().expect("a temporary folder");
        // LD_LIBRARY_PATH takes absolute paths only.
        let root = root.path().canonicalize().map(|path| (path, root)).expect("a folder");
        for file in files {
            touch(&root.0.join(file));
        }
        let variables: BTreeMap<&str, OsString> = variables
            .iter()
            .map(|(name, path)| {
                let path = if path.is_empty() { OsString::new() } else { root.0.join(path).into() };
                (*name, path)
            })
            .collect();
        let search = |given: Option<&Path>| {
            let variable = |name: &str| variables.get(name).cloned();
            LibrarySearch::in_environment(&LIBRARY, given, variable, Some(root.0.join("bin")))
        };
        let mut candidates = search(None).walk().collect::<Vec<_>>().into_iter();
        let found = candidates.find(|candidate| candidate.finding != Finding::Missing);
        // Ignores libraries that this machine has installed.
        let found =
            found.and_then(|found| Some((found.place, found.path.strip_prefix(&root.0).ok()?.to_owned())));
        if found != expected.map(|(place, path)| (place, PathBuf::from(path))) {
            wrong.push(format!("{name}: {found:?}"));
        }
        match search(Some(&root.0.join("nothing.so"))).locate() {
            Err(error) if error.to_string().contains("(given path): no such file") => {}
            other => wrong.push(format!("{name}, with a given path: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_parser_beside_the_library_is_the_one_of_its_version() {
    let version = Version::new(11, 4, 0);
    let cases: [(&[&str], Option<&str>); 6] = [
        (&["libnvonnxparser.so.11"], Some("libnvonnxparser.so.11")),
        (&["libnvonnxparser.so.11.5.0", "libnvonnxparser.so.11.4.0"], Some("libnvonnxparser.so.11.4.0")),
        (&["libnvonnxparser.so.10", "libnvonnxparser.so"], Some("libnvonnxparser.so")),
        (&["libnvonnxparser.so.10"], None),
        (&["libtensorrt_onnxparser_rtx.so.1.7.1"], None),
        (&[], None),
    ];
    let mut wrong = Vec::new();
    for (files, expected) in cases {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for file in files {
            touch(&folder.path().join(file));
        }
        let found = parser_beside(&folder.path().join("libnvinfer.so.11"), version);
        let expected = expected.map(|name| folder.path().join(name));
        if found.clone().ok() != expected {
            wrong.push(format!("{files:?}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

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
fn unsupported_versions_are_refused_with_a_reason() {
    let cases: [((u32, u32, u32), Option<&str>); 8] = [
        ((11, 4, 0), None),
        ((11, 9, 2), None),
        ((11, 3, 9), Some("it is TensorRT 11.3.9, 11.4 or a later 11 is needed")),
        ((12, 0, 0), Some("it is TensorRT 12.0.0, 11.4 or a later 11 is needed")),
        ((10, 3, 0), Some("it is TensorRT 10.3.0, 11.4 or a later 11 is needed")),
        ((1, 7, 1), None),
        ((1, 6, 0), Some("it is TensorRT for RTX 1.6.0, 1.7 or a later 1 is needed")),
        ((2, 0, 0), Some("it is TensorRT for RTX 2.0.0, 1.7 or a later 1 is needed")),
    ];
    let mut wrong = Vec::new();
    for ((major, minor, patch), expected) in cases {
        let reason = check(Version::new(major, minor, patch)).err();
        if reason.as_deref() != expected {
            wrong.push(format!("{major}.{minor}.{patch}: {reason:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
