//! Corrections that are saved, and runs that come after them.

use ocelli::{BoundingBox, ErrorKind, Mask};

use super::CorrectedSet;
use crate::label::folders::{Place, Run, place_of, text_of};
use crate::label::formats::yolo_line::Line;
use crate::label::{DataSetOptions, Existing, Format, LabelledInstance};

fn options(formats: &[Format]) -> DataSetOptions {
    DataSetOptions { formats: formats.to_vec(), validation_share: 0.0, ..DataSetOptions::default() }
}

fn new(class: usize, edges: [f32; 4]) -> LabelledInstance {
    let [x1, y1, x2, y2] = edges;
    LabelledInstance { line: None, class, bbox: BoundingBox::new(x1, y1, x2, y2), polygon: None, mask: None }
}

fn labelled(formats: &[Format]) -> (Place, Run, CorrectedSet) {
    let run = Run { classes: vec!["dog", "cat"], options: options(formats), ..Run::default() };
    let place = Place::new();
    place.images(&[("a.png", 40), ("b/b.png", 80)]);
    place.label(&run).expect("the images can be labelled");
    let set = CorrectedSet::open(&place.path("set")).expect("it is a data set");
    (place, run, set)
}

/// Instances of classes that were added after a correction are beside the person's until they are saved or removed.
#[test]
fn instances_of_added_classes_are_offered_once() {
    for formats in [&[Format::Yolo][..], &[Format::YoloSeg], &[Format::Yolo, Format::YoloSeg]] {
        for keeps in [true, false] {
            let (place, mut run, set) = labelled(formats);
            let image = set.images()[0].clone();
            let labels = set.labels(&image).expect("there are labels");
            let corrected = [new(1, [0.0, 0.0, 32.0, 16.0])];
            set.save(&image, &labels.version, &corrected).expect("it can be saved");
            run.classes.push("car");
            run.finds_added = true;
            assert!(!place.label(&run).expect("a class can be added").added.is_empty());
            let stale = set.save(&image, &labels.version, &corrected).expect_err("the labels are others");
            assert_eq!(stale.kind(), ErrorKind::Mismatch, "{stale}");

            let set = CorrectedSet::open(&place.path("set")).expect("it is a data set");
            let mut labels = set.labels(&image).expect("there are labels");
            let classes: Vec<usize> = labels.instances.iter().map(|one| one.class).collect();
            assert_eq!((classes, labels.added), (vec![1, 2], 1), "{formats:?}");
            assert_eq!(labels.instances[1].polygon.is_some(), formats == [Format::YoloSeg], "{formats:?}");
            if !keeps {
                labels.instances.truncate(1);
            }
            let saved = set.save(&image, &labels.version, &labels.instances).expect("it can be saved");
            for again in [false, true] {
                if again {
                    assert!(place.label(&run).expect("nothing is left").added.is_empty());
                }
                let now = set.labels(&image).expect("there are labels");
                assert_eq!((now.instances.len(), now.added), (labels.instances.len(), 0), "{formats:?}");
                assert_eq!(now.instances, saved.instances);
            }
            let first = if formats == [Format::YoloSeg] { Format::YoloSeg } else { Format::Yolo };
            let text = place.read("set/labels/train/a.txt").expect("it was saved");
            let line = format!("2{}", place_of(40, first, 4));
            assert_eq!(text.contains(&line), keeps, "{line}: {text}");
        }
    }
}

