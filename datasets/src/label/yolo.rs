//! YOLO's files: a text file for each picture, `classes.txt`, `data.yaml`.

use std::fmt::Write;

use super::record::Record;
use super::settings::Format;
use ocelli::{Mask, Outline};

/// How far a polygon may be from the mask's border, in pixels.
pub(super) const TOLERANCE: f32 = 0.5;
/// Where in a pixel of the mask's border a polygon of YOLO-seg runs, from its left and top: trainers make its points whole
/// pixels, some by rounding and some by cutting off, and fill what it goes through as well. A polygon along the pixels'
/// edges would take in another pixel on the right and below.
const IN_PIXEL: f32 = 0.25;
/// Parts and holes of a mask that are smaller than this share of it are left out of its polygon.
const LEAST_PART: f64 = 0.01;

/// The label file of a picture: a line for each thing, coordinates as shares of the picture's sides.
pub(super) fn label_file(record: &Record, format: Format) -> String {
    let mut text = String::new();
    let (width, height) = (f64::from(record.width), f64::from(record.height));
    for thing in &record.things {
        let mut line = thing.class.to_string();
        let mut put = |value: f64| {
            write!(line, " {:.6}", value.clamp(0.0, 1.0)).expect("texts take everything");
        };
        if format == Format::Yolo {
            let [x1, y1, x2, y2] = thing.bbox.map(f64::from);
            let (w, h) = ((x2 - x1) / width, (y2 - y1) / height);
            // A side that rounds to nothing is an error to trainers.
            if w < 1e-6 || h < 1e-6 {
                continue;
            }
            [(x1 + x2) / 2.0 / width, (y1 + y2) / 2.0 / height, w, h].into_iter().for_each(&mut put);
        } else {
            let Some(ring) = record.mask(thing).and_then(|mask| polygon(&mask)) else { continue };
            ring.iter().for_each(|[x, y]| {
                put(f64::from(*x) / width);
                put(f64::from(*y) / height);
            });
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// One polygon for a mask: its parts and holes are joined by cuts of no width to where they are nearest, since a line of
/// YOLO-seg has one polygon. Trainers fill the pixels under a cut as well, so that a part which is smaller than its cut is
/// long stays out. `None` where no pixel is in the mask.
fn polygon(mask: &Mask) -> Option<Vec<[f32; 2]>> {
    let least = (mask.area() as f64 * LEAST_PART).max(2.0);
    let mut outlines = mask.outlines();
    // The largest first: it takes the others in.
    outlines.sort_by(|a, b| b.area().total_cmp(&a.area()));
    let mut outlines = outlines.iter();
    let ring = |outline: &Outline| inset(outline).simplified(TOLERANCE).points;
    let mut whole = ring(outlines.next()?);
    for outline in outlines.filter(|outline| outline.area() >= least) {
        let ring = ring(outline);
        let (length, at, from) = nearest(&whole, &ring);
        if outline.is_hole || outline.area() > f64::from(length) {
            splice(&mut whole, at, &ring, from);
        }
    }
    Some(whole)
}

/// The outline, moved into the pixels of the mask beside it. It goes along the pixels' edges with the mask on its right,
/// and turns at each point. What is a pixel wide has no area then, which trainers refuse: it keeps its outline.
fn inset(outline: &Outline) -> Outline {
    let points = &outline.points;
    let towards = |from: f32, to: f32| if from == to { 0.0 } else { (to - from).signum() };
    let moved = points.iter().enumerate().map(|(i, &[x, y])| {
        let before = points[(i + points.len() - 1) % points.len()];
        let after = points[(i + 1) % points.len()];
        // Of the ways there and away one is level and one upright. To the right of a way (x, y) lies (-y, x), since y
        // grows downwards: half a pixel that way, from both, is a pixel's centre.
        let way =
            [towards(before[0], x) + towards(x, after[0]), towards(before[1], y) + towards(y, after[1])];
        [x - way[1] / 2.0 - 0.5 + IN_PIXEL, y + way[0] / 2.0 - 0.5 + IN_PIXEL]
    });
    let moved = Outline { points: moved.collect(), is_hole: outline.is_hole };
    if moved.area() > 0.0 { moved } else { outline.clone() }
}

/// How far two polygons are apart at the nearest of their points, and which those are.
fn nearest(one: &[[f32; 2]], other: &[[f32; 2]]) -> (f32, usize, usize) {
    let mut best = (f32::INFINITY, 0, 0);
    for (i, a) in one.iter().enumerate() {
        for (j, b) in other.iter().enumerate() {
            let distance = (a[0] - b[0]).hypot(a[1] - b[1]);
            if distance < best.0 {
                best = (distance, i, j);
            }
        }
    }
    best
}

/// Takes a ring into a polygon: from the polygon's point `at` to the ring's point `from`, around, and back.
fn splice(whole: &mut Vec<[f32; 2]>, at: usize, ring: &[[f32; 2]], from: usize) {
    let back = whole[at];
    let around = ring[from..].iter().chain(&ring[..=from]).copied();
    let taken_in: Vec<[f32; 2]> = around.chain([back]).collect();
    whole.splice(at + 1..at + 1, taken_in);
}

/// `classes.txt`.
pub(super) fn classes_file<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name}\n")).collect()
}

/// `data.yaml`; paths in it are relative to the folder it is in.
pub(super) fn data_file<'a>(names: impl Iterator<Item = &'a str>, has_validation: bool) -> String {
    let mut text = String::from("train: images/train\n");
    if has_validation {
        text.push_str("val: images/val\n");
    } else {
        text.push_str("# No picture is for validation; trainers ask for some.\nval: images/train\n");
    }
    text.push_str("names:\n");
    for (id, name) in names.enumerate() {
        // A text in JSON is one in YAML.
        let name = serde_json::to_string(name).expect("texts are JSON");
        writeln!(text, "  {id}: {name}").expect("texts take everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Thing;

    fn record(things: Vec<Thing>) -> Record {
        Record { width: 200, height: 100, things, ..Record::default() }
    }

    #[test]
    fn boxes() {
        let thing = |class, bbox| Thing { class, score: 0.5, bbox, mask: None };
        let text = label_file(
            &record(vec![
                thing(3, [20.0, 10.0, 60.0, 50.0]),
                thing(0, [0.0, 0.0, 200.0, 100.0]),
                thing(1, [5.0, 5.0, 5.000_1, 9.0]),
            ]),
            Format::Yolo,
        );
        assert_eq!(text, "3 0.200000 0.300000 0.200000 0.400000\n0 0.500000 0.500000 1.000000 1.000000\n");
    }

    #[test]
    fn one_polygon_covers_what_the_mask_does() {
        let (width, height) = (60u32, 40u32);
        let inside = |cases: &[fn(i32, i32) -> bool]| {
            let bitmap: Vec<u8> = (0..width * height)
                .map(|i| u8::from(cases.iter().any(|case| case((i % width) as i32, (i / width) as i32))))
                .collect();
            Mask::from_bitmap(&bitmap, width, height).expect("the size is right")
        };
        let disc: fn(i32, i32) -> bool = |x, y| (x - 15).pow(2) + (y - 15).pow(2) < 144;
        let ring: fn(i32, i32) -> bool = |x, y| (30..400).contains(&((x - 22).pow(2) + (y - 20).pow(2)));
        let square: fn(i32, i32) -> bool = |x, y| (45..58).contains(&x) && (20..38).contains(&y);
        let mut failures = Vec::new();
        for (name, cases, least) in [
            ("a disc", &[disc][..], 0.95),
            ("two parts", &[disc, square], 0.95),
            ("a hole", &[ring], 0.95),
            ("a hole and a part", &[ring, square], 0.95),
        ] {
            let mask = inside(cases);
            let polygon = polygon(&mask).expect("it has pixels");
            let filled: Vec<u8> = (0..width * height)
                .map(|i| {
                    u8::from(is_inside(
                        &polygon,
                        (i % width) as f32 + IN_PIXEL,
                        (i / width) as f32 + IN_PIXEL,
                    ))
                })
                .collect();
            let bitmap = mask.to_bitmap();
            let both = filled.iter().zip(&bitmap).filter(|(a, b)| **a == 1 && **b == 1).count();
            let either = filled.iter().zip(&bitmap).filter(|(a, b)| **a == 1 || **b == 1).count();
            let iou = both as f64 / either as f64;
            if iou < least {
                failures.push(format!("{name}: IoU {iou:.3} of {} points", polygon.len()));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        let nothing = Mask::from_bitmap(&[0; 4], 2, 2).expect("the size is right");
        assert_eq!(polygon(&nothing), None);
        let pixel = Mask::from_bitmap(&[0, 0, 1, 0], 2, 2).expect("the size is right");
        assert_eq!(polygon(&pixel), Some(vec![[0.0, 1.0], [1.0, 1.0], [1.0, 2.0], [0.0, 2.0]]));
        let square = Mask::from_bitmap(&[1, 1, 0, 1, 1, 0], 3, 2).expect("the size is right");
        assert_eq!(polygon(&square), Some(vec![[0.25, 0.25], [1.25, 0.25], [1.25, 1.25], [0.25, 1.25]]));
    }

    fn distance_to_segment(point: [f32; 2], a: [f32; 2], b: [f32; 2]) -> f32 {
        let (along, to_point) = ([b[0] - a[0], b[1] - a[1]], [point[0] - a[0], point[1] - a[1]]);
        let length_squared = (along[0] * along[0] + along[1] * along[1]).max(f32::MIN_POSITIVE);
        let share = ((to_point[0] * along[0] + to_point[1] * along[1]) / length_squared).clamp(0.0, 1.0);
        (to_point[0] - share * along[0]).hypot(to_point[1] - share * along[1])
    }

    /// By the even-odd rule; what the polygon goes through is inside.
    fn is_inside(ring: &[[f32; 2]], x: f32, y: f32) -> bool {
        let through = |(a, b): (&[f32; 2], &[f32; 2])| distance_to_segment([x, y], *a, *b) < 0.3;
        if ring.iter().zip(&ring[1..]).any(through) {
            return true;
        }
        let edges = ring.iter().zip(ring.iter().cycle().skip(1));
        let crossed = edges.filter(|(a, b)| {
            (a[1] > y) != (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]
        });
        crossed.count() % 2 == 1
    }

    #[test]
    fn names_are_quoted() {
        let names = ["dog", "no", "a: \"b\"", "3"];
        let text = data_file(names.into_iter(), true);
        let read: serde_json::Value = serde_saphyr::from_str(&text).expect("it is YAML");
        let found: Vec<_> = (0..4).map(|id| read["names"][id.to_string()].clone()).collect();
        assert_eq!(found, names);
        assert_eq!((&read["train"], &read["val"]), (&"images/train".into(), &"images/val".into()));
        assert!(data_file(names.into_iter(), false).contains("val: images/train"));
    }
}
