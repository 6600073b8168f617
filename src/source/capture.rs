//! Video files, cameras and network streams, decoded by OpenCV.

mod timeline;

use std::path::Path;
use std::time::{Duration, Instant};

use ocelli_opencv::{Backend, Capture as VideoCapture, OpenCv, Property};

use super::container::{Container, FrameIndex, frame_times};
use super::{FRAME_RATES, Source, SourceInfo, StreamKind, StreamTimeouts, without_secrets};
use crate::frame::Frame;
use crate::frame_view::swap_red_and_blue;
use ocelli_error::{Error, ErrorKind, Result};
use timeline::Timeline;

/// Higher rates are time bases that were mistaken for frame rates.
const MAX_FRAME_RATE: f64 = 1000.0;
/// A decoder may recover after frames that it cannot decode, but never at the end of a file.
const ATTEMPTS: u32 = 64;
/// Higher counts come from headers without one.
const MAX_FRAME_COUNT: f64 = 1e9;

/// OpenCV's version and the backends that it reads videos and streams with.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the video library is not installed or cannot be loaded.
pub fn video_library() -> Result<String> {
    let opencv = OpenCv::load()?;
    Ok(format!("OpenCV {}: {}", opencv.version(), opencv.stream_backends().join(", ")))
}

/// The video library, for a message about what it is needed for.
fn load(name: &str) -> Result<OpenCv> {
    OpenCv::load().map_err(|e| Error::new(e.kind(), format!("cannot open {name}: {e}")))
}

/// Opens a video file.
///
/// Frames are rotated upright and have the container's time stamps. A truncated or corrupt file provides the frames that
/// can be decoded, then an error.
///
/// # Errors
/// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::InvalidData`] if it is not a video.
pub fn open_video(path: &Path) -> Result<Box<dyn Source>> {
    let io = |e| Error::io("cannot open the video", path, e);
    if path.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    let mut container = Container::inspect(path).map_err(io)?.unwrap_or_default();
    let name = path.display().to_string();
    let refuse =
        |why: &str| Error::new(ErrorKind::InvalidData, format!("cannot open the video, {name}: {why}"));
    if path.metadata().map_err(io)?.len() == 0 {
        return Err(refuse("the file is empty"));
    }
    let opencv = load(&format!("the video, {name}"))?;
    // Other backends are a last resort: they interpret paths as patterns and pipelines.
    let mut found = VideoCapture::open(opencv, path, Backend::Ffmpeg, &[]);
    if found.is_err() && !opencv.has_stream_backend(Backend::Ffmpeg) {
        found = VideoCapture::open(opencv, path, Backend::Any, &[]);
    }
    let Ok(mut capture) = found else {
        return Err(match container {
            Container { unfinished: true, .. } => refuse("there is no index: the recording was cut off"),
            Container { missing_bytes: 1.., .. } => refuse("the file is truncated, and no frame can be read"),
            _ => refuse("no video that this build can decode"),
        });
    };
    let turns = container.quarter_turns;
    if turns.is_some() {
        // OpenCV 4.6 with FFmpeg 5 rotates in the wrong direction, so frames are rotated here.
        capture.set(Property::OrientationAuto, 0.0);
    }
    let mut source = Capture::new(name, capture, turns.unwrap_or(0))?;
    source.info.has_sound = container.has_sound;
    match frame_times(path).map_err(io)? {
        FrameIndex::Times(times) => {
            source.info.shortest_interval = times.windows(2).map(|pair| pair[1] - pair[0]).min();
            source.timeline = Timeline::indexed(times, source.info.frame_rate);
        }
        FrameIndex::Unknown => {}
        FrameIndex::DamagedAt(byte) => container.damaged_at = Some(byte),
    }
    source.file = Some(container);
    Ok(Box::new(source))
}

