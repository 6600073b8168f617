mod look;
mod motion;

use super::{ByteTracker, ByteTrackerOptions, MatchClasses};
use crate::test_random::Random;
use crate::{Appearances, BoundingBox, Track, TrackState, TrackerDetection};

fn detection(ltwh: [f32; 4], score: f32, class_id: usize) -> TrackerDetection {
    TrackerDetection { bbox: BoundingBox::from_ltwh(ltwh), score, class_id }
}

/// A tracker that reports a track from its first frame on.
fn eager() -> ByteTrackerOptions {
    ByteTrackerOptions { min_hits: Some(1), ..Default::default() }
}

fn built(options: ByteTrackerOptions) -> ByteTracker {
    ByteTracker::new(options).expect("the test's options are in range")
}

fn ids(tracks: &[Track]) -> Vec<u64> {
    tracks.iter().map(|track| track.id).collect()
}

const HERE: [f32; 4] = [100.0, 100.0, 40.0, 80.0];

#[test]
fn ids_count_from_1_in_each_tracker() {
    let run = |tracker: &mut ByteTracker| -> Vec<Vec<u64>> {
        (0..4)
            .map(|frame| {
                let others = [detection(HERE, 0.9, 0), detection([400.0, 100.0, 40.0, 80.0], 0.8, 0)];
                ids(tracker.update(&others[..1 + usize::from(frame > 1)], 1.0))
            })
            .collect()
    };
    let (mut first, mut second) = (built(eager()), built(eager()));
    let expected: [&[u64]; 4] = [&[1], &[1], &[1, 2], &[1, 2]];
    assert_eq!(run(&mut first), expected);
    assert_eq!(run(&mut second), expected, "trackers do not share ids");
    first.reset();
    assert_eq!(run(&mut first), expected, "after a reset");
}

