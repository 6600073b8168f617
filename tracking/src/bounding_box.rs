//! Axis-aligned boxes.

use serde::{Deserialize, Serialize};

/// An axis-aligned box: left, top, right and bottom edge, with x to the right and y downwards.
///
/// Coordinates are continuous: pixel `i` covers `i..i + 1`, so a box over the first ten columns reaches from 0 to 10 and
/// is ten wide. In JSON and other serde formats a box is the list `[x1, y1, x2, y2]`.
///
/// Any four numbers make a box, because a network can return anything. A box whose right edge is not right of its left
/// edge, whose bottom edge is not below its top edge, or that has a NaN coordinate has no area and overlaps nothing: its
/// measures are 0, never negative or NaN. Edges may be infinite; [`clip_to`](Self::clip_to) makes them finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f32; 4]", into = "[f32; 4]")]
pub struct BoundingBox {
    /// Left edge.
    pub x1: f32,
    /// Top edge.
    pub y1: f32,
    /// Right edge.
    pub x2: f32,
    /// Bottom edge.
    pub y2: f32,
}

impl BoundingBox {
    /// A box from its edges, in any order.
    pub const fn new(x1: f32, y1: f32, x2: f32, y2: f32) -> Self {
        Self { x1, y1, x2, y2 }
    }

    /// A box from its centre, width and height.
    pub fn from_cxcywh([cx, cy, width, height]: [f32; 4]) -> Self {
        Self::new(cx - 0.5 * width, cy - 0.5 * height, cx + 0.5 * width, cy + 0.5 * height)
    }

    /// The centre, width and height. The sides of an inverted box are negative, so that
    /// [`from_cxcywh`](Self::from_cxcywh) restores it.
    pub fn to_cxcywh(self) -> [f32; 4] {
        [0.5 * (self.x1 + self.x2), 0.5 * (self.y1 + self.y2), self.x2 - self.x1, self.y2 - self.y1]
    }

    /// A box from its left and top edge, width and height, the notation of COCO and MOTChallenge.
    pub fn from_ltwh([left, top, width, height]: [f32; 4]) -> Self {
        Self::new(left, top, left + width, top + height)
    }

    /// The left and top edge, width and height; the sides of an inverted box are negative.
    pub fn to_ltwh(self) -> [f32; 4] {
        [self.x1, self.y1, self.x2 - self.x1, self.y2 - self.y1]
    }

    /// The edges `[x1, y1, x2, y2]`.
    pub const fn to_xyxy(self) -> [f32; 4] {
        [self.x1, self.y1, self.x2, self.y2]
    }

    /// The width, at least 0.
    pub fn width(&self) -> f32 {
        // `max` returns the number if the other operand is NaN, so that a NaN edge gives a width of 0.
        (self.x2 - self.x1).max(0.0)
    }

    /// The height, at least 0.
    pub fn height(&self) -> f32 {
        (self.y2 - self.y1).max(0.0)
    }

    /// Width times height, at least 0.
    pub fn area(&self) -> f32 {
        // `max` again, for infinity times 0.
        (self.width() * self.height()).max(0.0)
    }

    /// `true` if both sides are longer than 0; unlike `area() > 0.0` also for boxes so small that their area underflows.
    pub fn has_area(&self) -> bool {
        self.x2 > self.x1 && self.y2 > self.y1
    }

    /// `true` if all four edges are finite numbers.
    pub fn is_finite(&self) -> bool {
        self.to_xyxy().iter().all(|edge| edge.is_finite())
    }

