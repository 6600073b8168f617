//! Pipelines write to one trait, wherever results go: videos, image sequences, JSON lines, MOTChallenge, MOTS, YouTube-VIS, MCAP
//! and YOLO files, masks, crops, windows and pipes.

mod crops;
mod grid;
mod image_files;
mod json_lines;
mod lines;
mod mask_pngs;
mod mcap;
mod mot;
mod mots;
mod objects;
mod raw;
#[cfg(not(target_family = "wasm"))]
mod video;
#[cfg(not(target_family = "wasm"))]
mod window;
mod yolo;
mod youtube_vis;

use std::ops::BitOr;

use crate::outcome::FrameOutcome;
use ocelli_error::Result;

pub use crops::{Crops, folder_name};
pub use grid::Grid;
pub use image_files::{ImageSequence, check_image_format, is_image_pattern, write_image};
pub use json_lines::JsonLines;
pub use mask_pngs::MaskPngs;
pub use mcap::McapFile;
pub use mot::MotFile;
pub use mots::MotsFile;
pub use raw::{RawOrder, RawWriter};
#[cfg(not(target_family = "wasm"))]
pub use video::{VideoOptions, create_video, is_stream_address, video_formats};
#[cfg(not(target_family = "wasm"))]
pub use window::{open_window, window_library};
pub use yolo::YoloLabels;
pub use youtube_vis::YouTubeVis;

/// The images that a sink needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Images {
    /// [`FrameOutcome::clean`].
    pub clean: bool,
    /// [`FrameOutcome::annotated`].
    pub annotated: bool,
}

impl Images {
    /// The unmodified frame.
    pub const CLEAN: Self = Self { clean: true, annotated: false };
    /// The frame with the results drawn in.
    pub const ANNOTATED: Self = Self { clean: false, annotated: true };
}

impl BitOr for Images {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { clean: self.clean || other.clean, annotated: self.annotated || other.annotated }
    }
}

/// Receives the results of each frame, in order. Only [`write`](Self::write) is required.
pub trait Sink: Send {
    /// The images that this sink needs; none by default. Images that no sink needs are not made.
    fn images(&self) -> Images {
        Images::default()
    }

    /// Writes one frame's results.
    ///
    /// # Errors
    /// If they cannot be written. Earlier frames are kept, and [`finish`](Self::finish) is still called.
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()>;

    /// Completes the output; called once, after the last frame.
    ///
    /// # Errors
    /// If the output cannot be completed.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
