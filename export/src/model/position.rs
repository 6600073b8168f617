//! Position encodings, which are constants of a resolution: the image's sine table and the rotary tables.

use std::f64::consts::TAU;

use super::Plan;
use crate::graph::{Graph, Role, Value};

const TEMPERATURE: f64 = 10000.0;

/// Frequencies of a sine encoding with `features` numbers for each axis; sine and cosine share a frequency.
pub(crate) fn sine_frequencies(features: usize) -> Vec<f64> {
    (0..features / 2).map(|i| TEMPERATURE.powf(-(2.0 * i as f64) / features as f64)).collect()
}

/// Sine and cosine of `position` at every frequency, interleaved.
pub(crate) fn sine_encoding(position: f64, frequencies: &[f64]) -> impl Iterator<Item = f64> + '_ {
    frequencies.iter().flat_map(move |f| [(position * f).sin(), (position * f).cos()])
}

/// The image's position table `[P·P, D]`: y's half first, positions 1…P scaled to 2π.
pub(crate) fn image_positions(grid: usize, width: usize) -> Vec<f32> {
    let frequencies = sine_frequencies(width / 2);
    let axis: Vec<Vec<f32>> = (1..=grid)
        .map(|i| {
            let position = i as f64 / (grid as f64 + 1e-6) * TAU;
            sine_encoding(position, &frequencies).map(|v| v as f32).collect()
        })
        .collect();
    let mut table = Vec::with_capacity(grid * grid * width);
    for y in &axis {
        for x in &axis {
            table.extend_from_slice(y);
            table.extend_from_slice(x);
        }
    }
    table
}

impl Graph<'_> {
    /// [`image_positions`] as `[1, P·P, D]`.
    pub(crate) fn image_positions(&self, plan: &Plan<'_>) -> Value {
        let (grid, width) = (plan.grid(), plan.config().width);
        self.constant("image_positions", &[1, grid * grid, width], &image_positions(grid, width))
    }
}

/// The order of the ViT's tokens in memory.
///
/// Only attention depends on the order of tokens. If windows divide the grid, tokens are stored window by window from the
/// patch embedding to the neck: windowed attention is then a reshape, attention over the whole grid works in any order,
/// and no block has to partition the tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenOrder {
    pub(crate) grid: usize,
    pub(crate) window: usize,
}

impl TokenOrder {
    /// `true` if windows divide the grid.
    pub(crate) fn by_window(&self) -> bool {
        self.grid.is_multiple_of(self.window)
    }

    /// The grid's side with padding to whole windows.
    pub(crate) fn padded(&self) -> usize {
        self.grid.next_multiple_of(self.window)
    }

    /// (row, column) of every token, in order.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        let side = if self.by_window() { self.window } else { self.grid };
        let mut places = Vec::with_capacity(self.grid * self.grid);
        for top in (0..self.grid).step_by(side) {
            for left in (0..self.grid).step_by(side) {
                for y in top..top + side {
                    places.extend((left..left + side).map(|x| (y, x)));
                }
            }
        }
        places
    }
}

/// Cosines and sines `[tokens, head / 2]` of the rotary embedding at `places`: x's frequencies, then the same for y.
pub(crate) fn rotary_tables(places: &[(usize, usize)], scale: f64, head: usize, theta: f64) -> [Vec<f32>; 2] {
    let frequencies: Vec<f64> = (0..head / 4).map(|i| theta.powf(-(4.0 * i as f64) / head as f64)).collect();
    let angles: Vec<f64> = places
        .iter()
        .flat_map(|&(y, x)| [x, y])
        .flat_map(|position| frequencies.iter().map(move |f| position as f64 * scale * f))
        .collect();
    [angles.iter().map(|a| a.cos() as f32).collect(), angles.iter().map(|a| a.sin() as f32).collect()]
}

/// The rows of a head's projection, even channels first: the rotation of neighbours becomes a rotation of halves, which
/// needs no interleaving. Scores do not change, because queries and keys have the same order.
pub(crate) fn rotary_row(row: usize, head: usize) -> usize {
    let (start, channel) = (row / head * head, row % head);
    let half = head / 2;
    start + if channel < half { 2 * channel } else { 2 * (channel - half) + 1 }
}

/// Rotary embedding of `[…, tokens, D]` in real arithmetic, the halves of D rotated against each other.
pub(crate) fn rotate(g: &Graph<'_>, x: &Value, [cos, sin]: &[Value; 2]) -> Value {
    let halves = g.split_last(x, 2);
    let axis = x.dims.len() - 1;
    g.as_role(Role::Attention, |g| {
        let [a_cos, b_sin, b_cos, a_sin] =
            [(0, cos), (1, sin), (1, cos), (0, sin)].map(|(half, table)| g.mul(&halves[half], table));
        let first = g.sub(&a_cos, &b_sin);
        let second = g.add(&b_cos, &a_sin);
        g.concat(&[&first, &second], axis, x.dims[axis])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_orders_hold_every_place_once() {
        for (grid, window) in [(4, 2), (6, 3), (5, 2), (2, 4), (8, 8)] {
            let mut places = TokenOrder { grid, window }.places();
            places.sort_unstable();
            let expected: Vec<_> = (0..grid).flat_map(|y| (0..grid).map(move |x| (y, x))).collect();
            assert_eq!(places, expected, "grid {grid}, window {window}");
        }
    }

    #[test]
    fn rotary_rows_are_a_permutation_inside_each_head() {
        assert_eq!((0..8).map(|row| rotary_row(row, 4)).collect::<Vec<_>>(), [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
