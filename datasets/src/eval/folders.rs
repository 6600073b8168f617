//! Ground truth in folders: YOLO's label files and Pascal VOC's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use hotcoco::types::Dataset;
use image::{ImageDecoder, metadata::Orientation};
use ocelli::{Error, ErrorKind, Image, Result};
use ocelli_export::read_text;
use serde::Deserialize;

use super::Truth;
use super::entries::entries;
use super::labelled::{annotation, category, data_set, image, unreadable};
use crate::label::{all_labels, find_images, parse_labels};

/// The content of a `data.yaml`.
#[derive(Deserialize)]
struct DataFile {
    path: Option<PathBuf>,
    train: Option<Paths>,
    val: Option<Paths>,
    test: Option<Paths>,
    names: Names,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Paths {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    List(Vec<String>),
    ById(BTreeMap<u64, String>),
}

/// Names of COCO's file in a folder of images, as `ocelli label` and others write it.
const COCO_FILES: [&str; 2] = ["annotations.json", "_annotations.coco.json"];
/// Folders of Pascal VOC, below the one that is named.
const VOC_FOLDERS: [&str; 3] = ["", "voc", "VOC2012"];
/// Names of the file that describes a data set of YOLO.
const DATA_FILES: [&str; 3] = ["data.yaml", "data.yml", "dataset.yaml"];
/// Names of the file with the classes.
const CLASS_FILES: [&str; 4] = ["classes.txt", "labels/classes.txt", "obj.names", "labels.txt"];

fn refuse(path: &Path, why: &str) -> Error {
    unreadable(ErrorKind::InvalidArgument, path, why)
}

impl Truth {
    /// Reads annotations: a COCO file; a YOLO data set by its folder or `data.yaml`; a Pascal VOC data set by its folder.
    ///
    /// Labels that a person corrected in a data set of `ocelli label` count, whichever file has them: see
    /// [`notes`](Self::notes).
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read; [`ErrorKind::InvalidData`], with the file and the entry, if it is not
    /// of its format, has no image or no category, or refers to one that it does not have; [`ErrorKind::Mismatch`] if a person
    /// corrected labels in files that contradict each other; [`ErrorKind::InvalidArgument`] if a folder is no data set.
    pub fn open(path: &Path) -> Result<Self> {
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if path.is_dir() || is_yaml { open(path) } else { Self::of_coco(path, None) }
    }
}

/// Finds the format of a folder, or of the folder of a `data.yaml`, and reads it.
fn open(path: &Path) -> Result<Truth> {
    let root = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    if let Some(all) = all_labels(root)? {
        if path.is_dir() && root.join(COCO_FILES[0]).is_file() {
            return coco(path, COCO_FILES[0]);
        }
        if all.has_label_files {
            let note = format!("{}: the label files of {} images", path.display(), all.images.len());
            return Truth::of_labels(path, data_set(all, root, path)?, root, note);
        }
    }
    if !path.is_dir() {
        return yolo(path, root, Some(path));
    }
    if let Some(file) = first_file(path, &DATA_FILES) {
        return yolo(path, path, Some(&file));
    }
    if let Some(folder) = VOC_FOLDERS.iter().map(|name| path.join(name)).find(|folder| is_voc(folder)) {
        return voc(&folder);
    }
    if let Some(name) = COCO_FILES.iter().find(|name| path.join(name).is_file()) {
        return coco(path, name);
    }
    // One split of a data set: its classes are named further up.
    let absolute =
        std::path::absolute(path).map_err(|e| Error::io("cannot read the annotations", path, e))?;
    let names = [&DATA_FILES[..], &CLASS_FILES].concat();
    let above = absolute.ancestors().take(4).find(|folder| first_file(folder, &names).is_some());
    match above {
        Some(above) => yolo(path, above, first_file(above, &DATA_FILES).as_deref()),
        None => Err(refuse(
            path,
            "no data set; expected a COCO file, a folder of YOLO with data.yaml or classes.txt, or a folder of Pascal VOC with \
             Annotations",
        )),
    }
}

/// Reads COCO's file of this name in a folder.
fn coco(folder: &Path, name: &str) -> Result<Truth> {
    let images = folder.join("images");
    Truth::of_coco(&folder.join(name), Some(if images.is_dir() { images } else { folder.to_owned() }))
}

/// The first of some files that a folder has.
fn first_file(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|file| file.is_file())
}

