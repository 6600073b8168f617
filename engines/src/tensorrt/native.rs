//! The library behind [`BuildCalls`], through the C++ bindings of `trtx-sys`.
//!
//! Not through `trtx`: of a parser's errors it keeps the first one's text and drops the node, it has no timing cache,
//! its progress monitor names a phase as its own parent, and its profiles are destroyed twice, by it and by the builder
//! that owns them. `trtx` itself is bound to the same library here, for what runs plans.

use super::Product;
use super::calls::{
    BuildCalls, Builder, Class, Config, Handle, Monitor, Network, NetworkTensor, ParseError, Parser,
    ProfileShape, Setting, TimingCache,
};
use super::log::{LOG, Log, Severity};
use crate::cuda::CudaDevice;
use crate::error::{Error, ErrorKind, Result};
use cxx::memory::{UniquePtr, UniquePtrTarget};
use libloading::Library;
use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use trtx::trtx_sys::{self, nvinfer1, nvonnxparser};

#[cfg(windows)]
compile_error!(
    "TensorRT's C++ interface is called as the Itanium C++ ABI lays it out, which Windows does not use"
);

/// `createInferBuilder_INTERNAL(logger, version)`.
type CreateBuilder = unsafe extern "C" fn(*mut c_void, i32) -> *mut c_void;
/// `createNvOnnxParser_INTERNAL(network, logger, version)`.
type CreateParser = unsafe extern "C" fn(*mut c_void, *mut c_void, i32) -> *mut c_void;

/// The functions that are looked up by name; everything else is a method of what they make.
struct Native {
    create_builder: CreateBuilder,
    create_parser: CreateParser,
}

/// Makes `trtx`, through which plans are run, use this library.
pub(super) fn bind(library: &Path) -> Result<(), String> {
    trtx::dynamically_load_tensorrt(Some(library)).map_err(|error| error.to_string())
}

/// Opens the builder's side, or says why there is none.
pub(super) fn open(product: Product, library: &Path, parser: &Path) -> Result<Box<dyn BuildCalls>, String> {
    let symbol = |path: &Path, name: &str| {
        // SAFETY: loading runs the library's initialisers; `library` was loaded and asked its version before, and
        // `parser` lies beside it under the name that NVIDIA gives it.
        let opened = unsafe { Library::new(path) }.map_err(|error| super::probe::one_line(&error))?;
        // Never unloaded: TensorRT has threads and statics of its own.
        let opened: &'static Library = Box::leak(Box::new(opened));
        // SAFETY: only the address is taken here; whoever calls it gives it its type.
        let address = unsafe { opened.get::<*const c_void>(name.as_bytes()) };
        let address = address.map_err(|_| format!("{} has no `{name}`", path.display()))?;
        Ok::<_, String>(*address)
    };
    let create_builder = symbol(library, "createInferBuilder_INTERNAL").map_err(|_| {
        format!("{} runs plans and builds none ({product}'s lean runtime)", library.display())
    })?;
    let create_parser = symbol(parser, "createNvOnnxParser_INTERNAL")?;
    // SAFETY: the symbols have these types in NvInfer.h and NvOnnxParser.h, unchanged since TensorRT 8.
    let native = unsafe {
        Native {
            create_builder: std::mem::transmute::<*const c_void, CreateBuilder>(create_builder),
            create_parser: std::mem::transmute::<*const c_void, CreateParser>(create_parser),
        }
    };
    Ok(Box::new(native))
}

/// The one logger of the process: TensorRT keeps the first that it is given.
///
/// Null where there is no memory for it.
pub(super) fn logger() -> *mut c_void {
    unsafe extern "C" fn take(_: *mut c_void, severity: i32, message: *const c_char) {
        let severity = match severity {
            0 => Severity::InternalError,
            1 => Severity::Error,
            2 => Severity::Warning,
            3 => Severity::Info,
            _ => Severity::Verbose,
        };
        // SAFETY: TensorRT passes a string that lasts for the call.
        if let Some(message) = unsafe { text(message) } {
            LOG.take(severity, &message);
        }
    }
    static LOGGER: OnceLock<usize> = OnceLock::new();
    let address = LOGGER.get_or_init(|| {
        // SAFETY: the callback takes no user data; the bridge is never destroyed.
        unsafe {
            let bridge = trtx_sys::create_rust_logger_bridge(take, std::ptr::null_mut());
            if bridge.is_null() { 0 } else { trtx_sys::get_logger_interface(bridge) as usize }
        }
    });
    *address as *mut c_void
}

