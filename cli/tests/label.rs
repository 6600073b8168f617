//! Runs `ocelli label`: data sets, errors, and resuming after interruptions.
//!
//! Needs ONNX Runtime; `make setup` installs it.

pub mod data_set;
mod formats;
mod refusals;
pub mod stopped;
mod tars;
mod videos;

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::Mask;
use serde_json::Value;

use crate::run::{Place, refusal};
use data_set::{CLASSES, IMGSZ, differences, tree, write_images};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

/// The arguments of a run from `images` to `output`, followed by others.
fn arguments<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let whole =
        ["label", "--model", "built-in", "--imgsz", IMGSZ, "--images", "images", "--classes", CLASSES];
    let whole = [&whole[..], &["-o", output]].concat();
    [&whole[..], more].concat()
}

#[cfg(unix)]
fn is_same_file(link: &std::fs::Metadata, source: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    source.metadata().is_ok_and(|source| (source.dev(), source.ino()) == (link.dev(), link.ino()))
}

#[cfg(not(unix))]
fn is_same_file(link: &std::fs::Metadata, source: &Path) -> bool {
    source.metadata().is_ok_and(|source| source.len() == link.len())
}

/// The text of a data set's journal.
fn journal_of(place: &Place, set: &str) -> String {
    String::from_utf8(place.read(&format!("{set}/.ocelli-label/journal.jsonl"))).expect("it is text")
}

const ALL_FORMATS: [&str; 2] = ["--format", "yolo,yolo-seg,coco"];

