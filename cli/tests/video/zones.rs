//! Lines and zones: counts, events, what is drawn.

use std::time::Duration;

use ocelli::tracking::{CountingLine, Track, TrackState, Zone, ZoneCounter, ZoneEventKind, ZoneOptions};
use serde_json::Value;

use super::{draw_video, frames_of, lines_of, succeed};
use crate::run::{Place, refusal};

const ZONES: &str = "\
lines:
  - {name: middle, from: [0.5, 0.0], to: [0.5, 1.0]}
  - {name: level, from: [0.0, 0.5], to: [1.0, 0.5]}
zones:
  - name: left half
    points: [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]
";

/// The events that the library finds in the tracks of the lines of frames.
fn expected(lines: &[ocelli::report::FrameReport]) -> Vec<(String, u64, u64)> {
    let (w, h) = (lines[0].width as f32, lines[0].height as f32);
    let line = |from: [f32; 2], to: [f32; 2]| CountingLine { name: "x".into(), from, to };
    let zone = Zone { name: "x".into(), points: vec![[0.0, 0.0], [0.5 * w, 0.0], [0.5 * w, h], [0.0, h]] };
    let options = ZoneOptions { margin: 0.01 * h, ..ZoneOptions::default() };
    let across = vec![line([0.5 * w, 0.0], [0.5 * w, h]), line([0.0, 0.5 * h], [w, 0.5 * h])];
    let mut counter = ZoneCounter::new(across, vec![zone], options).expect("they are valid");
    let mut found = Vec::new();
    let mut keep = |events: &[ocelli::tracking::ZoneEvent]| {
        found.extend(events.iter().map(|event| {
            let kind = match event.kind {
                ZoneEventKind::Crossed(line, direction) => {
                    format!("crossed {line} {direction:?}").to_lowercase()
                }
                ZoneEventKind::Entered(_) => "entered".into(),
                _ => "left".into(),
            };
            (kind, event.track, event.time.as_millis() as u64)
        }));
    };
    for frame in lines {
        let tracks: Vec<Track> = frame
            .tracks
            .iter()
            .map(|track| Track {
                id: track.id,
                class_id: track.class_id,
                score: track.score,
                bbox: track.bbox,
                age_frames: 0.0,
                hits: 1,
                state: if track.state == TrackState::Lost { TrackState::Lost } else { TrackState::Tracked },
                velocity: [0.0; 2],
                frames_since_seen: 0.0,
                detection: None,
            })
            .collect();
        keep(counter.update(&tracks, Duration::from_secs_f64(frame.time_s)));
    }
    keep(counter.finish());
    found
}

#[test]
fn lines_and_zones_are_counted_written_and_drawn() {
    let place = Place::new();
    draw_video(&place, "in.mp4", 150);
    place.write("zones.yaml", ZONES);
    let run = "--video in.mp4 --imgsz 112 --classes moon --track --zones zones.yaml --jsonl lines.jsonl -q";
    let events = succeed(&place, &format!("{run} --events - -o out.mp4 --draw-zones"));
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect();
    let found: Vec<(String, u64, u64)> = events
        .iter()
        .map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let kind = match text("event").as_str() {
                "crossed" => {
                    let line = if text("line") == "middle" { 0 } else { 1 };
                    format!("crossed {line} {}", text("direction"))
                }
                other => {
                    assert_eq!(text("zone"), "left half");
                    assert_eq!(other == "left", event["dwell_s"].is_number(), "{event}");
                    other.to_owned()
                }
            };
            assert_eq!((text("label"), event["class_id"].as_u64()), ("moon".into(), Some(0)));
            let ms = (event["time_s"].as_f64().expect("it has a time") * 1e3).round() as u64;
            (kind, event["track"].as_u64().expect("it has a track"), ms)
        })
        .collect();
    let lines = lines_of(&place.read("lines.jsonl"));
    assert_eq!(found, expected(&lines));
    assert!(!found.is_empty(), "the moon moves through the image");
    // The line in the middle is drawn, where there was none.
    let (drawn, _) = frames_of(&place.path("out.mp4"));
    succeed(&place, &format!("{run} -o plain.mp4 --max-frames 1"));
    let (plain, _) = frames_of(&place.path("plain.mp4"));
    let differing = (0..240).filter(|y| {
        let at = 3 * (320 * y + 160);
        drawn[0].image.as_rgb8()[at].abs_diff(plain[0].image.as_rgb8()[at]) > 20
    });
    assert!(differing.count() > 100, "along the line");
    // The tables, and a file of events that is emptied even if there are none.
    place.write("events.jsonl", "yesterday's\n");
    let table = succeed(
        &place,
        "--video in.mp4 --classes moon --track --zones zones.yaml --max-frames 1 --events events.jsonl",
    );
    assert!(table.contains("moon"), "{table}");
    let one = expected(&lines[..1]).len();
    assert_eq!(String::from_utf8_lossy(&place.read("events.jsonl")).lines().count(), one);
}

