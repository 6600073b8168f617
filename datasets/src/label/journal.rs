//! The journal: one line for each image that is done, flushed to disk in batches.
//!
//! The first line has the settings that determine the labels. Opening a journal truncates it after the last complete line,
//! which removes what a crash or a full disk left. The last line of an image replaces earlier ones.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::Record;
use ocelli::{Error, ErrorKind, Result};

/// The version of the journal format.
const FORMAT: u32 = 1;
/// The file is flushed to disk after this many lines or this time, whichever comes first.
const LINES_PER_SYNC: usize = 64;
const TIME_PER_SYNC: Duration = Duration::from_secs(2);

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    ocelli_label: u32,
    settings: Value,
}

/// The position of an image's line, and what shows whether it is still valid.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    offset: u64,
    bytes: u32,
    /// [`Record::identity`].
    pub identity: (u64, u64),
    /// A hash of the path of the image file: the paths themselves would take ten times the memory.
    pub source: u64,
    /// Whether it could not be labelled.
    pub failed: bool,
}

impl Entry {
    /// The offset of its line.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// An open journal.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes up to the end of the last complete line.
    length: u64,
    entries: HashMap<String, Entry>,
    unsynced: usize,
    synced: Instant,
    line: Vec<u8>,
}

impl Journal {
    /// Opens the journal with these settings, or starts it.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has other settings; the message names the first difference.
    pub fn open(path: &Path, settings: &Value) -> Result<Self> {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io("cannot open the journal", path, e))?;
        let mut journal = Self::unread(path, file);
        let known = journal.read_lines(Some(settings))?;
        journal.truncate()?;
        if known.is_none() {
            let header = Header { ocelli_label: FORMAT, settings: settings.clone() };
            journal.write_line(&header)?;
            journal.sync()?;
        }
        Ok(journal)
    }

    fn unread(path: &Path, file: File) -> Self {
        Self {
            path: path.to_owned(),
            file,
            length: 0,
            entries: HashMap::new(),
            unsynced: 0,
            synced: Instant::now(),
            line: Vec::new(),
        }
    }

    /// Opens an existing journal for reading. Returns its settings, too.
    pub fn open_existing(path: &Path) -> Result<(Self, Value)> {
        let file = File::open(path).map_err(|e| Error::io("cannot open the journal", path, e))?;
        let mut journal = Self::unread(path, file);
        match journal.read_lines(None)? {
            Some(settings) => Ok((journal, settings)),
            None => Err(journal.corrupt("it has no first line")),
        }
    }

    fn corrupt(&self, why: &str) -> Error {
        let message = format!("corrupt journal, {}: {why}; restart the data set", self.path.display());
        Error::new(ErrorKind::InvalidData, message)
    }

    /// Reads up to the last complete line. Returns the settings; `None` if the file has no first line yet.
    fn read_lines(&mut self, expected: Option<&Value>) -> Result<Option<Value>> {
        let path = self.path.clone();
        let cannot = |e| Error::io("cannot read the journal", &path, e);
        let file = self.file.try_clone().map_err(cannot)?;
        let total = file.metadata().map_err(cannot)?.len();
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let mut settings = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line).map_err(cannot)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            if settings.is_none() {
                let header: Header = match serde_json::from_slice(&line) {
                    Ok(header) => header,
                    Err(_) => return Err(self.corrupt("its first line is not a journal's")),
                };
                if header.ocelli_label != FORMAT {
                    let why = format!("its format is {}, expected {FORMAT}", header.ocelli_label);
                    return Err(self.corrupt(&why));
                }
                if let Some((key, there, here)) =
                    expected.and_then(|expected| difference("", &header.settings, expected))
                {
                    let message = format!(
                        "cannot continue, {}: it was started with {key} {there}, this is {here}; use the same settings, choose \
                         another output folder, or restart",
                        self.path.display()
                    );
                    return Err(Error::new(ErrorKind::Mismatch, message));
                }
                settings = Some(header.settings);
            } else if let Ok(record) = serde_json::from_slice::<Record>(&line) {
                self.remember(&record, bytes);
            } else {
                // A power failure left blocks unwritten: the images that follow are labelled again.
                tracing::warn!(
                    "journal, {}: the line at byte {} is corrupt; the images after it are labelled again",
                    self.path.display(),
                    self.length
                );
                break;
            }
            self.length += bytes as u64;
        }
        if self.length < total {
            tracing::debug!(
                bytes = total - self.length,
                "truncating the journal after its last complete line"
            );
        }
        Ok(settings)
    }

    fn remember(&mut self, record: &Record, bytes: usize) {
        let entry = Entry {
            offset: self.length,
            bytes: bytes as u32,
            identity: record.identity,
            source: source_hash(&record.source),
            failed: record.error.is_some(),
        };
        self.entries.insert(record.name.clone(), entry);
    }

    /// Truncates the file after the last complete line.
    fn truncate(&mut self) -> Result<()> {
        let truncated =
            self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        truncated.map(drop).map_err(|e| Error::io("cannot write the journal", &self.path, e))
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<usize> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)
            .map_err(|e| Error::io("cannot write the journal", &self.path, e.into()))?;
        self.line.push(b'\n');
        // Reading moves the position.
        let end = SeekFrom::Start(self.length);
        let written = self.file.seek(end).and_then(|_| self.file.write_all(&self.line));
        if let Err(e) = written {
            // An incomplete line does no harm: if it cannot be removed now, opening the journal removes it.
            drop(self.file.set_len(self.length));
            return Err(self.write_error(e));
        }
        let bytes = self.line.len();
        Ok(bytes)
    }

    fn write_error(&self, e: std::io::Error) -> Error {
        let message = format!(
            "cannot write the journal, {}: {e}; finished images are kept, and running it again continues from there",
            self.path.display()
        );
        Error::new(ErrorKind::Io, message).with_source(e)
    }

    /// Appends the record of an image. It is on disk after the next [`sync`](Self::sync), or after two seconds.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let bytes = self.write_line(record)?;
        self.remember(record, bytes);
        self.length += bytes as u64;
        self.unsynced += 1;
        if self.unsynced >= LINES_PER_SYNC || self.synced.elapsed() >= TIME_PER_SYNC {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Flushes the file to disk.
    pub fn sync(&mut self) -> Result<()> {
        if self.length == 0 {
            // Only the header was written.
            self.length = self.file.metadata().map_err(|e| self.write_error(e))?.len();
        }
        self.file.sync_data().map_err(|e| self.write_error(e))?;
        (self.unsynced, self.synced) = (0, Instant::now());
        Ok(())
    }

    /// Length of all complete lines, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The entry of an image's last line.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The names of all images that have a line.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Reads the record of an entry.
    pub fn read(&mut self, entry: &Entry) -> Result<Record> {
        let mut line = std::mem::take(&mut self.line);
        line.resize(entry.bytes as usize, 0);
        let read =
            self.file.seek(SeekFrom::Start(entry.offset)).and_then(|_| self.file.read_exact(&mut line));
        let read = read.map_err(|e| Error::io("cannot read the journal", &self.path, e));
        let record = read.and_then(|()| {
            serde_json::from_slice(&line).map_err(|e| self.corrupt(&format!("byte {}: {e}", entry.offset)))
        });
        self.line = line;
        record
    }
}

