//! The shapes of a file's tensors, and the sizes in them: the table of tensors says which axis has which size.

use std::collections::BTreeMap;

use super::container::View;
use super::tensors::{TENSORS, number_in};
use crate::config::{Activation, Stack};
use crate::errors::invalid;
use ocelli_error::Result;

/// The rotary tables of a checkpoint: rows and columns by block.
pub(super) type RotaryShapes = BTreeMap<usize, [usize; 2]>;

/// Shapes by name.
pub(super) struct Shapes<'v>(pub(super) &'v BTreeMap<String, View>);

impl Shapes<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The first tensor that starts with `prefix`.
    pub(super) fn first(&self, prefix: &str) -> Option<String> {
        let (name, _) = self.0.range(prefix.to_owned()..).next()?;
        name.starts_with(prefix).then(|| name.clone())
    }

    pub(super) fn of<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        let Some(view) = self.0.get(name) else { return Err(invalid(format!("tensor {name} is missing"))) };
        view.shape
            .as_slice()
            .try_into()
            .map_err(|_| invalid(format!("tensor {name} has shape {:?}: expected {N} axes", view.shape)))
    }

    /// A size of the table, from the first tensor that has it.
    pub(super) fn size(&self, size: &str) -> Result<usize> {
        let axis_of = |shape: &[&str]| shape.iter().position(|found| *found == size);
        let mut lines = TENSORS.iter().filter_map(|line| Some((line, axis_of(&line.shape)?)));
        let found = lines.clone().find_map(|(line, axis)| {
            let mut alike = self.0.iter().filter(|(name, _)| number_in(&line.name, name).is_some());
            Some((alike.next()?, axis, line.shape.len()))
        });
        match (found, lines.next()) {
            (Some(((name, view), _, axes)), _) if view.shape.len() != axes => {
                Err(invalid(format!("tensor {name} has shape {:?}: expected {axes} axes", view.shape)))
            }
            (Some(((_, view), axis, _)), _) => Ok(view.shape[axis]),
            (None, Some((line, _))) => {
                Err(invalid(format!("tensor {} is missing", line.name.replace('#', "0"))))
            }
            (None, None) => unreachable!("{size} is in the table of tensors"),
        }
    }

    /// A stack of layers whose names start with `prefix`, and the width of its feed-forward networks in the table.
    pub(super) fn stack(&self, prefix: &str, intermediate: &str, heads: usize) -> Result<Stack> {
        let (layers, intermediate) = (self.count(prefix), self.size(intermediate)?);
        Ok(Stack { layers, heads, intermediate, activation: Activation::Relu })
    }

    /// The number of layers after `prefix`: one more than the largest index.
    pub(super) fn count(&self, prefix: &str) -> usize {
        layer_count(self.0.keys().map(String::as_str), prefix)
    }
}

/// One more than the largest number that follows `prefix`.
pub(super) fn layer_count<'n>(names: impl Iterator<Item = &'n str>, prefix: &str) -> usize {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
    let largest = names.filter_map(number).max();
    // More layers than names would only be reported as missing tensors.
    largest.map_or(0, |largest| largest.min(9999) + 1)
}
