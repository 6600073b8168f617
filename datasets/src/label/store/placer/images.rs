//! Labels have to describe the image in the data set: the one at the source, an earlier one that stays, or one that a person
//! edited.

use std::io;
use std::path::{Path, PathBuf};

use ocelli::Result;

use super::{Placer, copy};
use crate::label::source::{is_member, is_same};
use crate::label::store::layout::{VOC_IMAGES, image_path, is_converted, voc_image};
use crate::label::store::{Entry, STATE_FOLDER, part_path};
use crate::label::{Format, Record, disk, identity};

impl Placer {
    /// The files of an image in the data set, whether they are there or not.
    pub(super) fn image_files(&self, name: &str, validation: bool) -> Vec<String> {
        let path = image_path(name, validation);
        let in_folders = self.image_folders().into_iter().map(|folder| format!("{folder}images/{path}"));
        in_folders.chain(self.options.has(Format::Voc).then(|| voc_image(name))).collect()
    }

    /// The copies and hard links of an image in the data set.
    fn images(&self, name: &str) -> Vec<PathBuf> {
        let is_copy =
            |path: &PathBuf| path.symlink_metadata().is_ok_and(|there| there.is_file() && there.len() > 0);
        let files = self.image_files(name, self.is_validation(name)).into_iter();
        files.map(|file| self.state.root.join(file)).filter(is_copy).collect()
    }

    /// Those that do not have the image of this size and time, and not that of the source with another time, either: a data
    /// set that was restored may have lost the times of its files, and a tar file that was written again changes those of all
    /// its members.
    fn other_images(&self, name: &str, image: (u64, u64)) -> Vec<PathBuf> {
        let source = self.state.images.get(name).map(|known| Path::new(&known.source));
        let source = source.filter(|source| identity(source) == image);
        let is_other = |path: &PathBuf| {
            !has_image(path, name, image) && !source.is_some_and(|source| is_same(source, path))
        };
        self.images(name).into_iter().filter(is_other).collect()
    }

    /// `true` if the image in the data set stays although it is not the one at the source, which has this size and time now:
    /// because a person edited the file, or corrected labels that describe it. Then nothing about the image changes.
    pub fn is_frozen(&mut self, name: &str, entry: &Entry, now: (u64, u64)) -> Result<bool> {
        if entry.described.is_none() || now == (0, 0) {
            return Ok(false);
        }
        self.settle(name)?;
        let others = self.other_images(name, now);
        if others.is_empty() {
            return Ok(false);
        }
        // A copy of an earlier image, which a run that was stopped could not replace, is replaced by the next one.
        let is_replaced = entry.described == Some(now) && self.is_replaced_in_part(name, now);
        Ok(others.iter().any(|path| !self.is_ours(path, name, entry))
            || (!is_replaced && self.is_corrected(name)?))
    }

    /// `true` if some copies of an image have this file, and others do not: a run was stopped between them. A person who
    /// corrects the labels then sees one of them, and the next run replaces the others.
    pub fn is_replaced_in_part(&self, name: &str, image: (u64, u64)) -> bool {
        let images = self.images(name);
        let replaced = images.iter().filter(|path| has_image(path, name, image)).count();
        (1..images.len()).contains(&replaced)
    }

    /// `true` if an image is a member of a tar file whose copies have its content. A tar file that was written again changes
    /// the time of all its members.
    pub fn has_content_of_source(&self, name: &str) -> bool {
        let images = self.images(name);
        let known = self.state.images.get(name).filter(|_| !images.is_empty());
        known
            .map(|known| Path::new(&known.source))
            .is_some_and(|source| is_member(source) && images.iter().all(|image| is_same(source, image)))
    }

