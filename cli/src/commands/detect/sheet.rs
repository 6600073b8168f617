//! A contact sheet: all annotated pictures on one page.

use std::path::Path;

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

/// Pixels of a cell.
const CELL: (u32, u32) = (480, 360);
/// Pixels between cells and around them.
const GAP: u32 = 8;
/// The page's colour.
const PAPER: Rgb<u8> = Rgb([245, 245, 245]);
/// More pictures than this make a page that no viewer opens.
const MAX_PICTURES: usize = 400;

/// Annotated pictures, scaled down to cells of one page as they come.
#[derive(Debug, Default)]
pub struct ContactSheet {
    cells: Vec<RgbImage>,
}

impl ContactSheet {
    /// Adds a picture; those beyond the first 400 are left out.
    pub fn add(&mut self, picture: &RgbImage) {
        if self.cells.len() == MAX_PICTURES || picture.width() == 0 || picture.height() == 0 {
            return;
        }
        let (width, height) = (f64::from(picture.width()), f64::from(picture.height()));
        let scale = (f64::from(CELL.0) / width).min(f64::from(CELL.1) / height);
        let side = |pixels: f64| ((pixels * scale).round() as u32).max(1);
        self.cells.push(imageops::resize(picture, side(width), side(height), FilterType::CatmullRom));
    }

    /// The page, as near to a square grid as the number of pictures allows; `None` where there is none.
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

    /// Writes the page; nothing where there is no picture.
    ///
    /// # Errors
    /// As [`write_picture`](super::outputs::write_picture).
    pub fn write(&self, path: &Path) -> ocelli::Result<()> {
        match self.page() {
            Some(page) => super::outputs::write_picture(path, &page),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_every_picture() {
        for (count, columns, rows) in [(1, 1, 1), (2, 2, 1), (6, 3, 2), (7, 3, 3)] {
            let mut sheet = ContactSheet::default();
            for i in 0..count {
                sheet.add(&RgbImage::from_pixel(100 + i, 50, Rgb([255, 0, 0])));
            }
            let page = sheet.page().expect("there are pictures");
            let expected = (columns * (CELL.0 + GAP) + GAP, rows * (CELL.1 + GAP) + GAP);
            assert_eq!(page.dimensions(), expected, "{count} pictures");
            let red = page.pixels().filter(|p| p.0 == [255, 0, 0]).count();
            assert!(red > count as usize * 480 * 200, "{count} pictures: {red} red pixels");
        }
        assert!(ContactSheet::default().page().is_none());
    }
}
