use super::*;
use std::collections::HashMap;
use std::fs;

fn search(variables: &[(&str, &Path)], program: &Path) -> LibrarySearch {
    let variables: HashMap<_, _> =
        variables.iter().map(|(name, value)| (*name, value.as_os_str().to_owned())).collect();
    let mut search =
        LibrarySearch::from_surroundings(|name| variables.get(name).cloned(), Some(program.to_path_buf()));
    // Whatever this machine has installed is no part of these tests.
    search.folders.retain(|(place, _)| *place != Place::System);
    search
}

#[test]
fn file_names_state_versions() {
    let cases: [(&str, Option<&[u32]>); 12] = [
        ("libonnxruntime.so", Some(&[])),
        ("libonnxruntime.so.1", Some(&[1])),
        ("libonnxruntime.so.1.31.1", Some(&[1, 31, 1])),
        ("libonnxruntime.dylib", Some(&[])),
        ("libonnxruntime.1.31.1.dylib", Some(&[1, 31, 1])),
        ("onnxruntime.dll", Some(&[])),
        ("libonnxruntime_providers_shared.so", None),
        ("libonnxruntime_providers_cuda.so", None),
        ("libonnxruntime.so.old", None),
        ("libonnxruntime.so.1.31.1.tmp", None),
        ("libonnxruntime.sox", None),
        ("onnxruntime.lib", None),
    ];
    let wrong: Vec<_> =
        cases.iter().filter(|(name, version)| library_version(name).as_deref() != *version).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_highest_version_in_a_folder_is_meant() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in
        ["libonnxruntime.so", "libonnxruntime.so.1.9.9", "libonnxruntime.so.1.31.1", "libonnxruntime_x.so"]
    {
        fs::write(folder.path().join(name), "").expect("a file");
    }
    fs::create_dir(folder.path().join("libonnxruntime.so.2")).expect("a folder");
    assert_eq!(library_in(folder.path()), Some(folder.path().join("libonnxruntime.so.1.31.1")));
}

#[test]
fn places_are_asked_in_the_documented_order() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    let (program, named, other, data) = (at("bin"), at("named.so"), at("other.so"), at("data"));
    let full = [("OCELLI_ONNXRUNTIME", &*named), ("ORT_DYLIB_PATH", &*other), ("XDG_DATA_HOME", &*data)];
    let places = |search: &LibrarySearch| -> Vec<(Place, PathBuf)> {
        search.candidates().into_iter().map(|candidate| (candidate.place, candidate.path)).collect()
    };
    assert_eq!(
        places(&search(&full, &program).with_path(at("flag.so"))),
        [
            (Place::Flag, at("flag.so")),
            (Place::Environment("OCELLI_ONNXRUNTIME"), named.clone()),
            (Place::Environment("ORT_DYLIB_PATH"), other),
            (Place::BesideProgram, program.clone()),
            (Place::BesideProgram, program.join("lib")),
            (Place::SetupFolder, at("data/ocelli/onnxruntime")),
        ]
    );

    let setup_folder = |variables: &[(&str, &Path)]| {
        places(&search(variables, &program)).pop().filter(|(place, _)| *place == Place::SetupFolder)
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
fn what_cannot_be_used_is_an_error_and_never_passed_over() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| root.path().join(name);
    for folder in ["bin", "empty", "data/ocelli/onnxruntime", "wheel"] {
        fs::create_dir_all(at(folder)).expect("a folder");
    }
    let (text, damaged) = (at("notes.txt"), at("data/ocelli/onnxruntime/libonnxruntime.so.1.31.1"));
    fs::write(&text, "not a library").expect("a file");
    fs::write(at("wheel/libonnxruntime.so"), "not a library either").expect("a file");
    let (program, data, nowhere, empty) = (at("bin"), at("data"), at("nowhere.so"), at("empty"));

    let cases = [
        ("nothing anywhere", search(&[], &program), "ONNX Runtime not found, in ", "run `make setup`"),
        (
            "a flag to nothing",
            search(&[], &program).with_path(&nowhere),
            "nowhere.so (flag): no such file",
            "name another file",
        ),
        (
            "a flag to an empty folder",
            search(&[], &program).with_path(&empty),
            "empty (flag): the folder holds no libonnxruntime",
            "name another file",
        ),
        (
            "a flag to a text",
            search(&[], &program).with_path(&text),
            "notes.txt (flag): ",
            "name another file",
        ),
        (
            "a flag to a folder with a damaged one",
            search(&[], &program).with_path(at("wheel")),
            "wheel/libonnxruntime.so (flag): ",
            "name another file",
        ),
        (
            "a variable to nothing",
            search(&[("OCELLI_ONNXRUNTIME", &nowhere)], &program),
            "nowhere.so (OCELLI_ONNXRUNTIME): no such file",
            "correct OCELLI_ONNXRUNTIME or unset it",
        ),
        (
            "another project's variable to nothing",
            search(&[("ORT_DYLIB_PATH", &nowhere)], &program),
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

    // Last, because it needs a file that the cases above must not see.
    fs::write(&damaged, "damaged").expect("a file");
    let candidates = search(&[("XDG_DATA_HOME", &data)], &program).candidates();
    match candidates.last() {
        Some(Candidate { place: Place::SetupFolder, path, finding: Finding::Unusable { .. } })
            if *path == damaged => {}
        other => wrong.push(format!("a damaged file in the setup folder: {other:?}")),
    }
    let error =
        search(&[("XDG_DATA_HOME", &data)], &program).locate().expect_err("it is damaged").to_string();
    if !error.contains("replace it, or run `make setup`") {
        wrong.push(error);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
