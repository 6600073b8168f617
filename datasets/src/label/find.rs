//! Finds images: in folders, by patterns, files and lists.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use crate::eval::entries::entries;
use crate::label::FoundImage;
use crate::label::formats::braces;
use crate::label::formats::tar_file::TarFile;
use crate::label::source::{has_tar_extension, member_path};
use crate::label::store::STATE_FOLDER;
use ocelli::image::{Image, has_image_extension, has_unsupported_extension, is_image_file};
use ocelli::{Error, Result};

/// Finds images to label. An input is a folder, which is searched recursively, a pattern (`'**/*.jpg'`,
/// `'{a,b}/{00..12}.tar'`), an image, a tar file, a file with a list of paths (`@list.txt`, or a name that ends in `.txt`), or
/// `-` for a list on stdin.
///
/// The images in `shard-00.tar` are named as those in a folder `shard-00`. A tar file that is truncated or corrupt is found
/// itself, after the images that can be read: labelling reports it. Tar files in folders are not searched, so that a folder
/// with images and an archive of them has each image once.
///
/// Images in the `output` folder and in other labelled data sets are ignored, and in folders and patterns those whose names
/// start with a dot. What else is left out of a folder is counted in a warning. Paths in a list are relative to the current
/// folder, or to that of the list if they are there; they may name files that do not exist: labelling reports those.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if an input contains no image or is in the output
/// folder; [`ErrorKind::Io`](ocelli::ErrorKind::Io) if a folder or a list cannot be read.
pub fn find_images(inputs: &[PathBuf], output: &Path) -> Result<Vec<FoundImage>> {
    let outputs = output.canonicalize().into_iter().collect();
    let mut search = Search { to_label: true, outputs, ..Search::default() };
    inputs.iter().try_for_each(|input| search.add_input(input))?;
    Ok(search.found)
}

/// Finds the images of files, folders and patterns, each once, in the order of the inputs and by name within one. A folder
/// stands for the images in it, and with `subfolders` for those in its subfolders as well, unless one is among the `outputs`;
/// what is left out is counted in a warning, images in formats that are not supported among it.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if an input contains no image;
/// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if a folder cannot be read.
pub fn list_images(inputs: &[PathBuf], subfolders: bool, outputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let outputs = outputs.iter().filter_map(|output| output.canonicalize().ok()).collect();
    let mut search = Search { is_flat: !subfolders, outputs, ..Search::default() };
    let mut skipped = Vec::new();
    for input in inputs {
        let before = search.found.len();
        search.add_input(input)?;
        if !input.is_file() {
            let (unsupported, added): (Vec<_>, Vec<_>) =
                search.found.drain(before..).partition(|one| is_unsupported(&one.path));
            if added.is_empty() {
                let why = "it contains HEIC, AVIF or JPEG XL images only, which are not supported; convert them to PNG or JPEG";
                return Err(no_image(input, why));
            }
            search.found.extend(added);
            skipped.extend(unsupported);
        }
    }
    if let Some(first) = skipped.first() {
        let (count, first) = (skipped.len(), first.path.display());
        tracing::warn!(
            "{count} image(s) skipped, {first} first: HEIC, AVIF and JPEG XL are not supported; convert them to PNG or JPEG"
        );
    }
    let mut seen = HashSet::new();
    Ok(search.found.into_iter().map(|one| one.path).filter(|path| seen.insert(path.clone())).collect())
}

/// `true` if a file is an image in a format that is not supported: the content says what a file is.
fn is_unsupported(path: &Path) -> bool {
    has_unsupported_extension(path)
        && !std::fs::read(path).is_ok_and(|bytes| Image::declared_size(&bytes, "").is_ok())
}

/// A search for images.
#[derive(Default)]
struct Search {
    /// For a data set: lists and tar files are inputs, and images of data sets are left out.
    to_label: bool,
    /// Subfolders are not searched.
    is_flat: bool,
    /// Folders that results are written to.
    outputs: Vec<PathBuf>,
    found: Vec<FoundImage>,
    /// Paths that are left out of the current input: other files, and images in subfolders.
    others: Vec<PathBuf>,
    deeper: usize,
}

