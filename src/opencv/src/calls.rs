//! The tables of functions in `library.cpp` and `window.cpp`, and the libraries that have them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ocelli_engines::library::{Library, open};
use ocelli_error::{Error, Result};

ocelli_engines::opaque! {
    /// An open file, stream or camera.
    Reader,
    /// A frame that is kept on a GPU.
    KeptHandle,
    /// An open writer.
    Writer,
}

/// The properties of a video that are known before its first frame.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Info {
    pub(crate) frame_rate: f64,
    pub(crate) frames: i64,
    pub(crate) duration_ns: i64,
    pub(crate) shortest_interval_ns: i64,
    pub(crate) width: i32,
    pub(crate) height: i32,
    pub(crate) counts_frames: i32,
    pub(crate) has_sound: i32,
}

/// A frame that was read.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) time_ns: i64,
    pub(crate) failures: u64,
    pub(crate) hwaccel: *const c_char,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

/// The planes of such a frame in the memory of the GPU.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Planes {
    pub(crate) luma: u64,
    pub(crate) chroma: u64,
    pub(crate) luma_stride: i32,
    pub(crate) chroma_stride: i32,
    pub(crate) matrix: [i32; 4],
    pub(crate) is_full: i32,
}

/// The video to open, and the options for that.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: *const c_char,
    pub(crate) device: *const c_char,
    pub(crate) hwaccel: *const c_char,
    pub(crate) cuda: *mut c_void,
    pub(crate) open_timeout_ms: i64,
    pub(crate) read_timeout_ms: i64,
    pub(crate) most_pixels: i64,
    pub(crate) is_cancelled: Option<unsafe extern "C" fn(cancellation: *const c_void) -> c_int>,
    pub(crate) cancellation: *const c_void,
    pub(crate) options: *const *const c_char,
    pub(crate) stream: i32,
    pub(crate) is_file: i32,
    pub(crate) is_live: i32,
}

/// The video to write, and its encoding.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) name: *const c_char,
    pub(crate) muxer: *const c_char,
    pub(crate) encoder: *const c_char,
    pub(crate) sound: *const c_char,
    pub(crate) frame_rate: f64,
    pub(crate) width: i32,
    pub(crate) height: i32,
    pub(crate) quality: i32,
    pub(crate) is_stream: i32,
}

/// Streams besides the video.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) copied: i32,
    pub(crate) left_out: i32,
}

/// The version of [`Table`]; the library has the same number.
const VERSION: u32 = 6;

/// The functions of the library, in its order.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) error: unsafe extern "C" fn() -> *const c_char,
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) quiet: unsafe extern "C" fn(),
    pub(crate) devices: unsafe extern "C" fn() -> c_int,
    pub(crate) open: unsafe extern "C" fn(request: *const Request, info: *mut Info) -> *mut Reader,
    pub(crate) reader_free: unsafe extern "C" fn(reader: *mut Reader),
    pub(crate) next: unsafe extern "C" fn(reader: *mut Reader, stamp: *mut Stamp) -> c_int,
    pub(crate) convert: unsafe extern "C" fn(reader: *mut Reader, rgb: *mut u8) -> c_int,
    pub(crate) keep:
        unsafe extern "C" fn(reader: *mut Reader, planes: *mut Planes, kept: *mut *mut KeptHandle) -> c_int,
    pub(crate) kept_convert: unsafe extern "C" fn(kept: *mut KeptHandle, rgb: *mut u8) -> c_int,
    pub(crate) kept_free: unsafe extern "C" fn(kept: *mut KeptHandle),
    pub(crate) writer: unsafe extern "C" fn(recording: *const Recording, copied: *mut Copied) -> *mut Writer,
    pub(crate) write: unsafe extern "C" fn(writer: *mut Writer, rgb: *const u8, time_ns: i64) -> c_int,
    pub(crate) writer_finish: unsafe extern "C" fn(writer: *mut Writer) -> c_int,
    pub(crate) writer_free: unsafe extern "C" fn(writer: *mut Writer),
    pub(crate) remux:
        unsafe extern "C" fn(from: *const c_char, to: *const c_char, muxer: *const c_char) -> c_int,
}

