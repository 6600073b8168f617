//! A model can run wrongly without an error: this crate proves that a machine runs a model of [`ocelli`] right.
//!
//! - A [`Verification`] runs a reference and compares a [`Candidate`] with it: another engine, precision or export of a model. A
//!   [`VerificationRequest`] names both.
//! - [`tensorrt`] builds the TensorRT engines of a model, and installs those that pass this comparison.
//! - [`prune`] finds the branches of a backbone that a model can do without, and where to split it.
//! - [`scenes`] draws images and videos with their ground truth, for the others and for tests.
//!
//! It does not know data sets, and no program.
//!
//! ```
//! use ocelli::{Cancellation, Model, engine::{EngineFactory, EngineOptions}, model::ModelRequest};
//! use ocelli_verify::{Candidate, Verification, VerificationOptions};
//!
//! # fn main() -> ocelli::Result<()> {
//! let model = Model::resolve(&ModelRequest::default(), &|_| (), &Cancellation::new())?;
//! let factory = EngineFactory::start(&EngineOptions::default())?;
//! let options = VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
//! let verification = Verification::of_reference(&model, &factory, options, &mut |_| Ok(()))?;
//! let report = verification.check(&Candidate::of_model(&model, &factory), &mut |_| Ok(()))?;
//! assert!(report.accepted(), "a model agrees with itself");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod prune;
mod request;
pub mod scenes;
pub mod tensorrt;
mod verification;

pub use request::VerificationRequest;
pub use verification::{
    Candidate, DetectionReport, Failure, Limits, OutputReport, ReportProgress, Verification,
    VerificationOptions, VerificationProgress, VerificationReport, VerificationSummary,
};
