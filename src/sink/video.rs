//! Annotated frames as a video file or a stream, encoded by FFmpeg.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ocelli_opencv::{Ffmpeg, Recording, Writer, remux};
use tempfile::NamedTempFile;

use super::image_files::letterboxed;
use super::{Images, Sink};
use crate::atomic_file::{part_of, without_temporary_name};
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::source::without_secrets;
use ocelli_error::{Error, ErrorKind, Result};

/// FFmpeg's container for each file extension, and the codecs to try, in order of preference.
static CONTAINERS: [Container; 6] = [
    Container { name: "mp4", muxer: "mp4", codecs: &["h264", "mpeg4"] },
    Container { name: "m4v", muxer: "mp4", codecs: &["h264", "mpeg4"] },
    Container { name: "mov", muxer: "mov", codecs: &["h264", "mpeg4"] },
    Container { name: "mkv", muxer: "matroska", codecs: &["h264", "mpeg4"] },
    Container { name: "avi", muxer: "avi", codecs: &["mjpeg", "mpeg4"] },
    Container { name: "webm", muxer: "webm", codecs: &["vp9", "vp8"] },
];
/// The same for each protocol of a server.
static PROTOCOLS: [Container; 6] = [
    Container { name: "rtsp", muxer: "rtsp", codecs: &["h264", "mpeg4"] },
    Container { name: "rtmp", muxer: "flv", codecs: &["h264"] },
    Container { name: "rtmps", muxer: "flv", codecs: &["h264"] },
    Container { name: "srt", muxer: "mpegts", codecs: &["h264", "mpeg4"] },
    Container { name: "udp", muxer: "mpegts", codecs: &["h264", "mpeg4"] },
    Container { name: "tcp", muxer: "mpegts", codecs: &["h264", "mpeg4"] },
];
/// The encoders of a codec, in order of preference.
const ENCODERS: [(&str, &[&str]); 8] = [
    ("h264", &["libx264", "libopenh264"]),
    ("hevc", &["libx265"]),
    ("av1", &["libsvtav1", "libaom-av1"]),
    ("vp9", &["libvpx-vp9"]),
    ("vp8", &["libvpx"]),
    ("mjpeg", &["mjpeg"]),
    ("ffv1", &["ffv1"]),
    ("mpeg4", &["mpeg4"]),
];
/// Frame rates that a container can store.
const VIDEO_RATES: RangeInclusive<f64> = 0.01..=1000.0;
/// Encoders reject smaller images.
const LEAST_SIDE: u32 = 16;

/// The encoding of annotated frames.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VideoOptions {
    /// Frames per second, about: an `.avi` has this rate, other files and streams have the times of the frames.
    pub frame_rate: f64,
    /// `h264`, `hevc`, `av1`, `vp9`, `vp8`, `mjpeg`, `ffv1`, `mpeg4`, or FFmpeg's name of an encoder, such as `h264_nvenc`;
    /// `None` is the usual codec of the container.
    pub codec: Option<String>,
    /// Constant quality as the encoder counts it, lower is better: 0 to 51 for H.264 and HEVC, 0 to 63 for AV1 and VP9, 1 to
    /// 31 for the others. `None` is the encoder's default.
    pub quality: Option<u32>,
    /// A video whose sound and subtitles are copied to the times of its frames, without being decoded.
    pub sound: Option<PathBuf>,
}

impl VideoOptions {
    /// The usual codec and quality, without sound.
    pub fn new(frame_rate: f64) -> Self {
        Self { frame_rate, codec: None, quality: None, sound: None }
    }
}

/// Creates a video of annotated frames: a file, whose extension selects the container, or a stream to the server of an
/// `rtsp`, `rtmp`, `srt`, `udp` or `tcp` address.
///
/// A trial encoding here fails early if this build lacks the encoder. Each frame is shown at its time, to the millisecond. An
/// `.avi` alone has a constant rate: each frame is shown within one frame interval of its time, and of frames that come
/// faster some are left out. Odd sides get a repeated row or column, and frames whose size differs from the first one's are
/// scaled to fit. A file appears when it is complete, also if the source ends early; what is written until then is a hidden
/// file beside it, which can be played up to its last second if the program is killed.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown file extension, codec or protocol, or a frame rate outside 0.01 to 1000,
/// [`ErrorKind::Unavailable`] if this build lacks the encoder, [`ErrorKind::Io`] if the file cannot be written.
pub fn create_video(path: &Path, options: &VideoOptions) -> Result<Box<dyn Sink>> {
    VideoFile::create(path, options).map(|file| Box::new(file) as Box<dyn Sink>)
}

/// The file extensions of videos that [`create_video`] can write here, found by trial.
pub fn video_formats() -> Vec<&'static str> {
    let (Ok(folder), Ok(library)) = (tempfile::tempdir(), Ffmpeg::load()) else { return Vec::new() };
    let works = |container: &Container| container.encoder(library, folder.path(), None).is_ok();
    CONTAINERS.iter().filter(|container| works(container)).map(|container| container.name).collect()
}

