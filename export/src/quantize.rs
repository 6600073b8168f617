//! Weights as 8-bit integers.

/// A matrix of i8 codes with a scale for every row: `scale · code`, symmetric, codes −127 to 127.
pub(crate) struct QuantizedMatrix {
    /// `[rows, columns]`.
    pub(crate) codes: Vec<i8>,
    /// `[rows]`.
    pub(crate) scales: Vec<f32>,
}

/// The largest code. −128 is unused, so that a weight and its negative are equally exact.
const MAX_CODE: f32 = 127.0;

impl QuantizedMatrix {
    /// Rounds `data`, `[rows, columns]`, to the nearest codes; the largest magnitude of every row gets the largest code.
    pub(crate) fn new(data: &[f32], columns: usize) -> Self {
        let mut codes = Vec::with_capacity(data.len());
        let mut scales = Vec::with_capacity(data.len() / columns);
        for row in data.chunks_exact(columns) {
            let peak = row.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
            let scale = peak / MAX_CODE;
            let inverse = if scale.is_normal() { 1.0 / scale } else { 0.0 };
            // A row of zeros may have any scale; 1 is in the range of every number format.
            scales.push(if scale.is_normal() { scale } else { 1.0 });
            codes.extend(row.iter().map(|v| (v * inverse).round_ties_even() as i8));
        }
        Self { codes, scales }
    }

    /// The sum of every row.
    pub(crate) fn row_sums(&self) -> Vec<f32> {
        let columns = self.codes.len() / self.scales.len();
        let sum = |row: &[i8]| row.iter().map(|&code| i32::from(code)).sum::<i32>() as f32;
        self.codes.chunks_exact(columns).zip(&self.scales).map(|(row, scale)| sum(row) * scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest_ones() {
        let cases: [(&str, &[f32], &[i8], f32); 5] = [
            ("the peak has the largest code", &[1.27, -0.64, 0.0], &[127, -64, 0], 0.01),
            ("a negative peak as well", &[-2.54, 1.27, 0.02], &[-127, 64, 1], 0.02),
            ("zeros", &[0.0, 0.0, 0.0], &[0, 0, 0], 1.0),
            ("subnormal numbers", &[1e-40, 0.0, -1e-40], &[0, 0, 0], 1.0),
            ("large numbers", &[3e38, -3e38, 1.5e38], &[127, -127, 64], 3e38 / 127.0),
        ];
        let mut wrong = Vec::new();
        for (what, row, codes, scale) in cases {
            let found = QuantizedMatrix::new(row, 3);
            if found.codes != codes || (found.scales[0] / scale - 1.0).abs() > 1e-6 {
                wrong.push(format!("{what}: {:?} with scale {}", found.codes, found.scales[0]));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_row_has_its_own_scale_and_sum() {
        let found = QuantizedMatrix::new(&[1.0, -1.0, 0.5, 100.0, 50.0, 0.0], 3);
        assert_eq!(found.codes, [127, -127, 64, 127, 64, 0]);
        for ((found, expected), what) in
            found.row_sums().iter().zip([64.0 / 127.0, 19_100.0 / 127.0]).zip(0..)
        {
            assert!((found / expected - 1.0).abs() < 1e-6, "row {what}: {found}, expected {expected}");
        }
    }

    #[test]
    fn the_error_is_at_most_half_a_step() {
        let data: Vec<f32> =
            (0..4096).map(|i| ((i * 2_654_435_761_usize) % 10_007) as f32 / 5003.5 - 1.0).collect();
        let found = QuantizedMatrix::new(&data, 64);
        let worst = data.iter().zip(&found.codes).enumerate().map(|(i, (value, &code))| {
            let scale = found.scales[i / 64];
            (value - f32::from(code) * scale).abs() / scale
        });
        let worst = worst.fold(0.0, f32::max);
        assert!(worst <= 0.501, "{worst} steps");
    }
}
