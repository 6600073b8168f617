//! Runs `ocelli build-engine` and `ocelli verify`.
//!
//! The ignored tests need TensorRT for RTX (`OCELLI_TENSORRT`) and its part (`make tensorrt`), but no GPU.

use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn two_models_are_compared() {
    let place = Place::with_libraries();
    place.folder("checkpoint");
    ocelli::builtin::write_checkpoint(&place.path("checkpoint")).expect("the folder can be written to");
    for precision in ["fp32", "int8"] {
        let flags =
            ["export", "--checkpoint", "checkpoint", "--output", precision, "--precision", precision, "-q"];
        place.succeed(OCELLI, &[&flags[..], &["--detection-only"]].concat());
    }
    let quick = ["--scenes", "2", "--random-inputs", "1", "-q"];
    let verify =
        |flags: &[&str]| place.run(OCELLI, &[&["verify", "--model", "fp32"], &quick[..], flags].concat());

    verify(&[]).is_refusal(2, &["candidate is the reference", "--candidate"]).expect("it proves nothing");
    let same = verify(&["--engine", "embedded", "--json", "report.json"]);
    assert_eq!((same.status, same.stderr.as_str()), (Some(0), ""), "{same:?}");
    for word in ["fpn_2", "logits", "kept by the reference", "accepted: "] {
        assert!(same.stdout.contains(word), "{word}: {}", same.stdout);
    }
    let report = place.json("report.json");
    assert_eq!(report["accepted"], true, "{report}");
    assert_eq!(report["scenes"], 2, "{report}");
    assert!(report["outputs"][0]["cosine"].as_f64().is_some_and(|cosine| cosine > 0.999), "{report}");

    let other = verify(&["--candidate", "int8", "--min-cosine", "0.999999", "--json", "other.json"]);
    other
        .is_refusal(1, &["candidate int8", "refused: ", "the cosine is", "at least 0.999999"])
        .expect("it is refused");
    assert!(other.stdout.contains("refused"), "the table is printed as well: {}", other.stdout);
    assert_eq!(place.json("other.json")["accepted"], false);
    let decoder = verify(&["--candidate", "int8", "--graphs", "encoder_decoder"]);
    assert_eq!(decoder.status, Some(0), "{decoder:?}");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn invalid_arguments_are_refused() {
    let place = Place::with_libraries();
    place.write("file", "x");
    place.folder("folder");
    let verify = |flags: &str| format!("verify|{flags}");
    let cases = [
        (verify("--model|nowhere"), 2, &["nowhere", "no such folder"][..]),
        (verify("--model|folder"), 2, &["model.json"]),
        (verify("--min-cosine|2"), 2, &["--min-cosine is 2"]),
        (verify("--max-box-difference|-1"), 2, &["--max-box-difference is -1"]),
        (verify("--scenes|0|--random-inputs|0"), 2, &["nothing to compare"]),
        (verify("--graphs|decoder"), 2, &["decoder", "encoder_decoder"]),
        (verify("--graphs|mask_head"), 2, &["mask_head", "not in both models"]),
        (verify("--threads|0"), 2, &["--threads is 0", "1 to"]),
        (verify("--engine|quick"), 2, &["quick", "no such engine"]),
        (verify("--json|nowhere/report.json"), 1, &["--json", "nowhere", "create it first"]),
        ("build-engine".into(), 2, &["--output"]),
        ("build-engine|-o|out|--target-sm|sm_89".into(), 2, &["sm_89", "8.9"]),
        ("build-engine|-o|out|--verify|x.engine".into(), 2, &["--verify"]),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(OCELLI, &cases);
    assert!(!place.path("out").exists());
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn without_tensorrt_or_a_gpu_the_error_says_what_to_install() {
    let place = Place::with_libraries().without_gpu();
    place.folder("empty");
    place.write("x.engine", "x");
    let cases = [
        (
            "build-engine|-o|out|--tensorrt|empty",
            &["cannot build engines", "the folder holds no libtensorrt_rtx or libnvinfer"][..],
        ),
        ("build-engine|-o|out|--tensorrt|none", &["cannot build engines", "none", "no such file"]),
        (
            "build-engine|--verify|x.engine",
            &["cannot verify the engine, x.engine", "cannot use an NVIDIA GPU"],
        ),
    ];
    let cases: Vec<_> = cases.iter().map(|(arguments, words)| refusal(arguments, 1, words)).collect();
    place.refuses(OCELLI, &cases);
    assert!(!place.path("out").exists());
}

mod with_tensorrt {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use ocelli::engines::tensorrt::Product;

    use super::{OCELLI, Place};
    use crate::run::outcome;

    /// The built-in model, exported for TensorRT into `exported`.
    fn place() -> Place {
        let place = Place::with_libraries();
        place.folder("checkpoint");
        ocelli::builtin::write_checkpoint(&place.path("checkpoint")).expect("the folder can be written to");
        let flags =
            ["export", "--checkpoint", "checkpoint", "--output", "exported", "--target", "tensorrt", "-q"];
        place.succeed(OCELLI, &[&flags[..], &["--detection-only"]].concat());
        place
    }

    #[test]
    #[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
    fn engines_are_built_for_a_gpu_that_is_not_present() {
        let place = place();
        let build = [
            "build-engine",
            "--model",
            "exported",
            "-o",
            "engines",
            "--target-sm",
            "8.9",
            "--max-classes",
            "3",
        ];
        let outcome = place.run(OCELLI, &build);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        for word in ["backbone.engine", "encoder_decoder.engine", "not verified on a GPU", "8.9", "--verify"]
        {
            assert!(outcome.stdout.contains(word), "{word}: {outcome:?}");
        }
        for graph in ["backbone", "encoder_decoder"] {
            let sidecar = place.json(&format!("engines/{graph}.engine.json"));
            assert_eq!(sidecar["graph"], graph, "{sidecar}");
            assert!(sidecar["verified"].is_null(), "{sidecar}");
            assert!(sidecar["gpu"].is_null(), "{sidecar}");
            assert_eq!(sidecar["compute_capability"], serde_json::json!(["8.9"]), "{sidecar}");
            assert_eq!(sidecar["tensorrt"]["name"], "TensorRT for RTX", "{sidecar}");
            let bytes = place.read(&format!("engines/{graph}.engine")).len();
            assert_eq!(sidecar["engine"]["bytes"], bytes, "{sidecar}");
            assert!(bytes > 100_000, "{bytes} bytes are too few for the weights");
        }
        let decoder = place.json("engines/encoder_decoder.engine.json");
        assert_eq!(decoder["shapes"]["dimensions"]["classes"]["max"], 3, "{decoder}");

        // Existing engines are not replaced, and unverified ones do not run.
        place
            .run(OCELLI, &build)
            .is_refusal(1, &["backbone.engine", "it exists already", "force"])
            .expect("it is refused");
        place
            .run(
                OCELLI,
                &["embed", "--classes", "dog", "-o", "x.safetensors", "--trt", "engines/backbone.engine"],
            )
            .is_refusal(1, &["never been compared", "verify it first"])
            .expect("it is refused");
    }

    #[test]
    #[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
    fn without_its_part_the_error_says_how_to_build_it() {
        let place = Place::with_libraries();
        place.folder("empty");
        place.write("text.so", "hello");
        let other = Product::TensorRt.part().expect("make tensorrt").path;
        let cases = [
            ("OCELLI_HOME", place.path("empty"), ["not found in ", "run `make tensorrt`"]),
            (
                "OCELLI_TENSORRT_PART",
                place.path("empty"),
                ["the folder holds no libocelli_tensorrt_rtx", "correct"],
            ),
            (
                "OCELLI_TENSORRT_PART",
                place.path("text.so"),
                ["file too short", "correct OCELLI_TENSORRT_PART"],
            ),
            ("OCELLI_TENSORRT_PART", other, ["it is the part for TensorRT, expected the one for", "correct"]),
        ];
        let mut wrong = Vec::new();
        for (variable, value, words) in &cases {
            let mut command = place.command(OCELLI, &["build-engine", "-o", "engines", "--target-sm", "8.9"]);
            let refused = outcome(command.env(variable, value));
            let words =
                [&["cannot build engines", "Ocelli's part for TensorRT for RTX"], &words[..]].concat();
            wrong.extend(refused.is_refusal(1, &words).err());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    #[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
    fn an_interrupted_build_leaves_nothing_behind() {
        let place = place();
        let flags = ["build-engine", "--model", "exported", "-o", "engines", "--target-sm", "8.9"];
        let mut child = place.command(OCELLI, &flags).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut line = String::new();
        while !line.starts_with("building backbone") {
            line.clear();
            let read = stderr.read_line(&mut line).expect("the program writes text");
            assert!(read > 0, "the program ended without building");
        }
        let kill =
            std::process::Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
        assert!(kill.is_ok_and(|status| status.success()), "the signal can be sent");
        // Reads stderr to the end, or the program would block on a full pipe.
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut rest).expect("the program writes text");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest}");
        assert!(!place.path("engines").exists(), "the folder was left behind");
    }

    #[test]
    #[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
    fn a_model_with_fused_operators_is_refused() {
        let place = place();
        place.succeed(
            OCELLI,
            &["export", "--checkpoint", "checkpoint", "--output", "fused", "--detection-only", "-q"],
        );
        place
            .run(OCELLI, &["build-engine", "--model", "fused", "-o", "engines", "--target-sm", "8.9"])
            .is_refusal(1, &["fused", "target tensorrt"])
            .expect("TensorRT has no fused operators");
        assert!(!place.path("engines").exists());
    }
}
