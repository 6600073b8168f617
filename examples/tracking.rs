//! Tracks objects without the detector, from the boxes of any detector.
//!
//! ```sh
//! cargo run --example tracking
//! ```
//!
//! The crate `ocelli-tracking` depends on neither images nor detectors.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use ocelli_tracking::{BoundingBox, ByteTracker, ByteTrackerOptions, TrackerDetection};

fn main() -> ocelli_tracking::Result<()> {
    // `min_hits` of 1 reports a track from its first frame on; `coast_frames` reports lost tracks at their predicted position.
    let options = ByteTrackerOptions { min_hits: Some(1), coast_frames: 5, ..Default::default() };
    let mut tracker = ByteTracker::new(options)?;

    for frame in 0..12 {
        let time = frame as f32;
        let walker = BoundingBox::from_ltwh([6.0 * time, 100.0, 50.0, 120.0]);
        let runner = BoundingBox::from_ltwh([400.0 - 15.0 * time, 140.0, 60.0, 110.0]);
        // The detector misses the walker in three frames.
        let walker = (!(5..8).contains(&frame)).then_some(walker);
        let detections: Vec<TrackerDetection> = walker
            .into_iter()
            .chain([runner])
            .map(|bbox| TrackerDetection { bbox, score: 0.9, class_id: 0 })
            .collect();

        // 1.0: one frame has passed since the last call.
        for track in tracker.update(&detections, 1.0) {
            let [left, top, ..] = track.bbox.to_ltwh();
            println!("frame {frame:2}: track {} {:?} at {left:.0},{top:.0}", track.id, track.state);
        }
    }
    assert_eq!(tracker.tracks().count(), 2, "the walker keeps its id while it is lost");
    Ok(())
}
