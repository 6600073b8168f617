//! The journal: a log with a line for each image that is done.
//!
//! The first line has the settings that determine the labels. The last line of an image replaces earlier ones, but an image
//! that cannot be read any more keeps its last instances.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::label::record::check_name;
use crate::label::store::{Kind, Log, Span};
use crate::label::{ImageSet, Record, disk};
use ocelli::classes::{Class, ClassMap};
use ocelli::{Error, Result};

/// The version of the journal format.
const FORMAT: u32 = 1;

const KIND: Kind = Kind { name: "journal", remedy: "restart the data set", parameter: "restart" };

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    ocelli_label: u32,
    settings: Value,
    /// Classes were added since it was started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    grown: bool,
}

/// The position of an image's line, and what shows whether it is still valid.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    line: Span,
    /// [`Record::identity`].
    pub identity: (u64, u64),
    /// A hash of the path of the image file: the paths themselves would take ten times the memory.
    pub source: u64,
    /// [`Record::classes`].
    pub classes: Option<u32>,
    /// [`Record::validation`].
    pub validation: Option<bool>,
    /// The index of the frame of a video that it is.
    pub frame: Option<u64>,
    /// It could not be labelled.
    pub failed: bool,
    /// The identity of its last line with instances.
    pub described: Option<(u64, u64)>,
    /// The content of that image, if it is on record.
    pub content: Option<String>,
    /// The identities of the lines before.
    pub earlier: Vec<(u64, u64)>,
    /// For an image that could not be labelled: its last line with instances.
    labelled: Option<Span>,
}

impl Entry {
    /// `true` if it has instances, of now or of an earlier run.
    pub fn is_labelled(&self) -> bool {
        self.labelled_at().is_some()
    }

    /// The position of its last line with instances.
    fn labelled_at(&self) -> Option<Span> {
        if self.failed { self.labelled } else { Some(self.line) }
    }
}

/// An open journal.
pub(crate) struct Journal {
    pub log: Log,
    /// The images and their last lines, by name.
    pub entries: BTreeMap<String, Entry>,
}

impl Journal {
    /// Opens the journal with these settings, or starts it. Settings with more classes are taken: the records say which
    /// classes were looked for.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if it has other settings; the message names the first difference.
    pub fn open(path: &Path, settings: &Value) -> Result<Self> {
        if let Some(header) = first_line(path)
            && let Some(known) = known_classes(&header.settings, settings)
        {
            grow(path, settings, known)?;
        }
        let file = disk::open(path).map_err(|e| Error::io("cannot open the journal", path, e))?;
        let mut journal = Self { log: Log::new(path, &KIND, Some(file)), entries: BTreeMap::new() };
        if journal.read_lines(Some(settings))?.is_none() {
            let header = Header { ocelli_label: FORMAT, settings: settings.clone(), grown: false };
            journal.write_line(&header)?;
            disk::sync(path.parent().unwrap_or(Path::new("")))?;
        }
        Ok(journal)
    }

    /// Refuses settings that [`open`](Self::open) refuses, and changes nothing. Returns whether it would add classes.
    pub fn check(path: &Path, settings: &Value) -> Result<bool> {
        let Some(Header { settings: there, .. }) = first_line(path) else { return Ok(false) };
        let grows = known_classes(&there, settings).is_some();
        let journal = Self { log: Log::new(path, &KIND, None), entries: BTreeMap::new() };
        if grows { Ok(true) } else { journal.check_settings(&there, settings).map(|()| false) }
    }

    /// Replaces the journal by one that has the last instances of these images of the former one alone, each with the number
    /// of classes that were looked for.
    pub fn restart(
        path: &Path,
        settings: &Value,
        former: Option<&Self>,
        kept: &[(Entry, Option<u32>)],
    ) -> Result<Self> {
        let header = Header { ocelli_label: FORMAT, settings: settings.clone(), grown: false };
        let records = former.into_iter().flat_map(|former| {
            kept.iter().filter_map(|(entry, classes)| {
                let record = former.read_labelled(entry).transpose()?;
                Some(record.map(|record| Record { classes: *classes, ..record }))
            })
        });
        Log::replace(path, &header, records)?;
        Self::open(path, settings)
    }

    /// The lines that count.
    fn lines(&self) -> impl Iterator<Item = Span> {
        self.entries.values().flat_map(|entry| entry.labelled.into_iter().chain([entry.line]))
    }

    /// `true` if most lines count no more.
    pub fn is_mostly_superseded(&self) -> bool {
        self.log.is_mostly_superseded(self.lines().map(|line| u64::from(line.bytes)).sum())
    }

