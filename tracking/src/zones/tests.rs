use super::ZoneEventKind::{Crossed, Entered, Left};
use super::*;
use crate::BoundingBox;

fn track(id: u64, class_id: usize, [x, y]: [f32; 2]) -> Track {
    Track {
        id,
        class_id,
        score: 0.9,
        // The anchor is the middle of the lower edge.
        bbox: BoundingBox::new(x - 10.0, y - 40.0, x + 10.0, y),
        age_frames: 0.0,
        hits: 3,
        state: TrackState::Tracked,
        velocity: [0.0; 2],
        frames_since_seen: 0.0,
        detection: None,
    }
}

fn seconds(count: usize) -> Duration {
    Duration::from_secs(count as u64)
}

/// From (100, 100) to (200, 100): the right of it is below.
fn line() -> CountingLine {
    CountingLine { name: "door".into(), from: [100.0, 100.0], to: [200.0, 100.0] }
}

fn square() -> Zone {
    let points = vec![[0.0, 0.0], [100.0, 0.0], [100.0, 100.0], [0.0, 100.0]];
    Zone { name: "yard".into(), points }
}

/// The events of a track at these places, one second apart, and at which of them.
fn events(
    lines: Vec<CountingLine>,
    zones: Vec<Zone>,
    margin: f32,
    path: &[[f32; 2]],
) -> Vec<(usize, ZoneEventKind)> {
    let options = ZoneOptions { margin, ..ZoneOptions::default() };
    let mut counter = ZoneCounter::new(lines, zones, options).expect("they are valid");
    let mut found = Vec::new();
    for (at, place) in path.iter().enumerate() {
        found
            .extend(counter.update(&[track(1, 0, *place)], seconds(at)).iter().map(|event| (at, event.kind)));
    }
    found
}

