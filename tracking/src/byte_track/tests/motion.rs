//! Moving cameras.

use super::{built, detection, eager, ids};
use crate::CameraMotion;

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
