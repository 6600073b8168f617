//! The calls of a build: from a parser to the bytes of a plan.

use super::{Create, Owned, create, element_type, function, logger, sizes, take_memory, text};
use crate::spec::{Dim, DimensionRange, TensorSpec};
use crate::tensorrt::builder::Options;
use crate::tensorrt::library::parser_beside;
use crate::tensorrt::log::{LOG, tidy};
use crate::tensorrt::progress::Reporter;
use crate::tensorrt::version::{Product, Version};
use ocelli_error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::pin::Pin;
use trtx::trtx_sys::{self, nvinfer1, nvonnxparser};

/// `createNvOnnxParser_INTERNAL`: (network, logger, version).
type CreateParser = unsafe extern "C" fn(*mut c_void, *mut c_void, i32) -> *mut c_void;

/// The verbosity with which a file is parsed: warnings and errors.
const VERBOSITY: c_int = 2;

/// The functions of a library that can build, and of its parser.
pub(in crate::tensorrt) struct Functions {
    create_builder: Create,
    create_parser: CreateParser,
}

impl Functions {
    /// Finds the functions, or returns why this library cannot build.
    pub(in crate::tensorrt) fn open(
        library: &Path,
        product: Product,
        version: Version,
    ) -> Result<Self, String> {
        let create_builder = function(library, "createInferBuilder_INTERNAL").map_err(|_| {
            format!("{} is {product}'s lean runtime, which cannot build plans", library.display())
        })?;
        let create_parser =
            function(&parser_beside(library, product, version)?, "createNvOnnxParser_INTERNAL")?;
        // SAFETY: the functions have these types in NvInfer.h and NvOnnxParser.h, unchanged since TensorRT 8.
        unsafe {
            Ok(Self {
                create_builder: std::mem::transmute::<*const c_void, Create>(create_builder),
                create_parser: std::mem::transmute::<*const c_void, CreateParser>(create_parser),
            })
        }
    }
}

/// The build of one ONNX file.
///
/// Fields are dropped in this order: every object before the one that created it (the parser holds the weights that the
/// network refers to, optimisation profiles belong to the builder), and the configuration before the timing cache.
pub(in crate::tensorrt) struct Session {
    parser: Owned<nvonnxparser::IParser>,
    network: Owned<nvinfer1::INetworkDefinition>,
    config: Owned<nvinfer1::IBuilderConfig>,
    builder: Owned<nvinfer1::IBuilder>,
    timing_cache: Option<Owned<nvinfer1::ITimingCache>>,
}

impl Session {
    /// Creates the objects that every build needs.
    pub(in crate::tensorrt) fn open(functions: &Functions) -> Result<Self> {
        let mark = LOG.mark();
        let missing = |what: &str| {
            let message = format!("TensorRT could not create its {what}: {}", LOG.since(mark));
            Error::new(ErrorKind::Unavailable, message)
        };
        // SAFETY: the function creates a builder. What the builder creates is null or owned by the caller. The network
        // outlives the parser (the order of the fields), and no network flag is needed: all networks are strongly typed.
        unsafe {
            let mut builder =
                create::<nvinfer1::IBuilder>(functions.create_builder).ok_or_else(|| missing("builder"))?;
            let config = Owned::new(builder.get_mut().createBuilderConfig());
            let config = config.ok_or_else(|| missing("configuration"))?;
            let mut network =
                Owned::new(builder.get_mut().createNetworkV2(0)).ok_or_else(|| missing("network"))?;
            let address: *mut nvinfer1::INetworkDefinition = network.get_mut().get_unchecked_mut();
            let version = trtx_sys::get_nvonnxparser_version() as i32;
            let parser = Owned::new((functions.create_parser)(address.cast(), logger(), version).cast());
            let parser = parser.ok_or_else(|| missing("ONNX parser"))?;
            Ok(Self { parser, network, config, builder, timing_cache: None })
        }
    }

