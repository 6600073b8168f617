//! The backgrounds of scenes: six families that are not in the training data of the built-in model.

use std::f64::consts::{PI, TAU};

use crate::scenes::{Pixels, Random, clutter};

const FAMILIES: [fn(&mut Random, &mut Pixels); 6] =
    [gradient, stripes, checkerboard, landscape, mosaic, room];

/// Draws a background of a random family, with clutter on two in three.
pub(super) fn draw(random: &mut Random, pixels: &mut Pixels) {
    FAMILIES[random.below(FAMILIES.len())](random, pixels);
    if random.chance(2.0 / 3.0) {
        clutter::draw(random, pixels);
    }
}

fn mix(a: [f64; 3], b: [f64; 3], share: f64) -> [f64; 3] {
    [0, 1, 2].map(|channel| a[channel] * (1.0 - share) + b[channel] * share)
}

fn distance(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

fn sides(pixels: &Pixels) -> (f64, f64) {
    (f64::from(pixels.width), f64::from(pixels.height))
}

/// A linear or radial gradient between two colours.
fn gradient(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let is_linear = random.chance(0.5);
    let (sin, cos) = libm::sincos(random.uniform(0.0, TAU));
    let centre = (random.uniform(0.0, width), random.uniform(0.0, height));
    let value = move |x: f64, y: f64| {
        if is_linear { x / width * cos + y / height * sin } else { distance(x - centre.0, y - centre.1) }
    };
    // The extremes are at the corners, except for the minimum of a radial gradient, which is at its centre.
    let (right, bottom) = (width - 1.0, height - 1.0);
    let corners = [value(0.0, 0.0), value(right, 0.0), value(0.0, bottom), value(right, bottom)];
    let most = corners.iter().copied().fold(f64::MIN, f64::max);
    let least = if is_linear { corners.iter().copied().fold(f64::MAX, f64::min) } else { 0.0 };
    let (from, to) = (random.color(0, 255), random.color(0, 255));
    pixels.fill(|x, y| mix(from, to, (value(x, y) - least) / (most - least)));
}

/// Soft or sharp stripes at a random angle.
fn stripes(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let (sin, cos) = libm::sincos(random.uniform(0.0, PI));
    let period = random.uniform(0.06, 0.35) * width.min(height);
    let sharp = random.chance(0.5);
    let (from, to) = (random.color(0, 255), random.color(0, 255));
    pixels.fill(|x, y| {
        let share = 0.5 + 0.5 * libm::sin((x * cos + y * sin) * TAU / period);
        mix(from, to, if sharp { f64::from(u8::from(share > 0.5)) } else { share })
    });
}

/// Two colours in squares.
fn checkerboard(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let side = random.uniform(0.06, 0.3) * width.min(height);
    let colors = [random.color(0, 255), random.color(0, 255)];
    pixels.fill(|x, y| colors[((x / side) as usize + (y / side) as usize) % 2]);
}

/// A sky with two or three ranges of hills, and sometimes a disc.
fn landscape(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let sky = [(90, 190), (150, 220), (200, 255)].map(|(low, high)| random.between(low, high) as f64);
    let haze = random.color(170, 255);
    pixels.fill(|_, y| mix(sky, haze, y / height));
    if random.chance(0.4) {
        let radius = random.uniform(0.05, 0.12) * width.min(height);
        let (cx, cy) = (random.uniform(0.0, width), random.uniform(0.0, height * 0.35));
        let color = random.color(200, 255);
        let area = [cx - radius, cy - radius, cx + radius, cy + radius];
        pixels.paint(area, color, |x, y| distance(x - cx, y - cy) < radius);
    }
    let mut level = random.uniform(0.4, 0.6);
    for _ in 0..random.between(2, 3) {
        let waves = [(); 3]
            .map(|()| [random.uniform(0.01, 0.06), random.uniform(0.5, 4.0), random.uniform(0.0, 6.0)]);
        let color = [(30, 140), (90, 190), (20, 120)].map(|(low, high)| random.between(low, high) as f64);
        let crest: Vec<f64> = (0..pixels.width)
            .map(|x| {
                let across = f64::from(x) / width * TAU;
                level + waves.iter().map(|[a, f, p]| a * libm::sin(across * f + p)).sum::<f64>()
            })
            .collect();
        let crest = &crest;
        // Row by row, because hills get lighter towards the bottom.
        for row in 0..pixels.height {
            let y = f64::from(row);
            let shade = color.map(|channel| (channel * (0.85 + 0.3 * y / height)).min(255.0));
            let area = [0.0, y, width, y];
            pixels.paint(area, shade, |x, at| at == y && y / height > crest[x as usize]);
        }
        level += random.uniform(0.12, 0.2);
    }
}

/// Voronoi cells around random points, each in one colour.
fn mosaic(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let base = random.color(0, 255);
    let spread = random.between(15, 90);
    let cells: Vec<(f64, f64, [f64; 3])> = (0..random.between(6, 30))
        .map(|_| {
            let (x, y) = (random.uniform(0.0, width), random.uniform(0.0, height));
            let color =
                base.map(|channel| (channel + random.between(-spread, spread) as f64).clamp(0.0, 255.0));
            (x, y, color)
        })
        .collect();
    pixels.fill(|x, y| {
        let square = |cell: &(f64, f64, [f64; 3])| {
            let (dx, dy) = (x - cell.0, y - cell.1);
            dx * dx + dy * dy
        };
        let nearest = cells.iter().min_by(|a, b| square(a).total_cmp(&square(b)));
        nearest.expect("there are at least six cells").2
    });
}

/// A wall and a floor of boards.
fn room(random: &mut Random, pixels: &mut Pixels) {
    let (width, height) = sides(pixels);
    let wall = random.color(120, 245);
    let horizon = (height * random.uniform(0.5, 0.75)).floor();
    let floor = [(90, 190), (60, 140), (30, 100)].map(|(low, high)| random.between(low, high) as f64);
    pixels.fill(|_, y| if y < horizon { wall } else { floor });
    let dark = floor.map(|channel| (channel * 0.8).floor());
    for board in -12..=12 {
        let board = f64::from(board);
        let from = [width / 2.0 + board * width / 14.0, horizon];
        let to = [width / 2.0 + board * width / 5.0, height];
        clutter::line(pixels, &[from, to], 2.0, dark);
    }
    let skirting = random.color(180, 255);
    let area = [0.0, horizon - (height / 60.0).floor().max(2.0), width, horizon];
    pixels.paint(area, skirting, |_, y| y >= area[1] && y <= horizon);
}