#[test]
fn a_line_is_crossed_once_and_only_between_its_ends() {
    use Direction::{In, Out};
    let down = |x: f32, ys: &[f32]| ys.iter().map(|y| [x, *y]).collect::<Vec<_>>();
    let cases: Vec<(&str, f32, Vec<[f32; 2]>, Vec<(usize, Direction)>)> = vec![
        ("down", 5.0, down(150.0, &[80.0, 120.0]), vec![(1, In)]),
        ("up", 5.0, down(150.0, &[120.0, 80.0]), vec![(1, Out)]),
        ("there and back", 5.0, down(150.0, &[80.0, 120.0, 80.0]), vec![(1, In), (2, Out)]),
        ("touched from above", 5.0, down(150.0, &[80.0, 100.0, 80.0]), vec![]),
        ("touched, then crossed", 5.0, down(150.0, &[80.0, 100.0, 100.0, 120.0]), vec![(3, In)]),
        ("touched without a margin", 0.0, down(150.0, &[80.0, 100.0, 80.0]), vec![]),
        ("begins on the line", 5.0, down(150.0, &[100.0, 120.0]), vec![]),
        ("not far enough", 5.0, down(150.0, &[80.0, 104.0, 80.0]), vec![]),
        ("jitter", 5.0, down(150.0, &[80.0, 99.0, 102.0, 98.0, 103.0, 97.0, 104.0, 110.0]), vec![(7, In)]),
        ("jitter and back", 5.0, down(150.0, &[80.0, 102.0, 98.0, 103.0, 97.0, 90.0]), vec![]),
        ("jitter after crossing", 5.0, down(150.0, &[80.0, 110.0, 98.0, 103.0, 97.0, 110.0]), vec![(1, In)]),
        ("slowly", 5.0, down(150.0, &[94.0, 98.0, 99.0, 101.0, 103.0, 105.0]), vec![(5, In)]),
        ("beside the line", 5.0, down(220.0, &[80.0, 120.0]), vec![]),
        ("through its end", 5.0, down(200.0, &[80.0, 120.0]), vec![(1, In)]),
        ("past its end and below", 5.0, vec![[220.0, 80.0], [220.0, 120.0], [150.0, 120.0]], vec![]),
        (
            "around its end and through it",
            5.0,
            vec![[150.0, 80.0], [220.0, 80.0], [220.0, 120.0], [150.0, 120.0], [150.0, 80.0]],
            vec![(4, Out)],
        ),
        ("slanting in one step", 5.0, vec![[90.0, 80.0], [170.0, 120.0]], vec![(1, In)]),
        ("slanting past the end", 5.0, vec![[60.0, 80.0], [110.0, 120.0]], vec![]),
        ("along the line", 5.0, vec![[90.0, 100.0], [150.0, 100.0], [210.0, 100.0]], vec![]),
    ];
    let mut failures = Vec::new();
    for (name, margin, path, expected) in cases {
        let expected: Vec<_> =
            expected.into_iter().map(|(at, direction)| (at, Crossed(0, direction))).collect();
        let found = events(vec![line()], Vec::new(), margin, &path);
        if found != expected {
            failures.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_zone_is_entered_and_left_once() {
    let cases: Vec<(&str, Vec<[f32; 2]>, Vec<(usize, ZoneEventKind)>)> = vec![
        (
            "through",
            vec![[-20.0, 50.0], [50.0, 50.0], [60.0, 50.0], [120.0, 50.0]],
            vec![(1, Entered(0)), (3, Left(0, seconds(2)))],
        ),
        ("appears inside", vec![[50.0, 50.0]], vec![(0, Entered(0))]),
        ("past a corner", vec![[-20.0, 50.0], [-20.0, -20.0], [50.0, -20.0]], vec![]),
        ("touches the edge", vec![[-20.0, 50.0], [0.0, 50.0], [-20.0, 50.0]], vec![]),
        (
            "jitter around the edge",
            vec![[-20.0, 50.0], [3.0, 50.0], [-3.0, 50.0], [10.0, 50.0], [-3.0, 50.0], [3.0, 50.0]],
            vec![(3, Entered(0))],
        ),
        (
            "jitter, then out",
            vec![[10.0, 50.0], [-3.0, 50.0], [3.0, 50.0], [-6.0, 50.0], [3.0, 50.0]],
            vec![(0, Entered(0)), (3, Left(0, seconds(3)))],
        ),
    ];
    let mut failures = Vec::new();
    for (name, path, expected) in cases {
        let found = events(Vec::new(), vec![square()], 5.0, &path);
        if found != expected {
            failures.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_narrow_slanting_zone_can_be_entered() {
    // 14 pixels wide, in a bounding box of 1000 pixels.
    let points = vec![[0.0, 0.0], [1000.0, 980.0], [1000.0, 1000.0], [0.0, 20.0]];
    let path = [[500.0, 450.0], [500.0, 500.0], [500.0, 550.0]];
    for margin in [5.0, 100.0] {
        let zone = Zone { points: points.clone(), ..square() };
        let found = events(Vec::new(), vec![zone], margin, &path);
        assert_eq!(found, [(1, Entered(0)), (2, Left(0, seconds(1)))], "{margin}");
    }
}

#[test]
fn predicted_places_do_not_count_and_end_no_visit() {
    let mut counter =
        ZoneCounter::new(vec![line()], vec![square()], ZoneOptions::default()).expect("they are valid");
    // Seen in the zone at 0 s and at 5 s; in between it is predicted to leave the zone through the line.
    for at in 0..6 {
        let predicted = (1..5).contains(&at);
        let seen = track(1, 0, if predicted { [150.0, 40.0 * at as f32] } else { [50.0, 50.0] });
        let track = Track { frames_since_seen: if predicted { at as f32 } else { 0.0 }, ..seen };
        let expected: &[_] = if at == 0 { &[Entered(0)] } else { &[] };
        let found: Vec<_> = counter.update(&[track], seconds(at)).iter().map(|event| event.kind).collect();
        assert_eq!(found, expected, "{at} s");
    }
    let ended: Vec<_> = counter.finish().iter().map(|event| event.kind).collect();
    assert_eq!(ended, [Left(0, seconds(5))]);
}

#[test]
fn the_inside_of_a_polygon_with_a_notch() {
    // A square with a notch from above, down to (50, 60).
    let points =
        [[0.0, 0.0], [40.0, 0.0], [50.0, 60.0], [60.0, 0.0], [100.0, 0.0], [100.0, 100.0], [0.0, 100.0]];
    for (place, expected) in [
        ([20.0, 20.0], true),
        ([50.0, 20.0], false),
        ([50.0, 61.0], true),
        ([50.0, 99.0], true),
        ([50.0, 101.0], false),
        ([-1.0, 50.0], false),
    ] {
        assert_eq!(is_inside(&points, place), expected, "{place:?}");
    }
    assert!((distance_to_edges(&points, [50.0, 70.0]) - 10.0).abs() < 1e-4);
    assert!((geometry::area(&points) - 9400.0).abs() < 1e-2);
}

#[test]
fn counts_are_by_class_and_visits_end_with_the_track() {
    let lines = vec![line()];
    let mut counter =
        ZoneCounter::new(lines, vec![square()], ZoneOptions::default()).expect("they are valid");
    // A person who walks down and vanishes in the zone, a dog that goes through the line, both ways; a lost track.
    let lost = Track { state: TrackState::Lost, ..track(9, 0, [50.0, 50.0]) };
    let mut found = Vec::new();
    for (at, (person, dog)) in
        [(Some(-20.0), 80.0), (Some(20.0), 120.0), (Some(60.0), 80.0), (None, 80.0)].iter().enumerate()
    {
        let mut tracks = vec![track(2, 1, [150.0, *dog]), lost];
        tracks.extend(person.map(|y| track(1, 0, [50.0, y])));
        found.extend(counter.update(&tracks, seconds(at)).to_vec());
    }
    for at in 4..7 {
        found.extend(counter.update(&[track(2, 1, [150.0, 80.0])], seconds(at)).to_vec());
    }
    let expected = [
        (1, 2, Crossed(0, Direction::In)),
        (1, 1, Entered(0)),
        (2, 2, Crossed(0, Direction::Out)),
        (2, 1, Left(0, seconds(1))),
    ];
    let found: Vec<_> = found.iter().map(|event| (event.time.as_secs(), event.track, event.kind)).collect();
    assert_eq!(found, expected);
    let dog = LineCounts { entered: 1, left: 1 };
    assert_eq!(counter.line_counts()[0], BTreeMap::from([(1, dog)]));
    let person = ZoneCounts {
        inside: 0,
        entered: 1,
        dwell: seconds(1),
        longest: seconds(1),
        first: seconds(1),
        last: seconds(2),
    };
    assert_eq!(counter.zone_counts()[0], BTreeMap::from([(0, person)]));
    // The end of the stream ends the visits of those who are still there.
    counter.update(&[track(3, 0, [50.0, 50.0])], seconds(8));
    assert_eq!(counter.zone_counts()[0][&0].inside, 1);
    let ended: Vec<_> = counter.finish().iter().map(|event| (event.track, event.kind)).collect();
    assert_eq!(ended, [(3, Left(0, Duration::ZERO))]);
    assert_eq!(counter.zone_counts()[0][&0].inside, 0);
}

#[test]
fn a_track_that_changes_its_class_is_counted_where_it_is() {
    let mut counter =
        ZoneCounter::new(Vec::new(), vec![square()], ZoneOptions::default()).expect("it is valid");
    counter.update(&[track(1, 0, [50.0, 50.0])], seconds(0));
    counter.update(&[track(1, 1, [50.0, 50.0])], seconds(1));
    let inside: Vec<(usize, u64)> =
        counter.zone_counts()[0].iter().map(|(class, counts)| (*class, counts.inside)).collect();
    assert_eq!(inside, [(0, 0), (1, 1)]);
    counter.finish();
    assert_eq!(counter.zone_counts()[0][&1].longest, seconds(1));
}

#[test]
fn invalid_lines_and_zones_are_refused() {
    let options = ZoneOptions::default();
    let point = CountingLine { to: [100.0, 100.0], ..line() };
    let flat = Zone { points: vec![[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], ..square() };
    let two = Zone { points: vec![[0.0, 0.0], [1.0, 1.0]], ..square() };
    let nan = Zone { points: vec![[0.0, 0.0], [1.0, f32::NAN], [2.0, 0.0]], ..square() };
    let negative = ZoneOptions { margin: -1.0, ..options };
    for (lines, zones, options, expected) in [
        (vec![point], vec![], options, "line door: expected two different points"),
        (vec![], vec![flat], options, "zone yard: expected three or more corners"),
        (vec![], vec![two], options, "zone yard: expected three or more corners"),
        (vec![], vec![nan], options, "zone yard: expected three or more corners"),
        (vec![line()], vec![], negative, "the margin is -1"),
    ] {
        let error = ZoneCounter::new(lines, zones, options).expect_err("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
