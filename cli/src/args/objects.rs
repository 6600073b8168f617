//! `--point "x,y[:no][@name]"`, `--box-prompt "x1,y1,x2,y2[@name]"` and `--mask-prompt FILE[@name]`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use ocelli::{BoundingBox, Image, Mask, ObjectPrompt};

use super::DETECTION;
use crate::output::with_flag;
use crate::usage;

/// Options about classes, not about single objects.
const OF_CLASSES: [&str; 9] = [
    "classes",
    "coco",
    "exemplar",
    "exemplar_image",
    "semantic",
    "screen",
    "nms",
    "class_agnostic_nms",
    "tile",
];
/// The label of an object without a name.
const OBJECT: &str = "object";

/// Objects that are shown, not named.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = DETECTION)]
pub struct ObjectArgs {
    /// Click on an object in place of --classes, in pixels: x,y. Its mask is found. Append :no for a click on what is not the
    /// object, and @name with several objects
    #[arg(long, num_args = 1.., value_name = "POINT", conflicts_with_all = OF_CLASSES)]
    point: Vec<Named<Point>>,
    /// Box around an object whose mask is to be found, in pixels: x1,y1,x2,y2. Append @name to add clicks to one of several
    #[arg(long, num_args = 1.., value_name = "BOX", conflicts_with_all = OF_CLASSES)]
    box_prompt: Vec<Named<BoundingBox>>,
    /// Rough mask of an object, to be refined: a PNG as large as the image, black outside. Append @name as for --point
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = OF_CLASSES)]
    mask_prompt: Vec<Named<PathBuf>>,
    /// Three masks for each of these objects, such as a part, the whole and a group; the score is the predicted IoU
    #[arg(long)]
    pub multimask: bool,
}

/// A point, a box or a mask, and the name of the object that it shows.
#[derive(Clone, Debug, PartialEq)]
struct Named<T> {
    shown: T,
    name: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Point {
    x: f32,
    y: f32,
    positive: bool,
}

/// What `read` finds in the text before `@`, and the name after it, which is not empty.
pub(super) fn with_name<T>(
    text: &str,
    expected: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<(T, Option<String>), String> {
    let (shown, name) = text.split_once('@').map_or((text, None), |(shown, name)| (shown, Some(name)));
    let found = read(shown).filter(|_| name != Some(""));
    Ok((found.ok_or(expected)?, name.map(str::to_owned)))
}

/// The text before `:`, and false if `no` follows it. Nothing means `yes`; any other text is an error.
pub(super) fn with_sign(text: &str) -> Option<(&str, bool)> {
    match text.split_once(':') {
        Some((rest, "no")) => Some((rest, false)),
        Some((rest, "yes")) => Some((rest, true)),
        Some(_) => None,
        None => Some((text, true)),
    }
}

/// The box with these edges, unless it is empty.
pub(super) fn with_area(edges: [f32; 4]) -> Result<BoundingBox, String> {
    let bbox = BoundingBox::from(edges);
    if bbox.has_area() { Ok(bbox) } else { Err("the box has no area: expected x1 < x2 and y1 < y2".into()) }
}

pub(super) fn numbers<const N: usize>(text: &str) -> Option<[f32; N]> {
    let number = |part: &str| part.trim().parse::<f32>().ok().filter(|number| number.is_finite());
    text.split(',').map(number).collect::<Option<Vec<f32>>>()?.try_into().ok()
}

impl FromStr for Named<Point> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected x,y in pixels, then :no for a click beside the object, then @name";
        let (shown, name) = with_name(text, expected, |shown| {
            let (place, positive) = with_sign(shown)?;
            numbers(place).map(|[x, y]| Point { x, y, positive })
        })?;
        Ok(Self { shown, name })
    }
}

impl FromStr for Named<BoundingBox> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (edges, name) = with_name(text, "expected x1,y1,x2,y2 in pixels, then @name", numbers)?;
        Ok(Self { shown: with_area(edges)?, name })
    }
}

