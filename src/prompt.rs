//! What to look for: words, example boxes, or both.
//!
//! Models are trained with words, and with a few boxes in the image that they search, wanted and unwanted, beside the
//! word or the word `visual`; the built-in one with one wanted box and at most one unwanted. They are not trained with
//! boxes in other images.

use std::sync::Arc;

use ocelli_tracking::BoundingBox;

use crate::error::{Error, ErrorKind, Result};

/// The word that stands for "whatever the examples show".
pub const VISUAL: &str = "visual";

/// A box around a thing that is wanted, or around one that is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// In pixels of the image it is in.
    pub bbox: BoundingBox,
    /// Whether things like this are wanted.
    pub wanted: bool,
}

/// One class to look for.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    phrase: Arc<str>,
    label: Arc<str>,
    exemplars: Vec<Exemplar>,
}

impl Prompt {
    /// A class by name: a noun or a short phrase. White space around it is removed and white space inside it collapsed;
    /// the result is both the text prompt and the label.
    pub fn phrase(phrase: impl Into<Arc<str>>) -> Self {
        let phrase = collapse_white_space(phrase.into());
        Self { label: phrase.clone(), phrase, exemplars: Vec::new() }
    }

    /// A class by examples alone; add them with [`with_exemplar`](Self::with_exemplar).
    pub fn visual(label: impl Into<Arc<str>>) -> Self {
        Self { phrase: VISUAL.into(), label: label.into(), exemplars: Vec::new() }
    }

    /// Another name for what is found.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds an example: a box in the very image that is searched or, with
    /// [`Detector::exemplar_features`](crate::Detector::exemplar_features), in another one.
    #[must_use]
    pub fn with_exemplar(mut self, bbox: BoundingBox, wanted: bool) -> Self {
        self.exemplars.push(Exemplar { bbox, wanted });
        self
    }

    /// The text prompt that the text encoder reads.
    pub fn words(&self) -> &str {
        &self.phrase
    }

    /// What detections of this class are called.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// The examples.
    pub fn exemplars(&self) -> &[Exemplar] {
        &self.exemplars
    }
}

impl From<&str> for Prompt {
    fn from(phrase: &str) -> Self {
        Self::phrase(phrase)
    }
}

impl From<String> for Prompt {
    fn from(phrase: String) -> Self {
        Self::phrase(phrase)
    }
}

/// Everything to look for in an image; a class's id is its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompts(Vec<Prompt>);

impl Prompts {
    /// The classes in order; a phrase, or a [`Prompt`] with a label or examples.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where there is none, one is blank, or one has an example without area.
    pub fn new<P: Into<Prompt>>(prompts: impl IntoIterator<Item = P>) -> Result<Self> {
        let prompts: Vec<Prompt> = prompts.into_iter().map(Into::into).collect();
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if prompts.is_empty() {
            return invalid("nothing to look for: name at least one class".into());
        }
        for (class, prompt) in prompts.iter().enumerate() {
            if prompt.phrase.is_empty() {
                return invalid(format!("class {class} is blank: give it a word or a short phrase"));
            }
            if let Some(exemplar) =
                prompt.exemplars.iter().find(|e| !e.bbox.has_area() || !e.bbox.is_finite())
            {
                let b = exemplar.bbox;
                return invalid(format!(
                    "example of \"{}\", {},{},{},{}: it has no area; a box is x1,y1,x2,y2 with x1 < x2 and y1 < y2",
                    prompt.label, b.x1, b.y1, b.x2, b.y2
                ));
            }
        }
        Ok(Self(prompts))
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The classes in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Prompt> {
        self.0.iter()
    }

    /// Labels in the order of the class ids.
    pub fn labels(&self) -> Vec<Arc<str>> {
        self.0.iter().map(|prompt| prompt.label.clone()).collect()
    }
}

impl std::ops::Index<usize> for Prompts {
    type Output = Prompt;

    fn index(&self, class_id: usize) -> &Prompt {
        &self.0[class_id]
    }
}

/// Removes white space at both ends, and makes a single space of white space inside.
fn collapse_white_space(phrase: Arc<str>) -> Arc<str> {
    let collapsed = phrase.split_whitespace().collect::<Vec<_>>().join(" ");
    if *phrase == *collapsed { phrase } else { collapsed.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_in_phrases_is_collapsed() {
        let cases = [
            ("dog", "dog"),
            ("red apple", "red apple"),
            (" red\t\n apple ", "red apple"),
            ("red\u{3000}apple\u{a0}", "red apple"),
            ("red\tapple", "red apple"),
            ("red  apple", "red apple"),
            ("red apple ", "red apple"),
            ("red\u{200b}apple", "red\u{200b}apple"),
            (" ", ""),
            ("", ""),
        ];
        let failed: Vec<_> = cases
            .iter()
            .filter(|(given, expected)| {
                let prompt = Prompt::phrase(*given);
                (prompt.words(), &**prompt.label()) != (*expected, *expected)
            })
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn refusals_name_the_class() {
        let flat = BoundingBox::new(5.0, 5.0, 5.0, 9.0);
        let cases: [(Vec<Prompt>, &str); 4] = [
            (vec![], "at least one"),
            (vec!["dog".into(), " \t".into()], "class 1"),
            (vec![Prompt::visual("thing").with_exemplar(flat, true)], "thing"),
            (
                vec![Prompt::phrase("x").with_exemplar(BoundingBox::new(0.0, 0.0, f32::NAN, 1.0), true)],
                "\"x\"",
            ),
        ];
        for (prompts, word) in cases {
            match Prompts::new(prompts.clone()) {
                Ok(_) => panic!("accepted {prompts:?}"),
                Err(e) => assert!(e.to_string().contains(word), "{prompts:?}: {e}"),
            }
        }
        assert_eq!(Prompts::new(["dog", "red apple"]).map(|p| p.len()).ok(), Some(2));
    }
}
