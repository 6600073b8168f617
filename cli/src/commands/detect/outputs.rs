//! Files that `ocelli detect` writes: annotated images, `--semantic` and `--sheet`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageFormat};
use ocelli::atomic_file::write_atomically;
use ocelli::mask::SemanticMap;
use ocelli::sink::{check_image_format, write_image};
use ocelli::{Error, Image, Result};

use crate::check_output_file;
use crate::output::with_flag;

/// The files of the annotated images, without writing: one image and a target with the extension of an image mean a file,
/// anything else a folder. Images of the same name from several folders get numbers.
///
/// # Errors
/// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if several images would go to one file, the format is unsupported, or
/// an image would be overwritten by its annotated copy; [`Io`](ocelli::ErrorKind::Io) if the folder of the target does not exist.
pub fn annotated_files(target: &Path, sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let refuse = |why: &str| Err(Error::invalid_argument(format!("--output, {}: {why}", target.display())));
    let ends_as_folder = target.to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
    let may_be_folder = ends_as_folder || target.is_dir() || target.extension().is_none();
    let files = if !may_be_folder && ImageFormat::from_path(target).is_ok() {
        if sources.len() > 1 {
            return refuse(&format!("{} images do not fit in one file; name a folder", sources.len()));
        }
        check_image_file("--output", target)?;
        vec![target.to_owned(); sources.len()]
    } else {
        if !may_be_folder && sources.len() == 1 {
            check_image_format(target).map_err(with_flag("--output"))?;
        }
        if target.exists() && !target.is_dir() {
            return refuse("it is a file, but not an image; name a folder");
        }
        names_in(target, sources)
    };
    let originals: HashSet<PathBuf> =
        sources.iter().filter_map(|source| source.canonicalize().ok()).collect();
    let replaced = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| originals.contains(&path));
    match files.iter().find(replaced) {
        Some(path) => refuse(&format!("it would overwrite the input {}; name another path", path.display())),
        None => Ok(files),
    }
}

