//! Annotated frames as a video file, encoded by OpenCV.

mod guard;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use image::RgbImage;
use image::imageops::{self, FilterType};
use ocelli_opencv::{OpenCv, Writer};
use tempfile::NamedTempFile;

use super::{Pictures, Sink};
use crate::atomic_file::{part_of, without_temporary_name};
use crate::frame_view::swap_red_and_blue;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use guard::GrowthGuard;
use ocelli_error::{Error, ErrorKind, Result};

/// The codecs to try for each file extension, in order of preference, as OpenCV's four-character codes.
const CODECS: [(&str, &[&[u8; 4]]); 6] = [
    ("mp4", &[b"avc1", b"mp4v"]),
    ("m4v", &[b"avc1", b"mp4v"]),
    ("mov", &[b"avc1", b"mp4v"]),
    ("mkv", &[b"H264", b"mp4v"]),
    ("avi", &[b"MJPG", b"XVID"]),
    ("webm", &[b"VP80", b"VP90"]),
];
/// Frame rates that a container can store; OpenCV divides by zero below.
const VIDEO_RATES: RangeInclusive<f64> = 0.01..=1000.0;
/// Encoders reject smaller pictures.
const LEAST_SIDE: u32 = 16;
/// At most this much of a gap in time is filled: a stream may have been down for an hour.
const LONGEST_GAP_S: f64 = 10.0;

/// Creates a video of annotated frames at `frame_rate` frames per second; the file extension selects codec and container.
///
/// A trial encoding here fails early if this build lacks the encoder. The rate of the file is constant, and each frame is
/// shown within one frame interval of its time: if time stamps leave a gap (a variable rate, a stride, dropped frames), the
/// previous frame is repeated for at most ten seconds; of frames that arrive faster than the rate, those are left out that
/// would be shown later than that. Odd sides get a repeated row or column, and frames whose size differs from the first one's are scaled to fit. The file appears
/// when it is complete, also if the stream ends early.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown file extension or a frame rate outside 0.01 to 1000, [`ErrorKind::Unavailable`] if this build lacks the
/// encoder, [`ErrorKind::Io`] if the file cannot be written.
pub fn create_video(path: &Path, frame_rate: f64) -> Result<Box<dyn Sink>> {
    VideoFile::create(path, frame_rate).map(|file| Box::new(file) as Box<dyn Sink>)
}

/// The file extensions of videos that [`create_video`] can write here, found by trial; `webm`, which it can write as well
/// where OpenCV has the encoder, is not tried.
pub fn video_formats() -> Vec<&'static str> {
    let (Ok(folder), Ok(opencv)) = (tempfile::tempdir(), OpenCv::load()) else { return Vec::new() };
    let works = |ending: &str, codecs: &[&[u8; 4]]| {
        codecs.iter().any(|codec| can_encode(opencv, &folder.path().join(format!("trial.{ending}")), **codec))
    };
    // OpenCV writes a line to stderr whenever it opens a WebM file.
    let quiet = CODECS.iter().filter(|(ending, _)| *ending != "webm");
    quiet.filter(|(ending, codecs)| works(ending, codecs)).map(|(ending, _)| *ending).collect()
}

struct VideoFile {
    opencv: OpenCv,
    target: PathBuf,
    codec: [u8; 4],
    frame_rate: f64,
    /// The file until it is complete.
    part: Option<NamedTempFile>,
    open: Option<OpenFile>,
    failed: bool,
}

/// A file that is being written.
struct OpenFile {
    writer: Writer,
    guard: GrowthGuard,
    /// The encoder's input: even sides, BGR.
    encoded: Vec<u8>,
    /// Bytes in a row of it.
    row_bytes: usize,
    /// Width and height of the first frame.
    size: (u32, u32),
    /// The first frame's time in seconds.
    start: f64,
    frames: u64,
}

impl VideoFile {
    fn create(path: &Path, frame_rate: f64) -> Result<Self> {
        let refuse = |kind, why: &str| Error::new(kind, format!("{}: {why}", path.display()));
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        let codecs = CODECS.iter().find(|(known, _)| *known == ending).map(|(_, codecs)| *codecs);
        let codecs = codecs.ok_or_else(|| {
            let why = "unsupported video format; use .mp4, .mov, .mkv, .avi or .webm";
            refuse(ErrorKind::InvalidArgument, why)
        })?;
        if !VIDEO_RATES.contains(&frame_rate) {
            let (least, most) = (VIDEO_RATES.start(), VIDEO_RATES.end());
            let why = format!("the frame rate is {frame_rate}: expected {least} to {most} in a video");
            return Err(refuse(ErrorKind::InvalidArgument, &why).about("frame_rate"));
        }
        // Replaces the target of a symbolic link, not the link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = target.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let trial = tempfile::Builder::new().prefix(".ocelli-").tempdir_in(folder);
        let cannot = |e| Error::io("cannot write", path, without_temporary_name(e));
        let trial = trial.map_err(cannot)?;
        let opencv = OpenCv::load().map_err(|e| refuse(e.kind(), &format!("cannot write a video: {e}")))?;
        let encodes =
            |codec: &&[u8; 4]| can_encode(opencv, &trial.path().join(format!("trial.{ending}")), **codec);
        let codec = codecs.iter().copied().find(encodes).ok_or_else(|| {
            let why = format!(
                "this OpenCV has no encoder for .{ending}, or the folder is not writable; try .avi, or pictures such as \
                 out/%06d.png"
            );
            refuse(ErrorKind::Unavailable, &why)
        })?;
        let part = part_of(&target, &format!(".{ending}")).map_err(cannot)?;
        Ok(Self { opencv, target, codec: *codec, frame_rate, part: Some(part), open: None, failed: false })
    }