/// Copies a C string; `None` for null.
///
/// # Safety
/// `pointer` is null or a string that ends with a null byte.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: as the caller says.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// The object of a handle, to be changed.
///
/// # Safety
/// The handle was made for a `C` and is borrowed exclusively for as long as the result lives.
unsafe fn pinned<T, C>(handle: &mut Handle<T>) -> Pin<&mut C> {
    // SAFETY: the address is that of a `C`, which C++ never moves.
    unsafe { Pin::new_unchecked(&mut *(handle.address() as *mut C)) }
}

/// The object of a handle, to be looked at.
///
/// # Safety
/// The handle was made for a `C`.
unsafe fn shared<T, C>(handle: &Handle<T>) -> &C {
    // SAFETY: as the caller says.
    unsafe { &*(handle.address() as *const C) }
}

impl BuildCalls for Native {
    fn log(&self) -> &Log {
        &LOG
    }

    fn check_driver(&self) -> Result<()> {
        match CudaDevice::count()? {
            0 => Err(Error::new(ErrorKind::Unavailable, "cannot use an NVIDIA GPU: the driver has none")),
            _ => Ok(()),
        }
    }

    fn create_builder(&self) -> Option<Handle<Builder>> {
        let logger = logger();
        if logger.is_null() {
            return None;
        }
        // SAFETY: the logger lives as long as the process; the version is that of the headers the bindings were made
        // of, and the library answers null if it does not go with them.
        let builder = unsafe { (self.create_builder)(logger, trtx_sys::get_tensorrt_version() as i32) };
        Handle::new(builder as usize)
    }

    fn create_network(&self, builder: &mut Handle<Builder>) -> Option<Handle<Network>> {
        // SAFETY: a builder's handle. The flags are empty: every network is strongly typed in these versions, the flag
        // that says so is deprecated and ignored.
        let builder = unsafe { pinned::<_, nvinfer1::IBuilder>(builder) };
        Handle::new(builder.createNetworkV2(0) as usize)
    }

    fn create_config(&self, builder: &mut Handle<Builder>) -> Option<Handle<Config>> {
        // SAFETY: a builder's handle.
        let builder = unsafe { pinned::<_, nvinfer1::IBuilder>(builder) };
        Handle::new(builder.createBuilderConfig() as usize)
    }

    fn create_parser(&self, network: &mut Handle<Network>) -> Option<Handle<Parser>> {
        // SAFETY: the network outlives the parser, which the owner sees to, and so does the logger.
        let parser = unsafe {
            let version = trtx_sys::get_nvonnxparser_version() as i32;
            (self.create_parser)(network.address() as *mut c_void, logger(), version)
        };
        Handle::new(parser as usize)
    }

    fn parse_file(&self, parser: &mut Handle<Parser>, path: &CStr) -> bool {
        // SAFETY: a parser's handle; the path lasts for the call. The verbosity is the parser's own, of warnings up.
        unsafe {
            pinned::<_, nvonnxparser::IParser>(parser)
                .parseFromFile(path.as_ptr(), (Severity::Warning as c_int).into())
        }
    }

    fn parse_errors(&self, parser: &Handle<Parser>) -> Vec<ParseError> {
        let parser = parser.address() as *mut c_void;
        // SAFETY: a parser's handle; errors belong to the parser and last until it parses again.
        unsafe {
            let errors = (0..trtx_sys::parser_get_nb_errors(parser))
                .map(|index| trtx_sys::parser_get_error(parser, index))
                .filter(|error| !error.is_null());
            errors.map(|error| parse_error(error)).collect()
        }
    }

