//! Repairs after a stop.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use ocelli::{Error, Result};

use super::{PART, aside_path, part_path};
use crate::label::disk;
use crate::label::hash::hash_on_disk;
use crate::label::store::state::{Event, FileEntry, State};

impl State {
    /// Finishes the renames that a stop prevented, gives files that are not removed on record their names again, and removes
    /// other temporary files, those of `folders` and below.
    pub fn recover(&mut self, folders: &[&str]) -> Result<()> {
        let (mut parts, mut links) = (Vec::new(), HashSet::new());
        for folder in folders {
            find_parts(&self.root.join(folder), (!folder.is_empty()).then_some(&mut links), &mut parts)
                .map_err(|e| Error::io("cannot read the folder", &self.root.join(folder), e))?;
        }
        if parts.is_empty() {
            return Ok(());
        }
        let by = |name: fn(&Path) -> PathBuf| -> HashMap<PathBuf, &FileEntry> {
            self.files.values().map(|entry| (name(&self.root.join(&entry.file)), entry)).collect()
        };
        let (by_part, by_aside) = (by(part_path), by(aside_path));
        let (mut targets, mut undone) = (Vec::new(), Vec::new());
        for part in parts {
            let (entry, is_aside) = match by_aside.get(&part) {
                Some(entry) => (Some(entry), true),
                None => (by_part.get(&part), false),
            };
            let mut target = None;
            if let Some(entry) = entry.filter(|entry| entry.hash.is_some())
                && hash_on_disk(&part)? == entry.hash
            {
                let path = self.root.join(&entry.file);
                let before = if is_aside { &None } else { &entry.before };
                // A file that is not what was seen before the stop has been changed since.
                let there = hash_on_disk(&path)?;
                // As long as there is a copy of what was there, it is not replaced yet: without one, the same was written again.
                let is_kept =
                    before.as_ref().is_some_and(|before| self.copy_path(&entry.file, before).exists());
                if there != *before && there != entry.hash && is_kept {
                    undone.push(entry.undone());
                    if self.log.file.is_none() {
                        // The part shows it to those who write.
                        continue;
                    }
                }
                target = (there == *before).then_some(path);
            }
            targets.push((part, target));
        }
        if !undone.is_empty() {
            self.append(Event::Files(undone))?;
        }
        for (part, target) in targets {
            match target {
                Some(target) => disk::rename(&part, &target)?,
                None => disk::remove(&part)?,
            }
            disk::sync(part.parent().unwrap_or(Path::new("")))?;
        }
        Ok(())
    }
}

/// Finds the temporary files in a folder, and with `links` in the folders below it, also those that are links: each of these
/// once. A link whose name has a dot is taken for one to an image.
fn find_parts(
    folder: &Path,
    mut links: Option<&mut HashSet<PathBuf>>,
    found: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let Some(entries) = disk::if_there(std::fs::read_dir(folder))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        let is_link = kind.is_symlink() && !name.contains('.') && entry.path().is_dir();
        if kind.is_dir() || is_link {
            if let Some(links) = &mut links
                && (!is_link || links.insert(entry.path().canonicalize()?))
            {
                find_parts(&entry.path(), Some(links), found)?;
            }
        } else if name.starts_with(PART.0) && name.ends_with(PART.1) {
            found.push(entry.path());
        }
    }
    Ok(())
}
