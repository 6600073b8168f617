//! Points, lines and polygons; x to the right, y downwards.

type Point = [f32; 2];

fn cross(a: Point, b: Point) -> f32 {
    a[0] * b[1] - a[1] * b[0]
}

fn minus(a: Point, b: Point) -> Point {
    [a[0] - b[0], a[1] - b[1]]
}

fn length(a: Point) -> f32 {
    a[0].hypot(a[1])
}

/// The edges of a polygon.
fn edges(points: &[Point]) -> impl Iterator<Item = (Point, Point)> + '_ {
    let next = points.iter().skip(1).chain(points.first());
    points.iter().copied().zip(next.copied())
}

/// The distance of a point from the straight line through two others; positive on its right, seen along the line.
pub(super) fn side_of(from: Point, to: Point, point: Point) -> f32 {
    let along = minus(to, from);
    cross(along, minus(point, from)) / length(along)
}

/// The place where the perpendicular through a point meets the line: 0 at its beginning, 1 at its end.
pub(super) fn where_on_line(from: Point, to: Point, point: Point) -> f32 {
    let (along, offset) = (minus(to, from), minus(point, from));
    (along[0] * offset[0] + along[1] * offset[1]) / (along[0] * along[0] + along[1] * along[1])
}

/// `true` if a point is inside of a polygon (even-odd rule).
pub fn is_inside(points: &[[f32; 2]], [x, y]: [f32; 2]) -> bool {
    let crossings = edges(points)
        .filter(|([x1, y1], [x2, y2])| (*y1 > y) != (*y2 > y) && x < (x2 - x1) * (y - y1) / (y2 - y1) + x1);
    crossings.count() % 2 == 1
}

/// The distance from a point to the nearest edge of a polygon.
pub(super) fn distance_to_edges(points: &[Point], point: Point) -> f32 {
    let distances = edges(points).map(|(from, to)| {
        if from == to {
            return length(minus(point, from));
        }
        let share = where_on_line(from, to, point).clamp(0.0, 1.0);
        let nearest = [0, 1].map(|axis| from[axis] + share * (to[axis] - from[axis]));
        length(minus(point, nearest))
    });
    distances.fold(f32::INFINITY, f32::min)
}

/// The area of a polygon; 0 if all corners are on one line.
pub(super) fn area(points: &[Point]) -> f32 {
    0.5 * edges(points).map(|(a, b)| cross(a, b)).sum::<f32>().abs()
}

/// The length of all edges of a polygon.
pub(super) fn perimeter(points: &[Point]) -> f32 {
    edges(points).map(|(from, to)| length(minus(to, from))).sum()
}
