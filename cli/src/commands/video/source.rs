//! `--video` and the options of sources.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ocelli::source::{
    FRAME_RATES, Feed, ImageFiles, Position, RawFormat, RawFrames, Reconnecting, Selected, Selection,
    Several, SeveralStates, StreamKind, check_cameras, natural_order, without_secrets,
};
use ocelli::videos::{self, VideoInput};
use ocelli::{Cancellation, Source};
use ocelli_export::read_text;
use ocelli_verify::scenes::{MovingScene, vocabulary};

use crate::args::{INPUT, InputArgs, frame_files, videos_of};
use crate::given::first_given_of;
use crate::{interrupted, usage};

/// Frames per second of images, and of raw frames of unknown rate.
const FRAME_RATE: f64 = 30.0;
/// The scene that is drawn without `--video`.
const SCENE_SIZE: (u32, u32) = (960, 540);
const SCENE_RATE: f64 = 25.0;
const SCENE_FRAMES: u64 = 250;
const SCENE_SEED: u64 = 5;

/// Source of frames.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = INPUT)]
pub struct SourceArgs {
    /// Video file, folder or pattern of videos or of images, camera number (0 is the first), rtsp:// or http:// URL, or - for
    /// raw frames on stdin; several videos, cameras and streams share the model [default: a drawn scene]
    #[arg(long, aliases = ["source", "input"], num_args = 1.., value_name = "SOURCE")]
    pub video: Vec<String>,
    /// File with a source per line, as with --video: SOURCE or NAME=SOURCE
    #[arg(long, value_name = "FILE", conflicts_with = "video")]
    pub sources: Option<PathBuf>,
    /// Format of raw frames on stdin: WIDTHxHEIGHT:PIXELS[@FPS], PIXELS is bgr, rgb, gray or nv12
    #[arg(long, value_name = "FORMAT", value_parser = parse_raw)]
    pub raw: Option<(RawFormat, bool)>,
    /// Frames per second of images and of streams of unknown rate [default: 30]
    #[arg(long, id = "frame_rate", value_name = "RATE")]
    pub fps: Option<f64>,
    /// Start at seconds (12.5), minutes (1:30) or a frame (300f)
    #[arg(long, value_name = "POSITION")]
    pub start: Option<Position>,
    /// End before this position
    #[arg(long, value_name = "POSITION")]
    pub end: Option<Position>,
    /// Read every Nth frame
    #[arg(long, id = "stride", alias = "vid_stride", value_name = "N")]
    pub vid_stride: Option<u64>,
    /// Read at most N frames
    #[arg(long, value_name = "N")]
    pub max_frames: Option<u64>,
    /// Seconds to wait for a camera or stream that is lost, or off at the start; 0 is never [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub reconnect: Option<f64>,
    /// Take the URL of --video as a live stream: frames may be dropped, and its end is a loss [default: by protocol, file
    /// extension and length]
    #[arg(long, conflicts_with = "file")]
    pub live: bool,
    /// Take the URL of --video as a file: every frame is read, and to end early is an error
    #[arg(long)]
    pub file: bool,
    #[command(flatten)]
    pub input: InputArgs,
    /// Size of the drawn scene [default: 960x540]
    #[arg(long, value_name = "WIDTHxHEIGHT")]
    pub scene_size: Option<String>,
}

/// An open source.
pub struct OpenSource {
    /// The frames.
    pub source: Box<dyn Source>,
    /// The files that it reads.
    pub files: Vec<PathBuf>,
    /// The states of several sources.
    pub states: Option<SeveralStates>,
}

impl OpenSource {
    /// The names of all sources.
    pub fn names(&self) -> Vec<String> {
        match &self.states {
            Some(states) => states.snapshot().into_iter().map(|state| state.name).collect(),
            None => vec![self.source.info().name.clone()],
        }
    }
}

impl SourceArgs {
    /// `true` if the source is the drawn scene.
    pub fn is_drawn(&self) -> bool {
        self.video.is_empty() && self.sources.is_none()
    }

    /// Frames per second of images.
    fn rate(&self) -> f64 {
        self.fps.unwrap_or(FRAME_RATE)
    }

