//! Detects failed writes, which OpenCV's encoder does not report.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::source::container::Container;

/// Frames between two checks of the file's size.
const FRAMES_PER_CHECK: u64 = 64;
/// Encoders and buffers delay frames, so a still picture may not grow the file for this many.
const PATIENCE_FRAMES: u64 = 4096;
/// A trial write of this size tells whether the disk is full.
const TRIAL_BYTES: usize = 256 << 10;

/// Watches whether a file keeps growing.
pub(super) struct GrowthGuard {
    path: PathBuf,
    frames: u64,
    length: u64,
    unchanged_since: u64,
}

impl GrowthGuard {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), frames: 0, length: 0, unchanged_since: 0 }
    }

    /// Checks the file now and then; `Err` is the reason why writing fails.
    pub(super) fn after_frame(&mut self) -> Result<(), String> {
        self.frames += 1;
        if !self.frames.is_multiple_of(FRAMES_PER_CHECK) {
            return Ok(());
        }
        let length = self.path.metadata().map_err(|e| e.to_string())?.len();
        if length != self.length {
            (self.length, self.unchanged_since) = (length, self.frames);
            return Ok(());
        }
        // The encoder does not report failed writes; a trial file tells whether the disk is full.
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let trial = tempfile::Builder::new().prefix(".ocelli-").tempfile_in(folder);
        trial
            .and_then(|mut file| file.write_all(&[0; TRIAL_BYTES]).and_then(|()| file.as_file().sync_data()))
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::StorageFull => "no space left on the device".to_owned(),
                _ => e.to_string(),
            })?;
        match self.frames - self.unchanged_since {
            unchanged if unchanged >= PATIENCE_FRAMES => {
                Err(format!("the file stopped growing at {length} bytes"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that a finished file is complete.
pub(super) fn check_complete(path: &Path) -> Result<(), String> {
    let container = Container::inspect(path).map_err(|e| e.to_string())?;
    let length = path.metadata().map_err(|e| e.to_string())?.len();
    match container {
        Some(container) if !container.unfinished && container.missing_bytes == 0 => Ok(()),
        _ => Err(format!(
            "the file is incomplete and ends at {length} bytes: the disk is full, or a limit on file sizes was reached"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_stops_growing_is_reported() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("video");
        let mut bytes = vec![0; 10];
        std::fs::write(&path, &bytes).expect("it can be written to");
        let mut guard = GrowthGuard::new(&path);
        for frame in 0..2 * PATIENCE_FRAMES {
            if frame % 2000 == 0 {
                bytes.push(0);
                std::fs::write(&path, &bytes).expect("it can be written to");
            }
            guard.after_frame().expect("it grows now and then");
        }
        let refused = (0..2 * PATIENCE_FRAMES).find_map(|_| guard.after_frame().err());
        assert_eq!(refused, Some(format!("the file stopped growing at {} bytes", bytes.len())));
        std::fs::remove_file(&path).expect("it is there");
        assert!((0..FRAMES_PER_CHECK).any(|_| guard.after_frame().is_err()), "the file was removed");
    }
}
