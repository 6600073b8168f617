use super::*;
use ocelli_error::ErrorKind;
use std::collections::HashMap;
use std::fs;

/// A library of this name; every file that the search finds states version 1.
fn library() -> Library {
    Library {
        name: "Test Runtime",
        stems: &["onnxruntime"],
        stems_if_named: &["onnxruntime_lean"],
        variables: &["OCELLI_ONNXRUNTIME", "ORT_DYLIB_PATH"],
        setup_folder: "onnxruntime",
        python_packages: &["onnxruntime/capi", "*tensorrt*", "nvidia/*/lib"],
        python_extra: Some("cpu"),
        remedy: "run `make setup`",
        version: |_| Ok("1".to_owned()),
    }
}

/// The search for [`library`], without what this machine has installed.
fn search(library: Library, variables: &[(&str, &Path)], program: &Path) -> LibrarySearch {
    let variables: HashMap<_, _> =
        variables.iter().map(|(name, value)| (*name, value.as_os_str().to_owned())).collect();
    let library = Box::leak(Box::new(library));
    let variable = |name: &str| variables.get(name).cloned();
    let mut search = LibrarySearch::in_environment(library, None, variable, Some(program.to_path_buf()));
    search.places.retain(|(place, path)| *place != Place::System && !path.starts_with("/usr"));
    search
}

fn with_given(mut search: LibrarySearch, path: impl Into<PathBuf>) -> LibrarySearch {
    search.places.insert(0, (Place::Given, path.into()));
    search
}

fn touch(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, "not a library").expect("a file");
}

#[test]
fn file_names_state_versions() {
    let cases: [(&str, &str, Option<&[u32]>); 16] = [
        ("onnxruntime", "libonnxruntime.so", Some(&[])),
        ("onnxruntime", "libonnxruntime.so.1", Some(&[1])),
        ("onnxruntime", "libonnxruntime.so.1.31.1", Some(&[1, 31, 1])),
        ("onnxruntime", "libonnxruntime.dylib", Some(&[])),
        ("onnxruntime", "libonnxruntime.1.31.1.dylib", Some(&[1, 31, 1])),
        ("onnxruntime", "onnxruntime.dll", Some(&[])),
        ("onnxruntime", "OnnxRuntime.DLL", Some(&[])),
        ("onnxruntime", "libonnxruntime_providers_shared.so", None),
        ("onnxruntime", "libonnxruntime_providers_cuda.so", None),
        ("onnxruntime", "libonnxruntime.so.old", None),
        ("onnxruntime", "libonnxruntime.so.1.31.1.tmp", None),
        ("onnxruntime", "libonnxruntime.sox", None),
        ("onnxruntime", "onnxruntime.lib", None),
        ("openvino_c", "libopenvino_c.so.2520", Some(&[2520])),
        ("nvrtc64", "nvrtc64_130_0.dll", Some(&[130, 0])),
        ("nvinfer", "libnvinfer_plugin.so.11", None),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .filter(|(stem, name, version)| version_in_name(stem, name).as_deref() != *version)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_highest_version_in_a_folder_is_used() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in
        ["libonnxruntime.so", "libonnxruntime.so.1.9.9", "libonnxruntime.so.1.31.1", "libonnxruntime_x.so"]
    {
        touch(&folder.path().join(name));
    }
    fs::create_dir(folder.path().join("libonnxruntime.so.2")).expect("a folder");
    assert_eq!(newest(folder.path(), "onnxruntime"), Some(folder.path().join("libonnxruntime.so.1.31.1")));
}

#[test]
fn places_are_searched_in_the_documented_order() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    let (program, named, other, data) = (at("bin"), at("named.so"), at("other.so"), at("data"));
    let (venv, conda) = (at("venv"), at("conda"));
    let packages = [
        "venv/lib/python3.12/site-packages/onnxruntime/capi",
        "venv/lib/python3.9/site-packages/onnxruntime/capi",
        "venv/lib/python3.9/site-packages/onnxruntime_ep_tensorrt_rtx",
        "conda/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib",
        "conda/lib/python3/dist-packages/numpy",
    ];
    packages.iter().for_each(|package| fs::create_dir_all(at(package)).expect("a folder"));
    let full = [
        ("OCELLI_ONNXRUNTIME", &*named),
        ("ORT_DYLIB_PATH", &*other),
        ("XDG_DATA_HOME", &*data),
        ("VIRTUAL_ENV", &*venv),
        ("CONDA_PREFIX", &*conda),
    ];
    let places = |search: &LibrarySearch| -> Vec<(Place, PathBuf)> {
        search.walk().map(|candidate| (candidate.place, candidate.path)).collect()
    };
    assert_eq!(
        places(&with_given(search(library(), &full, &program), at("given.so"))),
        [
            (Place::Given, at("given.so")),
            (Place::Environment("OCELLI_ONNXRUNTIME"), named.clone()),
            (Place::Environment("ORT_DYLIB_PATH"), other),
            (Place::BesideProgram, program.clone()),
            (Place::BesideProgram, program.join("lib")),
            (Place::SetupFolder, at("data/ocelli/onnxruntime")),
            (Place::Python, at(packages[0])),
            (Place::Python, at(packages[1])),
            (Place::Python, at(packages[2])),
            (Place::Python, at(packages[3])),
        ]
    );

    let setup_folder = |variables: &[(&str, &Path)]| {
        places(&search(library(), variables, &program))
            .pop()
            .filter(|(place, _)| *place == Place::SetupFolder)
    };
    let cases: [(&[(&str, &Path)], PathBuf); 3] = [
        (&[("OCELLI_HOME", &*named), ("XDG_DATA_HOME", &*data), ("HOME", &*data)], named.join("onnxruntime")),
        (&[("OCELLI_HOME", Path::new("")), ("XDG_DATA_HOME", &*data)], data.join("ocelli/onnxruntime")),
        (&[("HOME", &*data), ("USERPROFILE", &*data)], data.join(".local/share/ocelli/onnxruntime")),
    ];
    for (variables, expected) in cases {
        assert_eq!(setup_folder(variables), Some((Place::SetupFolder, expected)), "{variables:?}");
    }
}

