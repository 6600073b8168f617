use std::sync::Arc;

use super::*;
use crate::detection::Detection;
use crate::mask::{Mask, SemanticMap};
use crate::postprocess::PostProcessOptions;

const IMAGE: (u32, u32) = (1000, 600);

fn tile(x: u32, width: u32) -> Region {
    Region { x, y: 0, width, height: IMAGE.1 }
}

/// A detection in pixels of the image, as its tile sees it.
fn seen(edges: [f32; 4], score: f32, region: Region) -> TileDetection {
    let bbox = moved(BoundingBox::from(edges), -(region.x as f32), -(region.y as f32));
    let detection = Detection { class_id: 0, label: "dog".into(), score, bbox, mask: None };
    TileDetection::new(detection, region, IMAGE).expect("it has no mask")
}

fn with_mask(edges: [u32; 4], bits: impl Fn(u32, u32) -> bool, region: Region) -> TileDetection {
    let [left, top, right, bottom] = edges;
    let inside =
        |x: u32, y: u32| (left..right).contains(&x) && (top..bottom).contains(&y) && bits(x - left, y - top);
    let rows = (0..region.height).flat_map(|y| (0..region.width).map(move |x| (x + region.x, y + region.y)));
    let bitmap: Vec<u8> = rows.map(|(x, y)| u8::from(inside(x, y))).collect();
    let mask = Mask::from_bitmap(&bitmap, region.width, region.height).expect("a byte for each pixel");
    let bbox =
        moved(BoundingBox::from(edges.map(|edge| edge as f32)), -(region.x as f32), -(region.y as f32));
    let detection = Detection { class_id: 0, label: "dog".into(), score: 0.5, bbox, mask: Some(mask) };
    TileDetection::new(detection, region, IMAGE).expect("the tile is in the image")
}

fn merged(all: impl IntoIterator<Item = TileDetection>, options: &PostProcessOptions) -> Vec<Detection> {
    let mut merge = Merge::default();
    all.into_iter().for_each(|one| merge.add(one));
    merge.finish(options).expect("the masks have the image's size").0
}

