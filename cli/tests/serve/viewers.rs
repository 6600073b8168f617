//! Everybody who has a session's address sees the same: results, images, names and files.

use serde_json::{Value, json};

use super::client::{Reply, Running};
use super::sessions::{begin, delete, frame, lines, open, place};

/// The lines of an answer that was sent at once.
fn results(server: &Running, address: &str, since: u64) -> Vec<Value> {
    let reply = server.get(&format!("{address}/results?since={since}"));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    reply.text().lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// A file that was sent piece by piece.
fn file(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut body = &reply.body[..];
    let mut file = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n").expect("a chunk has a length");
        let length = std::str::from_utf8(&body[..end]).expect("it is text");
        let length = usize::from_str_radix(length, 16).expect("it is a number");
        if length == 0 {
            return file;
        }
        file.extend_from_slice(&body[end + 2..][..length]);
        body = &body[end + 2 + length + 2..];
    }
}

fn put(server: &Running, address: &str, body: &Value) -> Reply {
    let head = format!("PUT {address} HTTP/1.1\r\nContent-Type: application/json");
    server.send(&head, body.to_string().as_bytes())
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

#[test]
fn results_images_names_and_files_are_those_of_the_session() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    let address = open(&server, 0..4);
    let nothing = server.get(&format!("{address}/download?format=youtube-vis"));
    assert!(nothing.status == 400 && nothing.text().contains("no results yet"), "{}", nothing.text());
    assert_eq!(results(&server, &address, 0), Vec::<Value>::new());
    for x in [20, 60] {
        let click = json!({"frame": 0, "points": [[x, 30]]});
        assert_eq!(server.post(&format!("{address}/prompts"), &click).status, 200);
    }
    let run = lines(&server.post(&format!("{address}/propagate"), &json!({})));
    assert_eq!(results(&server, &address, 0), run);

    // Whoever knows a revision asks for what came after it.
    let state = server.get(&address).json();
    let revision = state["revision"].as_u64().expect("a number");
    assert_eq!(
        (&state["names"], &state["frame_rate"]),
        (&json!({"0": "object", "1": "object"}), &json!(25.0))
    );
    assert_eq!(results(&server, &address, revision), Vec::<Value>::new());
    let named = put(&server, &format!("{address}/objects/1"), &json!({"name": "  red   block "})).json();
    assert_eq!(named["names"], json!({"0": "object", "1": "red block"}));
    assert!(named["revision"].as_u64() > Some(revision));
    for (object, body, status) in [
        ("7", json!({"name": "x"}), 404),
        ("x", json!({"name": "x"}), 404),
        ("1", json!({"title": "x"}), 400),
    ] {
        assert_eq!(
            put(&server, &format!("{address}/objects/{object}"), &body).status,
            status,
            "{object} {body}"
        );
    }
    let long = put(&server, &format!("{address}/objects/1"), &json!({"name": "x".repeat(201)}));
    assert_eq!(long.status, 400, "{}", long.text());

    let image = server.get(&format!("{address}/frames/2"));
    assert_eq!((image.status, image.header("content-type")), (200, Some("image/jpeg")));
    let shown = image::load_from_memory(&image.body).expect("it is a JPEG").into_rgb8();
    let pushed = image::load_from_memory(&frame(2)).expect("it is a PNG").into_rgb8();
    let distance: u64 = shown.iter().zip(pushed.iter()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(shown.dimensions() == (96, 72) && distance / (96 * 72 * 3) < 12, "{distance}");
    for wrong in ["4", "-1", "x"] {
        assert_eq!(server.get(&format!("{address}/frames/{wrong}")).status, 404, "{wrong}");
    }

    let download = |format: &str| server.get(&format!("{address}/download?format={format}"));
    assert_eq!(download("gif").status, 400);
    let reply = download("youtube-vis");
    assert_eq!(reply.header("content-disposition"), Some("attachment; filename=\"objects.json\""));
    let youtube: Value = serde_json::from_slice(&file(&reply)).expect("it is JSON");
    assert_eq!(youtube["categories"], json!([{"id": 1, "name": "object"}, {"id": 2, "name": "red block"}]));
    assert_eq!(youtube["videos"][0]["length"], 4);
    let masks = |frame: &Value, object: usize| frame["objects"][object]["mask"].clone();
    let ours: Vec<Value> = run.iter().map(|frame| masks(frame, 0)).collect();
    assert_eq!(youtube["annotations"][0]["segmentations"], json!(ours));
    let archive = file(&download("masks"));
    assert!(archive.starts_with(b"PK\x03\x04"));
    assert_eq!((count(&archive, b"\x89PNG"), count(&archive, b"PK\x01\x02")), (4, 4));
    #[cfg(not(without_video))]
    {
        let reply = download("mp4");
        assert_eq!(reply.header("content-type"), Some("video/mp4"));
        assert_eq!(&file(&reply)[4..8], b"ftyp");
    }

    // An object that goes is gone from all frames, for those who know them, too.
    let revision = server.get(&address).json()["revision"].as_u64().expect("a number");
    assert_eq!(delete(&server, &format!("{address}/objects/1")).status, 200);
    let changed = results(&server, &address, revision);
    assert_eq!(changed.len(), 4);
    assert_eq!(changed, results(&server, &address, 0));
    assert!(
        changed.iter().all(|frame| frame["objects"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|one| one["object"] == 0))
    );
    // A text starts over.
    let started = server.get(&address).json()["started"].clone();
    let found = server.post(&format!("{address}/prompts"), &json!({"frame": 1, "text": "dog"})).json();
    let state = server.get(&address).json();
    assert_eq!(
        (&state["text"], &state["names"].as_object().map(|names| names.values().all(|name| name == "dog"))),
        (&json!("dog"), &Some(true))
    );
    assert_ne!(state["started"], started);
    assert_eq!(results(&server, &address, 0), [found]);
}

#[test]
fn videos_of_a_folder_are_opened_by_name() {
    let place = place();
    for number in 0..200 {
        place.write(&format!("videos/street/{number:03}.png"), frame(number % 10));
    }
    place.write("videos/notes.txt", b"no video");
    let server = Running::start(&place, &["--model", "model", "--videos", "videos"]);
    assert_eq!(server.get("/v1/videos").json(), json!({"videos": ["street"]}));
    let about = server.get("/v1/about").json();
    assert_eq!((&about["sessions"], &about["videos"]), (&json!(true), &json!(true)));
    for (asked, status) in [
        (json!({"video": "notes.txt"}), 404),
        (json!({"video": "../videos/street"}), 404),
        (json!({"video": "street", "window": 2}), 400),
    ] {
        let refused = server.post("/v1/sessions", &asked);
        assert_eq!(refused.status, status, "{asked}: {}", refused.text());
    }
    let opened = server.post("/v1/sessions", &json!({"video": "street"}));
    assert_eq!(opened.status, 201, "{}", opened.text());
    let state = opened.json();
    assert_eq!((&state["video"], &state["frames"]), (&json!("street"), &json!(200)));
    let address = format!("/v1/sessions/{}", state["id"].as_str().expect("it has one"));
    assert_eq!(
        server.post(&format!("{address}/prompts"), &json!({"frame": 0, "points": [[20, 30]]})).status,
        200
    );
    // Others look at images and results, and name objects, while a run is under way.
    let stream = begin(&server, &address);
    assert_eq!(server.get(&address).json()["running"], true);
    assert_eq!(server.get(&format!("{address}/frames/7")).status, 200);
    assert!(!results(&server, &address, 0).is_empty());
    assert_eq!(put(&server, &format!("{address}/objects/0"), &json!({"name": "block"})).status, 200);
    assert_eq!(server.get(&address).json()["running"], true, "the run went on");
    drop(stream);
    assert_eq!(delete(&server, &address).status, 204);
    assert_eq!(server.get(&format!("{address}/frames/7")).status, 404);
    drop(server);

    let plain = Running::start(&place, &["--model", "model"]);
    assert_eq!(plain.get("/v1/videos").json(), json!({"videos": []}));
    assert_eq!(plain.post("/v1/sessions", &json!({"video": "street"})).status, 404);
}
