//! Reads files of a data set, for the tests that feed it corrupt ones.

use std::path::Path;

use ocelli::Result;

use super::{Journal, Log, State, state};

/// Reads a journal and all of its records.
///
/// # Errors
/// If it is corrupt.
pub fn check_journal(path: &Path) -> Result<()> {
    let (journal, _) = Journal::open_existing(path)?;
    for entry in journal.entries.values() {
        let record = journal.read(entry)?;
        record.instances.iter().for_each(|instance| drop(record.mask(instance)));
        drop(journal.read_labelled(entry)?);
    }
    Ok(())
}

/// Reads a log.
///
/// # Errors
/// If it is corrupt.
pub fn check_state(path: &Path) -> Result<()> {
    State::new(Path::new("."), None).read(Log::open_to_read(path, &state::KIND)?)
}