    /// Reads a file into the network.
    pub(in crate::tensorrt) fn parse(&mut self, path: &Path) -> Result<()> {
        let Some(text) = path.to_str().and_then(|path| CString::new(path).ok()) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the path is not valid UTF-8, which TensorRT requires",
            ));
        };
        let mark = LOG.mark();
        // SAFETY: the path is valid during the call.
        if unsafe { self.parser.get_mut().parseFromFile(text.as_ptr(), VERBOSITY.into()) } {
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
        Err(Error::new(ErrorKind::InvalidData, format!("cannot parse the ONNX file: {reason}")))
    }

    fn parse_errors(&mut self) -> Vec<ParseError> {
        // SAFETY: the parser lives; its errors are its own and valid until it parses again.
        unsafe {
            let parser: *mut nvonnxparser::IParser = self.parser.get_mut().get_unchecked_mut();
            (0..trtx_sys::parser_get_nb_errors(parser.cast()))
                .map(|index| trtx_sys::parser_get_error(parser.cast(), index))
                .filter(|error| !error.is_null())
                .map(|error| ParseError::of(error))
                .collect()
        }
    }

    /// The inputs and outputs of the network. A dynamic dimension without a name has the empty name.
    pub(in crate::tensorrt) fn tensors(&self) -> Result<[Vec<TensorSpec>; 2]> {
        let network = self.network.get();
        let inputs = (0..network.getNbInputs()).map(|index| network.getInput(index));
        let outputs = (0..network.getNbOutputs()).map(|index| network.getOutput(index));
        // SAFETY: tensors belong to the network, which lives.
        let specify = |tensor| unsafe { specify(tensor) };
        let tensors =
            [inputs.map(specify).collect::<Result<Vec<_>>>()?, outputs.map(specify).collect::<Result<_>>()?];
        if tensors.iter().any(Vec::is_empty) {
            return Err(Error::new(ErrorKind::InvalidData, "the network has no inputs or no outputs"));
        }
        Ok(tensors)
    }

    /// Sets all options except the sizes and the timing cache.
    pub(in crate::tensorrt) fn configure(&mut self, options: &Options) -> Result<()> {
        let mark = LOG.mark();
        let accepted = |accepted: bool, what: &str| {
            let refusal = || {
                let message = format!("TensorRT refused {what}: {}", LOG.since(mark));
                Error::new(ErrorKind::InvalidArgument, message)
            };
            accepted.then_some(()).ok_or_else(refusal)
        };
        let mut config = self.config.get_mut();
        if !options.targets.is_empty() {
            accepted(set_targets(config.as_mut(), &options.targets), "the compute capabilities")?;
        }
        if let Some(bytes) = options.workspace_bytes {
            let (pool, size) =
                (trtx_sys::MemoryPoolType::kWORKSPACE, usize::try_from(bytes).unwrap_or(usize::MAX));
            config.as_mut().setMemoryPoolLimit(pool.into(), size);
            let is_set = config.getMemoryPoolLimit(pool.into()) == size;
            accepted(is_set, &format!("a workspace of {bytes} bytes"))?;
        }
        if options.version_compatible {
            let flag = trtx_sys::BuilderFlag::kVERSION_COMPATIBLE;
            config.as_mut().setFlag(flag.into());
            accepted(config.getFlag(flag.into()), "version compatibility")?;
        }
        if options.hardware_compatible {
            let level = trtx_sys::HardwareCompatibilityLevel::kAMPERE_PLUS;
            config.as_mut().setHardwareCompatibilityLevel(level.into());
            let is_set =
                trtx_sys::HardwareCompatibilityLevel::from(config.getHardwareCompatibilityLevel()) == level;
            accepted(is_set, "hardware compatibility")?;
        }
        if let Some(level) = options.optimization_level.map(i32::from) {
            config.as_mut().setBuilderOptimizationLevel(level);
            let is_set = config.getBuilderOptimizationLevel() == level;
            accepted(is_set, &format!("optimisation level {level}"))?;
        }
        Ok(())
    }

    /// Adds the optimisation profile: the sizes of the inputs that have dynamic dimensions.
    pub(in crate::tensorrt) fn add_profile(
        &mut self,
        inputs: &[TensorSpec],
        ranges: &BTreeMap<String, DimensionRange>,
    ) -> Result<()> {
        let mark = LOG.mark();
        let profile = self.builder.get_mut().createOptimizationProfile();
        // SAFETY: null or a profile, which belongs to the builder and is not moved.
        let profile = unsafe { profile.as_mut().map(|profile| Pin::new_unchecked(profile)) };
        let accepted = profile.is_some_and(|mut profile| {
            inputs.iter().all(|input| set_range(profile.as_mut(), input, ranges))
                && profile.isValid()
                // SAFETY: the profile belongs to the builder that made this configuration.
                && unsafe { self.config.get_mut().addOptimizationProfile(&raw const *profile) } >= 0
        });
        accepted.then_some(()).ok_or_else(|| {
            let message = format!("TensorRT refused the sizes of the inputs: {}", LOG.since(mark));
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }

    /// Uses a timing cache with these bytes, which may be empty. Returns `false` if the bytes are corrupt or come from
    /// another version or GPU.
    pub(in crate::tensorrt) fn use_timing_cache(&mut self, bytes: &[u8]) -> Result<bool> {
        let mark = LOG.mark();
        // SAFETY: the bytes are copied; the result is null or owned by the caller.
        let cache =
            unsafe { Owned::new(self.config.get().createTimingCache(bytes.as_ptr().cast(), bytes.len())) };
        let Some(cache) = cache else {
            if bytes.is_empty() {
                let message = format!("TensorRT could not create a timing cache: {}", LOG.since(mark));
                return Err(Error::new(ErrorKind::Execution, message));
            }
            return Ok(false);
        };
        // The cache outlives the configuration (the order of the fields), which does not keep one that it refused.
        let fits = self.config.get_mut().setTimingCache(cache.get(), false);
        self.timing_cache = fits.then_some(cache);
        Ok(fits)
    }

    /// The bytes of the timing cache, to be written after a build.
    pub(in crate::tensorrt) fn timing_cache_bytes(&self) -> Option<Vec<u8>> {
        // SAFETY: the cache lives, and the caller owns the memory.
        let bytes = unsafe { take_memory(serialize(self.timing_cache.as_ref()?.get())) };
        bytes.filter(|bytes| !bytes.is_empty())
    }

    /// Builds, and returns the bytes of the plan.
    pub(in crate::tensorrt) fn build(&mut self, reporter: &Reporter<'_>) -> Result<Vec<u8>> {
        let mark = LOG.mark();
        // SAFETY: the reporter outlives the monitor, which is removed from the configuration and destroyed here. The
        // caller owns the memory.
        let plan = unsafe {
            let user_data = (&raw const *reporter).cast_mut().cast();
            let monitor =
                trtx_sys::trtx_create_progress_monitor(user_data, phase_start, step_complete, phase_finish);
            if monitor.is_null() {
                return Err(Error::new(ErrorKind::Execution, "TensorRT could not create a progress monitor"));
            }
            let mut config = self.config.get_mut();
            config.as_mut().setProgressMonitor(monitor);
            let plan = self.builder.get_mut().buildSerializedNetwork(self.network.get_mut(), config.as_mut());
            config.setProgressMonitor(std::ptr::null_mut());
            trtx_sys::trtx_destroy_progress_monitor(monitor);
            take_memory(plan)
        };
        reporter.resume_panic();
        plan.filter(|plan| !plan.is_empty()).ok_or_else(|| Error::new(ErrorKind::Execution, LOG.since(mark)))
    }
}

#[cfg(feature = "tensorrt-rtx")]
fn set_targets(
    mut config: Pin<&mut nvinfer1::IBuilderConfig>,
    targets: &[crate::tensorrt::ComputeCapability],
) -> bool {
    use trtx_sys::ComputeCapability::{kSM75, kSM80, kSM86, kSM89, kSM120, kSM121};
    let Ok(count) = i32::try_from(targets.len()) else { return false };
    config.as_mut().setNbComputeCapabilities(count)
        && (0..count).zip(targets).all(|(index, target)| {
            let target = match (target.major, target.minor) {
                (7, 5) => kSM75,
                (8, 0) => kSM80,
                (8, 6) => kSM86,
                (8, 9) => kSM89,
                (12, 0) => kSM120,
                (12, 1) => kSM121,
                _ => return false,
            };
            config.as_mut().setComputeCapability(target.into(), index)
        })
}

/// TensorRT proper builds for the GPU of this machine only.
#[cfg(not(feature = "tensorrt-rtx"))]
fn set_targets(_: Pin<&mut nvinfer1::IBuilderConfig>, _: &[crate::tensorrt::ComputeCapability]) -> bool {
    false
}

/// Sets the sizes of an input, if it has dynamic dimensions.
fn set_range(
    mut profile: Pin<&mut nvinfer1::IOptimizationProfile>,
    input: &TensorSpec,
    ranges: &BTreeMap<String, DimensionRange>,
) -> bool {
    use trtx_sys::OptProfileSelector::{kMAX, kMIN, kOPT};
    if input.shape.iter().all(|dim| matches!(dim, Dim::Fixed(_))) {
        return true;
    }
    let Ok(name) = CString::new(input.name.as_str()) else { return false };
    let sizes: [(_, fn(&DimensionRange) -> usize); 3] =
        [(kMIN, |range| range.min), (kOPT, |range| range.optimal), (kMAX, |range| range.max)];
    sizes.into_iter().all(|(selector, size)| {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => Some(*size as i64),
            // The options were checked to fit 32 bits.
            Dim::Named(name) => ranges.get(name).map(|range| size(range) as i64),
        };
        let sizes: Option<Vec<i64>> = input.shape.iter().map(size).collect();
        sizes.is_some_and(|sizes| {
            let dims = nvinfer1::Dims64::from_slice(&sizes);
            // SAFETY: the name and the sizes are valid during the call.
            unsafe { profile.as_mut().setDimensions(name.as_ptr(), selector.into(), &dims) }
        })
    })
}

