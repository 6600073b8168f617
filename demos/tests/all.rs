//! `demo-image` and `demo-video`, run as a person runs them.

mod demo_image;
#[cfg(feature = "opencv")]
mod demo_video;
#[cfg(not(feature = "opencv"))]
mod demo_video_without_opencv;
#[path = "../../cli/tests/run.rs"]
mod run;
