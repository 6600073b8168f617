//! The names that an ONNX file gives to the dimensions of its outputs: TensorRT's parser keeps only those of inputs.
//!
//! Reads just enough of protobuf's wire format; field numbers are those of `onnx.proto3`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// `dim_param` of each dimension, by output; `None` for a dimension without one.
pub(super) type DimensionNames = BTreeMap<String, Vec<Option<String>>>;

/// Reads the names from a file that TensorRT has parsed.
pub(super) fn read(path: &Path) -> io::Result<DimensionNames> {
    const GRAPH: u64 = 7;
    const OUTPUT: u64 = 12;
    let model = std::fs::read(path)?;
    let outputs = fields(&model).filter(|(number, _)| *number == GRAPH).flat_map(|(_, graph)| fields(graph));
    Ok(outputs
        .filter(|(number, _)| *number == OUTPUT)
        .filter_map(|(_, output)| output_names(output))
        .collect())
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

/// The number and content of each field of a message that is not a varint; ends at the first malformed one.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut message)?;
            let length = match key & 7 {
                0 => {
                    varint(&mut message)?;
                    continue;
                }
                1 => 8,
                2 => varint(&mut message)?,
                5 => 4,
                _ => return None,
            };
            let (value, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
            message = rest;
            return Some((key >> 3, value));
        }
    })
}

/// A number in 7 bits a byte, least significant first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for index in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
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
    fn names_are_found_among_other_fields() {
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
        // A shape without dimensions is an empty message, not a missing one.
        assert_eq!(read(&path).expect("names"), expected);
        // A truncated file gives an error or fewer names, at every length.
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a file");
            if let Ok(names) = read(&path) {
                assert!(names.keys().all(|name| expected.contains_key(name)), "{length}: {names:?}");
            }
        }
    }
}
