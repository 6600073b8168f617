//! The images of a data set: their names, and how they are divided into shards and splits.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use ocelli::{Error, Result, image::has_unsupported_extension};

/// The frame of a video that an image is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoFrame {
    /// The path of the video: a file, or a folder of images.
    pub video: String,
    /// The index of the frame in the video, from 0.
    pub index: u64,
}

/// An image that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// The file.
    pub path: PathBuf,
    /// Its path below the input folder: its name in the data set, unless two images would have the same name.
    pub relative: PathBuf,
    /// The frame of a video that it is.
    pub frame: Option<VideoFrame>,
}

/// An image of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// The file.
    pub path: PathBuf,
    /// Its name: a relative path with `/` as separator. Names differ in more than their extension.
    pub name: String,
    /// The frame of a video that it is.
    pub frame: Option<VideoFrame>,
}

/// The images of a data set, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSet {
    files: Vec<ImageFile>,
}

/// One part of a job that several processes share: shard `index` of `count`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl ImageFile {
    /// The text that decides its shard: the path below the input folder, without the number of its name, which depends on the
    /// other images and on the order of the inputs.
    pub(super) fn key(&self) -> String {
        let parts: Vec<Component<'_>> =
            self.path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let below = parts.len().saturating_sub(self.name.split('/').count());
        name_of(&parts[below..].iter().collect::<PathBuf>())
    }
}

impl ImageSet {
    /// Names the images after their relative paths. If several paths differ in case or extension only, the first image gets
    /// the path as its name and the others get a number: `a.jpg`, `a-2.png`. A file that was found twice counts once.
    ///
    /// A folder `images` becomes `images_` in names, because trainers derive the path of the label file from the last
    /// `images` in the path of an image.
    pub fn new(found: impl IntoIterator<Item = FoundImage>) -> Self {
        let mut taken = HashSet::new();
        let mut seen = HashSet::new();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut files = Vec::new();
        for FoundImage { path, relative, frame } in found {
            let path = std::path::absolute(&path).unwrap_or(path);
            if !seen.insert(path.clone()) {
                continue;
            }
            let wanted = name_of(&relative);
            let (stem, extension) = split_extension(&wanted);
            let mut name = wanted.clone();
            let is_unsupported = has_unsupported_extension(&path);
            // It gets no label file: the image that was converted from it may have the same name.
            let key = |name: &str| {
                if is_unsupported { name.to_lowercase() } else { split_extension(name).0.to_lowercase() }
            };
            // A.txt and a.txt are the same file on file systems that ignore case.
            while !taken.insert(key(&name)) {
                let number = numbers.entry(stem.to_lowercase()).or_insert(1);
                *number += 1;
                name = format!("{stem}-{number}{extension}");
            }
            files.push(ImageFile { path, name, frame });
        }
        Self::from_named(files)
    }

    /// Images that have names already, such as those of shards.
    pub(super) fn from_named(mut files: Vec<ImageFile>) -> Self {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { files }
    }

    /// The images.
    pub fn files(&self) -> &[ImageFile] {
        &self.files
    }

