//! `/metrics`, in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ocelli::{StageTimes, locked};

use crate::http::connections::Gauge;

/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// A name without `ocelli_`, what it is, and its value.
pub(crate) type Figure = (&'static str, &'static str, i64);

/// The counts since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By route and status.
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    answers: Histogram,
    stages: [Histogram; 6],
    images: AtomicU64,
    failures: AtomicU64,
    detections: AtomicU64,
    /// Images whose features were kept from an earlier request.
    pub feature_hits: AtomicU64,
    pub frames_received: AtomicU64,
    pub frames_dropped: AtomicU64,
    pub frames_done: AtomicU64,
    pub videos: Gauge,
    pub connections: Gauge,
}

#[derive(Default)]
struct Histogram {
    /// By bound; those above all bounds are in the count alone.
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn observe(&self, seconds: f64) {
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add((seconds * 1e9) as u64, Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, label: &str) {
        let comma = if label.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            total += bucket.load(Relaxed);
            *text += &format!("{name}_bucket{{{label}{comma}le=\"{bound}\"}} {total}\n");
        }
        // An observation between the loads must not make the last bucket smaller than the one before.
        let count = self.count.load(Relaxed).max(total);
        let braces = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        let seconds = self.nanoseconds.load(Relaxed) as f64 / 1e9;
        *text += &format!("{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}\n");
        *text += &format!("{name}_sum{braces} {seconds}\n{name}_count{braces} {count}\n");
    }
}

impl Metrics {
    pub fn answered(&self, route: &str, status: u16, seconds: f64) {
        let mut requests = locked(&self.requests);
        *requests.entry((route.to_owned(), status)).or_default() += 1;
        self.answers.observe(seconds);
    }

    pub fn observe(&self, times: &StageTimes, detections: usize) {
        for (stage, (_, milliseconds)) in self.stages.iter().zip(times.by_stage()) {
            stage.observe(milliseconds / 1e3);
        }
        self.images.fetch_add(1, Relaxed);
        self.detections.fetch_add(detections as u64, Relaxed);
    }

    pub fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// The text of `/metrics`, with the names of the engine and the model, and what the server does `now`.
    pub fn text(&self, engine: &str, model: &str, now: &[Figure]) -> String {
        let mut text = head("build_info", "gauge", "Version, engine and model.");
        let (version, engine, model) = (env!("CARGO_PKG_VERSION"), escaped(engine), escaped(model));
        let build = format!("version=\"{version}\",engine=\"{engine}\",model=\"{model}\"");
        text += &format!("ocelli_build_info{{{build}}} 1\n");
        text += &head("requests_total", "counter", "Answered requests.");
        for ((route, status), count) in &*locked(&self.requests) {
            let route = escaped(route);
            text += &format!("ocelli_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}\n");
        }
        text += &head("request_seconds", "histogram", "From a request to its answer.");
        self.answers.write(&mut text, "ocelli_request_seconds", "");
        text += &head("stage_seconds", "histogram", "Stages of the detector.");
        for ((stage, _), histogram) in StageTimes::default().by_stage().into_iter().zip(&self.stages) {
            histogram.write(&mut text, "ocelli_stage_seconds", &format!("stage=\"{stage}\""));
        }
        let load = |counter: &AtomicU64| counter.load(Relaxed) as i64;
        let since_start = [
            ("images_total", "Images that were searched or clicked.", load(&self.images)),
            ("failures_total", "Images on which the detector failed.", load(&self.failures)),
            ("detections_total", "Detected instances.", load(&self.detections)),
            ("feature_cache_hits_total", "Images whose features were kept.", load(&self.feature_hits)),
            ("frames_received_total", "Video frames that arrived.", load(&self.frames_received)),
            ("frames_dropped_total", "Video frames that a newer one replaced.", load(&self.frames_dropped)),
            ("frames_done_total", "Video frames that were answered.", load(&self.frames_done)),
            ("videos", "Open video connections.", self.videos.value()),
            ("connections", "Open connections.", self.connections.value()),
        ];
        for (name, help, value) in since_start.iter().chain(now) {
            text += &head(name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
            text += &format!("ocelli_{name} {value}\n");
        }
        text
    }
}

fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP ocelli_{name} {help}\n# TYPE ocelli_{name} {kind}\n")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
