//! Links from the data set to images.

use std::io;
use std::path::{Path, PathBuf};

use super::Placer;
use crate::label::store::STATE_FOLDER;
use crate::label::{Format, disk};

impl Placer {
    /// `true` if links to an image are to be hard links: with COCO's format, whose loaders refuse links that leave the data set,
    /// and to frames of videos, which are in the data set's state.
    pub(crate) fn is_linked_hard(&self, source: &Path) -> bool {
        let state = std::path::absolute(&self.state.root).map(|root| root.join(STATE_FOLDER));
        self.options.has(Format::Coco) || state.is_ok_and(|state: PathBuf| source.starts_with(state))
    }

    /// Makes a hard link. If the file system refuses, links are symbolic from now on.
    pub(crate) fn hard_link(&mut self, source: &Path, part: &Path) -> bool {
        let made = source.canonicalize().and_then(|source| disk::link_hard(&source, part));
        if let Err(e) = &made
            && e.kind() != io::ErrorKind::NotFound
        {
            self.links_are_symbolic = true;
            tracing::warn!(
                "{}: hard links to the images are not possible ({e}), so links are symbolic, which supervision's COCO loader \
                 refuses; copy the images for it",
                self.state.root.display()
            );
        }
        made.is_ok()
    }
}