/// Reads a data set of YOLO: `path` is what was named, `root` has the classes.
fn yolo(path: &Path, root: &Path, data: Option<&Path>) -> Result<Truth> {
    let is_split = path.is_dir() && std::path::absolute(path).is_ok_and(|path| path != root) && path != root;
    let (names, mut inputs) = match data {
        Some(file) => read_data_file(file, root)?,
        None => {
            let file = first_file(root, &CLASS_FILES).ok_or_else(|| refuse(path, "no classes.txt"))?;
            let text = read_text(&file, "the classes")?;
            ((0..).zip(lines(&text).map(str::to_owned)).collect(), vec![root.to_owned()])
        }
    };
    if is_split {
        let images = swapped(path, "labels", "images").filter(|images| images.is_dir());
        inputs = vec![images.unwrap_or_else(|| path.to_owned())];
    }
    let mut files = Vec::new();
    for input in &inputs {
        files.extend(images_of(input)?);
    }
    files.sort();
    files.dedup();
    let mut dataset = Dataset {
        categories: names.iter().map(|(id, name)| category(*id, name.clone())).collect(),
        ..Dataset::default()
    };
    let (mut labelled, mut unreadable) = (0, Vec::new());
    for (id, file) in (1..).zip(&files) {
        let Ok(size) = upright_size(file) else {
            unreadable.push(file.display().to_string());
            continue;
        };
        let file_name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        dataset.images.push(image(id, file_name, size));
        let Some(labels) = label_file(file) else { continue };
        labelled += 1;
        let wrong =
            |why: String| Error::invalid_data(format!("cannot read the labels, {}: {why}", labels.display()));
        let text = read_text(&labels, "the labels")?;
        for instance in parse_labels(&text, size).map_err(wrong)? {
            let class = instance.class as u64;
            if !names.contains_key(&class) {
                let classes = names.len();
                return Err(wrong(format!("class {class} has no name; the data set has {classes} classes")));
            }
            dataset.annotations.push(annotation(&instance, id, class));
        }
    }
    if labelled == 0 {
        return Err(refuse(path, &format!("none of {} images has a label file of YOLO", files.len())));
    }
    let mut note = format!("{}: YOLO's label files of {labelled} of {} images", path.display(), files.len());
    if let [first, ..] = &unreadable[..] {
        note += &format!("; {} that cannot be read are left out, {first} among them", unreadable.len());
    }
    Truth::of_labels(path, dataset, root, note)
}

/// The lines with text.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// The classes by id, and where the images are: those of all splits.
fn read_data_file(file: &Path, root: &Path) -> Result<(BTreeMap<u64, String>, Vec<PathBuf>)> {
    let text = read_text(file, "the data set")?;
    let data: DataFile = serde_saphyr::from_str(&text).map_err(|error| {
        let said = error.to_string();
        Error::invalid_data(format!(
            "cannot read the data set, {}: expected YAML with names and the folders train and val: {}",
            file.display(),
            said.lines().next().unwrap_or_default()
        ))
    })?;
    let names = match data.names {
        Names::List(names) => (0..).zip(names).collect(),
        Names::ById(names) => names,
    };
    // Trainers look for `path` below a folder of theirs; beside the file is where a data set was unpacked.
    let base =
        data.path.map(|path| root.join(path)).filter(|base| base.is_dir()).unwrap_or_else(|| root.to_owned());
    let splits = [("val", data.val), ("train", data.train), ("test", data.test)];
    let mut inputs = Vec::new();
    for (split, paths) in splits {
        let paths = match paths {
            None => continue,
            Some(Paths::One(path)) => vec![path],
            Some(Paths::Many(paths)) => paths,
        };
        for path in paths.iter().filter(|path| !path.is_empty()) {
            let path = path.replace('\\', "/");
            // Roboflow's files are one folder off.
            let candidates = [base.join(&path), root.join(&path), base.join(path.trim_start_matches("../"))];
            match candidates.into_iter().find(|candidate| candidate.exists()) {
                Some(found) => inputs.push(found),
                // A split that was not downloaded.
                None if split == "test" => {}
                None => return Err(refuse(file, &format!("{split}: {path}: no such folder"))),
            }
        }
    }
    if inputs.is_empty() {
        return Err(refuse(file, "it names no folder of images: expected train or val"));
    }
    Ok((names, inputs))
}

