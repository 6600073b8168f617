//! Where annotated pictures go.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::{check_output_file, with_flag};
use image::{ImageFormat, RgbImage};
use ocelli::{Error, ErrorKind, ImageView, Result};

/// Where the annotated pictures go: one file for one picture, else a folder.
#[derive(Debug)]
pub struct Outputs {
    /// The folder to make, if it is one.
    folder: Option<PathBuf>,
    /// One for each picture.
    paths: Vec<PathBuf>,
}

impl Outputs {
    /// Decides by the number of pictures and the target's name: one picture and a name with the ending of a picture
    /// mean a file, everything else a folder. Pictures of one name from several folders get numbers. Nothing is
    /// written yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where several pictures would go to one file, the format cannot be written, or a
    /// picture would be replaced by its own annotated copy; [`ErrorKind::Io`] where the place cannot be.
    pub fn plan(target: &Path, sources: &[PathBuf]) -> Result<Self> {
        let refuse = |why: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("--output, {}: {why}", target.display())))
        };
        let ends_as_folder = target.to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
        let may_be_folder = ends_as_folder || target.is_dir() || target.extension().is_none();
        let plan = if !may_be_folder && ImageFormat::from_path(target).is_ok() {
            if sources.len() > 1 {
                return refuse(&format!("{} pictures do not fit in one file; name a folder", sources.len()));
            }
            check_picture_file("--output", target)?;
            Self { folder: None, paths: vec![target.to_owned(); sources.len()] }
        } else {
            if !may_be_folder && sources.len() == 1 {
                ocelli::sink::check_picture_file(target).map_err(with_flag("--output"))?;
            }
            if target.exists() && !target.is_dir() {
                return refuse("it is a file that is no picture; name a folder");
            }
            Self { folder: Some(target.to_owned()), paths: names_in(target, sources) }
        };
        let originals: HashSet<PathBuf> =
            sources.iter().filter_map(|source| source.canonicalize().ok()).collect();
        let replaced = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| originals.contains(&path));
        match plan.paths.iter().find(replaced) {
            Some(path) => {
                refuse(&format!("it would replace the picture {}; name another place", path.display()))
            }
            None => Ok(plan),
        }
    }

    /// Makes the folder, if it is one and is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it cannot be made.
    pub fn create_folder(&self) -> Result<()> {
        match &self.folder {
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create the folder", folder, e))
            }
            None => Ok(()),
        }
    }

    /// Writes the annotated copy of the picture of this number and says where.
    ///
    /// # Errors
    /// As [`write_picture`].
    pub fn write(&self, number: usize, picture: &RgbImage) -> Result<&Path> {
        let path = &self.paths[number];
        write_picture(path, picture)?;
        Ok(path)
    }
}

/// Finds out before the work begins whether a picture can be written there. `flag` is the argument that names the file.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a format that cannot be written, else as [`check_output_file`].
pub fn check_picture_file(flag: &str, path: &Path) -> Result<()> {
    ocelli::sink::check_picture_file(path).map_err(with_flag(flag))?;
    check_output_file(flag, path)
}

/// Writes a picture in the format that its name says; PNG where it says none.
///
/// # Errors
/// As [`ocelli::sink::write_picture`].
pub fn write_picture(path: &Path, picture: &RgbImage) -> Result<()> {
    ocelli::sink::write_picture(path, ImageView::new(picture.width(), picture.height(), picture.as_raw())?)
}

/// A name for each picture, without ending and without folder: its own; one that is taken gets a number.
pub fn stems(sources: &[PathBuf]) -> Vec<String> {
    let names = names_in(Path::new(""), sources);
    let stem = |name: &PathBuf| {
        name.file_stem().map_or_else(|| "picture".into(), |stem| stem.to_string_lossy().into_owned())
    };
    let mut taken = HashSet::new();
    let mut free = |stem: String| {
        let mut name = stem.clone();
        let mut number = 1;
        while !taken.insert(name.to_lowercase()) {
            number += 1;
            name = format!("{stem}-{number}");
        }
        name
    };
    names.iter().map(stem).map(&mut free).collect()
}

/// The pictures' own names; a name that is taken gets a number, a format that is not written becomes PNG.
fn names_in(folder: &Path, sources: &[PathBuf]) -> Vec<PathBuf> {
    let mut taken = HashSet::new();
    let free_name = |source: &PathBuf| {
        let stem = source.file_stem().map_or_else(|| "picture".into(), |s| s.to_string_lossy().into_owned());
        let ending = match source.extension().map(|e| e.to_string_lossy().to_lowercase()) {
            Some(e) if ["jpg", "jpeg", "webp"].contains(&e.as_str()) => e,
            _ => "png".into(),
        };
        let mut name = format!("{stem}.{ending}");
        let mut number = 1;
        // Some file systems take A.png and a.png for one file.
        while !taken.insert(name.to_lowercase()) {
            number += 1;
            name = format!("{stem}-{number}.{ending}");
        }
        folder.join(name)
    };
    sources.iter().map(free_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_pictures_go() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("pictures"))?;
        std::fs::create_dir(at("folder.png"))?;
        for name in ["pictures/x.png", "pictures/y.jpg", "notes"] {
            std::fs::write(at(name), b"x")?;
        }
        let cases: [(&str, &[&str], Result<&[&str], &str>); 16] = [
            ("out.png", &["x.png"], Ok(&["out.png"])),
            ("out.JPG", &["x.png"], Ok(&["out.JPG"])),
            ("out", &["x.png"], Ok(&["out/x.png"])),
            ("out.d/", &["x.png"], Ok(&["out.d/x.png"])),
            ("folder.png", &["x.gif"], Ok(&["folder.png/x.png"])),
            ("out", &["a/x.png", "b/x.png", "c/X.gif"], Ok(&["out/x.png", "out/x-2.png", "out/X-3.png"])),
            ("out", &["x-2.png", "a/x.png", "b/x.png"], Ok(&["out/x-2.png", "out/x.png", "out/x-3.png"])),
            ("out", &["x.JPG", "y.webp", "z.tif"], Ok(&["out/x.jpg", "out/y.webp", "out/z.png"])),
            ("out.png", &["x.png", "y.png"], Err("2 pictures")),
            ("out.xyz", &["x.png"], Err("format")),
            ("out.gif", &["x.png"], Err("format")),
            ("none/out.png", &["x.png"], Err("does not exist")),
            ("notes/out.png", &["x.png"], Err("no folder")),
            ("notes", &["x.png"], Err("is a file")),
            ("pictures/x.png", &["pictures/x.png"], Err("would replace")),
            ("pictures", &["pictures/x.png", "pictures/y.jpg"], Err("would replace")),
        ];
        for (target, sources, expected) in cases {
            let sources: Vec<PathBuf> = sources.iter().map(|source| at(source)).collect();
            // `join` would drop the separator at the end.
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
}
