//! What OpenCV would write on its own.

use std::sync::Once;

use opencv::core::{LogLevel, set_log_level};

/// Errors come as values: OpenCV is told, once, to write no lines of its own to stderr. Who sets `OPENCV_LOG_LEVEL` wants
/// them.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("OPENCV_LOG_LEVEL").is_none() {
            // Where it cannot be set, lines are all that comes of it.
            drop(set_log_level(LogLevel::LOG_LEVEL_SILENT));
        }
    });
}
