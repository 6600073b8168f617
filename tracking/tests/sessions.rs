//! Recorded sessions of SAM 3's video predictor.

use crate::options::{MULTIPLEX, MULTIPLEX_GOES_ON};
use crate::replay::{self, Replayed, array, compare_ops, list, number, read, replay, replay_file};
use crate::script::Sequence;
use ocelli_tracking::masklets::Retention;
use serde_json::{Value, json};
use std::path::Path;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/masklets/sessions.json.gz");
const BUCKETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/masklets/multiplex.json.gz");

#[test]
fn recorded_sessions_are_replayed() {
    let result = replay_file(Path::new(RECORDED)).expect("the recording can be replayed");
    let first: Vec<_> = result.differences.iter().take(5).collect();
    assert_eq!((result.differences.len(), result.equal), (0, 104), "{result}: {first:#?}");
    assert_eq!((result.runs, result.steps, result.shown), (104, 2654, 2842));
}

#[test]
fn recorded_sessions_of_buckets_are_replayed() {
    let result = replay_file(Path::new(BUCKETS)).expect("the recording can be replayed");
    let first: Vec<_> = result.differences.iter().take(5).collect();
    assert_eq!((result.differences.len(), result.equal), (0, 48), "{result}: {first:#?}");
    assert_eq!((result.runs, result.steps, result.shown), (48, 1333, 1361));
}

/// The decisions before clicks on objects of buckets, and what is shown before and after them, are those that were recorded,
/// whatever the memories are.
#[test]
fn recorded_clicks_in_buckets_are_shown() {
    let file = read(Path::new(BUCKETS)).expect("the recording can be read");
    let grid = number(&file, "grid").expect("the recording has a grid");
    let mut result = Replayed::default();
    for sequence in list(&file, "sequences").expect("the recording has sequences") {
        let sequence = Sequence::new(sequence, grid).expect("the sequence can be read");
        if sequence.name.starts_with("points") {
            let (mode, recorded) = &sequence.recorded[0];
            let replayed = replay(&sequence, mode, Retention::Video).expect("the sequence can be replayed");
            compare_ops(&sequence.name, recorded, &replayed, &mut result);
        }
    }
    // The reference computes with other memories after a click, and records them per bucket.
    let of_memories =
        [", bank: ", ", encode: ", ", born_memory_area: ", "operation 2, steps: ", "operation 3, steps: "];
    let is_shown = |line: &&String| !of_memories.iter().any(|key| line.contains(key));
    let shown: Vec<_> = result.differences.iter().filter(is_shown).collect();
    assert_eq!((shown, result.steps, result.shown), (Vec::new(), 61, 88));
}

/// A run in one direction makes the same decisions if it keeps only what it may still read: only the lists of
/// frames are shorter.
#[test]
fn runs_with_bounded_memory_decide_the_same() {
    for (file, runs, sequences, lists) in
        [(RECORDED, 84, 52, ", cond: expected"), (BUCKETS, 42, 51, ", states: expected")]
    {
        let file = read(Path::new(file)).expect("the recording can be read");
        let grid = number(&file, "grid").expect("the recording has a grid");
        let mut result = Replayed::default();
        let mut count = 0;
        for sequence in list(&file, "sequences").expect("the recording has sequences") {
            let sequence = Sequence::new(sequence, grid).expect("the sequence can be read");
            if !matches!(sequence.ops.as_slice(), [_, run] if run[0] == "propagate" && run[1] != "both") {
                continue;
            }
            for (mode, recorded) in &sequence.recorded {
                count += 1;
                let replayed =
                    replay(&sequence, mode, Retention::Window).expect("the sequence can be replayed");
                compare_ops(&format!("{} {mode}", sequence.name), recorded, &replayed, &mut result);
            }
        }
        assert_eq!((count, array(&file["sequences"]).len()), (runs, sequences));
        let (shorter, other): (Vec<_>, Vec<_>) =
            result.differences.iter().partition(|line| line.contains(lists));
        assert_eq!((other, shorter.is_empty()), (vec![], false));
    }
}

/// Replays a recorded sequence of SAM 3.1 in a mode, also beyond the end of the recording.
fn replay_buckets(name: &str, mode: &str) -> replay::Result<Vec<Value>> {
    let mut file = read(Path::new(BUCKETS)).expect("the recording can be read");
    let grid = number(&file, "grid").expect("the recording has a grid");
    let sequences = file["sequences"].as_array_mut().expect("the recording has sequences");
    let sequence = sequences.iter_mut().find(|sequence| sequence["name"] == name).expect("it was recorded");
    sequence["meta"] = json!([]);
    let sequence = Sequence::new(sequence, grid).expect("the sequence can be read");
    replay(&sequence, mode, Retention::Video)
}

#[test]
fn sessions_of_buckets_go_on_where_the_reference_fails() {
    for (name, frames, ids) in
        [("elder_removed", 30, vec![1]), ("range", 6, vec![0, 1]), ("forward_twice", 24, vec![0, 2])]
    {
        let ops = replay_buckets(name, MULTIPLEX_GOES_ON).expect("it goes on");
        let run = &ops[ops.len() - 1];
        let (steps, shown) = (array(&run["steps"]), array(&run["shown"]));
        assert_eq!((steps.len(), shown.len()), (frames, frames), "{name}");
        assert_eq!(steps[frames - 1]["ids"], json!(ids), "{name}");
        assert_eq!(shown[frames - 1]["ids"], json!(ids), "{name}");
    }
    let ops = replay_buckets("elder_removed", MULTIPLEX_GOES_ON).expect("it goes on");
    let step = |frame: usize| &ops[1]["steps"][frame];
    assert_eq!((&step(8)["removed"], &step(8)["states"][0]["cond"]), (&json!([0]), &json!([3])));
    assert_eq!(step(9)["bank"][0]["mem"][0], json!([3, 0, [[0, 1]], [[1]], 1]), "the birth of object 1");
    let error = replay_buckets("elder_removed", MULTIPLEX).expect_err("the reference fails");
    assert!(error.to_string().starts_with("frame 9: objects [1] have no memory, because"), "{error}");
}

#[test]
fn removed_objects_of_buckets_are_shown_only_as_released() {
    for (mode, removed) in [(MULTIPLEX, json!(-10000.0)), (MULTIPLEX_GOES_ON, Value::Null)] {
        let ops = replay_buckets("unmatched", mode).expect("the sequence can be replayed");
        let steps = array(&ops[1]["steps"]);
        let step = steps.iter().find(|step| step["removed"] == json!([1])).expect("object 1 is removed");
        let shown =
            array(&ops[1]["shown"]).iter().find(|shown| shown["f"] == step["f"]).expect("it is shown");
        let place = array(&shown["ids"]).iter().position(|id| *id == json!(1));
        assert_eq!(place.map_or(Value::Null, |place| shown["scores"][place].clone()), removed, "{mode}");
    }
}
