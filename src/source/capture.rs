//! Video files, cameras and network streams, decoded by FFmpeg.

mod timeline;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ocelli_opencv::InputOptions;
use ocelli_opencv::{CAMERA_TIMEOUT, Ffmpeg, GpuFrame, Input, Reader, Stamp};

use super::container::Container;
use super::{FRAME_RATES, Source, SourceInfo, StreamKind, StreamTimeouts, without_secrets};
use crate::cancellation::Cancellation;
use crate::frame::Frame;
use crate::image::MAX_PIXELS;
use ocelli_error::{Error, ErrorKind, Result};
use ocelli_images::{DeviceFrame, Nv12Colours};
use timeline::Timeline;

/// Higher rates are time bases that were mistaken for frame rates.
const MAX_FRAME_RATE: f64 = 1000.0;
/// A live stream may recover after frames that it cannot decode.
const ATTEMPTS: u32 = 64;
/// Higher counts come from headers without one.
const MAX_FRAME_COUNT: u64 = 1_000_000_000;

/// The versions of what reads videos and streams.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the video library is not installed or cannot be loaded.
pub fn video_library() -> Result<String> {
    Ffmpeg::load().map(Ffmpeg::version)
}

/// Checks that cameras can be opened.
///
/// # Errors
/// [`ErrorKind::Unavailable`] without the video library, or without FFmpeg's library for cameras.
pub fn check_cameras() -> Result<()> {
    Ffmpeg::load()?.check_cameras().map_err(Error::unavailable)
}

/// The video library, for a message about what it is needed for.
fn load(name: &str) -> Result<Ffmpeg> {
    Ffmpeg::load().map_err(|e| Error::new(e.kind(), format!("cannot open {name}: {e}")))
}

/// Opens a video file.
///
/// Frames are rotated upright and have their own size, which may change from one to the next, and their own time stamps. A
/// truncated or corrupt file provides the frames that can be decoded, then an error.
///
/// # Errors
/// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::InvalidData`] if it is not a video.
pub fn open_video(path: &Path) -> Result<Box<dyn Source>> {
    open_video_with(path, &InputOptions::default())
}

/// [`open_video`] of one of several video streams, or with options of FFmpeg.
///
/// # Errors
/// Those of [`open_video`], and [`ErrorKind::InvalidData`] if there is no such stream or option.
pub fn open_video_with(path: &Path, options: &InputOptions) -> Result<Box<dyn Source>> {
    let io = |e| Error::io("cannot open the video", path, e);
    if path.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    let container = Container::inspect(path).map_err(io)?.unwrap_or_default();
    let name = path.display().to_string();
    let refuse = |why: &str| Error::invalid_data(format!("cannot open the video, {name}: {why}"));
    if path.metadata().map_err(io)?.len() == 0 {
        return Err(refuse("the file is empty"));
    }
    let ffmpeg = load(&format!("the video, {name}"))?;
    let reader =
        Reader::open(ffmpeg, Input::File(path), options, MAX_PIXELS).map_err(|why| match container {
            Container { unfinished: true, .. } => refuse("there is no index: the recording was cut off"),
            Container { missing_bytes: 1.., .. } => refuse("the file is truncated, and no frame can be read"),
            _ if is_about_options(&why) => refuse(&why),
            _ => refuse(&format!("no video that this build can decode: {why}")),
        })?;
    let mut source = Capture::new(name, reader, options);
    source.file = Some(container);
    source.info.file = Some(path.to_owned());
    Ok(Box::new(source))
}

/// Opens a camera by its index, from 0, with options of FFmpeg such as `video_size` and `framerate`.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no such camera, another program uses it, it does not have an option, or FFmpeg's library for
/// cameras is missing.
pub fn open_camera(index: u32, options: &InputOptions) -> Result<Box<dyn Source>> {
    let name = format!("camera {index}");
    if cfg!(target_os = "macos") {
        return open_device(name, "avfoundation", &index.to_string(), options);
    }
    open_device(name, "v4l2", &format!("/dev/video{index}"), options)
}

/// Opens a device of a kind, which has this name in messages.
fn open_device(name: String, kind: &str, device: &str, options: &InputOptions) -> Result<Box<dyn Source>> {
    let ffmpeg = load(&name)?;
    let refuse = |why: &str| Error::unavailable(format!("cannot open {name}: {why}"));
    ffmpeg.check_cameras().map_err(|why| refuse(&why))?;
    let reader = Reader::open(ffmpeg, Input::Device(kind, device), options, MAX_PIXELS).map_err(|why| {
        let why = if is_about_options(&why) { &why } else { "it does not exist, or another program uses it" };
        refuse(why)
    })?;
    let mut source = Capture::new(name, reader, options);
    source.go_live();
    source.timeout = Some(CAMERA_TIMEOUT);
    Ok(Box::new(source))
}

