//! The appearance of detections.

use super::{built, detection, eager, ids};
use crate::{Appearances, ByteTracker, ByteTrackerOptions, TrackerDetection};

/// Looks of one class: a large common part, and a small part of each object's own.
fn look(own: [f32; 2]) -> [f32; 3] {
    [1.0, 0.2 * own[0], 0.2 * own[1]]
}

const RED: [f32; 2] = [1.0, 0.0];
const BLUE: [f32; 2] = [0.0, 1.0];

fn at(x: f32) -> TrackerDetection {
    detection([x - 20.0, 100.0, 40.0, 80.0], 0.9, 0)
}

/// The ids of objects at these places that look so; without looks if they are not to be known.
fn seen(tracker: &mut ByteTracker, objects: &[(f32, [f32; 2])], known: bool) -> Vec<u64> {
    let detections: Vec<_> = objects.iter().map(|&(x, _)| at(x)).collect();
    let mut appearances = Appearances::default();
    if known {
        appearances.reset(3);
        objects.iter().for_each(|&(_, own)| appearances.push(&look(own)));
    }
    let tracks = tracker.update_with(&detections, &appearances, 1.0, |_| true);
    let mut by_place: Vec<_> = tracks.iter().map(|track| (track.bbox.x1, track.id)).collect();
    by_place.sort_by(|a, b| a.0.total_cmp(&b.0));
    by_place.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn hidden_objects_are_found_again_by_what_they_look_like() {
    for (known, swapped, expected) in [
        (true, false, vec![1, 2]),
        (true, true, vec![2, 1]),
        (false, false, vec![3, 4]),
        (false, true, vec![3, 4]),
    ] {
        let mut tracker = built(eager());
        for _ in 0..5 {
            assert_eq!(seen(&mut tracker, &[(200.0, RED), (300.0, BLUE)], known), [1, 2]);
        }
        for _ in 0..10 {
            assert_eq!(seen(&mut tracker, &[], known), [0; 0]);
        }
        // They come out on the other side of what hid them, each as near to one as to the other.
        let (left, right) = if swapped { (BLUE, RED) } else { (RED, BLUE) };
        let found = seen(&mut tracker, &[(249.0, left), (251.0, right)], known);
        // Both are in one place: the second box is a duplicate of the first for a tracker that does not know them.
        assert_eq!(found[0], expected[0], "known {known}, swapped {swapped}: {found:?}");
    }
}

#[test]
fn what_is_beyond_reach_is_another_object() {
    // Frames without it, where it is found again, its id.
    for (gap, x, expected) in [(2, 240.0, 1), (2, 300.0, 2), (20, 300.0, 1), (20, 420.0, 2), (40, 240.0, 2)] {
        let mut tracker = built(eager());
        for _ in 0..5 {
            seen(&mut tracker, &[(200.0, RED)], true);
        }
        for _ in 0..gap {
            seen(&mut tracker, &[], true);
        }
        assert_eq!(seen(&mut tracker, &[(x, RED)], true), [expected], "after {gap} frames at {x}");
    }
    let mut tracker = built(ByteTrackerOptions { appearance_weight: 0.0, ..eager() });
    seen(&mut tracker, &[(200.0, RED)], true);
    seen(&mut tracker, &[], true);
    assert_eq!(seen(&mut tracker, &[(240.0, RED)], true), [2], "without weight");
}

#[test]
fn another_class_or_size_is_another_object() {
    for (class_id, side, expected) in [(0, 40.0, 1), (1, 40.0, 2), (0, 70.0, 1), (0, 100.0, 2), (0, 15.0, 2)]
    {
        let mut tracker = built(eager());
        seen(&mut tracker, &[(200.0, RED)], true);
        seen(&mut tracker, &[], true);
        let mut appearances = Appearances::default();
        appearances.reset(3);
        appearances.push(&look(RED));
        let moved = detection([228.0 - 0.5 * side, 140.0 - side, side, 2.0 * side], 0.9, class_id);
        let tracks = tracker.update_with(&[moved], &appearances, 1.0, |_| true);
        assert_eq!(ids(tracks), [expected], "class {class_id}, side {side}");
    }
}

#[test]
fn vectors_without_a_direction_say_nothing() {
    let mut appearances = Appearances::default();
    appearances.reset(2);
    for vector in [[3.0, 4.0], [0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0], [1e30, 1e30]] {
        appearances.push(&vector);
    }
    let half = 0.5f32.sqrt();
    let expected = [[0.6, 0.8], [0.0; 2], [0.0; 2], [0.0; 2], [half; 2]];
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(appearances.get(index), Some(&expected[..]), "vector {index}");
    }
    assert_eq!(appearances.get(5), None);
    assert_eq!(Appearances::default().get(0), None);
    // Such a detection is an ordinary one.
    let mut tracker = built(eager());
    seen(&mut tracker, &[(200.0, RED)], true);
    seen(&mut tracker, &[], true);
    appearances.reset(3);
    appearances.push(&[f32::NAN; 3]);
    assert_eq!(ids(tracker.update_with(&[at(240.0)], &appearances, 1.0, |_| true)), [2]);
}
