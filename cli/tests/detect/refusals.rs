//! Tables of errors: exit status and parts of the message.

use ocelli::export::ExportOptions;

use super::{DETECT, exported, place, with_scenes};
use crate::run::{Place, Refusal, refusal};

#[test]
fn invalid_images_and_arguments_are_errors() {
    let place = place();
    let whole = place.read("park.png");
    place.write("truncated.png", &whole[..5000]);
    place.write("header.png", &whole[..20]);
    let jpeg = ocelli::Image::open(place.path("park.png")).expect("it is an image");
    jpeg.into_rgb_image().save(place.path("whole.jpg")).expect("it can be written");
    let jpeg = place.read("whole.jpg");
    place.write("truncated.jpg", &jpeg[..jpeg.len() / 2]);
    place.write("text.jpg", "hello");
    place.write("zero.png", "");
    place.write("notes", "hello");
    place.folder("empty");
    place.folder("folder.png");
    // Fill the cache of the built-in model, so that no row waits for it.
    place.succeed(DETECT, &["park.png", "--classes", "dog"]);

    let dog = |rest: &str| format!("--classes|dog|{rest}");
    let park = |rest: &str| format!("--image|park.png|--classes|dog|{rest}");
    let rows: Vec<(String, i32, &[&str])> = vec![
        (dog("--image|none.png"), 2, &["none.png", "no such file"]),
        (dog("--image|empty"), 2, &["empty", "contain no images"]),
        (dog("--image|*.gif"), 2, &["*.gif", "matches no image"]),
        (dog("--image|[.png"), 2, &["[.png", "pattern"]),
        (dog("--image|truncated.png"), 1, &["truncated.png", "file is truncated"]),
        (dog("--image|truncated.jpg"), 1, &["truncated.jpg", "file is truncated"]),
        (dog("--image|header.png"), 1, &["header.png"]),
        (dog("--image|text.jpg"), 1, &["text.jpg", "not an image", "PNG"]),
        (dog("--image|zero.png"), 1, &["zero.png", "empty"]),
        (dog("--image|folder.png"), 2, &["folder.png", "contain no images"]),
        ("--classes|dog".into(), 2, &["no image", "--image"]),
        ("--image|park.png".into(), 2, &["nothing to detect", "--classes"]),
        ("--image|park.png|--classes".into(), 2, &["--classes"]),
        ("--image|park.png|--classes|".into(), 2, &["class 1", "blank"]),
        ("--image|park.png|--classes|dog|  ".into(), 2, &["class 2", "blank"]),
        ("--image|park.png|--classes|dog,,cat".into(), 2, &["class 2", "blank"]),
        ("--classes|dog|park.png".into(), 2, &["park.png", "image", "--image"]),
        (park("--clases|dog"), 2, &["--clases", "similar", "--class"]),
        (park("-o|out.xyz"), 2, &["out.xyz", "format", ".png"]),
        (park("-o|out.gif"), 2, &["out.gif", "format", ".png"]),
        (park("-o|none/out.png"), 1, &["none", "does not exist"]),
        (park("-o|notes/out.png"), 1, &["notes", "not a folder"]),
        (park("-o|notes"), 2, &["notes", "name a folder"]),
        (park("-o|park.png"), 2, &["park.png", "overwrite the input"]),
        (park("-o|."), 2, &["park.png", "overwrite the input"]),
        (
            "street.png|--image|park.png|--classes|dog|-o|out.png".into(),
            2,
            &["out.png", "2 images", "folder"],
        ),
        (park("--sheet|sheet"), 2, &["--sheet", "format"]),
        (park("--exemplar-image|street.png"), 2, &["--exemplar"]),
        (park("--exemplar|1,2,30,40|--exemplar-image|none.png"), 1, &["none.png"]),
        (
            park("--exemplar|900,2,930,40|--exemplar-image|street.png"),
            2,
            &["--exemplar-image", "street.png", "outside"],
        ),
        (park("--semantic|notes"), 2, &["--semantic", "notes", "name a folder"]),
        (park("--sheet|none/sheet.png"), 1, &["--sheet", "does not exist"]),
        (park("--json|none/x.json"), 1, &["--json", "none/x.json", "does not exist"]),
        (park("--json|empty"), 1, &["--json", "empty", "name a file"]),
        (park("--confidence|7"), 2, &["--confidence is 7", "0 to 1"]),
        (park("--confidence|-1"), 2, &["--confidence is -1", "0 to 1"]),
        (park("--confidence|nan"), 2, &["--confidence is NaN", "0 to 1"]),
        (park("--confidence|high"), 2, &["--confidence", "'high'"]),
        (park("--nms|7"), 2, &["--nms is 7", "0 to 1"]),
        (park("--nms|-0.1"), 2, &["--nms is -0.1", "0 to 1"]),
        (park("--nms|nan"), 2, &["--nms is NaN", "0 to 1"]),
        (park("--class-agnostic-nms|inf"), 2, &["--class-agnostic-nms is inf", "0 to 1"]),
        (park("--threads|0"), 2, &["threads is 0", "1 to", "--threads"]),
        (park("--threads|-2"), 2, &["--threads", "'-2'"]),
        (park("--threads|100000"), 2, &["threads is 100000", "1 to", "--threads"]),
        (park("--class-chunk|0"), 2, &["--class-chunk", "is 0", "at least"]),
        (park("--imgsz|225"), 2, &["imgsz is 225", "224 or 238", "--imgsz"]),
        (park("--precision|fp12"), 2, &["--precision", "fp12", "fp32, fp16, bf16, int8, fp8 or int8-static"]),
        (park("--imgsz|0"), 2, &["imgsz is 0", "14"]),
        (park("--imgsz|99999999"), 2, &["imgsz is 99999999"]),
        (park("--engine|tensorrt:1"), 1, &["--engine tensorrt:1", "cannot use an NVIDIA GPU"]),
        (park("--engine|cuda-native"), 2, &["engine cuda-native", "no such engine"]),
        (park("--engine|cuda:x"), 2, &["cuda:x", "a GPU's number"]),
        (park("--engine|nonsense"), 2, &["nonsense", "auto, embedded, openvino, onnxruntime", "--engine"]),
        (park("--engine|openvino:7"), 2, &["openvino:7", "CPU, GPU, GPU.1, NPU or AUTO"]),
        (park("--engine|openvino|--openvino|none"), 1, &["cannot use OpenVINO", "none", "no such file"]),
        (park("--engine|openvino|--openvino|empty"), 1, &["empty", "the folder holds no libopenvino_c"]),
        (park("--trt|x"), 1, &["TensorRT", "x"]),
        (park("--trt-enc-dec|x"), 1, &["TensorRT", "x"]),
        (park("--onnxruntime|none"), 1, &["none", "no such file"]),
        (park("--onnxruntime|text.jpg"), 1, &["text.jpg", "ONNX Runtime"]),
        (park("--onnxruntime|empty"), 1, &["empty", "no libonnxruntime"]),
        (park("--exemplar|1,2,3"), 2, &["'1,2,3'", "x1,y1,x2,y2"]),
        (park("--exemplar|a,b,c,d"), 2, &["'a,b,c,d'", "x1,y1,x2,y2"]),
        (park("--exemplar|1,2,nan,4"), 2, &["'1,2,nan,4'", "x1,y1,x2,y2"]),
        (park("--exemplar|1,2,3,4:maybe"), 2, &[":no"]),
        (park("--exemplar|9,9,9,20"), 2, &["'9,9,9,20'", "no area"]),
        (park("--exemplar|30,9,10,20"), 2, &["'30,9,10,20'", "no area"]),
        (
            park("--exemplar|800,10,900,90"),
            2,
            &["park.png", "800,10,900,90", "outside the image of 720 × 540"],
        ),
        (park("--exemplar|700,500,5000,4000"), 2, &["most of it is outside the image of 720 × 540"]),
        (park("--exemplar|-90,-90,-1,-1:no"), 2, &["-90,-90,-1,-1", "outside the image"]),
        (park("--exemplar|1,2,3,4@cow"), 2, &["\"cow\"", "one of classes"]),
        (park("--exemplar|1,2,30,40|--classes|cat"), 2, &["@class"]),
        (park("--quiet|--verbose"), 2, &["--quiet", "--verbose"]),
    ];
    let rows: Vec<Refusal<'_>> =
        rows.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(DETECT, &rows);
}

