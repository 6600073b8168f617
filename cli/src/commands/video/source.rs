//! `--video` and what goes with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{self as cli, usage, with_flags};
use clap::Args;
use ocelli::source::{
    PictureFiles, Position, RawFormat, RawFrames, Reconnecting, ReconnectingOptions, Selected, Selection,
    StreamTimeouts, natural_order, open_camera, open_stream, open_video,
};
use ocelli::{Cancellation, Source, SourceInfo};
use ocelli_datasets::scenes::{MovingScene, vocabulary};

/// Frames per second of pictures, and of streams that do not say.
const FRAME_RATE: f64 = 30.0;
/// What is drawn without --video.
const SCENE_SIZE: (u32, u32) = (960, 540);
const SCENE_RATE: f64 = 25.0;
const SCENE_FRAMES: u64 = 250;
/// A scene that looks good.
const SCENE_SEED: u64 = 5;

/// Where frames come from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Video")]
pub struct SourceArgs {
    /// A video file; pictures as a folder or a pattern; a camera by its number, 0 the first; an address, rtsp://… or
    /// http://…; - for raw frames on stdin [default: a drawn scene with what --classes names]
    #[arg(long, aliases = ["source", "input"], num_args = 1.., value_name = "FILE|DIR|GLOB|URL|N|-")]
    pub video: Vec<String>,
    /// The form of raw frames on stdin: WIDTHxHEIGHT:PIXELS with bgr, rgb, gray or nv12, and @FPS if it is not 30
    #[arg(long, value_name = "FORM")]
    pub raw: Option<RawFormat>,
    /// Frames per second of pictures and of streams that do not say [default: 30]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub fps: Option<f64>,
    /// Where to begin: seconds (12.5), minutes (1:30), or a frame (300f)
    #[arg(long, value_name = "PLACE", allow_negative_numbers = true)]
    pub start: Option<Position>,
    /// Where to end, this frame left out
    #[arg(long, value_name = "PLACE", allow_negative_numbers = true)]
    pub end: Option<Position>,
    /// Take every Nth frame only
    #[arg(long, alias = "vid_stride", value_name = "N", allow_negative_numbers = true)]
    pub vid_stride: Option<u64>,
    /// Take at most so many frames
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_frames: Option<u64>,
    /// For how long a camera or a stream that is lost is asked for; 0: not at all [default: 60]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub reconnect: Option<f64>,
    /// Size of the drawn scene
    #[arg(long, value_name = "WIDTHxHEIGHT")]
    pub scene_size: Option<String>,
}

/// A source, and what was found out about it on the way.
pub struct OpenSource {
    /// The frames.
    pub source: Box<dyn Source>,
    /// The files that it reads.
    pub files: Vec<PathBuf>,
}

impl OpenSource {
    /// What is known of the stream.
    pub fn info(&self) -> &SourceInfo {
        self.source.info()
    }
}

impl SourceArgs {
    /// Opens what is named; a lost live source comes back until `cancellation` wants an end. `classes` are drawn where
    /// nothing is named.
    ///
    /// # Errors
    /// Of usage where the arguments do not fit each other, else what opening finds.
    pub fn open(&self, classes: &[String], cancellation: &Cancellation) -> anyhow::Result<OpenSource> {
        let rate = self.fps.unwrap_or(FRAME_RATE);
        if !(rate.is_finite() && rate > 0.0) {
            return Err(usage(format!("--fps is {rate}: expected a number above 0")));
        }
        if self.raw.is_some() && self.video != ["-"] {
            return Err(usage("--raw is the form of frames on stdin: add --video -"));
        }
        let mut read = Vec::new();
        let source: Box<dyn Source> = match self.video.as_slice() {
            [] => self.scene(classes)?,
            [one] if one == "-" => {
                let Some(format) = self.raw else {
                    return Err(usage("--video - needs the form of the frames: --raw 1280x720:bgr"));
                };
                Box::new(RawFrames::new("stdin", format, std::io::stdin()))
            }
            [one] => match named(one) {
                Named::Camera(index) => self.live(move || open_camera(index), cancellation)?,
                Named::Address(url) => {
                    self.live(move || open_stream(&url, StreamTimeouts::default()), cancellation)?
                }
                Named::Pictures(path) => {
                    let mut files = cli::expand_images(std::slice::from_ref(&path))?;
                    natural_order(&mut files);
                    read.clone_from(&files);
                    Box::new(PictureFiles::new(one.as_str(), files, rate)?)
                }
                Named::Video(path) => {
                    if !path.exists() {
                        return Err(usage(format!("no video, {one}: no such file or folder")));
                    }
                    let source = open_video(&path)?;
                    read.push(path);
                    source
                }
            },
            several => {
                let paths: Vec<PathBuf> = several.iter().map(PathBuf::from).collect();
                if let Some(other) =
                    paths.iter().find(|path| path.is_file() && !ocelli::image::has_image_extension(path))
                {
                    let why = "one video at a time; only pictures may be several";
                    return Err(usage(format!("--video, {}: {why}", other.display())));
                }
                read = cli::expand_images(&paths)?;
                Box::new(PictureFiles::new("pictures", read.clone(), rate)?)
            }
        };
        let mut selection = Selection::default();
        (selection.start, selection.end) = (self.start, self.end);
        (selection.stride, selection.max_frames) = (self.vid_stride, self.max_frames);
        let flags =
            [("stride is", "--vid-stride is"), ("end is not after start", "--end is not after --start")];
        let selected = Selected::new(source, selection).map_err(|e| with_flags(e, &flags))?;
        Ok(OpenSource { source: Box::new(selected), files: read })
    }

