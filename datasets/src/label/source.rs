//! The files that images come from: files of their own, and members of tar files.
//!
//! A member has a path as if the tar file were a folder: `shard-000000.tar/0001.jpg`. No file can have this path, so that
//! it stands for the member wherever a path is kept, in the journal as well.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ocelli::{Error, Result, image::Image, tiles::TiledImage};

use crate::label::formats::tar_file::{TarFile, identity_of};
use crate::label::hash::hash_of_bytes;

/// `true` if a file is taken for a tar file, by its name.
pub(super) fn has_tar_extension(path: impl AsRef<Path>) -> bool {
    path.as_ref().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// The tar file that a path is in, and the name there.
fn tar_of(path: &Path) -> Option<(&Path, String)> {
    let tar = path.ancestors().skip(1).find(|above| has_tar_extension(above) && above.is_file())?;
    let mut parts = Vec::new();
    for component in path.strip_prefix(tar).ok()?.components() {
        let Component::Normal(part) = component else { return None };
        parts.push(part.to_str()?);
    }
    Some((tar, parts.join("/")))
}

/// The path of a member.
pub(super) fn member_path(tar: &Path, name: &str) -> PathBuf {
    name.split('/').fold(tar.to_owned(), |path, part| path.join(part))
}

/// `true` if an image is a member of a tar file, which nothing can link to.
pub(super) fn is_member(path: &Path) -> bool {
    tar_of(path).is_some()
}

/// The tar file and the name there, if the path is of a member that can be read.
fn member_of(path: &Path) -> Option<(Arc<TarFile>, String)> {
    let (tar, name) = tar_of(path)?;
    let tar = TarFile::open(tar).ok()?;
    tar.contains(&name).then_some((tar, name))
}

/// Size and time of the last change of a file; zeros if they are unknown.
pub(crate) fn identity(path: &Path) -> (u64, u64) {
    let of_member = || member_of(path).and_then(|(tar, name)| tar.identity(&name)).unwrap_or_default();
    path.metadata().map_or_else(|_| of_member(), |meta| identity_of(&meta))
}

/// `true` if an image can be opened; opening a pipe would block.
pub(super) fn is_readable(path: &Path) -> bool {
    (path.is_file() && File::open(path).is_ok()) || member_of(path).is_some()
}

/// An error for a pipe, a device or a socket, which a data set can neither link to nor read twice.
fn check_is_file(path: &Path) -> Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let message =
            format!("cannot read the image, {}: it is a pipe or a device; expected a file", path.display());
        return Err(Error::invalid_data(message));
    }
    Ok(())
}

/// `true` if an image is gone for certain, and not only out of reach: the folder that it was in is there and not empty. An
/// empty folder may be the mount point of a disk that is not mounted.
pub(super) fn is_gone(path: &Path) -> bool {
    match tar_of(path) {
        // A tar file that is cut off may have had it.
        Some((tar, name)) => {
            TarFile::open(tar).is_ok_and(|tar| tar.problem.is_none() && !tar.contains(&name))
        }
        None => {
            let has_others =
                |folder: &Path| std::fs::read_dir(folder).is_ok_and(|mut there| there.next().is_some());
            matches!(path.try_exists(), Ok(false)) && path.parent().is_some_and(has_others)
        }
    }
}

/// The bytes of the file of an image.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match tar_of(path) {
        Some((tar, name)) => TarFile::open(tar).map_err(io::Error::other)?.read(&name),
        None => std::fs::read(path),
    }
}

/// Bytes at both ends of a file that tell its content from that of others.
const END: u64 = 64 << 10;

/// A hash of the size of an image's file and of both ends of its content; `None` if it cannot be read.
pub(super) fn content_of(path: &Path) -> Option<String> {
    let ends = match tar_of(path) {
        Some(_) => ends_of(io::Cursor::new(read(path).ok()?)),
        None if path.is_file() => ends_of(File::open(path).ok()?),
        None => return None,
    };
    ends.ok().map(hash_of_bytes)
}

/// The size of a file, and both ends of its content.
fn ends_of(mut file: impl Read + Seek) -> io::Result<Vec<u8>> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut ends = length.to_le_bytes().to_vec();
    for start in [0, length.saturating_sub(END)] {
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(END).read_to_end(&mut ends)?;
    }
    Ok(ends)
}

/// `true` if two images can be read and have the same content.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    content_of(one).is_some_and(|content| content_of(other) == Some(content))
        && matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}

/// Copies the file of an image.
pub(super) fn copy_to(path: &Path, to: &mut impl io::Write) -> io::Result<()> {
    match tar_of(path) {
        Some(_) => to.write_all(&read(path)?),
        None => io::copy(&mut File::open(path)?, to).map(drop),
    }
}

/// Reads and decodes an image: a file, or a member of a tar file by the path that `find_images` gives it.
///
/// # Errors
/// As [`Image::open`]; a tar file itself is no image, and the error says what is wrong with it.
pub fn open_image(path: &Path) -> Result<Image> {
    check_is_file(path)?;
    let Some((tar, name)) = tar_of(path) else {
        if !(has_tar_extension(path) && path.is_file()) {
            return Image::open(path);
        }
        let tar = TarFile::open(path)?;
        let problem = tar.problem.as_deref().unwrap_or("it was changed; run this again to label its images");
        let message = format!("cannot read the whole tar file, {}: {problem}", path.display());
        return Err(Error::invalid_data(message));
    };
    let bytes = TarFile::open(tar)?.read(&name).map_err(|e| Error::io("cannot read the image", path, e))?;
    Image::decode(&bytes, &path.display().to_string())
}

/// Opens an image for a search in tiles: a file is read in parts where its format allows it, a member of a tar file at once.
pub(super) fn open_regions(path: &Path) -> Result<TiledImage> {
    check_is_file(path)?;
    match tar_of(path) {
        None if !(has_tar_extension(path) && path.is_file()) => TiledImage::open(path),
        _ => open_image(path).map(TiledImage::from),
    }
}
