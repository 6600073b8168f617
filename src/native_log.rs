//! OpenCV's own log.

use std::sync::Once;

/// Silences OpenCV, once: failures are reported as errors, not as lines on stderr. `OPENCV_LOG_LEVEL` takes precedence.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("OPENCV_LOG_LEVEL").is_none() {
            ocelli_opencv::quiet();
        }
    });
}
