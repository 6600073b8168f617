//! What `ocelli doctor` says about OpenVINO.

use std::io::Write;
use std::path::Path;

use ocelli::engines::openvino::{self, OpenVino};

use super::write_places;

/// Writes whether OpenVINO works.
pub(super) fn write_engine(out: &mut dyn Write, path: Option<&Path>) -> std::io::Result<()> {
    match OpenVino::load(path) {
        Ok(runtime) => writeln!(out, "  openvino        works: OpenVINO {}", runtime.version()),
        Err(e) => writeln!(out, "  openvino        does not work: {e}"),
    }
}

/// Writes where the library is, and the devices with the number formats in which they are fast.
pub(super) fn write_library(out: &mut dyn Write, path: Option<&Path>) -> std::io::Result<()> {
    writeln!(out, "\nOpenVINO")?;
    write_places(out, &openvino::LIBRARY.candidates(path))?;
    match OpenVino::load(path).and_then(|runtime| runtime.devices()) {
        Ok(devices) => {
            for device in devices {
                let formats = device.number_formats.join(", ");
                writeln!(out, "  {:<15} {}; number formats: {formats}", device.name, device.product)?;
            }
            Ok(())
        }
        // `write_engine` has said why.
        Err(_) => Ok(()),
    }
}
