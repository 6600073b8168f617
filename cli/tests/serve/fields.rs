//! No field is dropped without a word: every route takes it for what it means, or refuses it and says why.

use serde_json::{Value, json};

use super::client::{Reply, Running, base64, form};
use super::scene;
use crate::run::Place;

/// A form and what comes: the status, and a part of the text.
type Row<'r> = (&'r str, Vec<(&'r str, &'r [u8])>, u16, &'r str);

/// Sends each row to a route. Returns the ones that are not as expected.
fn wrong(server: &Running, route: &str, rows: Vec<Row<'_>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, fields, status, words) in rows {
        let (kind, body) = form(&fields);
        let reply = server.send(&format!("POST {route} HTTP/1.1\r\n{kind}"), &body);
        if reply.status != status || !reply.text().contains(words) {
            wrong.push(format!(
                "{route}, {name}: expected {status} {words}, came {} {}",
                reply.status,
                reply.text()
            ));
        }
    }
    wrong
}

fn labels(reply: &Reply) -> Vec<Value> {
    let found = reply.json();
    found["detections"]
        .as_array()
        .map_or_else(Vec::new, |all| all.iter().map(|one| one["label"].clone()).collect())
}

#[test]
fn detections() {
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let file_of_scene = scene(3);
    let image = ("image", &file_of_scene[..]);
    let ask = |fields: &[(&str, &[u8])]| {
        let (kind, body) = form(&[&[image], fields].concat());
        server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body)
    };
    let plain = ask(&[("classes", b"cake,house,wine glass")]);
    assert!(!labels(&plain).is_empty(), "{}", plain.text());
    // The same in other words.
    let whole = br#"{"classes": ["cake", "house", "wine glass"]}"#;
    for fields in [
        &[("classes", &br#"["cake", "house", "wine glass"]"#[..])][..],
        &[("classes", b"cake\r\nhouse\r\nwine glass\r\n")],
        &[("classes", b"cake"), ("classes", br#" ["house","wine glass"]"#)],
        &[("classes", br#""cake,house,wine glass""#)],
        &[("request", whole), ("confidence", b"0.3")],
        &[("confidence", b"0.3"), ("request", br#"{"classes": "cake,house,wine glass", "confidence": 0.9}"#)],
    ] {
        let reply = ask(fields);
        assert_eq!(reply.json()["detections"], plain.json()["detections"], "{}: {fields:?}", reply.text());
    }
    let rows: Vec<Row<'_>> = vec![
        ("two images", vec![image, image, ("classes", b"tv")], 400, "image is there twice: expected it once"),
        ("two thresholds", vec![image, ("nms", b"0.1"), ("nms", b"0.2")], 400, "nms is there twice"),
        ("two requests", vec![("request", b"{}"), ("request", b"{}")], 400, "request is there twice"),
        (
            "an image in the request",
            vec![image, ("request", br#"{"image": "eA==", "classes": "tv"}"#)],
            400,
            "the field image",
        ),
        ("half a list", vec![image, ("classes", br#"["cake""#)], 400, "a list of names in JSON"),
        ("an object", vec![image, ("classes", br#"{"cake": 1}"#)], 400, "a list of names"),
        ("quotes around one", vec![image, ("classes", br#""red car",cake"#)], 400, "a list of names in JSON"),
        ("a number in a list", vec![image, ("classes", b"[1]")], 400, "a list of names in JSON"),
        (
            "unknown",
            vec![image, ("clases", b"tv")],
            400,
            "clases: no such field; the fields are image, request,",
        ),
        ("no text", vec![image, ("tile", b"\xff")], 400, "tile: expected text in UTF-8"),
    ];
    let mut wrong = wrong(&server, "/v1/detect", rows);
    // As `curl -F file=@x.png` sends it.
    let file = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.png\"\r\n\r\n\x89PNG\r\n--b--\r\n";
    let head =
        |route: &str| format!("POST {route} HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b");
    for route in ["/v1/detect", "/v1/segment"] {
        let text = server.send(&head(route), file).text();
        if route == "/v1/detect"
            && !text.contains("file: no such field for a file; the file of an image goes into image")
        {
            wrong.push(text);
        }
    }
    // `null` is as if it was not there, and lines of base64 are one text.
    let lines = base64(&file_of_scene)
        .as_bytes()
        .chunks(76)
        .map(|line| format!("{}\r\n", String::from_utf8_lossy(line)))
        .collect::<String>();
    let question = json!({
        "image": lines, "classes": ["cake", "house", "wine glass"], "confidence": null, "nms": null, "class_agnostic_nms": null,
        "max_detections": null, "masks": null, "exemplars": null, "tile": null, "tile_overlap": null,
    });
    let reply = server.post("/v1/detect", &question);
    if reply.status != 200 || reply.json()["detections"] != plain.json()["detections"] {
        wrong.push(format!("null: {}", reply.text()));
    }
    let exemplars = json!([{"box": [20, 20, 120, 120], "wanted": null, "class": null}]);
    let asked = json!({"image": base64(&file_of_scene), "classes": null, "exemplars": exemplars});
    let reply = server.post("/v1/detect", &asked);
    if reply.status != 200 {
        wrong.push(format!("null in an exemplar: {}", reply.text()));
    }
    // Parameters of the address, where they are unknown or there twice.
    for (path, words) in [
        ("/v1/about?x=1", "parameter x of the address: expected none"),
        ("/v1/gallery?form=200", "parameter form of the address: expected from once, and no other"),
        ("/v1/gallery?from=0&from=200", "parameter from of the address: expected from once"),
        ("/v1/sessions/0/results?sinse=2", "expected since once"),
        ("/v1/sessions/0/download?mp4", "expected format once"),
    ] {
        let reply = server.get(path);
        if reply.status != 400 || !reply.text().contains(words) {
            wrong.push(format!("{path}: {} {}", reply.status, reply.text()));
        }
    }
    let reply = server.post("/v1/detect?masks=true", &json!({}));
    if reply.status != 400 || !reply.text().contains("parameter masks of the address") {
        wrong.push(reply.text());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn objects_and_sessions() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "tracker", "checkpoint");
    let path = place.path("checkpoint");
    let server = Running::start(&place, &["--model", &path.to_string_lossy()]);
    let file_of_scene = scene(3);
    let image = ("image", &file_of_scene[..]);
    let objects = br#"[{"points": [[30, 40]]}]"#;
    let rows: Vec<Row<'_>> = vec![
        ("objects", vec![image, ("objects", objects)], 200, r#""object":0"#),
        (
            "objects in two fields",
            vec![image, ("objects", objects), ("objects", objects)],
            400,
            "objects is there twice",
        ),
        ("two images", vec![image, image, ("objects", objects)], 400, "image is there twice"),
        (
            "a request and a field",
            vec![
                ("objects", objects),
                ("request", br#"{"objects": [{"box": [1, 2, 30, 40]}], "multimask": null}"#),
                image,
            ],
            200,
            r#""object":1"#,
        ),
        (
            "null",
            vec![
                image,
                ("request", br#"{"objects": [{"points": null, "labels": null, "box": [1, 2, 30, 40]}]}"#),
            ],
            200,
            r#""object":0"#,
        ),
        ("no objects", vec![image, ("request", br#"{"objects": null}"#)], 400, "objects is empty"),
        (
            "unknown",
            vec![image, ("object", objects)],
            400,
            "object: no such field; the fields are image, request,",
        ),
    ];
    let mut all = wrong(&server, "/v1/segment", rows);
    all.extend(wrong(
        &server,
        "/v1/sessions",
        vec![
            ("two windows", vec![image, ("window", b"2"), ("window", b"3")], 400, "window is there twice"),
            ("two videos", vec![("video", b"x"), ("video", b"y")], 400, "video is there twice"),
            ("a list", vec![image, ("window", b"[2]")], 400, "expected usize"),
        ],
    ));
    let opened = server.post("/v1/sessions", &json!({"window": null, "video": null}));
    let address = format!("/v1/sessions/{}", opened.json()["id"].as_str().expect("it is opened"));
    let frames = format!("{address}/frames");
    all.extend(wrong(
        &server,
        &frames,
        vec![
            ("no image", vec![], 400, "image is missing"),
            ("another name", vec![("picture", &file_of_scene)], 400, "picture: no such field"),
            ("two frames", vec![image, image], 200, r#""frames":2"#),
        ],
    ));
    for (path, asked) in [
        (
            "prompts",
            json!({"frame": 0, "points": [[30, 40]], "labels": null, "text": null, "box": null, "mask": null, "object": null}),
        ),
        ("propagate", json!({"direction": null, "start": null, "max_frames": null})),
    ] {
        let reply = server.post(&format!("{address}/{path}"), &asked);
        if reply.status != 200 {
            all.push(format!("{path}: {}", reply.text()));
        }
    }
    // Where the model lies is nobody's business.
    let metrics = server.get("/metrics").text();
    assert_eq!(server.get("/v1/about").json()["model"], "checkpoint");
    let versions = server.get("/label-studio/versions").text();
    for text in [&metrics, &versions] {
        assert!(text.contains("checkpoint") && !text.contains(&*path.to_string_lossy()), "{text}");
    }
    for (path, body) in [
        ("setup", json!({"schema": null})),
        ("predict", json!({"tasks": [], "label_config": "<View/>", "params": null})),
    ] {
        let reply = server.post(&format!("/label-studio/{path}"), &body);
        if reply.text().contains("null") {
            all.push(format!("{path}: {}", reply.text()));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
