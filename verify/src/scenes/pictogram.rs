//! The pictograms, which are embedded in the library.

use std::sync::{LazyLock, OnceLock};

use ::image::ImageFormat;

use crate::scenes::sprite::Sprite;
use ocelli::{Error, Result};

/// Drawn by `training/builtin/draw_pictograms.py`, in the order of the vocabulary.
const SHEET: &[u8] = include_bytes!("pictograms.webp");
const COLUMNS: u32 = 10;
const CELL: u32 = 128;

static SPRITES: LazyLock<Vec<OnceLock<Sprite>>> =
    LazyLock::new(|| vocabulary().iter().map(|_| OnceLock::new()).collect());

static DECODED: LazyLock<::image::RgbaImage> = LazyLock::new(|| {
    ::image::load_from_memory_with_format(SHEET, ImageFormat::WebP)
        .expect("the sheet is embedded, and tests decode it")
        .into_rgba8()
});

pub use ocelli::builtin::vocabulary;

/// The indices of labels in the vocabulary.
pub(crate) fn indices_of(labels: &[impl AsRef<str>]) -> Result<Vec<usize>> {
    let index = |label: &str| {
        vocabulary().iter().position(|name| *name == label).ok_or_else(|| {
            Error::invalid_argument(format!(
                "cannot draw \"{label}\": no pictogram has this label; the labels are {} and {} others",
                vocabulary()[..6].join(", "),
                vocabulary().len() - 6
            ))
        })
    };
    labels.iter().map(|label| index(label.as_ref())).collect()
}

/// The pictogram at an index of the vocabulary, in its original size.
pub(super) fn sprite(index: usize) -> &'static Sprite {
    SPRITES[index].get_or_init(|| {
        let (left, top) = (index as u32 % COLUMNS * CELL, index as u32 / COLUMNS * CELL);
        let cell = ::image::imageops::crop_imm(&*DECODED, left, top, CELL, CELL).to_image();
        Sprite::from_rgba(&cell).trimmed(0.0).expect("every cell of the sheet has a pictogram")
    })
}
