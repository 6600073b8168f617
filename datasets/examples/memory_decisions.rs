//! Figures of objects with memory in drawn videos, by how the tracker decides.
//!
//! ```sh
//! cargo run --release -p ocelli-datasets --example memory_decisions -- MODEL 100 200 201 202
//! ```
//!
//! The first number is that of the frames. Each seed is a video of dogs in slightly different colours, which cross and pass behind two
//! pillars. Every way sees the same frames. MODEL is a folder with SAM 3's memory tracker.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ocelli::masklets::MaskletOptions;
use ocelli::pipeline::FrameOutcome;
use ocelli::tracking::Track;
use ocelli::{Detector, Error, ModelSource, Pipeline, Prompts, Result, Sink};
use ocelli_datasets::eval::video::{ObjectBox, Role, TrackBox, TrackCounts, TrackSequence};
use ocelli_verify::scenes::MovingScene;

const FRAME_RATE: f64 = 15.0;
/// Objects of which less is visible are neither missed nor false.
const LEAST_VISIBLE: f32 = 0.5;

/// A way to decide.
type Way = (&'static str, fn(&mut MaskletOptions));
const WAYS: [Way; 4] = [
    ("as Meta's SAM 3", |_| {}),
    ("chooses_for_each", |options| options.chooses_for_each = true),
    ("ambiguous_iou 0.8", |options| options.ambiguous_iou = Some(0.8)),
    ("both", |options| (options.chooses_for_each, options.ambiguous_iou) = (true, Some(0.8))),
];

/// The tracks of each frame.
#[derive(Clone, Default)]
struct Tracks(Arc<Mutex<Vec<(u64, Vec<Track>)>>>);

impl Sink for Tracks {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let tracks = (outcome.index, outcome.tracks.clone());
        self.0.lock().expect("no writer panics").push(tracks);
        Ok(())
    }
}

fn scene(seed: u64, frames: u64) -> Result<MovingScene> {
    let scene = MovingScene::new(seed, &["dog"], 448, 336, frames, FRAME_RATE)?;
    Ok(scene.with_colours(seed).with_pillars(2))
}

/// The counts of a video, and how many ids it has.
fn follow(
    model: &str,
    scene: MovingScene,
    again: &MovingScene,
    change: fn(&mut MaskletOptions),
) -> Result<(TrackCounts, usize)> {
    let model = ModelSource::Folder(model.into());
    let detector = Detector::builder().with_model(model).with_masks(true).build()?;
    let mut options = detector.model().masklet_options();
    change(&mut options);
    let tracks = Tracks::default();
    Pipeline::builder(detector, Prompts::new(["dog"])?)
        .with_options(|all| all.memory = Some(options))
        .with_frame_rate(FRAME_RATE)
        .run(scene, &mut [Box::new(tracks.clone()) as Box<dyn Sink>])?;
    let (mut sequence, mut ids) = (TrackSequence::default(), BTreeSet::new());
    for (frame, tracks) in tracks.0.lock().expect("no writer panics").iter() {
        let objects = again.truth(*frame).into_iter().map(|one| {
            let role = if one.visible >= LEAST_VISIBLE { Role::Counts } else { Role::Distractor };
            ObjectBox { id: one.id, ltwh: one.bbox.to_ltwh().map(f64::from), role }
        });
        let found =
            tracks.iter().map(|track| TrackBox { id: track.id, ltwh: track.bbox.to_ltwh().map(f64::from) });
        ids.extend(tracks.iter().map(|track| track.id));
        sequence.push_boxes(&objects.collect::<Vec<_>>(), &found.collect::<Vec<_>>())?;
    }
    Ok((TrackCounts::of(&sequence), ids.len()))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().skip(1).filter_map(|number| number.parse().ok()).collect();
    let ([model, ..], [frames, seeds @ ..]) = (&arguments[..], &numbers[..]) else {
        return Err(Error::invalid_argument("expected a model folder, the number of frames, and seeds"));
    };
    println!(
        "| way | seed | HOTA | DetA | AssA | IDF1 | switches | ids |\n|---|---|---|---|---|---|---|---|"
    );
    let mut all = WAYS.map(|_| (Vec::new(), 0));
    for &seed in seeds {
        for ((name, change), (counts, ids)) in WAYS.iter().zip(&mut all) {
            let (count, found) = follow(model, scene(seed, *frames)?, &scene(seed, *frames)?, *change)?;
            row(name, &seed.to_string(), count.clone(), found);
            counts.push(count);
            *ids += found;
        }
    }
    for ((name, _), (counts, ids)) in WAYS.iter().zip(all) {
        row(name, "all", counts.into_iter().sum(), ids);
    }
    Ok(())
}

fn row(name: &str, seed: &str, counts: TrackCounts, ids: usize) {
    let figures = counts.figures();
    let [hota, det_a, ass_a, idf1] =
        [figures.hota, figures.det_a, figures.ass_a, figures.idf1].map(|share| 100.0 * share);
    let switches = figures.id_switches;
    println!("| {name} | {seed} | {hota:.1} | {det_a:.1} | {ass_a:.1} | {idf1:.1} | {switches} | {ids} |");
}
