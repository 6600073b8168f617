//! The integer weights of one pass of the resize, as `fast_image_resize` computes them internally, for kernels.

/// The weights of the pixels along one side of an image for each value along a side of the square.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PassWeights {
    /// Fractional binary digits.
    pub(super) digits: u32,
    /// For each value the first pixel with a weight, the number of pixels and their weights: `[2 + taps, side]`.
    pub(super) table: Vec<i32>,
}

impl PassWeights {
    /// From `length` pixels to `side` values: a triangle filter centred at each value, two pixels of the coarser grid wide,
    /// with weights that add up to one.
    ///
    /// The order of operations is that of the library, and of Pillow: it decides the last digit of a weight.
    pub(super) fn new(length: u32, side: usize) -> Self {
        let scale = f64::from(length) / side as f64;
        let radius = scale.max(1.0);
        let per_radius = 1.0 / radius;
        let taps: Vec<(u32, Vec<f64>)> = (0..side)
            .map(|value| {
                let middle = (value as f64 + 0.5) * scale;
                let from = (middle - radius).floor().max(0.0) as u32;
                let to = (middle + radius).ceil().min(f64::from(length)) as u32;
                let middle = middle - 0.5;
                let weight = |pixel: u32| (1.0 - ((f64::from(pixel) - middle) * per_radius).abs()).max(0.0);
                // Without the zeros at both ends.
                let first = (from..to).find(|&pixel| weight(pixel) > 0.0).unwrap_or(to);
                let mut weights: Vec<f64> = (first..to).map(weight).collect();
                weights.truncate(weights.iter().rposition(|&w| w > 0.0).map_or(0, |last| last + 1));
                let sum = weights.iter().fold(0.0, |sum, weight| sum + weight);
                weights.iter_mut().for_each(|weight| *weight /= sum);
                (first, weights)
            })
            .collect();

        let largest = taps.iter().flat_map(|(_, weights)| weights).fold(0.0_f64, |a, &b| a.max(b));
        let digits = fractional_digits(largest);
        let most = taps.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0);
        let mut table = vec![0; (2 + most) * side];
        for (value, (first, weights)) in taps.iter().enumerate() {
            table[value] = *first as i32;
            table[side + value] = weights.len() as i32;
            for (tap, weight) in weights.iter().enumerate() {
                table[(2 + tap) * side + value] = (weight * (1_u64 << digits) as f64).round() as i32;
            }
        }
        Self { digits, table }
    }
}

/// As many fractional digits as possible such that the largest weight has at most 15 bits and a sum of weighted levels 30.
fn fractional_digits(largest: f64) -> u32 {
    let most = 32 - 8 - 2 - 1;
    let too_large = |digits: u32| (largest * (1_u64 << (digits + 1)) as f64).round() >= f64::from(1 << 15);
    (0..most).find(|&digits| too_large(digits)).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_computed_by_hand() {
        // length, side, digits, first pixels, counts, weights by tap
        let cases: [(u32, usize, u32, &[i32]); 4] = [
            (2, 2, 14, &[0, 1, 1, 1, 16384, 16384]),
            (1, 3, 14, &[0, 0, 0, 1, 1, 1, 16384, 16384, 16384]),
            (2, 4, 14, &[0, 0, 0, 1, 1, 2, 2, 1, 16384, 12288, 4096, 16384, 0, 4096, 12288, 0]),
            // 1/8, 3/8, 3/8, 1/8, of which one is outside the image: 3/7, 3/7, 1/7.
            (4, 2, 16, &[0, 1, 3, 3, 28087, 9362, 28087, 28087, 9362, 28087]),
        ];
        let mut failures = Vec::new();
        for (length, side, digits, table) in cases {
            let found = PassWeights::new(length, side);
            if found != (PassWeights { digits, table: table.to_vec() }) {
                failures.push(format!("{length} to {side}: {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// A kernel reads from the first pixel of a tile's first value to the last pixel of its last value.
    #[test]
    fn windows_ascend_within_the_image_and_sum_to_one() {
        let mut failures = Vec::new();
        let lengths = [1, 2, 3, 7, 27, 28, 29, 55, 56, 57, 640, 1007, 1008, 1009, 2160, 3840, 65_535];
        for (length, side) in lengths.into_iter().flat_map(|l| [1, 2, 3, 28, 1008].map(|side| (l, side))) {
            let PassWeights { digits, table } = PassWeights::new(length, side);
            let window = |value: usize| (table[value], table[value] + table[side + value]);
            let inside = (0..side).all(|v| 0 <= window(v).0 && window(v).0 < window(v).1);
            let inside = inside && (0..side).all(|v| window(v).1 <= length as i32);
            let advance = (1..side).all(|v| window(v - 1).0 <= window(v).0 && window(v - 1).1 <= window(v).1);
            let sum = |v: usize| -> i64 {
                table[2 * side..].iter().skip(v).step_by(side).map(|&w| i64::from(w)).sum()
            };
            let taps = (table.len() / side - 2) as i64;
            let one = (0..side).all(|v| (sum(v) - (1 << digits)).abs() <= taps);
            if !(inside && advance && one) {
                failures.push(format!("{length} to {side}: {inside} {advance} {one}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