impl Search {
    fn add_input(&mut self, input: &Path) -> Result<()> {
        let text = input.to_string_lossy();
        let before = self.found.len();
        let why_empty = if text == "-" && self.to_label {
            self.listed(std::io::stdin().lock(), Path::new("stdin"))?;
            "the list on stdin is empty"
        } else if input.is_dir() {
            let here = input.canonicalize().unwrap_or_default();
            if let Some(output) = self.outputs.iter().find(|output| self.to_label && here.starts_with(output))
            {
                let why = format!("it is in the output folder, {}", output.display());
                return Err(no_image(input, &format!("{why}; choose another output folder")));
            }
            self.walk(input)?;
            if self.is_flat {
                "the folder contains none; a pattern such as 'folder/**/*.jpg' includes subfolders"
            } else {
                "the folder and its subfolders contain no images"
            }
        } else if let Some(list) = list_file(input).filter(|_| self.to_label) {
            let file = File::open(&list).map_err(|e| Error::io("cannot read the list", &list, e))?;
            self.listed(BufReader::new(file), &list)?;
            "the list is empty"
        } else if input.exists() {
            let relative = input.file_name().map(PathBuf::from).unwrap_or_default();
            self.add(input.to_owned(), relative)?;
            "the tar file contains no images"
        } else if text.contains(PATTERN) {
            self.matching(input)?;
            "the pattern matches no image"
        } else {
            return Err(no_image(input, "no such file or folder"));
        };
        self.report(input);
        if self.found.len() == before {
            return Err(no_image(input, why_empty));
        }
        Ok(())
    }

    /// Counts what was left out of an input in one line.
    fn report(&mut self, input: &Path) {
        let (others, deeper) = (std::mem::take(&mut self.others), std::mem::take(&mut self.deeper));
        let mut parts = Vec::new();
        if let Some(first) = others.first() {
            let count = others.len();
            parts.push(format!("{count} file(s) that are no images, {} first", first.display()));
        }
        if deeper > 0 {
            parts.push(format!("{deeper} image(s) in subfolders: '{}/**/*' includes them", input.display()));
        }
        if !parts.is_empty() {
            tracing::warn!("{}: left out {}", input.display(), parts.join(" and "));
        }
    }

    /// Adds a file, or the images of a tar file.
    fn add(&mut self, path: PathBuf, relative: PathBuf) -> Result<()> {
        if !self.to_label || !has_tar_extension(&path) || !path.is_file() {
            self.found.push(FoundImage { path, relative, frame: None });
            return Ok(());
        }
        let tar = TarFile::open(&path)?;
        let folder = relative.with_extension("");
        let image = |name: &str| FoundImage {
            path: member_path(&path, name),
            relative: member_path(&folder, name),
            frame: None,
        };
        self.found.extend(tar.names().map(image));
        if tar.problem.is_some() {
            self.found.push(FoundImage { path, relative, frame: None });
        }
        Ok(())
    }

