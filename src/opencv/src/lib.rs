//! The parts of OpenCV that Ocelli uses: [`Capture`] reads video files, cameras and streams, [`Writer`] writes video files, [`Window`]
//! shows frames.
//!
//! OpenCV and what it needs are hundreds of shared libraries, so they are loaded when a video is first opened: [`OpenCv`] is
//! `libocelli_video`, which `build.sh` compiles from `library.cpp` against the OpenCV of the system in a few seconds. Frames
//! are BGR, 8 bits a channel, without gaps between rows. An [`Error`] is OpenCV's own message.

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

mod calls;

use calls::Table;
use ocelli_engines::library::Candidate;

/// OpenCV's message about a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Which part of OpenCV reads a file or stream (`cv::VideoCaptureAPIs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Backend {
    /// The first that can.
    Any = 0,
    /// FFmpeg.
    Ffmpeg = 1900,
}

/// A property of a [`Capture`] (`cv::VideoCaptureProperties`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Property {
    /// The time of the grabbed frame in milliseconds.
    PositionMs = 0,
    /// In pixels.
    FrameWidth = 3,
    /// In pixels.
    FrameHeight = 4,
    /// Frames per second.
    FrameRate = 5,
    /// Frames in the file.
    FrameCount = 7,
    /// Whether frames are turned as the file asks.
    OrientationAuto = 49,
    /// When opening gives up, in milliseconds.
    OpenTimeoutMs = 53,
    /// When reading gives up, in milliseconds.
    ReadTimeoutMs = 54,
}

/// The loaded library.
#[derive(Debug, Clone, Copy)]
pub struct OpenCv(&'static Table);

impl OpenCv {
    /// Loads the library, once in the life of the process. From then on OpenCV writes nothing to stderr unless
    /// `OPENCV_LOG_LEVEL` is set: failures are reported as errors.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it is not found, or not one for this program.
    pub fn load() -> ocelli_error::Result<Self> {
        let table = calls::load()?;
        if std::env::var_os("OPENCV_LOG_LEVEL").is_none() {
            // SAFETY: takes no argument.
            unsafe { (table.quiet)() }
        }
        Ok(Self(table))
    }

    /// Every place where [`load`](Self::load) searches, and what it holds. Loads each library it finds.
    pub fn candidates() -> Vec<Candidate> {
        calls::candidates()
    }

    /// The version of OpenCV that the library was compiled with.
    pub fn version(self) -> String {
        calls::version(self.0)
    }

    /// Whether files and streams can be read by this backend.
    pub fn has_stream_backend(self, backend: Backend) -> bool {
        // SAFETY: takes a number.
        unsafe { (self.0.has_stream_backend)(backend as c_int) == 1 }
    }

    /// The names of the backends that read files and streams.
    pub fn stream_backends(self) -> Vec<String> {
        let mut text = [0u8; 1024];
        // SAFETY: the buffer is writable for as many bytes as are named.
        let length = unsafe { (self.0.backends)(text.as_mut_ptr().cast(), text.len()) };
        let names = String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0)]).into_owned();
        names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// The result of a function that returns 1, 0 or a negative number.
    fn flag(self, code: c_int) -> Result<bool> {
        if code < 0 { Err(self.last_error()) } else { Ok(code == 1) }
    }

    fn last_error(self) -> Error {
        // SAFETY: returns a string of this thread that ends with a null byte and stays until its next call.
        let text: &CStr = unsafe { CStr::from_ptr((self.0.error)() as *const c_char) };
        Error(text.to_string_lossy().into_owned())
    }
}

/// An open video file, camera or stream.
#[derive(Debug)]
pub struct Capture {
    opencv: OpenCv,
    capture: NonNull<calls::Capture>,
}

// SAFETY: OpenCV's capture has no ties to the thread that made it, and a `&mut` is needed to use it.
unsafe impl Send for Capture {}

/// A decoded frame.
#[derive(Debug, Clone, Copy)]
pub struct Bgr<'c> {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// `height × width × 3` bytes.
    pub pixels: &'c [u8],
}

