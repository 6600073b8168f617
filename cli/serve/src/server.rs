//! Listens, and hands each connection to the routes.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use ocelli::builtin::vocabulary;
use ocelli::{Cancellation, Detector, Error, ErrorKind, Result};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use crate::api::router;
use crate::app::{About, App, Ends};
use crate::config::{BUILT_IN, ServeConfig};
use crate::engine::Engine;
use crate::gallery::Gallery;
use crate::guard::TokenHash;
use crate::label_studio::Pictures;
use crate::metrics::Metrics;

/// How often a cancellation is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The time for the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(15);

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
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let routes = router(&app);
    let places = Arc::new(Semaphore::new(app.config.limits.connections));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    let graceful = GracefulShutdown::new();
    let mut tick = tokio::time::interval(TICK);
    while !cancellation.is_cancelled() {
        // A connection beyond the limit waits until another ends.
        let accepted = tokio::select! {
            accepted = async {
                let place = places.clone().acquire_owned().await;
                (listener.accept().await, place)
            } => accepted,
            _ = tick.tick() => continue,
        };
        let (Ok((stream, client)), Ok(place)) = accepted else {
            // The client has gone already, or the process has no more files.
            tokio::time::sleep(TICK).await;
            continue;
        };
        let Ok(own) = stream.local_addr() else { continue };
        drop(stream.set_nodelay(true));
        let ends = Ends { client: client.ip().to_canonical(), server: own.ip().to_canonical() };
        let routes = routes.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ends);
            let mut routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.call(request).await.unwrap_or_else(|never| match never {})) }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let app = app.clone();
        tokio::spawn(async move {
            let _place = place;
            let _counted = app.metrics.connections.count();
            if let Err(error) = connection.await {
                tracing::debug!("connection of {client}: {error}");
            }
        });
    }
    drop(listener);
    stop.send_replace(true);
    drop(tokio::time::timeout(app.config.limits.time, graceful.shutdown()).await);
    Ok(())
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
