//! The server: its port, its start, its end.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ocelli::{Cancellation, Detector, Error, ErrorKind, Result};
use tokio::sync::{Notify, watch};

use crate::api::router;
use crate::config::ServeConfig;
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::http::connections;
use crate::http::places::Places;
use crate::label_studio::images::Images;
use crate::metrics::Metrics;
use crate::sessions::opened::listed;
use crate::sessions::{Load, Sessions};
use crate::state::{About, App};

/// A port and a gallery that are open, without a detector yet: clients wait.
pub struct Bound {
    config: ServeConfig,
    listener: TcpListener,
    gallery: Option<Arc<Gallery>>,
    images: Images,
    load: Option<Load>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    stop: watch::Sender<bool>,
}

impl Bound {
    /// Opens the port and the gallery.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that other machines reach without a token and for other options out
    /// of range; [`ErrorKind::Io`] if the port is taken or the folder of videos cannot be read; the errors of the gallery.
    pub fn new(config: ServeConfig) -> Result<Self> {
        config.check()?;
        let gallery = config.gallery.as_deref().map(|root| Gallery::open(root, config.limits.clone()));
        let gallery = gallery.transpose()?.map(Arc::new);
        if let Some(folder) = config.videos.as_deref().filter(|folder| !folder.is_dir()) {
            let message = format!("videos, {}: no such folder", folder.display());
            return Err(Error::invalid_argument(message).about("videos"));
        }
        listed(config.videos.as_deref())?;
        let images = Images::new(config.label_studio.as_ref(), config.limits.body_bytes)?;
        let listener = TcpListener::bind(config.listen).map_err(|error| {
            let message = format!(
                "cannot listen on {}: {error}; end the program that uses it, or choose another address",
                config.listen
            );
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        Ok(Self { config, listener, gallery, images, load: None })
    }

    /// Serves sessions as well: each loads a detector of its own, with masks.
    #[must_use]
    pub fn with_sessions(self, load: impl Fn() -> Result<Detector> + Send + Sync + 'static) -> Self {
        Self { load: Some(Arc::new(load)), ..self }
    }

    /// Starts the engine's threads. The detector is loaded by the first request, unless it was
    /// [prepared](Detector::prepare). There can be `more` detectors of the same model with the same options, on other devices:
    /// each takes the next request when it is free.
    pub fn with(self, detector: Detector, more: Vec<Detector>) -> Server {
        let Self { config, listener, gallery, images, load } = self;
        let mut about = About::of(&detector, &config);
        for other in &more {
            about.engine += &format!(" and {}", other.engine());
        }
        let detectors = std::iter::once(detector).chain(more).collect();
        let metrics = Arc::new(Metrics::default());
        let engine = Engine::start(detectors, metrics.clone(), &config.limits);
        let (stop, stopping) = watch::channel(false);
        let app = App {
            bodies: Places::new(config.limits.queue),
            videos: Places::new(config.limits.queue.div_ceil(2)),
            slots: Places::new(config.limits.queue),
            sessions: Sessions::new(load, &config.limits),
            engine,
            metrics,
            gallery,
            images,
            about,
            stopping,
            config,
        };
        Server { listener, app: Arc::new(app), stop }
    }
}

impl Server {
    /// The address of the page. If it listens on all addresses of the machine, the one that other machines reach.
    pub fn url(&self) -> String {
        let mut address = self.listener.local_addr().unwrap_or(self.app.config.listen);
        if address.ip().is_unspecified() {
            address.set_ip(own_address().unwrap_or(Ipv4Addr::LOCALHOST.into()));
        }
        format!("http://{address}/")
    }

    /// The address of the page with the token, if there is one: who has it has the token.
    pub fn url_with_token(&self) -> String {
        let token = self.app.config.token.as_ref();
        self.url() + &token.map_or_else(String::new, |token| format!("?token={token}"))
    }

    /// Serves until it is cancelled; then requests that are being answered are finished.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system refuses threads or connections.
    pub fn run(self, cancellation: &Cancellation) -> Result<()> {
        let Self { listener, app, stop } = self;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_listen(&app.config, error))?;
        let limits = &app.config.limits;
        let served = runtime.block_on(async {
            let settings = connections::Settings { most: limits.connections, ..Default::default() };
            let (open, end) = (&app.metrics.connections, cancelled(cancellation));
            let open_ones = connections::serve(listener, router(&app), &settings, open, end).await?;
            stop.send_replace(true);
            app.sessions.stop();
            drop(tokio::time::timeout(limits.time, open_ones.close()).await);
            Ok::<_, std::io::Error>(())
        });
        app.engine.stop();
        runtime.shutdown_timeout(Duration::from_secs(1));
        app.sessions.join();
        served.map_err(|error| cannot_listen(&app.config, error))
    }
}

/// The address from which this machine would reach another network. Nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation, which is nobody's (RFC 5737).
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn cannot_listen(config: &ServeConfig, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot serve on {}: {error}", config.listen)).with_source(error)
}

async fn cancelled(cancellation: &Cancellation) {
    let woken = Arc::new(Notify::new());
    let waker = woken.clone();
    let _hook = cancellation.on_cancel(move || waker.notify_one());
    woken.notified().await;
}
