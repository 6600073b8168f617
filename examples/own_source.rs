//! Runs the pipeline on your own frames, here of a camera that pans over a drawn scene.
//!
//! ```sh
//! cargo run --example own_source
//! ```
//!
//! A [`Source`] implements two methods. Programs with their own loop push frames into a [`Pipeline`] instead, see
//! `tests/embed`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Detector, Frame, Image, Pipeline, Prompts, Result, Source, source::SourceInfo};

/// A view of 480 × 360 pixels that moves to the right by 8 pixels a frame.
struct Pan {
    info: SourceInfo,
    scene: Image,
    next: u64,
}

const SIZE: (u32, u32) = (480, 360);
const FRAMES: u64 = 15;
const FRAME_RATE: f64 = 30.0;

impl Pan {
    fn new(scene: Image) -> Self {
        let mut info = SourceInfo::default();
        info.name = "pan over a scene".into();
        info.size = Some(SIZE);
        info.frame_rate = Some(FRAME_RATE);
        info.frame_count = Some(FRAMES);
        Self { info, scene, next: 0 }
    }
}

impl Source for Pan {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.next == FRAMES {
            return Ok(false);
        }
        frame.index = self.next;
        frame.time = Duration::from_secs_f64(self.next as f64 / FRAME_RATE);
        // Frames are reused: this allocates in the first frames only.
        let pixels = frame.image.reset_rgb8(SIZE.0, SIZE.1)?;
        let (row_bytes, left) = (SIZE.0 as usize * 3, 8 * self.next as usize * 3);
        let rows = self.scene.as_rgb8().chunks_exact(self.scene.width() as usize * 3);
        for (to, from) in pixels.chunks_exact_mut(row_bytes).zip(rows) {
            to.copy_from_slice(&from[left..left + row_bytes]);
        }
        self.next += 1;
        Ok(true)
    }
}

fn main() -> Result<()> {
    let scene = Image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/demos/scenes/park.png"))?;
    let prompts = Prompts::new(["dog", "tree", "bicycle", "person"])?;
    let summary = Pipeline::builder(Detector::builder().build()?, prompts)
        .with_tracker(ByteTrackerOptions::default())
        .with_observer(|outcome| {
            let tracks: Vec<String> = outcome
                .tracks
                .iter()
                .map(|track| {
                    format!("{} {} at x = {:.0}", outcome.labels[track.class_id], track.id, track.bbox.x1)
                })
                .collect();
            println!("frame {:2}: {}", outcome.index, tracks.join(", "));
        })
        .run(Pan::new(scene), &mut [])?;
    println!("{} frames", summary.stats.frames_out);
    Ok(())
}
