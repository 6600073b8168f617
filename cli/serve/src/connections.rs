//! Accepts connections within a limit, and hands their requests to the routes.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

use crate::metrics::{Counted, Gauge};

/// The time for the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(15);
/// How long a client may take none of an answer.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The two ends of a connection, and its place among those that the limit allows. What goes on after the request holds them
/// too: a connection that became a WebSocket outlives its HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub client: IpAddr,
    pub server: IpAddr,
    _place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

/// Serves at most `most` connections at once, counted in `open`, until `end`. Any more wait. Returns what waits for the
/// requests that are being answered.
///
/// # Errors
/// Those of the system.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    most: usize,
    open: &Gauge,
    end: impl Future<Output = ()>,
) -> std::io::Result<GracefulShutdown> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(most));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    let graceful = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let permit = places.clone().acquire_owned().await;
                (listener.accept().await, permit)
            } => accepted,
            () = &mut end => return Ok(graceful),
        };
        let (Ok((stream, client)), Ok(permit)) = accepted else {
            // The client has gone already, or the process has no more files.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(own) = stream.local_addr() else { continue };
        drop(stream.set_nodelay(true));
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIME));
        let place = Arc::new(Place { _permit: permit, _counted: open.count() });
        let ends =
            Ends { client: client.ip().to_canonical(), server: own.ip().to_canonical(), _place: place };
        let routes = routes.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ends.clone());
            let mut routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.call(request).await.unwrap_or_else(|never| match never {})) }
        });
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(Box::pin(stream)), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("connection of {client}: {error}");
            }
        });
    }
}
