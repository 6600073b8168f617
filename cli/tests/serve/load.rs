//! Many clients at once: nothing is lost or mixed up, and those that leave are forgotten.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Running, base64};
use super::{CLASSES, scene};
use crate::run::Place;

const CLIENTS: usize = 200;
/// A few, as the features of two images are kept: the engine changes between those that it knows and one that it does not.
const SCENES: [usize; 3] = [0, 1, 3];

#[test]
fn two_hundred_clients_get_their_own_answers() {
    let place = Place::new();
    // Fewer places than clients: some come again, as they are told.
    let server = Running::start(&place, &["--queue", "48"]);
    let question = |number: usize| {
        let classes: Vec<&str> =
            CLASSES.iter().copied().cycle().skip(number % CLASSES.len()).take(2).collect();
        json!({"image": base64(&scene(SCENES[number / CLASSES.len() % SCENES.len()])), "classes": classes})
    };
    let mut expected: Vec<Value> = Vec::new();
    for number in 0..SCENES.len() * CLASSES.len() {
        expected.push(server.post("/v1/detect", &question(number)).json()["detections"].clone());
    }
    let different: std::collections::BTreeSet<String> = expected.iter().map(Value::to_string).collect();
    assert!(different.len() > 6, "{} different answers", different.len());
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (server, expected, question) = (&server, &expected, &question);
                scope.spawn(move || {
                    // Every seventh leaves while it waits.
                    if number % 7 == 0 {
                        let body = question(number).to_string();
                        let head = format!(
                            "POST /v1/detect HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                            server.address,
                            body.len()
                        );
                        drop(server.connect().write_all(format!("{head}{body}").as_bytes()));
                        return None;
                    }
                    for _ in 0..300 {
                        let reply = server.post("/v1/detect", &question(number));
                        match reply.status {
                            503 => std::thread::sleep(Duration::from_millis(200)),
                            200 if reply.json()["detections"] == expected[number % expected.len()] => return None,
                            _ => return Some(format!("client {number}: {} {}", reply.status, reply.text())),
                        }
                    }
                    Some(format!("client {number}: no place in a minute"))
                })
            })
            .collect();
        clients.into_iter().filter_map(|client| client.join().expect("it does not panic")).collect()
    });
    assert!(wrong.is_empty(), "{} of {CLIENTS}:\n{}", wrong.len(), wrong.join("\n"));
    server.wait_for("ocelli_free_slots", 48.0);
    server.wait_for("ocelli_queue_depth", 0.0);
    assert_eq!(server.metric("ocelli_failures_total"), 0.0);
}

/// Questions about a few images come back to both devices, in any order.
#[test]
fn devices_give_the_answers_of_one() {
    let place = Place::new();
    let question = |number: usize| {
        let classes: Vec<&str> = CLASSES.iter().copied().cycle().skip(number).take(2).collect();
        json!({"image": base64(&scene(SCENES[number % SCENES.len()])), "classes": classes, "masks": number.is_multiple_of(2)})
    };
    let answers = |engine: &str| -> Vec<String> {
        let server = Running::start(&place, &["--engine", engine]);
        let ask =
            |number: usize| server.post("/v1/detect", &question(number)).json()["detections"].to_string();
        let answers = std::thread::scope(|scope| {
            let ask = &ask;
            let clients: Vec<_> = (0..24).map(|number| scope.spawn(move || ask(number))).collect();
            clients.into_iter().map(|client| client.join().expect("it does not panic")).collect()
        });
        server.signal("-INT");
        assert_eq!(server.end().0, Some(130));
        answers
    };
    let one = answers("embedded");
    assert!(one.iter().any(|answer| answer.len() > 100), "{one:?}");
    assert_eq!(answers("embedded,embedded"), one);
}
