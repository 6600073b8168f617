//! `--exemplar "x1,y1,x2,y2[:no][@class]"`.

use std::path::Path;
use std::str::FromStr;

use ocelli::classes::{Class, ClassMap};
use ocelli::{BoundingBox, Detector, Error, Image, Prompt, Prompts, stages::EmbeddedPrompts};

use super::objects::{numbers, with_area, with_name, with_sign};

/// A value of `--exemplar`: a box around an example, or a counterexample, of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ExemplarArg {
    bbox: BoundingBox,
    positive: bool,
    class: Option<String>,
}

impl FromStr for ExemplarArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected x1,y1,x2,y2 in pixels, then :no for a counterexample, then @class";
        let ((edges, positive), class) = with_name(text, expected, |shown| {
            let (edges, positive) = with_sign(shown)?;
            Some((numbers(edges)?, positive))
        })?;
        Ok(Self { bbox: with_area(edges)?, positive, class })
    }
}

/// Encodes prompts, whose exemplars are boxes in the image of `--exemplar-image` if it is given.
///
/// # Errors
/// As [`Detector::prepare`]; if the image cannot be read or a box is outside it.
pub fn prepared(
    detector: &mut Detector,
    prompts: &Prompts,
    exemplar_image: Option<&Path>,
) -> ocelli::Result<EmbeddedPrompts> {
    let embedded = detector.prepare(prompts)?;
    let Some(path) = exemplar_image else { return Ok(embedded) };
    let found = detector.exemplar_features(&Image::open(path)?, prompts);
    found.map_err(|e| Error::new(e.kind(), format!("--exemplar-image, {}: {e}", path.display())))
}

/// Combines classes and exemplars into prompts. An exemplar belongs to the class it names, else to the only class, else,
/// without any class, to a prompt of exemplars only.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if an exemplar names an unknown class, or none although
/// there are several; if a class of a file needs what only `ocelli label` does.
pub fn prompts(map: &ClassMap, exemplars: &[ExemplarArg]) -> ocelli::Result<Prompts> {
    let classes = map.classes.iter().map(text_prompt).collect::<Result<Vec<_>, _>>()?;
    if classes.len() > 1 && exemplars.iter().any(|exemplar| exemplar.class.is_none()) {
        refuse!("--exemplar names no class: with several --classes end it with @class");
    }
    let named = exemplars.iter().map(|one| (one.bbox, one.positive, one.class.as_deref()));
    Prompts::with_exemplars(classes, named)
}

/// The text prompt of a class. Several phrases and exemplars for one class are joined by `ocelli label` alone.
fn text_prompt(class: &Class) -> ocelli::Result<Prompt> {
    match class.phrases.as_slice() {
        [phrase] if class.exemplars.is_empty() => Ok(Prompt::new(phrase).with_label(class.name.as_str())),
        _ => refuse!(
            "--classes, class \"{}\": several phrases or exemplars in a file are for `ocelli label` only; give it one \
             phrase",
            class.name
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing() {
        let good = [
            ("1,2,3,4", true, None),
            ("1, 2, 3.5, 4:no", false, None),
            ("1,2,3,4:yes@red apple", true, Some("red apple")),
            ("-1,2,3,4@a:b", true, Some("a:b")),
        ];
        for (text, positive, class) in good {
            let parsed = text.parse::<ExemplarArg>();
            let found = parsed.as_ref().map(|e| (e.positive, e.class.as_deref()));
            assert_eq!(found, Ok((positive, class)), "{text}");
        }
        for text in [
            "",
            "1,2,3",
            "1,2,3,4,5",
            "a,b,c,d",
            "3,2,1,4",
            "1,2,3,4:maybe",
            "1,2,3,4@",
            "1,2,nan,4",
            "1,2,1,4",
        ] {
            assert!(text.parse::<ExemplarArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn exemplars_belong_to_the_class_they_name_or_the_only_one() {
        let classes = |names: &[&str]| ClassMap::from_names(names.iter().copied());
        let boxes =
            |texts: &[&str]| texts.iter().filter_map(|t| t.parse().ok()).collect::<Vec<ExemplarArg>>();
        let cases: [(&[&str], &[&str], Result<&[usize], &str>); 6] = [
            (&["dog"], &["1,2,3,4"], Ok(&[1])),
            (&["dog", "cat"], &["1,2,3,4@cat", "1,2,3,4:no@cat"], Ok(&[0, 2])),
            (&[], &["1,2,3,4", "1,2,3,4:no"], Ok(&[2])),
            (&[], &["1,2,3,4@this", "1,2,3,4@that"], Ok(&[1, 1])),
            (&["dog", "cat"], &["1,2,3,4"], Err("no class")),
            (&["dog"], &["1,2,3,4@cow"], Err("\"cow\"")),
        ];
        for (names, texts, expected) in cases {
            let found = prompts(&classes(names), &boxes(texts))
                .map(|p| p.iter().map(|prompt| prompt.exemplars().len()).collect::<Vec<_>>());
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{names:?} {texts:?}"),
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{names:?} {texts:?}: {e}"),
                (found, expected) => panic!("{names:?} {texts:?}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