/// Opens a camera by its index, from 0.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no such camera, or another program uses it.
pub fn open_camera(index: u32) -> Result<Box<dyn Source>> {
    let name = format!("camera {index}");
    let opencv = load(&name)?;
    let refuse = || {
        let message = format!("cannot open {name}: it does not exist, or another program uses it");
        Error::new(ErrorKind::Unavailable, message)
    };
    let index = i32::try_from(index).map_err(|_| refuse())?;
    let capture = VideoCapture::open_camera(opencv, index).map_err(|_| refuse())?;
    let mut source = Capture::new(name, capture, 0)?;
    source.go_live();
    Ok(Box::new(source))
}

/// Opens a stream by its URL: `rtsp://…`, `http://…` and the other protocols of FFmpeg.
///
/// A file on a server (see [`StreamKind::of_url`]) provides every frame, and to end early is an error. All other streams
/// are live: frames are timed by the stream's clock if it keeps time with this machine's, else by their arrival, and the end is
/// an error.
///
/// # Errors
/// [`ErrorKind::Io`] if nothing answers in time, or the answer is not a video.
pub fn open_stream(url: &str, timeouts: StreamTimeouts) -> Result<Box<dyn Source>> {
    open_stream_as(url, None, timeouts)
}

/// As [`open_stream`], for a stream whose kind is known; `None` lets the URL decide, and then whether its length is known.
///
/// # Errors
/// As [`open_stream`].
pub fn open_stream_as(
    url: &str,
    kind: Option<StreamKind>,
    timeouts: StreamTimeouts,
) -> Result<Box<dyn Source>> {
    let milliseconds = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let parameters = [
        (Property::OpenTimeoutMs, milliseconds(timeouts.open)),
        (Property::ReadTimeoutMs, milliseconds(timeouts.read)),
    ];
    let opencv = load(&format!("the stream, {}", without_secrets(url)))?;
    let capture = VideoCapture::open(opencv, Path::new(url), Backend::Ffmpeg, &parameters);
    let capture = capture.map_err(|_| {
        let message = format!(
            "cannot open the stream, {}: nothing answers within {} s, or the answer is not a video",
            without_secrets(url),
            timeouts.open.as_secs_f64()
        );
        Error::new(ErrorKind::Io, message)
    })?;
    let mut source = Capture::new(without_secrets(url), capture, 0)?;
    source.timeout = Some(timeouts.read);
    let by_length = if source.info.frame_count.is_some() { StreamKind::File } else { StreamKind::Live };
    if kind.or_else(|| StreamKind::of_url(url)).unwrap_or(by_length) == StreamKind::Live {
        source.go_live();
    }
    Ok(Box::new(source))
}

struct Capture {
    info: SourceInfo,
    capture: VideoCapture,
    quarter_turns: u8,
    timeline: Timeline,
    next: u64,
    /// The container, if the stream is a file.
    file: Option<Container>,
    /// The time limit of a read, if the stream comes through a network.
    timeout: Option<Duration>,
    /// The number of failures from which the decoder recovered.
    failures: u64,
}

impl Capture {
    fn new(name: String, capture: VideoCapture, quarter_turns: u8) -> Result<Self> {
        let number = |property| capture.get(property);
        let frame_rate = Some(number(Property::FrameRate))
            .filter(|rate| FRAME_RATES.contains(rate) && *rate <= MAX_FRAME_RATE);
        let frame_count = Some(number(Property::FrameCount)).filter(|n| (1.0..=MAX_FRAME_COUNT).contains(n));
        let (width, height) = (number(Property::FrameWidth) as u32, number(Property::FrameHeight) as u32);
        let size = if quarter_turns % 2 == 1 { (height, width) } else { (width, height) };
        let info = SourceInfo {
            name,
            size: Some(size).filter(|(width, height)| *width > 0 && *height > 0),
            frame_rate,
            frame_count: frame_count.map(|count| count as u64),
            ..SourceInfo::default()
        };
        Ok(Self {
            timeline: Timeline::new(frame_rate),
            info,
            capture,
            quarter_turns,
            next: 0,
            file: None,
            timeout: None,
            failures: 0,
        })
    }

