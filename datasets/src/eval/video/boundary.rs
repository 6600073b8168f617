//! The boundary measure F of DAVIS: Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object
//! Segmentation", CVPR 2016.

/// The boundary of a mask, and the pixels near it.
pub(super) struct Boundary {
    /// Places of pixels, row by row.
    pixels: Vec<u32>,
    /// One byte for each pixel: 1 within the tolerance of the boundary.
    near: Vec<u8>,
}

impl Boundary {
    /// Of a bitmap with one byte for each pixel, row by row.
    pub(super) fn new(bitmap: &[u8], width: usize, height: usize) -> Self {
        let pixels = edges(bitmap, width, height);
        let near = dilated(&pixels, width, height);
        Self { pixels, near }
    }

    fn share_near(&self, other: &Self) -> f64 {
        let near = self.pixels.iter().filter(|&&pixel| other.near[pixel as usize] != 0).count();
        near as f64 / self.pixels.len() as f64
    }

    /// F1 of the boundary of a predicted mask: the share of its pixels near the object's, and the reverse.
    pub(super) fn f_measure(&self, object: &Self) -> f64 {
        let (precision, recall) = match (self.pixels.is_empty(), object.pixels.is_empty()) {
            (true, true) => (1.0, 1.0),
            (true, false) => (1.0, 0.0),
            (false, true) => (0.0, 1.0),
            (false, false) => (self.share_near(object), object.share_near(self)),
        };
        if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
    }
}

/// Pixels that differ from the next one to the right, below, or both.
fn edges(bitmap: &[u8], width: usize, height: usize) -> Vec<u32> {
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let at = y * width + x;
            let (right, below) = (x + 1 < width, y + 1 < height);
            let differs = |offset: usize| bitmap[at] != bitmap[at + offset];
            let is_edge =
                (right && differs(1)) || (below && differs(width)) || (right && below && differs(width + 1));
            if is_edge {
                pixels.push(at as u32);
            }
        }
    }
    pixels
}

/// Pixels within a disk around one of `pixels`, whose radius is 0.8 % of the image's diagonal, rounded up.
fn dilated(pixels: &[u32], width: usize, height: usize) -> Vec<u8> {
    let radius = (0.008 * ((width * width + height * height) as f64).sqrt()).ceil() as usize;
    let half_widths: Vec<usize> = (0..=radius).map(|dy| (radius * radius - dy * dy).isqrt()).collect();
    let mut near = vec![0; width * height];
    for &pixel in pixels {
        let (x, y) = (pixel as usize % width, pixel as usize / width);
        for row in y.saturating_sub(radius)..(y + radius + 1).min(height) {
            let half = half_widths[row.abs_diff(y)];
            let (left, right) = (x.saturating_sub(half), (x + half + 1).min(width));
            near[row * width + left..row * width + right].fill(1);
        }
    }
    near
}
