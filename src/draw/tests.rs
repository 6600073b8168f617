use image::{Rgb, RgbImage};
use ocelli_tracking::BoundingBox;

use super::label_layout::LabelLayout;
use super::palette::{CHOSEN_COLORS, contrast};
use super::text::Typeface;
use super::{AnnotationStyle, Annotator, Shape, class_color, text_color_on};
use crate::detection::Detection;
use crate::mask::Mask;
use ocelli_error::ErrorKind;

const GREY: Rgb<u8> = Rgb([128; 3]);

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

fn detection(class_id: usize, label: &str, edges: [f32; 4]) -> Detection {
    Detection { class_id, label: label.into(), score: 0.87, bbox: BoundingBox::from(edges), mask: None }
}

fn annotated(width: u32, height: u32, detections: &[Detection]) -> RgbImage {
    let mut image = RgbImage::from_pixel(width, height, GREY);
    Annotator::new().annotate(&mut image, detections).expect("no masks, so none of the wrong size");
    image
}

#[test]
fn only_edges_have_the_class_color() {
    let mut failures = Vec::new();
    for (width, height) in [(64, 64), (224, 200), (1008, 1008), (1920, 1080), (3840, 2160)] {
        for class_id in [0, 3, 57] {
            let (w, h) = (width as f32, height as f32);
            let bbox = [0.25 * w, 0.5 * h, 0.75 * w, 0.875 * h];
            let image = annotated(width, height, &[detection(class_id, "x", bbox)]);
            let color = Rgb(class_color(class_id));
            // A pixel's breadth inside the edge, in the middle of each side; the label lies at the top left.
            let [x1, y1, x2, y2] = bbox.map(|edge| edge as u32);
            let (mid_x, mid_y) = ((x1 + x2) / 2, (y1 + y2) / 2);
            for (x, y) in [(x1, mid_y), (x2 - 1, mid_y), (mid_x, y2 - 1), (x2 - x1 / 4, y1)] {
                if image.get_pixel(x, y) != &color {
                    failures
                        .push(format!("{width}×{height}, class {class_id}: {:?} at {x}, {y}", image[(x, y)]));
                }
            }
            if image[(mid_x, mid_y)] != GREY || image[(mid_x, height / 8)] != GREY {
                failures.push(format!("{width}×{height}: the inside or the outside was drawn on"));
            }
        }
    }
    report(&failures);
}

#[test]
fn labels_are_inside_the_image_for_any_box() {
    let mut failures = Vec::new();
    for (name, bbox) in [
        ("middle", [100.0, 100.0, 200.0, 200.0]),
        ("top", [100.0, 0.0, 200.0, 50.0]),
        ("all", [0.0, 0.0, 300.0, 300.0]),
        ("beyond all", [-1e9, -1e9, 1e9, 1e9]),
        ("right", [290.0, 100.0, 300.0, 200.0]),
        ("bottom right", [298.0, 298.0, 300.0, 300.0]),
        ("top right", [298.0, 0.0, 320.0, 2.0]),
        ("left", [-40.0, 150.0, 1.0, 160.0]),
    ] {
        // Letters on this class's colour are white; the label has no other pixels as light.
        let letters = |bbox| {
            let image = annotated(300, 300, &[detection(0, "MMMM", bbox)]);
            image.pixels().filter(|pixel| pixel.0.iter().all(|&channel| channel > 170)).count()
        };
        let (letters, whole) = (letters(bbox), letters([100.0, 100.0, 200.0, 200.0]));
        // A letter's sub-pixel place shades a few of its pixels otherwise; a cut one loses many more.
        if letters.abs_diff(whole) * 4 > whole || whole < 30 {
            failures.push(format!("{name}: {letters} pixels of letters, {whole} in the middle"));
        }
    }
    report(&failures);
}

