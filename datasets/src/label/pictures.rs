//! Which pictures, what they are called, and which part of a job takes them.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use ocelli::{Error, ErrorKind, Result};

/// A picture as somebody named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPicture {
    /// The file.
    pub path: PathBuf,
    /// Its path below the folder that was named: what it is called in the data set, unless two would be called alike.
    pub relative: PathBuf,
}

/// A picture of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureFile {
    /// The file.
    pub path: PathBuf,
    /// What it is called: a relative path with `/` between its parts, unique in the set up to its ending.
    pub name: String,
}

/// The pictures of a data set, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PictureSet {
    files: Vec<PictureFile>,
}

/// One part of a job that several processes share: part `index` of `count`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl PictureSet {
    /// Names the pictures. Of those with one relative path, or one that differs in case or in the ending alone, the
    /// first keeps it and the others get numbers: `a.jpg`, `a-2.png`. A picture that was found twice counts once.
    ///
    /// A folder called `images` is called `images_`, because trainers find the label file of a picture by the last such
    /// folder in its path.
    pub fn new(found: impl IntoIterator<Item = FoundPicture>) -> Self {
        let mut taken = HashSet::new();
        let mut seen = HashSet::new();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut files = Vec::new();
        for FoundPicture { path, relative } in found {
            let path = std::path::absolute(&path).unwrap_or(path);
            if !seen.insert(path.clone()) {
                continue;
            }
            let wanted = name_of(&relative);
            let (stem, ending) = split_ending(&wanted);
            let mut name = wanted.clone();
            // File systems that ignore case take A.txt and a.txt for one file.
            while !taken.insert(split_ending(&name).0.to_lowercase()) {
                let number = numbers.entry(stem.to_lowercase()).or_insert(1);
                *number += 1;
                name = format!("{stem}-{number}{ending}");
            }
            files.push(PictureFile { path, name });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { files }
    }

    /// Pictures that are named already, as the records of shards have them.
    pub(super) fn from_named(mut files: Vec<PictureFile>) -> Self {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { files }
    }

    /// The pictures.
    pub fn files(&self) -> &[PictureFile] {
        &self.files
    }

    /// SHA-256 of all names: whether two shards are of one job.
    pub(super) fn names_sha256(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.update(file.name.as_bytes());
            hash.update([0]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Which pictures are for validation: about `share` of them, by a hash of the name, so that a picture stays where it
    /// is when others come. Of two pictures at least there is one on either side.
    pub(super) fn validation(&self, share: f64) -> HashSet<&str> {
        let place = |file: &PictureFile| hash_of(&file.name, 8);
        let limit = (share * 2f64.powi(64)) as u64;
        let mut chosen: HashSet<&str> =
            self.files.iter().filter(|file| place(file) < limit).map(|file| file.name.as_str()).collect();
        if share > 0.0 && self.files.len() > 1 {
            let by_place = |a: &&PictureFile, b: &&PictureFile| place(a).cmp(&place(b));
            if chosen.is_empty() {
                chosen.extend(self.files.iter().min_by(by_place).map(|file| file.name.as_str()));
            } else if chosen.len() == self.files.len() {
                let last = self.files.iter().max_by(by_place);
                last.map(|file| chosen.remove(file.name.as_str()));
            }
        }
        chosen
    }
}

/// Eight bytes of the name's SHA-256, from byte `at` on.
pub(super) fn hash_of(name: &str, at: usize) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest[at..at + 8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The parts of a path that go down, with `/` between them.
fn name_of(relative: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in relative.components() {
        if let Component::Normal(part) = component {
            parts.push(part.to_string_lossy().into_owned());
        }
    }
    let folders = parts.len().saturating_sub(1);
    for folder in &mut parts[..folders] {
        if folder == "images" {
            folder.push('_');
        }
    }
    parts.join("/")
}

/// `a/b.c.jpg` is `a/b.c` and `.jpg`.
pub(super) fn split_ending(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[file..].rfind('.') {
        Some(dot) if dot > 0 => name.split_at(file + dot),
        _ => (name, ""),
    }
}

impl Shard {
    /// Part `index` of `count`, from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where there is no such part.
    pub fn new(index: u32, count: u32) -> Result<Self> {
        if index == 0 || index > count {
            let message = format!("--shard {index}/{count}: the parts are 1/{count} to {count}/{count}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self { index, count })
    }

    /// Its number, from 1.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// How many parts there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a picture is in this part; its name alone decides.
    pub fn contains(&self, name: &str) -> bool {
        hash_of(name, 0) % u64::from(self.count) == u64::from(self.index - 1)
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').map(|(index, count)| (index.trim().parse(), count.trim().parse()));
        match numbers {
            Some((Ok(index), Ok(count))) if count > 0 => Self::new(index, count),
            _ => {
                let message = format!("--shard {text}: expected two numbers, as 1/8");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(relative: &str, root: &str) -> FoundPicture {
        FoundPicture { path: Path::new(root).join(relative), relative: relative.into() }
    }

    #[test]
    fn names_do_not_collide() {
        let cases: [(&[(&str, &str)], &[&str]); 6] = [
            (&[("b.png", "/x"), ("a/b.png", "/x")], &["a/b.png", "b.png"]),
            (&[("b.png", "/x"), ("b.png", "/y"), ("b.png", "/x")], &["b-2.png", "b.png"]),
            (&[("b.png", "/x"), ("b.jpg", "/x"), ("B.gif", "/x")], &["B-3.gif", "b-2.jpg", "b.png"]),
            (&[("b-2.png", "/x"), ("b.png", "/x"), ("b.png", "/y")], &["b-2.png", "b-3.png", "b.png"]),
            (&[("images/images/images", "/x")], &["images_/images_/images"]),
            (&[("../x/./y.png", "/x"), ("/z/y.png", "/x")], &["x/y.png", "z/y.png"]),
        ];
        for (files, expected) in cases {
            let set = PictureSet::new(files.iter().map(|(name, root)| found(name, root)));
            let names: Vec<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
            assert_eq!(names, expected, "{files:?}");
        }
    }

    #[test]
    fn shards_and_splits_depend_on_names_alone() {
        let set = PictureSet::new((0..1000).map(|i| found(&format!("{i}.png"), "/x")));
        let mut times = vec![0; 1000];
        for index in 1..=7 {
            let shard = Shard::new(index, 7).expect("it is one of seven");
            let inside = set.files().iter().enumerate().filter(|(_, file)| shard.contains(&file.name));
            inside.for_each(|(i, _)| times[i] += 1);
        }
        assert!(times.iter().all(|times| *times == 1), "every picture is in one shard");
        let tenth = set.validation(0.1);
        assert!((70..130).contains(&tenth.len()), "{}", tenth.len());
        assert!(set.validation(0.3).is_superset(&tenth), "a larger share takes more");
        assert_eq!(set.validation(0.0).len(), 0);
        for (count, share, expected) in [(2, 0.000_001, 1), (2, 0.999_999, 1), (1, 0.000_001, 0)] {
            let set = PictureSet::from_named(set.files()[..count].to_vec());
            assert_eq!(set.validation(share).len(), expected, "{count} pictures, {share}");
        }
        // What was drawn once stays drawn: data sets grow over months.
        assert_eq!((hash_of("a/b.png", 0), hash_of("a/b.png", 8)), HASHES);
    }

    /// By Python's `hashlib.sha256(b"a/b.png").digest()`.
    const HASHES: (u64, u64) = (9_869_617_115_036_759_515, 2_528_965_313_947_119_814);

    #[test]
    fn parts_are_named_from_one() {
        for (text, expected) in
            [("1/1", Some((1, 1))), ("3/8", Some((3, 8))), ("0/8", None), ("9/8", None), ("1/0", None)]
        {
            let shard = text.parse::<Shard>().ok().map(|shard| (shard.index(), shard.count()));
            assert_eq!(shard, expected, "{text}");
        }
        for text in ["", "1", "a/b", "-1/3", "1/3/4"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