    fn tensors(&self, network: &Handle<Network>) -> [Vec<Option<NetworkTensor>>; 2] {
        // SAFETY: a network's handle; tensors belong to the network.
        let network = unsafe { shared::<_, nvinfer1::INetworkDefinition>(network) };
        let inputs = (0..network.getNbInputs()).map(|index| network.getInput(index));
        let outputs = (0..network.getNbOutputs()).map(|index| network.getOutput(index));
        // SAFETY: as above.
        unsafe {
            [
                inputs.map(|tensor| describe(tensor)).collect(),
                outputs.map(|tensor| describe(tensor)).collect(),
            ]
        }
    }

    fn configure(&self, config: &mut Handle<Config>, setting: &Setting) -> bool {
        // SAFETY: a configuration's handle.
        let mut config = unsafe { pinned::<_, nvinfer1::IBuilderConfig>(config) };
        match setting {
            Setting::Targets(targets) => set_targets(config, targets),
            Setting::WorkspaceBytes(bytes) => {
                let pool = trtx_sys::MemoryPoolType::kWORKSPACE;
                config.as_mut().setMemoryPoolLimit(pool.into(), *bytes);
                config.getMemoryPoolLimit(pool.into()) == *bytes
            }
            Setting::VersionCompatible => {
                let flag = trtx_sys::BuilderFlag::kVERSION_COMPATIBLE;
                config.as_mut().setFlag(flag.into());
                config.getFlag(flag.into())
            }
            Setting::HardwareCompatible => {
                let level = trtx_sys::HardwareCompatibilityLevel::kAMPERE_PLUS;
                config.as_mut().setHardwareCompatibilityLevel(level.into());
                trtx_sys::HardwareCompatibilityLevel::from(config.getHardwareCompatibilityLevel()) == level
            }
            Setting::OptimizationLevel(level) => {
                config.as_mut().setBuilderOptimizationLevel(*level);
                config.getBuilderOptimizationLevel() == *level
            }
        }
    }

    fn add_profile(
        &self,
        builder: &mut Handle<Builder>,
        config: &mut Handle<Config>,
        shapes: &[ProfileShape],
    ) -> bool {
        use trtx_sys::OptProfileSelector::{kMAX, kMIN, kOPT};
        // SAFETY: handles of these classes.
        let (builder, config) = unsafe {
            (pinned::<_, nvinfer1::IBuilder>(builder), pinned::<_, nvinfer1::IBuilderConfig>(config))
        };
        let profile = builder.createOptimizationProfile();
        // SAFETY: null or a profile that belongs to the builder.
        let Some(profile) = (unsafe { profile.as_mut() }) else { return false };
        // SAFETY: C++ does not move it.
        let mut profile = unsafe { Pin::new_unchecked(profile) };
        for shape in shapes {
            let Ok(name) = std::ffi::CString::new(shape.name.as_str()) else { return false };
            for (selector, sizes) in [(kMIN, &shape.min), (kOPT, &shape.optimal), (kMAX, &shape.max)] {
                let dims = trtx_sys::Dims64::from_slice(sizes);
                // SAFETY: the name lasts for the call.
                if !unsafe { profile.as_mut().setDimensions(name.as_ptr(), selector.into(), &dims) } {
                    return false;
                }
            }
        }
        // SAFETY: the profile belongs to the builder that the configuration is of.
        profile.isValid() && unsafe { config.addOptimizationProfile(&raw const *profile) } >= 0
    }

    fn create_timing_cache(&self, config: &Handle<Config>, bytes: &[u8]) -> Option<Handle<TimingCache>> {
        // SAFETY: a configuration's handle; the bytes are copied. No bytes at all make a new cache.
        let cache = unsafe {
            shared::<_, nvinfer1::IBuilderConfig>(config)
                .createTimingCache(bytes.as_ptr().cast(), bytes.len())
        };
        Handle::new(cache as usize)
    }

    fn set_timing_cache(&self, config: &mut Handle<Config>, cache: &Handle<TimingCache>) -> bool {
        // SAFETY: handles of these classes; the cache outlives the configuration, which the owner sees to.
        unsafe { pinned::<_, nvinfer1::IBuilderConfig>(config).setTimingCache(shared(cache), false) }
    }

    fn timing_cache_bytes(&self, cache: &Handle<TimingCache>) -> Option<Vec<u8>> {
        // SAFETY: a timing cache's handle, and memory that nobody else owns.
        unsafe { take_memory(serialize(cache)) }
    }

