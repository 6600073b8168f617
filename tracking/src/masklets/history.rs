//! The actions of a session, which decide what the next propagation does.

use crate::masklets::ObjectId;
use std::collections::BTreeSet;

/// Something that was asked of a session after its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A click on an object that is not tracked.
    Add {
        /// The frame.
        frame: usize,
        /// The object.
        id: ObjectId,
    },
    /// A click on an object that is tracked.
    Refine {
        /// The frame.
        frame: usize,
        /// The object.
        id: ObjectId,
    },
    /// An object was removed.
    Remove {
        /// The object.
        id: ObjectId,
    },
    /// A run through the video.
    Propagate {
        /// The work that it did.
        kind: Propagation,
        /// The frame that it was asked to start on.
        start: Option<usize>,
    },
}

/// The kind of a run through a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Detects and tracks everything.
    Full,
    /// Tracks some objects, and shows the others as before.
    Partial(BTreeSet<ObjectId>),
    /// Shows earlier results again.
    Fetch,
}

/// The work of the next run: everything at first; clicked objects after clicks; the rest of the frames after one run that
/// started inside the video; nothing new after that, or after a removal.
pub(crate) fn next_propagation(history: &[Action], frame_count: Option<usize>) -> Propagation {
    let is_run = |action: &Action| {
        matches!(action, Action::Propagate { kind: Propagation::Full | Propagation::Partial(_), .. })
    };
    match history {
        [] => Propagation::Full,
        [.., Action::Propagate { kind: Propagation::Fetch, .. }] => Propagation::Fetch,
        [before @ .., Action::Propagate { kind, start }] => {
            let is_at_end = |start: usize| start == 0 || Some(start + 1) == frame_count;
            let is_complete = before.last().is_some_and(is_run) || start.is_some_and(is_at_end);
            if is_complete { Propagation::Fetch } else { kind.clone() }
        }
        _ => {
            let recent =
                history.iter().rev().take_while(|action| !matches!(action, Action::Propagate { .. }));
            let clicked: BTreeSet<ObjectId> = recent
                .filter_map(|action| match action {
                    Action::Add { id, .. } | Action::Refine { id, .. } => Some(*id),
                    _ => None,
                })
                .collect();
            if clicked.is_empty() { Propagation::Fetch } else { Propagation::Partial(clicked) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_decides_what_a_run_does() {
        let run = |kind: Propagation, start: Option<usize>| Action::Propagate { kind, start };
        let clicked = || Propagation::Partial(BTreeSet::from([1, 4]));
        let (add, refine) = (Action::Add { frame: 3, id: 4 }, Action::Refine { frame: 3, id: 1 });
        let remove = Action::Remove { id: 2 };
        let full = |start| run(Propagation::Full, start);
        let cases = [
            (vec![], Propagation::Full),
            (vec![full(None)], Propagation::Full),
            (vec![full(Some(3))], Propagation::Full),
            (vec![full(Some(0))], Propagation::Fetch),
            (vec![full(Some(9))], Propagation::Fetch),
            (vec![full(None), full(None)], Propagation::Fetch),
            (vec![run(Propagation::Fetch, None)], Propagation::Fetch),
            (vec![remove.clone()], Propagation::Fetch),
            (vec![full(None), add.clone(), remove, refine], clicked()),
            (vec![full(None), add, run(clicked(), Some(3))], clicked()),
            (vec![run(clicked(), Some(3)), run(clicked(), Some(3))], Propagation::Fetch),
        ];
        for (history, expected) in cases {
            assert_eq!(next_propagation(&history, Some(10)), expected, "{history:?}");
        }
    }
}