    /// The intersection of two boxes, `None` if they do not overlap; touching edges do not.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if !self.has_area() || !other.has_area() {
            return None;
        }
        let shared = Self::new(
            self.x1.max(other.x1),
            self.y1.max(other.y1),
            self.x2.min(other.x2),
            self.y2.min(other.y2),
        );
        shared.has_area().then_some(shared)
    }

    /// Intersection over union, 0 to 1; 0 if either box has no area or the areas overflow `f32`.
    pub fn iou(&self, other: &Self) -> f32 {
        let shared = self.intersection(other).map_or(0.0, |shared| shared.area());
        let ratio = shared / (self.area() + other.area() - shared);
        if ratio.is_finite() { ratio } else { 0.0 }
    }

    /// The box clipped to `0..width` and `0..height`, which are finite and at least 0.
    ///
    /// A box outside becomes one without area on the nearest border. Infinite edges move to the border; NaN edges stay
    /// NaN, for the caller to detect.
    #[must_use]
    pub fn clip_to(&self, width: f32, height: f32) -> Self {
        // `f32::clamp` panics if the limit is negative or NaN; `max` and `min` alone turn NaN into 0.
        let clip = |edge: f32, limit: f32| if edge.is_nan() { edge } else { edge.max(0.0).min(limit) };
        Self::new(clip(self.x1, width), clip(self.y1, height), clip(self.x2, width), clip(self.y2, height))
    }

    /// The box with x multiplied by `scale_x` and y by `scale_y`, for instance from relative coordinates to pixels.
    #[must_use]
    pub fn scaled(&self, scale_x: f32, scale_y: f32) -> Self {
        Self::new(self.x1 * scale_x, self.y1 * scale_y, self.x2 * scale_x, self.y2 * scale_y)
    }
}

/// Greedy non-maximum suppression of candidates in descending order: one is dropped if its IoU with a kept one before it is
/// above `max_iou`, as in `torchvision.ops.nms`.
pub fn suppress<T>(sorted: &mut Vec<T>, max_iou: f32, bbox: impl Fn(&T) -> BoundingBox) {
    let mut kept = 0;
    for next in 0..sorted.len() {
        let is_apart = |better: &T| bbox(better).iou(&bbox(&sorted[next])) <= max_iou;
        if sorted[..kept].iter().all(is_apart) {
            sorted.swap(kept, next);
            kept += 1;
        }
    }
    sorted.truncate(kept);
}

impl From<[f32; 4]> for BoundingBox {
    /// From `[x1, y1, x2, y2]`.
    fn from([x1, y1, x2, y2]: [f32; 4]) -> Self {
        Self::new(x1, y1, x2, y2)
    }
}

impl From<BoundingBox> for [f32; 4] {
    /// To `[x1, y1, x2, y2]`.
    fn from(bbox: BoundingBox) -> Self {
        bbox.to_xyxy()
    }
}

#[cfg(test)]
mod tests {
    use super::BoundingBox;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    fn report(failures: &[String]) {
        assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    }

    #[test]
    fn measures_are_never_negative_nor_nan() {
        let cases: &[([f32; 4], f32, f32, f32)] = &[
            ([0.0, 0.0, 4.0, 3.0], 4.0, 3.0, 12.0),
            ([-2.0, -1.0, 2.0, 1.0], 4.0, 2.0, 8.0),
            ([4.0, 3.0, 0.0, 0.0], 0.0, 0.0, 0.0),
            ([0.0, 3.0, 4.0, 0.0], 4.0, 0.0, 0.0),
            ([1.0, 1.0, 1.0, 1.0], 0.0, 0.0, 0.0),
            ([NAN, 0.0, 4.0, 3.0], 0.0, 3.0, 0.0),
            ([0.0, 0.0, 4.0, NAN], 4.0, 0.0, 0.0),
            ([NAN, NAN, NAN, NAN], 0.0, 0.0, 0.0),
            ([-INF, 0.0, 4.0, 3.0], INF, 3.0, INF),
            ([INF, 0.0, INF, 3.0], 0.0, 3.0, 0.0),
            ([0.0, 1.0, INF, 1.0], INF, 0.0, 0.0),
            ([-3e38, -3e38, 3e38, 3e38], INF, INF, INF),
        ];
        let mut failures = Vec::new();
        for &(edges, width, height, area) in cases {
            let bbox = BoundingBox::from(edges);
            let came = (bbox.width(), bbox.height(), bbox.area());
            if came != (width, height, area) {
                failures.push(format!("{edges:?}: expected {:?}, came {came:?}", (width, height, area)));
            }
        }
        report(&failures);
    }

