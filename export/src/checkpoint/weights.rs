//! The detector's tensors by their names in `transformers`, whatever file they are in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::container::{MappedFile, View};
use super::nearest::nearest;
use super::tensors::Requirement;
use crate::contract::hex;
use crate::errors::invalid;
use ocelli_error::{Error, Result};

/// Tensors in mapped files.
#[derive(Default)]
pub(crate) struct Weights {
    files: Vec<MappedFile>,
    pub(super) views: BTreeMap<String, View>,
    /// Products that are added to a tensor, by its name: A `[rank, input]` and B `[output, rank]`.
    low_rank: BTreeMap<String, [Option<View>; 2]>,
}

/// The ends of names in files with layers of low rank (LoRA): W as it was, and the factors of what is added to it.
const UNCHANGED: [&str; 2] = [".original.weight", ".original.bias"];
const FACTORS: [&str; 2] = [".lora_A", ".lora_B"];

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
            Some(_) => Err(self.twice(&name, file)),
        }
    }

    fn twice(&self, name: &str, file: usize) -> Error {
        let path = self.files[file].path.display();
        invalid(format!("tensor {name} is there twice, the second in {path}"))
    }

    /// As [`insert`](Self::insert), for a tensor that may belong to a layer of low rank: W + B·A is read as one.
    pub(super) fn insert_adapted(&mut self, name: String, file: usize, mut view: View) -> Result<()> {
        for (i, end) in FACTORS.into_iter().enumerate() {
            if let Some(module) = name.strip_suffix(end) {
                view.file = file;
                let factors = self.low_rank.entry(format!("{module}.weight")).or_default();
                return match factors[i].replace(view) {
                    None => Ok(()),
                    Some(_) => Err(self.twice(&name, file)),
                };
            }
        }
        let unchanged = UNCHANGED.iter().any(|end| name.ends_with(end));
        self.insert(if unchanged { name.replace(".original.", ".") } else { name }, file, view)
    }

    /// Checks that the factors of every product are there and fit.
    fn check_low_rank(&self, spelled: impl Fn(&str) -> String) -> Result<()> {
        for (name, factors) in &self.low_rank {
            let fits = || {
                let ([output, input], [a, b]) = (matrix(self.views.get(name)?)?, factors);
                let (a, b) = (a.as_ref()?, b.as_ref()?);
                let ([rank, columns], [rows, again]) = (matrix(a)?, matrix(b)?);
                let floats = a.format.is_float() && b.format.is_float();
                ([rows, columns, again] == [output, input, rank] && floats).then_some(())
            };
            if fits().is_none() {
                let module = spelled(name);
                let module = module.trim_end_matches(".weight");
                return Err(invalid(format!(
                    "layer {module} has changes of low rank that do not fit: expected lora_A [rank, input] and lora_B \
                         [output, rank] beside original.weight"
                )));
            }
        }
        Ok(())
    }

    /// Replaces the tensors that start with `prefix` by those of `other`, and takes over its files.
    pub(super) fn replace(&mut self, prefix: &str, other: Self) -> Result<()> {
        self.views.retain(|name, _| !name.starts_with(prefix));
        let offset = self.files.len();
        self.files.extend(other.files);
        for (name, mut factors) in other.low_rank {
            factors.iter_mut().flatten().for_each(|view| view.file += offset);
            self.low_rank.insert(name, factors);
        }
        for (name, view) in other.views {
            let file = view.file + offset;
            self.insert(name, file, view)?;
        }
        Ok(())
    }

    /// Removes the tensors that start with `prefix`.
    pub(super) fn remove(&mut self, prefix: &str) -> Vec<(String, View)> {
        self.views.extract_if(.., |name, _| name.starts_with(prefix)).collect()
    }

    /// Compares names, shapes and formats with the expected ones. `spelled` gives a name's spelling in the file.
    pub(super) fn check(
        &self,
        expected: &BTreeMap<String, Requirement>,
        spelled: impl Fn(&str) -> String,
    ) -> Result<()> {
        let invalid = |message| Err(invalid(message));
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
        self.check_low_rank(&spelled)?;
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
    /// [`InvalidData`](crate::ErrorKind::InvalidData) if it is missing or a value is not finite.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>> {
        let Some(view) = self.views.get(name) else {
            return Err(invalid(format!("tensor {name} is missing")));
        };
        let mut values = view.read(&self.files);
        if let Some([Some(a), Some(b)]) = self.low_rank.get(name) {
            add_product(&mut values, &b.read(&self.files), &a.read(&self.files));
        }
        match values.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(invalid(format!(
                "tensor {name} is not finite, {}: value {at} is {}",
                self.files[view.file].path.display(),
                values[at]
            ))),
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

/// The rows and columns of a matrix, or of a convolution of single pixels.
fn matrix(view: &View) -> Option<[usize; 2]> {
    match view.shape.as_slice() {
        [rows, columns] | [rows, columns, 1, 1] if *rows > 0 && *columns > 0 => Some([*rows, *columns]),
        _ => None,
    }
}

/// w += b · a, with as many columns in b as rows in a. The factor of such files is 1: their rank is their alpha.
fn add_product(w: &mut [f32], b: &[f32], a: &[f32]) {
    // w is [output, input], b [output, rank], a [rank, input]: rank² = |a|·|b| / |w|.
    let rank = (a.len() * b.len() / w.len()).isqrt();
    let (input, rows) = (a.len() / rank, b.chunks_exact(rank));
    for (row, factors) in w.chunks_exact_mut(input).zip(rows) {
        for (i, value) in row.iter_mut().enumerate() {
            let sum: f64 =
                factors.iter().enumerate().map(|(r, b)| f64::from(*b) * f64::from(a[r * input + i])).sum();
            *value = (f64::from(*value) + sum) as f32;
        }
    }
}
