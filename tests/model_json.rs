//! The detector obeys the thresholds and the preprocessing in `model.json`.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::path::Path;

use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{
    Detections, Detector, DetectorBuilder, ErrorKind, Image, Model, ModelSource, Prompts,
    stages::TextCacheFile,
};
use serde_json::{Value, json};

struct Exported {
    folder: tempfile::TempDir,
    manifest: Value,
}

impl Exported {
    /// The built-in model in a temporary folder.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let checkpoint = folder.path().join("checkpoint");
        std::fs::create_dir(&checkpoint).expect("the folder is new");
        ocelli::builtin::write_checkpoint(&checkpoint).expect("the folder is writable");
        let checkpoint = Checkpoint::open(&checkpoint).expect("a valid checkpoint");
        let options = ExportOptions { detection_only: true, ..ExportOptions::default() };
        export(&checkpoint, &options, &folder.path().join("model"), |_| Ok(())).expect("it exports");
        let text = std::fs::read(folder.path().join("model/model.json")).expect("just written");
        Self { manifest: serde_json::from_slice(&text).expect("JSON"), folder }
    }

    /// Writes `model.json` with one value changed; the path is a JSON pointer.
    fn set(&self, pointer: &str, value: Value) {
        let mut manifest = self.manifest.clone();
        *manifest.pointer_mut(pointer).expect("the manifest has the value") = value;
        std::fs::write(self.folder.path().join("model/model.json"), manifest.to_string())
            .expect("the folder is writable");
    }

    fn detector(&self) -> DetectorBuilder {
        Detector::builder()
            .with_model(ModelSource::Folder(self.folder.path().join("model")))
            .with_text_cache(TextCacheFile::None)
    }
}

fn detect(builder: DetectorBuilder) -> ocelli::Result<Detections> {
    let park = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes/park.png");
    let prompts = Prompts::new(["dog", "tree", "bicycle", "person"])?;
    builder.build()?.detect(&Image::open(park)?, &prompts)
}

fn boxes(builder: DetectorBuilder) -> Vec<(usize, f32, [f32; 4])> {
    let found = detect(builder).expect("it detects");
    found.into_iter().map(|one| (one.class_id, one.score, one.bbox.to_xyxy())).collect()
}

#[test]
fn thresholds_apply_unless_the_caller_sets_them() {
    let model = Exported::new();
    let default = boxes(model.detector());
    let all = boxes(model.detector().with_confidence(0.001));
    let all_without_nms =
        boxes(model.detector().with_confidence(0.001).with_options(|options| options.nms = Some(1.0)));
    assert!(default.len() > 1 && default.len() < all.len() && all.len() < all_without_nms.len());

    let middle = default[default.len() / 2].1;
    model.set("/thresholds/confidence", json!(middle));
    let above: Vec<_> = default.iter().filter(|one| one.1 > middle).copied().collect();
    assert_eq!(boxes(model.detector()), above, "the confidence of model.json");
    assert_eq!(boxes(model.detector().with_confidence(0.3)), default, "the confidence of the caller");

    model.set("/thresholds/nms", json!(1.0));
    assert_eq!(boxes(model.detector().with_confidence(0.001)), all_without_nms, "the IoU of model.json");
    assert_eq!(
        boxes(model.detector().with_confidence(0.001).with_options(|options| options.nms = Some(0.7))),
        all,
        "the IoU of the caller"
    );
    let options = ocelli::postprocess::PostProcessOptions { confidence: 0.001, ..Default::default() };
    assert_eq!(boxes(model.detector().with_post_processing(options)), all, "all thresholds of the caller");
}

#[test]
fn preprocessing_applies() {
    let model = Exported::new();
    let default = boxes(model.detector());
    for (pointer, value) in
        [("/preprocessing/mean", [0.4, 0.5, 0.5]), ("/preprocessing/std", [0.5, 0.5, 0.6])]
    {
        model.set(pointer, json!(value));
        assert_ne!(boxes(model.detector()), default, "{pointer}");
    }
    // The graph was exported for 224 pixels: an input of another size does not fit.
    model.set("/imgsz", json!(112));
    detect(model.detector()).expect_err("imgsz is the size of the input");
}

#[test]
fn errors_name_invalid_values() {
    let model = Exported::new();
    let folder = model.folder.path().join("model");
    let cases = [
        ("/thresholds/confidence", json!(7.0), "thresholds.confidence is 7"),
        ("/thresholds/nms", json!(-0.5), "thresholds.nms is -0.5"),
        ("/preprocessing/resize", json!("letterbox"), "preprocessing.resize is \"letterbox\""),
    ];
    for (pointer, value, expected) in cases {
        model.set(pointer, value);
        let error = Model::open(&folder).expect_err("the value is invalid");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{pointer}");
        let text = error.to_string();
        assert!(text.contains("model.json") && text.contains(expected), "{text}");
    }
}

/// Every number of a JSON value, as pointers.
fn numbers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(pointer.to_owned()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(i, one)| numbers(one, &format!("{pointer}/{i}"), found));
        }
        Value::Object(all) => {
            all.iter().for_each(|(key, one)| numbers(one, &format!("{pointer}/{key}"), found));
        }
        _ => {}
    }
}

#[test]
fn a_number_changed_by_hand_is_one_line_and_no_panic() {
    let mut model = Exported::new();
    // The tracker's graphs are not there, and its sizes are read all the same.
    model.manifest["tracker"] = json!({ "memory_width": 16, "hidden": 64, "times": 7 });
    let mut pointers = Vec::new();
    numbers(&model.manifest, "", &mut pointers);
    assert!(pointers.len() > 20, "{pointers:?}");
    let sizes = ["/imgsz", "/patch_size", "/model_width", "/num_queries", "/context_length"];
    let mut wrong = Vec::new();
    for pointer in pointers.into_iter().filter(|pointer| !pointer.starts_with("/files/")) {
        let key = pointer.rsplit('/').next().unwrap_or_default();
        let is_size = sizes.contains(&pointer.as_str());
        let twice = json!(2 * model.manifest.pointer(&pointer).and_then(Value::as_u64).unwrap_or(1));
        let values =
            [json!(1e300), json!("NaN"), json!(0), json!(-1), json!(1_000_000_000), json!(null), twice];
        // Most other numbers are no error, and then an image is searched.
        for value in values.into_iter().take(if is_size { 7 } else { 3 }) {
            model.set(&pointer, value.clone());
            match detect(model.detector()) {
                Ok(_) if is_size => wrong.push(format!("{pointer} {value}: it detects")),
                Err(error) if error.to_string().contains('\n') || error.kind() == ErrorKind::Execution => {
                    wrong.push(format!("{pointer} {value}: {error}"));
                }
                Err(error) if is_size && value.is_u64() && !error.to_string().contains(key) => {
                    wrong.push(format!("{pointer} {value}: {error}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
