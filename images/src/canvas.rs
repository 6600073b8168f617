//! Antialiased shapes on an RGB image, clipped to it.

use ::image::RgbImage;
use ocelli_tracking::BoundingBox;

use crate::mask::distance_to_segment;

/// The rectangle with every edge moved outwards.
pub fn grown(BoundingBox { x1, y1, x2, y2 }: BoundingBox, by: f32) -> BoundingBox {
    BoundingBox::new(x1 - by, y1 - by, x2 + by, y2 + by)
}

/// The distance of a point from the edge of the rectangle with rounded corners; negative inside.
fn distance(rect: BoundingBox, x: f32, y: f32, radius: f32) -> f32 {
    let (half_width, half_height) = (0.5 * rect.width(), 0.5 * rect.height());
    let radius = radius.min(half_width).min(half_height);
    let dx = (x - rect.x1 - half_width).abs() - half_width + radius;
    let dy = (y - rect.y1 - half_height).abs() - half_height + radius;
    // Most pixels are not at a corner.
    let outside = if dx > 0.0 && dy > 0.0 { dx.hypot(dy) } else { dx.max(dy).max(0.0) };
    outside + dx.max(dy).min(0.0) - radius
}

/// An image to draw on.
pub struct Canvas<'a> {
    image: &'a mut RgbImage,
    /// The share of each pixel that a line covers; zeros between two lines.
    coverage: Vec<f32>,
}

impl<'a> Canvas<'a> {
    pub fn new(image: &'a mut RgbImage) -> Self {
        Self { image, coverage: Vec::new() }
    }

    pub fn width(&self) -> f32 {
        self.image.width() as f32
    }

    pub fn height(&self) -> f32 {
        self.image.height() as f32
    }

    /// Blends a pixel with a colour at opacity `alpha`, 0 to 1; pixels outside the image are ignored.
    #[inline]
    pub fn blend(&mut self, x: i32, y: i32, color: [u8; 3], alpha: f32) {
        if alpha <= 0.0 {
            return;
        }
        if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y))
            && let Some(pixel) = self.image.get_pixel_mut_checked(x, y)
        {
            for (below, above) in pixel.0.iter_mut().zip(color) {
                let mixed = f32::from(*below) + (f32::from(above) - f32::from(*below)) * alpha;
                *below = (mixed + 0.5) as u8;
            }
        }
    }

    /// The columns and rows of the image that touch a rectangle.
    fn pixels_of(&self, rect: BoundingBox) -> (std::ops::Range<i32>, std::ops::Range<i32>) {
        let clip = |from: f32, to: f32, side: f32| from.floor().max(0.0) as i32..to.ceil().min(side) as i32;
        (clip(rect.x1, rect.x2, self.width()), clip(rect.y1, rect.y2, self.height()))
    }

    /// Fills a rectangle with rounded corners.
    pub fn fill_rounded(&mut self, rect: BoundingBox, radius: f32, color: [u8; 3], opacity: f32) {
        let (columns, rows) = self.pixels_of(rect);
        for y in rows {
            for x in columns.clone() {
                let distance = distance(rect, x as f32 + 0.5, y as f32 + 0.5, radius);
                self.blend(x, y, color, opacity * (0.5 - distance).clamp(0.0, 1.0));
            }
        }
    }

    /// Draws a line of `width` along the inside of a rectangle's edge, moved in by `inset`, with slightly rounded corners.
    pub fn stroke_frame(&mut self, rect: BoundingBox, width: f32, inset: f32, color: [u8; 3], opacity: f32) {
        let outer = grown(rect, -inset);
        let radius = 1.25 * width;
        let (columns, rows) = self.pixels_of(outer);
        // Only the four strips along the edges are visited: the inside of a large box can be most of the image.
        let strip = (1.5 * width + 2.0) as i32;
        let left_end = columns.end.min(columns.start + strip);
        let right_start = left_end.max(columns.end - strip);
        for y in rows.clone() {
            let alpha = |x: i32| {
                let distance = distance(outer, x as f32 + 0.5, y as f32 + 0.5, radius);
                let (outside, inside) = (0.5 - distance, 0.5 + distance + width);
                opacity * outside.clamp(0.0, 1.0) * inside.clamp(0.0, 1.0)
            };
            for x in (columns.start..left_end).chain(right_start..columns.end) {
                self.blend(x, y, color, alpha(x));
            }
            // Between the corners the pixels of a row are equally far from the edge.
            if y < rows.start + strip || y >= rows.end - strip {
                let between = alpha(left_end);
                (left_end..right_start).for_each(|x| self.blend(x, y, color, between));
            }
        }
    }

    /// Draws a line of `width` through points; it is blended once where it crosses itself.
    pub fn stroke_line(&mut self, points: &[[f32; 2]], width: f32, color: [u8; 3], opacity: f32) {
        // There and back again is a closed line.
        let ring: Vec<[f32; 2]> = points.iter().chain(points.iter().rev()).copied().collect();
        self.stroke_rings(&[&ring], width, color, opacity);
    }

    /// Draws closed lines of `width` through points; they are blended once where they meet.
    pub fn stroke_rings(&mut self, rings: &[&[[f32; 2]]], width: f32, color: [u8; 3], opacity: f32) {
        let reach = 0.5 * width + 0.5;
        let all =
            rings.iter().copied().flatten().map(|&point| around([point, point])).reduce(|a, b| {
                BoundingBox::new(a.x1.min(b.x1), a.y1.min(b.y1), a.x2.max(b.x2), a.y2.max(b.y2))
            });
        let Some(all) = all else { return };
        let (columns, rows) = self.pixels_of(grown(all, reach));
        let mut coverage = std::mem::take(&mut self.coverage);
        coverage.resize(coverage.len().max(columns.len() * rows.len()), 0.0);
        // The columns of each row that a line touches: a long slanted one leaves most of its rectangle alone.
        let mut touched = vec![(i32::MAX, 0); rows.len()];
        for ring in rings {
            for (&a, &b) in ring.iter().zip(ring.iter().cycle().skip(1)) {
                for y in self.pixels_of(grown(around([a, b]), reach)).1 {
                    let middle = y as f32 + 0.5;
                    let near = part_between(a, b, middle - reach, middle + reach);
                    let near = self.pixels_of(grown(around(near), reach)).0;
                    let number = (y - rows.start) as usize;
                    let row = &mut coverage[number * columns.len()..][..columns.len()];
                    for x in near.clone() {
                        let distance = distance_to_segment([x as f32 + 0.5, middle], a, b);
                        let covered = &mut row[(x - columns.start) as usize];
                        *covered = covered.max((reach - distance).clamp(0.0, 1.0));
                    }
                    let (first, end) = &mut touched[number];
                    (*first, *end) = ((*first).min(near.start), (*end).max(near.end));
                }
            }
        }
        for (number, (first, end)) in touched.into_iter().enumerate() {
            for x in first..end {
                let covered = &mut coverage[number * columns.len() + (x - columns.start) as usize];
                self.blend(x, rows.start + number as i32, color, opacity * std::mem::take(covered));
            }
        }
        self.coverage = coverage;
    }
}

