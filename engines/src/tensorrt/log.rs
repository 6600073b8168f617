//! What TensorRT says: forwarded to `tracing`, and its last errors kept for ours.
//!
//! Its calls answer null or `false` and tell the reason to the logger alone.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How many errors are kept.
const KEPT: usize = 32;

/// How grave a message is, in the order of `ILogger::Severity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    InternalError,
    Error,
    Warning,
    Info,
    Verbose,
}

/// The log of one TensorRT.
#[derive(Debug)]
pub(super) struct Log {
    recent: Mutex<Recent>,
}

/// The log of the library, of which a process has one.
pub(super) static LOG: Log = Log::new();

#[derive(Debug)]
struct Recent {
    /// How many errors there were, those that are no longer kept included.
    count: usize,
    errors: VecDeque<String>,
}

/// A moment of a [`Log`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(usize);

impl Log {
    pub(super) const fn new() -> Self {
        Self { recent: Mutex::new(Recent { count: 0, errors: VecDeque::new() }) }
    }

    /// Takes a message, from any thread.
    ///
    /// Errors arrive as `DEBUG` at the target `tensorrt`: the call that failed returns them, too, and they would be
    /// told twice.
    pub(super) fn take(&self, severity: Severity, message: &str) {
        match severity {
            Severity::InternalError | Severity::Error => {
                tracing::debug!(target: "tensorrt", "{message}");
                let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
                recent.count += 1;
                recent.errors.push_back(tidy(message));
                if recent.errors.len() > KEPT {
                    recent.errors.pop_front();
                }
            }
            Severity::Warning => tracing::debug!(target: "tensorrt", "{message}"),
            Severity::Info | Severity::Verbose => tracing::trace!(target: "tensorrt", "{message}"),
        }
    }

    /// Now.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.recent.lock().unwrap_or_else(PoisonError::into_inner).count)
    }

    /// What was said since then, in one line, or that nothing was.
    pub(super) fn since(&self, mark: Mark) -> String {
        let errors = self.errors_since(mark);
        if errors.is_empty() { "TensorRT gave no reason".to_owned() } else { errors.join("; ") }
    }

    /// What was said since then, each once.
    pub(super) fn errors_since(&self, Mark(mark): Mark) -> Vec<String> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (recent.count - mark).min(recent.errors.len());
        let mut errors: Vec<String> = recent.errors.iter().skip(recent.errors.len() - new).cloned().collect();
        errors.dedup();
        errors
    }
}

/// A message without the place in NVIDIA's source code that it ends or begins with.
pub(super) fn tidy(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    let tail = |line: &str| {
        // ` In createRuntime at /_src/runtime/dispatch/runtime.cpp:123`
        let at = line.rfind(" In ")?;
        let head = line[..at].trim_end();
        let close = if line.ends_with(')') { ")" } else { "" };
        line[at..].contains(" at /").then(|| format!("{head}{close}"))
    };
    tail(&line).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_since_a_moment_are_one_line() {
        let log = Log::new();
        log.take(Severity::Error, "before");
        let mark = log.mark();
        assert_eq!(log.since(mark), "TensorRT gave no reason");
        log.take(Severity::Warning, "only a warning");
        log.take(Severity::Error, "first\n  line\n");
        log.take(Severity::Error, "first\n  line\n");
        log.take(Severity::InternalError, "second. In build at /_src/optimizer/api/builder.cpp:960");
        assert_eq!(log.since(mark), "first; line; second.");
        let mark = log.mark();
        log.take(Severity::Error, "Error Code 6: (no library. In load at /_src/common/library.cpp:40)");
        assert_eq!(log.since(mark), "Error Code 6: (no library.)");
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let log = Log::new();
        let mark = log.mark();
        for index in 0..100 {
            log.take(Severity::Error, &index.to_string());
        }
        let line = log.since(mark);
        assert!(line.starts_with("68; 69;") && line.ends_with("; 99"), "{line}");
    }
}