#[test]
fn the_first_place_that_holds_the_library_decides() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    let in_python = "venv/lib/python3.12/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1";
    for file in
        [in_python, "lean/libonnxruntime_lean.so.2", "data/ocelli/onnxruntime/libonnxruntime_lean.so.2"]
    {
        touch(&at(file));
    }
    let (program, venv, data, lean) = (at("bin"), at("venv"), at("data"), at("lean"));
    let cases: [(&str, &[(&str, &Path)], PathBuf); 3] = [
        ("a Python package", &[("VIRTUAL_ENV", &venv)], at(in_python)),
        (
            "a stem for named places, elsewhere",
            &[("VIRTUAL_ENV", &venv), ("XDG_DATA_HOME", &data)],
            at(in_python),
        ),
        (
            "a stem for named places",
            &[("VIRTUAL_ENV", &venv), ("OCELLI_ONNXRUNTIME", &lean)],
            at("lean/libonnxruntime_lean.so.2"),
        ),
    ];
    for (name, variables, expected) in cases {
        let found = search(library(), variables, &program).locate();
        assert_eq!(found.ok(), Some((expected, "1".to_owned())), "{name}");
    }
}

#[test]
fn the_packages_of_the_interpreter_come_before_what_is_installed_for_the_machine() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    let ours = at("wheel/lib/python3.13/site-packages");
    let setup = at("data/ocelli/onnxruntime/libonnxruntime.so.1.30.0");
    touch(&setup);
    let inside = || {
        let mut search = search(library(), &[("XDG_DATA_HOME", &at("data"))], &at("bin"));
        search.add_interpreter(std::slice::from_ref(&ours));
        search
    };
    assert_eq!(inside().locate().ok(), Some((setup.clone(), "1".to_owned())), "it has no such package");
    let package = ours.join("onnxruntime/capi/libonnxruntime.so.1.31.1");
    touch(&package);
    assert_eq!(inside().locate().ok(), Some((package.clone(), "1".to_owned())));
    touch(&at("bin/libonnxruntime.so.1.29.0"));
    let beside = at("bin/libonnxruntime.so.1.29.0");
    assert_eq!(inside().locate().ok(), Some((beside.clone(), "1".to_owned())));
    for file in [package, beside, setup] {
        fs::remove_file(file).expect("it was made above");
    }
    let message = inside().locate().map_err(|error| error.to_string());
    assert!(
        message.as_ref().is_err_and(|text| text.contains("pip install \"ocelli-vision[cpu]\"")),
        "{message:?}"
    );
}

