//! Runs `demo-image` and `demo-video`.

mod demo_image;
#[cfg(feature = "opencv")]
mod demo_video;
#[cfg(not(feature = "opencv"))]
mod demo_video_without_opencv;
#[path = "../../cli/tests/run.rs"]
mod run;
