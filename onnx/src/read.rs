//! Reads a graph without its weights.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use prost::Message;

use crate::schema::{GraphProto, NodeProto, TensorProto, ValueInfoProto};

/// The longest field that is read: names and shapes are small.
const MAX_FIELD_BYTES: u64 = 1 << 20;

/// Reads the graph of an ONNX file without its weights: initializers have a name and a type, nodes have no attributes.
/// External data is not opened.
///
/// # Errors
/// [`InvalidData`](io::ErrorKind::InvalidData) or [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) for a file that is not
/// an ONNX model, and the file system's own errors. A file that is cut off between two fields reads as a smaller graph.
pub fn read_graph(path: &Path) -> io::Result<GraphProto> {
    read_graph_from(&mut BufReader::new(File::open(path)?))
}

/// As [`read_graph`], from anything that can seek.
pub fn read_graph_from<R: Read + Seek>(model: &mut R) -> io::Result<GraphProto> {
    // ModelProto.graph; the fields of GraphProto; NodeProto.attribute.
    const GRAPH: u32 = 7;
    const NODE: u32 = 1;
    const NAME: u32 = 2;
    const INITIALIZER: u32 = 5;
    const INPUT: u32 = 11;
    const OUTPUT: u32 = 12;
    const ATTRIBUTE: u32 = 5;
    // TensorProto's data, by element type, and external_data.
    const DATA: [u32; 8] = [4, 5, 6, 7, 9, 10, 11, 13];

    let length = model.seek(SeekFrom::End(0))?;
    model.seek(SeekFrom::Start(0))?;
    let mut graph = GraphProto::default();
    for_each_field(model, length, &mut |model, field| {
        if field.number != GRAPH {
            return Ok(());
        }
        for_each_field(model, field.length, &mut |model, Field { number, length, .. }| {
            match number {
                NODE => graph.node.push(read_without::<_, NodeProto>(model, length, &[ATTRIBUTE])?),
                NAME => graph.name = String::from_utf8(bytes(model, length)?).map_err(|_| malformed())?,
                INITIALIZER => graph.initializer.push(read_without::<_, TensorProto>(model, length, &DATA)?),
                INPUT => graph.input.push(read_without::<_, ValueInfoProto>(model, length, &[])?),
                OUTPUT => graph.output.push(read_without::<_, ValueInfoProto>(model, length, &[])?),
                _ => {}
            }
            Ok(())
        })
    })?;
    Ok(graph)
}

/// A field of a message; the reader stands at its value.
struct Field {
    number: u32,
    /// Bytes of the value.
    length: u64,
    /// Key and length as they are in the file; for a field without a length also the value, which the reader has passed.
    head: Vec<u8>,
}

type OnField<'f, R> = dyn FnMut(&mut R, Field) -> io::Result<()> + 'f;

/// Calls `on_field` for every field of the message in the next `length` bytes. It may read the field's value or not.
fn for_each_field<R: Read + Seek>(
    from: &mut R,
    length: u64,
    on_field: &mut OnField<'_, R>,
) -> io::Result<()> {
    let mut position = from.stream_position()?;
    let end = position.checked_add(length).ok_or_else(malformed)?;
    while position < end {
        let mut head = Vec::new();
        let key = varint(from, &mut head)?;
        let number = u32::try_from(key >> 3).map_err(|_| malformed())?;
        let length = match key & 7 {
            0 => varint(from, &mut head).map(|_| 0)?,
            1 => 8,
            2 => varint(from, &mut head)?,
            5 => 4,
            _ => return Err(malformed()),
        };
        let start = from.stream_position()?;
        position = start.checked_add(length).filter(|stop| *stop <= end).ok_or_else(malformed)?;
        on_field(from, Field { number, length, head })?;
        let behind = i64::try_from(position).ok().zip(i64::try_from(from.stream_position()?).ok());
        let (to, at) = behind.ok_or_else(malformed)?;
        from.seek_relative(to - at)?;
    }
    Ok(())
}

/// The message in the next `length` bytes, as if it lacked these fields.
fn read_without<R: Read + Seek, M: Message + Default>(
    from: &mut R,
    length: u64,
    skip: &[u32],
) -> io::Result<M> {
    let mut kept = Vec::new();
    for_each_field(from, length, &mut |from, field| {
        if !skip.contains(&field.number) {
            kept.extend(field.head);
            kept.extend(bytes(from, field.length)?);
        }
        Ok(())
    })?;
    M::decode(kept.as_slice()).map_err(|_| malformed())
}

fn bytes<R: Read>(from: &mut R, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_FIELD_BYTES {
        return Err(malformed());
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A number of 7 bits a byte, least significant first; its bytes are appended to `raw`.
fn varint<R: Read>(from: &mut R, raw: &mut Vec<u8>) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        raw.extend(byte);
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an ONNX model")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{AttributeProto, DimensionValue, ModelProto, data_type};
    use std::io::Cursor;

    fn model() -> ModelProto {
        let value = |name: &str| {
            let dims = [DimensionValue::DimParam("classes".into()), DimensionValue::DimValue(300)];
            ValueInfoProto::tensor(name, data_type::FLOAT, dims)
        };
        let node = NodeProto {
            input: vec!["x".into(), "weights".into()],
            output: vec!["y".into()],
            name: "product".into(),
            op_type: "MatMul".into(),
            attribute: vec![AttributeProto {
                name: "note".into(),
                s: vec![7; 400],
                ..AttributeProto::default()
            }],
            domain: "com.microsoft".into(),
        };
        let weights = TensorProto {
            dims: vec![300, 300],
            data_type: data_type::FLOAT,
            name: "weights".into(),
            raw_data: Some(vec![1; 3000]),
            ..TensorProto::default()
        };
        let graph = GraphProto {
            node: vec![node],
            name: "test".into(),
            initializer: vec![weights],
            input: vec![value("x")],
            output: vec![value("y")],
        };
        ModelProto {
            ir_version: 9,
            producer_name: "tests".into(),
            graph: Some(graph),
            ..ModelProto::default()
        }
    }

    #[test]
    fn a_graph_is_read_without_weights_and_attributes() {
        let model = model();
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), model.encode_to_vec()).expect("the file is ours");
        let mut expected = model.graph.expect("it has a graph");
        expected.initializer[0].raw_data = None;
        expected.node[0].attribute.clear();
        assert_eq!(read_graph(file.path()).expect("it is a model"), expected);
    }

    #[test]
    fn corrupt_files_are_errors_or_smaller_graphs() {
        let good = model().encode_to_vec();
        let mut wrong = Vec::new();
        for length in 0..good.len() {
            match read_graph_from(&mut Cursor::new(&good[..length])) {
                Ok(graph) if !graph.input.is_empty() => wrong.push(format!("cut to {length}: {graph:?}")),
                _ => {}
            }
        }
        let mut damaged = good.clone();
        for position in 0..damaged.len() {
            let kept = std::mem::replace(&mut damaged[position], 0xff);
            // It may be read as something else, but reading ends.
            drop(read_graph_from(&mut Cursor::new(&damaged)));
            damaged[position] = kept;
        }
        for text in
            [&b"not a model, but a text of some length"[..], b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
        {
            if let Ok(graph) = read_graph_from(&mut Cursor::new(text)) {
                wrong.push(format!("{text:?}: {graph:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
