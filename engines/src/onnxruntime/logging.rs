//! ONNX Runtime's own log, sent to `tracing`.

/// How grave a message of ONNX Runtime must be to reach `tracing`.
///
/// Nothing goes to stderr. The `tracing` target is `onnxruntime`. Fatal messages arrive as `ERROR`; errors and
/// warnings as `DEBUG`, because an error comes back from the call that failed as well and would be told twice;
/// everything else as `TRACE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Everything.
    Verbose,
    /// What it does: optimisations, allocations.
    Info,
    /// What it does differently from what the model says.
    Warning,
    /// What failed.
    Error,
    /// What ends the process.
    Fatal,
}

impl From<LogLevel> for ort::logging::LogLevel {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Verbose => Self::Verbose,
            LogLevel::Info => Self::Info,
            LogLevel::Warning => Self::Warning,
            LogLevel::Error => Self::Error,
            LogLevel::Fatal => Self::Fatal,
        }
    }
}

/// Called by ONNX Runtime from any of its threads.
pub(super) fn forward(level: ort::logging::LogLevel, _category: &str, _id: &str, code: &str, message: &str) {
    use ort::logging::LogLevel as Level;
    match level {
        Level::Fatal => tracing::error!(target: "onnxruntime", code, "{message}"),
        Level::Error | Level::Warning => tracing::debug!(target: "onnxruntime", code, "{message}"),
        Level::Info | Level::Verbose => tracing::trace!(target: "onnxruntime", code, "{message}"),
    }
}