    #[test]
    fn overlap_is_symmetric_and_between_0_and_1() {
        let unit = [0.0, 0.0, 10.0, 10.0];
        type Case = ([f32; 4], [f32; 4], f32, Option<[f32; 4]>);
        let cases: &[Case] = &[
            (unit, unit, 1.0, Some(unit)),
            (unit, [5.0, 0.0, 15.0, 10.0], 1.0 / 3.0, Some([5.0, 0.0, 10.0, 10.0])),
            (unit, [2.0, 2.0, 7.0, 6.0], 0.2, Some([2.0, 2.0, 7.0, 6.0])),
            (unit, [10.0, 0.0, 20.0, 10.0], 0.0, None),
            (unit, [11.0, 11.0, 20.0, 20.0], 0.0, None),
            (unit, [10.0, 10.0, 0.0, 0.0], 0.0, None),
            ([10.0, 10.0, 0.0, 0.0], [10.0, 10.0, 0.0, 0.0], 0.0, None),
            (unit, [NAN, 0.0, 10.0, 10.0], 0.0, None),
            (unit, [0.0, 0.0, NAN, 10.0], 0.0, None),
            (unit, [-INF, -INF, INF, INF], 0.0, Some(unit)),
            ([-INF, -INF, INF, INF], [-INF, -INF, INF, INF], 0.0, Some([-INF, -INF, INF, INF])),
            ([0.0, 0.0, 1e-30, 1e-30], [0.0, 0.0, 1e-30, 1e-30], 0.0, Some([0.0, 0.0, 1e-30, 1e-30])),
        ];
        let mut failures = Vec::new();
        for &(a, b, iou, shared) in cases {
            for (first, second) in [(a, b), (b, a)] {
                let (first, second) = (BoundingBox::from(first), BoundingBox::from(second));
                let came = (first.iou(&second), first.intersection(&second).map(BoundingBox::to_xyxy));
                if (came.0 - iou).abs() > 1e-6 || came.1 != shared || came.0.is_nan() {
                    failures.push(format!(
                        "{first:?} with {second:?}: expected {:?}, came {came:?}",
                        (iou, shared)
                    ));
                }
            }
        }
        report(&failures);
    }

    #[test]
    fn clipping_keeps_boxes_inside_and_nan_visible() {
        let cases: &[([f32; 4], [f32; 4])] = &[
            ([1.0, 2.0, 30.0, 20.0], [1.0, 2.0, 30.0, 20.0]),
            ([-5.0, -5.0, 50.0, 50.0], [0.0, 0.0, 40.0, 30.0]),
            ([50.0, 5.0, 60.0, 8.0], [40.0, 5.0, 40.0, 8.0]),
            ([-9.0, -9.0, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0]),
            ([-INF, 3.0, INF, INF], [0.0, 3.0, 40.0, 30.0]),
        ];
        let mut failures = Vec::new();
        for &(edges, expected) in cases {
            let came = BoundingBox::from(edges).clip_to(40.0, 30.0).to_xyxy();
            if came != expected {
                failures.push(format!("{edges:?}: expected {expected:?}, came {came:?}"));
            }
        }
        report(&failures);
        let unknown = BoundingBox::new(NAN, -1.0, 50.0, NAN).clip_to(40.0, 30.0);
        assert!(unknown.x1.is_nan() && unknown.y2.is_nan() && !unknown.has_area(), "{unknown:?}");
        assert_eq!((unknown.y1, unknown.x2), (0.0, 40.0));
    }

    #[test]
    fn notations_convert_both_ways() {
        let bbox = BoundingBox::new(2.0, 3.0, 10.0, 9.0);
        assert_eq!(bbox.to_cxcywh(), [6.0, 6.0, 8.0, 6.0]);
        assert_eq!(bbox.to_ltwh(), [2.0, 3.0, 8.0, 6.0]);
        assert_eq!(bbox.scaled(0.5, 2.0), BoundingBox::new(1.0, 6.0, 5.0, 18.0));
        let inside_out = BoundingBox::new(10.0, 9.0, 2.0, 3.0);
        for original in [bbox, inside_out, BoundingBox::default()] {
            assert_eq!(BoundingBox::from_cxcywh(original.to_cxcywh()), original);
            assert_eq!(BoundingBox::from_ltwh(original.to_ltwh()), original);
        }
    }

    #[test]
    fn json_is_a_list_of_four() {
        let bbox = BoundingBox::new(1.5, -2.0, 3.25, 4.0);
        let text = serde_json::to_string(&bbox).expect("finite numbers have a JSON form");
        assert_eq!(text, "[1.5,-2.0,3.25,4.0]");
        assert_eq!(serde_json::from_str::<BoundingBox>(&text).expect("what was just written"), bbox);
        assert!(serde_json::from_str::<BoundingBox>("[1,2,3]").is_err());
    }
}
