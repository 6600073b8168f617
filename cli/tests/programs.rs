//! Runs the `ocelli` program: errors, exit statuses, and the files that remain.

use std::process::Stdio;

use safetensors::Dtype;
use serde_json::json;

use crate::run::{Place, outcome, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

#[test]
fn invalid_checkpoints_are_errors() {
    let place = Place::new();
    let norm = "vision_encoder.backbone.layer_norm.weight";
    let change = |name: &str, change: fn(&mut crate::checkpoints::Tensors)| {
        crate::checkpoints::with_tensors(&place, name, change);
    };
    crate::checkpoints::copy(&place, "plain", "no-config");
    std::fs::remove_file(place.path("no-config/config.json")).expect("it was copied");
    crate::checkpoints::copy(&place, "plain", "no-tokenizer");
    std::fs::remove_file(place.path("no-tokenizer/tokenizer.json")).expect("it was copied");
    crate::checkpoints::copy(&place, "plain", "no-weights");
    std::fs::remove_file(place.path("no-weights/model.safetensors")).expect("it was copied");
    crate::checkpoints::copy(&place, "plain", "truncated");
    let weights = place.read("truncated/model.safetensors");
    place.write("truncated/model.safetensors", &weights[..weights.len() - 1000]);
    crate::checkpoints::copy(&place, "plain", "empty-weights");
    place.write("empty-weights/model.safetensors", "");
    crate::checkpoints::copy(&place, "plain", "text-weights");
    place.write(
        "text-weights/model.safetensors",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    );
    crate::checkpoints::copy(&place, "plain", "config-text");
    place.write("config-text/config.json", "hello");
    crate::checkpoints::copy(&place, "plain", "config-list");
    place.write("config-list/config.json", "[]");
    let config =
        |name: &str, pointer: &str, value| crate::checkpoints::with_config(&place, name, pointer, value);
    config("other-model", "/model_type", json!("llama"));
    config("widths", "/detr_encoder_config/hidden_size", json!(64));
    config("heads", "/text_config/num_attention_heads", json!(5));
    config("no-heads", "/text_config/num_attention_heads", json!(0));
    config("globals", "/vision_config/backbone_config/global_attn_indexes", json!([99]));
    config("patches", "/vision_config/backbone_config/image_size", json!(113));
    config("words", "/vision_config/backbone_config/num_hidden_layers", json!("four"));
    config("deeper", "/vision_config/backbone_config/num_hidden_layers", json!(5));
    config("activation", "/detr_decoder_config/hidden_act", json!("mish"));
    change("missing", |tensors| drop(tensors.remove("vision_encoder.backbone.layer_norm.weight")));
    change("shape", |tensors| {
        let tensor = tensors.get_mut("vision_encoder.backbone.layer_norm.weight").expect("the golden has it");
        tensor.1.insert(0, 1);
    });
    change("unknown", |tensors| {
        tensors.insert("detr_decoder.layers.0.extra.weight".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    change("not-a-number", |tensors| {
        let tensor = tensors.get_mut("vision_encoder.backbone.layer_norm.weight").expect("the golden has it");
        tensor.2[2..4].copy_from_slice(&[0x00, 0x7e]); // f16
    });
    change("integers", |tensors| {
        tensors.get_mut("vision_encoder.backbone.layer_norm.weight").expect("the golden has it").0 =
            Dtype::I16;
    });
    crate::checkpoints::copy(&place, "released", "no-shard");
    std::fs::remove_file(place.path("no-shard/model-00002-of-00002.safetensors")).expect("it was copied");
    let index =
        |name: &str, change: fn(&mut serde_json::Value)| crate::checkpoints::with_index(&place, name, change);
    index("index-list", |index| *index = json!([]));
    index("index-empty", |index| index["weight_map"] = json!({}));
    index("index-number", |index| index["weight_map"]["x"] = json!(3));
    index("index-escape", |index| index["weight_map"]["x"] = json!("../plain/model.safetensors"));
    index("index-absolute", |index| index["weight_map"]["x"] = json!("/etc/passwd"));
    crate::checkpoints::copy(&place, "released", "index-text");
    place.write("index-text/model.safetensors.index.json", "{\"weight_map\": {");
    crate::checkpoints::copy(&place, "plain", "plain");
    place.succeed(OCELLI, &["export", "--checkpoint", "plain", "--output", "exported"]);
    place.folder("empty");
    place.write("file", "hello");

    let to = "export|--output|out|--checkpoint|";
    let rows = [
        ("nowhere", 2, &["nowhere", "no such folder"][..]),
        ("file", 1, &["file", "neither safetensors nor"]),
        ("empty", 2, &["empty", "contains no config.json", "Hugging Face"]),
        ("exported", 2, &["exported", "exported model already"]),
        ("no-config", 2, &["no-config", "contains no config.json"]),
        ("no-tokenizer", 1, &["no-tokenizer", "tokenizer.json is missing"]),
        ("no-weights", 1, &["no-weights", "model.safetensors"]),
        ("truncated", 1, &["truncated/model.safetensors", "truncated weights"]),
        ("empty-weights", 1, &["empty-weights/model.safetensors"]),
        ("text-weights", 1, &["text-weights/model.safetensors", "Git LFS"]),
        ("config-text", 1, &["config-text/config.json", "not JSON"]),
        ("config-list", 1, &["config-list/config.json", "JSON object"]),
        ("other-model", 1, &["model_type", "llama", "sam3"]),
        ("widths", 1, &["detr_encoder_config.hidden_size", "64", "32"]),
        ("heads", 1, &["text_config.num_attention_heads", "5"]),
        ("no-heads", 1, &["text_config.num_attention_heads", "from 1 to 1024"]),
        ("globals", 1, &["global_attn_indexes", "99"]),
        ("patches", 1, &["image_size", "113", "14"]),
        ("words", 1, &["num_hidden_layers", "four", "number"]),
        ("deeper", 1, &["vision_encoder.backbone.layers.4", "missing", "deeper"]),
        ("activation", 1, &["hidden_act", "mish"]),
        ("missing", 1, &[norm, "missing", "[32]"]),
        ("shape", 1, &[norm, "[1, 32]", "[32]"]),
        ("unknown", 1, &["detr_decoder.layers.0.extra.weight", "unknown"]),
        ("not-a-number", 1, &[norm, "not finite", "value 1 is NaN"]),
        ("integers", 1, &[norm, "i16", "f32, f16, bf16 or f64"]),
        ("no-shard", 1, &["no-shard/model-00002-of-00002.safetensors"]),
        ("index-list", 1, &["index-list/model.safetensors.index.json", "weight_map"]),
        ("index-empty", 1, &["index-empty/model.safetensors.index.json", "empty"]),
        ("index-number", 1, &["weight_map.x", "file name"]),
        ("index-escape", 1, &["weight_map.x", "../plain", "inside the folder"]),
        ("index-absolute", 1, &["weight_map.x", "/etc/passwd", "inside the folder"]),
        ("index-text", 1, &["index-text/model.safetensors.index.json", "corrupt index"]),
    ];
    let arguments: Vec<String> = rows.iter().map(|(name, ..)| format!("{to}{name}")).collect();
    let rows =
        arguments.iter().zip(rows).map(|(arguments, (_, status, words))| refusal(arguments, status, words));
    place.refuses(OCELLI, &rows.collect::<Vec<_>>());
}

#[test]
fn invalid_export_options_are_errors() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "plain", "plain");
    let to = "export|--checkpoint|plain|--output|out|";
    let rows = [
        ("--imgsz|0", &["imgsz is 0", "14"][..]),
        ("--imgsz|113", &["imgsz is 113", "112 or 126"]),
        ("--imgsz|x", &["--imgsz", "'x'"]),
        ("--imgsz|-14", &["--imgsz", "'-14'"]),
        ("--imgsz|9999990", &["imgsz is 9999990"]),
        ("--skip-blocks|99", &["--skip-blocks has block 99", "0 to 3"]),
        ("--skip-blocks|3", &["--skip-blocks has block 3", "whole image", "[3]"]),
        ("--skip-blocks|x", &["--skip-blocks", "'x'"]),
        ("--skip-blocks|0,,1", &["--skip-blocks", "''"]),
        ("--mask-blocks|0", &["--mask-blocks", "BLOCK:attn or BLOCK:mlp"]),
        ("--mask-blocks|0:ffn", &["--mask-blocks", "0:ffn"]),
        ("--mask-blocks|attn:0", &["--mask-blocks", "attn:0"]),
        ("--mask-blocks|9:mlp", &["--mask-blocks has block 9", "0 to 3"]),
        ("--mask-blocks|3:attn", &["--mask-blocks has block 3", "whole image"]),
        ("--skip-blocks|1|--mask-blocks|1:mlp", &["1:mlp", "skip_blocks removes all of block 1"]),
        ("--split-block|0", &["--split-block is 0", "1 to 3"]),
        ("--split-block|4", &["--split-block is 4", "1 to 3"]),
        ("--split-block|-1", &["--split-block", "'-1'"]),
        ("--precision|fp12", &["--precision", "fp12", "possible values"]),
        ("--mixed-precision|attention", &["--mixed-precision, precision fp32", "fp16 or bf16"]),
        ("--precision|fp16|--keep-fp32|vit.99", &["--keep-fp32 has vit.99", "the model has patches, vit.0"]),
        ("--precision|bf16|--keep-fp32|nose", &["`nose` is not a block", "fusion.N"]),
        ("--target|gpu", &["--target", "onnxruntime, tensorrt"]),
        ("--prompt|x", &["--prompt", "official, text"]),
        ("--detection_only", &["--detection_only", "--detection-only"]),
        ("--quiet|--verbose", &["--quiet", "--verbose"]),
    ];
    let arguments: Vec<String> = rows.iter().map(|(name, _)| format!("{to}{name}")).collect();
    let rows = arguments.iter().zip(rows).map(|(arguments, (_, words))| refusal(arguments, 2, words));
    let rows = rows.chain([
        refusal("export", 2, &["--checkpoint", "--output"]),
        refusal("export|--checkpoint|plain", 2, &["--output"]),
        refusal("exprot", 2, &["exprot", "export"]),
    ]);
    place.refuses(OCELLI, &rows.collect::<Vec<_>>());
}

#[test]
fn only_an_exported_folder_is_replaced_and_only_with_force() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "plain", "plain");
    place.folder("empty");
    place.write("file", "mine");
    place.write("holiday/notes", "mine");
    let export = ["export", "--checkpoint", "plain", "--output"];
    let listed = place.succeed(OCELLI, &[&export[..], &["exported"]].concat());
    assert!(listed.contains("backbone.onnx") && listed.contains("exported for 112 px"), "{listed}");
    place.refuses(
        OCELLI,
        &[
            refusal("export|--checkpoint|plain|--output|exported", 2, &["exported", "already", "force"]),
            refusal("export|--checkpoint|plain|--output|file", 2, &["file", "expected a folder"]),
            refusal("export|--checkpoint|plain|--output|file|--force", 2, &["file", "expected a folder"]),
            refusal("export|--checkpoint|plain|--output|file/below", 1, &["file"]),
            refusal("export|--checkpoint|plain|--output|holiday", 2, &["holiday", "not empty"]),
            refusal("export|--checkpoint|plain|--output|holiday|--force", 2, &["holiday", "not empty"]),
            refusal("export|--checkpoint|plain|--output|plain|--force", 2, &["plain", "not empty"]),
            refusal("export|--checkpoint|plain|--output|..", 2, &[".."]),
        ],
    );
    assert_eq!(place.json("exported/model.json")["imgsz"], 112);
    place.succeed(OCELLI, &[&export[..], &["exported", "--force", "--imgsz", "56"]].concat());
    assert_eq!(place.json("exported/model.json")["imgsz"], 56);
    place.succeed(OCELLI, &[&export[..], &["empty", "--detection-only"]].concat());
    place.succeed(OCELLI, &[&export[..], &["deep/er/folder", "-q"]].concat());
    let parts = place.paths().into_iter().filter(|path| path.to_string_lossy().contains(".ocelli"));
    assert_eq!(parts.count(), 0, "{:?}", place.paths());
    assert_eq!((place.read("file"), place.read("holiday/notes")), (b"mine".to_vec(), b"mine".to_vec()));
}

