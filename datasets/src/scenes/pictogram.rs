//! The pictograms: their names and pictures, as the program carries them.

use std::sync::{LazyLock, OnceLock};

use ::image::ImageFormat;

use crate::scenes::sprite::Sprite;
use ocelli::{Error, ErrorKind, Result};

/// Made by `demos/training/draw_pictograms.py`, in the order of the vocabulary.
const SHEET: &[u8] = include_bytes!("pictograms.webp");
const COLUMNS: u32 = 10;
const CELL: u32 = 128;

static SPRITES: LazyLock<Vec<OnceLock<Sprite>>> =
    LazyLock::new(|| vocabulary().iter().map(|_| OnceLock::new()).collect());

static DECODED: LazyLock<::image::RgbaImage> = LazyLock::new(|| {
    ::image::load_from_memory_with_format(SHEET, ImageFormat::WebP)
        .expect("the sheet is part of the program and was decoded by its tests")
        .into_rgba8()
});

pub use ocelli::builtin::vocabulary;

/// The places of names in the vocabulary.
pub(super) fn places_of(labels: &[impl AsRef<str>]) -> Result<Vec<usize>> {
    let place = |label: &str| {
        vocabulary().iter().position(|name| *name == label).ok_or_else(|| {
            let message = format!(
                "cannot draw \"{label}\": there is no pictogram of that name; {} and {} others have one",
                vocabulary()[..6].join(", "),
                vocabulary().len() - 6
            );
            Error::new(ErrorKind::InvalidArgument, message)
        })
    };
    labels.iter().map(|label| place(label.as_ref())).collect()
}

/// The pictogram at a place of the vocabulary, as large as the font has it.
pub(super) fn sprite(place: usize) -> &'static Sprite {
    SPRITES[place].get_or_init(|| {
        let (left, top) = (place as u32 % COLUMNS * CELL, place as u32 / COLUMNS * CELL);
        let cell = ::image::imageops::crop_imm(&*DECODED, left, top, CELL, CELL).to_image();
        Sprite::from_rgba(&cell).trimmed(0.0).expect("every cell of the sheet has a pictogram")
    })
}
