//! The checks of every request: the host, the origin and the token; and the headers of every answer.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::config::ServeConfig;
use crate::http::connections::Ends;
use crate::http::problem::Problem;
use crate::state::App;

/// The cookie that a browser gets for the token in the page's address.
const COOKIE: &str = "ocelli_token";
/// Answers without a token, so that a service manager can ask.
const OPEN: &str = "/healthz";

/// The routes below `/v1/` whose address has a parameter.
const PARAMETERS: [(&str, &str); 3] = [
    ("/v1/gallery", "from"),
    ("/v1/sessions/{id}/results", "since"),
    ("/v1/sessions/{id}/download", "format"),
];

/// No other page may show or read an answer with these headers.
pub(crate) const ISOLATING: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
/// Scripts and styles come from this server alone, and no page may embed this one.
const OF_PAGES: [(&str, &str); 2] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; \
         connect-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("permissions-policy", "camera=(self), microphone=(), geolocation=()"),
];

/// The hash of a token: comparing hashes takes the same time for every wrong token.
fn hash_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Checks a request, limits its time, counts it, and adds the headers to its answer.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    route: Option<MatchedPath>,
    ends: Ends,
    request: Request,
    next: Next,
) -> Response {
    let start = std::time::Instant::now();
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    let answered = async {
        if let Some(welcome) = admit(&app.config, ends.server, &request)? {
            return Ok(welcome);
        }
        let limits = &app.config.limits;
        limits.check_declared(request.headers())?;
        check_parameters(route, request.uri().query().unwrap_or_default())?;
        limits.in_time(next.run(request)).await
    };
    let mut response = answered.await.unwrap_or_else(Problem::into_response);
    app.metrics.answered(route, response.status().as_u16(), start.elapsed().as_secs_f64());
    let headers = response.headers_mut();
    add_headers(headers, &ISOLATING);
    add_headers(headers, &OF_PAGES);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refuses parameters of the address that a route of the API does not know, and one that is there twice.
fn check_parameters(route: &str, query: &str) -> Result<(), Problem> {
    let known = PARAMETERS.iter().find(|(known, _)| *known == route).map_or("", |(_, name)| name);
    let names = query.split('&').filter_map(|pair| pair.split('=').next()).filter(|name| !name.is_empty());
    let wrong = names.clone().find(|name| *name != known).or(names.clone().nth(1));
    let Some(name) = wrong.filter(|_| route.starts_with("/v1/")) else { return Ok(()) };
    let expected = if known.is_empty() { "none; options are in the body" } else { " once, and no other" };
    Err(Problem::bad(format!("parameter {name} of the address: expected {known}{expected}")))
}

/// Adds headers in place of those that are there.
pub(crate) fn add_headers(headers: &mut HeaderMap, all: &[(&'static str, &'static str)]) {
    for (name, value) in all {
        headers.insert(*name, HeaderValue::from_static(value));
    }
}

/// Lets a request in. A browser that opens the page with the token in its address is welcomed with a cookie.
fn admit(config: &ServeConfig, own: IpAddr, request: &Request) -> Result<Option<Response>, Problem> {
    let headers = request.headers();
    let host = check_host(&config.hosts, request, own)?;
    let is_upgrade = headers.contains_key(header::UPGRADE);
    // Other pages may link to the page and to the description, but not make the server work.
    let is_work = is_upgrade || request.uri().path().starts_with("/v1/");
    if is_work || !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        check_origin(headers, host)?;
    }
    let token = config.token.as_deref().filter(|_| request.uri().path() != OPEN);
    let Some(hash) = token.map(hash_of) else { return Ok(None) };
    let refused = |why| Problem::new(StatusCode::UNAUTHORIZED, why);
    if let Some(given) = token_of_page(request) {
        if hash_of(given) != hash {
            return Err(refused("the token in the address is not the server's"));
        }
        // Each proxy on the way adds its own; the first is that of the browser.
        let proto =
            headers.get("x-forwarded-proto").and_then(|protos| protos.to_str().ok()?.split(',').next());
        let is_https = proto.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"));
        let secure = if is_https { "; Secure" } else { "" };
        let cookie = format!("{COOKIE}={given}; Path=/; HttpOnly; SameSite=Strict{secure}");
        let cookie = HeaderValue::from_str(&cookie).map_err(|_| Problem::bad("the token is not text"))?;
        let to_page = [(header::LOCATION, HeaderValue::from_static("/")), (header::SET_COOKIE, cookie)];
        return Ok(Some((StatusCode::SEE_OTHER, to_page).into_response()));
    }
    if tokens(headers).iter().any(|given| hash_of(given) == hash) {
        return Ok(None);
    }
    Err(refused(
        "a token is needed: send it as `Authorization: Bearer TOKEN`, or open the page with ?token=TOKEN",
    ))
}

