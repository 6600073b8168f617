//! The labels of a whole data set as they are in its label files now, for evaluations.

use std::path::{Path, PathBuf};

use ocelli::{Error, Result};

use super::coco::instances_of;
use super::{CorrectedSet, Labels, journal_path};
use crate::label::Format;
use crate::label::store::{COCO_FILE, Journal, State};

/// The labels of a data set of `ocelli label`.
#[derive(Default)]
pub(crate) struct AllLabels {
    /// The names of the classes, by id.
    pub classes: Vec<String>,
    /// The images that are labelled; in a data set without label files of YOLO, those that a person corrected.
    pub images: Vec<ImageLabels>,
    /// `true` if the data set has label files of YOLO, which `images` are then all of.
    pub has_label_files: bool,
    /// `true` if these label files have boxes alone.
    pub has_boxes: bool,
    /// Files that a person changed and that have other labels than these.
    pub elsewhere: Vec<String>,
    /// Why what was changed in COCO's files is not among these.
    pub unread: Option<Error>,
    /// The names of all images, each with that in COCO's files.
    pub names: Vec<(String, String)>,
}

/// An image and its labels.
pub(crate) struct ImageLabels {
    /// The name in the data set.
    pub set_name: String,
    /// The label file, below the data set.
    pub label_file: String,
    /// The file of the image.
    pub path: PathBuf,
    /// Width and height of the upright image.
    pub size: (u32, u32),
    /// The labels that all other files follow: those of the label file.
    pub labels: Labels,
}

/// Reads the label files of a data set; `None` for a folder that is none.
///
/// # Errors
/// As [`CorrectedSet::open`] and [`CorrectedSet::labels`]; [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) for a
/// class that the data set does not have.
pub(crate) fn all_labels(root: &Path) -> Result<Option<AllLabels>> {
    let state = State::load(root)?;
    let Some(contents) = &state.contents else { return Ok(None) };
    let options = contents.options.clone();
    let mut set = CorrectedSet { root: root.to_owned(), ..CorrectedSet::default() };
    set.read()?;
    let (state, unread) = match state.follow_annotations(&options, None) {
        Ok(state) => (state, None),
        Err(why) => (State::load(root)?, Some(why)),
    };
    let (mut book, (journal, _)) = (set.book(state)?, Journal::open_existing(&journal_path(root))?);
    let mut all = AllLabels {
        classes: set.classes.clone(),
        unread,
        has_boxes: options.has(Format::Yolo),
        ..AllLabels::default()
    };
    for image in &set.images {
        let files = book.label_files(&image.name)?;
        let corrected = book.corrected_files(&image.name)?;
        let mut unclear = Vec::new();
        let record = book.corrected(&journal, &image.name, &mut unclear)?.unwrap_or_default();
        all.names.push((image.name.clone(), book.coco_name(&record).replace('\\', "/")));
        let first = files.first().map(|first| &first.file);
        all.has_label_files |= first.is_some();
        let Some(label_file) = corrected.first().or(first) else { continue };
        let have_masks = corrected.iter().any(|file| file.ends_with('/'));
        let labels = if first == Some(label_file) && !have_masks {
            set.labels_of(image, &files)?
        } else {
            let mut instances = instances_of(&record);
            for (own, one) in instances.iter_mut().zip(&record.instances) {
                (own.mask, own.polygon) = (record.mask(one), None);
            }
            Labels { version: String::new(), is_corrected: true, instances, added: 0 }
        };
        let mut classes = labels.instances.iter().map(|one| one.class);
        if let Some(class) = classes.find(|class| *class >= all.classes.len()) {
            let why = format!("class {class}, expected an id below {}; correct the file", all.classes.len());
            return Err(Error::invalid_data(format!("labels, {label_file}: {why}")));
        }
        // COCO's files have what counts, whichever it is.
        unclear.retain(|why| !why.starts_with(COCO_FILE));
        all.elsewhere.extend(unclear.iter().filter_map(|why| Some(why.split_once(": ")?.0.to_owned())));
        all.images.push(ImageLabels {
            set_name: image.name.clone(),
            label_file: label_file.clone(),
            path: set.file(image),
            size: (image.width, image.height),
            labels,
        });
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use ocelli::ErrorKind;

    use crate::eval::Truth;
    use crate::label::folders::{MINE, Place, Run, text_of};
    use crate::label::{DataSetOptions, Format};

    #[test]
    fn evaluations_follow_corrections_whichever_file_has_them() {
        let formats = vec![Format::Yolo, Format::Coco, Format::Voc];
        let options = DataSetOptions { formats, validation_share: 0.0, ..DataSetOptions::default() };
        let place = Place::new();
        place.images(&[("a.png", 40), ("b.png", 80)]);
        let run = Run { options, ..Run::default() };
        place.label(&run).expect("the images can be labelled");
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
        // Written by another program, and with a box elsewhere.
        place.write("set/annotations.json", &(before.clone() + " "));
        assert_eq!(open("set/annotations.json").map(|(counts, _)| counts).ok(), Some(vec![2, 0]));
        place.write("set/annotations.json", &before.replacen("[2.0,", "[32.0,", 1));
        for name in ["set", "set/annotations.json", "set/data.yaml"] {
            let error = open(name).expect_err("two files, two truths");
            assert!(
                error.kind() == ErrorKind::Mismatch && error.to_string().contains("labels/train/a.txt"),
                "{error}"
            );
        }
        place.write("set/annotations.json", &before);
        place.write("set/labels/train/a.txt", "7 0.5 0.5 0.1 0.1\n");
        let error = open("set/annotations.json").expect_err("the data set has one class");
        assert!(error.to_string().contains("labels/train/a.txt: class 7"), "{error}");
        place.write("set/labels/train/a.txt", MINE);
        // Neither image has an object in VOC's files, and only one of them has one in YOLO's.
        place.write("set/voc/Annotations/b.xml", "<annotation/>");
        assert_eq!(open("set/annotations.json").map(|(counts, _)| counts).ok(), Some(vec![1, 0]));
        place.write("set/voc/Annotations/a.xml", "<annotation/>");
        let error = open("set/annotations.json").expect_err("two files, two truths");
        assert!(error.to_string().contains("voc/Annotations/a.xml"), "{error}");
        let unclear = place.label(&run).expect("nothing is new").unclear;
        assert!(unclear.len() == 1 && unclear[0].starts_with("voc/Annotations/a.xml: "), "{unclear:?}");
        // Without those in YOLO's files, VOC's count.
        place.write("set/labels/train/a.txt", "");
        assert_eq!(open("set").map(|(counts, _)| counts).ok(), Some(vec![0, 0]));
    }

    #[test]
    fn evaluations_follow_corrections_in_files_of_vocs() {
        for formats in [vec![Format::Yolo, Format::Coco, Format::Voc], vec![Format::Coco, Format::Voc]] {
            let options = DataSetOptions { formats, validation_share: 0.0, ..DataSetOptions::default() };
            let run = Run { options, ..Run::default() };
            let place = Place::new();
            place.images(&[("a.png", 40), ("b.png", 80)]);
            place.label(&run).expect("the images can be labelled");
            place.write("set/voc/Annotations/b.xml", "<annotation/>");
            for _ in 0..2 {
                let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
                let counts: Vec<_> = truth.image_ids().iter().map(|id| truth.instances(*id).len()).collect();
                assert_eq!(counts, [1, 0]);
                assert!(place.label(&run).expect("nothing is new").unclear.is_empty());
            }
        }
    }
}
