//! The polygon with the fewest points that still covers the same pixels as a mask.

use ocelli::Mask;

/// The largest distances of a polygon from the corners of the border's pixels, coarsest first. Of a slanted border, half of the
/// corners are up to a pixel beyond the line through the others: a pixel removes the steps, and the polygon is within half a
/// pixel of their middle.
const TOLERANCES: [f32; 7] = [1.5, 1.25, 1.0, 0.75, TOLERANCE, 0.25, 0.0];
/// The tolerance if no polygon has the IoU, because it leaves parts out.
const TOLERANCE: f32 = 0.5;
/// The least IoU of a polygon and its mask.
const LEAST_IOU: f64 = 0.99;

/// The pixels that a polygon covers.
#[derive(Clone, Copy)]
pub(crate) struct Coverage {
    /// The position within a pixel that decides whether the pixel is inside.
    pub at: f32,
    /// `true` if the pixels on the polygon are inside as well.
    pub with_border: bool,
}

/// The coarsest polygons that `make` returns for a tolerance in pixels and that have the IoU with the mask.
pub(crate) fn simplest(
    mask: &Mask,
    coverage: Coverage,
    make: impl Fn(f32) -> Vec<Vec<[f32; 2]>>,
) -> Vec<Vec<[f32; 2]>> {
    let Some(patch) = Patch::around(mask) else { return make(TOLERANCE) };
    let polygons = TOLERANCES.iter().map(|tolerance| make(*tolerance));
    let is_good = |polygons: &Vec<Vec<[f32; 2]>>| patch.iou(polygons, coverage) >= LEAST_IOU;
    polygons.into_iter().find(is_good).unwrap_or_else(|| make(TOLERANCE))
}

/// The pixels of a mask inside its bounding box, with a margin of a pixel.
struct Patch {
    left: f32,
    top: f32,
    width: usize,
    inside: Vec<bool>,
}

impl Patch {
    fn around(mask: &Mask) -> Option<Self> {
        let [left, top, right, bottom] = mask.bounding_box()?.to_xyxy();
        let (width, height) = ((right - left) as usize + 2, (bottom - top) as usize + 2);
        let (left, top) = (left - 1.0, top - 1.0);
        let mut inside = vec![false; width * height];
        for span in mask.spans() {
            for y in span.top..span.bottom {
                inside[(y as f32 - top) as usize * width + (span.x as f32 - left) as usize] = true;
            }
        }
        Some(Self { left, top, width, inside })
    }

    fn iou(&self, polygons: &[Vec<[f32; 2]>], coverage: Coverage) -> f64 {
        let covered = self.covered(polygons, coverage);
        let pairs = || covered.iter().zip(&self.inside);
        let both = pairs().filter(|(a, b)| **a && **b).count();
        let either = pairs().filter(|(a, b)| **a || **b).count();
        both as f64 / either.max(1) as f64
    }

    /// The pixels that polygons cover, by the even-odd rule for each.
    fn covered(&self, polygons: &[Vec<[f32; 2]>], Coverage { at, with_border }: Coverage) -> Vec<bool> {
        let mut covered = vec![false; self.inside.len()];
        let height = self.inside.len() / self.width;
        let local = |[x, y]: [f32; 2]| [x - self.left - at, y - self.top - at];
        for polygon in polygons {
            let points: Vec<[f32; 2]> = polygon.iter().copied().map(local).collect();
            let edges = || points.iter().zip(points.iter().cycle().skip(1));
            // The columns at which the edges cross each row.
            let mut crossings = vec![Vec::new(); height];
            for (a, b) in edges() {
                let (low, high) = if a[1] <= b[1] { (a, b) } else { (b, a) };
                let rows = low[1].ceil().max(0.0) as usize..(high[1].ceil().max(0.0) as usize).min(height);
                for y in rows {
                    let share = (y as f32 - low[1]) / (high[1] - low[1]);
                    crossings[y].push(low[0] + share * (high[0] - low[0]));
                }
            }
            for (y, mut columns) in crossings.into_iter().enumerate() {
                columns.sort_by(f32::total_cmp);
                for pair in columns.chunks_exact(2) {
                    let first = pair[0].ceil().max(0.0) as usize;
                    let end = (pair[1].ceil().max(0.0) as usize).min(self.width);
                    covered[y * self.width..][first.min(end)..end].fill(true);
                }
            }
            for (a, b) in edges().filter(|_| with_border) {
                let steps = (b[0] - a[0]).abs().max((b[1] - a[1]).abs()).ceil().max(1.0);
                for step in 0..=steps as usize {
                    let share = step as f32 / steps;
                    let [x, y] = [0, 1].map(|axis| (a[axis] + share * (b[axis] - a[axis])).round());
                    if x >= 0.0 && y >= 0.0 && (x as usize) < self.width && (y as usize) < height {
                        covered[y as usize * self.width + x as usize] = true;
                    }
                }
            }
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(inside: impl Fn(f32, f32) -> bool) -> Mask {
        let side = 300u32;
        let pixel = |i: u32| u8::from(inside((i % side) as f32, (i / side) as f32));
        let pixels: Vec<u8> = (0..side * side).map(pixel).collect();
        Mask::from_bitmap(&pixels, side, side).expect("the size is right")
    }

    #[test]
    fn polygons_have_few_points_and_the_same_pixels() {
        let disc = mask(|x, y| (x - 150.0).hypot(y - 140.0) < 100.0);
        let slanted = mask(|x, y| y > 20.0 + 0.37 * x && y < 120.0 + 0.37 * x && x > 30.0 && x < 250.0);
        let tree = mask(|x, y| {
            let angle = (y - 150.0).atan2(x - 150.0);
            (x - 150.0).hypot(y - 150.0) < 90.0 + 14.0 * (9.0 * angle).sin()
        });
        let small = mask(|x, y| (x - 20.0).hypot(y - 20.0) < 7.3);
        let mut failures = Vec::new();
        for (name, mask, most) in
            [("disc", &disc, 40), ("slanted", &slanted, 8), ("tree", &tree, 90), ("small", &small, 40)]
        {
            let coverage = Coverage { at: 0.5, with_border: false };
            let found = simplest(mask, coverage, |tolerance| mask.polygons(tolerance));
            let patch = Patch::around(mask).expect("it has pixels");
            assert!(patch.iou(&mask.polygons(0.0), coverage) == 1.0, "{name}");
            let (iou, points) = (patch.iou(&found, coverage), found[0].len());
            let before = mask.polygons(TOLERANCE)[0].len();
            if iou < LEAST_IOU || points > most {
                failures.push(format!("{name}: {points} points, IoU {iou:.4}; {before} before"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
