//! The calls of a build: from a parser to the bytes of a plan.

use super::part::{self, Create, CreateParser, INPUT, OUTPUT, Part, Sizes};
use super::{element_type, function};
use crate::c_text::text;
use crate::spec::{Dim, DimensionRange, TensorSpec};
use crate::tensorrt::library::parser_beside;
use crate::tensorrt::log::{LOG, tidy};
use crate::tensorrt::progress::Reporter;
use crate::tensorrt::request::PlanRequest;
use crate::tensorrt::version::{ComputeCapability, Product, Version};
use ocelli_error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;

/// The functions of a library that can build, and of its parser.
pub(crate) struct Functions {
    part: Part,
    create_builder: Create,
    create_parser: CreateParser,
}

impl Functions {
    /// Finds the functions, or returns why this library cannot build.
    pub(crate) fn open(part: Part, library: &Path, version: Version) -> Result<Self, String> {
        let create_builder = function(library, "createInferBuilder_INTERNAL").map_err(|_| {
            let product = Product::of(version);
            format!("{} is {product}'s lean runtime, which cannot build plans", library.display())
        })?;
        let create_parser = function(&parser_beside(library, version)?, "createNvOnnxParser_INTERNAL")?;
        // SAFETY: the functions have these types in NvInfer.h and NvOnnxParser.h, unchanged since TensorRT 8.
        unsafe {
            Ok(Self {
                part,
                create_builder: std::mem::transmute::<*const c_void, Create>(create_builder),
                create_parser: std::mem::transmute::<*const c_void, CreateParser>(create_parser),
            })
        }
    }
}

/// The build of one ONNX file.
pub(crate) struct Session {
    part: Part,
    /// Freed once, by `drop`. A session stays on its thread, and changing it takes a `&mut`.
    build: NonNull<part::Build>,
}

impl Session {
    /// Creates the objects that every build needs.
    pub(crate) fn open(functions: &Functions) -> Result<Self> {
        let Functions { part, create_builder, create_parser } = *functions;
        let mark = LOG.mark();
        let mut missing = std::ptr::null();
        // SAFETY: the functions create a builder and a parser; the result is null or owned by the caller.
        let build = unsafe { (part.0.build_open)(create_builder, create_parser, &raw mut missing) };
        NonNull::new(build).map(|build| Self { part, build }).ok_or_else(|| {
            // SAFETY: null or a string literal.
            let missing = unsafe { text(missing) }.unwrap_or_default();
            Error::unavailable(format!("TensorRT could not create its {missing}: {}", LOG.since(mark)))
        })
    }

    /// Reads a file into the network.
    pub(crate) fn parse(&mut self, path: &Path) -> Result<()> {
        let Some(text) = path.to_str().and_then(|path| CString::new(path).ok()) else {
            return Err(Error::invalid_argument("the path is not valid UTF-8, which TensorRT requires"));
        };
        let mark = LOG.mark();
        // SAFETY: the path is valid during the call.
        if unsafe { (self.part.0.build_parse)(self.build.as_ptr(), text.as_ptr()) } == 1 {
            return Ok(());
        }
        let errors = self.parse_errors();
        let reason = match errors.first() {
            None => LOG.since(mark),
            // If the error concerns no node, such as a missing weights file, only the log has the full reason.
            Some(error) if error.operator.is_empty() => {
                let mut logged = LOG.errors_since(mark);
                logged.retain(|line| !line.contains(error.description.as_str()));
                let logged =
                    if logged.is_empty() { String::new() } else { format!(" ({})", logged.join("; ")) };
                explain(&errors) + &logged
            }
            Some(_) => explain(&errors),
        };
        Err(Error::invalid_data(format!("cannot parse the ONNX file: {reason}")))
    }

    fn parse_errors(&self) -> Vec<ParseError> {
        let error = |index| {
            let mut error = part::ParseError {
                description: std::ptr::null(),
                node_name: std::ptr::null(),
                node_operator: std::ptr::null(),
                node: -1,
            };
            // SAFETY: the result is written during the call.
            let found =
                unsafe { (self.part.0.build_parse_error)(self.build.as_ptr(), index, &raw mut error) };
            (found == 1).then_some(error)
        };
        // SAFETY: the strings are null or the parser's own, and stay until it parses again.
        let copy = |error: part::ParseError| unsafe {
            ParseError {
                description: tidy(&text(error.description).unwrap_or_default()),
                node: error.node,
                node_name: text(error.node_name).unwrap_or_default(),
                operator: text(error.node_operator).unwrap_or_default(),
            }
        };
        (0..).map_while(error).map(copy).collect()
    }

