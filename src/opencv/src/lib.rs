//! The parts of FFmpeg and OpenCV that Ocelli uses: [`Reader`] reads video files, streams and cameras, [`Writer`] writes files
//! and streams, [`Window`] shows frames.
//!
//! These and what they need are hundreds of shared libraries, so they are loaded when a video is first opened:
//! [`Ffmpeg`] is `libocelli_video`, and [`OpenCv`] the `libocelli_window` beside it, which windows alone need. `build.sh` compiles
//! them against FFmpeg and OpenCV of the system in a few seconds. Frames are RGB, those that are shown BGR, 8 bits a channel,
//! without gaps between rows.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use ocelli_engines::ForeignMemory;
use ocelli_engines::cuda::CudaDevice;

mod calls;
mod window;

use calls::Table;

pub use window::{OpenCv, Window};

/// The result of a call. Its error is the message of FFmpeg or OpenCV.
pub type Result<T> = std::result::Result<T, String>;

/// The loaded library.
#[derive(Debug, Clone, Copy)]
pub struct Ffmpeg(&'static Table);

impl Ffmpeg {
    /// Loads the library, once in the life of the process. From then on FFmpeg writes nothing to stderr: failures are reported
    /// as errors.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it is not found, or not one for this program.
    pub fn load() -> ocelli_error::Result<Self> {
        let (_, table) = calls::load()?;
        // SAFETY: takes no argument.
        unsafe { (table.quiet)() }
        Ok(Self(table))
    }

    /// The version of FFmpeg.
    pub fn version(self) -> String {
        calls::text(self.0.version)
    }

    /// Checks that cameras can be opened: FFmpeg's library for them is loaded when the first is.
    ///
    /// # Errors
    /// If the library is missing.
    pub fn check_cameras(self) -> Result<()> {
        // SAFETY: takes no argument.
        self.flag(unsafe { (self.0.devices)() }).map(drop)
    }

    /// The result of a function that returns 1, 0 or a negative number.
    fn flag(self, code: c_int) -> Result<bool> {
        flag(code, self.0.error)
    }

    fn last_error(self) -> String {
        calls::text(self.0.error)
    }
}

/// The result of a function that returns 1, 0 or a negative number.
fn flag(code: c_int, error: unsafe extern "C" fn() -> *const c_char) -> Result<bool> {
    if code < 0 { Err(calls::text(error)) } else { Ok(code == 1) }
}

/// The properties of a video before its first frame, as its header says.
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
    /// `true` if there is sound.
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
    /// The hardware that decoded it; `None` is the CPU.
    pub hwaccel: Option<&'static str>,
}

/// The options with which FFmpeg opens a file, a stream or a camera.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputOptions {
    /// The number of the stream among the video streams, from 0; `None` is the one that players choose.
    pub stream: Option<u32>,
    /// Names and values of options of FFmpeg's protocols, containers and decoders, such as `rtsp_transport` and `udp`.
    pub ffmpeg: Vec<(String, String)>,
    /// FFmpeg's name of the hardware that decodes, such as `cuda`; `auto` is the first that works, and `None` the CPU. Frames
    /// are copied into memory unless they are [kept](Reader::keep).
    pub hwaccel: Option<String>,
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

/// The file, the camera or the stream to open.
pub enum Input<'i> {
    /// A file, whatever its name is.
    File(&'i Path),
    /// A camera: FFmpeg's name of its kind of devices, and of the device.
    Device(&'i str, &'i str),
    /// A URL.
    Stream {
        /// The address.
        url: &'i str,
        /// The longest time that opening may take.
        open: Duration,
        /// The longest time that the next frame may take.
        read: Duration,
        /// Asks for frames at once rather than fast.
        is_live: bool,
        /// Ends a call that waits, once it returns `true`.
        is_cancelled: IsCancelled,
    },
}

/// The longest time that a camera may take to open, and to the next frame.
pub const CAMERA_TIMEOUT: Duration = Duration::from_secs(10);

/// A function that returns `true` to stop.
pub type IsCancelled = Box<dyn Fn() -> bool + Send + Sync>;