/// The rectangle around a line.
fn around([a, b]: [[f32; 2]; 2]) -> BoundingBox {
    BoundingBox::new(a[0].min(b[0]), a[1].min(b[1]), a[0].max(b[0]), a[1].max(b[1]))
}

/// The part of a line between two heights, at least one of its points.
fn part_between(a: [f32; 2], b: [f32; 2], top: f32, bottom: f32) -> [[f32; 2]; 2] {
    let rise = b[1] - a[1];
    let at = |y: f32| {
        let share = if rise == 0.0 { 0.0 } else { ((y - a[1]) / rise).clamp(0.0, 1.0) };
        [a[0] + (b[0] - a[0]) * share, a[1] + rise * share]
    };
    if rise == 0.0 { [a, b] } else { [at(top), at(bottom)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: (u32, u32) = (97, 61);
    const COLOR: [u8; 3] = [250, 10, 120];

    /// An image in which every pixel was asked for its coverage.
    fn every_pixel(coverage: impl Fn(f32, f32) -> f32) -> RgbImage {
        let mut image = RgbImage::new(SIDES.0, SIDES.1);
        let mut canvas = Canvas::new(&mut image);
        for (x, y) in (0..SIDES.1).flat_map(|y| (0..SIDES.0).map(move |x| (x, y))) {
            canvas.blend(x as i32, y as i32, COLOR, coverage(x as f32 + 0.5, y as f32 + 0.5));
        }
        image
    }

    fn numbers() -> impl FnMut(f32, f32) -> f32 {
        let mut state = 7_u32;
        move |low, high| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            low + (high - low) * ((state >> 8) as f32 / (1 << 24) as f32)
        }
    }

    #[test]
    fn lines_cover_what_they_would_if_every_pixel_was_visited() {
        let mut number = numbers();
        for case in 0..300 {
            let (width, opacity) = (number(1.0, 7.0).round(), number(0.2, 1.0));
            let mut image = RgbImage::new(SIDES.0, SIDES.1);
            let (x1, y1) = (number(-9.0, 90.0), number(-9.0, 55.0));
            let rect = BoundingBox::new(x1, y1, x1 + number(1.0, 110.0), y1 + number(1.0, 70.0));
            let inset = if case % 2 == 0 { 0.0 } else { -0.7 };
            Canvas::new(&mut image).stroke_frame(rect, width, inset, COLOR, opacity);
            let expected = every_pixel(|x, y| {
                let distance = distance(grown(rect, -inset), x, y, 1.25 * width);
                opacity * (0.5 - distance).clamp(0.0, 1.0) * (0.5 + distance + width).clamp(0.0, 1.0)
            });
            assert!(image == expected, "frame {case}: {rect:?}, {width}");

            let mut image = RgbImage::new(SIDES.0, SIDES.1);
            let ring: Vec<[f32; 2]> =
                (0..case % 5 + 1).map(|_| [number(-30.0, 120.0).round(), number(-30.0, 90.0)]).collect();
            let mut canvas = Canvas::new(&mut image);
            // Twice: nothing is left of the first line.
            canvas.stroke_rings(&[&ring], width, COLOR, 0.0);
            canvas.stroke_rings(&[&ring], width, COLOR, opacity);
            let expected = every_pixel(|x, y| {
                let ends = ring.iter().zip(ring.iter().cycle().skip(1));
                let distances = ends.map(|(&a, &b)| distance_to_segment([x, y], a, b));
                opacity * (0.5 * width + 0.5 - distances.fold(f32::INFINITY, f32::min)).clamp(0.0, 1.0)
            });
            assert!(image == expected, "ring {case}: {ring:?}, {width}");
        }
    }
}
