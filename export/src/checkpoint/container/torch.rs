//! The archives of `torch.save`: tensors by the dictionaries that hold them.

use std::collections::{BTreeMap, HashMap};

use super::pickle::{Id, Pickle, Value};
use super::{Attribute, Format, Groups, View, zip};

/// Dictionaries inside dictionaries are followed this far.
const MAX_DEPTH: usize = 5;
/// The most values that are looked at: a hostile file may hold the same dictionary a million times.
const MAX_VISITED: usize = 1 << 21;
/// The longest key, and the longest text that is kept, in bytes.
const MAX_TEXT: usize = 1024;

/// Reads the directory and the pickle; tensors stay where they are.
pub(super) fn read(bytes: &[u8]) -> Result<(Groups, Vec<(String, Attribute)>), String> {
    let entries = zip::entries(bytes)?;
    // The root folder has the file's name at the time of saving.
    let pickle =
        entries.keys().filter(|name| name.split('/').count() == 2 && name.ends_with("/data.pkl")).min();
    let Some(name) = pickle else {
        return Err("it is a zip archive without data.pkl; expected a file written by torch.save".into());
    };
    let root = name.trim_end_matches("data.pkl");
    if entries.contains_key(&format!("{root}constants.pkl")) {
        return Err("it is a TorchScript archive; expected a state dictionary, written by torch.save".into());
    }
    if let Some(Some((start, end))) = entries.get(&format!("{root}byteorder"))
        && &bytes[*start..*end] != b"little"
    {
        return Err("its numbers are big-endian; save it again on an x86 or ARM computer".into());
    }
    let (start, end) = zip::stored(entries[name], name)?;
    let pickle = Pickle::read(&bytes[start..end])?;
    let mut reader = Reader { pickle: &pickle, entries: &entries, root, groups: BTreeMap::new(), visited: 0 };
    match pickle.value(pickle.root) {
        Value::Map(_) => reader.collect(pickle.root, "", 0)?,
        Value::Opaque(class) | Value::Call(class, _) => {
            return Err(format!(
                "it holds an object of the class {class}, not tensors by name; save its state_dict() instead"
            ));
        }
        _ => return Err("it holds no dictionary of tensors; expected a state dictionary".into()),
    }
    let attributes = reader.attributes()?;
    Ok((reader.groups, attributes))
}

struct Reader<'p> {
    pickle: &'p Pickle,
    entries: &'p HashMap<String, zip::Entry>,
    /// The folder inside the archive, with its slash.
    root: &'p str,
    groups: Groups,
    visited: usize,
}

