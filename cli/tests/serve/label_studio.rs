//! Label Studio's protocol, with a server that stands in for Label Studio's files.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::client::{OCELLI, Running, base64};
use super::scene;
use crate::run::Place;

/// Answers every request with this picture, and sends the requests.
fn files(picture: Vec<u8>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it listens"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    break;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            // Before the answer, so that it is there when the answer's effects are.
            if sender.send(head.to_lowercase()).is_err() {
                return;
            }
            let (status, body) = match head.contains("missing") {
                true => ("404 Not Found", &b"no"[..]),
                false => ("200 OK", &picture[..]),
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            drop(stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(body)));
        }
    });
    (address, receiver)
}

const CONFIG: &str = r#"<View><Image name="img" value="$image"/>
  <RectangleLabels name="box" toName="img"><Label value="House"/><Label value="Food" predicted_values="hot dog"/></RectangleLabels>
  <PolygonLabels name="polygon" toName="img"><Label value="House"/></PolygonLabels>
  <BrushLabels name="brush" toName="img"><Label value="House"/></BrushLabels></View>"#;

#[test]
fn tasks_get_rectangles_polygons_and_brushes() {
    let place = Place::new();
    let picture = scene(1);
    place.write("scene.png", &picture);
    let found = detected(&place);
    let (studio, requests) = files(picture.clone());
    let server = Running::start(&place, &["--label-studio", &studio]);
    assert_eq!(server.get("/label-studio/health").json()["status"], "UP");
    let setup =
        json!({"project": "1.2", "schema": CONFIG, "hostname": "http://evil.example", "access_token": "x"});
    let version = server.post("/label-studio/setup", &setup).json()["model_version"].clone();
    assert!(version.as_str().is_some_and(|version| version.starts_with("ocelli ")), "{version}");
    for path in ["/label-studio/train", "/label-studio/webhook"] {
        assert_eq!(server.post(path, &json!({"action": "START_TRAINING"})).status, 200, "{path}");
    }
    assert_eq!(server.post("/label-studio/validate", &json!({"config": "<View/>"})).status, 400);

    let uri = format!("data:image/png;base64,{}", base64(&picture));
    let tasks = json!([
        {"id": 1, "data": {"image": uri}},
        {"id": 2, "data": {"image": "/data/upload/1/a b.png"}},
        {"id": 3, "data": {"image": format!("{studio}/data/missing.png")}},
    ]);
    let asked =
        json!({"tasks": tasks, "project": "1.2", "label_config": CONFIG, "params": {"context": null}});
    let predicted = server.post("/label-studio/predict", &asked).json();
    let results = predicted["results"].as_array().expect("a list");
    assert_eq!(results.len(), 3);
    assert_eq!(results[0]["result"], results[1]["result"]);
    assert_eq!(results[2]["result"], json!([]));
    let head = requests.recv().expect("it was asked");
    assert!(head.starts_with("get /data/upload/1/a%20b.png http/1.1"), "{head}");

    let regions = results[0]["result"].as_array().expect("a list");
    let of = |kind: &str| -> Vec<&Value> { regions.iter().filter(|one| one["type"] == kind).collect() };
    let (boxes, polygons, brushes) = (of("rectanglelabels"), of("polygonlabels"), of("brushlabels"));
    assert_eq!(boxes.len(), found.len());
    let houses = found.iter().filter(|one| one["label"] == "House").count();
    assert!(houses > 0 && houses < found.len(), "{found:?}");
    assert_eq!(brushes.len(), houses);
    assert!(polygons.len() >= houses, "{} polygons", polygons.len());
    for (region, detection) in boxes.iter().zip(&found) {
        let label = if detection["label"] == "hot dog" { "Food" } else { "House" };
        assert_eq!(region["value"]["rectanglelabels"], json!([label]));
        let number = |value: &Value| value.as_f64().expect("a number");
        let (width, height) = (number(&region["original_width"]), number(&region["original_height"]));
        let edge = |at: usize| number(&detection["box"][at]);
        let value = &region["value"];
        for (percent, pixels) in [
            (number(&value["x"]) * width, edge(0)),
            (number(&value["y"]) * height, edge(1)),
            (number(&value["width"]) * width, edge(2) - edge(0)),
            (number(&value["height"]) * height, edge(3) - edge(1)),
        ] {
            assert!((percent / 100.0 - pixels).abs() < 0.02, "{value} {detection}");
        }
        assert_eq!((&region["from_name"], &region["to_name"]), (&json!("box"), &json!("img")));
    }
    let rle = brushes[0]["value"]["rle"].as_array().expect("a list");
    let pixels = rle[..4].iter().fold(0, |sum, byte| sum << 8 | byte.as_u64().unwrap_or(0));
    let size = brushes[0]["original_width"].as_u64().zip(brushes[0]["original_height"].as_u64());
    assert_eq!(size.map(|(width, height)| width * height * 4), Some(pixels));

    // Nothing else is fetched: no other server, no other path, no file.
    for address in
        ["http://evil.example/data/a.png", "file:///etc/passwd", "/api/users", "/data/../api", "s3://a/b"]
    {
        let asked = json!({"tasks": [{"data": {"image": address}}], "label_config": CONFIG});
        let refused = server.post("/label-studio/predict", &asked);
        assert_eq!(refused.status, 400, "{address}: {}", refused.text());
    }
    let missing = json!({"tasks": [{"data": {"image": "/data/missing.png"}}], "label_config": CONFIG});
    let refused = server.post("/label-studio/predict", &missing);
    assert_eq!(refused.status, 502, "{}", refused.text());
    let asked: Vec<String> = requests.try_iter().collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().all(|head| head.starts_with("get /data/missing.png")), "{asked:?}");
}

fn detected(place: &Place) -> Vec<Value> {
    let whole = [
        "detect",
        "--quiet",
        "--engine",
        "embedded",
        "--image",
        "scene.png",
        "--classes",
        "House,hot dog",
        "--json",
        "-",
    ];
    let report: Value = serde_json::from_str(&place.succeed(OCELLI, &whole)).expect("it is JSON");
    report["images"][0]["detections"].as_array().cloned().unwrap_or_default()
}