/// The images of a folder, or of a list whose paths are relative to it.
fn images_of(input: &Path) -> Result<Vec<PathBuf>> {
    if input.is_file() {
        let text = read_text(input, "the list of images")?;
        let folder = input.parent().unwrap_or(input);
        return Ok(lines(&text).map(|line| folder.join(line.trim_start_matches("./"))).collect());
    }
    let found = find_images(&[input.to_owned()], Path::new(""))?;
    Ok(found.into_iter().map(|image| image.path).collect())
}

/// The path with the last component of a name replaced.
fn swapped(path: &Path, from: &str, to: &str) -> Option<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let at = parts.iter().rposition(|part| part.as_os_str() == from)?;
    let part = |(number, part): (usize, &Component<'_>)| {
        if number == at { to.into() } else { part.as_os_str().to_owned() }
    };
    Some(parts.iter().enumerate().map(part).collect())
}

/// The label file of an image: below `labels` instead of `images`, or beside it.
fn label_file(image: &Path) -> Option<PathBuf> {
    let labels = swapped(image, "images", "labels").into_iter().chain([image.to_owned()]);
    labels.map(|path| path.with_extension("txt")).find(|path| path.is_file())
}

/// The size of an image as it is shown, by its header.
fn upright_size(path: &Path) -> Result<(u32, u32)> {
    let of_header = || -> image::ImageResult<(u32, u32)> {
        let mut decoder = image::ImageReader::open(path)?.with_guessed_format()?.into_decoder()?;
        let (width, height) = decoder.dimensions();
        Ok(match decoder.orientation()? {
            Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH => (height, width),
            _ => (width, height),
        })
    };
    of_header().or_else(|_| Image::open(path).map(|image| (image.width(), image.height())))
}

fn is_voc(folder: &Path) -> bool {
    let is_xml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "xml");
    folder.join("Annotations").is_dir() || entries(folder).is_ok_and(|there| there.iter().any(is_xml))
}

/// Reads a data set of Pascal VOC. Difficult objects are as crowds: finding them is neither right nor wrong.
fn voc(folder: &Path) -> Result<Truth> {
    let whole = folder.join("Annotations");
    let whole = if whole.is_dir() { whole } else { folder.to_owned() };
    let mut dataset = Dataset::default();
    let mut names = Vec::new();
    let mut folders = vec![whole.clone()];
    while let Some(below) = folders.pop() {
        let part = hotcoco::convert::voc_to_coco(&below)
            .map_err(|e| unreadable(ErrorKind::InvalidData, &below, &e).with_source(e))?;
        let name_of =
            |id: u64| part.categories.iter().find(|known| known.id == id).map(|known| known.name.clone());
        let first = dataset.images.len() as u64;
        let place = below.strip_prefix(&whole).unwrap_or(Path::new(""));
        dataset.images.extend(part.images.into_iter().map(|mut image| {
            image.id += first;
            image.file_name = voc_image(folder, place, &image.file_name);
            image
        }));
        for mut annotation in part.annotations {
            names.push(name_of(annotation.category_id).unwrap_or_default());
            annotation.image_id += first;
            dataset.annotations.push(annotation);
        }
        folders.extend(entries(&below)?.into_iter().rev().filter(|path| path.is_dir()));
    }
    let all: BTreeSet<&String> = names.iter().collect();
    let ids: BTreeMap<&String, u64> = all.into_iter().zip(1..).collect();
    names
        .iter()
        .zip(&mut dataset.annotations)
        .for_each(|(name, annotation)| annotation.category_id = ids[name]);
    dataset.categories = ids.into_iter().map(|(name, id)| category(id, name.clone())).collect();
    let note = format!("{}: Pascal VOC's annotations of {} images", folder.display(), dataset.images.len());
    Truth::of_labels(folder, dataset, folder, note)
}

/// The image of an annotation file, relative to the folder; `place` is where the file is below `Annotations`.
fn voc_image(folder: &Path, place: &Path, name: &str) -> String {
    let name = name.replace('\\', "/");
    let mut candidates = Vec::new();
    for images in ["JPEGImages", "images", ""] {
        candidates.push(Path::new(images).join(place).join(&name));
        candidates.push(Path::new(images).join(&name));
    }
    let found = candidates.into_iter().find(|path| folder.join(path).is_file());
    found.map_or(name, |path| path.to_string_lossy().into_owned())
}
