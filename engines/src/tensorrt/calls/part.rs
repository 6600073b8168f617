//! The table of functions in `tensorrt/library.cpp`, and the libraries that have it: one for each product.

use crate::c_text::text;
use crate::library::{Candidate, Library, open};
use crate::tensorrt::log::{LOG, Severity};
use crate::tensorrt::version::{Product, Version};
use ocelli_error::Result;
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

opaque! {
    /// The objects of a build.
    Build,
    /// A plan and what runs it.
    Plan,
    /// An execution context.
    Context,
    /// Memory that TensorRT allocated for the caller.
    Memory,
}

/// `createInferBuilder_INTERNAL` and `createInferRuntime_INTERNAL`: (logger, version).
pub(super) type Create = unsafe extern "C" fn(*mut c_void, i32) -> *mut c_void;

/// `createNvOnnxParser_INTERNAL`: (network, logger, version).
pub(super) type CreateParser = unsafe extern "C" fn(*mut c_void, *mut c_void, i32) -> *mut c_void;

/// Up to eight sizes, -1 where they are dynamic.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    rank: i32,
    sizes: [i64; 8],
}

impl Sizes {
    pub(super) const NONE: Self = Self { rank: -1, sizes: [0; 8] };

    /// `None` for more than eight sizes.
    pub(super) fn of(sizes: impl IntoIterator<Item = i64>) -> Option<Self> {
        let mut made = Self { rank: 0, sizes: [0; 8] };
        for size in sizes {
            *made.sizes.get_mut(usize::try_from(made.rank).ok()?)? = size;
            made.rank += 1;
        }
        Some(made)
    }

    /// `None` for the shape of rank -1 that stands for an error.
    pub(super) fn get(&self) -> Option<&[i64]> {
        self.sizes.get(..usize::try_from(self.rank).ok()?)
    }
}

/// An input or output of a network or a plan.
#[repr(C)]
pub(super) struct Tensor {
    pub(super) name: *const c_char,
    /// Of a network; null for a dimension without a name.
    pub(super) dimensions: [*const c_char; 8],
    pub(super) shape: Sizes,
    /// Of an input of a plan.
    pub(super) min: Sizes,
    pub(super) max: Sizes,
    /// See [`element_type`](super::element_type).
    pub(super) element_type: i32,
    /// [`INPUT`], [`OUTPUT`] or neither.
    pub(super) role: i32,
    pub(super) is_on_host: i32,
    pub(super) is_row_major: i32,
}

pub(super) const INPUT: i32 = 1;
pub(super) const OUTPUT: i32 = 2;

impl Tensor {
    pub(super) const NONE: Self = Self {
        name: std::ptr::null(),
        dimensions: [std::ptr::null(); 8],
        shape: Sizes::NONE,
        min: Sizes::NONE,
        max: Sizes::NONE,
        element_type: -1,
        role: 0,
        is_on_host: 0,
        is_row_major: 0,
    };
}

/// An error of the ONNX parser.
#[repr(C)]
pub(super) struct ParseError {
    pub(super) description: *const c_char,
    pub(super) node_name: *const c_char,
    pub(super) node_operator: *const c_char,
    pub(super) node: i32,
}

/// The sizes of an input with dynamic dimensions.
#[repr(C)]
pub(super) struct Range {
    pub(super) name: *const c_char,
    pub(super) min: Sizes,
    pub(super) optimal: Sizes,
    pub(super) max: Sizes,
}

/// The functions that a build calls as it proceeds, from any thread.
#[repr(C)]
pub(super) struct Progress {
    pub(super) caller: *mut c_void,
    /// (caller, phase, parent or null, steps)
    pub(super) start: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, i32),
    /// (caller, phase, step); returns 0 to cancel.
    pub(super) step: unsafe extern "C" fn(*mut c_void, *const c_char, i32) -> i32,
    /// (caller, phase)
    pub(super) finish: unsafe extern "C" fn(*mut c_void, *const c_char),
}

/// The version of [`Table`]; the library has the same number.
const VERSION: u32 = 1;

