//! From an ONNX file to a plan.

use super::calls::{BuildCalls, Monitor, NetworkTensor, ProfileShape, Setting};
use super::plan::Plan;
use super::progress::{BuildProgress, Progress, Reporter};
use super::session::Session;
use super::version::{ComputeCapability, Product, Version};
use super::{TensorRt, onnx_outputs, timing_cache};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dim, DimensionRange, EngineSpec, TensorSpec};
use crate::tensor::ElementType;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Builds are one at a time: they measure kernels against each other, and their errors come through one log.
static BUILDING: Mutex<()> = Mutex::new(());

/// The greatest optimisation level.
const MAX_LEVEL: u8 = 5;

/// Makes a [`Plan`] of an ONNX file.
///
/// Networks are strongly typed: what is computed in which precision is what the ONNX file says.
pub struct TensorRtBuilder<'b> {
    tensorrt: TensorRt,
    options: Options,
    progress: Option<Progress<'b>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) targets: Vec<ComputeCapability>,
    pub(super) dimensions: BTreeMap<String, DimensionRange>,
    pub(super) workspace_bytes: Option<u64>,
    pub(super) timing_cache: Option<PathBuf>,
    pub(super) version_compatible: bool,
    pub(super) hardware_compatible: bool,
    pub(super) optimization_level: Option<u8>,
}

impl<'b> TensorRtBuilder<'b> {
    /// A build for the GPU that is present, without dynamic dimensions.
    pub fn new(tensorrt: &TensorRt) -> Self {
        Self { tensorrt: tensorrt.clone(), options: Options::default(), progress: None }
    }

    /// Builds for GPUs of this generation, which need not be present; called again, for another one as well.
    ///
    /// TensorRT for RTX alone can do that, for those in [`Product::targets`]; TensorRT proper builds for the GPU that
    /// is present.
    pub fn with_target(mut self, target: ComputeCapability) -> Self {
        self.options.targets.push(target);
        self
    }

    /// The sizes that the dynamic dimension of this name (ONNX's `dim_param`) may have.
    ///
    /// Every dynamic dimension of an input needs a range; one that the graph does not have is of no consequence, so
    /// that the ranges of a folder of graphs can be given to each.
    pub fn with_dimension(mut self, name: impl Into<String>, range: DimensionRange) -> Self {
        self.options.dimensions.insert(name.into(), range);
        self
    }

    /// The most memory on the GPU that a layer may use for itself, in bytes; TensorRT's default is the whole GPU.
    pub fn with_workspace_bytes(mut self, bytes: u64) -> Self {
        self.options.workspace_bytes = Some(bytes);
        self
    }

