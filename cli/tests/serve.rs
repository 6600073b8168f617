//! Runs `ocelli serve` with the built-in model, and talks to it.

mod clicks;
mod client;
mod features;
mod fields;
mod gallery;
mod label_studio;
mod limits;
mod load;
mod refusals;
mod sessions;
mod viewers;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::{Place, refusal};
use client::{OCELLI, Running, Socket, base64, form, read_reply};

/// A golden scene as a file.
fn scene(number: usize) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/scenes");
    std::fs::read(folder.join(format!("{number:02}.png"))).expect("the scenes are in the repository")
}

/// Classes of the golden scenes.
const CLASSES: [&str; 6] = ["cake", "house", "wine glass", "bottle", "tv", "bicycle"];

/// The image that `ocelli detect` reports.
fn expected(place: &Place, more: &[&str]) -> Value {
    let whole = ["detect", "--quiet", "--engine", "embedded", "--image", "scene.png", "--json", "-"];
    let text = place.succeed(OCELLI, &[&whole, more].concat());
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    report["images"][0].clone()
}

#[test]
fn detections_are_those_of_the_program() {
    let place = Place::new();
    place.write("scene.png", scene(3));
    let server = Running::start(&place, &[]);
    let names = CLASSES.join(",");
    let image = base64(&scene(3));
    let cases: [(&[&str], Value); 4] = [
        (&["--classes", &names], json!({"classes": CLASSES})),
        (&["--classes", &names, "--masks"], json!({"classes": CLASSES, "masks": true})),
        (
            &["--classes", &names, "--confidence", "0.7", "--nms", "0.2", "--max-det", "2"],
            json!({"classes": CLASSES, "confidence": 0.7, "nms": 0.2, "max_detections": 2}),
        ),
        (
            &["--exemplar", "20,20,120,120", "--confidence", "0.05"],
            json!({"exemplars": [{"box": [20, 20, 120, 120]}], "confidence": 0.05}),
        ),
    ];
    let mut found = 0;
    for (flags, mut question) in cases {
        let expected = expected(&place, flags);
        found += expected["detections"].as_array().map_or(0, Vec::len);
        let (kind, body) = form(&[("request", question.to_string().as_bytes()), ("image", &scene(3))]);
        let of_form = server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body);
        question["image"] = json!(image);
        for reply in [server.post("/v1/detect", &question), of_form] {
            assert_eq!(reply.status, 200, "{flags:?}: {}", reply.text());
            let reply = reply.json();
            for key in ["width", "height", "detections"] {
                assert_eq!(reply[key].to_string(), expected[key].to_string(), "{flags:?}");
            }
        }
    }
    assert!(found > 3, "{found} detections");
    // Names as in a form, and a box as a form has it.
    let text = server.post("/v1/detect", &json!({"image": image, "classes": names})).json();
    let (kind, body) =
        form(&[("image", &scene(3)), ("exemplars", b"20,20,120,120"), ("confidence", b"0.05")]);
    let of_box = server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body).json();
    for (answer, flags) in [
        (text, &["--classes", &names][..]),
        (of_box, &["--exemplar", "20,20,120,120", "--confidence", "0.05"]),
    ] {
        assert_eq!(answer["detections"].to_string(), expected(&place, flags)["detections"].to_string());
    }
    // The fields of a form for curl, and a data URI.
    let (kind, body) = form(&[
        ("image", &scene(3)),
        ("classes", names.as_bytes()),
        ("masks", b"true"),
        ("confidence", b"0.3"),
    ]);
    let of_fields = server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body).json();
    let uri = format!("data:image/png;base64,{image}");
    let of_uri = server.post("/v1/detect", &json!({"image": uri, "classes": CLASSES, "masks": true})).json();
    let expected = expected(&place, &["--classes", &names, "--masks"]);
    assert_eq!(of_fields["detections"].to_string(), expected["detections"].to_string());
    assert_eq!(of_uri["detections"], of_fields["detections"]);
}

