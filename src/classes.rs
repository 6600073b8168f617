//! Classes by name: a [`ClassMap`] says which text prompts and exemplars belong to each, and which limits.

mod coco;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ocelli_export::read_text;
use ocelli_tracking::BoundingBox;
use serde::Serialize;
use serde_json::{Map, Value};

pub use coco::COCO_CLASSES;

use crate::prompt::{MAX_CLASSES, MAX_PHRASE_BYTES};
use crate::{Error, Prompt, Result};

/// The classes of a data set, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassMap {
    /// The classes. The id of a class is its index.
    pub classes: Vec<Class>,
    /// Groups of classes that share instances.
    pub merge: Vec<MergeGroup>,
}

/// One class, and the prompts that detect it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// The name in the data set.
    pub name: String,
    /// The text prompts; empty for a class that has exemplars only.
    pub phrases: Vec<String>,
    /// Instances above this score are kept, 0 to 1. The default is the threshold of the settings.
    pub threshold: Option<f32>,
    /// Of its boxes that overlap by more than this IoU, the one with the highest score is kept, whichever phrases they are
    /// from. The default is the limit of the settings.
    pub nms: Option<f32>,
    /// Instances with fewer pixels are left out. The default is the limit of the settings.
    pub min_area: Option<f64>,
    /// Example boxes.
    pub exemplars: Vec<ClassExemplar>,
}

/// The image of an exemplar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExemplarImage {
    /// An image of the data set, by its name. The exemplar applies to this image, which is what models are trained for.
    Image(String),
    /// Any file. The exemplar applies to every image.
    File(PathBuf),
}

/// A box around an instance of a class, or around a counterexample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassExemplar {
    /// The image with the box.
    #[serde(rename = "picture")]
    pub image: ExemplarImage,
    /// In pixels of the image.
    pub bbox: BoundingBox,
    /// `true` if it shows the class, `false` for a counterexample.
    pub wanted: bool,
}

/// Classes of which only the one with the highest score keeps an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MergeGroup {
    /// The ids of the classes.
    pub classes: Vec<usize>,
    /// Boxes that overlap by more than this IoU are the same instance.
    pub iou: f32,
}

impl ClassExemplar {
    /// `true` if it is in the image of the data set with this name.
    pub fn is_in(&self, name: &str) -> bool {
        matches!(&self.image, ExemplarImage::Image(image) if image == name)
    }
}

/// The default IoU of a merge group.
const MERGE_IOU: f32 = 0.7;

