//! COCO as it unpacks, and evaluations of several configurations, as processes.

use serde_json::Value;

use crate::eval::data_set;
use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

/// A place with drawn images in `coco`, laid out as COCO's archives are.
fn place(images: u64) -> Place {
    let place = Place::new();
    data_set(&place, images);
    place.folder("coco/annotations");
    let at = |name: &str| place.path(name);
    std::fs::rename(at("images"), at("coco/val2017")).expect("it was written");
    std::fs::rename(at("annotations.json"), at("coco/annotations/instances_val2017.json"))
        .expect("it was written");
    place
}

fn evaluate(place: &Place, arguments: &[&str]) -> Value {
    let text = place.succeed(OCELLI, &[arguments, &["--json", "-"]].concat());
    serde_json::from_str(&text).expect("nothing but JSON on stdout")
}

#[test]
fn configurations_are_evaluated_once_each_in_a_process_of_its_own() {
    let place = place(2);
    place.write(
        "models.yaml",
        "whole: {model: built-in}\nsmall: {imgsz: 140, model: built-in}\ngone: {model: nowhere}\n",
    );
    let common = ["--coco", "coco", "--engine", "embedded", "--classes", "dog", "cat"];
    let all = [&["eval", "--configs", "models.yaml", "--json", "report.json"], &common[..]].concat();
    let first = place.run(OCELLI, &all);
    assert_eq!(first.status, Some(1), "{first:?}");
    let rows: Vec<Vec<&str>> = first.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1].join(" "), "configuration AP AP50 AP_S AP_L ms an image peak MiB", "{first:?}");
    let names: Vec<&str> = rows[2..].iter().map(|row| row[0]).collect();
    assert_eq!(names, ["whole", "small", "gone"], "{first:?}");
    assert!(
        first
            .stdout
            .lines()
            .last()
            .is_some_and(|row| row.contains("nowhere") && row.contains("no such folder")),
        "{first:?}"
    );
    assert_eq!(first.stderr.matches("→ ").count(), 1, "only the report is for a person: {first:?}");
    assert!(
        first.stderr.contains("error: gone: ")
            && first.stderr.ends_with("1 of 3 configurations failed: see above\n"),
        "{first:?}"
    );

    let report = place.json("report.json");
    let of = |report: &Value, number: usize, pointer: &str| {
        report["configurations"][number].pointer(pointer).cloned()
    };
    let alone = evaluate(&place, &[&["eval", "--model", "built-in"], &common[..]].concat());
    assert_eq!(of(&report, 0, "/report/models/0/bbox"), alone.pointer("/models/0/bbox").cloned());
    assert_ne!(of(&report, 1, "/report/models/0/bbox"), of(&report, 0, "/report/models/0/bbox"));
    assert_eq!(of(&report, 0, "/report/classes"), Some(2.into()));
    if cfg!(target_os = "linux") {
        let peak = of(&report, 0, "/report/peak_memory_mib").and_then(|peak| peak.as_f64());
        assert!(peak.is_some_and(|peak| peak > 1.0), "{report}");
    }

    // What failed is tried again, what was evaluated is not, also under another name and with its options in another order.
    place.write(
        "models.yaml",
        "gone: {model: built-in, protocol: dart}\nrenamed: {model: built-in, imgsz: 140}\nwhole: {model: built-in}\n",
    );
    let second = place.run(OCELLI, &all);
    assert_eq!(second.status, Some(0), "{second:?}");
    assert_eq!(second.stderr.matches("evaluated before").count(), 2, "{second:?}");
    let again = place.json("report.json");
    let names: Vec<_> = (0..3).filter_map(|number| of(&again, number, "/name")).collect();
    assert_eq!(names, ["gone", "renamed", "whole"]);
    for (now, then) in [(1, 1), (2, 0)] {
        assert_eq!(of(&again, now, "/report"), of(&report, then, "/report"));
    }
    assert_eq!(of(&again, 0, "/report/models/0/detections"), Some(160.into()), "every query of two classes");

    // Other annotations are another evaluation.
    let path = place.path("coco/annotations/instances_val2017.json");
    let mut truth = std::fs::read_to_string(&path).expect("it was written");
    truth.push('\n');
    std::fs::write(&path, truth).expect("it can be written");
    place.write("models.yaml", "whole: {model: built-in}\n");
    let third = place.run(OCELLI, &all);
    assert_eq!((third.status, third.stderr.contains("evaluated before")), (Some(0), false), "{third:?}");
}

