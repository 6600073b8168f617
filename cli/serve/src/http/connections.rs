//! Accepts connections within a limit, and hands their requests to the routes.

use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tower_layer::Layer;

use super::places::{Place, Places};
use super::problem::Problem;

/// Counts those that are open: each holds what [`count`](Self::count) returns.
#[derive(Default)]
pub(crate) struct Gauge(Counted);

/// Counts until it is dropped.
pub(crate) type Counted = Arc<()>;

impl Gauge {
    pub fn count(&self) -> Counted {
        self.0.clone()
    }

    pub fn value(&self) -> i64 {
        Arc::strong_count(&self.0) as i64 - 1
    }
}

/// The limits of connections.
pub(crate) struct Settings {
    /// Open connections. One client has at most half of them.
    pub most: usize,
    /// The time for the headers of a request.
    pub header_time: Duration,
    /// Longest time in which a client takes none of an answer.
    pub write_time: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { most: 64, header_time: Duration::from_secs(15), write_time: Duration::from_secs(30) }
    }
}

/// The answer to a client that has its share of the connections. Its request is not read.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
                      Content-Length: 59\r\nConnection: close\r\n\r\n\
                      {\"error\": \"this address has too many connections already\"}\n";
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The two ends of a connection, and its place among those that the limit allows. What goes on after the request holds them
/// too: a connection that became a WebSocket outlives its HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub client: IpAddr,
    pub server: IpAddr,
    _held: Arc<(Place, Counted)>,
}

impl<S: Sync> FromRequestParts<S> for Ends {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without an address");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// Connections that are open when no more are accepted.
pub(crate) struct Open(watch::Sender<()>);

impl Open {
    /// Closes those that are idle, and waits for the requests that are being answered.
    pub async fn close(self) {
        self.0.send_replace(());
        self.0.closed().await;
    }
}

/// Serves at most `settings.most` connections at once, counted in `open`, until `end`. Any more wait; those that one client has
/// beyond its half are refused. Returns the connections that are open then.
///
/// # Errors
/// Those of the system.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    settings: &Settings,
    open: &Gauge,
    end: impl Future<Output = ()>,
) -> std::io::Result<Open> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Places::new(settings.most);
    // The builder that takes any version of HTTP would wait for the first byte without a limit.
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(settings.header_time);
    let (ending, _) = watch::channel(());
    let mut end = pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let place = places.any().await;
                (listener.accept().await, place)
            } => accepted,
            () = &mut end => return Ok(Open(ending)),
        };
        let (Ok((stream, client)), Ok(place)) = accepted else {
            // The client has gone already, or the process has no more files.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(own) = stream.local_addr() else { continue };
        let Ok(place) = places.join(client.ip().to_canonical(), place) else {
            tracing::debug!("connection of {client}: it has too many");
            drop(stream.try_write(BUSY));
            continue;
        };
        drop(stream.set_nodelay(true));
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(settings.write_time));
        let held = Arc::new((place, open.count()));
        let ends = Ends { client: client.ip().to_canonical(), server: own.ip().to_canonical(), _held: held };
        let service = TowerToHyperService::new(Extension(ends).layer(routes.clone()));
        let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service).with_upgrades();
        let mut ended = ending.subscribe();
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let served = tokio::select! {
                served = connection.as_mut() => served,
                _ = ended.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                tracing::debug!("connection of {client}: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::time::Instant;

    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use http_body_util::channel::Channel;
    use tokio::net::TcpSocket;
    use tokio::runtime::Runtime;

    use super::*;

    /// A server with an endless answer at `/endless`.
    fn start(settings: Settings) -> (Runtime, SocketAddr) {
        let runtime = Runtime::new().expect("the system has threads");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let endless = async || {
            let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
            tokio::spawn(async move { while sender.send_data(vec![0; 1 << 16].into()).await.is_ok() {} });
            Body::new(body)
        };
        let routes = Router::new().route("/", get("well")).route("/endless", get(endless));
        runtime.spawn(async move { serve(listener, routes, &settings, &Gauge::default(), pending()).await });
        (runtime, address)
    }

    fn connect(runtime: &Runtime, address: SocketAddr, client: u8) -> TcpStream {
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4().expect("the system has sockets");
            socket.bind(([127, 0, 0, client], 0).into()).expect("127.0.0.0/8 is this machine");
            socket.connect(address).await.expect("it listens").into_std().expect("it is a socket")
        });
        stream.set_nonblocking(false).expect("it is a socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
        stream
    }

    fn ask(mut stream: &TcpStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the system holds it");
    }

    /// The status; `None` if the connection ends without an answer.
    fn status(mut stream: &TcpStream) -> Option<u16> {
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    #[test]
    fn one_client_has_half_and_any_more_wait() {
        let (runtime, address) = start(Settings { most: 4, ..Settings::default() });
        let of = |client: u8| connect(&runtime, address, client);
        let idle = [of(1), of(1)];
        let refused = of(1);
        ask(&refused, "/");
        assert_eq!(status(&refused), Some(503), "half of four");
        let other = of(2);
        ask(&other, "/");
        assert_eq!(status(&other), Some(200), "the other half is for others");
        let more = [of(2), of(3)];
        let waiting = of(4);
        ask(&waiting, "/");
        waiting.set_read_timeout(Some(Duration::from_millis(200))).expect("it is a socket");
        assert_eq!(status(&waiting), None, "four are open");
        drop((idle, more));
        waiting.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
        assert_eq!(status(&waiting), Some(200));
    }

    #[test]
    fn clients_that_send_or_take_nothing_are_dropped() {
        let short = Duration::from_millis(200);
        for (path, settings) in [
            (None, Settings { most: 2, header_time: short, ..Settings::default() }),
            (Some("/endless"), Settings { most: 2, write_time: short, ..Settings::default() }),
        ] {
            let (runtime, address) = start(settings);
            let stalled = connect(&runtime, address, 1);
            if let Some(path) = path {
                ask(&stalled, path);
            }
            let start = Instant::now();
            loop {
                let next = connect(&runtime, address, 1);
                ask(&next, "/");
                if status(&next) == Some(200) {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(10), "{path:?} keeps its place");
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(stalled);
        }
    }
}
