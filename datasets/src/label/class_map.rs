//! Which phrases, examples and rules belong to which class of the data set.

use std::path::{Path, PathBuf};

use ocelli_tracking::BoundingBox;
use serde::Serialize;
use serde_json::{Map, Value};

use ocelli::{Error, ErrorKind, Prompt, Result};

/// The classes of a data set in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassMap {
    /// The classes; a class's id is its place.
    pub classes: Vec<Class>,
    /// Classes that take things from each other.
    pub merge: Vec<MergeGroup>,
}

/// One class, and what is looked for to find it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// What the data set calls it.
    pub name: String,
    /// The phrases that mean it; none for a class that is known by its examples alone.
    pub phrases: Vec<String>,
    /// The score above which its things are kept, 0 to 1, where it is not the one of all classes.
    pub threshold: Option<f32>,
    /// Of its boxes that overlap more than this IoU the best stays, whichever phrase found them.
    pub nms: Option<f32>,
    /// Things of fewer pixels are left out.
    pub min_area: Option<f64>,
    /// Boxes that show what is meant.
    pub exemplars: Vec<ClassExemplar>,
}

/// The picture that an example is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExamplePicture {
    /// One of the data set, by its name there, its path below the folder that was named: the example is for this picture,
    /// which is what models are trained for.
    Image(String),
    /// Any file: the example is for every picture.
    File(PathBuf),
}

/// A box around a thing of a class, or around one that is not of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassExemplar {
    /// Where it is.
    pub picture: ExamplePicture,
    /// In pixels of the picture.
    #[serde(serialize_with = "as_edges")]
    pub bbox: BoundingBox,
    /// Whether things like this are wanted.
    pub wanted: bool,
}

/// Classes of which the surest takes a thing that several of them claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MergeGroup {
    /// Their ids.
    pub classes: Vec<usize>,
    /// Boxes that overlap more than this IoU are one thing.
    pub iou: f32,
}

impl ClassExemplar {
    /// Whether it is in the data set's picture of this name.
    pub(super) fn is_in(&self, name: &str) -> bool {
        matches!(&self.picture, ExamplePicture::Image(image) if image == name)
    }
}

fn as_edges<S: serde::Serializer>(bbox: &BoundingBox, serializer: S) -> Result<S::Ok, S::Error> {
    bbox.to_xyxy().serialize(serializer)
}

/// The IoU of a merge group that names none.
const MERGE_IOU: f32 = 0.7;

impl ClassMap {
    /// A class for each name, which is also its only phrase.
    pub fn from_names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let class = |name: N| {
            let name = name.into();
            Class { phrases: vec![name.clone()], name, ..Class::default() }
        };
        Self { classes: names.into_iter().map(class).collect(), merge: Vec::new() }
    }

    /// Reads a YAML file; JSON is YAML as well.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it cannot be read, [`ErrorKind::InvalidArgument`] where it is no class map: the message
    /// names the key.
    pub fn open(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).map_err(|e| Error::io("cannot read the class map", path, e))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|why| {
            Error::new(ErrorKind::InvalidArgument, format!("class map, {}: {why}", path.display()))
        })
    }

    /// Files of examples are relative to `folder`.
    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let document: Value = serde_saphyr::from_str(text).map_err(|e| {
            let said = e.to_string();
            format!("it is no YAML: {}", said.lines().next().unwrap_or_default())
        })?;
        let top = Keys::of(&document, "", &["classes", "merge"])?;
        let mut map = Self::default();
        match top.value("classes") {
            Some(Value::Array(classes)) => {
                for (place, class) in classes.iter().enumerate() {
                    map.classes.push(class_of_list(class, &format!("classes[{place}]"))?);
                }
            }
            Some(Value::Object(classes)) => {
                for (name, class) in classes {
                    let place = format!("classes.{name}");
                    map.classes.push(class_of_name(name, class, &place)?);
                }
            }
            Some(_) => return Err("classes: expected a list, or names with what belongs to them".into()),
            None => return Err("classes: it is missing; list the classes there".into()),
        }
        for exemplar in map.classes.iter_mut().flat_map(|class| &mut class.exemplars) {
            if let ExamplePicture::File(file) = &mut exemplar.picture {
                *file = folder.join(&*file);
            }
        }
        map.check()?;
        for (place, group) in top.list("merge")?.iter().enumerate() {
            let group = map.group(group, &format!("merge[{place}]"))?;
            map.merge.push(group);
        }
        Ok(map)
    }

    fn check(&self) -> Result<(), String> {
        if self.classes.is_empty() {
            return Err("classes: there is none".into());
        }
        for (id, class) in self.classes.iter().enumerate() {
            if self.classes[..id].iter().any(|other| other.name == class.name) {
                return Err(format!("class \"{}\": it is there twice", class.name));
            }
            if class.phrases.is_empty() && class.exemplars.is_empty() {
                return Err(format!("class \"{}\": it has neither phrases nor exemplars", class.name));
            }
        }
        Ok(())
    }

    fn group(&self, group: &Value, place: &str) -> Result<MergeGroup, String> {
        let (names, iou) = match group {
            Value::Array(_) => (texts(group, place)?, None),
            _ => {
                let keys = Keys::of(group, place, &["classes", "iou"])?;
                let names = keys.value("classes").ok_or_else(|| format!("{place}.classes: it is missing"))?;
                (texts(names, &format!("{place}.classes"))?, keys.share("iou")?)
            }
        };
        let mut classes = Vec::new();
        for name in &names {
            let id = self.classes.iter().position(|class| class.name == *name);
            classes.push(id.ok_or_else(|| format!("{place}: \"{name}\" is none of the classes"))?);
        }
        if classes.len() < 2 {
            return Err(format!("{place}: a group is of two classes at least"));
        }
        Ok(MergeGroup { classes, iou: iou.unwrap_or(MERGE_IOU) })
    }

    /// The classes' names in the order of their ids.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str())
    }
}