#[test]
fn invalid_configurations_are_refused_before_any_runs() {
    let place = place(1);
    place.folder("empty");
    for (file, text) in [
        ("list.yaml", "- model: built-in\n"),
        ("none.yaml", "{}\n"),
        ("number.yaml", "whole: {model: built-in}\nsmall: 3\n"),
        ("unknown.yaml", "whole: {modle: built-in}\n"),
        ("value.yaml", "whole: {imgsz: large}\n"),
        ("of-the-run.yaml", "whole: {json: found.json}\n"),
        ("contradicts.yaml", "whole: {images: empty}\n"),
        ("fine.yaml", "whole: {model: built-in}\n"),
    ] {
        place.write(file, text);
    }
    place.write("other.json", "{\"images\": []}");
    let coco = |rest: &str| format!("eval|--coco|coco|{rest}");
    let rows: Vec<(String, i32, &[&str])> = vec![
        (coco("--configs|nowhere.yaml"), 1, &["nowhere.yaml"]),
        (coco("--configs|list.yaml"), 2, &["--configs, list.yaml", "expected YAML"]),
        (coco("--configs|none.yaml"), 2, &["no configuration"]),
        (coco("--configs|number.yaml"), 2, &["number.yaml: small: expected options"]),
        (
            coco("--configs|unknown.yaml"),
            2,
            &["whole: modle: `eval` has no such option; did you mean model?"],
        ),
        (coco("--configs|value.yaml"), 2, &["value.yaml: whole: imgsz", "large"]),
        (coco("--configs|of-the-run.yaml"), 2, &["whole: json is an option of the whole run"]),
        ("eval|--configs|contradicts.yaml".into(), 2, &["contradicts.yaml: whole", "--annotations"]),
        (coco("--configs|fine.yaml|--compare|a|b"), 2, &["--configs", "--compare"]),
        (coco("--configs|fine.yaml|--json|other.json"), 1, &["other.json", "no report of configurations"]),
        (coco("--configs|fine.yaml|--json|empty"), 1, &["--json", "folder"]),
        (coco("--images|coco"), 2, &["--coco", "--images"]),
        (
            "eval|--coco|empty".into(),
            2,
            &["--coco, empty", "instances_val2017.json does not exist", "val2017/"],
        ),
        ("coco|--masks".into(), 2, &["nothing to do", "--coco", "--video"]),
        ("coco|--coco|coco|--track".into(), 2, &["--video"]),
        ("coco|--coco|coco|--video|a.mp4".into(), 2, &["--coco", "--video"]),
        ("coco|--coco|coco|--imgsz|77".into(), 2, &["--imgsz"]),
        ("embed|--coco|--classes|dog|-o|x.safetensors".into(), 2, &["--coco", "--classes"]),
        ("embed|-o|x.safetensors".into(), 2, &["--classes"]),
    ];
    let rows: Vec<_> =
        rows.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(OCELLI, &rows);
}

/// pycocotools' figures for the golden, read from COCO's layout.
#[test]
fn the_folder_as_it_unpacks_has_the_figures_of_its_files() {
    let place = Place::new();
    let golden = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/eval"));
    place.copy_folder(golden, "golden");
    place.folder("coco/annotations");
    std::fs::rename(
        place.path("golden/annotations.json"),
        place.path("coco/annotations/instances_val2017.json"),
    )
    .expect("it was copied");
    let report = evaluate(&place, &["eval", "--coco", "coco", "--predictions", "golden/predictions.json"]);
    let expected = place.json("golden/expected.json");
    let cases = expected["cases"].as_array().expect("a list");
    let boxes =
        cases.iter().find(|case| case["images"].is_null() && case["kind"] == "bbox").expect("all images");
    for name in ["ap", "ap50", "ap_small", "ap_large"] {
        let [ours, theirs] = [&report["models"][0]["bbox"][name], &boxes["figures"][name]];
        let far =
            ours.as_f64().zip(theirs.as_f64()).is_none_or(|(ours, theirs)| (ours - theirs).abs() > 5e-4);
        assert!(!far || ours == theirs, "{name}: {ours} for {theirs}");
    }
    assert!(report.get("peak_memory_mib").is_none(), "no model ran: {report}");
}

#[test]
fn one_command_for_coco_evaluates_or_runs_a_video() {
    let place = place(2);
    let options = ["--engine", "embedded", "--imgsz", "112", "--coco", "coco", "--protocol", "dart"];
    let [ours, theirs] =
        ["coco", "eval"].map(|command| evaluate(&place, &[&[command], &options[..]].concat()));
    assert_eq!(ours["models"][0]["bbox"], theirs["models"][0]["bbox"]);
    assert_eq!(ours["protocol"], "dart");
    let ids = place.json("coco/annotations/instances_val2017.json")["categories"].clone();
    place.succeed(
        OCELLI,
        &[&["eval", "--save-predictions", "found.json", "--max-images", "1"], &options[..]].concat(),
    );
    let found = place.json("found.json");
    let found: Vec<&Value> =
        found.as_array().expect("a list").iter().map(|one| &one["category_id"]).collect();
    let is_id = |id: &&Value| ids.as_array().is_some_and(|all| all.iter().any(|one| one["id"] == **id));
    assert!(!found.is_empty() && found.iter().all(is_id), "{found:?}, of {ids}");

    let video = ["--engine", "embedded", "--imgsz", "112", "--video", "coco/val2017/some"];
    let video = [&video[..], &["--max-frames", "2", "--jsonl"]].concat();
    place.succeed(OCELLI, &[&["coco", "--track"], &video[..], &["ours.jsonl"]].concat());
    place.succeed(OCELLI, &[&["video", "--coco", "--track"], &video[..], &["theirs.jsonl"]].concat());
    let lines = place.read("ours.jsonl");
    assert_eq!(lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 2);
    assert_eq!(String::from_utf8_lossy(&lines), String::from_utf8_lossy(&place.read("theirs.jsonl")));

    let printed = place.succeed(OCELLI, &["embed", "--coco", "-o", "coco.safetensors"]);
    assert!(printed.ends_with("80 phrases\n"), "{printed}");
    let names = ocelli::classes::COCO_CLASSES.join("\n");
    place.write("names.txt", names);
    place.succeed(OCELLI, &["embed", "--classes", "names.txt", "-o", "named.safetensors"]);
    let files = ["coco.safetensors", "named.safetensors"].map(|name| place.read(name));
    let [ours, theirs] =
        [&files[0], &files[1]].map(|file| safetensors::SafeTensors::deserialize(file).expect("a text cache"));
    for (name, tensor) in theirs.tensors() {
        let same = ours.tensor(&name).is_ok_and(|one| one.data() == tensor.data());
        assert!(same, "{name}");
    }
    assert_eq!(ours.len(), theirs.len());
}
