//! Runs `ocelli detect`: detections, errors, and the files that remain.

mod refusals;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Outcome, Place, outcome};
use ocelli::export::{Checkpoint, ExportOptions, export};

const DETECT: [&str; 2] = [env!("CARGO_BIN_EXE_ocelli"), "detect"];

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the project")
}

/// A folder with two drawn scenes, `park.png` and `street.png`.
fn place() -> Place {
    with_scenes(Place::new())
}

fn with_scenes(place: Place) -> Place {
    for name in ["park.png", "street.png"] {
        let scene =
            std::fs::read(project().join("demos/scenes").join(name)).expect("the scene is in the project");
        place.write(name, scene);
    }
    place
}

/// Exports the small random checkpoint `plain`.
fn exported(place: &Place, name: &str, options: &ExportOptions) {
    let checkpoint =
        Checkpoint::open(&project().join("tests/golden/parity/plain")).expect("the golden is whole");
    export(&checkpoint, options, &place.path(name), |_| Ok(())).expect("the golden can be exported");
}

/// The detections, without what differs from run to run.
fn found(report: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    let images = report["images"].as_array().expect("a report has images");
    let file = |image: &serde_json::Value| image["file"].as_str().expect("an image has a file").to_owned();
    images.iter().map(|image| (file(image), image["detections"].clone())).collect()
}

fn labels(report: &serde_json::Value) -> Vec<String> {
    let all = found(report)
        .into_iter()
        .flat_map(|(_, detections)| detections.as_array().cloned().unwrap_or_default());
    let mut labels: Vec<String> = all.filter_map(|d| d["label"].as_str().map(str::to_owned)).collect();
    labels.sort();
    labels.dedup();
    labels
}

/// Names in a folder, sorted.
fn names(folder: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Reads lines of a child's output until one contains the text.
fn wait_for_line(output: &mut BufReader<impl Read>, word: &str) {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        let read = output.read_line(&mut line).expect("the program writes text");
        assert!(read > 0, "the program ended without a line that contains {word:?}");
    }
}

