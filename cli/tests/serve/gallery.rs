//! A data set that is corrected through the server, and labelled again.

use serde_json::{Value, json};

use super::client::{OCELLI, Running};
use super::scene;
use crate::run::Place;

/// Labels the images into `set`; in both YOLO formats unless `more` says otherwise.
fn label(place: &Place, more: &[&str]) {
    let formats = if more.contains(&"--format") { &[][..] } else { &["--format", "yolo,yolo-seg"] };
    let whole = [
        "label",
        "--quiet",
        "--model",
        "built-in",
        "--engine",
        "embedded",
        "--images",
        "images",
        "--classes",
        "house,cake,wine glass",
        "--val-share",
        "0",
        "-o",
        "set",
    ];
    place.succeed(OCELLI, &[&whole, formats, more].concat());
}

#[test]
fn saved_corrections_survive_later_labelling() {
    let place = Place::new();
    for number in 0..4 {
        place.write(&format!("images/{number}.png"), scene(number));
    }
    label(&place, &[]);
    let server = Running::start(&place, &["--gallery", "set"]);
    let list = server.get("/v1/gallery").json();
    assert_eq!(
        (list["classes"].clone(), list["total"].clone()),
        (json!(["house", "cake", "wine glass"]), json!(4))
    );
    let id = |number: usize| list["images"][number]["id"].as_str().expect("it has an id").to_owned();
    let read = |number: usize| server.get(&format!("/v1/gallery/{}", id(number))).json();
    let put = |number: usize, body: &Value| {
        let head = format!("PUT /v1/gallery/{} HTTP/1.1\r\nContent-Type: application/json", id(number));
        server.send(&head, body.to_string().as_bytes())
    };
    let numbered =
        (0..4).find(|number| read(*number)["instances"].as_array().is_some_and(|all| !all.is_empty()));
    let number = numbered.expect("something is found in an image");
    let labels = read(number);
    assert_eq!(labels["corrected"], false);
    let name = format!("set/labels/train/{number}.txt");
    let before = String::from_utf8(place.read(&name)).expect("labels are text");

    // The first one is moved and gets another class, and one is added.
    let mut instances = labels["instances"].as_array().expect("a list").clone();
    for instance in &mut instances {
        let object = instance.as_object_mut().expect("an object");
        object.remove("label");
        object.remove("polygon");
    }
    instances[0]["box"] = json!([10, 20, 60, 80]);
    instances[0]["class_id"] = json!(2);
    instances.push(json!({"class_id": 1, "box": [0, 0, 32, 16]}));
    let correction = json!({"version": labels["version"], "instances": instances});
    for (body, status, words) in [
        (json!({"version": "0", "instances": []}), 409, "changed meanwhile"),
        (
            json!({"version": labels["version"], "instances": [{"class_id": 7, "box": [0, 0, 9, 9]}]}),
            400,
            "class 7",
        ),
        (
            json!({"version": labels["version"], "instances": [{"class_id": 0, "box": [9, 0, 9, 9]}]}),
            400,
            "an area",
        ),
        (json!({"instances": []}), 400, "version"),
    ] {
        let refused = put(number, &body);
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
        assert!(refused.text().contains(words), "{body}: {}", refused.text());
    }
    assert_eq!(place.read(&name), before.as_bytes());
    let saved = put(number, &correction);
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert_eq!(saved.json()["corrected"], true);
    let after = String::from_utf8(place.read(&name)).expect("labels are text");
    assert_eq!(after.lines().count(), before.lines().count() + 1);
    assert!(after.starts_with("2 "), "{after}");
    // What was not touched keeps its digits.
    for line in before.lines().skip(1) {
        assert!(after.contains(line), "{line}: {after}");
    }
    let polygons = place.read(&format!("set/segments/labels/train/{number}.txt"));
    // The old version is not the file's any more.
    assert_eq!(put(number, &correction).status, 409);

    // Another image is saved as it is.
    let other = (number + 1) % 4;
    let kept = read(other);
    let lines = kept["instances"].as_array().expect("a list").iter();
    let same: Vec<Value> = lines
        .map(|one| json!({"line": one["line"], "class_id": one["class_id"], "box": one["box"]}))
        .collect();
    let other_name = format!("set/labels/train/{other}.txt");
    let other_before = place.read(&other_name);
    assert_eq!(put(other, &json!({"version": kept["version"], "instances": same})).status, 200);
    assert_eq!(place.read(&other_name), other_before);

    // The images change, and everything is labelled again.
    for (from, to) in [(30, number), (31, other)] {
        place.write(&format!("images/{to}.png"), scene(from));
    }
    for more in [&[][..], &["--restart", "--confidence", "0.9"]] {
        label(&place, more);
        assert_eq!(String::from_utf8_lossy(&place.read(&name)), after, "{more:?}");
        assert_eq!(place.read(&format!("set/segments/labels/train/{number}.txt")), polygons, "{more:?}");
        assert_eq!(place.read(&other_name), other_before, "{more:?}");
    }
    assert_eq!(read(number)["corrected"], true);
    let image = server.get(&format!("/v1/gallery/{}/image", id(3)));
    assert_eq!((image.status, image.header("content-type")), (200, Some("image/png")));
    // A client that has an image is told so, until the file is another one.
    for kind in ["image", "thumbnail"] {
        let address = format!("/v1/gallery/{}/{kind}", id(number));
        let first = server.get(&address);
        let tag = first.header("etag").expect("it has one").to_owned();
        let asks = |tag: &str| server.send(&format!("GET {address} HTTP/1.1\r\nIf-None-Match: {tag}"), b"");
        assert_eq!((first.status, asks(&tag).status, asks("\"x\"").status), (200, 304, 200), "{kind}");
        assert_eq!(first.header("cache-control"), Some("private, no-cache"));
        place.write(&format!("images/{number}.png"), scene(if kind == "image" { 5 } else { 6 }));
        let second = asks(&tag);
        assert_eq!(second.status, 200, "{kind}");
        assert!(second.body != first.body && second.header("etag") != Some(&*tag), "{kind}");
    }
    for wrong in ["none", "..", "%2e%2e%2fset", "0.png"] {
        let reply = server.get(&format!("/v1/gallery/{wrong}/image"));
        assert!(matches!(reply.status, 404), "{wrong}: {}", reply.status);
    }
}