    /// Leaves out the lines that count no more, if there is room; the state has to have what they say of earlier images.
    pub fn compact(&mut self) -> Result<()> {
        let Some(header) = self.log.header::<Header>()? else { return Ok(()) };
        let records = self.lines().map(|line| self.log.read_at::<Record>(line));
        Log::may_stay_long(Log::replace(&self.log.path, &header, records))?;
        *self = Self::open(&self.log.path.clone(), &header.settings)?;
        Ok(())
    }

    /// Opens an existing journal for reading. Returns its settings, too.
    pub fn open_existing(path: &Path) -> Result<(Self, Value)> {
        let mut journal = Self { log: Log::open_to_read(path, &KIND)?, entries: BTreeMap::new() };
        match journal.read_lines(None)? {
            Some(settings) => Ok((journal, settings)),
            None => Err(journal.log.corrupt("it has no first line")),
        }
    }

    /// Reads up to the last complete line. Returns the settings; `None` if the file has no first line yet.
    fn read_lines(&mut self, expected: Option<&Value>) -> Result<Option<Value>> {
        let Some(header) = self.log.header::<Header>()? else { return Ok(None) };
        if header.ocelli_label != FORMAT {
            let why = format!("its format is {}, expected {FORMAT}", header.ocelli_label);
            return Err(self.log.corrupt(&why));
        }
        if let Some(expected) = expected {
            self.check_settings(&header.settings, expected)?;
        }
        let (classes, entries) = (class_count(&header.settings), &mut self.entries);
        self.log.read(|record: Record, line| {
            check(&record, classes)?;
            remember(entries, &record, line);
            Ok(())
        })?;
        Ok(Some(header.settings))
    }

    /// Refuses settings other than those that the journal was started with.
    fn check_settings(&self, started: &Value, expected: &Value) -> Result<()> {
        let Some((key, there, here)) = difference("", started, expected) else { return Ok(()) };
        // The formats decide whether masks are searched for.
        let started = match (key.as_str(), there.as_str()) {
            ("masks", "false") => "with boxes alone, and a format that is asked for now has masks".into(),
            ("masks", _) => "with masks, and the formats that are asked for now have boxes alone".into(),
            ("tracker", "unset") => "with images, this has videos".into(),
            ("tracker", _) if here == "unset" => "with videos, this has images".into(),
            _ => format!("with {key} {there}, this is {here}"),
        };
        let message = format!(
            "cannot continue, {}: it was started {started}; use the same settings, choose another output folder, or restart",
            self.log.path.display()
        );
        Err(Error::mismatch(message).about("restart"))
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<Span> {
        self.log.append(line).map_err(|e| Error::io("cannot write the journal", &self.log.path, e))
    }

    /// Appends the record of an image and syncs it to disk.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let line = self.write_line(record)?;
        remember(&mut self.entries, record, line);
        Ok(())
    }

    /// `true` if there are instances of an image, of now or of an earlier run.
    pub fn is_labelled(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Entry::is_labelled)
    }

    /// The names of the images whose split is on record, and whether it is for validation.
    pub fn splits(&self) -> impl Iterator<Item = (&str, bool)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name.as_str(), entry.validation?)))
    }

    /// The last records with instances of those images of a set that are frames of videos.
    pub fn frames<'a>(&'a self, set: &'a ImageSet) -> impl Iterator<Item = Result<Record>> + 'a {
        let entries = set.files().iter().filter_map(|file| self.entries.get(&file.name));
        let frames = entries.filter(|entry| entry.frame.is_some());
        frames.filter_map(|entry| self.read_labelled(entry).transpose())
    }

    /// The last record of an image that has instances.
    pub fn labelled(&self, name: &str) -> Result<Option<Record>> {
        self.entries.get(name).map_or(Ok(None), |entry| self.read_labelled(entry))
    }

    /// Reads the record of an entry.
    pub fn read(&self, entry: &Entry) -> Result<Record> {
        self.log.read_at(entry.line)
    }

    /// Reads the last record of an image that has instances: for an image that cannot be read any more, an earlier one.
    pub fn read_labelled(&self, entry: &Entry) -> Result<Option<Record>> {
        entry.labelled_at().map(|line| self.log.read_at(line)).transpose()
    }
}

