//! Exports SAM3 checkpoints as ONNX models, without Python.
//!
//! A [`Checkpoint`] is a Hugging Face folder or a file in Meta's names, whose tensors are mapped into memory and checked
//! against its [configuration](config). [`export`] writes it as a folder of ONNX graphs: image backbone, text encoder, exemplar
//! encoder, encoder-decoder and mask head. The graphs' files, tensors and shapes are listed in [`contract`]; the folder's
//! [`Manifest`](contract::Manifest) has everything else that a runtime needs.
//!
//! [`ExportOptions`] choose
//! - the input size;
//! - the [`Target`](contract::Target): ONNX Runtime's fused operators, or standard operators only;
//! - the [`Precision`](contract::Precision), and for half precision the parts that stay in 32 bits: kinds of computation
//!   ([`MixedPrecision`]) and parts of the model ([`Block`]);
//! - [`Pruning`]: removed blocks and branches of the backbone, and a backbone in two files.
//!
//! [`export_chain`] writes a graph for every branch of the backbone, to run it without some of them.
//!
//! ```
//! use ocelli_export::contract::{Target, file};
//! use ocelli_export::{Checkpoint, ExportOptions, export};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/parity/plain");
//! # let temporary = tempfile::tempdir().expect("a temporary folder");
//! # let output = temporary.path().join("exported");
//! let checkpoint = Checkpoint::open(folder.as_ref())?;
//! let options = ExportOptions { target: Target::TensorRt, imgsz: Some(112), ..ExportOptions::default() };
//! let manifest = export(&checkpoint, &options, &output, |progress| {
//!     println!("{} of {}: {}", progress.done + 1, progress.total, progress.file);
//!     Ok(())
//! })?;
//! assert_eq!(manifest.imgsz, 112);
//! assert_eq!(std::fs::metadata(output.join(file::BACKBONE)).expect("the file").len(), manifest.files[file::BACKBONE].bytes);
//! # Ok::<(), ocelli_export::Error>(())
//! ```

#![deny(unsafe_code)]

mod calibration;
mod chain;
mod checkpoint;
pub mod config;
pub mod contract;
mod errors;
mod exporter;
mod fold;
mod graph;
mod mixed_precision;
mod model;
mod prune;
mod quantize;
mod student;
mod text_file;

pub use calibration::Calibration;
pub use chain::{BackboneChain, export_chain};
pub use checkpoint::{Checkpoint, CheckpointOptions, Inspection, NormEps, PartSummary};
pub use contract::tensor::NEXT_TOKENS;
pub use exporter::{ExportOptions, ExportProgress, export};
pub use mixed_precision::{Block, MixedPrecision};
pub use ocelli_error::{Error, ErrorKind, Result};
pub use prune::{Branch, MaskedBranch, Pruning};
pub use text_file::read_text;
