//! Windows.

use std::ffi::CString;
use std::marker::PhantomData;

use crate::calls::{self, WindowTable};
use crate::{Result, check_size, flag, side};

/// The loaded library of windows.
#[derive(Debug, Clone, Copy)]
pub struct OpenCv(&'static WindowTable);

impl OpenCv {
    /// Loads the library, once in the life of the process. From then on OpenCV writes nothing to stderr unless
    /// `OPENCV_LOG_LEVEL` is set: failures are reported as errors.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is no video library, or it has none of windows
    /// beside it.
    pub fn load() -> ocelli_error::Result<Self> {
        let table = calls::load_windows()?;
        if std::env::var_os("OPENCV_LOG_LEVEL").is_none() {
            // SAFETY: takes no argument.
            unsafe { (table.quiet)() }
        }
        Ok(Self(table))
    }

    /// The version of OpenCV.
    pub fn version(self) -> String {
        calls::text(self.0.version)
    }
}

/// A window. Its calls belong to one thread.
#[derive(Debug)]
pub struct Window {
    opencv: OpenCv,
    title: CString,
    /// Not `Sync`: two threads must not show at once.
    _one_thread: PhantomData<std::cell::Cell<()>>,
}

impl Window {
    /// Opens a window whose content can be scaled, `width` × `height` pixels large.
    ///
    /// # Errors
    /// If the display does not allow it.
    pub fn open(opencv: OpenCv, title: &str, width: u32, height: u32) -> Result<Self> {
        let title = CString::new(title.replace('\0', " ")).expect("null bytes are replaced");
        // SAFETY: the string ends with a null byte and outlives the call.
        flag(unsafe { (opencv.0.window)(title.as_ptr(), side(width)?, side(height)?) }, opencv.0.error)?;
        Ok(Self { opencv, title, _one_thread: PhantomData })
    }

    /// Shows a frame of `width × height × 3` bytes, BGR.
    ///
    /// # Errors
    /// If the sizes differ, or OpenCV fails.
    pub fn show(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<()> {
        check_size((width, height), pixels)?;
        let table = self.opencv.0;
        // SAFETY: the string ends with a null byte, and the pixels are as many as the sides say; OpenCV copies them.
        let shown =
            unsafe { (table.show)(self.title.as_ptr(), pixels.as_ptr(), side(width)?, side(height)?) };
        flag(shown, table.error).map(drop)
    }

    /// Handles the events of the window for a millisecond; the code of a pressed key.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn key(&mut self) -> Result<Option<i32>> {
        // SAFETY: takes a number.
        match unsafe { (self.opencv.0.wait_key)(1) } {
            -2 => Err(calls::text(self.opencv.0.error)),
            -1 => Ok(None),
            key => Ok(Some(key)),
        }
    }

    /// `true` until the user closes it.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn is_visible(&self) -> Result<bool> {
        // SAFETY: the string ends with a null byte.
        flag(unsafe { (self.opencv.0.is_visible)(self.title.as_ptr()) }, self.opencv.0.error)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the string ends with a null byte. A window that the user has closed is no error.
        unsafe { (self.opencv.0.close)(self.title.as_ptr()) }
    }
}