#[test]
fn lost_tracks_are_removed_after_max_time_lost() {
    // (frames without a detection, the id when it is detected again)
    let cases = [(0, 1), (1, 1), (28, 1), (29, 1), (30, 2), (31, 2), (200, 2)];
    let mut failures = Vec::new();
    for (gap, expected) in cases {
        let mut tracker = built(eager());
        tracker.update(&[detection(HERE, 0.9, 0)], 1.0);
        for empty in 1..=gap {
            assert_eq!(tracker.update(&[], 1.0), []);
            let left: Vec<_> = tracker.tracks().map(|track| (track.state, track.frames_since_seen)).collect();
            let lost = if empty <= 30 { vec![(TrackState::Lost, empty as f32)] } else { Vec::new() };
            if left != lost {
                failures.push(format!("after {empty} empty frames: {left:?}, expected {lost:?}"));
            }
        }
        let came = ids(tracker.update(&[detection(HERE, 0.9, 0)], 1.0));
        if came != [expected] {
            failures.push(format!("after a gap of {gap}: {came:?}, expected {expected}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn time_is_counted_in_frames_not_in_calls() {
    // A camera at half the rate: the same motion, half the updates, twice the time each.
    let walk = |step: usize, dt: f32| -> Vec<(u64, [f32; 2], f32)> {
        let mut tracker = built(eager());
        (0..60)
            .step_by(step)
            .map(|frame| {
                let bbox = [100.0 + 4.0 * frame as f32, 100.0, 40.0, 80.0];
                let tracks = tracker.update(&[detection(bbox, 0.9, 0)], dt);
                (tracks[0].id, tracks[0].velocity, tracks[0].age_frames)
            })
            .collect()
    };
    let (every, second) = (walk(1, 1.0), walk(2, 2.0));
    let (last, last_second) = (every[58], second[29]);
    assert_eq!((last.0, last_second.0), (1, 1));
    assert_eq!((last.2, last_second.2), (58.0, 58.0));
    for (_, [x, y], _) in [last, last_second] {
        assert!((x - 4.0).abs() < 0.05 && y.abs() < 1e-3, "velocity {x}, {y} for 4 px a frame");
    }
    // Frames without a detector run lose no tracks and are interpolated.
    let mut tracker = built(eager());
    for frame in 0..60 {
        let left = 100.0 + 4.0 * frame as f32;
        let tracks = if frame % 3 == 0 {
            tracker.update(&[detection([left, 100.0, 40.0, 80.0], 0.9, 0)], 1.0)
        } else {
            tracker.predict(1.0)
        };
        assert_eq!(ids(tracks), [1], "frame {frame}");
        assert_eq!(tracks[0].detection.is_some(), frame % 3 == 0);
        assert!(frame < 20 || (tracks[0].bbox.x1 - left).abs() < 1.0, "frame {frame}: {tracks:?}");
    }
    // A long interval counts like many short ones.
    let mut tracker = built(eager());
    tracker.update(&[detection(HERE, 0.9, 0)], 1.0);
    assert_eq!(ids(tracker.update(&[detection(HERE, 0.9, 0)], 31.0)), [2]);
    // Invalid time steps count as 0.
    for dt in [0.0, -3.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let tracks = tracker.update(&[detection(HERE, 0.9, 0)], dt);
        assert_eq!((ids(tracks), tracks[0].age_frames), (vec![2], 0.0), "dt {dt}");
        assert!(tracks[0].bbox.is_finite(), "dt {dt}: {tracks:?}");
    }
}

#[test]
fn sizes_stay_positive() {
    // Shrinks quickly and disappears: a linear prediction leads below 0.
    let mut tracker =
        built(ByteTrackerOptions { coast_frames: 30, match_iou: 0.0, lost_match_iou: 0.0, ..eager() });
    for side in [90.0, 70.0, 50.0, 30.0, 10.0, 4.0] {
        let tracks =
            tracker.update(&[detection([200.0 - side / 2.0, 200.0 - side / 2.0, side, side], 0.9, 0)], 1.0);
        assert_eq!(ids(tracks), [1]);
    }
    for frame in 0..30 {
        let tracks = tracker.update(&[], 1.0);
        assert_eq!(ids(tracks), [1], "frame {frame}");
        assert!(tracks[0].bbox.has_area(), "frame {frame}: {tracks:?}");
    }
    assert_eq!(tracker.update(&[], 1.0), []);
}

#[test]
fn classes_mix_only_with_any() {
    // Detections in the same place as (class, score) and the reported (id, class), frame by frame.
    type Case = (MatchClasses, &'static [(usize, f32)], &'static [(u64, usize)]);
    let cases: &[Case] = &[
        (MatchClasses::Same, &[(0, 0.9), (0, 0.9), (1, 0.9), (0, 0.9)], &[(1, 0), (1, 0), (2, 1), (1, 0)]),
        (MatchClasses::Any, &[(0, 0.9), (0, 0.9), (1, 0.9), (0, 0.9)], &[(1, 0), (1, 0), (1, 0), (1, 0)]),
        (MatchClasses::Any, &[(0, 0.6), (1, 0.9), (1, 0.9)], &[(1, 0), (1, 1), (1, 1)]),
        // Low scores and lost tracks, too.
        (MatchClasses::Same, &[(0, 0.9), (0, 0.9), (1, 0.3), (0, 0.9)], &[(1, 0), (1, 0), (0, 0), (1, 0)]),
        (MatchClasses::Any, &[(0, 0.9), (0, 0.9), (1, 0.3), (0, 0.9)], &[(1, 0), (1, 0), (1, 0), (1, 0)]),
    ];
    let mut failures = Vec::new();
    for &(match_classes, frames, expected) in cases {
        let mut tracker = built(ByteTrackerOptions { match_classes, ..eager() });
        let came: Vec<_> = frames
            .iter()
            .map(|&(class, score)| match tracker.update(&[detection(HERE, score, class)], 1.0) {
                [] => (0, 0),
                tracks => (tracks[0].id, tracks[0].class_id),
            })
            .collect();
        if came != expected {
            failures.push(format!("{match_classes:?} {frames:?}: {came:?}, expected {expected:?}"));
        }
    }
    // A rider on a bicycle: two classes in nearly the same place are not duplicates.
    let both = [detection(HERE, 0.9, 0), detection([101.0, 101.0, 40.0, 80.0], 0.8, 1)];
    for (match_classes, expected) in [(MatchClasses::Same, vec![1, 2]), (MatchClasses::Any, vec![1])] {
        let mut tracker = built(ByteTrackerOptions { match_classes, ..eager() });
        for frame in 0..5 {
            let came = ids(tracker.update(&both, 1.0));
            if came != expected {
                failures.push(format!("{match_classes:?}, frame {frame}: {came:?}, expected {expected:?}"));
            }
        }
        // The detection that is never matched took no ids.
        let next = ids(tracker.update(&[detection([900.0, 0.0, 40.0, 40.0], 0.9, 0)], 1.0));
        if next != [expected.len() as u64 + 1] {
            failures.push(format!("{match_classes:?}: the next id is {next:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn invalid_detections_are_ignored() {
    let bad = [
        ("NaN edge", BoundingBox::new(f32::NAN, 0.0, 10.0, 10.0), 0.9),
        ("all NaN", BoundingBox::new(f32::NAN, f32::NAN, f32::NAN, f32::NAN), 0.9),
        ("infinite", BoundingBox::new(0.0, 0.0, f32::INFINITY, 10.0), 0.9),
        ("no width", BoundingBox::new(10.0, 0.0, 10.0, 10.0), 0.9),
        ("inside out", BoundingBox::new(10.0, 10.0, 0.0, 0.0), 0.9),
        ("NaN score", BoundingBox::from_ltwh(HERE), f32::NAN),
        ("infinite score", BoundingBox::from_ltwh(HERE), f32::INFINITY),
        ("low score", BoundingBox::from_ltwh(HERE), 0.09),
    ];
    let mut failures = Vec::new();
    for (name, bbox, score) in bad {
        let mut tracker = built(ByteTrackerOptions { nms_iou: Some(0.7), ..eager() });
        let bad = TrackerDetection { bbox, score, class_id: 0 };
        for frame in 0..3 {
            let tracks = tracker.update(&[bad, detection(HERE, 0.9, 0), bad], 1.0);
            let right = ids(tracks) == [1] && tracks[0].detection == Some(1);
            if !right || tracks[0].bbox.iou(&BoundingBox::from_ltwh(HERE)) < 0.99 {
                failures.push(format!("{name}, frame {frame}: {tracks:?}"));
            }
        }
    }
    // Extreme sizes do not overflow.
    let mut tracker = built(eager());
    for _ in 0..5 {
        tracker.update(
            &[detection([-1e38, -1e38, 2e38, 2e38], 0.9, 0), detection([0.0, 0.0, 1e-30, 1e-30], 0.9, 0)],
            1.0,
        );
    }
    if tracker.tracks().any(|track| !track.bbox.is_finite() || !track.bbox.has_area()) {
        failures.push(format!("extreme sizes: {:?}", tracker.tracks().collect::<Vec<_>>()));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn scores_decide_whether_a_detection_starts_or_continues_a_track() {
    // The scores of detections in the same place frame by frame, 0 for none, and the scores of the reported track, 0 for
    // none.
    type Case = (&'static str, u32, &'static [f32], &'static [f32]);
    let cases: &[Case] = &[
        ("high starts", 1, &[0.55], &[0.55]),
        ("high alone does not", 1, &[0.54, 0.54], &[0.0, 0.0]),
        ("high carries on", 1, &[0.9, 0.5], &[0.9, 0.62]),
        ("low does not", 1, &[0.49, 0.49], &[0.0, 0.0]),
        ("low carries on", 1, &[0.9, 0.1], &[0.9, 0.34]),
        ("below low does not", 1, &[0.9, 0.05], &[0.9, 0.0]),
        ("low finds the lost", 1, &[0.9, 0.0, 0.2, 0.8], &[0.9, 0.0, 0.41, 0.683]),
        ("scores are smoothed", 1, &[0.6, 1.0, 1.0], &[0.6, 0.88, 0.964]),
        ("from the second on", 2, &[0.8, 0.8, 0.8], &[0.0, 0.8, 0.8]),
        ("from the fourth on", 4, &[0.8, 0.8, 0.8, 0.8], &[0.0, 0.0, 0.0, 0.8]),
        ("a miss starts over", 3, &[0.8, 0.8, 0.0, 0.8, 0.8, 0.8], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.8]),
        ("a lost track is reported at once", 2, &[0.8, 0.8, 0.0, 0.8], &[0.0, 0.8, 0.0, 0.8]),
    ];
    let mut failures = Vec::new();
    for &(name, min_hits, scores, expected) in cases {
        let mut tracker = built(ByteTrackerOptions {
            min_hits: Some(min_hits),
            sure_threshold: None,
            ..Default::default()
        });
        let came: Vec<f32> = scores
            .iter()
            .map(|&score| {
                let detections = [detection(HERE, score, 0)];
                let tracks = tracker.update(&detections[usize::from(score == 0.0)..], 1.0);
                tracks.first().map_or(0.0, |track| track.score)
            })
            .collect();
        if came.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-5) {
            failures.push(format!("{name}: {came:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_start_above_sure_threshold_is_reported_at_once() {
    // The scores of detections in the same place, 0 for none, and whether a track is reported, frame by frame.
    type Case = (Option<f32>, &'static [f32], &'static [bool]);
    let cases: &[Case] = &[
        (Some(0.7), &[0.7, 0.6], &[true, true]),
        (Some(0.7), &[0.69, 0.69, 0.69], &[false, false, true]),
        // Only the score of the first frame counts.
        (Some(0.7), &[0.6, 0.9, 0.9], &[false, false, true]),
        // It is lost, not removed, and reported when it is found.
        (Some(0.7), &[0.8, 0.0, 0.6], &[true, false, true]),
        (None, &[1.0, 1.0, 1.0], &[false, false, true]),
    ];
    let mut failures = Vec::new();
    for &(sure_threshold, scores, expected) in cases {
        let mut tracker =
            built(ByteTrackerOptions { min_hits: Some(3), sure_threshold, ..Default::default() });
        let came: Vec<bool> = scores
            .iter()
            .map(|&score| {
                let detections = [detection(HERE, score, 0)];
                !tracker.update(&detections[usize::from(score == 0.0)..], 1.0).is_empty()
            })
            .collect();
        if came != expected {
            failures.push(format!("{sure_threshold:?} {scores:?}: {came:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn each_stage_has_its_minimum_overlap() {
    // A box moved sideways by the fraction s of its width has an IoU of (1 − s)/(1 + s); the track is at rest.
    // (frames without a detection, score, IoU, whether it is the same track)
    let cases = [
        (0, 0.9, 0.55, true),
        // Below match_iou, but above leftover_match_iou.
        (0, 0.9, 0.35, true),
        (0, 0.9, 0.25, false),
        (0, 0.3, 0.45, true),
        (0, 0.3, 0.35, false),
        (2, 0.9, 0.55, true),
        (2, 0.9, 0.45, false),
    ];
    let mut failures = Vec::new();
    for (gap, score, overlap, expected) in cases {
        let mut tracker = built(eager());
        for _ in 0..5 {
            tracker.update(&[detection(HERE, 0.9, 0)], 1.0);
        }
        for _ in 0..gap {
            tracker.update(&[], 1.0);
        }
        let aside = HERE[2] * (1.0 - overlap) / (1.0 + overlap);
        let tracks =
            tracker.update(&[detection([HERE[0] + aside, HERE[1], HERE[2], HERE[3]], score, 0)], 1.0);
        if (ids(tracks) == [1]) != expected {
            failures.push(format!("gap {gap}, score {score}, overlap {overlap}: {tracks:?}"));
        }
    }
    // Detections of high score are matched first.
    let mut tracker = built(eager());
    tracker.update(&[detection(HERE, 0.9, 0)], 1.0);
    let tracks = tracker.update(
        &[detection([112.0, 100.0, 40.0, 80.0], 0.4, 0), detection([113.0, 100.0, 40.0, 80.0], 0.9, 0)],
        1.0,
    );
    if tracks.len() != 1 || tracks[0].detection != Some(1) {
        failures.push(format!("high before low: {tracks:?}"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn crossing_objects_keep_their_ids() {
    // Two objects cross, with a little noise; in some cases one of them is hidden while they meet.
    let mut failures = Vec::new();
    for (case, hidden) in [(0u64, 0..0), (1, 27..34), (2, 0..0), (3, 28..33)] {
        let mut random = Random::new(case);
        let mut tracker = built(ByteTrackerOptions::default());
        for frame in 0..60usize {
            let t = frame as f32;
            let mut noise = || random.unit() - 0.5;
            let mut detections =
                vec![detection([100.0 + 6.0 * t + noise(), 100.0 + noise(), 50.0, 90.0], 0.9, 0)];
            if !hidden.contains(&frame) {
                detections.push(detection([460.0 - 6.0 * t + noise(), 104.0 + noise(), 46.0, 84.0], 0.8, 0));
            }
            let tracks = tracker.update(&detections, 1.0);
            let came: Vec<_> = tracks.iter().map(|track| (track.id, track.detection)).collect();
            let expected = [(1, Some(0)), (2, Some(1))];
            if came != expected[..detections.len()] {
                failures.push(format!("case {case}, frame {frame}: {came:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_younger_of_two_tracks_in_one_place_is_removed() {
    let mut tracker = built(eager());
    // Two boxes that move together until they coincide.
    let mut left = Vec::new();
    for frame in 0..30 {
        let apart = (60.0 - 3.0 * frame as f32).max(1.0);
        let tracks = tracker
            .update(&[detection(HERE, 0.8, 0), detection([100.0 + apart, 100.0, 40.0, 80.0], 0.9, 0)], 1.0);
        left = ids(tracks);
    }
    // Of equal age: the higher score got the lower id and is kept.
    assert_eq!(left, [1]);
    assert_eq!(tracker.tracks().len(), 1);
}

#[test]
fn suppression_across_classes_keeps_the_best() {
    let near = [102.0, 100.0, 40.0, 80.0];
    let cases = [(None, vec![0, 1]), (Some(0.95), vec![0, 1]), (Some(0.7), vec![1])];
    let mut failures = Vec::new();
    for (nms_iou, expected) in cases {
        let mut tracker = built(ByteTrackerOptions { nms_iou, ..eager() });
        let tracks = tracker.update(&[detection(HERE, 0.6, 0), detection(near, 0.9, 1)], 1.0);
        let mut came: Vec<_> = tracks.iter().filter_map(|track| track.detection).collect();
        came.sort_unstable();
        if came != expected {
            failures.push(format!("{nms_iou:?}: {came:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn lost_tracks_are_reported_for_coast_frames() {
    let mut failures = Vec::new();
    for coast_frames in [0, 1, 5, 100] {
        let mut tracker = built(ByteTrackerOptions { coast_frames, ..Default::default() });
        for frame in 0..20 {
            tracker.update(&[detection([100.0 + 5.0 * frame as f32, 100.0, 40.0, 80.0], 0.9, 0)], 1.0);
        }
        for lost_frames in 1..=40u32 {
            let tracks = tracker.update(&[], 1.0);
            let expected = lost_frames <= coast_frames.min(30);
            let off =
                tracks.first().map_or(0.0, |track| (track.bbox.x1 - 195.0 - 5.0 * lost_frames as f32).abs());
            let lost =
                tracks.iter().all(|track| track.state == TrackState::Lost && track.detection.is_none());
            if tracks.len() != usize::from(expected) || !lost || off > 0.1 * lost_frames as f32 + 1.0 {
                failures.push(format!("coast {coast_frames}, lost for {lost_frames} frames: {tracks:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_crowd_is_tracked_reproducibly() {
    // 200 objects on straight lines in a dense scene with noise, misses and false positives.
    let run = |match_classes| -> Vec<Vec<Track>> {
        let mut random = Random::new(11);
        let mut objects: Vec<[f32; 4]> = (0..200)
            .map(|_| {
                [
                    2000.0 * random.unit(),
                    1000.0 * random.unit(),
                    6.0 * random.unit() - 3.0,
                    2.0 * random.unit(),
                ]
            })
            .collect();
        let mut tracker = built(ByteTrackerOptions { match_classes, ..Default::default() });
        (0..40)
            .map(|_| {
                let mut detections = Vec::new();
                for (index, [x, y, vx, vy]) in objects.iter_mut().enumerate() {
                    (*x, *y) = (*x + *vx, *y + *vy);
                    if random.unit() > 0.1 {
                        let [dx, dy] = [random.unit(), random.unit()].map(|v| 2.0 * v - 1.0);
                        let score = 0.3 + 0.7 * random.unit();
                        detections.push(detection([*x + dx, *y + dy, 40.0, 60.0], score, index % 3));
                    }
                }
                for _ in 0..10 {
                    let [x, y] = [2000.0 * random.unit(), 1000.0 * random.unit()];
                    detections.push(detection([x, y, 40.0, 60.0], 0.5 * random.unit() + 0.2, 0));
                }
                let tracks = tracker.update(&detections, 1.0).to_vec();
                assert!(tracks.windows(2).all(|pair| pair[0].id < pair[1].id), "not sorted by id");
                let mut taken: Vec<_> = tracks.iter().filter_map(|track| track.detection).collect();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!(taken.len(), tracks.len(), "a detection was matched twice");
                tracks
            })
            .collect()
    };
    for match_classes in [MatchClasses::Same, MatchClasses::Any] {
        let tracks = run(match_classes);
        assert_eq!(tracks, run(match_classes));
        let last = &tracks[tracks.len() - 1];
        assert!((150..=215).contains(&last.len()), "{} of 200 are tracked", last.len());
        let steady = last.iter().filter(|track| track.age_frames > 30.0).count();
        assert!(steady >= 130, "{match_classes:?}: only {steady} tracks have lasted");
    }
}

/// Tracks of classes that were not looked for keep their state; tracks that were looked for and not found are lost.
#[test]
fn tracks_of_classes_that_were_not_looked_for_keep_their_state() {
    let there = [400.0, 100.0, 40.0, 80.0];
    let mut tracker = built(ByteTrackerOptions { max_time_lost: 5, ..eager() });
    for _ in 0..2 {
        tracker.update(&[detection(HERE, 0.9, 0), detection(there, 0.9, 1)], 1.0);
    }
    for frame in 1..=20 {
        let tracks =
            tracker.update_with(&[detection(HERE, 0.9, 0)], &Appearances::default(), 1.0, |class| class == 0);
        let states: Vec<_> = tracks.iter().map(|track| (track.id, track.state, track.detection)).collect();
        let expected = [(1, TrackState::Tracked, Some(0)), (2, TrackState::Tracked, None)];
        assert_eq!(states, expected, "frame {frame}");
    }
    assert_eq!(ids(tracker.update(&[detection(HERE, 0.9, 0)], 1.0)), [1], "looked for and not found: lost");
    let found = tracker.update(&[detection(HERE, 0.9, 0), detection(there, 0.9, 1)], 1.0);
    assert_eq!(ids(found), [1, 2], "frames in which it was not looked for do not count");
}

/// The detector runs on every tenth frame and looks for the class in every fourth run.
#[test]
fn predicted_frames_count_for_the_classes_of_the_next_update_only() {
    let mut tracker = built(eager());
    for frame in 0..=400 {
        let looks = frame % 40 == 0;
        let found: &[_] = if looks { &[detection(HERE, 0.9, 0)] } else { &[] };
        let tracks = match frame % 10 {
            0 => tracker.update_with(found, &Appearances::default(), 1.0, |_| looks),
            _ => tracker.predict(1.0),
        };
        assert_eq!(ids(tracks), [1], "frame {frame}: no update has missed it");
    }
    for (missed, expected) in [(1, 1), (2, 1), (3, 1), (4, 0)] {
        for _ in 0..9 {
            tracker.predict(1.0);
        }
        tracker.update(&[], 1.0);
        assert_eq!(tracker.tracks().len(), expected, "after {missed} updates that missed it");
    }
}
