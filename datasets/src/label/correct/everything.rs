//! The labels of a whole data set as they are in its label files now, for evaluations.

use std::path::{Path, PathBuf};

use ocelli::{Error, Result};

use super::{CorrectedSet, LabelFile, Labels};
use crate::label::Record;
use crate::label::store::{COCO_FILE, Owner, State};

/// The labels of a data set of `ocelli label`.
pub(crate) struct AllLabels {
    /// The names of the classes, by id.
    pub classes: Vec<String>,
    /// The images that are labelled; without any if the data set has no label files of YOLO.
    pub images: Vec<ImageLabels>,
    /// Label files that a person changed and that are not YOLO's.
    pub elsewhere: Vec<String>,
}

/// An image and its labels.
pub(crate) struct ImageLabels {
    /// The name in `annotations.json`.
    pub name: String,
    /// The label file, below the data set.
    pub label_file: String,
    /// The file of the image.
    pub path: PathBuf,
    /// Width and height of the upright image.
    pub size: (u32, u32),
    /// The content of the label file.
    pub labels: Labels,
}

/// Reads the label files of a data set; `None` for a folder that is none.
///
/// # Errors
/// As [`CorrectedSet::open`] and [`CorrectedSet::labels`]; [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) for a
/// class that the data set does not have.
pub(crate) fn all_labels(root: &Path) -> Result<Option<AllLabels>> {
    if State::load(root)?.contents.is_none() {
        return Ok(None);
    }
    let mut set = CorrectedSet { root: root.to_owned(), ..CorrectedSet::default() };
    set.read()?;
    let mut book = set.peek()?;
    let mut all = AllLabels { classes: set.classes.clone(), images: Vec::new(), elsewhere: Vec::new() };
    for image in &set.images {
        let files = book.label_files(&image.name)?;
        let is_yolo = |file: &String| files.iter().any(|label| label.file == *file);
        let corrected = book.corrected_files(&image.name)?.into_iter();
        all.elsewhere.extend(corrected.filter(|file| file != COCO_FILE && !is_yolo(file)));
        let Some(LabelFile { file: label_file, owner, .. }) = files.first() else { continue };
        let second = files.get(1).filter(|other| (*owner, other.owner) == (Owner::Ours, Owner::Person));
        all.elsewhere.extend(second.map(|other| other.file.clone()));
        let labels = set.labels_of(image, &files)?;
        let mut classes = labels.instances.iter().map(|one| one.class);
        if let Some(class) = classes.find(|class| *class >= all.classes.len()) {
            let why = format!("class {class}, expected an id below {}; correct the file", all.classes.len());
            return Err(Error::invalid_data(format!("labels, {label_file}: {why}")));
        }
        let record = Record { name: image.name.clone(), source: image.source.clone(), ..Record::default() };
        all.images.push(ImageLabels {
            name: book.coco_name(&record),
            label_file: label_file.clone(),
            path: set.file(image),
            size: (image.width, image.height),
            labels,
        });
    }
    Ok(Some(all))
}

/// `true` if a person changed one of COCO's files of a data set.
pub(crate) fn is_changed(root: &Path, file: &str) -> Result<bool> {
    let state = State::load(root)?;
    Ok(!state.is_empty() && state.owner(file)? == Owner::Person)
}

#[cfg(test)]
mod tests {
    use ocelli::ErrorKind;

    use crate::eval::Truth;
    use crate::label::folders::{Place, Run, text_of};
    use crate::label::{DataSetOptions, Format};

    #[test]
    fn evaluations_follow_corrections_whichever_file_has_them() {
        let formats = vec![Format::Yolo, Format::Coco, Format::Voc];
        let options = DataSetOptions { formats, validation_share: 0.0, ..DataSetOptions::default() };
        let place = Place::new();
        place.images(&[("a.png", 40), ("b.png", 80)]);
        place.label(&Run { options, ..Run::default() }).expect("the images can be labelled");
        let open = |name: &str| {
            Truth::open(&place.path(name)).map(|truth| {
                let counts: Vec<usize> =
                    truth.image_ids().iter().map(|id| truth.instances(*id).len()).collect();
                (counts, truth.notes().join("; "))
            })
        };
        assert_eq!(open("set/annotations.json").ok(), Some((vec![1, 1], String::new())));
        // A second instance of another size, and none.
        place.write("set/labels/train/a.txt", &(text_of(40, Format::Yolo) + &text_of(60, Format::Yolo)));
        place.remove("set/labels/train/b.txt");
        let (counts, note) = open("set/annotations.json").expect("the label files decide");
        assert_eq!(counts, [2, 0]);
        assert!(note.contains("2 images") && note.contains("labels/train/a.txt"), "{note}");
        for name in ["set", "set/data.yaml"] {
            assert_eq!(open(name).map(|(counts, _)| counts).ok(), Some(vec![2, 0]), "{name}");
        }
        let before = place.read("set/annotations.json").expect("it was written");
        place.write("set/annotations.json", &(before.clone() + " "));
        let error = open("set/annotations.json").expect_err("two files, two truths");
        assert!(
            error.kind() == ErrorKind::Mismatch && error.to_string().contains("label files as well"),
            "{error}"
        );
        place.write("set/annotations.json", &before);
        place.write("set/labels/train/a.txt", "7 0.5 0.5 0.1 0.1\n");
        let error = open("set/annotations.json").expect_err("the data set has one class");
        assert!(error.to_string().contains("labels/train/a.txt: class 7"), "{error}");
        place.write("set/labels/train/a.txt", &text_of(40, Format::Yolo));
        place.write("set/voc/Annotations/b.xml", "<annotation/>");
        let error = open("set/annotations.json").expect_err("it does not have VOC's corrections");
        assert!(error.to_string().contains("voc/Annotations/b.xml"), "{error}");
    }
}
