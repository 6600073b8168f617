//! `/metrics`, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use ocelli::{StageTimes, locked};

use crate::http::connections::Gauge;
use crate::server::App;

/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The counts since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By route and status.
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    answers: Histogram,
    stages: [Histogram; 6],
    pictures: AtomicU64,
    failures: AtomicU64,
    detections: AtomicU64,
    /// Pictures whose features were kept from an earlier request.
    pub feature_hits: AtomicU64,
    /// Bytes of kept features.
    pub feature_bytes: AtomicI64,
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

    fn write(&self, text: &mut String, name: &str, label: &str) -> std::fmt::Result {
        let comma = if label.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            total += bucket.load(Relaxed);
            writeln!(text, "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {total}")?;
        }
        // An observation between the loads must not make the last bucket smaller than the one before.
        let count = self.count.load(Relaxed).max(total);
        let braces = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        writeln!(text, "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}")?;
        writeln!(text, "{name}_sum{braces} {}", self.nanoseconds.load(Relaxed) as f64 / 1e9)?;
        writeln!(text, "{name}_count{braces} {count}")
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
        self.pictures.fetch_add(1, Relaxed);
        self.detections.fetch_add(detections as u64, Relaxed);
    }

    pub fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// The text of `/metrics`, with what the server does now.
    pub fn text(&self, app: &App) -> String {
        let mut text = String::new();
        self.write(&mut text, app).expect("writing to a string does not fail");
        text
    }

    fn write(&self, text: &mut String, app: &App) -> std::fmt::Result {
        header(text, "ocelli_build_info", "gauge", "Version, engine and model.")?;
        let (engine, model) = (escaped(&app.about.engine), escaped(&app.about.model));
        let version = env!("CARGO_PKG_VERSION");
        writeln!(text, "ocelli_build_info{{version=\"{version}\",engine=\"{engine}\",model=\"{model}\"}} 1")?;
        header(text, "ocelli_requests_total", "counter", "Answered requests.")?;
        for ((route, status), count) in &*locked(&self.requests) {
            let route = escaped(route);
            writeln!(text, "ocelli_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}")?;
        }
        header(text, "ocelli_request_seconds", "histogram", "From a request to its answer.")?;
        self.answers.write(text, "ocelli_request_seconds", "")?;
        header(text, "ocelli_stage_seconds", "histogram", "Stages of the detector.")?;
        for ((stage, _), histogram) in StageTimes::default().by_stage().into_iter().zip(&self.stages) {
            histogram.write(text, "ocelli_stage_seconds", &format!("stage=\"{stage}\""))?;
        }
        let load = |counter: &AtomicU64| counter.load(Relaxed) as i64;
        let values = [
            ("ocelli_pictures_total", "Pictures that were searched or clicked.", load(&self.pictures)),
            ("ocelli_failures_total", "Pictures on which the detector failed.", load(&self.failures)),
            ("ocelli_detections_total", "Detected instances.", load(&self.detections)),
            (
                "ocelli_feature_cache_hits_total",
                "Pictures whose features were kept.",
                load(&self.feature_hits),
            ),
            ("ocelli_frames_received_total", "Video frames that arrived.", load(&self.frames_received)),
            (
                "ocelli_frames_dropped_total",
                "Video frames that a newer one replaced.",
                load(&self.frames_dropped),
            ),
            ("ocelli_frames_done_total", "Video frames that were answered.", load(&self.frames_done)),
            ("ocelli_queue_depth", "Pictures that wait for the engine.", app.engine.waiting() as i64),
            ("ocelli_free_slots", "Requests that are accepted before 503.", app.slots.free() as i64),
            ("ocelli_arriving", "Requests whose body arrives.", app.bodies.taken() as i64),
            ("ocelli_feature_cache_bytes", "Bytes of kept features.", self.feature_bytes.load(Relaxed)),
            ("ocelli_videos", "Open video connections.", self.videos.value()),
            ("ocelli_sessions", "Open sessions.", app.sessions.count() as i64),
            ("ocelli_connections", "Open connections.", self.connections.value()),
        ];
        for (name, help, value) in values {
            header(text, name, if name.ends_with("_total") { "counter" } else { "gauge" }, help)?;
            writeln!(text, "{name} {value}")?;
        }
        Ok(())
    }
}

fn header(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
