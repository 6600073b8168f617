//! Rows of files whose format can be decoded in parts: PNG row by row, TIFF by strips and tiles.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};

use ::png::{BitDepth, ColorType, Transformations};
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;

use crate::image::{MAX_PIXELS, TRUNCATED, check_size, no_memory};

/// The most bytes of a strip or tile of a TIFF file, decoded.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// The most bytes of a value in the directory of a TIFF file, such as the places of its strips.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// The most bytes of metadata of a PNG file.
const MAX_METADATA_BYTES: usize = 32 << 20;

/// The most pixels of an image that is searched in tiles: those of a mask. A side has at most
/// [`MAX_SIDE`](crate::image::MAX_SIDE) pixels.
pub const MAX_TILED_PIXELS: u64 = u32::MAX as u64;

/// Why a file cannot be read in rows.
pub enum Refused {
    /// It has to be decoded at once.
    NotInRows,
    /// It is corrupt, with the reason.
    Corrupt(String),
}

impl From<tiff::TiffError> for Refused {
    fn from(error: tiff::TiffError) -> Self {
        match error {
            tiff::TiffError::IoError(error) => error.into(),
            other => Self::Corrupt(other.to_string()),
        }
    }
}

impl From<::png::DecodingError> for Refused {
    fn from(error: ::png::DecodingError) -> Self {
        match error {
            ::png::DecodingError::IoError(error) => error.into(),
            other => Self::Corrupt(other.to_string()),
        }
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Corrupt(TRUNCATED.into()),
            _ => Self::Corrupt(error.to_string()),
        }
    }
}

/// Room for bytes whose number a file declares, or an error of the file.
fn reserve(rows: &mut Vec<u8>, bytes: u64) -> Result<(), Refused> {
    let reserved = usize::try_from(bytes).ok().and_then(|bytes| rows.try_reserve_exact(bytes).ok());
    reserved.ok_or_else(|| Refused::Corrupt(no_memory(bytes)))
}

/// Appends pixels of `channels` samples as RGB in 8 bits: grey is copied, what follows colours is dropped.
pub(crate) fn append_rgb<T: Copy>(
    samples: &[T],
    channels: usize,
    to_byte: impl Fn(T) -> u8,
    rows: &mut Vec<u8>,
) {
    let pixels = samples.chunks_exact(channels);
    match channels {
        3 => rows.extend(samples.iter().map(|&sample| to_byte(sample))),
        1 | 2 => rows.extend(pixels.flat_map(|pixel| [to_byte(pixel[0]); 3])),
        _ => rows.extend(pixels.flat_map(|pixel| [0, 1, 2].map(|channel| to_byte(pixel[channel])))),
    }
}

/// A sample of 16 bits in 8.
pub(crate) fn high_byte(sample: u16) -> u8 {
    (sample >> 8) as u8
}

/// The number at `x` in a row of numbers of 1, 2, 4 or 8 bits.
pub(crate) fn packed(row: &[u8], x: usize, bits: usize) -> u8 {
    let from_left = x * bits;
    let shifted = row[from_left / 8] >> (8 - bits - from_left % 8);
    shifted & (u8::MAX >> (8 - bits))
}

/// The rows of a PNG file.
pub struct PngRows {
    file: File,
    reader: ::png::Reader<BufReader<File>>,
    channels: usize,
    /// The rows that were not read yet.
    left: u32,
}

impl PngRows {
    /// Reads the header. Interlaced files are not in rows.
    pub fn open(file: &File) -> Result<Self, Refused> {
        let reader = Self::start(file)?;
        let info = reader.info();
        if info.interlaced || info.exif_metadata.is_some() {
            return Err(Refused::NotInRows);
        }
        let (color, depth) = reader.output_color_type();
        if color == ColorType::Indexed || depth != BitDepth::Eight {
            return Err(Refused::NotInRows);
        }
        let left = reader.info().height;
        Ok(Self { file: file.try_clone()?, left, reader, channels: color.samples() })
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

/// The rows of a file from the top.
pub trait FileRows {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);
    /// Starts with the first row again.
    fn restart(&mut self) -> Result<(), Refused>;
    /// Appends the next rows to `rows`, [row, width, rgb]: at least one, of which some may be below the image's last row.
    fn append_to(&mut self, rows: &mut Vec<u8>) -> Result<(), Refused>;
}

impl FileRows for PngRows {
    fn size(&self) -> (u32, u32) {
        self.reader.info().size()
    }