    /// `true` if a path of a folder or a pattern is an image, one of a format that is not supported included: labelling reports
    /// it. A link to nothing is an image that cannot be read; pipes, devices and sockets are left out, as opening one may block.
    fn takes(&mut self, path: &Path) -> bool {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            return false;
        }
        let is_file = !path.metadata().is_ok_and(|found| !found.is_file());
        if is_file && (is_image_file(path) || has_unsupported_extension(path)) {
            return true;
        }
        let is_beside = path
            .extension()
            .is_some_and(|extension| BESIDE.contains(&extension.to_string_lossy().to_lowercase().as_str()));
        if !is_beside {
            self.others.push(path.to_owned());
        }
        false
    }

    /// The images of a list with one path per line. The path, without `..`, is the name in the data set.
    fn listed(&mut self, mut list: impl BufRead, name: &Path) -> Result<()> {
        let here = std::env::current_dir().unwrap_or_default();
        let folder = name.parent().unwrap_or(Path::new(""));
        let invalid = |number: u64, why: &str| {
            let message = format!("cannot read the list, {}, line {number}: {why}", name.display());
            Err(Error::invalid_data(message))
        };
        for number in 1.. {
            let mut line = Vec::new();
            // A list may be longer than the memory, and no list at all.
            let count = list.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
            if count.map_err(|e| Error::io("cannot read the list", name, e))? == 0 {
                break;
            }
            if line.len() as u64 == MAX_LINE {
                let why = format!("it has {MAX_LINE} bytes or more: expected one path a line");
                return invalid(number, &why);
            }
            let Ok(line) = String::from_utf8(line) else {
                return invalid(number, "it is not UTF-8: save the list as UTF-8");
            };
            // No path has a NUL: this one does not exist either, and is reported.
            let line = line.trim_start_matches('\u{feff}').trim_end().replace('\0', "\u{fffd}");
            if line.is_empty() {
                continue;
            }
            let path = PathBuf::from(&line);
            let relative = path.strip_prefix(&here).unwrap_or(&path).to_owned();
            // YOLO's own lists start with `./` for their folder.
            let beside = folder.join(&path);
            let is_beside = (line.starts_with("./") || !path.exists()) && beside.exists();
            self.add(if is_beside { beside } else { path }, relative)?;
        }
        Ok(())
    }

    /// Finds the images in a folder and its subfolders, ordered by path.
    fn walk(&mut self, root: &Path) -> Result<()> {
        let before = self.found.len();
        let mut folders = VecDeque::from([root.to_owned()]);
        // A link to a parent folder would never end. Of two paths to a folder, the shorter one counts.
        let mut seen = HashSet::new();
        while let Some(folder) = folders.pop_front() {
            let cannot = |e| Error::io("cannot read the folder", &folder, e);
            let whole = folder.canonicalize().map_err(cannot);
            let (whole, paths) = match whole.and_then(|whole| Ok((whole, entries(&folder)?))) {
                // Those in subfolders are only counted.
                Err(_) if self.is_flat && folder != root => continue,
                read => read?,
            };
            let is_output = self.outputs.contains(&whole) && folder != root;
            let is_data_set = self.to_label && folder.join(STATE_FOLDER).is_dir();
            if is_output || is_data_set || !seen.insert(whole) {
                continue;
            }
            for path in paths {
                if path.is_dir() {
                    if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                        folders.push_back(path);
                    }
                } else if self.is_flat && folder != root {
                    self.deeper += usize::from(has_image_extension(&path));
                } else if self.takes(&path) {
                    let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    self.found.push(FoundImage { path, relative, frame: None });
                }
            }
        }
        self.found[before..].sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    /// Finds the images that match a pattern, ordered by path. Names are relative to the part of the pattern without
    /// wildcards. Tar files are found by patterns that end in `.tar`.
    fn matching(&mut self, pattern: &Path) -> Result<()> {
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
                let why =
                    if path.is_dir() { "it is a folder; name it without braces" } else { "no such file" };
                return Err(no_image(&path, why));
            }
            let is_of_tars = self.to_label && has_tar_extension(&one);
            for path in glob::glob(&one).map_err(|e| invalid(&e.to_string()))? {
                let path = path.map_err(|e| {
                    Error::io("cannot read", e.path(), std::io::Error::other(e.error().to_string()))
                })?;
                let is_data_set =
                    self.to_label && path.ancestors().any(|folder| folder.join(STATE_FOLDER).is_dir());
                if path.is_dir() || is_data_set {
                    continue;
                }
                if (is_of_tars && has_tar_extension(&path) && path.is_file()) || self.takes(&path) {
                    matched.push(path);
                }
            }
        }
        // Patterns follow links to parent folders. Of several paths to an image, the shortest one counts.
        matched.sort_by_key(|path| (path.components().count(), path.clone()));
        let here = root.canonicalize().unwrap_or_default();
        let is_of = |output: &&PathBuf| self.to_label || !here.starts_with(output);
        let outputs: Vec<_> = self.outputs.iter().filter(is_of).collect();
        let mut seen = HashSet::new();
        let is_new = |path: &PathBuf| {
            // A link to nothing is an image that cannot be read.
            let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
            path.canonicalize().ok().or_else(in_folder).is_some_and(|whole| {
                !outputs.iter().any(|output| whole.starts_with(output)) && seen.insert(whole)
            })
        };
        matched.retain(is_new);
        matched.sort();
        matched.into_iter().try_for_each(|path| {
            let relative = path.strip_prefix(&root).unwrap_or(&path).to_owned();
            self.add(path, relative)
        })
    }
}

