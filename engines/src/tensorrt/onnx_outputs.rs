//! The names that an ONNX file gives to the dimensions of its outputs: TensorRT's parser keeps those of inputs alone.
//!
//! A reader of as much of protobuf's wire format as that takes. Weights are skipped, not read; field numbers are those of
//! `onnx.proto3`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// `dim_param` of each dimension, by output; `None` for a dimension that has none.
pub(super) type DimensionNames = BTreeMap<String, Vec<Option<String>>>;

/// More than any description of an output.
const LONGEST: u64 = 1 << 20;

/// Reads the names. The file was parsed by TensorRT before.
pub(super) fn read(path: &Path) -> io::Result<DimensionNames> {
    const GRAPH: u64 = 7;
    const OUTPUT: u64 = 12;
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let mut names = DimensionNames::new();
    let mut graph = 0;
    walk(&mut reader, length, |reader, number, length| {
        if number != GRAPH {
            return skip(reader, length);
        }
        // Its fields follow, and are gone through next.
        graph = length;
        Ok(Step::Stop)
    })?;
    walk(&mut reader, graph, |reader, number, length| {
        if number != OUTPUT || length > LONGEST {
            return skip(reader, length);
        }
        let mut output = vec![0; length as usize];
        reader.read_exact(&mut output)?;
        names.extend(output_names(&output));
        Ok(Step::On)
    })?;
    Ok(names)
}

/// Whether to go on to the next field.
enum Step {
    On,
    Stop,
}

/// Calls `field` with number and length of each field that has a length, in the next `length` bytes; it consumes the
/// field, or stops.
fn walk<R: Read>(
    reader: &mut R,
    length: u64,
    mut field: impl FnMut(&mut R, u64, u64) -> io::Result<Step>,
) -> io::Result<()> {
    let mut remaining = length;
    while remaining > 0 {
        let found = Field::read(reader)?;
        let length = found.length.unwrap_or(0);
        let used = found.bytes.checked_add(length).ok_or(io::ErrorKind::InvalidData)?;
        remaining = remaining.checked_sub(used).ok_or(io::ErrorKind::InvalidData)?;
        if found.length.is_some()
            && let Step::Stop = field(reader, found.number, length)?
        {
            return Ok(());
        }
    }
    Ok(())
}

fn skip(reader: &mut BufReader<File>, length: u64) -> io::Result<Step> {
    reader.seek_relative(i64::try_from(length).map_err(io::Error::other)?)?;
    Ok(Step::On)
}

/// The beginning of a field.
struct Field {
    number: u64,
    /// What follows, in bytes, if it is more than a number; numbers are consumed.
    length: Option<u64>,
    /// How many bytes were read.
    bytes: u64,
}

impl Field {
    fn read(reader: &mut impl Read) -> io::Result<Self> {
        let (key, mut bytes) = varint(reader)?;
        let mut length = None;
        match key & 7 {
            0 => bytes += varint(reader)?.1,
            1 => length = Some(8),
            2 => {
                let (size, more) = varint(reader)?;
                (length, bytes) = (Some(size), bytes + more);
            }
            5 => length = Some(4),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(Self { number: key >> 3, length, bytes })
    }
}

/// A number of 7 bits a byte, least first, and how many bytes it had.
fn varint(reader: &mut impl Read) -> io::Result<(u64, u64)> {
    let mut value = 0;
    for index in 0..10 {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7f) << (7 * index);
        if byte[0] < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// The fields of a message that is in memory and have a length.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let field = Field::read(&mut message).ok()?;
            let Some(length) = field.length else { continue };
            let (value, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
            message = rest;
            return Some((field.number, value));
        }
        None
    })
}

/// Name and dimensions of a `ValueInfoProto`.
fn output_names(output: &[u8]) -> Option<(String, Vec<Option<String>>)> {
    const NAME: u64 = 1;
    // ValueInfoProto.type, TypeProto.tensor_type, TypeProto.Tensor.shape.
    const TO_SHAPE: [u64; 3] = [2, 1, 2];
    const DIMENSION: u64 = 1;
    const PARAMETER: u64 = 2;
    let inner = |message, number| fields(message).find(|(found, _)| *found == number).map(|(_, value)| value);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = text(inner(output, NAME)?);
    let shape = TO_SHAPE.iter().try_fold(output, |message, number| inner(message, *number))?;
    let dims = fields(shape).filter(|(number, _)| *number == DIMENSION);
    let names = dims.map(|(_, dim)| inner(dim, PARAMETER).map(text).filter(|name| !name.is_empty()));
    Some((name, names.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that has a length.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = value.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(value);
        bytes
    }

    fn output(name: &str, dims: &[&[u8]]) -> Vec<u8> {
        let shape: Vec<u8> = dims.iter().flat_map(|dim| field(1, dim)).collect();
        let tensor = [&b"\x08\x01"[..], &field(2, &shape)].concat();
        field(12, &[field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat())
    }

    #[test]
    fn names_are_found_between_everything_else() {
        let classes = field(2, b"classes");
        let four = b"\x08\x04".to_vec();
        let weights = field(5, &field(9, &[7; 300]));
        let logits = output("logits", &[&classes, &four]);
        let scalar = output("scalar", &[]);
        let graph = field(7, &[weights.clone(), logits, field(2, b"graph"), scalar, weights].concat());
        let whole = [b"\x08\x08".to_vec(), field(2, b"ocelli"), graph, field(8, b"\x10\x14")].concat();
        let expected = DimensionNames::from([
            ("logits".to_owned(), vec![Some("classes".to_owned()), None]),
            ("scalar".to_owned(), vec![]),
        ]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, &whole).expect("a file");
        // A shape without dimensions is an empty message, which is there.
        assert_eq!(read(&path).expect("names"), expected);
        // What breaks off is an error or fewer names, at every length.
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a file");
            if let Ok(names) = read(&path) {
                assert!(names.keys().all(|name| expected.contains_key(name)), "{length}: {names:?}");
            }
        }
    }
}
