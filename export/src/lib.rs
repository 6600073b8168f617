//! SAM3 checkpoint → ONNX graphs, without Python.
//!
//! A [`Checkpoint`] is a Hugging Face folder, memory-mapped and checked tensor by tensor against its configuration.
//! [`export`] writes it as a folder of ONNX graphs whose names and shapes are those of [`contract`]: image backbone,
//! text encoder, exemplar encoder, encoder-decoder, mask head, and a [`Manifest`](contract::Manifest) that tells the
//! runtime everything else. [`ExportOptions`] choose the image size, what attention is written as, which blocks are
//! pruned, and the number format; in half precision [`MixedPrecision`] and [`Block`] say what stays in 32 bits.
//!
//! ```no_run
//! use ocelli_export::{Checkpoint, ExportOptions, export};
//!
//! let checkpoint = Checkpoint::open("sam3".as_ref())?;
//! let options = ExportOptions::default().with_imgsz(672).with_skip_blocks([5, 10]);
//! let manifest = export(&checkpoint, &options, "sam3-672".as_ref(), |step| {
//!     println!("{}", step.file);
//!     Ok(())
//! })?;
//! println!("{} pixels, {} queries", manifest.imgsz, manifest.num_queries);
//! # Ok::<(), ocelli_export::Error>(())
//! ```

#![deny(unsafe_code)]

mod checkpoint;
pub mod config;
pub mod contract;
mod error;
mod exporter;
mod fold;
mod graph;
mod mixed_precision;
mod model;
mod onnx;
mod prune;
mod quantize;

pub use checkpoint::Checkpoint;
pub use error::{Error, ErrorKind, Result};
pub use exporter::{ExportOptions, ExportProgress, export};
pub use mixed_precision::{Block, MixedPrecision};
pub use prune::{Branch, MaskedBranch, Pruning};