    /// Opens the source; a live source reconnects until `cancellation`. Without a source, draws `classes`. Of several sources,
    /// `newest` is whether newer frames replace older ones.
    ///
    /// # Errors
    /// If arguments conflict or the source cannot be opened.
    pub fn open(
        &self,
        classes: &[&str],
        newest: Option<bool>,
        cancellation: &Cancellation,
    ) -> anyhow::Result<OpenSource> {
        let rate = self.rate();
        if !FRAME_RATES.contains(&rate) {
            let (least, most) = (FRAME_RATES.start(), FRAME_RATES.end());
            refuse!("--fps is {rate}: expected {least} to {most}");
        }
        let video = with_videos_of_folders(&self.video)?;
        let several = match &self.sources {
            Some(path) => Some(named_sources(path)?),
            None if is_several(&video) => {
                let named = |text: &String| Named { name: None, source: text.clone() };
                Some(video.iter().map(named).collect())
            }
            None => None,
        };
        let named: Vec<&str> = match &several {
            Some(all) => all.iter().map(|named| named.source.as_str()).collect(),
            None => video.iter().take(1).map(String::as_str).collect(),
        };
        let is_url = |one: &&str| matches!(SourceName::parse(one), SourceName::Url(_));
        if (self.live || self.file) && !named.iter().any(is_url) {
            let flag = if self.live { "--live" } else { "--file" };
            refuse!("{flag} is for URLs: expected --video http://… or another URL");
        }
        let is_read_by_ffmpeg =
            |one: &&str| !matches!(SourceName::parse(one), SourceName::Images(_)) && *one != "-";
        if let Some(flag) = first_given_of::<InputArgs>().filter(|_| !named.iter().any(is_read_by_ffmpeg)) {
            refuse!("{flag} is for video files, URLs and cameras: expected one with --video");
        }
        if self.raw.is_some() && self.video != ["-"] {
            refuse!("--raw is the format of frames on stdin: add --video -");
        }
        if let Some(several) = several {
            return self.open_several(several, newest, cancellation);
        }
        let (source, files) = self.open_one(&video, classes, true, cancellation)?;
        Ok(OpenSource { source, files, states: None })
    }

