//! Large images in tiles, with the built-in model on drawn scenes.
//!
//! `cargo test -p ocelli-tests tiles -- --nocapture` prints the figures. Needs ONNX Runtime; `make setup` installs it.

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use ocelli::tiles::{TileSize, TiledImage, Tiling};
use ocelli::{
    BoundingBox, Detection, Detections, Detector, DetectorBuilder, Image, Pipeline, Prompt, Prompts,
    stages::TextCacheFile,
};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions};

const NAMES: [&str; 6] = ["dog", "car", "umbrella", "pizza", "tree", "clock"];
/// Small scenes in a row and in a column of the large image.
const COLUMNS: u32 = 5;
const ROWS: u32 = 5;

fn builder() -> DetectorBuilder {
    Detector::builder().with_confidence(0.3).with_text_cache(TextCacheFile::None)
}

fn detector(tiling: impl Into<Option<Tiling>>) -> Detector {
    builder().with_options(|options| options.tiling = tiling.into()).build().expect("the built-in model runs")
}

/// With masks and semantic maps.
fn with_maps(tiling: Option<Tiling>) -> DetectorBuilder {
    builder().with_options(|options| {
        (options.masks, options.semantic_maps, options.tiling) = (true, true, tiling);
    })
}

fn prompts() -> Prompts {
    Prompts::new(NAMES).expect("valid names")
}

fn look(detector: &mut Detector, image: &Image) -> Detections {
    detector.detect(image, &prompts()).expect("it detects")
}

/// An image of 25 scenes of 320 × 320 pixels, and what is in it.
fn drawn_image() -> (Image, Vec<(&'static str, BoundingBox)>) {
    let labels = NAMES.map(str::to_owned).to_vec();
    let options = SceneOptions {
        width: 320,
        height: 320,
        objects: 2..=4,
        noisy: 0.0,
        labels,
        ..SceneOptions::default()
    };
    let generator = SceneGenerator::new(5, options).expect("valid options");
    let (width, height) = (COLUMNS * 320, ROWS * 320);
    let mut image = Image::from_rgb8(width, height, vec![0; (width * height * 3) as usize]).expect("a size");
    let pixels = image.reset_rgb8(width, height).expect("a size");
    let mut objects = Vec::new();
    for index in 0..COLUMNS * ROWS {
        let scene = generator.scene(u64::from(index));
        let (left, top) = (index % COLUMNS * 320, index / COLUMNS * 320);
        for (y, row) in scene.image.as_rgb8().chunks_exact(3 * 320).enumerate() {
            let at = ((top as usize + y) * width as usize + left as usize) * 3;
            pixels[at..at + row.len()].copy_from_slice(row);
        }
        objects.extend(scene.objects.iter().map(|object| {
            let (b, x, y) = (object.bbox, left as f32, top as f32);
            (object.label, BoundingBox::new(b.x1 + x, b.y1 + y, b.x2 + x, b.y2 + y))
        }));
    }
    (image, objects)
}

/// The number of objects that were found, and of detections of no object.
fn hits(found: &[Detection], objects: &[(&str, BoundingBox)]) -> (usize, usize) {
    let fits = |one: &Detection, object: &(&str, BoundingBox)| {
        *one.label == *object.0 && one.bbox.iou(&object.1) > 0.5
    };
    let hit = objects.iter().filter(|object| found.iter().any(|one| fits(one, object))).count();
    (hit, found.iter().filter(|one| !objects.iter().any(|object| fits(one, object))).count())
}

/// Small objects are found with tiles, whatever their size, and hardly without; a file read in parts gives the same.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn objects_that_are_small_in_a_large_image_are_found() {
    let (image, objects) = drawn_image();
    let count = |found: &Detections| hits(found, &objects);
    let (whole, _) = count(&look(&mut detector(None), &image));
    let mut large = 0;
    for size in [TileSize::Auto, TileSize::square(320), TileSize::Pixels { width: 400, height: 300 }] {
        let mut detector = detector(Tiling::new(size).with_overlap(0.25));
        let found = look(&mut detector, &image);
        let (hit, wrong) = count(&found);
        println!("{size}: {hit} of {} objects, {wrong} wrong, without tiles {whole}", objects.len());
        assert!(hit * 100 >= objects.len() * 85 && wrong * 6 <= objects.len(), "{size}: {hit} and {wrong}");
        large = large.max(hit);
        if size == TileSize::square(320) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let path = folder.path().join("large.png");
            image.clone().into_rgb_image().save(&path).expect("it can be written");
            let mut file = TiledImage::open(&path).expect("it is an image");
            let embedded = detector.prepare(&prompts()).expect("they are encoded");
            assert_eq!(detector.detect_regions(&mut file, &embedded).expect("it detects").items, found.items);
        }
    }
    assert!(whole * 3 < large, "{whole} without tiles, {large} with them");
}

