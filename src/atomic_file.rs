//! Atomic writes: a file is complete or unchanged.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ocelli_engines::report_file_limits;
use ocelli_error::{Error, ErrorKind, Result};

/// Writes a temporary file beside `path` and renames it to `path`, so that no reader sees half a file.
///
/// `write` gets an empty buffered file, and its result is returned. If it fails or the program dies, the old file stays.
/// Links are followed and their target is replaced. Devices and pipes (`/dev/stdout`) cannot be replaced and are written
/// directly. File and folder are synced: after the call, the new file survives a power failure.
///
/// # Errors
/// [`ErrorKind::Io`] with the path and the reason if its folder does not exist, `path` is a folder, or writing fails. An
/// [`Error`] that `write` wraps in an [`io::Error`] (`io::Error::other`) is returned unchanged.
pub fn write_atomically<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> Result<T> {
    report_file_limits();
    // The empty path and one that ends in `..` name no file.
    if path.file_name().is_none() {
        let message = format!("cannot write, \"{}\": it does not name a file", path.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            let message = format!("cannot write, {}: it is a folder; name a file", path.display());
            Err(Error::new(ErrorKind::Io, message))
        }
        Ok(there) if !there.is_file() => write_directly(path, write).map_err(|error| explain(path, error)),
        Ok(_) => {
            let target = fs::canonicalize(path).map_err(|error| explain(path, error))?;
            write_beside(&target, write).map_err(|error| explain(path, error))
        }
        Err(_) => write_beside(path, write).map_err(|error| explain(path, error)),
    }
}

/// An empty file that becomes `target` when it is complete, and whose name ends with `ending`; on Unix it is locked until it
/// is dropped. Those that runs for the same target have left behind because they were killed, which nobody locks any more,
/// are removed.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn part_of(target: &Path, ending: &str) -> io::Result<tempfile::NamedTempFile> {
    report_file_limits();
    let folder = folder_of(target);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".ocelli-{}-", name.chars().take(40).collect::<String>());
    let suffix = format!(".part{ending}");
    for entry in fs::read_dir(folder)?.flatten().filter(|_| cfg!(unix)) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let random = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(&suffix));
        // An empty one may have been created a moment ago.
        let has_content = entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if random.is_some_and(|random| random.len() == 6)
            && has_content
            && File::options().write(true).open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            tracing::debug!("removing {}, which an earlier run has left behind", entry.path().display());
            fs::remove_file(entry.path())?;
        }
    }
    let part = temporary_file(folder, &prefix, &suffix)?;
    // Where files cannot be locked, nothing is ever taken for left behind.
    if cfg!(unix) {
        drop(part.as_file().try_lock());
    }
    Ok(part)
}

/// A temporary file with the permissions of any new file; temporary files are private by default.
fn temporary_file(folder: &Path, prefix: &str, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(suffix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(without_temporary_name)
}

fn write_beside<T>(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>) -> io::Result<T> {
    // Removed on drop unless persisted.
    let (file, temporary) = temporary_file(folder_of(path), ".ocelli-", ".part")?.into_parts();
    let mut writer = BufWriter::new(file);
    let value = write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    drop(file);
    temporary.persist(path).map_err(|error| error.error)?;
    sync_folder(folder_of(path))?;
    Ok(value)
}

/// Syncs a folder, so that files that were created, renamed or removed in it stay so after a power failure.
///
/// Does nothing where folders cannot be synced.
///
/// # Errors
/// The error of the operating system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            // A folder that can be written to but not read, or a file system without this operation.
            Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {}
            synced => return synced,
        }
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn write_directly<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    let mut writer = BufWriter::new(File::options().write(true).open(path)?);
    let value = write(&mut writer)?;
    writer.flush()?;
    Ok(value)
}

/// The error of a temporary file without its name, which means nothing to anyone.
pub(crate) fn without_temporary_name(error: io::Error) -> io::Error {
    error.kind().into()
}

/// The folder of a file, `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a folder and those above it.
///
/// # Errors
/// [`Io`](ErrorKind::Io) if it cannot be created.
pub fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io("cannot create the folder", folder, error))
}

