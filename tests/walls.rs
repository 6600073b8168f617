//! The walls of docs/architecture.md: which crate may know which, and what a library never imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates of the workspace that a crate may depend on, tests apart.
const MAY_KNOW: [(&str, &[&str]); 18] = [
    ("ocelli-error", &[]),
    ("ocelli-onnx", &[]),
    ("ocelli-export", &["ocelli-error", "ocelli-onnx"]),
    ("ocelli-engines", &["ocelli-error", "ocelli-onnx"]),
    ("ocelli-tracking", &["ocelli-error"]),
    ("ocelli-resize", &["ocelli-error"]),
    ("ocelli-images", &["ocelli-engines", "ocelli-error", "ocelli-resize", "ocelli-tracking"]),
    ("ocelli-builtin-1", &[]),
    ("ocelli-builtin-2", &[]),
    ("ocelli-opencv", &["ocelli-engines", "ocelli-error"]),
    (
        "ocelli",
        &[
            "ocelli-builtin-1",
            "ocelli-builtin-2",
            "ocelli-engines",
            "ocelli-error",
            "ocelli-export",
            "ocelli-images",
            "ocelli-opencv",
            "ocelli-resize",
            "ocelli-tracking",
        ],
    ),
    ("ocelli-verify", &["ocelli", "ocelli-engines", "ocelli-error", "ocelli-export", "ocelli-tracking"]),
    ("ocelli-datasets", &["ocelli", "ocelli-engines", "ocelli-export", "ocelli-tracking"]),
    ("ocelli-serve", &["ocelli", "ocelli-datasets", "ocelli-verify"]),
    (
        "ocelli-cli",
        &[
            "ocelli",
            "ocelli-datasets",
            "ocelli-engines",
            "ocelli-export",
            "ocelli-serve",
            "ocelli-tracking",
            "ocelli-verify",
        ],
    ),
    ("ocelli-tests", &["ocelli"]),
    ("ocelli-c", &["ocelli", "ocelli-verify"]),
    // The package contains the programs, which `bindings/python/src/program.rs` alone starts: see `NEVER`.
    (
        "ocelli-python",
        &[
            "ocelli",
            "ocelli-cli",
            "ocelli-datasets",
            "ocelli-engines",
            "ocelli-export",
            "ocelli-tracking",
            "ocelli-verify",
        ],
    ),
];

/// Crates that speak to a person at a terminal, and what tests and benchmarks share.
const PROGRAMS: [&str; 2] = ["ocelli-cli", "ocelli-tests"];

/// Crates that only a program needs.
const OF_PROGRAMS: [&str; 7] =
    ["anyhow", "clap", "clap_complete", "ctrlc", "indicatif", "rustyline", "tracing-subscriber"];

/// Files that may have the text: the one door from the Python package to the programs in it.
const DOORS: [&str; 1] = ["bindings/python/src/program.rs"];

/// Text that no production code below a folder contains, and why.
const NEVER: [(&str, &str, &str); 7] = [
    ("engines/src", "use image::", "an engine knows no images"),
    ("engines/src", "ocelli_export", "an engine knows no model"),
    ("tracking/src", "std::thread", "the trackers start no threads"),
    ("tracking/src", "use image::", "the trackers know no pixels"),
    ("export/src", "ocelli_engines", "the exporter runs nothing"),
    ("bindings/c/src", "ocelli_cli", "a binding knows no program"),
    ("bindings/python/src", "ocelli_cli", "a binding knows no program"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the project").to_owned()
}

/// For each crate, the normal dependencies that it names.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let names = |package: &Value| {
        let normal = package["dependencies"].as_array().into_iter().flatten().filter(|d| d["kind"].is_null());
        normal.filter_map(|d| d["name"].as_str().map(str::to_owned)).collect()
    };
    let packages = metadata["packages"].as_array().expect("it lists packages");
    packages.iter().map(|p| (p["name"].as_str().expect("a name").to_owned(), names(p))).collect()
}

#[test]
fn crates_know_only_what_is_below_them() {
    let found = dependencies();
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.into_iter().collect();
    let mut wrong = Vec::new();
    for (name, knows) in &found {
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} has no row in MAY_KNOW"));
            continue;
        };
        let ours = knows.iter().filter(|known| found.contains_key(*known) && *known != name);
        wrong.extend(
            ours.filter(|known| !allowed.contains(&known.as_str()))
                .map(|known| format!("{name} must not know {known}")),
        );
        if !PROGRAMS.contains(&name.as_str()) {
            wrong.extend(
                OF_PROGRAMS
                    .iter()
                    .filter(|one| knows.contains(**one))
                    .map(|one| format!("{name} is a library and must not know {one}")),
            );
        }
    }
    wrong.extend(
        allowed.keys().filter(|name| !found.contains_key(**name)).map(|name| format!("{name} is gone")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn libraries_import_nothing_from_above() {
    let mut wrong = Vec::new();
    for (folder, text, why) in NEVER {
        let mut folders = vec![root().join(folder)];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("the folder is there").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs")
                    && !DOORS.iter().any(|door| path.ends_with(door))
                {
                    files += 1;
                    if std::fs::read_to_string(&path).expect("a text file").contains(text) {
                        wrong.push(format!("{}: {text}: {why}", path.display()));
                    }
                }
            }
        }
        assert!(files > 0, "{folder} has no source files");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