/// An open video file, stream or camera.
pub struct Reader {
    ffmpeg: Ffmpeg,
    reader: NonNull<calls::Reader>,
    info: Info,
    /// Width and height of the frame that was read.
    size: (u32, u32),
    failures: u64,
    /// The GPU in whose context NVIDIA's hardware decodes.
    cuda: Option<Arc<CudaDevice>>,
    /// Used by `reader`.
    _is_cancelled: Option<Box<IsCancelled>>,
}

ocelli_engines::debug_as!(Reader, it => "Reader({:?})", it.info);

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
    pub fn open(ffmpeg: Ffmpeg, input: Input<'_>, options: &InputOptions, most_pixels: u64) -> Result<Self> {
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX >> 32);
        let text = |text: &str| {
            CString::new(text).map_err(|_| "a name or an option contains a null byte".to_owned())
        };
        let (mut device, is_file) = (None, matches!(input, Input::File(_)));
        let (name, times, is_live, stop) = match input {
            Input::File(file) => (path(file)?, (0, 0), false, None),
            Input::Device(kind, name) => {
                device = Some(text(kind)?);
                let time = milliseconds(CAMERA_TIMEOUT);
                (text(name)?, (time, time), true, None)
            }
            Input::Stream { url, open, read, is_live, is_cancelled } => (
                path(Path::new(url))?,
                (milliseconds(open), milliseconds(read)),
                is_live,
                Some(Box::new(is_cancelled)),
            ),
        };
        // FFmpeg takes GPU 0 where none is named.
        let can_be_cuda = matches!(options.hwaccel.as_deref(), Some("cuda" | "auto"));
        let cuda = can_be_cuda.then(|| CudaDevice::open(0).ok()).flatten();
        let hwaccel = options.hwaccel.as_deref().map(text).transpose()?;
        let words = options.ffmpeg.iter().flat_map(|(name, value)| [name, value]).map(|word| text(word));
        let words = words.collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<*const c_char> =
            words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
        let request = calls::Request {
            name: name.as_ptr(),
            device: pointer_of(device.as_deref()),
            hwaccel: pointer_of(hwaccel.as_deref()),
            cuda: cuda.as_ref().map_or(std::ptr::null_mut(), |gpu| gpu.raw_context()),
            open_timeout_ms: times.0,
            read_timeout_ms: times.1,
            most_pixels: i64::try_from(most_pixels).unwrap_or(i64::MAX),
            is_cancelled: stop.as_ref().map(|_| is_cancelled as unsafe extern "C" fn(*const c_void) -> c_int),
            cancellation: stop.as_deref().map_or(std::ptr::null(), |stop| std::ptr::from_ref(stop).cast()),
            options: pointers.as_ptr(),
            stream: options.stream.map_or(-1, |stream| i32::try_from(stream).unwrap_or(i32::MAX)),
            is_file: i32::from(is_file),
            is_live: i32::from(is_live),
        };
        let mut info = calls::Info::default();
        // SAFETY: the request, its strings and its options outlive the call, the function and the context in it are kept as long as the
        // reader, the context as long as its frames, and `info` is writable.
        let reader = unsafe { (ffmpeg.0.open)(&raw const request, &raw mut info) };
        let reader = NonNull::new(reader).ok_or_else(|| ffmpeg.last_error())?;
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
        Ok(Self { ffmpeg, reader, info, size: (0, 0), failures: 0, cuda, _is_cancelled: stop })
    }

    /// The properties that were known before the first frame.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Number of failures to decode until now.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Decodes the next frame; `None` at the end, or if the time is up.
    ///
    /// # Errors
    /// If decoding cannot go on.
    pub fn next_frame(&mut self) -> Result<Option<Stamp>> {
        let mut stamp =
            calls::Stamp { time_ns: 0, failures: 0, hwaccel: std::ptr::null(), width: 0, height: 0 };
        self.size = (0, 0);
        // SAFETY: the reader is open until it is dropped, and `stamp` is writable.
        let code = unsafe { (self.ffmpeg.0.next)(self.reader.as_ptr(), &raw mut stamp) };
        self.failures = stamp.failures.max(self.failures);
        if !self.ffmpeg.flag(code)? {
            return Ok(None);
        }
        let side = |pixels: i32| u32::try_from(pixels).unwrap_or(0);
        self.size = (side(stamp.width), side(stamp.height));
        let time = u64::try_from(stamp.time_ns).ok().map(Duration::from_nanos);
        // SAFETY: null, or one of FFmpeg's names, which stay as long as the library, and it is never unloaded.
        let hwaccel = unsafe { stamp.hwaccel.as_ref().map(|name| CStr::from_ptr(name)) };
        let hwaccel = hwaccel.and_then(|name| name.to_str().ok());
        Ok(Some(Stamp { time, width: self.size.0, height: self.size.1, hwaccel }))
    }

    /// Writes the frame that was read to `rgb`, `height × width × 3` bytes.
    ///
    /// # Errors
    /// If no frame of this size was read, or its pixels cannot be converted.
    pub fn convert(&mut self, rgb: &mut [u8]) -> Result<()> {
        check_size(self.size, rgb)?;
        // SAFETY: the reader is open and has a frame of this size, and the function writes as many bytes as it has pixels.
        let code = unsafe { (self.ffmpeg.0.convert)(self.reader.as_ptr(), rgb.as_mut_ptr()) };
        self.ffmpeg.flag(code).map(drop)
    }

    /// Keeps the frame that was read on the GPU with this ordinal; `None` if it does not lie there as upright NV12, or six frames are
    /// kept already.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn keep(&mut self, ordinal: usize) -> Result<Option<GpuFrame>> {
        let Some(cuda) = self.cuda.as_ref().filter(|gpu| gpu.ordinal() == ordinal && self.size != (0, 0))
        else {
            return Ok(None);
        };
        let (mut planes, mut kept) = (calls::Planes::default(), std::ptr::null_mut());
        // SAFETY: the reader is open and has a frame, and both places are writable.
        let code = unsafe { (self.ffmpeg.0.keep)(self.reader.as_ptr(), &raw mut planes, &raw mut kept) };
        self.ffmpeg.flag(code)?;
        let Some(kept) = NonNull::new(kept) else { return Ok(None) };
        let (ffmpeg, size, _cuda) = (self.ffmpeg, self.size, Arc::clone(cuda));
        let frame = Arc::new(KeptFrame { ffmpeg, kept, size, _cuda });
        let calls::Planes { luma, chroma, luma_stride, chroma_stride, matrix, is_full } = planes;
        let planes = [(luma, luma_stride), (chroma, chroma_stride)].map(|(address, stride)| {
            // SAFETY: the frame lies in the primary context of this GPU until it is dropped; its decoder writes it on the default
            // stream, before the frame comes here.
            let memory = unsafe { ForeignMemory::new(address, ordinal, frame.clone()) };
            (memory, usize::try_from(stride).unwrap_or(0))
        });
        Ok(Some(GpuFrame { planes, matrix, is_full: is_full == 1, frame }))
    }
}

