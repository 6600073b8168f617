//! The server: its state, which all requests share, its port, its end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ocelli::builtin::vocabulary;
use ocelli::{Cancellation, Detector, Error, ErrorKind, Result};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use crate::api::router;
use crate::config::{BUILT_IN, ServeConfig};
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::http::connections;
use crate::http::places::Places;
use crate::http::problem::Problem;
use crate::label_studio::pictures::Pictures;
use crate::metrics::Metrics;
use crate::sessions::opened::listed;
use crate::sessions::{Load, Sessions};

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
    pub pictures: Pictures,
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

/// A port and a gallery that are open, without a detector yet: clients wait.
pub struct Bound {
    config: ServeConfig,
    listener: TcpListener,
    address: SocketAddr,
    gallery: Option<Arc<Gallery>>,
    pictures: Pictures,
    load: Option<Load>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
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
        let pictures = Pictures::new(config.label_studio.as_ref(), config.limits.body_bytes)?;
        let listener = TcpListener::bind(config.listen).map_err(|error| {
            let message = format!(
                "cannot listen on {}: {error}; end the program that uses it, or choose another address",
                config.listen
            );
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        let address = listener.local_addr().map_err(|error| cannot_listen(&config, error))?;
        Ok(Self { config, listener, address, gallery, pictures, load: None })
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
        let Self { config, listener, address, gallery, pictures, load } = self;
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
            pictures,
            about,
            stopping,
            config,
        };
        Server { listener, address, app: Arc::new(app), stop }
    }
}

impl Server {
    /// The address of the page. If it listens on all addresses of the machine, the one that other machines reach.
    pub fn url(&self) -> String {
        let mut address = self.address;
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
        let Self { listener, app, stop, .. } = self;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_listen(&app.config, error))?;
        let served = runtime.block_on(serve(listener, app.clone(), &stop, cancellation));
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

async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: &watch::Sender<bool>,
    cancellation: &Cancellation,
) -> std::io::Result<()> {
    let most = app.config.limits.connections;
    let settings = connections::Settings { most, ..connections::Settings::default() };
    let open = &app.metrics.connections;
    let open_ones =
        connections::serve(listener, router(&app), &settings, open, cancelled(cancellation)).await?;
    stop.send_replace(true);
    app.sessions.stop();
    drop(tokio::time::timeout(app.config.limits.time, open_ones.close()).await);
    Ok(())
}

async fn cancelled(cancellation: &Cancellation) {
    let woken = Arc::new(Notify::new());
    let waker = woken.clone();
    let _hook = cancellation.on_cancel(move || waker.notify_one());
    woken.notified().await;
}

/// The name of a model for clients. Of a path it is the last part: where files lie is nobody's business.
fn shown_name(model: &str) -> String {
    let path = std::path::absolute(model).ok().filter(|path| path.exists());
    let name = path.as_deref().map(|path| path.file_name().unwrap_or("model".as_ref()));
    name.map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned())
}

impl About {
    fn of(detector: &Detector, config: &ServeConfig) -> Self {
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
