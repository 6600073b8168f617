//! The report of a run on a GPU: measurements, targets and missing measurements.
//!
//! A run is a folder of JSON lines and a plan of the measurements.

mod tables;
mod targets;

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

/// The measurements that a run plans: `plan.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Plan {
    /// Start of the run, to the minute.
    pub began: String,
    /// `full`, the released model's size with random weights, or `small`, the built-in model.
    pub model: String,
    /// Engines with a number format: `cuda-fp16`.
    pub engines: Vec<String>,
    /// Modes of the peer with a number format: `compile-f16`.
    pub peers: Vec<String>,
    /// Sides of the model's input in pixels.
    pub imgsz: Vec<u64>,
    /// Numbers of classes.
    pub classes: Vec<u64>,
    /// Commit of the programs.
    pub commit: String,
}

/// The contents of a run's folder.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan.
    pub plan: Plan,
    /// Lines of `bench halves`.
    pub halves: Vec<Value>,
    /// Lines of `bench detect`.
    pub detect: Vec<Value>,
    /// Lines of `bench video`.
    pub video: Vec<Value>,
    /// Lines of the peer.
    pub peers: Vec<Value>,
    /// Lines of `bench memory`.
    pub trackers: Vec<Value>,
    /// Time and memory of each export and engine build.
    pub export: Vec<Value>,
    /// Outcome of each step.
    pub steps: Vec<Value>,
}

impl Run {
    /// Reads a run's folder; missing files and truncated lines are ignored.
    ///
    /// # Errors
    /// If there is no valid plan.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("plan.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the plan, {}", path.display()))?;
        let plan = serde_json::from_str(&text)
            .with_context(|| format!("not a plan of a run, {}", path.display()))?;
        let lines = |name: &str| -> Vec<Value> {
            let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        Ok(Self {
            plan,
            halves: lines("halves.jsonl"),
            detect: lines("detect.jsonl"),
            video: lines("video.jsonl"),
            peers: lines("peers.jsonl"),
            trackers: lines("trackers.jsonl"),
            export: lines("export.jsonl"),
            steps: lines("steps.jsonl"),
        })
    }

    /// The report, as Markdown.
    pub fn report(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        targets::write(self, &mut out);
        tables::frames(self, &mut out);
        tables::video(self, &mut out);
        tables::halves(self, &mut out);
        tables::trackers(self, &mut out);
        tables::export(self, &mut out);
        tables::not_measured(self, &mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let plan = &self.plan;
        let machine = [&self.halves, &self.detect, &self.video].into_iter().flatten().next();
        let machine = machine.map_or(&Value::Null, |line| &line["machine"]);
        let gpu = &machine["gpu"];
        let (model, weights) = match plan.model.as_str() {
            "full" => ("Full size", "840 M random weights"),
            _ => ("The built-in model", "small: its speed does not predict the released model's"),
        };
        let day = plan.began.split(['T', ' ']).next().unwrap_or_default();
        line(out, &format!("# {model} on a GPU, {day}\n"));
        let gpu = match gpu["name"].as_str() {
            Some(name) => format!(
                "{name}, {:.0} MiB, compute capability {}, driver {}",
                number(&gpu["memory_mib"]).unwrap_or(0.0),
                word(&gpu["compute_capability"]),
                word(&gpu["driver"])
            ),
            None => "no NVIDIA GPU".into(),
        };
        let mut parts = vec![weights.to_owned(), gpu];
        if let Some(cpu) = machine["cpu"].as_str() {
            let memory = number(&machine["memory_mib"]).unwrap_or(0.0) / 1024.0;
            parts.push(format!("{cpu}, {} CPUs, {memory:.0} GiB", word(&machine["cpus"])));
        }
        parts.push(format!("commit {}", plan.commit));
        let mut versions = Vec::new();
        let engines = self.halves.iter().chain(&self.detect).map(|line| word(&line["engine"]));
        let peers = self.peers.iter().map(|line| {
            let machine = &line["machine"];
            let [torch, own] = ["torch", "transformers"].map(|name| word(&machine[name]));
            format!("the peer: torch {torch}, transformers {own}")
        });
        for version in engines.chain(peers).filter(|version| !version.is_empty()) {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        parts.extend(versions);
        line(out, &format!("{}.\n", parts.join("; ")));
        line(
            out,
            "Times are medians. If there are several rounds, ours and the peer's alternating, all are shown; targets use our \
             slowest and the peer's fastest.",
        );
    }
}

/// The label of a line of the peer: `compile-f16`.
fn peer_label(peer: &Value) -> String {
    format!("{}-{}", word(&peer["mode"]), word(&peer["dtype"]))
}

/// The lines of one label, image size and number of classes.
fn of<'l>(
    lines: &'l [Value],
    label: &'l str,
    imgsz: u64,
    classes: u64,
) -> impl Iterator<Item = &'l Value> + Clone {
    lines.iter().filter(move |line| {
        let matches = line["label"].as_str().is_some_and(|own| own == label)
            || (line["label"].is_null() && peer_label(line) == label);
        matches && line["imgsz"].as_u64() == Some(imgsz) && line["classes"].as_u64() == Some(classes)
    })
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// A string without quotes, other values as JSON.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Values of several rounds: `12.3 / 12.5`; `None` without values.
fn rounds(values: impl Iterator<Item = f64>, decimals: usize) -> Option<String> {
    let all: Vec<String> = values.map(|value| format!("{value:.decimals$}")).collect();
    (!all.is_empty()).then(|| all.join(" / "))
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests;
