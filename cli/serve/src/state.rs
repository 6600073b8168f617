//! What all requests share. It knows no route.

use std::sync::Arc;

use ocelli::Detector;
use ocelli::builtin::vocabulary;
use serde::Serialize;
use tokio::sync::watch;

use crate::config::{BUILT_IN, ServeConfig};
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::http::places::Places;
use crate::http::problem::Problem;
use crate::label_studio::images::Images;
use crate::metrics::Metrics;
use crate::sessions::Sessions;

/// The state of a server.
pub(crate) struct App {
    pub config: ServeConfig,
    pub engine: Engine,
    pub metrics: Arc<Metrics>,
    /// For requests whose body arrives. They hold none of `slots`, so that slow ones do not hold up the others.
    pub bodies: Places,
    /// For videos: fewer than `slots`, so that they leave some of these to requests.
    pub videos: Places,
    /// For requests that wait or run.
    pub slots: Places,
    pub sessions: Sessions,
    pub gallery: Option<Arc<Gallery>>,
    pub images: Images,
    pub about: About,
    /// Turns true when the server is to stop.
    pub stopping: watch::Receiver<bool>,
}

impl App {
    /// Refuses what needs a model with a tracker, if there is none.
    pub fn check_tracker(&self, purpose: &str) -> Result<(), Problem> {
        if self.about.clicks {
            return Ok(());
        }
        Err(Problem::bad(format!(
            "{purpose}, {}: this model has no tracker; start the server with a checkpoint that has one, such as Meta's sam3.pt or \
             facebook/sam3",
            self.about.model
        )))
    }
}

/// The detector, for people.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct About {
    pub engine: String,
    pub model: String,
    /// The names that the model knows, if they are few.
    pub vocabulary: Vec<&'static str>,
    pub masks: bool,
    /// The model answers clicks.
    pub clicks: bool,
    pub confidence: f32,
    pub nms: f32,
}

impl About {
    pub fn of(detector: &Detector, config: &ServeConfig) -> Self {
        let manifest = detector.model().manifest();
        let thresholds = manifest.thresholds;
        Self {
            engine: detector.engine().to_owned(),
            model: shown_name(&config.model),
            vocabulary: if config.model == BUILT_IN { vocabulary().to_vec() } else { Vec::new() },
            masks: config.masks,
            clicks: manifest.has_tracker(),
            confidence: thresholds.confidence,
            nms: thresholds.nms,
        }
    }
}

/// The name of a model for clients. Of a path it is the last part: where files lie is nobody's business.
fn shown_name(model: &str) -> String {
    let path = std::path::absolute(model).ok().filter(|path| path.exists());
    let name = path.as_deref().map(|path| path.file_name().unwrap_or("model".as_ref()));
    name.map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned())
}
