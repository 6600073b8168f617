//! Images to label in a test's folder, and comparisons of data sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::run::Place;

/// Classes in the scenes, and one that is in none of them.
pub const CLASSES: &str = "wine glass,tv,boat,bowl,house,cat,robot";
/// The size at which the scenes are looked at, whose instances are large: a fourth of the model's own takes a third of the
/// time.
pub const IMGSZ: &str = "112";
/// The golden scenes with the most instances of these classes, and some without any.
const SCENES: [u8; 20] = [1, 2, 5, 12, 10, 26, 0, 33, 42, 9, 29, 47, 3, 4, 19, 36, 41, 6, 14, 21];

/// Copies golden scenes into folders; every third has the name of one in another folder. Existing files are not changed.
pub fn write_images(place: &Place, folder: &str, count: usize) {
    let scenes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/scenes");
    for number in 0..count {
        let name = match number % 3 {
            0 => format!("{folder}/{:03}.png", number / 3),
            1 => format!("{folder}/a/{:03}.png", number / 3),
            _ => format!("{folder}/b c/{number:03}.png"),
        };
        if place.path(&name).exists() {
            continue;
        }
        let scene = scenes.join(format!("{:02}.png", SCENES[number % SCENES.len()]));
        place.write(&name, std::fs::read(scene).expect("the scenes are in the repository"));
    }
}

/// The content of every file below a folder, except for the journal's folder; for links, their targets.
pub fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            let relative = path.strip_prefix(root).expect("it is below").to_owned();
            if relative.starts_with(".ocelli-label") {
                continue;
            }
            if let Ok(target) = std::fs::read_link(&path) {
                found.insert(relative, target.to_string_lossy().into_owned().into_bytes());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(relative, std::fs::read(&path).expect("it can be read"));
            }
        }
    }
    found
}

/// The files that differ between two data sets.
pub fn differences(one: &Path, other: &Path) -> Vec<String> {
    let (one, other) = (tree(one), tree(other));
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let differ = names.filter(|name| one.get(*name) != other.get(*name));
    differ
        .map(|name| {
            let bytes = |tree: &BTreeMap<PathBuf, Vec<u8>>| {
                tree.get(name).map_or("missing".into(), |b| format!("{} bytes", b.len()))
            };
            format!("{}: {}, {}", name.display(), bytes(&one), bytes(&other))
        })
        .collect()
}

/// Number of complete lines in the journal of a data set, including the first.
pub fn journal_lines(root: &Path) -> usize {
    let journal = std::fs::read(root.join(".ocelli-label/journal.jsonl")).unwrap_or_default();
    journal.iter().filter(|byte| **byte == b'\n').count()
}
