//! `ocelli track` on sequences with crossings, occlusions, misses and false positives, against PyPI's `trackers`.
//!
//! The sequences, the figures of the peer and the script that generates both are in `tests/golden/tracking`. The figures
//! here are those of `ocelli eval --video`, and are compared with those of `motmetrics`. `cargo test -p ocelli-cli tracking_golden --
//! --nocapture` prints them.

#![allow(clippy::print_stdout, reason = "the figures are worth seeing when all is well, too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ocelli::tracking::{MotBox, read_mot};
use ocelli_datasets::eval::video::{ObjectBox, Role, TrackBox, TrackCounts, TrackSequence};
use serde_json::Value;

use crate::run::Place;

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tracking")
}

fn boxes(path: &Path) -> Vec<MotBox> {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    read_mot(&path.display().to_string(), text.as_slice()).expect("it is MOTChallenge text")
}

fn golden() -> Value {
    let text = std::fs::read_to_string(folder().join("comparison.json")).expect("it is in the repository");
    serde_json::from_str(&text).expect("the script writes JSON")
}

/// The flags of a setting.
fn flags(golden: &Value, setting: &str) -> Vec<String> {
    let options = golden["settings"][setting]["ocelli"].as_object().expect("flags and their numbers");
    options.iter().flat_map(|(flag, value)| [flag.clone(), value.to_string()]).collect()
}

/// MOTA and IDF1 of the sums of `motmetrics`' counts.
fn of_counts<'g>(entries: impl Iterator<Item = &'g Value> + Clone) -> (f64, f64) {
    let sum = |name: &str| -> f64 {
        entries.clone().map(|entry| entry[name].as_u64().expect("a count") as f64).sum()
    };
    let wrong = sum("misses") + sum("false_alarms") + sum("switches");
    (1.0 - wrong / sum("objects"), 2.0 * sum("identity_hits") / (sum("objects") + sum("tracked")))
}

fn of_sequences<'c>(counts: impl Iterator<Item = &'c TrackCounts>) -> (f64, f64) {
    let figures = counts.cloned().sum::<TrackCounts>().figures();
    (figures.mota, figures.idf1)
}

/// Counts of one sequence.
fn score(truth: &[MotBox], tracks: &[MotBox]) -> TrackCounts {
    let mut frames: BTreeMap<u32, (Vec<ObjectBox>, Vec<TrackBox>)> = BTreeMap::new();
    let of = |one: &MotBox| (one.id.expect("truth and tracks have ids"), one.bbox.to_ltwh().map(f64::from));
    for one in truth {
        let (id, ltwh) = of(one);
        frames.entry(one.frame).or_default().0.push(ObjectBox { id, ltwh, role: Role::Counts });
    }
    for one in tracks {
        let (id, ltwh) = of(one);
        frames.entry(one.frame).or_default().1.push(TrackBox { id, ltwh });
    }
    let mut sequence = TrackSequence::default();
    for (objects, tracks) in frames.values() {
        sequence.push_boxes(objects, tracks).expect("ids are unique");
    }
    TrackCounts::of(&sequence)
}

/// For each committed sequence: its name, the counts of `ocelli track`, the golden's entry.
fn measure(golden: &Value, setting: &str) -> Vec<(String, TrackCounts, Value)> {
    let place = Place::new();
    let sequences = golden["sequences"].as_object().expect("sequences by name");
    let measured = sequences.iter().map(|(name, entry)| {
        let file = |kind: &str| folder().join(format!("data/{name}.{kind}.txt"));
        let detections = file("det").display().to_string();
        let mut arguments = vec!["track", "--quiet", "--detections", &detections, "--output", "tracks.txt"];
        let flags = flags(golden, setting);
        arguments.extend(flags.iter().map(String::as_str));
        place.succeed(OCELLI, &arguments);
        let counts = score(&boxes(&file("truth")), &boxes(&place.path("tracks.txt")));
        (name.clone(), counts, entry[setting].clone())
    });
    measured.collect()
}

/// The counts of `ocelli track` equal those that `motmetrics` recorded for it. MOTA and IDF1 may differ by a thousandth,
/// because rounding depends on the compiler.
#[test]
fn the_scores_are_those_of_motmetrics() {
    let golden = golden();
    let mut failures = Vec::new();
    for setting in ["defaults", "tuned"] {
        for (name, ours, entry) in measure(&golden, setting) {
            let ours = of_sequences(std::iter::once(&ours));
            let theirs = of_counts(std::iter::once(&entry["ocelli"]));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-3;
            if !near(ours.0, theirs.0) || !near(ours.1, theirs.1) {
                failures.push(format!("{name}, {setting}: {ours:?}, motmetrics {theirs:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn accuracy_is_at_least_that_of_the_peer() {
    let golden = golden();
    let mut failures = Vec::new();
    for setting in ["defaults", "tuned"] {
        let measured = measure(&golden, setting);
        assert!(measured.len() >= 8, "only {} sequences", measured.len());
        let ours = of_sequences(measured.iter().map(|(_, counts, _)| counts));
        let peer = of_counts(measured.iter().map(|(_, _, entry)| &entry["trackers"]));
        for (what, ours, peer) in [("MOTA", ours.0, peer.0), ("IDF1", ours.1, peer.1)] {
            println!("{setting}: {what} {ours:.3}, trackers {peer:.3}");
            if ours < peer {
                failures.push(format!("{setting}: {what} {ours:.4}, trackers {peer:.4}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
