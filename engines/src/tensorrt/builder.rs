//! From an ONNX file to a plan.

use super::calls::build::Session;
use super::progress::{BuildProgress, Progress, Reporter};
use super::request::PlanRequest;
use super::version::Product;
use super::{TensorRt, cache_file, onnx_outputs};
use crate::cuda::CudaDevice;
use crate::spec::{Dim, DimensionRange, EngineSpec, TensorSpec};
use ocelli_error::{Error, ErrorKind, Result, refuse};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One build at a time: concurrent builds would distort each other's measurements, and errors come through one log.
static BUILDING: Mutex<()> = Mutex::new(());

/// The name of the file of measured times in errors.
const TIMING_CACHE: &str = "timing cache";
/// The highest optimisation level.
const MAX_LEVEL: u8 = 5;

/// Builds a [`Plan`] from an ONNX file.
///
/// Networks are strongly typed: each operator computes in the precision that the ONNX file gives it.
pub struct TensorRtBuilder<'b> {
    tensorrt: TensorRt,
    request: PlanRequest,
    progress: Option<Progress<'b>>,
}

/// A built plan, which NVIDIA also calls an engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The content of the plan's file.
    pub bytes: Vec<u8>,
    /// Inputs and outputs, in the order of the ONNX file.
    pub spec: EngineSpec,
}

impl<'b> TensorRtBuilder<'b> {
    /// A build of what is requested.
    pub fn new(tensorrt: &TensorRt, request: PlanRequest) -> Self {
        Self { tensorrt: tensorrt.clone(), request, progress: None }
    }

    /// Called as the build proceeds, possibly from TensorRT's threads; [`ControlFlow::Break`] cancels the build.
    pub fn with_progress(
        mut self,
        progress: impl FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b,
    ) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Reads the ONNX file and its external weights, and builds the plan.
    ///
    /// One build runs at a time; a second one waits.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the library cannot build (a lean runtime, no ONNX parser beside it) or needs a GPU
    /// and there is none; [`ErrorKind::InvalidArgument`] for a dynamic dimension without a range, an invalid range,
    /// a target or an option that the library does not support, or a timing cache that cannot be read or written;
    /// [`ErrorKind::InvalidData`] if the file is missing, corrupt or has an operator that TensorRT does not know, with the
    /// node's name; [`ErrorKind::Execution`] if the build fails; [`ErrorKind::Cancelled`] if the caller cancelled it.
    pub fn build(self, onnx: &Path) -> Result<Plan> {
        self.build_inner(onnx).map_err(|error| {
            Error::new(error.kind(), format!("cannot build a plan from {}: {error}", onnx.display()))
        })
    }

    fn build_inner(self, onnx: &Path) -> Result<Plan> {
        let Self { tensorrt, request: options, progress } = self;
        let functions = tensorrt.build_functions().map_err(Error::unavailable)?;
        let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        check(tensorrt.product(), &options)?;
        if !onnx.is_file() {
            return Err(Error::invalid_data("no such file"));
        }
        // TensorRT proper measures kernels on the GPU, and without a target TensorRT for RTX builds for it.
        if options.targets.is_empty() && CudaDevice::count()? == 0 {
            return Err(Error::unavailable("the driver reports no NVIDIA GPU"));
        }
        let reporter = Reporter::new(progress);
        let check_cancellation = || {
            if reporter.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "cancelled")) } else { Ok(()) }
        };

        const PARSING: &str = "Parsing ONNX";
        let mut session = Session::open(functions)?;
        reporter.phase_start(PARSING, None, 1);
        session.parse(onnx)?;
        reporter.phase_finish(PARSING);
        reporter.resume_panic();
        check_cancellation()?;

        let [inputs, mut outputs] = session.tensors()?;
        name_dimensions(&mut outputs, onnx)?;
        let ranges = ranges(&inputs, &options.dimensions)?;
        if !ranges.is_empty() {
            session.add_profile(&inputs, &ranges)?;
        }
        session.configure(&options)?;
        if let Some(path) = &options.timing_cache
            && !session.use_timing_cache(&cache_file::read(TIMING_CACHE, path)?)?
        {
            tracing::warn!("{} comes from another TensorRT or GPU and is replaced", path.display());
            session.use_timing_cache(&[])?;
        }

        let built = session.build(&reporter);
        check_cancellation()?;
        let bytes = built?;
        if let Some((path, times)) = options.timing_cache.as_ref().zip(session.timing_cache_bytes()) {
            cache_file::write(TIMING_CACHE, path, &times)?;
        }
        Ok(Plan { bytes, spec: EngineSpec { inputs, outputs } })
    }
}

