//! Tables of the measurements, and the list of missing ones.

use serde_json::Value;

use super::{Run, line, number, of, rounds, word};

/// Stands for a missing measurement.
const MISSING: &str = "not measured";

/// Sequential frames, one column per engine and peer mode.
pub(super) fn frames(run: &Run, out: &mut String) {
    let plan = &run.plan;
    line(out, "\n## Sequential frames\n");
    line(out, "From pixels to boxes in host memory, in ms, and the number of detections.\n");
    let columns: Vec<&String> = plan.engines.iter().chain(&plan.peers).collect();
    let names: Vec<String> = columns
        .iter()
        .map(|way| if plan.peers.contains(way) { format!("transformers {way}") } else { (*way).clone() })
        .collect();
    line(out, &format!("| px | classes | {} |", names.join(" | ")));
    line(out, &format!("|---|---|{}", "---|".repeat(columns.len())));
    for (imgsz, classes) in grid(run) {
        let cells: Vec<String> = columns
            .iter()
            .map(|way| {
                let ours = of(&run.detect, way, imgsz, classes);
                let theirs = of(&run.peers, way, imgsz, classes);
                let times = ours.clone().filter_map(|line| number(&line["total_ms"]["p50"]));
                let times = times.chain(theirs.clone().filter_map(|line| number(&line["total"]["p50_ms"])));
                let found = ours.chain(theirs).last().map_or(String::new(), |line| word(&line["detections"]));
                rounds(times, 2).map_or(MISSING.into(), |times| format!("{times} ({found})"))
            })
            .collect();
        line(out, &format!("| {imgsz} | {classes} | {} |", cells.join(" | ")));
    }
}

/// The pipeline on a drawn video.
pub(super) fn video(run: &Run, out: &mut String) {
    line(out, "\n## Video\n");
    line(
        out,
        "Including tracker and drawing. Bound is the throughput of the two halves running at once without the pipeline; \
         latency, copies, memory and the time to the first detections are those of the pipelined run.\n",
    );
    line(
        out,
        "| px | classes | engine | sequential FPS | pipelined FPS | bound FPS | share | latency p50, p99 ms | KiB to \
         device, to host | detections | GPU MiB | first s | n |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for (imgsz, classes) in grid(run) {
        for label in &run.plan.engines {
            let lines = of(&run.video, label, imgsz, classes);
            let mode = |mode: &'static str| lines.clone().filter(move |line| line["mode"] == mode);
            let fps = |mode_of: &'static str| {
                rounds(mode(mode_of).filter_map(|line| number(&line["fps"])), 1)
                    .unwrap_or_else(|| MISSING.into())
            };
            let last = mode("pipelined").last().unwrap_or(&Value::Null);
            let halves = of(&run.halves, label, imgsz, classes).filter_map(|l| number(&l["together_fps"]));
            let bound = halves.max_by(f64::total_cmp);
            let share = bound.zip(number(&last["fps"])).map(|(bound, fps)| fps / bound);
            if lines.clone().next().is_none() && bound.is_none() {
                continue;
            }
            let latency = &last["latency_ms"];
            line(
                out,
                &format!(
                    "| {imgsz} | {classes} | {label} | {} | {} | {} | {} | {}, {} | {}, {} | {} | {} | {} | {} |",
                    fps("sequential"),
                    fps("pipelined"),
                    shown(bound, 1),
                    shown(share, 2),
                    shown(number(&latency["p50"]), 1),
                    shown(number(&latency["p99"]), 1),
                    shown(number(&last["to_device_bytes"]).map(|bytes| bytes / 1024.0), 1),
                    shown(number(&last["to_host_bytes"]).map(|bytes| bytes / 1024.0), 1),
                    word(&last["detections"]),
                    shown(number(&last["gpu_memory_mib"]), 0),
                    shown(number(&last["first_ms"]).map(|ms| ms / 1000.0), 1),
                    word(&last["n"]),
                ),
            );
        }
    }
}

/// The two halves, ours and the peer's, and their agreement with the reference.
pub(super) fn halves(run: &Run, out: &mut String) {
    line(out, "\n## The halves alone\n");
    line(
        out,
        "In ms, p50 (p90, p99), features and prompts on the device. Cosines and the largest difference of the top boxes \
         (1 is the image's side) are relative to ONNX Runtime on the CPU in fp32 with the same inputs; detections are \
         those of the engine and of the reference. The time to the first result is from the start of the program.\n",
    );
    line(
        out,
        "| px | classes | engine | backbone | encoder-decoder | cosine features, logits | box difference | detections | \
         load s | first s | GPU MiB | n |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for (imgsz, classes) in grid(run) {
        for label in &run.plan.engines {
            for measured in of(&run.halves, label, imgsz, classes) {
                let seconds = |key: &str| shown(number(&measured[key]).map(|ms| ms / 1000.0), 1);
                let (load, first) = (seconds("load_ms"), seconds("first_ms"));
                let keys = ["backbone_ms", "encoder_decoder_ms"];
                half(out, (imgsz, classes, label), measured, (&load, &first), keys, ["p50", "p90", "p99"]);
            }
        }
        for label in &run.plan.peers {
            for measured in of(&run.peers, label, imgsz, classes) {
                let seconds = |key: &str| shown(number(&measured[key]), 1);
                let (load, first) = (seconds("load_s"), seconds("first_s"));
                let name = format!("transformers {label}");
                let keys = ["backbone", "encoder_decoder"];
                let ranks = ["p50_ms", "p90_ms", "p99_ms"];
                half(out, (imgsz, classes, &name), measured, (&load, &first), keys, ranks);
            }
        }
    }
}