/// `true` if a name is the address of a server that a video can be sent to.
pub fn is_stream_address(path: &Path) -> bool {
    protocol(path).is_some()
}

fn protocol(path: &Path) -> Option<&str> {
    path.to_str()?.split_once("://").map(|(protocol, _)| protocol)
}

struct Container {
    /// The file extension, or the protocol.
    name: &'static str,
    muxer: &'static str,
    codecs: &'static [&'static str],
}

impl Container {
    /// The first encoder that works in this container, of a codec, or of its usual ones; else why the last one does not.
    fn encoder(
        &self,
        library: Ffmpeg,
        folder: &Path,
        codec: Option<&str>,
    ) -> std::result::Result<String, String> {
        let trial = folder.join(format!("trial.{}", self.name));
        let named = codec.map(|codec| [codec]);
        let codecs = named.as_ref().map_or(self.codecs, |named| &named[..]);
        let encoders = codecs.iter().flat_map(|codec| {
            let known = ENCODERS.iter().find(|(name, _)| name == codec);
            known.map_or_else(|| vec![*codec], |(_, encoders)| encoders.to_vec())
        });
        // A stream begins with its first frame; a file of its container stands for it.
        let muxer = match self.muxer {
            "rtsp" => "mpegts",
            muxer => muxer,
        };
        let mut failed = String::new();
        for encoder in encoders {
            match try_encoder(library, &trial, muxer, encoder) {
                Ok(()) => return Ok(encoder.to_owned()),
                Err(why) => failed = format!("{encoder}: {why}"),
            }
        }
        Err(failed)
    }
}

struct VideoFile {
    library: Ffmpeg,
    options: VideoOptions,
    target: PathBuf,
    muxer: &'static str,
    encoder: String,
    /// The file until it is complete; `None` for a stream.
    part: Option<NamedTempFile>,
    open: Option<OpenFile>,
    failed: bool,
}

/// A file that is being written.
struct OpenFile {
    writer: Writer,
    /// The encoder's input: even sides, RGB.
    encoded: Vec<u8>,
    /// Bytes in a row of it.
    row_bytes: usize,
    /// Width and height of the first frame.
    size: (u32, u32),
}

impl VideoFile {
    fn create(path: &Path, options: &VideoOptions) -> Result<Self> {
        let refuse = |kind, why: &str| Error::new(kind, format!("{}: {why}", shown(path)));
        let is_stream = is_stream_address(path);
        let container = container_of(path).ok_or_else(|| {
            let why = if is_stream {
                "unsupported protocol; use rtsp, rtmp, rtmps, srt, udp or tcp"
            } else {
                "unsupported video format; use .mp4, .mov, .mkv, .avi or .webm"
            };
            refuse(ErrorKind::InvalidArgument, why)
        })?;
        if !VIDEO_RATES.contains(&options.frame_rate) {
            let (least, most) = (VIDEO_RATES.start(), VIDEO_RATES.end());
            let why =
                format!("the frame rate is {}: expected {least} to {most} in a video", options.frame_rate);
            return Err(refuse(ErrorKind::InvalidArgument, &why).about("frame_rate"));
        }
        // Replaces the target of a symbolic link, not the link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = target.parent().filter(|f| !is_stream && !f.as_os_str().is_empty());
        let folder =
            folder.map_or_else(|| if is_stream { std::env::temp_dir() } else { ".".into() }, Path::to_owned);
        let cannot = |e| Error::io("cannot write", path, without_temporary_name(e));
        let trial = tempfile::Builder::new().prefix(".ocelli-").tempdir_in(folder).map_err(cannot)?;
        let library = Ffmpeg::load().map_err(|e| refuse(e.kind(), &format!("cannot write a video: {e}")))?;
        let encoder =
            container.encoder(library, trial.path(), options.codec.as_deref()).map_err(|failed| {
                let names: Vec<&str> = ENCODERS.iter().map(|(name, _)| *name).collect();
                match &options.codec {
                    Some(codec) => {
                        let expected =
                            format!("expected {}, or FFmpeg's name of an encoder", names.join(", "));
                        let why = format!("codec {codec} in {}: {failed}; {expected}", container.muxer);
                        refuse(ErrorKind::Unavailable, &why).about("codec")
                    }
                    None => {
                        let instead = "try .avi, or images such as out/%06d.png";
                        refuse(ErrorKind::Unavailable, &format!("cannot write a video, {failed}; {instead}"))
                    }
                }
            })?;
        let part = (!is_stream).then(|| part_of(&target, &format!(".{}", container.name)));
        let part = part.transpose().map_err(cannot)?;
        let (options, muxer) = (options.clone(), container.muxer);
        Ok(Self { library, options, target, muxer, encoder, part, open: None, failed: false })
    }

