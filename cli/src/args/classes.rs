//! `--classes`: phrases, or files that list them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use ocelli::classes::{COCO_CLASSES, Class, ClassMap};
use ocelli::{Prompt, Result};
use ocelli_export::read_text;

use crate::status;

/// The classes in the values of `--classes`: phrases, which commas separate as well (`person "red apple"` and
/// `person,red apple` mean the same), and files. A text file (`classes.txt`) has a phrase per line, a YAML file is a class
/// map or has YOLO's `names`. Duplicates are dropped with a line on stderr.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if a class is blank or a file is missing or invalid.
pub fn class_map(arguments: &[String]) -> Result<ClassMap> {
    let (map, repeated) = distinct(arguments)?;
    if !repeated.is_empty() {
        status(format!("duplicate classes ignored: {}", repeated.join(", ")));
    }
    Ok(map)
}

/// As [`class_map`]; a file that was meant as an input is not a class, and `place` says where to name it.
///
/// # Errors
/// As [`class_map`], and for the name of a file.
pub fn class_map_beside(arguments: &[String], place: &str) -> Result<ClassMap> {
    let map = class_map(arguments)?;
    let looks_like_one = |name: &str| Path::new(name).extension().is_some() || name.contains('/');
    let is_file = |name: &&str| looks_like_one(name) && Path::new(name).is_file();
    if let Some(name) = map.names().find(is_file) {
        refuse!("--classes, {name}: this is a file; name it {place}");
    }
    Ok(map)
}

/// COCO's eighty classes.
pub(crate) fn coco_classes() -> ClassMap {
    ClassMap::from_names(COCO_CLASSES)
}

/// The classes that have a threshold of their own, by id.
pub(crate) fn thresholds(map: &ClassMap) -> BTreeMap<usize, f32> {
    let classes = map.classes.iter().enumerate();
    classes.filter_map(|(id, class)| Some((id, class.threshold?))).collect()
}

/// The names in the values of `--classes`, files included.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if a class is blank or a file is missing or invalid.
pub fn class_names(arguments: &[String]) -> Result<Vec<String>> {
    Ok(class_map(arguments)?.names().map(str::to_owned).collect())
}

/// The classes in order, and the duplicates. The model does not distinguish case.
fn distinct(arguments: &[String]) -> Result<(ClassMap, Vec<String>)> {
    let (mut map, mut repeated) = (ClassMap::default(), Vec::new());
    let (mut known, mut reported) = (HashSet::new(), HashSet::new());
    let mut add = |class: Class| {
        if known.insert(class.name.to_lowercase()) {
            map.classes.push(class);
        } else if reported.insert(class.name.clone()) {
            repeated.push(class.name);
        }
    };
    let mut number = 0;
    for argument in arguments {
        if let Some(listed) = listed_in_file(argument)? {
            listed.classes.into_iter().for_each(&mut add);
            continue;
        }
        for piece in argument.split(',') {
            number += 1;
            let name = Prompt::new(piece).phrase().to_owned();
            if name.is_empty() {
                refuse!("--classes, class {number}: blank; expected a word or a short phrase");
            }
            ClassMap::from_names([name]).classes.into_iter().for_each(&mut add);
        }
    }
    Ok((map, repeated))
}

/// The classes of a file, if the argument names one: by its extension, so that a file that is missing is not taken for a
/// phrase.
fn listed_in_file(argument: &str) -> Result<Option<ClassMap>> {
    let path = Path::new(argument);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "txt" | "yaml" | "yml" | "json" if !path.is_file() => refuse!("--classes, {argument}: no such file"),
        "yaml" | "yml" | "json" => ClassMap::open(path).map(Some),
        "txt" => {
            let text = read_text(path, "the classes")?;
            let lines = text.lines().map(Prompt::new);
            let names: Vec<String> =
                lines.map(|line| line.phrase().to_owned()).filter(|name| !name.is_empty()).collect();
            if names.is_empty() {
                refuse!("--classes, {argument}: expected a phrase per line");
            }
            Ok(Some(ClassMap::from_names(names)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &ClassMap) -> Vec<&str> {
        map.names().collect()
    }

    #[test]
    fn commas_separate_classes_and_duplicates_are_dropped() {
        let cases: [(&[&str], Result<(&[&str], &[&str]), &str>); 9] = [
            (&["dog"], Ok((&["dog"], &[]))),
            (&["dog", "red apple"], Ok((&["dog", "red apple"], &[]))),
            (&["dog,red apple", "cat"], Ok((&["dog", "red apple", "cat"], &[]))),
            (&["dog, red  apple "], Ok((&["dog", "red apple"], &[]))),
            (&["dog", "cat", "Dog", "dog", "dog"], Ok((&["dog", "cat"], &["Dog", "dog"]))),
            (&["dog", " \t"], Err("class 2")),
            (&[""], Err("class 1")),
            (&["dog,,cat"], Err("class 2")),
            (&["dog", "none.txt"], Err("none.txt: no such file")),
        ];
        for (arguments, expected) in cases {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            match (distinct(&arguments), expected) {
                (Ok((map, repeated)), Ok(expected)) => {
                    assert_eq!(names(&map), expected.0, "{arguments:?}");
                    assert_eq!(repeated, expected.1, "{arguments:?}");
                }
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{arguments:?}: {e}"),
                (found, expected) => panic!("{arguments:?}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn files_list_classes() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).map(|()| path.to_string_lossy().into_owned())
        };
        let text = file("classes.txt", "\u{feff}dog\r\n\n  red   apple \ncat")?;
        let map = file(
            "map.yaml",
            "classes:\n  - car\n  - name: bird\n    phrases: [sparrow]\n    threshold: 0.6\n",
        )?;
        let yolo = file("data.yaml", "path: .\ntrain: images\nnames:\n  0: boat\n  1: kite\n")?;
        let (found, repeated) =
            distinct(&[text, "Dog,tree".into(), map, yolo]).map_err(std::io::Error::other)?;
        assert_eq!(names(&found), ["dog", "red apple", "cat", "tree", "car", "bird", "boat", "kite"]);
        assert_eq!(repeated, ["Dog"]);
        assert_eq!(found.classes[5].threshold, Some(0.6));
        for (name, text, word) in
            [("empty.txt", "\n \n", "a phrase per line"), ("other.yaml", "a: 1", "a: no such key")]
        {
            let error = distinct(&[file(name, text)?]).expect_err("the file lists no class").to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
        Ok(())
    }
}
