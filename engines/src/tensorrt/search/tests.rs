//! Searches in temporary folders.

use super::*;
use std::collections::BTreeMap;
use std::fs;

/// Creates a file that is not a library; its path in the report shows which place was found.
fn touch(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, b"no library").expect("a file");
}

/// The first place with a library, and its path below `root`.
fn first(search: &TensorRtSearch, root: &Path) -> Option<(Place, String)> {
    let candidates = search.candidates();
    let found = candidates.into_iter().find(|candidate| candidate.finding != Finding::Missing)?;
    // Libraries of this machine are not of interest.
    let below = found.path.strip_prefix(root).ok()?;
    Some((found.place, below.display().to_string()))
}

#[test]
fn the_first_place_decides() {
    let rtx = "libtensorrt_rtx.so.1.7.1";
    let cases: [(&str, Product, &[&str], &[(&str, &str)], Option<(Place, &str)>); 8] = [
        (
            "the environment's folder",
            Product::TensorRtForRtx,
            &[
                "named/libtensorrt_rtx.so.1.7.1",
                "named/libtensorrt_rtx.so.1.10.0",
                "bin/libtensorrt_rtx.so.1",
            ],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment(VARIABLE), "named/libtensorrt_rtx.so.1.10.0")),
        ),
        (
            "an empty variable is none",
            Product::TensorRtForRtx,
            &["bin/libtensorrt_rtx.so.1"],
            &[("OCELLI_TENSORRT", "")],
            Some((Place::BesideProgram, "bin/libtensorrt_rtx.so.1")),
        ),
        (
            "a folder that lacks it is wrong",
            Product::TensorRtForRtx,
            &["named/libnvinfer.so.11", "bin/libtensorrt_rtx.so.1"],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment(VARIABLE), "named")),
        ),
        (
            "the setup folder",
            Product::TensorRt,
            &["data/ocelli/tensorrt/libnvinfer.so.11", "data/ocelli/tensorrt/libnvinfer_plugin.so.11"],
            &[("XDG_DATA_HOME", "data")],
            Some((Place::SetupFolder, "data/ocelli/tensorrt/libnvinfer.so.11")),
        ),
        (
            "a wheel in a virtual environment, of the newest Python",
            Product::TensorRtForRtx,
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
            "a runtime alone, where it is named",
            Product::TensorRt,
            &["named/libnvinfer_lean.so.11"],
            &[("OCELLI_TENSORRT", "named")],
            Some((Place::Environment(VARIABLE), "named/libnvinfer_lean.so.11")),
        ),
        (
            "a runtime alone, where it is not",
            Product::TensorRt,
            &["bin/libnvinfer_lean.so.11", "data/ocelli/tensorrt/libnvinfer.so.11"],
            &[("XDG_DATA_HOME", "data")],
            Some((Place::SetupFolder, "data/ocelli/tensorrt/libnvinfer.so.11")),
        ),
        (
            "the loader's path",
            Product::TensorRtForRtx,
            &["system/libtensorrt_rtx.so"],
            &[("LD_LIBRARY_PATH", "system")],
            Some((Place::System, "system/libtensorrt_rtx.so")),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, product, files, variables, expected) in cases {
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
        let search = TensorRtSearch::from_surroundings(
            product,
            |name| variables.get(name).cloned(),
            Some(root.0.join("bin")),
        );
        let found = first(&search, &root.0);
        if found.as_ref().map(|(place, path)| (*place, path.as_str())) != expected {
            wrong.push(format!("{name}: {found:?}"));
        }
        let flag = search.with_path(root.0.join(rtx));
        match flag.locate() {
            Err(error) if error.to_string().contains("(given path): no such file") => {}
            other => wrong.push(format!("{name}, a flag before it: {other:?}")),
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
        let found = parser_beside(&folder.path().join("libnvinfer.so.11"), Product::TensorRt, version);
        let expected = expected.map(|name| folder.path().join(name));
        if found.clone().ok() != expected {
            wrong.push(format!("{files:?}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_is_not_a_library_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("libnvinfer.so.11");
    touch(&path);
    let search = TensorRtSearch::of(Product::TensorRt).with_path(&path);
    let error = search.locate().expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    let start = format!("cannot use TensorRT, {} (given path): ", path.display());
    assert!(text.starts_with(&start), "{text}");
    assert!(text.ends_with("; name another file, or none to search for one"), "{text}");
}

#[test]
fn a_failed_search_lists_its_places_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("bin");
    let search = TensorRtSearch {
        product: Product::TensorRtForRtx,
        named: Vec::new(),
        folders: vec![(Place::BesideProgram, program.clone())],
    };
    let text = search.locate().expect_err("an error").to_string();
    let start =
        format!("TensorRT for RTX not found, in {} and the system's library folders: ", program.display());
    assert!(text.starts_with(&start) && text.ends_with("set OCELLI_TENSORRT to its folder"), "{text}");
}