/// The characters of patterns.
const PATTERN: [char; 4] = ['*', '?', '[', '{'];
/// The most bytes of a line of a list.
const MAX_LINE: u64 = 64 << 10;
/// Extensions of files that lie beside images and are no images by right: labels, lists, archives.
const BESIDE: [&str; 10] = ["txt", "json", "jsonl", "xml", "csv", "yaml", "yml", "md", "tar", "zip"];

fn no_image(input: &Path, why: &str) -> Error {
    Error::invalid_argument(format!("cannot find images, {}: {why}", input.display()))
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

    /// A folder with these files, and the names of what is found.
    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a temporary folder");
            std::fs::write(path, content).expect("a temporary folder");
        }
        place
    }

    fn names(found: &[PathBuf], place: &Path) -> Vec<String> {
        let relative =
            |path: &PathBuf| path.strip_prefix(place).unwrap_or(path).to_string_lossy().into_owned();
        found.iter().map(relative).collect()
    }

    #[test]
    fn images_are_regular_files_by_name_or_content() {
        let jpeg = b"\xFF\xD8\xFF\xE1 and so on";
        let place = folder(&[
            ("drone.mpo", b"x"),
            ("scan.pbm", b"x"),
            ("download", jpeg),
            ("image.php", jpeg),
            ("sub/deep.png", b"x"),
            ("raw.dng", b"II*\0 and so on"),
            ("phone.heic", b"x"),
            ("a.txt", b"x"),
        ]);
        #[cfg(unix)]
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("b.png")).expect("a socket");
        let mut search = Search { is_flat: true, ..Search::default() };
        search.walk(place.path()).expect("it can be read");
        let found: Vec<PathBuf> = search.found.into_iter().map(|one| one.path).collect();
        let all = ["download", "drone.mpo", "image.php", "phone.heic", "scan.pbm"];
        assert_eq!(names(&found, place.path()), all);
        let left_out: &[&str] = if cfg!(unix) { &["b.png", "raw.dng"] } else { &["raw.dng"] };
        assert_eq!(
            (names(&search.others, place.path()), search.deeper),
            (left_out.iter().map(ToString::to_string).collect(), 1)
        );
        // Every command finds the same files; those that cannot be read are reported while labelling.
        let inputs = [place.path().to_owned()];
        let listed = list_images(&inputs, true, &[]).expect("there are images");
        let to_label = find_images(&inputs, Path::new("")).expect("there are images");
        let to_label: Vec<PathBuf> = to_label.into_iter().map(|one| one.path).collect();
        assert_eq!(
            names(&listed, place.path()),
            ["download", "drone.mpo", "image.php", "scan.pbm", "sub/deep.png"]
        );
        assert_eq!(to_label.len(), listed.len() + 1);
        #[cfg(unix)]
        assert!(
            crate::label::source::open_image(&place.path().join("b.png")).is_err_and(|e| {
                e.to_string().ends_with("b.png: it is a pipe or a device; expected a file")
            })
        );
    }

    #[test]
    fn lists_are_read_as_editors_save_them() {
        let place = folder(&[("set/a.png", b"x"), ("set/train.txt", b"./a.png\na.png\n")]);
        let in_folder = place.path().join("set/a.png");
        let long = format!("{}\n", "x".repeat(MAX_LINE as usize));
        let cases: [(&[u8], Result<&[&str], &str>); 6] = [
            (b"\xEF\xBB\xBFa.png\r\n\r\n b c.png \r\n", Ok(&["a.png", " b c.png"])),
            (b"a.png", Ok(&["a.png"])),
            (b"a\0b.png\nc.png", Ok(&["a\u{fffd}b.png", "c.png"])),
            (b"a.png\n\xFF.png\n", Err("list.txt, line 2: it is not UTF-8")),
            (b"\xFF\xFEa\0", Err("list.txt, line 1: it is not UTF-8")),
            (long.as_bytes(), Err("list.txt, line 1: it has 65536 bytes or more: expected one path a line")),
        ];
        for (text, expected) in cases {
            let mut search = Search { to_label: true, ..Search::default() };
            let read = search.listed(text, Path::new("list.txt")).map_err(|e| e.to_string());
            let found: Vec<PathBuf> = search.found.into_iter().map(|one| one.path).collect();
            match (read, expected) {
                (Ok(()), Ok(expected)) => assert_eq!(names(&found, Path::new("/")), expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (read, expected) => panic!("{read:?}, expected {expected:?}"),
            }
        }
        let found = find_images(&[place.path().join("set/train.txt")], Path::new("")).expect("two lines");
        assert!(
            found.iter().all(|one| one.path.canonicalize().ok() == in_folder.canonicalize().ok()),
            "{found:?}"
        );
        #[cfg(unix)]
        assert!(
            find_images(&["@/dev/zero".into()], Path::new(""))
                .is_err_and(|e| e.to_string().contains("line 1"))
        );
    }

    #[test]
    fn files_folders_and_patterns_for_every_command() {
        let place = folder(&[
            ("b.JPG", b"x"),
            ("a.png", b"x"),
            ("notes.txt", b"x"),
            ("odd [1].png", b"x"),
            ("star*?#%20:.png", b"x"),
            (".hidden.png", b"x"),
            ("phone.heic", b"x"),
            // Its content is that of another format, and not HEIC.
            ("named.heic", b"P5 1 1 255 x"),
            ("sub/c.png", b"x"),
            ("out/e.png", b"x"),
            ("set/.ocelli-label/journal", b"x"),
            ("set/images/d.png", b"x"),
            ("empty/notes", b"x"),
            ("phones/a.heic", b"x"),
        ]);
        #[cfg(unix)]
        std::os::unix::fs::symlink("nowhere", place.path().join("link.png")).expect("a temporary folder");
        #[cfg(not(unix))]
        std::fs::write(place.path().join("link.png"), b"x").expect("a temporary folder");
        let flat = ["a.png", "b.JPG", "link.png", "named.heic", "odd [1].png", "star*?#%20:.png"];
        let deep = [&flat[..5], &["set/images/d.png"], &flat[5..], &["sub/c.png"]].concat();
        let cases: [(&[&str], bool, Result<&[&str], &str>); 16] = [
            (&["out"], true, Ok(&["out/e.png"])),
            (&["**/e.png", "out/*.png"], true, Err("**/e.png: the pattern matches no image")),
            (&[""], false, Ok(&flat)),
            (&[""], true, Ok(&deep)),
            (&["a*.png"], true, Ok(&["a.png"])),
            (&["{a,b}.*"], true, Ok(&["a.png", "b.JPG"])),
            (&["set/images/*.png"], true, Ok(&["set/images/d.png"])),
            (&[".hidden.png"], true, Ok(&[".hidden.png"])),
            (&["b.JPG", "a.png", "a*.png"], true, Ok(&["b.JPG", "a.png"])),
            (&["odd [1].png", "star*?#%20:.png"], true, Ok(&["odd [1].png", "star*?#%20:.png"])),
            (&["none.png"], true, Err("no such file")),
            (&["*.gif"], true, Err("matches no image")),
            (&["empty"], false, Err("the folder contains none")),
            (&["empty"], true, Err("the folder and its subfolders contain no images")),
            (&["phones"], true, Err("HEIC, AVIF or JPEG XL images only")),
            (&["["], true, Err("invalid pattern")),
        ];
        for (inputs, subfolders, expected) in cases {
            let inputs: Vec<PathBuf> = inputs.iter().map(|input| place.path().join(input)).collect();
            match (
                list_images(&inputs, subfolders, &[place.path().join("out")]).map_err(|e| e.to_string()),
                expected,
            ) {
                (Ok(found), Ok(expected)) => assert_eq!(names(&found, place.path()), expected, "{inputs:?}"),
                (Err(message), Err(word)) => assert!(message.contains(word), "{inputs:?}: {message}"),
                (found, expected) => panic!("{inputs:?}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
