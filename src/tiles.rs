//! Images that are larger than what the model sees, in overlapping tiles.
//!
//! A model resizes every image to its square input: of an image of 8192 pixels, an object of 30 pixels is one or two pixels
//! there. With a [`Tiling`], a [`Detector`](crate::Detector) also searches [tiles](Region) of the image, and tiles of four times
//! the size, and so on up to the whole image. What is found several times is one detection.
//!
//! ```
//! use ocelli::{Detector, Image, Prompts, options::DetectorOptions, tiles::{TileSize, Tiling}};
//!
//! # fn main() -> ocelli::Result<()> {
//! let tiling = Tiling::new(TileSize::square(400)).with_overlap(0.25);
//! let options = DetectorOptions { tiling: Some(tiling), ..DetectorOptions::default() };
//! let mut detector = Detector::with(options).build()?;
//! let found = detector.detect(&Image::open("demos/scenes/park.png")?, &Prompts::new(["dog"])?)?;
//! assert_eq!(found.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! An image no larger than the model's input, and one that a single tile covers, gives exactly what it gives without tiles.
//! [`Regions`] is where the pixels come from: an image in memory, or a file that is read in parts.

mod band;
mod file;
mod merge;
mod scale;

use std::fmt;
use std::str::FromStr;

use ocelli_tracking::BoundingBox;
use serde::{Deserialize, Serialize};

use crate::frame_view::{FrameView, PixelFormat};
use crate::image::Image;
use ocelli_error::{Error, Result, refuse};

pub use file::{MAX_TILED_PIXELS, TiledImage};
pub(crate) use merge::{Merge, TileDetection};
pub(crate) use scale::{busiest, size_for};

/// The smallest side of a tile, in pixels.
pub const MIN_TILE: u32 = 32;
/// The largest overlap of tiles, as a share of their side.
pub const MAX_OVERLAP: f32 = 0.8;
/// A level of tiles has this many times the side of the one below.
const LEVEL_FACTOR: u32 = 4;
/// The whole image is at least this many times as large as the tiles of the highest level.
const LEAST_STEP_TO_WHOLE: u32 = 2;

/// The size of tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TileSize {
    /// For each image by the sizes of the objects that are found in the whole image and in a few tiles: a small one has
    /// about two patches of the model.
    #[default]
    Auto,
    /// In pixels of the image, at least [`MIN_TILE`] each.
    Pixels {
        /// The width.
        width: u32,
        /// The height.
        height: u32,
    },
}

impl TileSize {
    /// Square tiles.
    pub fn square(side: u32) -> Self {
        Self::Pixels { width: side, height: side }
    }
}

impl FromStr for TileSize {
    type Err = Error;

    /// Reads `auto`, `1024` or `1024x768`.
    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|&side| side >= MIN_TILE);
        let size = match text.split_once(['x', '×']) {
            _ if text == "auto" => return Ok(Self::Auto),
            Some((width, height)) => number(width).zip(number(height)),
            None => number(text).map(|side| (side, side)),
        };
        let expected = format!("auto, or a size of at least {MIN_TILE} pixels such as 1024 or 1024x768");
        let (width, height) = size.ok_or_else(|| Error::argument("tile", text, expected))?;
        Ok(Self::Pixels { width, height })
    }
}

impl fmt::Display for TileSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Pixels { width, height } if width == height => write!(f, "{width}"),
            Self::Pixels { width, height } => write!(f, "{width}x{height}"),
        }
    }
}

/// The tiles of large images: their size and their overlap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tiling {
    /// The size of the tiles.
    pub size: TileSize,
    /// The least overlap of neighbours, as a share of a tile's side.
    pub overlap: f32,
    most_tiles: Option<usize>,
}

impl Default for Tiling {
    fn default() -> Self {
        Self::new(TileSize::Auto)
    }
}

impl Tiling {
    /// The default [overlap](Self::overlap).
    pub const OVERLAP: f32 = 0.2;

    /// Tiles of this size that overlap by a fifth.
    pub fn new(size: TileSize) -> Self {
        Self { size, overlap: Self::OVERLAP, most_tiles: None }
    }

