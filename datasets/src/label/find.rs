//! Finds images: in folders, by patterns, files and lists.

use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::braces;
use super::folder::STATE_FOLDER;
use super::images::FoundImage;
use super::source::{has_tar_extension, member_path};
use super::tar_file::TarFile;
use ocelli::image::{has_image_extension, has_unsupported_extension};
use ocelli::{Error, ErrorKind, Result};
use ocelli_export::read_text;

/// Finds images. An input is a folder, which is searched recursively, a pattern (`'**/*.jpg'`, `'{a,b}/{00..12}.tar'`), an
/// image, a tar file, a file with a list of paths (`@list.txt`, or a name that ends in `.txt`), or `-` for a list on stdin.
///
/// The images in `shard-00.tar` are named as those in a folder `shard-00`. A tar file that is truncated or corrupt is found
/// itself, after the images that can be read: labelling reports it. Tar files in folders are not searched, so that a folder
/// with images and an archive of them has each image once.
///
/// Images in the `output` folder and in other labelled data sets are ignored, and in folders and patterns those whose names
/// start with a dot. Paths
/// in a list are relative to the current folder, and may name files that do not exist: labelling reports those.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if an input contains no image or is in the output folder; [`ErrorKind::Io`] if a folder or
/// a list cannot be read.
pub fn find_images(inputs: &[PathBuf], output: &Path) -> Result<Vec<FoundImage>> {
    let output = output.canonicalize().ok();
    let mut found = Vec::new();
    for input in inputs {
        let text = input.to_string_lossy();
        let before = found.len();
        let why_empty = if text == "-" {
            let mut list = String::new();
            std::io::stdin()
                .take(MAX_LIST_BYTES + 1)
                .read_to_string(&mut list)
                .map_err(|e| Error::io("cannot read the list", Path::new("stdin"), e))?;
            if list.len() as u64 > MAX_LIST_BYTES {
                return Err(no_image(input, "the list on stdin is larger than 64 MiB"));
            }
            listed(&list, &mut found)?;
            "the list on stdin is empty"
        } else if input.is_dir() {
            if let (Some(output), Ok(here)) = (&output, input.canonicalize())
                && here.starts_with(output)
            {
                let why = format!("it is in the output folder, {}", output.display());
                return Err(no_image(input, &format!("{why}; choose another output folder")));
            }
            walk(input, output.as_deref(), &mut found)?;
            "the folder and its subfolders contain no images"
        } else if let Some(list) = list_file(input) {
            let text = read_text(&list, "the list")?;
            listed(&text, &mut found)?;
            "the list is empty"
        } else if input.exists() {
            let relative = input.file_name().map(PathBuf::from).unwrap_or_default();
            add(input.clone(), relative, &mut found)?;
            "the tar file contains no images"
        } else if text.contains(PATTERN) {
            matching(input, output.as_deref(), &mut found)?;
            "the pattern matches no image"
        } else {
            return Err(no_image(input, "no such file or folder"));
        };
        if found.len() == before {
            return Err(no_image(input, why_empty));
        }
    }
    Ok(found)
}

/// The largest list on stdin, as [`read_text`] has it for files.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The characters of patterns.
const PATTERN: [char; 4] = ['*', '?', '[', '{'];

/// Adds a file, or the images of a tar file.
fn add(path: PathBuf, relative: PathBuf, found: &mut Vec<FoundImage>) -> Result<()> {
    if !has_tar_extension(&path) || !path.is_file() {
        found.push(FoundImage { path, relative, frame: None });
        return Ok(());
    }
    let tar = TarFile::open(&path)?;
    let folder = relative.with_extension("");
    let image = |name: &str| FoundImage {
        path: member_path(&path, name),
        relative: member_path(&folder, name),
        frame: None,
    };
    found.extend(tar.names().map(image));
    if tar.problem().is_some() {
        found.push(FoundImage { path, relative, frame: None });
    }
    Ok(())
}

/// Images of formats that are not supported are found as well: labelling reports them.
fn is_image(path: &Path) -> bool {
    has_image_extension(path) || has_unsupported_extension(path)
}

/// Whether folders and patterns ignore a file or folder.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn no_image(input: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("cannot find images, {}: {why}", input.display()))
}

/// The path of the list, if the input is one.
fn list_file(input: &Path) -> Option<PathBuf> {
    let text = input.to_string_lossy();
    match text.strip_prefix('@') {
        Some(list) if !input.exists() => Some(list.into()),
        _ => (input.is_file() && input.extension().is_some_and(|e| e.eq_ignore_ascii_case("txt")))
            .then(|| input.to_owned()),
    }
}

/// The images of a list with one path per line. The path, without `..`, is the name in the data set.
fn listed(list: &str, found: &mut Vec<FoundImage>) -> Result<()> {
    let here = std::env::current_dir().unwrap_or_default();
    list.lines().map(str::trim_end).filter(|line| !line.is_empty()).try_for_each(|line| {
        let path = PathBuf::from(line);
        let relative = path.strip_prefix(&here).unwrap_or(&path).to_owned();
        add(path, relative, found)
    })
}