/// # Safety
/// `tensor` is null or a tensor of a network that lives during the call.
unsafe fn specify(tensor: *mut nvinfer1::ITensor) -> Result<TensorSpec> {
    let invalid = |why: String| Error::new(ErrorKind::InvalidData, why);
    // SAFETY: guaranteed by the caller; names belong to the network.
    unsafe {
        let tensor = tensor.as_ref().ok_or_else(|| invalid("the network has no such tensor".into()))?;
        let name = text(tensor.getName()).unwrap_or_default();
        let dims = tensor.getDimensions();
        let sizes = sizes(&dims).ok_or_else(|| invalid(format!("`{name}` has no shape")))?;
        let shape = (0..).zip(sizes).map(|(axis, &size)| match usize::try_from(size) {
            Ok(size) => Dim::Fixed(size),
            Err(_) => Dim::named(text(tensor.getDimensionName(axis)).unwrap_or_default()),
        });
        let element_type =
            element_type(tensor.getType()).map_err(|why| invalid(format!("`{name}`: {why}")))?;
        Ok(TensorSpec::new(name.clone(), element_type, shape))
    }
}

/// An error of the ONNX parser.
struct ParseError {
    description: String,
    /// The node's index; negative if the error concerns no node.
    node: c_int,
    node_name: String,
    operator: String,
}

