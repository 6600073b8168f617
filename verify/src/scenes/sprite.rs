//! Images with transparency that can be scaled, mirrored, rotated and cropped.

use ::image::RgbaImage;

/// A pixel with premultiplied opacity: red, green and blue from 0 to 255, and the opacity from 0 to 1.
pub(super) type Color = [f32; 4];

/// A pixel with a higher opacity is clearly visible.
pub(super) const VISIBLE: f32 = 100.0 / 255.0;

/// An image with transparency.
#[derive(Clone, Debug)]
pub(super) struct Sprite {
    pub(super) width: usize,
    pub(super) height: usize,
    /// [height, width]
    pixels: Vec<Color>,
}

impl Sprite {
    pub(super) fn from_rgba(image: &RgbaImage) -> Self {
        let color = |pixel: &::image::Rgba<u8>| {
            let [r, g, b, a] = pixel.0.map(f32::from);
            let opacity = a / 255.0;
            [r * opacity, g * opacity, b * opacity, opacity]
        };
        Self {
            width: image.width() as usize,
            height: image.height() as usize,
            pixels: image.pixels().map(color).collect(),
        }
    }

    #[inline]
    pub(super) fn pixel(&self, x: usize, y: usize) -> Color {
        self.pixels[y * self.width + x]
    }

    /// The bounding box of the pixels with an opacity above `least`; `None` if there are none.
    pub(super) fn trimmed(&self, least: f32) -> Option<Self> {
        let (mut left, mut top, mut right, mut bottom) = (self.width, self.height, 0, 0);
        for (y, row) in self.pixels.chunks_exact(self.width).enumerate() {
            for (x, _) in row.iter().enumerate().filter(|(_, color)| color[3] > least) {
                (left, right) = (left.min(x), right.max(x + 1));
                (top, bottom) = (top.min(y), bottom.max(y + 1));
            }
        }
        if right == 0 {
            return None;
        }
        let rows = self.pixels.chunks_exact(self.width).skip(top).take(bottom - top);
        let pixels = rows.flat_map(|row| &row[left..right]).copied().collect();
        Some(Self { width: right - left, height: bottom - top, pixels })
    }

    pub(super) fn mirrored(mut self) -> Self {
        self.pixels.chunks_exact_mut(self.width).for_each(<[Color]>::reverse);
        self
    }

    /// Scales with a triangle filter that gets wider when it shrinks the image, as PIL's `BILINEAR` does.
    pub(super) fn resized(&self, width: usize, height: usize) -> Self {
        let mut across = Vec::with_capacity(width * self.height);
        let columns = taps(self.width, width);
        for row in self.pixels.chunks_exact(self.width) {
            let weighed =
                |(first, weights): &(usize, Vec<f32>)| weigh(weights, row[*first..].iter().copied());
            across.extend(columns.iter().map(weighed));
        }
        let mut pixels = Vec::with_capacity(width * height);
        for (first, weights) in taps(self.height, height) {
            let column = |x: usize| (first..first + weights.len()).map(move |y| y * width + x);
            pixels.extend((0..width).map(|x| weigh(&weights, column(x).map(|at| across[at]))));
        }
        Self { width, height, pixels }
    }

    /// Rotates counter-clockwise; the result is large enough for all of the image.
    pub(super) fn turned(&self, degrees: f64) -> Self {
        let (sin, cos) = libm::sincos(degrees.to_radians());
        let (w, h) = (self.width as f64, self.height as f64);
        let width = ((w * cos).abs() + (h * sin).abs()).ceil() as usize;
        let height = ((w * sin).abs() + (h * cos).abs()).ceil() as usize;
        let (cos, sin) = (cos as f32, sin as f32);
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            let dy = y as f32 + 0.5 - 0.5 * height as f32;
            for x in 0..width {
                let dx = x as f32 + 0.5 - 0.5 * width as f32;
                pixels.push(self.sample(
                    dx * cos - dy * sin + 0.5 * self.width as f32,
                    dx * sin + dy * cos + 0.5 * self.height as f32,
                ));
            }
        }
        Self { width, height, pixels }
    }

    /// The colour at a point, interpolated between the four pixels around it; transparent outside.
    #[inline]
    pub(super) fn sample(&self, u: f32, v: f32) -> Color {
        let (u, v) = (u - 0.5, v - 0.5);
        let (left, top) = (u.floor(), v.floor());
        let (share_x, share_y) = (u - left, v - top);
        let (left, top) = (left as isize, top as isize);
        if left < -1 || top < -1 || left >= self.width as isize || top >= self.height as isize {
            return [0.0; 4];
        }
        let at = |x: isize, y: isize| {
            if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
                self.pixels[y as usize * self.width + x as usize]
            } else {
                [0.0; 4]
            }
        };
        let mix = |a: Color, b: Color, share: f32| {
            let mut mixed = a;
            mixed.iter_mut().zip(b).for_each(|(a, b)| *a += (b - *a) * share);
            mixed
        };
        let above = mix(at(left, top), at(left + 1, top), share_x);
        let below = mix(at(left, top + 1), at(left + 1, top + 1), share_x);
        mix(above, below, share_y)
    }
}

/// For each pixel of the result, the first source pixel and the weights from there on.
fn taps(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let tap = |index: usize| {
        let centre = (index as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let last = ((centre + reach + 0.5) as usize).min(from);
        let weight = |x: usize| (1.0 - ((x as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..last).map(weight).sum();
        (first, (first..last).map(|x| (weight(x) / sum) as f32).collect())
    };
    (0..to).map(tap).collect()
}

fn weigh(weights: &[f32], colors: impl Iterator<Item = Color>) -> Color {
    let mut sum = [0.0; 4];
    for (&weight, color) in weights.iter().zip(colors) {
        sum.iter_mut().zip(color).for_each(|(sum, value)| *sum += weight * value);
    }
    sum
}
