//! Whether the host of a stream answers at all.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ocelli::source::without_secrets;
use ocelli::{Error, ErrorKind, Result};

/// Protocols over TCP, and their ports.
const PORTS: [(&str, u16); 5] = [("rtsp", 554), ("rtsps", 322), ("rtmp", 1935), ("http", 80), ("https", 443)];
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses a stream whose host does not answer, before its time is up: a camera that is off would hold up the others.
///
/// # Errors
/// [`ErrorKind::Io`] if no connection can be made. An address of another form is left to whoever opens it.
pub fn check(url: &str) -> Result<()> {
    let Some((host, port)) = address(url) else { return Ok(()) };
    let connect = || {
        let mut last = std::io::ErrorKind::NotFound.into();
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    connect().map_err(|error: std::io::Error| {
        let message = format!("cannot open the stream, {}: nothing answers: {error}", without_secrets(url));
        Error::new(ErrorKind::Io, message).with_source(error)
    })
}

/// Host and port of an address, unless a proxy is between.
fn address(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let (_, port) = PORTS.iter().find(|(known, _)| scheme.eq_ignore_ascii_case(known))?;
    let is_web = scheme.len() >= 4 && scheme[..4].eq_ignore_ascii_case("http");
    if is_web
        && ["http_proxy", "https_proxy", "all_proxy"].iter().any(|name| std::env::var_os(name).is_some())
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, *port),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{address, check};

    #[test]
    fn hosts_of_streams_are_found() {
        for (url, expected) in [
            ("rtsp://u:p@camera/1", Some(("camera", 554))),
            ("RTSP://u:p@w@10.0.0.7:8554/a:b", Some(("10.0.0.7", 8554))),
            ("rtmp://[fe80::1]/x", Some(("fe80::1", 1935))),
            ("rtsp://[::1]:99?x=1", Some(("::1", 99))),
            ("rtsp://u:a/b@camera/1", None),
            ("udp://@239.0.0.1:1234", None),
            ("rtsp:///x", None),
            ("street.mp4", None),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
    }

    #[test]
    fn a_host_that_does_not_answer_is_refused_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let url = format!("rtsp://u:secret@127.0.0.1:{port}/x");
        assert!(check(&url).is_ok());
        drop(listener);
        let error = check(&url).expect_err("nobody listens").to_string();
        assert!(error.contains("nothing answers") && !error.contains("secret"), "{error}");
        assert!(check("udp://127.0.0.1:9").is_ok());
    }
}
