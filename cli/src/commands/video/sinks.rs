//! `-o`, `--jsonl` and the other outputs.

use std::path::{Path, PathBuf};

use crate::output::{check_outputs, is_stdout, with_flag};
use clap::Args;
use ocelli::image::has_image_extension;
use ocelli::sink::{
    Crops, Grid, ImageSequence, JsonLines, MaskPngs, McapFile, MotFile, MotsFile, RawOrder, RawWriter,
    VideoOptions, YouTubeVis, is_image_pattern, is_stream_address, open_window,
};
use ocelli::{Cancellation, Error, Sink, source::SourceInfo};

use super::delivery::start_webhook;
use super::mqtt;
use super::zones::{Counting, ZoneSink};
use crate::args::{OUTPUT, folder_of, label_files};
use crate::check_output_file;

/// Frames per second of a source of unknown rate, without `--fps`.
const FRAME_RATE: f64 = 30.0;
/// The highest rate that a variable rate is written with.
const MAX_VARIABLE_RATE: f64 = 120.0;

/// Outputs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = OUTPUT)]
pub struct SinkArgs {
    /// Annotated video (.mp4, .mov, .mkv, .avi, .webm, or the address of a server: rtsp, rtmp, srt, udp, tcp), or images (a
    /// folder or out/%06d.png); - is stdout, with --raw-out
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Codec of the annotated video: h264, hevc, av1, vp9, vp8, mjpeg, ffv1, mpeg4, or FFmpeg's name of an encoder, such as
    /// h264_nvenc [default: h264; mjpeg in .avi, vp9 in .webm]
    #[arg(long, value_name = "NAME", requires = "output")]
    pub codec: Option<String>,
    /// Constant quality of the annotated video as its encoder counts it, lower is better [default: the encoder's]
    #[arg(long, value_name = "N", requires = "output")]
    pub crf: Option<u32>,
    /// Leave the sound and the subtitles of the video out of the annotated one
    #[arg(long, requires = "output")]
    pub no_audio: bool,
    /// Pixel order of raw frames on stdout: bgr or rgb
    #[arg(long, value_name = "ORDER")]
    pub raw_out: Option<RawOrder>,
    /// One line of JSON per frame; - is stdout
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Tracks (without --track, detections) as MOTChallenge text; - is stdout
    #[arg(long, value_name = "FILE")]
    pub mot: Option<PathBuf>,
    /// Masks of tracks as MOTS text, as its evaluation reads them; - is stdout
    #[arg(long, value_name = "FILE")]
    pub mots: Option<PathBuf>,
    /// Masks of tracks as a data set of YouTube-VIS, in JSON
    #[arg(long, value_name = "FILE")]
    pub youtube_vis: Option<PathBuf>,
    /// Masks of tracks as a PNG per frame whose pixels are the ids, as DAVIS and YouTube-VOS have them
    #[arg(long, value_name = "DIR")]
    pub davis: Option<PathBuf>,
    /// Detections as a recording of ROS 2 (MCAP): vision_msgs/Detection2DArray on /detections; - is stdout
    #[arg(long, value_name = "FILE")]
    pub mcap: Option<PathBuf>,
    /// Crops of each instance in each frame, in folders by class and track
    #[arg(long, value_name = "DIR")]
    pub crops: Option<PathBuf>,
    /// A YOLO label file per frame: class, centre and size of each box
    #[arg(long, value_name = "DIR")]
    pub save_txt: Option<PathBuf>,
    /// Count tracks that cross lines and stay in zones, defined in a YAML file; with --track
    #[arg(long, value_name = "FILE")]
    pub zones: Option<PathBuf>,
    /// One line of JSON per event of --zones; - is stdout
    #[arg(long, value_name = "FILE", requires = "zones")]
    pub events: Option<PathBuf>,
    /// POST each event of --zones as JSON to this URL (http)
    #[arg(long, value_name = "URL", requires = "zones")]
    pub webhook: Option<String>,
    /// Publish each event of --zones as JSON to an MQTT broker: mqtt://[user@]host[:port]/topic
    #[arg(long, value_name = "URL", requires = "zones")]
    pub mqtt: Option<String>,
    /// Draw the lines and zones of --zones with their counts
    #[arg(long, requires = "zones")]
    pub draw_zones: bool,
    /// Show annotated frames on a page and as stream.mjpg: 127.0.0.1:8090, or 0.0.0.0:8090/SECRET for other machines
    #[arg(long, value_name = "ADDRESS")]
    pub mjpeg: Option<String>,
    /// Show a window; q or Esc ends the run
    #[arg(long)]
    pub display: bool,
    /// Draw the path of each track over the last N frames [default: 0]
    #[arg(long, value_name = "N")]
    pub trails: Option<u64>,
}

