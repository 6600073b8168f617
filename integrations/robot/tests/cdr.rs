//! The serialisation against that of rosbags; `golden/make.py` has the same messages.

use std::collections::HashMap;
use std::fmt::Debug;

use ocelli_robot::cdr;
use ocelli_robot::messages::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn goldens() -> HashMap<&'static str, Vec<u8>> {
    let lines = include_str!("golden/cdr.txt").lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').expect("a name and bytes"));
    pairs.map(|(name, hex)| (name, bytes(hex))).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(pair).collect()
}

fn first() -> Header {
    Header { stamp: Time { sec: 1_700_000_000, nanosec: 999_999_999 }, frame_id: "camera/ü".into() }
}

fn last() -> Header {
    Header { stamp: Time { sec: -1, nanosec: 1 }, frame_id: String::new() }
}

fn detection(phrase: &str, score: f64, center: [f64; 2], size: [f64; 2], id: &str) -> Detection2D {
    let hypothesis = ObjectHypothesis { class_id: phrase.into(), score };
    Detection2D {
        header: first(),
        results: vec![ObjectHypothesisWithPose { hypothesis, ..Default::default() }],
        bbox: BoundingBox2D {
            center: Pose2D { position: center, theta: 0.0 },
            size_x: size[0],
            size_y: size[1],
        },
        id: id.into(),
    }
}

#[test]
fn messages_are_serialised_as_by_rosbags_and_read_back() {
    let goldens = goldens();
    let mut failures = Vec::new();
    check(
        &goldens,
        &mut failures,
        "image",
        &Image {
            header: first(),
            height: 2,
            width: 1,
            encoding: "rgb8".into(),
            is_bigendian: 0,
            step: 3,
            data: vec![0, 1, 2, 3, 4, 5],
        },
    );
    check(
        &goldens,
        &mut failures,
        "compressed",
        &CompressedImage { header: last(), format: "jpeg".into(), data: vec![255, 216, 255] },
    );
    check(
        &goldens,
        &mut failures,
        "detections",
        &Detection2DArray {
            header: first(),
            detections: vec![
                detection("red apple", 0.875, [10.5, 20.25], [3.0, 4.5], "17"),
                detection("犬", 0.5, [0.0, 0.125], [1.0, 2.0], ""),
            ],
        },
    );
    check(&goldens, &mut failures, "nothing", &Detection2DArray { header: last(), detections: Vec::new() });
    check(
        &goldens,
        &mut failures,
        "vision",
        &VisionInfo {
            header: last(),
            method: "Ocelli".into(),
            database_location: "/label_info".into(),
            database_version: 3,
        },
    );
    check(
        &goldens,
        &mut failures,
        "labels",
        &LabelInfo {
            header: first(),
            class_map: vec![
                VisionClass { class_id: 0, class_name: "red apple".into() },
                VisionClass { class_id: 1, class_name: "dog".into() },
            ],
            threshold: 0.25,
        },
    );
    assert_eq!(goldens.len(), 6, "every golden is compared");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check<M: Serialize + DeserializeOwned + PartialEq + Debug>(
    goldens: &HashMap<&str, Vec<u8>>,
    failures: &mut Vec<String>,
    name: &str,
    message: &M,
) {
    let expected = &goldens[name];
    match cdr::to_bytes(message) {
        Ok(found) if found == *expected => {}
        found => failures.push(format!("{name}: expected {expected:?}, found {found:?}")),
    }
    match cdr::from_bytes::<M>(expected) {
        Ok(found) if found == *message => {}
        found => failures.push(format!("{name}, read: {found:?}")),
    }
    for end in 0..expected.len() {
        if let Ok(read) = cdr::from_bytes::<M>(&expected[..end]) {
            failures.push(format!("{name}: {end} of {} bytes read as {read:?}", expected.len()));
        }
    }
}
