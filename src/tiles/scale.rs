//! The size of tiles, from what a first pass finds.

use super::Region;
use crate::frame_view::{FrameView, PixelFormat};

/// A small object is to have at least this many of the model's patches along its side.
const PATCHES: f32 = 2.0;
/// The share of the objects that may be smaller than a small one.
const SMALLEST_SHARE: f32 = 0.1;
/// Tiles are enlarged for the model by at most this factor.
const MAX_ENLARGEMENT: f32 = 2.0;
/// Every so many pixels of a column and of a row are compared.
const SAMPLED: usize = 4;

/// The side of the tiles for objects of these sizes (the square root of the area in pixels), for a model with an input of `side`
/// pixels and patches of `patch` pixels. Without objects, a tile has as many pixels as the model's input.
pub(crate) fn size_for(sizes: &mut [f32], side: usize, patch: usize) -> u32 {
    sizes.sort_unstable_by(f32::total_cmp);
    let smallest = sizes.get((sizes.len() as f32 * SMALLEST_SHARE) as usize);
    let side = side as f32;
    let wanted = smallest.map_or(side, |size| size * side / (PATCHES * patch as f32));
    wanted.max(side / MAX_ENLARGEMENT).round() as u32
}

/// The tile with the most detail in each quarter of the image, in the order of the tiles. `reduced` is the image in its height
/// and in any width.
pub(crate) fn busiest(tiles: &[Region], reduced: &FrameView<'_>, (width, height): (u32, u32)) -> Vec<Region> {
    let mut best: [Option<(f64, usize)>; 4] = [None; 4];
    for (index, tile) in tiles.iter().enumerate() {
        let is_right = tile.x + tile.width / 2 >= width / 2;
        let is_low = tile.y + tile.height / 2 >= height / 2;
        let quarter = &mut best[usize::from(is_right) + 2 * usize::from(is_low)];
        let detail = detail(tile, reduced, width);
        if quarter.is_none_or(|(most, _)| detail > most) {
            *quarter = Some((detail, index));
        }
    }
    let mut chosen: Vec<usize> = best.into_iter().flatten().map(|(_, index)| index).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|index| tiles[index]).collect()
}

/// The mean difference of a pixel and the one below it.
fn detail(tile: &Region, reduced: &FrameView<'_>, width: u32) -> f64 {
    let pixel = if matches!(reduced.format, PixelFormat::Gray8 | PixelFormat::Nv12) { 1 } else { 3 };
    let column = |x: u32| (u64::from(x) * u64::from(reduced.width) / u64::from(width)) as usize;
    let (left, right) = (column(tile.x), column(tile.right()).max(column(tile.x) + 1));
    let bottom = (tile.bottom() as usize).min(reduced.height as usize - 1);
    let (mut sum, mut count) = (0u64, 0u64);
    for y in (tile.y as usize..bottom).step_by(SAMPLED) {
        let row = &reduced.data[y * reduced.stride..];
        for x in (left..right).step_by(SAMPLED) {
            // Green of three channels.
            let at = x * pixel + pixel / 2;
            sum += u64::from(row[at].abs_diff(row[at + reduced.stride]));
            count += 1;
        }
    }
    sum as f64 / count.max(1) as f64
}
