//! Nodes of all middlewares have the same settings.

use ocelli::engine::EngineOptions;
use ocelli::options::DetectorOptions;
use ocelli::{EngineKind, Error, ErrorKind, ModelSource, Prompts, Result};

/// Settings of a node, at its start and while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The classes: words or phrases.
    pub classes: Vec<String>,
    /// The least score, 0 to 1; the model's own by default.
    pub confidence: Option<f32>,
    /// The engine.
    pub engine: EngineKind,
    /// The model.
    pub model: ModelSource,
    /// Threads of engines on the CPU; by default as many as there are cores.
    pub threads: Option<usize>,
    /// Detections have masks.
    pub masks: bool,
    /// Objects are tracked.
    pub track: bool,
    /// The camera's frames per second, by which the tracker counts time; without it, each frame that is detected is one.
    pub frame_rate: Option<f64>,
}

impl Default for Settings {
    /// Persons, tracked, with the built-in model.
    fn default() -> Self {
        Self {
            classes: vec!["person".into()],
            confidence: None,
            engine: EngineKind::Auto,
            model: ModelSource::Builtin,
            threads: None,
            masks: false,
            track: true,
            frame_rate: None,
        }
    }
}

impl Settings {
    /// Checks what can be checked without loading a model.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with the name of the setting, its value and what was expected.
    pub fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if let Err(error) = Prompts::new(self.classes.iter().map(String::as_str)) {
            return invalid(format!("classes: {error}"));
        }
        self.detector().check()?;
        if let Some(rate) = self.frame_rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return invalid(format!("frame_rate is {rate}: expected a number above 0"));
        }
        Ok(())
    }

    /// The options of the detector.
    pub fn detector(&self) -> DetectorOptions {
        DetectorOptions {
            model: self.model.clone(),
            engine: EngineOptions { kind: self.engine, threads: self.threads, ..EngineOptions::default() },
            masks: self.masks,
            confidence: self.confidence,
            ..DetectorOptions::default()
        }
    }

    /// Classes from a text such as `person, red apple`, the form of an environment variable or an input.
    pub fn classes_from(text: &str) -> Vec<String> {
        text.split(',').map(str::trim).filter(|class| !class.is_empty()).map(str::to_owned).collect()
    }
}
