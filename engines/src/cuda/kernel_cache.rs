//! Compiled kernels in files.
//!
//! A driver that is handed half an image reads past its end, so each file says how long it is and what its bytes add up
//! to; one that does not fit is as if it were not there.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a file; the number changes with what follows.
const MAGIC: &[u8; 8] = b"ocelliK1";

/// The file for a source and a generation of GPUs.
pub(super) fn entry(folder: &Path, name: &str, source: &str, (major, minor): (u32, u32)) -> PathBuf {
    let version = env!("CARGO_PKG_VERSION");
    let key = hash(format!("{version}\0{name}\0{source}").as_bytes());
    folder.join(format!("{name}-sm_{major}{minor}-{key:016x}.cubin"))
}

/// What a file holds; none where it is missing or damaged.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (head, image) = bytes.split_at_checked(24)?;
    let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
    let whole = &head[..8] == MAGIC && number(8)? == image.len() as u64 && number(16)? == hash(image);
    (whole && !image.is_empty()).then(|| image.to_vec())
}

/// Writes a file whole or not at all.
pub(super) fn write(path: &Path, image: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::File::create(&part).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(&(image.len() as u64).to_le_bytes())?;
        file.write_all(&hash(image).to_le_bytes())?;
        file.write_all(image)
    });
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What is left of it is nobody's.
        let _ = fs::remove_file(&part);
    }
    written
}

/// FNV-1a of 64 bits (Fowler, Noll and Vo 1991): for damage, not for malice, as whoever can write here can do worse.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = entry(&folder.path().join("new"), "k", "source", (9, 0));
        assert_eq!(read(&path), None);
        write(&path, b"image").expect("the folder is ours");
        assert_eq!(read(&path), Some(b"image".to_vec()));
        let whole = fs::read(&path).expect("it was written");
        let mut failures = Vec::new();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            for (what, bytes) in [("changed", &changed[..]), ("cut", &whole[..at])] {
                fs::write(&path, bytes).expect("the folder is ours");
                if read(&path).is_some() {
                    failures.push(format!("{what} at {at}"));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        let names = fs::read_dir(path.parent().expect("it has one")).expect("it is there").count();
        assert_eq!(names, 1, "nothing is left over");
    }

    #[test]
    fn another_source_or_gpu_is_another_file() {
        let folder = Path::new("x");
        let all = [
            entry(folder, "k", "source", (9, 0)),
            entry(folder, "k", "source ", (9, 0)),
            entry(folder, "k", "source", (8, 9)),
            entry(folder, "l", "source", (9, 0)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{}", one.display());
        }
    }
}
