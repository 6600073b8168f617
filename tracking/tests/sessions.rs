//! Recorded sessions of SAM 3's video predictor.

use crate::replay::{Replayed, array, compare_ops, list, number, read, replay, replay_file};
use crate::script::Sequence;
use ocelli_tracking::masklets::Retention;
use std::path::Path;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/masklets/sessions.json.gz");

#[test]
fn recorded_sessions_are_replayed() {
    let result = replay_file(Path::new(RECORDED)).expect("the recording can be replayed");
    let first: Vec<_> = result.differences.iter().take(5).collect();
    assert_eq!((result.differences.len(), result.equal), (0, 104), "{result}: {first:#?}");
    assert_eq!((result.runs, result.steps, result.shown), (104, 2654, 2842));
}

/// A run in one direction makes the same decisions if it keeps only what it may still read: only the list of conditioning
/// frames is shorter.
#[test]
fn runs_with_bounded_memory_decide_the_same() {
    let file = read(Path::new(RECORDED)).expect("the recording can be read");
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
            let replayed = replay(&sequence, mode, Retention::Window).expect("the sequence can be replayed");
            compare_ops(&format!("{} {mode}", sequence.name), recorded, &replayed, &mut result);
        }
    }
    assert_eq!((count, array(&file["sequences"]).len()), (84, 52));
    let (shorter, other): (Vec<_>, Vec<_>) =
        result.differences.iter().partition(|line| line.contains(", cond: expected"));
    assert_eq!((other, shorter.is_empty()), (vec![], false));
}