    fn build(
        &self,
        builder: &mut Handle<Builder>,
        network: &mut Handle<Network>,
        config: &mut Handle<Config>,
        monitor: &dyn Monitor,
    ) -> Option<Vec<u8>> {
        let bridge = Bridge { monitor, panic: Mutex::new(None) };
        // SAFETY: the bridge lives to the end of this function; the monitor is taken off the configuration and
        // destroyed before that. Handles of these classes.
        let plan = unsafe {
            let user_data = (&raw const bridge).cast_mut().cast();
            let monitor =
                trtx_sys::trtx_create_progress_monitor(user_data, phase_start, step_complete, phase_finish);
            if monitor.is_null() {
                return None;
            }
            let mut config = pinned::<_, nvinfer1::IBuilderConfig>(config);
            config.as_mut().setProgressMonitor(monitor);
            let plan = pinned::<_, nvinfer1::IBuilder>(builder)
                .buildSerializedNetwork(pinned::<_, nvinfer1::INetworkDefinition>(network), config.as_mut());
            config.setProgressMonitor(std::ptr::null_mut());
            trtx_sys::trtx_destroy_progress_monitor(monitor);
            take_memory(plan)
        };
        if let Some(payload) = bridge.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            panic::resume_unwind(payload);
        }
        plan
    }

    fn destroy(&self, class: Class, address: usize) {
        unsafe fn delete<T: UniquePtrTarget>(address: usize) {
            // SAFETY: as the caller says; C++'s `delete`.
            drop(unsafe { UniquePtr::from_raw(address as *mut T) });
        }
        // SAFETY: the address is an object of this class, and the owner gives it back once.
        unsafe {
            match class {
                Class::Builder => delete::<nvinfer1::IBuilder>(address),
                Class::Network => delete::<nvinfer1::INetworkDefinition>(address),
                Class::Parser => delete::<nvonnxparser::IParser>(address),
                Class::Config => delete::<nvinfer1::IBuilderConfig>(address),
                Class::TimingCache => delete::<nvinfer1::ITimingCache>(address),
            }
        }
    }
}

#[cfg(feature = "tensorrt-rtx")]
fn set_targets(mut config: Pin<&mut nvinfer1::IBuilderConfig>, targets: &[super::ComputeCapability]) -> bool {
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

/// TensorRT proper has no such call: it builds for the GPU that is present.
#[cfg(not(feature = "tensorrt-rtx"))]
fn set_targets(_: Pin<&mut nvinfer1::IBuilderConfig>, _: &[super::ComputeCapability]) -> bool {
    false
}

/// # Safety
/// `tensor` is null or a tensor of a network that lasts for the call.
unsafe fn describe(tensor: *mut nvinfer1::ITensor) -> Option<NetworkTensor> {
    // SAFETY: as the caller says; names belong to the network.
    unsafe {
        let tensor = tensor.as_ref()?;
        let dims = tensor.getDimensions();
        let rank = usize::try_from(dims.nbDims).ok().filter(|rank| *rank <= dims.d.len())?;
        let names =
            (0..dims.nbDims).map(|axis| text(tensor.getDimensionName(axis)).filter(|name| !name.is_empty()));
        Some(NetworkTensor {
            name: text(tensor.getName())?,
            data_type: trtx_sys::DataType::from(tensor.getType()) as i32,
            sizes: dims.d[..rank].to_vec(),
            names: names.collect(),
        })
    }
}

/// Copies memory that TensorRT made for the caller, and frees it; `None` for null.
///
/// # Safety
/// `memory` is null or owned by the caller, who does not use it again.
unsafe fn take_memory(memory: *mut nvinfer1::IHostMemory) -> Option<Vec<u8>> {
    if memory.is_null() {
        return None;
    }
    // SAFETY: as the caller says; the bytes last as long as the memory does.
    unsafe {
        let memory = UniquePtr::from_raw(memory);
        let (data, size) = (memory.data(), memory.size());
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size).to_vec())
    }
}

