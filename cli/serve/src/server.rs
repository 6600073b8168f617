//! The server: its state, its port, its end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ocelli::builtin::vocabulary;
use ocelli::{Cancellation, Detector, Error, ErrorKind, Result};
use tokio::sync::{Semaphore, watch};

use crate::api::router;
use crate::app::{About, App};
use crate::config::{BUILT_IN, ServeConfig};
use crate::connections;
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::guard::TokenHash;
use crate::label_studio::Pictures;
use crate::metrics::Metrics;

/// How often a cancellation is looked at.
const TICK: Duration = Duration::from_millis(50);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Opens the port, the gallery and the engine's threads. The detector is loaded by the first request, unless it was
    /// [prepared](Detector::prepare).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that other machines reach without a token and for other options out
    /// of range; [`ErrorKind::Io`] if the port is taken; the errors of the gallery.
    pub fn bind(detector: Detector, config: ServeConfig) -> Result<Self> {
        config.check()?;
        let gallery = config.gallery.as_deref().map(Gallery::open).transpose()?.map(Arc::new);
        let pictures = Pictures::new(config.label_studio.as_ref(), config.limits.body_bytes)?;
        let listener = TcpListener::bind(config.listen).map_err(|error| {
            let message = format!(
                "cannot listen on {}: {error}; end the program that uses it, or choose another address",
                config.listen
            );
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        let address = listener.local_addr().map_err(|error| cannot_listen(&config, error))?;
        let about = About::of(&detector, &config);
        let metrics = Arc::new(Metrics::default());
        let engine = Engine::start(detector, metrics.clone(), config.limits.pixels);
        let (stop, stopping) = watch::channel(false);
        let app = App {
            token: config.token.as_deref().map(TokenHash::new),
            slots: Arc::new(Semaphore::new(config.limits.queue)),
            engine,
            metrics,
            gallery,
            pictures,
            about,
            stopping,
            config,
        };
        Ok(Self { listener, address, app: Arc::new(app), stop })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The address of the page with the token, if there is one: who has it has the token.
    pub fn url_with_token(&self) -> String {
        let token =
            self.app.config.token.as_ref().map_or_else(String::new, |token| format!("?token={token}"));
        format!("http://{}/{token}", self.address)
    }

    /// Serves until it is cancelled; then requests that are being answered are finished.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system refuses threads or connections.
    pub fn run(self, cancellation: &Cancellation) -> Result<()> {
        let Self { listener, app, stop, .. } = self;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_listen(&app.config, error))?;
        let served = runtime.block_on(serve(listener, app.clone(), &stop, cancellation));
        app.engine.stop();
        runtime.shutdown_timeout(Duration::from_secs(1));
        served.map_err(|error| cannot_listen(&app.config, error))
    }
}

fn cannot_listen(config: &ServeConfig, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot serve on {}: {error}", config.listen)).with_source(error)
}

async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: &watch::Sender<bool>,
    cancellation: &Cancellation,
) -> std::io::Result<()> {
    let most = app.config.limits.connections;
    let graceful =
        connections::serve(listener, router(&app), most, &app.metrics.connections, cancelled(cancellation))
            .await?;
    stop.send_replace(true);
    drop(tokio::time::timeout(app.config.limits.time, graceful.shutdown()).await);
    Ok(())
}

async fn cancelled(cancellation: &Cancellation) {
    let mut tick = tokio::time::interval(TICK);
    while !cancellation.is_cancelled() {
        tick.tick().await;
    }
}

impl About {
    fn of(detector: &Detector, config: &ServeConfig) -> Self {
        let thresholds = detector.model().manifest().thresholds;
        Self {
            engine: detector.engine().to_owned(),
            model: config.model.clone(),
            vocabulary: if config.model == BUILT_IN { vocabulary().to_vec() } else { Vec::new() },
            masks: config.masks,
            confidence: thresholds.confidence,
            nms: thresholds.nms,
        }
    }
}