debug_as!(TensorRtBuilder<'_>, it => "TensorRtBuilder({:?}, {:?})", it.tensorrt, it.request);

/// Checks the options before TensorRT sees them.
fn check(product: Product, options: &PlanRequest) -> Result<()> {
    let is_rtx = product == Product::TensorRtForRtx;
    for (name, DimensionRange { min, optimal, max }) in &options.dimensions {
        // Sizes are 32-bit integers in TensorRT's kernels.
        if !(min <= optimal && optimal <= max && *max >= 1 && i32::try_from(*max).is_ok()) {
            refuse!(
                "dimension `{name}`: expected min ≤ optimal ≤ max, from 1 to 2^31 - 1, got {min}, {optimal}, {max}"
            );
        }
    }
    let known = product.targets();
    if let Some(target) = options.targets.iter().find(|target| !known.contains(target)) {
        if known.is_empty() {
            refuse!("{product} builds for the GPU of this machine only, not for target {target}");
        }
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        refuse!(
            "{product} does not support compute capability {target}: expected one of {}",
            known.join(", ")
        );
    }
    if is_rtx && options.timing_cache.is_some() {
        refuse!("{product} has no timing cache: it compiles kernels when an engine first runs");
    }
    if is_rtx && options.version_compatible {
        refuse!("{product} does not build version-compatible plans");
    }
    if is_rtx && options.hardware_compatible {
        refuse!(
            "{product} does not build hardware-compatible plans; name several targets for one plan instead"
        );
    }
    match options.optimization_level {
        Some(level) if level > MAX_LEVEL => {
            refuse!("optimisation level {level}: expected 0 to {MAX_LEVEL}")
        }
        _ => Ok(()),
    }
}

/// The ranges of the inputs' dynamic dimensions.
fn ranges(
    inputs: &[TensorSpec],
    known: &BTreeMap<String, DimensionRange>,
) -> Result<BTreeMap<String, DimensionRange>> {
    let mut ranges = BTreeMap::new();
    for input in inputs {
        for (axis, dim) in input.shape.iter().enumerate() {
            let Dim::Named(name) = dim else { continue };
            let place = format!("input `{}`, dimension {axis}", input.name);
            if name.is_empty() {
                return Err(Error::invalid_data(format!("{place} is dynamic and has no name")));
            }
            let range = known.get(name).ok_or_else(|| {
                Error::invalid_argument(format!("{place} is dynamic (`{name}`) and has no range"))
            })?;
            ranges.insert(name.clone(), *range);
        }
    }
    Ok(ranges)
}

/// Names the dynamic dimensions of the outputs as in the file, because TensorRT drops those names, or `output.axis`.
fn name_dimensions(outputs: &mut [TensorSpec], onnx: &Path) -> Result<()> {
    let names = onnx_outputs::read(onnx).map_err(|error| {
        Error::invalid_data(format!("cannot read the outputs: {error}")).with_source(error)
    })?;
    for output in outputs {
        let names = names.get(&output.name).filter(|names| names.len() == output.shape.len());
        for (axis, dim) in output.shape.iter_mut().enumerate() {
            if let Dim::Named(_) = dim {
                let name = names.and_then(|names| names[axis].clone());
                *dim = Dim::named(name.unwrap_or_else(|| format!("{}.{axis}", output.name)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