#[test]
fn labels_lie_beside_each_other_where_there_is_room() {
    let size = (60.0, 12.0);
    let frame = BoundingBox::new;
    let cases: &[(&str, &[BoundingBox])] = &[
        ("one box twelve times", &[frame(50.0, 50.0, 90.0, 90.0); 12]),
        ("a row", &[frame(0.0, 0.0, 30.0, 30.0), frame(20.0, 0.0, 50.0, 30.0), frame(40.0, 0.0, 70.0, 30.0)]),
        ("the corner", &[frame(195.0, 195.0, 200.0, 200.0); 4]),
        ("the other corner", &[frame(0.0, 0.0, 3.0, 3.0); 4]),
    ];
    let mut failures = Vec::new();
    for (name, frames) in cases {
        let mut placement = LabelLayout::new(200.0, 200.0);
        let tags: Vec<BoundingBox> = frames.iter().map(|&frame| placement.place(frame, 2.0, size)).collect();
        for (index, a) in tags.iter().enumerate() {
            if a.x1 < 0.0 || a.y1 < 0.0 || a.x2 > 200.0 || a.y2 > 200.0 {
                failures.push(format!("{name}: label {index} leaves the image: {a:?}"));
            }
            for b in &tags[..index] {
                if a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2 {
                    failures.push(format!("{name}: {a:?} lies on {b:?}"));
                }
            }
        }
    }
    report(&failures);
    // More labels than there is room for: still inside.
    let mut placement = LabelLayout::new(64.0, 30.0);
    for _ in 0..50 {
        let tag = placement.place(frame(5.0, 5.0, 20.0, 20.0), 1.0, size);
        assert!(tag.x1 >= 0.0 && tag.y1 >= 0.0 && tag.x2 <= 64.0 && tag.y2 <= 30.0, "{tag:?}");
    }
}

#[test]
fn labels_of_shapes_do_not_cover_each_other() {
    let shape = |end: [f32; 2]| Shape {
        points: vec![[60.0, 60.0], end],
        is_closed: false,
        label: "door: 0 in, 0 out".into(),
    };
    let (first, second) = (shape([200.0, 60.0]), shape([60.0, 150.0]));
    let pixels_of_first = |shapes: &[Shape]| {
        let mut image = RgbImage::new(400, 300);
        Annotator::new().draw_shapes(&mut image, shapes);
        image.pixels().filter(|pixel| pixel.0 == class_color(CHOSEN_COLORS)).count()
    };
    let alone = pixels_of_first(std::slice::from_ref(&first));
    assert!(alone > 500, "its label has {alone} pixels");
    assert!(pixels_of_first(&[first, second]) + 60 > alone, "the second label covers the first");
}

#[test]
fn nothing_panics_and_what_is_outside_is_not_drawn() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let cases: &[([f32; 4], bool)] = &[
        ([-INF, -INF, INF, INF], true),
        ([-1e30, 0.0, 1e30, 1.0], true),
        ([0.0, 0.0, 0.01, 0.01], true),
        ([500.0, 500.0, 600.0, 600.0], false),
        ([-9.0, -9.0, -1.0, -1.0], false),
        ([1.0, 1.0, 0.0, 0.0], false),
        ([NAN, 0.0, 1.0, 1.0], false),
        ([0.0, 0.0, NAN, NAN], false),
    ];
    let labels = ["", "x", "two\nlines\t\u{1b}[31m", "東京 🐈‍⬛ اردو", &"long ".repeat(200)];
    let mut failures = Vec::new();
    for size in [(1, 1), (1, 300), (300, 1), (2, 2), (5, 7), (16, 16), (31, 12), (300, 200)] {
        for &(bbox, drawn) in cases {
            for label in labels {
                let image = annotated(size.0, size.1, &[detection(4, label, bbox)]);
                if image.pixels().any(|pixel| *pixel != GREY) != drawn {
                    failures.push(format!("{size:?}, {bbox:?}, {label:?}: drawn should be {drawn}"));
                }
            }
        }
    }
    report(&failures);
    for odd in [NAN, INF, -1.0, 0.0, 1e30] {
        let style = AnnotationStyle {
            line_width: Some(odd),
            font_size: Some(odd),
            show_scores: false,
            mask_opacity: odd,
        };
        let mut image = RgbImage::from_pixel(40, 30, GREY);
        let annotator = Annotator::new().with_style(style);
        annotator.annotate(&mut image, &[detection(1, "odd", [3.0, 3.0, 30.0, 20.0])]).expect("no masks");
    }
}

