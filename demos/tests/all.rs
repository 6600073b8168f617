//! Runs `demo-image` and `demo-video`.

mod demo_image;
#[cfg(not(without_video))]
mod demo_video;
mod demo_video_without_library;
#[path = "../../cli/tests/run.rs"]
mod run;
mod tensorrt;