#[test]
fn coco_alone_is_corrected_and_labelled_again() {
    let place = Place::new();
    for number in 0..4 {
        place.write(&format!("images/{number}.png"), scene(number));
    }
    label(&place, &["--format", "coco"]);
    let server = Running::start(&place, &["--gallery", "set"]);
    let list = server.get("/v1/gallery").json();
    let of = |name: &str| -> Vec<Value> {
        let coco = place.json("set/annotations.json");
        let images = coco["images"].as_array().expect("a list").iter();
        let is_it = |image: &&Value| image["file_name"] == name;
        let image = images.clone().find(is_it).expect("it is there");
        let all = coco["annotations"].as_array().expect("a list").iter();
        all.filter(|one| one["image_id"] == image["id"]).cloned().collect()
    };
    let images = list["images"].as_array().expect("a list");
    let image = images
        .iter()
        .find(|image| !of(image["name"].as_str().expect("a name")).is_empty())
        .expect("something is found in an image");
    let (id, name) = (image["id"].as_str().expect("an id"), image["name"].as_str().expect("a name"));
    let address = format!("/v1/gallery/{id}");
    let (labels, before) = (server.get(&address).json(), of(name));
    assert_eq!(labels["corrected"], false);
    assert_eq!(labels["instances"].as_array().map(Vec::len), Some(before.len()));
    // The first one becomes another class, the others are removed, and one is added.
    let first = &labels["instances"][0];
    assert!(first["polygon"].as_array().is_some_and(|points| points.len() > 2), "{first}");
    let class = (first["class_id"].as_u64().expect("an id") + 1) % 3;
    let instances = json!([
        {"line": 0, "class_id": class, "box": first["box"]},
        {"class_id": 1, "box": [10, 20, 42, 36]},
    ]);
    let head = format!("PUT {address} HTTP/1.1\r\nContent-Type: application/json");
    let put = |version: &Value| {
        let body = json!({"version": version, "instances": instances});
        server.send(&head, body.to_string().as_bytes())
    };
    let saved = put(&labels["version"]);
    assert_eq!((saved.status, saved.json()["corrected"].clone()), (200, json!(true)), "{}", saved.text());
    assert_eq!(put(&labels["version"]).status, 409);
    let after = of(name);
    assert_eq!(after.len(), 2);
    assert_eq!((&after[0]["category_id"], &after[0]["bbox"]), (&json!(class + 1), &before[0]["bbox"]));
    assert_eq!(after[0]["segmentation"], before[0]["segmentation"]);
    assert_eq!((&after[1]["bbox"], &after[1]["area"]), (&json!([10.0, 20.0, 32.0, 16.0]), &json!(512.0)));
    place.write(&format!("images/{name}"), scene(30));
    for more in [&["--format", "coco"][..], &["--format", "coco", "--restart", "--confidence", "0.9"]] {
        label(&place, more);
        let again = of(name);
        let same =
            |one: &Value| (one["category_id"].clone(), one["bbox"].clone(), one["segmentation"].clone());
        assert!(again.iter().map(same).eq(after.iter().map(same)), "{more:?}: {again:?}");
    }
    assert_eq!(server.get(&format!("{address}/image")).status, 200);
    server.signal("-INT");
    let (_, said) = server.end();
    assert!(said.contains("no token: every user of this machine can see and correct the data set"), "{said}");
}

