//! `--tile` and `--tile-overlap`.

use clap::Args;
use ocelli::tiles::{TileSize, Tiling};

use super::DETECTION;

/// The tiles of large images.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = DETECTION)]
pub struct TileArgs {
    /// Search large images in overlapping tiles as well, for objects that are small in them: auto, or the side of a tile in
    /// pixels such as 1024 or 1024x768
    #[arg(long, value_name = "SIZE")]
    pub tile: Option<TileSize>,
    /// Least overlap of neighbouring tiles, as a share of their side [default: 0.2]
    #[arg(long, requires = "tile", value_name = "SHARE")]
    tile_overlap: Option<f32>,
}

impl TileArgs {
    /// The tiling, if there is one.
    pub fn tiling(&self) -> Option<Tiling> {
        let overlap = self.tile_overlap.unwrap_or(Tiling::OVERLAP);
        self.tile.map(|size| Tiling::new(size).with_overlap(overlap))
    }
}
