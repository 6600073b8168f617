//! TensorRT engines from an exported model, each compared with its ONNX graph before it is installed.

mod build;
mod cached;
mod request;

pub use build::{BuildEvent, BuildOptions, BuiltEngine, EngineBuild, ReportEvent, verify_engine};
pub use cached::{cached_engines, detector};
pub use request::EngineRequest;