#[test]
fn sizes_of_tiles_are_read() {
    let pixels = |width, height| TileSize::Pixels { width, height };
    let cases = [
        ("auto", Ok(TileSize::Auto)),
        ("1024", Ok(pixels(1024, 1024))),
        ("1024x768", Ok(pixels(1024, 768))),
        ("32×33", Ok(pixels(32, 33))),
        ("31", Err("tile is 31: expected auto, or a size of at least 32 pixels")),
        ("1024x", Err("expected auto")),
        ("", Err("expected auto")),
        ("-64", Err("expected auto")),
        ("64x64x64", Err("expected auto")),
    ];
    for (text, expected) in cases {
        match (text.parse::<TileSize>(), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }
    assert_eq!((pixels(64, 64).to_string(), pixels(64, 32).to_string()), ("64".into(), "64x32".into()));
    let refused = |tiling: Tiling| tiling.check().expect_err("it is out of range").to_string();
    assert!(refused(Tiling::new(TileSize::square(8))).starts_with("tile is 8"));
    assert!(refused(Tiling::default().with_overlap(0.9)).starts_with("tile_overlap is 0.9"));
    assert!(refused(Tiling::default().with_overlap(f32::NAN)).starts_with("tile_overlap"));
}

#[test]
fn tiles_cover_the_image_and_overlap() {
    let mut wrong = Vec::new();
    for (width, height) in [(1000, 600), (1001, 97), (64, 4000), (65, 64)] {
        for (tile, overlap) in [((64, 64), 0.2), ((100, 40), 0.5), ((300, 300), 0.0), ((64, 64), 0.8)] {
            let tiles = Tiling::new(TileSize::Auto).with_overlap(overlap).grid((width, height), tile);
            let mut columns: Vec<(u32, u32)> = tiles.iter().map(|tile| (tile.x, tile.right())).collect();
            let mut rows: Vec<(u32, u32)> = tiles.iter().map(|tile| (tile.y, tile.bottom())).collect();
            for (axis, length, side) in [(&mut columns, width, tile.0), (&mut rows, height, tile.1)] {
                axis.sort_unstable();
                axis.dedup();
                let least = (f64::from(side) * f64::from(overlap)) as u32;
                let is_covered = axis.first().is_some_and(|first| first.0 == 0)
                    && axis.last().is_some_and(|last| last.1 == length)
                    && axis.windows(2).all(|pair| pair[0].1 >= pair[1].0 + least)
                    && axis.iter().all(|(start, end)| end - start == side.min(length));
                if !is_covered {
                    wrong.push(format!("{length} in tiles of {side}, overlap {overlap}: {axis:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn levels_end_below_the_whole_image() {
    let levels = |image, side| {
        let levels = Tiling::default().levels(image, (side, side)).expect("it has no limit");
        levels.iter().map(|tiles| tiles[0].width).collect::<Vec<_>>()
    };
    assert_eq!(levels((8192, 4608), 448), [448, 1792]);
    assert_eq!(levels((800, 600), 400), [400]);
    assert_eq!(levels((800, 600), 799), [799], "two tiles");
    assert!(levels((800, 600), 800).is_empty(), "one tile covers it");
}

#[test]
fn an_object_that_several_tiles_see_is_one() {
    let (left, right, whole) = (tile(0, 560), tile(440, 560), Region::whole(IMAGE));
    let cases: [(&str, Vec<TileDetection>, Vec<[f32; 4]>); 10] = [
        (
            "whole in both tiles",
            vec![
                seen([460.0, 100.0, 540.0, 180.0], 0.8, left),
                seen([462.0, 98.0, 540.0, 182.0], 0.9, right),
            ],
            vec![[462.0, 98.0, 540.0, 182.0]],
        ),
        (
            "cut by one tile",
            vec![
                seen([500.0, 100.0, 560.0, 200.0], 0.9, left),
                seen([500.0, 100.0, 640.0, 200.0], 0.6, right),
            ],
            vec![[500.0, 100.0, 640.0, 200.0]],
        ),
        (
            "cut by both tiles",
            vec![
                seen([100.0, 100.0, 560.0, 200.0], 0.9, left),
                seen([440.0, 102.0, 900.0, 199.0], 0.6, right),
            ],
            vec![[100.0, 100.0, 900.0, 200.0]],
        ),
        (
            "cut by both tiles, and seen in the whole image",
            vec![
                seen([100.0, 100.0, 560.0, 200.0], 0.9, left),
                seen([440.0, 102.0, 900.0, 199.0], 0.9, right),
                seen([105.0, 95.0, 905.0, 205.0], 0.95, whole),
            ],
            vec![[105.0, 95.0, 905.0, 205.0]],
        ),
        (
            "two beside each other",
            vec![
                seen([300.0, 100.0, 495.0, 200.0], 0.9, left),
                seen([505.0, 100.0, 700.0, 200.0], 0.8, right),
            ],
            vec![[300.0, 100.0, 495.0, 200.0], [505.0, 100.0, 700.0, 200.0]],
        ),
        (
            "two that are cut at different heights",
            vec![
                seen([300.0, 100.0, 560.0, 200.0], 0.9, left),
                seen([440.0, 230.0, 700.0, 330.0], 0.8, right),
            ],
            vec![[300.0, 100.0, 560.0, 200.0], [440.0, 230.0, 700.0, 330.0]],
        ),
        (
            "a small one in front of a large one",
            vec![
                seen([100.0, 100.0, 400.0, 400.0], 0.9, whole),
                seen([200.0, 200.0, 260.0, 260.0], 0.8, left),
            ],
            vec![[100.0, 100.0, 400.0, 400.0], [200.0, 200.0, 260.0, 260.0]],
        ),
        (
            "a small one in front of one that is cut",
            vec![
                seen([200.0, 100.0, 560.0, 400.0], 0.9, left),
                seen([480.0, 200.0, 540.0, 260.0], 0.8, right),
            ],
            vec![[200.0, 100.0, 560.0, 400.0], [480.0, 200.0, 540.0, 260.0]],
        ),
        (
            "the tile's box is more exact than the whole image's",
            vec![
                seen([210.0, 210.0, 300.0, 290.0], 0.9, whole),
                seen([220.0, 215.0, 295.0, 290.0], 0.7, left),
            ],
            vec![[220.0, 215.0, 295.0, 290.0]],
        ),
        (
            "an object at the image's own border is not cut",
            vec![seen([0.0, 0.0, 100.0, 100.0], 0.9, left), seen([0.0, 0.0, 150.0, 160.0], 0.8, whole)],
            vec![[0.0, 0.0, 100.0, 100.0]],
        ),
    ];
    let mut wrong = Vec::new();
    for (what, all, expected) in cases {
        for order in [all.clone(), all.into_iter().rev().collect()] {
            let found: Vec<[f32; 4]> =
                merged(order, &PostProcessOptions::default()).iter().map(|one| one.bbox.to_xyxy()).collect();
            if found != expected {
                wrong.push(format!("{what}: {found:?}, expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_object_across_three_tiles_is_joined_and_keeps_the_highest_score() {
    let parts = [(0, 200.0, 400.0, 0.5), (300, 300.0, 700.0, 0.9), (600, 600.0, 800.0, 0.7)];
    let parts = parts.map(|(x, left, right, score)| seen([left, 50.0, right, 90.0], score, tile(x, 400)));
    let found = merged(parts, &PostProcessOptions::default());
    let found: Vec<_> = found.iter().map(|one| (one.bbox.to_xyxy(), one.score)).collect();
    assert_eq!(found, [([200.0, 50.0, 800.0, 90.0], 0.9)]);
}

#[test]
fn sure_parts_of_smaller_tiles_replace_a_box_and_a_single_one_does_not() {
    let (left, right) = (tile(300, 200), tile(460, 200));
    let whole = || seen([400.0, 100.0, 600.0, 300.0], 0.5, Region::whole(IMAGE));
    let parts = |score| {
        let left = seen([410.0, 120.0, 500.0, 280.0], score, left);
        [left, seen([460.0, 120.0, 580.0, 280.0], 0.8 * score, right)]
    };
    let edges = |all: Vec<TileDetection>| -> Vec<([f32; 4], f32)> {
        let found = merged(all, &PostProcessOptions::default());
        found.iter().map(|one| (one.bbox.to_xyxy(), one.score)).collect()
    };
    let joined = [410.0, 120.0, 580.0, 280.0];
    assert_eq!(edges([vec![whole()], parts(0.9).into()].concat()), [(joined, 0.9)]);
    let of_whole = ([400.0, 100.0, 600.0, 300.0], 0.5);
    assert_eq!(edges([vec![whole()], parts(0.4).into()].concat()), [of_whole], "less sure");
    assert_eq!(edges(vec![whole(), parts(0.9)[0].clone()]), [of_whole], "one part is not the object");
    // What is hardly sure adds nothing to what is joined.
    let unsure = seen([460.0, 60.0, 640.0, 290.0], 0.2, right);
    assert_eq!(edges([vec![unsure], parts(0.9).into()].concat()), [(joined, 0.9)]);
}

#[test]
fn masks_are_joined_and_tell_objects_apart() {
    let (left, right) = (tile(0, 560), tile(440, 560));
    let found = merged(
        [
            with_mask([400, 100, 560, 200], |_, _| true, left),
            with_mask([440, 100, 700, 200], |_, _| true, right),
        ],
        &PostProcessOptions::default(),
    );
    let masks: Vec<&Mask> = found.iter().filter_map(|one| one.mask.as_ref()).collect();
    let all = masks.iter().map(|mask| (mask.area(), mask.bounding_box().map(BoundingBox::to_xyxy)));
    assert_eq!(all.collect::<Vec<_>>(), [(300 * 100, Some([400.0, 100.0, 700.0, 200.0]))]);
    // The same boxes in the overlap, and no pixel in common.
    let [even, odd] = [0, 1].map(|rest| move |_: u32, y: u32| y % 2 == rest);
    let apart = [with_mask([400, 100, 560, 200], even, left), with_mask([440, 100, 700, 200], odd, right)];
    assert_eq!(merged(apart, &PostProcessOptions { nms: None, ..Default::default() }).len(), 2);
}

#[test]
fn limits_apply_to_the_whole_image() {
    let (left, right) = (tile(0, 560), tile(440, 560));
    let all = || {
        let other = |one: TileDetection| {
            let mut merge = Merge::default();
            merge.add(one);
            merge.finish(&PostProcessOptions::default()).expect("no masks").0.remove(0)
        };
        let cat =
            Detection { class_id: 1, ..other(seen([100.0, 100.0, 200.0, 202.0], 0.4, Region::whole(IMAGE))) };
        [
            seen([100.0, 100.0, 200.0, 200.0], 0.9, left),
            seen([700.0, 100.0, 800.0, 200.0], 0.5, right),
            TileDetection::new(cat, Region::whole(IMAGE), IMAGE).expect("no mask"),
        ]
    };
    let count =
        |options: PostProcessOptions| merged(all(), &options).iter().map(|one| one.score).collect::<Vec<_>>();
    assert_eq!(count(PostProcessOptions::default()), [0.9, 0.5, 0.4]);
    assert_eq!(count(PostProcessOptions { max_detections: Some(1), ..Default::default() }), [0.9]);
    let agnostic = PostProcessOptions { class_agnostic_nms: Some(0.7), ..Default::default() };
    assert_eq!(count(agnostic), [0.9, 0.5]);
}

#[test]
fn semantic_maps_are_joined_by_class() {
    let map = |class_id, width| SemanticMap {
        class_id,
        label: Arc::from("dog"),
        mask: Mask::from_bitmap(&vec![1; width as usize * 600], width, 600).expect("a byte for each pixel"),
    };
    let mut merge = Merge::default();
    for (class, region) in [(1, tile(0, 560)), (0, tile(0, 100)), (1, tile(440, 300))] {
        merge.add_semantic(map(class, region.width), region, IMAGE).expect("it is in the image");
    }
    let (_, maps) = merge.finish(&PostProcessOptions::default()).expect("the same sizes");
    let areas: Vec<_> = maps.iter().map(|map| (map.class_id, map.mask.area())).collect();
    assert_eq!(areas, [(0, 100 * 600), (1, 740 * 600)]);
}

#[test]
fn tiles_are_sized_for_the_smaller_objects() {
    // Sizes of objects, the model's input and patch, the side.
    let cases = [
        (vec![], 1008, 14, 1008),
        (vec![28.0], 1008, 14, 1008),
        (vec![56.0], 1008, 14, 2016),
        (vec![3.0], 1008, 14, 504),
        ((0..20).map(|n| 10.0 * (n + 1) as f32).collect(), 224, 14, 240),
    ];
    for (mut sizes, side, patch, expected) in cases {
        assert_eq!(size_for(&mut sizes, side, patch), expected, "{sizes:?} {side}");
    }
}

#[test]
fn the_busiest_tile_of_each_quarter_is_found() {
    let (width, height) = (80, 80);
    let mut pixels = vec![100u8; 80 * 80 * 3];
    // Stripes in a tile of the upper left and one of the lower right quarter.
    for (left, top) in [(20, 0), (60, 40)] {
        for y in (top..top + 20).step_by(2) {
            pixels[(y * 80 + left) * 3..][..60].fill(200);
        }
    }
    let image = Image::from_rgb8(width, height, pixels).expect("three bytes for each pixel");
    let tiles = Tiling::default().with_overlap(0.0).grid((width, height), (20, 20));
    let found = busiest(&tiles, &(&image).into(), (width, height));
    let at: Vec<_> = found.iter().map(|tile| (tile.x, tile.y)).collect();
    assert_eq!(at.len(), 4);
    assert!(at.contains(&(20, 0)) && at.contains(&(60, 40)), "{at:?}");
}

#[test]
fn parts_of_an_image_in_memory_are_its_pixels() {
    let pixels: Vec<u8> = (0..12 * 8 * 3).map(|index| (index % 251) as u8).collect();
    let image = Image::from_rgb8(12, 8, pixels).expect("three bytes for each pixel");
    let region = Region { x: 3, y: 2, width: 5, height: 4 };
    let mut regions = WholeImage::new(&image).expect("it has all bytes");
    let part = regions.region(region).and_then(|part| part.to_image()).expect("it is inside");
    let expected: Vec<u8> = (2..6).flat_map(|y| image.as_rgb8()[(y * 12 + 3) * 3..][..15].to_vec()).collect();
    assert_eq!((part.width(), part.height(), part.as_rgb8()), (5, 4, expected.as_slice()));
    assert!(regions.region(Region { x: 8, ..region }).is_err());

    let planes = vec![128u8; 12 * 8 * 3 / 2];
    let frame = FrameView {
        data: &planes,
        width: 12,
        height: 8,
        stride: 12,
        format: PixelFormat::Nv12,
        timestamp: std::time::Duration::ZERO,
    };
    let mut regions = WholeImage::new(frame).expect("it has all bytes");
    let whole = frame.to_image().expect("it has all bytes");
    let part = regions.region(region).and_then(|part| part.to_image()).expect("it is inside");
    assert_eq!(part.as_rgb8(), &whole.as_rgb8()[..60]);
}

#[test]
fn images_with_too_many_tiles_are_refused() {
    let tiling = |side| Tiling::new(TileSize::square(side)).with_most_tiles(64);
    // A model that sees 320 pixels.
    for (image, side, count) in [
        ((7000, 7000), 32, Some(83_475)),
        ((2000, 400), 100, Some(137)),
        ((2000, 400), 200, None),
        ((320, 320), 32, None),
        ((40_000, 33), 32, Some(3_721)),
    ] {
        let said = tiling(side).check_image(image, 320).map_err(|error| error.to_string()).err();
        let expected = count.map(|count: u64| format!("{count} tiles"));
        let is_right = said.as_ref().zip(expected.as_ref()).map(|(said, part)| said.contains(part));
        assert!(is_right.unwrap_or(said.is_none() && expected.is_none()), "{image:?} {side}: {said:?}");
        assert!(said.is_none_or(|said| said.contains("expected at most 64")));
        let levels = tiling(side).levels(image, (side, side));
        assert!(levels.is_ok() || count.is_some() || image == (320, 320), "{image:?} {side}");
        let all: usize = Tiling::new(TileSize::square(side))
            .levels(image, (side, side))
            .map_or(0, |levels| levels.iter().map(Vec::len).sum());
        assert!(count.is_none_or(|count| count == all as u64), "{all} tiles");
    }
    assert!(Tiling::default().with_most_tiles(1).check_image((7000, 7000), 320).is_ok(), "not known yet");
}
