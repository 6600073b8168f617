//! NV12, the format of cameras and video decoders, to RGB.
//!
//! BT.601 in limited range: luma 16 to 235, chroma 16 to 240 around 128. The fixed-point arithmetic with 20 fractional bits
//! is that of OpenCV's `cvtColor(…, COLOR_YUV2RGB_NV12)`, and so are the results. Chroma is not interpolated: each sample
//! applies to 2 × 2 pixels.

use ocelli_resize::{U8, U8x2};

use super::FrameView;
use crate::device_frame::Nv12Colours;

const SHIFT: i32 = 20;
/// 255 / 219, and the luma matrix's coefficients over 255 / 224, times 2^20.
const LUMA: i32 = 1_220_542;
const RED_FROM_V: i32 = 1_673_527;
const GREEN_FROM_V: i32 = -852_492;
const GREEN_FROM_U: i32 = -409_993;
const BLUE_FROM_U: i32 = 2_116_026;

/// The numbers with which a kernel converts.
pub const COLOURS: Nv12Colours = Nv12Colours([16, LUMA, RED_FROM_V, GREEN_FROM_V, GREEN_FROM_U, BLUE_FROM_U]);

/// Pixels that are converted at a time.
const BLOCK: usize = 32;

/// Converts a checked frame to [height, width, rgb]; the memory of `rgb` is reused.
pub fn to_rgb_into(frame: &FrameView<'_>, rgb: &mut [u8]) {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let (luma, chroma) = frame.data.split_at(frame.stride * height);
    let rows = rgb.chunks_exact_mut(width * 3).zip(luma.chunks(frame.stride));
    for (y, (row, luma)) in rows.enumerate() {
        let chroma = &chroma[y / 2 * frame.stride..];
        let pairs = row.chunks_mut(6).zip(luma[..width].chunks(2)).zip(chroma.chunks_exact(2));
        for ((pixels, luma), chroma) in pairs {
            let (u, v) = (i32::from(chroma[0]) - 128, i32::from(chroma[1]) - 128);
            let half = 1 << (SHIFT - 1);
            let red = half + RED_FROM_V * v;
            let green = half + GREEN_FROM_V * v + GREEN_FROM_U * u;
            let blue = half + BLUE_FROM_U * u;
            for (pixel, &luma) in pixels.chunks_exact_mut(3).zip(luma) {
                let luma = (i32::from(luma) - 16).max(0) * LUMA;
                for (value, chroma) in pixel.iter_mut().zip([red, green, blue]) {
                    *value = ((luma + chroma) >> SHIFT).clamp(0, 255) as u8;
                }
            }
        }
    }
}

/// The planes of a checked frame without padding: luma [height, width] and chroma [⌈height / 2⌉, ⌈width / 2⌉, uv].
pub fn planes<'a>(frame: &FrameView<'a>, packed: &'a mut Vec<u8>) -> (&'a [u8], &'a [u8]) {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let (luma, chroma) = frame.data.split_at(frame.stride * height);
    let (row, rows) = (width.next_multiple_of(2), height.div_ceil(2));
    if frame.stride == width && width == row {
        return (luma, &chroma[..row * rows]);
    }
    packed.clear();
    luma.chunks(frame.stride).for_each(|line| packed.extend_from_slice(&line[..width]));
    chroma.chunks(frame.stride).take(rows).for_each(|line| packed.extend_from_slice(&line[..row]));
    packed.split_at(width * height)
}