impl ClassMap {
    /// One class for each name, with the name as its only phrase.
    pub fn from_names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let class = |name: N| {
            let name = name.into();
            Class { phrases: vec![name.clone()], name, ..Class::default() }
        };
        Self { classes: names.into_iter().map(class).collect(), merge: Vec::new() }
    }

    /// Reads a YAML or JSON file: a class map, or a `data.yaml` of YOLO, of which the `names` are read.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be read,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if it is not a class map; the message has the key.
    pub fn open(path: &Path) -> Result<Self> {
        let text = read_text(path, "the class map")?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder)
            .map_err(|why| Error::invalid_argument(format!("class map, {}: {why}", path.display())))
    }

    /// Files of exemplars are relative to `folder`.
    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let document: Value = serde_saphyr::from_str(text).map_err(|e| {
            let said = e.to_string();
            format!("it is not YAML: {}", said.lines().next().unwrap_or_default())
        })?;
        if let (Some(names), None) = (document.get("names"), document.get("classes")) {
            let map = Self::from_names(yolo_names(names)?);
            return map.check().map(|()| map);
        }
        let top = Keys::of(&document, "", &["classes", "merge"])?;
        let mut map = Self::default();
        match top.value("classes") {
            Some(Value::Array(classes)) => {
                for (key_path, class) in classes.iter().enumerate() {
                    map.classes.push(class_of_list(class, &format!("classes[{key_path}]"))?);
                }
            }
            Some(Value::Object(classes)) => {
                for (name, class) in classes {
                    let key_path = format!("classes.{name}");
                    map.classes.push(class_of_name(name, class, &key_path)?);
                }
            }
            Some(_) => return Err("classes: expected a list, or a mapping from names to classes".into()),
            None => return Err("classes: missing; list the classes here".into()),
        }
        for exemplar in map.classes.iter_mut().flat_map(|class| &mut class.exemplars) {
            if let ExemplarImage::File(file) = &mut exemplar.image {
                *file = folder.join(&*file);
                // The journal stores the path as text.
                if file.to_str().is_none() {
                    return Err(format!(
                        "exemplar {}: its path is not UTF-8; rename the file or its folder",
                        file.display()
                    ));
                }
            }
        }
        map.check()?;
        for (key_path, group) in top.list("merge")?.iter().enumerate() {
            let group = map.group(group, &format!("merge[{key_path}]"))?;
            map.merge.push(group);
        }
        Ok(map)
    }

    fn check(&self) -> Result<(), String> {
        if self.classes.is_empty() {
            return Err("classes: expected at least one class".into());
        }
        if self.classes.len() > MAX_CLASSES {
            return Err(format!("{} classes: expected at most {MAX_CLASSES}", self.classes.len()));
        }
        let mut names = HashSet::new();
        for class in &self.classes {
            let texts = class.phrases.iter().chain([&class.name]);
            if let Some(long) = texts.into_iter().find(|text| text.len() > MAX_PHRASE_BYTES) {
                let (start, bytes) = (long.chars().take(30).collect::<String>(), long.len());
                return Err(format!("\"{start}…\" has {bytes} bytes: expected at most {MAX_PHRASE_BYTES}"));
            }
            if !names.insert(&class.name) {
                return Err(format!("class \"{}\": duplicate name", class.name));
            }
            if class.phrases.is_empty() && class.exemplars.is_empty() {
                return Err(format!("class \"{}\": it has neither phrases nor exemplars", class.name));
            }
        }
        Ok(())
    }

    fn group(&self, group: &Value, key_path: &str) -> Result<MergeGroup, String> {
        let (names, iou) = match group {
            Value::Array(_) => (texts(group, key_path)?, None),
            _ => {
                let keys = Keys::of(group, key_path, &["classes", "iou"])?;
                let names = keys.value("classes").ok_or_else(|| format!("{key_path}.classes: missing"))?;
                (texts(names, &format!("{key_path}.classes"))?, keys.share("iou")?)
            }
        };
        let mut classes = Vec::new();
        for name in &names {
            let id = self.classes.iter().position(|class| class.name == *name);
            classes.push(id.ok_or_else(|| format!("{key_path}: no class \"{name}\""))?);
        }
        if classes.len() < 2 {
            return Err(format!("{key_path}: expected at least two classes"));
        }
        Ok(MergeGroup { classes, iou: iou.unwrap_or(MERGE_IOU) })
    }

    /// The names of the classes, in the order of their ids.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str())
    }
}

/// YOLO's `names`: a list, or a mapping from class ids.
fn yolo_names(names: &Value) -> Result<Vec<String>, String> {
    let Value::Object(by_id) = names else { return texts(names, "names") };
    let mut numbered = Vec::new();
    for (id, name) in by_id {
        let number: u32 = id.parse().map_err(|_| format!("names: {id} is not a class id"))?;
        numbered.push((number, text(name, &format!("names.{id}"))?));
    }
    numbered.sort_by_key(|(number, _)| *number);
    if let Some((at, (number, _))) = (0..).zip(&numbered).find(|(at, (number, _))| at != number) {
        let expected = "expected 0, 1, 2 and so on, as the lines of label files count the classes; give the missing ids a name";
        return Err(format!("names: class {number} where {at} should be: {expected}"));
    }
    Ok(numbered.into_iter().map(|(_, name)| name).collect())
}

