//! Moving cameras, and what is taken over from OC-SORT.

use super::{built, detection, eager, ids};
use crate::{ByteTracker, CameraMotion, TrackerDetection};

fn standing(centre: f32) -> TrackerDetection {
    detection([centre - 20.0, 100.0, 40.0, 80.0], 0.9, 0)
}

/// The ids of the tracks after each frame; a frame without a number has no detection.
fn walked(tracker: &mut ByteTracker, centres: &[Option<f32>]) -> Vec<Vec<u64>> {
    let update = |centre: &Option<f32>| {
        ids(tracker.update(&centre.map(standing).into_iter().collect::<Vec<_>>(), 1.0))
    };
    centres.iter().map(update).collect()
}

#[test]
fn tracks_move_with_the_camera() {
    let motion = |matrix| CameraMotion::new(matrix).expect("it is a motion");
    // What; the motion from frame to frame; frames without a detection; ids with and without compensation.
    let cases = [
        ("a pan", motion([[1.0, 0.0, 50.0], [0.0, 1.0, -7.0]]), 0, 1, 6),
        ("a pan with a gap", motion([[1.0, 0.0, 30.0], [0.0, 1.0, 0.0]]), 5, 1, 6),
        ("a zoom", motion([[1.5, 0.0, -300.0], [0.0, 1.5, -200.0]]), 0, 1, 6),
        ("a turn", motion([[0.98, -0.17, 40.0], [0.17, 0.98, 0.0]]), 0, 1, 6),
        ("a still camera", CameraMotion::STILL, 0, 1, 1),
    ];
    let mut failures = Vec::new();
    for (what, motion, gap, expected, uncompensated) in cases {
        for (compensates, expected) in [(true, expected), (false, uncompensated)] {
            let mut tracker = built(eager());
            let (mut at, mut side, mut newest) = ([400.0, 300.0], [40.0, 80.0], 0);
            for frame in 0..6 + gap {
                if frame > 0 {
                    (at, side) = (motion.point(at), [0, 1].map(|axis| side[axis] * motion.scale()[axis]));
                    if compensates {
                        tracker.compensate(&motion);
                    }
                }
                let ltwh = [at[0] - 0.5 * side[0], at[1] - 0.5 * side[1], side[0], side[1]]
                    .map(|value| value as f32);
                let seen = (!(3..3 + gap).contains(&frame)).then(|| detection(ltwh, 0.9, 0));
                let tracks = tracker.update(&Vec::from_iter(seen), 1.0);
                newest = ids(tracks).into_iter().chain([newest]).max().unwrap_or_default();
                for track in tracks.iter().filter(|_| compensates) {
                    if track.velocity.iter().any(|speed| speed.abs() > 0.05)
                        || track.bbox.iou(&ltwh_box(ltwh)) < 0.99
                    {
                        failures
                            .push(format!("{what}, frame {frame}: it rests at {ltwh:?}, but is {track:?}"));
                    }
                }
            }
            if newest != expected {
                failures
                    .push(format!("{what}, compensated {compensates}: {newest} ids, expected {expected}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn ltwh_box(ltwh: [f32; 4]) -> crate::BoundingBox {
    crate::BoundingBox::from_ltwh(ltwh)
}

#[test]
fn motions_that_no_camera_makes_are_refused() {
    let cases = [
        ("not a number", [[f64::NAN, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        ("infinite", [[1.0, 0.0, f64::INFINITY], [0.0, 1.0, 0.0]]),
        ("flat", [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]),
        ("mirrored", [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    ];
    let accepted: Vec<_> = cases.iter().filter(|(_, matrix)| CameraMotion::new(*matrix).is_ok()).collect();
    assert!(accepted.is_empty(), "{accepted:?}");
    let shift = CameraMotion::shift([3.0, 4.0]).expect("it is a motion");
    let twice = CameraMotion::new([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0]]).expect("it is a motion");
    assert_eq!(
        shift.then(&twice).expect("it is a motion").point([1.0, 1.0]),
        twice.point(shift.point([1.0, 1.0]))
    );
}

#[test]
fn a_gap_is_replayed_along_a_straight_line() {
    // It walks by 6 a frame, and stands still while it is hidden.
    let mut centres: Vec<_> = (0..10).map(|frame| Some(100.0 + 6.0 * frame as f32)).collect();
    centres.extend([None; 20]);
    centres.push(Some(154.0));
    let speed = |replays| {
        let mut tracker = built(eager().recover_iou(Some(0.3)).replay_gaps(replays));
        assert_eq!(walked(&mut tracker, &centres).last(), Some(&vec![1]), "replays: {replays}");
        tracker.tracks().next().expect("there is one").velocity[0]
    };
    // What stands has no speed; a correction of the prediction alone overshoots backwards.
    let (plain, replayed) = (speed(false), speed(true));
    assert!(replayed.abs() < 0.1 && plain < -1.0, "{plain}, replayed {replayed}");
}

#[test]
fn a_gap_that_was_walked_straight_is_replayed_with_the_same_speed() {
    let centres: Vec<_> =
        (0..20).map(|frame| (!(9..15).contains(&frame)).then_some(100.0 + 6.0 * frame as f32)).collect();
    for replays in [false, true] {
        let mut tracker = built(eager().replay_gaps(replays));
        assert_eq!(walked(&mut tracker, &centres).last(), Some(&vec![1]), "replays: {replays}");
        let track = *tracker.tracks().next().expect("there is one");
        assert!((track.velocity[0] - 6.0).abs() < 0.5, "replays: {replays}: {track:?}");
    }
}

#[test]
fn of_two_that_meet_momentum_prefers_those_that_go_on() {
    // Where both are after they met: the overlaps say that they turned back, the directions that they passed.
    let meet = |momentum| {
        let mut tracker = built(eager().momentum_weight(momentum));
        for step in 0..4 {
            tracker.update(&[standing(45.0 + step as f32), standing(55.0 - step as f32)], 1.0);
        }
        let tracks = tracker.update(&[standing(44.0), standing(54.0)], 1.0);
        tracks.iter().map(|track| (track.id, track.detection)).collect::<Vec<_>>()
    };
    assert_eq!(meet(0.0), [(1, Some(0)), (2, Some(1))], "by overlap alone");
    assert_eq!(meet(0.3), [(1, Some(1)), (2, Some(0))], "with momentum");
}

#[test]
fn what_stopped_while_hidden_is_found_where_it_was_last_seen() {
    let mut centres: Vec<_> = (0..8).map(|frame| Some(100.0 + 15.0 * frame as f32)).collect();
    centres.extend([None, None, None, Some(210.0)]);
    // The least overlap with the last detection, and the id at the end.
    let cases = [(None, 2), (Some(0.3), 1), (Some(0.8), 2)];
    let mut failures = Vec::new();
    for (recover, expected) in cases {
        let came = walked(&mut built(eager().recover_iou(recover)), &centres);
        if came.last() != Some(&vec![expected]) {
            failures.push(format!("{recover:?}: {came:?}, expected {expected} at the end"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
