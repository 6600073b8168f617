//! Loads a model whose external weights are mapped into memory, not copied.

use rten::{LoadError, Model, ModelOptions};
use std::path::Path;

/// Loads a file. Weights in other files beside it are mapped; those in the file itself are copied, because there they are
/// not aligned.
#[cfg(not(target_family = "wasm"))]
pub(super) fn load(options: &ModelOptions, path: &Path) -> Result<Model, LoadError> {
    // SAFETY: the maps are only read. If another program truncates a file meanwhile, this one ends with a bus error; the
    // documentation of `build_from_file` says that a model must not change while an engine has it.
    unsafe { options.load_mmap(path) }
}

/// As above, without maps: WebAssembly has none.
#[cfg(target_family = "wasm")]
pub(super) fn load(options: &ModelOptions, path: &Path) -> Result<Model, LoadError> {
    options.load_file(path)
}