#[test]
fn all_formats_have_the_same_instances() {
    let place = Place::new();
    write_images(&place, "images", 12);
    place.succeed(OCELLI, &arguments("set", &ALL_FORMATS));
    let coco = place.json("set/annotations.json");
    let list = |key: &str| coco[key].as_array().cloned().unwrap_or_default();
    let (images, annotations) = (list("images"), list("annotations"));
    assert_eq!(images.len(), 12);
    assert!(annotations.len() > 20, "{} annotations", annotations.len());
    let names: Vec<&str> = CLASSES.split(',').collect();
    for (id, category) in list("categories").iter().enumerate() {
        assert_eq!(
            (category["id"].as_u64(), category["name"].as_str()),
            (Some(id as u64 + 1), Some(names[id]))
        );
    }
    assert_eq!(String::from_utf8_lossy(&place.read("set/classes.txt")), names.join("\n") + "\n");
    assert!(
        String::from_utf8_lossy(&place.read("set/data.yaml"))
            .contains("\nval: images/val\nnames:\n  0: \"wine glass\"\n")
    );

    let mut failures = Vec::new();
    let mut validation = 0;
    for (number, image) in images.iter().enumerate() {
        assert_eq!(image["id"], number as u64 + 1);
        let name = image["file_name"].as_str().expect("it has a name");
        validation += usize::from(name.starts_with("val/"));
        let of_image: Vec<&Value> = annotations.iter().filter(|one| one["image_id"] == image["id"]).collect();
        let label = name.replace(".png", ".txt");
        let lines = |path: String| -> Vec<Vec<f64>> {
            let text = String::from_utf8(place.read(&path)).expect("labels are text");
            let number = |word: &str| word.parse().expect("labels are numbers");
            text.lines().map(|line| line.split(' ').map(number).collect()).collect()
        };
        let (boxes, polygons) =
            (lines(format!("set/labels/{label}")), lines(format!("set/segments/labels/{label}")));
        if (boxes.len(), polygons.len()) != (of_image.len(), of_image.len()) {
            failures.push(format!(
                "{name}: {} annotations, {} boxes, {} polygons",
                of_image.len(),
                boxes.len(),
                polygons.len()
            ));
            continue;
        }
        // Hard links: COCO's loaders refuse symbolic ones that leave the data set.
        let link = place.path(&format!("set/images/{name}")).symlink_metadata().expect("it is there");
        let source = place.path("images").join(name.split_once('/').expect("a split").1);
        assert!(link.is_file() && is_same_file(&link, &source), "{name}");
        let (width, height) =
            (image["width"].as_f64().unwrap_or(0.0), image["height"].as_f64().unwrap_or(0.0));
        for ((annotation, yolo), polygon) in of_image.iter().zip(&boxes).zip(&polygons) {
            let found = serde_json::from_value::<[f64; 4]>(annotation["bbox"].clone())
                .expect("a box is four numbers");
            let [cx, cy, w, h] = [yolo[1] * width, yolo[2] * height, yolo[3] * width, yolo[4] * height];
            let same =
                [cx - w / 2.0, cy - h / 2.0, w, h].iter().zip(found).all(|(a, b)| (a - b).abs() < 0.02);
            let mask: Mask = serde_json::from_value(annotation["segmentation"].clone()).expect("run lengths");
            let is_id =
                Some(yolo[0] as u64 + 1) == annotation["category_id"].as_u64() && yolo[0] == polygon[0];
            let is_whole = polygon.len() >= 7 && polygon.len() % 2 == 1;
            let is_inside = polygon[1..].iter().all(|share| (0.0..=1.0).contains(share));
            let is_area = annotation["area"].as_f64() == Some(mask.area() as f64);
            if !(same && is_id && is_whole && is_inside && is_area && annotation["iscrowd"] == 0) {
                failures.push(format!("{name}: {annotation}, {yolo:?}, {polygon:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!((1..=4).contains(&validation), "{validation} of 12 are for validation");
    let ids: Vec<_> = annotations.iter().filter_map(|annotation| annotation["id"].as_u64()).collect();
    assert_eq!(ids, (1..=annotations.len() as u64).collect::<Vec<_>>());
}

#[test]
fn options_of_formats_and_images() {
    let place = Place::new();
    write_images(&place, "images", 4);
    place.succeed(OCELLI, &arguments("boxes", &["--format", "coco", "--no-masks"]));
    let coco = place.json("boxes/annotations.json");
    assert_eq!(coco["images"][0]["file_name"], "000.png");
    assert!(coco["annotations"][0].get("segmentation").is_none(), "{coco}");
    let names: Vec<_> = tree(&place.path("boxes")).into_keys().collect();
    let files = ["annotations.json", "annotations_train.json", "annotations_val.json"];
    assert_eq!(names, files.map(std::path::PathBuf::from));

    place.succeed(OCELLI, &arguments("polygons", &["--format", "coco,yolo-seg", "--polygons", "--copy"]));
    let coco = place.json("polygons/annotations.json");
    assert!(
        coco["annotations"][0]["segmentation"][0].as_array().is_some_and(|ring| ring.len() >= 6),
        "{coco}"
    );
    let name = coco["images"][0]["file_name"].as_str().expect("it has a name");
    let copy = place.path(&format!("polygons/images/{name}"));
    assert!(copy.symlink_metadata().is_ok_and(|meta| meta.is_file()));
    assert_eq!(place.read(&format!("polygons/images/{name}")), place.read("images/000.png"));
    // With one YOLO format, the folder of the other does not exist.
    assert!(place.path("polygons/labels/train").is_dir() && !place.path("polygons/segments").exists());

    // All formats are written from the journal: another format does not need the images again.
    for formats in ["coco,yolo", "yolo-seg"] {
        let said = place.run(OCELLI, &arguments("polygons", &["--format", formats, "--copy"]));
        let words = "0 images to label, 4 done before";
        assert!(said.status == Some(0) && said.stderr.contains(words), "{formats}: {said:?}");
    }
    let without = place.run(OCELLI, &arguments("polygons", &["--format", "yolo"]));
    without.is_refusal(1, &["asked for now have boxes alone", "--restart"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn inputs_of_every_kind() {
    let place = Place::new();
    write_images(&place, "x/images", 6);
    write_images(&place, "y", 3);
    let scene = place.read("y/000.png");
    // Names that differ in their extension only, and a format that trainers do not read.
    let decoded = image::load_from_memory(&scene).expect("it is an image");
    decoded.save(place.path("y/000.bmp")).expect("it can be written");
    decoded.to_rgb8().save(place.path("y/other.ppm")).expect("it can be written");
    place.write("list.txt", "x/images/000.png\nx/images/a/001.png\n");
    let label = |output: &str, images: &[&str]| {
        let start =
            ["label", "--model", "built-in", "--imgsz", IMGSZ, "--classes", "dog", "-q", "-o", output];
        let start = [&start[..], &["--images"]].concat();
        place.succeed(OCELLI, &[&start[..], images].concat());
        let tree = tree(&place.path(output)).into_keys().map(|path| path.to_string_lossy().into_owned());
        let parts = ["images/train/", "images/val/"];
        let mut names: Vec<String> = tree
            .filter_map(|name| parts.iter().find_map(|part| name.strip_prefix(part)).map(str::to_owned))
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        label("both", &["x/images", "y"]),
        [
            "000-2.bmp",
            "000-3.png",
            "000.png",
            "001.png",
            "a/000-2.png",
            "a/000.png",
            "a/001.png",
            "b c/002-2.png",
            "b c/002.png",
            "b c/005.png",
            "other.png"
        ]
    );
    assert_eq!(label("above", &["x"]).len(), 6);
    assert!(
        place.path("above/labels").join("train/images_").is_dir(),
        "trainers would look for the labels in another folder"
    );
    assert_eq!(label("glob", &["x/*/*.png"]), ["images_/000.png", "images_/001.png"]);
    assert_eq!(label("list", &["@list.txt"]), ["x/images_/000.png", "x/images_/a/001.png"]);
    assert_eq!(label("list-2", &["list.txt"]).len(), 2);
    assert_eq!(label("file", &["y/000.png", "y/000.png"]), ["000.png"]);

    let mut child = place.command(
        OCELLI,
        &["label", "--model", "built-in", "--classes", "dog", "-q", "-o", "stdin", "--images", "-"],
    );
    let mut child = child
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, b"y/000.png\n").expect("it reads");
    drop(input);
    assert!(child.wait().is_ok_and(|status| status.success()));
    assert_eq!(tree(&place.path("stdin")).keys().filter(|path| path.starts_with("images")).count(), 1);

    // The output folder may be inside the input folder: its images are ignored.
    let inside = label("y/set", &["y"]);
    assert_eq!(label("y/set", &["y"]), inside);
    assert_eq!(inside.len(), 5);
}

#[test]
fn class_maps_define_the_classes() {
    let place = Place::new();
    write_images(&place, "images", 8);
    let shown = place.succeed(
        OCELLI,
        &[
            "label",
            "--model",
            "built-in",
            "--imgsz",
            IMGSZ,
            "--images",
            "images",
            "--classes",
            "boat,bicycle,tv",
            "-o",
            "plain",
            "--format",
            "coco",
        ],
    );
    assert!(shown.contains("boat"), "{shown}");
    let plain = place.json("plain/annotations.json");
    let scores = |coco: &Value, class: u64| -> Vec<f64> {
        let annotations = coco["annotations"].as_array().cloned().unwrap_or_default();
        annotations.iter().filter(|t| t["category_id"] == class).filter_map(|t| t["score"].as_f64()).collect()
    };
    let boats = scores(&plain, 1);
    assert!(boats.len() > 1, "{boats:?}");
    let limit = boats.iter().copied().fold(1.0, f64::min) + 1e-4;
    place.write(
        "map.yaml",
        format!(
            "classes:\n- name: vehicle\n  phrases: [boat, bicycle]\n- name: boat\n  threshold: {limit}\n- name: big tv\n  phrases: [tv]\n  \
             min_area: 100000000\nmerge:\n- classes: [vehicle, boat]\n  iou: 0.3\n"
        ),
    );
    place.succeed(
        OCELLI,
        &[
            "label", "--model", "built-in", "--imgsz", IMGSZ, "--images", "images", "--map", "map.yaml",
            "-o", "mapped", "--format", "coco",
        ],
    );
    let mapped = place.json("mapped/annotations.json");
    let (vehicles, own) = (scores(&mapped, 1), scores(&mapped, 2));
    assert_eq!(scores(&mapped, 3), [0.0; 0], "no instance is that large");
    assert!(own.iter().all(|score| *score > limit - 1e-5), "{own:?}");
    // Each instance is listed once, although phrases of both classes detect it.
    assert!(vehicles.len() + own.len() <= boats.len() + scores(&plain, 2).len(), "{vehicles:?} {own:?}");
    assert!(!vehicles.is_empty());

    // An exemplar in an image of the data set applies to this image, an exemplar in a file to all.
    let first = &plain["annotations"][0];
    let image = plain["images"]
        .as_array()
        .and_then(|images| images.iter().find(|i| i["id"] == first["image_id"]).cloned());
    let name = image.expect("its image is listed")["file_name"].as_str().expect("it has a name").to_owned();
    let [x, y, w, h] = serde_json::from_value::<[f64; 4]>(first["bbox"].clone()).expect("a box");
    for (output, shown_in) in
        [("here", format!("image: {name}")), ("everywhere", format!("file: images/{name}"))]
    {
        let map = format!(
            "classes:\n- name: thing\n  phrases: []\n  exemplars:\n  - {shown_in}\n    box: [{x}, {y}, {}, {}]\n",
            x + w,
            y + h
        );
        place.write("example.yaml", map);
        let map = [
            "label",
            "--model",
            "built-in",
            "--imgsz",
            IMGSZ,
            "--images",
            "images",
            "--map",
            "example.yaml",
            "--format",
            "coco",
            "--no-masks",
            "-o",
            output,
        ];
        place.succeed(OCELLI, &map);
        let found = place.json(&format!("{output}/annotations.json"));
        let annotations = found["annotations"].as_array().cloned().unwrap_or_default();
        let in_image = annotations.iter().filter(|t| t["image_id"] == first["image_id"]).count();
        assert!(in_image > 0, "{output}: {found}");
        assert!(output == "everywhere" || in_image == annotations.len(), "{output}: {found}");
    }
}

#[test]
fn review_pages() {
    let place = Place::new();
    write_images(&place, "images", 30);
    place.succeed(OCELLI, &arguments("set", &["--review", "30", "--review-below", "0.7"]));
    let list = String::from_utf8(place.read("set/review/low_confidence.csv")).expect("it is text");
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("image,file,least_score,instances,page,row,column"));
    let scores: Vec<f64> =
        lines.map(|l| l.split(',').nth(2).and_then(|s| s.parse().ok()).unwrap_or(9.0)).collect();
    assert!(!scores.is_empty() && scores.is_sorted() && scores.iter().all(|score| *score < 0.7), "{list}");
    for (page, size) in [("sample-001.jpg", (1232, 2664)), ("sample-002.jpg", (1232, 672))] {
        let read =
            image::load_from_memory(&place.read(&format!("set/review/{page}"))).expect("it is an image");
        assert_eq!((read.width(), read.height()), size, "{page}");
    }
    assert!(!place.path("set/review/sample-003.jpg").exists());
    let sample = String::from_utf8(place.read("set/review/sample.csv")).expect("it is text");
    assert_eq!(sample.lines().count(), 31, "{sample}");
    assert!(sample.lines().last().is_some_and(|line| line.contains("sample-002.jpg,2,3")), "{sample}");
    // Every image has a link that leads to a file, and its name is on the page.
    let html = String::from_utf8(place.read("set/review/index.html")).expect("it is text");
    let links: Vec<&str> =
        html.split("<a href=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
    let (to_gallery, links): (Vec<&str>, Vec<&str>) =
        links.into_iter().partition(|link| link.starts_with("http://127.0.0.1:8080/#gallery"));
    assert!(links.len() > 30 && to_gallery.len() == links.len() + 1, "{html}");
    for link in links {
        let file = link.replace("%20", " ");
        assert!(place.path("set/review").join(&file).is_file(), "{link}");
    }
    let page =
        image::load_from_memory(&place.read("set/review/sample-001.jpg")).expect("an image").to_luma8();
    let caption = image::imageops::crop_imm(&page, 8, 308, 400, 24).to_image();
    assert!(caption.pixels().filter(|pixel| pixel.0[0] < 140).count() > 40, "the file name is missing");
    place.succeed(OCELLI, &arguments("set", &["--review", "5"]));
    assert!(!place.path("set/review/sample-002.jpg").exists(), "a page of the run before");
}

#[test]
fn bad_images_are_listed_and_labelled_again() {
    let place = Place::new();
    write_images(&place, "images", 6);
    let whole = place.read("images/a/000.png");
    place.write("images/a/000.png", &whole[..whole.len() / 2]);
    place.write("images/empty.png", "");
    place.write("images/text, \"quoted\".jpg", "hello");
    let failed = place.run(OCELLI, &arguments("set", &[&ALL_FORMATS[..], &["--strict"]].concat()));
    assert_eq!(failed.status, Some(1), "{failed:?}");
    let last = failed.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("error: 3 of 8 images failed: see set/failed.csv"), "{failed:?}");
    assert_eq!(failed.stderr.matches("error: ").count(), 4, "each is reported: {failed:?}");
    // All that could be read is labelled: without `--strict` that is a success.
    let again = place.run(OCELLI, &arguments("set", &ALL_FORMATS));
    assert_eq!(again.status, Some(0), "{again:?}");
    assert!(again.stderr.contains("3 of 8 images failed: see set/failed.csv"), "{again:?}");
    let list = String::from_utf8(place.read("set/failed.csv")).expect("it is text");
    for word in ["a/000.png,", "empty.png,", "/text, \"\"quoted\"\".jpg\","] {
        assert!(list.contains(word), "{word}: {list}");
    }
    assert_eq!(place.json("set/annotations.json")["images"].as_array().map(Vec::len), Some(5));

    place.write("images/a/000.png", &whole);
    std::fs::remove_file(place.path("images/empty.png")).expect("it exists");
    std::fs::remove_file(place.path("images/text, \"quoted\".jpg")).expect("it exists");
    let said = place.run(OCELLI, &arguments("set", &ALL_FORMATS));
    assert!(said.status == Some(0) && said.stderr.contains("1 image to label, 5 done before"), "{said:?}");
    place.succeed(OCELLI, &arguments("fresh", &ALL_FORMATS));
    assert_eq!(differences(&place.path("set"), &place.path("fresh")), [""; 0]);
}

#[test]
fn data_sets_grow_and_keep_corrections() {
    let place = Place::new();
    write_images(&place, "images", 9);
    place.succeed(OCELLI, &arguments("set", &[]));
    let labels: Vec<_> =
        tree(&place.path("set")).into_keys().filter(|path| path.starts_with("labels")).collect();
    let corrected = format!("set/{}", labels[0].display());
    place.write(&corrected, "0 0.5 0.5 0.1 0.1\n");
    write_images(&place, "images", 15);
    std::fs::remove_file(place.path("images/b c/002.png")).expect("it exists");
    place.succeed(OCELLI, &arguments("set", &[]));
    assert_eq!(place.read(&corrected), b"0 0.5 0.5 0.1 0.1\n");
    place.succeed(OCELLI, &arguments("fresh", &[]));
    let different = differences(&place.path("set"), &place.path("fresh"));
    let is_correction = |line: &String| line.starts_with(&labels[0].to_string_lossy().into_owned());
    assert!(different.iter().all(is_correction), "{different:?}");
    place.succeed(OCELLI, &arguments("set", &["--restart"]));
    assert_eq!(place.read(&corrected), b"0 0.5 0.5 0.1 0.1\n");
    place.succeed(OCELLI, &arguments("set", &["--restart", "--discard-corrections"]));
    assert_eq!(differences(&place.path("set"), &place.path("fresh")), [""; 0]);
}

#[test]
fn corrections_are_discarded_only_on_request() {
    let place = Place::new();
    write_images(&place, "images", 6);
    place.succeed(OCELLI, &arguments("set", &ALL_FORMATS));
    let labels: Vec<_> =
        tree(&place.path("set")).into_keys().filter(|path| path.starts_with("labels")).collect();
    let (emptied, removed) = (labels[0].display().to_string(), labels[1].display().to_string());
    place.write(&format!("set/{emptied}"), "");
    std::fs::remove_file(place.path(&format!("set/{removed}"))).expect("it is there");
    let before = tree(&place.path("set"));
    // Other formats in these folders, and other classes.
    let refused = place.run(OCELLI, &arguments("set", &["--format", "yolo-seg"]));
    refused.is_refusal(1, &[&emptied, &removed, "--discard-corrections"]).unwrap_or_else(|e| panic!("{e}"));
    let others =
        ["label", "--model", "built-in", "--images", "images", "--classes", "dog", "-o", "set", "--restart"];
    let refused = place.run(OCELLI, &others);
    refused.is_refusal(1, &[&emptied, &removed, "--discard-corrections"]).unwrap_or_else(|e| panic!("{e}"));
    assert!(tree(&place.path("set")) == before, "a refused run changed the data set");
    place.succeed(OCELLI, &arguments("set", &ALL_FORMATS));
    // COCO's file and the polygons follow the corrections of YOLO's boxes.
    let polygons = [&emptied, &removed].map(|label| format!("segments/{label}"));
    assert!(polygons.iter().all(|file| place.read(&format!("set/{file}")).is_empty()), "{polygons:?}");
    let follows = |path: &Path| {
        path.to_string_lossy().starts_with("annotations")
            || polygons.iter().any(|file| path == Path::new(file))
    };
    let mut after = tree(&place.path("set"));
    assert!(after != before, "COCO's file has what was removed");
    after.retain(|path, _| !follows(path));
    let before: BTreeMap<_, _> = before.into_iter().filter(|(path, _)| !follows(path)).collect();
    assert!(after == before, "a correction was overwritten");
    place.succeed(OCELLI, &arguments("set", &[&ALL_FORMATS[..], &["--discard-corrections"]].concat()));
    place.succeed(OCELLI, &arguments("fresh", &ALL_FORMATS));
    assert_eq!(differences(&place.path("set"), &place.path("fresh")), [""; 0]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_name_that_is_not_utf8_is_reported_and_skipped() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    write_images(&place, "images", 3);
    let name = std::ffi::OsStr::from_bytes(b"images/caf\xe9.png");
    std::fs::copy(place.path("images/000.png"), place.path("").join(name)).expect("it can be written");
    for _ in 0..2 {
        let ended = place.run(OCELLI, &arguments("set", &[]));
        assert!(ended.status == Some(0) && ended.stderr.contains("1 of 4 images failed"), "{ended:?}");
        let list = String::from_utf8(place.read("set/failed.csv")).expect("it is text");
        assert!(list.contains("UTF-8"), "{list}");
    }
    let folder = place.path("").join(std::ffi::OsStr::from_bytes(b"f\xe9"));
    std::fs::create_dir(&folder).expect("it can be created");
    std::fs::copy(place.path("images/000.png"), folder.join("logo.png")).expect("it can be written");
    let map = "classes: {logo: {phrases: [], exemplars: [{file: logo.png, box: [1, 2, 30, 40]}]}}";
    std::fs::write(folder.join("map.yaml"), map).expect("it can be written");
    let mut command = place
        .command(OCELLI, &["label", "--model", "built-in", "--images", "images", "-o", "mapped", "--map"]);
    let ended = crate::run::outcome(command.arg(folder.join("map.yaml")));
    ended.is_refusal(2, &["logo.png", "not UTF-8"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn merged_shards_equal_the_whole_job() {
    let place = Place::new();
    write_images(&place, "images", 12);
    place.write("images/a/bad.jpg", "hello");
    let options = ["--format", "yolo,coco", "--review", "4"];
    assert_eq!(place.run(OCELLI, &arguments("whole", &options)).status, Some(0));
    for (shard, output) in [("1/3", "one"), ("2/3", "two"), ("3/3", "three")] {
        let ended = place.run(OCELLI, &arguments(output, &[&options[..], &["--shard", shard]].concat()));
        assert!(ended.status.is_some_and(|status| status < 2), "{ended:?}");
    }
    let options_of_one = ["--shard", "1/3", "--format", "yolo,coco"];
    place.run(OCELLI, &arguments("other", &[&options_of_one[..], &["--confidence", "0.6"]].concat()));
    place.run(OCELLI, &arguments("other-files", &options_of_one));
    place.run(OCELLI, &arguments("of-two", &[&options[..], &["--shard", "2/2"]].concat()));
    place.refuses(
        OCELLI,
        &[
            refusal("label|merge|one|two|-o|m", 1, &["shards are missing: 3/3"]),
            refusal("label|merge|one|two|two|three|-o|m", 2, &["two", "given twice"]),
            refusal("label|merge|one|two|three|-o|one", 2, &["one", "one of the shards"]),
            refusal("label|merge|one|whole|-o|m", 1, &["whole", "not a shard"]),
            refusal("label|merge|one|nowhere|-o|m", 2, &["nowhere", "no such folder"]),
            refusal("label|merge|one|images|-o|m", 2, &["images", "no data set"]),
            refusal("label|merge|other|two|three|-o|m", 1, &["two", "confidence is 0.3", "other 0.6"]),
            refusal("label|merge|other-files|two|three|-o|m", 1, &["two", "review is 4", "unset"]),
            refusal("label|merge|of-two|two|three|-o|m", 1, &["two", "one of 3 shards", "one of 2"]),
            refusal("label|merge|one|two|three|-o|images", 2, &["images", "not empty"]),
            refusal("label|merge|-o|m", 2, &["<DIR>"]),
            refusal("label|merge|one|two|three", 2, &["--output"]),
        ],
    );
    for _ in 0..2 {
        let merged = place.run(OCELLI, &["label", "merge", "three", "one", "two", "-o", "merged"]);
        assert_eq!(merged.status, Some(0), "{merged:?}");
        assert!(merged.stderr.contains("1 of 13 images failed: see merged/failed.csv"), "{merged:?}");
        assert_eq!(differences(&place.path("merged"), &place.path("whole")), [""; 0]);
    }
    // The same shards by what a scheduler says.
    let auto = |index: &str, output: &str| {
        let mut command =
            place.command(OCELLI, &arguments(output, &[&options[..], &["--shard", "auto"]].concat()));
        command.env("JOB_COMPLETION_INDEX", index).env("OCELLI_SHARDS", "3");
        crate::run::outcome(&mut command)
    };
    for (index, shard) in ["one", "two", "three"].into_iter().enumerate() {
        let ended = auto(&index.to_string(), "parts/{shard}");
        assert!(ended.stderr.contains(&format!("shard {}/3 of 13, by Kubernetes", index + 1)), "{ended:?}");
        let part = place.path(&format!("parts/{}", index + 1));
        assert_eq!(differences(&part, &place.path(shard)), [""; 0], "{shard}");
    }
    auto("3", "parts/{shard}")
        .is_refusal(2, &["--shard auto", "task 3 of 3"])
        .unwrap_or_else(|e| panic!("{e}"));
    let refused = place.run(OCELLI, &arguments("parts/{shard}", &options));
    refused.is_refusal(2, &["{shard}", "--shard"]).unwrap_or_else(|e| panic!("{e}"));
    let refused = place.run(OCELLI, &arguments("one", &[&options[..], &["--shard", "2/3"]].concat()));
    refused.is_refusal(1, &["holds shard 1/3, this is shard 2/3"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn low_memory_changes_nothing() {
    let place = Place::new();
    write_images(&place, "images", 10);
    place.write("images/bad.png", "hello");
    assert_eq!(
        place.run(OCELLI, &arguments("normal", &[&ALL_FORMATS[..], &["--strict"]].concat())).status,
        Some(1)
    );
    // Batches of one image, of some, and of all.
    for (output, spill) in [("one", "0"), ("some", "0.0025"), ("all", "4")] {
        let more = [&ALL_FORMATS[..], &["--strict", "--low-memory", "--spill", spill]].concat();
        let ended = place.run(OCELLI, &arguments(output, &more));
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert_eq!(differences(&place.path(output), &place.path("normal")), [""; 0], "{output}");
        assert!(!place.path(output).join(".ocelli-label/features.part").exists(), "{output}");
    }
}
