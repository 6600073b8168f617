//! Files that hold tensors: safetensors, and the zip archives of `torch.save`.
//!
//! A file is mapped into memory, never copied. Every tensor becomes a [`View`]: a byte range of the map with a format, a
//! shape and strides, checked to lie inside the file. Nothing that a file says is executed.

#![allow(unsafe_code, reason = "a file is mapped into memory")]

mod pickle;
mod torch;
mod zip;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use ndarray::{ArrayView, IxDyn, ShapeBuilder};
use safetensors::{Dtype, SafeTensors};

use crate::errors::invalid;
use ocelli_error::{Error, Result};

/// The number format of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
    /// Two 32-bit floats. Listed, never read.
    Complex64,
    /// A format without a reader, of so many bits.
    Other(usize),
}

/// Formats: bits, name, type in safetensors, and the start of the name of the storage in PyTorch, `DoubleStorage`.
const FORMATS: [(Format, usize, &str, Dtype, &str); 11] = [
    (Format::F64, 64, "f64", Dtype::F64, "Double"),
    (Format::F32, 32, "f32", Dtype::F32, "Float"),
    (Format::F16, 16, "f16", Dtype::F16, "Half"),
    (Format::Bf16, 16, "bf16", Dtype::BF16, "BFloat16"),
    (Format::I64, 64, "i64", Dtype::I64, "Long"),
    (Format::I32, 32, "i32", Dtype::I32, "Int"),
    (Format::I16, 16, "i16", Dtype::I16, "Short"),
    (Format::I8, 8, "i8", Dtype::I8, "Char"),
    (Format::U8, 8, "u8", Dtype::U8, "Byte"),
    (Format::Bool, 8, "bool", Dtype::BOOL, "Bool"),
    (Format::Complex64, 64, "complex64", Dtype::C64, "ComplexFloat"),
];

impl Format {
    fn bits(self) -> usize {
        match self {
            Self::Other(bits) => bits,
            _ => FORMATS.iter().find(|(format, ..)| *format == self).map_or(8, |(_, bits, ..)| *bits),
        }
    }

    /// `true` if its values can be weights.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }

    fn of(dtype: Dtype) -> Self {
        let known = FORMATS.iter().find(|(.., known, _)| *known == dtype);
        known.map_or(Self::Other(dtype.bitsize()), |(format, ..)| *format)
    }

    /// The format of a storage's class in PyTorch.
    fn of_storage(class: &str) -> Self {
        let name = class.rsplit('.').next().unwrap_or(class);
        let known = FORMATS.iter().find(|(.., kind)| name.strip_suffix("Storage") == Some(kind));
        known
            .map_or(Self::Other(if name == "ComplexDoubleStorage" { 128 } else { 8 }), |(format, ..)| *format)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FORMATS.iter().find(|(format, ..)| format == self) {
            Some((_, _, name, ..)) => f.write_str(name),
            None => write!(f, "{}-bit", self.bits()),
        }
    }
}

/// A strided view of numbers in a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The index of the file.
    pub(crate) file: usize,
    pub(crate) format: Format,
    pub(crate) shape: Vec<usize>,
    /// In elements, for each axis.
    strides: Vec<usize>,
    /// The first element, in elements from the start of the range.
    offset: usize,
    /// Byte range of the storage in the file.
    range: (usize, usize),
}

/// A view that repeats its storage has at most so many elements.
const MAX_REPEATED: usize = 1 << 24;