#[test]
fn a_saved_file_is_the_persons() {
    for with_changes in [true, false] {
        let (place, run, set) = labelled(&[Format::Yolo]);
        let image = set.images()[0].clone();
        assert_eq!((image.name.as_str(), set.classes().len()), ("a.png", 2));
        let labels = set.labels(&image).expect("there are labels");
        assert!(!labels.is_corrected);
        let mut instances = labels.instances.clone();
        if with_changes {
            instances[0].class = 1;
            instances.push(new(0, [0.0, 0.0, 32.0, 16.0]));
        }
        let saved = set.save(&image, &labels.version, &instances).expect("it can be saved");
        assert!(saved.is_corrected);
        assert_eq!(saved.instances.len(), instances.len());
        let text = place.read("set/labels/train/a.txt").expect("it was saved");
        let ours = text_of(40, Format::Yolo);
        let expected = if with_changes {
            format!("1 {}0 0.250000 0.125000 0.500000 0.250000\n", ours.trim_start_matches("0 "))
        } else {
            ours
        };
        assert_eq!(text, expected);
        // Another image under the same name would have other labels.
        place.images(&[("a.png", 50), ("b/b.png", 90)]);
        for existing in [false, true] {
            let existing = Existing { restart: existing, ..Existing::default() };
            place.label(&Run { existing, ..run.clone() }).expect("the images can be labelled");
            assert_eq!(place.read("set/labels/train/a.txt").as_ref(), Some(&expected), "{with_changes}");
            assert_eq!(place.read("set/labels/train/b/b.txt"), Some(text_of(90, Format::Yolo)));
        }
        // Removed by hand afterwards, it stays removed.
        place.remove("set/labels/train/a.txt");
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/labels/train/a.txt"), None);
        let discard = Existing { discard_corrections: true, ..Existing::default() };
        place.label(&Run { existing: discard, ..run }).expect("the images can be labelled");
        assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(50, Format::Yolo)));
    }
}

#[test]
fn versions_classes_lines_and_boxes_are_checked() {
    let (place, _, set) = labelled(&[Format::Yolo]);
    let image = set.images()[0].clone();
    let labels = set.labels(&image).expect("there are labels");
    let twice = [labels.instances.clone(), labels.instances.clone()].concat();
    let cases = [
        ("0", vec![], ErrorKind::Mismatch),
        (&*labels.version, vec![new(2, [0.0, 0.0, 1.0, 1.0])], ErrorKind::InvalidArgument),
        (&*labels.version, vec![new(0, [1.0, 0.0, 1.0, 1.0])], ErrorKind::InvalidArgument),
        (&*labels.version, vec![new(0, [70.0, 0.0, 71.0, 1.0])], ErrorKind::InvalidArgument),
        (&*labels.version, vec![new(0, [f32::NAN, 0.0, 71.0, 1.0])], ErrorKind::InvalidArgument),
        (&*labels.version, twice, ErrorKind::InvalidArgument),
    ];
    for (version, instances, kind) in cases {
        let refused = set.save(&image, version, &instances).expect_err("it is wrong");
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(40, Format::Yolo)));
    place.write("set/labels/train/a.txt", "0 0.5 0.5 0.1\n");
    let refused = set.labels(&image).expect_err("it is no line");
    assert!(refused.to_string().contains("line 1"), "{refused}");
    assert!(CorrectedSet::open(&place.path("images")).is_err());
    assert!(CorrectedSet::open(&place.path("none")).is_err());
}

#[test]
fn polygons_move_with_their_boxes() {
    let (place, run, set) = labelled(&[Format::Yolo, Format::YoloSeg]);
    let image = set.images()[0].clone();
    // A box of 20 pixels with a triangle in it, and a polygon without a box.
    place.write("set/labels/train/a.txt", "0 0.500000 0.500000 0.312500 0.312500\n");
    let triangle = "0 0.343750 0.343750 0.656250 0.343750 0.656250 0.656250\n";
    let other = "1 0.0 0.0 0.1 0.0 0.1 0.1\n";
    place.write("set/segments/labels/train/a.txt", &format!("{triangle}{other}"));
    let labels = set.labels(&image).expect("there are labels");
    assert!(labels.is_corrected);
    let mut instances = labels.instances;
    instances[0].bbox = BoundingBox::new(2.0, 22.0, 22.0, 62.0);
    instances.push(new(1, [32.0, 0.0, 64.0, 64.0]));
    set.save(&image, &labels.version, &instances).expect("it can be saved");
    let boxes = "0 0.187500 0.656250 0.312500 0.625000\n1 0.750000 0.500000 0.500000 1.000000\n";
    assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(boxes));
    let moved = "0 0.031250 0.343750 0.343750 0.343750 0.343750 0.968750\n";
    let rectangle = "1 0.500000 0.000000 1.000000 0.000000 1.000000 1.000000 0.500000 1.000000\n";
    let polygons = format!("{other}{moved}{rectangle}");
    assert_eq!(place.read("set/segments/labels/train/a.txt"), Some(polygons.clone()));
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read("set/segments/labels/train/a.txt"), Some(polygons));
    // A set of polygons alone.
    let (place, _, set) = labelled(&[Format::YoloSeg]);
    let image = set.images()[0].clone();
    place.write("set/labels/train/a.txt", triangle);
    let labels = set.labels(&image).expect("there are labels");
    assert_eq!(labels.instances[0].polygon.as_ref().map(Vec::len), Some(3));
    let saved = set.save(&image, &labels.version, &[]).expect("it can be saved");
    assert_eq!((saved.instances.len(), place.read("set/labels/train/a.txt").as_deref()), (0, Some("")));
}

