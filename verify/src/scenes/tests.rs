use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use super::{MovingScene, Scene, SceneGenerator, SceneOptions, pictogram, vocabulary};
use ocelli::{ErrorKind, Frame, image::Image, source::Source};

fn hash(image: &Image) -> String {
    Sha256::digest(image.as_rgb8()).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn generator(seed: u64, options: SceneOptions) -> SceneGenerator {
    SceneGenerator::new(seed, options).expect("the options are valid")
}

fn video(seed: u64, labels: &[&str], frames: u64) -> MovingScene {
    MovingScene::new(seed, labels, 320, 240, frames, 15.0).expect("the options are valid")
}

#[test]
fn every_label_has_a_pictogram() {
    assert_eq!(vocabulary().len(), 80);
    assert_eq!(vocabulary().iter().collect::<BTreeSet<_>>().len(), 80);
    let mut failures = Vec::new();
    for (index, name) in vocabulary().iter().enumerate() {
        let sprite = pictogram::sprite(index);
        let largest = sprite.width.max(sprite.height);
        if !(100..=128).contains(&largest) || sprite.width.min(sprite.height) < 30 {
            failures.push(format!("{name}: {}x{}", sprite.width, sprite.height));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The hashes are the same on every machine and in every build. If they change, benchmarks measure something else.
#[test]
fn a_seed_determines_the_pixels() {
    let (seven, eight) = (generator(7, SceneOptions::default()), generator(8, SceneOptions::default()));
    let large = generator(7, SceneOptions { width: 640, height: 480, ..SceneOptions::default() });
    let moving = MovingScene::new(3, &["dog", "car", "kite"], 640, 480, 100, 25.0).expect("known names");
    let cases = [
        ("seed 7, scene 0", hash(&seven.scene(0).image), "3842e30064b9a807121a1b9c"),
        ("seed 7, scene 499", hash(&seven.scene(499).image), "c2b4cac4c350e3a397c4eb10"),
        ("seed 8, scene 0", hash(&eight.scene(0).image), "d17ffb420f059fdfe49d1ce2"),
        ("640x480, scene 1", hash(&large.scene(1).image), "e098e03c90d7b7c832bc97d9"),
        ("video, frame 0", hash(&moving.image(0)), "b3fdebece28d37a512ac3194"),
        ("video, frame 99", hash(&moving.image(99)), "8fc2ca07b10f05b47c9d822f"),
    ];
    let wrong: Vec<_> = cases.iter().filter(|(_, came, expected)| came != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(seven.scene(5).image, seven.scene(5).image);
}

/// Outside the masks, the image hardly differs from its background.
#[test]
fn masks_and_boxes_are_where_the_pictograms_are() {
    let drawn = SceneOptions { noisy: 0.0, ..SceneOptions::default() };
    let bare = generator(11, SceneOptions { objects: 0..=0, ..drawn.clone() });
    let drawn = generator(11, drawn);
    let mut failures = Vec::new();
    let (mut objects, mut hidden) = (0, 0);
    for index in 0..30 {
        let Scene { image, objects: found } = drawn.scene(index);
        let background = bare.scene(index).image;
        let mut owners = vec![0u8; (image.width() * image.height()) as usize];
        for object in &found {
            let bitmap = object.mask.to_bitmap();
            if object.mask.bounding_box() != Some(object.bbox) {
                failures.push(format!("scene {index}: {} is not where its mask is", object.label));
            }
            owners.iter_mut().zip(&bitmap).for_each(|(owner, pixel)| *owner += pixel);
        }
        objects += found.len();
        hidden += usize::from(found.iter().any(|object| {
            found.iter().any(|other| other.bbox != object.bbox && other.bbox.iou(&object.bbox) > 0.0)
        }));
        let change = |at: usize| {
            let both = image.as_rgb8()[at * 3..at * 3 + 3].iter().zip(&background.as_rgb8()[at * 3..]);
            both.map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
        };
        let (mut changed, mut covered, mut strays) = (0, 0, 0);
        for (at, &owner) in owners.iter().enumerate() {
            match owner {
                // Up to half of a pictogram's colour at its soft edge.
                0 => strays += usize::from(change(at) > 128),
                1 => (covered, changed) = (covered + 1, changed + usize::from(change(at) > 0)),
                _ => failures.push(format!("scene {index}: pixel {at} belongs to {owner}")),
            }
        }
        if strays > 3 || changed * 10 < covered * 8 {
            failures.push(format!("scene {index}: {changed} of {covered} changed, {strays} outside"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(objects > 90 && hidden > 3, "only {objects} objects, {hidden} scenes with some that touch");
}

#[test]
fn options_are_checked_and_obeyed() {
    let labels = ["dog".to_owned(), "red car".to_owned()];
    let cases = [
        ("a name", SceneOptions { labels: labels.to_vec(), ..SceneOptions::default() }),
        ("no objects", SceneOptions { objects: RangeInclusive::new(3, 2), ..SceneOptions::default() }),
        ("no kinds", SceneOptions { kinds: 0..=2, ..SceneOptions::default() }),
        ("too small", SceneOptions { width: 31, ..SceneOptions::default() }),
        ("too large", SceneOptions { height: 9000, ..SceneOptions::default() }),
        ("a share", SceneOptions { noisy: f64::NAN, ..SceneOptions::default() }),
    ];
    let mut failures = Vec::new();
    for (name, options) in cases {
        match SceneGenerator::new(0, options) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    for (name, labels, rate) in
        [("no name", &[][..], 30.0), ("a name", &["unicorn"], 30.0), ("a rate", &["dog"], 0.0)]
    {
        match MovingScene::new(0, labels, 64, 64, 1, rate) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let only_dogs =
        generator(1, SceneOptions { labels: vec!["dog".into()], objects: 2..=2, ..SceneOptions::default() });
    let found: Vec<_> = (0..10).flat_map(|index| only_dogs.scene(index).objects).collect();
    assert!(found.len() > 15 && found.iter().all(|object| object.label == "dog"), "{}", found.len());
}

#[test]
fn a_video_reads_the_frames_that_image_draws() {
    let mut source = video(5, &["cat", "bus"], 4);
    assert_eq!(source.info().frame_count, Some(4));
    assert_eq!(source.info().size, Some((320, 240)));
    let (mut frame, mut seen) = (Frame::default(), 0);
    while source.read_into(&mut frame).expect("drawing does not fail") {
        assert_eq!(frame.index, seen);
        assert!((frame.time.as_secs_f64() - seen as f64 / 15.0).abs() < 1e-6, "{:?}", frame.time);
        assert_eq!(frame.image, source.image(seen));
        seen += 1;
    }
    assert_eq!(seen, 4);
}

/// Nothing moves outside the boxes of the ground truth, and everything that makes tracking hard occurs.
#[test]
fn the_ground_truth_of_a_video_matches_its_pixels() {
    let scene = video(9, &["dog", "car", "tree", "star"], 600);
    let (mut failures, mut ids) = (Vec::new(), BTreeSet::new());
    let (mut crossing, mut hidden, mut cut) = (0, 0, 0);
    for index in (0..600).step_by(10) {
        let truth = scene.truth(index);
        let image = scene.image(index);
        let mut outside = vec![true; 320 * 240];
        for one in &truth {
            ids.insert(one.id);
            let [x1, y1, x2, y2] = one.bbox.to_xyxy();
            cut += usize::from(x1 == 0.0 || y1 == 0.0 || x2 == 320.0 || y2 == 240.0);
            hidden += usize::from(one.visible < 0.5);
            crossing +=
                truth.iter().filter(|other| other.id > one.id && other.bbox.iou(&one.bbox) > 0.3).count();
            if scene.label(one.class_id) != one.label || !(0.0..=1.0).contains(&one.visible) {
                failures.push(format!("frame {index}: {one:?}"));
            }
            // A soft edge is no more than two pixels wide.
            for y in (y1 as usize).saturating_sub(2)..(y2 as usize + 2).min(240) {
                let row = y * 320 + (x1 as usize).saturating_sub(2)..y * 320 + (x2 as usize + 2).min(320);
                outside[row].fill(false);
            }
        }
        let moved = (0..320 * 240).filter(|&at| {
            outside[at] && image.as_rgb8()[at * 3..at * 3 + 3] != scene.background[at * 3..at * 3 + 3]
        });
        // A sliver at the border is too faint for a box.
        let moved = moved.filter(|at| (2..318).contains(&(at % 320)) && (2..238).contains(&(at / 320)));
        if moved.count() > 0 {
            failures.push(format!("frame {index}: something is outside of {truth:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let seen = format!("{} ids, {crossing} crossings, {hidden} hidden, {cut} at the border", ids.len());
    assert!(ids.len() > 15 && crossing > 10 && hidden > 10 && cut > 10, "{seen}");
}