    fn restart(&mut self) -> Result<(), Refused> {
        self.reader = Self::start(&self.file)?;
        self.left = self.reader.info().height;
        Ok(())
    }

    fn append_to(&mut self, rows: &mut Vec<u8>) -> Result<(), Refused> {
        let row = self.reader.next_row()?;
        let row = row.ok_or_else(|| Refused::Corrupt("it has too few rows".into()))?;
        rows.try_reserve(row.data().len() * 3).map_err(|_| Refused::Corrupt(no_memory(rows.len() as u64)))?;
        append_rgb(row.data(), self.channels, |sample| sample, rows);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            // A file without its end is truncated, as for a decoder of the whole.
            self.reader.finish()?;
        }
        Ok(())
    }
}

/// The conversion of a TIFF file's samples to RGB.
enum Samples {
    /// Grey or red, green, blue and then others.
    Channels(usize),
    /// Luma and chroma, as JPEG has them.
    YCbCr,
    /// Numbers of this many bits that stand for colours: a palette, or grey of less than eight bits.
    Mapped(u8, Vec<[u8; 3]>),
    /// Grey from 0 to 1.
    Floats,
}

/// The rows of a TIFF file, a strip or a row of tiles at a time.
pub struct TiffRows<R: Read + Seek> {
    decoder: TiffDecoder<R>,
    size: (u32, u32),
    /// Width and height of a strip or tile.
    chunk: (u32, u32),
    samples: Samples,
    /// As in EXIF: 1 is upright.
    pub orientation: u16,
    /// The first of the next row of chunks.
    next: u32,
}

type TiffDecoder<R> = Decoder<BufReader<Patched<R>>>;

impl TiffRows<File> {
    /// The rows of a file. One with an orientation is not in rows.
    pub fn open(file: &File) -> Result<Self, Refused> {
        let rows = Self::new(file.try_clone()?)?;
        if rows.orientation == 1 { Ok(rows) } else { Err(Refused::NotInRows) }
    }
}

impl<R: Read + Seek> TiffRows<R> {
    /// Reads the directory. Files with rare sample formats and separate planes are not in rows.
    pub fn new(mut reader: R) -> Result<Self, Refused> {
        let length = reader.seek(SeekFrom::End(0))?;
        let mut decoder = open_tiff(reader)?;
        let size = decoder.dimensions()?;
        let is_mapped = decoder.inner().get_ref().patch.is_some();
        let orientation = decoder.find_tag_unsigned::<u16>(Tag::Orientation)?.unwrap_or(1);
        let is_planar = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration)? == Some(2);
        let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?.unwrap_or_default();
        let is_all = |wanted: u16| formats.iter().all(|&format| format == wanted);
        let is_unsigned = is_all(1);
        let color = decoder.colortype().map_err(|_| Refused::NotInRows)?;
        let samples = match color {
            tiff::ColorType::Gray(bits @ (1 | 2 | 4 | 8)) if is_mapped => {
                Samples::Mapped(bits, palette(&mut decoder, bits)?)
            }
            _ if is_mapped => return Err(Refused::NotInRows),
            tiff::ColorType::Gray(bits @ (1 | 2 | 4)) => {
                let most = (1u16 << bits) - 1;
                Samples::Mapped(bits, (0..=most).map(|grey| [(grey * 255 / most) as u8; 3]).collect())
            }
            tiff::ColorType::Gray(32) if is_all(3) && !formats.is_empty() => Samples::Floats,
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
        if is_planar || !(is_unsigned || matches!(samples, Samples::Floats)) {
            return Err(Refused::NotInRows);
        }
        let chunk = decoder.chunk_dimensions();
        if chunk.0 == 0 || chunk.1 == 0 {
            return Err(Refused::Corrupt("its strips or tiles have no pixels".into()));
        }
        let compression = decoder.find_tag_unsigned::<u16>(Tag::Compression)?.unwrap_or(1);
        let bits = u64::from(color.bit_depth()) * u64::from(color.num_samples());
        check_chunks(size, chunk, bits, most_bytes(compression, length))?;
        Ok(Self { decoder, size, chunk, samples, orientation, next: 0 })
    }