    fn cannot(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Io, format!("cannot write, {}: {why}", shown(&self.target)))
    }

    fn start(&self, image: &Image) -> Result<OpenFile> {
        let even = |side: u32| side.max(LEAST_SIDE).next_multiple_of(2);
        let size = (even(image.width()), even(image.height()));
        let recording = Recording {
            name: self.part.as_ref().map_or(&*self.target, NamedTempFile::path),
            is_stream: self.part.is_none(),
            muxer: self.muxer,
            encoder: &self.encoder,
            sound: self.options.sound.as_deref(),
            frame_rate: self.options.frame_rate,
            size,
            quality: self.options.quality,
        };
        let writer = Writer::create(self.library, &recording).map_err(|why| {
            let (width, height) = size;
            self.cannot(format!("{} at {width}x{height}: {why}", self.encoder))
        })?;
        if writer.left_out() > 0 {
            tracing::warn!(
                "{}: it cannot hold {} of the source's streams of sound and subtitles; an .mkv takes all",
                shown(&self.target),
                writer.left_out()
            );
        }
        let row_bytes = 3 * size.0 as usize;
        let encoded = vec![0; row_bytes * size.1 as usize];
        Ok(OpenFile { writer, encoded, row_bytes, size: (image.width(), image.height()) })
    }

    fn take(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.annotated else { return Ok(()) };
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.start(image)?,
        };
        open.fill(image)?;
        let written = open.writer.write(&open.encoded, outcome.time);
        self.open = Some(open);
        written.map_err(|why| self.cannot(why))
    }

    /// Moves the file to its place, with its index in front where it has one.
    fn complete(&self, part: NamedTempFile) -> Result<()> {
        let cannot = |e: std::io::Error| self.cannot(without_temporary_name(e));
        let mut complete = part;
        if matches!(self.muxer, "mp4" | "mov") {
            let ending = self.target.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            let usual = part_of(&self.target, &format!(".{ending}")).map_err(cannot)?;
            match remux(self.library, complete.path(), usual.path(), self.muxer) {
                Ok(()) => complete = usual,
                // What is there can be played as it is.
                Err(why) => tracing::warn!(
                    "{}: it stays in fragments, without an index in front: {why}",
                    shown(&self.target)
                ),
            }
        }
        complete.persist(&self.target).map(drop).map_err(|e| self.cannot(e.error))
    }
}

impl OpenFile {
    /// Converts an image to the encoder's input.
    fn fill(&mut self, image: &Image) -> Result<()> {
        let fitted;
        let image = if (image.width(), image.height()) == self.size {
            image
        } else {
            fitted = letterboxed(image, self.size)?;
            &fitted
        };
        let Self { encoded: bytes, row_bytes, .. } = self;
        let row_bytes = *row_bytes;
        let rows = image.as_rgb8().chunks_exact(3 * image.width() as usize);
        for (to, from) in bytes.chunks_exact_mut(row_bytes).zip(rows) {
            let (image, padding) = to.split_at_mut(from.len());
            image.copy_from_slice(from);
            let last = [image[image.len() - 3], image[image.len() - 2], image[image.len() - 1]];
            padding.chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&last));
        }
        let height = image.height() as usize;
        for row in height..bytes.len() / row_bytes {
            bytes.copy_within((height - 1) * row_bytes..height * row_bytes, row * row_bytes);
        }
        Ok(())
    }
}

/// A path as it is, an address without its password.
fn shown(path: &Path) -> String {
    without_secrets(&path.to_string_lossy())
}

fn container_of(path: &Path) -> Option<&'static Container> {
    let (table, name) = match protocol(path) {
        Some(protocol) => (&PROTOCOLS, protocol.to_owned()),
        None => (&CONTAINERS, path.extension()?.to_string_lossy().to_lowercase()),
    };
    table.iter().find(|known| known.name == name)
}

/// Encodes two small frames.
fn try_encoder(library: Ffmpeg, path: &Path, muxer: &str, encoder: &str) -> ocelli_opencv::Result<()> {
    let recording = Recording {
        name: path,
        is_stream: false,
        muxer,
        encoder,
        sound: None,
        frame_rate: 25.0,
        size: (64, 64),
        quality: None,
    };
    let mut writer = Writer::create(library, &recording)?;
    for frame in 0..2 {
        writer.write(&[90; 64 * 64 * 3], Duration::from_millis(40 * frame))?;
    }
    writer.finish()
}

impl Sink for VideoFile {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let taken = self.take(outcome);
        self.failed |= taken.is_err();
        taken
    }

    fn finish(&mut self) -> Result<()> {
        let Some(OpenFile { writer, .. }) = self.open.take() else { return Ok(()) };
        writer.finish().map_err(|e| self.cannot(e))?;
        match self.part.take() {
            // A partial file is useless; dropping it removes it.
            Some(_) if self.failed => Ok(()),
            Some(part) => self.complete(part),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
