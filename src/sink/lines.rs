//! Text files that end with a whole line at any time.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ocelli_error::{Error, ErrorKind, Result};

/// Writes whole lines without a buffer in between, so that no partial line is left when the program is killed.
pub(super) struct Lines {
    name: String,
    writer: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

impl Lines {
    /// Creates or truncates a file; `-` is stdout.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let (name, writer): (_, Box<dyn Write + Send>) = if path == Path::new("-") {
            ("stdout".into(), Box::new(std::io::stdout()))
        } else {
            let file = File::create(path).map_err(|e| Error::io("cannot write", path, e))?;
            (path.display().to_string(), Box::new(file))
        };
        Ok(Self { name, writer, buffer: Vec::new() })
    }

    /// Writes the whole lines that `fill` appends to the buffer.
    pub(super) fn write(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<()> {
        self.buffer.clear();
        // stdout is buffered and has to be flushed after each frame.
        let written = fill(&mut self.buffer)
            .and_then(|()| self.writer.write_all(&self.buffer))
            .and_then(|()| self.writer.flush());
        written.map_err(|e| write_error("cannot write", &self.name, e))
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