#[test]
fn embed_writes_a_text_cache() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "plain", "plain");
    place.folder("folder");
    place.write("text", "hello");
    assert!(
        place.succeed(OCELLI, &["embed", "--classes", "dog", "cat", "-o", "words"]).contains("2 phrases")
    );
    assert!(
        place.succeed(OCELLI, &["embed", "--classes", "dog,red apple", "-o", "words"]).contains("2 phrases")
    );
    let words = place.read("words");
    let words = safetensors::SafeTensors::deserialize(&words).expect("the cache is a safetensors file");
    let mut names: Vec<_> =
        words.names().into_iter().filter_map(|name| name.strip_prefix("text_features:")).collect();
    names.sort_unstable();
    assert_eq!(names, ["cat", "dog", "red apple"]);
    place.refuses(
        OCELLI,
        &[
            refusal("embed|--classes|dog", 2, &["--output"]),
            refusal("embed|--output|x", 2, &["--classes"]),
            refusal("embed|--classes|dog|| |--output|x", 2, &["class 2", "blank"]),
            refusal("embed|--classes|dog,,cat|--output|x", 2, &["class 2", "blank"]),
            refusal("embed|--classes|dog|--output|none/x", 1, &["none", "does not exist"]),
            refusal("embed|--classes|dog|--output|folder", 1, &["folder", "name a file"]),
            refusal("embed|--classes|dog|--output|text", 1, &["text", "safetensors"]),
            refusal("embed|--classes|dog|--output|words|--model|plain", 1, &["words", "another model"]),
            refusal("embed|--classes|dog|--output|x|--model|nowhere", 2, &["nowhere", "no such folder"]),
            refusal("embed|--classes|dog|--output|x|--threads|0", 2, &["threads is 0"]),
            #[cfg(unix)]
            refusal("embed|--classes|dog|--output|/dev/null", 1, &["/dev/null", "not a file"]),
        ],
    );
    assert_eq!(place.read("text"), b"hello");
}

