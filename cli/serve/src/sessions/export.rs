//! The results of a session as a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ocelli::draw::{Annotator, Overlay, OverlayOptions};
use ocelli::sink::{MaskPngs, VideoOptions, YouTubeVis, create_video};
use ocelli::{Error, ErrorKind, Image, Result, Sink};
use tempfile::TempDir;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::results::Snapshot;
use crate::http::problem::Problem;

/// The folder of PNGs before they are in an archive.
const MASKS: &str = "masks";

/// A form of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The annotated video.
    Mp4,
    /// Masks and tracks in YouTube-VIS' JSON.
    YouTubeVis,
    /// A ZIP of PNGs whose pixels are ids, as DAVIS has them.
    Masks,
}

impl Form {
    /// The form of this name.
    ///
    /// # Errors
    /// 400.
    pub fn named(name: &str) -> Result<Self, Problem> {
        match name {
            "mp4" => Ok(Self::Mp4),
            "youtube-vis" => Ok(Self::YouTubeVis),
            "masks" => Ok(Self::Masks),
            _ => Err(Problem::bad("format: expected mp4, youtube-vis or masks")),
        }
    }

    /// The name of the file, and its type.
    pub fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Mp4 => ("objects.mp4", "video/mp4"),
            Self::YouTubeVis => ("objects.json", "application/json"),
            Self::Masks => ("masks.zip", "application/zip"),
        }
    }
}

/// Results that are being written into a file in a folder of its own, which is removed with it.
pub(crate) struct Export {
    form: Form,
    results: Snapshot,
    size: (u32, u32),
    frame_rate: f64,
    sink: Box<dyn Sink>,
    path: PathBuf,
    folder: TempDir,
}

impl Export {
    /// Results of frames of this size, in pixels, at this many frames a second.
    ///
    /// # Errors
    /// 400 if there are none; 500 without the video library, or without room.
    pub fn new(form: Form, results: Snapshot, size: (u32, u32), frame_rate: f64) -> Result<Self, Problem> {
        if results.frames.is_empty() {
            return Err(Problem::bad("there are no results yet: show an object, or type a name, first"));
        }
        let frame_rate = frame_rate.clamp(1.0, 240.0);
        let folder = tempfile::Builder::new().prefix("ocelli-").tempdir().map_err(failed)?;
        let path = folder.path().join(form.file().0);
        let sink: Result<Box<dyn Sink>> = match form {
            Form::Mp4 => create_video(&path, &VideoOptions::new(frame_rate)),
            Form::YouTubeVis => Ok(Box::new(YouTubeVis::create(&path))),
            Form::Masks => MaskPngs::create(&folder.path().join(MASKS)).map(|sink| Box::new(sink) as _),
        };
        let sink = sink?;
        Ok(Self { form, results, size, frame_rate, sink, path, folder })
    }

    /// Writes the file, and returns it with its folder: `image` returns the image of a frame, and is asked for each in order; only a video needs it.
    ///
    /// # Errors
    /// Those of the images and of writing.
    pub fn write(
        self,
        mut image: impl FnMut(usize) -> Result<Option<Image>, Problem>,
    ) -> Result<(File, TempDir), Problem> {
        let Self { form, results, size, frame_rate, mut sink, path, folder } = self;
        let mut overlay = Overlay::new(Annotator::new(), OverlayOptions { tracks: true, trail_frames: 0 });
        for (number, frame) in results.frames.into_iter().enumerate() {
            let image = image(frame.frame)?;
            let mut outcome = frame.into_outcome(results.labels.clone(), size)?;
            if let Some(image) = image {
                let mut drawn = image.into_rgb_image();
                overlay.draw(&mut drawn, &outcome)?;
                outcome.annotated = Some(drawn.into());
            }
            outcome.time = Duration::from_secs_f64(number as f64 / frame_rate);
            sink.write(&outcome)?;
        }
        sink.finish()?;
        drop(sink);
        if form == Form::Masks {
            zipped(&folder.path().join(MASKS), &path).map_err(failed)?;
        }
        Ok((File::open(&path).map_err(failed)?, folder))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write the results: {error}"))
}

/// Writes the files of a folder into an archive. PNGs are compressed already.
fn zipped(folder: &Path, path: &Path) -> std::io::Result<()> {
    let mut archive = ZipWriter::new(File::create(path)?);
    let mut files: Vec<_> = folder.read_dir()?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files {
        archive.start_file(file.file_name().to_string_lossy(), SimpleFileOptions::default())?;
        std::io::copy(&mut File::open(file.path())?, &mut archive)?;
    }
    archive.finish()?.sync_all()
}
