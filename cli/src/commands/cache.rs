//! `ocelli cache`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Args;
use ocelli::cache::{cache_folder, export_limit, remove_export, visit_files};
use ocelli::export::contract::Manifest;
use ocelli_datasets::table::{columns, row};

use crate::print;

const REMOVAL: &str = "Removal";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Folders of the cache whose subfolders are entries; every other folder is one.
const GROUPS: [&str; 2] = ["models", "engines"];

/// Arguments of `ocelli cache`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/cache.txt"))]
pub struct CacheArgs {
    /// Remove these entries of the list, or `all`; a run that needs one makes it again
    #[arg(long, num_args = 1.., value_name = "ENTRY", conflicts_with = "remove_unused", help_heading = REMOVAL)]
    remove: Vec<String>,
    /// Remove the entries that nothing has read for this many days
    #[arg(long, value_name = "DAYS", help_heading = REMOVAL)]
    remove_unused: Option<u32>,
}

/// Lists what the cache keeps, or removes some of it.
pub fn run(args: &CacheArgs) -> anyhow::Result<()> {
    let folder = cache_folder()?;
    let entries = Entry::all(&folder);
    let unknown = |name: &&String| *name != "all" && entries.iter().all(|entry| entry.name != **name);
    if let Some(name) = args.remove.iter().find(unknown) {
        refuse!("--remove, {name}: no such entry; `ocelli cache` lists them");
    }
    let oldest = args.remove_unused.map(|days| DAY * days);
    let is_removed = |entry: &&Entry| {
        args.remove.iter().any(|name| *name == "all" || *name == entry.name)
            || oldest.is_some_and(|oldest| entry.unread >= oldest)
    };
    if oldest.is_none() && args.remove.is_empty() {
        return list(&folder, &entries);
    }
    let (mut count, mut bytes, mut refused) = (0, 0, Ok(()));
    for entry in entries.iter().filter(is_removed) {
        match entry.remove() {
            Ok(()) => (count, bytes) = (count + 1, bytes + entry.bytes),
            Err(why) => refused = refused.and(Err(why)),
        }
    }
    let entries = if count == 1 { "entry" } else { "entries" };
    print(|out| writeln!(out, "{count} {entries} removed, {}", megabytes(bytes)))?;
    refused
}

fn list(folder: &Path, entries: &[Entry]) -> anyhow::Result<()> {
    let mut rows = vec![row("entry", ["size", "last read", "content"])];
    for entry in entries {
        let read = match entry.unread.as_secs() / DAY.as_secs() {
            0 => "today".to_owned(),
            1 => "1 day ago".to_owned(),
            days => format!("{days} days ago"),
        };
        rows.push(row(&entry.name, [megabytes(entry.bytes), read, entry.content()]));
    }
    let (all, limit) = (entries.iter().map(|entry| entry.bytes).sum(), export_limit()?);
    print(|out| {
        if !entries.is_empty() {
            writeln!(out, "{}", columns(&rows, 1))?;
        }
        let limit = limit.map_or_else(String::new, |limit| {
            format!("; exported models may take {} GB (OCELLI_CACHE_LIMIT)", limit as f64 / 1e9)
        });
        writeln!(out, "{}, {}{limit}", folder.display(), megabytes(all))
    })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A part of the cache that can be removed by itself.
struct Entry {
    /// `models/sam3-…`, `text`.
    name: String,
    path: PathBuf,
    bytes: u64,
    /// The time since one of its files was read, as far as the file system notes it: often to the day.
    unread: Duration,
}

impl Entry {
    /// The entries of a cache folder, sorted by name.
    fn all(cache: &Path) -> Vec<Self> {
        let mut names: Vec<String> =
            folders_in(cache).filter(|name| !GROUPS.contains(&name.as_str())).collect();
        for group in GROUPS {
            names.extend(folders_in(&cache.join(group)).map(|name| format!("{group}/{name}")));
        }
        names.sort();
        let of = |name: String| {
            let path = cache.join(&name);
            let (mut bytes, mut read) = (0, SystemTime::UNIX_EPOCH);
            visit_files(&path, &mut |meta| {
                bytes += meta.len();
                read =
                    read.max(meta.accessed().or_else(|_| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH));
            });
            Self { name, path, bytes, unread: read.elapsed().unwrap_or_default() }
        };
        names.into_iter().map(of).collect()
    }

    fn content(&self) -> String {
        let group = self.name.split('/').next().unwrap_or_default();
        match (group, Manifest::read(&self.path)) {
            ("models", Ok(model)) => {
                let half = if model.detection_only { "boxes" } else { "boxes and masks" };
                let tracker = if model.has_tracker() { ", memory tracker" } else { "" };
                let target = format!("{:?}", model.target).to_lowercase();
                format!("{} px, {target}, {}, {half}{tracker}", model.imgsz, model.precision)
            }
            ("models", Err(_)) => "an unfinished export".to_owned(),
            ("engines", _) => "compiled graphs".to_owned(),
            ("text", _) => "encoded phrases".to_owned(),
            _ => "results of checks".to_owned(),
        }
    }

    fn remove(&self) -> anyhow::Result<()> {
        if self.name.starts_with("models/") {
            return Ok(remove_export(&self.path)?);
        }
        std::fs::remove_dir_all(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// The names of the folders in a folder; none if it cannot be read.
fn folders_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok())
}
