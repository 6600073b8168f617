//! Layout of labels: near their boxes, inside the image, without overlap.

use ocelli_tracking::BoundingBox;

/// The labels placed so far in an image.
pub(super) struct LabelLayout {
    width: f32,
    height: f32,
    placed: Vec<BoundingBox>,
}

impl LabelLayout {
    pub(super) fn new(width: f32, height: f32) -> Self {
        Self { width, height, placed: Vec::new() }
    }

    /// Places a label of `size` (width, height; at most the image's) for a box with this frame: at the first position
    /// inside the image that overlaps no other label, else at the one with the least overlap.
    pub(super) fn place(&mut self, frame: BoundingBox, line_width: f32, size: (f32, f32)) -> BoundingBox {
        let mut best = None;
        for (x, y) in positions(frame, line_width, size) {
            let place = self.at(x, y, size);
            // A position outside the image is moved inside, where another position fits better.
            let fits = (place.y1 - y).abs() < 0.5;
            let shared = self.placed.iter().filter_map(|other| place.intersection(other));
            let covered: f32 = shared.map(|shared| shared.area()).sum();
            if fits && covered == 0.0 {
                best = Some((covered, place));
                break;
            }
            let cost = if fits { covered } else { covered + size.0 * size.1 };
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, place));
            }
        }
        let place = best.map_or_else(|| self.at(frame.x1, frame.y1, size), |(_, place)| place);
        self.placed.push(place);
        place
    }

    /// The label at a position, moved inside the image.
    fn at(&self, x: f32, y: f32, (width, height): (f32, f32)) -> BoundingBox {
        let x1 = x.min(self.width - width).max(0.0);
        let y1 = y.min(self.height - height).max(0.0);
        BoundingBox::from_ltwh([x1, y1, width, height])
    }
}

/// Top left corners in order of preference: above the frame, inside at the top, below the frame, the same at the right,
/// then farther and farther from the corner.
fn positions(frame: BoundingBox, line: f32, (width, height): (f32, f32)) -> impl Iterator<Item = (f32, f32)> {
    let (left, right) = (frame.x1, frame.x2 - width);
    let (above, inside_top) = (frame.y1 - height + line, frame.y1);
    let (inside_bottom, below) = (frame.y2 - height, frame.y2 - line);
    let corners = [
        (left, above),
        (left, inside_top),
        (left, below),
        (right, above),
        (right, inside_top),
        (right, below),
        (left, inside_bottom),
        (right, inside_bottom),
    ];
    let steps = (1..=8).flat_map(move |step| {
        let way = step as f32 * height;
        [(left, inside_top + way), (left, above - way), (left, below + way)]
    });
    corners.into_iter().chain(steps)
}