#[test]
fn a_library_that_cannot_be_used_is_an_error() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    for folder in ["bin", "empty"] {
        fs::create_dir_all(at(folder)).expect("a folder");
    }
    let (text, corrupt) = (at("notes.txt"), at("data/ocelli/onnxruntime/libonnxruntime.so.1.31.1"));
    touch(&text);
    touch(&at("wheel/libonnxruntime.so"));
    let (program, data, nowhere, empty) = (at("bin"), at("data"), at("nowhere.so"), at("empty"));
    let opened = || Library { version: |path| open(path).map(|_| String::new()), ..library() };
    let search = |variables: &[(&str, &Path)]| search(opened(), variables, &program);

    let cases = [
        ("nothing anywhere", search(&[]), "Test Runtime not found in ", "run `make setup`"),
        (
            "no such file",
            with_given(search(&[]), &nowhere),
            "nowhere.so (given path): no such file",
            "give another path",
        ),
        (
            "an empty folder",
            with_given(search(&[]), &empty),
            "empty (given path): the folder holds no libonnxruntime",
            "give another path",
        ),
        ("a text", with_given(search(&[]), &text), "notes.txt (given path): ", "give another path"),
        (
            "a folder with a corrupt library",
            with_given(search(&[]), at("wheel")),
            "wheel/libonnxruntime.so (given path): ",
            "give another path",
        ),
        (
            "a variable without a file",
            search(&[("OCELLI_ONNXRUNTIME", &nowhere)]),
            "nowhere.so (OCELLI_ONNXRUNTIME): no such file",
            "correct OCELLI_ONNXRUNTIME or unset it",
        ),
        (
            "another project's variable without a file",
            search(&[("ORT_DYLIB_PATH", &nowhere)]),
            "nowhere.so (ORT_DYLIB_PATH): no such file",
            "correct ORT_DYLIB_PATH or unset it",
        ),
    ];
    let mut wrong = Vec::new();
    for (name, search, what, remedy) in cases {
        match search.locate() {
            Err(error)
                if error.kind() == ErrorKind::Unavailable
                    && error.to_string().contains(what)
                    && error.to_string().contains(remedy) => {}
            other => wrong.push(format!("{name}: expected {what:?} and {remedy:?}, got {other:?}")),
        }
    }

    // Last, because the cases above must not find this file.
    touch(&corrupt);
    let candidates = search(&[("XDG_DATA_HOME", &data)]).walk().collect::<Vec<_>>();
    match candidates.last() {
        Some(Candidate { place: Place::SetupFolder, path, finding: Finding::Unusable { .. } })
            if *path == corrupt => {}
        other => wrong.push(format!("a corrupt file in the setup folder: {other:?}")),
    }
    let error = search(&[("XDG_DATA_HOME", &data)]).locate().expect_err("it is corrupt").to_string();
    if !error.contains("replace it, or run `make setup`") {
        wrong.push(error);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