impl Capture {
    /// Opens a file or a URL. `parameters` are set before it is opened.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(
        opencv: OpenCv,
        name: &Path,
        backend: Backend,
        parameters: &[(Property, i32)],
    ) -> Result<Self> {
        let name = path(name)?;
        let numbers: Vec<c_int> =
            parameters.iter().flat_map(|(property, value)| [*property as c_int, *value]).collect();
        // SAFETY: the string ends with a null byte, the numbers are as many as are named, and both outlive the call.
        let capture =
            unsafe { (opencv.0.open_file)(name.as_ptr(), backend as c_int, numbers.as_ptr(), numbers.len()) };
        NonNull::new(capture).map(|capture| Self { opencv, capture }).ok_or_else(|| opencv.last_error())
    }

    /// Opens a camera by its index, from 0.
    ///
    /// # Errors
    /// If there is no such camera, or another program uses it.
    pub fn open_camera(opencv: OpenCv, index: i32) -> Result<Self> {
        // SAFETY: takes a number.
        let capture = unsafe { (opencv.0.open_camera)(index) };
        NonNull::new(capture).map(|capture| Self { opencv, capture }).ok_or_else(|| opencv.last_error())
    }

    /// A property; 0 if it is unknown.
    pub fn get(&self, property: Property) -> f64 {
        // SAFETY: the capture is open until it is dropped.
        unsafe { (self.opencv.0.get)(self.capture.as_ptr(), property as c_int) }
    }

    /// Sets a property; whether the backend accepted it.
    pub fn set(&mut self, property: Property, value: f64) -> bool {
        // SAFETY: as in `get`.
        unsafe { (self.opencv.0.set)(self.capture.as_ptr(), property as c_int, value) == 1 }
    }

    /// Advances to the next frame; `false` at the end.
    ///
    /// # Errors
    /// If OpenCV fails; a frame that cannot be decoded is an end.
    pub fn grab(&mut self) -> Result<bool> {
        // SAFETY: as in `get`.
        self.opencv.flag(unsafe { (self.opencv.0.grab)(self.capture.as_ptr()) })
    }

    /// Decodes the frame that was grabbed and turns it clockwise by quarters, 0 to 3. `None` if it cannot be decoded or is
    /// not one of 8-bit colours.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn retrieve(&mut self, quarter_turns: u8) -> Result<Option<Bgr<'_>>> {
        let (mut pixels, mut width, mut height) = (std::ptr::null(), 0, 0);
        // SAFETY: the capture is open, and the three pointers are to variables that outlive the call.
        let found = self.opencv.flag(unsafe {
            (self.opencv.0.retrieve)(
                self.capture.as_ptr(),
                c_int::from(quarter_turns % 4),
                &raw mut pixels,
                &raw mut width,
                &raw mut height,
            )
        })?;
        let sides = (u32::try_from(width).unwrap_or(0), u32::try_from(height).unwrap_or(0));
        let bytes = 3 * sides.0 as usize * sides.1 as usize;
        if !found || pixels.is_null() || bytes == 0 {
            return Ok(None);
        }
        // SAFETY: the function returns a continuous frame of this many bytes, which belongs to the capture and stays as it
        // is until the next call; that needs a `&mut`, and so the end of this borrow.
        let pixels = unsafe { std::slice::from_raw_parts(pixels, bytes) };
        Ok(Some(Bgr { width: sides.0, height: sides.1, pixels }))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: made by `open`, and not used afterwards.
        unsafe { (self.opencv.0.capture_free)(self.capture.as_ptr()) }
    }
}

/// A video file that is being written.
#[derive(Debug)]
pub struct Writer {
    opencv: OpenCv,
    writer: NonNull<calls::Writer>,
    size: (u32, u32),
}

// SAFETY: as for `Capture`.
unsafe impl Send for Writer {}