    /// SHA-256 of all names, to check that two shards belong to the same job.
    pub(super) fn names_sha256(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.update(file.name.as_bytes());
            hash.update([0]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The names of the images for validation: about `share` of them, chosen by a hash of the name, so that new images do
    /// not change the split of others. With two images or more, neither split is empty.
    ///
    /// Frames of a video look like their neighbours: all of them are in one split, by the hash of the first one's name. Of a
    /// video that is alone, the end is for validation.
    pub(super) fn validation(&self, share: f64) -> HashSet<&str> {
        let mut first_frames: HashMap<&str, (u64, &str)> = HashMap::new();
        for file in &self.files {
            let Some(frame) = &file.frame else { continue };
            let first = first_frames.entry(&frame.video).or_insert((frame.index, &file.name));
            *first = (*first).min((frame.index, &file.name));
        }
        let count = self.files.len();
        if share > 0.0 && count > 1 && first_frames.len() == 1 && self.files.iter().all(|f| f.frame.is_some())
        {
            let mut frames: Vec<&ImageFile> = self.files.iter().collect();
            frames.sort_by_key(|file| file.frame.as_ref().map(|frame| frame.index));
            let last = ((share * count as f64).round() as usize).clamp(1, count - 1);
            return frames[count - last..].iter().map(|file| file.name.as_str()).collect();
        }
        let hash = |file: &ImageFile| {
            let first = file.frame.as_ref().and_then(|frame| first_frames.get(frame.video.as_str()));
            hash_of(first.map_or(&file.name, |(_, name)| name), 8)
        };
        let limit = (share * 2f64.powi(64)) as u64;
        let mut chosen: HashSet<&str> =
            self.files.iter().filter(|file| hash(file) < limit).map(|file| file.name.as_str()).collect();
        if share > 0.0 && count > 1 {
            let with = |wanted: Option<u64>| {
                let files = self.files.iter().filter(move |file| Some(hash(file)) == wanted);
                files.map(|file| file.name.as_str())
            };
            if chosen.is_empty() {
                chosen.extend(with(self.files.iter().map(hash).min()));
            } else if chosen.len() == count {
                with(self.files.iter().map(hash).max()).for_each(|name| _ = chosen.remove(name));
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

/// The id of an image, by its name.
pub(crate) fn image_id(name: &str) -> String {
    format!("{:016x}", hash_of(name, 0))
}

/// The normal components of a path, separated by `/`.
fn name_of(relative: &Path) -> String {
    let parts = relative.components().filter(|part| matches!(part, Component::Normal(_)));
    let mut parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    for folder in parts.iter_mut().rev().skip(1).filter(|folder| *folder == "images") {
        *folder = "images_".into();
    }
    parts.join("/")
}

/// The name of a video's file or folder, and one that no other video has.
pub(super) fn video_name(path: &Path, taken: &mut HashSet<String>) -> (String, String) {
    let own = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let own = own.map_or_else(|| "video".into(), |stem| stem.to_string_lossy().into_owned());
    let name = free_name(&own, "", |name| taken.insert(name.to_lowercase()));
    (own, name)
}

/// The first name that is free: without a number, or with one from 2.
pub(super) fn free_name(stem: &str, extension: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
    let (mut name, mut number) = (format!("{stem}{extension}"), 1);
    while !is_free(&name) {
        number += 1;
        name = format!("{stem}-{number}{extension}");
    }
    name
}

/// Splits `a/b.c.jpg` into `a/b.c` and `.jpg`.
pub(super) fn split_extension(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[file..].rfind('.') {
        Some(dot) if dot > 0 => name.split_at(file + dot),
        _ => (name, ""),
    }
}

impl Shard {
    /// Shard `index` of `count`, from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if `index` is not in 1 to `count`.
    pub fn new(index: u32, count: u32) -> Result<Self> {
        if index == 0 || index > count {
            let message = format!("shard {index}/{count}: expected 1/{count} to {count}/{count}");
            return Err(Error::invalid_argument(message));
        }
        Ok(Self { index, count })
    }

    /// Its number, from 1.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The number of shards.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// `true` if the image with this path below its input folder is in this shard.
    pub fn contains(&self, path: &str) -> bool {
        hash_of(path, 0) % u64::from(self.count) == u64::from(self.index - 1)
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').map(|(index, count)| (index.trim().parse(), count.trim().parse()));
        match numbers {
            Some((Ok(index), Ok(count))) if count > 0 => Self::new(index, count),
            _ => Err(Error::invalid_argument(format!("shard {text}: expected two numbers, such as 1/8"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(relative: &str, root: &str) -> FoundImage {
        FoundImage { path: Path::new(root).join(relative), relative: relative.into(), frame: None }
    }

    #[test]
    fn names_are_unique() {
        let cases: [(&[(&str, &str)], &[&str]); 6] = [
            (&[("b.png", "/x"), ("a/b.png", "/x")], &["a/b.png", "b.png"]),
            (&[("b.png", "/x"), ("b.png", "/y"), ("b.png", "/x")], &["b-2.png", "b.png"]),
            (&[("b.png", "/x"), ("b.jpg", "/x"), ("B.gif", "/x")], &["B-3.gif", "b-2.jpg", "b.png"]),
            (&[("b-2.png", "/x"), ("b.png", "/x"), ("b.png", "/y")], &["b-2.png", "b-3.png", "b.png"]),
            (&[("images/images/images", "/x")], &["images_/images_/images"]),
            (&[("../x/./y.png", "/x"), ("/z/y.png", "/x")], &["x/y.png", "z/y.png"]),
        ];
        for (files, expected) in cases {
            let set = ImageSet::new(files.iter().map(|(name, root)| found(name, root)));
            let names: Vec<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
            assert_eq!(names, expected, "{files:?}");
        }
    }

    #[test]
    fn shards_and_splits_depend_on_names_alone() {
        let set = ImageSet::new((0..1000).map(|i| found(&format!("{i}.png"), "/x")));
        let mut times = vec![0; 1000];
        for index in 1..=7 {
            let shard = Shard::new(index, 7).expect("it is one of seven");
            let inside = set.files().iter().enumerate().filter(|(_, file)| shard.contains(&file.name));
            inside.for_each(|(i, _)| times[i] += 1);
        }
        assert!(times.iter().all(|times| *times == 1), "every image is in one shard");
        let tenth = set.validation(0.1);
        assert!((70..130).contains(&tenth.len()), "{}", tenth.len());
        assert!(set.validation(0.3).is_superset(&tenth), "a larger share takes more");
        assert_eq!(set.validation(0.0).len(), 0);
        for (count, share, expected) in [(2, 0.000_001, 1), (2, 0.999_999, 1), (1, 0.000_001, 0)] {
            let set = ImageSet::from_named(set.files()[..count].to_vec());
            assert_eq!(set.validation(share).len(), expected, "{count} images, {share}");
        }
        let frame = |video: &str, index: u64| ImageFile {
            path: PathBuf::new(),
            name: format!("{video}_{index:06}.jpg"),
            frame: Some(VideoFrame { video: video.into(), index }),
        };
        let videos = |names: &[&str]| {
            let frames = names.iter().flat_map(|name| (0..20).map(|at| frame(name, 10 * at)));
            ImageSet::from_named(frames.collect())
        };
        let one = videos(&["a"]);
        let mut end: Vec<&str> = one.validation(0.1).into_iter().collect();
        end.sort_unstable();
        assert_eq!(end, ["a_000180.jpg", "a_000190.jpg"], "the end of a video that is alone");
        let two = videos(&["a", "b"]);
        for share in [0.1, 0.9] {
            let chosen = two.validation(share);
            assert_eq!(chosen.len(), 20, "one of two videos, {share}");
            assert!(chosen.iter().all(|name| name[..1] == chosen.iter().next().expect("20")[..1]));
        }
        // The hashes must never change: data sets grow over months.
        assert_eq!((hash_of("a/b.png", 0), hash_of("a/b.png", 8)), HASHES);
    }

    /// By Python's `hashlib.sha256(b"a/b.png").digest()`.
    const HASHES: (u64, u64) = (9_869_617_115_036_759_515, 2_528_965_313_947_119_814);

    #[test]
    fn shards_count_from_one() {
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