#[test]
fn the_page_the_description_and_the_metrics_are_served() {
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // What the page names is there, and nothing comes from elsewhere.
    let mut texts = vec![page.text()];
    let mut files: Vec<String> = Vec::new();
    while let Some(text) = texts.pop() {
        assert!(!text.contains("https://"), "{text}");
        for file in text.split('"').filter(|part| part.starts_with("/page/")) {
            if !files.iter().any(|known| known == file) {
                let reply = server.get(file);
                assert_eq!(reply.status, 200, "{file}");
                files.push(file.to_owned());
                texts.push(reply.text());
            }
        }
    }
    assert!(files.len() >= 9, "{files:?}");
    // The example and its names fit.
    let example = server.get("/page/example.png");
    assert_eq!(example.header("content-type"), Some("image/png"));
    let names = server.get("/v1/about").json()["example"].clone();
    let found = server.post("/v1/detect", &json!({"image": base64(&example.body), "classes": names})).json();
    let found = found["detections"].as_array().expect("a list");
    for name in names.as_array().expect("a list") {
        assert!(found.iter().any(|one| one["label"] == *name), "{name}: {found:?}");
    }
    let description = server.get("/openapi.json").json();
    let paths = description["paths"].as_object().expect("it has paths");
    for (path, methods) in paths {
        let methods = methods.as_object().expect("it has methods").keys().filter(|key| *key != "parameters");
        for method in methods.map(|method| method.to_uppercase()) {
            let path = path.replace("{id}", "0").replace("{file}", "app.js").replace("{object}", "0");
            let reply = server.send(&format!("{method} {path} HTTP/1.1"), b"");
            assert!(
                reply.status != 405 && !reply.text().contains("nothing at this address"),
                "{method} {path}"
            );
        }
    }
    assert_eq!(server.get("/healthz").json(), json!({"status": "ok"}));
    let asked = server.post("/v1/detect", &json!({"image": base64(&scene(1)), "classes": ["house"]}));
    assert_eq!(asked.status, 200, "{}", asked.text());
    let metrics = server.get("/metrics").text();
    for line in [
        "ocelli_images_total 2",
        "ocelli_stage_seconds_count{stage=\"backbone\"} 2",
        "ocelli_requests_total{route=\"/v1/detect\",status=\"200\"} 2",
        "ocelli_queue_depth 0",
        "# TYPE ocelli_request_seconds histogram",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    }
    let names: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(value.parse::<f64>().is_ok() && names.iter().any(|known| name.starts_with(known)), "{line}");
    }
}

#[test]
fn videos_count_as_connections() {
    let place = Place::new();
    let server = Running::start(&place, &["--connections", "6", "--queue", "12"]);
    let mut sockets: Vec<Socket> = Vec::new();
    for open in 1..=2 {
        sockets.push(Socket::open(&server, "").expect("it opens"));
        // The one that asks counts too; it is another client, so that none of its connections is in the way of the next.
        server.wait_as(2, "ocelli_connections", f64::from(open + 1));
    }
    // Half of the connections.
    sockets.push(Socket::open(&server, "").expect("it opens"));
    let refused = server.get("/healthz");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert!(refused.json()["error"].as_str().is_some_and(|why| why.contains("connections")));
    assert_eq!(server.send_on(server.connect_as(2), "GET /healthz HTTP/1.1", b"").status, 200);
    drop(sockets.pop());
    server.wait_for("ocelli_videos", 2.0);
}

/// One client has a quarter of the places of requests for videos.
#[test]
fn videos_leave_places_to_requests() {
    let place = Place::new();
    let server = Running::start(&place, &["--queue", "4"]);
    let socket = Socket::open(&server, "").expect("it opens");
    assert_eq!(Socket::open(&server, "").err(), Some(503));
    assert_eq!(server.get("/healthz").status, 200);
    drop(socket);
    server.wait_for("ocelli_videos", 0.0);
    assert!(Socket::open(&server, "").is_ok(), "its place is free again");
}