fn class_of_list(value: &Value, key_path: &str) -> Result<Class, String> {
    match value {
        Value::Object(_) => {
            let keys = Keys::of(value, key_path, &[&["name"], CLASS_KEYS].concat())?;
            let name = keys.value("name").ok_or_else(|| format!("{key_path}.name: missing"))?;
            let name = text(name, &format!("{key_path}.name"))?;
            class_of_keys(name, &keys)
        }
        _ => Ok(ClassMap::from_names([text(value, key_path)?]).classes.remove(0)),
    }
}

fn class_of_name(name: &str, value: &Value, key_path: &str) -> Result<Class, String> {
    let name = text(&Value::String(name.into()), key_path)?;
    match value {
        Value::Null => Ok(ClassMap::from_names([name]).classes.remove(0)),
        Value::Object(_) => class_of_keys(name, &Keys::of(value, key_path, CLASS_KEYS)?),
        _ => Ok(Class { name, phrases: texts(value, key_path)?, ..Class::default() }),
    }
}

/// The keys of a class.
const CLASS_KEYS: &[&str] = &["phrases", "threshold", "nms", "min_area", "exemplars"];

fn class_of_keys(name: String, keys: &Keys<'_>) -> Result<Class, String> {
    let exemplars = keys.list("exemplars")?.iter().enumerate();
    let exemplars = exemplars.map(|(i, value)| exemplar(value, &keys.at(&format!("exemplars[{i}]"))));
    let exemplars: Vec<_> = exemplars.collect::<Result<_, _>>()?;
    let phrases = match keys.value("phrases") {
        Some(phrases) => texts(phrases, &keys.at("phrases"))?,
        None => vec![name.clone()],
    };
    let min_area = keys.number("min_area", |area| area >= 0.0, "a number of pixels")?;
    let (threshold, nms) = (keys.share("threshold")?, keys.share("nms")?);
    Ok(Class { name, phrases, threshold, nms, min_area, exemplars })
}

fn exemplar(value: &Value, key_path: &str) -> Result<ClassExemplar, String> {
    let keys = Keys::of(value, key_path, &["image", "file", "box", "wanted"])?;
    let missing = |key: &str| format!("{}: missing", keys.at(key));
    let image = match (keys.value("image"), keys.value("file")) {
        (Some(image), None) => ExemplarImage::Image(text(image, &keys.at("image"))?),
        (None, Some(file)) => ExemplarImage::File(text(file, &keys.at("file"))?.into()),
        (None, None) => {
            return Err(missing("image") + "; name an image of the data set, or any file with `file`");
        }
        (Some(_), Some(_)) => {
            return Err(format!("{key_path}: expected image or file, not both"));
        }
    };
    let edges = keys.value("box").ok_or_else(|| missing("box"))?;
    let numbers: Option<Vec<f32>> = edges
        .as_array()
        .and_then(|edges| edges.iter().map(|edge| edge.as_f64().map(|edge| edge as f32)).collect());
    let bbox = match numbers.as_deref() {
        Some(&[x1, y1, x2, y2]) => BoundingBox::new(x1, y1, x2, y2),
        _ => return Err(format!("{}: expected [x1, y1, x2, y2] in pixels, got {edges}", keys.at("box"))),
    };
    if !bbox.has_area() || !bbox.is_finite() {
        return Err(format!("{}: {edges} has no area; expected x1 < x2 and y1 < y2", keys.at("box")));
    }
    let wanted = match keys.value("wanted") {
        None => true,
        Some(Value::Bool(wanted)) => *wanted,
        Some(other) => return Err(format!("{}: expected true or false, got {other}", keys.at("wanted"))),
    };
    Ok(ClassExemplar { image, bbox, wanted })
}

/// A string that is not blank, with white space collapsed as the tokeniser does.
fn text(value: &Value, key_path: &str) -> Result<String, String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Ok(Prompt::new(text.as_str()).phrase().to_owned()),
        Value::String(_) | Value::Null => {
            Err(format!("{key_path}: blank; expected a word or a short phrase"))
        }
        Value::Number(_) | Value::Bool(_) => {
            Err(format!("{key_path}: expected a string, got {value}; put it in quotes if it is a name"))
        }
        _ => Err(format!("{key_path}: expected a string, got {value}")),
    }
}