    /// The inputs and outputs of the network. A dynamic dimension without a name has the empty name.
    pub(crate) fn tensors(&self) -> Result<[Vec<TensorSpec>; 2]> {
        let side = |role| {
            let tensor = |index| {
                let mut tensor = part::Tensor::NONE;
                // SAFETY: the result is written during the call.
                let found =
                    unsafe { (self.part.0.build_tensor)(self.build.as_ptr(), role, index, &raw mut tensor) };
                (found == 1).then_some(tensor)
            };
            // SAFETY: the strings belong to the network, which lives.
            (0..).map_while(tensor).map(|tensor| unsafe { specify(&tensor) }).collect::<Result<Vec<_>>>()
        };
        let tensors = [side(INPUT)?, side(OUTPUT)?];
        if tensors.iter().any(Vec::is_empty) {
            return Err(Error::invalid_data("the network has no inputs or no outputs"));
        }
        Ok(tensors)
    }

    /// Sets all options except the sizes and the timing cache.
    pub(crate) fn configure(&mut self, options: &PlanRequest) -> Result<()> {
        let mark = LOG.mark();
        let accepted = |accepted: i32, what: &str| {
            let refusal = || Error::invalid_argument(format!("TensorRT refused {what}: {}", LOG.since(mark)));
            (accepted == 1).then_some(()).ok_or_else(refusal)
        };
        let (table, build) = (self.part.0, self.build.as_ptr());
        // SAFETY: the build lives; the targets are read during the call.
        unsafe {
            if !options.targets.is_empty() {
                let number = |target: &ComputeCapability| (10 * target.major + target.minor) as i32;
                let targets: Vec<i32> = options.targets.iter().map(number).collect();
                accepted(
                    (table.build_set_targets)(build, targets.as_ptr(), targets.len()),
                    "the compute capabilities",
                )?;
            }
            if let Some(bytes) = options.workspace_bytes {
                let size = usize::try_from(bytes).unwrap_or(usize::MAX);
                accepted((table.build_set_workspace)(build, size), &format!("a workspace of {bytes} bytes"))?;
            }
            if options.version_compatible {
                accepted((table.build_set_version_compatible)(build), "version compatibility")?;
            }
            if options.hardware_compatible {
                accepted((table.build_set_hardware_compatible)(build), "hardware compatibility")?;
            }
            if let Some(level) = options.optimization_level {
                let is_set = (table.build_set_level)(build, level.into());
                accepted(is_set, &format!("optimisation level {level}"))?;
            }
        }
        Ok(())
    }

    /// Adds the optimisation profile: the sizes of the inputs that have dynamic dimensions.
    pub(crate) fn add_profile(
        &mut self,
        inputs: &[TensorSpec],
        ranges: &BTreeMap<String, DimensionRange>,
    ) -> Result<()> {
        let mark = LOG.mark();
        let dynamic =
            inputs.iter().filter(|input| input.shape.iter().any(|dim| matches!(dim, Dim::Named(_))));
        let ranges: Option<Vec<_>> = dynamic.map(|input| range(input, ranges)).collect();
        let accepted = ranges.is_some_and(|ranges| {
            let ranges: Vec<_> = ranges
                .iter()
                .map(|(name, [min, optimal, max])| part::Range {
                    name: name.as_ptr(),
                    min: *min,
                    optimal: *optimal,
                    max: *max,
                })
                .collect();
            // SAFETY: the ranges and their names are read during the call.
            let set = unsafe {
                (self.part.0.build_add_profile)(self.build.as_ptr(), ranges.as_ptr(), ranges.len())
            };
            set == 1
        });
        accepted.then_some(()).ok_or_else(|| {
            Error::invalid_argument(format!("TensorRT refused the sizes of the inputs: {}", LOG.since(mark)))
        })
    }

