//! Label Studio's protocol, with a server that stands in for Label Studio's files.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::client::{OCELLI, Running, base64};
use super::scene;
use crate::run::Place;

/// Answers every request with this image, and sends the requests.
fn files(image: Vec<u8>) -> (String, Receiver<String>) {
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
                false => ("200 OK", &image[..]),
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
    let image = scene(1);
    place.write("scene.png", &image);
    let found = detected(&place);
    let (studio, requests) = files(image.clone());
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

    let uri = format!("data:image/png;base64,{}", base64(&image));
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

#[test]
fn smart_tools_get_the_mask_of_what_was_drawn() {
    let place = super::clicks::place();
    let server = Running::start(&place, &["--model", "model"]);
    let image = base64(&scene(3));
    let shown = json!({"image": image, "objects": [
        {"points": [[96, 64], [20, 20]], "labels": [1, 0], "box": [32, 32, 128, 128]},
    ]});
    let expected = server.post("/v1/segment", &shown).json();
    let (width, height) =
        (expected["width"].as_f64().expect("a number"), expected["height"].as_f64().expect("a number"));
    let region = |kind: &str, is_positive: bool, edges: [f64; 4]| {
        let [x, y, w, h] = edges;
        json!({
            "type": kind, "is_positive": is_positive, "original_width": expected["width"], "original_height": expected["height"], "from_name": "smart",
            "value": {"x": x / width * 100.0, "y": y / height * 100.0, "width": w / width * 100.0, "height": h / height * 100.0, kind: ["House"]},
        })
    };
    let drawn = [
        region("rectanglelabels", true, [32.0, 32.0, 96.0, 96.0]),
        region("keypointlabels", true, [96.0, 64.0, 0.5, 0.5]),
        region("keypointlabels", false, [20.0, 20.0, 0.5, 0.5]),
    ];
    let uri = format!("data:image/png;base64,{image}");
    let predict = |server: &Running, context: Value, config: &str| {
        let asked = json!({"tasks": [{"id": 1, "data": {"image": uri}}], "label_config": config, "params": {"context": context}});
        server.post("/label-studio/predict", &asked)
    };
    let reply = predict(&server, json!({"result": drawn}), CONFIG);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let prediction = &reply.json()["results"][0];
    let regions = prediction["result"].as_array().expect("a list");
    assert!(regions.iter().all(|one| one["type"] != "rectanglelabels"), "a mask was asked for: {regions:?}");
    let brush = regions.iter().find(|one| one["type"] == "brushlabels").expect("it has pixels");
    assert_eq!((&brush["value"]["brushlabels"], &brush["from_name"]), (&json!(["House"]), &json!("brush")));
    let score = |value: &Value| value.as_f64().expect("a number");
    assert!((score(&prediction["score"]) - score(&expected["objects"][0]["predicted_iou"])).abs() < 1e-4);
    // The same pixels as the mask of the same clicks.
    let mask: ocelli::Mask =
        serde_json::from_value(expected["objects"][0]["mask"].clone()).expect("it is a mask");
    let rle: Vec<u8> = serde_json::from_value(brush["value"]["rle"].clone()).expect("it is a list of bytes");
    assert_eq!(brush_pixels(&rle), mask.to_bitmap().iter().filter(|pixel| **pixel != 0).count());

    let boxes_alone = CONFIG.replace("PolygonLabels", "Choices").replace("BrushLabels", "Choices");
    let refused = predict(&server, json!({"result": drawn}), &boxes_alone);
    assert!(refused.status == 400 && refused.text().contains("needs BrushLabels"), "{}", refused.text());
    let built_in = Running::start(&place, &[]);
    let refused = predict(&built_in, json!({"result": drawn}), CONFIG);
    assert!(refused.status == 400 && refused.text().contains("no tracker"), "{}", refused.text());
    // Without a drawing the labels are searched for.
    assert_eq!(predict(&built_in, json!({"result": []}), CONFIG).status, 200);
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn videos_get_a_key_frame_for_each_frame() {
    let place = super::sessions::place();
    let drawn = "video|--quiet|--classes|dog|--scene-size|96x72|--max-frames|6|-o|street.mp4";
    place.succeed(OCELLI, &drawn.split('|').collect::<Vec<_>>());
    let server = Running::start(&place, &["--model", "model"]);
    let config = r#"<View><Video name="clip" value="$video"/><VideoRectangle name="box" toName="clip"/>
      <Labels name="label" toName="clip"><Label value="Dog"/><Label value="Cat"/></Labels></View>"#;
    let uri = format!("data:video/mp4;base64,{}", base64(&place.read("street.mp4")));
    let predict = |context: Value| {
        let asked = json!({"tasks": [{"id": 1, "data": {"video": uri}}], "label_config": config, "params": {"context": context}});
        server.post("/label-studio/predict", &asked)
    };
    let rectangle = |frame: u32, label: &str| {
        let key = json!({"frame": frame, "x": 10, "y": 20, "width": 60, "height": 60, "rotation": 0, "enabled": true});
        json!({"type": "videorectangle", "value": {"sequence": [key], "labels": [label], "framesCount": 6}})
    };
    let followed = predict(json!({"result": [rectangle(3, "Cat")]}));
    assert_eq!(followed.status, 200, "{}", followed.text());
    let followed = followed.json();
    let [region] = &followed["results"][0]["result"].as_array().expect("a list")[..] else {
        panic!("one rectangle: {followed}")
    };
    assert_eq!(
        (&region["type"], &region["from_name"], &region["to_name"]),
        (&json!("videorectangle"), &json!("box"), &json!("clip"))
    );
    let value = &region["value"];
    assert_eq!((&value["labels"], &value["framesCount"]), (&json!(["Cat"]), &json!(6)));
    let frames: Vec<u64> = value["sequence"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|key| key["frame"].as_u64())
        .collect();
    assert!(
        frames.first() == Some(&3) && frames.is_sorted() && frames.iter().all(|frame| *frame <= 6),
        "{frames:?}"
    );
    assert_eq!(
        value["sequence"].as_array().and_then(|keys| keys.last()).map(|key| &key["enabled"]),
        Some(&json!(false))
    );
    let labels = predict(Value::Null).json();
    let regions = labels["results"][0]["result"].as_array().expect("a list");
    assert!(regions.iter().all(|one| one["type"] == "videorectangle"), "{labels}");
    let beyond = predict(json!({"result": [rectangle(9, "Cat")]}));
    assert!(beyond.status == 404 && beyond.text().contains("frame 8"), "{}", beyond.text());
    server.wait_for("ocelli_sessions", 0.0);
}

/// The number of pixels with alpha in Label Studio's run lengths (`label_studio_sdk.converter.brush.decode_rle`).
fn brush_pixels(rle: &[u8]) -> usize {
    let mut at = 0;
    let mut read = |count: usize| {
        (0..count).fold(0_usize, |value, _| {
            let bit = rle[at / 8] >> (7 - at % 8) & 1;
            at += 1;
            value << 1 | usize::from(bit)
        })
    };
    let (number, word) = (read(32), read(5) + 1);
    let sizes: Vec<usize> = (0..4).map(|_| read(4) + 1).collect();
    let (mut seen, mut inside) = (0, 0);
    while seen < number {
        assert_eq!(read(1), 1, "a run");
        let kind = read(2);
        let length = read(sizes[kind]) + 1;
        inside += if read(word) > 0 { length } else { 0 };
        seen += length;
    }
    inside / 4
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