/// A string, or a list of strings.
fn texts(value: &Value, key_path: &str) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => {
            let places = list.iter().enumerate().map(|(i, value)| text(value, &format!("{key_path}[{i}]")));
            places.collect()
        }
        _ => Ok(vec![text(value, key_path)?]),
    }
}

/// A mapping whose keys are all known.
struct Keys<'v> {
    map: &'v Map<String, Value>,
    key_path: &'v str,
}

impl<'v> Keys<'v> {
    fn of(value: &'v Value, key_path: &'v str, known: &[&str]) -> Result<Self, String> {
        let here = if key_path.is_empty() { "the file" } else { key_path };
        let Value::Object(map) = value else {
            return Err(format!("{here}: expected keys ({}), got {value}", known.join(", ")));
        };
        let keys = Self { map, key_path };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{}: no such key; the keys are {}", keys.at(key), known.join(", "))),
            None => Ok(keys),
        }
    }

    fn at(&self, key: &str) -> String {
        if self.key_path.is_empty() { key.into() } else { format!("{}.{key}", self.key_path) }
    }

    /// The value of a key; `None` if it is null.
    fn value(&self, key: &str) -> Option<&'v Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn list(&self, key: &str) -> Result<&'v [Value], String> {
        match self.value(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(format!("{}: expected a list, got {other}", self.at(key))),
        }
    }

    fn share(&self, key: &str) -> Result<Option<f32>, String> {
        let share = self.number(key, |share| (0.0..=1.0).contains(&share), "a number from 0 to 1")?;
        Ok(share.map(|share| share as f32))
    }

    /// The number at a key, if there is one.
    fn number(&self, key: &str, fits: impl Fn(f64) -> bool, expected: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| fits(*number));
        let refuse = || format!("{}: expected {expected}, got {value}", self.at(key));
        number.map(Some).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClassMap, String> {
        ClassMap::parse(text, Path::new("maps"))
    }

    #[test]
    fn maps_of_every_form() {
        let named = parse("classes: {person: [person, pedestrian], dog: , cat: {threshold: 0.5}}");
        let named = named.expect("three forms of a class");
        assert_eq!(named.names().collect::<Vec<_>>(), ["person", "dog", "cat"]);
        assert_eq!(named.classes[0].phrases, ["person", "pedestrian"]);
        assert_eq!((&*named.classes[1].phrases[0], named.classes[2].threshold), ("dog", Some(0.5)));
        let listed = parse(
            "classes:\n- dog\n- name: cup\n  phrases: []\n  nms: 0.4\n  min_area: 25\n  exemplars:\n  - image: a/b.png\n    \
             box: [1, 2, 3.5, 4]\n    wanted: false\n  - {file: c.png, box: [0, 0, 1, 1]}\nmerge:\n- [dog, cup]\n- classes: [cup, dog]\n  iou: 0.2\n",
        );
        let listed = listed.expect("every key");
        let cup = &listed.classes[1];
        assert_eq!((cup.phrases.len(), cup.nms, cup.min_area), (0, Some(0.4), Some(25.0)));
        let bbox = BoundingBox::new(1.0, 2.0, 3.5, 4.0);
        let image = ExemplarImage::Image("a/b.png".into());
        assert_eq!(cup.exemplars[0], ClassExemplar { image, bbox, wanted: false });
        let file = &cup.exemplars[1];
        assert_eq!((&file.image, file.wanted), (&ExemplarImage::File("maps/c.png".into()), true));
        let groups: Vec<_> = listed.merge.iter().map(|group| (group.classes.clone(), group.iou)).collect();
        assert_eq!(groups, [(vec![0, 1], 0.7), (vec![1, 0], 0.2)]);
    }

    #[test]
    fn lists_and_names_have_limits() {
        let list = |count: usize| {
            let names: String = (0..count).map(|number| format!("- c{number}\n")).collect();
            parse(&format!("classes:\n{names}"))
        };
        assert_eq!(list(MAX_CLASSES).map(|map| map.classes.len()), Ok(MAX_CLASSES));
        let error = list(MAX_CLASSES + 1).expect_err("one too many");
        assert!(error.contains("65537 classes: expected at most 65536"), "{error}");
        for (bytes, is_valid) in [(MAX_PHRASE_BYTES, true), (MAX_PHRASE_BYTES + 1, false)] {
            let long = "x".repeat(bytes);
            for text in [
                format!("classes: [{long}]"),
                format!("classes: {{a: [{long}]}}"),
                format!("names: [{long}]"),
            ] {
                let found = parse(&text);
                assert_eq!(found.is_ok(), is_valid, "{bytes} bytes: {}", &text[..20]);
                assert!(found.is_ok() || found.is_err_and(|why| why.contains("expected at most 1000")));
            }
        }
    }

    #[test]
    fn errors_name_the_key() {
        let mut failures = Vec::new();
        for (text, words) in [
            ("classes: [dog", &["not YAML"][..]),
            ("dog", &["the file", "classes"]),
            ("", &["the file"]),
            ("classes: []", &["at least one class"]),
            ("class: [dog]", &["class: no such key", "classes, merge"]),
            ("classes: 3", &["classes", "list"]),
            ("merge: []", &["classes", "missing"]),
            ("classes: [dog, dog]", &["\"dog\"", "duplicate"]),
            ("classes: [dog, ' ']", &["classes[1]", "blank"]),
            ("classes: [7]", &["classes[0]", "quotes"]),
            ("classes: [{phrases: [dog]}]", &["classes[0].name", "missing"]),
            ("classes: {dog: {thresold: 0.5}}", &["classes.dog.thresold", "threshold"]),
            ("classes: {dog: {threshold: 5}}", &["classes.dog.threshold", "0 to 1", "5"]),
            ("classes: {dog: {nms: high}}", &["classes.dog.nms", "0 to 1", "high"]),
            ("classes: {dog: {min_area: -1}}", &["classes.dog.min_area", "pixels"]),
            ("classes: {dog: {phrases: []}}", &["\"dog\"", "neither"]),
            ("classes: {dog: [a, '']}", &["classes.dog[1]", "blank"]),
            (
                "classes: {dog: {exemplars: [{box: [1,2,3,4]}]}}",
                &["classes.dog.exemplars[0].image", "missing"],
            ),
            ("classes: {dog: {exemplars: [{image: a.png}]}}", &["exemplars[0].box", "missing"]),
            ("classes: {dog: {exemplars: [{image: a.png, box: [1,2,3]}]}}", &["exemplars[0].box", "x1, y1"]),
            (
                "classes: {dog: {exemplars: [{image: a.png, box: [3,2,1,4]}]}}",
                &["exemplars[0].box", "no area"],
            ),
            (
                "classes: {dog: {exemplars: [{image: a, box: [1,2,3,4], wanted: 7}]}}",
                &["wanted", "true or false"],
            ),
            ("classes: {dog: {exemplars: [{image: a, file: b, box: [1,2,3,4]}]}}", &["exemplars[0]", "both"]),
            ("names: {3: dog, 7: cat}", &["names: class 3 where 0 should be", "give the missing ids a name"]),
            ("names: {0: dog, 00: cat}", &["class 0 where 1 should be"]),
            ("classes: [dog, cat]\nmerge: [[dog, cow]]", &["merge[0]", "\"cow\""]),
            ("classes: [dog, cat]\nmerge: [[dog]]", &["merge[0]", "two"]),
            ("classes: [dog, cat]\nmerge: [{classes: [dog, cat], iuo: 0.5}]", &["merge[0].iuo", "iou"]),
        ] {
            match parse(text) {
                Ok(map) => failures.push(format!("{text:?}: accepted as {map:?}")),
                Err(e) if words.iter().all(|word| e.contains(word)) => {}
                Err(e) => failures.push(format!("{text:?}: {e:?}, expected {words:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