impl Writer {
    /// Starts a file of `width` × `height` pixels; `codec` is OpenCV's four-character code.
    ///
    /// # Errors
    /// If there is no such encoder, or the file cannot be written.
    pub fn create(
        opencv: OpenCv,
        file: &Path,
        codec: [u8; 4],
        frame_rate: f64,
        (width, height): (u32, u32),
    ) -> Result<Self> {
        let name = path(file)?;
        let (columns, rows) = (side(width)?, side(height)?);
        // SAFETY: the string ends with a null byte and outlives the call.
        let writer =
            unsafe { (opencv.0.writer)(name.as_ptr(), i32::from_le_bytes(codec), frame_rate, columns, rows) };
        let writer = NonNull::new(writer).ok_or_else(|| opencv.last_error())?;
        Ok(Self { opencv, writer, size: (width, height) })
    }

    /// Appends a frame of `width × height × 3` bytes, BGR.
    ///
    /// # Errors
    /// If the frame has another size, or OpenCV fails. A full disk is no error here: see the file's size.
    pub fn write(&mut self, pixels: &[u8]) -> Result<()> {
        let (width, height) = self.size;
        if pixels.len() != 3 * width as usize * height as usize {
            return Err(Error(format!("expected {width}x{height} pixels, got {} bytes", pixels.len())));
        }
        // SAFETY: the writer is open, and the pixels are as many as the sides say; the function only reads them.
        self.opencv
            .flag(unsafe {
                (self.opencv.0.write)(self.writer.as_ptr(), pixels.as_ptr(), side(width)?, side(height)?)
            })
            .map(drop)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn finish(self) -> Result<()> {
        // SAFETY: the writer is open.
        self.opencv.flag(unsafe { (self.opencv.0.writer_finish)(self.writer.as_ptr()) }).map(drop)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and not used afterwards.
        unsafe { (self.opencv.0.writer_free)(self.writer.as_ptr()) }
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
        opencv.flag(unsafe { (opencv.0.window)(title.as_ptr(), side(width)?, side(height)?) })?;
        Ok(Self { opencv, title, _one_thread: PhantomData })
    }

    /// Shows a frame of `width × height × 3` bytes, BGR.
    ///
    /// # Errors
    /// If the sizes differ, or OpenCV fails.
    pub fn show(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<()> {
        if pixels.len() != 3 * width as usize * height as usize {
            return Err(Error(format!("expected {width}x{height} pixels, got {} bytes", pixels.len())));
        }
        // SAFETY: the string ends with a null byte, and the pixels are as many as the sides say; OpenCV copies them.
        self.opencv
            .flag(unsafe {
                (self.opencv.0.show)(self.title.as_ptr(), pixels.as_ptr(), side(width)?, side(height)?)
            })
            .map(drop)
    }

    /// Handles the events of the window for a millisecond; the code of a pressed key.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn key(&mut self) -> Result<Option<i32>> {
        // SAFETY: takes a number.
        match unsafe { (self.opencv.0.wait_key)(1) } {
            -2 => Err(self.opencv.last_error()),
            -1 => Ok(None),
            key => Ok(Some(key)),
        }
    }

    /// Whether the user has not closed it.
    ///
    /// # Errors
    /// If OpenCV fails.
    pub fn is_visible(&self) -> Result<bool> {
        // SAFETY: the string ends with a null byte.
        self.opencv.flag(unsafe { (self.opencv.0.is_visible)(self.title.as_ptr()) })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the string ends with a null byte. A window that the user has closed is no error.
        unsafe { (self.opencv.0.close)(self.title.as_ptr()) }
    }
}

fn side(pixels: u32) -> Result<c_int> {
    c_int::try_from(pixels).map_err(|_| Error(format!("a side of {pixels} pixels is too long")))
}

/// A path as OpenCV takes it: bytes on Unix, UTF-8 elsewhere.
fn path(path: &Path) -> Result<CString> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or_else(|| Error("the path is not Unicode".into()))?.as_bytes().to_vec();
    CString::new(bytes).map_err(|_| Error("the path contains a null byte".into()))
}
