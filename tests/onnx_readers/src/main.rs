//! Reads every ONNX file under some folders with rten and with tract: `onnx-readers FOLDER...`.
//!
//! A file that one of them cannot parse is a failure: rten follows the schema strictly, and refuses numbers that are
//! packed where the schema does not pack them. An operator or a shape that they do not support is reported, and is not a
//! failure: which operators a file uses depends on the runtime it is exported for.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rten::{LoadErrorKind, Model};
use tract_onnx::prelude::Framework;

/// The result of a reader for a file.
enum Outcome {
    /// It parsed the file and built a model of it.
    Loaded,
    /// It parsed the file and lacks an operator, a type or a shape rule; why, in one line.
    Unsupported(String),
    /// It could not parse the file; why, in one line.
    Unreadable(String),
}

fn main() -> ExitCode {
    let mut paths = Vec::new();
    for folder in std::env::args_os().skip(1).map(PathBuf::from) {
        let before = paths.len();
        if let Err(error) = find(&folder, &mut paths) {
            eprintln!("error: cannot list {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
        if paths.len() == before {
            eprintln!("error: {}: no ONNX file in it", folder.display());
            return ExitCode::FAILURE;
        }
    }
    if paths.is_empty() {
        eprintln!("usage: onnx-readers FOLDER...");
        return ExitCode::FAILURE;
    }
    paths.sort();

    let readers: [(&str, fn(&Path) -> Outcome); 2] = [("rten", with_rten), ("tract", with_tract)];
    let mut failures = 0;
    for (name, read) in readers {
        let mut loaded = 0;
        let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
        for path in &paths {
            match read(path) {
                Outcome::Loaded => loaded += 1,
                Outcome::Unsupported(reason) => *unsupported.entry(reason).or_default() += 1,
                Outcome::Unreadable(reason) => {
                    println!("FAIL {name} cannot parse {}: {reason}", path.display());
                    failures += 1;
                }
            }
        }
        println!(
            "{name} parses {} of {} files and loads {loaded}",
            loaded + unsupported.values().sum::<usize>(),
            paths.len()
        );
        for (reason, count) in unsupported {
            println!("  {name} does not support, {count} files: {reason}");
        }
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Collects the ONNX files under a folder, at any depth.
fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "onnx") {
            paths.push(path);
        }
    }
    Ok(())
}

fn with_rten(path: &Path) -> Outcome {
    use LoadErrorKind::{GraphError, OperatorInvalid, OptimizeError, ShapeInferenceFailed};
    let Err(error) = Model::load_file(path) else { return Outcome::Loaded };
    let text = one_line(&error);
    match error.kind() {
        OperatorInvalid | GraphError | OptimizeError | ShapeInferenceFailed => {
            // The node before the reason differs from file to file.
            let reason = text.split_once("error: ").map_or(&*text, |(_, reason)| reason);
            Outcome::Unsupported(reason.to_owned())
        }
        _ => Outcome::Unreadable(text),
    }
}

fn with_tract(path: &Path) -> Outcome {
    let onnx = tract_onnx::onnx();
    if let Err(error) = onnx.proto_model_for_path(path) {
        return Outcome::Unreadable(format!("{error:#}"));
    }
    match onnx.model_for_path(path) {
        Ok(_) => Outcome::Loaded,
        // The outermost context names the node, which differs from file to file; the cause does not.
        Err(error) => Outcome::Unsupported(error.root_cause().to_string()),
    }
}

/// The error and its causes.
fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.contains(&error.to_string()) {
            text += &format!(": {error}");
        }
        cause = error.source();
    }
    text.replace('\n', "; ")
}