/// A hash of a path.
pub(super) fn source_hash(path: &Path) -> u64 {
    super::images::hash_of(&path.to_string_lossy(), 0)
}

/// The first key in which two settings differ, and both values.
pub(super) fn difference(path: &str, there: &Value, here: &Value) -> Option<(String, String, String)> {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (there, here) {
        (a, b) if a == b => None,
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let null = &Value::Null;
            keys.into_iter().find_map(|key| {
                difference(&below(key), a.get(key).unwrap_or(null), b.get(key).unwrap_or(null))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&below(&i.to_string()), a, b))
        }
        (Value::Array(a), Value::Array(b)) => {
            Some((path.into(), format!("of {} entries", a.len()), format!("of {} entries", b.len())))
        }
        (a, b) => Some((path.into(), shown(a), shown(b))),
    }
}

/// A value as text. Numbers were 32-bit floating point.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, |n| (n as f32).to_string())
        }
        Value::Null => "unset".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::label::record::Instance;

    fn record(name: &str, width: u32) -> Record {
        let instance =
            Instance { class: 1, score: 0.1 + 0.2, bbox: [0.1, 2.0, 33.3, 4.4], mask: Some("PPYo0".into()) };
        let (source, instances) = (PathBuf::from("/x").join(name), vec![instance]);
        Record { name: name.into(), source, identity: (1, 2), width, height: 2, instances, error: None }
    }

    #[test]
    fn complete_lines_survive_a_cut_at_any_byte() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let settings = json!({"confidence": 0.3});
        let mut journal = Journal::open(&path, &settings).expect("a new journal");
        let names = ["a", "b/c", "d"];
        let mut ends = vec![journal.length()];
        for name in names {
            journal.append(&record(name, 5)).expect("there is room");
            ends.push(journal.length());
        }
        drop(journal);
        let whole = std::fs::read(&path).expect("it was written");
        assert_eq!(whole.len() as u64, ends[3]);
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("it can be written");
            let mut journal = Journal::open(&path, &settings).unwrap_or_else(|e| panic!("{cut}: {e}"));
            let done = ends.iter().filter(|end| **end <= cut as u64).count().saturating_sub(1);
            assert_eq!(journal.names().count(), done, "{cut} bytes");
            for name in &names[..done] {
                let entry = journal.entry(name).cloned().expect("its line is complete");
                assert_eq!(
                    journal.read(&entry).expect("its line is complete"),
                    record(name, 5),
                    "{cut} bytes"
                );
            }
            for name in &names[done..] {
                journal.append(&record(name, 5)).expect("there is room");
            }
            drop(journal);
            assert_eq!(std::fs::read(&path).expect("it is there"), whole, "{cut} bytes");
        }
    }

    #[test]
    fn the_last_line_of_an_image_counts_and_lines_after_a_corrupt_one_do_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let settings = json!({});
        let mut journal = Journal::open(&path, &settings).expect("a new journal");
        for (name, width) in [("a", 5), ("b", 5), ("a", 7)] {
            journal.append(&record(name, width)).expect("there is room");
        }
        let entry = journal.entry("a").cloned().expect("it was appended");
        assert_eq!(journal.read(&entry).map(|record| record.width).ok(), Some(7));
        drop(journal);
        let mut bytes = std::fs::read(&path).expect("it was written");
        let second = entry.offset() as usize;
        bytes[second..second + 20].fill(0);
        std::fs::write(&path, &bytes).expect("it can be written");
        let mut journal = Journal::open(&path, &settings).expect("a corrupt end is removed");
        let entry = journal.entry("a").cloned().expect("its first line is complete");
        assert_eq!(journal.read(&entry).map(|record| record.width).ok(), Some(5));
        assert_eq!(std::fs::metadata(&path).map(|meta| meta.len()).ok(), Some(second as u64));
    }

    #[test]
    fn keys_of_a_line_do_not_change() {
        let line = serde_json::to_value(record("a", 5)).expect("a record is plain data");
        let keys =
            |value: &Value| value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let (of_record, of_instance): (Vec<String>, Vec<String>) = (keys(&line), keys(&line["things"][0]));
        assert_eq!(of_record, ["name", "source", "identity", "width", "height", "things"]);
        assert_eq!(of_instance, ["class", "score", "box", "mask"]);
    }

    #[test]
    fn other_settings_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let started = json!({"confidence": 0.3, "classes": [{"name": "dog"}], "model": {"imgsz": 448}});
        drop(Journal::open(&path, &started).expect("a new journal"));
        for (settings, words) in [
            (
                json!({"confidence": 0.5, "classes": [{"name": "dog"}], "model": {"imgsz": 448}}),
                "confidence 0.3, this is 0.5",
            ),
            (
                json!({"confidence": 0.3, "classes": [{"name": "cat"}], "model": {"imgsz": 448}}),
                "classes.0.name \"dog\"",
            ),
            (json!({"confidence": 0.3, "classes": [], "model": {"imgsz": 448}}), "classes of 1 entries"),
            (
                json!({"confidence": 0.3, "classes": [{"name": "dog"}], "model": {"imgsz": 224}}),
                "model.imgsz 448",
            ),
        ] {
            let error = Journal::open(&path, &settings).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(words) && error.contains("restart"), "{words}: {error}");
        }
        std::fs::write(&path, "hello\n").expect("it can be written");
        let error = Journal::open(&path, &started).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("corrupt journal"), "{error}");
    }
}
