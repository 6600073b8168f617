//! YOLO's files: a label file for each image, `classes.txt` and `data.yaml`.

use std::fmt::Write;

use serde_json::json;

use crate::label::formats::simplify::{Coverage, simplest};
use crate::label::{Format, Instance, Record};
use ocelli::Mask;
use ocelli::mask::{Outline, nearest, splice};

/// The position of a YOLO-seg polygon within the pixels of the mask's border, from their left and top. Trainers round or
/// truncate the points to whole pixels and fill the pixels on the polygon, too: a polygon along the edges of the pixels would
/// cover one more pixel on the right and at the bottom.
const IN_PIXEL: f32 = 0.25;
/// Parts and holes of a mask that are smaller than this share of it are not in its polygon.
const MIN_PART: f64 = 0.01;
/// The least side of a box, as a share of the image's: trainers refuse one that rounds to zero.
const LEAST: f64 = 1e-6;

/// The label file of an image: a line for each instance, with coordinates as shares of the image's sides.
pub(crate) fn label_file(record: &Record, format: Format) -> String {
    let size = (record.width, record.height);
    let line = |instance: &Instance| {
        if format == Format::YoloSeg {
            return Some(polygon_line(instance.class, polygon(&record.mask(instance)?)?, size));
        }
        let [x1, y1, x2, y2] = instance.bbox.map(f64::from);
        let is_thin = (x2 - x1) / f64::from(size.0) < LEAST || (y2 - y1) / f64::from(size.1) < LEAST;
        (!is_thin).then(|| box_line(instance.class, instance.bbox, size))
    };
    record.instances.iter().filter_map(line).map(|line| line + "\n").collect()
}

/// The line of a box, with sides that are not 0.
pub(crate) fn box_line(class: usize, bbox: [f32; 4], (width, height): (u32, u32)) -> String {
    let [x1, y1, x2, y2] = bbox.map(f64::from);
    let (width, height) = (f64::from(width), f64::from(height));
    let (w, h) = (((x2 - x1) / width).max(LEAST), ((y2 - y1) / height).max(LEAST));
    let shares = [(x1 + x2) / 2.0 / width, (y1 + y2) / 2.0 / height, w, h];
    let [cx, cy, w, h] = shares.map(|share| share.clamp(0.0, 1.0));
    format!("{class} {cx:.6} {cy:.6} {w:.6} {h:.6}")
}

/// The line of a polygon.
pub(crate) fn polygon_line(
    class: usize,
    points: impl IntoIterator<Item = [f32; 2]>,
    (width, height): (u32, u32),
) -> String {
    let mut line = class.to_string();
    for [x, y] in points {
        let share = |value: f32, side: u32| (f64::from(value) / f64::from(side)).clamp(0.0, 1.0);
        write!(line, " {:.6} {:.6}", share(x, width), share(y, height))
            .expect("writing to a string does not fail");
    }
    line
}

/// One polygon for a mask, since a line of YOLO-seg has one. Cuts of zero width connect the parts and holes where they are
/// nearest to each other. Trainers fill the pixels on a cut, too, so a part whose area is smaller than the length of its cut
/// is left out. `None` if the mask is empty.
pub(crate) fn polygon(mask: &Mask) -> Option<Vec<[f32; 2]>> {
    let coverage = Coverage { at: IN_PIXEL, with_border: true };
    let rings = simplest(mask, coverage, |tolerance| whole_polygon(mask, tolerance).into_iter().collect());
    rings.into_iter().next()
}

fn whole_polygon(mask: &Mask, tolerance: f32) -> Option<Vec<[f32; 2]>> {
    let least = (mask.area() as f64 * MIN_PART).max(2.0);
    let mut outlines = mask.outlines();
    // The largest one first: the others are connected to it.
    outlines.sort_by(|a, b| b.area().total_cmp(&a.area()));
    let mut outlines = outlines.iter();
    let ring = |outline: &Outline| inset(outline).simplified(tolerance).points;
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

/// Moves an outline inwards, from the edges of the pixels into the pixels of the mask. An outline has the mask on its right
/// and turns at each point. If the mask is one pixel wide, the area would become zero, which trainers refuse: then the outline
/// stays.
fn inset(outline: &Outline) -> Outline {
    let points = &outline.points;
    let towards = |from: f32, to: f32| if from == to { 0.0 } else { (to - from).signum() };
    let moved = points.iter().enumerate().map(|(i, &[x, y])| {
        let before = points[(i + points.len() - 1) % points.len()];
        let after = points[(i + 1) % points.len()];
        // One of the two edges at a point is horizontal, the other vertical. (-y, x) is to the right of the direction
        // (x, y), since y grows downwards: half a pixel to the right of both is the centre of a pixel.
        let direction =
            [towards(before[0], x) + towards(x, after[0]), towards(before[1], y) + towards(y, after[1])];
        [x - direction[1] / 2.0 - 0.5 + IN_PIXEL, y + direction[0] / 2.0 - 0.5 + IN_PIXEL]
    });
    let moved = Outline { points: moved.collect(), is_hole: outline.is_hole };
    if moved.area() > 0.0 { moved } else { outline.clone() }
}

/// The text of `data.yaml`, with paths relative to its folder.
pub(crate) fn data_file<'a>(names: impl Iterator<Item = &'a str>, has_validation: bool) -> String {
    let val = if has_validation {
        "val: images/val\n"
    } else {
        "# No image is for validation, but trainers need this key.\nval: images/train\n"
    };
    // A JSON string is a YAML string.
    let name = |(id, name)| format!("  {id}: {}\n", json!(name));
    format!("train: images/train\n{val}names:\n{}", names.enumerate().map(name).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::record::Instance;

    fn record(instances: Vec<Instance>) -> Record {
        Record { width: 200, height: 100, instances, ..Record::default() }
    }

    #[test]
    fn boxes_are_centre_and_size_as_shares() {
        let instance = |class, bbox| Instance { class, score: 0.5, bbox, mask: None, track: None };
        let text = label_file(
            &record(vec![
                instance(3, [20.0, 10.0, 60.0, 50.0]),
                instance(0, [0.0, 0.0, 200.0, 100.0]),
                instance(1, [5.0, 5.0, 5.000_1, 9.0]),
            ]),
            Format::Yolo,
        );
        assert_eq!(text, "3 0.200000 0.300000 0.200000 0.400000\n0 0.500000 0.500000 1.000000 1.000000\n");
    }

    #[test]
    fn one_polygon_covers_the_mask() {
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

    /// By the even-odd rule, with the points on the polygon inside.
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
    fn names_are_quoted_in_yaml() {
        let names = ["dog", "no", "a: \"b\"", "3"];
        let text = data_file(names.into_iter(), true);
        let read: serde_json::Value = serde_saphyr::from_str(&text).expect("it is YAML");
        let found: Vec<_> = (0..4).map(|id| read["names"][id.to_string()].clone()).collect();
        assert_eq!(found, names);
        assert_eq!((&read["train"], &read["val"]), (&"images/train".into(), &"images/val".into()));
        assert!(data_file(names.into_iter(), false).contains("val: images/train"));
    }
}
