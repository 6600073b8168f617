//! NVIDIA driver, GPUs and TensorRT.

use std::io::{self, Write};
use std::path::Path;

use ocelli::engines::library::Candidate;
use ocelli::engines::tensorrt::{self, Product};

use super::{described, write_places};

/// Writes what `--trt` and `ocelli build-engine` need and which parts are installed.
pub fn write(out: &mut dyn Write, library: Option<&Path>) -> io::Result<()> {
    writeln!(out, "\nNVIDIA")?;
    write_gpus(out)?;
    writeln!(out, "\nTensorRT")?;
    write_places(out, &tensorrt::LIBRARY.candidates(library))?;
    for product in Product::ALL {
        let what = match product.part() {
            None => "not found; `make tensorrt` in the source tree builds it".to_owned(),
            Some(Candidate { place, path, finding }) => {
                format!("{} ({place}), {}", path.display(), described(&finding))
            }
        };
        writeln!(out, "  Ocelli's part for {product}: {what}")?;
    }
    Ok(())
}

fn write_gpus(out: &mut dyn Write) -> io::Result<()> {
    use ocelli::engines::cuda::{CudaDevice, Nvrtc};

    let count = match CudaDevice::count() {
        Ok(count) => count,
        Err(reason) => return writeln!(out, "  driver          {reason}"),
    };
    for ordinal in 0..count {
        let device = match CudaDevice::open(ordinal) {
            Ok(device) => device,
            Err(reason) => {
                writeln!(out, "  GPU {ordinal:<11} {reason}")?;
                continue;
            }
        };
        if ordinal == 0 {
            writeln!(out, "  driver          supports CUDA {}", device.driver_version())?;
        }
        let (major, minor) = device.compute_capability();
        let memory = match device.memory() {
            Ok(memory) => {
                format!("{:.1} of {:.1} GB free", memory.free as f64 / 1e9, memory.total as f64 / 1e9)
            }
            Err(reason) => reason.to_string(),
        };
        let name = device.name().split(" (CUDA device").next().unwrap_or_default();
        writeln!(out, "  GPU {ordinal:<11} {name}, compute capability {major}.{minor}, {memory}")?;
    }
    if count == 0 {
        writeln!(out, "  GPU             none visible; see CUDA_VISIBLE_DEVICES")?;
    }
    match Nvrtc::open().map(|nvrtc| nvrtc.version()) {
        Ok((major, minor)) => writeln!(out, "  kernel compiler NVRTC {major}.{minor}"),
        Err(reason) => {
            writeln!(out, "  kernel compiler {reason}; images are preprocessed on the CPU")
        }
    }
}
