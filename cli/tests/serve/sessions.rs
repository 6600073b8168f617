//! Sessions on a small random model with a tracker, whose masks are as random.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::time::Duration;

use ocelli::engine::EngineKind;
use ocelli::masklets::{Click, RunDirection, SessionSource, TrackedFrame, VideoSession, VideoSessionOptions};
use ocelli::{BoundingBox, Detector, Image, ModelSource, Prompt};
use serde_json::{Value, json};

use super::client::{OCELLI, Reply, Running, form};
use crate::checkpoints::copy;
use crate::run::Place;

const JSON: &str = "Content-Type: application/json";
const SIZE: [u32; 2] = [96, 72];

/// A place with an exported model.
pub(super) fn place() -> Place {
    let place = Place::new();
    copy(&place, "tracker", "checkpoint");
    place.succeed(OCELLI, &["export", "--quiet", "--checkpoint", "checkpoint", "--output", "model"]);
    place
}

/// A block that moves over a pattern.
pub(super) fn frame(number: u32) -> Vec<u8> {
    let pixel = |x: u32, y: u32| match (x.wrapping_sub(10 + 5 * number) < 24, (20..50).contains(&y)) {
        (true, true) => image::Rgb([250, 60, 20]),
        _ => image::Rgb([(x * 2) as u8, (y * 3) as u8, ((x * y) % 251) as u8]),
    };
    let mut bytes = Cursor::new(Vec::new());
    let image = image::RgbImage::from_fn(SIZE[0], SIZE[1], pixel);
    image.write_to(&mut bytes, image::ImageFormat::Png).expect("it can be encoded");
    bytes.into_inner()
}

fn images(frames: std::ops::Range<u32>) -> (String, Vec<u8>) {
    let files: Vec<Vec<u8>> = frames.map(frame).collect();
    form(&files.iter().map(|file| ("image", &file[..])).collect::<Vec<_>>())
}

/// Opens a session with frames; returns its address.
pub(super) fn open(server: &Running, frames: std::ops::Range<u32>) -> String {
    let (kind, body) = images(frames);
    let reply = server.send(&format!("POST /v1/sessions HTTP/1.1\r\n{kind}"), &body);
    assert_eq!(reply.status, 201, "{}", reply.text());
    format!("/v1/sessions/{}", reply.json()["id"].as_str().expect("it has one"))
}

pub(super) fn delete(server: &Running, address: &str) -> Reply {
    server.send(&format!("DELETE {address} HTTP/1.1"), b"")
}

/// The parts of a body that was sent piece by piece.
pub(super) fn chunks(mut body: &[u8]) -> Vec<String> {
    let mut chunks = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n").expect("a chunk has a length");
        let length = std::str::from_utf8(&body[..end]).expect("it is text");
        let length = usize::from_str_radix(length, 16).expect("it is a number");
        let content = &body[end + 2..][..length];
        if length == 0 {
            return chunks;
        }
        chunks.push(String::from_utf8_lossy(content).into_owned());
        body = &body[end + 2 + length + 2..];
    }
}

/// The lines of a run, each of which was sent by itself.
pub(super) fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{reply:?}"
    );
    let is_line = |chunk: &String| chunk.ends_with('\n') && chunk.matches('\n').count() == 1;
    let chunks = chunks(&reply.body);
    assert!(chunks.iter().all(is_line), "{chunks:?}");
    chunks.iter().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// A frame as the server has it.
fn record(frame: &TrackedFrame) -> Value {
    let objects = frame.objects.iter().map(|object| {
        let edges = object.bbox.to_xyxy().map(|edge| (f64::from(edge) * 1e2).round() / 1e2);
        let score = (f64::from(object.score) * 1e5).round() / 1e5;
        json!({"object": object.id, "score": score, "box": edges, "mask": object.mask})
    });
    json!({"frame": frame.frame, "objects": objects.collect::<Vec<_>>()})
}