    /// All pixels, [height, width, rgb].
    pub fn into_pixels(mut self) -> Result<Vec<u8>, Refused> {
        let bytes = u64::from(self.size.0) * u64::from(self.size.1) * 3;
        let mut pixels = Vec::new();
        reserve(&mut pixels, bytes)?;
        while (pixels.len() as u64) < bytes {
            self.append_to(&mut pixels)?;
        }
        Ok(pixels)
    }
}

/// The most bytes that a part of a file of `length` bytes can have when it is decoded.
fn most_bytes(compression: u16, length: u64) -> u64 {
    let factor = match compression {
        1 => 1,
        // LZW: 3838 codes of 9 to 12 bits, each a byte longer than the one before.
        5 => 1500,
        8 | 32_946 => 1032,
        32_773 => 64,
        _ => return u64::MAX,
    };
    length.saturating_mul(factor)
}

/// Checks before any memory is reserved that strips or tiles can be in the file, and a row of them in memory.
fn check_chunks(size: (u32, u32), chunk: (u32, u32), bits: u64, most: u64) -> Result<(), Refused> {
    check_size(size.0, size.1, MAX_TILED_PIXELS).map_err(Refused::Corrupt)?;
    let (width, height) = (chunk.0.min(size.0), chunk.1.min(size.1));
    let bytes = (u64::from(width) * bits).div_ceil(8).saturating_mul(u64::from(height));
    if bytes > most {
        return Err(Refused::Corrupt(TRUNCATED.into()));
    }
    let row = (u64::from(size.0) * 3).saturating_mul(u64::from(height));
    if bytes.max(row) > MAX_CHUNK_BYTES as u64 {
        if u64::from(size.0) * u64::from(size.1) <= MAX_PIXELS {
            return Err(Refused::NotInRows);
        }
        return Err(Refused::Corrupt(format!(
            "a row of its strips or tiles takes {} MiB: expected at most {} MiB; save it with smaller ones, such as by \
             `gdal_translate -co TILED=YES`",
            bytes.max(row) >> 20,
            MAX_CHUNK_BYTES >> 20
        )));
    }
    reserve(&mut Vec::new(), bytes)
}

/// A decoder that has read the first directory.
pub fn open_tiff<R: Read + Seek>(mut reader: R) -> Result<TiffDecoder<R>, Refused> {
    let patch = crate::image::palette_photometric(&mut reader);
    reader.seek(SeekFrom::Start(0))?;
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MAX_CHUNK_BYTES;
    limits.intermediate_buffer_size = MAX_CHUNK_BYTES;
    limits.ifd_value_size = MAX_VALUE_BYTES;
    Ok(Decoder::new(BufReader::new(Patched { reader, patch, at: 0 }))?.with_limits(limits))
}

/// Width and height that the directory of a TIFF file in memory declares.
pub fn tiff_size(bytes: &[u8]) -> Result<(u32, u32), Refused> {
    Ok(open_tiff(Cursor::new(bytes))?.dimensions()?)
}

/// A TIFF file whose pixels are indices of a palette, as grey: the decoder has no palettes.
pub struct Patched<R> {
    reader: R,
    /// Two bytes in place of those at a position.
    patch: Option<(u64, [u8; 2])>,
    at: u64,
}

impl<R: Read> Read for Patched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        for (index, byte) in self.patch.iter().flat_map(|(at, bytes)| (*at..).zip(bytes)) {
            if let Some(index) = index.checked_sub(self.at).filter(|&index| index < count as u64) {
                buffer[index as usize] = *byte;
            }
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl<R: Seek> Seek for Patched<R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = self.reader.seek(to)?;
        Ok(self.at)
    }
}

/// The colours of a palette.
fn palette<R: Read + Seek>(decoder: &mut TiffDecoder<R>, bits: u8) -> Result<Vec<[u8; 3]>, Refused> {
    let colors = 1usize << bits;
    let map = decoder.find_tag_unsigned_vec::<u16>(Tag::ColorMap)?.unwrap_or_default();
    if map.len() != 3 * colors {
        let message = format!("its palette has {} values: expected {}", map.len(), 3 * colors);
        return Err(Refused::Corrupt(message));
    }
    // Some programs write values of eight bits.
    let shift = if map.iter().all(|&value| value < 256) { 0 } else { 8 };
    let color = |index: usize| [0, 1, 2].map(|channel| (map[channel * colors + index] >> shift) as u8);
    Ok((0..colors).map(color).collect())
}

