//! Runs `gpu.sh` on a machine without a GPU, with the CPU and the built-in model.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu.sh")
}

/// The folder of the programs; `ocelli` is in another package.
fn programs() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_bench")).parent().expect("a program is in a folder");
    let ocelli = folder.join("ocelli");
    assert!(ocelli.is_file(), "{}: missing; run cargo build -p ocelli-cli", ocelli.display());
    folder.to_owned()
}

fn gpu_sh(arguments: &[&str]) -> Output {
    gpu_sh_with(Path::new("/nonexistent"), arguments)
}

/// As [`gpu_sh`], with the programs in `folder` before those of the system.
fn gpu_sh_with(folder: &Path, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").expect("there is a search path");
    let output = Command::new("bash")
        .arg(script())
        .args(arguments)
        .env("PATH", format!("{}:{path}", folder.display()))
        .output();
    output.expect("there is a shell")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_complete_run_on_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let (work, programs) = (folder.path().join("work"), programs());
    let (work_text, programs_text) = (work.display().to_string(), programs.display().to_string());
    let run = |more: &[&str]| {
        let mut arguments = vec!["run", "--work", &work_text, "--programs", &programs_text];
        arguments.extend(more);
        let output = gpu_sh(&arguments);
        assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    // Some phases in separate calls, then the rest.
    let settings = ["--model", "small", "--engines", "cpu cuda", "--precisions", "fp32", "--classes", "2 1"];
    let more = ["--video-classes", "2", "--rounds", "1", "--runs", "3", "--seconds", "1", "--frames", "4"];
    let said = run(&[&settings[..], &more[..], &["--phase", "check"]].concat());
    assert!(said.contains("probe-cpu done") && said.contains("probe-cuda failed"), "{said}");
    assert!(work.join("built-in/model.safetensors").is_file(), "the model is not in the folder of the work");
    let said = run(&["--phase", "export", "--minutes", "5"]);
    assert!(said.contains("export-onnxruntime-fp32-224 done") && !said.contains("halves"), "{said}");
    let said = run(&[]);
    assert!(said.contains("video-cpu-fp32-224-1-2 done") && !said.contains("export-"), "{said}");
    let said = run(&[]);
    assert!(!said.contains("done"), "steps were repeated: {said}");

    let results = work.join("run");
    let halves = lines(&results.join("halves.jsonl"));
    assert_eq!(halves.iter().map(|line| line["classes"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(1)]);
    let mut failures = Vec::new();
    for line in &halves {
        let agreement = &line["agreement"];
        let cosine = agreement["fpn_2_cosine"].as_f64().unwrap_or(0.0);
        let counts = (&agreement["detections"], &agreement["detections_reference"]);
        if line["label"] != "cpu-fp32" || cosine < 0.999_999 || counts.0 != counts.1 {
            failures.push(line.to_string());
        }
        if line["together_fps"].as_f64().is_none_or(|fps| fps <= 0.0) {
            failures.push(format!("no throughput: {line}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(
        (lines(&results.join("detect.jsonl")).len(), lines(&results.join("video.jsonl")).len()),
        (2, 2)
    );
    let report = std::fs::read_to_string(results.join("README.md")).expect("the report is written");
    let words = [
        "# The built-in model on a GPU",
        "in at most 16 ms a frame (60 FPS), pipelined | – | not measured |",
        "- cuda-fp32 at 224 px, all or some of: halves, frames, video",
        "| probe-cuda | failed |",
    ];
    let missing: Vec<_> = words.iter().filter(|word| !report.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:#?} not in\n{report}");
}

#[test]
fn steps_without_time_are_left_for_the_next_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let (work, slow) = (folder.path().join("work"), folder.path().join("slow"));
    std::fs::create_dir(&slow).expect("the folder can be written to");
    let (work, slow_text) = (work.display().to_string(), slow.display().to_string());
    // Stubs: one measurement never ends, the others end at once.
    stand_in(&slow, "bench", "[ $1 = halves ] || exit 0; echo '{\"imgsz\":224}'; exec tail -f /dev/null");
    stand_in(&slow, "ocelli", "exit 0");
    let run = |minutes: &str| {
        let settings =
            ["--model", "small", "--engines", "cpu cuda", "--phase", "check", "--minutes", minutes];
        let output = gpu_sh(&[&["run", "--work", &work, "--programs", &slow_text], &settings[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = run("0.1");
    assert!(said.contains("probe-cpu stopped, ") && said.contains("no time was left for 1 steps"), "{said}");
    stand_in(&slow, "bench", "exit 0");
    let said = run("5");
    assert!(said.contains("probe-cpu done") && said.contains("probe-cuda done"), "{said}");
}

/// The card decides which engines are tried; the others go on.
#[test]
fn engines_that_the_card_cannot_run_are_named_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).expect("the folder can be written to");
    stand_in(&programs, "bench", "exit 0");
    stand_in(&programs, "ocelli", "echo '  used            lib (system), version 1.7.1 (TensorRT for RTX)'");
    let run = |name: &str, card: &str| {
        stand_in(&programs, "nvidia-smi", &format!("echo '{card}'"));
        let work = folder.path().join(name).display().to_string();
        let arguments = ["run", "--work", &work, "--programs", &programs.display().to_string()];
        let settings = ["--model", "small", "--engines", "cuda trt", "--phase", "check"];
        let output = gpu_sh_with(&programs, &[&arguments[..], &settings[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = run("hopper", "NVIDIA H200, 9.0");
    let trt = "NVIDIA H200: trt cannot run: TensorRT for RTX has no kernels for compute capability 9.0";
    for line in [trt, "probe-cuda done"] {
        assert!(said.contains(line), "{line:?} not in\n{said}");
    }
    assert!(!said.contains("probe-trt done") && !said.contains("probe-build"), "{said}");
    let said = run("ada", "NVIDIA L4, 8.9");
    assert!(said.contains("probe-trt done") && !said.contains("trt cannot run: TensorRT for RTX"), "{said}");
}

/// Writes a program that runs a line of shell.
fn stand_in(folder: &Path, name: &str, line: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).expect("the folder can be written to");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, permissions).expect("it is ours");
}

#[test]
fn packed_files_are_unpacked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (built, packed, into) = (path("built"), path("packed"), path("into"));
    std::fs::create_dir(&built).expect("the folder can be written to");
    // Small programs, to save time.
    for name in ["ocelli", "bench"] {
        std::fs::copy("/bin/true", Path::new(&built).join(name)).expect("every system has it");
    }
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/builtin/tokenizer.json");
    let (tokenizer, library) = (tokenizer.display().to_string(), format!("{built}/ocelli:libnamed.so"));
    let output = gpu_sh(&[
        "pack",
        "--output",
        &packed,
        "--programs",
        &built,
        "--tokenizer",
        &tokenizer,
        "--with",
        &library,
        "--piece-mb",
        "6",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let pieces: Vec<&str> = said.lines().filter_map(|line| line.split("  ").next()).collect();
    assert!(pieces.len() > 1, "the built-in model does not fit into one piece: {said}");
    let output = gpu_sh(&["join", "--into", &into, pieces[0]]);
    let rest = format!("{} of {} pieces", pieces.len() - 1, pieces.len());
    assert!(output.status.success() && text(&output.stderr).contains(&rest), "{}", text(&output.stderr));
    let output = gpu_sh(&[&["join", "--into", &into], &pieces[1..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = [
        "programs/ocelli",
        "lib/libnamed.so",
        "model/small/model.safetensors",
        "model/tokenizer.json",
        "model/image.png",
        "benchmarks/gpu.sh",
        "benchmarks/gpu/run.sh",
        "benchmarks/full_size/gpu_reference.py",
        "COMMIT",
    ];
    let missing: Vec<_> = expected.iter().filter(|name| !Path::new(&into).join(name).is_file()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!Path::new(&into).join("pieces").exists(), "pieces are not kept");
}

#[test]
fn invalid_arguments_are_errors() {
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 2, "expected pack, join or run"),
        (&["measure"], 2, "measure: expected pack, join or run"),
        (&["run"], 2, "--work DIR"),
        (&["run", "--work"], 2, "--work: expected a value"),
        (&["run", "--wrok", "x"], 2, "run --wrok: no such option"),
        (&["run", "--work", "/tmp", "--phase", "all of it"], 2, "--phase all of it: no such phase"),
        (&["run", "--work", "/tmp", "--programs", "/nowhere"], 1, "/nowhere/ocelli: it is not built"),
        (&["pack", "--output", "/dev/null/x", "--programs", "/nowhere"], 1, "/dev/null"),
    ];
    let mut failures = Vec::new();
    for (arguments, status, word) in cases {
        let output = gpu_sh(arguments);
        let said = text(&output.stderr);
        if output.status.code() != Some(status) || !said.contains(word) {
            failures.push(format!("{arguments:?}: status {:?}, {said}", output.status.code()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
