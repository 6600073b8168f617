//! Arguments as people type them: files of classes, options from a file, names that are nearly right, pipes that close.

use std::io::Read;

use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const SCENES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/scenes");

/// A folder with drawn scenes in `scenes/`.
fn place() -> Place {
    with_scenes(Place::new().without_gpu())
}

fn with_scenes(place: Place) -> Place {
    place.folder("scenes");
    for name in ["00.png", "01.png", "02.png"] {
        std::fs::copy(format!("{SCENES}/{name}"), place.path("scenes").join(name)).expect("it can be copied");
    }
    place
}

/// The labels in a report of `ocelli detect`, each once.
fn labels(place: &Place, report: &str) -> std::collections::BTreeSet<String> {
    let report = place.json(report);
    let images = report["images"].as_array().expect("a list");
    let all = images.iter().flat_map(|image| image["detections"].as_array().expect("a list"));
    all.map(|one| one["label"].as_str().expect("a label").to_owned()).collect()
}

#[test]
fn the_built_in_model_lists_its_names() {
    let place = Place::new();
    let names = place.succeed(OCELLI, &["classes"]);
    assert_eq!(names.lines().count(), 80);
    assert!(names.lines().any(|name| name == "traffic light"), "{names}");
}

#[test]
fn classes_come_from_a_file() {
    let place = place();
    let names = place.succeed(OCELLI, &["classes"]);
    place.write("names.txt", &names);
    place.succeed(OCELLI, &["detect", "scenes", "--classes", "names.txt", "--json", "all.json"]);
    let all = labels(&place, "all.json");
    assert!(all.len() > 3, "{all:?}");
    // A threshold that nothing reaches removes a class, and only this one.
    let some: Vec<&String> = all.iter().take(2).collect();
    place
        .write("map.yaml", format!("classes:\n  - name: {}\n    threshold: 1.0\n  - {}\n", some[0], some[1]));
    place.succeed(OCELLI, &["detect", "scenes", "--classes", "map.yaml", "--json", "some.json"]);
    assert_eq!(labels(&place, "some.json").iter().collect::<Vec<_>>(), [some[1]]);
}

