//! A file of JSON lines that grows while work goes on. A process that is killed can leave half a line at the end, which is
//! removed; the whole lines are read when the work continues.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ocelli_error::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};

/// An open file.
pub struct JsonLines {
    path: PathBuf,
    file: File,
    /// The content of the lines, for messages: `the measurements`.
    content: &'static str,
}

impl JsonLines {
    /// Opens the file, or creates it, and reads its lines.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be read, [`InvalidData`](ocelli_error::ErrorKind::InvalidData),
    /// with the number of the line, if a line is of
    /// another kind.
    pub fn open<L: DeserializeOwned>(path: &Path, content: &'static str) -> Result<(Self, Vec<L>)> {
        let io = |error| Error::io(&format!("cannot open {content}"), path, error);
        let options = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = options.map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        let lines = Self { path: path.to_owned(), file, content };
        let whole = bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate();
        let read =
            whole.map(|(number, line)| serde_json::from_slice(line).map_err(|_| lines.wrong_line(number)));
        let read = read.collect::<Result<_>>()?;
        Ok((lines, read))
    }

    /// The error about a line, counted from 0, that has something else.
    pub fn wrong_line(&self, number: usize) -> Error {
        let (path, line, content) = (self.path.display(), number + 1, self.content);
        let message =
            format!("{path}, line {line}: expected {content}; delete the file or choose another output");
        Error::invalid_data(message)
    }

    /// The error about a file of other work; `work` is what was to continue, `what` is the difference.
    pub fn other(&self, work: &str, what: &str) -> Error {
        Error::mismatch(format!(
            "cannot continue {work}, {}: it has {} of {what}; delete the file or choose another output",
            self.path.display(),
            self.content
        ))
    }

    /// Appends a line in one write, so that a stop leaves whole lines.
    pub fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).expect("a line is plain data");
        text.push(b'\n');
        let content = self.content;
        self.file.write_all(&text).map_err(|e| Error::io(&format!("cannot write {content}"), &self.path, e))
    }
}
