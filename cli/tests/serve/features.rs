//! Features that are kept for the next request, searches in tiles, and one half of the model in memory at a time.

use serde_json::{Value, json};

use super::client::{Reply, Running, base64, form};
use super::{CLASSES, expected, scene};
use crate::run::Place;
use crate::tiles::{NAMES, write_image};

fn ask(server: &Running, number: usize, masks: bool) -> Value {
    let question = json!({"image": base64(&scene(number)), "classes": CLASSES, "masks": masks});
    detections(&server.post("/v1/detect", &question))
}

fn detections(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["detections"].clone()
}

/// Number of times that features were kept from an earlier request, and the bytes of those that are kept.
fn kept(server: &Running) -> (usize, usize) {
    let figure = |name: &str| server.metric(&format!("ocelli_feature_cache_{name}")) as usize;
    (figure("hits_total"), figure("bytes"))
}

#[test]
fn features_are_kept_within_a_limit() {
    const LIMIT: usize = 1 << 20;
    let place = Place::new();
    let server = Running::start(&place, &["--feature-cache", "1"]);
    let first = ask(&server, 0, false);
    let (_, one) = kept(&server);
    let room = LIMIT / one;
    assert!((2..20).contains(&room), "{room}");
    for number in 1..room {
        ask(&server, number, false);
    }
    assert_eq!(kept(&server), (0, room * one));
    // The first was used last, so that one more pushes out the second.
    assert_eq!(ask(&server, 0, false), first);
    ask(&server, room, false);
    assert_eq!(kept(&server), (1, room * one));
    ask(&server, 0, false);
    assert_eq!(kept(&server).0, 2);
    ask(&server, 1, false);
    assert_eq!(kept(&server), (2, room * one));
    // Features with those for masks are larger than the limit.
    let with_masks = ask(&server, 3, true);
    assert!(with_masks[0]["mask"].is_object(), "{with_masks}");
    assert_eq!(ask(&server, 3, true), with_masks);
    assert_eq!(kept(&server).0, 2);

    let server = Running::start(&place, &["--feature-cache", "0"]);
    assert_eq!((ask(&server, 0, false), ask(&server, 0, false)), (first.clone(), first));
    assert_eq!(kept(&server), (0, 0));
}

#[test]
fn images_in_tiles_are_those_of_the_program() {
    let place = Place::new();
    write_image(&place, "scene.png", 0);
    let names = NAMES.join(",");
    let tiles = ["--tile", "300", "--tile-overlap", "0.25"];
    let detected = |more: &[&str]| {
        let all = expected(&place, &[&["--classes", &*names][..], more].concat());
        all["detections"].as_array().cloned().unwrap_or_default()
    };
    let (in_tiles, whole) = (detected(&tiles), detected(&[]));
    assert!(in_tiles.len() > 6 && whole.len() < in_tiles.len(), "{in_tiles:?}, {whole:?}");
    let image = place.read("scene.png");
    let post = |server: &Running, fields: &[(&str, &[u8])]| {
        let all = [&[("image", &*image), ("classes", names.as_bytes())][..], fields].concat();
        let (kind, body) = form(&all);
        server.send(&format!("POST /v1/detect HTTP/1.1\r\n{kind}"), &body)
    };
    let server = Running::start(&place, &[]);
    let asked: [(&str, &[u8]); 2] = [("tile", b"300"), ("tile_overlap", b"0.25")];
    assert_eq!(detections(&post(&server, &asked)), json!(in_tiles));
    assert_eq!(detections(&post(&server, &[])), json!(whole));
    for (field, value, expected) in [
        ("tile", "8", "at least 32 pixels"),
        ("tile", "huge", "such as 1024 or 1024x768"),
        ("tile_overlap", "0.9", "expected 0 to 0.8"),
    ] {
        let refused = post(&server, &[(field, value.as_bytes())]);
        let text = refused.text();
        assert!(refused.status == 400 && text.contains(expected) && text.contains(field), "{text}");
    }
    let server = Running::start(&place, &tiles);
    assert_eq!(detections(&post(&server, &[])), json!(in_tiles));
    assert_eq!(detections(&post(&server, &[("tile", b"none")])), json!(whole));
}

#[test]
fn low_memory_changes_nothing() {
    let place = Place::new();
    place.write("scene.png", scene(3));
    let names = CLASSES.join(",");
    let server = Running::start(&place, &["--low-memory"]);
    for (masks, flags) in [(false, &["--classes", &*names][..]), (true, &["--classes", &names, "--masks"])] {
        let expected = expected(&place, flags)["detections"].clone();
        assert_ne!(expected, json!([]));
        // Also with features that are kept.
        assert_eq!((ask(&server, 3, masks), ask(&server, 3, masks)), (expected.clone(), expected));
    }
    assert_eq!(kept(&server).0, 2);
    let question = json!({"image": base64(&scene(3)), "classes": CLASSES, "tile": "200"});
    let in_tiles = expected(&place, &["--classes", &names, "--tile", "200"]);
    assert_eq!(detections(&server.post("/v1/detect", &question)), in_tiles["detections"]);
}
