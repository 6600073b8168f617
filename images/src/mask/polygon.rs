//! Outlines with holes to polygons without holes.

use ocelli_tracking::is_inside;

use super::Outline;

/// Each part with its holes.
fn with_holes(outlines: Vec<Outline>) -> Vec<(Outline, Vec<Outline>)> {
    let (holes, parts): (Vec<Outline>, Vec<Outline>) = outlines.into_iter().partition(|o| o.is_hole);
    let mut parts: Vec<(Outline, Vec<Outline>)> = parts.into_iter().map(|part| (part, Vec::new())).collect();
    for hole in holes {
        // A part can lie in a hole of another: a hole belongs to the smallest part around it.
        let inside = middle_of_pixel_in(&hole);
        let around = (0..parts.len()).filter(|&part| is_inside(&parts[part].0.points, inside));
        let own = around.min_by(|&a, &b| parts[a].0.area().total_cmp(&parts[b].0.area()));
        parts[own.expect("a part surrounds each of its holes")].1.push(hole);
    }
    parts
}

/// One ring for each part, its holes joined to its border.
pub(super) fn join_holes(outlines: Vec<Outline>, tolerance: f32) -> Vec<Vec<[f32; 2]>> {
    let join = |(part, holes): (Outline, Vec<Outline>)| {
        let mut ring = part.simplified(tolerance).points;
        for hole in holes {
            let hole = hole.simplified(tolerance).points;
            let (_, at, from) = nearest(&ring, &hole);
            splice(&mut ring, at, &hole, from);
        }
        ring
    };
    with_holes(outlines).into_iter().map(join).collect()
}

/// The smallest distance between the points of two rings, and the indices of these points.
pub fn nearest(ring: &[[f32; 2]], other: &[[f32; 2]]) -> (f32, usize, usize) {
    let mut nearest = (f32::INFINITY, 0, 0);
    for (i, a) in ring.iter().enumerate() {
        for (j, b) in other.iter().enumerate() {
            let distance = (a[0] - b[0]).hypot(a[1] - b[1]);
            if distance < nearest.0 {
                nearest = (distance, i, j);
            }
        }
    }
    nearest
}

/// Inserts a detour into a ring: from its point `at` to the other's point `from`, around it, and back.
pub fn splice(ring: &mut Vec<[f32; 2]>, at: usize, other: &[[f32; 2]], from: usize) {
    let around = other[from..].iter().chain(&other[..=from]).copied();
    let detour: Vec<[f32; 2]> = around.chain([ring[at]]).collect();
    ring.splice(at + 1..at + 1, detour);
}

/// The middle of a pixel inside a hole; one of the four at its first corner is.
fn middle_of_pixel_in(hole: &Outline) -> [f32; 2] {
    let [x, y] = hole.points[0];
    let corners = [[0.5, 0.5], [-0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]];
    let inside =
        corners.iter().map(|[dx, dy]| [x + dx, y + dy]).find(|&point| is_inside(&hole.points, point));
    inside.unwrap_or([x, y])
}
