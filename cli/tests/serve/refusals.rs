//! The server refuses strangers, other pages, and requests beyond the limits.

use std::io::Write;
use std::time::Instant;

use serde_json::json;

use super::client::{Running, base64, form, read_reply};
use super::{CLASSES, scene};
use crate::run::Place;

#[test]
fn requests_that_are_wrong_name_the_reason() {
    let place = Place::new();
    let limits = ["--max-bytes", "200000", "--max-pixels", "300000", "--max-classes", "3"];
    let server = Running::start(&place, &limits);
    let json = "Content-Type: application/json";
    let image = base64(&scene(0));
    let with = |more: &str| format!("{{\"image\": \"{image}\", {more}}}").into_bytes();
    let mut large = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(600, 600).write_to(&mut large, image::ImageFormat::Png).expect("it can be encoded");
    let large =
        format!("{{\"image\": \"{}\", \"classes\": [\"dog\"]}}", base64(large.get_ref())).into_bytes();
    let (multipart, unknown) = form(&[("image", b"x"), ("clases", b"dog")]);
    let (_, no_number) = form(&[("image", b"x"), ("classes", b"dog"), ("confidence", b"nan?")]);
    let (_, no_box) = form(&[("image", b"x"), ("exemplars", b"1,2,3")]);
    let post = "POST /v1/detect HTTP/1.1\r\n";
    let long = "a".repeat(300);
    let rows: Vec<(String, Vec<u8>, u16, &str)> = vec![
        (format!("{post}{json}"), b"{".to_vec(), 400, "EOF"),
        (format!("{post}{json}"), br#"{"clases": []}"#.to_vec(), 400, "unknown field `clases`"),
        (format!("{post}{json}"), br#"{"classes": ["dog"]}"#.to_vec(), 400, "image is missing"),
        (
            format!("{post}{json}"),
            br#"{"image": "!!!", "classes": ["dog"]}"#.to_vec(),
            400,
            r#"image is \"!!!\": expected the file in base64"#,
        ),
        (format!("{post}{json}"), with("\"classes\": 3"), 400, "names separated by commas"),
        (format!("{post}{json}"), br#"{"image": "eHh4", "classes": ["dog"]}"#.to_vec(), 400, "not an image"),
        (
            format!("{post}{json}"),
            br#"{"image": "http://a/b.png", "classes": ["dog"]}"#.to_vec(),
            400,
            "expected the file in base64",
        ),
        (format!("{post}{json}"), br#"{"image": "/etc/passwd", "classes": ["dog"]}"#.to_vec(), 400, ""),
        (format!("{post}{json}"), with("\"classes\": []"), 400, "classes is empty"),
        (format!("{post}{json}"), with("\"classes\": [\" \"]"), 400, "class 0 is blank"),
        (
            format!("{post}{json}"),
            with("\"classes\": [\"a\", \"b\", \"c\", \"d\"]"),
            400,
            "too many classes: expected at most 3",
        ),
        (format!("{post}{json}"), with(&format!("\"classes\": [\"{long}\"]")), 400, "at most 200 characters"),
        (format!("{post}{json}"), with("\"classes\": [\"dog\"], \"confidence\": 2"), 400, "confidence is 2"),
        (
            format!("{post}{json}"),
            with("\"classes\": [\"dog\"], \"max_detections\": 0"),
            400,
            "max_detections is 0",
        ),
        (format!("{post}{json}"), with("\"exemplars\": [{\"box\": [1, 1, 1, 5]}]"), 400, "no area"),
        (format!("{post}{json}"), with("\"exemplars\": [{\"box\": [9000, 1, 9005, 5]}]"), 400, ""),
        (
            format!("{post}{json}"),
            with("\"classes\": [\"a\", \"b\"], \"exemplars\": [{\"box\": [1, 1, 9, 9]}]"),
            400,
            "names no class",
        ),
        (format!("{post}{json}"), large, 400, "600x600 is too large"),
        (format!("{post}{json}"), vec![b' '; 210_000], 413, "limit"),
        (format!("{post}Content-Type: text/plain"), b"x".to_vec(), 415, "application/json"),
        (format!("{post}{multipart}"), unknown, 400, "clases: no such field"),
        (format!("{post}{multipart}"), no_number, 400, "expected a number from 0 to 1"),
        (format!("{post}{multipart}"), no_box, 400, "expected x1,y1,x2,y2 in pixels"),
        ("GET /v1/detect HTTP/1.1".into(), vec![], 405, "GET /v1/detect: this address takes another method"),
        ("GET /etc/passwd HTTP/1.1".into(), vec![], 404, "nothing at this address"),
        ("GET /page/..%2f..%2fCargo.toml HTTP/1.1".into(), vec![], 404, ""),
        ("GET /page/Cargo.toml HTTP/1.1".into(), vec![], 404, "no such file"),
        ("GET /v1/gallery HTTP/1.1".into(), vec![], 404, "without a gallery"),
        ("GET / HTTP/1.1\r\nHost: evil.example".into(), vec![], 403, "not a name of this server"),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80".into(), vec![], 403, ""),
        ("GET / HTTP/1.1\r\nHost: 10.1.2.3".into(), vec![], 403, ""),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost".into(), vec![], 403, ""),
        ("GET / HTTP/1.1\r\nHost:".into(), vec![], 403, ""),
        (format!("{post}{json}\r\nOrigin: http://evil.example"), b"{}".to_vec(), 403, "other pages"),
        (format!("{post}{json}\r\nOrigin: null"), b"{}".to_vec(), 403, "other pages"),
        (format!("{post}{json}\r\nSec-Fetch-Site: cross-site"), b"{}".to_vec(), 403, "other pages"),
    ];
    let mut wrong = Vec::new();
    for (head, body, status, words) in rows {
        let reply = server.send(&head, &body);
        if reply.status != status || !reply.text().contains(words) {
            let body = String::from_utf8_lossy(&body).chars().take(60).collect::<String>();
            wrong.push(format!(
                "{head:?} {body}: expected {status} {words:?}, got {} {}",
                reply.status,
                reply.text()
            ));
        }
        if reply.header("x-content-type-options") != Some("nosniff") {
            wrong.push(format!("{head:?}: no headers, {:?}", reply.headers));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:80"] {
        assert_eq!(server.send(&format!("GET /healthz HTTP/1.1\r\nHost: {host}"), b"").status, 200, "{host}");
    }
}

#[test]
fn other_machines_need_the_token() {
    let place = Place::new();
    let server = Running::start(&place, &["--listen", "0.0.0.0:0", "--host", "robot.local"]);
    let token = server.query.strip_prefix("?token=").expect("one was made").to_owned();
    // An address that is of use elsewhere, or on this machine if there is no network.
    assert!(!server.address.starts_with("0.0.0.0"), "{}", server.address);
    assert_eq!(token.len(), 32, "{token}");
    let refused = server.get("/");
    assert_eq!((refused.status, refused.text().contains("a token is needed")), (401, true));
    assert!(refused.header("www-authenticate").is_some_and(|ask| ask.starts_with("basic")));
    assert_eq!(server.get("/healthz").status, 200);
    for path in
        ["/metrics", "/openapi.json", "/v1/about", "/label-studio/health", "/page/app.js", "/?token=wrong"]
    {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    let pair = base64(format!("anyone:{token}").as_bytes());
    let wrong = base64(b"anyone:wrong");
    for (header, status) in [
        (format!("Authorization: Bearer {token}"), 200),
        (format!("Authorization: Basic {pair}"), 200),
        (format!("Cookie: a=b; ocelli_token={token}"), 200),
        ("Authorization: Bearer wrong".into(), 401),
        (format!("Authorization: Basic {wrong}"), 401),
        (format!("Cookie: ocelli_token={}", &token[1..]), 401),
    ] {
        let reply = server.send(&format!("GET /v1/about HTTP/1.1\r\nHost: robot.local:1\r\n{header}"), b"");
        assert_eq!(reply.status, status, "{header}");
    }
    let welcome = server.get(&format!("/?token={token}"));
    assert_eq!((welcome.status, welcome.header("location")), (303, Some("/")));
    let cookie = welcome.header("set-cookie").unwrap_or_default();
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    for (proto, is_secure) in [("https", true), ("HTTPS, http", true), ("http, https", false)] {
        let head = format!("GET /?token={token} HTTP/1.1\r\nX-Forwarded-Proto: {proto}");
        let welcome = server.send(&head, b"");
        let cookie = welcome.header("set-cookie").unwrap_or_default();
        assert_eq!(cookie.contains("; secure"), is_secure, "{proto}: {cookie}");
    }
    // The token alone is not enough for another page.
    let head = format!(
        "POST /v1/detect HTTP/1.1\r\nCookie: ocelli_token={token}\r\nOrigin: http://evil.example\r\nContent-Type: application/json"
    );
    assert_eq!(server.send(&head, b"{}").status, 403);
}

#[test]
fn slow_uploads_hold_up_their_client_alone_and_a_client_that_leaves_makes_room() {
    let place = Place::new();
    let server = Running::start(&place, &["--queue", "4", "--timeout", "8"]);
    let question = json!({"image": base64(&scene(4)), "classes": CLASSES});
    let hold = || {
        let mut stream = server.connect();
        let head = format!(
            "POST /v1/detect HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
            server.address
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        stream
    };
    // Half of the places.
    let (one, mut other) = (hold(), hold());
    let start = Instant::now();
    server.wait_for("ocelli_arriving", 2.0);
    let refused = server.post("/v1/detect", &question);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    // The other half is for other clients, and the engine's places are free.
    assert_eq!(server.metric("ocelli_free_slots"), 4.0);
    drop(one);
    server.wait_for("ocelli_arriving", 1.0);
    assert!(start.elapsed().as_secs() < 7, "room came from the time limit, not from the client that left");
    let answered = server.post("/v1/detect", &question);
    assert_eq!(answered.status, 200, "{}", answered.text());
    // The one that sends nothing more is answered in the end.
    let reply = read_reply_of_idle(&mut other);
    assert_eq!(reply.0, 504, "{}", reply.1);
    assert!(start.elapsed().as_secs_f64() > 7.5 && start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    server.wait_for("ocelli_free_slots", 4.0);
}

fn read_reply_of_idle(stream: &mut std::net::TcpStream) -> (u16, String) {
    let reply = read_reply(stream);
    (reply.status, reply.text())
}

/// The page's address is printed to stdout, which often goes to a log.
#[test]
fn a_token_that_was_configured_is_not_printed() {
    let place = Place::new();
    let token = "Qx7-kitchen-door-42";
    let server = Running::start(&place, &["--token", token]);
    assert_eq!(server.query, "");
    assert_eq!(server.get("/v1/about").status, 401);
    assert_eq!(server.get(&format!("/?token={token}")).status, 303);
    server.signal("-TERM");
    let (_, printed) = server.end();
    assert!(!printed.contains(token), "{printed}");
}
