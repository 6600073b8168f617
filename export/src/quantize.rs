//! Numbers of 8 bits: integers and floating point, with scales.

use half::f16;

/// A format of 8-bit codes whose scales are known when the graph is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EightBits {
    /// E4M3.
    Float,
    /// Symmetric integers, −127 to 127.
    Integer,
}

impl EightBits {
    fn largest(self) -> f32 {
        match self {
            Self::Float => MAX_E4M3,
            Self::Integer => MAX_CODE,
        }
    }

    /// The scale of codes for numbers up to `largest`: a half-precision number, because half-precision graphs store it as
    /// one, and at least what makes the largest code reach `largest`.
    pub(crate) fn scale_of(self, largest: f32) -> f32 {
        let wanted = largest / self.largest();
        if !wanted.is_normal() {
            return 1.0;
        }
        let nearest = f16::from_f32(wanted);
        let above = if nearest.to_f32() < wanted { f16::from_bits(nearest.to_bits() + 1) } else { nearest };
        // What is beyond the range of half precision in 8 bits saturates.
        if above.is_finite() { above.to_f32() } else { f16::MAX.to_f32() }
    }

    /// The nearest code, with ties to even; a number beyond the largest gets the largest. The bits of E4M3 for
    /// [`Self::Float`].
    fn code(self, value: f32) -> i8 {
        match self {
            Self::Integer => value.clamp(-MAX_CODE, MAX_CODE).round_ties_even() as i8,
            Self::Float => e4m3(value).cast_signed(),
        }
    }
}

/// The largest number of E4M3.
const MAX_E4M3: f32 = 448.0;

/// The nearest number of E4M3, as its bits: sign, 4 bits of exponent (bias 7), 3 bits of fraction.
fn e4m3(value: f32) -> u8 {
    let magnitude = value.abs().min(MAX_E4M3);
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    // Numbers below 2⁻⁶ are multiples of 2⁻⁹.
    let exponent = (magnitude.to_bits() >> 23).cast_signed() - 127;
    let exponent = exponent.max(-6);
    let steps = (magnitude / 2.0_f32.powi(exponent - 3)).round_ties_even() as u8;
    // 16 steps carry into the exponent; fewer than 8 are subnormal.
    sign | (((exponent + 6) as u8) << 3).wrapping_add(steps)
}

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

    /// Rounds `data`, `[rows, columns]`, to the nearest codes of a format, with a half-precision scale for every row.
    pub(crate) fn with_half_scales(data: &[f32], columns: usize, format: EightBits) -> Self {
        let mut codes = Vec::with_capacity(data.len());
        let mut scales = Vec::with_capacity(data.len() / columns);
        for row in data.chunks_exact(columns) {
            let scale = format.scale_of(row.iter().fold(0.0_f32, |most, v| most.max(v.abs())));
            scales.push(scale);
            codes.extend(row.iter().map(|value| format.code(value / scale)));
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

    /// The number that bits of E4M3 stand for, by the format's definition.
    fn number(bits: u8) -> f32 {
        let (exponent, fraction) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
        let magnitude = match exponent {
            0 => fraction * 2.0_f32.powi(-9),
            _ => (8.0 + fraction) * 2.0_f32.powi(exponent - 10),
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn e4m3_is_the_nearest_number() {
        let mut wrong = Vec::new();
        for bits in (0..=0x7E_u8).chain(0x80..=0xFE) {
            let exact = number(bits);
            if e4m3(exact) != bits {
                wrong.push(format!("{exact}: {:#x}, expected {bits:#x}", e4m3(exact)));
            }
            let (sign, at) = (bits & 0x80, bits & 0x7F);
            if at < 0x7E {
                let next = number(bits + 1);
                let middle = (exact + next) / 2.0;
                let even = sign | if at % 2 == 0 { at } else { at + 1 };
                let beyond = middle + (next - middle) * 0.01;
                for (value, expected) in [(middle, even), (beyond, bits + 1)] {
                    if e4m3(value) != expected {
                        wrong.push(format!("{value}: {:#x}, expected {expected:#x}", e4m3(value)));
                    }
                }
            }
        }
        for (value, expected) in [(449.0, 0x7E), (1e9, 0x7E), (-1e9, 0xFE), (1e-9, 0), (-1e-9, 0x80)] {
            if e4m3(value) != expected {
                wrong.push(format!("{value}: {:#x}, expected {expected:#x}", e4m3(value)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn static_scales_are_half_precision_and_reach_the_peak() {
        let peaks = [1e-6_f32, 0.0123, 0.5, 1.0, 3.3, 448.0, 60_000.0];
        let mut wrong = Vec::new();
        for format in [EightBits::Float, EightBits::Integer] {
            for peak in peaks {
                let scale = format.scale_of(peak);
                let found = QuantizedMatrix::with_half_scales(&[peak, -peak, 0.0], 3, format);
                let least = peak / format.largest();
                let is_tight = scale >= least && scale <= least * 1.001 + 6e-8;
                if f16::from_f32(scale).to_f32() != scale || !is_tight || found.scales != [scale] {
                    wrong.push(format!("{format:?} {peak}: scale {scale}"));
                }
            }
            if format.scale_of(0.0) != 1.0 {
                wrong.push(format!("{format:?}: zeros"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let found =
            QuantizedMatrix::with_half_scales(&[448.0, -1.0, 2.25, 127.0, -64.0, 0.5], 3, EightBits::Float);
        assert_eq!(
            found.codes.iter().map(|code| code.cast_unsigned()).collect::<Vec<_>>(),
            [0x7E, 0xB8, 0x41, 0x7E, 0xF6, 0x3E]
        );
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
