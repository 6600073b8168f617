//! Times of the stages of one image.

#[cfg(not(target_family = "wasm"))]
pub(crate) use std::time::Instant;
// The standard library has no clock there.
#[cfg(target_family = "wasm")]
pub(crate) use web_time::Instant;

/// The target of the log messages that name what a detector does now, one for each step that may take seconds.
pub const STAGE_TARGET: &str = "ocelli::stage";

/// Time spent on one image, stage by stage, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct StageTimes {
    /// Text prompts to text features; near zero when all of them are cached.
    pub text: f64,
    /// Pixels to the backbone's input.
    pub preprocess: f64,
    /// The image backbone.
    pub backbone: f64,
    /// The encoder-decoder over all classes, thresholds and suppression.
    pub decode: f64,
    /// Masks of the detections that were kept.
    pub masks: f64,
    /// From start to finish, including time spent waiting between stages.
    pub total: f64,
}

impl StageTimes {
    /// The times with the names of their stages.
    pub fn by_stage(&self) -> [(&'static str, f64); 6] {
        [
            ("text", self.text),
            ("preprocess", self.preprocess),
            ("backbone", self.backbone),
            ("decode", self.decode),
            ("masks", self.masks),
            ("total", self.total),
        ]
    }
}

pub(crate) fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
