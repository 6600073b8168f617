//! Downloads take minutes: people see how far they are.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two reports: on a terminal, where the next replaces the last, and elsewhere.
const REPORTS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Reports how far the download of several files is.
pub(super) struct Progress<'a> {
    report: &'a dyn Fn(&str),
    interval: Duration,
    file: String,
    /// Bytes that are there, also from earlier runs.
    pub(super) done: u64,
    total: u64,
    /// Bytes that this run received, and since when.
    received: (u64, Instant),
    reported: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(total: u64, report: &'a dyn Fn(&str)) -> Self {
        let interval = REPORTS[usize::from(!std::io::stderr().is_terminal())];
        let now = Instant::now();
        Self { report, interval, file: String::new(), done: 0, total, received: (0, now), reported: now }
    }

    pub(super) fn begin(&mut self, file: &str) {
        self.file = file.to_owned();
        (self.report)(&format!("downloading {file}, {} of {}", size(self.done), size(self.total)));
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.received.0 += bytes;
        let now = Instant::now();
        if now - self.reported < self.interval {
            return;
        }
        self.reported = now;
        let rate = self.received.0 as f64 / (now - self.received.1).as_secs_f64().max(1e-3);
        let left = (self.total.saturating_sub(self.done) as f64 / rate.max(1.0)) as u64;
        (self.report)(&format!(
            "downloading {}, {} of {}, {}/s, {}:{:02} left",
            self.file,
            size(self.done),
            size(self.total),
            size(rate as u64),
            left / 60,
            left % 60
        ));
    }
}