/// The functions of the library, in its order, which also has what they do. Results that are numbers are 1 or 0 for yes or
/// no, unless said otherwise.
#[repr(C)]
pub(super) struct Table {
    is_rtx: unsafe extern "C" fn() -> i32,
    version: unsafe extern "C" fn() -> i32,
    set_log: unsafe extern "C" fn(unsafe extern "C" fn(i32, *const c_char)),
    memory_data: unsafe extern "C" fn(*const Memory) -> *const c_void,
    memory_size: unsafe extern "C" fn(*const Memory) -> usize,
    memory_free: unsafe extern "C" fn(*mut Memory),
    pub(super) build_open: unsafe extern "C" fn(Create, CreateParser, *mut *const c_char) -> *mut Build,
    pub(super) build_free: unsafe extern "C" fn(*mut Build),
    pub(super) build_parse: unsafe extern "C" fn(*mut Build, *const c_char) -> i32,
    pub(super) build_parse_error: unsafe extern "C" fn(*const Build, i32, *mut ParseError) -> i32,
    /// (build, role, index, result)
    pub(super) build_tensor: unsafe extern "C" fn(*const Build, i32, i32, *mut Tensor) -> i32,
    pub(super) build_set_targets: unsafe extern "C" fn(*mut Build, *const i32, usize) -> i32,
    pub(super) build_set_workspace: unsafe extern "C" fn(*mut Build, usize) -> i32,
    pub(super) build_set_version_compatible: unsafe extern "C" fn(*mut Build) -> i32,
    pub(super) build_set_hardware_compatible: unsafe extern "C" fn(*mut Build) -> i32,
    pub(super) build_set_level: unsafe extern "C" fn(*mut Build, i32) -> i32,
    pub(super) build_add_profile: unsafe extern "C" fn(*mut Build, *const Range, usize) -> i32,
    /// -1 if no cache can be made.
    pub(super) build_use_timing_cache: unsafe extern "C" fn(*mut Build, *const c_void, usize) -> i32,
    pub(super) build_timing_cache: unsafe extern "C" fn(*const Build) -> *mut Memory,
    pub(super) build_run: unsafe extern "C" fn(*mut Build, *const Progress) -> *mut Memory,
    /// (runtime, bytes, size, whether it starts, diagnosis, its room)
    pub(super) plan_load:
        unsafe extern "C" fn(Create, *const c_void, usize, *mut i32, *mut c_char, usize) -> *mut Plan,
    pub(super) plan_free: unsafe extern "C" fn(*mut Plan),
    pub(super) plan_tensor: unsafe extern "C" fn(*const Plan, i32, *mut Tensor) -> i32,
    pub(super) plan_context_bytes: unsafe extern "C" fn(*const Plan) -> i64,
    /// (plan, is captured, kernels, their size, whether they are accepted)
    pub(super) context_open:
        unsafe extern "C" fn(*mut Plan, i32, *const c_void, usize, *mut i32) -> *mut Context,
    pub(super) context_free: unsafe extern "C" fn(*mut Context),
    pub(super) context_kernels: unsafe extern "C" fn(*const Context) -> *mut Memory,
    pub(super) context_set_shape: unsafe extern "C" fn(*mut Context, *const c_char, *const Sizes) -> i32,
    pub(super) context_shape: unsafe extern "C" fn(*const Context, *const c_char, *mut Sizes),
    pub(super) context_set_address: unsafe extern "C" fn(*mut Context, *const c_char, *mut c_void) -> i32,
    pub(super) context_can_be_captured: unsafe extern "C" fn(*const Context, *mut c_void) -> i32,
    pub(super) context_enqueue: unsafe extern "C" fn(*mut Context, *mut c_void) -> i32,
}

static TENSORRT: Library = Library {
    name: "Ocelli's part for TensorRT",
    stems: &["ocelli_tensorrt"],
    stems_if_named: &[],
    variables: &["OCELLI_TENSORRT_PART"],
    setup_folder: "tensorrt-part",
    python_packages: &["ocelli"],
    python_extra: None,
    remedy: "run `make tensorrt` in the source tree, which builds it, or set OCELLI_TENSORRT_PART to the folder of \
             libocelli_tensorrt",
    version: |path| version(path, Product::TensorRt),
};

static TENSORRT_FOR_RTX: Library = Library {
    name: "Ocelli's part for TensorRT for RTX",
    stems: &["ocelli_tensorrt_rtx"],
    remedy: "run `make tensorrt` in the source tree, which builds it, or set OCELLI_TENSORRT_PART to the folder of \
             libocelli_tensorrt_rtx",
    version: |path| version(path, Product::TensorRtForRtx),
    ..TENSORRT
};

