//! An engine belongs to its model, its TensorRT and its GPU: what does not fit is refused before anything runs.

use std::path::Path;

use ocelli_engines::tensorrt::{ComputeCapability, Version};

use super::native::{Gpu, TensorRtLibrary};
use super::sidecar::Sidecar;
use crate::model::Model;
use ocelli_error::{Error, ErrorKind, Result};

/// Hardware-compatible engines run on GPUs from this compute capability on.
const FIRST_COMPATIBLE: ComputeCapability = ComputeCapability::new(8, 0);

/// The remedy: build the engine again.
fn rebuild(sidecar: &Sidecar) -> String {
    format!("build it again from {}", sidecar.model.display())
}

/// Checks that the file can be an engine: it exists, is not empty, and has the size that its sidecar says.
pub fn check_file(path: &Path, sidecar: Option<&Sidecar>) -> Result<()> {
    let refuse = |why: &str| Err(Error::invalid_data(format!("engine {}: {why}", path.display())));
    let found = match path.metadata() {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let message =
                format!("TensorRT engine {}: no such file; build it, or run without it", path.display());
            return Err(Error::new(ErrorKind::Io, message).with_source(e));
        }
        Err(e) => return Err(Error::io("cannot read the engine", path, e)),
    };
    if found.is_dir() {
        return refuse("it is a folder, expected the engine's file");
    }
    if found.len() == 0 {
        return refuse("the file is empty; build it again");
    }
    match sidecar {
        Some(sidecar) if sidecar.engine.bytes != found.len() => refuse(&format!(
            "it has {} bytes and its sidecar says {}: it is corrupt; build it again",
            found.len(),
            sidecar.engine.bytes
        )),
        _ => Ok(()),
    }
}

/// Checks that the engine was built from this model.
pub fn check_model(path: &Path, sidecar: &Sidecar, model: &Model) -> Result<()> {
    let (manifest, folder, engine) = (model.manifest(), model.folder().display(), path.display());
    if sidecar.model_weights_sha256 != manifest.weights_sha256 {
        return Err(Error::mismatch(format!(
            "engine {engine}: it was built from another model than {folder} (the weights differ); use the model that it \
             was built from, or build an engine from this one"
        )));
    }
    let shapes = &sidecar.shapes;
    for (name, built, wanted) in [
        ("imgsz", shapes.imgsz, manifest.imgsz),
        ("width", shapes.model_width, manifest.model_width),
        ("grid", shapes.grid, manifest.grid()),
    ] {
        if built != wanted {
            return Err(Error::mismatch(format!(
                "engine {engine}: its {name} is {built}, that of {folder} is {wanted}; use the model that it was built \
                 from, or build an engine from this one"
            )));
        }
    }
    match manifest.files.get(sidecar.graph.file()) {
        None => {
            Err(Error::mismatch(format!("engine {engine}: it is a {}, which {folder} lacks", sidecar.graph)))
        }
        Some(entry) if entry.sha256 != sidecar.onnx_sha256 => Err(Error::mismatch(format!(
            "engine {engine}: it was built from another {} than that of {folder} (the hashes differ); build it again",
            sidecar.graph.file()
        ))),
        Some(_) => Ok(()),
    }
}

/// Checks that two engines were built from one model.
pub fn check_pair((a_path, a): (&Path, &Sidecar), (b_path, b): (&Path, &Sidecar)) -> Result<()> {
    let facts = |one: &Sidecar| {
        [
            ("imgsz", one.shapes.imgsz.to_string()),
            ("the width of features", one.shapes.model_width.to_string()),
            ("the grid", one.shapes.grid.to_string()),
            ("the model", one.model_weights_sha256.clone()),
        ]
    };
    // Twelve digits of a hash are enough to tell models apart.
    match facts(a).into_iter().zip(facts(b)).find(|(a, b)| a != b) {
        None => Ok(()),
        Some(((what, a_has), (_, b_has))) => Err(Error::mismatch(format!(
            "engines {} and {}: they do not match: {what} is {a_has:.12} in the first and {b_has:.12} in the second; \
             build both from one model",
            a_path.display(),
            b_path.display()
        ))),
    }
}

/// Checks that the numeric gate has accepted the engine.
pub fn check_verified(path: &Path, sidecar: &Sidecar) -> Result<()> {
    if sidecar.verified.is_some() {
        return Ok(());
    }
    Err(Error::mismatch(format!(
        "engine {}: it has never been compared with its ONNX file, because its GPU was not present when it was built; \
         verify it first",
        path.display()
    )))
}

/// Checks that this TensorRT can run the engine.
pub fn check_library(path: &Path, sidecar: &Sidecar, library: &TensorRtLibrary) -> Result<()> {
    let (built, engine) = (&sidecar.tensorrt, path.display());
    if built.name != library.name {
        return Err(Error::mismatch(format!(
            "engine {engine}: it was built by {} {}, this is {library} ({}); {}",
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
    let hint = " (version_compatible engines run with later versions)";
    let remedy = if sidecar.options.version_compatible { "" } else { hint };
    Err(Error::mismatch(format!(
        "engine {engine}: it was built by {} {}, this is version {} ({}); {}{remedy}",
        built.name,
        built.version,
        library.version,
        library.path.display(),
        rebuild(sidecar)
    ))
    .about("version_compatible"))
}

/// Checks that this GPU can run the engine.
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
    Err(Error::mismatch(format!(
        "engine {}: it is for compute capability {}{built_on}, this GPU is {gpu}; {}",
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

#[cfg(test)]
mod tests;
