//! Borders of masks as polygons.

use super::Mask;

/// A closed polygon along the border of a mask; the last point connects to the first.
///
/// Points are pixel corners: the mask of the top left pixel has the corners (0, 0), (1, 0), (1, 1), (0, 1).
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The corners, `[x, y]`: clockwise around a part of the mask, anticlockwise around a hole.
    pub points: Vec<[f32; 2]>,
    /// `true` if it surrounds a hole, whose inside is not in the mask.
    pub is_hole: bool,
}

impl Outline {
    /// The area inside in pixels.
    pub fn area(&self) -> f64 {
        let ring = self.points.iter().zip(self.points.iter().cycle().skip(1));
        let doubled = ring.map(|(a, b)| {
            let ([ax, ay], [bx, by]) = (a.map(f64::from), b.map(f64::from));
            ax * by - bx * ay
        });
        (doubled.sum::<f64>() / 2.0).abs()
    }

    /// The outline with fewer points: the removed ones lie within `tolerance` pixels of the result.
    ///
    /// Ramer–Douglas–Peucker. A tolerance of 1 removes the steps of slanted borders; 0 changes nothing. At least three
    /// points are kept.
    #[must_use]
    pub fn simplified(&self, tolerance: f32) -> Self {
        let points = &self.points;
        if points.len() <= 3 {
            return self.clone();
        }
        // The ring is split into two lines at the point farthest from the first.
        let far = farthest(points, 0, points.len(), points[0], points[0]).0;
        let mut stays = vec![false; points.len()];
        (stays[0], stays[far]) = (true, true);
        let mut lines = vec![(0, far), (far, points.len())];
        while let Some((start, end)) = lines.pop() {
            let (middle, distance) = farthest(points, start, end, points[start], points[end % points.len()]);
            if distance > tolerance {
                stays[middle] = true;
                lines.extend([(start, middle), (middle, end)]);
            }
        }
        if stays.iter().filter(|stays| **stays).count() < 3 {
            let off_line = |start, end| farthest(points, start, end, points[0], points[far]);
            let (one, other) = (off_line(0, far), off_line(far, points.len()));
            stays[if one.1 >= other.1 { one.0 } else { other.0 }] = true;
        }
        let kept = points.iter().zip(&stays).filter(|(_, stays)| **stays);
        Self { points: kept.map(|(point, _)| *point).collect(), is_hole: self.is_hole }
    }
}

/// The point strictly between two indices that is farthest from the line between `a` and `b`; the start at distance 0 if
/// there is none.
fn farthest(points: &[[f32; 2]], start: usize, end: usize, a: [f32; 2], b: [f32; 2]) -> (usize, f32) {
    let mut best = (start, 0.0);
    for (index, &point) in points.iter().enumerate().take(end).skip(start + 1) {
        let distance = distance_to_segment(point, a, b);
        if distance > best.1 {
            best = (index, distance);
        }
    }
    best
}

/// The distance of `point` from the line segment between `a` and `b`.
pub(crate) fn distance_to_segment(point: [f32; 2], a: [f32; 2], b: [f32; 2]) -> f32 {
    let (along, to_point) = ([b[0] - a[0], b[1] - a[1]], [point[0] - a[0], point[1] - a[1]]);
    let length_squared = along[0] * along[0] + along[1] * along[1];
    let share = (to_point[0] * along[0] + to_point[1] * along[1]) / length_squared;
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    (to_point[0] - share * along[0]).hypot(to_point[1] - share * along[1])
}

/// The four directions along pixel edges, with the mask on the right, as steps (x, y) in clockwise order.
const STEPS: [[isize; 2]; 4] = [[1, 0], [0, 1], [-1, 0], [0, -1]];
/// From the corner at the end of a step: the pixels ahead to the right and ahead to the left.
const PIXELS_AHEAD: [([isize; 2], [isize; 2]); 4] =
    [([0, 0], [0, -1]), ([-1, 0], [0, 0]), ([-1, -1], [-1, 0]), ([0, -1], [-1, -1])];

/// The change of the direction's index at a corner.
const AHEAD: usize = 0;
const RIGHT: usize = 1;
const LEFT: usize = 3;

pub(super) fn trace(mask: &Mask) -> Vec<Outline> {
    let Some(patch) = Patch::around(mask) else { return Vec::new() };
    // Every closed path goes to the right somewhere, along the upper edge of a pixel of the mask.
    let mut walked = vec![false; patch.pixels.len()];
    let mut outlines = Vec::new();
    for y in 0..patch.height {
        for x in 0..patch.width {
            let is_upper_edge = patch.contains(x, y) && !patch.contains(x, y - 1);
            if is_upper_edge && !walked[patch.index(x, y)] {
                outlines.push(walk(&patch, [x, y], &mut walked));
            }
        }
    }
    outlines
}

fn walk(patch: &Patch, start: [isize; 2], walked: &mut [bool]) -> Outline {
    let mut points = Vec::new();
    let mut doubled_area = 0;
    let (mut at, mut heading) = (start, 0);
    loop {
        let from = at;
        while {
            if heading == 0 {
                walked[patch.index(at[0], at[1])] = true;
            }
            at = [at[0] + STEPS[heading][0], at[1] + STEPS[heading][1]];
            let (right, left) = PIXELS_AHEAD[heading];
            let turn = if !patch.contains(at[0] + right[0], at[1] + right[1]) {
                RIGHT
            } else if patch.contains(at[0] + left[0], at[1] + left[1]) {
                LEFT
            } else {
                AHEAD
            };
            heading = (heading + turn) % 4;
            turn == AHEAD
        } {}
        points.push([(from[0] + patch.left) as f32, (from[1] + patch.top) as f32]);
        doubled_area += from[0] * at[1] - at[0] * from[1];
        if at == start && heading == 0 {
            return Outline { points, is_hole: doubled_area < 0 };
        }
    }
}

/// The pixels of a mask inside its bounding box.
struct Patch {
    left: isize,
    top: isize,
    width: isize,
    height: isize,
    pixels: Vec<bool>,
}

impl Patch {
    fn around(mask: &Mask) -> Option<Self> {
        let [left, top, right, bottom] = mask.bounding_box()?.to_xyxy().map(|edge| edge as isize);
        let (width, height) = (right - left, bottom - top);
        let mut patch = Self {
            left,
            top,
            width,
            height,
            pixels: vec![false; width.unsigned_abs() * height.unsigned_abs()],
        };
        for span in mask.spans() {
            for y in span.top..span.bottom {
                let index = patch.index(span.x as isize - left, y as isize - top);
                patch.pixels[index] = true;
            }
        }
        Some(patch)
    }

    /// The index of a pixel inside the patch.
    fn index(&self, x: isize, y: isize) -> usize {
        (y * self.width + x).unsigned_abs()
    }

    fn contains(&self, x: isize, y: isize) -> bool {
        (0..self.width).contains(&x) && (0..self.height).contains(&y) && self.pixels[self.index(x, y)]
    }
}
