//! The kernel against [`Preprocessor`]: compiled for the CPU by `cc`, and run thread by thread.

#[path = "../../../../tests/device_kernels/cases.rs"]
mod cases;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::preprocess::Preprocessor;
use cases::{Case, full_size, image, random_cases, table};

/// The kernel as a program, which reads cases from its standard input.
struct OnCpu {
    program: Child,
    _folder: tempfile::TempDir,
}

impl OnCpu {
    fn compile(rounding: Rounding) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, program) = (folder.path().join("preprocess.c"), folder.path().join("preprocess"));
        let around = include_str!("on_cpu.c");
        std::fs::write(&path, format!("{around}\n{}\n{around}", source(rounding))).expect("it is written");
        // Fused operations would round once where the kernel rounds twice.
        let options = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-o"];
        let output = Command::new("cc").args(options).arg(&program).arg(&path).output().expect("cc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { program: program.expect("it starts"), _folder: folder }
    }

    /// The bytes of the square.
    fn run(&mut self, config: &PreprocessConfig, frame: &FrameView<'_>) -> Vec<u8> {
        let mut packed = Vec::new();
        let (stride, bytes) = rows(frame, &mut packed).expect("the image is small");
        let tables = Tables::new(config, (frame.width, frame.height));
        let [first, second] =
            tables.passes.each_ref().map(|pass| bytemuck::cast_slice::<i32, u8>(&pass.table));
        let mut square = vec![0; 3 * config.imgsz * config.imgsz * 4];
        let header =
            [kernel_of(frame.format), bytes.len(), first.len(), second.len(), square.len()].map(|n| n as u32);
        let (integers, floats) = tables.arguments(config, frame.format, stride);

        let stdin = self.program.stdin.as_mut().expect("it is piped");
        // Four empty addresses come first.
        for part in [
            bytemuck::cast_slice(&header),
            &[0; 32],
            bytemuck::cast_slice(&integers),
            bytemuck::cast_slice(&floats),
            bytes,
            first,
            second,
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

/// Runs the cases, which are grouped by rounding, and panics with those that differ.
fn compare(cases: &[Case]) {
    let mut failures = Vec::new();
    for cases in cases.chunk_by(|a, b| a.rounding == b.rounding) {
        let mut kernel = OnCpu::compile(cases[0].rounding);
        for case in cases {
            let config = PreprocessConfig {
                mean: [0.1, 0.5, 0.9],
                std: [0.3, 0.5, 0.7],
                rounding: case.rounding,
                ..PreprocessConfig::new(case.side)
            };
            let mut cpu = Preprocessor::new(config).expect("the configuration is valid");
            let (data, stride) = image(case);
            let (width, height, format) = (case.width, case.height, case.format);
            let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
            let mut expected = vec![0.0; cpu.output_len()];
            // The kernel converts NV12 before the resize.
            let rgb = frame.to_image().expect("the image is complete");
            let of_cpu = if format == PixelFormat::Nv12 { FrameView::from(rgb.view()) } else { frame };
            cpu.run_into(of_cpu, &mut expected).expect("the image is complete");
            let square = kernel.run(&config, &frame);
            let values = square.chunks_exact(4).map(|value| u32::from_ne_bytes(value.try_into().expect("4")));
            let differing = values.zip(&expected).filter(|(bits, value)| *bits != value.to_bits()).count();
            if differing > 0 {
                failures.push(format!("{case:?}: {differing} values differ"));
            }
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
    let (format, rounding) = (PixelFormat::Rgb8, Rounding::EachPass);
    compare(&[Case { side: 1100, width: 3, height: 65_000, format, padding: 0, rounding }]);
}
