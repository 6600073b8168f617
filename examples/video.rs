//! Detects and tracks objects in a video and writes a line of JSON for each frame to stdout.
//!
//! ```sh
//! cargo run --example video                                              # the drawn scenes as a video
//! cargo run --example video -- FRAME.png FRAME.png …                     # image files, one frame each
//! cargo run --example video -- VIDEO.mp4   # a video file, decoded by FFmpeg; see `make opencv`
//! ```

use std::path::PathBuf;

use ocelli::image::has_image_extension;
use ocelli::sink::JsonLines;
use ocelli::source::{ImageFiles, natural_order, open_video};
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Detector, Pipeline, Prompts, Sink, Source};

fn main() -> ocelli::Result<()> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        let scenes = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/demos/scenes"));
        files = ["park", "street", "coast"].map(|name| scenes.join(name).with_extension("png")).into();
    }
    natural_order(&mut files);
    let source: Box<dyn Source> = match files.as_slice() {
        [video] if !has_image_extension(video) => open_video(video)?,
        _ => Box::new(ImageFiles::new("images", files, 10.0)?),
    };

    let prompts = Prompts::new(["person", "dog", "car", "tree"])?;
    let pipeline =
        Pipeline::builder(Detector::builder().build()?, prompts).with_tracker(ByteTrackerOptions::default());
    // A pipeline takes any number of sinks: videos, MOTChallenge files, crops, or your own implementation of `Sink`.
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(JsonLines::create("-".as_ref())?)];
    let summary = pipeline.run(source, &mut sinks)?;

    let stats = summary.stats;
    tracing::info!("{} frames, median latency {:.0} ms", stats.frames_out, stats.latency_ms.p50);
    Ok(())
}