impl View {
    /// A view of `range`, or the reason why it does not lie inside.
    fn new(
        format: Format,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        range: (usize, usize),
    ) -> Result<Self, String> {
        let stored = (range.1 - range.0) / (format.bits() / 8).max(1);
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).ok_or("its shape overflows")?;
        if shape.len() != strides.len() {
            return Err(format!("shape {shape:?} and strides {strides:?} differ in length"));
        }
        if count > stored.max(MAX_REPEATED) {
            return Err(format!("shape {shape:?} is larger than its storage of {stored} numbers"));
        }
        if count > 0 {
            let last = shape.iter().zip(&strides).try_fold(offset, |at, (size, stride)| {
                (size - 1).checked_mul(*stride).and_then(|step| at.checked_add(step))
            });
            if last.is_none_or(|last| last >= stored) {
                return Err(format!(
                    "shape {shape:?} with strides {strides:?} from {offset} exceeds its storage of {stored} numbers"
                ));
            }
        }
        Ok(Self { file: 0, format, shape, strides, offset, range })
    }

    /// A view without values.
    #[cfg(test)]
    pub(super) fn of_shape(format: Format, shape: &[usize]) -> Self {
        let strides = dense_strides(shape).expect("a small shape");
        Self { file: 0, format, shape: shape.to_vec(), strides, offset: 0, range: (0, 0) }
    }

    /// The number of its elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its size in bytes, as if it were stored densely.
    pub(crate) fn bytes(&self) -> u64 {
        (self.count() as u64).saturating_mul(self.format.bits() as u64 / 8)
    }

    /// `size` entries of `axis` from `start`.
    pub(crate) fn narrow(&self, axis: usize, start: usize, size: usize) -> Option<Self> {
        let end = start.checked_add(size)?;
        if self.shape.get(axis).is_none_or(|found| end > *found) {
            return None;
        }
        let mut view = self.clone();
        view.offset += start * self.strides[axis];
        view.shape[axis] = size;
        Some(view)
    }

    /// A matrix with rows and columns exchanged.
    pub(crate) fn transposed(&self) -> Option<Self> {
        if self.shape.len() != 2 {
            return None;
        }
        let mut view = self.clone();
        view.shape.reverse();
        view.strides.reverse();
        Some(view)
    }

    /// The values as f32, in the order of the shape. Empty for a format that is not floating point.
    pub(crate) fn read(&self, files: &[MappedFile]) -> Vec<f32> {
        self.values(&files[self.file].map)
    }

    /// As [`read`](Self::read), from the bytes of the file.
    fn values(&self, file: &[u8]) -> Vec<f32> {
        let bytes = &file[self.range.0..self.range.1];
        match self.format {
            Format::F64 => self.gather(bytes, |b| f64::from_le_bytes(b) as f32),
            Format::F32 => self.gather(bytes, f32::from_le_bytes),
            Format::F16 => self.gather(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Format::Bf16 => self.gather(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            _ => Vec::new(),
        }
    }

    fn gather<const N: usize>(&self, bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        if self.count() == 0 {
            return Vec::new();
        }
        let (numbers, _) = bytes.as_chunks::<N>();
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        let view =
            ArrayView::from_shape(shape, &numbers[self.offset..]).expect("views are inside of their storage");
        match view.to_slice() {
            Some(dense) => dense.iter().map(|b| convert(*b)).collect(),
            None => view.iter().map(|b| convert(*b)).collect(),
        }
    }
}

/// A file in memory.
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    pub(crate) map: Mmap,
}

/// A value beside the tensors of a `.pt` file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Integer(i64),
    Text(String),
    List(Vec<Attribute>),
    Map(Vec<(String, Attribute)>),
    /// Anything else.
    Other,
}

/// The tensors of each dictionary in a file, by its path.
type Groups = BTreeMap<String, Vec<(String, View)>>;

/// The content of one file.
pub(crate) struct Container {
    pub(crate) file: MappedFile,
    /// Tensors by the dictionary that holds them, `model` or `optimizer/state/0`; the root's name is empty.
    pub(crate) groups: Groups,
    /// The values at the root that are not tensors.
    pub(crate) attributes: Vec<(String, Attribute)>,
}