/// The session of the library with as many frames.
fn session(place: &Place, frames: u32) -> VideoSession {
    let model = ModelSource::Folder(place.path("model"));
    let builder = Detector::builder().with_model(model).with_engine(EngineKind::Embedded).with_masks(true);
    let detector = builder.build().expect("the model was exported");
    let decoded = |number| Image::decode(&frame(number), "a frame").expect("it was encoded");
    let options = VideoSessionOptions::new(&detector);
    let mut session =
        VideoSession::new(detector, SessionSource::pushed(decoded(0)), options).expect("it has a tracker");
    for number in 1..frames {
        session.push(decoded(number)).expect("it is as large");
    }
    session
}

fn run(session: &mut VideoSession, direction: RunDirection, start: Option<usize>) -> Vec<Value> {
    let run = session.propagate(direction, start, None).expect("there are objects");
    run.map(|frame| record(&frame.expect("the graphs work"))).collect()
}

#[test]
fn sessions_are_those_of_the_library() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    let mut expected = session(&place, 5);
    // Frames with the session, in a form, and as a body.
    let address = open(&server, 0..2);
    let (kind, body) = images(2..4);
    let frames = format!("POST {address}/frames HTTP/1.1\r\n");
    assert_eq!(server.send(&format!("{frames}{kind}"), &body).status, 200);
    let pushed = server.send(&format!("{frames}Content-Type: image/png"), &frame(4)).json();
    assert_eq!((&pushed["frames"], &pushed["width"], &pushed["height"]), (&json!(5), &json!(96), &json!(72)));

    let prompt = |asked: Value| {
        let reply = server.post(&format!("{address}/prompts"), &asked);
        assert_eq!(reply.status, 200, "{asked}: {}", reply.text());
        reply.json()
    };
    let propagate =
        |asked: &[u8]| server.send(&format!("POST {address}/propagate HTTP/1.1\r\n{JSON}"), asked);
    let click = |x: f32, y: f32, is_foreground| Click { x: x / 96.0, y: y / 72.0, is_foreground };

    // Clicks begin an object, and a mask another.
    let mut shown = prompt(json!({"frame": 0, "points": [[20, 30], [90, 5]], "labels": [1, 0]}));
    let clicks = [click(20.0, 30.0, true), click(90.0, 5.0, false)];
    let mut clicked = record(&expected.add_points(0, 0, &clicks).expect("it is on the frame"));
    clicked["object"] = json!(0);
    assert_eq!(shown, clicked);
    let mask = json!({"frame": 1, "object": 7, "mask": shown["objects"][0]["mask"].take()});
    assert_eq!(prompt(mask.clone())["object"], 7);
    let mask = serde_json::from_value(mask["mask"].clone()).expect("it is a mask");
    expected.add_mask(7, 1, &mask).expect("it has pixels");
    let all = lines(&propagate(b""));
    assert_eq!(all, run(&mut expected, RunDirection::Forward, None));
    assert_eq!(all.len(), 5);
    assert_eq!(all[4]["objects"].as_array().map(Vec::len), Some(2), "{}", all[4]);

    // A correction, and one object less.
    prompt(json!({"frame": 3, "object": 0, "points": [[40, 40]]}));
    expected.add_points(0, 3, &[click(40.0, 40.0, true)]).expect("it is on the frame");
    let back = lines(&propagate(br#"{"direction": "both", "start": 3}"#));
    assert_eq!(back, run(&mut expected, RunDirection::Both, Some(3)));
    let removed = delete(&server, &format!("{address}/objects/7"));
    assert_eq!((removed.status, removed.json()["objects"].clone()), (200, json!([0])));
    expected.remove(7).expect("it is there");
    assert_eq!(lines(&propagate(b"{}")), run(&mut expected, RunDirection::Forward, None));
    assert_eq!(lines(&propagate(br#"{"start": 1, "max_frames": 1}"#)).len(), 2);

    // A box and a text start over.
    for (asked, shown) in [
        (
            json!({"frame": 1, "box": [15, 20, 39, 50]}),
            expected.add_box(1, BoundingBox::new(15.0, 20.0, 39.0, 50.0)),
        ),
        (
            json!({"frame": 0, "text": "dog", "box": [15, 20, 39, 50]}),
            expected.add_exemplars(
                0,
                Prompt::new("dog").with_exemplar(BoundingBox::new(15.0, 20.0, 39.0, 50.0), true),
            ),
        ),
        (json!({"frame": 0, "text": "dog"}), expected.add_text(0, "dog")),
    ] {
        assert_eq!(prompt(asked.clone()), record(&shown.expect("it has masks")), "{asked}");
    }
    // Nothing is left but the frames; then a box around an object, alone and with a click.
    let reset = server.post(&format!("{address}/reset"), &Value::Null);
    assert_eq!((reset.status, reset.json()["objects"].clone()), (200, json!([])), "{}", reset.text());
    assert_eq!(server.get(&format!("{address}/results")).text(), "");
    let segmented = |object: Value| {
        let objects = object.to_string();
        let (kind, body) = form(&[("image", &frame(1)), ("objects", objects.as_bytes())]);
        let reply = server.send(&format!("POST /v1/segment HTTP/1.1\r\n{kind}"), &body);
        reply.json()["objects"][0]["mask"].clone()
    };
    let shown = prompt(json!({"frame": 1, "box": [15, 20, 39, 50], "object": 4}));
    assert_eq!((&shown["object"], &shown["objects"][0]["object"]), (&json!(4), &json!(4)));
    assert_eq!(shown["objects"][0]["mask"], segmented(json!([{"box": [15, 20, 39, 50]}])));
    let next = server.get(&address).json()["next_object"].clone();
    let more = prompt(json!({"frame": 1, "box": [15, 20, 39, 50], "points": [[30, 30]]}));
    assert_eq!(more["object"], next);
    let ids = more["objects"].as_array().expect("a list").iter().map(|one| one["object"].clone());
    assert_eq!(ids.collect::<Vec<_>>(), [json!(4), next]);
    let state = server.get(&address).json();
    assert_eq!((&state["frames"], &state["running"]), (&json!(5), &json!(false)));
    assert_eq!(server.metric("ocelli_sessions"), 1.0);
    assert_eq!(delete(&server, &address).status, 204);
    for reply in [server.get(&address), delete(&server, &address), propagate(b"")] {
        assert_eq!(reply.status, 404, "{}", reply.text());
    }
    server.wait_for("ocelli_sessions", 0.0);
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn a_video_file_is_a_session() {
    let place = place();
    for (size, file) in [("96x72", "street.mp4"), ("128x96", "large.mp4")] {
        let drawn = format!("video|--quiet|--classes|dog|--scene-size|{size}|--max-frames|5|-o|{file}");
        place.succeed(OCELLI, &drawn.split('|').collect::<Vec<_>>());
    }
    let server = Running::start(&place, &["--model", "model", "--max-pixels", "8000"]);
    let open = |fields: &[(&str, &[u8])]| {
        let (kind, body) = form(fields);
        server.send(&format!("POST /v1/sessions HTTP/1.1\r\n{kind}"), &body)
    };
    let [video, large] = ["street.mp4", "large.mp4"].map(|file| place.read(file));
    let refused: [(&[(&str, &[u8])], &str); 7] = [
        (&[("video", &video), ("stream", b"1")], "no video stream 1: it has 1"),
        (&[("stream", b"0")], "expected a video beside it"),
        (&[("video", &large)], "128x96 is too large"),
        (&[("video", b"#EXTM3U\nfile:///etc/passwd")], "expected a file in MP4"),
        (&[("video", b"\0\0\0\x20ftypisom\0\0\0\0")], "the request"),
        (&[("video", &video), ("window", b"3")], "no window beside it"),
        (&[("video", &video), ("image", &frame(0))], "no images"),
    ];
    for (fields, words) in refused {
        let reply = open(fields);
        assert!(
            reply.status == 400 && reply.text().contains(words),
            "{words}: {} {}",
            reply.status,
            reply.text()
        );
        assert!(!reply.text().contains("ocelli-"), "the name of a file: {}", reply.text());
    }
    let opened = open(&[("video", &video), ("stream", b"0")]);
    assert_eq!(opened.status, 201, "{}", opened.text());
    let state = opened.json();
    assert_eq!((&state["frames"], &state["width"], &state["height"]), (&json!(5), &json!(96), &json!(72)));
    let address = format!("/v1/sessions/{}", state["id"].as_str().expect("it has one"));
    let frames = format!("POST {address}/frames HTTP/1.1\r\nContent-Type: image/png");
    let pushed = server.send(&frames, &frame(0));
    assert!(pushed.status == 400 && pushed.text().contains("has a video"), "{}", pushed.text());

    let model = ModelSource::Folder(place.path("model"));
    let builder = Detector::builder().with_model(model).with_engine(EngineKind::Embedded).with_masks(true);
    let detector = builder.build().expect("the model was exported");
    let options = VideoSessionOptions::new(&detector);
    let source = SessionSource::open(place.path("street.mp4")).expect("it was drawn");
    let mut expected = VideoSession::new(detector, source, options).expect("it has a tracker");
    let shown = server.post(&format!("{address}/prompts"), &json!({"frame": 3, "points": [[20, 30]]}));
    assert_eq!(shown.status, 200, "{}", shown.text());
    let click = Click { x: 20.0 / 96.0, y: 30.0 / 72.0, is_foreground: true };
    expected.add_points(0, 3, &[click]).expect("it is on the frame");
    let all = lines(&server.post(&format!("{address}/propagate"), &json!({"direction": "both"})));
    assert_eq!(all, run(&mut expected, RunDirection::Both, None));
    assert!(all.len() >= 5, "{all:?}");
}

/// Begins a run, and waits for its first line.
pub(super) fn begin(server: &Running, address: &str) -> BufReader<std::net::TcpStream> {
    let mut stream = BufReader::new(server.begin(&format!("POST {address}/propagate HTTP/1.1"), b"", 0));
    let mut line = String::new();
    while !line.starts_with("{\"frame\":0,") {
        line.clear();
        assert!(stream.read_line(&mut line).expect("the server answers") > 0, "no line");
    }
    stream
}

const LONG: u32 = 1680;

/// Opens a session with four objects and so many frames that no run ends by itself during a test.
fn open_long(server: &Running) -> String {
    let address = open(server, 0..140);
    let (kind, body) = images(0..140);
    for _ in 1..LONG / 140 {
        let head = format!("POST {address}/frames HTTP/1.1\r\n{kind}");
        assert_eq!(server.send(&head, &body).status, 200);
    }
    for x in [20, 40, 60, 80] {
        let click = json!({"frame": 0, "points": [[x, 30]]});
        assert_eq!(server.post(&format!("{address}/prompts"), &click).status, 200);
    }
    address
}

#[test]
fn a_run_ends_with_its_client_and_with_its_session() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    let address = open_long(&server);
    let click = json!({"frame": 0, "points": [[20, 30]]});
    let stream = begin(&server, &address);
    for path in ["prompts", "propagate"] {
        let refused = server
            .post(&format!("{address}/{path}"), &if path == "prompts" { click.clone() } else { json!({}) });
        assert!(
            refused.status == 409 && refused.text().contains("a run is under way"),
            "{path}: {refused:?}"
        );
    }
    assert_eq!(server.get(&address).json()["running"], true);
    drop(stream);
    let mut state = Value::Null;
    for _ in 0..1500 {
        state = server.get(&address).json();
        if state["running"] == false {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(state["running"], false, "{state}");
    assert!(state["passed"].as_u64() < Some(u64::from(LONG)), "the run went on without its client: {state}");
    server.wait_for("ocelli_arriving", 0.0);

    let mut stream = begin(&server, &address);
    assert_eq!(delete(&server, &address).status, 204);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the server ends the answer");
    assert!(
        rest.trim_end().ends_with("0") && rest.contains("{\"error\":\"the session was ended\"}"),
        "{rest}"
    );
}

#[test]
fn what_a_session_does_not_take_is_refused() {
    let place = place();
    let server = Running::start(&place, &["--model", "model", "--max-pixels", "10000"]);
    let built_in = Running::start(&place, &[]);
    let address = open(&server, 0..2);
    let mut large = Cursor::new(Vec::new());
    image::RgbImage::new(200, 100).write_to(&mut large, image::ImageFormat::Png).expect("it can be encoded");
    let mut other = Cursor::new(Vec::new());
    image::RgbImage::new(90, 72).write_to(&mut other, image::ImageFormat::Png).expect("it can be encoded");
    let push = |file: &[u8]| {
        server.send(&format!("POST {address}/frames HTTP/1.1\r\nContent-Type: image/png"), file)
    };
    let show = |asked: Value| server.post(&format!("{address}/prompts"), &asked);
    let run = |asked: Value| server.post(&format!("{address}/propagate"), &asked);
    let (kind, unknown) = form(&[("film", b"x")]);
    let empty_mask = json!({"size": [5, 5], "counts": "i0"});
    let rows = [
        (built_in.post("/v1/sessions", &json!({})), 400, "sessions, built-in: this model has no tracker"),
        (server.post("/v1/sessions", &json!({"window": 0})), 400, "window is 0"),
        (server.post("/v1/sessions", &json!({"frames": 3})), 400, "unknown field"),
        (server.send(&format!("POST /v1/sessions HTTP/1.1\r\n{kind}"), &unknown), 400, "film: no such field"),
        (push(b"x"), 400, "not an image"),
        (push(large.get_ref()), 400, "is too large"),
        (push(other.get_ref()), 400, "frames of one size"),
        (run(json!({})), 400, ""),
        (run(json!({"direction": "up"})), 400, "unknown variant"),
        (show(json!({"frame": 0})), 400, "expected one of text, box, points and mask"),
        (show(json!({"frame": 0, "text": "dog", "points": [[1, 1]]})), 400, "expected one of"),
        (show(json!({"frame": 0, "text": "dog", "box": [1, 1, 9, 9], "object": 1})), 400, "start over"),
        (show(json!({"frame": 0, "box": [900, 1, 909, 9], "object": 1})), 400, "has no pixel"),
        (show(json!({"frame": 0, "text": " "})), 400, "blank"),
        (show(json!({"frame": 0, "text": "x".repeat(300)})), 400, "at most 200 characters"),
        (show(json!({"frame": 0, "text": "dog", "object": 1})), 400, "start over"),
        (show(json!({"frame": 0, "box": [1, 1, 9, 9], "labels": [1]})), 400, "labels belong to points"),
        (show(json!({"frame": 9, "points": [[1, 1]]})), 400, "frame 9 is not in the video"),
        (show(json!({"frame": 0, "points": [[96, 1]]})), 400, "point 96,1 is outside the frame of 96 × 72"),
        (show(json!({"frame": 0, "points": []})), 400, ""),
        (show(json!({"frame": 0, "points": vec![[1, 1]; 257]})), 400, "at most 256"),
        (show(json!({"frame": 0, "points": [[1, 1]], "labels": [1, 0]})), 400, "labels has 2 numbers"),
        (show(json!({"frame": 0, "mask": empty_mask})), 400, "the mask has 5 × 5 pixels"),
        (show(json!({"frame": 0, "mask": {"size": [9], "counts": ""}})), 400, ""),
        (delete(&server, &format!("{address}/objects/5")), 404, "there is no object 5"),
        (delete(&server, &format!("{address}/objects/x")), 404, "objects have numbers"),
        (server.get("/v1/sessions/0"), 404, "there is no such session"),
        (server.post("/v1/sessions/0/prompts", &json!({})), 404, "there is no such session"),
        (server.post(&address, &json!({})), 405, "another method"),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .enumerate()
        .filter(|(_, (reply, status, words))| reply.status != *status || !reply.text().contains(words))
        .map(|(at, (reply, status, words))| {
            format!("{at}: expected {status} {words}, came {} {}", reply.status, reply.text())
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A session without frames says so.
    assert_eq!(delete(&server, &address).status, 204);
    let empty = (0..600).find_map(|_| {
        let reply = server.post("/v1/sessions", &json!({}));
        (reply.status == 201).then(|| reply.json()["id"].as_str().expect("it has one").to_owned())
    });
    let empty = empty.expect("the place of the other session is free");
    let reply = server.post(&format!("/v1/sessions/{empty}/prompts"), &json!({"frame": 0, "text": "dog"}));
    assert!(reply.status == 400 && reply.text().contains("push one first"), "{}", reply.text());
}

#[test]
fn sessions_and_their_memory_are_limited() {
    let place = place();
    // Four frames of 20,736 bytes, or two and the memory of an object, 20,480 bytes, in two.
    let limits =
        ["--model", "model", "--sessions", "2", "--session-bytes", "90000", "--session-idle", "3600"];
    let server = Running::start(&place, &limits);
    let address = open(&server, 0..4);
    let as_client = |client: u8| server.send_on(server.connect_as(client), "POST /v1/sessions HTTP/1.1", b"");
    let refused = as_client(1);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1")),
        "half of them: {}",
        refused.text()
    );
    assert!(refused.text().contains("too many sessions: expected at most 2"), "{}", refused.text());
    assert_eq!(as_client(2).status, 201);
    assert_eq!(as_client(3).status, 503);
    let push = |number| {
        server.send(&format!("POST {address}/frames HTTP/1.1\r\nContent-Type: image/png"), &frame(number))
    };
    let full = push(4);
    assert!(full.status == 413 && full.text().contains("the session takes"), "{}", full.text());
    let click = |address: &str| {
        server.post(&format!("{address}/prompts"), &json!({"frame": 0, "points": [[20, 30]]}))
    };
    // Objects count, too.
    let replies = [click(&address), click(&address)];
    assert_eq!(replies.each_ref().map(|reply| reply.status), [200, 413], "{replies:?}");
    assert!(replies[1].text().contains("remove objects"), "{}", replies[1].text());
    // A place is free once the thread has ended.
    let open_again = |fields: &[(&str, &[u8])]| {
        let (kind, body) = form(fields);
        let opened = (0..600).find_map(|_| {
            let reply = server.send(&format!("POST /v1/sessions HTTP/1.1\r\n{kind}"), &body);
            std::thread::sleep(Duration::from_millis(20));
            (reply.status == 201).then(|| reply.json())
        });
        let opened = opened.expect("a place is free");
        format!("/v1/sessions/{}", opened["id"].as_str().expect("it has one"))
    };
    assert_eq!(delete(&server, &address).status, 204);
    // A run ends where there is no room left.
    let address = open_again(&[("image", &frame(0)), ("image", &frame(1)), ("image", &frame(2))]);
    assert_eq!(click(&address).status, 200);
    let run = lines(&server.post(&format!("{address}/propagate"), &json!({})));
    let is_full = |line: &Value| line["error"].as_str().is_some_and(|why| why.contains("the session takes"));
    assert!(run.len() == 3 && run[1]["frame"] == 1 && is_full(&run[2]), "{run:?}");
    assert_eq!(delete(&server, &address).status, 204);
    // With a window there is room for any number of frames.
    let address = open_again(&[("window", b"2"), ("image", &frame(0))]);
    assert_eq!(click(&address).status, 200);
    for number in 1..6 {
        let head = format!("POST {address}/frames HTTP/1.1\r\nContent-Type: image/png");
        assert_eq!(server.send(&head, &frame(number)).status, 200, "frame {number}");
    }
    let state = server.get(&address).json();
    assert_eq!((&state["first_frame"], &state["frames"]), (&json!(4), &json!(6)), "{state}");
}

#[test]
fn a_session_that_is_not_used_ends() {
    let place = place();
    let server = Running::start(&place, &["--model", "model", "--session-idle", "0.2"]);
    let opened = server.post("/v1/sessions", &json!({}));
    assert_eq!(opened.status, 201, "{}", opened.text());
    let address = format!("/v1/sessions/{}", opened.json()["id"].as_str().expect("it has one"));
    server.wait_for("ocelli_sessions", 0.0);
    assert_eq!(server.get(&address).status, 404);
    let sent = server.send(&format!("POST {address}/frames HTTP/1.1\r\nContent-Type: image/png"), &frame(1));
    assert_eq!(sent.status, 404, "{}", sent.text());
}

/// The server ends while a session runs.
#[test]
fn ctrl_c_ends_a_run() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    let address = open_long(&server);
    let mut stream = begin(&server, &address);
    server.signal("-INT");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the server ends the answer");
    assert!(rest.trim_end().ends_with('0') && rest.contains("the session was ended"), "{rest}");
    let (status, error) = server.end();
    assert_eq!(status, Some(130), "{error}");
}