#[test]
fn frames_of_a_video_are_answered_and_newer_ones_replace_older() {
    const FRAMES: u64 = 30;
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let mut socket = Socket::open(&server, "").expect("it opens");
    socket.send(2, &scene(0));
    assert!(
        socket
            .receive()
            .is_some_and(|said| said["error"].as_str().is_some_and(|why| why.contains("classes")))
    );
    socket.send(1, br#"{"classes": []}"#);
    assert!(socket.receive().is_some_and(|said| said["error"].is_string()));
    socket.send(1, json!({"classes": CLASSES}).to_string().as_bytes());
    assert_eq!(socket.receive(), Some(json!({"ready": true})));
    for number in 1..=FRAMES {
        socket.send(2, &scene(number as usize % 5));
    }
    let (mut answered, mut last, mut dropped) = (0, 0, 0);
    while last < FRAMES {
        let said = socket.receive().expect("the server answers");
        let frame = said["frame"].as_u64().expect("it names the frame");
        assert!(frame > last, "{frame} after {last}");
        // Each answer is about its own frame.
        let image = json!({"image": base64(&scene(frame as usize % 5)), "classes": CLASSES});
        if frame == FRAMES {
            assert_eq!(said["detections"], server.post("/v1/detect", &image).json()["detections"]);
        }
        (answered, last, dropped) = (answered + 1, frame, said["dropped"].as_u64().unwrap_or(0));
    }
    assert_eq!(answered + dropped, FRAMES);
    assert_eq!(server.metric("ocelli_frames_received_total") as u64, FRAMES + 1);
    assert_eq!(server.metric("ocelli_frames_done_total") as u64, answered);
    drop(socket);
    server.wait_for("ocelli_videos", 0.0);
    assert_eq!(Socket::open(&server, "Origin: http://evil.example\r\n").err(), Some(403));
    let own = format!("Origin: http://{}\r\n", server.address);
    let mut socket = Socket::open(&server, &own).expect("it opens");
    // The end of the server ends the video.
    server.signal("-INT");
    assert_eq!(socket.receive(), None);
    assert_eq!(server.end().0, Some(130));
}

#[test]
fn ctrl_c_finishes_the_request_at_hand() {
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let body = json!({"image": base64(&scene(2)), "classes": CLASSES, "masks": true}).to_string();
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/detect HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    server.wait_for("ocelli_arriving", 1.0);
    server.signal("-INT");
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(body.as_bytes()).expect("the server reads");
    let reply = read_reply(&mut stream);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(!reply.json()["detections"].as_array().expect("a list").is_empty());
    let (status, error) = server.end();
    assert_eq!(status, Some(130), "{error}");
    assert!(error.contains("stopping after this step"), "{error}");
}

#[test]
fn wrong_usage_is_refused() {
    let place = Place::new();
    place.folder("empty");
    place.write("file", "x");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = format!("serve|--listen|{}", taken.local_addr().expect("it listens"));
    let taken_without_model = format!("{taken}|--model|nowhere");
    place.refuses(
        OCELLI,
        &[
            refusal("serve|--listen|nowhere", 2, &["--listen", "such as 127.0.0.1:8080"]),
            refusal("serve|--listen|127.0.0.1:0|--token|short", 2, &["token", "at least 12"]),
            // It would not be the same in an address and in a cookie.
            refusal("serve|--listen|127.0.0.1:0|--token|kitchen&door#42;%41", 2, &["token", "-._~"]),
            refusal("serve|--listen|127.0.0.1:0|--max-classes|100001", 2, &["--max-classes is 100001"]),
            // Before the model is looked for.
            refusal(
                "serve|--model|nowhere|--listen|127.0.0.1:0|--gallery|none",
                2,
                &["gallery, none: no such folder"],
            ),
            refusal(&taken_without_model, 1, &["cannot listen on", "choose another address"]),
            refusal(
                "serve|--listen|127.0.0.1:0|--host|http://a",
                2,
                &["host \"http://a\"", "without http://"],
            ),
            refusal("serve|--listen|127.0.0.1:0|--tile|8", 2, &["--tile", "at least 32 pixels"]),
            refusal("serve|--listen|127.0.0.1:0|--tile|auto|--low-memory", 2, &["--tile", "cannot be used"]),
            refusal("serve|--listen|127.0.0.1:0|--feature-cache|-1", 2, &["--feature-cache"]),
            refusal("serve|--listen|127.0.0.1:0|--queue|0", 2, &["queue is 0", "--queue"]),
            refusal("serve|--listen|127.0.0.1:0|--timeout|-1", 2, &["--timeout is -1"]),
            refusal("serve|--listen|127.0.0.1:0|--videos|none", 2, &["videos, none: no such folder"]),
            refusal("serve|--listen|127.0.0.1:0|--gallery|none", 2, &["gallery, none: no such folder"]),
            refusal(
                "serve|--listen|127.0.0.1:0|--gallery|empty",
                2,
                &["not a labelled data set", "label the images first"],
            ),
            refusal("serve|--listen|127.0.0.1:0|--label-studio|https://a", 2, &["https is not supported"]),
            refusal(&taken, 1, &["cannot listen on", "choose another address"]),
        ],
    );
}
