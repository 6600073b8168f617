//! The functions of `calls.cpp`.

use std::ffi::{c_char, c_double, c_int};

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

unsafe extern "C" {
    pub(crate) fn ocelli_cv_error() -> *const c_char;
    pub(crate) fn ocelli_cv_version() -> *const c_char;
    pub(crate) fn ocelli_cv_quiet();
    pub(crate) fn ocelli_cv_has_stream_backend(backend: c_int) -> c_int;
    pub(crate) fn ocelli_cv_backends(text: *mut c_char, bytes: usize) -> c_int;
    pub(crate) fn ocelli_cv_open_file(
        path: *const c_char,
        backend: c_int,
        parameters: *const c_int,
        count: usize,
    ) -> *mut Capture;
    pub(crate) fn ocelli_cv_open_camera(index: c_int) -> *mut Capture;
    pub(crate) fn ocelli_cv_capture_free(capture: *mut Capture);
    pub(crate) fn ocelli_cv_get(capture: *const Capture, property: c_int) -> c_double;
    pub(crate) fn ocelli_cv_set(capture: *mut Capture, property: c_int, value: c_double) -> c_int;
    pub(crate) fn ocelli_cv_grab(capture: *mut Capture) -> c_int;
    pub(crate) fn ocelli_cv_retrieve(
        capture: *mut Capture,
        quarter_turns: c_int,
        pixels: *mut *const u8,
        width: *mut c_int,
        height: *mut c_int,
    ) -> c_int;
    pub(crate) fn ocelli_cv_writer(
        path: *const c_char,
        codec: c_int,
        frame_rate: c_double,
        width: c_int,
        height: c_int,
    ) -> *mut Writer;
    pub(crate) fn ocelli_cv_write(
        writer: *mut Writer,
        pixels: *const u8,
        width: c_int,
        height: c_int,
    ) -> c_int;
    pub(crate) fn ocelli_cv_writer_finish(writer: *mut Writer) -> c_int;
    pub(crate) fn ocelli_cv_writer_free(writer: *mut Writer);
    pub(crate) fn ocelli_cv_window(title: *const c_char, width: c_int, height: c_int) -> c_int;
    pub(crate) fn ocelli_cv_show(
        title: *const c_char,
        pixels: *const u8,
        width: c_int,
        height: c_int,
    ) -> c_int;
    pub(crate) fn ocelli_cv_wait_key(milliseconds: c_int) -> c_int;
    pub(crate) fn ocelli_cv_is_visible(title: *const c_char) -> c_int;
    pub(crate) fn ocelli_cv_close(title: *const c_char);
}
