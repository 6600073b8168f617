//! Where a picture and its labels lie in the data set.

use super::pictures::split_ending;

/// The part of the data set that a picture is in.
pub(super) fn part(validation: bool) -> &'static str {
    if validation { "val" } else { "train" }
}

/// The picture below `images/`: its name, with an ending that trainers know.
pub(super) fn picture_path(name: &str, validation: bool) -> String {
    let (stem, ending) = split_ending(name);
    let ending = match ending.to_lowercase().as_str() {
        ".jpe" | ".jfif" => ".jpg",
        ".dib" => ".bmp",
        _ if is_converted(name) => ".png",
        _ => ending,
    };
    format!("{}/{stem}{ending}", part(validation))
}

/// The label file below `labels/`.
pub(super) fn label_path(name: &str, validation: bool) -> String {
    format!("{}/{}.txt", part(validation), split_ending(name).0)
}

/// Whether trainers do not read this format, so that the data set gets a PNG of it.
pub(super) fn is_converted(name: &str) -> bool {
    let ending = split_ending(name).1.to_lowercase();
    !matches!(
        ending.as_str(),
        ".jpg" | ".jpeg" | ".jpe" | ".jfif" | ".png" | ".bmp" | ".dib" | ".tif" | ".tiff" | ".webp"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_that_trainers_know() {
        for (name, picture, label) in [
            ("a/b.JPG", "train/a/b.JPG", "train/a/b.txt"),
            ("a.b.jfif", "train/a.b.jpg", "train/a.b.txt"),
            ("b.gif", "train/b.png", "train/b.txt"),
            ("b.ppm", "train/b.png", "train/b.txt"),
            ("no-ending", "train/no-ending.png", "train/no-ending.txt"),
            (".hidden", "train/.hidden.png", "train/.hidden.txt"),
        ] {
            assert_eq!((picture_path(name, false), label_path(name, false)), (picture.into(), label.into()));
        }
        assert_eq!(picture_path("a.png", true), "val/a.png");
    }
}
