//! Files for annotated images.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::output::with_flag;
use image::ImageFormat;
use ocelli::{Error, ErrorKind, Image, Result};

use crate::check_output_file;

/// The paths of the annotated images: a file for one image, else files in a folder.
#[derive(Debug)]
pub struct Outputs {
    /// The folder to create, if any.
    folder: Option<PathBuf>,
    /// One per image.
    paths: Vec<PathBuf>,
}

impl Outputs {
    /// Plans the paths without writing. One image and a target with the extension of an image mean a file, anything else
    /// a folder. Images of the same name from several folders get numbers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if several images would go to one file, the format is unsupported, or an image would
    /// be overwritten by its annotated copy; [`ErrorKind::Io`] if the folder of the target does not exist.
    pub fn plan(target: &Path, sources: &[PathBuf]) -> Result<Self> {
        let refuse = |why: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("--output, {}: {why}", target.display())))
        };
        let ends_as_folder = target.to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
        let may_be_folder = ends_as_folder || target.is_dir() || target.extension().is_none();
        let plan = if !may_be_folder && ImageFormat::from_path(target).is_ok() {
            if sources.len() > 1 {
                return refuse(&format!("{} images do not fit in one file; name a folder", sources.len()));
            }
            check_image_file("--output", target)?;
            Self { folder: None, paths: vec![target.to_owned(); sources.len()] }
        } else {
            if !may_be_folder && sources.len() == 1 {
                ocelli::sink::check_picture_file(target).map_err(with_flag("--output"))?;
            }
            if target.exists() && !target.is_dir() {
                return refuse("it is a file, but not an image; name a folder");
            }
            Self { folder: Some(target.to_owned()), paths: names_in(target, sources) }
        };
        let originals: HashSet<PathBuf> =
            sources.iter().filter_map(|source| source.canonicalize().ok()).collect();
        let replaced = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| originals.contains(&path));
        match plan.paths.iter().find(replaced) {
            Some(path) => {
                refuse(&format!("it would overwrite the input {}; name another path", path.display()))
            }
            None => Ok(plan),
        }
    }

    /// Creates the folder, if any.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be created.
    pub fn create_folder(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create the folder", folder, e))
    }

    /// Writes the annotated copy of image `number` and returns its path.
    ///
    /// # Errors
    /// As [`ocelli::sink::write_picture`].
    pub fn write(&self, number: usize, annotated: &Image) -> Result<&Path> {
        let path = &self.paths[number];
        ocelli::sink::write_picture(path, annotated)?;
        Ok(path)
    }
}

/// Checks before the work begins that an image can be written to `path`. `flag` is the argument that names the file.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unsupported format, else as [`check_output_file`].
pub fn check_image_file(flag: &str, path: &Path) -> Result<()> {
    ocelli::sink::check_picture_file(path).map_err(with_flag(flag))?;
    check_output_file(flag, path)
}

/// A unique name for each image, without folder and extension, for all outputs of a run: images of equal names get numbers.
pub fn stems(sources: &[PathBuf]) -> Vec<String> {
    let mut taken = HashSet::new();
    let unique = |source: &PathBuf| {
        let stem = own_stem(source);
        let mut name = stem.clone();
        let mut number = 1;
        // Some file systems ignore case.
        while !taken.insert(name.to_lowercase()) {
            number += 1;
            name = format!("{stem}-{number}");
        }
        name
    };
    sources.iter().map(unique).collect()
}

fn own_stem(source: &Path) -> String {
    source.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy().into_owned())
}

/// A line for a run in which outputs are not named as their images.
pub fn renamed(sources: &[PathBuf], stems: &[String]) -> Option<String> {
    let mut changed = sources.iter().zip(stems).filter(|(source, stem)| own_stem(source) != **stem);
    let (source, stem) = changed.next()?;
    let others = changed.count();
    let others = if others == 0 { String::new() } else { format!(", and {others} more") };
    Some(format!("images have equal names: the outputs of {} are named {stem}{others}", source.display()))
}

/// The images' own names; formats that cannot be written become PNG.
fn names_in(folder: &Path, sources: &[PathBuf]) -> Vec<PathBuf> {
    let name = |(source, stem): (&PathBuf, String)| {
        let extension = match source.extension().map(|e| e.to_string_lossy().to_lowercase()) {
            Some(e) if ["jpg", "jpeg", "webp"].contains(&e.as_str()) => e,
            _ => "png".into(),
        };
        folder.join(format!("{stem}.{extension}"))
    };
    sources.iter().zip(stems(sources)).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_from_the_target_and_the_number_of_images() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("photos"))?;
        std::fs::create_dir(at("folder.png"))?;
        for name in ["photos/x.png", "photos/y.jpg", "notes"] {
            std::fs::write(at(name), b"x")?;
        }
        let cases: [(&str, &[&str], Result<&[&str], &str>); 17] = [
            ("out.png", &["x.png"], Ok(&["out.png"])),
            ("out.JPG", &["x.png"], Ok(&["out.JPG"])),
            ("out", &["x.png"], Ok(&["out/x.png"])),
            ("out.d/", &["x.png"], Ok(&["out.d/x.png"])),
            ("folder.png", &["x.gif"], Ok(&["folder.png/x.png"])),
            ("out", &["a/x.png", "b/x.png", "c/X.gif"], Ok(&["out/x.png", "out/x-2.png", "out/X-3.png"])),
            ("out", &["x-2.png", "a/x.png", "b/x.png"], Ok(&["out/x-2.png", "out/x.png", "out/x-3.png"])),
            ("out", &["A/i.jpg", "A/i.png", "B/i.png"], Ok(&["out/i.jpg", "out/i-2.png", "out/i-3.png"])),
            ("out", &["x.JPG", "y.webp", "z.tif"], Ok(&["out/x.jpg", "out/y.webp", "out/z.png"])),
            ("out.png", &["x.png", "y.png"], Err("2 images")),
            ("out.xyz", &["x.png"], Err("format")),
            ("out.gif", &["x.png"], Err("format")),
            ("none/out.png", &["x.png"], Err("does not exist")),
            ("notes/out.png", &["x.png"], Err("not a folder")),
            ("notes", &["x.png"], Err("is a file")),
            ("photos/x.png", &["photos/x.png"], Err("would overwrite")),
            ("photos", &["photos/x.png", "photos/y.jpg"], Err("would overwrite")),
        ];
        for (target, sources, expected) in cases {
            let sources: Vec<PathBuf> = sources.iter().map(|source| at(source)).collect();
            // `join` would drop a trailing separator.
            let target = PathBuf::from(format!("{}/{target}", folder.path().display()));
            match (Outputs::plan(&target, &sources), expected) {
                (Ok(found), Ok(expected)) => {
                    let expected: Vec<PathBuf> = expected.iter().map(|name| at(name)).collect();
                    assert_eq!(found.paths, expected, "{}", target.display());
                }
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{}: {e}", target.display()),
                (found, expected) => panic!("{}: {found:?}, expected {expected:?}", target.display()),
            }
        }
        Ok(())
    }

    #[test]
    fn all_outputs_have_one_name_and_a_changed_one_is_said() {
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let sources = files(&["A/i.jpg", "A/i.png", "B/i.png", "B/j.png"]);
        let stems = stems(&sources);
        assert_eq!(stems, ["i", "i-2", "i-3", "j"]);
        let said = renamed(&sources, &stems).expect("two are renamed");
        assert_eq!(said, "images have equal names: the outputs of A/i.png are named i-2, and 1 more");
        let alone = files(&["a.png", "b.jpg"]);
        assert_eq!(renamed(&alone, &super::stems(&alone)), None);
    }
}