#[test]
fn what_the_cache_keeps_is_listed_and_removed() {
    let place = Place::new().with_empty_cache();
    let park = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png");
    place.write("park.png", std::fs::read(park).expect("it is in the project"));
    let entries = || -> Vec<String> {
        let list = place.succeed(OCELLI, &["cache"]);
        list.lines().skip(1).filter(|line| line.contains("today")).map(str::to_owned).collect()
    };
    assert_eq!(entries(), [""; 0]);
    let detect = || place.succeed(OCELLI, &["detect", "--image", "park.png", "--classes", "dog"]);
    detect();
    let kept = entries();
    let model = kept.iter().find(|line| line.starts_with("models/builtin-")).expect("the model is listed");
    assert!(model.contains("224 px, onnxruntime, fp32, boxes"), "{model}");
    assert!(kept.iter().any(|line| line.starts_with("text ") && line.contains("phrases")), "{kept:?}");
    place.refuses(OCELLI, &[refusal("cache|--remove|models/none", 2, &["models/none", "no such entry"])]);
    assert!(place.succeed(OCELLI, &["cache", "--remove-unused", "1"]).starts_with("0 entries removed"));
    let name = model.split_whitespace().next().expect("it has a name");
    assert!(place.succeed(OCELLI, &["cache", "--remove", name]).starts_with("1 entry removed"));
    assert_eq!(entries().len(), kept.len() - 1);
    assert!(detect().contains("2 detections"), "it is made again");
    let removed = place.succeed(OCELLI, &["cache", "--remove", "all"]);
    assert!(removed.starts_with(&format!("{} entries removed", kept.len())), "{removed}");
    assert_eq!(entries(), [""; 0]);
}

