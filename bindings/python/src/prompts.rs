//! The classes to detect, as the Python package passes them.

use ocelli::{BoundingBox, Prompt, Prompts};
use pyo3::prelude::*;

use crate::error::OrRaise;

/// A phrase (none for exemplars alone), a label (none for the phrase), and exemplars: a box, and whether it is wanted.
pub(crate) type PromptParts = (Option<String>, Option<String>, Vec<([f32; 4], bool)>);

/// The prompts in order.
///
/// # Errors
/// `InvalidArgument` as [`Prompts::new`].
pub(crate) fn prompts(py: Python<'_>, parts: Vec<PromptParts>) -> PyResult<Prompts> {
    let prompt = |(phrase, label, exemplars): PromptParts| {
        let mut prompt = match phrase {
            Some(phrase) => Prompt::new(phrase),
            None => Prompt::visual(ocelli::prompt::VISUAL),
        };
        if let Some(label) = label {
            prompt = prompt.with_label(label);
        }
        exemplars
            .into_iter()
            .fold(prompt, |prompt, (edges, wanted)| prompt.with_exemplar(BoundingBox::from(edges), wanted))
    };
    Prompts::new(parts.into_iter().map(prompt)).or_raise(py)
}
