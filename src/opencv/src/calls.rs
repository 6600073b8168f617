//! The table of functions in `library.cpp`, and the library that has it.

use std::ffi::{CStr, c_char, c_double, c_int};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ocelli_engines::library::{Candidate, Library, LibrarySearch, open};
use ocelli_error::Result;

/// An open capture.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Capture {
    _opaque: [u8; 0],
}

/// An open writer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Writer {
    _opaque: [u8; 0],
}

/// The version of [`Table`]; the library has the same number.
const VERSION: u32 = 1;

/// The functions of the library, in its order.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) error: unsafe extern "C" fn() -> *const c_char,
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) quiet: unsafe extern "C" fn(),
    pub(crate) has_stream_backend: unsafe extern "C" fn(backend: c_int) -> c_int,
    pub(crate) backends: unsafe extern "C" fn(text: *mut c_char, bytes: usize) -> c_int,
    pub(crate) open_file: unsafe extern "C" fn(
        path: *const c_char,
        backend: c_int,
        parameters: *const c_int,
        count: usize,
    ) -> *mut Capture,
    pub(crate) open_camera: unsafe extern "C" fn(index: c_int) -> *mut Capture,
    pub(crate) capture_free: unsafe extern "C" fn(capture: *mut Capture),
    pub(crate) get: unsafe extern "C" fn(capture: *const Capture, property: c_int) -> c_double,
    pub(crate) set: unsafe extern "C" fn(capture: *mut Capture, property: c_int, value: c_double) -> c_int,
    pub(crate) grab: unsafe extern "C" fn(capture: *mut Capture) -> c_int,
    pub(crate) retrieve: unsafe extern "C" fn(
        capture: *mut Capture,
        quarter_turns: c_int,
        pixels: *mut *const u8,
        width: *mut c_int,
        height: *mut c_int,
    ) -> c_int,
    pub(crate) writer: unsafe extern "C" fn(
        path: *const c_char,
        codec: c_int,
        frame_rate: c_double,
        width: c_int,
        height: c_int,
    ) -> *mut Writer,
    pub(crate) write:
        unsafe extern "C" fn(writer: *mut Writer, pixels: *const u8, width: c_int, height: c_int) -> c_int,
    pub(crate) writer_finish: unsafe extern "C" fn(writer: *mut Writer) -> c_int,
    pub(crate) writer_free: unsafe extern "C" fn(writer: *mut Writer),
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
    remedy: "run `make opencv` in the source tree, which builds it, or set OCELLI_VIDEO to the path of libocelli_video; \
             folders of images and raw frames need none",
    version: |path| table(path).map(version),
};

/// The loaded library.
static LOADED: Mutex<Option<(PathBuf, &'static Table)>> = Mutex::new(None);

/// Loads the library once in the life of the process.
pub(crate) fn load() -> Result<&'static Table> {
    LIBRARY.load_once(None, &LOADED, |path, _| table(path))
}

/// Every place where the library is searched for, and what it holds.
pub(crate) fn candidates() -> Vec<Candidate> {
    LibrarySearch::new(&LIBRARY, None).candidates()
}

/// Loads a file and returns its table, or one line that says why it cannot be used.
fn table(path: &Path) -> std::result::Result<&'static Table, String> {
    type Entry = unsafe extern "C" fn(u32) -> *const Table;
    let library = open(path)?;
    // SAFETY: the symbol is this function in every version of the library, and the library is never unloaded.
    let entry = unsafe { library.get::<Entry>(b"ocelli_video") };
    let entry = entry.map_err(|_| "the file is no video library of Ocelli".to_owned())?;
    // SAFETY: takes a number; the table that it returns for this version is that of `library.cpp`, and static.
    let table = unsafe { entry(VERSION).as_ref() };
    table.ok_or_else(|| format!("it was built for another version of Ocelli: expected table {VERSION}"))
}

/// The version of OpenCV that the library was compiled with.
pub(crate) fn version(table: &Table) -> String {
    // SAFETY: returns a string literal.
    unsafe { CStr::from_ptr((table.version)()) }.to_string_lossy().into_owned()
}
