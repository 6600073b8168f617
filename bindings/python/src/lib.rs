//! The extension module `ocelli._ocelli`: what the Python package calls.
//!
//! The package's own Python files (`../python/ocelli`) have the classes that users see. This module gives them detectors,
//! pipelines and trackers, takes pixels from arrays and hands results back as such, and runs the programs.

mod detector;
mod error;
mod evaluate;
mod export;
mod images;
mod label;
mod objects;
mod options;
mod pipeline;
mod pixels;
mod program;
mod prompts;
mod results;
mod session;
mod tracker;
mod video;
mod waiting;

use pyo3::prelude::*;

/// Native part of the package `ocelli`.
#[pymodule]
mod _ocelli {
    #[pymodule_export]
    use super::detector::{Detector, Features};
    #[pymodule_export]
    use super::evaluate::{evaluate, verify};
    #[pymodule_export]
    use super::export::export;
    #[pymodule_export]
    use super::images::{plot, read_image, vocabulary};
    #[pymodule_export]
    use super::label::label;
    #[pymodule_export]
    use super::pipeline::Pipeline;
    #[pymodule_export]
    use super::program::{run_program, set_python_packages, without_secrets};
    #[pymodule_export]
    use super::results::{detections_json, frame_json, mask_area, mask_from_array, mask_to_array};
    #[pymodule_export]
    use super::session::VideoSession;
    #[pymodule_export]
    use super::tracker::Tracker;
    #[pymodule_export]
    use super::video::{VideoReader, why_no_video_library};
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