impl FromStr for Named<PathBuf> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A file may have an @ in its name.
        let (file, name) = match text.rsplit_once('@') {
            Some((file, name)) if !name.is_empty() && !Path::new(text).exists() => {
                (file, Some(name.to_owned()))
            }
            _ => (text, None),
        };
        Ok(Self { shown: file.into(), name })
    }
}

fn of<T: Clone>(all: &[Named<T>], name: &Option<String>) -> Vec<T> {
    all.iter().filter(|one| one.name == *name).map(|one| one.shown.clone()).collect()
}

impl ObjectArgs {
    /// The objects, in the order in which their names appear among points, boxes and masks. What has no name is one object;
    /// boxes alone, or masks alone, are one object each.
    ///
    /// # Errors
    /// Wrong usage, such as two boxes around one object; a mask that cannot be read.
    pub fn objects(&self) -> anyhow::Result<Vec<ObjectPrompt>> {
        let names = self.point.iter().map(|point| &point.name);
        let names = names.chain(self.box_prompt.iter().map(|one| &one.name));
        let (mut objects, mut seen) = (Vec::new(), HashSet::new());
        for name in names.chain(self.mask_prompt.iter().map(|mask| &mask.name)) {
            if seen.insert(name) {
                objects.extend(self.named(name)?);
            }
        }
        if self.multimask && objects.is_empty() {
            return Err(usage("--multimask is about objects: add --point, --box-prompt or --mask-prompt"));
        }
        Ok(objects)
    }

    /// The objects of one name.
    fn named(&self, name: &Option<String>) -> anyhow::Result<Vec<ObjectPrompt>> {
        let points = of(&self.point, name);
        let (boxes, masks) = (of(&self.box_prompt, name), of(&self.mask_prompt, name));
        let label = name.as_deref().unwrap_or(OBJECT);
        let numbered = |index: usize| ObjectPrompt::new(format!("{OBJECT} {}", index + 1));
        match (name.is_none() && points.is_empty(), boxes.as_slice(), masks.as_slice()) {
            (true, [_, _, ..], []) => {
                let of_box = |(index, bbox)| numbered(index).with_box(bbox);
                Ok(boxes.into_iter().enumerate().map(of_box).collect())
            }
            (true, [], [_, _, ..]) => {
                let of_mask =
                    |(index, file): (usize, &PathBuf)| Ok(numbered(index).with_mask(read_mask(file)?));
                masks.iter().enumerate().map(of_mask).collect()
            }
            (_, [_, _, ..], _) | (_, _, [_, _, ..]) => {
                let (flag, count) = if boxes.len() > 1 {
                    ("--box-prompt", boxes.len())
                } else {
                    ("--mask-prompt", masks.len())
                };
                Err(usage(format!(
                    "{flag}: {count} for object \"{label}\", which has one; say with @name at the end of each point, box and \
                     mask which belong together"
                )))
            }
            _ => {
                let mut object = ObjectPrompt::new(label);
                for point in points {
                    object = object.with_point(point.x, point.y, point.positive);
                }
                if let Some(bbox) = boxes.into_iter().next() {
                    object = object.with_box(bbox);
                }
                if let Some(file) = masks.first() {
                    object = object.with_mask(read_mask(file)?);
                }
                Ok(vec![object])
            }
        }
    }
}

