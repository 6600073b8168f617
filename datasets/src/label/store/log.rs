//! A file of JSON lines that grows: a header, and a line for each event, synced one by one.
//!
//! A crash or a full disk can leave one incomplete line at the end, which the next one replaces. Damage before the last line
//! is an error.

use std::error::Error as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::label::disk;
use ocelli::{Error, Result};

/// The name of a log in messages, the remedy if it is corrupt, and the option that applies it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub name: &'static str,
    pub remedy: &'static str,
    pub parameter: &'static str,
}

/// The place of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    offset: u64,
    pub bytes: u32,
}

/// From this size in bytes on, a log is written again if most of it is superseded.
const LARGE: u64 = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// An open log.
pub(crate) struct Log {
    pub path: PathBuf,
    kind: &'static Kind,
    /// `None` if there is none yet: nothing is written then.
    pub file: Option<File>,
    /// Bytes up to the end of the last complete line that was read or written.
    pub length: u64,
}

impl Log {
    pub fn new(path: &Path, kind: &'static Kind, file: Option<File>) -> Self {
        Self { path: path.to_owned(), kind, file, length: 0 }
    }

    pub fn open_to_read(path: &Path, kind: &'static Kind) -> Result<Self> {
        let file =
            File::open(path).map_err(|e| Error::io(&format!("cannot open the {}", kind.name), path, e))?;
        Ok(Self::new(path, kind, Some(file)))
    }

    /// `true` if the log is large, and more than twice as long as the lines that still count, which have this many bytes.
    pub fn is_mostly_superseded(&self, live: u64) -> bool {
        self.length > LARGE.max(2 * live)
    }

    /// Replaces the file by one with these lines: after a stop, there is the former one or this one.
    pub fn replace<E: Serialize>(
        path: &Path,
        header: &impl Serialize,
        events: impl IntoIterator<Item = Result<E>>,
    ) -> Result<()> {
        fn put(out: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
            serde_json::to_writer(&mut *out, line)?;
            out.write_all(b"\n")
        }
        disk::replace(path, |out| {
            put(out, header)?;
            events.into_iter().try_for_each(|event| put(out, &event.map_err(io::Error::other)?))
        })
    }

    /// The end of a [`replace`](Self::replace) with a shorter log, for which the disk may have no room: then the longer one stays,
    /// with a warning.
    pub fn may_stay_long(replaced: Result<()>) -> Result<()> {
        replaced.or_else(|why| {
            let full = has_no_room(&why).then(|| tracing::warn!("the log stays as long as it is: {why}"));
            full.ok_or(why)
        })
    }

    pub fn corrupt(&self, why: &str) -> Error {
        let Kind { name, remedy, parameter } = self.kind;
        let message = format!("corrupt {name}, {}: {why}; {remedy}", self.path.display());
        Error::invalid_data(message).about(parameter)
    }

    fn cannot_read(&self, error: io::Error) -> Error {
        Error::io(&format!("cannot read the {}", self.kind.name), &self.path, error)
    }

    /// Reads the first line; `None` if it is not complete.
    pub fn header<H: DeserializeOwned>(&self) -> Result<Option<H>> {
        let Some(mut file) = self.file.as_ref() else { return Ok(None) };
        let mut line = Vec::new();
        let read =
            file.seek(SeekFrom::Start(0)).and_then(|_| BufReader::new(file).read_until(b'\n', &mut line));
        read.map_err(|e| self.cannot_read(e))?;
        if line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let wrong = |_| self.corrupt(&format!("its first line is not that of a {}", self.kind.name));
        serde_json::from_slice(&line).map(Some).map_err(wrong)
    }

    /// Reads every complete line after the first. An error of `each` says what is wrong with one.
    pub fn read<E: DeserializeOwned>(
        &mut self,
        mut each: impl FnMut(E, Span) -> Result<(), String>,
    ) -> Result<()> {
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        file.seek(SeekFrom::Start(0)).map_err(|e| self.cannot_read(e))?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let (mut line, mut length) = (Vec::new(), 0);
        // What is wrong with the line that was read last.
        let mut damage: Option<Error> = None;
        for number in 1.. {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line).map_err(|e| self.cannot_read(e))?;
            if let Some(damage) = damage.take().filter(|_| bytes > 0) {
                return Err(damage);
            }
            if line.last() != Some(&b'\n') {
                break;
            }
            let wrong = |why: String| self.corrupt(&format!("line {number}: {why}"));
            if number > 1 {
                match serde_json::from_slice(&line) {
                    Ok(event) => each(event, Span { offset: length, bytes: bytes as u32 }).map_err(wrong)?,
                    // The last line may be incomplete after a power failure. Every line before it was synced.
                    Err(e) => {
                        damage = Some(wrong(e.to_string()));
                        continue;
                    }
                }
            }
            length += bytes as u64;
        }
        self.length = length;
        Ok(())
    }

    /// Reads one line again.
    pub fn read_at<E: DeserializeOwned>(&self, Span { offset, bytes }: Span) -> Result<E> {
        let mut line = vec![0; bytes as usize];
        if let Some(mut file) = self.file.as_ref() {
            let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut line));
            read.map_err(|e| self.cannot_read(e))?;
        }
        serde_json::from_slice(&line).map_err(|e| self.corrupt(&format!("byte {offset}: {e}")))
    }

    /// Appends a line and syncs it to disk.
    pub fn append(&mut self, event: &impl Serialize) -> io::Result<Span> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if let Some(file) = &self.file {
            disk::append(file, self.length, &line)?;
        }
        let span = Span { offset: self.length, bytes: line.len() as u32 };
        self.length += line.len() as u64;
        Ok(span)
    }
}

/// `true` if a disk, a quota or a limit is full.
fn has_no_room(why: &Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let source = why.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_long_for_want_of_room_alone() {
        let error = |kind: io::ErrorKind| Error::io("cannot write", Path::new("log"), kind.into());
        assert!(has_no_room(&error(io::ErrorKind::StorageFull)));
        assert!(!has_no_room(&error(io::ErrorKind::PermissionDenied)));
        assert!(!has_no_room(&Error::invalid_data("a corrupt line")));
    }
}