/// Checks before the work begins that an image can be written to `path`. `flag` is the argument that names the file.
///
/// # Errors
/// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for an unsupported format, else as [`check_output_file`].
pub fn check_image_file(flag: &str, path: &Path) -> Result<()> {
    check_image_format(path).map_err(with_flag(flag))?;
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

/// Checks the folder of `--semantic` before the work begins.
///
/// # Errors
/// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if it is a file.
pub fn check_semantic_folder(folder: &Path) -> Result<()> {
    if folder.exists() && !folder.is_dir() {
        refuse!("--semantic, {}: it is a file; name a folder", folder.display());
    }
    Ok(())
}

/// Writes the maps of the image with this stem into a folder, each atomically, and returns their paths:
/// `street-red_apple.png` is white where red apples are in `street.jpg`.
///
/// # Errors
/// [`Io`](ocelli::ErrorKind::Io) if one cannot be written.
pub fn write_maps(folder: &Path, stem: &str, maps: &[SemanticMap]) -> Result<Vec<PathBuf>> {
    let write = |map: &SemanticMap| {
        let path = folder.join(name(stem, map, maps));
        let pixels: Vec<u8> = map.mask.to_bitmap().into_iter().map(|inside| 255 * inside).collect();
        let (width, height, color) = (map.mask.width(), map.mask.height(), ExtendedColorType::L8);
        write_atomically(&path, |file| {
            image::write_buffer_with_format(file, &pixels, width, height, color, ImageFormat::Png)
                .map_err(std::io::Error::other)
        })?;
        Ok(path)
    };
    maps.iter().map(write).collect()
}

/// The label reduced to letters and digits; labels that become equal get the number of their class.
fn name(stem: &str, map: &SemanticMap, maps: &[SemanticMap]) -> String {
    let label = safe(&map.label);
    let same = maps.iter().filter(|other| safe(&other.label) == label).count();
    if same == 1 { format!("{stem}-{label}.png") } else { format!("{stem}-{label}-{}.png", map.class_id) }
}

/// A label as part of a file name, within the length that file systems allow.
fn safe(label: &str) -> String {
    let letters = label.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' });
    letters.flat_map(char::to_lowercase).take(60).collect()
}

/// Width and height of a cell in pixels.
const CELL: (u32, u32) = (480, 360);
/// Pixels between and around cells.
const GAP: u32 = 8;
/// Background colour.
const PAPER: [u8; 3] = [245, 245, 245];
/// A larger page would be too large for image viewers.
const MAX_IMAGES: usize = 400;

/// Annotated images, scaled to cells of one page.
#[derive(Debug, Default)]
pub struct ContactSheet {
    cells: Vec<Image>,
}

impl ContactSheet {
    /// Adds an image; those after the first 400 are left out.
    pub fn add(&mut self, image: &Image) -> Result<()> {
        if self.cells.len() < MAX_IMAGES {
            self.cells.push(image.fitted(CELL)?);
        }
        Ok(())
    }

    /// The page, as close to a square grid as possible; `None` without images.
    pub fn page(&self) -> Result<Option<Image>> {
        if self.cells.is_empty() {
            return Ok(None);
        }
        let columns = (self.cells.len() as f64).sqrt().ceil() as u32;
        let rows = (self.cells.len() as u32).div_ceil(columns);
        let size = |count: u32, cell: u32| count * (cell + GAP) + GAP;
        let mut page = Image::filled(size(columns, CELL.0), size(rows, CELL.1), PAPER)?;
        for (i, cell) in self.cells.iter().enumerate() {
            let (column, row) = (i as u32 % columns, i as u32 / columns);
            page.place(cell, [size(column, CELL.0), size(row, CELL.1), CELL.0, CELL.1]);
        }
        Ok(Some(page))
    }

    /// Writes the page, if there are images.
    ///
    /// # Errors
    /// As [`page`](Self::page), and if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        match self.page()? {
            Some(page) => write_image(path, &page),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ocelli::Mask;

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
            match (annotated_files(&target, &sources), expected) {
                (Ok(found), Ok(expected)) => {
                    let expected: Vec<PathBuf> = expected.iter().map(|name| at(name)).collect();
                    assert_eq!(found, expected, "{}", target.display());
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

    #[test]
    fn names_are_safe_and_distinct() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let sources = ["a/x.png", "b/x.jpg", "x-2.png"].map(PathBuf::from);
        let map = |class_id: usize, label: &str| SemanticMap {
            class_id,
            label: label.into(),
            mask: Mask::from_bitmap(&[0, 1, 1, 0, 0, 1], 3, 2).expect("3 × 2 is six"),
        };
        let maps = [map(0, "Red Apple"), map(1, "../../etc"), map(2, "red/apple"), map(3, &"dog".repeat(99))];
        let mut names = Vec::new();
        for stem in stems(&sources) {
            let written = write_maps(parent.path(), &stem, &maps).map_err(std::io::Error::other)?;
            names.extend(written.iter().map(|path| {
                assert_eq!(path.parent(), Some(parent.path()));
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }));
        }
        assert_eq!(&names[..3], ["x-red_apple-0.png", "x-______etc.png", "x-red_apple-2.png"]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 12, "{names:?}");
        let image = image::open(parent.path().join(&names[0])).map_err(std::io::Error::other)?;
        assert_eq!(image.into_luma8().into_raw(), [0, 255, 255, 0, 0, 255]);
        Ok(())
    }

    #[test]
    fn a_page_contains_every_image() {
        for (count, columns, rows) in [(1, 1, 1), (2, 2, 1), (6, 3, 2), (7, 3, 3)] {
            let mut sheet = ContactSheet::default();
            for i in 0..count {
                sheet.add(&Image::filled(100 + i, 50, [255, 0, 0]).expect("a size")).expect("it fits");
            }
            let page = sheet.page().expect("a size").expect("there are images");
            let expected = (columns * (CELL.0 + GAP) + GAP, rows * (CELL.1 + GAP) + GAP);
            assert_eq!((page.width(), page.height()), expected, "{count} images");
            let red = page.as_rgb8().chunks_exact(3).filter(|p| *p == [255, 0, 0]).count();
            assert!(red > count as usize * 480 * 200, "{count} images: {red} red pixels");
        }
        assert!(ContactSheet::default().page().expect("no error").is_none());
    }
}
