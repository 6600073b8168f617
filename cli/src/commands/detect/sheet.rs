//! `--sheet`: all annotated images on one page.

use std::path::Path;

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

/// Width and height of a cell in pixels.
const CELL: (u32, u32) = (480, 360);
/// Pixels between and around cells.
const GAP: u32 = 8;
/// Background colour.
const PAPER: Rgb<u8> = Rgb([245, 245, 245]);
/// A larger page would be too large for image viewers.
const MAX_IMAGES: usize = 400;

/// Annotated images, scaled to cells of one page.
#[derive(Debug, Default)]
pub struct ContactSheet {
    cells: Vec<RgbImage>,
}

impl ContactSheet {
    /// Adds an image; those after the first 400 are left out.
    pub fn add(&mut self, image: &RgbImage) {
        if self.cells.len() == MAX_IMAGES || image.width() == 0 || image.height() == 0 {
            return;
        }
        let (width, height) = (f64::from(image.width()), f64::from(image.height()));
        let scale = (f64::from(CELL.0) / width).min(f64::from(CELL.1) / height);
        let side = |pixels: f64| ((pixels * scale).round() as u32).max(1);
        self.cells.push(imageops::resize(image, side(width), side(height), FilterType::CatmullRom));
    }

    /// The page, as close to a square grid as possible; `None` without images.
    pub fn page(&self) -> Option<RgbImage> {
        if self.cells.is_empty() {
            return None;
        }
        let columns = (self.cells.len() as f64).sqrt().ceil() as u32;
        let rows = (self.cells.len() as u32).div_ceil(columns);
        let size = |count: u32, cell: u32| count * (cell + GAP) + GAP;
        let mut page = RgbImage::from_pixel(size(columns, CELL.0), size(rows, CELL.1), PAPER);
        for (i, cell) in self.cells.iter().enumerate() {
            let (column, row) = (i as u32 % columns, i as u32 / columns);
            let centred =
                |at: u32, full: u32, used: u32| i64::from(size(at, full) + (full - used.min(full)) / 2);
            let (x, y) = (centred(column, CELL.0, cell.width()), centred(row, CELL.1, cell.height()));
            imageops::replace(&mut page, cell, x, y);
        }
        Some(page)
    }

    /// Writes the page, if there are images.
    ///
    /// # Errors
    /// As [`write_image`](super::outputs::write_image).
    pub fn write(&self, path: &Path) -> ocelli::Result<()> {
        match self.page() {
            Some(page) => super::outputs::write_image(path, &page),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_contains_every_image() {
        for (count, columns, rows) in [(1, 1, 1), (2, 2, 1), (6, 3, 2), (7, 3, 3)] {
            let mut sheet = ContactSheet::default();
            for i in 0..count {
                sheet.add(&RgbImage::from_pixel(100 + i, 50, Rgb([255, 0, 0])));
            }
            let page = sheet.page().expect("there are images");
            let expected = (columns * (CELL.0 + GAP) + GAP, rows * (CELL.1 + GAP) + GAP);
            assert_eq!(page.dimensions(), expected, "{count} images");
            let red = page.pixels().filter(|p| p.0 == [255, 0, 0]).count();
            assert!(red > count as usize * 480 * 200, "{count} images: {red} red pixels");
        }
        assert!(ContactSheet::default().page().is_none());
    }
}
