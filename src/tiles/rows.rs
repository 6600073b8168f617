//! Rows of files whose format can be decoded in parts: PNG row by row, TIFF by strips and tiles.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use ::png::{BitDepth, ColorType, Transformations};
use tiff::decoder::ifd::Value;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;

use super::band::Rows;

/// The most bytes of a strip or tile of a TIFF file, decoded.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// The most bytes of a value in the directory of a TIFF file, such as the places of its strips.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// The most bytes of metadata of a PNG file.
const MAX_METADATA_BYTES: usize = 32 << 20;

/// Why a file cannot be read in rows.
pub(super) enum Refused {
    /// It has to be decoded at once.
    NotInRows,
    /// It is corrupt, with the reason.
    Corrupt(String),
}

impl From<tiff::TiffError> for Refused {
    fn from(error: tiff::TiffError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<::png::DecodingError> for Refused {
    fn from(error: ::png::DecodingError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Appends pixels of `channels` samples in 8 bits as RGB: grey is copied, what follows colours is dropped.
fn append_rgb(pixels: &[u8], channels: usize, rows: &mut Vec<u8>) {
    match channels {
        3 => rows.extend_from_slice(pixels),
        1 | 2 => rows.extend(pixels.chunks_exact(channels).flat_map(|pixel| [pixel[0]; 3])),
        _ => rows.extend(pixels.chunks_exact(channels).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])),
    }
}

/// The rows of a PNG file.
pub(super) struct PngRows {
    file: File,
    reader: ::png::Reader<BufReader<File>>,
    channels: usize,
}

impl PngRows {
    /// Reads the header. Interlaced files are not in rows.
    pub(super) fn open(file: &File) -> Result<Self, Refused> {
        let reader = Self::start(file)?;
        let info = reader.info();
        if info.interlaced || info.exif_metadata.is_some() {
            return Err(Refused::NotInRows);
        }
        let (color, depth) = reader.output_color_type();
        let channels = match color {
            ColorType::Grayscale => 1,
            ColorType::GrayscaleAlpha => 2,
            ColorType::Rgb => 3,
            ColorType::Rgba => 4,
            ColorType::Indexed => return Err(Refused::NotInRows),
        };
        match depth {
            BitDepth::Eight => Ok(Self { file: file.try_clone()?, reader, channels }),
            _ => Err(Refused::NotInRows),
        }
    }

    fn start(file: &File) -> Result<::png::Reader<BufReader<File>>, Refused> {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        let limits = ::png::Limits { bytes: MAX_METADATA_BYTES };
        let mut decoder = ::png::Decoder::new_with_limits(BufReader::new(file), limits);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        Ok(decoder.read_info()?)
    }
}

/// The rows of a file, without its name.
pub(super) trait FileRows {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);
    /// As [`Rows::restart`].
    fn restart(&mut self) -> Result<(), Refused>;
    /// As [`Rows::append_to`].
    fn append_to(&mut self, rows: &mut Vec<u8>) -> Result<(), Refused>;
}

impl FileRows for PngRows {
    fn size(&self) -> (u32, u32) {
        self.reader.info().size()
    }

    fn restart(&mut self) -> Result<(), Refused> {
        self.reader = Self::start(&self.file)?;
        Ok(())
    }