#[test]
fn unknown_names_get_a_suggestion() {
    let place = place();
    let said = place
        .run(OCELLI, &["detect", "scenes/00.png", "--classes", "elefant", "DOG", "xylophone", "red car"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    for line in [
        "model: built-in, which knows eighty drawn pictograms",
        "the built-in model does not know \"elefant\"; did you mean \"elephant\"?",
        "the built-in model does not know \"xylophone\"",
        "the built-in model does not know \"red car\"; did you mean \"car\"?",
    ] {
        assert!(said.stderr.contains(line), "{line}: {said:?}");
    }
    assert!(!said.stderr.contains("DOG"), "{said:?}");
    // A model that was named is not announced.
    let named = place.run(OCELLI, &["detect", "scenes/00.png", "--classes", "dog", "--model", "built-in"]);
    assert!(named.status == Some(0) && !named.stderr.contains("model: "), "{named:?}");
}

#[test]
fn options_come_from_a_file_and_the_command_line_overrides_them() {
    let place = place();
    place.write(
        "options.yaml",
        "image: scenes\nclasses: [dog, elephant]\njson: a.json\nquiet: true\nmax_det: 1\n",
    );
    let said = place.run(OCELLI, &["detect", "--config", "options.yaml"]);
    assert!(said.status == Some(0) && said.stderr.is_empty(), "{said:?}");
    let report = place.json("a.json");
    assert_eq!(report["images"].as_array().map(Vec::len), Some(3));
    for image in report["images"].as_array().expect("a list") {
        assert!(image["detections"].as_array().is_some_and(|all| all.len() <= 1), "{image}");
    }
    place.succeed(
        OCELLI,
        &["detect", "scenes/01.png", "--image", "scenes/00.png", "--json", "b.json", "--config=options.yaml"],
    );
    assert_eq!(place.json("b.json")["images"].as_array().map(Vec::len), Some(2));
    place.write("wrong.yaml", "clases: dog\n");
    place.refuses(
        OCELLI,
        &[
            refusal("detect|--config|none.yaml", 2, &["--config, none.yaml", "No such file"]),
            refusal("detect|--config|wrong.yaml", 2, &["clases", "did you mean classes?"]),
        ],
    );
}

#[test]
fn detections_as_crops_and_label_files() {
    let place = place();
    let arguments =
        "detect|scenes|--classes|names.txt|--save-txt|labels|--crops|crops|--json|found.json|--max-det|3";
    place.write("names.txt", place.succeed(OCELLI, &["classes"]));
    place.succeed(OCELLI, &arguments.split('|').collect::<Vec<_>>());
    let report = place.json("found.json");
    let mut boxes = 0;
    for image in report["images"].as_array().expect("a list") {
        let name =
            image["file"].as_str().expect("a path").replace("scenes/", "labels/").replace(".png", ".txt");
        let text = String::from_utf8(place.read(&name)).expect("it is text");
        let found = image["detections"].as_array().expect("a list");
        assert_eq!(text.lines().count(), found.len(), "{name}");
        boxes += found.len();
        for (line, one) in text.lines().zip(found) {
            let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
            let edges: Vec<f64> = one["box"]
                .as_array()
                .expect("a box")
                .iter()
                .map(|edge| edge.as_f64().expect("a number"))
                .collect();
            let width = image["width"].as_f64().expect("a number");
            assert_eq!(Some(numbers[0]), one["class_id"].as_f64());
            assert!((numbers[1] * width - (edges[0] + edges[2]) / 2.0).abs() < 0.01, "{line}: {one}");
        }
    }
    let crops =
        place.paths().into_iter().filter(|path| path.starts_with("crops") && path.extension().is_some());
    assert_eq!(crops.count(), boxes);
    assert!(boxes > 3);
}

#[test]
fn arguments_that_mean_nothing_are_refused() {
    let place = place();
    place.write("clip.raw", [0; 12]);
    place.write("clip.mp4", [0; 12]);
    place.write("videos/clip.mp4", [0; 12]);
    place.folder("mine/.ocelli-label");
    place.write("mine/labels/00.txt", "");
    place.refuses(
        OCELLI,
        &[
            refusal(
                "detect|scenes|--classes|dog|--save-txt|mine/labels",
                2,
                &["--save-txt", "data set", "mine"],
            ),
            refusal("video|--classes|dog|--save-txt|mine/labels/new", 2, &["--save-txt", "data set", "mine"]),
            refusal(
                "label|--images|scenes|--classes|dog|-o|set",
                2,
                &["--model is missing", "--model built-in"],
            ),
            refusal("video|--classes|dog|--track-thresh|0.4", 2, &["--track-thresh", "add --track"]),
            refusal("video|--classes|dog|--match-classes|any", 2, &["--match-classes", "add --track"]),
            refusal("detect|scenes|--classes|dog|--exemplar|1,1,9,9", 2, &["--exemplar-image"]),
            refusal("detect|scenes|--clases|dog", 2, &["a similar argument exists: '--classes'"]),
            refusal("detect|scenes|--classes|none.txt", 2, &["--classes, none.txt: no such file"]),
            refusal("detect|scenes|--classes|dog|--max-det|0", 2, &["--max-det is 0"]),
            // What users of other programs write.
            refusal(
                "label|--images|clip.mp4|--classes|dog|-o|set",
                2,
                &["--images, clip.mp4", "--video clip.mp4"],
            ),
            refusal("label|--images|scenes|videos|--classes|dog|-o|set", 2, &["--video videos"]),
            refusal(
                "detect|clip.mp4|--classes|dog",
                2,
                &["clip.mp4: it is a video", "`ocelli video --video`"],
            ),
            refusal("label|scenes", 2, &["unrecognized subcommand 'scenes'; write --images scenes"]),
            refusal("export|sam3.pt", 2, &["argument 'sam3.pt' found; write --checkpoint sam3.pt"]),
            refusal("video|--classes|dog|--show", 2, &["'--show' found; --display shows"]),
            refusal(
                "video|--classes|dog|--tracker|bytetrack.yaml",
                2,
                &["'--tracker' found; --track follows"],
            ),
            refusal("detect|scenes|--classes|dog|--save", 2, &["'--save' found; -o names"]),
            refusal("predict|model=sam3.pt|source=scenes", 2, &["model=sam3.pt: ", "--model sam3.pt"]),
            refusal(
                "detect|scenes|--classes|dog|--model|./facebook/sam3",
                2,
                &["facebook/sam3: no such folder", "`ocelli models`", "licence", "needs no permission"],
            ),
            refusal(
                "export|--checkpoint|https://huggingface.co/facebook/sam3|-o|x",
                2,
                &["it is an address; a model of the hub is named as owner/name", "needs no permission"],
            ),
            refusal(
                "detect|scenes|--classes|dog|--trt|missing.engine",
                1,
                &[
                    "--trt, missing.engine: no such file",
                    "`ocelli build-engine --output engines/`",
                    "this machine",
                ],
            ),
            refusal(
                "video|--video|0|--classes|dog|--model|nosuch.pt|--trt-enc-dec|engines/x.engine",
                2,
                &["nosuch.pt: no such folder or file"],
            ),
            refusal(
                "detect|scenes|--classes|dog|--tokenizer|names.json",
                2,
                &["--tokenizer names.json, built-in: this model has its own"],
            ),
            refusal("video|--classes|dog|clip.raw", 2, &["--classes, clip.raw: this is a file", "--video"]),
        ],
    );
}

#[test]
fn stats_go_to_stdout() {
    let place = Place::new();
    let arguments = ["video", "--classes", "dog", "--max-frames", "3", "--stats", "-", "-q"];
    let stats: serde_json::Value =
        serde_json::from_str(&place.succeed(OCELLI, &arguments)).expect("stdout is JSON alone");
    assert_eq!(stats["frames_out"], 3, "{stats}");
    assert!(!place.path("-").exists());
}

#[test]
#[cfg(unix)]
fn a_reader_that_ends_early_is_no_error() {
    let place = Place::new();
    for arguments in [
        &["video", "--classes", "dog", "--jsonl", "-", "-q"][..],
        &["video", "--classes", "dog", "-o", "-", "--raw-out", "bgr", "-q"],
    ] {
        let mut child = place.start(OCELLI, arguments);
        let mut first = [0; 16];
        let mut stdout = child.stdout.take().expect("it is piped");
        stdout.read_exact(&mut first).expect("the program writes");
        drop(stdout);
        let ended = child.wait_with_output().expect("the program ends");
        assert_eq!(ended.status.code(), Some(141), "{arguments:?}: {ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments:?}");
    }
}

#[test]
fn spellings_of_dart_are_accepted_or_refused_with_the_reason() {
    let place = with_scenes(Place::new().with_empty_cache());
    crate::checkpoints::copy(&place, "plain", "plain");
    let detect = "detect|scenes/00.png|--classes|dog|";
    // Arguments, and the line that says what they mean here.
    let accepted = [
        (format!("{detect}--checkpoint|built-in"), "--checkpoint is --model here"),
        (format!("{detect}--compile"), "--compile is not needed: it is for PyTorch"),
        (format!("{detect}--compile|max-autotune"), "--compile is not needed: it is for PyTorch"),
        (format!("{detect}--fast"), "--fast is not needed"),
        (format!("{detect}--detection-only"), "--detection-only is not needed"),
        (format!("{detect}--trt-max-classes|4"), "--trt-max-classes is not needed"),
        (format!("{detect}--warmup|3"), "--warmup is not needed"),
        (format!("{detect}--model|plain|--skip-blocks|1"), "exported into the cache without these blocks"),
        (
            format!("{detect}--model|plain|--mask-blocks|0:attn,2:mlp"),
            "exported into the cache without these blocks",
        ),
        (
            "video|--classes|dog|--scene-size|64x64|--end|2f|--max-frames|0|--jsonl|frames.jsonl".to_owned(),
            "--max-frames 0 reads all frames",
        ),
    ];
    let mut wrong = Vec::new();
    for (arguments, line) in &accepted {
        let said = place.run(OCELLI, &arguments.split('|').collect::<Vec<_>>());
        if said.status != Some(0) || said.stderr.lines().filter(|one| one.contains(line)).count() != 1 {
            wrong.push(format!("{arguments}: {said:?}, expected {line:?}"));
        }
    }
    let frames = String::from_utf8(place.read("frames.jsonl")).expect("it is text");
    wrong.extend((frames.lines().count() != 2).then(|| format!("--max-frames 0: {frames}")));
    let cached = std::fs::read_dir(place.path("cache/models")).expect("models were exported into it");
    let pruning: std::collections::BTreeSet<String> = cached
        .map(|entry| entry.expect("it can be read").path().join("model.json"))
        .filter(|path| path.is_file())
        .map(|path| place.json(&path.to_string_lossy()))
        .map(|model| format!("{} {}", model["skip_blocks"], model["mask_blocks"]))
        .collect();
    for expected in ["[1] []", "[] [\"0:attn\",\"2:mlp\"]"] {
        wrong.extend((!pruning.contains(expected)).then(|| format!("{expected} is not among {pruning:?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    place.succeed(OCELLI, &["export", "--checkpoint", "plain", "--output", "exported"]);
    let exported = format!("{detect}--model|exported|");
    let refused = [
        (format!("{detect}--benchmark"), 2, &["'--benchmark' found; it is an option of `ocelli video`"][..]),
        (format!("{detect}--preset|sbp-9"), 2, &["--preset", "sbp-8, sbp-16, blocks-16"]),
        (format!("{detect}--model|plain|--preset|sbp-8"), 2, &["--mask-blocks has block", "blocks 0 to"]),
        (format!("{detect}--preset|sbp-8|--skip-blocks|1"), 2, &["--preset", "--skip-blocks"]),
        (format!("{detect}--detection-only|--masks"), 2, &["--detection-only", "--masks"]),
        (format!("{detect}--model|plain|--skip-blocks|3"), 2, &["--skip-blocks has block 3", "whole image"]),
        (format!("{detect}--mask-blocks|1"), 2, &["--mask-blocks", "25:attn"]),
        (
            format!("{exported}--skip-blocks|1"),
            1,
            &["--skip-blocks has 1", "exported", "export the checkpoint again"],
        ),
        (
            format!("{exported}--mask-blocks|1:mlp"),
            1,
            &["--mask-blocks has 1:mlp", "export the checkpoint again"],
        ),
        (
            format!("{exported}--efficient-backbone|repvit"),
            2,
            &["--efficient-backbone repvit, exported", "leave it out"],
        ),
        (format!("{detect}--efficient-backbone|repvit"), 2, &["built-in", "the image transformer"]),
        (
            format!("{detect}--model|plain|--efficient-backbone|repvit|--efficient-model|m2_3"),
            2,
            &["--efficient-model m2_3, plain", "the image transformer"],
        ),
    ];
    place.refuses(
        OCELLI,
        &refused.each_ref().map(|(arguments, status, words)| refusal(arguments, *status, words)),
    );
}

#[test]
fn an_error_names_the_flag_of_its_parameter_and_no_other() {
    let place = place();
    place.succeed(
        OCELLI,
        &["label", "--images", "scenes/00.png", "--classes", "dog", "--model", "built-in", "-o", "set"],
    );
    place.write("set/labels/train/00.txt", "0 0.5 0.5 0.1 0.1\n");
    place.write("set/labels/val/00.txt", "0 0.5 0.5 0.1 0.1\n");
    place.write("map.yaml", "classes:\n  - name: pet\n    phrase: dog\n");
    // The arguments, and how often the message has each flag.
    let label = "label|--images|scenes/00.png|--model|built-in|-o|set|";
    let cases = [
        (format!("{label}--classes|car,person"), &[("--discard-corrections", 1)][..]),
        (format!("{label}--map|map.yaml"), &[("--min-area", 0)]),
        ("detect|scenes/00.png|--classes|dog|--class-chunk|0".into(), &[("--class-chunk", 1)]),
        ("detect|scenes/00.png|--classes|dog|--max-det|0".into(), &[("--max-det", 1)]),
        ("track|--detections|none|--track-thresh|0.05|--low-thresh|0.2".into(), &[("--low-thresh", 1)]),
        ("video|--classes|dog|--detect-every|0".into(), &[("--detect-every", 1)]),
        ("export|--checkpoint|built-in|-o|x|--imgsz|15".into(), &[("--imgsz", 1)]),
        ("verify|--min-cosine|2".into(), &[("--min-cosine", 1)]),
    ];
    let mut wrong = Vec::new();
    for (arguments, flags) in &cases {
        let said = place.run(OCELLI, &arguments.split('|').collect::<Vec<_>>());
        let count = |flag: &str| said.stderr.matches(flag).count();
        let fits = said.status != Some(0) && flags.iter().all(|(flag, times)| count(flag) == *times);
        wrong.extend((!fits).then(|| format!("{arguments}: {said:?}, expected {flags:?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_tokeniser_is_named_where_the_checkpoint_has_none() {
    let place = place();
    crate::checkpoints::copy(&place, "plain", "plain");
    std::fs::rename(place.path("plain/tokenizer.json"), place.path("words.json")).expect("it was copied");
    let detect = "detect|scenes/00.png|--classes|dog|--model|plain";
    place.refuses(OCELLI, &[refusal(detect, 1, &["tokenizer.json is missing", "(--tokenizer)"])]);
    place.succeed(OCELLI, &format!("{detect}|--tokenizer|words.json").split('|').collect::<Vec<_>>());
}

#[test]
fn a_text_cache_makes_the_text_encoder_unnecessary() {
    let place = place();
    place.succeed(OCELLI, &["export", "--checkpoint", "built-in", "--detection-only", "-o", "graphs"]);
    place.succeed(
        OCELLI,
        &["embed", "--classes", "dog", "--model", "graphs", "--output", "words.safetensors"],
    );
    for name in place.paths().into_iter().filter(|path| path.starts_with("graphs")) {
        if name.to_string_lossy().contains("text_encoder") {
            std::fs::remove_file(place.path(&name.to_string_lossy())).expect("it was exported");
        }
    }
    let detect = "detect|scenes|--model|graphs|--text-cache|words.safetensors|--classes|";
    place.succeed(OCELLI, &format!("{detect}dog").split('|').collect::<Vec<_>>());
    place.refuses(
        OCELLI,
        &[refusal(
            &format!("{detect}cat"),
            1,
            &["\"cat\": it is not in the text cache", "text_encoder.onnx"],
        )],
    );
}

#[test]
fn the_model_of_an_engine_file_is_announced() {
    let place = place();
    place.write("x.engine", "an engine");
    let sidecar = serde_json::json!({
        "format_version": 1, "writer": "ocelli", "graph": "backbone", "engine": { "sha256": "0", "bytes": 9 },
        "onnx_sha256": "0", "model": "sam3-trt", "model_weights_sha256": "0", "gpu": null, "compute_capability": ["8.9"],
        "tensorrt": { "name": "TensorRT", "version": "11.0.0" }, "precision": "fp16",
        "shapes": { "imgsz": 1008, "model_width": 256, "grid": 72, "dimensions": {} },
        "options": { "workspace_bytes": null, "version_compatible": false, "hardware_compatible": false }, "verified": null
    });
    place.write("x.engine.json", sidecar.to_string());
    let said = place.run(OCELLI, &["detect", "scenes", "--classes", "forklift", "--trt", "x.engine"]);
    assert!(said.stderr.contains("model: sam3-trt, from which the file of --trt was built"), "{said:?}");
    assert!(!said.stderr.contains("built-in"), "{said:?}");
}
