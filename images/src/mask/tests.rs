use hotcoco::mask as codec;
use ocelli_tracking::BoundingBox;
use serde::Deserialize;

use super::{Mask, MaskResampler, MaskSpan};
use ocelli_error::ErrorKind;

const GOLDEN: &str = include_str!("../../../tests/golden/mask/mask.json");

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    grid: [usize; 2],
    logits_64: Vec<i32>,
    size: [u32; 2],
    counts: String,
    area: u64,
    ltwh: [f32; 4],
}

fn golden() -> Vec<Case> {
    serde_json::from_str::<Golden>(GOLDEN).expect("the golden is JSON of this structure").cases
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

/// A mask from lines of text, `#` being in it.
fn drawn(rows: &[&str]) -> Mask {
    let bitmap: Vec<u8> = rows.iter().flat_map(|row| row.bytes().map(|c| u8::from(c == b'#'))).collect();
    Mask::from_bitmap(&bitmap, rows[0].len() as u32, rows.len() as u32).expect("rows of one length")
}

#[test]
fn logits_give_the_masks_of_torch_and_the_encoding_of_pycocotools() {
    // One resampler for all, so that what a former size left in its buffers would show.
    let mut resampler = MaskResampler::new();
    let mut failures = Vec::new();
    for case in golden().iter().chain(&golden()) {
        let [height, width] = case.size;
        let logits: Vec<f32> = case.logits_64.iter().map(|&value| value as f32 / 64.0).collect();
        let mask = resampler
            .run(&logits, (case.grid[1], case.grid[0]), (width, height))
            .expect("the golden's logits fit their grid");
        if mask.counts() != case.counts {
            let expected = Mask::from_counts(&*case.counts, width, height).expect("the golden's code");
            let pairs = mask.to_bitmap().into_iter().zip(expected.to_bitmap());
            let differing = pairs.filter(|(a, b)| a != b).count();
            failures.push(format!("{}: {differing} pixels differ", case.name));
        }
    }
    report(&failures);
}

#[test]
fn a_resampler_adapts_to_another_grid() {
    let (coarse, fine): (Vec<f32>, Vec<f32>) =
        (vec![1.0, -1.0, -1.0, 1.0], (0..36).map(|i| (i % 7) as f32 - 3.0).collect());
    let mut resampler = MaskResampler::new();
    for (logits, grid) in [(&coarse, (2, 2)), (&fine, (6, 6)), (&coarse, (2, 2))] {
        let came = resampler.run(logits, grid, (20, 20)).expect("logits that fit their grid");
        let fresh = MaskResampler::new().run(logits, grid, (20, 20)).expect("logits that fit their grid");
        assert_eq!(came, fresh, "{grid:?}");
    }
}

/// The tracker's resize of logits is another implementation of the same rule.
#[test]
fn interpolated_logits_above_0_are_inside() {
    use ocelli_tracking::masklets::LogitMask;
    let mut resampler = MaskResampler::new();
    let mut failures = Vec::new();
    for (step, scale) in [(37, 0.001), (53, 1.0), (71, 900.0)] {
        let logits: Vec<f32> = (0..48).map(|i| ((i * step % 97) as f32 - 48.3) * scale / 7.0).collect();
        let reference = LogitMask::new(8, 6, logits.clone()).expect("48 logits");
        for (width, height) in [(8, 6), (61, 47), (5, 90), (3, 2)] {
            let found = resampler.run_logits(&logits, (8, 6), (width, height)).expect("48 logits");
            let bits = reference.resized_positive(width as usize, height as usize);
            let pixels = (0..width * height).map(|i| (i % width, i / width));
            let expected: Vec<u8> =
                pixels.map(|(x, y)| u8::from(bits.contains(x as usize, y as usize))).collect();
            if found.to_bitmap() != expected {
                failures.push(format!("step {step}, scale {scale}, {width} × {height}"));
            }
        }
        let probabilities = resampler.run(&logits, (8, 6), (61, 47)).expect("48 logits");
        let logits = resampler.run_logits(&logits, (8, 6), (61, 47)).expect("48 logits");
        if scale >= 1.0 && probabilities == logits {
            failures.push(format!("step {step}: probabilities and logits have the same border"));
        }
    }
    report(&failures);
}

#[test]
fn area_box_and_bitmap_equal_pycocotools() {
    let mut failures = Vec::new();
    for case in golden() {
        let [height, width] = case.size;
        let mask = Mask::from_counts(&*case.counts, width, height).expect("the golden's code");
        let bitmap = mask.to_bitmap();
        let area = bitmap.iter().map(|&pixel| u64::from(pixel)).sum::<u64>();
        let ltwh = mask.bounding_box().map_or([0.0; 4], BoundingBox::to_ltwh);
        if (mask.area(), area, ltwh) != (case.area, case.area, case.ltwh) {
            failures.push(format!("{}: area {} and {area}, box {ltwh:?}", case.name, mask.area()));
        }
        if Mask::from_bitmap(&bitmap, width, height).expect("a bitmap of that size") != mask {
            failures.push(format!("{}: the bitmap has another encoding", case.name));
        }
    }
    report(&failures);
}

#[test]
fn outlines_filled_again_are_the_mask() {
    let mut masks: Vec<(String, Mask)> = golden()
        .into_iter()
        .map(|case| {
            let mask = Mask::from_counts(case.counts, case.size[1], case.size[0]).expect("the golden's code");
            (case.name, mask)
        })
        .collect();
    masks.push(("a ring".into(), drawn(&["#####", "#...#", "#.#.#", "#...#", "#####"])));
    masks.push(("corners that touch".into(), drawn(&["#.#", ".#.", "#.#"])));
    masks.push(("a diagonal hole".into(), drawn(&["####", "#.##", "##.#", "####"])));
    let mut failures = Vec::new();
    for (name, mask) in masks {
        let size = (mask.height(), mask.width());
        let (mut area, mut filled) = (0.0, vec![0_i32; (size.0 * size.1) as usize]);
        for outline in mask.outlines() {
            let sign = if outline.is_hole { -1 } else { 1 };
            area += f64::from(sign) * outline.area();
            let xy: Vec<f64> = outline.points.iter().flatten().map(|&value| f64::from(value)).collect();
            let rle = codec::fr_poly(&xy, size.0, size.1).expect("a small image");
            filled
                .iter_mut()
                .zip(codec::decode(&rle))
                .for_each(|(sum, inside)| *sum += sign * i32::from(inside));
        }
        let (height, width) = (size.0 as usize, size.1 as usize);
        let bitmap = mask.to_bitmap();
        let differing = (0..filled.len())
            .filter(|&index| filled[index] != i32::from(bitmap[index % height * width + index / height]))
            .count();
        if differing > 0 || area != mask.area() as f64 {
            failures.push(format!("{name}: {differing} pixels differ, area {area} for {}", mask.area()));
        }
    }
    report(&failures);
}

#[test]
fn outlines_go_around_parts_and_holes() {
    let outlines = drawn(&["......", ".####.", ".#.##.", ".####.", "......", "#....."]).outlines();
    let points: Vec<_> =
        outlines.iter().map(|outline| (outline.is_hole, outline.points.as_slice())).collect();
    let expected: [(bool, &[[f32; 2]]); 3] = [
        (false, &[[1.0, 1.0], [5.0, 1.0], [5.0, 4.0], [1.0, 4.0]]),
        (true, &[[2.0, 3.0], [3.0, 3.0], [3.0, 2.0], [2.0, 2.0]]),
        (false, &[[0.0, 5.0], [1.0, 5.0], [1.0, 6.0], [0.0, 6.0]]),
    ];
    assert_eq!(points, expected);
    assert_eq!(drawn(&["...", "..."]).outlines(), []);
}

#[test]
fn simplified_outlines_stay_near() {
    let mut failures = Vec::new();
    for case in golden() {
        let mask = Mask::from_counts(case.counts, case.size[1], case.size[0]).expect("the golden's code");
        for outline in mask.outlines() {
            for tolerance in [0.0, 1.0, 4.0, 1e6] {
                let simple = outline.simplified(tolerance);
                let distance_of = |point: &[f32; 2]| {
                    let ring = simple.points.iter().zip(simple.points.iter().cycle().skip(1));
                    ring.map(|(a, b)| super::distance_to_segment(*point, *a, *b)).fold(1e9, f32::min)
                };
                let off = outline.points.iter().map(distance_of).fold(0.0, f32::max);
                let kept = simple.points.len();
                if off > tolerance + 1e-3 || kept < 3 || kept > outline.points.len() {
                    failures.push(format!("{}, {tolerance}: {off} off with {kept} points", case.name));
                }
                if tolerance == 0.0 && simple != outline {
                    failures.push(format!("{}: tolerance 0 changed the outline", case.name));
                }
            }
        }
    }
    report(&failures);
    let slope: Vec<String> = (1..=40).map(|length| "#".repeat(length) + &".".repeat(40 - length)).collect();
    let rows: Vec<&str> = slope.iter().map(String::as_str).collect();
    let outline = &drawn(&rows).outlines()[0];
    let (steps, simple) = (outline.points.len(), outline.simplified(1.0).points.len());
    assert!(steps == 82 && simple <= 5, "a slope of {steps} points became {simple}");
}

#[test]
fn spans_run_down_the_columns() {
    let spans: Vec<MaskSpan> = drawn(&["#.#", "##.", "#.#"]).spans().collect();
    let expected = [(0, 0, 3), (1, 1, 2), (2, 0, 1), (2, 2, 3)];
    assert_eq!(spans, expected.map(|(x, top, bottom)| MaskSpan { x, top, bottom }));
}

#[test]
fn json_is_that_of_coco() {
    let mask = drawn(&["##.", "#.."]);
    let text = serde_json::to_string(&mask).expect("a mask has a JSON form");
    assert_eq!(text, r#"{"size":[2,3],"counts":"033"}"#);
    assert_eq!(serde_json::from_str::<Mask>(&text).expect("what was just written"), mask);
    let mut failures = Vec::new();
    for (text, part) in [
        (r#"{"size":[2,3],"counts":"0o"}"#, "mask counts"),
        (r#"{"size":[2,3],"counts":"07"}"#, "mask counts"),
        (r#"{"size":[2,3],"counts":"ä"}"#, "mask counts"),
        (r#"{"size":[0,3],"counts":"0"}"#, "mask size"),
        (r#"{"size":[4294967295,3],"counts":"0"}"#, "mask size"),
        (r#"{"size":[3],"counts":"0"}"#, "length"),
    ] {
        match serde_json::from_str::<Mask>(text) {
            Err(error) if error.to_string().contains(part) => {}
            other => failures.push(format!("{text}: expected {part:?}, came {other:?}")),
        }
    }
    report(&failures);
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let mut resampler = MaskResampler::new();
    let mut nan = vec![0.0; 12];
    nan[7] = f32::NAN;
    type Case<'a> = (&'a [f32], (usize, usize), (u32, u32), ErrorKind);
    let cases: &[Case<'_>] = &[
        (&[0.0; 12], (3, 3), (5, 5), ErrorKind::Mismatch),
        (&[], (0, 3), (5, 5), ErrorKind::Mismatch),
        (&[0.0; 12], (usize::MAX, 2), (5, 5), ErrorKind::Mismatch),
        (&nan, (4, 3), (5, 5), ErrorKind::Execution),
        (&[0.0; 12], (4, 3), (0, 5), ErrorKind::InvalidArgument),
        (&[0.0; 12], (4, 3), (70_000, 70_000), ErrorKind::InvalidArgument),
    ];
    let mut failures = Vec::new();
    for &(logits, grid, image, kind) in cases {
        match resampler.run(logits, grid, image) {
            Err(error) if error.kind() == kind => {}
            other => failures.push(format!("{grid:?} to {image:?}: expected {kind:?}, came {other:?}")),
        }
    }
    if !matches!(Mask::from_bitmap(&[0; 5], 2, 3), Err(error) if error.kind() == ErrorKind::InvalidArgument) {
        failures.push("a bitmap of the wrong length".into());
    }
    report(&failures);
}

#[derive(Deserialize)]
struct Code {
    size: [u32; 2],
    pixels: String,
    counts: String,
    area: u64,
    iou_with_the_one_before: Option<f64>,
}

#[test]
fn random_masks_have_the_encoding_of_pycocotools_both_ways() {
    #[derive(Deserialize)]
    struct Codes {
        cases: Vec<Code>,
    }
    let text = include_str!("../../../tests/golden/mask/codes.json");
    let cases = serde_json::from_str::<Codes>(text).expect("the golden is JSON of this structure").cases;
    let (mut failures, mut before, mut overlaps) = (Vec::new(), None::<Mask>, 0);
    for (number, case) in cases.iter().enumerate() {
        let [height, width] = case.size;
        let decoded = Mask::from_counts(&*case.counts, width, height).expect("the golden's code");
        if decoded.area() != case.area {
            failures.push(format!("mask {number}: area {} for {}", decoded.area(), case.area));
        }
        if !case.pixels.is_empty() {
            let byte = |place: usize| {
                u8::from_str_radix(&case.pixels[2 * place..][..2], 16).expect("hexadecimal digits")
            };
            let bit = |place: usize| byte(place / 8) >> (7 - place % 8) & 1;
            let bitmap: Vec<u8> = (0..(width * height) as usize).map(bit).collect();
            let encoded = Mask::from_bitmap(&bitmap, width, height).expect("a bitmap of that size");
            if encoded.counts() != case.counts {
                failures.push(format!("mask {number}: code {:?} for {:?}", encoded.counts(), case.counts));
            }
            if decoded.to_bitmap() != bitmap {
                failures.push(format!("mask {number}: the encoding decodes to another bitmap"));
            }
        }
        if let (Some(expected), Some(before)) = (case.iou_with_the_one_before, &before) {
            overlaps += 1;
            let iou = before.iou(&decoded).expect("masks of one size");
            if (iou - expected).abs() > 1e-12 {
                failures.push(format!("masks {} and {number}: IoU {iou} for {expected}", number - 1));
            }
        }
        before = Some(decoded);
    }
    report(&failures);
    assert!(cases.len() > 40 && overlaps > 30, "{} masks, {overlaps} pairs", cases.len());
    let (small, large) = (drawn(&["#"]), drawn(&["##"]));
    assert_eq!(small.iou(&large).map_err(|e| e.kind()), Err(ErrorKind::Mismatch));
}

#[test]
fn polygons_without_holes_cover_the_mask() {
    let mut masks: Vec<(String, Mask)> = golden()
        .into_iter()
        .map(|case| {
            let mask = Mask::from_counts(case.counts, case.size[1], case.size[0]).expect("the golden's code");
            (case.name, mask)
        })
        .collect();
    masks.push(("a ring".into(), drawn(&["#####", "#...#", "#.#.#", "#...#", "#####"])));
    masks.push(("two holes".into(), drawn(&["#######", "#.###.#", "#.#####", "#######"])));
    masks.push(("a diagonal hole".into(), drawn(&["####", "#.##", "##.#", "####"])));
    masks.push(("a ring in a ring".into(), {
        let rows = ["#######", "#.....#", "#.###.#", "#.#.#.#", "#.###.#", "#.....#", "#######"];
        drawn(&rows)
    }));
    let mut failures = Vec::new();
    for (name, mask) in masks {
        let (parts, holes): (Vec<_>, Vec<_>) = mask.outlines().into_iter().partition(|o| !o.is_hole);
        for (tolerance, least) in [(0.0, 1.0), (1.0, 0.8)] {
            let polygons = mask.polygons(tolerance);
            let flat: Vec<Vec<f64>> =
                polygons.iter().map(|ring| ring.iter().flatten().map(|&v| f64::from(v)).collect()).collect();
            let filled = if flat.is_empty() {
                Mask::from_bitmap(
                    &mask.to_bitmap().iter().map(|_| 0).collect::<Vec<_>>(),
                    mask.width(),
                    mask.height(),
                )
            } else {
                let rle = codec::fr_polys(&flat, mask.height(), mask.width()).expect("a small image");
                Mask::from_run_lengths(&rle.counts, rle.w, rle.h)
            };
            let iou = filled.and_then(|filled| filled.iou(&mask)).expect("masks of one size");
            let fine = iou >= least || mask.area() == 0 || (tolerance > 0.0 && mask.area() < 400);
            if polygons.len() != parts.len() || !fine {
                let (came, expected, holes) = (polygons.len(), parts.len(), holes.len());
                failures.push(format!(
                    "{name}, {tolerance}: IoU {iou}, {came} for {expected} with {holes} holes"
                ));
            }
        }
    }
    report(&failures);
}

#[test]
fn a_mask_of_a_part_is_placed_in_the_image() {
    let part = drawn(&["#..#", "##.#", "...#"]);
    let expected = drawn(&[".......", "..#..#.", "..##.#.", ".....#."]);
    assert_eq!(part.placed((2, 1), (7, 4)).map_err(|error| error.to_string()), Ok(expected));
    assert_eq!(part.placed((0, 0), (4, 3)).map_err(|error| error.to_string()), Ok(part.clone()));
    for (at, size) in
        [((1, 0), (4, 3)), ((0, 2), (9, 4)), ((u32::MAX, 0), (9, 9)), ((0, 0), (1 << 16, 1 << 16))]
    {
        let error = part.placed(at, size).map(|mask| mask.area()).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{at:?} {size:?}: {error}");
    }
    let empty = drawn(&["..", ".."]).placed((3, 1), (6, 4)).expect("it fits");
    assert_eq!((empty.area(), empty.width(), empty.height()), (0, 6, 4));
}

#[test]
fn unions_and_areas_in_boxes_count_pixels() {
    let (a, b) = (drawn(&["##..", "#...", "...."]), drawn(&["#...", ".##.", "...#"]));
    assert_eq!(a.union(&b).map_err(|error| error.to_string()), Ok(drawn(&["##..", "###.", "...#"])));
    assert_eq!(a.union(&drawn(&["##"])).expect_err("another size").kind(), ErrorKind::Mismatch);
    for (edges, expected) in [
        ([0.0, 0.0, 4.0, 3.0], 4),
        ([0.0, 0.0, 1.0, 1.0], 1),
        ([0.0, 0.0, 4.0, 1.0], 1),
        ([1.0, 1.0, 4.0, 3.0], 3),
        ([-5.0, 1.6, 9.0, 9.0], 1),
    ] {
        assert_eq!(b.area_in(&BoundingBox::from(edges)), expected, "{edges:?}");
    }
}