    /// Takes over the copies of an image in a shard, which its labels describe: they are not the file at the source if a
    /// person edited them, or corrected their labels before the source was replaced. Those that were edited here stay.
    pub fn take_images(
        &mut self,
        shard: &Path,
        name_there: &str,
        record: &Record,
        described: Option<(u64, u64)>,
    ) -> Result<()> {
        let (name, now) = (&record.name, identity(&record.source));
        for validation in [false, true] {
            // VOC has one folder for both splits.
            let files = |name: &str| {
                let files = self.image_files(name, validation).into_iter();
                files.filter(move |file| !validation || !file.starts_with(VOC_IMAGES))
            };
            for (from, to) in files(name_there).zip(files(name)) {
                let (from, to) = (shard.join(&from), self.state.root.join(&to));
                let is_copy = |path: &Path| path.symlink_metadata().is_ok_and(|there| there.is_file());
                let is_source = has_image(&from, name, now) && !is_copy(&to);
                if !is_copy(&from) || is_source || identity(&from) == identity(&to) {
                    continue;
                }
                let of_shard = described.iter().chain([&now]);
                if is_copy(&to) && !self.state.is_image_of(&to, name, of_shard) {
                    continue;
                }
                self.create_folder_of(&to)?;
                let part = part_path(&to);
                copy(&from, &part, &to, false, identity(&from).1)?;
                disk::put(&part, &to)?;
            }
        }
        Ok(())
    }

    /// `true` if a file is one that the image had, as it was copied.
    fn is_ours(&self, path: &Path, name: &str, entry: &Entry) -> bool {
        self.state.is_image_of(path, name, entry.earlier.iter().chain(&entry.described))
    }

    /// `true` if a person edited the file of an image in the data set.
    pub fn is_edited(&self, name: &str, entry: &Entry, now: (u64, u64)) -> bool {
        self.other_images(name, now).iter().any(|path| !self.is_ours(path, name, entry))
    }

    /// `true` if a copy of an image is of another file than its labels describe: a run was stopped before it could copy the
    /// new one, and the source is out of reach now.
    pub fn has_other_copy(&self, name: &str, described: (u64, u64)) -> bool {
        !self.other_images(name, described).is_empty()
    }

    /// `true` if an image whose labels stay is a link to a file that was replaced since.
    pub fn shows_other(&self, name: &str, now: (u64, u64), described: (u64, u64)) -> bool {
        now != (0, 0) && now != described && self.images(name).is_empty()
    }

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

/// `true` if a copy has the image of this size and time. File systems round the time of a copy: FAT to two seconds, others to
/// a second, 10 ms, 1 ms, a microsecond or 100 ns. A time that is not round is compared as it is.
pub(crate) fn has_image(copy: &Path, name: &str, (bytes, changed): (u64, u64)) -> bool {
    let (there, time) = identity(copy);
    (is_converted(name) || there == bytes) && is_rounded(time, changed)
}

/// `true` if an image is there with this time, which the file system may have rounded.
pub(crate) fn is_time_of((bytes, time): (u64, u64), changed: u64) -> bool {
    bytes > 0 && is_rounded(time, changed)
}

fn is_rounded(time: u64, changed: u64) -> bool {
    let units: [u64; 7] = [2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000, 100, 1];
    units.into_iter().any(|unit| time.is_multiple_of(unit) && time.abs_diff(changed) < unit)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_rounded_time_is_that_of_the_image_and_another_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.png");
        let source: u64 = 1_764_000_001_234_567_891;
        let second = 1_000_000_000;
        let units = [2 * second, second, 10_000_000, 1_000_000, 1_000, 100, 1];
        // Some round down, some up.
        let rounded = units.map(|unit| [source / unit * unit, source.div_ceil(unit) * unit]);
        let cases = rounded.into_iter().flatten().map(|time| (time, true));
        let others =
            [source + 1, source + second, source - 1_500_000_003, source / second * second + 4 * second];
        for (time, expected) in cases.chain(others.map(|time| (time, false))) {
            std::fs::write(&path, "1234").expect("a temporary folder");
            let file = std::fs::File::options().write(true).open(&path);
            let set = file.and_then(|file| file.set_modified(UNIX_EPOCH + Duration::from_nanos(time)));
            set.expect("it is there");
            let now = identity(&path).1;
            if now == time {
                assert_eq!(has_image(&path, "a.png", (4, source)), expected, "{time}");
                assert!(!has_image(&path, "a.png", (5, source)), "{time}: another size");
            }
        }
    }
}
