//! Prompts: text, exemplar boxes, or both. An [`ObjectPrompt`] is one object of an image instead.
//!
//! The models are trained with text and with a few exemplar boxes in the image at hand, wanted and unwanted, together with
//! the class name or the word `visual`. The built-in model knows one wanted and one unwanted box. No model is trained with
//! boxes in other images.

mod object;

use std::sync::Arc;

use ocelli_tracking::BoundingBox;

use crate::tokenizer::collapse_white_space;
use ocelli_error::{Error, Result, refuse};

pub(crate) use object::EncodedObject;
pub use object::ObjectPrompt;

/// The text of a prompt that has exemplars only.
pub const VISUAL: &str = "visual";

/// The most classes of one run; LVIS has 1203.
pub const MAX_CLASSES: usize = 65_536;

/// The longest text prompt in bytes; a model reads the first few dozen words.
pub const MAX_PHRASE_BYTES: usize = 10_000;

/// A box around an instance that shows what to detect, or what not to detect.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exemplar {
    /// Pixels of the image it is in.
    pub bbox: BoundingBox,
    /// `true` to detect instances like this one, `false` for a counterexample.
    pub wanted: bool,
}

/// One class to detect.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    phrase: Arc<str>,
    label: Arc<str>,
    exemplars: Vec<Exemplar>,
}

impl Prompt {
    /// A text prompt: a noun or a short phrase, which is also the label of the detections.
    ///
    /// White space is trimmed and collapsed, as the tokeniser does, so that `" red  apple"` is `"red apple"`.
    pub fn new(phrase: impl AsRef<str>) -> Self {
        let phrase: Arc<str> = collapse_white_space(phrase.as_ref()).into();
        Self { label: phrase.clone(), phrase, exemplars: Vec::new() }
    }

    /// A prompt of exemplars only; add them with [`with_exemplar`](Self::with_exemplar).
    pub fn visual(label: impl Into<Arc<str>>) -> Self {
        Self { phrase: VISUAL.into(), label: label.into(), exemplars: Vec::new() }
    }

    /// Sets the label of the detections.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds an exemplar: a box in the image at hand or, with
    /// [`Detector::exemplar_features`](crate::Detector::exemplar_features), in another image.
    #[must_use]
    pub fn with_exemplar(mut self, bbox: BoundingBox, wanted: bool) -> Self {
        self.exemplars.push(Exemplar { bbox, wanted });
        self
    }

    /// The text for the text encoder.
    pub fn phrase(&self) -> &str {
        &self.phrase
    }

    /// The label of the detections.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// The exemplars.
    pub fn exemplars(&self) -> &[Exemplar] {
        &self.exemplars
    }
}

impl From<&str> for Prompt {
    fn from(phrase: &str) -> Self {
        Self::new(phrase)
    }
}

impl From<String> for Prompt {
    fn from(phrase: String) -> Self {
        Self::new(phrase)
    }
}

/// The classes to detect in an image; the id of a class is its index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompts(Vec<Prompt>);

impl Prompts {
    /// The classes in order: text prompts, or [`Prompt`]s with a label or exemplars.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the list is empty or has more than
    /// [`MAX_CLASSES`], a prompt is blank or has more than
    /// [`MAX_PHRASE_BYTES`], or an exemplar box has no area.
    pub fn new<P: Into<Prompt>>(prompts: impl IntoIterator<Item = P>) -> Result<Self> {
        let prompts: Vec<Prompt> = prompts.into_iter().map(Into::into).collect();
        if prompts.is_empty() {
            refuse!("no prompts: expected at least one class");
        }
        if prompts.len() > MAX_CLASSES {
            refuse!("{} prompts: expected at most {MAX_CLASSES}", prompts.len());
        }
        for (class, prompt) in prompts.iter().enumerate() {
            let bytes = prompt.phrase.len();
            if bytes > MAX_PHRASE_BYTES {
                let start: String = prompt.phrase.chars().take(30).collect();
                refuse!("class {class} has {bytes} bytes, \"{start}…\": expected at most {MAX_PHRASE_BYTES}");
            }
            if prompt.phrase.is_empty() {
                refuse!("class {class} is blank: expected a word or a short phrase");
            }
            if let Some(exemplar) =
                prompt.exemplars.iter().find(|e| !e.bbox.has_area() || !e.bbox.is_finite())
            {
                let ([x1, y1, x2, y2], label) = (exemplar.bbox.to_xyxy(), &prompt.label);
                refuse!(
                    "exemplar of \"{label}\", {x1},{y1},{x2},{y2}: it has no area; expected x1,y1,x2,y2 with x1 < x2 and y1 < y2"
                );
            }
        }
        Ok(Self(prompts))
    }