/// Opens a stream by its URL: `rtsp://…`, `http://…` and the other protocols of FFmpeg. Cancelling ends what waits for the server.
///
/// A file on a server provides every frame, and to end early is an error. All other streams are live: frames are timed by the
/// stream's clock if it keeps time with this machine's, else by their arrival, and the end is an error. Without a `kind` the URL
/// decides (see [`StreamKind::of_url`]), and then whether its length is known.
///
/// # Errors
/// [`ErrorKind::Io`] if nothing answers in time, or the answer is not a video.
pub fn open_stream(
    url: &str,
    kind: Option<StreamKind>,
    timeouts: StreamTimeouts,
    options: &InputOptions,
    cancellation: Cancellation,
) -> Result<Box<dyn Source>> {
    let ffmpeg = load(&format!("the stream, {}", without_secrets(url)))?;
    let kind = kind.or_else(|| StreamKind::of_url(url));
    let input = Input::Stream {
        url,
        open: timeouts.open,
        read: timeouts.read,
        is_live: kind != Some(StreamKind::File),
        is_cancelled: {
            let cancellation = cancellation.clone();
            Box::new(move || cancellation.is_cancelled())
        },
    };
    let reader = Reader::open(ffmpeg, input, options, MAX_PIXELS);
    cancellation.check()?;
    let reader = reader.map_err(|error| {
        let (url, seconds) = (without_secrets(url), timeouts.open.as_secs_f64());
        // Other messages of FFmpeg have the address with its password.
        let why = if is_about_options(&error) {
            error
        } else {
            format!("nothing answers within {seconds} s, or the answer is not a video")
        };
        Error::new(ErrorKind::Io, format!("cannot open the stream, {url}: {why}"))
    })?;
    let mut source = Capture::new(without_secrets(url), reader, options);
    (source.timeout, source.cancellation) = (Some(timeouts.read), cancellation);
    let by_length = if source.info.frame_count.is_some() { StreamKind::File } else { StreamKind::Live };
    if kind.unwrap_or(by_length) == StreamKind::Live {
        source.go_live();
    }
    Ok(Box::new(source))
}

/// `true` if a message of the video library is about what was asked for.
fn is_about_options(why: &str) -> bool {
    ["no option ", "no video stream ", "no devices ", "hwaccel "].iter().any(|start| why.starts_with(start))
}

struct Capture {
    info: SourceInfo,
    reader: Reader,
    /// The frame that was advanced to.
    stamp: Option<Stamp>,
    timeline: Timeline,
    next: u64,
    /// The container, if the stream is a file.
    file: Option<Container>,
    /// The time limit of a read, if the stream comes through a network.
    timeout: Option<Duration>,
    cancellation: Cancellation,
    /// Set to log what decodes: hardware was asked for, and no frame was decoded.
    logs_hardware: bool,
    /// Set to log that frames stay on a GPU: with several sources, the first ones do not.
    logs_stay: bool,
}

impl Capture {
    fn new(name: String, reader: Reader, options: &InputOptions) -> Self {
        let found = reader.info();
        let frame_rate =
            found.frame_rate.filter(|rate| FRAME_RATES.contains(rate) && *rate <= MAX_FRAME_RATE);
        let info = SourceInfo {
            name,
            size: found.size,
            frame_rate,
            frame_count: found.frames.map(|(count, _)| count).filter(|count| *count <= MAX_FRAME_COUNT),
            estimates_frames: found.frames.is_some_and(|(_, is_counted)| !is_counted),
            shortest_interval: found.shortest_interval,
            has_sound: found.has_sound,
            ..SourceInfo::default()
        };
        let timeline = Timeline::new(frame_rate);
        let cancellation = Cancellation::new();
        let logs_hardware = options.hwaccel.is_some();
        Self {
            info,
            reader,
            stamp: None,
            timeline,
            next: 0,
            file: None,
            timeout: None,
            cancellation,
            logs_hardware,
            logs_stay: true,
        }
    }

    /// Marks the source as live: frames are timed by the stream's clock or this machine's.
    fn go_live(&mut self) {
        self.info.live = true;
        (self.info.frame_count, self.info.shortest_interval) = (None, None);
        self.timeline = Timeline::live();
    }

    /// Advances to the next frame without converting it.
    fn advance(&mut self, frame: &mut Frame) -> Result<bool> {
        let start = Instant::now();
        self.stamp = self.reader.next_frame().map_err(|e| failed("read", self.next, &self.info.name, &e))?;
        let Some(stamp) = self.stamp else { return self.end(start.elapsed()).map(|()| false) };
        frame.index = self.next;
        (frame.time, frame.captured) = self.timeline.next(stamp.time);
        self.next += 1;
        Ok(true)
    }