    setters! {
        /// Sets the least overlap of neighbours, as a share of a tile's side, 0 to [`MAX_OVERLAP`]. An object of up to this size is
        /// whole in one of the tiles.
        #[must_use]
        with_overlap(overlap: f32) => overlap;

        /// Refuses images that have more tiles than this, of all sizes together. With [`TileSize::Auto`] the tiles are as large as
        /// this asks for.
        #[must_use]
        with_most_tiles(most: usize) => most_tiles;
    }

    /// Checks size and overlap.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a side below [`MIN_TILE`] or an overlap
    /// outside 0 to [`MAX_OVERLAP`].
    pub fn check(&self) -> Result<()> {
        if let TileSize::Pixels { width, height } = self.size
            && width.min(height) < MIN_TILE
        {
            return Err(Error::argument("tile", self.size, format!("at least {MIN_TILE} pixels a side")));
        }
        if !(0.0..=MAX_OVERLAP).contains(&self.overlap) {
            return Err(Error::argument("tile_overlap", self.overlap, format!("0 to {MAX_OVERLAP}")));
        }
        Ok(())
    }

    /// Checks the number of tiles of an image of `size` (width, height), as far as it does not depend on what is in the image.
    /// A model whose input has `side` pixels sees a smaller image whole.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are more than
    /// [`with_most_tiles`](Self::with_most_tiles) allows.
    pub fn check_image(&self, size: (u32, u32), side: usize) -> Result<()> {
        match self.size {
            TileSize::Pixels { width, height } if size.0.max(size.1) as usize > side => {
                self.sizes(size, (width, height)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The tiles of an image in reading order, those of the given size first and larger ones after them; empty if one tile
    /// covers the image.
    pub(crate) fn levels(&self, size: (u32, u32), tile: (u32, u32)) -> Result<Vec<Vec<Region>>> {
        Ok(self.sizes(size, tile)?.into_iter().map(|tile| self.grid(size, tile)).collect())
    }

    /// The sizes of the tiles of an image, by level.
    fn sizes(&self, (width, height): (u32, u32), tile: (u32, u32)) -> Result<Vec<(u32, u32)>> {
        let (first, mut tile, mut sizes, mut count) = (tile, tile, Vec::new(), 0);
        let covers = |tile: (u32, u32), factor: u32| {
            tile.0.saturating_mul(factor) >= width && tile.1.saturating_mul(factor) >= height
        };
        while !covers(tile, if sizes.is_empty() { 1 } else { LEAST_STEP_TO_WHOLE }) {
            let gaps = |length, tile| gaps(length, tile, self.overlap);
            count += (gaps(width, tile.0) + 1) * (gaps(height, tile.1) + 1);
            sizes.push(tile);
            tile = (tile.0.saturating_mul(LEVEL_FACTOR), tile.1.saturating_mul(LEVEL_FACTOR));
        }
        if let Some(most) = self.most_tiles.filter(|most| count > *most as u64) {
            let (width_of_tile, height_of_tile) = first;
            return Err(Error::invalid_argument(format!(
                "tile: an image of {width} × {height} pixels has {count} tiles of {width_of_tile} × {height_of_tile} and \
                 larger: expected at most {most}; name a larger size, or a smaller tile_overlap"
            )).about("tile"));
        }
        Ok(sizes)
    }

    /// Tiles of one size that cover an image.
    pub(crate) fn grid(&self, (width, height): (u32, u32), tile: (u32, u32)) -> Vec<Region> {
        let columns = starts(width, tile.0, self.overlap);
        let rows = starts(height, tile.1, self.overlap);
        let (tile_width, tile_height) = (tile.0.min(width), tile.1.min(height));
        let row =
            |y: u32| columns.iter().map(move |&x| Region { x, y, width: tile_width, height: tile_height });
        rows.into_iter().flat_map(row).collect()
    }
}

/// The starts of tiles along one side, spread evenly: the first tile starts with the image and the last ends with it.
fn starts(length: u32, tile: u32, overlap: f32) -> Vec<u32> {
    let (free, gaps) = (u64::from(length.saturating_sub(tile)), gaps(length, tile, overlap));
    (0..=gaps).map(|index| (free * index / gaps.max(1)) as u32).collect()
}

/// The number of tiles along one side after the first.
fn gaps(length: u32, tile: u32, overlap: f32) -> u64 {
    let step = (f64::from(tile) * (1.0 - f64::from(overlap))).floor().max(1.0);
    (f64::from(length.saturating_sub(tile)) / step).ceil() as u64
}

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The left edge.
    pub x: u32,
    /// The top edge.
    pub y: u32,
    /// The width, at least 1.
    pub width: u32,
    /// The height, at least 1.
    pub height: u32,
}

impl Region {
    /// All of an image of `size` (width, height).
    pub fn whole((width, height): (u32, u32)) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// The column after the last.
    pub fn right(&self) -> u32 {
        self.x + self.width
    }

    /// The row after the last.
    pub fn bottom(&self) -> u32 {
        self.y + self.height
    }

    pub(crate) fn to_box(self) -> BoundingBox {
        BoundingBox::new(self.x as f32, self.y as f32, self.right() as f32, self.bottom() as f32)
    }

    /// True if a box lies inside.
    pub(crate) fn contains(&self, bbox: &BoundingBox) -> bool {
        let own = self.to_box();
        bbox.x1 >= own.x1 && bbox.y1 >= own.y1 && bbox.x2 <= own.x2 && bbox.y2 <= own.y2
    }
}

/// A box moved by some pixels.
pub(crate) fn moved(bbox: BoundingBox, x: f32, y: f32) -> BoundingBox {
    BoundingBox::new(bbox.x1 + x, bbox.y1 + y, bbox.x2 + x, bbox.y2 + y)
}

/// The pixels of an image, in parts. A detector asks for tiles from the top to the bottom, a few times over.
pub trait Regions {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// The pixels of a region inside the image.
    ///
    /// # Errors
    /// If they cannot be read.
    fn region(&mut self, region: Region) -> Result<FrameView<'_>>;

    /// The whole image in its height; its width may be reduced to `side` pixels, as
    /// [`Preprocessor`](crate::preprocess::Preprocessor) does it.
    ///
    /// # Errors
    /// If it cannot be read.
    fn whole(&mut self, side: u32) -> Result<FrameView<'_>>;
}

/// An image in memory.
pub struct WholeImage<'a> {
    view: FrameView<'a>,
    /// The pixels in RGB, if tiles of the view are no views.
    converted: Option<Image>,
}

impl<'a> WholeImage<'a> {
    /// The pixels of an image or a frame.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the frame has too few bytes.
    pub fn new(image: impl Into<FrameView<'a>>) -> Result<Self> {
        let view = image.into();
        view.check()?;
        Ok(Self { view, converted: None })
    }
}

impl Regions for WholeImage<'_> {
    fn size(&self) -> (u32, u32) {
        (self.view.width, self.view.height)
    }

    fn region(&mut self, region: Region) -> Result<FrameView<'_>> {
        if self.view.format == PixelFormat::Nv12 {
            // The planes of a tile are not next to each other.
            if self.converted.is_none() {
                self.converted = Some(self.view.to_image()?);
            }
            let image = self.converted.as_ref().expect("it was converted");
            return part_of(image.into(), region);
        }
        part_of(self.view, region)
    }

    fn whole(&mut self, _side: u32) -> Result<FrameView<'_>> {
        Ok(self.view)
    }
}

/// A part of a view whose pixels have one plane.
pub(crate) fn part_of(view: FrameView<'_>, region: Region) -> Result<FrameView<'_>> {
    if region.right() > view.width || region.bottom() > view.height {
        let (width, height) = (view.width, view.height);
        refuse!("{region:?} is outside the image of {width} × {height} pixels");
    }
    let pixel = if view.format == PixelFormat::Gray8 { 1 } else { 3 };
    let start = region.y as usize * view.stride + region.x as usize * pixel;
    Ok(FrameView { data: &view.data[start..], width: region.width, height: region.height, ..view })
}

#[cfg(test)]
mod tests;
