//! The entries of folders and of lists.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ocelli::{Error, Result};

/// The entries of a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("cannot read the folder", folder, e);
    let list = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        list.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// The first id that comes twice.
pub(super) fn repeated(ids: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut seen = HashSet::new();
    ids.into_iter().find(|id| !seen.insert(*id))
}
