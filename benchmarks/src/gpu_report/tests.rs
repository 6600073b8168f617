use super::*;
use serde_json::json;

/// A complete run; a case changes one value.
fn run() -> Run {
    let plan = json!({
        "began": "2026-11-21T15:00", "model": "full", "engines": ["cuda-fp16", "trt-fp16"],
        "peers": ["eager-f16", "compile-f16"], "imgsz": [1008], "classes": [4], "commit": "abc",
    });
    let machine = json!({
        "cpu": "Xeon", "cpus": 16, "memory_mib": 131_072,
        "gpu": {"name": "NVIDIA H200", "driver": "580", "memory_mib": 143_771.0, "compute_capability": "9.0"},
    });
    let halves = |label: &str, fps: f64| {
        let times = json!({"n": 50, "p50": 9.0, "p90": 9.5, "p99": 9.9});
        json!({
            "label": label, "imgsz": 1008, "classes": 4, "engine": "TensorRT 11", "backbone_ms": times, "encoder_decoder_ms": times,
            "together_fps": fps, "load_ms": 2000.0, "first_ms": 2500.0, "machine": machine, "agreement": {
                "fpn_2_cosine": 0.9995, "logits_cosine": 0.9999, "largest_box_difference": 0.001, "detections": 7,
                "detections_reference": 8,
            },
        })
    };
    let video = |label: &str, mode: &str, fps: f64| {
        json!({
            "label": label, "imgsz": 1008, "classes": 4, "mode": mode, "fps": fps, "n": 200, "detections": 70,
            "latency_ms": {"p50": 40.0, "p99": 44.0}, "to_device_bytes": 4096, "to_host_bytes": 20480,
        })
    };
    let detect = |ms: f64| json!({"label": "trt-fp16", "imgsz": 1008, "classes": 4, "total_ms": {"p50": ms}});
    let peer = |mode: &str, ms: f64| {
        let times = json!({"n": 50, "p50_ms": ms, "p90_ms": ms, "p99_ms": ms});
        json!({
            "peer": "transformers", "mode": mode, "dtype": "f16", "imgsz": 1008, "classes": 4, "total": times,
            "backbone": times, "encoder_decoder": times, "detections": 7, "load_s": 9.0, "first_s": 60.0,
            "machine": {"torch": "2.11", "transformers": "5.17"},
        })
    };
    Run {
        plan: serde_json::from_value(plan).expect("it is a plan"),
        halves: vec![halves("trt-fp16", 66.0)],
        detect: vec![detect(18.0), detect(18.5)],
        video: vec![video("trt-fp16", "sequential", 55.0), video("trt-fp16", "pipelined", 65.0)],
        peers: vec![peer("eager", 60.0), peer("compile", 40.0)],
        trackers: vec![json!({
            "network": "sam3.1", "engine": "CUDA, fp16", "part": "step", "objects": 16, "memories": 7,
            "ms": {"n": 50, "p50": 21.0}, "of_peer": 0.5, "peak_memory_mib": 900.0,
        })],
        export: vec![json!({"command": "ocelli export", "seconds": 9.0, "peak_memory_mib": 3600.0})],
        steps: vec![
            json!({"step": "probe-cuda", "status": "failed", "why": "no provider | at all"}),
            json!({"step": "halves", "status": "done"}),
        ],
    }
}

/// The verdicts of the targets, in order.
fn verdicts(run: &Run) -> Vec<String> {
    let report = run.report();
    let targets = report.lines().skip_while(|line| *line != "## Targets").skip(4).take(4);
    targets.map(|row| row.rsplit('|').nth(1).unwrap_or_default().trim().replace("**", "")).collect()
}

#[test]
fn targets_follow_from_the_measurements() {
    type Change = fn(&mut Run);
    let (yes, no, not) = ("reached", "not reached", "not measured");
    let cases: [(&str, Change, [&str; 4]); 9] = [
        ("complete", |_| (), [yes, yes, yes, yes]),
        ("a slow round", |run| run.video[1]["fps"] = 60.0.into(), [no, yes, no, yes]),
        ("a slow frame", |run| run.detect[0]["total_ms"]["p50"] = 20.5.into(), [yes, no, yes, yes]),
        ("many bytes to the host", |run| run.video[1]["to_host_bytes"] = 70_000.into(), [yes, yes, yes, no]),
        ("bytes not counted", |run| run.video[1]["to_host_bytes"] = Value::Null, [yes, yes, yes, not]),
        ("no pipeline", |run| run.video.clear(), [not, yes, not, not]),
        ("no peer", |run| run.peers.clear(), [yes, not, yes, yes]),
        ("the small model", |run| run.plan.model = "small".into(), [not; 4]),
        ("on the CPU", |run| run.plan.engines = vec!["cpu-fp32".into()], [not; 4]),
    ];
    let mut failures = Vec::new();
    for (name, change, expected) in cases {
        let mut run = run();
        change(&mut run);
        let found = verdicts(&run);
        if found != expected {
            failures.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn missing_measurements_are_listed() {
    let report = run().report();
    let words = [
        "NVIDIA H200, 143771 MiB, compute capability 9.0, driver 580",
        "commit abc; TensorRT 11; the peer: torch 2.11, transformers 5.17.\n",
        "| 1008 | 4 | not measured | 18.00 / 18.50 () | 60.00 (7) | 40.00 (7) |",
        "| 1008 | 4 | trt-fp16 | 55.0 | 65.0 | 66.0 | 0.98 | 40.0, 44.0 | 4.0, 20.0 | 70 | – | – | 200 |",
        "| 0.99950, 0.99990 | 0.0010 | 7, 8 | 2.0 | 2.5 | – | 50 |",
        "- cuda-fp16 at 1008 px, all or some of: halves, frames, video",
        "| probe-cuda | failed | no provider \\| at all |",
    ];
    let missing: Vec<_> = words.iter().filter(|word| !report.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:#?} not in\n{report}");
    assert!(!report.contains("- trt-fp16"), "all of it was measured:\n{report}");
}

#[test]
fn truncated_lines_are_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    let error = Run::read(folder.path()).expect_err("there is no plan").to_string();
    assert!(error.contains("cannot read the plan") && error.contains("plan.json"), "{error}");
    write("plan.json", "{}");
    let error = Run::read(folder.path()).expect_err("it is not a plan").to_string();
    assert!(error.contains("not a plan of a run"), "{error}");
    write(
        "plan.json",
        r#"{"began":"2026-11-21T15:00","model":"small","engines":["cpu-fp32"],"peers":[],"imgsz":[224],"classes":[1],
            "commit":"abc"}"#,
    );
    write("halves.jsonl", "{\"label\":\"cpu-fp32\",\"imgsz\":224,\"classes\":1}\n{\"label\":\"cpu-f");
    let run = Run::read(folder.path()).expect("there is a plan");
    assert_eq!((run.halves.len(), run.video.len()), (1, 0));
    assert!(run.report().contains("# The built-in model on a GPU, 2026-11-21"), "{}", run.report());
}
