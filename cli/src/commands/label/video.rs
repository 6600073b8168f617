//! `--video`: frames of videos as images, with objects that are followed from frame to frame.

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::image::{has_animation_extension, has_image_extension};
use ocelli::source::{ImageFiles, InputOptions, natural_order};
use ocelli::videos::{self, VideoInput};
use ocelli::{Result, Source};
use ocelli_datasets::label::{LabelVideo, Tracking};

use crate::args::{INPUT, InputArgs, frame_files, is_video, videos_of};
use crate::given::first_given_of;
use crate::{interrupted, usage};

/// Every tenth frame is an image by default: neighbours look alike, and trainers learn little from the others.
const EVERY: u64 = 10;
/// Frames per second of images, which nothing here depends on.
const FRAME_RATE: f64 = 30.0;

/// Videos.
#[derive(Args, Debug)]
pub struct VideoArgs {
    /// Videos in place of images: files, folders or patterns of them, or folders with the frames of one as image files
    #[arg(
        long,
        num_args = 1..,
        conflicts_with_all = ["images", "shard", "low_memory", "workers"],
        value_name = "VIDEO",
        help_heading = INPUT
    )]
    pub video: Vec<PathBuf>,
    /// With --video: every Nth frame becomes an image of the data set, and objects are followed through all frames
    /// [default: 10]
    #[arg(long, value_name = "N", help_heading = INPUT)]
    every: Option<u64>,
    #[command(flatten)]
    input: InputArgs,
    /// With --video: follow objects by their boxes, with ByteTrack; this is the default
    #[arg(long, conflicts_with = "memory", help_heading = "Tracking")]
    track: bool,
    /// With --video: follow the objects of one video by the model's memory of them; needs a model with a tracker, such as
    /// SAM 3. Objects start at a score of 0.7, or of --confidence
    #[arg(long, help_heading = "Tracking")]
    pub memory: bool,
}

impl VideoArgs {
    /// The way objects are followed; `None` without videos.
    pub fn tracking(&self, confidence: Option<f32>) -> Option<Tracking> {
        let tracking = if self.memory { Tracking::Memory { confidence } } else { Tracking::Boxes };
        (!self.video.is_empty()).then_some(tracking)
    }

    /// Finds the videos, and checks the arguments.
    ///
    /// # Errors
    /// If a file or a folder is none, or an argument is out of range.
    pub fn find(&self, output: &Path) -> anyhow::Result<Vec<InputVideo>> {
        // Not `requires` of clap: it does not ask for what conflicts with --images.
        if self.video.is_empty()
            && let Some(flag) = first_given_of::<Self>()
        {
            refuse!("{flag} is for videos: name one with --video in place of --images");
        }
        if self.every == Some(0) {
            refuse!("--every is 0: expected 1 for every frame, 10 for every tenth frame");
        }
        let mut found = Vec::new();
        for path in &self.video {
            if is_inside(path, output) {
                let why = "it is in the output folder; choose another output folder";
                refuse!("--video, {}: {why}", path.display());
            }
            let videos = videos_of(path)?;
            if !videos.is_empty() {
                found.extend(videos.into_iter().map(|path| self.video_file(path)));
            } else if path.is_dir() {
                found.push(frames_in(path)?);
            } else if !path.exists() {
                refuse!("no video, {}: no such file or folder", path.display());
            } else if has_image_extension(path) && !has_animation_extension(path) {
                let why =
                    "it is an image: name it with --images, or the folder of a video's frames with --video";
                refuse!("--video, {}: {why}", path.display());
            } else {
                found.push(self.video_file(path.clone()));
            }
        }
        if self.memory && found.len() > 1 {
            refuse!("--memory follows the objects of one video: name one; another run adds the next");
        }
        if let Some(flag) =
            first_given_of::<InputArgs>().filter(|_| found.iter().all(|(path, _)| path.is_dir()))
        {
            refuse!("{flag} is for video files: expected one with --video");
        }
        Ok(found)
    }

    /// Reads the videos once: counts their frames, and writes those that are images.
    pub fn read(&self, found: Vec<InputVideo>, output: &Path) -> Result<Vec<LabelVideo>> {
        let every = self.every.unwrap_or(EVERY);
        LabelVideo::read_all(output, found, &self.input(), every, &mut interrupted)
    }

    /// Options for opening the videos.
    pub fn input(&self) -> InputOptions {
        self.input.options()
    }

    /// The video in a file.
    fn video_file(&self, path: PathBuf) -> InputVideo {
        let (file, options) = (path.clone(), self.input());
        (path, Box::new(move || videos::open(VideoInput::File(&file), &options)))
    }
}

/// A video: its path, and what opens it.
pub type InputVideo = (PathBuf, Box<dyn Fn() -> Result<Box<dyn Source>> + Send + Sync>);

/// Refuses videos as images: files, and folders that have no others.
pub fn check_images(inputs: &[PathBuf]) -> anyhow::Result<()> {
    let is_one = |input: &Path| {
        let entries: Vec<PathBuf> =
            input.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let may_be_others = entries.iter().any(|path| path.is_dir() || has_image_extension(path));
        is_video(input) || entries.iter().any(|path| is_video(path)) && !may_be_others
    };
    if let Some(input) = inputs.iter().find(|input| is_one(input)) {
        let input = input.display();
        refuse!("--images, {input}: videos, and no images; label their frames with --video {input}");
    }
    Ok(())
}

/// The video whose frames are in a folder.
fn frames_in(folder: &Path) -> anyhow::Result<InputVideo> {
    let mut images = frame_files(&[folder.to_owned()]).map_err(|e| usage(format!("--video: {e}")))?;
    natural_order(&mut images);
    let images: Vec<PathBuf> =
        images.into_iter().map(|path| std::path::absolute(&path).unwrap_or(path)).collect();
    let name = folder.display().to_string();
    let open = move || -> Result<Box<dyn Source>> {
        Ok(Box::new(ImageFiles::new(name.as_str(), images.clone(), FRAME_RATE)?))
    };
    Ok((folder.to_owned(), Box::new(open)))
}

fn is_inside(path: &Path, folder: &Path) -> bool {
    let folder = folder.canonicalize();
    folder.is_ok_and(|folder| path.canonicalize().is_ok_and(|path| path.starts_with(folder)))
}
