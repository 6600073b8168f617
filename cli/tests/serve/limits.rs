//! Every limit on every road in: JSON, a form, the WebSocket, Label Studio and the gallery. Other requests are answered
//! meanwhile.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{OCELLI, Reply, Running, Socket, base64, form, read_reply};
use super::{CLASSES, scene};
use crate::run::Place;

const JSON: &str = "Content-Type: application/json";

/// A request beyond a limit.
struct Row<'w> {
    road: &'static str,
    limit: &'static str,
    work: Box<dyn FnOnce() -> Said + Send + 'w>,
    /// The status, and a part of the text. Messages of a WebSocket have no status: 200 is an answer, 0 its end.
    expected: Expected,
}

type Said = (u16, String);
type Expected = (u16, &'static str);
/// The name of a field of a form, and its content.
type Field<'f> = (&'f str, &'f [u8]);

fn said(reply: &Reply) -> Said {
    (reply.status, reply.text())
}

/// Sends each row, and asks on another connection, as the client `health`, whether the server is well. Reports every row that
/// is not as expected.
fn check(server: &Running, health: u8, rows: Vec<Row<'_>>) {
    let count = rows.len();
    let mut wrong = Vec::new();
    for Row { road, limit, work, expected } in rows {
        std::thread::scope(|scope| {
            let asked = scope.spawn(work);
            let start = Instant::now();
            let status = server.send_on(server.connect_as(health), "GET /healthz HTTP/1.1", b"").status;
            let time = start.elapsed();
            let (came, text) = asked.join().expect("it does not panic");
            if status != 200 || time > Duration::from_secs(1) {
                wrong.push(format!("{road}, {limit}: /healthz {status} after {time:?}"));
            }
            if came != expected.0 || !text.contains(expected.1) {
                let text: String = text.chars().take(300).collect();
                wrong.push(format!("{road}, {limit}: expected {expected:?}, came {came} {text}"));
            }
        });
    }
    assert!(wrong.is_empty(), "{} of {count} rows:\n{}", wrong.len(), wrong.join("\n"));
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(width, height)
        .write_to(&mut bytes, image::ImageFormat::Png)
        .expect("it can be encoded");
    bytes.into_inner()
}

/// A labelling configuration with tags of rectangles, and a task with an image.
fn studio(tags: &str, image: &str) -> Vec<u8> {
    let config = format!(r#"<View><Image name="i" value="$i"/>{tags}</View>"#);
    let uri = format!("data:image/png;base64,{image}");
    json!({"tasks": [{"id": 1, "data": {"i": uri}}], "label_config": config}).to_string().into_bytes()
}

fn rectangles(names: &[&str]) -> String {
    let labels: String = names.iter().map(|name| format!(r#"<Label value="{name}"/>"#)).collect();
    format!(r#"<RectangleLabels name="r" toName="i">{labels}</RectangleLabels>"#)
}

/// Makes a data set of a scene and an image of 600 x 600.
fn gallery(place: &Place) {
    place.write("images/0.png", scene(0));
    place.write("images/1.png", png(600, 600));
    let label = "label|--quiet|--model|built-in|--engine|embedded|--images|images|--classes|house|-o|set";
    place.succeed(OCELLI, &label.split('|').collect::<Vec<_>>());
}

/// The ids of its images.
fn ids(server: &Running) -> [String; 2] {
    let list = server.get("/v1/gallery").json();
    [0, 1].map(|at| list["images"][at]["id"].as_str().expect("it has one").to_owned())
}

/// The answer of a WebSocket to a message after a question.
fn on_socket(server: &Running, kind: u8, message: &[u8]) -> Said {
    let mut socket = Socket::open(server, "").expect("it is opened");
    socket.send(1, br#"{"classes": ["house"]}"#);
    assert_eq!(socket.receive(), Some(json!({"ready": true})));
    socket.send(kind, message);
    socket.receive().map_or((0, String::new()), |said| (200, said.to_string()))
}

#[test]
fn bytes_pixels_classes_and_detections() {
    let place = Place::new();
    gallery(&place);
    let limits = [
        "--gallery",
        "set",
        "--max-bytes",
        "400000",
        "--max-pixels",
        "200000",
        "--max-classes",
        "3",
        "--max-det",
        "2",
    ];
    let server = Running::start(&place, &limits);
    let [id, wide] = ids(&server);
    let (save, predict) = (format!("PUT /v1/gallery/{id}"), "POST /label-studio/predict");
    let version = server.get(&format!("/v1/gallery/{id}")).json()["version"].clone();
    let (image, large) = (base64(&scene(0)), base64(&png(600, 600)));
    let (too_long, wide_file) = ("x".repeat(500_000), png(600, 600));
    let four = ["house", "cake", "tv", "bottle"];
    let boxes = vec![json!({"box": [1, 2, 30, 40]}); 33];
    let exemplars = json!(boxes).to_string();
    let named: String = four.iter().map(|name| rectangles(&[name])).collect();
    let many_tags: String = (0..17).map(|_| rectangles(&["house"])).collect();
    let correction = |count: usize| {
        let boxes = vec![json!({"class_id": 0, "box": [1, 2, 30, 40]}); count];
        json!({"version": version, "instances": boxes})
    };
    let json_bodies: Vec<(&str, &str, &str, Vec<u8>, Expected)> = vec![
        ("JSON", "bytes", "POST /v1/detect", value(json!({"image": too_long})), (413, "limit")),
        (
            "JSON",
            "pixels",
            "POST /v1/detect",
            value(json!({"image": large, "classes": ["tv"]})),
            (400, "is too large"),
        ),
        (
            "JSON",
            "classes",
            "POST /v1/detect",
            value(json!({"image": image, "classes": four})),
            (400, "at most 3"),
        ),
        (
            "JSON",
            "classes as a text",
            "POST /v1/detect",
            value(json!({"classes": four.join(",")})),
            (400, "at most 3"),
        ),
        (
            "JSON",
            "exemplars",
            "POST /v1/detect",
            value(json!({"image": image, "exemplars": boxes})),
            (400, "at most 32"),
        ),
        ("Label Studio", "bytes", predict, studio(&rectangles(&["house"]), &too_long), (413, "limit")),
        ("Label Studio", "pixels", predict, studio(&rectangles(&["house"]), &large), (400, "is too large")),
        ("Label Studio", "classes of a tag", predict, studio(&rectangles(&four), &image), (400, "at most 3")),
        ("Label Studio", "classes of all tags", predict, studio(&named, &image), (400, "at most 3")),
        ("Label Studio", "tags", predict, studio(&many_tags, &image), (400, "at most 16")),
        (
            "Label Studio, setup",
            "bytes",
            "POST /label-studio/setup",
            value(json!({"schema": too_long})),
            (413, "limit"),
        ),
        (
            "Label Studio, validate",
            "classes",
            "POST /label-studio/validate",
            value(
                json!({"config": format!(r#"<View><Image name="i" value="$i"/>{}</View>"#, rectangles(&four))}),
            ),
            (400, "at most 3"),
        ),
        (
            "Label Studio, webhook",
            "bytes",
            "POST /label-studio/webhook",
            value(json!({"a": too_long})),
            (413, "limit"),
        ),
        ("gallery", "bytes", &save, value(json!({"version": too_long, "instances": []})), (413, "limit")),
        ("gallery", "detections", &save, value(correction(3)), (400, "3 new boxes: expected at most 2")),
    ];
    let fields: Vec<(&str, Vec<Field<'_>>, Expected)> = vec![
        ("bytes", vec![("image", too_long.as_bytes()), ("classes", b"house")], (413, "limit")),
        ("pixels", vec![("image", &wide_file[..]), ("classes", b"house")], (400, "is too large")),
        ("classes", vec![("classes", b"house,cake,tv,bottle")], (400, "at most 3")),
        ("classes in several fields", vec![("classes", b"a,b"), ("classes", b"c,d")], (400, "at most 3")),
        (
            "classes in the request",
            vec![("request", br#"{"classes": ["a", "b", "c", "d"]}"#)],
            (400, "at most 3"),
        ),
        ("exemplars", vec![("exemplars", exemplars.as_bytes())], (400, "at most 32")),
        ("fields", vec![("confidence", b"0.5"); 60], (400, "too many fields")),
    ];
    let mut rows = Vec::new();
    let server = &server;
    for (road, limit, head, body, expected) in json_bodies {
        let head = format!("{head} HTTP/1.1\r\n{JSON}");
        let work = move || said(&server.send(&head, &body));
        rows.push(Row { road, limit, work: Box::new(work), expected });
    }
    for (limit, fields, expected) in fields {
        let (kind, body) = form(&fields);
        let head = format!("POST /v1/detect HTTP/1.1\r\n{kind}");
        let work = move || said(&server.send(&head, &body));
        rows.push(Row { road: "form", limit, work: Box::new(work), expected });
    }
    for (limit, kind, message, expected) in [
        ("bytes", 2, too_long.into_bytes(), (0, "")),
        ("pixels", 2, png(600, 600), (200, "is too large")),
        ("classes", 1, value(json!({"classes": four})), (200, "at most 3")),
        ("exemplars", 1, value(json!({"exemplars": boxes})), (200, "at most 32")),
    ] {
        let work = move || on_socket(server, kind, &message);
        rows.push(Row { road: "WebSocket", limit, work: Box::new(work), expected });
    }
    // A body that does not declare its length.
    let chunked = move || {
        let mut stream = server.connect();
        let size = 500_000;
        let head = format!(
            "POST /v1/detect HTTP/1.1\r\nHost: {}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{size:x}\r\n",
            server.address
        );
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b' '; size])));
        said(&read_reply(&mut stream))
    };
    rows.push(Row {
        road: "JSON",
        limit: "bytes in chunks",
        work: Box::new(chunked),
        expected: (413, "limit"),
    });
    let thumbnail = format!("/v1/gallery/{wide}/thumbnail");
    let work = move || said(&server.get(&thumbnail));
    rows.push(Row {
        road: "gallery",
        limit: "pixels",
        work: Box::new(work),
        expected: (400, "is too large"),
    });
    check(server, 2, rows);
    assert_eq!(
        server.send(&format!("{save} HTTP/1.1\r\n{JSON}"), &value(correction(2))).status,
        200,
        "within the limits"
    );
}

/// Of more detections than the limit, the best are kept, whatever the client asks for.
#[test]
fn answers_have_the_best_detections() {
    let place = Place::new();
    let server = Running::start(&place, &["--max-det", "2"]);
    let question = json!({"classes": CLASSES, "confidence": 0.0, "nms": 1.0, "max_detections": 50});
    let mut with_image = question.clone();
    with_image["image"] = json!(base64(&scene(3)));
    let of_json = server.post("/v1/detect", &with_image).json()["detections"].clone();
    let (kind, body) = form(&[("image", &scene(3)), ("request", question.to_string().as_bytes())]);
    let of_form =
        server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body).json()["detections"].clone();
    let mut socket = Socket::open(&server, "").expect("it is opened");
    socket.send(1, question.to_string().as_bytes());
    assert_eq!(socket.receive(), Some(json!({"ready": true})));
    socket.send(2, &scene(3));
    let of_socket = socket.receive().expect("it is answered")["detections"].clone();
    let predicted = server.send(
        &format!("POST /label-studio/predict HTTP/1.1\r\n{JSON}"),
        &studio(&rectangles(&CLASSES), &base64(&scene(3))),
    );
    let of_studio = predicted.json()["results"][0]["result"].clone();
    let count = |answer: &Value| answer.as_array().map(Vec::len);
    let counts = [&of_json, &of_form, &of_socket].map(count);
    assert_eq!(counts, [Some(2); 3], "{of_json} {of_form} {of_socket}");
    assert!((1..=2).contains(&count(&of_studio).unwrap_or(0)), "{of_studio}");
    assert!(of_json[0]["score"].as_f64() > of_json[1]["score"].as_f64(), "{of_json}");
}

/// Clicks have the limits of every request, and their own.
#[test]
fn objects_and_points() {
    let place = Place::new();
    crate::checkpoints::copy(&place, "tracker", "model");
    let limits = ["--model", "model", "--max-bytes", "400000", "--max-pixels", "200000"];
    let server = &Running::start(&place, &limits);
    let (small, large) = (base64(&scene(0)), base64(&png(600, 600)));
    let shown = |count: usize| json!(vec![json!({"points": [[10, 10]]}); count]);
    let clicked = |count: usize| json!([{"points": vec![[10, 10]; count]}, {"points": [[5, 5]]}]);
    let bodies: Vec<(&str, Value, &str, Expected)> = vec![
        ("bytes", shown(1), &large, (413, "limit")),
        ("pixels", shown(1), &large, (400, "is too large")),
        ("objects", shown(33), &small, (400, "at most 32")),
        ("objects within the limit", shown(32), &small, (200, "predicted_iou")),
        ("objects that are not kept", json!(vec![json!({}); 20_000]), &small, (400, "at most 10000")),
        ("points", clicked(256), &small, (400, "at most 256")),
        ("points within the limit", clicked(255), &small, (200, "predicted_iou")),
    ];
    let mut rows = Vec::new();
    for (limit, objects, image, expected) in bodies {
        let filler = if limit == "bytes" { "x".repeat(500_000) } else { String::new() };
        let body = value(json!({"image": format!("{image}{filler}"), "objects": objects}));
        let work = move || said(&server.send(&format!("POST /v1/segment HTTP/1.1\r\n{JSON}"), &body));
        rows.push(Row { road: "JSON, clicks", limit, work: Box::new(work), expected });
    }
    let (many, few) = (shown(33).to_string(), shown(1).to_string());
    let fields: Vec<(&str, Vec<Field<'_>>, Expected)> = vec![
        ("objects", vec![("image", b"x"), ("objects", many.as_bytes())], (400, "at most 32")),
        ("fields", vec![("objects", few.as_bytes()); 400], (400, "too many fields")),
    ];
    for (limit, fields, expected) in fields {
        let (kind, body) = form(&fields);
        let work = move || said(&server.send(&format!("POST /v1/segment HTTP/1.1\r\n{kind}"), &body));
        rows.push(Row { road: "form, clicks", limit, work: Box::new(work), expected });
    }
    check(server, 2, rows);
}

/// A list of classes is refused by its length before it is compared, and before a long one is kept.
#[test]
fn a_hundred_thousand_classes_hold_nobody_up() {
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let names: Vec<String> = (0..100_000).map(|i| format!("class {i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (kind, of_form) = form(&[("image", b"x"), ("classes", names.join(",").as_bytes())]);
    let commas = ",".repeat(10_000_000);
    let question = value(json!({"classes": names}));
    let expected = (400, "too many classes: expected at most 100");
    let mut rows = Vec::new();
    let server = &server;
    for (road, limit, head, body) in [
        (
            "JSON",
            "names",
            format!("POST /v1/detect HTTP/1.1\r\n{JSON}"),
            value(json!({"image": "aGk=", "classes": names})),
        ),
        ("JSON", "commas", format!("POST /v1/detect HTTP/1.1\r\n{JSON}"), value(json!({"classes": commas}))),
        ("form", "names", format!("POST /v1/detect HTTP/1.1\r\n{kind}"), of_form),
        (
            "Label Studio",
            "names",
            format!("POST /label-studio/predict HTTP/1.1\r\n{JSON}"),
            studio(&rectangles(&names), ""),
        ),
    ] {
        let work = move || said(&server.send(&head, &body));
        rows.push(Row { road, limit, work: Box::new(work), expected });
    }
    let work = move || on_socket(server, 1, &question);
    rows.push(Row { road: "WebSocket", limit: "names", work: Box::new(work), expected: (200, expected.1) });
    check(server, 2, rows);
}

/// A body that does not arrive, and a frame that is not answered in time.
#[test]
fn time() {
    let place = Place::new();
    gallery(&place);
    let server = Running::start(&place, &["--gallery", "set", "--timeout", "0.01"]);
    // The list itself can take longer.
    let id = (0..100).find_map(|_| {
        let list = server.get("/v1/gallery");
        (list.status == 200).then(|| list.json()["images"][0]["id"].as_str().expect("it has one").to_owned())
    });
    let save = format!("PUT /v1/gallery/{}", id.expect("one of a hundred is fast enough"));
    let (kind, _) = form(&[]);
    let mut rows = Vec::new();
    let server = &server;
    for (road, head) in [
        ("JSON", format!("POST /v1/detect HTTP/1.1\r\n{JSON}")),
        ("form", format!("POST /v1/detect HTTP/1.1\r\n{kind}")),
        ("Label Studio", format!("POST /label-studio/predict HTTP/1.1\r\n{JSON}")),
        ("Label Studio, setup", format!("POST /label-studio/setup HTTP/1.1\r\n{JSON}")),
        ("gallery", format!("{save} HTTP/1.1\r\n{JSON}")),
    ] {
        let work = move || said(&read_reply(&mut server.begin(&head, b"{", 100)));
        rows.push(Row {
            road,
            limit: "time",
            work: Box::new(work),
            expected: (504, "took longer than 0.01 s"),
        });
    }
    let work = move || on_socket(server, 2, &scene(2));
    rows.push(Row {
        road: "WebSocket",
        limit: "time",
        work: Box::new(work),
        expected: (200, "took longer than 0.01 s"),
    });
    check(server, 2, rows);
    server.wait_for("ocelli_free_slots", 64.0);
    server.wait_for("ocelli_arriving", 0.0);
}

/// A client that has its half of the connections is refused on every road, and the other half is for others.
#[test]
fn connections() {
    let place = Place::new();
    gallery(&place);
    let server = Running::start(&place, &["--gallery", "set", "--connections", "4"]);
    let [id, _] = ids(&server);
    let expected = (503, "too many connections");
    // Half of the places, once those of the requests before are free. The client that asks has a connection, too.
    server.wait_as(2, "ocelli_connections", 1.0);
    let idle = [server.connect(), server.connect()];
    server.wait_as(2, "ocelli_connections", 3.0);
    let question = value(json!({"image": base64(&scene(0)), "classes": ["house"]}));
    let (kind, body) = form(&[("image", &scene(0)), ("classes", b"house")]);
    let mut rows = Vec::new();
    let server = &server;
    for (road, head, body) in [
        ("JSON", format!("POST /v1/detect HTTP/1.1\r\n{JSON}"), question),
        ("form", format!("POST /v1/detect HTTP/1.1\r\n{kind}"), body),
        (
            "Label Studio",
            format!("POST /label-studio/predict HTTP/1.1\r\n{JSON}"),
            studio(&rectangles(&["house"]), &base64(&scene(0))),
        ),
        ("gallery", format!("GET /v1/gallery/{id}/image HTTP/1.1"), Vec::new()),
    ] {
        let work = move || said(&server.send(&head, &body));
        rows.push(Row { road, limit: "connections", work: Box::new(work), expected });
    }
    let work = move || (Socket::open(server, "").err().unwrap_or(101), String::new());
    rows.push(Row { road: "WebSocket", limit: "connections", work: Box::new(work), expected: (503, "") });
    check(server, 2, rows);
    drop(idle);
}

/// A question that is withdrawn leaves the engine after the classes at hand, and the gallery shares the places of requests.
#[test]
fn a_withdrawn_question_stops_the_engine() {
    let place = Place::new();
    gallery(&place);
    let server = Running::start(&place, &["--gallery", "set", "--queue", "1"]);
    let [id, _] = ids(&server);
    let image = base64(&scene(0));
    let classes = server.get("/v1/about").json()["vocabulary"].clone();
    assert!(classes.as_array().is_some_and(|names| names.len() > 50), "{classes}");
    let heavy = json!({"image": image, "classes": classes, "confidence": 0.0, "nms": 1.0, "masks": true});
    // The features of the image are known from now on, and those for masks, so that the engine goes on with the classes.
    let light = json!({"image": image, "classes": ["house"], "masks": true});
    assert_eq!(server.post("/v1/detect", &light).status, 200);
    let body = heavy.to_string();
    let head = format!("POST /v1/detect HTTP/1.1\r\n{JSON}");
    let asked = server.begin(&head, body.as_bytes(), body.len());
    server.wait_for("ocelli_free_slots", 0.0);
    server.wait_for("ocelli_queue_depth", 0.0);
    // The gallery waits for its turn.
    let mut labels = server.connect();
    labels.set_read_timeout(Some(Duration::from_millis(100))).expect("it is a socket");
    let asks =
        format!("GET /v1/gallery/{id} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    labels.write_all(asks.as_bytes()).expect("the server reads");
    Read::read(&mut labels, &mut [0]).expect_err("the place is taken");
    drop(asked);
    labels.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    assert_eq!(read_reply(&mut labels).status, 200);
    server.wait_for("ocelli_free_slots", 1.0);
    let last = server.post("/v1/detect", &light);
    assert_eq!(last.status, 200, "{}", last.text());
    // The withdrawn one was not finished, which is no failure.
    assert_eq!((server.metric("ocelli_images_total"), server.metric("ocelli_failures_total")), (2.0, 0.0));
}

/// Who sends pings and reads nothing is not read any more, and keeps no pongs in the memory of the server.
#[test]
fn pings_without_a_reader() {
    const MOST: usize = 48 << 20;
    let place = Place::new();
    let server = Running::start(&place, &[]);
    let mut ping = vec![0x89, 0x80 | 100, 0, 0, 0, 0];
    ping.extend([7; 100]);
    let mut socket = Socket::open(&server, "").expect("it is opened");
    // A pong for each ping, and nothing more.
    socket.0.write_all(&ping).expect("the server reads");
    socket.send(1, br#"{"classes": ["house"]}"#);
    let mut pong = [0; 102];
    socket.0.read_exact(&mut pong).expect("the server answers");
    assert_eq!((pong[0], pong[1], &pong[2..]), (0x8a, 100, &[7; 100][..]));
    assert_eq!(socket.receive(), Some(json!({"ready": true})));
    socket.0.set_write_timeout(Some(Duration::from_secs(1))).expect("it is a socket");
    let many = ping.repeat(1000);
    let mut sent = 0;
    while sent < MOST && socket.0.write_all(&many).is_ok() {
        sent += many.len();
    }
    assert!(sent < MOST, "{sent} bytes of pings are read, and their pongs are kept");
    assert_eq!(server.send_on(server.connect_as(2), "GET /healthz HTTP/1.1", b"").status, 200);
}

/// A small request must not be a search of hours.
#[test]
fn tiles() {
    let place = Place::new();
    let server = &Running::start(&place, &["--timeout", "10"]);
    let large = base64(&png(2000, 2000));
    let mut rows = Vec::new();
    for (limit, more, expected) in [
        (
            "tiles",
            json!({"tile": "32", "tile_overlap": 0.8}),
            (400, "tiles of 32 × 32 and larger: expected at most 256"),
        ),
        ("tiles by the overlap", json!({"tile": "200", "tile_overlap": 0.8}), (400, "expected at most 256")),
        (
            "an overlap without tiles",
            json!({"tile_overlap": 0.5}),
            (400, "expected a size in tile beside it"),
        ),
        (
            "an overlap and no tiles",
            json!({"tile": "none", "tile_overlap": 0.5}),
            (400, "expected a size in tile"),
        ),
    ] {
        let mut asked = json!({"classes": ["house"], "image": large});
        asked.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        let body = value(asked);
        let work = move || said(&server.send(&format!("POST /v1/detect HTTP/1.1\r\n{JSON}"), &body));
        rows.push(Row { road: "JSON", limit, work: Box::new(work), expected });
    }
    let (kind, body) = form(&[("image", &png(2000, 2000)), ("classes", b"house"), ("tile", b"64")]);
    let work = move || said(&server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body));
    rows.push(Row { road: "form", limit: "tiles", work: Box::new(work), expected: (400, "at most 256") });
    let on_socket = move || {
        let mut socket = Socket::open(server, "").expect("it is opened");
        socket.send(1, br#"{"classes": ["house"], "tile": "64"}"#);
        assert_eq!(socket.receive(), Some(json!({"ready": true})));
        socket.send(2, &png(2000, 2000));
        socket.receive().map_or((0, String::new()), |said| (200, said.to_string()))
    };
    rows.push(Row {
        road: "WebSocket",
        limit: "tiles",
        work: Box::new(on_socket),
        expected: (200, "at most 256"),
    });
    check(server, 2, rows);
    // What the model sees whole has no tiles.
    let small =
        json!({"classes": ["house"], "image": base64(&png(200, 200)), "tile": "32", "tile_overlap": 0.8});
    assert_eq!(server.post("/v1/detect", &small).status, 200);
}

fn value(value: Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
