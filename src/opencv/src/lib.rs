//! The parts of FFmpeg and OpenCV that Ocelli uses: [`Reader`] reads video files, streams and cameras, [`Writer`] writes files
//! and streams, [`Window`] shows frames.
//!
//! These and what they need are hundreds of shared libraries, so they are loaded when a video is first opened:
//! [`OpenCv`] is `libocelli_video`, which `build.sh` compiles against FFmpeg and OpenCV of the system in a few seconds.
//! Frames are RGB, those that are shown BGR, 8 bits a channel, without gaps between rows.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

mod calls;

use calls::Table;
use ocelli_engines::library::Candidate;

/// The result of a call. Its error is the message of FFmpeg or OpenCV.
pub type Result<T> = std::result::Result<T, String>;

/// The loaded library.
#[derive(Debug, Clone, Copy)]
pub struct OpenCv(&'static Table);

impl OpenCv {
    /// Loads the library, once in the life of the process. From then on FFmpeg and OpenCV write nothing to stderr unless
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

    /// The versions of FFmpeg and OpenCV.
    pub fn version(self) -> String {
        calls::version(self.0)
    }

    /// The result of a function that returns 1, 0 or a negative number.
    fn flag(self, code: c_int) -> Result<bool> {
        if code < 0 { Err(self.last_error()) } else { Ok(code == 1) }
    }

    fn last_error(self) -> String {
        // SAFETY: returns a string of this thread that ends with a null byte and stays until its next call.
        let text: &CStr = unsafe { CStr::from_ptr((self.0.error)() as *const c_char) };
        text.to_string_lossy().into_owned()
    }
}

/// What is known of a video before its first frame, as its header says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Info {
    /// Width and height of upright frames in pixels.
    pub size: Option<(u32, u32)>,
    /// Frames per second.
    pub frame_rate: Option<f64>,
    /// The number of frames, and whether it is counted, not estimated from the duration.
    pub frames: Option<(u64, bool)>,
    /// Of the video stream.
    pub duration: Option<Duration>,
    /// The shortest time between two frames.
    pub shortest_interval: Option<Duration>,
    /// Whether there is sound.
    pub has_sound: bool,
}

/// A frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The time since the first frame; `None` if the stream does not say.
    pub time: Option<Duration>,
    /// Upright width in pixels.
    pub width: u32,
    /// Upright height in pixels.
    pub height: u32,
}

/// How FFmpeg opens a file or a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputOptions {
    /// The number of the stream among the video streams, from 0; `None` is the one that players choose.
    pub stream: Option<u32>,
    /// Names and values of options of FFmpeg's protocols, containers and decoders, such as `rtsp_transport` and `udp`.
    pub ffmpeg: Vec<(String, String)>,
}

impl InputOptions {
    /// The name and the value of an option of FFmpeg.
    ///
    /// # Errors
    /// If the text is not `KEY=VALUE`.
    pub fn parse_ffmpeg(text: &str) -> Result<(String, String)> {
        let named = text.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = named.ok_or_else(|| format!("{text}: expected KEY=VALUE"))?;
        Ok((key.to_owned(), value.to_owned()))
    }
}

/// What is opened.
pub enum Input<'i> {
    /// A file, whatever its name is.
    File(&'i Path),
    /// A URL.
    Stream {
        /// The address.
        url: &'i str,
        /// How long opening may take.
        open: Duration,
        /// How long the next frame may take.
        read: Duration,
        /// Whether frames are wanted at once rather than fast.
        is_live: bool,
        /// Whether to stop: ends a call that waits.
        is_cancelled: IsCancelled,
    },
}

/// Whether to stop.
pub type IsCancelled = Box<dyn Fn() -> bool + Send + Sync>;

/// An open video file, stream or camera.
pub struct Reader {
    opencv: OpenCv,
    reader: NonNull<calls::Reader>,
    info: Info,
    /// Width and height of the frame that was read.
    size: (u32, u32),
    failures: u64,
    /// Used by `reader`.
    _is_cancelled: Option<Box<IsCancelled>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("info", &self.info).finish_non_exhaustive()
    }
}

// SAFETY: a reader has no ties to the thread that made it, a `&mut` is needed to use it, and the function that it calls is
// `Send` and `Sync`.
unsafe impl Send for Reader {}

/// Calls the function that was given for [`Input::Stream`].
unsafe extern "C" fn is_cancelled(cancellation: *const c_void) -> c_int {
    // SAFETY: the pointer is that of the request, to a function that its reader owns.
    let is_cancelled = unsafe { &*cancellation.cast::<IsCancelled>() };
    c_int::from(is_cancelled())
}

