//! The canvas of scenes.

use crate::scenes::{Color, Random};
use ocelli::image::Image;

/// An RGB image that is being drawn.
#[derive(Clone, Debug)]
pub(super) struct Pixels {
    pub(super) width: u32,
    pub(super) height: u32,
    /// [height, width, rgb]
    pub(super) data: Vec<u8>,
}

impl Pixels {
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { width, height, data: vec![0; width as usize * height as usize * 3] }
    }

    /// Sets each pixel to the colour at its position, truncated to integers.
    pub(super) fn fill(&mut self, mut color: impl FnMut(f64, f64) -> [f64; 3]) {
        for (y, row) in self.data.chunks_exact_mut(self.width as usize * 3).enumerate() {
            for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                *pixel = color(x as f64, y as f64).map(|channel| channel as u8);
            }
        }
    }

    /// Paints the pixels of a rectangle [left, top, right, bottom] for which `inside` returns true.
    pub(super) fn paint(&mut self, area: [f64; 4], color: [f64; 3], inside: impl Fn(f64, f64) -> bool) {
        let [left, top, right, bottom] = area;
        let color = color.map(|channel| channel as u8);
        // The casts saturate at 0.
        let (x1, y1) = (left.floor() as u32, top.floor() as u32);
        let x2 = (right.ceil() as u32).saturating_add(1).min(self.width);
        let y2 = (bottom.ceil() as u32).saturating_add(1).min(self.height);
        for y in y1..y2 {
            for x in x1..x2 {
                if inside(f64::from(x), f64::from(y)) {
                    let at = (y as usize * self.width as usize + x as usize) * 3;
                    self.data[at..at + 3].copy_from_slice(&color);
                }
            }
        }
    }

    /// Multiplies all values by `gain` and adds noise with standard deviation `spread`.
    pub(super) fn disturb(&mut self, random: &mut Random, gain: f32, spread: f32) {
        for value in &mut self.data {
            *value = (f32::from(*value) * gain + random.normal() as f32 * spread) as u8;
        }
    }

    pub(super) fn into_image(self) -> Image {
        Image::from_rgb8(self.width, self.height, self.data).expect("there are three bytes for each pixel")
    }
}

/// Blends a colour over a pixel of three bytes.
#[inline]
pub(super) fn blend(pixel: &mut [u8], color: Color) {
    let rest = 1.0 - color[3];
    for (channel, above) in pixel.iter_mut().zip(color) {
        *channel = (f32::from(*channel) * rest + above + 0.5) as u8;
    }
}
