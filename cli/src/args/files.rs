//! Files that arguments name: images to read, results to write.

use std::path::{Path, PathBuf};

use ocelli::image::{Image, has_image_extension, has_unsupported_extension};
use ocelli::sink::YoloLabels;
use ocelli::{Error, ErrorKind, Result};
use ocelli_datasets::label::data_set_around;

use crate::output::with_flag;

/// Expands files, folders and patterns (`*.jpg`, `**/*.png`) into image files, in the order of the arguments and by name
/// within a folder or pattern. A folder stands for the images directly in it.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if an argument matches no image.
pub fn expand_images(arguments: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut skipped = Vec::new();
    for argument in arguments {
        if argument.is_dir() {
            files.extend(in_folder(argument, &mut skipped)?);
        } else if argument.exists() || !is_pattern(argument) {
            if !argument.exists() {
                return Err(nothing(argument, "no such file or folder"));
            }
            if is_video(argument) {
                return Err(nothing(argument, "it is a video, which `ocelli video --video` reads"));
            }
            files.push(argument.clone());
        } else {
            files.extend(matching(argument, &mut skipped)?);
        }
    }
    if let Some(first) = skipped.first() {
        let count = skipped.len();
        tracing::warn!(
            "{count} image(s) skipped, {} first: HEIC, AVIF and JPEG XL are not supported; convert them to PNG or JPEG",
            first.display()
        );
    }
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| seen.insert(file.clone()));
    Ok(files)
}

/// Whether a file is a video, by its name.
pub(crate) fn is_video(path: &Path) -> bool {
    const ENDINGS: [&str; 10] = ["mp4", "mov", "mkv", "avi", "webm", "m4v", "mpg", "mpeg", "ts", "wmv"];
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&&*ending)) && path.is_file()
}

fn nothing(argument: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("no image, {}: {why}", argument.display()))
}

fn is_pattern(argument: &Path) -> bool {
    argument.to_string_lossy().contains(['*', '?', '['])
}

fn in_folder(folder: &Path, skipped: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io("cannot read the folder", folder, e))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::io("cannot read the folder", folder, e))?.path();
        sort_in(path, &mut files, skipped);
    }
    skipped.sort();
    if files.is_empty() && !skipped.is_empty() {
        let why = "the folder contains HEIC, AVIF or JPEG XL images only, which are not supported; convert them to PNG or JPEG";
        return Err(nothing(folder, why));
    }
    if files.is_empty() {
        return Err(nothing(
            folder,
            &format!("the folder contains none; '{}/**/*.jpg' includes its subfolders", folder.display()),
        ));
    }
    files.sort();
    Ok(files)
}

/// Adds an image to the files that are read, or to those of formats that are not supported. As in `ocelli label`, names that
/// start with a dot are ignored, a link to nothing is an image that cannot be read, and the content says what a file is.
fn sort_in(path: PathBuf, files: &mut Vec<PathBuf>, skipped: &mut Vec<PathBuf>) {
    let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    if is_hidden || path.is_dir() {
        return;
    }
    if has_image_extension(&path) {
        files.push(path);
    } else if has_unsupported_extension(&path) {
        let is_other = std::fs::read(&path).is_ok_and(|bytes| Image::declared_size(&bytes, "").is_ok());
        if is_other { files.push(path) } else { skipped.push(path) }
    }
}

fn matching(pattern: &Path, skipped: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let text = pattern.to_string_lossy();
    let paths = glob::glob(&text).map_err(|e| nothing(pattern, &format!("invalid pattern: {e}")))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path
            .map_err(|e| Error::io("cannot read", e.path(), std::io::Error::other(e.error().to_string())))?;
        sort_in(path, &mut files, skipped);
    }
    if files.is_empty() {
        return Err(nothing(pattern, "the pattern matches no image"));
    }
    Ok(files)
}

/// Checks before the work begins that a result can be written to `path`. `flag` is the argument that names the file.
///
/// # Errors
/// [`ErrorKind::Io`] if `path` is a folder or its folder does not exist.
pub fn check_output_file(flag: &str, path: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Io, format!("{flag}, {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder; name a file".into());
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            refuse(format!("the folder {} does not exist; create it first", folder.display()))
        }
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            refuse(format!("{} is not a folder", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Opens the label files of `--save-txt`, which are for folders of their own: in a data set they would overwrite what a
/// person corrected.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a folder in a data set, [`ErrorKind::Io`] if it is a file.
pub fn label_files(folder: &Path) -> Result<YoloLabels> {
    if let Some(data_set) = data_set_around(folder) {
        let message = format!(
            "--save-txt, {}: it is in the data set {}, whose labels may be corrected by hand; name another folder, or use \
             `ocelli label`",
            folder.display(),
            data_set.display()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    YoloLabels::create(folder).map_err(with_flag("--save-txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_patterns_and_files() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for name in ["b.JPG", "a.png", "notes.txt", "odd [1].png", ".hidden.png", "phone.heic"] {
            std::fs::write(at(name), b"x")?;
        }
        // Its content is that of another format, and not HEIC.
        std::fs::write(at("named.heic"), b"P5 1 1 255 x")?;
        #[cfg(unix)]
        std::os::unix::fs::symlink("nowhere", at("link.png"))?;
        #[cfg(not(unix))]
        std::fs::write(at("link.png"), b"x")?;
        std::fs::create_dir(at("empty"))?;
        let names = |arguments: &[PathBuf]| -> std::result::Result<Vec<String>, String> {
            let files = expand_images(arguments).map_err(|e| e.to_string())?;
            Ok(files
                .iter()
                .map(|f| f.file_name().unwrap_or_default().to_string_lossy().into_owned())
                .collect())
        };
        std::fs::write(at("clip.MP4"), b"x")?;
        let cases: [(Vec<PathBuf>, std::result::Result<Vec<&str>, &str>); 11] = [
            (vec![folder.path().into()], Ok(vec!["a.png", "b.JPG", "link.png", "named.heic", "odd [1].png"])),
            (vec![at("a*.png")], Ok(vec!["a.png"])),
            (vec![at("*.png")], Ok(vec!["a.png", "link.png", "odd [1].png"])),
            (vec![at(".hidden.png")], Ok(vec![".hidden.png"])),
            (
                vec![at("b.JPG"), at("a.png"), at("*.png")],
                Ok(vec!["b.JPG", "a.png", "link.png", "odd [1].png"]),
            ),
            (vec![at("odd [1].png")], Ok(vec!["odd [1].png"])),
            (vec![at("none.png")], Err("no such file")),
            (vec![at("clip.MP4")], Err("it is a video, which `ocelli video --video` reads")),
            (vec![at("*.gif")], Err("matches no image")),
            (vec![at("empty")], Err("contains none")),
            (vec![at("[")], Err("invalid pattern")),
        ];
        for (arguments, expected) in cases {
            match (names(&arguments), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{arguments:?}"),
                (Err(message), Err(word)) => assert!(message.contains(word), "{arguments:?}: {message}"),
                (found, expected) => panic!("{arguments:?}: {found:?}, expected {expected:?}"),
            }
        }
        Ok(())
    }
}
