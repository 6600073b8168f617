//! Files that arguments name: images and videos to read, also by folders and patterns that stand for them, and results to
//! write.

use std::path::{Path, PathBuf};

use ocelli::sink::YoloLabels;
use ocelli::source::natural_order;
use ocelli::{Error, Result};
use ocelli_datasets::label::{data_set_around, list_images};

use crate::interrupt::until_interrupted;
use crate::output::with_flag;

/// Expands files, folders and patterns (`*.jpg`, `**/*.png`) into image files, each once. A folder stands for the images in it
/// and in its subfolders. Ctrl-C ends the search.
pub fn expand_images(arguments: &[PathBuf]) -> Result<Vec<PathBuf>> {
    images_beside(arguments, Vec::new())
}

/// As [`expand_images`], without the subfolders that are among the `outputs`.
pub fn images_beside(arguments: &[PathBuf], outputs: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    if let Some(video) = arguments.iter().find(|argument| is_video(argument)) {
        refuse!("no image, {}: it is a video, which `ocelli video --video` reads", video.display());
    }
    let arguments = arguments.to_vec();
    until_interrupted(move || list_images(&arguments, true, &outputs))
}

/// As [`expand_images`], for the frames of a video: a folder stands for the images directly in it.
pub fn frame_files(arguments: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let arguments = arguments.to_vec();
    until_interrupted(move || list_images(&arguments, false, &[]))
}

/// Opens the label files of `--save-txt`, which are for folders of their own: in a data set they would overwrite what a
/// person corrected.
///
/// # Errors
/// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for a folder in a data set, [`Io`](ocelli::ErrorKind::Io) if it is a file.
pub fn label_files(folder: &Path) -> Result<YoloLabels> {
    if let Some(data_set) = data_set_around(folder) {
        refuse!(
            "--save-txt, {}: it is in the data set {}, whose labels may be corrected by hand; name another folder, or use \
             `ocelli label`",
            folder.display(),
            data_set.display()
        );
    }
    YoloLabels::create(folder).map_err(with_flag("--save-txt"))
}

/// Files of a folder that are videos.
const EXTENSIONS: [&str; 10] = ["mp4", "mov", "mkv", "avi", "webm", "m4v", "mpg", "mpeg", "ts", "wmv"];

/// The videos of a folder or a pattern, in natural order; empty for what names a file, and where there are none.
///
/// # Errors
/// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for an invalid pattern, [`Io`](ocelli::ErrorKind::Io) if a folder cannot be read.
pub fn videos_of(named: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = if named.is_dir() {
        let entries = named.read_dir().map_err(|e| Error::io("cannot read the folder", named, e))?;
        entries.flatten().map(|entry| entry.path()).collect()
    } else if !named.exists() && named.to_string_lossy().contains(['*', '?', '[']) {
        let matches = glob::glob(&named.to_string_lossy()).map_err(|e| {
            Error::invalid_argument(format!("no video, {}: invalid pattern: {e}", named.display()))
        })?;
        matches.flatten().collect()
    } else {
        return Ok(Vec::new());
    };
    found.retain(|path| is_video(path));
    natural_order(&mut found);
    Ok(found)
}

/// `true` if a file is a video, by its name.
pub fn is_video(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    !is_hidden && path.is_file() && extension.is_some_and(|extension| EXTENSIONS.contains(&&*extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_patterns_of_videos() -> Result<()> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["v/b10.MP4", "v/b9.mkv", "v/.part.mp4", "v/notes.txt", "no/a.png"] {
            std::fs::create_dir_all(at(name).parent().expect("it has one")).expect("a temporary folder");
            std::fs::write(at(name), "x").expect("a temporary folder");
        }
        for (named, expected) in [
            ("v", &["v/b9.mkv", "v/b10.MP4"][..]),
            ("v/*", &["v/b9.mkv", "v/b10.MP4"]),
            ("*/*.mkv", &["v/b9.mkv"]),
            ("no", &[]),
            ("v/b9.mkv", &[]),
            ("nowhere", &[]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(|name| at(name)).collect();
            assert_eq!(videos_of(&at(named))?, expected, "{named}");
        }
        Ok(())
    }
}