impl Reader<'_> {
    /// Collects the tensors of a dictionary and of those inside it.
    fn collect(&mut self, map: Id, path: &str, depth: usize) -> Result<(), String> {
        let Value::Map(items) = self.pickle.value(map) else { return Ok(()) };
        for (key, value) in items {
            self.visit()?;
            let key = match self.pickle.value(*key) {
                Value::Text(text) if text.len() <= MAX_TEXT => text.clone(),
                Value::Integer(number) => number.to_string(),
                _ => continue,
            };
            match self.pickle.value(*value) {
                Value::Map(_) if depth < MAX_DEPTH => {
                    let path = if path.is_empty() { key } else { format!("{path}/{key}") };
                    self.collect(*value, &path, depth + 1)?;
                }
                Value::Call(..) => {
                    let view = self.tensor(*value, 0).map_err(|why| format!("tensor {key}: {why}"))?;
                    if let Some(view) = view {
                        self.groups.entry(path.to_owned()).or_default().push((key, view));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn visit(&mut self) -> Result<(), String> {
        self.visited += 1;
        if self.visited > MAX_VISITED { Err(format!("more than {MAX_VISITED} entries")) } else { Ok(()) }
    }

    /// The tensor that a call builds; none for calls of something else.
    fn tensor(&self, call: Id, depth: usize) -> Result<Option<View>, String> {
        let Value::Call(name, arguments) = self.pickle.value(call) else { return Ok(None) };
        let arguments = self.pickle.list(*arguments).unwrap_or_default();
        match (name.as_str(), arguments) {
            (
                "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor",
                [storage, offset, size, stride, ..],
            ) => {
                let wrong = || "its size, stride or offset is no whole number".to_owned();
                let offset = self.pickle.integer(*offset).and_then(|n| usize::try_from(n).ok());
                let shape = self.pickle.sizes(*size).ok_or_else(wrong)?;
                let strides = self.pickle.sizes(*stride).ok_or_else(wrong)?;
                let (format, range) = self.storage(*storage)?;
                View::new(format, shape, strides, offset.ok_or_else(wrong)?, range).map(Some)
            }
            (
                "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
                [inner, ..],
            ) if depth < MAX_DEPTH => self.tensor(*inner, depth + 1),
            (name, _) if name.contains("rebuild_tensor") || name.contains("rebuild_parameter") => {
                Err(format!("its record, {name}, is damaged"))
            }
            _ => Ok(None),
        }
    }

    /// The format and the bytes of a storage: `("storage", class, key, device, count)`.
    fn storage(&self, id: Id) -> Result<(Format, (usize, usize)), String> {
        let Value::Persistent(tuple) = self.pickle.value(id) else { return Err("it has no storage".into()) };
        let Some([_, class, key, _, count]) =
            self.pickle.list(*tuple).and_then(|items| items.first_chunk::<5>())
        else {
            return Err("its storage is damaged".into());
        };
        let Value::Global(class) = self.pickle.value(*class) else {
            return Err("its storage has no type".into());
        };
        let format = Format::of_storage(class);
        let key = match self.pickle.value(*key) {
            Value::Text(text) if text.len() <= MAX_TEXT => text.clone(),
            Value::Integer(number) => number.to_string(),
            _ => return Err("its storage has no key".into()),
        };
        let name = format!("{}data/{key}", self.root);
        let entry = self.entries.get(&name);
        let entry =
            entry.ok_or_else(|| format!("its storage, {name}, is missing; the file may be incomplete"))?;
        let range = zip::stored(*entry, &name)?;
        let count = self.pickle.integer(*count).and_then(|n| usize::try_from(n).ok());
        let stated = count.and_then(|count| count.checked_mul(format.bits() / 8));
        if stated.is_none_or(|bytes| bytes > range.1 - range.0) {
            return Err(format!(
                "its storage, data/{key}, is shorter than stated; the file may be incomplete"
            ));
        }
        Ok((format, range))
    }

    /// The values at the root that are not tensors.
    fn attributes(&mut self) -> Result<Vec<(String, Attribute)>, String> {
        let Value::Map(items) = self.pickle.value(self.pickle.root) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (key, value) in items {
            let key = self.pickle.text(*key).filter(|key| key.len() <= MAX_TEXT);
            let holds_tensors =
                |key: &str| self.groups.keys().any(|group| group.split('/').next() == Some(key));
            if let Some(key) = key
                && !holds_tensors(key)
                && !matches!(self.pickle.value(*value), Value::Call(..))
            {
                found.push((key.to_owned(), self.attribute(*value, 0)?));
            }
        }
        Ok(found)
    }

    fn attribute(&mut self, id: Id, depth: usize) -> Result<Attribute, String> {
        self.visit()?;
        Ok(match self.pickle.value(id) {
            Value::Integer(number) => Attribute::Integer(*number),
            Value::Bool(flag) => Attribute::Integer((*flag).into()),
            Value::Text(text) if text.len() <= MAX_TEXT => Attribute::Text(text.clone()),
            Value::List(items) if depth < MAX_DEPTH => Attribute::List(
                items.iter().map(|id| self.attribute(*id, depth + 1)).collect::<Result<_, _>>()?,
            ),
            Value::Map(items) if depth < MAX_DEPTH => {
                let mut map = Vec::new();
                for (key, value) in items {
                    if let Some(key) = self.pickle.text(*key).filter(|key| key.len() <= MAX_TEXT) {
                        map.push((key.to_owned(), self.attribute(*value, depth + 1)?));
                    }
                }
                Attribute::Map(map)
            }
            _ => Attribute::Other,
        })
    }
}
