//! Which files are videos, and the folders and patterns that stand for them.

use std::path::{Path, PathBuf};

use ocelli::source::natural_order;
use ocelli::{Error, ErrorKind, Result};

/// Files of a folder that are videos.
const EXTENSIONS: [&str; 10] = ["mp4", "mov", "mkv", "avi", "webm", "m4v", "mpg", "mpeg", "ts", "wmv"];

/// The videos of a folder or a pattern, in natural order; empty for what names a file, and where there are none.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an invalid pattern, [`ErrorKind::Io`] if a folder cannot be read.
pub fn videos_of(named: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = if named.is_dir() {
        let entries = named.read_dir().map_err(|e| Error::io("cannot read the folder", named, e))?;
        entries.flatten().map(|entry| entry.path()).collect()
    } else if !named.exists() && named.to_string_lossy().contains(['*', '?', '[']) {
        let matches = glob::glob(&named.to_string_lossy()).map_err(|e| {
            let message = format!("no video, {}: invalid pattern: {e}", named.display());
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        matches.flatten().collect()
    } else {
        return Ok(Vec::new());
    };
    found.retain(|path| is_video(path));
    natural_order(&mut found);
    Ok(found)
}

/// Whether a file is a video, by its name.
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
