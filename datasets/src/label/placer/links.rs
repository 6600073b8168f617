//! Links from the data set to images.

use std::io;
use std::path::{Path, PathBuf};

use super::Placer;
use crate::label::folder::STATE_FOLDER;
use crate::label::settings::Format;
use crate::label::stop::before_hard_link;

impl Placer {
    /// Whether links to an image are to be hard links: with COCO's format, whose loaders refuse links that leave the data set,
    /// and to frames of videos, which are in the data set's state.
    pub(super) fn is_linked_hard(&self, source: &Path) -> bool {
        let state = std::path::absolute(&self.root).map(|root| root.join(STATE_FOLDER));
        self.options.has(Format::Coco) || state.is_ok_and(|state: PathBuf| source.starts_with(state))
    }

    /// Makes a hard link. If the file system refuses, links are symbolic from now on.
    pub(super) fn hard_link(&mut self, source: &Path, part: &Path) -> bool {
        let made = source.canonicalize().and_then(|source| {
            before_hard_link()?;
            std::fs::hard_link(source, part)
        });
        if let Err(e) = &made
            && e.kind() != io::ErrorKind::NotFound
        {
            self.links_are_symbolic = true;
            tracing::warn!(
                "{}: hard links to the images are not possible ({e}), so links are symbolic, which supervision's COCO loader \
                 refuses; copy the images for it",
                self.root.display()
            );
        }
        made.is_ok()
    }
}

#[cfg(unix)]
pub(super) fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(source, path)
}

#[cfg(windows)]
pub(super) fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(source, path)
}
