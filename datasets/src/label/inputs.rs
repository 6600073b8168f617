//! Which pictures the command line means: folders with all below them, patterns, files, lists.

use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::folder::STATE_FOLDER;
use super::pictures::FoundPicture;
use ocelli::image::has_image_extension;
use ocelli::{Error, ErrorKind, Result};

/// Finds the pictures that arguments mean: a folder with everything below it, a pattern (`'**/*.jpg'`), a picture, a
/// list of paths in a file (`@list.txt`, or a name that ends in `.txt`), or `-` for a list on stdin.
///
/// What lies in the `output` folder, in another data set of `ocelli label` or in a folder whose name begins with a dot is
/// no input. Paths in a list are relative to the current folder; files that a list names and that are not there are
/// found out when they are read.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where an argument names nothing, or the output folder; [`ErrorKind::Io`] where a folder
/// or a list cannot be read.
pub fn find_pictures(arguments: &[PathBuf], output: &Path) -> Result<Vec<FoundPicture>> {
    let output = output.canonicalize().ok();
    let mut found = Vec::new();
    for argument in arguments {
        let text = argument.to_string_lossy();
        let before = found.len();
        let none = if text == "-" {
            let mut list = String::new();
            std::io::stdin()
                .read_to_string(&mut list)
                .map_err(|e| Error::io("cannot read the list", Path::new("stdin"), e))?;
            found.extend(listed(&list));
            "the list on stdin is empty"
        } else if argument.is_dir() {
            if let (Some(output), Ok(here)) = (&output, argument.canonicalize())
                && here.starts_with(output)
            {
                let why = format!("it is in the output folder, {}", output.display());
                return Err(nothing(argument, &format!("{why}; name another --output")));
            }
            walk(argument, output.as_deref(), &mut found)?;
            "the folder and those in it hold none"
        } else if let Some(list) = list_file(argument) {
            let text =
                std::fs::read_to_string(&list).map_err(|e| Error::io("cannot read the list", &list, e))?;
            found.extend(listed(&text));
            "the list is empty"
        } else if argument.exists() {
            let relative = argument.file_name().map(PathBuf::from).unwrap_or_default();
            found.push(FoundPicture { path: argument.clone(), relative });
            ""
        } else if text.contains(['*', '?', '[']) {
            matching(argument, output.as_deref(), &mut found)?;
            "the pattern matches none"
        } else {
            return Err(nothing(argument, "no such file or folder"));
        };
        if found.len() == before {
            return Err(nothing(argument, none));
        }
    }
    Ok(found)
}

fn nothing(argument: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("no picture, {}: {why}", argument.display()))
}

/// The list that an argument names, if it names one.
fn list_file(argument: &Path) -> Option<PathBuf> {
    let text = argument.to_string_lossy();
    match text.strip_prefix('@') {
        Some(list) if !argument.exists() => Some(list.into()),
        _ => (argument.is_file() && argument.extension().is_some_and(|e| e.eq_ignore_ascii_case("txt")))
            .then(|| argument.to_owned()),
    }
}

/// A path a line. It is called in the data set what the line says, without what leads upwards.
fn listed(list: &str) -> impl Iterator<Item = FoundPicture> {
    let here = std::env::current_dir().unwrap_or_default();
    list.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(move |line| {
        let path = PathBuf::from(line);
        let relative = path.strip_prefix(&here).unwrap_or(&path).to_owned();
        FoundPicture { path, relative }
    })
}

/// Everything below a folder, by path.
fn walk(root: &Path, output: Option<&Path>, found: &mut Vec<FoundPicture>) -> Result<()> {
    let before = found.len();
    let mut folders = VecDeque::from([root.to_owned()]);
    // A link to a folder above would be walked for ever. Of two ways to a folder the shorter counts.
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
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                continue;
            }
            if path.is_dir() {
                folders.push_back(path);
            } else if has_image_extension(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.push(FoundPicture { path, relative });
            }
        }
    }
    found[before..].sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

/// What a pattern matches, by path; called what the path is below the folders that the pattern names outright.
fn matching(pattern: &Path, output: Option<&Path>, found: &mut Vec<FoundPicture>) -> Result<()> {
    let is_pattern = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let root: PathBuf = pattern.components().take_while(|part| !is_pattern(part)).collect();
    let paths = glob::glob(&pattern.to_string_lossy())
        .map_err(|e| nothing(pattern, &format!("the pattern is wrong: {e}")))?;
    let mut matched = Vec::new();
    for path in paths {
        let path = path
            .map_err(|e| Error::io("cannot read", e.path(), std::io::Error::other(e.error().to_string())))?;
        let is_data_set = path.ancestors().any(|folder| folder.join(STATE_FOLDER).is_dir());
        if path.is_file() && has_image_extension(&path) && !is_data_set {
            matched.push(path);
        }
    }
    // A link to a folder above is followed by patterns; of the ways to a picture the shortest counts.
    matched.sort_by_key(|path| (path.components().count(), path.clone()));
    let mut seen = HashSet::new();
    let is_new = |path: &PathBuf| {
        path.canonicalize()
            .is_ok_and(|whole| !output.is_some_and(|output| whole.starts_with(output)) && seen.insert(whole))
    };
    matched.retain(is_new);
    matched.sort();
    found.extend(matched.into_iter().map(|path| {
        let relative = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        FoundPicture { path, relative }
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arguments_mean() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| place.path().join(name);
        for name in [
            "set/b.PNG",
            "set/a/c.jpg",
            "set/a/notes.md",
            "set/.hidden/d.png",
            "set/a/.e.png",
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
        std::fs::write(at("list"), format!("{}\n\nmissing.png\r\n", at("set/b.PNG").display()))
            .expect("it can be");
        std::fs::write(at("list.txt"), "a/../b.png\n").expect("it can be written");
        std::fs::write(at("none.txt"), "\n\n").expect("it can be written");
        let listed = at("set/b.PNG").to_string_lossy().into_owned();
        let cases: [(&str, Result<&[&str], &str>); 12] = [
            ("set", Ok(&["a/c.jpg", "b.PNG"])),
            ("set/b.PNG", Ok(&["b.PNG"])),
            ("set/*.PNG", Ok(&["b.PNG"])),
            ("set/**/*.jpg", Ok(&["a/c.jpg"])),
            ("@list", Ok(&[&listed, "missing.png"])),
            ("list.txt", Ok(&["a/../b.png"])),
            ("none.txt", Err("the list is empty")),
            ("empty", Err("hold none")),
            ("nowhere", Err("no such file")),
            ("set/*.gif", Err("matches none")),
            ("set/out/images", Err("output folder")),
            ("@nowhere", Err("cannot read the list")),
        ];
        let mut failures = Vec::new();
        for (argument, expected) in cases {
            let argument = match argument.strip_prefix('@') {
                Some(list) => PathBuf::from(format!("@{}", at(list).display())),
                None => at(argument),
            };
            let found =
                find_pictures(std::slice::from_ref(&argument), &at("set/out")).map_err(|e| e.to_string());
            let names: Result<Vec<String>, String> =
                found.map(|found| found.iter().map(|f| f.relative.to_string_lossy().into_owned()).collect());
            let is_right = match (&names, expected) {
                (Ok(names), Ok(expected)) => names == expected,
                (Err(message), Err(word)) => message.contains(word),
                _ => false,
            };
            if !is_right {
                failures.push(format!("{}: {names:?}, expected {expected:?}", argument.display()));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