    /// Marks the source as live: frames are timed by the stream's clock or this machine's.
    fn go_live(&mut self) {
        self.info.live = true;
        self.info.frame_count = None;
        self.timeline = Timeline::live();
    }

    /// Advances to the next frame without converting it.
    fn advance(&mut self, frame: &mut Frame) -> Result<bool> {
        let start = Instant::now();
        let mut attempts = 1;
        while !self.capture.grab().map_err(|e| failed(&self.info, self.next, &e))? {
            if self.file.is_none() || attempts == ATTEMPTS {
                return self.end(start.elapsed()).map(|()| false);
            }
            attempts += 1;
        }
        self.failures += u64::from(attempts > 1);
        let position_ms = self.capture.get(Property::PositionMs);
        frame.index = self.next;
        (frame.time, frame.captured) = self.timeline.next(position_ms);
        self.next += 1;
        Ok(true)
    }

    /// Converts the frame that was advanced to.
    fn decode(&mut self, frame: &mut Frame) -> Result<()> {
        let Self { capture, info, next, quarter_turns, .. } = self;
        let decoded = capture.retrieve(*quarter_turns).map_err(|e| failed(info, *next, &e))?;
        let Some(picture) = decoded else {
            let message =
                format!("cannot decode frame {}, {}: expected 8-bit colours", frame.index, info.name);
            return Err(Error::new(ErrorKind::InvalidData, message));
        };
        let rgb = frame.image.reset_rgb8(picture.width, picture.height)?;
        swap_red_and_blue(picture.pixels, rgb);
        Ok(())
    }

    /// Checks whether the stream may end here.
    fn end(&self, waited: Duration) -> Result<()> {
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
                Some((reached, announced)) => {
                    let why = format!("the connection was lost at {reached:.1} s of {announced:.1} s");
                    refuse_as(ErrorKind::Io, &why)
                }
                None => Ok(()),
            };
        };
        let count = self.info.frame_count.filter(|_| container.counts_frames);
        if container.missing_bytes > 0 {
            return refuse(&format!("the file is truncated, {} bytes are missing", container.missing_bytes));
        }
        if read == 0 {
            return refuse("the file is corrupt, or has no frames");
        }
        if let Some(byte) = container.damaged_at {
            return refuse(&format!("the file is corrupt at byte {byte}: frames behind it may be missing"));
        }
        if self.failures > 0 && count.is_none_or(|count| read < count) {
            return refuse("the file is corrupt: some frames could not be decoded");
        }
        match self.missing_from(count, container.duration) {
            Some((reached, announced)) => {
                refuse(&format!("the file is corrupt: it ends at {reached:.1} s of {announced:.1} s"))
            }
            None => Ok(()),
        }
    }

    /// If frames are missing: where the stream ends and where it should, in seconds.
    ///
    /// A header may count hidden frames, and its duration may include trailing sound: frames are only missing if both
    /// say so.
    fn missing_from(&self, count: Option<u64>, duration: Option<Duration>) -> Option<(f64, f64)> {
        let count = count.filter(|&count| self.next < count)?;
        let seconds_per_frame = 1.0 / self.info.frame_rate.unwrap_or(f64::INFINITY);
        let announced = duration.map_or(count as f64 * seconds_per_frame, |d| d.as_secs_f64());
        let reached = self.timeline.end().as_secs_f64();
        (reached < 0.98 * announced - 3.0 * seconds_per_frame).then_some((reached, announced))
    }
}

fn failed(info: &SourceInfo, frame: u64, error: &ocelli_opencv::Error) -> Error {
    Error::new(ErrorKind::InvalidData, format!("cannot read frame {frame}, {}: {error}", info.name))
}

/// Whether the stream goes on with the next frame: a live one has lost a frame that cannot be decoded, and not its connection,
/// unless none can be decoded.
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