#[test]
fn tables_and_review_pages_have_the_labels_as_they_are() {
    for formats in [&[Format::Yolo][..], &[Format::YoloSeg], &[Format::Coco]] {
        let (place, mut run, set) = labelled(formats);
        run.options.review = Some(9);
        let (first, second) = (&set.images()[0], &set.images()[1]);
        let labels = set.labels(first).expect("there are labels");
        let instances = [labels.instances, vec![new(1, [0.0, 0.0, 32.0, 16.0]); 2]].concat();
        set.save(first, &labels.version, &instances).expect("it can be saved");
        match formats[0] {
            Format::Coco => {
                let version = set.labels(second).expect("there are labels").version;
                set.save(second, &version, &[]).map(drop).expect("it can be saved");
            }
            _ => place.remove("set/labels/train/b/b.txt"),
        }
        let summary = place.label(&run).expect("nothing is new");
        let counts: Vec<_> = summary.classes.iter().map(|class| (class.instances, class.images)).collect();
        assert_eq!(counts, [(1, 1), (2, 1)], "{formats:?}");
        assert_eq!(summary.corrected, ["a.png", "b/b.png"], "{formats:?}");
        let page = place.read("set/review/sample.csv").unwrap_or_default();
        assert!(page.contains(",3,sample-001.jpg") && page.contains(",0,sample-001.jpg"), "{page}");
        // The line that was found keeps its score, and is not certain.
        assert!(page.contains(",0.90000,3,"), "{page}");
    }
}

/// A disc of pixels around a point.
fn disc(centre: [i64; 2], radius: i64, (width, height): (u32, u32)) -> Mask {
    let is_in = |x: u32, y: u32| {
        (i64::from(x) - centre[0]).pow(2) + (i64::from(y) - centre[1]).pow(2) <= radius * radius
    };
    let pixels: Vec<u8> = (0..width * height).map(|at| u8::from(is_in(at % width, at / width))).collect();
    Mask::from_bitmap(&pixels, width, height).expect("it has the size")
}

#[test]
fn a_mask_replaces_what_an_instance_had() {
    for formats in
        [&[Format::Yolo][..], &[Format::YoloSeg], &[Format::Yolo, Format::YoloSeg], &[Format::Coco]]
    {
        let (place, run, set) = labelled(formats);
        let image = set.images()[0].clone();
        let size = (image.width, image.height);
        if formats.len() == 2 {
            // A polygon that is the box's.
            place.write("set/labels/train/a.txt", "0 0.500000 0.500000 0.312500 0.312500\n");
            let triangle = "0 0.343750 0.343750 0.656250 0.343750 0.656250 0.656250\n";
            place.write("set/segments/labels/train/a.txt", triangle);
        }
        let labels = set.labels(&image).expect("there are labels");
        let (found, fresh) = (disc([40, 40], 9, size), disc([15, 20], 7, size));
        let mut instances = labels.instances.clone();
        instances[0].mask = Some(found.clone());
        // The box that comes with a mask does not count.
        instances.push(LabelledInstance { mask: Some(fresh.clone()), ..new(1, [0.0, 0.0, 1.0, 1.0]) });
        let small =
            LabelledInstance { mask: Some(disc([5, 5], 3, (20, 20))), ..new(1, [0.0, 0.0, 9.0, 9.0]) };
        let empty = LabelledInstance { mask: Some(disc([-50, 5], 3, size)), ..new(1, [0.0, 0.0, 9.0, 9.0]) };
        for wrong in [small, empty] {
            let refused = set.save(&image, &labels.version, &[wrong]).expect_err("it is wrong");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        }
        let saved = set.save(&image, &labels.version, &instances).expect("it can be saved");
        for (instance, mask) in saved.instances.iter().zip([&found, &fresh]) {
            let expected = mask.bounding_box().expect("it has pixels").to_xyxy();
            let is_near = instance.bbox.to_xyxy().iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1.0);
            assert!(is_near, "{formats:?}: {:?}, expected {expected:?}", instance.bbox);
            assert_eq!(
                instance.polygon.is_some(),
                formats.len() == 1 && formats[0] != Format::Yolo,
                "{formats:?}"
            );
        }
        let after = set.labels(&image).expect("there are labels");
        assert_eq!(after, saved);
        if formats.contains(&Format::YoloSeg) {
            let file =
                if formats.len() == 1 { "set/labels/train/a.txt" } else { "set/segments/labels/train/a.txt" };
            let text = place.read(file).expect("it was written");
            let lines = Line::parse_all(&text, size).expect("they are polygons");
            let areas: Vec<f32> =
                lines.into_iter().map(|line| area_of(&line.polygon.expect("a polygon"))).collect();
            // A trainer fills the pixels whose middles the polygon goes around.
            for (area, mask) in areas.iter().zip([&found, &fresh]) {
                assert!((area / mask.area() as f32 - 0.9).abs() < 0.1, "{areas:?}, {}", mask.area());
            }
            assert_eq!(areas.len(), 2, "{text}");
        }
        // Later runs leave it.
        place.images(&[("a.png", 50)]);
        place.label(&run).expect("the images can be labelled");
        let kept = CorrectedSet::open(&place.path("set")).expect("it is a data set");
        let kept = kept.labels(&kept.images()[0].clone()).expect("there are labels");
        assert_eq!(kept.instances, saved.instances, "{formats:?}");
    }
}