/// True for the first bytes of a TIFF file.
pub fn is_tiff(start: &[u8]) -> bool {
    matches!(start, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

impl<R: Read + Seek> FileRows for TiffRows<R> {
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
        let mut line = Vec::new();
        for column in 0..columns {
            let index = self.next * columns + column;
            let (data_width, data_height) = self.decoder.chunk_data_dimensions(index);
            let samples = self.decoder.read_chunk(index)?;
            if column == 0 {
                // After the first part was read, so that a file that declares more than it has takes no memory.
                reserve(rows, (count * row_bytes) as u64)?;
                rows.resize(start + count * row_bytes, 0);
            }
            for y in 0..count.min(data_height as usize) {
                line.clear();
                self.samples.append_row(&samples, data_width as usize, y, &mut line)?;
                let at = start + y * row_bytes + (column * chunk_width) as usize * 3;
                rows[at..at + line.len()].copy_from_slice(&line);
            }
        }
        self.next += 1;
        Ok(())
    }
}

impl Samples {
    /// Appends row `y` of a strip or tile as RGB.
    fn append_row(
        &self,
        samples: &DecodingResult,
        width: usize,
        y: usize,
        line: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let length = match self {
            Self::Channels(channels) => width * channels,
            Self::YCbCr => width * 3,
            Self::Mapped(bits, _) => (width * usize::from(*bits)).div_ceil(8),
            Self::Floats => width,
        };
        let range = y * length..(y + 1) * length;
        let missing = || Refused::Corrupt("a strip or tile is too short".into());
        match (self, samples) {
            (Self::Channels(channels), DecodingResult::U8(samples)) => {
                append_rgb(samples.get(range).ok_or_else(missing)?, *channels, |sample| sample, line);
            }
            (Self::Channels(channels), DecodingResult::U16(samples)) => {
                append_rgb(samples.get(range).ok_or_else(missing)?, *channels, high_byte, line);
            }
            (Self::YCbCr, DecodingResult::U8(samples)) => {
                let (pixels, _) = samples.get(range).ok_or_else(missing)?.as_chunks();
                line.extend(pixels.iter().flat_map(|pixel| from_ycbcr(*pixel)));
            }
            (Self::Mapped(bits, colors), DecodingResult::U8(samples)) => {
                let row = samples.get(range).ok_or_else(missing)?;
                let color = |x: usize| colors[usize::from(packed(row, x, usize::from(*bits)))];
                line.extend((0..width).flat_map(color));
            }
            (Self::Floats, DecodingResult::F32(samples)) => {
                for &sample in samples.get(range).ok_or_else(missing)? {
                    if !(sample.is_nan() || (0.0..=1.0).contains(&sample)) {
                        return Err(Refused::Corrupt(format!(
                            "it has the float {sample}: expected 0 to 1; save it with 8 bits, such as by \
                             `gdal_translate -ot Byte -scale`"
                        )));
                    }
                    line.extend([(sample * 255.0).round() as u8; 3]);
                }
            }
            _ => return Err(Refused::NotInRows),
        }
        Ok(())
    }
}

/// JPEG's conversion (JFIF 1.02).
fn from_ycbcr([y, blue, red]: [u8; 3]) -> [u8; 3] {
    let (y, blue, red) = (f32::from(y), f32::from(blue) - 128.0, f32::from(red) - 128.0);
    let rgb = [y + 1.402 * red, y - 0.344_136 * blue - 0.714_136 * red, y + 1.772 * blue];
    rgb.map(|value| value.round().clamp(0.0, 255.0) as u8)
}

impl Refused {
    /// The error of a file.
    pub fn about(self, name: &str) -> ocelli_error::Error {
        let why = match self {
            Self::NotInRows => "its samples change from part to part".to_owned(),
            Self::Corrupt(why) => why.lines().map(str::trim).collect::<Vec<_>>().join(" "),
        };
        crate::image::invalid(name, &why)
    }
}
