//! `/v1/segment` on a small random model with a tracker, whose masks are as random.

use serde_json::{Value, json};

use super::client::{OCELLI, Running, base64, form};
use super::scene;
use crate::checkpoints::copy;
use crate::run::Place;

/// The sum of the times of a stage.
fn seconds(server: &Running, stage: &str) -> f64 {
    let text = server.get("/metrics").text();
    let start = format!("ocelli_stage_seconds_sum{{stage=\"{stage}\"}} ");
    let sum = text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
    sum.unwrap_or_else(|| panic!("{start}: {text}"))
}

pub(super) fn place() -> Place {
    let place = Place::new();
    copy(&place, "tracker", "model");
    place.write("scene.png", scene(3));
    place
}

#[test]
fn clicks_are_answered_as_by_the_program() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    assert_eq!(server.get("/v1/about").json()["clicks"], true);
    let image = base64(&scene(3));
    let cases: [(&str, Value); 4] = [
        ("--point|100,80", json!({"objects": [{"points": [[100, 80]]}]})),
        (
            "--point|100,80:no@a|30,40.5@a|7,7@b|--box-prompt|10,10,90,90@c",
            json!({"objects": [
                {"points": [[100, 80], [30, 40.5]], "labels": [0, 1]},
                {"points": [[7, 7]]},
                {"box": [10, 10, 90, 90]},
            ]}),
        ),
        (
            "--point|20,20:no|--box-prompt|10,10,90,90",
            json!({"objects": [{"points": [[20, 20]], "labels": [0], "box": [10, 10, 90, 90]}]}),
        ),
        ("--point|100,80|--multimask", json!({"objects": [{"points": [[100, 80]]}], "multimask": true})),
    ];
    let mut wrong = Vec::new();
    for (flags, mut asked) in cases {
        let run = "detect|--quiet|--engine|embedded|--model|model|--image|scene.png|--json|-|";
        let text = place.succeed(OCELLI, &format!("{run}{flags}").split('|').collect::<Vec<_>>());
        let report: Value = serde_json::from_str(&text).expect("it is JSON");
        let mut expected = report["images"][0]["detections"].as_array().expect("a list").clone();
        let (kind, of_request) = form(&[("image", &scene(3)), ("request", asked.to_string().as_bytes())]);
        let multimask = (asked["multimask"] == true).to_string();
        let (_, of_fields) = form(&[
            ("image", &scene(3)),
            ("objects", asked["objects"].to_string().as_bytes()),
            ("multimask", multimask.as_bytes()),
        ]);
        asked["image"] = json!(image);
        let as_form = |body: &[u8]| server.send(&format!("POST /v1/segment HTTP/1.1\r\n{kind}"), body);
        let roads = [
            ("JSON", server.post("/v1/segment", &asked)),
            ("request", as_form(&of_request)),
            ("fields", as_form(&of_fields)),
        ];
        for (road, reply) in roads {
            if reply.status != 200 {
                wrong.push(format!("{flags}, {road}: {} {}", reply.status, reply.text()));
                continue;
            }
            let reply = reply.json();
            // The program sorts by the score.
            let mut found: Vec<Value> = reply["objects"].as_array().expect("a list").clone();
            let score = |one: &Value| one["predicted_iou"].as_f64().expect("a number");
            found.sort_by(|a, b| score(b).total_cmp(&score(a)));
            let size = (&report["images"][0]["width"], &report["images"][0]["height"]);
            if (&reply["width"], &reply["height"]) != size || found.len() != expected.len() {
                wrong.push(format!("{flags}, {road}: {reply}"));
            }
            for (found, expected) in found.iter().zip(&mut expected) {
                let same =
                    [("object", "class_id"), ("box", "box"), ("predicted_iou", "score"), ("mask", "mask")];
                for (key, name) in same {
                    if found[key] != expected[name] {
                        wrong.push(format!("{flags}, {road}, {key}: {} {}", found[key], expected[name]));
                    }
                }
                if !found["object_score"].is_number() {
                    wrong.push(format!("{flags}, {road}: {found}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.metric("ocelli_failures_total"), 0.0);
}

/// The features of an image that was searched or clicked are known.
#[test]
fn a_second_click_costs_the_decoder_alone() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    for (number, masks) in [(3, false), (4, true)] {
        let image = base64(&scene(number));
        let question = json!({"image": image, "classes": ["dog"], "masks": masks});
        assert_eq!(server.post("/v1/detect", &question).status, 200);
        let first = seconds(&server, "backbone");
        for x in [10, 20] {
            let clicked = json!({"image": image, "objects": [{"points": [[x, 30]]}]});
            let reply = server.post("/v1/segment", &clicked);
            assert_eq!(reply.status, 200, "{}", reply.text());
            let times = reply.json()["timing_ms"].clone();
            assert_eq!(times["backbone"], 0.0, "scene {number}, {x}: {times}");
            assert!(times["decode"].as_f64() > Some(0.0), "scene {number}, {x}: {times}");
        }
        // Nor does a question that needs what the first one did.
        assert_eq!(server.post("/v1/detect", &question).status, 200);
        assert_eq!(seconds(&server, "backbone"), first, "scene {number}");
    }
}

#[test]
fn what_cannot_be_clicked_is_refused() {
    let place = place();
    let server = Running::start(&place, &["--model", "model"]);
    let built_in = Running::start(&place, &[]);
    let image = base64(&scene(3));
    let ask = |server: &Running, objects: Value| {
        let reply = server.post("/v1/segment", &json!({"image": image, "objects": objects}));
        (reply.status, reply.text())
    };
    let one = || json!([{"points": [[10, 10]]}]);
    let (kind, no_field) = form(&[("image", b"x"), ("points", b"1,2")]);
    let as_form = server.send(&format!("POST /v1/segment HTTP/1.1\r\n{kind}"), &no_field);
    let without_image = server.post("/v1/segment", &json!({"objects": one()}));
    let rows = [
        (ask(&built_in, one()), "clicks, built-in: this model has no tracker"),
        (ask(&server, json!([])), "objects is empty"),
        (ask(&server, json!([{}])), r#"object \"0\": nothing shows where it is"#),
        (
            ask(&server, json!([{"points": [[10, 10]], "labels": [0]}])),
            "add a positive point, a box or a mask",
        ),
        (
            ask(&server, json!([{"box": [1, 1, 9, 9]}, {"points": [[1, 9000]]}])),
            r#"object \"1\": point 1,9000 is outside"#,
        ),
        (ask(&server, json!([{"points": [[10, 10]], "labels": [1, 1]}])), "object 0: labels has 2 numbers"),
        (
            ask(&server, json!([{"points": [[10, 10]], "labels": [2]}])),
            "expected 1 on the object, 0 beside it",
        ),
        (ask(&server, json!([{"box": [9, 9, 1, 1]}])), "expected x1,y1,x2,y2"),
        (ask(&server, json!([{"points": [[1e300, 1]]}])), ""),
        (ask(&server, json!([{"point": [1, 1]}])), "unknown field `point`"),
        (
            (as_form.status, as_form.text()),
            "points: no such field; the fields are image, request, objects, multimask",
        ),
        ((without_image.status, without_image.text()), "image is missing"),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .filter(|((status, text), words)| *status != 400 || !text.contains(words))
        .map(|(came, words)| format!("expected {words}, came {came:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(built_in.get("/v1/about").json()["clicks"], false);
    // Known features do not make a wrong click a failure of the model.
    assert_eq!(ask(&server, one()).0, 200);
    let (status, text) = ask(&server, json!([{"points": [[1, 9000]]}]));
    assert!(status == 400 && text.contains("is outside"), "{status} {text}");
    assert_eq!(server.metric("ocelli_failures_total"), 0.0);
}