/// Converts pixels to normalised planes: `out` is [rgb, pixel], (v / 255 - mean) / std.
///
/// The conversion is not rounded to 8 bits.
#[allow(clippy::needless_range_loop, reason = "five arrays of one size")]
pub fn write_planes(luma: &[U8], chroma: &[U8x2], mean: [f32; 3], std: [f32; 3], out: &mut [f32]) {
    let one = f64::from(1u32 << SHIFT);
    let share = |factor: i32| (f64::from(factor) / one) as f32;
    let from_luma = share(LUMA);
    let (red_v, green_v, green_u, blue_u) =
        (share(RED_FROM_V), share(GREEN_FROM_V), share(GREEN_FROM_U), share(BLUE_FROM_U));
    let (reds, rest) = out.split_at_mut(luma.len());
    let (greens, blues) = rest.split_at_mut(luma.len());
    let scale = std.map(|std| 1.0 / (255.0 * std));
    let shift: [f32; 3] = std::array::from_fn(|c| -mean[c] / std[c]);
    let clip = |value: f32| {
        // Comparisons that are false for NaN become one instruction each.
        let value = if value > 0.0 { value } else { 0.0 };
        if value < 255.0 { value } else { 255.0 }
    };
    let convert = |luma: U8, chroma: U8x2| {
        let light = f32::from(luma.0) - 16.0;
        let light = (if light > 0.0 { light } else { 0.0 }) * from_luma;
        let [u, v] = chroma.0.map(|value| f32::from(value) - 128.0);
        [
            clip(light + red_v * v) * scale[0] + shift[0],
            clip(light + green_v * v + green_u * u) * scale[1] + shift[1],
            clip(light + blue_u * u) * scale[2] + shift[2],
        ]
    };
    let (luma, last_luma) = luma.as_chunks::<BLOCK>();
    let (chroma, last_chroma) = chroma.as_chunks::<BLOCK>();
    let (red, last_red) = reds.as_chunks_mut::<BLOCK>();
    let (green, last_green) = greens.as_chunks_mut::<BLOCK>();
    let (blue, last_blue) = blues.as_chunks_mut::<BLOCK>();
    let planes = red.iter_mut().zip(green).zip(blue);
    for ((luma, chroma), ((red, green), blue)) in luma.iter().zip(chroma).zip(planes) {
        // A block of fixed size, apart from its place in memory, becomes vector instructions.
        let (mut reds, mut greens, mut blues) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        for at in 0..BLOCK {
            [reds[at], greens[at], blues[at]] = convert(luma[at], chroma[at]);
        }
        (*red, *green, *blue) = (reds, greens, blues);
    }
    for (at, (luma, chroma)) in last_luma.iter().zip(last_chroma).enumerate() {
        [last_red[at], last_green[at], last_blue[at]] = convert(*luma, *chroma);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frame_view::PixelFormat;

    fn convert(data: &[u8], width: u32, height: u32, stride: usize) -> Vec<u8> {
        let format = PixelFormat::Nv12;
        let view = FrameView { data, width, height, stride, format, timestamp: Duration::ZERO };
        view.check().expect("the test has enough bytes");
        let mut rgb = vec![0; (width * height * 3) as usize];
        to_rgb_into(&view, &mut rgb);
        rgb
    }

    /// Against BT.601 in floating point, for every luma with many chromas.
    #[test]
    fn the_conversion_is_bt601_in_limited_range() {
        let mut worst = 0.0f64;
        for y in 0..=255u8 {
            for u in (0..=255u8).step_by(15) {
                for v in (0..=255u8).step_by(15) {
                    let rgb = convert(&[y, u8::MAX, u, v], 1, 1, 2);
                    let luma = (f64::from(y) - 16.0).max(0.0) * 255.0 / 219.0;
                    let (cb, cr) =
                        ((f64::from(u) - 128.0) * 255.0 / 224.0, (f64::from(v) - 128.0) * 255.0 / 224.0);
                    let exact =
                        [luma + 1.402 * cr, luma - 0.344_136 * cb - 0.714_136 * cr, luma + 1.772 * cb];
                    for (found, exact) in rgb.iter().zip(exact) {
                        worst = worst.max((f64::from(*found) - exact.clamp(0.0, 255.0)).abs());
                    }
                }
            }
        }
        assert!(worst < 0.75, "{worst} levels from the exact conversion");
    }

    #[test]
    fn known_colours() {
        // Luma, blue and red chroma, and the colour: black, white, grey, the primaries.
        let cases = [
            ([16, 128, 128], [0, 0, 0]),
            ([235, 128, 128], [255, 255, 255]),
            ([126, 128, 128], [128, 128, 128]),
            ([81, 90, 240], [254, 0, 0]),
            ([145, 54, 34], [0, 255, 1]),
            ([41, 240, 110], [0, 0, 255]),
            ([0, 128, 128], [0, 0, 0]),
            // Other colours, as OpenCV 5.0 converts them.
            ([200, 30, 220], [255, 178, 16]),
            ([90, 77, 99], [40, 130, 0]),
        ];
        let mut failures = Vec::new();
        for ([y, u, v], expected) in cases {
            let found = convert(&[y, y, u, v], 1, 1, 2);
            if found != expected {
                failures.push(format!("{y}, {u}, {v}: expected {expected:?}, got {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Three by three pixels: of the four chroma samples, three apply to fewer than four pixels.
    #[test]
    fn odd_sizes_and_padding() {
        let data = [
            50, 51, 52, 0, 0, 0, // rows of luma
            53, 54, 55, 0, 0, 0, //
            56, 57, 58, 0, 0, 0, //
            128, 128, 240, 128, 0, 0, // rows of chroma
            128, 240, 240, 240, // the last without padding
        ];
        let rgb = convert(&data, 3, 3, 6);
        let pixel = |x: usize, y: usize| rgb[(y * 3 + x) * 3..][..3].to_vec();
        let alone = |y: u8, u: u8, v: u8| convert(&[y, y, u, v], 1, 1, 2);
        assert_eq!(pixel(0, 0), alone(50, 128, 128));
        assert_eq!(pixel(1, 1), alone(54, 128, 128));
        assert_eq!(pixel(2, 1), alone(55, 240, 128));
        assert_eq!(pixel(1, 2), alone(57, 128, 240));
        assert_eq!(pixel(2, 2), alone(58, 240, 240));
    }
}
