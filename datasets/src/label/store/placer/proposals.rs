//! The instances of classes that were added after a person corrected a label file: lines for the person to append.

use std::path::PathBuf;

use ocelli::Result;

use super::Placer;
use crate::label::store::layout::{HANDLED, PROPOSALS};
use crate::label::store::{Meaning, Owner};
use crate::label::{Format, Record, disk};

impl Placer {
    /// Classes that were added since a file was written are not in it if it was corrected: they are in another file, for the
    /// person to add.
    pub(crate) fn propose(
        &mut self,
        record: &Record,
        file: &str,
        format: Format,
        is_corrected: bool,
    ) -> Result<()> {
        let proposal = format!("{PROPOSALS}{file}");
        let path = self.state.root.join(&proposal);
        let removed = self.state.recorded_meaning(&proposal);
        let removed =
            removed.filter(|_| self.state.is_recorded(&proposal) && path.symlink_metadata().is_err());
        let handled = format!("{HANDLED}{file}");
        if let Some(meaning) = removed {
            // The person removed it: its classes are dealt with.
            self.state.note(&handled, None, meaning);
            self.state.note(&proposal, None, meaning);
        }
        let added = self.unseen(file).filter(|_| is_corrected).map(|first| record.since_class(first));
        let added = added.filter(|added| !added.instances.is_empty());
        match added {
            Some(added) => {
                self.create_folder_of(&path)?;
                let (text, meaning) = (self.label_text(&added, format), self.meaning(Some(format)));
                self.state.place_bytes(&proposal, meaning, text.as_bytes())?;
            }
            None if self.state.is_recorded(&proposal) => {
                self.state.remove(&proposal)?;
            }
            None => {}
        }
        Ok(())
    }

    /// The first of the classes that a person who corrected a file has seen neither in it nor in what was proposed for it.
    /// Of a folder of masks, the person has seen what all of them were written with.
    pub(super) fn unseen(&self, file: &str) -> Option<usize> {
        if file.ends_with('/') {
            return self.state.masks_in(file).iter().filter_map(|file| self.unseen(file)).min();
        }
        let handled = format!("{HANDLED}{file}");
        let is_handled = |meaning: Meaning| meaning.classes == self.classes.all;
        let is_done = self.state.recorded_meaning(&handled).is_some_and(is_handled);
        let known = self.state.earlier_classes(file, &self.classes).filter(|_| !is_done)?;
        Some(self.state.earlier_classes(&handled, &self.classes).unwrap_or(known))
    }

    /// The file of lines that are proposed for a label file, if classes were added since that was written.
    pub fn proposal_for(&self, file: &str) -> Option<PathBuf> {
        let is_earlier = self.state.earlier_classes(file, &self.classes).is_some();
        is_earlier.then(|| self.state.root.join(format!("{PROPOSALS}{file}")))
    }

    /// The files with instances of added classes that corrected label files do not have. Empty folders are removed.
    pub fn proposals(&self) -> Result<Vec<String>> {
        disk::remove_empty_folders(&self.state.root.join(PROPOSALS));
        let is_proposal = |file: &str| file.starts_with(PROPOSALS) && self.state.is_recorded(file);
        self.state.existing_of(Owner::Ours, is_proposal)
    }
}