    /// Opens several sources side by side. A stream or a camera that cannot be opened is waited for without the others; it, or
    /// a file that cannot be opened, has then failed, and leaves them alone.
    fn open_several(
        &self,
        several: Vec<Named>,
        newest: Option<bool>,
        cancellation: &Cancellation,
    ) -> anyhow::Result<OpenSource> {
        if several.iter().any(|named| named.source == "-") {
            refuse!("--video -: frames on stdin cannot be one of several sources");
        }
        // One that does not answer takes seconds to say so.
        let all_opened: Vec<_> = std::thread::scope(|scope| {
            let open = |named: &Named| {
                let video = vec![named.source.clone()];
                scope.spawn(move || self.open_one(&video, &[], false, cancellation))
            };
            let threads: Vec<_> = several.iter().map(open).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e))).collect()
        });
        interrupted()?;
        let (mut feeds, mut files) = (Vec::<Feed>::new(), Vec::new());
        for (Named { name, .. }, opened) in several.into_iter().zip(all_opened) {
            let (source, read) = opened?;
            files.extend(read);
            let wanted = name.unwrap_or_else(|| source.info().name.clone());
            let is_free = |name: &String| feeds.iter().all(|feed| feed.name != *name);
            let numbered = (2..).map(|number| format!("{wanted} {number}"));
            let name = std::iter::once(wanted.clone()).chain(numbered).find(is_free).unwrap_or(wanted);
            feeds.push(Feed { name, source });
        }
        let several = Several::start(feeds, newest, cancellation.clone())?;
        let states = several.states();
        Ok(OpenSource { source: Box::new(several), files, states: Some(states) })
    }

    /// Opens what values of `--video` stand for, and selects its frames. A source that `is_alone` is waited for at once if it is
    /// off, one of several when its frames are read, on a thread of its own.
    fn open_one(
        &self,
        video: &[String],
        classes: &[&str],
        is_alone: bool,
        cancellation: &Cancellation,
    ) -> anyhow::Result<(Box<dyn Source>, Vec<PathBuf>)> {
        let mut read = Vec::new();
        let source: Box<dyn Source> = match video {
            [] => self.scene(classes)?,
            [one] if one == "-" => {
                let Some(raw) = self.raw else {
                    refuse!("--video - needs the format of the frames, such as --raw 1280x720:bgr");
                };
                Box::new(RawFrames::new("stdin", raw_at(raw, self.fps)?, std::io::stdin()))
            }
            [one] => match SourceName::parse(one) {
                SourceName::Camera(index) => {
                    let options = self.input.options();
                    let open = move || videos::open(VideoInput::Camera(index), &options);
                    let can_come = videos::replacement().is_some() || check_cameras().is_ok();
                    self.live(format!("camera {index}"), can_come, open, is_alone, cancellation)?
                }
                SourceName::Url(url) => {
                    let kind = match (self.live, self.file) {
                        (true, _) => Some(StreamKind::Live),
                        (_, true) => Some(StreamKind::File),
                        _ => None,
                    };
                    let is_file = kind.or_else(|| StreamKind::of_url(&url)) == Some(StreamKind::File);
                    let name = without_secrets(&url);
                    let (until, options) = (cancellation.clone(), self.input.options());
                    let open = move || videos::open(VideoInput::Url(&url, kind, &until), &options);
                    self.live(name, !is_file, open, is_alone, cancellation)?
                }
                SourceName::Images(path) => {
                    let mut files = frame_files(std::slice::from_ref(&path))?;
                    natural_order(&mut files);
                    read.clone_from(&files);
                    Box::new(ImageFiles::new(one.as_str(), files, self.rate())?)
                }
                SourceName::Video(path) => {
                    if !path.exists() {
                        refuse!("no video, {one}: no such file or folder");
                    }
                    read.push(path.clone());
                    let options = self.input.options();
                    let open = move || videos::open(VideoInput::File(&path), &options);
                    self.live(one.clone(), false, open, is_alone, cancellation)?
                }
            },
            several => {
                let paths: Vec<PathBuf> = several.iter().map(PathBuf::from).collect();
                if let Some(other) =
                    paths.iter().find(|path| path.is_file() && !ocelli::image::has_image_extension(path))
                {
                    let why = "expected one video, or several images";
                    refuse!("--video, {}: {why}", other.display());
                }
                read = frame_files(&paths)?;
                Box::new(ImageFiles::new("images", read.clone(), self.rate())?)
            }
        };
        let mut selection = Selection::default();
        (selection.start, selection.end) = (self.start, self.end);
        (selection.stride, selection.max_frames) = (self.vid_stride, self.max_frames);
        selection.frame_rate = self.fps;
        let selected = Selected::new(source, selection)?;
        Ok((Box::new(selected), read))
    }

    /// A source that reconnects when it is lost, and is waited for if it `can_come` later; of several, one that cannot fails
    /// when it is read, without the others. A file is not live: its end is no loss.
    fn live(
        &self,
        name: String,
        can_come: bool,
        mut open: impl FnMut() -> ocelli::Result<Box<dyn Source>> + Send + 'static,
        is_alone: bool,
        cancellation: &Cancellation,
    ) -> anyhow::Result<Box<dyn Source>> {
        let seconds = self.reconnect.unwrap_or(60.0);
        let mut give_up_after = Duration::try_from_secs_f64(seconds)
            .map_err(|_| usage(format!("--reconnect is {seconds}: expected seconds, or 0 for never")))?;
        let cancellation = cancellation.clone();
        let source = match open() {
            Ok(source) if !source.info().live => return Ok(source),
            Ok(source) => source,
            Err(error) => {
                interrupted()?;
                if !videos::can_read() || (is_alone && !can_come) {
                    return Err(error.into());
                }
                if !can_come {
                    give_up_after = Duration::ZERO;
                }
                let mut waiting = Reconnecting::waiting(name, error, open, give_up_after, cancellation);
                if is_alone && !waiting.wait_until_open()? {
                    interrupted()?;
                }
                return Ok(Box::new(waiting));
            }
        };
        let mut first = Some(source);
        let open = move || first.take().map_or_else(&mut open, Ok);
        Ok(Box::new(Reconnecting::connect(open, give_up_after, cancellation)?))
    }

    fn scene(&self, classes: &[&str]) -> anyhow::Result<Box<dyn Source>> {
        let known = |class: &&&str| vocabulary().contains(&class.to_lowercase().as_str());
        let drawn: Vec<String> = classes.iter().filter(known).map(|class| class.to_lowercase()).collect();
        if drawn.is_empty() {
            refuse!(
                "no video: name one with --video, or add a class that a scene can be drawn of, such as {}, {} or {}",
                vocabulary()[0],
                vocabulary()[14],
                vocabulary()[60]
            );
        }
        let (width, height) = match &self.scene_size {
            None => SCENE_SIZE,
            Some(text) => {
                let sides = text.split_once(['x', 'X']).map(|(w, h)| (w.parse(), h.parse()));
                let Some((Ok(width), Ok(height))) = sides else {
                    refuse!("--scene-size is {text}: expected WIDTHxHEIGHT, such as 1280x720");
                };
                (width, height)
            }
        };
        let frames = self.max_frames.unwrap_or(SCENE_FRAMES).max(1);
        let rate = self.fps.unwrap_or(SCENE_RATE);
        let frames = match (self.end, self.vid_stride) {
            (None, None) if self.start.is_none() => frames,
            // Enough for any selection.
            _ => u64::from(u32::MAX)
                .min(SCENE_FRAMES.max(frames.saturating_mul(self.vid_stride.unwrap_or(1).max(1)))),
        };
        Ok(Box::new(MovingScene::new(SCENE_SEED, &drawn, width, height, frames, rate)?))
    }
}