    fn append_to(&mut self, rows: &mut Vec<u8>) -> Result<(), Refused> {
        let row = self.reader.next_row()?;
        let row = row.ok_or_else(|| Refused::Corrupt("it has too few rows".into()))?;
        append_rgb(row.data(), self.channels, rows);
        Ok(())
    }
}

/// The conversion of a TIFF file's samples to RGB.
#[derive(Clone, Copy)]
enum Samples {
    /// Grey or red, green, blue and then others.
    Channels(usize),
    /// Luma and chroma, as JPEG has them.
    YCbCr,
}

/// The rows of a TIFF file, a strip or a row of tiles at a time.
pub(super) struct TiffRows {
    decoder: Decoder<BufReader<File>>,
    size: (u32, u32),
    /// Width and height of a strip or tile.
    chunk: (u32, u32),
    samples: Samples,
    /// The first of the next row of chunks.
    next: u32,
}

impl TiffRows {
    /// Reads the directory. Files with rare sample formats, separate planes, or an orientation are not in rows.
    pub(super) fn open(file: &File) -> Result<Self, Refused> {
        let mut decoder = open_tiff(file)?;
        let size = decoder.dimensions()?;
        let is_upright = matches!(decoder.find_tag_unsigned::<u16>(Tag::Orientation)?, None | Some(1));
        let is_planar = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration)? == Some(2);
        let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?.unwrap_or_default();
        let is_unsigned = formats.iter().all(|&format| format == 1);
        let samples = match decoder.colortype()? {
            tiff::ColorType::Gray(8 | 16) => Samples::Channels(1),
            tiff::ColorType::GrayA(8 | 16) => Samples::Channels(2),
            tiff::ColorType::RGB(8 | 16) => Samples::Channels(3),
            tiff::ColorType::RGBA(8 | 16) => Samples::Channels(4),
            tiff::ColorType::YCbCr(8) => Samples::YCbCr,
            // Aerial imagery with infrared.
            tiff::ColorType::Multiband { bit_depth: 8 | 16, num_samples } => {
                Samples::Channels(usize::from(num_samples))
            }
            _ => return Err(Refused::NotInRows),
        };
        if !is_upright || is_planar || !is_unsigned {
            return Err(Refused::NotInRows);
        }
        let chunk = decoder.chunk_dimensions();
        if chunk.0 == 0 || chunk.1 == 0 {
            return Err(Refused::Corrupt("its strips or tiles have no pixels".into()));
        }
        Ok(Self { decoder, size, chunk, samples, next: 0 })
    }
}

/// A decoder that has read the first directory.
pub(super) fn open_tiff(file: &File) -> Result<Decoder<BufReader<File>>, Refused> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(0))?;
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MAX_CHUNK_BYTES;
    limits.intermediate_buffer_size = MAX_CHUNK_BYTES;
    limits.ifd_value_size = MAX_VALUE_BYTES;
    Ok(Decoder::new(BufReader::new(file))?.with_limits(limits))
}

/// True if a file starts as TIFF files do.
pub(crate) fn has_tiff_start(mut file: &File) -> std::io::Result<bool> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(4).read_to_end(&mut start)?;
    Ok(is_tiff(&start))
}

