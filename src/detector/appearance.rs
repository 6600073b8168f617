//! The appearance of detections, in the backbone's own features.

use ocelli_tracking::{Appearances, BoundingBox};

use super::decode::PromptDecoder;
use super::features::{COARSE, ImageFeatures};
use ocelli_error::{Error, Result};

/// Samples across and down a box.
const SAMPLES: usize = 6;
/// The part of a box that is sampled, from its middle: its edges show what is behind the object.
const INNER_PART: f32 = 0.8;

impl PromptDecoder {
    /// Describes what boxes in the image of `features` look like, for [`ByteTracker::update_with`]: the mean of `fpn_2` in each
    /// box, less that of the whole image. The boxes are in pixels of the image.
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if the features cannot be copied from their device, or are not
    /// those of an image.
    ///
    /// [`ByteTracker::update_with`]: ocelli_tracking::ByteTracker::update_with
    pub fn appearances_into(
        &mut self,
        features: &ImageFeatures,
        boxes: impl IntoIterator<Item = BoundingBox>,
        appearances: &mut Appearances,
    ) -> Result<()> {
        let [tensor] = self.copies.readable_on(None, features, [COARSE])?;
        let &[1, channels, rows, columns] = tensor.shape() else {
            let message = format!("fpn_2 has shape {:?}: expected [1, D, P, P]", tensor.shape());
            return Err(Error::execution(message));
        };
        let grid = Grid { values: tensor.as_f32()?, rows, columns };
        let (width, height) = features.size;
        let scale = [columns as f32 / width as f32, rows as f32 / height as f32];
        let means: Vec<f32> = grid.channels().map(|channel| mean(channel.iter().copied())).collect();
        let mut vector = vec![0.0; channels];
        appearances.reset(channels);
        for bbox in boxes {
            let points = grid.points(&bbox, scale);
            for ((value, channel), mean_of_all) in vector.iter_mut().zip(grid.channels()).zip(&means) {
                *value = mean(points.iter().map(|point| point.read(channel))) - mean_of_all;
            }
            appearances.push(&vector);
        }
        Ok(())
    }
}

fn mean(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let count = values.len().max(1) as f32;
    values.sum::<f32>() / count
}

/// Values `[D, rows, columns]`.
struct Grid<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
}

/// A place between four cells, with their weights.
struct Point {
    cells: [usize; 4],
    weights: [f32; 4],
}

impl Point {
    fn read(&self, channel: &[f32]) -> f32 {
        self.cells.iter().zip(self.weights).map(|(&cell, weight)| weight * channel[cell]).sum()
    }
}

impl Grid<'_> {
    fn channels(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.rows * self.columns)
    }

    /// Points evenly over the inner part of a box; `scale` is cells per pixel in x and y.
    fn points(&self, bbox: &BoundingBox, scale: [f32; 2]) -> [Point; SAMPLES * SAMPLES] {
        let along = |low: f32, high: f32, step: usize, cells: usize, scale: f32| {
            let part = 0.5 + INNER_PART * ((step as f32 + 0.5) / SAMPLES as f32 - 0.5);
            // The middle of cell 0 is at 0.
            let at = ((low + part * (high - low)) * scale - 0.5).clamp(0.0, (cells - 1) as f32);
            let first = at as usize;
            (first, (first + 1).min(cells - 1), at - first as f32)
        };
        std::array::from_fn(|index| {
            let (left, right, x) = along(bbox.x1, bbox.x2, index % SAMPLES, self.columns, scale[0]);
            let (top, bottom, y) = along(bbox.y1, bbox.y2, index / SAMPLES, self.rows, scale[1]);
            let cell = |row: usize, column: usize| row * self.columns + column;
            Point {
                cells: [cell(top, left), cell(top, right), cell(bottom, left), cell(bottom, right)],
                weights: [(1.0 - y) * (1.0 - x), (1.0 - y) * x, y * (1.0 - x), y * x],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_plane_are_read_exactly() {
        // The value of a cell is the place of its middle in pixels: x in the first channel, y in the second.
        let (rows, columns, cell) = (6, 8, 10.0);
        let middle = |index: usize| (index as f32 + 0.5) * cell;
        let across = (0..rows * columns).map(|at| middle(at % columns));
        let down = (0..rows * columns).map(|at| middle(at / columns));
        let values: Vec<f32> = across.chain(down).collect();
        let grid = Grid { values: &values, rows, columns };
        let bbox = BoundingBox::from([12.0, 8.0, 52.0, 38.0]);
        let points = grid.points(&bbox, [1.0 / cell; 2]);
        let read: Vec<[f32; 2]> = points
            .iter()
            .map(|point| {
                let mut channels = grid.channels().map(|channel| point.read(channel));
                std::array::from_fn(|_| channels.next().expect("two channels"))
            })
            .collect();
        let inner = [16.0, 11.0, 48.0, 35.0];
        for (index, [x, y]) in read.into_iter().enumerate() {
            let part = |step: usize| (step as f32 + 0.5) / SAMPLES as f32;
            let expected = [
                inner[0] + part(index % SAMPLES) * (inner[2] - inner[0]),
                inner[1] + part(index / SAMPLES) * (inner[3] - inner[1]),
            ];
            assert!(
                (x - expected[0]).abs() < 1e-3 && (y - expected[1]).abs() < 1e-3,
                "{x}, {y}: expected {expected:?}"
            );
        }
        // Beyond the grid its edge counts.
        let outside = grid.points(&BoundingBox::from([-90.0, -90.0, -50.0, -40.0]), [1.0 / cell; 2]);
        let edge = grid.channels().next().map(|channel| outside[0].read(channel));
        assert_eq!(edge, Some(5.0));
    }
}
