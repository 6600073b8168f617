//! Corners of an image, and where they are in the next one.

/// Levels of the pyramid, each half as large as the one before.
const LEVELS: usize = 4;
/// Pixels around a point that are compared in each direction.
const RADIUS: usize = 4;
/// Side of the cells that have one corner each.
const CELL: usize = 20;
/// The least strength of a corner: the smaller eigenvalue of the mean of the gradients' products, in levels² a pixel².
const LEAST_STRENGTH: f32 = 2.0;
/// Steps of the search on each level, and the step that ends it.
const STEPS: usize = 8;
const LEAST_STEP: f32 = 0.03;
/// Pixels that a point may miss when it is followed back.
const LEAST_RETURN: f64 = 0.5;

/// An image in several sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Pyramid {
    levels: [Level; LEVELS],
}

#[derive(Clone, Debug, Default)]
struct Level {
    width: usize,
    height: usize,
    pixels: Vec<f32>,
}

impl Pyramid {
    /// The pixels of the largest image, to be filled before [`reduce`](Self::reduce).
    pub(super) fn start(&mut self, width: usize, height: usize) -> &mut [f32] {
        let level = &mut self.levels[0];
        (level.width, level.height) = (width, height);
        level.pixels.resize(width * height, 0.0);
        &mut level.pixels
    }

    /// Makes the smaller images.
    pub(super) fn reduce(&mut self) {
        for index in 1..LEVELS {
            let (above, below) = self.levels.split_at_mut(index);
            let (above, level) = (&above[index - 1], &mut below[0]);
            (level.width, level.height) = ((above.width / 2).max(1), (above.height / 2).max(1));
            level.pixels.clear();
            for y in 0..level.height {
                for x in 0..level.width {
                    let at = |dx, dy| above.clamped(2 * x + dx, 2 * y + dy);
                    level.pixels.push(0.25 * (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1)));
                }
            }
        }
    }

    /// Width and height of the largest image.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.levels[0].width, self.levels[0].height)
    }
}

impl Level {
    fn clamped(&self, x: usize, y: usize) -> f32 {
        self.pixels[y.min(self.height - 1) * self.width + x.min(self.width - 1)]
    }

    /// The value between four pixels, with pixel centres at whole numbers.
    fn between(&self, x: f32, y: f32) -> f32 {
        let (x, y) = (x.clamp(0.0, (self.width - 1) as f32), y.clamp(0.0, (self.height - 1) as f32));
        let (left, top) = (x as usize, y as usize);
        let (across, down) = (x - left as f32, y - top as f32);
        let row = |y| {
            let (a, b) = (self.clamped(left, y), self.clamped(left + 1, y));
            a + across * (b - a)
        };
        let (upper, lower) = (row(top), row(top + 1));
        upper + down * (lower - upper)
    }

    /// Half the difference of the neighbours, across and down.
    fn gradient(&self, x: f32, y: f32) -> [f32; 2] {
        [
            0.5 * (self.between(x + 1.0, y) - self.between(x - 1.0, y)),
            0.5 * (self.between(x, y + 1.0) - self.between(x, y - 1.0)),
        ]
    }
}

/// The strongest corner of each cell, if it has one: points with pixel edges at whole numbers.
pub(super) fn corners(image: &Pyramid) -> Vec<[f64; 2]> {
    let level = &image.levels[0];
    let margin = RADIUS + 1;
    let mut found = Vec::new();
    if level.width <= 2 * margin || level.height <= 2 * margin {
        return found;
    }
    let products = Products::of(level);
    for top in (margin..level.height - margin).step_by(CELL) {
        for left in (margin..level.width - margin).step_by(CELL) {
            let mut best = (LEAST_STRENGTH, None);
            for y in (top..(top + CELL).min(level.height - margin)).step_by(2) {
                for x in (left..(left + CELL).min(level.width - margin)).step_by(2) {
                    let strength = products.strength(x, y);
                    if strength > best.0 {
                        best = (strength, Some([x as f64 + 0.5, y as f64 + 0.5]));
                    }
                }
            }
            found.extend(best.1);
        }
    }
    found
}

/// Sums of the products of gradients above and left of each pixel, so that the sum of a rectangle is a difference of four.
struct Products {
    width: usize,
    sums: Vec<[f64; 3]>,
}

impl Products {
    fn of(level: &Level) -> Self {
        let width = level.width + 1;
        let mut sums = vec![[0.0; 3]; width * (level.height + 1)];
        for y in 0..level.height {
            let mut row = [0.0; 3];
            for x in 0..level.width {
                let across = level.clamped(x + 1, y) - level.clamped(x.saturating_sub(1), y);
                let down = level.clamped(x, y + 1) - level.clamped(x, y.saturating_sub(1));
                let (across, down) = (f64::from(0.5 * across), f64::from(0.5 * down));
                for (sum, product) in row.iter_mut().zip([across * across, across * down, down * down]) {
                    *sum += product;
                }
                let above = sums[y * width + x + 1];
                sums[(y + 1) * width + x + 1] = [0, 1, 2].map(|i| above[i] + row[i]);
            }
        }
        Self { width, sums }
    }