/// A frame that was read and lies in the memory of a GPU, as NV12.
#[derive(Debug)]
pub struct GpuFrame {
    /// The plane of luma and that of blue and red chroma in turn, and the bytes from one row to the next.
    pub planes: [(ForeignMemory, usize); 2],
    /// FFmpeg's coefficients for chroma in limited range, with 16 fractional bits: red from red chroma, blue from blue, and what
    /// blue and red take from green.
    pub matrix: [i32; 4],
    /// `true` if luma and chroma have all 256 levels.
    pub is_full: bool,
    /// Keeps it there.
    pub frame: Arc<KeptFrame>,
}

/// Keeps a frame in the memory of a GPU. It may outlive its reader.
#[derive(Debug)]
pub struct KeptFrame {
    ffmpeg: Ffmpeg,
    kept: NonNull<calls::KeptHandle>,
    size: (u32, u32),
    _cuda: Arc<CudaDevice>,
}

// SAFETY: the frame has no ties to the thread that made it.
unsafe impl Send for KeptFrame {}
// SAFETY: the library takes a lock where it converts, and does nothing else with a frame that is shared.
unsafe impl Sync for KeptFrame {}

impl KeptFrame {
    /// Copies it into memory and writes it to `rgb`, `height × width × 3` bytes.
    ///
    /// # Errors
    /// If the room is for another size, or its pixels cannot be copied or converted.
    pub fn convert(&self, rgb: &mut [u8]) -> Result<()> {
        check_size(self.size, rgb)?;
        // SAFETY: the frame has this size, and the function writes as many bytes as it has pixels.
        let code = unsafe { (self.ffmpeg.0.kept_convert)(self.kept.as_ptr(), rgb.as_mut_ptr()) };
        self.ffmpeg.flag(code).map(drop)
    }
}