fn finish(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { status: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(kill.is_ok_and(|status| status.success()), "the signal can be sent");
}

#[test]
fn detections_are_printed_drawn_and_written() {
    let place = place();
    let table = place.succeed(
        DETECT,
        &["--image", "park.png", "--classes", "dog", "person", "-o", "found.png", "--masks"],
    );
    for word in ["park.png   720 × 540", "label", "dog", "person"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let drawn = ocelli::Image::open(place.path("found.png")).expect("an image was written");
    assert_eq!((drawn.width(), drawn.height()), (720, 540));
    assert_ne!(place.read("found.png"), place.read("park.png"));

    let several = [
        "--image",
        "park.png",
        "street.png",
        "--classes",
        "dog",
        "car",
        "-o",
        "out/put",
        "--json",
        "found.json",
        "-q",
    ];
    let outcome = place.run(DETECT, &[&several[..], &["--sheet", "sheet.jpg"]].concat());
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert_eq!(names(place.path("out/put")), ["park.png", "street.png"]);
    let report = place.json("found.json");
    assert_eq!(
        found(&report).into_iter().map(|(file, _)| file).collect::<Vec<_>>(),
        ["park.png", "street.png"]
    );
    assert!(labels(&report).contains(&"dog".to_owned()), "{report}");
    let sheet = ocelli::Image::open(place.path("sheet.jpg")).expect("a sheet was written");
    assert!(sheet.width() > 900, "two images side by side: {}", sheet.width());

    let json = place.succeed(DETECT, &["--image", "park.png", "--classes", "dog", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("nothing but JSON on stdout");
    assert_eq!(labels(&json), ["dog"]);
}

#[test]
fn exemplars_are_boxes_in_the_image() {
    let place = place();
    let dog = "267,396,390,508";
    let count = |arguments: &[&str]| {
        let outcome =
            place.run(DETECT, &[&["--image", "park.png"], arguments, &["--json", "found.json"]].concat());
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        let report = place.json("found.json");
        (labels(&report), found(&report)[0].1.as_array().map_or(0, Vec::len))
    };
    let (labels, instances) = count(&["--exemplar", dog]);
    assert_eq!(labels, ["visual"]);
    assert!(instances > 0, "the exemplar was not detected");
    for arguments in [
        &["--exemplar", dog, "443,417,539,507", "-1,-1,20,20:no", "-o", "found.png"][..],
        &["--exemplar", "0,0,50,50:no", "--exemplar", dog, "--classes", "dog"],
        &["--classes", "dog", "cat", "--exemplar", "267,396,390,508@dog", "-9,380,900,900@cat", "-q"],
    ] {
        assert!(count(arguments).1 > 0, "{arguments:?}");
    }
}

#[test]
fn exemplars_can_be_in_another_image() {
    let place = place();
    let dog = ["--exemplar", "267,396,390,508", "--exemplar-image", "park.png"];
    // In the image of the exemplars nothing changes.
    let same = place.succeed(DETECT, &["park.png", "--json", "-", "--exemplar", "267,396,390,508"]);
    let kept = place.succeed(DETECT, &[&["park.png", "--json", "-"], &dog[..]].concat());
    let parse = |text: &str| serde_json::from_str(text).expect("nothing but JSON on stdout");
    assert_eq!(found(&parse(&same)), found(&parse(&kept)));
    let of_dogs = ["--exemplar", "267,396,390,508@dog", "--exemplar-image", "park.png"];
    let both = ["street.png", "park.png", "--classes", "dog", "car", "--json", "-"];
    let report = parse(&place.succeed(DETECT, &[&both[..], &of_dogs].concat()));
    assert_eq!(found(&report).len(), 2);
    assert_eq!(labels(&report), ["car", "dog"], "{report}");
}

#[test]
fn masks_and_semantic_maps() {
    let place = place();
    let arguments = ["park.png", "street.png", "--classes", "dog", "car", "--json", "x.json", "-q"];
    place.succeed(DETECT, &[&arguments[..], &["--masks", "--semantic", "maps"]].concat());
    let rle = place.json("x.json");
    let mut classes = std::collections::BTreeSet::new();
    for (file, with_masks) in found(&rle) {
        for one in with_masks.as_array().expect("detections are a list") {
            let label = one["label"].as_str().expect("a text");
            classes.insert(format!("{}-{label}.png", file.trim_end_matches(".png")));
        }
    }
    assert_eq!(names(place.path("maps")), classes.into_iter().collect::<Vec<_>>());
    let map = ocelli::Image::open(place.path("maps/park-dog.png")).expect("an image was written");
    assert_eq!((map.width(), map.height()), (720, 540));
    // The white pixels mostly equal the masks of the dogs.
    let first = found(&rle)[0].1[0].clone();
    let mask: ocelli::Mask = serde_json::from_value(first["mask"].clone()).expect("COCO's run lengths");
    let white = |x: u32, y: u32| map.as_rgb8()[(y * 720 + x) as usize * 3] == 255;
    let covered = mask.spans().flat_map(|span| (span.top..span.bottom).map(move |y| (span.x, y)));
    let covered = covered.filter(|&(x, y)| white(x, y)).count() as f64;
    assert!(first["label"] == "dog" && covered >= 0.7 * mask.area() as f64, "{covered} of {}", mask.area());
    // Semantic maps do not require masks.
    place.succeed(DETECT, &["park.png", "--classes", "dog", "--json", "x.json", "--semantic", "alone"]);
    assert!(found(&place.json("x.json"))[0].1[0].get("mask").is_none());
    assert_eq!(names(place.path("alone")), ["park-dog.png"]);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn aliases_mean_the_same() {
    let place = with_scenes(Place::with_libraries());
    let reference =
        ["--image", "park.png", "--classes", "dog", "red apple", "--confidence", "0.2", "--nms", "0.5"];
    let run = |arguments: &[&str]| {
        let json = place.succeed(DETECT, &[&["--json", "-"], arguments].concat());
        found(&serde_json::from_str(&json).expect("nothing but JSON on stdout"))
    };
    let expected = run(&reference);
    assert!(!expected[0].1.as_array().expect("detections are a list").is_empty(), "dogs are found");
    let mut wrong = Vec::new();
    for arguments in [
        &["park.png", "--classes", "dog,red apple", "--conf", "0.2", "--iou", "0.5"][..],
        &[
            "--source",
            "park.png",
            "--classes",
            "dog, red  apple",
            "--conf=0.2",
            "--iou=0.5",
            "--device",
            "cpu",
        ],
        &["--images", "park.png", "--class", "dog", "--class", "red apple", "--conf", "0.2", "--nms", "0.5"],
        &[
            "--image",
            "par?.png",
            "--classes",
            "dog",
            "red apple",
            "Dog",
            "--conf",
            ".2",
            "--iou",
            ".5",
            "--engine",
            "CPU",
        ],
        &[
            "--classes",
            "dog",
            "red apple",
            "--conf",
            "0.2",
            "--iou",
            "0.5",
            "--class-chunk",
            "1",
            "--",
            "park.png",
        ],
    ] {
        let found = run(arguments);
        if found != expected {
            wrong.push(format!("{arguments:?}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "expected {expected:?}, but\n{}", wrong.join("\n"));
    let twice = place.run(DETECT, &["park.png", "--classes", "dog,dog,cat"]);
    assert!(twice.stderr.contains("duplicate classes ignored: dog"), "{twice:?}");
}

#[test]
fn unusual_prompts_are_accepted() {
    let place = place();
    let long = "dog ".repeat(400);
    // The second time, the text cache has the long one.
    for words in ["🐕", "dogs & cats?", "Ein schöner Hund", "d\to\ng", "\u{1b}[31mdog", &long, &long] {
        let outcome = place.run(DETECT, &["park.png", "--classes", words, "--json", "found.json"]);
        assert_eq!(outcome.status, Some(0), "{words}: {outcome:?}");
        assert!(!outcome.stdout.contains('\u{1b}'), "{words}: {outcome:?}");
        assert_eq!(outcome.stderr.contains("tokens"), words == long, "{outcome:?}");
        assert_eq!(found(&place.json("found.json")).len(), 1, "{words}");
    }
}

#[test]
fn unreadable_images_do_not_stop_the_others() {
    let place = place();
    place.write("text.jpg", "hello");
    let outcome = place.run(
        DETECT,
        &["park.png", "text.jpg", "street.png", "--classes", "dog", "-o", "out", "--json", "x.json"],
    );
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let errors: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(
        errors.len() == 2 && errors[0].contains("text.jpg") && errors[1].contains("1 of 3"),
        "{errors:?}"
    );
    let files: Vec<String> = found(&place.json("x.json")).into_iter().map(|(file, _)| file).collect();
    assert_eq!(files, ["park.png", "street.png"]);
    assert_eq!(names(place.path("out")), ["park.png", "street.png"]);
}

#[test]
fn the_built_in_model_says_that_it_runs() {
    let place = place();
    let nothing = place.run(DETECT, &["park.png", "street.png", "--classes", "wombat"]);
    assert_eq!(nothing.status, Some(0), "{nothing:?}");
    assert_eq!(nothing.stderr.matches("--model").count(), 1, "{nothing:?}");
    assert!(nothing.stderr.contains("does not know \"wombat\""), "{nothing:?}");
    for arguments in [
        &["park.png", "--classes", "wombat", "--quiet"][..],
        &["park.png", "--classes", "dog", "--model", "built-in"],
    ] {
        assert!(!place.run(DETECT, arguments).stderr.contains("--model"), "{arguments:?}");
    }
}

#[test]
#[cfg(unix)]
fn a_closed_output_is_silent_and_a_full_one_is_an_error() {
    let place = place();
    place.succeed(DETECT, &["park.png", "--classes", "dog"]);
    for arguments in [
        &["park.png", "street.png", "--classes", "dog"][..],
        &["park.png", "--classes", "dog", "--json", "-"],
    ] {
        let mut child = place.start(DETECT, arguments);
        drop(child.stdout.take());
        let ended = finish(child);
        assert!(ended.status == Some(141) && !ended.stderr.contains("error: "), "{arguments:?}: {ended:?}");
    }
    if cfg!(target_os = "linux") {
        let full = || File::options().write(true).open("/dev/full").expect("Linux has it");
        for json in ["/dev/full", "-"] {
            let mut command = place.command(DETECT, &["park.png", "--classes", "dog", "--json", json]);
            let outcome = outcome(command.stdout(if json == "-" { full().into() } else { Stdio::piped() }));
            outcome.is_refusal(1, &["space"]).unwrap_or_else(|e| panic!("--json {json}: {e}"));
        }
        let outcome = outcome(place.command(DETECT, &["park.png", "--classes", "dog"]).stdout(full()));
        outcome.is_refusal(1, &["stdout", "space"]).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Enough images that no machine finishes before it is interrupted.
#[cfg(unix)]
fn many_images(place: &Place) {
    place.folder("many");
    for number in 0..2000 {
        let link = place.path("many").join(format!("{number:04}.png"));
        std::fs::hard_link(place.path("park.png"), link).expect("a folder holds links of its files");
    }
}

#[test]
fn of_many_images_those_without_anything_are_counted() {
    let place = place();
    place.write("in/park.png", place.read("park.png"));
    image::RgbImage::new(64, 64).save(place.path("in/blank.png")).expect("the folder can be written to");
    let both = outcome(&mut place.command(DETECT, &["in", "--classes", "dog"]));
    assert!(both.status == Some(0) && both.stdout.contains("park.png"), "{both:?}");
    assert!(!both.stdout.contains("blank.png"), "{both:?}");
    assert!(both.stderr.contains("nothing found in 1 of 2 images"), "{both:?}");
    let one = outcome(&mut place.command(DETECT, &["in/blank.png", "--classes", "dog"]));
    assert!(one.stdout.contains("blank.png") && one.stdout.contains("nothing found"), "{one:?}");
    assert!(!one.stderr.contains("nothing found"), "{one:?}");
}

/// A model whose file is a pipe to which nothing is written is never loaded.
#[test]
#[cfg(unix)]
fn ctrl_c_does_not_wait_for_a_model() {
    let place = place();
    place.folder("model");
    let made = Command::new("mkfifo").arg(place.path("model/model.json")).status().expect("it is installed");
    assert!(made.success());
    let mut child =
        place.start(DETECT, &["park.png", "--classes", "dog", "--model", "model", "-o", "out.png"]);
    // Opening waits for the reader: then the program waits for the pipe.
    let (path, (opened, open)) = (place.path("model/model.json"), std::sync::mpsc::channel());
    std::thread::spawn(move || opened.send(File::options().write(true).open(path)));
    let pipe =
        open.recv_timeout(Duration::from_secs(60)).expect("the model is opened").expect("it is a pipe");
    assert!(child.try_wait().expect("it is our child").is_none(), "it waits for the pipe");
    let began = Instant::now();
    signal(&child, "INT");
    let outcome = finish(child);
    assert_eq!(outcome.status, Some(130), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!place.path("out.png").exists());
    drop(pipe);
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_finished_images() {
    let place = place();
    many_images(&place);
    let mut child = place.start(DETECT, &["many", "--classes", "dog", "--json", "found.json", "-o", "out"]);
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    wait_for_line(&mut stdout, "many/0001.png");
    signal(&child, "INT");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the table is text");
    let outcome = finish(child);
    assert_eq!(outcome.status, Some(130), "{outcome:?}");
    assert!(outcome.stderr.contains("stopping after this step"), "{outcome:?}");
    let done: Vec<String> = found(&place.json("found.json")).into_iter().map(|(file, _)| file).collect();
    assert!((2..2000).contains(&done.len()), "{} images are in the report", done.len());
    let expected: Vec<String> = (0..done.len()).map(|number| format!("many/{number:04}.png")).collect();
    assert_eq!(done, expected);
    let drawn: Vec<String> = names(place.path("out")).iter().map(|name| format!("many/{name}")).collect();
    assert_eq!(drawn, expected);
    assert!(outcome.stderr.contains(&format!("interrupted: {} of 2000", done.len())), "{outcome:?}");
}

#[test]
#[cfg(unix)]
fn a_killed_program_leaves_no_partial_file() {
    let place = place();
    many_images(&place);
    let mut child =
        place.start(DETECT, &["many", "--classes", "dog", "--json", "found.json", "-o", "out", "-q"]);
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    wait_for_line(&mut stdout, "many/0003.png");
    child.kill().expect("it still runs");
    child.wait().expect("it ends");
    assert!(!place.path("found.json").exists());
    for name in names(place.path("out")).iter().filter(|name| !name.starts_with('.')) {
        let image = ocelli::Image::open(place.path("out").join(name));
        assert!(image.is_ok(), "{name}: {:?}", image.err());
    }

    // Killed while it fills the cache.
    let mut command = place.command(DETECT, &["park.png", "--classes", "dog"]);
    let cache = place.path("killed");
    command.env("OCELLI_CACHE", &cache).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let under_way = || names(cache.join("models")).iter().any(|name| name.ends_with(".part"));
    while !(cache.join("models").is_dir() && under_way()) {
        if child.try_wait().expect("it is our child").is_some() {
            break;
        }
        std::thread::yield_now();
    }
    child.kill().expect("it can be killed, or has ended");
    child.wait().expect("it ends");
    let again = outcome(place.command(DETECT, &["park.png", "--classes", "dog"]).env("OCELLI_CACHE", &cache));
    assert_eq!(again.status, Some(0), "{again:?}");
    assert!(!under_way(), "{:?}", names(cache.join("models")));
}

#[test]
fn eight_at_once_share_an_empty_cache() {
    let place = place().with_empty_cache();
    let arguments = ["park.png", "--classes", "dog", "--json", "-", "--threads", "1"];
    let children: Vec<Child> = (0..8).map(|_| place.start(DETECT, &arguments)).collect();
    let outcomes: Vec<Outcome> = children.into_iter().map(finish).collect();
    let mut all = Vec::new();
    for outcome in &outcomes {
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(!outcome.stderr.contains("warning"), "{outcome:?}");
        all.push(found(&serde_json::from_str(&outcome.stdout).expect("nothing but JSON on stdout")));
    }
    assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    let models = names(place.path("cache/models"));
    assert_eq!(models.iter().filter(|name| !name.contains('.')).count(), 1, "{models:?}");
}

#[test]
fn a_corrupt_cache_is_rebuilt() {
    let place = place().with_empty_cache();
    let arguments = ["park.png", "--classes", "dog", "--json", "-"];
    let run = || {
        let outcome = place.run(DETECT, &arguments);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        (found(&serde_json::from_str(&outcome.stdout).expect("nothing but JSON on stdout")), outcome.stderr)
    };
    let (expected, said) = run();
    assert!(!said.contains("created again"), "{said}");
    let entry = names(place.path("cache/models")).into_iter().find(|name| !name.contains('.'));
    let model = format!("cache/models/{}", entry.expect("the run filled the cache"));
    let words = format!("cache/text/{}", names(place.path("cache/text"))[0]);
    for (file, content) in [
        (format!("{model}/backbone.onnx"), Some("short")),
        (format!("{model}/text_encoder.onnx"), None),
        (format!("{model}/model.json"), Some("{}")),
        (words.clone(), Some("hello")),
    ] {
        match content {
            Some(content) => place.write(&file, content),
            None => std::fs::remove_file(place.path(&file)).expect("the run made it"),
        }
        let (found, said) = run();
        assert_eq!(found, expected, "{file}");
        assert!(said.contains("created again"), "{file}: {said}");
        let (found, said) = run();
        assert_eq!(found, expected, "{file}");
        assert!(!said.contains("created again"), "{file}: {said}");
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_cache_that_cannot_be_written_is_a_warning() {
    let place = with_scenes(Place::with_libraries());
    exported(&place, "model", &ExportOptions::default());
    place.write("file", "");
    let with_cache = |cache: &str, arguments: &[&str]| {
        let mut command = place.command(DETECT, &[&["park.png", "--classes", "dog"], arguments].concat());
        outcome(command.env("OCELLI_CACHE", place.path(cache)))
    };
    // The built-in model cannot be exported without a cache.
    let refused = with_cache("file", &[]);
    refused.is_refusal(1, &["file/models", "set OCELLI_CACHE"]).unwrap_or_else(|e| panic!("{e}"));
    // An exported model needs no cache; text features that cannot be cached are a warning.
    let warned = with_cache("file", &["--model", "model"]);
    assert_eq!(warned.status, Some(0), "{warned:?}");
    assert!(warned.stderr.contains("warning: ") && warned.stderr.contains("file/text"), "{warned:?}");
    assert!(!with_cache("file", &["--model", "model", "--quiet"]).stderr.contains("warning"));
    // Without a folder in the environment, nothing can be cached either.
    let mut command = place.command(DETECT, &["park.png", "--classes", "dog"]);
    let runtime = ocelli::engines::onnxruntime::OnnxRuntime::load(None).expect("`make setup` was run");
    for variable in ["OCELLI_CACHE", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"] {
        command.env_remove(variable);
    }
    let homeless = outcome(command.arg("--onnxruntime").arg(runtime.path()));
    homeless.is_refusal(1, &["no cache folder", "set OCELLI_CACHE"]).unwrap_or_else(|e| panic!("{e}"));
}