    /// A source that is opened again when it is lost; a file that an address leads to is not lost when it ends.
    fn live(
        &self,
        mut open: impl FnMut() -> ocelli::Result<Box<dyn Source>> + Send + 'static,
        cancellation: &Cancellation,
    ) -> anyhow::Result<Box<dyn Source>> {
        let seconds = self.reconnect.unwrap_or(60.0);
        let give_up_after = Duration::try_from_secs_f64(seconds)
            .map_err(|_| usage(format!("--reconnect is {seconds}: expected seconds, 0 for not at all")))?;
        let source = open()?;
        if !source.info().live {
            return Ok(source);
        }
        let mut first = Some(source);
        let open = move || first.take().map_or_else(&mut open, Ok);
        let mut options = ReconnectingOptions::default();
        options.give_up_after = give_up_after;
        Ok(Box::new(Reconnecting::connect(open, options, cancellation.clone())?))
    }

    fn scene(&self, classes: &[String]) -> anyhow::Result<Box<dyn Source>> {
        let known = |class: &&String| vocabulary().contains(&class.to_lowercase().as_str());
        let drawn: Vec<String> = classes.iter().filter(known).map(|class| class.to_lowercase()).collect();
        if drawn.is_empty() {
            return Err(usage(format!(
                "no video: name one with --video; a scene can be drawn of things such as {}, {} or {}, and --classes \
                 names none of them",
                vocabulary()[0],
                vocabulary()[14],
                vocabulary()[60]
            )));
        }
        let (width, height) = match &self.scene_size {
            None => SCENE_SIZE,
            Some(text) => {
                let sides = text.split_once(['x', 'X']).map(|(w, h)| (w.parse(), h.parse()));
                let Some((Ok(width), Ok(height))) = sides else {
                    return Err(usage(format!(
                        "--scene-size is {text}: expected WIDTHxHEIGHT, such as 1280x720"
                    )));
                };
                (width, height)
            }
        };
        let frames = self.max_frames.unwrap_or(SCENE_FRAMES).max(1);
        let rate = self.fps.unwrap_or(SCENE_RATE);
        let frames = match (self.end, self.vid_stride) {
            (None, None) if self.start.is_none() => frames,
            // Enough for whatever is selected of it.
            _ => u64::from(u32::MAX)
                .min(SCENE_FRAMES.max(frames.saturating_mul(self.vid_stride.unwrap_or(1).max(1)))),
        };
        Ok(Box::new(MovingScene::new(SCENE_SEED, &drawn, width, height, frames, rate)?))
    }
}

/// What a word after --video means.
#[derive(Debug, PartialEq)]
enum Named {
    Camera(u32),
    Address(String),
    Pictures(PathBuf),
    Video(PathBuf),
}

fn named(text: &str) -> Named {
    let path = Path::new(text);
    if !path.exists() {
        if let Ok(index) = text.parse() {
            return Named::Camera(index);
        }
        if let Some(path) = text.strip_prefix("file://") {
            return named(path);
        }
        if text.contains("://") {
            return Named::Address(text.to_owned());
        }
        if text.contains(['*', '?', '[']) {
            return Named::Pictures(path.to_owned());
        }
    }
    if let Some(index) = text.strip_prefix("/dev/video").and_then(|number| number.parse().ok()) {
        return Named::Camera(index);
    }
    // An animated GIF is a video.
    let is_gif = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gif"));
    if path.is_dir() || (ocelli::image::has_image_extension(path) && !is_gif) {
        return Named::Pictures(path.to_owned());
    }
    Named::Video(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_video() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("odd [1].mp4"), "x").expect("it can be written to");
        for (text, expected) in [
            ("0", Named::Camera(0)),
            ("12", Named::Camera(12)),
            ("/dev/video2", Named::Camera(2)),
            ("rtsp://a:b@c/d", Named::Address("rtsp://a:b@c/d".into())),
            ("http://c/d*.mp4", Named::Address("http://c/d*.mp4".into())),
            ("file:///x/y.mp4", Named::Video("/x/y.mp4".into())),
            ("frames/*.png", Named::Pictures("frames/*.png".into())),
            ("one.JPG", Named::Pictures("one.JPG".into())),
            ("moving.gif", Named::Video("moving.gif".into())),
            ("street.mp4", Named::Video("street.mp4".into())),
            (&folder.path().display().to_string(), Named::Pictures(folder.path().into())),
            (&at("odd [1].mp4"), Named::Video(at("odd [1].mp4").into())),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }
}
