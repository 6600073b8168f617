//! Cargo says nothing about a forgotten file, so every test program checks that it has each file beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks that every file below `folder` is a module of one of the test programs there. Packages in it have their own.
pub fn are_complete(folder: &str, programs: &[&str]) {
    let folder = Path::new(folder);
    let mut declared = BTreeSet::new();
    for program in programs.iter().map(|program| folder.join(program)) {
        add(&program, program.parent().expect("it is in the folder"), &mut declared);
    }
    let mut forgotten = files(folder);
    forgotten.retain(|file| !declared.contains(file));
    assert!(forgotten.is_empty(), "no `mod` declares {forgotten:?}");
}

/// Adds a file, whose modules are in the folder `below`, and these modules.
fn add(file: &Path, below: &Path, declared: &mut BTreeSet<PathBuf>) {
    declared.insert(file.to_owned());
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut path = None;
    for line in text.lines().map(str::trim) {
        path = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()).or(path);
        let starts = ["mod ", "pub mod ", "pub(crate) mod ", "pub(super) mod "];
        let declaration = starts.iter().find_map(|start| line.strip_prefix(start)?.strip_suffix(';'));
        let Some(name) = declaration else { continue };
        match path.take() {
            None => add(&below.join(format!("{name}.rs")), &below.join(name), declared),
            // Files elsewhere are those of others.
            Some(path) => drop(declared.insert(file.with_file_name(path))),
        }
    }
}

/// The Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in
        std::fs::read_dir(folder).expect("it is in the repository").flatten().map(|entry| entry.path())
    {
        if path.is_dir() && !path.join("Cargo.toml").is_file() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
