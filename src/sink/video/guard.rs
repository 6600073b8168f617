//! Whether what is encoded reaches the disk: OpenCV's encoder does not say.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::source::Container;

/// Frames from one look at the file to the next.
const FRAMES_PER_LOOK: u64 = 64;
/// Encoders hold frames back, and buffers hold small ones: a still picture may leave the file as it is for so many.
const PATIENCE_FRAMES: u64 = 4096;
/// What a disk that is not full takes.
const TRIAL_BYTES: usize = 256 << 10;

/// Watches a file grow.
pub(super) struct GrowthGuard {
    path: PathBuf,
    frames: u64,
    length: u64,
    still_since: u64,
}

impl GrowthGuard {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), frames: 0, length: 0, still_since: 0 }
    }

    /// Looks now and then, and says why nothing can be written any more.
    pub(super) fn after_frame(&mut self) -> Result<(), String> {
        self.frames += 1;
        if !self.frames.is_multiple_of(FRAMES_PER_LOOK) {
            return Ok(());
        }
        let length = self.path.metadata().map_err(|e| e.to_string())?.len();
        if length != self.length {
            (self.length, self.still_since) = (length, self.frames);
            return Ok(());
        }
        // The encoder keeps a failed write to itself; whether the disk is full is found out beside it.
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let trial = tempfile::Builder::new().prefix(".ocelli-").tempfile_in(folder);
        trial
            .and_then(|mut file| file.write_all(&[0; TRIAL_BYTES]).and_then(|()| file.as_file().sync_data()))
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::StorageFull => "no space left on the device".to_owned(),
                _ => e.to_string(),
            })?;
        match self.frames - self.still_since {
            still if still >= PATIENCE_FRAMES => Err(format!("the file stopped growing at {length} bytes")),
            _ => Ok(()),
        }
    }
}

/// Whether the file that an encoder is done with is whole.
pub(super) fn check_complete(path: &Path) -> Result<(), String> {
    let container = Container::inspect(path).map_err(|e| e.to_string())?;
    let length = path.metadata().map_err(|e| e.to_string())?.len();
    match container {
        Some(container) if !container.unfinished && container.missing_bytes == 0 => Ok(()),
        _ => Err(format!(
            "the file could not be completed, it ends at {length} bytes: the disk is full, or a limit on file sizes was \
             reached"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_fine_and_one_that_stopped_is_not() {
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
        assert!((0..FRAMES_PER_LOOK).any(|_| guard.after_frame().is_err()), "it is gone");
    }
}