/// Notes the line of a record, the last one of its image.
fn remember(entries: &mut BTreeMap<String, Entry>, record: &Record, line: Span) {
    let before = entries.remove(&record.name);
    let before =
        before.map(|before| (before.labelled_at(), before.described, before.content, before.earlier));
    let (labelled, mut described, mut content, mut earlier) = before.unwrap_or_default();
    if record.error.is_none() {
        earlier.extend(described.filter(|described| *described != record.identity));
        (described, content) = (Some(record.identity), record.content.clone());
    }
    let entry = Entry {
        line,
        identity: record.identity,
        source: source_hash(&record.source),
        classes: record.classes,
        validation: record.validation,
        frame: record.frame.as_ref().map(|frame| frame.index),
        failed: record.error.is_some(),
        described,
        content,
        earlier,
        labelled: labelled.filter(|_| record.error.is_some()),
    };
    entries.insert(record.name.clone(), entry);
}

/// `true` if classes are added to a journal that is there, or were added before.
pub(crate) fn is_growing(path: &Path, classes: usize) -> bool {
    first_line(path).is_some_and(|header| header.grown || class_count(&header.settings) != Some(classes))
}

/// The classes of a journal, if it can be read.
pub(crate) fn classes_at(path: &Path) -> Option<ClassMap> {
    classes_of(&first_line(path)?.settings)
}

/// The first line of a journal, if it can be read.
fn first_line(path: &Path) -> Option<Header> {
    let header = Log::open_to_read(path, &KIND).ok()?.header::<Header>().ok()?;
    header.filter(|header| header.ocelli_label == FORMAT)
}

/// If settings differ in nothing but added classes: the number of classes whose instances stay as they are. That is 0 if the
/// added ones can suppress instances of the others.
fn known_classes(there: &Value, here: &Value) -> Option<u32> {
    let list = |settings: &Value, key: &str| settings.get(key).and_then(Value::as_array).cloned();
    let (before, now) = (list(there, "classes")?, list(here, "classes")?);
    if before.len() >= now.len() || before != now[..before.len()] {
        return None;
    }
    let without = |settings: &Value| {
        let mut settings = settings.clone();
        settings.as_object_mut().map(|keys| ["classes", "merge"].map(|key| keys.remove(key)));
        settings
    };
    if difference("", &without(there), &without(here)).is_some() {
        return None;
    }
    let is_separate =
        there.get("merge") == here.get("merge") && here.get("class-agnostic-nms").is_none_or(Value::is_null);
    Some(if is_separate { before.len() as u32 } else { 0 })
}

/// Replaces the settings of a journal by those with more classes, and notes in each line how many were looked for.
fn grow(path: &Path, settings: &Value, known: u32) -> Result<()> {
    let mut log = Log::open_to_read(path, &KIND)?;
    let mut lines = Vec::new();
    log.read(|_: IgnoredAny, line| {
        lines.push(line);
        Ok(())
    })?;
    let header = Header { ocelli_label: FORMAT, settings: settings.clone(), grown: true };
    let records = lines.into_iter().map(|line| {
        let record: Record = log.read_at(line)?;
        Ok(Record { classes: Some(record.classes.unwrap_or(known).min(known)), ..record })
    });
    Log::replace(path, &header, records)
}

fn class_count(settings: &Value) -> Option<usize> {
    settings.get("classes").and_then(Value::as_array).map(Vec::len)
}

/// Checks a record that was read: its name becomes a path, and its class ids become indices.
fn check(record: &Record, classes: Option<usize>) -> Result<(), String> {
    check_name(&record.name)?;
    if record.error.is_none() && (record.width == 0 || record.height == 0) {
        return Err(format!("{}: its size is {} × {}", record.name, record.width, record.height));
    }
    for instance in &record.instances {
        if let Some(classes) = classes.filter(|classes| instance.class >= *classes) {
            return Err(format!("{}: class {}, but there are {classes}", record.name, instance.class));
        }
        if !instance.bbox.iter().chain([&instance.score]).all(|number| number.is_finite()) {
            return Err(format!("{}: expected finite numbers", record.name));
        }
    }
    Ok(())
}

/// A hash of a path.
pub(crate) fn source_hash(path: &Path) -> u64 {
    crate::label::images::hash_of(&path.to_string_lossy(), 0)
}

/// The first key in which two settings differ, and both values.
pub(crate) fn difference(path: &str, there: &Value, here: &Value) -> Option<(String, String, String)> {
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

/// The names of the classes in the first line of a journal.
pub(crate) fn classes_of(settings: &Value) -> Option<ClassMap> {
    let class = |class: &Value| Some(Class { name: class.get("name")?.as_str()?.into(), ..Class::default() });
    let classes: Option<Vec<Class>> = settings.get("classes")?.as_array()?.iter().map(class).collect();
    Some(ClassMap { classes: classes?, merge: Vec::new() })
}

#[cfg(test)]
mod tests;
