//! What all requests share.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::config::ServeConfig;
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::guard::TokenHash;
use crate::label_studio::Pictures;
use crate::metrics::Metrics;
use crate::problem::Problem;

/// The state of a server.
pub(crate) struct App {
    pub config: ServeConfig,
    pub token: Option<TokenHash>,
    pub engine: Engine,
    pub metrics: Arc<Metrics>,
    /// One for each request that is read, waits or runs.
    pub slots: Arc<Semaphore>,
    pub gallery: Option<Arc<Gallery>>,
    pub pictures: Pictures,
    pub about: About,
    /// Turns true when the server is to stop.
    pub stopping: watch::Receiver<bool>,
}

/// The detector, for people.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub engine: String,
    pub model: String,
    /// The names that the model knows, if they are few.
    pub vocabulary: Vec<&'static str>,
    pub masks: bool,
    pub confidence: f32,
    pub nms: f32,
}

impl App {
    /// A slot for a request; it is given back when it is dropped.
    ///
    /// # Errors
    /// 503 if there is none.
    pub fn slot(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.slots.clone().try_acquire_owned().map_err(|_| Problem::busy())
    }
}