impl Reader {
    /// Opens a file or a stream whose frames have at most `most_pixels`.
    ///
    /// # Errors
    /// If it cannot be opened, has no video that can be decoded or no stream of the number, or FFmpeg has no such option for it.
    pub fn open(opencv: OpenCv, input: Input<'_>, options: &InputOptions, most_pixels: u64) -> Result<Self> {
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX >> 32);
        let (name, times, is_live, stop) = match input {
            Input::File(file) => (path(file)?, (0, 0), false, None),
            Input::Stream { url, open, read, is_live, is_cancelled } => (
                path(Path::new(url))?,
                (milliseconds(open), milliseconds(read)),
                is_live,
                Some(Box::new(is_cancelled)),
            ),
        };
        let text = |text: &String| {
            CString::new(text.as_str()).map_err(|_| "an option contains a null byte".to_owned())
        };
        let words = options.ffmpeg.iter().flat_map(|(name, value)| [name, value]).map(text);
        let words = words.collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<*const c_char> =
            words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
        let request = calls::Request {
            name: name.as_ptr(),
            open_timeout_ms: times.0,
            read_timeout_ms: times.1,
            most_pixels: i64::try_from(most_pixels).unwrap_or(i64::MAX),
            is_cancelled: stop.as_ref().map(|_| is_cancelled as unsafe extern "C" fn(*const c_void) -> c_int),
            cancellation: stop.as_deref().map_or(std::ptr::null(), |stop| std::ptr::from_ref(stop).cast()),
            options: pointers.as_ptr(),
            stream: options.stream.map_or(-1, |stream| i32::try_from(stream).unwrap_or(i32::MAX)),
            is_file: i32::from(stop.is_none()),
            is_live: i32::from(is_live),
        };
        let mut info = calls::Info::default();
        // SAFETY: the request, its name and its options outlive the call, the function in it is kept as long as the reader, and `info` is
        // writable.
        let reader = unsafe { (opencv.0.open)(&raw const request, &raw mut info) };
        Self::new(opencv, reader, &info, stop)
    }

    /// Opens a camera by its index, from 0.
    ///
    /// # Errors
    /// If there is no such camera, or another program uses it.
    pub fn open_camera(opencv: OpenCv, index: i32) -> Result<Self> {
        let mut info = calls::Info::default();
        // SAFETY: takes a number, and `info` is writable.
        let reader = unsafe { (opencv.0.open_camera)(index, &raw mut info) };
        Self::new(opencv, reader, &info, None)
    }

    fn new(
        opencv: OpenCv,
        reader: *mut calls::Reader,
        info: &calls::Info,
        stop: Option<Box<IsCancelled>>,
    ) -> Result<Self> {
        let reader = NonNull::new(reader).ok_or_else(|| opencv.last_error())?;
        let above_zero = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
        let side = |pixels: i32| u32::try_from(pixels).ok().filter(|pixels| *pixels > 0);
        let info = Info {
            size: side(info.width).zip(side(info.height)),
            frame_rate: Some(info.frame_rate).filter(|rate| *rate > 0.0),
            frames: above_zero(info.frames).map(|count| (count, info.counts_frames == 1)),
            duration: above_zero(info.duration_ns).map(Duration::from_nanos),
            shortest_interval: above_zero(info.shortest_interval_ns).map(Duration::from_nanos),
            has_sound: info.has_sound == 1,
        };
        Ok(Self { opencv, reader, info, size: (0, 0), failures: 0, _is_cancelled: stop })
    }

    /// What was known before the first frame.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// How much could not be decoded until now.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Decodes the next frame; `None` at the end, or if the time is up.
    ///
    /// # Errors
    /// If decoding cannot go on.
    pub fn next_frame(&mut self) -> Result<Option<Stamp>> {
        let mut stamp = calls::Stamp::default();
        self.size = (0, 0);
        // SAFETY: the reader is open until it is dropped, and `stamp` is writable.
        let code = unsafe { (self.opencv.0.next)(self.reader.as_ptr(), &raw mut stamp) };
        self.failures = stamp.failures.max(self.failures);
        if !self.opencv.flag(code)? {
            return Ok(None);
        }
        let side = |pixels: i32| u32::try_from(pixels).unwrap_or(0);
        self.size = (side(stamp.width), side(stamp.height));
        let time = u64::try_from(stamp.time_ns).ok().map(Duration::from_nanos);
        Ok(Some(Stamp { time, width: self.size.0, height: self.size.1 }))
    }

    /// Writes the frame that was read to `rgb`, `height × width × 3` bytes.
    ///
    /// # Errors
    /// If no frame of this size was read, or its pixels cannot be converted.
    pub fn convert(&mut self, rgb: &mut [u8]) -> Result<()> {
        let (width, height) = self.size;
        if rgb.is_empty() || rgb.len() != 3 * width as usize * height as usize {
            return Err(format!("expected room for {width}x{height} pixels, got {} bytes", rgb.len()));
        }
        // SAFETY: the reader is open and has a frame of this size, and the function writes as many bytes as it has pixels.
        let code = unsafe { (self.opencv.0.convert)(self.reader.as_ptr(), rgb.as_mut_ptr()) };
        self.opencv.flag(code).map(drop)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used afterwards.
        unsafe { (self.opencv.0.reader_free)(self.reader.as_ptr()) }
    }
}

