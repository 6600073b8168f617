//! Accuracy of tracks on a drawn video.

use ocelli::report::FrameReport;
use ocelli_datasets::eval::video::{ObjectBox, Role, TrackBox, TrackCounts, TrackFigures, TrackSequence};
use ocelli_verify::scenes::MovingScene;

/// Objects that are hidden more than this are neither missed nor false.
const LEAST_VISIBLE: f32 = 0.5;

/// The figures of all classes together.
pub fn score(scene: &MovingScene, lines: &[FrameReport]) -> TrackFigures {
    let classes =
        lines.iter().flat_map(|line| &line.tracks).map(|track| track.class_id).max().unwrap_or(0) + 1;
    let of_class = |class: usize| {
        let mut sequence = TrackSequence::default();
        for line in lines {
            let ltwh = |bbox: ocelli::BoundingBox| bbox.to_ltwh().map(f64::from);
            let objects =
                scene.truth(line.frame).into_iter().filter(|one| one.class_id == class).map(|one| {
                    let role = if one.visible >= LEAST_VISIBLE { Role::Counts } else { Role::Distractor };
                    ObjectBox { id: one.id, ltwh: ltwh(one.bbox), role }
                });
            let tracks = line.tracks.iter().filter(|track| track.class_id == class);
            let tracks = tracks.map(|track| TrackBox { id: track.id, ltwh: ltwh(track.bbox) });
            let (objects, tracks): (Vec<_>, Vec<_>) = (objects.collect(), tracks.collect());
            sequence.push_boxes(&objects, &tracks).expect("ids are unique");
        }
        TrackCounts::of(&sequence)
    };
    // Both classes are drawn, whatever is tracked.
    (0..classes.max(2)).map(of_class).sum::<TrackCounts>().figures()
}
