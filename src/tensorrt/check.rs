//! What does not belong together, found before anything runs.

use std::path::Path;

use ocelli_engines::tensorrt::{ComputeCapability, Version};

use super::backend::{Gpu, TensorRtLibrary};
use super::sidecar::Sidecar;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;

/// Engines built to be compatible with later GPUs run from this generation on.
const FIRST_COMPATIBLE: ComputeCapability = ComputeCapability::new(8, 0);

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Mismatch, message)
}

/// The command that builds an engine again.
pub fn rebuild(sidecar: &Sidecar) -> String {
    format!("`ocelli build-engine --model {} --output …`", sidecar.model.display())
}

/// The file is an engine's, as far as can be told from outside.
pub fn check_file(path: &Path, sidecar: Option<&Sidecar>) -> Result<()> {
    let refuse = |why: &str| {
        let message = format!("no engine, {}: {why}", path.display());
        Err(Error::new(ErrorKind::InvalidData, message))
    };
    let found = match path.metadata() {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let message = format!(
                "no TensorRT engine, {}: no such file; `ocelli build-engine` makes one, or leave --trt out",
                path.display()
            );
            return Err(Error::new(ErrorKind::Io, message).with_source(e));
        }
        Err(e) => return Err(Error::io("cannot read the engine", path, e)),
    };
    if found.is_dir() {
        return refuse("it is a folder; name the file with the engine in it");
    }
    if found.len() == 0 {
        return refuse("the file is empty; build the engine again");
    }
    match sidecar {
        Some(sidecar) if sidecar.engine.bytes != found.len() => refuse(&format!(
            "it has {} bytes, but its sidecar says {}: it is damaged; build it again",
            found.len(),
            sidecar.engine.bytes
        )),
        _ => Ok(()),
    }
}

/// The engine was built from this model's very graph.
pub fn check_model(path: &Path, sidecar: &Sidecar, model: &Model) -> Result<()> {
    let (manifest, folder, engine) = (model.manifest(), model.folder().display(), path.display());
    if sidecar.model_weights_sha256 != manifest.weights_sha256 {
        return Err(mismatch(format!(
            "engine {engine}: it was built from another model than {folder} (the weights differ); name the model that \
             it was built from, or build an engine of this one"
        )));
    }
    let shapes = &sidecar.shapes;
    for (name, built, wanted) in [
        ("imgsz", shapes.imgsz, manifest.imgsz),
        ("width", shapes.model_width, manifest.model_width),
        ("grid", shapes.grid, manifest.grid()),
    ] {
        if built != wanted {
            return Err(mismatch(format!(
                "engine {engine}: its {name} is {built}, that of {folder} is {wanted}; name the model that it was built \
                 from, or build an engine of this one"
            )));
        }
    }
    match manifest.files.get(sidecar.graph.file()) {
        None => {
            Err(mismatch(format!("engine {engine}: it is a {}, which {folder} does not have", sidecar.graph)))
        }
        Some(entry) if entry.sha256 != sidecar.onnx_sha256 => Err(mismatch(format!(
            "engine {engine}: it was built from another {} than that of {folder} (the hashes differ); build it again: {}",
            sidecar.graph.file(),
            rebuild(&Sidecar { model: model.folder().to_owned(), ..sidecar.clone() })
        ))),
        Some(_) => Ok(()),
    }
}

/// Two engines are of one model.
pub fn check_pair((a_path, a): (&Path, &Sidecar), (b_path, b): (&Path, &Sidecar)) -> Result<()> {
    let differ = |what: &str, a_has: &dyn std::fmt::Display, b_has: &dyn std::fmt::Display| {
        Err(mismatch(format!(
            "engines {} and {}: they do not fit each other: {what} is {a_has} in the one and {b_has} in the other; \
             build both from one model",
            a_path.display(),
            b_path.display()
        )))
    };
    if a.shapes.imgsz != b.shapes.imgsz {
        return differ("imgsz", &a.shapes.imgsz, &b.shapes.imgsz);
    }
    if a.shapes.model_width != b.shapes.model_width {
        return differ("the width of features", &a.shapes.model_width, &b.shapes.model_width);
    }
    if a.shapes.grid != b.shapes.grid {
        return differ("the grid", &a.shapes.grid, &b.shapes.grid);
    }
    if a.model_weights_sha256 != b.model_weights_sha256 {
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let (a_has, b_has) = (short(&a.model_weights_sha256), short(&b.model_weights_sha256));
        return differ("the model", &a_has, &b_has);
    }
    Ok(())
}

/// The engine has been through the gate.
pub fn check_verified(path: &Path, sidecar: &Sidecar) -> Result<()> {
    if sidecar.verified.is_some() {
        return Ok(());
    }
    let path = path.display();
    Err(mismatch(format!(
        "engine {path}: it was built without its GPU and has never been compared with its ONNX file; do so with \
         `ocelli build-engine --verify {path}`"
    )))
}

/// The library can run the engine.
pub fn check_library(path: &Path, sidecar: &Sidecar, library: &TensorRtLibrary) -> Result<()> {
    let (built, engine) = (&sidecar.tensorrt, path.display());
    if built.name != library.name {
        return Err(mismatch(format!(
            "engine {engine}: it was built by {} {}, here is {library} ({}); build it again: {}",
            built.name,
            built.version,
            library.path.display(),
            rebuild(sidecar)
        )));
    }
    let fits = if sidecar.options.version_compatible {
        parse(&built.version)
            .is_some_and(|built| built.major == library.version.major && built <= library.version)
    } else {
        built.version == library.version.to_string()
    };
    if fits {
        return Ok(());
    }
    let remedy =
        if sidecar.options.version_compatible { "" } else { " (--version-compatible allows later ones)" };
    Err(mismatch(format!(
        "engine {engine}: it was built by {} {}, here is version {} ({}); build it again{remedy}: {}",
        built.name,
        built.version,
        library.version,
        library.path.display(),
        rebuild(sidecar)
    )))
}

/// The GPU can run the engine.
pub fn check_gpu(path: &Path, sidecar: &Sidecar, gpu: &Gpu) -> Result<()> {
    let here = gpu.compute_capability;
    let fits = |target: &String| {
        target.parse::<ComputeCapability>().is_ok_and(|built| {
            built == here
                || (sidecar.options.hardware_compatible && here >= FIRST_COMPATIBLE && here >= built)
        })
    };
    if sidecar.compute_capability.iter().any(fits) {
        return Ok(());
    }
    let built_on = sidecar.gpu.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    Err(mismatch(format!(
        "engine {}: it is for compute capability {}{built_on}, the GPU here is {gpu}; build it again: {}",
        path.display(),
        sidecar.compute_capability.join(", "),
        rebuild(sidecar)
    )))
}

fn parse(version: &str) -> Option<Version> {
    let mut numbers = version.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Version::new(next()?, next()?, next()?))
}
