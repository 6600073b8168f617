//! Shapes without a label: triangles, rings, arcs, crosses, dots and wavy lines.

use std::f64::consts::TAU;

use crate::scenes::{Pixels, Random};

/// Draws one to seven shapes.
pub(super) fn draw(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = (f64::from(pixels.width), f64::from(pixels.height));
    for _ in 0..random.between(1, 7) {
        let radius = random.uniform(0.02, 0.14) * width.min(height);
        let centre = [random.uniform(0.0, width), random.uniform(0.0, height)];
        let color = random.color(0, 255);
        let stroke = (radius * random.uniform(0.1, 0.4)).floor().max(1.0);
        let [x, y] = centre;
        match random.below(6) {
            0 => triangle(pixels, centre, radius, random.uniform(0.0, TAU), color),
            1 => ring(pixels, centre, radius, stroke, color, |_| true),
            2 => {
                let (start, length) = (random.uniform(0.0, 360.0), random.uniform(60.0, 250.0));
                ring(pixels, centre, radius, stroke, color, |degrees| {
                    (degrees - start).rem_euclid(360.0) <= length
                });
            }
            3 => {
                line(pixels, &[[x - radius, y], [x + radius, y]], stroke, color);
                line(pixels, &[[x, y - radius], [x, y + radius]], stroke, color);
            }
            4 => {
                for _ in 0..random.between(3, 9) {
                    let centre = centre.map(|at| at + random.normal() * radius);
                    let radius = random.uniform(1.0, 4.0);
                    ring(pixels, centre, radius, radius, color, |_| true);
                }
            }
            _ => {
                let point = |step: i32| {
                    let t = f64::from(step);
                    [x + t * radius / 4.0, y + radius / 3.0 * libm::sin(t)]
                };
                let points: Vec<[f64; 2]> = (-8..=8).map(point).collect();
                line(pixels, &points, (stroke / 2.0).floor().max(1.0), color);
            }
        }
    }
}

fn around([x, y]: [f64; 2], reach: f64) -> [f64; 4] {
    [x - reach, y - reach, x + reach, y + reach]
}

/// An equilateral triangle with corners at `radius` from the centre, the first one in direction `start`.
fn triangle(pixels: &mut Pixels, centre: [f64; 2], radius: f64, start: f64, color: [f64; 3]) {
    let corners = [0.0, 1.0, 2.0].map(|corner| {
        let (sin, cos) = libm::sincos(start + corner * TAU / 3.0);
        [centre[0] + radius * cos, centre[1] + radius * sin]
    });
    pixels.paint(around(centre, radius), color, |x, y| {
        (0..3).all(|corner| {
            let [[ax, ay], [bx, by]] = [corners[corner], corners[(corner + 1) % 3]];
            (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0.0
        })
    });
}

/// A ring from `radius - stroke` to `radius`, in the directions in degrees for which `shown` returns true.
fn ring(
    pixels: &mut Pixels,
    centre: [f64; 2],
    radius: f64,
    stroke: f64,
    color: [f64; 3],
    shown: impl Fn(f64) -> bool,
) {
    pixels.paint(around(centre, radius), color, |x, y| {
        let (dx, dy) = (x - centre[0], y - centre[1]);
        let distance = (dx * dx + dy * dy).sqrt();
        distance <= radius && distance >= radius - stroke && shown(libm::atan2(dy, dx).to_degrees())
    });
}

/// A line of this width through points.
pub(super) fn line(pixels: &mut Pixels, points: &[[f64; 2]], width: f64, color: [f64; 3]) {
    let reach = 0.5 * width;
    for pair in points.windows(2) {
        let [[ax, ay], [bx, by]] = [pair[0], pair[1]];
        let area = [ax.min(bx) - reach, ay.min(by) - reach, ax.max(bx) + reach, ay.max(by) + reach];
        let (dx, dy) = (bx - ax, by - ay);
        let length = (dx * dx + dy * dy).max(1e-9);
        pixels.paint(area, color, |x, y| {
            let along = (((x - ax) * dx + (y - ay) * dy) / length).clamp(0.0, 1.0);
            let (ox, oy) = (x - ax - along * dx, y - ay - along * dy);
            ox * ox + oy * oy <= reach * reach
        });
    }
}