/// The virtual functions of `nvonnxparser::IParserError`, in the order of its declaration; the bindings have the type
/// and none of its methods.
#[repr(C)]
struct ParserErrorTable {
    code: unsafe extern "C" fn(*const c_void) -> c_int,
    description: unsafe extern "C" fn(*const c_void) -> *const c_char,
    file: unsafe extern "C" fn(*const c_void) -> *const c_char,
    line: unsafe extern "C" fn(*const c_void) -> c_int,
    function: unsafe extern "C" fn(*const c_void) -> *const c_char,
    node: unsafe extern "C" fn(*const c_void) -> c_int,
    node_name: unsafe extern "C" fn(*const c_void) -> *const c_char,
    node_operator: unsafe extern "C" fn(*const c_void) -> *const c_char,
}

/// # Safety
/// `error` is an `IParserError` of a parser that lasts for the call.
unsafe fn parse_error(error: *const c_void) -> ParseError {
    // SAFETY: as the caller says; an object of a class with virtual functions begins with the address of their table
    // (Itanium C++ ABI, 2.5.2), and the strings belong to the error.
    unsafe {
        let table = &**error.cast::<*const ParserErrorTable>();
        ParseError {
            description: text((table.description)(error)).unwrap_or_default(),
            node: (table.node)(error),
            node_name: text((table.node_name)(error)).unwrap_or_default(),
            operator: text((table.node_operator)(error)).unwrap_or_default(),
        }
    }
}

/// `ITimingCache::serialize`, which the bindings do not have: it hands on to the implementation that the object points
/// to, whose table begins with two destructors.
///
/// # Safety
/// The handle is a timing cache's.
unsafe fn serialize(cache: &Handle<TimingCache>) -> *mut nvinfer1::IHostMemory {
    #[repr(C)]
    struct Cache {
        table: *const c_void,
        implementation: *mut *const ImplementationTable,
    }
    #[repr(C)]
    struct ImplementationTable {
        destructors: [*const c_void; 2],
        serialize: unsafe extern "C" fn(*const c_void) -> *mut nvinfer1::IHostMemory,
    }
    // SAFETY: the layout of `ITimingCache` and of `apiv::VTimingCache` in NvInfer.h and NvInferImpl.h (Itanium C++ ABI,
    // 2.4 and 2.5.2).
    unsafe {
        let implementation = (*(cache.address() as *const Cache)).implementation;
        if implementation.is_null() {
            return std::ptr::null_mut();
        }
        ((**implementation).serialize)(implementation.cast())
    }
}

/// What stands between TensorRT's progress monitor and ours: no panic may cross C++.
struct Bridge<'m> {
    monitor: &'m dyn Monitor,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Bridge<'_> {
    /// # Safety
    /// `this` is the bridge that was given to the progress monitor, and lives.
    unsafe fn tell(this: *mut c_void, told: impl FnOnce(&dyn Monitor) -> bool) -> bool {
        // SAFETY: as the caller says.
        let bridge = unsafe { &*this.cast::<Bridge<'_>>() };
        let mut panicked = bridge.panic.lock().unwrap_or_else(PoisonError::into_inner);
        if panicked.is_some() {
            return false;
        }
        match panic::catch_unwind(AssertUnwindSafe(|| told(bridge.monitor))) {
            Ok(go_on) => go_on,
            Err(payload) => {
                *panicked = Some(payload);
                false
            }
        }
    }
}

unsafe extern "system" fn phase_start(
    this: *mut c_void,
    phase: *const c_char,
    parent: *const c_char,
    steps: i32,
) {
    // SAFETY: TensorRT passes what it was given, and strings that last for the call.
    unsafe {
        let (phase, parent) = (text(phase).unwrap_or_default(), text(parent));
        Bridge::tell(this, |monitor| {
            monitor.phase_start(&phase, parent.as_deref(), steps);
            true
        });
    }
}

unsafe extern "system" fn step_complete(this: *mut c_void, phase: *const c_char, step: i32) -> bool {
    // SAFETY: as above.
    unsafe {
        let phase = text(phase).unwrap_or_default();
        Bridge::tell(this, |monitor| monitor.step_complete(&phase, step))
    }
}

unsafe extern "system" fn phase_finish(this: *mut c_void, phase: *const c_char) {
    // SAFETY: as above.
    unsafe {
        let phase = text(phase).unwrap_or_default();
        Bridge::tell(this, |monitor| {
            monitor.phase_finish(&phase);
            true
        });
    }
}