fn class_of_list(value: &Value, place: &str) -> Result<Class, String> {
    match value {
        Value::Object(_) => {
            let keys = Keys::of(value, place, &[&["name"], CLASS_KEYS].concat())?;
            let name = keys.value("name").ok_or_else(|| format!("{place}.name: it is missing"))?;
            let name = text(name, &format!("{place}.name"))?;
            class_of_keys(name, &keys)
        }
        _ => Ok(ClassMap::from_names([text(value, place)?]).classes.remove(0)),
    }
}

fn class_of_name(name: &str, value: &Value, place: &str) -> Result<Class, String> {
    let name = text(&Value::String(name.into()), place)?;
    match value {
        Value::Null => Ok(ClassMap::from_names([name]).classes.remove(0)),
        Value::Object(_) => class_of_keys(name, &Keys::of(value, place, CLASS_KEYS)?),
        _ => Ok(Class { name, phrases: texts(value, place)?, ..Class::default() }),
    }
}

/// What may be said of a class.
const CLASS_KEYS: &[&str] = &["phrases", "threshold", "nms", "min_area", "exemplars"];

fn class_of_keys(name: String, keys: &Keys<'_>) -> Result<Class, String> {
    let exemplars = keys.list("exemplars")?.iter().enumerate();
    let exemplars = exemplars.map(|(i, value)| exemplar(value, &keys.at(&format!("exemplars[{i}]"))));
    let exemplars: Vec<_> = exemplars.collect::<Result<_, _>>()?;
    let phrases = match keys.value("phrases") {
        Some(phrases) => texts(phrases, &keys.at("phrases"))?,
        None => vec![name.clone()],
    };
    let min_area = match keys.value("min_area") {
        None => None,
        Some(area) => match area.as_f64().filter(|area| *area >= 0.0) {
            Some(area) => Some(area),
            None => return Err(format!("{}: expected a number of pixels, came {area}", keys.at("min_area"))),
        },
    };
    let (threshold, nms) = (keys.share("threshold")?, keys.share("nms")?);
    Ok(Class { name, phrases, threshold, nms, min_area, exemplars })
}

fn exemplar(value: &Value, place: &str) -> Result<ClassExemplar, String> {
    let keys = Keys::of(value, place, &["image", "file", "box", "wanted"])?;
    let missing = |key: &str| format!("{}: it is missing", keys.at(key));
    let picture = match (keys.value("image"), keys.value("file")) {
        (Some(image), None) => ExamplePicture::Image(text(image, &keys.at("image"))?),
        (None, Some(file)) => ExamplePicture::File(text(file, &keys.at("file"))?.into()),
        (None, None) => {
            return Err(missing("image") + "; name one of the pictures, or any file with `file`");
        }
        (Some(_), Some(_)) => {
            return Err(format!("{place}: it has both image and file; an example is in one"));
        }
    };
    let edges = keys.value("box").ok_or_else(|| missing("box"))?;
    let numbers: Option<Vec<f32>> = edges
        .as_array()
        .and_then(|edges| edges.iter().map(|edge| edge.as_f64().map(|edge| edge as f32)).collect());
    let bbox = match numbers.as_deref() {
        Some(&[x1, y1, x2, y2]) => BoundingBox::new(x1, y1, x2, y2),
        _ => return Err(format!("{}: expected [x1, y1, x2, y2] in pixels, came {edges}", keys.at("box"))),
    };
    if !bbox.has_area() || !bbox.is_finite() {
        return Err(format!("{}: {edges} has no area; x1 < x2 and y1 < y2", keys.at("box")));
    }
    let wanted = match keys.value("wanted") {
        None => true,
        Some(Value::Bool(wanted)) => *wanted,
        Some(other) => return Err(format!("{}: expected true or false, came {other}", keys.at("wanted"))),
    };
    Ok(ClassExemplar { picture, bbox, wanted })
}