#[test]
fn the_cache_has_a_limit() {
    let place = Place::new().with_empty_cache();
    let park = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png");
    place.write("park.png", std::fs::read(park).expect("it is in the project"));
    let detect = |imgsz: &str, limit: &str| {
        let arguments =
            ["detect", "--image", "park.png", "--classes", "dog", "--engine", "embedded", "--imgsz", imgsz];
        outcome(place.command(OCELLI, &arguments).env("OCELLI_CACHE_LIMIT", limit))
    };
    let sizes = || {
        let list = place.succeed(OCELLI, &["cache"]);
        let of_model = |line: &str| line.split(" px").next()?.rsplit(' ').next().map(str::to_owned);
        list.lines().filter(|line| line.starts_with("models/")).filter_map(of_model).collect::<Vec<_>>()
    };
    for (imgsz, limit, expected) in [
        ("112", "", &["112"][..]),
        ("168", "", &["112", "168"]),
        // Opened again, it is the newer one.
        ("112", "", &["112", "168"]),
        // Room for two of three: the one that was not opened for the longest time goes.
        ("224", "0.07", &["112", "224"]),
        ("168", "0", &["112", "168", "224"]),
        // What is open stays, whatever the limit.
        ("56", "0.000001", &["56"]),
    ] {
        let ran = detect(imgsz, limit);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let mut found = sizes();
        found.sort_by_key(|size| size.parse::<u32>().expect("pixels"));
        assert_eq!(found, expected, "after {imgsz} px with the limit {limit:?}");
    }
    let wrong = detect("280", "many");
    wrong
        .is_refusal(2, &["OCELLI_CACHE_LIMIT is many: expected a number of GB"])
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn doctor_reports_engines_libraries_and_cache() {
    let place = Place::with_libraries().with_empty_cache();
    let healthy = place.succeed(OCELLI, &["doctor"]);
    for word in [
        "works: ONNX Runtime",
        "embedded        works",
        "ms per image with OpenVINO",
        "version",
        "threads",
        "not in this ONNX Runtime",
        "onnxruntime     works",
        "openvino        works: OpenVINO 2026",
        "webgpu          ",
        "\nWebGPU\n",
        "number formats: ",
        " MB; `ocelli cache` lists and removes what is in it",
    ] {
        assert!(healthy.contains(word), "{word}: {healthy}");
    }
    let video: &[&str] = if cfg!(not(without_video)) {
        &["reads           FFmpeg ", "cameras         ", "windows         OpenCV 4", "writes          mp4"]
    } else {
        &["\nvideo\n  not usable"]
    };
    assert!(video.iter().all(|word| healthy.contains(word)), "{healthy}");
    let parts: &[&str] = if cfg!(not(without_tensorrt)) {
        &[
            "libocelli_tensorrt.so (",
            "headers of TensorRT 11.4",
            "libocelli_tensorrt_rtx.so (",
            "headers of TensorRT for RTX 1.7",
        ]
    } else {
        &["Ocelli's part for TensorRT: ", "Ocelli's part for TensorRT for RTX: "]
    };
    assert!(parts.iter().all(|word| healthy.contains(word)), "{healthy}");
    // Of ONNX Runtime, its WebGPU provider, OpenVINO and TensorRT.
    assert_eq!(healthy.matches("system folders").count(), 4, "{healthy}");

    place.write("text", "hello");
    for (library, words) in [("nowhere", ["nowhere", "no such file"]), ("text", ["text", "cannot use"])] {
        let ill = place.run(OCELLI, &["doctor", "--onnxruntime", library]);
        ill.is_refusal(1, &words).unwrap_or_else(|e| panic!("{library}: {e}"));
        assert!(ill.stdout.contains("does not work"), "{ill:?}");
    }
    place.write("file", "");
    let mut command = place.command(OCELLI, &["doctor"]);
    let no_cache = outcome(command.env("OCELLI_CACHE", place.path("file")));
    no_cache.is_refusal(1, &["file/models", "set OCELLI_CACHE"]).unwrap_or_else(|e| panic!("{e}"));
    assert!(no_cache.stdout.contains("onnxruntime     works"), "{no_cache:?}");
}

/// The commands that `ocelli --help` lists.
const COMMANDS: [&str; 16] = [
    "detect",
    "video",
    "label",
    "eval",
    "coco",
    "track",
    "export",
    "build-engine",
    "verify",
    "prune",
    "embed",
    "doctor",
    "models",
    "pull",
    "cache",
    "completions",
];

#[test]
fn help_fits_the_terminal_and_lists_commands_and_options() {
    let place = Place::new();
    let options = [
        (
            "detect",
            &[
                "--image",
                "--classes",
                "--exemplar",
                "--output",
                "--json",
                "--masks",
                "litetext-s0",
                "Examples",
            ][..],
        ),
        (
            "video",
            &[
                "--video",
                "--classes",
                "--coco",
                "--output",
                "--jsonl",
                "--mot",
                "--crops",
                "--display",
                "--track",
                "--sequential",
                "--policy",
                "--detect-every",
                "--class-budget",
                "--stats",
                "--start",
                "--vid-stride",
                "--raw",
                "--reconnect",
                "--match-thresh",
                "rtsp://",
                "litetext-s0",
                "the sound of the input",
                "Examples",
            ],
        ),
        ("export", &["--checkpoint", "--imgsz", "--split-block", "--force", "Example"]),
        ("build-engine", &["--verify", "--max-classes", "--min-cosine", "Example"]),
        ("embed", &["--classes", "--output", "--model", "Example"]),
        ("doctor", &["--onnxruntime"]),
    ];
    let mut wrong = Vec::new();
    for command in COMMANDS.iter().copied().map(Some).chain([None]) {
        let arguments: Vec<&str> = command.into_iter().chain(["--help"]).collect();
        let text = place.succeed(OCELLI, &arguments);
        let expected = options.iter().find(|(name, _)| Some(*name) == command).map_or(&[][..], |one| one.1);
        let expected = if command.is_none() { &COMMANDS } else { expected };
        wrong.extend(
            expected
                .iter()
                .filter(|word| !text.contains(**word))
                .map(|word| format!("{command:?}: no {word}")),
        );
        let lines = text.lines().filter(|line| line.chars().count() > 80);
        wrong.extend(lines.map(|line| format!("{command:?}: {line}")));
        // Options with long help are printed with a blank line between them.
        wrong.extend(text.contains("see a summary").then(|| format!("{command:?}: long help")));
        // Apart from --help and --version, options have a heading.
        let plain = text.split("\n\n").filter(|part| part.starts_with("Options:"));
        let unlisted = plain.flat_map(str::lines).filter(|line| line.trim_start().starts_with('-'));
        let known = ["--help", "--version", "--program"];
        wrong.extend(
            unlisted
                .filter(|line| !known.iter().any(|flag| line.contains(flag)))
                .map(|line| format!("{command:?}: {line}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for nothing in [&[][..], &["detect"], &["video"]] {
        assert_eq!(place.run(OCELLI, nothing).status, Some(2), "{nothing:?}");
    }
    assert!(place.succeed(OCELLI, &["--version"]).starts_with("ocelli "));
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let place = Place::new();
    let mut wrong = Vec::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.succeed(OCELLI, &["completions", shell]);
        wrong.extend(
            COMMANDS
                .iter()
                .chain(&["class-chunk"])
                .filter(|word| !script.contains(**word))
                .map(|word| format!("{shell}: {word}")),
        );
        for program in ["demo-image", "demo-video"] {
            let script = place.succeed(OCELLI, &["completions", shell, "--program", program]);
            wrong.extend((!script.contains(program)).then(|| format!("{shell}: {program}")));
        }
    }
    place.succeed(OCELLI, &["man", "share/man1"]);
    let page =
        |name: &str| String::from_utf8_lossy(&place.read(&format!("share/man1/{name}.1"))).into_owned();
    let main = page("ocelli").replace("\\-", "-");
    for command in COMMANDS {
        wrong.extend(
            (!main.contains(&format!("ocelli-{command}(1)"))).then(|| format!("ocelli.1: {command}")),
        );
        let text = page(&format!("ocelli-{command}"));
        wrong.extend((!text.contains("SYNOPSIS")).then(|| format!("ocelli-{command}.1: {text}")));
    }
    for (name, flag) in [("demo-image", "sheet"), ("demo-video", "jsonl"), ("ocelli-label-merge", "output")] {
        wrong.extend((!page(name).contains(flag)).then(|| format!("{name}.1: {flag}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    place.refuses(
        OCELLI,
        &[
            refusal("completions", 2, &["<SHELL>"]),
            refusal("completions|tcsh", 2, &["tcsh", "bash"]),
            refusal(
                "man|share/man1/ocelli.1",
                1,
                &["cannot write man pages", "share/man1/ocelli.1", "exists"],
            ),
        ],
    );
}

#[test]
#[cfg(unix)]
fn a_closed_stdout_is_silent_and_a_full_one_is_an_error() {
    let place = Place::new();
    let mut child = place.start(OCELLI, &["doctor"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    if cfg!(target_os = "linux") {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let child = place.command(OCELLI, &["doctor"]).stdout(full).stderr(Stdio::piped()).spawn();
        let output = child.and_then(std::process::Child::wait_with_output).expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let full = crate::run::Outcome { status: output.status.code(), stdout: String::new(), stderr };
        full.is_refusal(1, &["stdout", "space"]).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// The names in a folder of the cache.
fn cached(place: &Place, folder: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(place.path("cache").join(folder)).expect("something was cached").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.contains('.'));
    names.sort();
    names
}

#[test]
fn a_changed_configuration_is_exported_again() {
    let place = Place::new().with_empty_cache();
    crate::checkpoints::copy(&place, "plain", "model");
    let embed = || {
        let arguments = ["embed", "--model", "model", "--classes", "dog", "--output", "words.st", "-q"];
        drop(std::fs::remove_file(place.path("words.st")));
        place.succeed(OCELLI, &arguments);
        let words = place.read("words.st");
        let words = safetensors::SafeTensors::deserialize(&words).expect("it is a text cache");
        let features = words.tensor("text_features:dog").expect("the phrase was encoded").data().to_vec();
        (cached(&place, "models"), features)
    };
    let (first, features) = embed();
    assert_eq!(embed(), (first.clone(), features.clone()), "nothing has changed");
    let mut config = place.json("model/config.json");
    let activation = config.pointer_mut("/text_config/hidden_act").expect("the golden has it");
    assert_ne!(*activation, json!("relu"));
    *activation = json!("relu");
    place.write("model/config.json", config.to_string());
    let (second, other_features) = embed();
    assert_eq!((first.len(), second.len()), (1, 2), "{second:?}");
    assert_ne!(features, other_features, "another activation, the same features");
    // White space changes the tokeniser's file, and not what it says.
    let tokenizer = String::from_utf8(place.read("model/tokenizer.json")).expect("it is text");
    place.write("model/tokenizer.json", format!(" {tokenizer}"));
    assert_eq!(embed().0.len(), 3);
}

#[test]
fn a_text_cache_has_one_number_format() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "plain", "model");
    let embed = |precision: &str, class: &str| {
        let words = ["--model", "model", "--classes", class, "--output", "words.st", "-q"];
        place.run(OCELLI, &[&["embed", "--precision", precision], words.as_slice()].concat())
    };
    for (precision, class, status) in [("fp32", "dog", 0), ("int8", "cat", 0), ("fp16", "bird", 1)] {
        let found = embed(precision, class);
        assert_eq!(found.status, Some(status), "{precision}: {found:?}");
        assert_eq!(found.stderr.contains("number_format"), status == 1, "{precision}: {found:?}");
    }
}