#[test]
fn lines_are_read_as_tools_write_them() {
    let bbox = Some((0, [40.0, 40.0, 60.0, 60.0], None));
    let scored = |score: f32| Some((0, [40.0, 40.0, 60.0, 60.0], Some(score)));
    let cases = [
        // LabelImg, CVAT, Roboflow.
        ("0 0.5 0.5 0.2 0.2", bbox),
        ("0.0 0.5 0.5 0.2 0.2", bbox),
        ("\u{feff}0 0.500000 0.500000 2e-1 .2 ", bbox),
        // Ultralytics and FiftyOne with scores.
        ("0 0.5 0.5 0.2 0.2 0.875", scored(0.875)),
        ("0 0.4 0.4 0.6 0.4 0.6 0.6", bbox),
        ("0 0.4 0.4 0.6 0.4 0.6 0.6 0.5", scored(0.5)),
        ("0 0,5 0,5 0,2 0,2", None),
        ("0 0.5 0.5 0.2 0.2 7", None),
        ("0.5 0.5 0.5 0.2 0.2", None),
        ("-1 0.5 0.5 0.2 0.2", None),
        ("dog 0.5 0.5 0.2 0.2", None),
        ("0 0.5 0.5", None),
    ];
    for (text, expected) in cases {
        let found = Line::parse_all(text, (100, 100));
        let line = found.as_ref().ok().map(|lines| &lines[0]);
        let rounded = |line: &Line| line.bbox.to_xyxy().map(f32::round);
        assert_eq!(line.map(|line| (line.class, rounded(line), line.score)), expected, "{text}: {found:?}");
    }
    let error = Line::parse_all("0 0.5 0.5 0.2 0.2\n0 0,5 0,5 0,2 0,2", (9, 9)).expect_err("a comma");
    assert!(error.starts_with("line 2: expected numbers with a decimal point"), "{error}");
}

#[test]
fn a_line_that_cannot_be_read_is_not_counted() {
    let (place, run, _) = labelled(&[Format::Yolo]);
    let of_b = place.label(&run).expect("nothing is new").classes[0].instances - 1;
    place.write(
        "set/labels/train/a.txt",
        "0.0 0.5 0.5 0.2 0.2 0.7\n7 0.5 0.5 0.2 0.2\n0 0,5 0,5 0,2 0,2\n0 1 1 1 1 1\n",
    );
    assert_eq!(place.label(&run).expect("nothing is new").classes[0].instances, of_b + 2);
}

/// By the shoelace formula.
pub(super) fn area_of(points: &[[f32; 2]]) -> f32 {
    let next = points.iter().cycle().skip(1);
    (points.iter().zip(next).map(|([x1, y1], [x2, y2])| x1 * y2 - x2 * y1).sum::<f32>() / 2.0).abs()
}