fn half(
    out: &mut String,
    (imgsz, classes, name): (u64, u64, &str),
    measured: &Value,
    (load, first): (&str, &str),
    [backbone, decoder]: [&str; 2],
    [p50, p90, p99]: [&str; 3],
) {
    let times = |key: &str| {
        let rank = |rank: &str| shown(number(&measured[key][rank]), 2);
        format!("{} ({}, {})", rank(p50), rank(p90), rank(p99))
    };
    let agreement = &measured["agreement"];
    let detections = match agreement {
        Value::Null => word(&measured["detections"]),
        both => format!("{}, {}", word(&both["detections"]), word(&both["detections_reference"])),
    };
    line(
        out,
        &format!(
            "| {imgsz} | {classes} | {name} | {} | {} | {}, {} | {} | {detections} | {load} | {first} | {} | {} |",
            times(backbone),
            times(decoder),
            shown(number(&agreement["fpn_2_cosine"]), 5),
            shown(number(&agreement["logits_cosine"]), 5),
            shown(number(&agreement["largest_box_difference"]), 4),
            shown(number(&measured["gpu_memory_mib"]), 0),
            word(&measured[decoder]["n"]),
        ),
    );
}

/// The memory trackers, beside torch.
pub(super) fn trackers(run: &Run, out: &mut String) {
    if run.trackers.is_empty() {
        return;
    }
    line(out, "\n## Memory trackers\n");
    line(
        out,
        "At the released size: features of a frame, a step of objects with their memories, new memories of objects. Of torch: \
         the median divided by that of torch in f32.\n",
    );
    line(
        out,
        "| tracker | engine | part | objects | memories | ms | of torch | peak MiB | n |\n|---|---|---|---|---|---|---|---|---|",
    );
    for measured in &run.trackers {
        let names = ["network", "engine", "part", "objects", "memories"].map(|key| word(&measured[key]));
        let of_torch = number(&measured["of_peer"]);
        line(
            out,
            &format!(
                "| {} | {} | {} | {} | {} |",
                names.join(" | "),
                shown(number(&measured["ms"]["p50"]), 2),
                of_torch.map_or_else(String::new, |share| format!("{share:.2}")),
                shown(number(&measured["peak_memory_mib"]), 0),
                word(&measured["ms"]["n"]),
            ),
        );
    }
}

/// Time and memory of exports and engine builds.
pub(super) fn export(run: &Run, out: &mut String) {
    if run.export.is_empty() {
        return;
    }
    line(out, "\n## Graphs and engines\n\n| command | seconds | peak MiB |\n|---|---|---|");
    for made in &run.export {
        let (seconds, peak) = (number(&made["seconds"]), number(&made["peak_memory_mib"]));
        line(out, &format!("| {} | {} | {} |", word(&made["command"]), shown(seconds, 1), shown(peak, 0)));
    }
}

/// Missing measurements, with the reason if known.
pub(super) fn not_measured(run: &Run, out: &mut String) {
    let plan = &run.plan;
    let mut missing = Vec::new();
    let has = |lines: &[Value], label: &str, imgsz: u64| {
        plan.classes.iter().all(|&classes| of(lines, label, imgsz, classes).next().is_some())
    };
    for &imgsz in &plan.imgsz {
        for label in &plan.engines {
            let kinds = [("halves", &run.halves), ("frames", &run.detect), ("video", &run.video)];
            let absent: Vec<_> =
                kinds.iter().filter(|kind| !has(kind.1, label, imgsz)).map(|kind| kind.0).collect();
            if !absent.is_empty() {
                missing.push(format!("{label} at {imgsz} px, all or some of: {}", absent.join(", ")));
            }
        }
        for label in plan.peers.iter().filter(|label| !has(&run.peers, label, imgsz)) {
            missing.push(format!("transformers {label} at {imgsz} px, all or some"));
        }
    }
    if !missing.is_empty() {
        line(out, "\n## Not measured\n");
        missing.iter().for_each(|what| line(out, &format!("- {what}")));
    }
    let ended: Vec<&Value> = run.steps.iter().filter(|step| step["status"] != "done").collect();
    if !ended.is_empty() {
        line(out, "\n| step | ended | why |\n|---|---|---|");
        for step in ended {
            let why = word(&step["why"]).replace('|', "\\|");
            line(out, &format!("| {} | {} | {why} |", word(&step["step"]), word(&step["status"])));
        }
    }
}

/// All pairs of image size and number of classes.
fn grid(run: &Run) -> impl Iterator<Item = (u64, u64)> {
    run.plan.imgsz.iter().flat_map(|&imgsz| run.plan.classes.iter().map(move |&classes| (imgsz, classes)))
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.decimals$}"))
}
