//! The journal: a line for each picture that is done, appended and made durable in batches.
//!
//! The first line says what decided the labels. A line counts once it ends; what a crash or a full disk left after the
//! last whole line is cut off when the journal is opened again. The last line of a picture is the one that holds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::Record;
use ocelli::{Error, ErrorKind, Result};

/// The journal format that this version writes and reads.
const FORMAT: u32 = 1;
/// Lines after which the file is made durable, and the time, whichever comes first.
const LINES_AT_ONCE: usize = 64;
const TIME_AT_ONCE: Duration = Duration::from_secs(2);

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    ocelli_label: u32,
    settings: Value,
}

/// Where a picture's line is, and what decides whether it still holds.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    offset: u64,
    bytes: u32,
    /// [`Record::identity`].
    pub identity: (u64, u64),
    /// The file it came from, as a hash: a hundred thousand paths would be ten times the memory.
    pub source: u64,
    /// Whether it could not be labelled.
    pub failed: bool,
}

impl Entry {
    /// Where its line begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// An open journal.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes up to the end of the last whole line.
    length: u64,
    entries: HashMap<String, Entry>,
    unsynced: usize,
    synced: Instant,
    line: Vec<u8>,
}

impl Journal {
    /// Opens the journal of these settings, or begins it.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] where it is of other settings; the message names the first that differs.
    pub fn open(path: &Path, settings: &Value) -> Result<Self> {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io("cannot open the journal", path, e))?;
        let mut journal = Self::unread(path, file);
        let known = journal.read_lines(Some(settings))?;
        journal.cut()?;
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

    /// Opens a journal that is there, to read it; says what its settings are.
    pub fn open_existing(path: &Path) -> Result<(Self, Value)> {
        let file = File::open(path).map_err(|e| Error::io("cannot open the journal", path, e))?;
        let mut journal = Self::unread(path, file);
        match journal.read_lines(None)? {
            Some(settings) => Ok((journal, settings)),
            None => Err(journal.damaged("it has no first line")),
        }
    }

    fn damaged(&self, why: &str) -> Error {
        let message = format!("damaged journal, {}: {why}; --restart begins anew", self.path.display());
        Error::new(ErrorKind::InvalidData, message)
    }

    /// Reads up to the last whole line. The settings; `None` where the file has no first line yet.
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
                    Err(_) => return Err(self.damaged("its first line is not one of ocelli label")),
                };
                if header.ocelli_label != FORMAT {
                    let why = format!("its format is {}, this version has {FORMAT}", header.ocelli_label);
                    return Err(self.damaged(&why));
                }
                if let Some((key, there, here)) =
                    expected.and_then(|expected| difference("", &header.settings, expected))
                {
                    let message = format!(
                        "cannot go on, {}: it was begun with {key} {there}, this is {here}; go on with the same \
                         arguments, name another --output, or begin anew with --restart",
                        self.path.display()
                    );
                    return Err(Error::new(ErrorKind::Mismatch, message));
                }
                settings = Some(header.settings);
            } else if let Ok(record) = serde_json::from_slice::<Record>(&line) {
                self.remember(&record, bytes);
            } else {
                // Blocks that a power failure left unwritten: what follows is labelled again.
                tracing::warn!(
                    "journal, {}: a line at byte {} is damaged; pictures from there on are labelled again",
                    self.path.display(),
                    self.length
                );
                break;
            }
            self.length += bytes as u64;
        }
        if self.length < total {
            tracing::debug!(bytes = total - self.length, "cutting what follows the last whole line");
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

    /// Cuts off what follows the last whole line.
    fn cut(&mut self) -> Result<()> {
        let cut = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        cut.map(drop).map_err(|e| Error::io("cannot write the journal", &self.path, e))
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<usize> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)
            .map_err(|e| Error::io("cannot write the journal", &self.path, e.into()))?;
        self.line.push(b'\n');
        // The place is set each time, since reading moves it.
        let end = SeekFrom::Start(self.length);
        let written = self.file.seek(end).and_then(|_| self.file.write_all(&self.line));
        if let Err(e) = written {
            // Half a line does no harm: it is cut off when the journal is opened, now if that is possible.
            drop(self.file.set_len(self.length));
            return Err(self.stopped(e));
        }
        let bytes = self.line.len();
        Ok(bytes)
    }

    fn stopped(&self, e: std::io::Error) -> Error {
        let message = format!(
            "cannot write the journal, {}: {e}; nothing that was finished is lost, the same command goes on from there",
            self.path.display()
        );
        Error::new(ErrorKind::Io, message).with_source(e)
    }

    /// Appends a picture. It is durable after the next [`sync`](Self::sync), or a second or two later.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let bytes = self.write_line(record)?;
        self.remember(record, bytes);
        self.length += bytes as u64;
        self.unsynced += 1;
        if self.unsynced >= LINES_AT_ONCE || self.synced.elapsed() >= TIME_AT_ONCE {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Makes durable what was appended.
    pub fn sync(&mut self) -> Result<()> {
        if self.length == 0 {
            // The header was just written.
            self.length = self.file.metadata().map_err(|e| self.stopped(e))?.len();
        }
        self.file.sync_data().map_err(|e| self.stopped(e))?;
        (self.unsynced, self.synced) = (0, Instant::now());
        Ok(())
    }

    /// Bytes of all whole lines.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where a picture's last line is.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Names of all pictures that have a line.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The last line of a picture that has one.
    pub fn read(&mut self, entry: &Entry) -> Result<Record> {
        let mut line = std::mem::take(&mut self.line);
        line.resize(entry.bytes as usize, 0);
        let read =
            self.file.seek(SeekFrom::Start(entry.offset)).and_then(|_| self.file.read_exact(&mut line));
        let read = read.map_err(|e| Error::io("cannot read the journal", &self.path, e));
        let record = read.and_then(|()| {
            serde_json::from_slice(&line).map_err(|e| self.damaged(&format!("byte {}: {e}", entry.offset)))
        });
        self.line = line;
        record
    }
}

