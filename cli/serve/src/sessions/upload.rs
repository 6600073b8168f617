//! A video file that a client sends, for a session.

use std::io::Write;

use ocelli::masklets::SessionSource;
use ocelli::source::open_video;
use ocelli::{Error, ErrorKind, Result};
use tempfile::TempPath;

use crate::limits::Limits;
use crate::problem::Problem;

/// A video in a temporary file, which is removed with it.
pub(crate) struct Upload {
    pub source: SessionSource,
    pub file: TempPath,
}

impl Upload {
    /// Opens a video file in memory. Containers that can name other files or addresses are refused, as the video library would
    /// open these.
    ///
    /// # Errors
    /// 400 for what is no video, for another container, and for more pixels than the limit; 500 if there is no video library, or no
    /// room for the file.
    pub fn open(bytes: &[u8], limits: &Limits) -> Result<Self, Problem> {
        if !is_whole_video(bytes) {
            return Err(Problem::bad("video: expected a file in MP4, MOV, Matroska, WebM or AVI"));
        }
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Io, format!("cannot keep the video: {error}"));
        let mut file = tempfile::Builder::new().prefix("ocelli-").tempfile().map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        let file = file.into_temp_path();
        let opened = || {
            let first = open_video(&file)?;
            if let Some((width, height)) = first.info().size {
                limits.check_pixels(width, height)?;
            }
            SessionSource::open(&file)
        };
        // The name of the file is nobody's business.
        let source = opened().map_err(|error| {
            let message = error.to_string().replace(&*file.to_string_lossy(), "the request");
            Error::new(error.kind(), message)
        })?;
        Ok(Self { source, file })
    }
}

/// Whether a file starts as a container that holds its frames itself.
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
}