    /// Converts the frame that was advanced to, or leaves it on the GPU where it may stay.
    fn decode(&mut self, frame: &mut Frame) -> Result<()> {
        let Some(stamp) = self.stamp else { return Ok(()) };
        let index = frame.index;
        let cannot = |e: String| failed("decode", index, &self.info.name, &e);
        let kept = frame.gpu.map_or(Ok(None), |gpu| self.reader.keep(gpu)).map_err(cannot)?;
        let stays = kept.is_some() && std::mem::take(&mut self.logs_stay);
        if std::mem::take(&mut self.logs_hardware) || stays {
            let stay = if stays { "; frames stay on the GPU" } else { "" };
            tracing::info!("{}: decoded by {}{stay}", self.info.name, stamp.hwaccel.unwrap_or("the CPU"));
        }
        frame.on_gpu = kept.map(|GpuFrame { planes: [luma, chroma], matrix, is_full, frame }| {
            let name = self.info.name.clone();
            let to_rgb =
                move |rgb: &mut [u8]| frame.convert(rgb).map_err(|e| failed("decode", index, &name, &e));
            let colours = Nv12Colours::from_coefficients(matrix, is_full);
            let (width, height) = (stamp.width, stamp.height);
            DeviceFrame { width, height, luma, chroma, colours, to_rgb: Arc::new(to_rgb) }
        });
        if frame.on_gpu.is_some() {
            return Ok(());
        }
        let rgb = frame.image.reset_rgb8(stamp.width, stamp.height)?;
        self.reader.convert(rgb).map_err(cannot)
    }

    /// Checks whether the stream may end here.
    fn end(&self, waited: Duration) -> Result<()> {
        if self.cancellation.is_cancelled() {
            return Ok(());
        }
        let (name, read) = (&self.info.name, self.next);
        let timed_out = self.timeout.filter(|timeout| waited >= *timeout);
        let timed_out = timed_out.map(|timeout| format!("no frame for {} s", timeout.as_secs_f64()));
        if self.info.live {
            let why = timed_out.unwrap_or_else(|| "the stream ended".into());
            return Err(Error::new(ErrorKind::Io, format!("{name}: {why}")));
        }
        let refuse_as = |kind, why: &str| {
            let of = self.info.frame_count.map_or_else(String::new, |count| format!(" of {count}"));
            Err(Error::new(kind, format!("{name}: {why}; {read}{of} frames were read")))
        };
        let refuse = |why: &str| refuse_as(ErrorKind::InvalidData, why);
        let Some(container) = &self.file else {
            if let Some(why) = timed_out {
                return refuse_as(ErrorKind::Io, &why);
            }
            if read == 0 {
                let why = "the server sends no frame; one that does not support byte ranges cannot send every file, so \
                           download the file first";
                return refuse_as(ErrorKind::Io, why);
            }
            return match self.missing_from(self.info.frame_count, None) {
                Some(place) => refuse_as(ErrorKind::Io, &format!("the connection was lost {place}")),
                None => Ok(()),
            };
        };
        let found = self.reader.info();
        let count = self.info.frame_count.filter(|_| !self.info.estimates_frames);
        if container.missing_bytes > 0 {
            return refuse(&format!("the file is truncated, {} bytes are missing", container.missing_bytes));
        }
        if read == 0 {
            return refuse("the file is corrupt, or has no frames");
        }
        if let Some(byte) = container.damaged_at {
            return refuse(&format!("the file is corrupt at byte {byte}: frames behind it may be missing"));
        }
        if self.reader.failures() > 0 && count.is_none_or(|count| read < count) {
            return refuse("the file is corrupt: some frames could not be decoded");
        }
        match self.missing_from(count, found.duration) {
            Some(place) => refuse(&format!("the file is corrupt: it ends {place}")),
            None => Ok(()),
        }
    }

    /// If frames are missing: where the stream ends and where it should, as the end of a sentence.
    ///
    /// A header may count hidden frames, and its duration may include trailing sound: frames are only missing if both
    /// say so.
    fn missing_from(&self, count: Option<u64>, duration: Option<Duration>) -> Option<String> {
        let count = count.filter(|&count| self.next < count)?;
        let seconds_per_frame = 1.0 / self.info.frame_rate.unwrap_or(f64::INFINITY);
        let announced = duration.map_or(count as f64 * seconds_per_frame, |d| d.as_secs_f64());
        let reached = self.timeline.end().as_secs_f64();
        let is_short = reached < 0.98 * announced - 3.0 * seconds_per_frame;
        is_short.then(|| format!("at {reached:.1} s of {announced:.1} s"))
    }
}

fn failed(step: &str, frame: u64, name: &str, error: &str) -> Error {
    Error::invalid_data(format!("cannot {step} frame {frame}, {name}: {error}"))
}

/// `true` if the stream goes on with the next frame: a live one has lost a frame that cannot be decoded, and not its
/// connection, unless none can be decoded.
fn is_skipped(info: &SourceInfo, attempt: u32, decoded: &Result<()>) -> bool {
    let Err(error) = decoded else { return false };
    let is_skipped = info.live && attempt < ATTEMPTS;
    if is_skipped {
        tracing::debug!("{error}; skipped");
    }
    is_skipped
}

impl Source for Capture {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        for attempt in 1.. {
            if !self.advance(frame)? {
                return Ok(false);
            }
            let decoded = self.decode(frame);
            if !is_skipped(&self.info, attempt, &decoded) {
                return decoded.map(|()| true);
            }
        }
        Ok(false)
    }

    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        self.advance(frame)
    }
}

#[cfg(test)]
mod tests;