/// Objects of a video keep their numbers when a person corrects them, and what a person draws is another object.
#[test]
fn tracks_survive_corrections() {
    let place = Place::new();
    let drawn = "video -q --classes person car --scene-size 320x240 --max-frames 9 -o drive/%06d.png";
    place.succeed(OCELLI, &drawn.split(' ').collect::<Vec<_>>());
    let label = |every: &str| {
        let run = "label --quiet --model built-in --engine embedded --video drive --classes person,car --val-share 0 \
                   --format coco,youtube-vis -o set --every";
        place.succeed(OCELLI, &run.split_whitespace().chain([every]).collect::<Vec<_>>());
    };
    label("4");
    let of = |index: u64| -> Vec<Value> {
        let coco = place.json("set/annotations.json");
        let images = coco["images"].as_array().expect("a list");
        let image = images.iter().find(|image| image["frame_index"] == index).expect("it is there");
        let all = coco["annotations"].as_array().expect("a list").iter();
        all.filter(|one| one["image_id"] == image["id"]).cloned().collect()
    };
    let before = of(4);
    assert!(before.len() > 1 && before[0]["track_id"].is_u64(), "{before:?}");
    let server = Running::start(&place, &["--gallery", "set"]);
    let list = server.get("/v1/gallery").json();
    let image =
        list["images"].as_array().expect("a list").iter().find(|image| image["name"] == "drive_000004.png");
    let address = format!("/v1/gallery/{}", image.expect("it is there")["id"].as_str().expect("an id"));
    let labels = server.get(&address).json();
    // The first one moves, the second one becomes another class, others are removed, and one is added.
    let second = &labels["instances"][1];
    let class = 1 - second["class_id"].as_u64().expect("an id");
    let instances = json!([
        {"line": 0, "class_id": labels["instances"][0]["class_id"], "box": [5, 6, 25, 36]},
        {"line": 1, "class_id": class, "box": second["box"]},
        {"class_id": 1, "box": [10, 20, 42, 36]},
    ]);
    let head = format!("PUT {address} HTTP/1.1\r\nContent-Type: application/json");
    let body = json!({"version": labels["version"], "instances": instances});
    let saved = server.send(&head, body.to_string().as_bytes());
    assert_eq!(saved.status, 200, "{}", saved.text());
    let keys = ["track_id", "category_id", "bbox", "area"];
    let shown = |all: &[Value]| all.iter().map(|one| keys.map(|key| one[key].clone())).collect::<Vec<_>>();
    let after = of(4);
    let tracks = [before[0]["track_id"].clone(), before[1]["track_id"].clone(), Value::Null];
    assert_eq!(after.iter().map(|one| one["track_id"].clone()).collect::<Vec<_>>(), tracks);
    assert!(after.iter().all(|one| one["instance_id"].is_u64()), "{after:?}");
    let elsewhere: Vec<Value> =
        [0, 8].into_iter().flat_map(&of).map(|one| one["instance_id"].clone()).collect();
    assert!(!elsewhere.contains(&after[2]["instance_id"]), "a new object: {after:?}");
    // The other file, and a run with more frames.
    for every in ["4", "2"] {
        let vis = place.json("set/youtube_vis.json");
        let at = vis["videos"][0]["file_names"].as_array().expect("a list");
        let at = at.iter().position(|name| name == "train/drive_000004.png").expect("it is there");
        let objects = vis["annotations"].as_array().expect("a list").iter();
        let mut boxes: Vec<String> = objects
            .map(|one| one["bboxes"][at].clone())
            .filter(|bbox| !bbox.is_null())
            .map(|b| b.to_string())
            .collect();
        let mut expected: Vec<String> = after.iter().map(|one| one["bbox"].to_string()).collect();
        boxes.sort();
        expected.sort();
        assert_eq!(boxes, expected);
        label(every);
        assert_eq!(shown(&of(4)), shown(&after), "--every {every}");
    }
}

/// Lines that a person did not touch are kept, whatever they have.
#[test]
fn lines_without_area_are_kept() {
    let place = Place::new();
    place.write("images/0.png", scene(0));
    label(&place, &[]);
    let boxes = "set/labels/train/0.txt";
    // A class beyond the list, too: another program may know it.
    let flat = "0 0.5 0.5 0.00001 0.1\n1 1.5 1.5 0.1 0.1\n99 0.5 0.5 0.1 0.1\n";
    place.write(boxes, flat);
    let server = Running::start(&place, &["--gallery", "set"]);
    let id = server.get("/v1/gallery").json()["images"][0]["id"].as_str().expect("it has one").to_owned();
    let labels = server.get(&format!("/v1/gallery/{id}")).json();
    let lines = labels["instances"].as_array().expect("a list").iter();
    let mut instances: Vec<Value> = lines
        .map(|one| json!({"line": one["line"], "class_id": one["class_id"], "box": one["box"]}))
        .collect();
    instances.push(json!({"class_id": 2, "box": [0, 0, 32, 16]}));
    let body = json!({"version": labels["version"], "instances": instances}).to_string();
    let head = format!("PUT /v1/gallery/{id} HTTP/1.1\r\nContent-Type: application/json");
    let saved = server.send(&head, body.as_bytes());
    assert_eq!(saved.status, 200, "{}", saved.text());
    let after = String::from_utf8(place.read(boxes)).expect("labels are text");
    assert!(after.starts_with(flat) && after.lines().count() == 4, "{after}");
}
