//! The paths of a data set's files, by format, and what each file is to mean.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::label::formats::youtube_vis::YOUTUBE_VIS_FILE;
use crate::label::images::{hash_of, split_extension};
use crate::label::{DataSetOptions, Format};

/// The folder of a split.
fn split(validation: bool) -> &'static str {
    if validation { "val" } else { "train" }
}

/// The path of an image below `images/`: its name, with an extension that trainers know.
pub(crate) fn image_path(name: &str, validation: bool) -> String {
    let (stem, extension) = split_extension(name);
    let extension = match extension.to_lowercase().as_str() {
        ".jpe" | ".jfif" => ".jpg",
        ".dib" => ".bmp",
        _ if is_converted(name) => ".png",
        _ => extension,
    };
    format!("{}/{stem}{extension}", split(validation))
}

/// The folders of images, of all formats.
pub(crate) const COPIES: [&str; 5] =
    ["images/train", "images/val", "segments/images/train", "segments/images/val", "voc/JPEGImages"];

/// The path of an image in one of these folders.
pub(crate) fn copy_name(name: &str) -> String {
    image_path(name, false)["train/".len()..].to_owned()
}

/// The folder of VOC's images.
pub(crate) const VOC_IMAGES: &str = "voc/JPEGImages/";
/// The folder of what corrected label files lack.
pub(crate) const PROPOSALS: &str = "added/";
/// On record, without a file, for each proposal that the person removed: its classes are not proposed again.
pub(crate) const HANDLED: &str = "added/handled/";
/// The path of an image for VOC, which has one folder for all splits.
pub(crate) fn voc_image(name: &str) -> String {
    format!("{VOC_IMAGES}{}", copy_name(name))
}

/// The folder of the masks of an image.
pub(crate) fn masks_folder(name: &str, validation: bool) -> String {
    format!("masks/{}/{}/", split(validation), split_extension(name).0)
}

/// The label files of an image, with their formats.
pub(crate) fn label_files(options: &DataSetOptions, name: &str, validation: bool) -> Vec<(String, Format)> {
    let yolo = options.yolo_folders().into_iter();
    let yolo =
        yolo.map(|(folder, format)| (format!("{folder}labels/{}", label_path(name, validation)), format));
    let voc = options.has(Format::Voc).then(|| format!("voc/Annotations/{}.xml", split_extension(name).0));
    yolo.chain(voc.map(|file| (file, Format::Voc))).collect()
}

/// The path of a label file below `labels/`.
pub(crate) fn label_path(name: &str, validation: bool) -> String {
    format!("{}/{}.txt", split(validation), split_extension(name).0)
}

/// A path as a link: with `/`, and `%` for what is special in links.
pub(crate) fn link_to(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// `true` if the data set gets a PNG of the image, because trainers do not read its format.
pub(crate) fn is_converted(name: &str) -> bool {
    let extension = split_extension(name).1.to_lowercase();
    !matches!(
        extension.as_str(),
        ".jpg" | ".jpeg" | ".jpe" | ".jfif" | ".png" | ".bmp" | ".dib" | ".tif" | ".tiff" | ".webp"
    )
}

/// The name of COCO's file.
pub(crate) const COCO_FILE: &str = "annotations.json";
/// A file with the labels of all images or of one split, its format, and whether it has the images for validation; `None` has all.
pub(crate) type WholeFile = (&'static str, Format, Option<bool>);
/// Those that are written.
pub(crate) const WHOLE_FILES: [WholeFile; 4] = [
    (COCO_FILE, Format::Coco, None),
    ("annotations_train.json", Format::Coco, Some(false)),
    ("annotations_val.json", Format::Coco, Some(true)),
    (YOUTUBE_VIS_FILE, Format::YoutubeVis, None),
];

/// `true` if a recorded file is of a format that these options do not name.
pub(crate) fn is_dropped(options: &DataSetOptions, file: &str) -> bool {
    let file = file.strip_prefix(PROPOSALS).unwrap_or(file);
    match file.split('/').next().unwrap_or(file) {
        "labels" | "data.yaml" | "classes.txt" => options.yolo_folders().is_empty(),
        "segments" => options.yolo_folders().len() < 2,
        "voc" => !options.has(Format::Voc),
        "masks" => !options.has(Format::Masks),
        _ => WHOLE_FILES.into_iter().any(|(name, format, _)| name == file && !options.has(format)),
    }
}

/// Hashes of the names of the classes.
#[derive(Clone, Debug)]
pub(crate) struct ClassHashes {
    /// That of all names.
    pub all: u64,
    /// The number of names by the hash of the first ones, without that of all.
    earlier: HashMap<u64, usize>,
    /// The number of names.
    pub count: usize,
}

impl ClassHashes {
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.collect();
        let hash = |count: usize| hash_of(&names[..count].join("\n"), 0);
        let earlier = (1..names.len()).map(|count| (hash(count), count)).collect();
        Self { all: hash(names.len()), earlier, count: names.len() }
    }

    /// The hash of the first names.
    pub fn of_first(&self, count: usize) -> u64 {
        let first = self.earlier.iter().find(|(_, earlier)| **earlier == count);
        first.map_or(self.all, |(hash, _)| *hash)
    }

    /// The number of classes if this is the hash of the first ones.
    pub fn earlier(&self, hash: u64) -> Option<usize> {
        self.earlier.get(&hash).copied().filter(|_| hash != self.all)
    }
}

/// The meaning of the lines of a file: its format and its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meaning {
    /// `None` for a file without labels, such as `data.yaml`.
    pub format: Option<Format>,
    /// A hash of the names of the classes.
    pub classes: u64,
}

impl Meaning {
    /// `true` if it is the label file of an image. If the person removes one, its image has no labels; other files are
    /// written again.
    pub(crate) fn is_of_image(self) -> bool {
        matches!(self.format, Some(Format::Yolo | Format::YoloSeg | Format::Voc | Format::Masks))
    }
}

/// The meaning of a file below the output folder, by these options; `None` if this data set does not write it.
pub(crate) fn meaning_of(options: &DataSetOptions, classes: u64, file: &str) -> Option<Meaning> {
    let meaning = |format| Some(Meaning { format, classes });
    for (folder, format) in options.yolo_folders() {
        match file.strip_prefix(folder) {
            Some(below) if below.starts_with("labels/") => return meaning(Some(format)),
            Some("data.yaml" | "classes.txt") => return meaning(None),
            _ => {}
        }
    }
    let has = |format| options.has(format);
    match file {
        _ if file.starts_with("voc/Annotations/") && has(Format::Voc) => meaning(Some(Format::Voc)),
        _ if file.starts_with("masks/") && has(Format::Masks) => meaning(Some(Format::Masks)),
        _ => {
            let format = WHOLE_FILES.into_iter().find(|(name, format, _)| *name == file && has(*format));
            format.and_then(|(_, format, _)| meaning(Some(format)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_get_extensions_that_trainers_know() {
        for (name, image, label) in [
            ("a/b.JPG", "train/a/b.JPG", "train/a/b.txt"),
            ("a.b.jfif", "train/a.b.jpg", "train/a.b.txt"),
            ("b.gif", "train/b.png", "train/b.txt"),
            ("b.ppm", "train/b.png", "train/b.txt"),
            ("no-extension", "train/no-extension.png", "train/no-extension.txt"),
            (".hidden", "train/.hidden.png", "train/.hidden.txt"),
        ] {
            assert_eq!((image_path(name, false), label_path(name, false)), (image.into(), label.into()));
        }
        assert_eq!(image_path("a.png", true), "val/a.png");
    }
}
