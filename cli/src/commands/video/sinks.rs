//! Where results go: `-o`, `--jsonl` and the others.

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::image::has_image_extension;

use crate::{check_output_file, usage, with_flag};
use ocelli::sink::{
    Crops, JsonLines, MotFile, PictureSequence, RawOrder, RawWriter, create_video, open_window,
};
use ocelli::{Cancellation, Error, Sink, SourceInfo};

/// Of streams that do not say, where no --fps does.
const FRAME_RATE: f64 = 30.0;

/// Where results go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct SinkArgs {
    /// The annotated video, .mp4, .mov, .mkv, .avi or .webm; or pictures, as out/%06d.png or a folder; - is stdout, with
    /// --raw-out
    #[arg(long, short, value_name = "FILE|DIR|-")]
    pub output: Option<PathBuf>,
    /// The form of raw frames on stdout: bgr or rgb
    #[arg(long, value_name = "ORDER")]
    pub raw_out: Option<RawOrder>,
    /// A line of JSON for each frame; - is stdout
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Tracks, or without --track detections, as MOTChallenge has them; - is stdout
    #[arg(long, value_name = "FILE")]
    pub mot: Option<PathBuf>,
    /// A picture of each thing in each frame, in folders by class and track
    #[arg(long, value_name = "DIR")]
    pub crops: Option<PathBuf>,
    /// Show a window; q and Esc end
    #[arg(long)]
    pub display: bool,
    /// Behind each track the way it took in so many frames [default: 0]
    #[arg(long, value_name = "FRAMES")]
    pub trails: Option<u64>,
}

/// Open sinks, and which of them is what.
pub struct Sinks<'s> {
    /// To be given to a loop.
    pub all: Vec<Box<dyn Sink + 's>>,
    /// Whether a video file is among them.
    pub video: bool,
    /// Whether stdout is taken.
    pub stdout: bool,
}

impl SinkArgs {
    /// Whether anything is written or shown.
    pub fn is_empty(&self) -> bool {
        let files = [&self.output, &self.jsonl, &self.mot, &self.crops];
        files.iter().all(|file| file.is_none()) && !self.display
    }

    /// What can be known to be wrong before anything is opened.
    ///
    /// # Errors
    /// Of usage; as [`check_output_file`].
    pub fn check(&self) -> anyhow::Result<()> {
        let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        if [&self.output, &self.jsonl, &self.mot].iter().filter(|path| is_stdout(path)).count() > 1 {
            return Err(usage("only one of -o, --jsonl and --mot can go to stdout"));
        }
        if is_stdout(&self.output) && self.raw_out.is_none() {
            return Err(usage("-o - writes raw frames: name their form with --raw-out bgr or --raw-out rgb"));
        }
        if self.raw_out.is_some() && !is_stdout(&self.output) {
            return Err(usage("--raw-out is the form of frames on stdout: add -o -"));
        }
        for (flag, path) in [("--jsonl", &self.jsonl), ("--mot", &self.mot)] {
            if let Some(path) = path.as_deref().filter(|path| *path != Path::new("-")) {
                check_output_file(flag, path)?;
            }
        }
        Ok(())
    }

    /// Whether something would be written over what is read. `stats` is one more file to be written.
    ///
    /// # Errors
    /// Of usage.
    pub fn check_against(&self, read: &[PathBuf], stats: Option<&Path>) -> anyhow::Result<()> {
        let read: Vec<PathBuf> = read.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let output = self.output.as_deref();
        let files =
            [("--output", output), ("--jsonl", self.jsonl.as_deref()), ("--mot", self.mot.as_deref())];
        for (flag, path) in files.into_iter().chain([("--stats", stats)]) {
            let Some(path) = path.filter(|path| path.canonicalize().is_ok_and(|path| read.contains(&path)))
            else {
                continue;
            };
            return Err(usage(format!("{flag}, {}: it is what is read; name another place", path.display())));
        }
        let Some(target) = output.filter(|path| *path != Path::new("-") && is_sequence(path)) else {
            return Ok(());
        };
        let named = target.to_string_lossy().contains('%');
        let folder = if named { target.parent().unwrap_or(Path::new("")) } else { target };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let is_source = |folder: PathBuf| {
            read.iter().any(|path| path.parent() == Some(&folder) && has_image_extension(path))
        };
        match folder.canonicalize().is_ok_and(is_source) {
            true => {
                let why =
                    "the pictures that are read are there, and some could be replaced; name another folder";
                Err(usage(format!("--output, {}: {why}", target.display())))
            }
            false => Ok(()),
        }
    }

    /// Opens everything that results go to. `tracked`: whether there are tracks.
    ///
    /// # Errors
    /// Where something cannot be written, or be written by this build.
    pub fn open(
        &self,
        info: &SourceInfo,
        tracked: bool,
        cancellation: &Cancellation,
    ) -> anyhow::Result<Sinks<'static>> {
        let mut sinks = Sinks { all: Vec::new(), video: false, stdout: false };
        let stdout = Path::new("-");
        match (self.output.as_deref(), self.raw_out) {
            (Some(path), Some(order)) if path == stdout => {
                sinks.all.push(Box::new(RawWriter::new("stdout", order, unbuffered_stdout()?)));
                sinks.stdout = true;
            }
            (Some(path), _) if is_sequence(path) => {
                sinks.all.push(Box::new(PictureSequence::create(path).map_err(with_flag("--output"))?));
            }
            (Some(path), _) => {
                check_output_file("--output", path)?;
                let video = create_video(path, info.frame_rate.unwrap_or(FRAME_RATE));
                sinks.all.push(video.map_err(with_flag("--output"))?);
                sinks.video = true;
            }
            (None, _) => {}
        }
        if self.display {
            let window = open_window(&format!("ocelli: {}", info.name), cancellation.clone());
            let hint =
                |e: Error| Error::new(e.kind(), format!("{e}; leave --display out, or write a file with -o"));
            sinks.all.push(window.map_err(hint)?);
        }
        if let Some(folder) = &self.crops {
            sinks.all.push(Box::new(Crops::create(folder, tracked).map_err(with_flag("--crops"))?));
        }
        // Lines last: what they say is done is done.
        if let Some(path) = &self.mot {
            sinks.all.push(Box::new(MotFile::create(path, tracked)?));
            sinks.stdout |= path == stdout;
        }
        if let Some(path) = &self.jsonl {
            sinks.all.push(Box::new(JsonLines::create(path)?));
            sinks.stdout |= path == stdout;
        }
        Ok(sinks)
    }
}

/// Whether a name means pictures: a folder, or a pattern for numbers.
fn is_sequence(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let is_folder = path.is_dir() || name.ends_with(std::path::MAIN_SEPARATOR);
    is_folder || name.contains('%') || path.extension().is_none()
}

/// stdout without the buffer that looks for line ends, which raw frames have none of.
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
