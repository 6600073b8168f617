//! `--sheet`: all annotated images on one page.

use std::path::Path;

use ocelli::{Image, Result};

/// Width and height of a cell in pixels.
const CELL: (u32, u32) = (480, 360);
/// Pixels between and around cells.
const GAP: u32 = 8;
/// Background colour.
const PAPER: [u8; 3] = [245, 245, 245];
/// A larger page would be too large for image viewers.
const MAX_IMAGES: usize = 400;

/// Annotated images, scaled to cells of one page.
#[derive(Debug, Default)]
pub struct ContactSheet {
    cells: Vec<Image>,
}

impl ContactSheet {
    /// Adds an image; those after the first 400 are left out.
    ///
    /// # Errors
    /// As [`Image::fitted`].
    pub fn add(&mut self, image: &Image) -> Result<()> {
        if self.cells.len() < MAX_IMAGES {
            self.cells.push(image.fitted(CELL)?);
        }
        Ok(())
    }

    /// The page, as close to a square grid as possible; `None` without images.
    ///
    /// # Errors
    /// As [`Image::filled`].
    pub fn page(&self) -> Result<Option<Image>> {
        if self.cells.is_empty() {
            return Ok(None);
        }
        let columns = (self.cells.len() as f64).sqrt().ceil() as u32;
        let rows = (self.cells.len() as u32).div_ceil(columns);
        let size = |count: u32, cell: u32| count * (cell + GAP) + GAP;
        let mut page = Image::filled(size(columns, CELL.0), size(rows, CELL.1), PAPER)?;
        for (i, cell) in self.cells.iter().enumerate() {
            let (column, row) = (i as u32 % columns, i as u32 / columns);
            page.place(cell, [size(column, CELL.0), size(row, CELL.1), CELL.0, CELL.1]);
        }
        Ok(Some(page))
    }

    /// Writes the page, if there are images.
    ///
    /// # Errors
    /// As [`page`](Self::page), and if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        match self.page()? {
            Some(page) => ocelli::sink::write_picture(path, &page),
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
                sheet.add(&Image::filled(100 + i, 50, [255, 0, 0]).expect("a size")).expect("it fits");
            }
            let page = sheet.page().expect("a size").expect("there are images");
            let expected = (columns * (CELL.0 + GAP) + GAP, rows * (CELL.1 + GAP) + GAP);
            assert_eq!((page.width(), page.height()), expected, "{count} images");
            let red = page.as_rgb8().chunks_exact(3).filter(|p| *p == [255, 0, 0]).count();
            assert!(red > count as usize * 480 * 200, "{count} images: {red} red pixels");
        }
        assert!(ContactSheet::default().page().expect("no error").is_none());
    }
}
