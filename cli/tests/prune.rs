//! `ocelli prune` as a process: the files it writes, a kill, refusals.

use std::time::{Duration, Instant};

use ocelli_verify::scenes::{SceneGenerator, SceneOptions};
use serde_json::Value;

use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

fn place(images: u64) -> Place {
    let place = Place::new();
    let labels = ["dog", "car"].map(String::from).to_vec();
    let scenes = SceneGenerator::new(5, SceneOptions { labels, ..SceneOptions::default() }).unwrap();
    place.folder("photos");
    for number in 0..images {
        let path = place.path(&format!("photos/{number}.png"));
        scenes.scene(number).image.into_rgb_image().save(path).unwrap();
    }
    place
}

const SEARCH: [&str; 9] =
    ["prune", "--model", "built-in", "--images", "photos", "--classes", "dog", "car", "--num-prune"];

/// A report without times, which differ between two searches.
fn without_times(report: &mut Value) {
    match report {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.ends_with("_ms"));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[test]
fn a_search_that_is_killed_continues_and_exports() {
    let place = place(6);
    let to = |name: &'static str| [&SEARCH[..], &["4", "--max-images", "4", "--output", name]].concat();
    place.succeed(OCELLI, &to("whole.json"));
    let mut whole = place.json("whole.json");
    assert_eq!(whole["images"].as_array().map(Vec::len), Some(4), "{whole}");
    assert!(whole["images"][2].as_str().is_some_and(|name| name.ends_with("3.png")), "evenly: {whole}");
    assert_eq!(whole["steps"].as_array().map(Vec::len), Some(5), "{whole}");

    let mut child = place.start(OCELLI, &to("killed.json"));
    let journal = place.path("killed.measurements.jsonl");
    let start = Instant::now();
    while std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 30 {
        assert!(start.elapsed() < Duration::from_secs(120), "no measurements");
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("killed.json").exists());
    let kept = place.read("killed.measurements.jsonl");
    let again = place.run(OCELLI, &[&to("killed.json")[..], &["--export", "pruned"]].concat());
    assert_eq!(again.status, Some(0), "{again:?}");
    let whole_lines = kept.iter().rposition(|byte| *byte == b'\n').unwrap();
    assert!(
        place.read("killed.measurements.jsonl").starts_with(&kept[..whole_lines]),
        "what was measured stays"
    );
    let mut continued = place.json("killed.json");
    let step = continued["steps"][4].clone();
    without_times(&mut whole);
    without_times(&mut continued);
    assert_eq!(continued, whole);

    // The last step is what was printed and exported.
    let manifest = place.json("pruned/model.json");
    assert_eq!(
        (&manifest["skip_blocks"], &manifest["mask_blocks"]),
        (&step["skip_blocks"], &step["mask_blocks"])
    );
    let list = |name: &str| {
        let items = step[name].as_array().unwrap().iter();
        items
            .map(|item| item.as_str().map_or_else(|| item.to_string(), String::from))
            .collect::<Vec<_>>()
            .join(",")
    };
    let flags = again.stdout.lines().last().unwrap().to_owned();
    for (flag, list) in [("--skip-blocks", list("skip_blocks")), ("--mask-blocks", list("mask_blocks"))] {
        assert_eq!(flags.contains(&format!("{flag} {list}")), !list.is_empty(), "{flags}: {step}");
    }
    place.succeed(OCELLI, &["detect", "--image", "photos/0.png", "--classes", "dog", "--model", "pruned"]);

    // Nothing is measured again for a longer search.
    let longer = [&SEARCH[..], &["5", "--max-images", "4", "--output", "whole.json"]].concat();
    let before = place.read("whole.measurements.jsonl");
    place.succeed(OCELLI, &longer);
    assert!(place.read("whole.measurements.jsonl").starts_with(&before));
    assert_eq!(place.json("whole.json")["steps"].as_array().map(Vec::len), Some(6));
}

#[test]
fn wrong_arguments_are_refused() {
    let place = place(1);
    place.folder("empty");
    crate::checkpoints::copy(&place, "plain", "plain");
    place
        .succeed(OCELLI, &["export", "--checkpoint", "built-in", "--detection-only", "--output", "exported"]);
    let base = "prune|--classes|dog|--model|built-in|--images|photos|";
    let rows = [
        ("--images|empty", 2, &["no image", "empty", "contain no images"][..]),
        ("--images|nowhere", 2, &["nowhere", "no such file or folder"]),
        ("--model|exported", 2, &["exported", "exported model already", "checkpoint it was exported from"]),
        ("--model|nowhere", 2, &["nowhere", "no such folder"]),
        ("--protect|77", 2, &["block 77", "blocks 0 to 5", "--protect"]),
        ("--protect|x", 2, &["`x` is no block"]),
        ("--num-prune|9", 2, &["--num-prune is 9", "expected 1 to 8", "--num-prune"]),
        ("--num-prune|5|--whole-blocks", 2, &["--num-prune is 5", "expected 1 to 4"]),
        ("--num-prune|0", 2, &["--num-prune is 0"]),
        ("--max-images|0", 2, &["--max-images"]),
        ("--confidence|1.5", 2, &["--confidence is 1.5"]),
        ("--memory|-1", 2, &["--memory is -1"]),
        ("--engine|magic", 2, &["magic"]),
        ("--output|nowhere/report.json", 1, &["--output", "nowhere"]),
        ("--export|photos", 2, &["--export, photos", "exists"]),
    ];
    // A flag of the base is replaced.
    let arguments: Vec<String> = rows
        .iter()
        .map(|(flags, ..)| {
            let first = flags.split('|').next().unwrap();
            let mut words: Vec<&str> = base.trim_end_matches('|').split('|').collect();
            if let Some(at) = words.iter().position(|word| *word == first) {
                words.drain(at..at + 2);
            }
            words.into_iter().chain(flags.split('|')).collect::<Vec<_>>().join("|")
        })
        .collect();
    let rows: Vec<_> = arguments
        .iter()
        .zip(rows)
        .map(|(arguments, (_, status, words))| refusal(arguments, status, words))
        .collect();
    place.refuses(OCELLI, &rows);
}