impl Product {
    /// Ocelli's part for the product, `libocelli_tensorrt` or `libocelli_tensorrt_rtx`, which the
    /// [search](crate::library) finds; it may be one that cannot be used. Loads it to read its version.
    pub fn part(self) -> Option<Candidate> {
        part_of(self).find(None)
    }
}

fn part_of(product: Product) -> &'static Library {
    match product {
        Product::TensorRt => &TENSORRT,
        Product::TensorRtForRtx => &TENSORRT_FOR_RTX,
    }
}

/// Ocelli's part for a product, which is never unloaded. Its functions are called by the rules of their objects: nothing else
/// frees them, and changing one takes a `&mut`.
#[derive(Clone, Copy)]
pub(crate) struct Part(pub(super) &'static Table);

impl Part {
    /// Loads the part for a product, once in the life of the process, and takes TensorRT's messages from it.
    pub(crate) fn load(product: Product) -> Result<Self> {
        /// A process has one TensorRT, and so one part.
        static LOADED: Mutex<Option<(PathBuf, Part)>> = Mutex::new(None);
        part_of(product).load_once(None, &LOADED, |path, _| {
            let table = table(path, product)?;
            // SAFETY: the function takes a number and a string that is valid during the call, and does not unwind.
            unsafe { (table.set_log)(take_message) }
            Ok(Self(table))
        })
    }

    /// Copies memory that TensorRT allocated for the caller, and frees it; `None` for null.
    ///
    /// # Safety
    /// `memory` is null or owned by the caller, who does not use it again.
    pub(super) unsafe fn take(self, memory: *mut Memory) -> Option<Vec<u8>> {
        if memory.is_null() {
            return None;
        }
        // SAFETY: guaranteed by the caller; the bytes are valid as long as the memory.
        unsafe {
            let (data, size) = ((self.0.memory_data)(memory), (self.0.memory_size)(memory));
            let bytes =
                (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size).to_vec());
            (self.0.memory_free)(memory);
            bytes
        }
    }
}

debug_as!(Part, it => "Part({})", headers(it.0).1);

/// Loads a file and returns its table, or one line that says why it cannot be used for the product.
fn table(path: &Path, wanted: Product) -> std::result::Result<&'static Table, String> {
    type Entry = unsafe extern "C" fn(u32) -> *const Table;
    let library = open(path)?;
    // SAFETY: the symbol is this function in every version of the library, and the library is never unloaded.
    let entry = unsafe { library.get::<Entry>(b"ocelli_tensorrt") };
    let entry = entry.map_err(|_| "the file is no part of Ocelli for TensorRT".to_owned())?;
    // SAFETY: takes a number; the table that it returns for this version is that of `library.cpp`, and static.
    let table = unsafe { entry(VERSION).as_ref() };
    let table = table.ok_or_else(|| {
        format!("it was built for another version of Ocelli: expected table {VERSION}; build it again")
    })?;
    let (product, version) = headers(table);
    if product != wanted {
        return Err(format!("it is the part for {product}, expected the one for {wanted}"));
    }
    let expected = wanted.headers();
    if (version.major, version.minor) != (expected.major, expected.minor) {
        return Err(format!(
            "it was built with the headers of {product} {version}, expected those of {}.{}",
            expected.major, expected.minor
        ));
    }
    Ok(table)
}

/// The statement of a part: the table's version, and the headers that it was built with.
fn version(path: &Path, wanted: Product) -> std::result::Result<String, String> {
    table(path, wanted).map(|table| format!("{VERSION}, with the headers of {wanted} {}", headers(table).1))
}

fn headers(table: &Table) -> (Product, Version) {
    // SAFETY: the functions have no arguments and no effects.
    let (is_rtx, number) = unsafe { ((table.is_rtx)(), (table.version)()) };
    let number = u32::try_from(number).unwrap_or_default();
    let product = if is_rtx == 1 { Product::TensorRtForRtx } else { Product::TensorRt };
    (product, Version::new(number / 10_000, number / 100 % 100, number % 100))
}

/// Takes a message of TensorRT, from any thread.
unsafe extern "C" fn take_message(severity: i32, message: *const c_char) {
    let severity = match severity {
        0 | 1 => Severity::Error,
        2 => Severity::Warning,
        _ => Severity::Info,
    };
    // SAFETY: TensorRT passes a string that is valid during the call.
    if let Some(message) = unsafe { text(message) } {
        LOG.take(severity, &message);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