    /// A file of measured times, which make a later build fast: read if it is there and of the same version and GPU,
    /// else left aside with a warning, and replaced after the build.
    ///
    /// TensorRT for RTX has none; it compiles when an engine first runs, and keeps that in a cache of its own.
    pub fn with_timing_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.timing_cache = Some(path.into());
        self
    }

    /// Whether later versions of TensorRT can load the plan; TensorRT for RTX builds none such.
    pub fn with_version_compatible(mut self, yes: bool) -> Self {
        self.options.version_compatible = yes;
        self
    }

    /// Whether GPUs of other generations (Ampere and later) can run the plan. TensorRT for RTX builds none such, but
    /// takes several [targets](Self::with_target).
    pub fn with_hardware_compatible(mut self, yes: bool) -> Self {
        self.options.hardware_compatible = yes;
        self
    }

    /// How much time goes into looking for fast kernels, 0 to 5; TensorRT's default is 3.
    pub fn with_optimization_level(mut self, level: u8) -> Self {
        self.options.optimization_level = Some(level);
        self
    }

    /// Called as the build proceeds, possibly from threads of TensorRT's; [`ControlFlow::Break`] cancels the build.
    pub fn with_progress(
        mut self,
        progress: impl FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b,
    ) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Reads the ONNX file, with the weights that lie beside it, and builds the plan.
    ///
    /// One build runs at a time; a second waits.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the library cannot build (a lean runtime, no ONNX parser beside it) or needs a GPU
    /// that is not there; [`ErrorKind::InvalidArgument`] for a dynamic dimension without a range (named), a range that
    /// is none, a target that the library does not know, an option that it does not have or a timing cache that cannot
    /// be read or written; [`ErrorKind::InvalidModel`] if the file is missing, damaged or has an operator that TensorRT
    /// does not know, with the node's name; [`ErrorKind::Execution`] if the build fails; [`ErrorKind::Cancelled`] if the
    /// caller stopped it.
    pub fn build(self, onnx: &Path) -> Result<Plan> {
        let calls = self.tensorrt.calls().map_err(|reason| {
            let message = format!("cannot build, {}: {reason}", onnx.display());
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let (product, version) = (self.tensorrt.product(), self.tensorrt.version());
        build(calls, product, version, &self.options, self.progress, onnx)
    }
}

impl fmt::Debug for TensorRtBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorRtBuilder")
            .field("tensorrt", &self.tensorrt)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The build, whatever stands behind the calls.
pub(super) fn build(
    calls: &dyn BuildCalls,
    product: Product,
    version: Version,
    options: &Options,
    progress: Option<Progress<'_>>,
    onnx: &Path,
) -> Result<Plan> {
    check(product, options, onnx)?;
    if !onnx.is_file() {
        let message = format!("cannot parse, {}: no such file", onnx.display());
        return Err(Error::new(ErrorKind::InvalidModel, message));
    }
    // TensorRT proper measures on the GPU; so does TensorRT for RTX where no other target is named.
    if options.targets.is_empty() {
        calls.check_driver().map_err(|error| {
            let message = format!("cannot build, {}: {error}", onnx.display());
            Error::new(error.kind(), message)
        })?;
    }

    let reporter = Reporter::new(progress);
    let cancelled = || {
        let message = format!("stopped while building, {}", onnx.display());
        Error::new(ErrorKind::Cancelled, message)
    };

    let mut session = Session::open(calls, onnx)?;
    const PARSING: &str = "Parsing ONNX";
    reporter.phase_start(PARSING, None, 1);
    session.parse(onnx)?;
    reporter.phase_finish(PARSING);
    if reporter.stopped() {
        return Err(cancelled());
    }

    let [inputs, mut outputs] = session.tensors()?;
    name_dimensions(&mut outputs, onnx)?;
    let dimensions = ranges(&inputs, options, onnx)?;
    let shapes = profile(&inputs, &dimensions);
    if !shapes.is_empty() {
        session.add_profile(&shapes)?;
    }
    configure(&mut session, options)?;
    if let Some(path) = &options.timing_cache {
        let bytes = timing_cache::read(path)?;
        if !session.use_timing_cache(&bytes)? {
            let path = path.display();
            tracing::warn!("the timing cache is of another TensorRT or GPU and is made anew: {path}");
            session.use_timing_cache(&[])?;
        }
    }

    let built = session.build(&reporter);
    if reporter.stopped() {
        return Err(cancelled());
    }
    let bytes = built?;
    if let Some((path, times)) = options.timing_cache.as_ref().zip(session.timing_cache_bytes()) {
        timing_cache::write(path, &times)?;
    }
    let spec = EngineSpec { inputs: describe(&inputs, onnx)?, outputs: describe(&outputs, onnx)? };
    Ok(Plan { bytes, spec, dimensions, product, version, targets: options.targets.clone() })
}

/// What can be known before anything is made.
fn check(product: Product, options: &Options, onnx: &Path) -> Result<()> {
    let refuse = |why: String| {
        let message = format!("cannot build, {}: {why}", onnx.display());
        Err(Error::new(ErrorKind::InvalidArgument, message))
    };
    for (name, DimensionRange { min, optimal, max }) in &options.dimensions {
        // Sizes are 32-bit integers in TensorRT's kernels.
        if !(min <= optimal && optimal <= max && *max >= 1 && i32::try_from(*max).is_ok()) {
            return refuse(format!(
                "dimension `{name}`: {min} to {max} with {optimal} in mind is no range; expected least ≤ likely ≤ most"
            ));
        }
    }
    let known = product.targets();
    if let Some(target) = options.targets.iter().find(|target| !known.contains(target)) {
        if known.is_empty() {
            return refuse(format!(
                "{product} builds for the GPU that is present, not for a named one ({target})"
            ));
        }
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        return refuse(format!(
            "{product} does not know compute capability {target}; it knows {}",
            known.join(", ")
        ));
    }
    if product == Product::TensorRtForRtx && options.timing_cache.is_some() {
        return refuse(format!(
            "{product} has no timing cache (it compiles kernels when an engine first runs); leave it out"
        ));
    }
    if product == Product::TensorRtForRtx && options.version_compatible {
        return refuse(format!("{product} builds no plans for other versions; leave that out"));
    }
    if product == Product::TensorRtForRtx && options.hardware_compatible {
        let instead = "name the generations of GPUs instead, it builds one plan for all that are named";
        return refuse(format!("{product} builds no plans for GPUs in general; {instead}"));
    }
    if let Some(level) = options.optimization_level.filter(|level| *level > MAX_LEVEL) {
        return refuse(format!("optimisation level {level}: expected 0 to {MAX_LEVEL}"));
    }
    Ok(())
}

fn configure(session: &mut Session<'_>, options: &Options) -> Result<()> {
    if !options.targets.is_empty() {
        let names: Vec<String> = options.targets.iter().map(ToString::to_string).collect();
        let what = format!("compute capability {}", names.join(", "));
        session.configure(&Setting::Targets(options.targets.clone()), &what)?;
    }
    if let Some(bytes) = options.workspace_bytes {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        session.configure(&Setting::WorkspaceBytes(size), &format!("a workspace of {bytes} bytes"))?;
    }
    if options.version_compatible {
        session.configure(&Setting::VersionCompatible, "compatibility with later versions")?;
    }
    if options.hardware_compatible {
        session.configure(&Setting::HardwareCompatible, "compatibility with other GPUs")?;
    }
    if let Some(level) = options.optimization_level {
        let what = format!("optimisation level {level}");
        session.configure(&Setting::OptimizationLevel(i32::from(level)), &what)?;
    }
    Ok(())
}

/// The ranges of the dynamic dimensions that the inputs have.
fn ranges(
    inputs: &[NetworkTensor],
    options: &Options,
    onnx: &Path,
) -> Result<BTreeMap<String, DimensionRange>> {
    let mut ranges = BTreeMap::new();
    for input in inputs {
        for (axis, name) in dynamic(input) {
            let Some(name) = name else {
                let message = format!(
                    "cannot build, {}: input `{}`, dimension {axis} is dynamic and has no name",
                    onnx.display(),
                    input.name
                );
                return Err(Error::new(ErrorKind::InvalidModel, message));
            };
            let Some(range) = options.dimensions.get(name) else {
                let message = format!(
                    "cannot build, {}: dimension `{name}` (input `{}`, dimension {axis}) is dynamic and has no range",
                    onnx.display(),
                    input.name
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            };
            ranges.insert(name.to_owned(), *range);
        }
    }
    Ok(ranges)
}

/// Gives the dynamic dimensions of the outputs the names that the file has for them.
fn name_dimensions(outputs: &mut [NetworkTensor], onnx: &Path) -> Result<()> {
    let mut names = onnx_outputs::read(onnx).map_err(|error| {
        let message = format!("cannot read the outputs, {}: {error}", onnx.display());
        Error::new(ErrorKind::InvalidModel, message).with_source(error)
    })?;
    for output in outputs {
        if let Some(names) = names.remove(&output.name).filter(|names| names.len() == output.sizes.len()) {
            output.names = names;
        }
    }
    Ok(())
}

/// Axes and names of the dynamic dimensions.
fn dynamic(tensor: &NetworkTensor) -> impl Iterator<Item = (usize, Option<&str>)> {
    let axes = tensor.sizes.iter().zip(&tensor.names).enumerate();
    axes.filter(|(_, (size, _))| **size < 0).map(|(axis, (_, name))| (axis, name.as_deref()))
}

/// The shapes of the inputs that have dynamic dimensions.
fn profile(inputs: &[NetworkTensor], ranges: &BTreeMap<String, DimensionRange>) -> Vec<ProfileShape> {
    let shape = |input: &NetworkTensor, of: fn(&DimensionRange) -> usize| -> Vec<i64> {
        let sizes = input.sizes.iter().zip(&input.names);
        let size =
            |(size, name): (&i64, &Option<String>)| match name.as_ref().and_then(|name| ranges.get(name)) {
                // Checked to fit 32 bits.
                Some(range) if *size < 0 => of(range) as i64,
                _ => *size,
            };
        sizes.map(size).collect()
    };
    let dynamic = inputs.iter().filter(|input| dynamic(input).next().is_some());
    let shapes = dynamic.map(|input| ProfileShape {
        name: input.name.clone(),
        min: shape(input, |range| range.min),
        optimal: shape(input, |range| range.optimal),
        max: shape(input, |range| range.max),
    });
    shapes.collect()
}

/// The specification of the tensors, by `nvinfer1::DataType`.
fn describe(tensors: &[NetworkTensor], onnx: &Path) -> Result<Vec<TensorSpec>> {
    let one = |tensor: &NetworkTensor| {
        let element_type = match tensor.data_type {
            0 => ElementType::F32,
            1 => ElementType::F16,
            3 => ElementType::I32,
            4 => ElementType::Bool,
            5 => ElementType::U8,
            8 => ElementType::I64,
            other => {
                let message = format!(
                    "cannot build, {}: `{}` has elements of TensorRT's type {other}, which no engine here takes",
                    onnx.display(),
                    tensor.name
                );
                return Err(Error::new(ErrorKind::InvalidModel, message));
            }
        };
        let dims = tensor.sizes.iter().zip(&tensor.names).enumerate();
        let dims = dims.map(|(axis, (size, name))| match (usize::try_from(*size), name) {
            (Ok(size), _) => Dim::Fixed(size),
            (Err(_), Some(name)) => Dim::named(name),
            (Err(_), None) => Dim::named(format!("{}.{axis}", tensor.name)),
        });
        Ok(TensorSpec::new(&tensor.name, element_type, dims))
    };
    tensors.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