#[test]
fn invalid_zones_are_refused() {
    let place = Place::new();
    place.write("zones.yaml", ZONES);
    place.write("point.yaml", "lines: [{name: door, from: [0.5, 0.5], to: [0.5, 0.5]}]");
    place.write("key.yaml", "lines: [{nam: door, from: [0, 0], to: [1, 1]}]");
    place.write("none.yaml", "units: pixels");
    place.write("other.yaml", "lines: [{name: door, from: [0, 0], to: [1, 1], source: gate}]");
    let row = |end: &str| format!("--classes|dog|--max-frames|1|{end}");
    let rows = [
        (row("--zones|zones.yaml"), &["--zones", "--track"][..]),
        (row("--events|x.jsonl|--track"), &["--zones"]),
        (row("--track|--zones|point.yaml"), &["point.yaml", "line door"]),
        (row("--track|--zones|key.yaml"), &["key.yaml", "expected YAML"]),
        (row("--track|--zones|none.yaml"), &["none.yaml", "at least one"]),
        (row("--track|--zones|missing.yaml"), &["missing.yaml"]),
        (row("--track|--zones|other.yaml"), &["other.yaml", "line door is of source gate", "expected "]),
    ];
    let rows: Vec<_> = rows.iter().map(|(arguments, words)| refusal(arguments, 2, words)).collect();
    place.refuses(super::VIDEO, &rows);
}

/// Answers requests with these statuses, and then with 200; returns the bodies of those that succeeded.
fn server(count: usize, failures: Vec<u16>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/events", listener.local_addr().expect("it is bound"));
    let serve = move || {
        let (mut failures, mut bodies) = (failures.into_iter(), Vec::new());
        while bodies.len() < count {
            let (mut stream, _) = listener.accept().expect("it listens");
            let mut reader = BufReader::new(stream.try_clone().expect("it is open"));
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the whole body comes");
            let status = failures.next().unwrap_or(200);
            if status == 200 {
                bodies.push(String::from_utf8(body).expect("JSON is text"));
            }
            write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .expect("it is open");
        }
        bodies
    };
    (url, std::thread::spawn(serve))
}

/// The arguments of a run with events.
pub const EVENTS: &str =
    "--video in.mp4 --classes moon --track --zones zones.yaml --events events.jsonl --detect-every 4";

/// Draws the video of [`EVENTS`], and returns its events, a line each.
pub fn events(place: &Place) -> Vec<String> {
    draw_video(place, "in.mp4", 100);
    place.write("zones.yaml", ZONES);
    succeed(place, EVENTS);
    let text = String::from_utf8(place.read("events.jsonl")).expect("JSON is text");
    let events: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(!events.is_empty());
    events
}

#[test]
fn events_are_sent_in_order() {
    let place = Place::new();
    let (run, events) = (EVENTS, events(&place));
    let (url, received) = server(events.len(), vec![503]);
    let ran = super::run_video(&place, &format!("{run} --webhook {url}"));
    assert!(ran.status == Some(0) && !ran.stderr.contains("not delivered"), "{ran:?}");
    assert_eq!(received.join().expect("it received all"), events);
    // Nobody listens: the run succeeds, and says so.
    let ran = super::run_video(&place, &format!("{run} --webhook http://127.0.0.1:9/"));
    let said = format!("{0} of {0} events were not delivered", events.len());
    assert!(ran.status == Some(0) && ran.stderr.contains(&said), "{ran:?}");
    let refused = super::run_video(&place, &format!("{run} --webhook https://127.0.0.1/"));
    refused.is_refusal(2, &["--webhook", "http://"]).unwrap_or_else(|e| panic!("{e}"));
}
