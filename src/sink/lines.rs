//! Files that grow line by line and are whole up to the last one, however the program ends.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// Somewhere that lines go, each piece at once: no buffer in between holds half a line.
pub(super) struct Lines {
    name: String,
    writer: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

impl Lines {
    /// A file, which is emptied; `-` is stdout.
    pub(super) fn create(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new("stdout", std::io::stdout()));
        }
        let file = File::create(path).map_err(|e| Error::io("cannot write", path, e))?;
        Ok(Self::new(path.display().to_string(), file))
    }

    pub(super) fn new(name: impl Into<String>, writer: impl Write + Send + 'static) -> Self {
        Self { name: name.into(), writer: Box::new(writer), buffer: Vec::new() }
    }

    /// Writes what `fill` puts into the buffer, which has to be whole lines.
    pub(super) fn write(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<()> {
        self.buffer.clear();
        // stdout has a buffer of its own, which ends at line ends: it must not keep the last line.
        let written = fill(&mut self.buffer)
            .and_then(|()| self.writer.write_all(&self.buffer))
            .and_then(|()| self.writer.flush());
        written.map_err(|e| {
            let message = format!("cannot write, {}: {}", self.name, explain(&e));
            Error::new(ErrorKind::Io, message).with_source(e)
        })
    }
}

/// What a person makes of a failed write.
pub(super) fn explain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => "whoever read it is gone (broken pipe)".into(),
        _ => error.to_string(),
    }
}
