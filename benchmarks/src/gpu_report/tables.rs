//! What was measured, and what was not.

use serde_json::Value;

use super::{Run, line, number, of, rounds, word};

/// What stands where nothing was measured.
const NOTHING: &str = "not measured";

/// Whole frames one after the other, all ways beside each other.
pub(super) fn frames(run: &Run, out: &mut String) {
    let plan = &run.plan;
    line(out, "\n## A frame after the other\n");
    line(out, "From pixels in the host's memory to boxes there, in ms, and how many detections.\n");
    let ways: Vec<&String> = plan.engines.iter().chain(&plan.peers).collect();
    let names: Vec<String> = ways
        .iter()
        .map(|way| if plan.peers.contains(way) { format!("transformers {way}") } else { (*way).clone() })
        .collect();
    line(out, &format!("| px | classes | {} |", names.join(" | ")));
    line(out, &format!("|---|---|{}", "---|".repeat(ways.len())));
    for (imgsz, classes) in grid(run) {
        let cells: Vec<String> = ways
            .iter()
            .map(|way| {
                let ours = of(&run.detect, way, imgsz, classes);
                let theirs = of(&run.peers, way, imgsz, classes);
                let times = ours.clone().filter_map(|line| number(&line["total_ms"]["p50"]));
                let times = times.chain(theirs.clone().filter_map(|line| number(&line["total"]["p50_ms"])));
                let found = ours.chain(theirs).last().map_or(String::new(), |line| word(&line["detections"]));
                rounds(times, 2).map_or(NOTHING.into(), |times| format!("{times} ({found})"))
            })
            .collect();
        line(out, &format!("| {imgsz} | {classes} | {} |", cells.join(" | ")));
    }
}

/// The loop over a drawn video.
pub(super) fn video(run: &Run, out: &mut String) {
    line(out, "\n## Video\n");
    line(
        out,
        "Tracker and drawing included. Allowed is what the two halves reach side by side with nothing around them; \
         latency, crossing, memory and the time to the first detections are the pipelined loop's.\n",
    );
    line(
        out,
        "| px | classes | engine | sequential FPS | pipelined FPS | allowed FPS | share | latency p50, p99 ms | KiB to \
         device, to host | detections | GPU MiB | first s | n |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for (imgsz, classes) in grid(run) {
        for label in &run.plan.engines {
            let lines = of(&run.video, label, imgsz, classes);
            let mode = |mode: &'static str| lines.clone().filter(move |line| line["mode"] == mode);
            let fps = |mode_of: &'static str| {
                rounds(mode(mode_of).filter_map(|line| number(&line["fps"])), 1)
                    .unwrap_or_else(|| NOTHING.into())
            };
            let last = mode("pipelined").last().unwrap_or(&Value::Null);
            let halves = of(&run.halves, label, imgsz, classes).filter_map(|l| number(&l["together_fps"]));
            let allowed = halves.max_by(f64::total_cmp);
            let share = allowed.zip(number(&last["fps"])).map(|(allowed, fps)| fps / allowed);
            if lines.clone().next().is_none() && allowed.is_none() {
                continue;
            }
            let latency = &last["latency_ms"];
            line(
                out,
                &format!(
                    "| {imgsz} | {classes} | {label} | {} | {} | {} | {} | {}, {} | {}, {} | {} | {} | {} | {} |",
                    fps("sequential"),
                    fps("pipelined"),
                    shown(allowed, 1),
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

/// The two halves, ours and the peer's, and whether all do the same work.
pub(super) fn halves(run: &Run, out: &mut String) {
    line(out, "\n## The halves alone\n");
    line(
        out,
        "In ms, p50 (p90, p99), features and prompts on the device. Cosines and the largest difference of the surest \
         boxes (1 = the image's side) are against ONNX Runtime on the processor in 32 bits with the same inputs; \
         detections are those of that many classes, here and there. The time to the first result is from the \
         program's start.\n",
    );
    line(
        out,
        "| px | classes | way | backbone | encoder-decoder | cosine features, logits | box difference | detections | \
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
    (imgsz, classes, way): (u64, u64, &str),
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
            "| {imgsz} | {classes} | {way} | {} | {} | {}, {} | {} | {detections} | {load} | {first} | {} | {} |",
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

/// What the graphs and the engines took to make.
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

/// What has no line, and why, where that is known.
pub(super) fn not_measured(run: &Run, out: &mut String) {
    let plan = &run.plan;
    let mut missing = Vec::new();
    let has = |lines: &[Value], label: &str, imgsz: u64| {
        plan.classes.iter().all(|&classes| of(lines, label, imgsz, classes).next().is_some())
    };
    for &imgsz in &plan.imgsz {
        for label in &plan.engines {
            let kinds = [("halves", &run.halves), ("frames", &run.detect), ("video", &run.video)];
            let gone: Vec<_> =
                kinds.iter().filter(|kind| !has(kind.1, label, imgsz)).map(|kind| kind.0).collect();
            if !gone.is_empty() {
                missing.push(format!("{label} at {imgsz} px, all or some of: {}", gone.join(", ")));
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

/// All image sizes with all numbers of classes.
fn grid(run: &Run) -> impl Iterator<Item = (u64, u64)> {
    run.plan.imgsz.iter().flat_map(|&imgsz| run.plan.classes.iter().map(move |&classes| (imgsz, classes)))
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.decimals$}"))
}