/// True for the first bytes of a TIFF file.
pub(super) fn is_tiff(start: &[u8]) -> bool {
    matches!(start, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

/// The first directory of a TIFF file.
pub(crate) struct TiffTags<'n> {
    decoder: Decoder<BufReader<File>>,
    name: &'n str,
}

impl<'n> TiffTags<'n> {
    /// Reads the directory; errors call the file `name`.
    pub(crate) fn open(file: &File, name: &'n str) -> ocelli_error::Result<Self> {
        let decoder = crate::image::guarded(name, || open_tiff(file).map_err(|refused| refused.about(name)))?;
        Ok(Self { decoder, name })
    }

    /// The numbers of a tag; `None` if the file does not have the tag.
    pub(crate) fn numbers(&mut self, tag: u16) -> ocelli_error::Result<Option<Vec<f64>>> {
        let value = self.decoder.find_tag(Tag::from_u16_exhaustive(tag));
        let numbers = value.and_then(|value| value.map(as_numbers).transpose());
        numbers.map_err(|error| Refused::from(error).about(self.name))
    }
}

fn as_numbers(value: Value) -> tiff::TiffResult<Vec<f64>> {
    match value {
        Value::List(values) => values.into_iter().map(as_number).collect(),
        one => Ok(vec![as_number(one)?]),
    }
}

fn as_number(value: Value) -> tiff::TiffResult<f64> {
    match value {
        Value::Double(number) => Ok(number),
        other => other.into_u64().map(|number| number as f64),
    }
}

impl FileRows for TiffRows {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn restart(&mut self) -> Result<(), Refused> {
        self.next = 0;
        Ok(())
    }

    fn append_to(&mut self, rows: &mut Vec<u8>) -> Result<(), Refused> {
        let ((width, height), (chunk_width, chunk_height)) = (self.size, self.chunk);
        let top = u64::from(self.next) * u64::from(chunk_height);
        if top >= u64::from(height) {
            return Err(Refused::Corrupt("it has too few rows".into()));
        }
        let count = u64::from(chunk_height).min(u64::from(height) - top) as usize;
        let columns = width.div_ceil(chunk_width);
        let start = rows.len();
        let row_bytes = width as usize * 3;
        rows.resize(start + count * row_bytes, 0);
        let mut line = Vec::new();
        for column in 0..columns {
            let index = self.next * columns + column;
            let (data_width, data_height) = self.decoder.chunk_data_dimensions(index);
            let samples = self.decoder.read_chunk(index)?;
            let channels = match self.samples {
                Samples::Channels(channels) => channels,
                Samples::YCbCr => 3,
            };
            for y in 0..count.min(data_height as usize) {
                line.clear();
                let range = y * data_width as usize * channels..(y + 1) * data_width as usize * channels;
                let missing = || Refused::Corrupt("a strip or tile is too short".into());
                match &samples {
                    DecodingResult::U8(samples) => {
                        append_rgb(samples.get(range).ok_or_else(missing)?, channels, &mut line);
                    }
                    DecodingResult::U16(samples) => {
                        let samples = samples.get(range).ok_or_else(missing)?;
                        let high: Vec<u8> = samples.iter().map(|sample| (sample >> 8) as u8).collect();
                        append_rgb(&high, channels, &mut line);
                    }
                    _ => return Err(Refused::NotInRows),
                }
                if matches!(self.samples, Samples::YCbCr) {
                    line.as_chunks_mut().0.iter_mut().for_each(|pixel| *pixel = from_ycbcr(*pixel));
                }
                let at = start + y * row_bytes + (column * chunk_width) as usize * 3;
                rows[at..at + line.len()].copy_from_slice(&line);
            }
        }
        self.next += 1;
        Ok(())
    }
}

/// JPEG's conversion (JFIF 1.02).
fn from_ycbcr([y, blue, red]: [u8; 3]) -> [u8; 3] {
    let (y, blue, red) = (f32::from(y), f32::from(blue) - 128.0, f32::from(red) - 128.0);
    let rgb = [y + 1.402 * red, y - 0.344_136 * blue - 0.714_136 * red, y + 1.772 * blue];
    rgb.map(|value| value.round().clamp(0.0, 255.0) as u8)
}

/// Rows of a file, whose errors name it.
pub(super) struct NamedRows<R> {
    pub(super) rows: R,
    pub(super) name: String,
}

impl<R: FileRows> Rows for NamedRows<R> {
    fn size(&self) -> (u32, u32) {
        self.rows.size()
    }

    fn restart(&mut self) -> ocelli_error::Result<()> {
        let Self { rows, name } = self;
        crate::image::guarded(name, || rows.restart().map_err(|refused| refused.about(name)))
    }

    fn append_to(&mut self, to: &mut Vec<u8>) -> ocelli_error::Result<()> {
        let Self { rows, name } = self;
        crate::image::guarded(name, || rows.append_to(to).map_err(|refused| refused.about(name)))
    }
}

impl Refused {
    /// The error of a file.
    pub(super) fn about(self, name: &str) -> ocelli_error::Error {
        let why = match self {
            Self::NotInRows => "its samples change from part to part".to_owned(),
            Self::Corrupt(why) => why.lines().map(str::trim).collect::<Vec<_>>().join(" "),
        };
        crate::image::invalid(name, &why)
    }
}