/// The pixels of an image that are not black.
fn read_mask(file: &Path) -> anyhow::Result<Mask> {
    let image = Image::open(file).map_err(with_flag("--mask-prompt"))?;
    let pixels = image.into_rgb_image();
    let inside: Vec<u8> = pixels.pixels().map(|pixel| u8::from(pixel.0 != [0; 3])).collect();
    Ok(Mask::from_bitmap(&inside, pixels.width(), pixels.height()).map_err(with_flag("--mask-prompt"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: FromStr>(texts: &[&str]) -> Vec<T> {
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    #[test]
    fn parsing() {
        let good = [
            ("1,2", (1.0, 2.0, true, None)),
            (" 1.5, -2:no", (1.5, -2.0, false, None)),
            ("1,2:yes@the dog", (1.0, 2.0, true, Some("the dog"))),
            ("1,2@a:b", (1.0, 2.0, true, Some("a:b"))),
        ];
        for (text, expected) in good {
            let point = text.parse::<Named<Point>>();
            let found =
                point.as_ref().map(|it| (it.shown.x, it.shown.y, it.shown.positive, it.name.as_deref()));
            assert_eq!(found, Ok(expected), "{text}");
        }
        for text in ["", "1", "1,2,3", "a,b", "1,nan", "1,2:maybe", "1,2@", "1:2"] {
            assert!(text.parse::<Named<Point>>().is_err(), "{text}");
        }
        for text in ["", "1,2,3", "3,2,1,4", "1,2,3,4:no", "1,2,3,4@", "1,2,inf,4"] {
            assert!(text.parse::<Named<BoundingBox>>().is_err(), "{text}");
        }
        let mask = |file: &str, name: Option<&str>| Named { shown: file.into(), name: name.map(Into::into) };
        for (text, expected) in [
            ("mask.png", mask("mask.png", None)),
            ("mask.png@dog", mask("mask.png", Some("dog"))),
            ("a@b/mask.png@dog", mask("a@b/mask.png", Some("dog"))),
            ("mask.png@", mask("mask.png@", None)),
        ] {
            assert_eq!(text.parse::<Named<PathBuf>>(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn points_and_boxes_become_objects_by_their_names() {
        let bbox = |edges: [f32; 4]| BoundingBox::from(edges);
        let (first, second) = (bbox([1.0, 2.0, 3.0, 4.0]), bbox([5.0, 6.0, 7.0, 8.0]));
        type Case<'c> = (&'c [&'c str], &'c [&'c str], Result<Vec<ObjectPrompt>, &'c str>);
        let object = ObjectPrompt::new;
        let cases: [Case<'_>; 8] = [
            (&[], &[], Ok(vec![])),
            (
                &["1,2", "3,4:no"],
                &["1,2,3,4"],
                Ok(vec![
                    object(OBJECT).with_point(1.0, 2.0, true).with_point(3.0, 4.0, false).with_box(first),
                ]),
            ),
            (
                &["1,2@dog", "3,4@cat", "5,6:no@dog"],
                &[],
                Ok(vec![
                    object("dog").with_point(1.0, 2.0, true).with_point(5.0, 6.0, false),
                    object("cat").with_point(3.0, 4.0, true),
                ]),
            ),
            (
                &[],
                &["1,2,3,4", "5,6,7,8"],
                Ok(vec![object("object 1").with_box(first), object("object 2").with_box(second)]),
            ),
            (
                &["1,2"],
                &["5,6,7,8@dog"],
                Ok(vec![object(OBJECT).with_point(1.0, 2.0, true), object("dog").with_box(second)]),
            ),
            (&["1,2"], &["1,2,3,4", "5,6,7,8"], Err("2 for object \"object\"")),
            (&[], &["1,2,3,4@dog", "5,6,7,8@dog"], Err("2 for object \"dog\"")),
            (
                &["1,2@dog"],
                &["1,2,3,4", "5,6,7,8@dog"],
                Ok(vec![
                    object("dog").with_point(1.0, 2.0, true).with_box(second),
                    object(OBJECT).with_box(first),
                ]),
            ),
        ];
        for (points, boxes, expected) in cases {
            let arguments =
                ObjectArgs { point: parsed(points), box_prompt: parsed(boxes), ..ObjectArgs::default() };
            match (arguments.objects(), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{points:?} {boxes:?}"),
                (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{error}"),
                (found, expected) => panic!("{points:?} {boxes:?}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
