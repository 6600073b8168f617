//! Layout of labels: near their boxes, inside the picture, without overlap.

use ocelli_images::canvas::Rect;

/// The labels placed so far in a picture.
pub(super) struct LabelLayout {
    width: f32,
    height: f32,
    placed: Vec<Rect>,
}

impl LabelLayout {
    pub(super) fn new(width: f32, height: f32) -> Self {
        Self { width, height, placed: Vec::new() }
    }

    /// Places a label of `size` (width, height; at most the picture's) for a box with this frame: at the first position
    /// inside the picture that overlaps no other label, else at the one with the least overlap.
    pub(super) fn place(&mut self, frame: Rect, line_width: f32, size: (f32, f32)) -> Rect {
        let mut best = None;
        for (x, y) in positions(frame, line_width, size) {
            let place = self.at(x, y, size);
            // A position outside the picture is moved inside, where another position fits better.
            let fits = (place.y1 - y).abs() < 0.5;
            let covered: f32 = self.placed.iter().map(|other| shared_area(&place, other)).sum();
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

    /// The label at a position, moved inside the picture.
    fn at(&self, x: f32, y: f32, (width, height): (f32, f32)) -> Rect {
        let x1 = x.min(self.width - width).max(0.0);
        let y1 = y.min(self.height - height).max(0.0);
        Rect { x1, y1, x2: x1 + width, y2: y1 + height }
    }
}

/// Top left corners in order of preference: above the frame, inside at the top, below the frame, the same at the right,
/// then farther and farther from the corner.
fn positions(frame: Rect, line: f32, (width, height): (f32, f32)) -> impl Iterator<Item = (f32, f32)> {
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

fn shared_area(a: &Rect, b: &Rect) -> f32 {
    let width = a.x2.min(b.x2) - a.x1.max(b.x1);
    let height = a.y2.min(b.y2) - a.y1.max(b.y1);
    width.max(0.0) * height.max(0.0)
}