#[test]
fn invalid_models_and_text_caches_are_errors() {
    let place = place();
    exported(&place, "model", &ExportOptions::default());
    exported(&place, "boxes", &ExportOptions { detection_only: true, ..ExportOptions::default() });
    place.folder("empty");
    place.write("text", "hello");
    let damage = |name: &str, change: &dyn Fn(&str)| {
        place.copy_folder(place.path("model"), name);
        change(name);
    };
    let cut = |file: &'static str| {
        move |name: &str, place: &Place| {
            let file = format!("{name}/{file}");
            let content = place.read(&file);
            place.write(&file, &content[..content.len() / 2]);
        }
    };
    damage("cut-backbone", &|name| cut("backbone.onnx")(name, &place));
    damage("cut-tokenizer", &|name| cut("tokenizer.json")(name, &place));
    damage("no-decoder", &|name| {
        std::fs::remove_file(place.path(name).join("encoder_decoder.onnx")).expect("it is there");
    });
    for file in ["backbone.onnx", "encoder_decoder.onnx", "text_encoder.onnx"] {
        damage(&format!("overwritten-{file}"), &|name| {
            let file = format!("{name}/{file}");
            let mut content = place.read(&file);
            content[..200].fill(b'X');
            place.write(&file, content);
        });
    }
    let manifest = |name: &str, key: &str, value: serde_json::Value| {
        damage(name, &|name| {
            let mut manifest = place.json(&format!("{name}/model.json"));
            manifest[key] = value.clone();
            place.write(&format!("{name}/model.json"), manifest.to_string());
        });
    };
    manifest("later", "format_version", 99.into());
    manifest("odd", "imgsz", "large".into());
    damage("no-json", &|name| place.write(&format!("{name}/model.json"), "hello"));
    damage("list", &|name| place.write(&format!("{name}/model.json"), "[]"));
    // Text features of the built-in model, which are not those of another.
    place.succeed(DETECT, &["park.png", "--classes", "dog", "--text-cache", "words"]);

    let park = |rest: &str| format!("--image|park.png|--classes|dog|{rest}");
    let rows: Vec<(String, i32, &[&str])> = vec![
        (park("--model|nowhere"), 2, &["nowhere", "no such folder"]),
        (park("--model|park.png"), 1, &["park.png", "neither safetensors nor an archive of torch.save"]),
        (park("--model|empty"), 2, &["empty", "model.json", "config.json"]),
        (park("--model|cut-backbone"), 1, &["cut-backbone/backbone.onnx", "bytes", "export it again"]),
        (park("--model|cut-tokenizer"), 1, &["cut-tokenizer/tokenizer.json", "bytes", "export it again"]),
        (park("--model|no-decoder"), 1, &["no-decoder/encoder_decoder.onnx", "export it again"]),
        (park("--model|overwritten-backbone.onnx"), 1, &["/backbone.onnx", "SHA-256", "export it again"]),
        (park("--model|overwritten-encoder_decoder.onnx"), 1, &["/encoder_decoder.onnx", "SHA-256"]),
        // A prompt that no earlier row has added to the cache.
        (park("--classes|cup|--model|overwritten-text_encoder.onnx"), 1, &["/text_encoder.onnx", "SHA-256"]),
        (park("--model|later"), 1, &["later/model.json", "version 99", "export the checkpoint again"]),
        (park("--model|odd"), 1, &["odd/model.json", "large"]),
        (park("--model|no-json"), 1, &["no-json/model.json", "export it again"]),
        (park("--model|list"), 1, &["list/model.json", "export it again"]),
        (
            park("--model|model|--precision|int8"),
            1,
            &["precision int8", "fp32", "export the checkpoint again in int8", "--precision"],
        ),
        (
            park("--model|model|--imgsz|224"),
            1,
            &["imgsz 224", "112", "export the checkpoint again for 224", "--imgsz"],
        ),
        (park("--model|boxes|--masks"), 1, &["boxes", "for detection only"]),
        (park("--model|model|--text-cache|words"), 1, &["words", "another model"]),
        (park("--text-cache|text"), 1, &["text", "safetensors"]),
        (park("--text-cache|empty"), 1, &["--text-cache", "empty", "name a file"]),
        (park("--text-cache|none/words"), 1, &["--text-cache", "none", "does not exist"]),
        (park("--text-cache|text/words"), 1, &["--text-cache", "text", "not a folder"]),
        #[cfg(target_os = "linux")]
        (park("--text-cache|/proc/words"), 1, &["/proc/words", "cannot write"]),
        #[cfg(unix)]
        (park("--text-cache|/dev/zero"), 1, &["/dev/zero", "not a file"]),
    ];
    let rows: Vec<Refusal<'_>> =
        rows.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(DETECT, &rows);
    assert_eq!(place.read("text"), b"hello");
    // A model whose prompts are cached needs no text encoder.
    place.succeed(DETECT, &["park.png", "--classes", "dog", "--model", "model", "--text-cache", "own"]);
    place.write("model/text_encoder.onnx", vec![b'X'; place.read("model/text_encoder.onnx").len()]);
    place.succeed(DETECT, &["park.png", "--classes", "dog", "--model", "model", "--text-cache", "own"]);
}

/// Their libraries are there and lack the device; without the libraries the message is another.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime and OpenVINO: make setup")]
fn engines_without_their_device_are_errors() {
    let place = with_scenes(Place::with_libraries());
    let park = |rest: &str| format!("--image|park.png|--classes|dog|{rest}");
    let rows: Vec<(String, i32, &[&str])> = vec![
        (
            park("--engine|cuda"),
            1,
            &[
                "engine cuda",
                "not enabled in this build",
                "onnxruntime-gpu",
                "the engine onnxruntime runs on the CPU",
            ],
        ),
        (park("--engine|mps"), 1, &["engine coreml", "macOS"]),
        (
            park("--engine|openvino:GPU.77"),
            1,
            &["engine openvino:GPU.77", "no device GPU.77", "which has CPU"],
        ),
        (park("--device|0"), 1, &["engine cuda", "the engine onnxruntime runs on the CPU"]),
    ];
    let rows: Vec<Refusal<'_>> =
        rows.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(DETECT, &rows);
}