    fn cannot(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Io, format!("cannot write, {}: {why}", self.target.display()))
    }

    fn start(&self, picture: &Image, start: f64) -> Result<OpenFile> {
        let part = self
            .part
            .as_ref()
            .map(NamedTempFile::path)
            .ok_or_else(|| self.cannot("it is already complete"))?;
        let even = |side: u32| side.max(LEAST_SIDE).next_multiple_of(2);
        let (width, height) = (even(picture.width()), even(picture.height()));
        let writer = Writer::create(self.opencv, part, self.codec, self.frame_rate, (width, height));
        let writer = writer.map_err(|_| {
            self.cannot(format!(
                "the encoder does not support {width}x{height} at {} frames per second",
                self.frame_rate
            ))
        })?;
        let row_bytes = 3 * width as usize;
        Ok(OpenFile {
            writer,
            guard: GrowthGuard::new(part),
            encoded: vec![0; row_bytes * height as usize],
            row_bytes,
            size: (picture.width(), picture.height()),
            start,
            frames: 0,
        })
    }

    fn take(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(picture) = &outcome.annotated else { return Ok(()) };
        let time = outcome.time.as_secs_f64();
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.start(picture, time)?,
        };
        let encoder = |e: ocelli_opencv::Error| self.cannot(e);
        // The previous frame is shown until this one was taken.
        let due = ((time - open.start) * self.frame_rate).round() as u64;
        let longest = (LONGEST_GAP_S * self.frame_rate) as u64;
        if open.frames > 0 && due > open.frames {
            let gap = due - open.frames;
            for _ in 0..gap.min(longest) {
                open.writer.write(&open.encoded).map_err(encoder)?;
                open.frames += 1;
            }
            // The rest of a long gap is left out for good.
            open.start += gap.saturating_sub(longest) as f64 / self.frame_rate;
        }
        // Half a millisecond for times that are rounded to milliseconds.
        let shown = open.start + open.frames as f64 / self.frame_rate;
        if shown - time > 1.0 / self.frame_rate + 5e-4 {
            self.open = Some(open);
            return Ok(());
        }
        open.fill(picture);
        open.writer.write(&open.encoded).map_err(encoder)?;
        open.frames += 1;
        let checked = open.guard.after_frame();
        self.open = Some(open);
        checked.map_err(|why| self.cannot(why))
    }
}

impl OpenFile {
    /// Converts a picture to the encoder's input.
    fn fill(&mut self, picture: &Image) {
        let fitted;
        let picture = if (picture.width(), picture.height()) == self.size {
            picture
        } else {
            fitted = fit(picture, self.size);
            &fitted
        };
        let Self { encoded: bytes, row_bytes, .. } = self;
        let row_bytes = *row_bytes;
        let mut rows = bytes.chunks_exact_mut(row_bytes);
        for (to, from) in (&mut rows).zip(picture.view().rows()) {
            let (picture, padding) = to.split_at_mut(from.len());
            swap_red_and_blue(from, picture);
            let last = [picture[picture.len() - 3], picture[picture.len() - 2], picture[picture.len() - 1]];
            padding.chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&last));
        }
        drop(rows);
        let height = picture.height() as usize;
        for row in height..bytes.len() / row_bytes {
            bytes.copy_within((height - 1) * row_bytes..height * row_bytes, row * row_bytes);
        }
    }
}

/// Scales a picture to fit into a black page of another size, centred.
fn fit(picture: &Image, (width, height): (u32, u32)) -> Image {
    let (w, h) = (f64::from(picture.width()), f64::from(picture.height()));
    let scale = (f64::from(width) / w).min(f64::from(height) / h);
    let side = |side: f64, most: u32| ((side * scale).round() as u32).clamp(1, most);
    let scaled =
        imageops::resize(&picture.to_rgb_image(), side(w, width), side(h, height), FilterType::Triangle);
    let mut page = RgbImage::new(width, height);
    let (x, y) = ((width - scaled.width()) / 2, (height - scaled.height()) / 2);
    imageops::replace(&mut page, &scaled, i64::from(x), i64::from(y));
    Image::from_rgb8(width, height, page.into_raw()).expect("the page has the requested size")
}

/// Whether encoding two small frames works.
fn can_encode(opencv: OpenCv, path: &Path, codec: [u8; 4]) -> bool {
    let encode = || -> ocelli_opencv::Result<bool> {
        let mut writer = Writer::create(opencv, path, codec, 25.0, (64, 64))?;
        for _ in 0..2 {
            writer.write(&[90; 64 * 64 * 3])?;
        }
        writer.finish()?;
        Ok(path.metadata().is_ok_and(|metadata| metadata.len() > 0))
    };
    encode().unwrap_or(false)
}

impl Sink for VideoFile {
    fn pictures(&self) -> Pictures {
        Pictures::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let taken = self.take(outcome);
        self.failed |= taken.is_err();
        taken
    }

    fn finish(&mut self) -> Result<()> {
        let (Some(open), Some(part)) = (self.open.take(), self.part.take()) else { return Ok(()) };
        open.writer.finish().map_err(|e| self.cannot(e))?;
        // A partial file is useless; dropping it removes it.
        if self.failed {
            return Ok(());
        }
        guard::check_complete(part.path()).map_err(|why| self.cannot(why))?;
        part.persist(&self.target).map(drop).map_err(|e| self.cannot(e.error))
    }
}

#[cfg(test)]
mod tests;