/// A page of another name that resolves to this machine must not reach it (DNS rebinding). Returns the host with its port.
fn check_host<'r>(hosts: &[String], request: &'r Request, own: IpAddr) -> Result<&'r str, Problem> {
    let in_address = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let host = host_of(request);
    let is_known = |host: &str| {
        let is_name = |name: &String| name.eq_ignore_ascii_case(name_of(host));
        is_this_machine(host, Some(own)) || hosts.iter().any(is_name)
    };
    if is_known(host) && in_address.is_none_or(is_known) {
        return Ok(host);
    }
    let message = format!(
        "host \"{}\" is not a name of this server: add it when the server is started",
        host.chars().take(100).collect::<String>()
    );
    Err(Problem::new(StatusCode::FORBIDDEN, message))
}

/// The host that a request names, with its port.
pub(crate) fn host_of(request: &Request) -> &str {
    let in_header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let in_address = request.uri().authority().map(axum::http::uri::Authority::as_str);
    in_header.or(in_address).unwrap_or_default()
}

/// `true` if a host is this machine by its own name for itself, or by the address `own`.
pub(crate) fn is_this_machine(host: &str, own: Option<IpAddr>) -> bool {
    let name = name_of(host);
    let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    name.eq_ignore_ascii_case("localhost")
        || address.is_some_and(|address| address.is_loopback() || Some(address.to_canonical()) == own)
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => &host[..end + 2],
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Browsers name the page that sends a request; other programs do not.
pub(crate) fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_own = match text("origin") {
        None => !matches!(text("sec-fetch-site"), Some("cross-site" | "same-site")),
        Some(origin) => {
            let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
            authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
        }
    };
    if is_own {
        Ok(())
    } else {
        Err(Problem::new(StatusCode::FORBIDDEN, "requests of other pages are refused"))
    }
}

fn token_of_page(request: &Request) -> Option<&str> {
    let is_page = request.uri().path() == "/" && *request.method() == Method::GET;
    let query = request.uri().query().filter(|_| is_page)?;
    query.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// The tokens that a request has: as a bearer, as the password of basic authentication, or in the cookie.
fn tokens(headers: &HeaderMap) -> Vec<String> {
    let mut tokens = Vec::new();
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, given)) = authorization.and_then(|value| value.split_once(' ')) {
        if scheme.eq_ignore_ascii_case("bearer") {
            tokens.push(given.trim().to_owned());
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(given.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            tokens.extend(decoded.and_then(|pair| pair.split_once(':').map(|(_, word)| word.to_owned())));
        }
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    tokens.extend(pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned()));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_ports() {
        for (host, name) in
            [("a.b:80", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("[", "["), ("", ""), ("a", "a")]
        {
            assert_eq!(name_of(host), name);
        }
    }

    #[test]
    fn origins_of_other_pages_are_refused() {
        let cases = [
            (&[][..], true),
            (&[("origin", "http://localhost:8080")], true),
            (&[("origin", "https://LOCALHOST:8080")], true),
            (&[("origin", "http://localhost:8081")], false),
            (&[("origin", "http://localhost:8080.evil")], false),
            (&[("origin", "null")], false),
            (&[("origin", "http://evil")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "same-origin")], true),
        ];
        for (pairs, is_own) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(check_origin(&headers, "localhost:8080").is_ok(), is_own, "{pairs:?}");
        }
    }
}