/// A line of the file of `--sources`.
#[derive(Debug, PartialEq)]
pub(crate) struct Named {
    name: Option<String>,
    source: String,
}

/// The values of `--video`, with the videos of a folder or a pattern in its place. Where there are images as well, these are
/// meant.
fn with_videos_of_folders(video: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for text in video {
        let SourceName::Images(path) = SourceName::parse(text) else {
            all.push(text.clone());
            continue;
        };
        let videos = videos_of(&path)?;
        if videos.is_empty() || frame_files(&[path]).is_ok() {
            if let Some(first) = videos.first() {
                let (count, first) = (videos.len(), first.display());
                tracing::warn!(
                    "{text}: its images are read; {count} video(s), such as {first}, are left out"
                );
            }
            all.push(text.clone());
            continue;
        }
        all.extend(videos.iter().map(|path| path.to_string_lossy().into_owned()));
    }
    Ok(all)
}

/// `true` if values of `--video` are several sources; several images are one.
fn is_several(video: &[String]) -> bool {
    let is_images = |text: &String| matches!(SourceName::parse(text), SourceName::Images(_));
    let is_image = |text: &String| is_images(text) && Path::new(text).is_file();
    video.len() > 1 && !video.iter().all(is_images) && !video.iter().any(is_image)
}

/// Reads the file of `--sources`.
pub(crate) fn named_sources(path: &Path) -> anyhow::Result<Vec<Named>> {
    let text = read_text(path, "the file of --sources").map_err(|e| usage(e.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let named: Option<Vec<Named>> = lines.map(Named::parse).collect();
    let Some(named) = named else {
        refuse!(
            "--sources, {}: expected SOURCE or NAME=SOURCE on a line, and no colon in a name",
            path.display()
        );
    };
    if named.is_empty() {
        refuse!("--sources, {}: expected a source per line", path.display());
    }
    Ok(named)
}

impl Named {
    /// A line; nothing if its name has a colon.
    fn parse(line: &str) -> Option<Self> {
        // URLs and paths may contain an equals sign as well.
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '\\', '?']);
        let Some((name, source)) = line.split_once('=').filter(|(name, _)| is_name(name)) else {
            return Some(Self { name: None, source: line.to_owned() });
        };
        let name = Some(name.trim().to_owned()).filter(|name| !name.contains(':'))?;
        Some(Self { name: Some(name), source: source.trim().to_owned() })
    }
}

/// The value of `--raw`, and whether it has a rate.
fn parse_raw(text: &str) -> Result<(RawFormat, bool), String> {
    Ok((text.parse()?, text.contains('@')))
}

/// The format, with the rate of `--fps` unless it has one.
fn raw_at((mut format, has_rate): (RawFormat, bool), fps: Option<f64>) -> anyhow::Result<RawFormat> {
    let said = format.frame_rate;
    format.frame_rate = fps.unwrap_or(said);
    if has_rate && format.frame_rate != said {
        refuse!("--fps is {}, --raw says @{said}: name one of them", format.frame_rate);
    }
    Ok(format)
}

/// A value of `--video`.
#[derive(Debug, PartialEq)]
enum SourceName {
    Camera(u32),
    Url(String),
    Images(PathBuf),
    Video(PathBuf),
}

impl SourceName {
    fn parse(text: &str) -> Self {
        let path = Path::new(text);
        if !path.exists() {
            if let Ok(index) = text.parse() {
                return SourceName::Camera(index);
            }
            if let Some(path) = text.strip_prefix("file://") {
                return Self::parse(path);
            }
            if text.contains("://") {
                return SourceName::Url(text.to_owned());
            }
            if text.contains(['*', '?', '[']) {
                return SourceName::Images(path.to_owned());
            }
        }
        if let Some(index) = text.strip_prefix("/dev/video").and_then(|number| number.parse().ok()) {
            return SourceName::Camera(index);
        }
        let is_image =
            ocelli::image::has_image_extension(path) && !ocelli::image::has_animation_extension(path);
        if path.is_dir() || is_image {
            return SourceName::Images(path.to_owned());
        }
        SourceName::Video(path.to_owned())
    }
}

#[cfg(test)]
mod tests;
