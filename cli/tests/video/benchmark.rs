//! The table of engines.

use super::{run_video, succeed};
use crate::run::Place;

#[test]
fn each_engine_that_starts_has_a_row() {
    let place = Place::new();
    let scene = "--classes moon --scene-size 64x64 --warmup 1 --max-frames 3 --benchmark";
    let one = succeed(&place, &format!("{scene} --engine embedded"));
    let lines: Vec<&str> = one.lines().collect();
    assert_eq!(lines.len(), 3, "{one}");
    let columns = ["backbone ms", "decode ms", "sequential FPS", "pipelined FPS"];
    assert!(columns.iter().all(|column| lines[0].contains(column)), "{one}");
    assert!(lines[1].starts_with("embedded"), "{one}");
    let figures = lines[1].split_whitespace().rev().take(5).map(|text| text.trim_end_matches('x'));
    let figures: Vec<f64> = figures.filter_map(|text| text.parse().ok()).collect();
    assert!(figures.len() == 5 && figures.iter().all(|figure| *figure > 0.0), "{figures:?}: {one}");
    assert!(lines[2].starts_with("3 frames, 1 class"), "{one}");

    // Every other engine that this machine has, and why the others are missing.
    let all = run_video(&place, scene);
    assert_eq!(all.status, Some(0), "{all:?}");
    assert!(all.stdout.contains("embedded") && all.stderr.contains("coreml is not measured"), "{all:?}");

    let short = run_video(&place, &format!("{scene} --engine embedded --end 2f"));
    assert_eq!(short.status, Some(1), "{short:?}");
    assert!(short.stderr.contains("the source has 2 frames, expected at least 3"), "{short:?}");
}