/// A path in eight bytes.
pub(super) fn source_hash(path: &Path) -> u64 {
    super::pictures::hash_of(&path.to_string_lossy(), 0)
}

/// The first place in which two settings differ, and the two values.
pub(super) fn difference(place: &str, there: &Value, here: &Value) -> Option<(String, String, String)> {
    let below = |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
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
            Some((place.into(), format!("of {} entries", a.len()), format!("of {} entries", b.len())))
        }
        (a, b) => Some((place.into(), shown(a), shown(b))),
    }
}

/// A value as it was typed: numbers come from 32 bits.
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
    use crate::label::Thing;

    fn record(name: &str, width: u32) -> Record {
        let thing =
            Thing { class: 1, score: 0.1 + 0.2, bbox: [0.1, 2.0, 33.3, 4.4], mask: Some("PPYo0".into()) };
        let (source, things) = (PathBuf::from("/x").join(name), vec![thing]);
        Record { name: name.into(), source, identity: (1, 2), width, height: 2, things, error: None }
    }

    #[test]
    fn what_was_appended_is_there_wherever_it_was_cut() {
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
                let entry = journal.entry(name).cloned().expect("its line is whole");
                assert_eq!(journal.read(&entry).expect("its line is whole"), record(name, 5), "{cut} bytes");
            }
            for name in &names[done..] {
                journal.append(&record(name, 5)).expect("there is room");
            }
            drop(journal);
            assert_eq!(std::fs::read(&path).expect("it is there"), whole, "{cut} bytes");
        }
    }

    #[test]
    fn the_last_line_holds_and_damage_ends_what_is_trusted() {
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
        let mut journal = Journal::open(&path, &settings).expect("damage at the end is cut off");
        let entry = journal.entry("a").cloned().expect("its first line is whole");
        assert_eq!(journal.read(&entry).map(|record| record.width).ok(), Some(5));
        assert_eq!(std::fs::metadata(&path).map(|meta| meta.len()).ok(), Some(second as u64));
    }

    #[test]
    fn other_settings_are_refused_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let begun = json!({"confidence": 0.3, "classes": [{"name": "dog"}], "model": {"imgsz": 448}});
        drop(Journal::open(&path, &begun).expect("a new journal"));
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
            assert!(error.contains(words) && error.contains("--restart"), "{words}: {error}");
        }
        std::fs::write(&path, "hello\n").expect("it can be written");
        let error = Journal::open(&path, &begun).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("damaged journal"), "{error}");
    }
}
