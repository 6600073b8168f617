//! The kernel against [`Preprocessor`]: compiled for the CPU by `cc`, and run thread by thread.

#[path = "../../../../tests/device_kernels/cases.rs"]
mod cases;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::preprocess::Preprocessor;
use cases::{Case, full_size, image, random_cases, table};
use ocelli_engines::ForeignMemory;

/// The kernel as a program, which reads cases from its standard input.
struct OnCpu {
    program: Child,
    _folder: tempfile::TempDir,
}

impl OnCpu {
    fn compile() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, program) = (folder.path().join("preprocess.c"), folder.path().join("preprocess"));
        let around = include_str!("on_cpu.c");
        std::fs::write(&path, format!("{around}\n{SOURCE}\n{around}")).expect("it is written");
        // Fused operations would round once where the kernel rounds twice.
        let options = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-o"];
        let output = Command::new("cc").args(options).arg(&program).arg(&path).output().expect("cc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { program: program.expect("it starts"), _folder: folder }
    }

    /// The bytes of the square, of an image that is uploaded.
    fn run(&mut self, config: &PreprocessConfig, frame: &FrameView<'_>) -> Vec<u8> {
        let mut packed = Vec::new();
        let (stride, bytes) = rows(frame, &mut packed).expect("the image is small");
        let planes = Planes::of_view(frame, stride);
        self.run_planes(config, (frame.width, frame.height), &planes, [bytes, &[]])
    }

    /// The bytes of the square, of planes of an image and its chroma; without any, chroma is where the image is.
    fn run_planes(
        &mut self,
        config: &PreprocessConfig,
        size: (u32, u32),
        planes: &Planes,
        [bytes, chroma]: [&[u8]; 2],
    ) -> Vec<u8> {
        let tables = Tables::new(config, size);
        let [first, second] =
            tables.passes.each_ref().map(|pass| bytemuck::cast_slice::<i32, u8>(&pass.table));
        let mut square = vec![0; 3 * config.imgsz * config.imgsz * 4];
        let lengths = [bytes, first, second, &square, chroma].map(<[u8]>::len);
        let header = [kernel_of(planes.format) as u32].into_iter().chain(lengths.map(|n| n as u32));
        let header: Vec<u32> = header.collect();
        let (integers, floats) = tables.arguments(config, planes);

        let stdin = self.program.stdin.as_mut().expect("it is piped");
        // Five empty addresses come first.
        for part in [
            bytemuck::cast_slice(&header),
            &[0; 40],
            bytemuck::cast_slice(&integers),
            bytemuck::cast_slice(&floats),
            bytes,
            first,
            second,
            chroma,
        ] {
            stdin.write_all(part).expect("the program reads");
        }
        let stdout = self.program.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut square).expect("the program writes the square");
        square
    }
}

impl Drop for OnCpu {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        // Its status says nothing that the missing square has not said.
        let _ = self.program.wait();
    }
}

