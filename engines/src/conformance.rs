//! The suite that every engine passes.
//!
//! The engine runs one small network, in any format, and [`check`] tests everything that users of engines rely on. The network ([`spec`], [`WEIGHTS`]; all standard ONNX operators):
//!
//! | output | is | shape |
//! |---|---|---|
//! | `sum` f32 | `Add(a, b)` | `[rows, 3]`, follows from the inputs |
//! | `product` f32 | `MatMul(a, WEIGHTS)` | `[rows, 4]`, follows from the inputs |
//! | `doubled` i64 | `Add(ids, ids)` | `[rows, tokens]`, follows from the inputs |
//! | `positions` i64 | `NonZero(ids)` | `[2, found]`, depends on the data |
//!
//! of the inputs `a` and `b`, f32 `[rows, 3]`, and `ids`, i64 `[rows, tokens]`.

mod cases;

use crate::engine::Engine;
use crate::spec::{Dim, EngineSpec, TensorSpec};
use crate::tensor::ElementType;
use ocelli_error::{Result, display_as};

/// The right-hand side of the network's matrix product, `[3, 4]`.
pub const WEIGHTS: [[f32; 4]; 3] = [[0.5, -1.25, 2.0, 0.1], [1.5, 0.75, -0.3, 4.0], [-2.5, 0.2, 1.0, -0.6]];

/// The specification that an engine for the network must have.
pub fn spec() -> EngineSpec {
    let rows = || Dim::named("rows");
    EngineSpec {
        inputs: vec![
            TensorSpec::new("a", ElementType::F32, [rows(), Dim::Fixed(3)]),
            TensorSpec::new("b", ElementType::F32, [rows(), Dim::Fixed(3)]),
            TensorSpec::new("ids", ElementType::I64, [rows(), Dim::named("tokens")]),
        ],
        outputs: vec![
            TensorSpec::new("sum", ElementType::F32, [rows(), Dim::Fixed(3)]),
            TensorSpec::new("product", ElementType::F32, [rows(), Dim::Fixed(4)]),
            TensorSpec::new("doubled", ElementType::I64, [rows(), Dim::named("tokens")]),
            TensorSpec::new("positions", ElementType::I64, [Dim::Fixed(2), Dim::named("found")]),
        ],
    }
}

/// The specification of the network without `positions`, for engines that only support outputs whose shapes follow from
/// the inputs; see [`check_known_shapes`].
pub fn spec_known_shapes() -> EngineSpec {
    let mut spec = spec();
    spec.outputs.retain(|output| output.name != "positions");
    spec
}

/// The allowed difference between an engine's `f32` results and the exact ones: `absolute + relative · |exact|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The error that is allowed for every value.
    pub absolute: f32,
    /// The error that is allowed in proportion to the exact value.
    pub relative: f32,
}

impl Tolerance {
    /// For engines that compute in `f32`: the rounding errors of a few operations.
    pub const F32: Self = Self { absolute: 1e-6, relative: 1e-6 };

    /// For engines that compute in 16 bits.
    pub const F16: Self = Self { absolute: 1e-2, relative: 2e-3 };

    fn allows(self, expected: f32, actual: f32) -> bool {
        if expected.is_nan() || actual.is_nan() {
            return expected.is_nan() && actual.is_nan();
        }
        expected == actual || (expected - actual).abs() <= self.absolute + self.relative * expected.abs()
    }
}

/// The cases that an engine failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures(Vec<String>);

impl Failures {
    /// One line for each failing case.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

display_as!(Failures, it => "{} cases failed:\n{}", it.0.len(), it.0.join("\n"));

impl std::error::Error for Failures {}

/// Tests an engine and reports every case that fails. Each group of cases gets a new engine.
///
/// - The specification is that of the network.
/// - Values are correct for changing sizes, including zero.
/// - Misuse is an [`InvalidArgument`](crate::ErrorKind::InvalidArgument) error that names the tensor. It leaves the outputs
///   unchanged and the engine usable.
/// - Any subset of the outputs can be requested, in any order.
/// - Output buffers can have any type and shape; those that are large enough are not reallocated.
/// - Equal inputs give equal bits, even after runs with other inputs.
/// - NaN and infinity are preserved.
///
/// # Errors
/// The failing cases.
pub fn check<E: Engine>(make: impl FnMut() -> Result<E>, tolerance: Tolerance) -> Result<(), Failures> {
    let failures = cases::run_all(make, tolerance, spec(), cases::LARGEST_ID);
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// As [`check`], with the network of [`spec_known_shapes`].
///
/// # Errors
/// The failing cases.
pub fn check_known_shapes<E: Engine>(
    make: impl FnMut() -> Result<E>,
    tolerance: Tolerance,
) -> Result<(), Failures> {
    let failures = cases::run_all(make, tolerance, spec_known_shapes(), cases::LARGEST_ID);
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// As [`check`], for engines that compute integers in 32 bits: every integer fits them.
///
/// # Errors
/// The failing cases.
pub fn check_32_bit<E: Engine>(
    make: impl FnMut() -> Result<E>,
    tolerance: Tolerance,
) -> Result<(), Failures> {
    let failures = cases::run_all(make, tolerance, spec(), cases::LARGEST_ID / 2);
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

#[cfg(test)]
pub(crate) mod tests;
