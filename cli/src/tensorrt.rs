//! TensorRT engines from an exported model, each compared with its ONNX graph before it is installed.

mod build;

pub use build::{BuildEvent, BuildOptions, BuiltEngine, EngineBuild, ReportEvent, verify_engine};