impl ParseError {
    /// Reads an `nvonnxparser::IParserError`, for whose methods there are no bindings.
    ///
    /// # Safety
    /// `error` is an `IParserError` of a parser that lives during the call.
    unsafe fn of(error: *const c_void) -> Self {
        /// The virtual functions, in the order of their declaration.
        #[repr(C)]
        struct Table {
            code: unsafe extern "C" fn(*const c_void) -> c_int,
            description: unsafe extern "C" fn(*const c_void) -> *const c_char,
            file: unsafe extern "C" fn(*const c_void) -> *const c_char,
            line: unsafe extern "C" fn(*const c_void) -> c_int,
            function: unsafe extern "C" fn(*const c_void) -> *const c_char,
            node: unsafe extern "C" fn(*const c_void) -> c_int,
            node_name: unsafe extern "C" fn(*const c_void) -> *const c_char,
            node_operator: unsafe extern "C" fn(*const c_void) -> *const c_char,
        }
        // SAFETY: guaranteed by the caller; an object of a class with virtual functions begins with the address of their table
        // (Itanium C++ ABI, 2.5.2), and the strings belong to the error.
        unsafe {
            let table = &**error.cast::<*const Table>();
            Self {
                description: tidy(&text((table.description)(error)).unwrap_or_default()),
                node: (table.node)(error),
                node_name: text((table.node_name)(error)).unwrap_or_default(),
                operator: text((table.node_operator)(error)).unwrap_or_default(),
            }
        }
    }
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

/// `ITimingCache::serialize`, which the bindings lack: it calls the implementation that the object points to, whose table
/// begins with two destructors.
///
/// # Safety
/// The cache is one that TensorRT made.
unsafe fn serialize(cache: &nvinfer1::ITimingCache) -> *mut nvinfer1::IHostMemory {
    #[repr(C)]
    struct Cache {
        table: *const c_void,
        implementation: *mut *const Table,
    }
    #[repr(C)]
    struct Table {
        destructors: [*const c_void; 2],
        serialize: unsafe extern "C" fn(*const c_void) -> *mut nvinfer1::IHostMemory,
    }
    // SAFETY: the layout of `ITimingCache` and `apiv::VTimingCache` in NvInfer.h and NvInferImpl.h (Itanium C++ ABI, 2.4 and
    // 2.5.2).
    unsafe {
        let implementation = (*(&raw const *cache).cast::<Cache>()).implementation;
        if implementation.is_null() {
            return std::ptr::null_mut();
        }
        ((**implementation).serialize)(implementation.cast())
    }
}

unsafe extern "system" fn phase_start(
    reporter: *mut c_void,
    phase: *const c_char,
    parent: *const c_char,
    steps: i32,
) {
    // SAFETY: TensorRT passes the reporter that it was given, which outlives the build, and strings that are valid during
    // the call.
    let (reporter, phase, parent) =
        unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default(), text(parent)) };
    reporter.phase_start(&phase, parent.as_deref(), steps);
}

unsafe extern "system" fn step_complete(reporter: *mut c_void, phase: *const c_char, step: i32) -> bool {
    // SAFETY: as above.
    let (reporter, phase) = unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default()) };
    reporter.step_complete(&phase, step)
}

unsafe extern "system" fn phase_finish(reporter: *mut c_void, phase: *const c_char) {
    // SAFETY: as above.
    let (reporter, phase) = unsafe { (&*reporter.cast::<Reporter<'_>>(), text(phase).unwrap_or_default()) };
    reporter.phase_finish(&phase);
}
