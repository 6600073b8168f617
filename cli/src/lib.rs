//! The `ocelli` program, and what all programs of the workspace share.
//!
//! [`Program`] has the whole program; `demo-image` and `demo-video` are its commands `detect` and `video` under their own
//! names. Another program parses its arguments with [`parse`] and does its work in
//! [`run`], which turns an error into one line on stderr and an exit status:
//!
//! ```no_run
//! use clap::Parser;
//! use ocelli_cli::{LogArgs, ModelArgs, detector, parse, run, status};
//!
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(flatten)]
//!     model: ModelArgs,
//!     #[command(flatten)]
//!     log: LogArgs,
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let args: Arguments = parse();
//!     run(&args.log, || {
//!         let detector = detector(args.model.options()?)?.build()?;
//!         status(format!("engine: {}", detector.engine()));
//!         Ok(())
//!     })
//!     .into()
//! }
//! ```

#![deny(unsafe_code)]

#[macro_use]
mod exit;

mod args;
mod commands;
mod config;
mod flags;
mod given;
mod help;
mod interrupt;
mod loading;
mod logging;
mod matches;
mod output;
mod parse;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod parsers;
mod program;
mod progress;
pub mod report;

pub use args::{
    DetectorArgs, ModelArgs, TrackerArgs, VerificationArgs, class_names, detector, expand_images,
};
pub use exit::{run, usage};
pub use interrupt::{cancel_on_interrupt, interrupted};
pub use loading::load;
pub use logging::LogArgs;
pub use output::{check_output_file, print, status};
pub use parse::parse;
pub use program::Program;
pub use progress::Progress;
