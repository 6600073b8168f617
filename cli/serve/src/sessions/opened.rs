//! The video of a session: a file that a client sends, or one of the server's folder.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ocelli::image::has_image_extension;
use ocelli::masklets::SessionSource;
use ocelli::source::{InputOptions, open_video_with};
use ocelli::{Error, ErrorKind, Image, Result, locked};
use tempfile::TempPath;

use crate::http::limits::Limits;
use crate::http::problem::Problem;

/// Endings of the files of a folder that are listed.
const ENDINGS: [&str; 6] = ["mp4", "mov", "mkv", "webm", "avi", "m4v"];
/// Frames per second of a folder of images, and of pushed frames.
pub(crate) const IMAGE_RATE: f64 = 25.0;

/// A video that was opened: its frames for the session, and the file for those who look at it.
pub(crate) struct OpenedVideo {
    pub source: SessionSource,
    pub file: VideoFile,
}

/// The file of a session's video, or a folder of images.
pub(crate) struct VideoFile {
    /// The name of a video of the server's folder; none of an upload.
    pub name: Option<String>,
    /// Frames per second.
    pub frame_rate: f64,
    path: PathBuf,
    options: InputOptions,
    /// Removes the file of an upload.
    _upload: Option<TempPath>,
    /// Is read beside the session's own source, which a run reads in its own order.
    shown: Mutex<Option<SessionSource>>,
}

impl OpenedVideo {
    /// Opens a video file in memory. Containers that can name other files or addresses are refused, as the video library would
    /// open these.
    ///
    /// # Errors
    /// 400 for what is no video, for another container, and for more pixels than the limit; 500 if there is no video library, or no
    /// room for the file.
    pub fn upload(bytes: &[u8], stream: Option<u32>, limits: &Limits) -> Result<Self, Problem> {
        if !is_whole_video(bytes) {
            return Err(Problem::bad("video: expected a file in MP4, MOV, Matroska, WebM or AVI"));
        }
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Io, format!("cannot keep the video: {error}"));
        let mut file = tempfile::Builder::new().prefix("ocelli-").tempfile().map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        let file = file.into_temp_path();
        let path = file.to_path_buf();
        let opened = Self::open(path.clone(), Some(file), stream, limits);
        let named = |error: Error| error.to_string().replace(&*path.to_string_lossy(), "the request");
        Ok(opened.map_err(|error| Error::new(error.kind(), named(error)))?)
    }

    /// Opens a video of a folder by the name that [`listed`] lists.
    ///
    /// # Errors
    /// 404 if it is not listed; errors of reading it.
    pub fn of_folder(
        folder: &Path,
        name: &str,
        stream: Option<u32>,
        limits: &Limits,
    ) -> Result<Self, Problem> {
        if !listed(Some(folder))?.iter().any(|known| known == name) {
            return Err(Problem::missing(format!("video {name}: the server's folder has none of this name")));
        }
        let mut opened = Self::open(folder.join(name), None, stream, limits)?;
        opened.file.name = Some(name.to_owned());
        Ok(opened)
    }

    /// Opens a video, or the one with this number of its video streams.
    fn open(path: PathBuf, upload: Option<TempPath>, stream: Option<u32>, limits: &Limits) -> Result<Self> {
        let options = InputOptions { stream, ..InputOptions::default() };
        let mut frame_rate = IMAGE_RATE;
        if !path.is_dir() {
            let first = open_video_with(&path, &options)?;
            if let Some((width, height)) = first.info().size {
                limits.check_pixels(width, height)?;
            }
            frame_rate = first.info().frame_rate.unwrap_or(IMAGE_RATE);
        }
        let source = SessionSource::open_with(&path, options.clone())?;
        let shape = source.shape();
        limits.check_pixels(shape.width as u32, shape.height as u32)?;
        let file =
            VideoFile { name: None, frame_rate, path, options, _upload: upload, shown: Mutex::default() };
        Ok(Self { source, file })
    }
}

impl VideoFile {
    /// The image of a frame.
    ///
    /// # Errors
    /// Those of [`SessionSource::image`].
    pub fn image(&self, frame: usize) -> Result<Image> {
        let mut shown = locked(&self.shown);
        let source = match &mut *shown {
            Some(source) => source,
            none => none.insert(self.source()?),
        };
        source.image(frame)
    }

    /// The frames from the first, for somebody else.
    ///
    /// # Errors
    /// Those of [`SessionSource::open_with`].
    pub fn source(&self) -> Result<SessionSource> {
        SessionSource::open_with(&self.path, self.options.clone())
    }
}

/// The names of the videos in the server's folder, and of its folders of images; none without a folder.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read.
pub(crate) fn listed(folder: Option<&Path>) -> Result<Vec<String>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let entries = folder.read_dir().map_err(|error| Error::io("cannot read the folder", folder, error))?;
    let is_video = |path: &Path| {
        if path.is_dir() {
            path.read_dir().is_ok_and(|mut files| {
                files.any(|file| file.is_ok_and(|file| has_image_extension(&file.path())))
            })
        } else {
            path.extension()
                .is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
        }
    };
    let videos = entries.flatten().filter(|entry| is_video(&entry.path()));
    let names = videos.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}

/// `true` if a file starts as a container that holds its frames itself.
fn is_whole_video(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..]
            | [0x1a, 0x45, 0xdf, 0xa3, ..]
            | [_, _, _, _, b'f', b't', b'y', b'p', ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_other_files_are_no_videos() {
        let cases: [(&[u8], bool); 7] = [
            (b"\0\0\0\x20ftypisom\0\0", true),
            (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01", true),
            (b"RIFF\0\0\0\0AVI LIST", true),
            (b"RIFF\0\0\0\0WEBPVP8 ", false),
            (b"#EXTM3U\nfile:///etc/passwd", false),
            (b"ffconcat version 1.0\nfile /etc/passwd", false),
            (b"\0\0ftypisom\0\0", false),
        ];
        for (bytes, is_whole) in cases {
            assert_eq!(is_whole_video(bytes), is_whole, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_folder_lists_its_videos_and_folders_of_images_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["frames", "empty"] {
            std::fs::create_dir(path(name)).expect("it is new");
        }
        for name in ["b.MP4", "a.mkv", "notes.txt", ".hidden.mp4", "list.m3u8", "frames/1.png", "empty/1.txt"]
        {
            std::fs::write(path(name), b"").expect("it is new");
        }
        assert_eq!(listed(Some(folder.path())).expect("it can be read"), ["a.mkv", "b.MP4", "frames"]);
        assert!(listed(Some(&path("none"))).is_err());
        let limits = Limits::default();
        for name in ["../b.MP4", "frames/../b.MP4", "notes.txt", "", ".", "/etc/passwd"] {
            let refused =
                OpenedVideo::of_folder(folder.path(), name, None, &limits).err().expect("it is not listed");
            assert_eq!(refused.status, 404, "{name}");
        }
    }
}