/// Open outputs.
pub struct Sinks<'s> {
    /// Sinks for the pipeline.
    pub all: Vec<Box<dyn Sink + 's>>,
    /// A video is among them that lacks the source's sound, which nobody asked for.
    pub is_silent: bool,
    /// One writes to stdout.
    pub stdout: bool,
}

impl SinkArgs {
    /// `true` if nothing is written or shown.
    pub fn is_empty(&self) -> bool {
        let has_none = self.outputs().next().is_none() && self.zones.is_none();
        has_none && !self.display && self.mjpeg.is_none()
    }

    /// The files and folders that are written, with their flags.
    pub fn outputs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [
            ("--output", &self.output),
            ("--crops", &self.crops),
            ("--save-txt", &self.save_txt),
            ("--davis", &self.davis),
            ("--youtube-vis", &self.youtube_vis),
            // Lines last: a frame that they list is complete in the other outputs.
            ("--mot", &self.mot),
            ("--mots", &self.mots),
            ("--mcap", &self.mcap),
            ("--jsonl", &self.jsonl),
            ("--events", &self.events),
        ];
        all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// The flag of an output that needs tracks with masks.
    pub fn of_masks(&self) -> Option<&'static str> {
        let flags = ["--mots", "--youtube-vis", "--davis"];
        self.outputs().map(|(flag, _)| flag).find(|flag| flags.contains(flag))
    }

    /// The outputs of lines, which `-` writes to stdout.
    fn lines(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let flags = ["--jsonl", "--mot", "--mots", "--mcap", "--events"];
        self.outputs().filter(move |(flag, _)| flags.contains(flag))
    }

    /// Checks the arguments before anything is opened.
    ///
    /// # Errors
    /// For conflicting arguments; as [`check_output_file`].
    pub fn check(&self) -> anyhow::Result<()> {
        let lines = self.lines().filter(|(_, path)| is_stdout(path)).count();
        let frames = self.output.as_deref().is_some_and(is_stdout);
        if lines + usize::from(frames) > 1 {
            refuse!("only one of -o, --jsonl, --mot, --mots, --mcap and --events can go to stdout");
        }
        if frames && self.raw_out.is_none() {
            refuse!("-o - writes raw frames: add --raw-out bgr or --raw-out rgb");
        }
        if self.raw_out.is_some() && !frames {
            refuse!("--raw-out is the pixel order of frames on stdout: add -o -");
        }
        let tracks = self.youtube_vis.as_deref().map(|path| ("--youtube-vis", path));
        Ok(check_outputs(self.lines().chain(tracks).map(|(flag, path)| (flag, Some(path))))?)
    }

    /// Checks that no output overwrites an input. `stats` is one more output.
    ///
    /// # Errors
    /// If one does.
    pub fn check_against(&self, read: &[PathBuf], stats: Option<&Path>) -> anyhow::Result<()> {
        let read: Vec<PathBuf> = read.iter().filter_map(|path| path.canonicalize().ok()).collect();
        for (flag, path) in self.outputs().chain(stats.map(|path| ("--stats", path))) {
            if path.canonicalize().is_ok_and(|path| read.contains(&path)) {
                refuse!("{flag}, {}: it is the input; name another path", path.display());
            }
        }
        let holds_input = |folder: &Path| {
            let folder = folder.canonicalize().ok();
            let is_inside = |path: &PathBuf| path.parent() == folder.as_deref() && has_image_extension(path);
            folder.is_some() && read.iter().any(is_inside)
        };
        let why = "the folder contains input images, which could be overwritten; name another folder";
        if let Some(folder) = self.davis.as_deref().filter(|folder| holds_input(folder)) {
            refuse!("--davis, {}: {why}", folder.display());
        }
        let Some(target) = self.output.as_deref().filter(|path| !is_stdout(path) && is_sequence(path)) else {
            return Ok(());
        };
        let is_pattern = is_image_pattern(target);
        if let Some(other) = foreign_image(target).filter(|_| !is_pattern) {
            let why = "which are not those of an earlier run; name another folder, or the files, such as frames/%06d.png";
            refuse!("--output, {}: it has images such as {other}, {why}", target.display());
        }
        if holds_input(if is_pattern { folder_of(target) } else { target }) {
            refuse!("--output, {}: {why}", target.display());
        }
        Ok(())
    }

    /// Checks that each output can have the results of several sources.
    ///
    /// # Errors
    /// If one cannot.
    pub fn check_several(&self) -> anyhow::Result<()> {
        let of_one = |flag: &str| !["--output", "--jsonl", "--mcap", "--events"].contains(&flag);
        if let Some((flag, _)) = self.outputs().find(|(flag, _)| of_one(flag)) {
            refuse!(
                "{flag}: it does not tell several sources apart: use --jsonl, or run once for each source"
            );
        }
        Ok(())
    }

    /// Counts tracks, and writes and delivers the events.
    ///
    /// # Errors
    /// If an address is wrong or a file cannot be written.
    pub fn zone_sink(&self, counting: &Counting) -> anyhow::Result<ZoneSink> {
        let events = self.events.as_deref().map(JsonLines::create).transpose()?;
        let webhook = self.webhook.as_deref().map(start_webhook).transpose()?;
        let mqtt = self.mqtt.as_deref().map(mqtt::start).transpose()?;
        Ok(ZoneSink::new(counting.clone(), events, webhook.into_iter().chain(mqtt).collect()))
    }

    /// Opens all outputs. `tracked`: whether there are tracks. Frames of several sources become a grid.
    ///
    /// # Errors
    /// If one cannot be written, or not by this build.
    pub fn open(
        &self,
        info: &SourceInfo,
        sources: usize,
        tracked: bool,
        cancellation: &Cancellation,
    ) -> anyhow::Result<Sinks<'static>> {
        let has_stdout = self.lines().any(|(_, path)| is_stdout(path));
        let mut sinks = Sinks { all: Vec::new(), is_silent: false, stdout: has_stdout };
        match (self.output.as_deref(), self.raw_out) {
            (Some(path), Some(order)) if is_stdout(path) => {
                sinks.all.push(Box::new(RawWriter::new("stdout", order, unbuffered_stdout()?)));
                sinks.stdout = true;
            }
            (Some(path), _) if is_sequence(path) => {
                sinks.all.push(Box::new(ImageSequence::create(path).map_err(with_flag("--output"))?));
            }
            (Some(path), _) => {
                if !is_stream_address(path) {
                    check_output_file("--output", path)?;
                }
                let mut options = VideoOptions::new(video_rate(info));
                options.codec.clone_from(&self.codec);
                options.quality = self.crf;
                options.sound = info.file.clone().filter(|_| info.has_sound && !self.no_audio);
                let video = ocelli::videos::create(path, &options);
                sinks.all.push(video.map_err(with_flag("--output"))?);
                sinks.is_silent = info.has_sound && options.sound.is_none() && !self.no_audio;
            }
            (None, _) => {}
        }
        if self.display {
            let window = open_window(&format!("ocelli: {}", info.name), cancellation.clone());
            let hint =
                |e: Error| Error::new(e.kind(), format!("{e}; omit --display, or write a file with -o"));
            sinks.all.push(window.map_err(hint)?);
        }
        if let Some(address) = &self.mjpeg {
            sinks.all.push(live_view(address)?);
        }
        if sources > 1 && !sinks.all.is_empty() {
            let rate = info.frame_rate.unwrap_or(FRAME_RATE);
            let mut grid = Grid::new(sources, rate, std::mem::take(&mut sinks.all))?;
            if let Some(size) = info.size {
                grid = grid.with_frame_size(size);
            }
            sinks.all.push(Box::new(grid));
        }
        for (flag, path) in self.outputs() {
            let sink: Box<dyn Sink> = match flag {
                "--crops" => Box::new(Crops::create(path, tracked).map_err(with_flag(flag))?),
                "--save-txt" => Box::new(label_files(path)?),
                "--davis" => Box::new(MaskPngs::create(path).map_err(with_flag(flag))?),
                "--youtube-vis" => Box::new(YouTubeVis::create(path)),
                "--mot" => Box::new(MotFile::create(path, tracked)?),
                "--mots" => Box::new(MotsFile::create(path)?),
                "--mcap" => Box::new(McapFile::create(path)?),
                "--jsonl" => Box::new(JsonLines::create(path)?),
                _ => continue,
            };
            sinks.all.push(sink);
        }
        Ok(sinks)
    }
}

