//! A band of rows of an image that is read from the top to the bottom.

use super::{Region, Regions, part_of};
use crate::frame_view::FrameView;
use crate::image::Image;
use ocelli_error::{Error, Result};
use ocelli_images::image::{guarded, no_memory};
use ocelli_images::rows::FileRows;
use ocelli_resize::Scaler;

/// Rows that are reduced at once.
const ROWS_AT_ONCE: usize = 64;

/// The rows that the last region needed, and what was read with them.
pub(super) struct Band<R> {
    rows: R,
    /// The name of the file, for errors.
    name: String,
    /// The row with which the band starts.
    first: u32,
    /// [row, width, rgb]
    data: Vec<u8>,
    /// The image with a reduced width, and this width.
    reduced: Option<(u32, Image)>,
}

impl<R: FileRows> Band<R> {
    /// A band of an image whose rows were not read yet.
    pub(super) fn new(rows: R, name: &str) -> Self {
        Self { rows, name: name.to_owned(), first: 0, data: Vec::new(), reduced: None }
    }

    fn row_bytes(&self) -> usize {
        self.rows.size().0 as usize * 3
    }

    /// The row after the last in the band.
    fn end(&self) -> u32 {
        self.first + (self.data.len() / self.row_bytes()) as u32
    }

    fn restart(&mut self) -> Result<()> {
        self.data.clear();
        self.first = 0;
        guarded(&self.name, || self.rows.restart().map_err(|refused| refused.about(&self.name)))
    }

    /// Reads on, without the rows above `top`.
    fn read_on(&mut self, top: u32) -> Result<()> {
        let unused = top.min(self.end()) - self.first;
        self.data.drain(..unused as usize * self.row_bytes());
        self.first += unused;
        let Self { rows, name, data, .. } = self;
        guarded(name, || rows.append_to(data).map_err(|refused| refused.about(name)))
    }

    fn reduce(&mut self, side: u32) -> Result<Image> {
        let (width, height) = self.rows.size();
        let (row, mut scaler) = (self.row_bytes(), Scaler::default());
        let mut pixels = Vec::new();
        let bytes = side as usize * height as usize * 3;
        if pixels.try_reserve_exact(bytes).is_err() {
            return Err(Error::invalid_data(no_memory(bytes as u64)));
        }
        pixels.resize(bytes, 0);
        let mut reduced = Image::from_rgb8(side, height, pixels)?;
        let mut left = reduced.reset_rgb8(side, height)?;
        self.restart()?;
        let mut next = 0;
        while next < height {
            while self.end() < height.min(next + ROWS_AT_ONCE as u32) {
                self.read_on(next)?;
            }
            let count = (self.end().min(height) - next) as usize;
            let from = &self.data[(next - self.first) as usize * row..][..count * row];
            let (to, rest) = left.split_at_mut(count * side as usize * 3);
            scaler.run_into(from, (width, count as u32), to, (side, count as u32))?;
            (left, next) = (rest, next + count as u32);
        }
        Ok(reduced)
    }
}

impl<R: FileRows> Regions for Band<R> {
    fn size(&self) -> (u32, u32) {
        self.rows.size()
    }

    fn region(&mut self, region: Region) -> Result<FrameView<'_>> {
        if region.y < self.first {
            self.restart()?;
        }
        let (width, height) = self.size();
        while self.end() < region.bottom().min(height) {
            self.read_on(region.y)?;
        }
        let rows = self.end().min(height) - self.first;
        let view = FrameView::rgb8(width, rows, &self.data);
        part_of(view, Region { y: region.y - self.first, ..region })
    }

    fn whole(&mut self, side: u32) -> Result<FrameView<'_>> {
        let reduced = match self.reduced.take() {
            Some(known) if known.0 == side => known,
            _ => (side, self.reduce(side)?),
        };
        Ok((&self.reduced.insert(reduced).1).into())
    }
}