    /// Uses a timing cache with these bytes, which may be empty. Returns `false` if the bytes are corrupt or come from
    /// another version or GPU.
    pub(crate) fn use_timing_cache(&mut self, bytes: &[u8]) -> Result<bool> {
        let mark = LOG.mark();
        // SAFETY: the bytes are copied.
        let used = unsafe {
            (self.part.0.build_use_timing_cache)(self.build.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        };
        if used < 0 && bytes.is_empty() {
            let message = format!("TensorRT could not create a timing cache: {}", LOG.since(mark));
            return Err(Error::execution(message));
        }
        Ok(used == 1)
    }

    /// The bytes of the timing cache, to be written after a build.
    pub(crate) fn timing_cache_bytes(&self) -> Option<Vec<u8>> {
        // SAFETY: the caller owns the memory.
        let bytes = unsafe { self.part.take((self.part.0.build_timing_cache)(self.build.as_ptr())) };
        bytes.filter(|bytes| !bytes.is_empty())
    }

    /// Builds, and returns the bytes of the plan.
    pub(crate) fn build(&mut self, reporter: &Reporter<'_>) -> Result<Vec<u8>> {
        let mark = LOG.mark();
        let progress = part::Progress {
            caller: (&raw const *reporter).cast_mut().cast(),
            start: phase_start,
            step: step_complete,
            finish: phase_finish,
        };
        // SAFETY: the reporter outlives the call, after which it is not called, and may be called from any thread. The caller
        // owns the memory.
        let plan =
            unsafe { self.part.take((self.part.0.build_run)(self.build.as_ptr(), &raw const progress)) };
        reporter.resume_panic();
        plan.filter(|plan| !plan.is_empty()).ok_or_else(|| Error::execution(LOG.since(mark)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: made by `open`, and not used afterwards.
        unsafe { (self.part.0.build_free)(self.build.as_ptr()) }
    }
}

/// The smallest, the best and the largest sizes of an input; `None` for more than eight, or for a name that C cannot have.
fn range(input: &TensorSpec, ranges: &BTreeMap<String, DimensionRange>) -> Option<(CString, [Sizes; 3])> {
    let name = CString::new(input.name.as_str()).ok()?;
    let sizes = |size: fn(&DimensionRange) -> usize| {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => Some(*size as i64),
            // The options were checked to fit 32 bits.
            Dim::Named(name) => ranges.get(name).map(|range| size(range) as i64),
        };
        Sizes::of(input.shape.iter().map(size).collect::<Option<Vec<i64>>>()?)
    };
    Some((name, [sizes(|range| range.min)?, sizes(|range| range.optimal)?, sizes(|range| range.max)?]))
}

/// # Safety
/// The strings of the tensor are null or valid during the call.
unsafe fn specify(tensor: &part::Tensor) -> Result<TensorSpec> {
    let invalid = |why: String| Error::invalid_data(why);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let name = text(tensor.name).unwrap_or_default();
        let sizes = tensor.shape.get().ok_or_else(|| invalid(format!("`{name}` has no shape")))?;
        let shape = tensor.dimensions.iter().zip(sizes).map(|(named, &size)| match usize::try_from(size) {
            Ok(size) => Dim::Fixed(size),
            Err(_) => Dim::named(text(*named).unwrap_or_default()),
        });
        let element_type =
            element_type(tensor.element_type).map_err(|why| invalid(format!("`{name}`: {why}")))?;
        Ok(TensorSpec::new(name.clone(), element_type, shape))
    }
}

/// An error of the ONNX parser.
struct ParseError {
    description: String,
    /// The node's index; negative if the error concerns no node.
    node: i32,
    node_name: String,
    operator: String,
}

/// The first error, and how many more there are.
fn explain(errors: &[ParseError]) -> String {
    let Some(error) = errors.first() else { return String::new() };
    let node = match (error.node_name.as_str(), error.operator.as_str(), error.node) {
        ("", "", _) => String::new(),
        ("", operator, number) => format!("node {number} ({operator}): "),
        (name, "", _) => format!("node `{name}`: "),
        (name, operator, _) => format!("node `{name}` ({operator}): "),
    };
    let more =
        if errors.len() > 1 { format!(" (and {} more errors)", errors.len() - 1) } else { String::new() };
    format!("{node}{}{more}", error.description)
}

unsafe extern "C" fn phase_start(
    reporter: *mut c_void,
    phase: *const c_char,
    parent: *const c_char,
    steps: i32,
) {
    // SAFETY: the reporter is the one of the build, which outlives it, and the strings are valid during the call.
    let (reporter, phase, parent) =
        unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default(), text(parent)) };
    reporter.phase_start(&phase, parent.as_deref(), steps);
}

unsafe extern "C" fn step_complete(reporter: *mut c_void, phase: *const c_char, step: i32) -> i32 {
    // SAFETY: as above.
    let (reporter, phase) = unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default()) };
    reporter.step_complete(&phase, step).into()
}

unsafe extern "C" fn phase_finish(reporter: *mut c_void, phase: *const c_char) {
    // SAFETY: as above.
    let (reporter, phase) = unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default()) };
    reporter.phase_finish(&phase);
}