    /// The strength of the corner around a pixel.
    fn strength(&self, x: usize, y: usize) -> f32 {
        let (left, top, right, bottom) = (x - RADIUS, y - RADIUS, x + RADIUS + 1, y + RADIUS + 1);
        let sum = |x: usize, y: usize| self.sums[y * self.width + x];
        let (a, b, c, d) = (sum(right, bottom), sum(left, bottom), sum(right, top), sum(left, top));
        let [xx, xy, yy] = [0, 1, 2].map(|i| a[i] - b[i] - c[i] + d[i]);
        let count = ((2 * RADIUS + 1) * (2 * RADIUS + 1)) as f64;
        let eigenvalue = 0.5 * (xx + yy - ((xx - yy) * (xx - yy) + 4.0 * xy * xy).sqrt());
        (eigenvalue / count) as f32
    }
}

/// The place of a point of one image in the other; `None` if it left the image, or does not come back when followed back.
pub(super) fn follow(from: &Pyramid, to: &Pyramid, at: [f64; 2]) -> Option<[f64; 2]> {
    let there = track(from, to, at)?;
    let back = track(to, from, there)?;
    ((back[0] - at[0]).hypot(back[1] - at[1]) < LEAST_RETURN).then_some(there)
}

/// Lucas and Kanade's search from the smallest image to the largest (Bouguet, 2000).
fn track(from: &Pyramid, to: &Pyramid, at: [f64; 2]) -> Option<[f64; 2]> {
    let mut moved = [0.0f32; 2];
    for level in (0..LEVELS).rev() {
        let scale = (1 << level) as f32;
        // The centre of a pixel is at a half; that of the samples at a whole number.
        let [x, y] = at.map(|at| at as f32 / scale - 0.5);
        let (a, b) = (&from.levels[level], &to.levels[level]);
        let window = Window::around(a, x, y);
        moved = moved.map(|moved| 2.0 * moved);
        let Some(window) = window else { continue };
        for _ in 0..STEPS {
            let [dx, dy] = window.step(b, x + moved[0], y + moved[1]);
            moved = [moved[0] + dx, moved[1] + dy];
            if dx.abs().max(dy.abs()) < LEAST_STEP {
                break;
            }
        }
    }
    let there = [at[0] + f64::from(moved[0]), at[1] + f64::from(moved[1])];
    let (width, height) = from.size();
    let is_inside = |value: f64, side: usize| value >= 0.0 && value <= side as f64;
    (is_inside(there[0], width) && is_inside(there[1], height)).then_some(there)
}

const SIDE: usize = 2 * RADIUS + 1;

/// The pixels around a point, their gradients, and the inverse of the sums of the gradients' products.
struct Window {
    values: [f32; SIDE * SIDE],
    gradients: [[f32; 2]; SIDE * SIDE],
    inverse: [f32; 3],
}

impl Window {
    /// `None` if the pixels have no corner.
    fn around(level: &Level, x: f32, y: f32) -> Option<Self> {
        let mut window =
            Self { values: [0.0; SIDE * SIDE], gradients: [[0.0; 2]; SIDE * SIDE], inverse: [0.0; 3] };
        let [mut xx, mut xy, mut yy] = [0.0f32; 3];
        for (index, (x, y)) in positions(x, y).enumerate() {
            window.values[index] = level.between(x, y);
            let [across, down] = level.gradient(x, y);
            window.gradients[index] = [across, down];
            xx += across * across;
            xy += across * down;
            yy += down * down;
        }
        let determinant = xx * yy - xy * xy;
        window.inverse = [yy, -xy, xx].map(|value| value / determinant);
        (determinant > 1.0).then_some(window)
    }

    /// The step from (x, y) to the place of the point in `level`, if it is near.
    fn step(&self, level: &Level, x: f32, y: f32) -> [f32; 2] {
        let [mut across, mut down] = [0.0f32; 2];
        for (index, (x, y)) in positions(x, y).enumerate() {
            let difference = self.values[index] - level.between(x, y);
            across += difference * self.gradients[index][0];
            down += difference * self.gradients[index][1];
        }
        let [xx, xy, yy] = self.inverse;
        [xx * across + xy * down, xy * across + yy * down]
    }
}

fn positions(x: f32, y: f32) -> impl Iterator<Item = (f32, f32)> {
    let offset = |index: usize| index as f32 - RADIUS as f32;
    (0..SIDE * SIDE).map(move |index| (x + offset(index % SIDE), y + offset(index / SIDE)))
}