/// Finds the images in a folder and its subfolders, ordered by path.
fn walk(root: &Path, output: Option<&Path>, found: &mut Vec<FoundImage>) -> Result<()> {
    let before = found.len();
    let mut folders = VecDeque::from([root.to_owned()]);
    // A link to a parent folder would never end. Of two paths to a folder, the shorter one counts.
    let mut seen = HashSet::new();
    while let Some(folder) = folders.pop_front() {
        let cannot = |e| Error::io("cannot read the folder", &folder, e);
        let whole = folder.canonicalize().map_err(cannot)?;
        if Some(&*whole) == output || folder.join(STATE_FOLDER).is_dir() || !seen.insert(whole) {
            continue;
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(cannot)? {
            paths.push(entry.map_err(cannot)?.path());
        }
        paths.sort();
        for path in paths {
            if is_hidden(&path) {
                continue;
            }
            if path.is_dir() {
                folders.push_back(path);
            } else if is_image(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.push(FoundImage { path, relative, frame: None });
            }
        }
    }
    found[before..].sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

/// Finds the images that match a pattern, ordered by path. Names are relative to the part of the pattern without wildcards.
/// Tar files are found by patterns that end in `.tar`.
fn matching(pattern: &Path, output: Option<&Path>, found: &mut Vec<FoundImage>) -> Result<()> {
    let is_pattern = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(PATTERN);
    let root: PathBuf = pattern.components().take_while(|part| !is_pattern(part)).collect();
    let invalid = |why: &str| no_image(pattern, &format!("invalid pattern: {why}"));
    let mut matched = Vec::new();
    for one in braces::expand(&pattern.to_string_lossy()).map_err(|why| invalid(&why))? {
        let path = PathBuf::from(&one);
        if path.is_file() {
            matched.push(path);
            continue;
        }
        if !one.contains(['*', '?', '[']) {
            let why = if path.is_dir() { "it is a folder; name it without braces" } else { "no such file" };
            return Err(no_image(&path, why));
        }
        let is_wanted = |path: &Path| is_image(path) || (has_tar_extension(&one) && has_tar_extension(path));
        for path in glob::glob(&one).map_err(|e| invalid(&e.to_string()))? {
            let path = path.map_err(|e| {
                Error::io("cannot read", e.path(), std::io::Error::other(e.error().to_string()))
            })?;
            let is_data_set = path.ancestors().any(|folder| folder.join(STATE_FOLDER).is_dir());
            if !path.is_dir() && is_wanted(&path) && !is_hidden(&path) && !is_data_set {
                matched.push(path);
            }
        }
    }
    // Patterns follow links to parent folders. Of several paths to an image, the shortest one counts.
    matched.sort_by_key(|path| (path.components().count(), path.clone()));
    let mut seen = HashSet::new();
    let is_new = |path: &PathBuf| {
        // A link to nothing is an image that cannot be read.
        let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(in_folder).is_some_and(|whole| {
            !output.is_some_and(|output| whole.starts_with(output)) && seen.insert(whole)
        })
    };
    matched.retain(is_new);
    matched.sort();
    matched.into_iter().try_for_each(|path| {
        let relative = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        add(path, relative, found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_every_kind() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| place.path().join(name);
        for name in [
            "set/b.PNG",
            "set/a/c.jpg",
            "set/a/notes.md",
            "set/.hidden/d.png",
            "set/a/.e.png",
            "set/.f.PNG",
            "set/out/images/f.png",
            "set/out/.ocelli-label/journal",
            "set/other/images/g.png",
            "set/other/.ocelli-label/journal",
            "empty/notes",
        ] {
            std::fs::create_dir_all(at(name).parent().expect("it has one")).expect("a temporary folder");
            std::fs::write(at(name), b"x").expect("a temporary folder");
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("..", at("set/a/up")).expect("a temporary folder");
        #[cfg(unix)]
        std::os::unix::fs::symlink("nowhere", at("set/a/z.jpg")).expect("a temporary folder");
        #[cfg(not(unix))]
        std::fs::write(at("set/a/z.jpg"), b"x").expect("a temporary folder");
        std::fs::write(at("list"), format!("{}\n\nmissing.png\r\n", at("set/b.PNG").display()))
            .expect("it can be");
        std::fs::write(at("list.txt"), "a/../b.png\n").expect("it can be written");
        std::fs::write(at("none.txt"), "\n\n").expect("it can be written");
        let listed = at("set/b.PNG").to_string_lossy().into_owned();
        let cases: [(&str, Result<&[&str], &str>); 12] = [
            ("set", Ok(&["a/c.jpg", "a/z.jpg", "b.PNG"])),
            ("set/b.PNG", Ok(&["b.PNG"])),
            ("set/*.PNG", Ok(&["b.PNG"])),
            ("set/**/*.jpg", Ok(&["a/c.jpg", "a/z.jpg"])),
            ("@list", Ok(&[&listed, "missing.png"])),
            ("list.txt", Ok(&["a/../b.png"])),
            ("none.txt", Err("the list is empty")),
            ("empty", Err("contain no images")),
            ("nowhere", Err("no such file")),
            ("set/*.gif", Err("matches no image")),
            ("set/out/images", Err("output folder")),
            ("@nowhere", Err("cannot read the list")),
        ];
        let mut failures = Vec::new();
        for (input, expected) in cases {
            let input = match input.strip_prefix('@') {
                Some(list) => PathBuf::from(format!("@{}", at(list).display())),
                None => at(input),
            };
            let found = find_images(std::slice::from_ref(&input), &at("set/out")).map_err(|e| e.to_string());
            let names: Result<Vec<String>, String> =
                found.map(|found| found.iter().map(|f| f.relative.to_string_lossy().into_owned()).collect());
            let is_right = match (&names, expected) {
                (Ok(names), Ok(expected)) => names == expected,
                (Err(message), Err(word)) => message.contains(word),
                _ => false,
            };
            if !is_right {
                failures.push(format!("{}: {names:?}, expected {expected:?}", input.display()));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