/// What is written, and how.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'r> {
    /// A path, or the address of a server.
    pub name: &'r Path,
    /// Whether it is an address.
    pub is_stream: bool,
    /// FFmpeg's name of the container.
    pub muxer: &'r str,
    /// FFmpeg's name of the encoder.
    pub encoder: &'r str,
    /// The file whose sound and subtitles are copied, without being decoded.
    pub sound: Option<&'r Path>,
    /// Frames per second, about: an AVI file has this rate, others have the times of the frames.
    pub frame_rate: f64,
    /// Width and height in pixels; even.
    pub size: (u32, u32),
    /// As the encoder counts it, lower is better; `None` is its default.
    pub quality: Option<u32>,
}

/// A video file, or a stream to a server, that is being written.
#[derive(Debug)]
pub struct Writer {
    opencv: OpenCv,
    writer: NonNull<calls::Writer>,
    size: (u32, u32),
    left_out: u32,
}

// SAFETY: as for `Reader`, without a function.
unsafe impl Send for Writer {}

impl Writer {
    /// Starts a file.
    ///
    /// # Errors
    /// If there is no such encoder, it does not take this size, or the file cannot be written.
    pub fn create(opencv: OpenCv, recording: &Recording<'_>) -> Result<Self> {
        let text = |text: &str| CString::new(text).map_err(|_| "the name contains a null byte".to_owned());
        let (name, muxer, encoder) =
            (path(recording.name)?, text(recording.muxer)?, text(recording.encoder)?);
        let sound = recording.sound.map(path).transpose()?;
        let request = calls::Recording {
            name: name.as_ptr(),
            muxer: muxer.as_ptr(),
            encoder: encoder.as_ptr(),
            sound: sound.as_ref().map_or(std::ptr::null(), |sound| sound.as_ptr()),
            frame_rate: recording.frame_rate,
            width: side(recording.size.0)?,
            height: side(recording.size.1)?,
            quality: recording.quality.map_or(-1, |quality| i32::try_from(quality).unwrap_or(i32::MAX)),
            is_stream: i32::from(recording.is_stream),
        };
        let mut copied = calls::Copied::default();
        // SAFETY: the strings end with null bytes and outlive the call, and `copied` is writable.
        let writer = unsafe { (opencv.0.writer)(&raw const request, &raw mut copied) };
        let writer = NonNull::new(writer).ok_or_else(|| opencv.last_error())?;
        let left_out = u32::try_from(copied.left_out).unwrap_or(0);
        Ok(Self { opencv, writer, size: recording.size, left_out })
    }

    /// How many streams of sound and subtitles this container does not take.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Appends a frame of `height × width × 3` bytes, RGB, that was taken at a time of the source. Times grow.
    ///
    /// # Errors
    /// If the frame has another size, or it cannot be encoded or written.
    pub fn write(&mut self, rgb: &[u8], time: Duration) -> Result<()> {
        let (width, height) = self.size;
        if rgb.len() != 3 * width as usize * height as usize {
            return Err(format!("expected {width}x{height} pixels, got {} bytes", rgb.len()));
        }
        let time = i64::try_from(time.as_nanos()).map_err(|_| "the time is too late".to_owned())?;
        // SAFETY: the writer is open, and the pixels are as many as the sides say; the function only reads them.
        self.opencv.flag(unsafe { (self.opencv.0.write)(self.writer.as_ptr(), rgb.as_ptr(), time) }).map(drop)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
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

/// Writes a complete file again with its index in front, as players over the network want it.
///
/// # Errors
/// If it cannot be read or written.
pub fn remux(opencv: OpenCv, from: &Path, to: &Path, muxer: &str) -> Result<()> {
    let (from, to) = (path(from)?, path(to)?);
    let muxer = CString::new(muxer).map_err(|_| "the name contains a null byte".to_owned())?;
    // SAFETY: the strings end with null bytes and outlive the call.
    opencv.flag(unsafe { (opencv.0.remux)(from.as_ptr(), to.as_ptr(), muxer.as_ptr()) }).map(drop)
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
            return Err(format!("expected {width}x{height} pixels, got {} bytes", pixels.len()));
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
    c_int::try_from(pixels).map_err(|_| format!("a side of {pixels} pixels is too long"))
}

/// A path as C takes it: bytes on Unix, UTF-8 elsewhere.
fn path(path: &Path) -> Result<CString> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or_else(|| "the path is not Unicode".to_owned())?.as_bytes().to_vec();
    CString::new(bytes).map_err(|_| "the path contains a null byte".to_owned())
}
