//! The page's example: a drawn scene of things that the built-in model knows. It is drawn when it is first asked for, so that
//! the program does not hold it.

use std::sync::OnceLock;

use image::ImageFormat;
use ocelli::Result;
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions};

/// What is in the example.
pub(crate) const NAMES: [&str; 4] = ["dog", "house", "tree", "butterfly"];
/// A scene without overlaps, in which the built-in model finds everything.
const SEED: u64 = 14;

/// The picture, as a PNG.
///
/// # Errors
/// If it cannot be encoded.
pub(crate) fn picture() -> Result<&'static [u8]> {
    static PICTURE: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(known) = PICTURE.get() {
        return Ok(known);
    }
    let png = scene()?.image.view().encoded(ImageFormat::Png, 0)?;
    Ok(PICTURE.get_or_init(|| png))
}

fn scene() -> Result<Scene> {
    let options = SceneOptions {
        width: 640,
        height: 480,
        objects: 8..=8,
        kinds: 4..=4,
        noisy: 0.0,
        labels: NAMES.map(str::to_owned).into(),
        sizes: None,
    };
    Ok(SceneGenerator::new(SEED, options)?.scene(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_each_of_its_names() {
        let scene = scene().expect("the names are in the vocabulary");
        for name in NAMES {
            assert!(scene.objects.iter().any(|object| object.label == name), "{name}");
        }
        assert!(picture().expect("it can be encoded").starts_with(b"\x89PNG"));
    }
}