impl Drop for KeptFrame {
    fn drop(&mut self) {
        // SAFETY: made by `keep`, and not used afterwards.
        unsafe { (self.ffmpeg.0.kept_free)(self.kept.as_ptr()) }
    }
}

/// Checks that a buffer has as many bytes as the pixels of a frame.
fn check_size((width, height): (u32, u32), rgb: &[u8]) -> Result<()> {
    if rgb.is_empty() || rgb.len() != 3 * width as usize * height as usize {
        return Err(format!("expected {width}x{height} pixels, got {} bytes", rgb.len()));
    }
    Ok(())
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used afterwards.
        unsafe { (self.ffmpeg.0.reader_free)(self.reader.as_ptr()) }
    }
}

/// The video to write, and its encoding.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'r> {
    /// A path, or the address of a server.
    pub name: &'r Path,
    /// `true` if it is an address.
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
    ffmpeg: Ffmpeg,
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
    pub fn create(ffmpeg: Ffmpeg, recording: &Recording<'_>) -> Result<Self> {
        let text = |text: &str| CString::new(text).map_err(|_| "the name contains a null byte".to_owned());
        let (name, muxer, encoder) =
            (path(recording.name)?, text(recording.muxer)?, text(recording.encoder)?);
        let sound = recording.sound.map(path).transpose()?;
        let request = calls::Recording {
            name: name.as_ptr(),
            muxer: muxer.as_ptr(),
            encoder: encoder.as_ptr(),
            sound: pointer_of(sound.as_deref()),
            frame_rate: recording.frame_rate,
            width: side(recording.size.0)?,
            height: side(recording.size.1)?,
            quality: recording.quality.map_or(-1, |quality| i32::try_from(quality).unwrap_or(i32::MAX)),
            is_stream: i32::from(recording.is_stream),
        };
        let mut copied = calls::Copied::default();
        // SAFETY: the strings end with null bytes and outlive the call, and `copied` is writable.
        let writer = unsafe { (ffmpeg.0.writer)(&raw const request, &raw mut copied) };
        let writer = NonNull::new(writer).ok_or_else(|| ffmpeg.last_error())?;
        let left_out = u32::try_from(copied.left_out).unwrap_or(0);
        Ok(Self { ffmpeg, writer, size: recording.size, left_out })
    }

    /// Number of streams of sound and subtitles that this container does not take.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Appends a frame of `height × width × 3` bytes, RGB, that was taken at a time of the source. Times grow.
    ///
    /// # Errors
    /// If the frame has another size, or it cannot be encoded or written.
    pub fn write(&mut self, rgb: &[u8], time: Duration) -> Result<()> {
        check_size(self.size, rgb)?;
        let time = i64::try_from(time.as_nanos()).map_err(|_| "the time is too late".to_owned())?;
        // SAFETY: the writer is open, and the pixels are as many as the sides say; the function only reads them.
        self.ffmpeg.flag(unsafe { (self.ffmpeg.0.write)(self.writer.as_ptr(), rgb.as_ptr(), time) }).map(drop)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<()> {
        // SAFETY: the writer is open.
        self.ffmpeg.flag(unsafe { (self.ffmpeg.0.writer_finish)(self.writer.as_ptr()) }).map(drop)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and not used afterwards.
        unsafe { (self.ffmpeg.0.writer_free)(self.writer.as_ptr()) }
    }
}

/// Writes a complete file again with its index in front, as players over the network want it.
///
/// # Errors
/// If it cannot be read or written.
pub fn remux(ffmpeg: Ffmpeg, from: &Path, to: &Path, muxer: &str) -> Result<()> {
    let (from, to) = (path(from)?, path(to)?);
    let muxer = CString::new(muxer).map_err(|_| "the name contains a null byte".to_owned())?;
    // SAFETY: the strings end with null bytes and outlive the call.
    ffmpeg.flag(unsafe { (ffmpeg.0.remux)(from.as_ptr(), to.as_ptr(), muxer.as_ptr()) }).map(drop)
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

fn pointer_of(text: Option<&CStr>) -> *const c_char {
    text.map_or(std::ptr::null(), CStr::as_ptr)
}