/// A text that is not blank, its white space collapsed as in a [`Prompt`].
fn text(value: &Value, place: &str) -> Result<String, String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => {
            Ok(Prompt::new(text.as_str()).phrase().to_owned())
        }
        Value::String(_) | Value::Null => {
            Err(format!("{place}: it is blank; give it a word or a short phrase"))
        }
        Value::Number(_) | Value::Bool(_) => {
            Err(format!("{place}: expected words, came {value}; put it in quotes if it is a name"))
        }
        _ => Err(format!("{place}: expected words, came {value}")),
    }
}

/// A text, or a list of texts.
fn texts(value: &Value, place: &str) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => {
            let places = list.iter().enumerate().map(|(i, value)| text(value, &format!("{place}[{i}]")));
            places.collect()
        }
        _ => Ok(vec![text(value, place)?]),
    }
}

/// The keys of a mapping, all of which are known.
struct Keys<'v> {
    map: &'v Map<String, Value>,
    place: &'v str,
}

impl<'v> Keys<'v> {
    fn of(value: &'v Value, place: &'v str, known: &[&str]) -> Result<Self, String> {
        let here = if place.is_empty() { "the file" } else { place };
        let Value::Object(map) = value else {
            return Err(format!("{here}: expected keys ({}), came {value}", known.join(", ")));
        };
        let keys = Self { map, place };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{}: no such key; the keys are {}", keys.at(key), known.join(", "))),
            None => Ok(keys),
        }
    }

    fn at(&self, key: &str) -> String {
        if self.place.is_empty() { key.into() } else { format!("{}.{key}", self.place) }
    }

    /// The value of a key; null counts as none.
    fn value(&self, key: &str) -> Option<&'v Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn list(&self, key: &str) -> Result<&'v [Value], String> {
        match self.value(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(format!("{}: expected a list, came {other}", self.at(key))),
        }
    }

    fn share(&self, key: &str) -> Result<Option<f32>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|share| (0.0..=1.0).contains(share)) {
                Some(share) => Ok(Some(share as f32)),
                None => Err(format!("{}: expected a number from 0 to 1, came {value}", self.at(key))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClassMap, String> {
        ClassMap::parse(text, Path::new("maps"))
    }

    #[test]
    fn what_a_map_may_look_like() {
        let named = parse("classes: {person: [person, pedestrian], dog: , cat: {threshold: 0.5}}");
        let named = named.expect("three ways to say it");
        assert_eq!(named.names().collect::<Vec<_>>(), ["person", "dog", "cat"]);
        assert_eq!(named.classes[0].phrases, ["person", "pedestrian"]);
        assert_eq!((&*named.classes[1].phrases[0], named.classes[2].threshold), ("dog", Some(0.5)));
        let listed = parse(
            "classes:\n- dog\n- name: cup\n  phrases: []\n  nms: 0.4\n  min_area: 25\n  exemplars:\n  - image: a/b.png\n    \
             box: [1, 2, 3.5, 4]\n    wanted: false\n  - {file: c.png, box: [0, 0, 1, 1]}\nmerge:\n- [dog, cup]\n- classes: [cup, dog]\n  iou: 0.2\n",
        );
        let listed = listed.expect("every key there is");
        let cup = &listed.classes[1];
        assert_eq!((cup.phrases.len(), cup.nms, cup.min_area), (0, Some(0.4), Some(25.0)));
        let bbox = BoundingBox::new(1.0, 2.0, 3.5, 4.0);
        let picture = ExamplePicture::Image("a/b.png".into());
        assert_eq!(cup.exemplars[0], ClassExemplar { picture, bbox, wanted: false });
        let file = &cup.exemplars[1];
        assert_eq!((&file.picture, file.wanted), (&ExamplePicture::File("maps/c.png".into()), true));
        let groups: Vec<_> = listed.merge.iter().map(|group| (group.classes.clone(), group.iou)).collect();
        assert_eq!(groups, [(vec![0, 1], 0.7), (vec![1, 0], 0.2)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut failures = Vec::new();
        for (text, words) in [
            ("classes: [dog", &["no YAML"][..]),
            ("dog", &["the file", "classes"]),
            ("", &["the file"]),
            ("classes: []", &["there is none"]),
            ("class: [dog]", &["class: no such key", "classes, merge"]),
            ("classes: 3", &["classes", "list"]),
            ("merge: []", &["classes", "missing"]),
            ("classes: [dog, dog]", &["\"dog\"", "twice"]),
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
