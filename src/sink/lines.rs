//! Text files that end with a whole line at any time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::atomic_file::folder_of;
use ocelli_error::{Error, ErrorKind, Result};

/// Writes whole lines without a buffer in between, so that no partial line is left when the program is killed.
///
/// A file is created, or emptied, with the first frame: a run that fails before has changed nothing.
pub(super) struct Lines {
    name: String,
    target: Target,
    buffer: Vec<u8>,
}

enum Target {
    /// A file that does not exist yet.
    Missing(PathBuf),
    /// A file with the results of an earlier run.
    Earlier(File),
    Open(Box<dyn Write + Send>),
}

impl Lines {
    /// Checks that a file can be written; `-` is stdout.
    pub(super) fn create(path: &Path) -> Result<Self> {
        ocelli_engines::report_file_limits();
        let cannot = |e| Error::io("cannot write", path, e);
        let (name, target) = if path == Path::new("-") {
            ("stdout".into(), Target::Open(Box::new(std::io::stdout())))
        } else {
            let target = match File::options().write(true).open(path) {
                Ok(file) if file.metadata().map_err(cannot)?.is_file() => Target::Earlier(file),
                // A device or a pipe.
                Ok(file) => Target::Open(Box::new(file)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    // An anonymous temporary file: it only shows that the folder can be written to.
                    tempfile::tempfile_in(folder_of(path)).map_err(cannot)?;
                    Target::Missing(path.to_owned())
                }
                Err(e) => return Err(cannot(e)),
            };
            (path.display().to_string(), target)
        };
        Ok(Self { name, target, buffer: Vec::new() })
    }

    /// Writes the whole lines that `fill` appends to the buffer.
    pub(super) fn write(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<()> {
        self.buffer.clear();
        let Self { name, target, buffer } = self;
        // stdout is buffered and has to be flushed after each frame.
        let written = fill(buffer).and_then(|()| {
            let writer = target.open()?;
            writer.write_all(buffer)?;
            writer.flush()
        });
        written.map_err(|e| write_error("cannot write", name, e))
    }
}

impl Target {
    fn open(&mut self) -> std::io::Result<&mut (dyn Write + Send)> {
        let opened = match self {
            Self::Open(writer) => return Ok(writer.as_mut()),
            Self::Missing(path) => File::create(path)?,
            Self::Earlier(file) => {
                file.set_len(0)?;
                file.try_clone()?
            }
        };
        *self = Self::Open(Box::new(opened));
        self.open()
    }
}

/// The error for a failed write.
pub(super) fn write_error(what: &str, name: &str, error: std::io::Error) -> Error {
    let why = match error.kind() {
        std::io::ErrorKind::BrokenPipe => "the reading program has ended (broken pipe)".into(),
        _ => error.to_string(),
    };
    Error::new(ErrorKind::Io, format!("{what}, {name}: {why}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_results_stay_until_the_first_frame() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "yesterday's results\n").expect("the folder can be written to");
        for name in ["old", "new"] {
            let before = std::fs::read_to_string(at(name)).ok();
            drop(Lines::create(&at(name)).expect("it can be written"));
            assert_eq!(std::fs::read_to_string(at(name)).ok(), before, "{name}: nothing was written");
            let mut lines = Lines::create(&at(name)).expect("it can be written");
            for line in ["a", "b"] {
                lines.write(|buffer| writeln!(buffer, "{line}")).expect("it can be written");
            }
            assert_eq!(std::fs::read_to_string(at(name)).ok().as_deref(), Some("a\nb\n"), "{name}");
        }
        let error = Lines::create(&at("none/x")).err().expect("there is no such folder");
        assert!(error.to_string().contains("none/x"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 2);
    }
}