    /// Classes with boxes around examples, each a box, whether it shows what is wanted, and the name of its class.
    ///
    /// A box without a name belongs to the only class. Without classes, and for the name [`VISUAL`], boxes are prompts of
    /// their own, without text.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unknown name, and for none although there are several classes; as
    /// [`new`](Self::new).
    pub fn with_exemplars<'n>(
        mut classes: Vec<Prompt>,
        exemplars: impl IntoIterator<Item = (BoundingBox, bool, Option<&'n str>)>,
    ) -> Result<Self> {
        let has_classes = !classes.is_empty();
        for (bbox, wanted, name) in exemplars {
            let label = name.unwrap_or(VISUAL);
            let known = match name {
                None if has_classes && classes.len() == 1 => Some(0),
                None if has_classes => {
                    let why = "exemplar names no class: expected one, as there are several";
                    return Err(Error::invalid_argument(why).about("exemplar"));
                }
                _ => classes.iter().position(|class| *class.label == *label),
            };
            if known.is_none() && has_classes && label != VISUAL {
                let why = format!("exemplar names class \"{label}\": expected one of classes");
                return Err(Error::invalid_argument(why).about("exemplar"));
            }
            match known {
                Some(class) => classes[class].exemplars.push(Exemplar { bbox, wanted }),
                None => classes.push(Prompt::visual(label).with_exemplar(bbox, wanted)),
            }
        }
        Self::new(classes)
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `true` if there are no classes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The classes in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Prompt> {
        self.0.iter()
    }

    /// The labels by class id.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_class() {
        let flat = BoundingBox::new(5.0, 5.0, 5.0, 9.0);
        let cases: [(Vec<Prompt>, &str); 6] = [
            (vec![], "at least one"),
            (
                vec!["dog".into(), "é".repeat(MAX_PHRASE_BYTES / 2 + 1).into()],
                "class 1 has 10002 bytes, \"ééé",
            ),
            (vec!["dog".into(); MAX_CLASSES + 1], "65537 prompts: expected at most 65536"),
            (vec!["dog".into(), " \t".into()], "class 1"),
            (vec![Prompt::visual("thing").with_exemplar(flat, true)], "thing"),
            (vec![Prompt::new("x").with_exemplar(BoundingBox::new(0.0, 0.0, f32::NAN, 1.0), true)], "\"x\""),
        ];
        for (prompts, word) in cases {
            let found = Prompts::new(prompts).map(|prompts| prompts.len()).map_err(|e| e.to_string());
            assert!(found.as_ref().is_err_and(|why| why.contains(word)), "expected {word}: {found:?}");
        }
        assert_eq!(
            Prompts::new(["dog", "red apple", &"x".repeat(MAX_PHRASE_BYTES)]).map(|p| p.len()).ok(),
            Some(3)
        );
    }

    #[test]
    fn exemplars_belong_to_the_class_they_name_or_the_only_one() {
        let bbox = BoundingBox::new(1.0, 2.0, 3.0, 4.0);
        type Case<'c> = (&'c [&'c str], &'c [Option<&'c str>], Result<&'c [(&'c str, usize)], &'c str>);
        let cases: [Case<'_>; 9] = [
            (&["dog"], &[None, Some("dog")], Ok(&[("dog", 2)])),
            (&["dog", "cat"], &[Some("cat")], Ok(&[("dog", 0), ("cat", 1)])),
            (&["dog"], &[Some(VISUAL)], Ok(&[("dog", 0), (VISUAL, 1)])),
            (&[], &[None, None], Ok(&[(VISUAL, 2)])),
            (&[], &[Some("this"), None], Ok(&[("this", 1), (VISUAL, 1)])),
            (&[], &[Some("this"), Some("that"), None], Ok(&[("this", 1), ("that", 1), (VISUAL, 1)])),
            (&["dog", "cat"], &[None], Err("exemplar names no class")),
            (&["dog"], &[Some("cow")], Err("exemplar names class \"cow\": expected one of classes")),
            (&[], &[], Err("no prompts")),
        ];
        for (names, exemplars, expected) in cases {
            let classes = names.iter().map(Prompt::new).collect();
            let found = Prompts::with_exemplars(classes, exemplars.iter().map(|name| (bbox, true, *name)));
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let found: Vec<_> =
                        found.iter().map(|one| (&**one.label(), one.exemplars().len())).collect();
                    assert_eq!(found, expected, "{names:?} {exemplars:?}");
                }
                (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{error}"),
                (found, expected) => panic!("{names:?} {exemplars:?}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn white_space_is_collapsed() {
        let prompt = Prompt::new(" red\t\n apple\u{3000}");
        assert_eq!((prompt.phrase(), &**prompt.label()), ("red apple", "red apple"));
        assert_eq!(Prompt::from("red  apple".to_owned()), Prompt::new("red apple"));
    }
}