/// Runs the cases and panics with those that differ.
fn compare(cases: &[Case]) {
    let mut failures = Vec::new();
    let mut kernel = OnCpu::compile();
    for case in cases {
        let config = PreprocessConfig {
            mean: [0.1, 0.5, 0.9],
            std: [0.3, 0.5, 0.7],
            ..PreprocessConfig::new(case.side)
        };
        let mut cpu = Preprocessor::new(config).expect("the configuration is valid");
        let (data, stride) = image(case);
        let (width, height, format) = (case.width, case.height, case.format);
        let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
        let mut expected = vec![0.0; cpu.output_len()];
        // The kernel converts NV12 before the resize.
        let rgb = frame.to_image().expect("the image is complete");
        let of_cpu = if format == PixelFormat::Nv12 { rgb.view() } else { frame };
        cpu.run_into(of_cpu, &mut expected).expect("the image is complete");
        let square = kernel.run(&config, &frame);
        let values = square.chunks_exact(4).map(|value| u32::from_ne_bytes(value.try_into().expect("4")));
        let differing = values.zip(&expected).filter(|(bits, value)| *bits != value.to_bits()).count();
        if differing > 0 {
            failures.push(format!("{case:?}: {differing} values differ"));
        }
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_kernel_is_bit_identical() {
    compare(&table());
}

#[test]
fn the_kernel_is_bit_identical_at_random_sizes() {
    compare(&random_cases(12));
}

#[test]
fn the_kernel_is_bit_identical_at_full_size() {
    compare(&full_size()[1..4]);
}

/// Tall enough that the CPU runs the vertical pass first, in a square that a test can afford.
#[test]
fn the_kernel_takes_very_tall_images_in_the_same_order() {
    let format = PixelFormat::Rgb8;
    compare(&[Case { side: 1100, width: 3, height: 65_000, format, padding: 0 }]);
}

/// The planes of a decoded frame, each with its own address and stride, for every matrix and range: against the standards'
/// formulas, in a square of the frame's size, which leaves the pixels as they are.
#[test]
fn decoded_frames_have_the_colours_of_their_matrix_and_range() {
    let (side, strides) = (48usize, [80, 64]);
    let mut random = cases::Random(7);
    let [luma, chroma] =
        [strides[0] * side, strides[1] * side / 2].map(|len| (0..len).map(|_| random.next() as u8).collect());
    let (luma, chroma): (Vec<u8>, Vec<u8>) = (luma, chroma);
    // FFmpeg's coefficients, and the shares of red and blue in luma: BT.601, BT.709, FCC, SMPTE 240M, BT.2020.
    let matrices = [
        ([104_597, 132_201, 25_675, 53_279], [0.299, 0.114]),
        ([117_489, 138_438, 13_975, 34_925], [0.2126, 0.0722]),
        ([104_448, 132_798, 24_759, 53_109], [0.30, 0.11]),
        ([117_579, 136_230, 16_907, 35_559], [0.212, 0.087]),
        ([110_013, 140_363, 12_277, 42_626], [0.2627, 0.0593]),
    ];
    let mut config = PreprocessConfig::new(side);
    (config.mean, config.std) = ([0.0; 3], [1.0 / 255.0; 3]);
    let mut kernel = OnCpu::compile();
    let mut failures = Vec::new();
    for (coefficients, [red, blue]) in matrices {
        for is_full in [false, true] {
            let plane = |address| ForeignMemory::fake(address, 0, std::sync::Arc::new(()));
            let frame = DeviceFrame {
                width: side as u32,
                height: side as u32,
                luma: (plane(1), strides[0]),
                chroma: (plane(2), strides[1]),
                colours: Nv12Colours::from_coefficients(coefficients, is_full),
                to_rgb: std::sync::Arc::new(|_| Ok(())),
            };
            frame.check().expect("rows are long enough");
            let size = (frame.width, frame.height);
            let square = kernel.run_planes(&config, size, &Planes::of_device(&frame), [&luma, &chroma]);
            let values = bytemuck::pod_collect_to_vec::<u8, f32>(&square);
            let (black, light, colour) = if is_full { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
            let mut worst = 0.0f64;
            for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                let pair = &chroma[y / 2 * strides[1] + (x & !1)..][..2];
                let luma = (f64::from(luma[y * strides[0] + x]) - black).max(0.0) * 255.0 / light;
                let [u, v] = [pair[0], pair[1]].map(|value| (f64::from(value) - 128.0) * 255.0 / colour);
                let (from_u, from_v) = (2.0 * (1.0 - blue) * u, 2.0 * (1.0 - red) * v);
                let green = luma - (red * from_v + blue * from_u) / (1.0 - red - blue);
                for (plane, exact) in [luma + from_v, green, luma + from_u].into_iter().enumerate() {
                    let found = f64::from(values[(plane * side + y) * side + x]);
                    worst = worst.max((found - exact.clamp(0.0, 255.0)).abs());
                }
            }
            if worst > 0.75 {
                failures.push(format!("{coefficients:?}, full range {is_full}: {worst} levels"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// An image that is uploaded has its chroma behind its luma; handed over as two planes, it gives the same bits.
#[test]
fn planes_apart_give_the_same_result_as_planes_in_one_piece() {
    let mut cases = table();
    cases.retain(|case| case.format == PixelFormat::Nv12 && case.side == 28);
    let mut kernel = OnCpu::compile();
    for case in &cases {
        let (data, stride) = image(case);
        let (width, height, format) = (case.width, case.height, case.format);
        let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
        let config = PreprocessConfig::new(case.side);
        let whole = kernel.run(&config, &frame);
        let (luma, chroma) = data.split_at(stride * height as usize);
        let row = (width as usize).next_multiple_of(2);
        // Chroma with a stride of its own.
        let apart: Vec<u8> =
            chroma.chunks(stride).flat_map(|line| [&line[..row], &[9; 6][..]].concat()).collect();
        let mut planes = Planes::of_view(&frame, stride);
        (planes.chroma_top, planes.chroma_stride) = (0, row + 6);
        let parts = kernel.run_planes(&config, (width, height), &planes, [luma, &apart]);
        assert!(whole == parts, "{case:?}");
    }
}
