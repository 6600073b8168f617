//! The detector's tensors by their names in `transformers`, whatever file they are in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::container::{MappedFile, View};
use super::layout::Requirement;
use super::nearest::nearest;
use ocelli_error::{Error, ErrorKind, Result};

/// Tensors in mapped files.
#[derive(Default)]
pub(crate) struct Weights {
    files: Vec<MappedFile>,
    views: BTreeMap<String, View>,
}

impl Weights {
    /// Takes over a file; views of it have the index that this returns.
    pub(super) fn add_file(&mut self, file: MappedFile) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// Adds a tensor of the file with this index.
    pub(super) fn insert(&mut self, name: String, file: usize, mut view: View) -> Result<()> {
        view.file = file;
        match self.views.insert(name.clone(), view) {
            None => Ok(()),
            Some(_) => {
                let path = self.files[file].path.display();
                Err(Error::new(
                    ErrorKind::InvalidData,
                    format!("tensor {name} is there twice, the second in {path}"),
                ))
            }
        }
    }

    /// Replaces the tensors that start with `prefix` by those of `other`, and takes over its files.
    pub(super) fn replace(&mut self, prefix: &str, other: Self) -> Result<()> {
        self.views.retain(|name, _| !name.starts_with(prefix));
        let offset = self.files.len();
        self.files.extend(other.files);
        for (name, view) in other.views {
            let file = view.file + offset;
            self.insert(name, file, view)?;
        }
        Ok(())
    }

    /// Every tensor.
    pub(super) fn views(&self) -> &BTreeMap<String, View> {
        &self.views
    }

    /// Compares names, shapes and formats with the expected ones. `spelled` gives a name's spelling in the file.
    pub(super) fn check(
        &self,
        expected: &BTreeMap<String, Requirement>,
        spelled: impl Fn(&str) -> String,
    ) -> Result<()> {
        let invalid = |message| Err(Error::new(ErrorKind::InvalidData, message));
        let unknown = || self.views.keys().filter(|name| !expected.contains_key(*name));
        for (name, requirement) in expected {
            let shape = &requirement.shape;
            let Some(view) = self.views.get(name) else {
                if !requirement.needed {
                    continue;
                }
                let hint = nearest(name, unknown().map(String::as_str)).map_or_else(String::new, |near| {
                    format!("; the nearest unknown name is {}", spelled(near))
                });
                let shown = spelled(name);
                return invalid(format!("tensor {shown} is missing: expected it with shape {shape:?}{hint}"));
            };
            if &view.shape != shape {
                let (found, shown) = (&view.shape, spelled(name));
                return invalid(format!(
                    "tensor {shown} has shape {found:?}: expected {shape:?} from the configuration"
                ));
            }
            if !view.format.is_float() {
                return invalid(format!(
                    "tensor {} is of type {}: expected f32, f16, bf16 or f64",
                    spelled(name),
                    view.format
                ));
            }
        }
        match unknown().next() {
            Some(name) => {
                let hint = nearest(name, expected.keys().map(String::as_str))
                    .map_or_else(String::new, |near| format!("; the nearest one is {}", spelled(near)));
                invalid(format!(
                    "unknown tensor {}: a SAM3 detector of this configuration has no such tensor{hint}",
                    spelled(name)
                ))
            }
            None => Ok(()),
        }
    }

    /// A tensor's values as f32.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is missing or a value is not finite.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>> {
        let Some(view) = self.views.get(name) else {
            return Err(Error::new(ErrorKind::InvalidData, format!("tensor {name} is missing")));
        };
        let values = view.read(&self.files);
        match values.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(Error::new(
                ErrorKind::InvalidData,
                format!(
                    "tensor {name} is not finite, {}: value {at} is {}",
                    self.files[view.file].path.display(),
                    values[at]
                ),
            )),
            None => Ok(values),
        }
    }

    /// A tensor's shape; empty if there is no such tensor.
    pub(crate) fn shape(&self, name: &str) -> &[usize] {
        self.views.get(name).map_or(&[], |view| &view.shape)
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    pub(super) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.update(&file.map[..]);
        }
        hex(&hash.finalize())
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
