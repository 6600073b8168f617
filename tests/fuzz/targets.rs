//! The parsers of files and messages, each with its seeds. A parser may refuse anything.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use image::codecs::gif::GifEncoder;
use image::{DynamicImage, ImageFormat};
use ocelli::classes::ClassMap;
use ocelli::export::config::ModelConfig;
use ocelli::export::contract::Manifest;
use ocelli::source::{Position, RawFormat, RawFrames, without_secrets};
use ocelli::tiles::{Regions, TiledImage};
use ocelli::tokenizer::{Tokenizer, TokenizerConfig};
use ocelli::{Frame, Image, Mask, Model, Source};
use ocelli_datasets::eval::{Predictions, Truth};
use ocelli_datasets::label::find_images;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// A parser of bytes, which may use a folder.
pub struct Target {
    pub name: &'static str,
    pub parse: fn(&Path, &[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "safetensors", parse: safetensors, seeds: safetensors_seeds },
    Target {
        name: "shard_index",
        parse: shard_index,
        seeds: || vec![golden("parity/released/model.safetensors.index.json")],
    },
    Target {
        name: "model_config",
        parse: model_config,
        seeds: || vec![golden("parity/plain/config.json"), golden("parity/released/config.json")],
    },
    Target { name: "manifest", parse: manifest, seeds: || seeds("manifest") },
    Target { name: "tokenizer", parse: tokenizer, seeds: || vec![golden("parity/plain/tokenizer.json")] },
    Target { name: "class_map", parse: class_map, seeds: || seeds("class_map") },
    Target { name: "journal", parse: journal, seeds: || seeds("journal") },
    Target { name: "text_cache", parse: text_cache, seeds: text_cache_seeds },
    Target { name: "sidecar", parse: sidecar, seeds: || seeds("sidecar") },
    Target {
        name: "mot",
        parse: mot,
        seeds: || {
            vec![
                start_of(golden("tracking/data/fast-200.det.txt"), 2000),
                b"1,-1,10,20,30,40,0.9,-1,-1,-1\n".to_vec(),
            ]
        },
    },
    Target {
        name: "coco_annotations",
        parse: coco_annotations,
        seeds: || [vec![golden("eval/annotations.json")], seeds("coco_annotations")].concat(),
    },
    Target { name: "coco_results", parse: coco_results, seeds: || vec![golden("eval/predictions.json")] },
    Target { name: "video_container", parse: video_container, seeds: || seeds("video_container") },
    Target {
        name: "raw_format",
        parse: raw_format,
        seeds: || {
            ["1280x720:bgr", "4x2:nv12@25", "3X5:gray8@1e-3", "64x64:rgb24@29.97"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec()
        },
    },
    Target {
        name: "raw_frames",
        parse: raw_frames,
        seeds: || {
            ["4x2:nv12@25\n012345678901", "2x2:gray\n0123456", "3x1:bgr\n012345678"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec()
        },
    },
    Target {
        name: "position",
        parse: position,
        seeds: || ["12.5", "1:02.5", "300f", "1:0:0", "3s"].map(|text| text.as_bytes().to_vec()).to_vec(),
    },
    Target {
        name: "exemplar",
        parse: exemplar,
        seeds: || {
            ["1,2,3,4", "1.5,2,3e1,4:no@dog", "0,0,9,9:yes@red apple"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec()
        },
    },
    Target { name: "onnx", parse: onnx, seeds: onnx_seeds },
    Target {
        name: "torch_file",
        parse: torch_file,
        seeds: || {
            ["formats", "legacy", "module", "protocol4", "script", "views", "wrapped"]
                .map(|name| golden(&format!("checkpoints/containers/{name}.pt")))
                .to_vec()
        },
    },
    Target {
        name: "class_list",
        parse: class_list,
        seeds: || vec!["\u{feff}dog\nred  apple\n\n person \n".into(), b"Dog\r\ndog\r\ncaf\xc3\xa9".to_vec()],
    },
    Target {
        name: "data_set_state",
        parse: data_set_state,
        seeds: || {
            let line = |file: &str, hash: &str| {
                format!(
                    r#"{{"file":"{file}","hash":"{hash}","before":null,"format":"yolo","classes":12970366926827028480}}"#
                )
            };
            let (a, b) =
                (line("labels/train/a.txt", &"0a".repeat(32)), line("labels/val/b/c.txt", &"ff".repeat(32)));
            let files = format!("{{\"files\":[{a}]}}\n{{\"files\":[{a},{b}]}}\n");
            let image = r#"{"images":{"a.png":{"source":"/a.png","identity":[1,2]}}}"#;
            vec![format!("{{\"ocelli_label_state\":1}}\n{files}{image}\n\"discarded\"\n").into_bytes()]
        },
    },
    Target {
        name: "zones",
        parse: |folder, bytes| {
            ocelli_cli::parsers::parse_zones(&written(folder, "zones.yaml", bytes));
        },
        seeds: || {
            vec![
                b"units: relative\nanchor: bottom\nmargin: 0.02\nlines:\n  - {name: door, from: [0, 0.5], to: [1, 0.5]}\n"
                    .to_vec(),
                b"zones:\n  - name: park\n    points: [[10, 10], [500, 10], [300, 400]]\n    source: cam\n".to_vec(),
            ]
        },
    },
    Target {
        name: "options_file",
        parse: |folder, bytes| {
            ocelli_cli::parsers::parse_options(&written(folder, "o.yaml", bytes));
        },
        seeds: || {
            vec![
                b"classes: [person, dog]\ntrack: true\nconfidence: 0.4\nvideo: street.mp4\n".to_vec(),
                b"max-frames: 3\nmasks: false\nraw: null\nsources: [a, b]\n".to_vec(),
            ]
        },
    },
    Target {
        name: "sources_file",
        parse: |folder, bytes| {
            ocelli_cli::parsers::parse_sources(&written(folder, "s.txt", bytes));
        },
        seeds: || vec![b"# cameras\ndoor=rtsp://a:b@c/d?x=1\nback gate:3 = 0\nin/a=b.mp4\n".to_vec()],
    },
    Target {
        name: "event_address",
        parse: |_, bytes| {
            ocelli_cli::parsers::parse_event_address(&String::from_utf8_lossy(bytes));
        },
        seeds: || {
            ["mqtt://user@broker:1883/street/1", "http://u:p@[::1]:80/a?b=c", "mqtt://h/t"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec()
        },
    },
    Target {
        name: "secrets",
        parse: secrets,
        seeds: || {
            [
                "rtsp://u:p@h:554/a?pwd=b&c=d",
                "h/user=a&password=b: no answer, \"rtsp:/u:p@h\"",
                "--mqtt, a:b@c",
            ]
            .map(|text| text.as_bytes().to_vec())
            .to_vec()
        },
    },
    Target { name: "merges", parse: merges, seeds: merges_seeds },
    Target {
        name: "phrase",
        parse: phrase,
        seeds: || {
            ["a red Apple", "caf\u{e9} \u{1f600} don't 12", "\u{130}\u{3000}\u{ad}x<|endoftext|>"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec()
        },
    },
    Target {
        name: "mask_counts",
        parse: mask_counts,
        seeds: || vec![b"\x08\x04522203".to_vec(), b"\x10\x10PP8".to_vec(), b"\x04\x0404L0".to_vec()],
    },
    Target { name: "tar", parse: tar, seeds: tar_seeds },
    Target { name: "png", parse: open_image, seeds: || images(ImageFormat::Png) },
    Target { name: "jpeg", parse: open_image, seeds: || [images(ImageFormat::Jpeg), seeds("jpeg")].concat() },
    Target { name: "webp", parse: open_image, seeds: || images(ImageFormat::WebP) },
    Target { name: "bmp", parse: open_image, seeds: || images(ImageFormat::Bmp) },
    Target { name: "tiff", parse: open_image, seeds: || images(ImageFormat::Tiff) },
    Target { name: "gif", parse: open_image, seeds: gif_seeds },
    Target {
        name: "pnm",
        parse: open_image,
        seeds: || {
            let mut seeds = images(ImageFormat::Pnm);
            seeds.push(
                b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n12345678".to_vec(),
            );
            seeds.push(b"P3\n# text\n2 1\n65535\n1 2 3 400 500 600\n".to_vec());
            seeds.push(b"P1\n3 2\n1 0 1\n0 1 0\n".to_vec());
            seeds
        },
    },
];

fn root() -> PathBuf {
    PathBuf::from(super::TESTS)
}

fn golden(name: &str) -> Vec<u8> {
    let path = root().join("golden").join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The files of a folder of seeds.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = root().join("fuzz/seeds").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).collect()
}

fn start_of(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.truncate(length);
    bytes
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

fn safetensors(folder: &Path, bytes: &[u8]) {
    written(folder, "config.json", &golden("parity/plain/config.json"));
    written(folder, "model.safetensors", bytes);
    drop(ocelli::export::Checkpoint::open(folder));
}

fn safetensors_seeds() -> Vec<Vec<u8>> {
    let data = [0u8; 96];
    let view = |shape: &[usize]| {
        let length = shape.iter().product::<usize>() * 4;
        TensorView::new(Dtype::F32, shape.to_vec(), &data[..length]).expect("the shape fits the data")
    };
    let small =
        [("vision_encoder.backbone.layer_norm.weight", view(&[24])), ("b", view(&[2, 3])), ("c", view(&[]))];
    let none: [(&str, TensorView<'_>); 0] = [];
    vec![
        safetensors::serialize(small, None).expect("it is valid"),
        safetensors::serialize(none, None).expect("it is valid"),
    ]
}

fn shard_index(folder: &Path, bytes: &[u8]) {
    written(folder, "config.json", &golden("parity/plain/config.json"));
    written(folder, "model.safetensors.index.json", bytes);
    drop(ocelli::export::Checkpoint::open(folder));
}

fn model_config(folder: &Path, bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(ModelConfig::parse(text));
    }
    written(folder, "config.json", bytes);
    // The tensors that a configuration asks for are listed before any is looked up.
    written(folder, "model.safetensors", &safetensors_seeds()[0]);
    drop(ocelli::export::Checkpoint::open(folder));
}

fn manifest(folder: &Path, bytes: &[u8]) {
    written(folder, "model.json", bytes);
    drop(Manifest::read(folder));
    drop(Model::open(folder));
}

fn tokenizer(_: &Path, bytes: &[u8]) {
    let mut config = TokenizerConfig::new(8);
    (config.start_id, config.end_id) = (Some(0), Some(1));
    if let Ok(tokenizer) = Tokenizer::from_bytes(bytes, "tokenizer.json", config) {
        drop(tokenizer.encode("a red Apple, caf\u{e9} \u{1f600}"));
    }
}

fn class_map(folder: &Path, bytes: &[u8]) {
    drop(ClassMap::open(&written(folder, "classes.yaml", bytes)));
}

fn journal(folder: &Path, bytes: &[u8]) {
    drop(ocelli_datasets::label::check_journal(&written(folder, "journal.jsonl", bytes)));
}

fn text_cache(folder: &Path, bytes: &[u8]) {
    drop(ocelli::parsers::read_text_cache(&written(folder, "phrases.safetensors", bytes)));
}

fn text_cache_seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("phrases.safetensors");
    ocelli::parsers::write_text_cache(&path, &["dog", "red apple"]).expect("the folder can be written to");
    vec![fs::read(path).expect("it was written")]
}

fn sidecar(folder: &Path, bytes: &[u8]) {
    written(folder, "x.engine.json", bytes);
    drop(ocelli::tensorrt::Sidecar::read(&folder.join("x.engine")));
}

fn torch_file(folder: &Path, bytes: &[u8]) {
    let path = written(folder, "x.pt", bytes);
    drop(ocelli::export::CheckpointOptions::default().inspect(&path));
}

fn class_list(folder: &Path, bytes: &[u8]) {
    ocelli_cli::parsers::parse_classes(&written(folder, "classes.txt", bytes));
}

fn data_set_state(folder: &Path, bytes: &[u8]) {
    drop(ocelli_datasets::label::check_state(&written(folder, "state.jsonl", bytes)));
}

fn mot(_: &Path, bytes: &[u8]) {
    drop(ocelli::tracking::read_mot("boxes", bytes));
}

fn coco_annotations(folder: &Path, bytes: &[u8]) {
    if let Ok(truth) = Truth::open(&written(folder, "annotations.json", bytes)) {
        truth.image_ids().into_iter().for_each(|image| drop(truth.instances(image)));
    }
}

fn coco_results(folder: &Path, bytes: &[u8]) {
    let truth = Truth::open(&root().join("golden/eval/annotations.json")).expect("the golden is whole");
    drop(Predictions::open(&written(folder, "results.json", bytes), &truth));
}

fn video_container(folder: &Path, bytes: &[u8]) {
    ocelli::parsers::inspect_container(&written(folder, "video", bytes)).expect("the file can be read");
}

fn raw_format(_: &Path, bytes: &[u8]) {
    if let Ok(format) = String::from_utf8_lossy(bytes).parse::<RawFormat>() {
        assert_eq!(format.to_string().parse(), Ok(format), "it is printed as it was read");
        assert!(format.frame_bytes() <= 3 * ocelli::image::MAX_PIXELS as usize);
    }
}

/// A line with the format, then frames.
fn raw_frames(_: &Path, bytes: &[u8]) {
    let Some(line) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(format) = String::from_utf8_lossy(&bytes[..line]).parse::<RawFormat>() else { return };
    // The buffer of a frame is as large as its format says.
    if format.frame_bytes() > 1 << 20 {
        return;
    }
    let mut source = RawFrames::new("memory", format, Cursor::new(bytes[line + 1..].to_vec()));
    let mut frame = Frame::default();
    while matches!(source.read_into(&mut frame), Ok(true)) {
        assert_eq!((frame.image.width(), frame.image.height()), (format.width, format.height));
    }
}

fn position(_: &Path, bytes: &[u8]) {
    drop(String::from_utf8_lossy(bytes).parse::<Position>());
}

fn exemplar(_: &Path, bytes: &[u8]) {
    ocelli_cli::parsers::parse_exemplar(&String::from_utf8_lossy(bytes));
}

fn onnx(_: &Path, bytes: &[u8]) {
    drop(ocelli_onnx::read_graph_from(&mut Cursor::new(bytes)));
}

fn onnx_seeds() -> Vec<Vec<u8>> {
    use ocelli_onnx::Message;
    use ocelli_onnx::schema::{
        DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
    };
    let value = |name: &str| {
        let dims = [DimensionValue::DimParam("classes".into()), DimensionValue::DimValue(300)];
        ValueInfoProto::tensor(name, data_type::FLOAT, dims)
    };
    let node = |kind: &str| NodeProto {
        input: vec!["x".into(), "weights".into()],
        output: vec!["y".into()],
        op_type: kind.into(),
        ..NodeProto::default()
    };
    let weights = TensorProto {
        dims: vec![4, 4],
        data_type: data_type::FLOAT,
        name: "weights".into(),
        raw_data: Some(vec![1; 64]),
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: vec![node("MatMul"), node("Relu")],
        name: "test".into(),
        initializer: vec![weights],
        input: vec![value("x")],
        output: vec![value("y")],
    };
    vec![ModelProto { ir_version: 9, graph: Some(graph), ..ModelProto::default() }.encode_to_vec()]
}

/// Leaving secrets out a second time changes nothing.
fn secrets(_: &Path, bytes: &[u8]) {
    let clean = without_secrets(&String::from_utf8_lossy(bytes));
    assert_eq!(without_secrets(&clean), clean, "again");
}

/// The merges of a byte-pair encoding, a pair in each line, in an otherwise valid file: a mutated file is mostly no JSON.
fn merges(folder: &Path, bytes: &[u8]) {
    static FILE: OnceLock<serde_json::Value> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        serde_json::from_slice(&golden("parity/plain/tokenizer.json")).expect("the golden is JSON")
    });
    let mut file = file.clone();
    let text = String::from_utf8_lossy(bytes);
    file["model"]["merges"] = text.lines().map(|line| serde_json::Value::from(line.to_owned())).collect();
    tokenizer(folder, &serde_json::to_vec(&file).expect("JSON can be written"));
}

fn merges_seeds() -> Vec<Vec<u8>> {
    let file: serde_json::Value =
        serde_json::from_slice(&golden("parity/plain/tokenizer.json")).expect("the golden is JSON");
    let merges = file["model"]["merges"].as_array().expect("it has merges").iter();
    let lines = merges.map(|merge| match merge.as_array() {
        Some(pair) => pair.iter().filter_map(|part| part.as_str()).collect::<Vec<_>>().join(" "),
        None => merge.as_str().unwrap_or_default().to_owned(),
    });
    vec![lines.collect::<Vec<_>>().join("\n").into_bytes(), b"a p\nap p\nl e</w>".to_vec()]
}

/// Any text under a valid tokeniser.
fn phrase(_: &Path, bytes: &[u8]) {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let bytes = golden("parity/plain/tokenizer.json");
        Tokenizer::from_bytes(&bytes, "tokenizer.json", TokenizerConfig::new(16))
            .expect("the golden is whole")
    });
    if let Ok(row) = tokenizer.encode(&String::from_utf8_lossy(bytes)) {
        assert_eq!((row.ids.len(), row.mask.len()), (16, 16));
    }
}

/// Width and height in a byte each, then the counts.
fn mask_counts(_: &Path, bytes: &[u8]) {
    let [width, height, counts @ ..] = bytes else { return };
    let counts = String::from_utf8_lossy(counts);
    if let Ok(mask) = Mask::from_counts(counts, (*width).into(), (*height).into()) {
        let set = mask.to_bitmap().iter().filter(|pixel| **pixel != 0).count();
        assert_eq!(set as u64, mask.area());
        drop((mask.polygons(1.0), mask.bounding_box()));
    }
}

fn tar(folder: &Path, bytes: &[u8]) {
    // A file with the time and the size of the last one is not read again.
    static CASES: AtomicU64 = AtomicU64::new(0);
    let path = written(folder, "images.tar", bytes);
    let time = UNIX_EPOCH + Duration::from_secs(CASES.fetch_add(1, Ordering::Relaxed));
    let file = fs::File::options().write(true).open(&path);
    file.and_then(|file| file.set_modified(time)).expect("the file was written");
    drop(find_images(&[path], &folder.join("set")));
}

fn tar_seeds() -> Vec<Vec<u8>> {
    let image = images(ImageFormat::Png).swap_remove(0);
    let mut header = [0u8; 512];
    header[..9].copy_from_slice(b"dog/1.png");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", image.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut file = [&header[..], &image].concat();
    file.resize(file.len().next_multiple_of(512) + 1024, 0);
    vec![file]
}

/// A file with one image. Pixels take memory by right: images of a megapixel and more are left out.
fn open_image(folder: &Path, bytes: &[u8]) {
    let Ok((width, height)) = Image::declared_size(bytes, "image") else {
        assert!(Image::open(written(folder, "image", bytes)).is_err(), "it has no size and is read");
        return;
    };
    if u64::from(width) * u64::from(height) > 1 << 20 {
        return;
    }
    let path = written(folder, "image", bytes);
    if let Ok(image) = Image::open(&path) {
        let upright = (image.width(), image.height());
        assert!([(width, height), (height, width)].contains(&upright), "{upright:?}");
    }
    drop(TiledImage::open(&path).and_then(|mut parts| parts.whole(28).map(|_| ())));
}

/// A small image in all kinds of pixels that the format has.
fn images(format: ImageFormat) -> Vec<Vec<u8>> {
    let deep = image::ImageBuffer::from_fn(9, 7, |x, y| image::Rgb([x as u16 * 7000, y as u16 * 9000, 300]));
    let image = DynamicImage::ImageRgb16(deep);
    let all = [
        DynamicImage::from(image.to_rgb8()),
        image.to_rgba8().into(),
        image.to_luma8().into(),
        image.to_luma16().into(),
        image.to_rgb32f().into(),
        image,
    ];
    let encoded = all.iter().filter_map(|image| {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).is_ok().then(|| bytes.into_inner())
    });
    encoded.collect()
}

fn gif_seeds() -> Vec<Vec<u8>> {
    let mut animation = Vec::new();
    let frames = [[255, 0, 0, 255], [0, 255, 0, 0]]
        .map(|colour| image::RgbaImage::from_pixel(4, 2, image::Rgba(colour)));
    let mut encoder = GifEncoder::new(&mut animation);
    encoder.encode_frames(frames.map(image::Frame::new)).expect("it can be encoded");
    drop(encoder);
    [images(ImageFormat::Gif), vec![animation]].concat()
}