/// Results are the same to the last bit where tiles do not matter.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn an_image_that_needs_no_tiles_gives_the_same() {
    let options = SceneOptions { labels: NAMES.map(str::to_owned).to_vec(), ..SceneOptions::default() };
    let small = SceneOptions { width: 224, height: 200, ..options.clone() };
    let scene = SceneGenerator::new(6, options).expect("valid options").scene(1).image;
    let small = SceneGenerator::new(6, small).expect("valid options").scene(0).image;
    let with = |tiling| with_maps(tiling).build();
    let mut plain = with(None).expect("the built-in model runs");
    let sizes = [(TileSize::Auto, &small), (TileSize::square(64), &small), (TileSize::square(448), &scene)];
    for (size, image) in sizes {
        let mut tiled = with(Some(Tiling::new(size))).expect("the built-in model runs");
        let (expected, found) = (look(&mut plain, image), look(&mut tiled, image));
        assert!(!expected.items.is_empty(), "{size}");
        assert_eq!((found.items, found.semantic), (expected.items, expected.semantic), "{size}");
    }
}

/// Masks and semantic maps are as large as the image, and an object across tiles has one mask.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn masks_are_joined_across_tiles() {
    let options = SceneOptions {
        width: 640,
        height: 640,
        objects: 3..=3,
        kinds: 1..=1,
        noisy: 0.0,
        labels: vec!["pizza".into()],
        sizes: None,
    };
    let scene = SceneGenerator::new(11, options).expect("valid options").scene(2);
    let tiling = Tiling::new(TileSize::square(300));
    let mut detector = with_maps(Some(tiling)).build().expect("it runs");
    let found = detector.detect(&scene.image, &Prompts::new(["pizza"]).expect("a name")).expect("it detects");
    assert_eq!(found.len(), scene.objects.len());
    for object in &scene.objects {
        let ious = found.iter().filter_map(|one| one.mask.as_ref()?.iou(&object.mask).ok());
        let best = ious.fold(0.0, f64::max);
        assert!(best > 0.75, "a mask with an IoU of {best}");
    }
    assert_eq!(found.semantic.len(), 1);
    assert_eq!((found.semantic[0].mask.width(), found.semantic[0].mask.height()), (640, 640));
}

/// An exemplar is encoded where it is, and found in all tiles.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn an_exemplar_is_searched_for_in_all_tiles() {
    let (image, objects) = drawn_image();
    let mut detector = detector(Tiling::new(TileSize::square(320)));
    let (mut hit, mut all) = (0, 0);
    for label in ["pizza", "clock"] {
        let same: Vec<_> = objects.iter().filter(|object| object.0 == label).copied().collect();
        let shown = Prompt::visual(label).with_exemplar(same[0].1, true);
        let found = detector.detect(&image, &Prompts::new([shown]).expect("an area")).expect("it detects");
        hit += hits(&found, &same).0;
        all += same.len();
    }
    println!("{hit} of {all} objects by one exemplar");
    assert!(all > 8 && hit * 10 >= all * 7, "{hit} of {all}");
    let outside = Prompt::visual("x").with_exemplar(BoundingBox::new(5000.0, 0.0, 5100.0, 90.0), true);
    let refused = detector.detect(&image, &Prompts::new([outside]).expect("an area"));
    assert!(refused.expect_err("it is outside").to_string().contains("is outside the image of 1600 × 1600"));
}

/// A frame of a video is searched as an image is; what needs the features of a whole frame is refused.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn frames_are_searched_in_tiles() {
    let (image, _) = drawn_image();
    let tiling = Tiling::new(TileSize::square(640));
    let expected = look(&mut detector(tiling), &image).items;
    let pipeline = Pipeline::builder(detector(tiling), prompts()).build().expect("it starts");
    pipeline.push((&image).into()).expect("there is room");
    let outcome = pipeline.recv().expect("it detects").expect("a frame was pushed");
    assert!(outcome.detected && !expected.is_empty());
    assert_eq!(outcome.detections, expected);
    let refused = Pipeline::builder(detector(tiling), prompts())
        .with_options(|options| options.class_budget = Some(1))
        .build();
    assert!(refused.expect_err("a budget").to_string().starts_with("class_budget beside tile: "));
}