#[test]
fn masks_tint_what_they_cover() {
    let (width, height) = (120, 100);
    let bitmap: Vec<u8> = (0..width * height)
        .map(|index| u8::from((20..100).contains(&(index % width)) && (30..90).contains(&(index / width))))
        .collect();
    let mut masked = detection(2, "x", [20.0, 30.0, 100.0, 90.0]);
    masked.mask = Some(Mask::from_bitmap(&bitmap, width, height).expect("a bitmap of that size"));
    let image = annotated(width, height, std::slice::from_ref(&masked));
    let color = class_color(2);
    let tinted = color.map(|channel| (128.0 + 0.4 * (f32::from(channel) - 128.0)).round() as u8);
    assert_eq!(image[(60, 60)], Rgb(tinted));
    assert_eq!(image[(110, 95)], GREY);
    // The outline stays where the box is elsewhere.
    masked.bbox = BoundingBox::new(0.0, 0.0, 5.0, 5.0);
    let image = annotated(width, height, std::slice::from_ref(&masked));
    assert_ne!(image[(19, 60)], GREY, "no outline at the left");
    assert_ne!(image[(60, 90)], GREY, "no outline at the bottom");

    let mut other = RgbImage::from_pixel(width + 1, height, GREY);
    let error = Annotator::new().annotate(&mut other, &[masked]).expect_err("a mask of another size");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert_eq!(
        error.to_string(),
        "cannot draw the mask of \"x\": expected 121×100 as the image, got 120×100"
    );
    assert!(other.pixels().all(|pixel| *pixel == GREY));
}

#[test]
fn the_highest_score_is_on_top() {
    let bbox = [20.0, 20.0, 80.0, 80.0];
    let mut weak = detection(1, "weak", bbox);
    weak.score = 0.4;
    for order in [[weak.clone(), detection(0, "sure", bbox)], [detection(0, "sure", bbox), weak]] {
        let image = annotated(100, 100, &order);
        assert_eq!(image[(79, 50)], Rgb(class_color(0)));
    }
}

#[test]
fn labels_that_are_too_wide_shrink_and_then_are_cut() {
    let typeface = Typeface::default();
    let width =
        |text: &str, room: f32| typeface.fit(text, " 0.87", 20.0, (room, 50.0)).map(|line| line.tag_size());
    let (whole, height) = width("refrigerator", 1e4).expect("there is room");
    let (smaller, lower) = width("refrigerator", 0.8 * whole).expect("smaller letters fit");
    assert!(smaller <= 0.8 * whole && lower < height, "{smaller}, {lower}");
    let mut failures = Vec::new();
    for share in [0.99, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.0] {
        match width("refrigerator", share * whole) {
            Some((came, _)) if came > share * whole => failures.push(format!("{share}: {came} of {whole}")),
            None if share > 0.2 => failures.push(format!("{share}: nothing")),
            Some(_) if share == 0.0 => failures.push("a label in no room".into()),
            _ => {}
        }
    }
    report(&failures);
    assert!(typeface.fit("x", "", 20.0, (100.0, 5.0)).is_none(), "letters of less than 7 pixels");
}

#[test]
fn colors_differ_and_letters_are_readable_on_them() {
    let mut failures = Vec::new();
    for a in 0..500 {
        let background = class_color(a);
        let readable = contrast(text_color_on(background), background);
        if readable < 3.0 {
            failures.push(format!("class {a}: letters have a contrast of {readable}"));
        }
        // All of the first twenty, and the neighbours of every class.
        for b in if a < 20 { 0..a } else { a - 8..a } {
            let difference: i32 =
                class_color(a).iter().zip(class_color(b)).map(|(&a, b)| i32::from(a.abs_diff(b))).sum();
            if difference < 40 {
                failures.push(format!("classes {a} and {b}: {:?} and {:?}", class_color(a), class_color(b)));
            }
        }
    }
    report(&failures);
    assert_eq!(class_color(0), [0x1E, 0x88, 0xFF]);
    class_color(usize::MAX);
}

#[test]
#[cfg(feature = "fonts")]
fn text_from_right_to_left_is_drawn_in_its_order() {
    let mut image = RgbImage::from_pixel(200, 40, Rgb([255; 3]));
    // A wide letter, followed by narrow ones.
    let (wide, narrow) = ("\u{5e9}", "\u{5d5}");
    let text = format!("{wide}{}", narrow.repeat(6));
    Annotator::new().draw_caption(&mut image, &text, [0.0, 0.0, 200.0, 40.0], [0; 3]);
    let inked: Vec<bool> = (0..200).map(|x| (0..40).any(|y| image.get_pixel(x, y).0[0] < 100)).collect();
    let (first, last) = (inked.iter().position(|i| *i), inked.iter().rposition(|i| *i));
    let (first, last) = (first.expect("it is drawn"), last.expect("it is drawn"));
    let run = |columns: &mut dyn Iterator<Item = usize>| columns.take_while(|x| inked[*x]).count();
    let (left, right) = (run(&mut (first..=last)), run(&mut (first..=last).rev()));
    assert!(right > 2 * left, "{left} columns at the left, {right} at the right");
}