/// The version of [`WindowTable`]; the library has the same number.
const WINDOW_VERSION: u32 = 1;

/// The functions of `window.cpp`, in its order.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WindowTable {
    pub(crate) error: unsafe extern "C" fn() -> *const c_char,
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) quiet: unsafe extern "C" fn(),
    pub(crate) window: unsafe extern "C" fn(title: *const c_char, width: c_int, height: c_int) -> c_int,
    pub(crate) show:
        unsafe extern "C" fn(title: *const c_char, pixels: *const u8, width: c_int, height: c_int) -> c_int,
    pub(crate) wait_key: unsafe extern "C" fn(milliseconds: c_int) -> c_int,
    pub(crate) is_visible: unsafe extern "C" fn(title: *const c_char) -> c_int,
    pub(crate) close: unsafe extern "C" fn(title: *const c_char),
}

static LIBRARY: Library = Library {
    name: "the video library",
    stems: &["ocelli_video"],
    stems_if_named: &[],
    variables: &["OCELLI_VIDEO"],
    setup_folder: "video",
    python_packages: &[],
    python_extra: Some("video"),
    remedy: "run `make opencv` in the source tree, or `make video` without windows, or set OCELLI_VIDEO to the path of \
             libocelli_video; folders of images and raw frames need none",
    version: |path| table(path).map(|table| text(table.version)),
};

/// The loaded library.
static LOADED: Mutex<Option<(PathBuf, (PathBuf, &'static Table))>> = Mutex::new(None);

/// Loads the library once in the life of the process; its file, and its table.
pub(crate) fn load() -> Result<(PathBuf, &'static Table)> {
    LIBRARY.load_once(None, &LOADED, |path, _| Ok((path.to_owned(), table(path)?)))
}

/// Loads the library of windows, which is beside that of videos.
pub(crate) fn load_windows() -> Result<&'static WindowTable> {
    let (video, _) = load()?;
    let path = video.with_file_name(format!("{DLL_PREFIX}ocelli_window{DLL_SUFFIX}"));
    let remedy =
        "`make opencv` in the source tree builds it if OpenCV is installed; all but windows works without";
    let unusable = |why: &str| {
        Error::unavailable(format!("cannot use the library of windows, {}: {why}; {remedy}", path.display()))
    };
    if !path.is_file() {
        return Err(unusable("no such file"));
    }
    // SAFETY: `window.cpp` returns this table for this version.
    unsafe { table_of(&path, b"ocelli_window", WINDOW_VERSION) }.map_err(|why| unusable(&why))
}

/// Loads a file and returns its table, or one line that says why it cannot be used.
fn table(path: &Path) -> std::result::Result<&'static Table, String> {
    // SAFETY: `library.cpp` returns this table for this version.
    unsafe { table_of(path, b"ocelli_video", VERSION) }
}

/// Loads a file and returns the table of one of its functions.
///
/// # Safety
/// The function of this name returns null, or a table of this type for this version.
unsafe fn table_of<T>(path: &Path, entry: &[u8], version: u32) -> std::result::Result<&'static T, String> {
    let library = open(path)?;
    // SAFETY: the symbol is this function in every version of the library, and the library is never unloaded.
    let entry = unsafe { library.get::<unsafe extern "C" fn(u32) -> *const T>(entry) };
    let entry = entry.map_err(|_| "the file is no such library of Ocelli".to_owned())?;
    // SAFETY: takes a number; the table is static, and of this type by the promise of the caller.
    let table = unsafe { entry(version).as_ref() };
    table.ok_or_else(|| format!("it was built for another version of Ocelli: expected table {version}"))
}

/// The text that a function of a table returns.
pub(crate) fn text(function: unsafe extern "C" fn() -> *const c_char) -> String {
    // SAFETY: it returns a string of this thread that ends with a null byte and stays until the thread's next call.
    unsafe { CStr::from_ptr(function()) }.to_string_lossy().into_owned()
}