impl Container {
    /// Maps a file and lists its tensors.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be read, [`InvalidData`](crate::ErrorKind::InvalidData) if it is neither
    /// format, or corrupt.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let handle = File::open(path).map_err(|e| Error::io("cannot open the weights", path, e))?;
        // SAFETY: the map is only read. If another program truncates the file meanwhile, this one ends with a bus error;
        // the crate's documentation says that a checkpoint must not change during an export.
        let map = unsafe { Mmap::map(&handle) }.map_err(|e| Error::io("cannot map the weights", path, e))?;
        let file = MappedFile { path: path.to_owned(), map };
        let bytes = &file.map[..];
        if let Some(why) = answer(bytes).or_else(|| unsupported(bytes).map(str::to_owned)) {
            return Err(invalid(format!("cannot read the weights, {}: {why}", path.display())));
        }
        let corrupt =
            |why: String| invalid(format!("corrupt or truncated weights, {}: {why}", path.display()));
        if zip::is_zip(bytes) {
            let (groups, attributes) = torch::read(bytes).map_err(corrupt)?;
            return Ok(Self { groups, attributes, file });
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| corrupt(e.to_string()))?;
        let base = bytes.as_ptr() as usize;
        let mut found = Vec::new();
        for (name, view) in tensors.tensors() {
            let start = view.data().as_ptr() as usize - base;
            let (format, shape) = (Format::of(view.dtype()), view.shape().to_vec());
            let range = (start, start + view.data().len());
            let dense = dense_strides(&shape).ok_or_else(|| corrupt(format!("tensor {name} overflows")))?;
            let view = match format {
                // Formats of 4 or 6 bits have no strides in bytes.
                Format::Other(_) => View { file: 0, format, shape, strides: dense, offset: 0, range },
                _ => View::new(format, shape, dense, 0, range)
                    .map_err(|why| corrupt(format!("tensor {name}: {why}")))?,
            };
            found.push((name, view));
        }
        Ok(Self { groups: BTreeMap::from([(String::new(), found)]), attributes: Vec::new(), file })
    }
}

/// The strides of a dense tensor.
fn dense_strides(shape: &[usize]) -> Option<Vec<usize>> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].checked_mul(shape[axis])?;
    }
    Some(strides)
}

/// The answer of a server that was saved in place of a file: its first line, if the file is short and text.
fn answer(bytes: &[u8]) -> Option<String> {
    const LONGEST: usize = 64 << 10;
    if bytes.len() > LONGEST || bytes.starts_with(LFS_POINTER) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    if text.contains(|c: char| c.is_control() && !c.is_whitespace())
        || text.starts_with('{') && !text.contains("\"error\"")
    {
        return None;
    }
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let shown: String = line.chars().take(200).collect();
    Some(format!(
        "it is neither safetensors nor an archive of torch.save, but text: \"{shown}\"; if a download was refused, accept the \
         licence and download the file again"
    ))
}

/// The start of a pointer of Git LFS.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// Why a file that is known by its first bytes cannot be read.
fn unsupported(bytes: &[u8]) -> Option<&'static str> {
    const SAVE_AGAIN: &str = "it is in the format of PyTorch before 1.6; save it again with a newer one: \
                              torch.save(torch.load(\"old.pt\"), \"new.pt\")";
    if bytes.is_empty() {
        Some("the file is empty")
    } else if bytes.starts_with(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
        || bytes.get(257..262) == Some(b"ustar")
    {
        Some(SAVE_AGAIN)
    } else if bytes.starts_with(b"\x80") && bytes.get(1).is_some_and(|version| *version <= 5) {
        Some("it is a bare pickle; expected a file written by torch.save, or safetensors")
    } else if bytes.starts_with(LFS_POINTER) {
        Some("it is a pointer of Git LFS, not the weights; download the file itself")
    } else if bytes.starts_with(b"GGUF") {
        Some("it is a GGUF file; expected a .pt file or safetensors")
    } else if !zip::is_zip(bytes) && bytes.get(8) != Some(&b'{') {
        Some("it is corrupt, or neither safetensors nor an archive of torch.save")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
