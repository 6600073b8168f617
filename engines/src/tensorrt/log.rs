//! TensorRT's log: forwarded to `tracing`; the last errors are kept for this crate's error messages.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of errors that are kept.
const KEPT: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    Warning,
    Info,
}

/// The log of the library: a process loads only one.
pub(super) static LOG: Log = Log::new();

#[derive(Debug)]
pub(super) struct Log {
    recent: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    /// The number of errors that were logged, including those that are no longer kept.
    count: usize,
    errors: VecDeque<String>,
}

/// A position in a [`Log`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(usize);

impl Log {
    const fn new() -> Self {
        Self { recent: Mutex::new(Recent { count: 0, errors: VecDeque::new() }) }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a message, from any thread.
    ///
    /// Errors are forwarded as `DEBUG`: the call that failed returns them as well.
    pub(super) fn take(&self, severity: Severity, message: &str) {
        match severity {
            Severity::Info => tracing::trace!(target: "tensorrt", "{message}"),
            Severity::Warning => tracing::debug!(target: "tensorrt", "{message}"),
            Severity::Error => {
                tracing::debug!(target: "tensorrt", "{message}");
                let mut recent = self.recent();
                recent.count += 1;
                recent.errors.push_back(tidy(message));
                if recent.errors.len() > KEPT {
                    recent.errors.pop_front();
                }
            }
        }
    }

    /// The current position.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.recent().count)
    }

    /// The errors after a position in one line.
    pub(super) fn since(&self, mark: Mark) -> String {
        let errors = self.errors_since(mark);
        if errors.is_empty() { "TensorRT gave no reason".to_owned() } else { errors.join("; ") }
    }

    /// The errors after a position, without repetitions.
    pub(super) fn errors_since(&self, Mark(mark): Mark) -> Vec<String> {
        let recent = self.recent();
        let new = (recent.count - mark).min(recent.errors.len());
        let mut errors: Vec<_> = recent.errors.iter().skip(recent.errors.len() - new).cloned().collect();
        errors.dedup();
        errors
    }
}

/// A message in one line, without the location in NVIDIA's source code at its end:
/// ` In createRuntime at /_src/runtime/dispatch/runtime.cpp:123`.
pub(super) fn tidy(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    match line.rfind(" In ") {
        Some(at) if line[at..].contains(" at /") => {
            let close = if line.ends_with(')') { ")" } else { "" };
            format!("{}{close}", line[..at].trim_end())
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_since_a_mark_are_one_line() {
        let log = Log::new();
        log.take(Severity::Error, "before");
        let mark = log.mark();
        assert_eq!(log.since(mark), "TensorRT gave no reason");
        log.take(Severity::Warning, "only a warning");
        log.take(Severity::Error, "first\n  line\n");
        log.take(Severity::Error, "first\n  line\n");
        log.take(Severity::Error, "second. In build at /_src/optimizer/api/builder.cpp:960");
        assert_eq!(log.since(mark), "first; line; second.");
        let mark = log.mark();
        log.take(Severity::Error, "Error Code 6: (no library. In load at /_src/common/library.cpp:40)");
        assert_eq!(log.since(mark), "Error Code 6: (no library.)");
    }

    #[test]
    fn only_the_last_errors_are_kept() {
        let log = Log::new();
        let mark = log.mark();
        for index in 0..100 {
            log.take(Severity::Error, &index.to_string());
        }
        let line = log.since(mark);
        assert!(line.starts_with("68; 69;") && line.ends_with("; 99"), "{line}");
    }
}
