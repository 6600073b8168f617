//! What is read of an ONNX file without ONNX Runtime: its inputs, and which nodes compute from shapes alone.
//!
//! A walk over the file's protobuf records (`onnx.proto`: ModelProto, GraphProto, NodeProto, ValueInfoProto) that steps over
//! weights, so that a model of gigabytes is read in milliseconds.

use crate::spec::Dim;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

/// Records that describe a node or an input are small; what is larger holds weights in attributes.
const MAX_RECORD: u64 = 1 << 20;

/// A model's inputs and nodes.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) inputs: Vec<Input>,
    /// By their names: nodes that compute from shapes, and from nothing else but constants.
    pub(super) from_shapes: HashSet<String>,
}

/// An input's name and shape.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) dims: Vec<Dim>,
}

#[derive(Debug, Default)]
struct Node {
    name: String,
    operator: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Graph {
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        Self::read(&mut BufReader::new(File::open(path)?))
    }

    pub(super) fn of_bytes(model: &[u8]) -> io::Result<Self> {
        Self::read(&mut Cursor::new(model))
    }

    fn read<R: Read + Seek>(model: &mut R) -> io::Result<Self> {
        let (mut inputs, mut nodes) = (Vec::new(), Vec::new());
        let mut initializers = HashSet::new();
        let length = model.seek(SeekFrom::End(0))?;
        model.seek(SeekFrom::Start(0))?;
        fields(model, length, &mut |model, field, length| {
            // ModelProto.graph
            if field != 7 {
                return skip(model, length);
            }
            fields(model, length, &mut |model, field, length| {
                match field {
                    1 => nodes.push(node(model, length)?),
                    5 => initializers.extend(initializer(model, length)?),
                    11 => inputs.push(input(model, length)?),
                    _ => {}
                }
                Ok(())
            })
        })?;
        // Old files list weights among the inputs.
        inputs.retain(|input| !initializers.contains(&input.name));
        let from_shapes = from_shapes(&inputs, &nodes);
        Ok(Self { inputs, from_shapes })
    }
}

/// Nodes that see sizes and no element of an input: `Shape` and `Size` give sizes away and nothing else, and what comes
/// after them is as blind unless it looks elsewhere too.
fn from_shapes(inputs: &[Input], nodes: &[Node]) -> HashSet<String> {
    let mut users: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        node.inputs.iter().for_each(|input| users.entry(input).or_default().push(index));
    }
    let gives_sizes = |index: usize| matches!(nodes[index].operator.as_str(), "Shape" | "Size");
    // The nodes that values go into, and what these make of them, but for what passes as a size alone.
    let reached = |values: Vec<&str>| -> HashSet<usize> {
        let (mut fresh, mut reached) = (values, HashSet::new());
        while let Some(value) = fresh.pop() {
            for &index in users.get(value).into_iter().flatten() {
                if !gives_sizes(index) && reached.insert(index) {
                    fresh.extend(nodes[index].outputs.iter().map(String::as_str));
                }
            }
        }
        reached
    };
    let sizes = (0..nodes.len()).filter(|&index| gives_sizes(index));
    let outputs = sizes.clone().flat_map(|index| nodes[index].outputs.iter().map(String::as_str));
    let see_sizes = reached(outputs.collect());
    let see_elements = reached(inputs.iter().map(|input| input.name.as_str()).collect());
    // A name that two nodes share, or none, says nothing.
    let mut count: HashMap<&str, usize> = HashMap::new();
    nodes.iter().for_each(|node| *count.entry(&node.name).or_default() += 1);
    sizes
        .chain(see_sizes.difference(&see_elements).copied())
        .map(|index| &nodes[index].name)
        .filter(|name| !name.is_empty() && count[name.as_str()] == 1)
        .cloned()
        .collect()
}

type OnField<'f, R> = dyn FnMut(&mut R, u64, u64) -> io::Result<()> + 'f;

/// Calls `on` for each field of a message of `length` bytes that has a length of its own, and steps over the others.
fn fields<R: Read + Seek>(from: &mut R, length: u64, on: &mut OnField<'_, R>) -> io::Result<()> {
    let end = from.stream_position()?.checked_add(length).ok_or_else(broken)?;
    loop {
        let position = from.stream_position()?;
        if position == end {
            return Ok(());
        }
        if position > end {
            return Err(broken());
        }
        let tag = varint(from)?;
        match tag & 7 {
            0 => drop(varint(from)?),
            1 => skip(from, 8)?,
            2 => {
                let length = varint(from)?;
                let start = from.stream_position()?;
                let stop = start.checked_add(length).filter(|stop| *stop <= end).ok_or_else(broken)?;
                on(from, tag >> 3, length)?;
                from.seek(SeekFrom::Start(stop))?;
            }
            5 => skip(from, 4)?,
            _ => return Err(broken()),
        }
    }
}

fn varint<R: Read>(from: &mut R) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken())
}

fn skip<R: Seek>(from: &mut R, length: u64) -> io::Result<()> {
    from.seek_relative(i64::try_from(length).map_err(|_| broken())?)
}

fn text<R: Read>(from: &mut R, length: u64) -> io::Result<String> {
    if length > MAX_RECORD {
        return Err(broken());
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| broken())
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is no ONNX model")
}

fn node<R: Read + Seek>(from: &mut R, length: u64) -> io::Result<Node> {
    let mut node = Node::default();
    fields(from, length, &mut |from, field, length| {
        match field {
            1 => node.inputs.push(text(from, length)?),
            2 => node.outputs.push(text(from, length)?),
            3 => node.name = text(from, length)?,
            4 => node.operator = text(from, length)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(node)
}

/// An initialiser's name, if it has one.
fn initializer<R: Read + Seek>(from: &mut R, length: u64) -> io::Result<Option<String>> {
    let mut name = None;
    fields(from, length, &mut |from, field, length| {
        if field == 8 {
            name = Some(text(from, length)?);
        }
        Ok(())
    })?;
    Ok(name)
}

/// ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; its shape 2; its dim 1.
fn input<R: Read + Seek>(from: &mut R, length: u64) -> io::Result<Input> {
    let mut input = Input::default();
    fields(from, length, &mut |from, field, length| match field {
        1 => {
            input.name = text(from, length)?;
            Ok(())
        }
        2 => fields(from, length, &mut |from, field, length| match field {
            1 => fields(from, length, &mut |from, field, length| match field {
                2 => fields(from, length, &mut |from, field, length| {
                    if field == 1 {
                        input.dims.push(dimension(from, length)?);
                    }
                    Ok(())
                }),
                _ => Ok(()),
            }),
            _ => Ok(()),
        }),
        _ => Ok(()),
    })?;
    Ok(input)
}

/// TensorShapeProto.Dimension: dim_value 1, dim_param 2.
fn dimension<R: Read + Seek>(from: &mut R, length: u64) -> io::Result<Dim> {
    let end = from.stream_position()? + length;
    let mut dim = Dim::named("");
    while from.stream_position()? < end {
        let tag = varint(from)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => dim = Dim::Fixed(usize::try_from(varint(from)?).map_err(|_| broken())?),
            (2, 2) => {
                let length = varint(from)?;
                dim = Dim::Named(text(from, length)?);
            }
            (_, 2) => {
                let length = varint(from)?;
                skip(from, length)?;
            }
            (_, 0) => drop(varint(from)?),
            _ => return Err(broken()),
        }
    }
    Ok(dim)
}

#[cfg(test)]
mod tests;