fn explain(path: &Path, error: io::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(own) => return own,
        Err(error) => error,
    };
    let folder = folder_of(path);
    if error.kind() == io::ErrorKind::NotFound && !folder.exists() {
        let (path, folder) = (path.display(), folder.display());
        let message = format!("cannot write, {path}: the folder {folder} does not exist; create it first");
        return Error::new(ErrorKind::Io, message).with_source(error);
    }
    Error::io("cannot write", path, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Write};

    use super::{Path, part_of, write_atomically};
    use ocelli_error::{Error, ErrorKind};

    #[test]
    fn a_file_is_replaced_by_a_complete_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("out.txt");
        for text in ["first", "second, longer"] {
            let value = write_atomically(&path, |writer| {
                writer.write_all(text.as_bytes())?;
                Ok(text.len())
            });
            assert_eq!(value.expect("a folder that can be written to"), text.len());
            assert_eq!(fs::read_to_string(&path).expect("just written"), text);
        }
        let failed = write_atomically(&path, |writer| {
            writer.write_all(b"half")?;
            Err::<(), _>(io::Error::other("the disk is full"))
        });
        let error = failed.expect_err("the closure failed");
        assert_eq!(error.to_string(), format!("cannot write, {}: the disk is full", path.display()));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "second, longer");
        let names: Vec<_> = fs::read_dir(folder.path()).expect("it is there").collect();
        assert_eq!(names.len(), 1, "something was left behind: {names:?}");
    }

    #[cfg(unix)]
    #[test]
    fn what_a_killed_run_has_left_is_removed_by_the_next_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("out.mp4");
        let write = |name: &str| fs::write(folder.path().join(name), "x").expect("a temporary folder");
        let part = |target: &Path| part_of(target, ".mp4").expect("a folder that can be written to");
        let left = [
            ".ocelli-out.mp4-aBc123.part.mp4",
            ".ocelli-out.mp4-old.mp4-aBc123.part.mp4",
            ".ocelli-aBc123.part.mp4",
        ];
        left.iter().for_each(|name| write(name));
        let first = part(&target);
        assert!(!folder.path().join(left[0]).exists(), "it is of this target");
        assert!(left[1..].iter().all(|name| folder.path().join(name).exists()), "these are of others");
        fs::write(first.path(), "being written").expect("it is there");
        let second = part(&target);
        assert!(first.path().exists(), "another run writes it");
        first.persist(&target).expect("a folder that can be written to");
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 3);
    }

    #[test]
    fn errors_explain_why_a_path_cannot_be_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("file"), "x").expect("a folder that can be written to");
        let mut failures = Vec::new();
        for (name, part) in [
            ("missing/out.png", "missing does not exist; create it first"),
            ("", "it is a folder; name a file"),
            ("..", "does not name a file"),
            ("file/out.png", "cannot write"),
        ] {
            let path = folder.path().join(name);
            match write_atomically(&path, |writer| writer.write_all(b"x")) {
                Err(error) if error.kind() == ErrorKind::Io && error.to_string().contains(part) => {}
                other => failures.push(format!("{name:?}: expected {part:?}, came {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        // A folder that nobody can write to, and a name of nobody's choice.
        if cfg!(target_os = "linux") {
            let error = write_atomically(Path::new("/proc/x.txt"), |writer| writer.write_all(b"x"));
            let text = error.expect_err("it is no folder for files").to_string();
            assert!(text.starts_with("cannot write, /proc/x.txt: ") && !text.contains(".ocelli-"), "{text}");
        }
    }

    #[test]
    fn a_wrapped_error_keeps_its_kind() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = || Error::cancelled("stopped");
        let failed = write_atomically(&folder.path().join("x"), |_| Err::<(), _>(io::Error::other(own())));
        let error = failed.expect_err("the closure failed");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Cancelled, "stopped".into()));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_are_not_replaced() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").expect("a folder that can be written to");
        symlink("file", &link).expect("a folder that can be written to");
        write_atomically(&link, |writer| writer.write_all(b"new")).expect("a link to a file");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");

        let like = folder.path().join("like");
        fs::write(&like, "x").expect("a folder that can be written to");
        let mode = |path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(&file), mode(&like));

        // A socket stands for devices and pipes: it may not be replaced, and refuses to be opened.
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("a folder that can be written to");
        let refused = write_atomically(&socket, |writer| writer.write_all(b"x"));
        assert_eq!(refused.expect_err("sockets are not opened").kind(), ErrorKind::Io);
        assert!(fs::metadata(&socket).expect("it is there").file_type().is_socket());
    }
}