/// Opens the page of `--mjpeg` and announces its address.
///
/// # Errors
/// For an address that is not `HOST:PORT[/PATH]`, or that others reach without a secret path; if the port is taken.
#[cfg(feature = "serve")]
fn live_view(text: &str) -> anyhow::Result<Box<dyn Sink>> {
    let (address, path) = text.split_once('/').unwrap_or((text, ""));
    let Ok(address) = address.parse() else {
        refuse!("--mjpeg is {text}: expected an address such as 127.0.0.1:8090, or 0.0.0.0:8090/SECRET");
    };
    let view = ocelli_serve::LiveView::bind(address, path).map_err(with_flag("--mjpeg"))?;
    crate::status(format!("live view: {}", view.url()));
    Ok(Box::new(view))
}

#[cfg(not(feature = "serve"))]
fn live_view(_text: &str) -> anyhow::Result<Box<dyn Sink>> {
    refuse!("--mjpeg: this build has no web server (the feature serve)")
}

/// An image in a folder that no run has written, by its name.
fn foreign_image(folder: &Path) -> Option<String> {
    let is_ours = |name: &str| {
        let number = name.strip_suffix(".png");
        number.is_some_and(|number| number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let names =
        folder.read_dir().ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| has_image_extension(Path::new(name)) && !is_ours(name)).min()
}

/// The rate of an annotated video: that of the source, or of its shortest interval if the source's is variable, so that every
/// frame has its place.
fn video_rate(info: &SourceInfo) -> f64 {
    let rate = info.frame_rate.unwrap_or(FRAME_RATE);
    let fastest = info.shortest_interval.map_or(rate, |interval| 1.0 / interval.as_secs_f64());
    // Times that are rounded to milliseconds look variable as well.
    if fastest > 1.3 * rate { fastest.min(MAX_VARIABLE_RATE).max(rate) } else { rate }
}

/// `true` if a path means a sequence of images: a folder or a numbered pattern.
fn is_sequence(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let is_folder = path.is_dir() || name.ends_with(std::path::MAIN_SEPARATOR);
    let is_images = is_folder || is_image_pattern(path) || path.extension().is_none();
    is_images && !is_stream_address(path)
}

/// stdout without line buffering, which raw frames do not need.
#[cfg(unix)]
fn unbuffered_stdout() -> anyhow::Result<std::fs::File> {
    use std::os::fd::AsFd;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(stdout.map_err(|e| anyhow::anyhow!("cannot write, stdout: {e}"))?.into())
}

#[cfg(not(unix))]
fn unbuffered_stdout() -> anyhow::Result<std::io::Stdout> {
    Ok(std::io::stdout())
}
