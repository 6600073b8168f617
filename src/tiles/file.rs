//! An image file of any size, read in parts where its format allows.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::band::Band;
use super::{Region, Regions};
use crate::frame_view::FrameView;
use crate::image::{Image, MAX_FILE_BYTES};
use ocelli_error::{Error, Result};
use ocelli_images::image::{check_size, guarded, invalid};
use ocelli_images::rows::{FileRows, PngRows, Refused, TiffRows, is_tiff};

pub use ocelli_images::rows::MAX_TILED_PIXELS;

/// An image file for a search in tiles.
///
/// A PNG is decoded row by row, and a TIFF by its strips or tiles: in memory are the rows of one row of tiles, and the image in
/// the width of the model's input. The rest is decoded at once: JPEG and the other formats, interlaced PNG, files with an EXIF
/// orientation, and TIFF with separate planes or rare sample formats; this takes three bytes for each pixel.
pub struct TiledImage(Source);

enum Source {
    /// Read in parts.
    Rows(Box<dyn Regions + Send>),
    Whole(Image),
}

impl TiledImage {
    /// Opens a file and reads its header; a file that is not read in parts is decoded.
    ///
    /// # Errors
    /// As [`Image::open`]; of a file that is read in parts, [`MAX_TILED_PIXELS`] is the limit, and its bytes have none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |error| Error::io("cannot read the image", path, error);
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        if file.metadata().map_err(failed)?.is_file() {
            file.by_ref().take(8).read_to_end(&mut start).map_err(failed)?;
        }
        let opened = match &start[..] {
            [0x89, b'P', b'N', b'G', ..] => in_rows(PngRows::open, &file, &name),
            start if is_tiff(start) => in_rows(TiffRows::open, &file, &name),
            _ => Err(None),
        };
        match opened {
            Ok(rows) => Ok(Self(Source::Rows(rows))),
            Err(Some(error)) => Err(error),
            Err(None) => {
                if !start.is_empty() {
                    file.seek(SeekFrom::Start(0)).map_err(failed)?;
                }
                let mut bytes = Vec::new();
                file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
                Image::decode(&bytes, &name).map(|image| Self(Source::Whole(image)))
            }
        }
    }
}

/// The rows of a file, or `None` for a file that is not in rows.
fn in_rows<R: FileRows + Send + 'static>(
    open: fn(&File) -> Result<R, Refused>,
    file: &File,
    name: &str,
) -> Result<Box<dyn Regions + Send>, Option<Error>> {
    let opened = guarded(name, || match open(file) {
        Ok(rows) => Ok(Some(rows)),
        Err(Refused::NotInRows) => Ok(None),
        Err(refused) => Err(refused.about(name)),
    });
    let rows = opened.map_err(Some)?.ok_or(None)?;
    let (width, height) = rows.size();
    check_size(width, height, MAX_TILED_PIXELS).map_err(|why| Some(invalid(name, &why)))?;
    Ok(Box::new(Band::new(rows, name)))
}

impl Regions for TiledImage {
    fn size(&self) -> (u32, u32) {
        match &self.0 {
            Source::Rows(band) => band.size(),
            Source::Whole(image) => (image.width(), image.height()),
        }
    }

    fn region(&mut self, region: Region) -> Result<FrameView<'_>> {
        match &mut self.0 {
            Source::Rows(band) => band.region(region),
            Source::Whole(image) => super::part_of((&*image).into(), region),
        }
    }

    fn whole(&mut self, side: u32) -> Result<FrameView<'_>> {
        match &mut self.0 {
            Source::Rows(band) => band.whole(side),
            Source::Whole(image) => Ok((&*image).into()),
        }
    }
}

impl From<Image> for TiledImage {
    /// An image that is decoded already.
    fn from(image: Image) -> Self {
        Self(Source::Whole(image))
    }
}

#[cfg(test)]
mod tests;
